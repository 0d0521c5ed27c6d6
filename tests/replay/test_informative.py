"""Cases where topogate answers otherwise than the peer on purpose, or where the peer is wrong: the answer must be right by itself.

Right is what keeps our own promises node by node, and what `tools/validate.py` of the vectors finds no fault
in. Where the peer's answer is right in both ways, too, there must be one.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from core.model.podset import PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.engine import Decision, PodSetPlacement
from core.placement.topology.free_capacity import FreeCapacity
from core.placement.topology.node_eligibility import read_taints
from tests.builders import Node
from tests.placement.promises import find_broken_promises
from tests.replay import placement
from tests.replay.test_placement_vectors import HERE, PEER, load
from tests.strategies import Cluster

Case = dict[str, Any]
FILES = {
    "generated": HERE / "placement" / "placement_informative.jsonl",
    "peer": PEER / "placement_tables_informative.jsonl",
}
on_each_file = pytest.mark.parametrize("file", FILES)


def module_of_vectors(name: str) -> ModuleType:
    """A module of the vectors' own tools, which import each other by name."""
    folder = PEER.parent / "tools"
    if not (folder / f"{name}.py").exists():
        pytest.skip(f"{folder} is not here; TOPOGATE_PEER_VECTORS names the folder beside it")
    before = sys.modules.get("generate")
    sys.modules["generate"] = generate = _module(folder / "generate.py", "generate")
    try:
        return generate if name == "generate" else _module(folder / f"{name}.py", name)
    finally:
        del sys.modules["generate"]
        if before is not None:
            sys.modules["generate"] = before


@cache
def validator() -> Callable[[Case], list[str]]:
    """`problems` of the vectors' own validate.py."""
    problems: Callable[[Case], list[str]] = module_of_vectors("validate").problems
    return problems


def _module(path: Any, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_hostname(case: Case) -> bool:
    return bool(case["levels"][-1] == HOSTNAME_LABEL)


def blind(case: Case) -> Case:
    return {key: value for key, value in case.items() if key != "expect"}


def own_problems(case: Case, decision: Decision) -> list[str]:
    """What a complete answer to a case breaks of our promises."""
    view, requests = placement.build_view(case), placement.build_requests(case)
    wire = {node["name"]: node for node in case["nodes"]}
    nodes = tuple(
        Node(name, wire[name]["labels"], {}, read_taints(wire[name]), wire[name].get("ready", True), wire[name].get("unschedulable", False))
        for name in view.tree.names
    )
    free = {name: {resource: int(view.free[row, i]) for resource, row in view.axis.items()} for i, name in enumerate(view.tree.names)}
    stay = {request.name: _stayed(view, case, request, decision) for request in requests}
    for request in requests:
        for name, count in stay[request.name].items():
            for resource, amount in {**request.requests, "pods": 1}.items():
                free[name][resource] = free[name].get(resource, 0) - amount * count
    kept = {name for pods in stay.values() for name in pods}
    over = [f"{name} is over its {resource}" for name in kept for resource, left in free[name].items() if left < 0]
    if over:
        return over
    workload = case.get("workload") or {}
    failed: list[str] = []
    if workload.get("owned_by_single_pod"):
        return []  # nothing is to change, the lost pod's place included
    if workload:
        hosts = {node.labels[HOSTNAME_LABEL]: node.name for node in nodes}
        failed = [hosts.get(name, name) for name in workload["unhealthy_nodes"]]
        known = {request.name for request in requests}
        for held in placement.build_held(case, requests):
            pods = {hosts[domain.values[-1]]: domain.count for domain in held.assignment.domains if domain.values[-1] in hosts}
            stay[held.request.name] = {name: count for name, count in pods.items() if name not in failed}
            if held.request.name not in known:
                requests.append(held.request)
                untouched = PodSetPlacement(held.request.name, held.assignment, "", tuple(pods.items()))
                decision = Decision((*decision.placements, untouched))
    return find_broken_promises(Cluster(tuple(case["levels"]), nodes), requests, decision, stay, free, failed)


def _stayed(view: FreeCapacity, case: Case, request: PodSetRequest, decision: Decision) -> dict[str, int]:
    """Of an elastic pod set the pods that stay in their domain, wherever in it they are; they need not be eligible any more."""
    previous = next(each.get("previous_assignment") for each in case["pod_sets"] if each["name"] == request.name)
    quota = {tuple(domain["values"]): domain["count"] for domain in previous["domains"]} if previous else {}
    lowest = view.tree.levels[view.tree.lowest]
    emitted = {
        view.tree.names[node]: view.tree.emitted[domain]
        for domain in range(lowest.count)
        for node in range(lowest.starts[domain], lowest.ends[domain])
    }
    eligible = dict(zip(view.tree.names, view.find_eligible(request).tolist(), strict=True)) if quota else {}
    stay: dict[str, int] = {}
    nodes = next((each.nodes for each in decision.placements if each.pod_set == request.name), ())
    for name, count in sorted(nodes, key=lambda node: eligible.get(node[0], True)):
        stay[name] = min(count, quota.get(emitted[name], 0))
        quota[emitted[name]] = quota.get(emitted[name], 0) - stay[name]
    return {name: count for name, count in stay.items() if count}


def theirs(case: Case) -> Decision | None:
    """The peer's answer in a hostname topology as one of ours; None where it fails or names a node that is not there."""
    hosts = {path[-1]: name for tree in [placement.build_view(case).tree] for path, name in zip(tree.paths, tree.names, strict=True)}
    found = []
    for entry in case["expect"]["pod_sets"] if case["expect"]["ok"] else ():
        assignment = placement.parse_assignment(entry["assignment"])
        if any(domain.values[-1] not in hosts for domain in assignment.domains):
            return None
        pods = tuple((hosts[domain.values[-1]], domain.count) for domain in assignment.domains)
        found.append(PodSetPlacement(entry["name"], assignment, "", pods))
    return Decision(tuple(found)) if found else None


@on_each_file
def test_every_answer_keeps_our_promises(file: str):
    wrong = {}
    for case in load(FILES[file]):
        decision = placement.decide(blind(case))
        if decision.refusal is None and (found := own_problems(case, decision)):
            wrong[case["id"]] = found
    assert wrong == {}


@on_each_file
def test_validate_finds_no_fault_in_an_answer_over_hostnames(file: str):
    """Elsewhere it sums capacity over the nodes of a rack, as the peer does, and knows no node to judge by."""
    wrong = {}
    for case in filter(is_hostname, load(FILES[file])):
        if found := validator()(case | {"expect": placement.answer(blind(case))}):
            wrong[case["id"]] = found
    assert wrong == {}


@on_each_file
def test_hostname_case_that_kueue_can_place_is_placed(file: str):
    refused: dict[str, str] = {}
    valid = 0
    for case in filter(is_hostname, load(FILES[file])):
        answer = theirs(case)
        if answer is None or validator()(case) or own_problems(case, answer):
            continue
        valid += 1
        refusal = placement.decide(blind(case)).refusal
        if refusal is not None:
            refused[case["id"]] = refusal.kind.value
    assert valid > 5
    assert refused == {}

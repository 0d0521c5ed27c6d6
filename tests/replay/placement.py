"""The placement family: a scenario of vectors/README.md through `core.placement`, exactly as the reconciler calls it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.model.gates import PARTIAL_SLICES
from core.model.pod_resources import PODS, add, parse_resources
from core.model.podset import IMPLIED, PodSetRequest, TopologyRequest, parse_topology_request
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import read_profile
from core.placement.engine import Decision, place
from core.placement.refusals import NotFit, RefusalKind
from core.placement.replace.replacement import replace_failed
from core.placement.replace.resized_pod_sets import resize
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.node_eligibility import read_taints
from core.placement.topology.placed_pods import PlacedPodSet
from core.placement.topology.tree import NodeLabels, TopologyTree

RULES = {"l": "pod sets that do not fit one after the other, but all at once, fit (rule l of docs/decisions/0004)"}


def build_view(case: Mapping[str, Any]) -> FreeCapacity:
    """Free capacity as the ledger would hold it for the scenario's flavor."""
    flavor = case.get("flavor") or {}
    wanted = flavor.get("node_labels") or {}
    nodes = [node for node in case["nodes"] if all(node["labels"].get(key) == value for key, value in wanted.items())]
    tree = TopologyTree(case["levels"], [NodeLabels(node["name"], node["labels"]) for node in nodes])
    states = {
        node["name"]: NodeState(
            parse_resources(node["allocatable"]), read_taints(node), node.get("ready", True), node.get("unschedulable", False)
        )
        for node in nodes
    }
    view = FreeCapacity(tree, states)
    for pod in case.get("pods", ()):
        if pod.get("phase") not in ("Succeeded", "Failed"):
            amounts = parse_resources(pod.get("requests"))
            add(amounts, {PODS: 1})
            view.use_node(pod.get("node", ""), amounts)
    _take_usage(case, view)
    return view


def _take_usage(case: Mapping[str, Any], view: FreeCapacity) -> None:
    tree = view.tree
    by_values = {values: domain for domain, values in enumerate(tree.emitted)}
    overlapping = case.get("feature_gates", {}).get("TASHandleOverlappingFlavors", True)
    usage = [] if case.get("simulate_empty") else list(case.get("usage", ()))
    if overlapping and tree.is_hostname and not case.get("simulate_empty"):
        usage += case.get("other_flavor_usage", ())
    entries = [(tuple(entry["values"]), _with_pods(entry["single_pod_requests"]), entry["count"]) for entry in usage]
    if overlapping:
        entries += [(tuple(domain.split(",")), amounts, 1) for domain, amounts in case.get("assumed_usage", {}).items()]
    for values, amounts, count in entries:
        domain = by_values.get(values)
        if domain is not None:
            first = int(tree.levels[tree.lowest].starts[domain])
            view.use_node(tree.names[first], amounts, count)


def _with_pods(requests: Mapping[str, int]) -> dict[str, int]:
    amounts = dict(requests)
    add(amounts, {PODS: 1})
    return amounts


def build_requests(case: Mapping[str, Any]) -> list[PodSetRequest]:
    """The scenario's pod sets, with the flavor's tolerations joined to their own."""
    shared = tuple((case.get("flavor") or {}).get("tolerations") or ())
    partial = bool(case.get("feature_gates", {}).get(PARTIAL_SLICES))
    return [
        PodSetRequest(
            pod_set["name"],
            pod_set["count"],
            pod_set["single_pod_requests"],
            _topology(pod_set, partial=partial),
            pod_set.get("node_selector") or {},
            pod_set.get("affinity"),
            tuple(pod_set.get("tolerations") or ()) + shared,
        )
        for pod_set in case["pod_sets"]
    ]


def _topology(pod_set: Mapping[str, Any], *, partial: bool) -> TopologyRequest | None:
    """The scenario names the group beside the request, not in it. `partial`: gate TASPartialSlices is on."""
    request, group = parse_topology_request(pod_set.get("topology_request")), pod_set.get("pod_set_group_name")
    if request is not None and partial and len(request.slices) == 1:
        request = replace(request, partial=True)
    return replace(request, group=group) if request is not None and group else request


def build_held(case: Mapping[str, Any], requests: Sequence[PodSetRequest]) -> list[PlacedPodSet]:
    """All pod sets of the scenario's workload with what they were admitted with.

    A scenario leaves out the requests of pod sets that have lost no pod; in a group such a one is a mate of those that have.
    """
    known = {request.name: request for request in requests}
    grouped = next((request.topology for request in requests if request.topology is not None and request.topology.group), None)
    mate = replace(grouped, slices=()) if grouped is not None else IMPLIED
    return [
        PlacedPodSet(
            known.get(entry["pod_set"], PodSetRequest(entry["pod_set"], entry["count"], {}, mate)),
            parse_assignment(entry["assignment"]),
        )
        for entry in case["workload"]["admitted"]
    ]


def parse_assignment(wire: Mapping[str, Any]) -> TopologyAssignment:
    domains = tuple(DomainCount(tuple(domain["values"]), domain["count"]) for domain in wire["domains"])
    return TopologyAssignment(tuple(wire["levels"]), domains)


def decide(case: Mapping[str, Any]) -> Decision:
    """What the scheduler would ask the engine: a new place, a replacement of failed nodes, or another size."""
    gates = case.get("feature_gates", {})
    view, requests, profile = build_view(case), build_requests(case), read_profile(gates)
    workload = case.get("workload") or {}
    if workload.get("unhealthy_nodes"):
        recreated = not (workload.get("owned_by_single_pod") and gates.get("SkipReassignmentForPodOwnedWorkloads", True))
        failed = workload["unhealthy_nodes"]
        decision = replace_failed(view, build_held(case, requests), failed, profile, recreated=recreated)
        asked = {request.name for request in requests}
        return replace(decision, placements=tuple(each for each in decision.placements if each.pod_set in asked))
    previous = {each["name"]: parse_assignment(each["previous_assignment"]) for each in case["pod_sets"] if each.get("previous_assignment")}
    if previous and gates.get("ElasticJobsViaWorkloadSlicesWithTAS", False):
        return resize(view, requests, previous, profile)
    return place(view, requests, profile)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """The engine's answer in the schema of `expect`."""
    decision = decide(case)
    pod_sets: list[dict[str, Any]] = [
        {
            "name": placement.pod_set,
            "assignment": {
                "levels": list(placement.assignment.levels),
                "domains": [{"values": list(domain.values), "count": domain.count} for domain in placement.assignment.domains],
            },
        }
        for placement in decision.placements
    ]
    if decision.refusal is not None:
        for name in decision.refusal.group or (decision.refusal.pod_set,):
            pod_sets.append({"name": name, "failure": _failure(decision.refusal)})
    return {"ok": decision.refusal is None, "pod_sets": pod_sets}


def _failure(refusal: NotFit) -> dict[str, Any]:
    failure: dict[str, Any] = {"kind": refusal.kind.value}
    if refusal.kind is RefusalKind.NOT_FIT and refusal.explanation is not None:
        failure |= {"fit": refusal.fit, "of": refusal.wanted, "unit": refusal.unit, "total_nodes": refusal.explanation.total_nodes}
        failure["excluded"] = {exclusion.reason.replace('"', ""): exclusion.count for exclusion in refusal.explanation.exclusions}
    return failure


def differences(case: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """What differs in ok, assignments and failure kinds."""
    expect = case["expect"]
    refused = {entry["failure"]["kind"] for entry in expect["pod_sets"] if "failure" in entry}
    if got["ok"] and refused == {RefusalKind.NOT_FIT.value} and rule(case):
        return []
    found = []
    if got["ok"] != expect["ok"]:
        found.append(f"ok is {got['ok']}, not {expect['ok']}")
    theirs = {entry["name"]: entry for entry in expect["pod_sets"]}
    ours = {entry["name"]: entry for entry in got["pod_sets"]}
    for name in theirs.keys() | ours.keys():
        want, have = theirs.get(name, {}), ours.get(name, {})
        if want.get("assignment") != have.get("assignment"):
            found.append(f"{name}: {_brief(have)}, not {_brief(want)}")
        elif want.get("failure", {}).get("kind") != have.get("failure", {}).get("kind"):
            found.append(f"{name}: failure {have.get('failure')}, not {want.get('failure')}")
    if "kep_counts_per_node" in case and got["ok"]:
        found += _kep_differences(case, got)
    return found


def _kep_differences(case: dict[str, Any], got: dict[str, Any]) -> list[str]:
    counts = {domain["values"][-1]: domain["count"] for domain in got["pod_sets"][0]["assignment"]["domains"]}
    per_node = [counts.get(node["labels"].get(HOSTNAME_LABEL, node["name"]), 0) for node in case["nodes"]]
    return [] if per_node == case["kep_counts_per_node"] else [f"counts {per_node}, the KEP says {case['kep_counts_per_node']}"]


def _brief(entry: Mapping[str, Any]) -> str:
    if "assignment" in entry:
        return " ".join(f"{'/'.join(domain['values'])}={domain['count']}" for domain in entry["assignment"]["domains"])
    return str(entry.get("failure", {"kind": "no answer"})["kind"])


def rule(case: Mapping[str, Any]) -> str | None:
    """The deliberate difference (decision 2 of docs/decisions/0004) that a case is touched by."""
    return RULES["l"] if decide(case).looked_ahead else None

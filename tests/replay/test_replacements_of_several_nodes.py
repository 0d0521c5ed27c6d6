"""Every measured placement loses some of its nodes at once, and gets others by the rules of `tests.replay.replaced`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from types import ModuleType

import pytest

from tests.replay import placement
from tests.replay.replaced import Case, Judge, can_fail, fail
from tests.replay.test_informative import module_of_vectors
from tests.replay.test_placement_vectors import FIRST, HERE, PEER, load

FILES = {
    "first": FIRST,
    "kep": HERE / "placement" / "placement_kep_examples.jsonl",
    "generated": PEER.parent / "generated" / "placement.jsonl",
}
ACCIDENTS = 3  # of each case


@cache
def generate() -> ModuleType:
    return module_of_vectors("generate")


def accidents(file: str) -> list[tuple[str, Case]]:
    cases = filter(can_fail, load(FILES[file]))
    return [(f"{case['id']} {seed}", fail(case, random.Random(f"{case['id']} {seed}"))) for case in cases for seed in range(ACCIDENTS)]


@pytest.mark.parametrize("file", FILES)
def test_every_replacement_keeps_the_rules(file: str):
    wrong, seen = {}, Counter[str]()
    for name, case in accidents(file):
        answer = placement.answer(case)
        seen["replaced" if answer["ok"] else "refused"] += 1
        if answer["ok"]:
            seen[f"{len(case['workload']['unhealthy_nodes'])} nodes"] += 1
        if found := Judge(case, generate()).problems(answer):
            wrong[name] = found
    assert wrong == {}
    if file != "kep":
        assert min(seen[each] for each in ("refused", "1 nodes", "2 nodes", "3 nodes", "4 nodes")) > 10, seen


# --- the judge itself ---------------------------------------------------------------------------------


def _one_less(case: Case, domains: list[Case]) -> None:
    domains[0]["count"] -= 1


def _to_a_lost_node(case: Case, domains: list[Case]) -> None:
    domains[0]["values"] = [case["workload"]["unhealthy_nodes"][0]]


def _all_on_one(case: Case, domains: list[Case]) -> None:
    domains[:] = [{**domains[0], "count": sum(domain["count"] for domain in domains)}]


def _swapped(case: Case, domains: list[Case]) -> None:
    """From the node that has most to another of the cluster."""
    used = {domain["values"][-1] for domain in domains}
    others = (node["labels"]["kubernetes.io/hostname"] for node in case["nodes"])
    max(domains, key=lambda domain: domain["count"])["values"] = [next(host for host in others if host not in used)]


@pytest.mark.parametrize(
    ("spoil", "kinds"),
    [
        (_one_less, {"sum"}),
        (_to_a_lost_node, {"ineligible"}),
        (_all_on_one, {"moved", "capacity"}),
        (_swapped, {"moved", "capacity", "slices", "required", "ineligible"}),
    ],
    ids=lambda each: getattr(each, "__name__", "").strip("_"),
)
def test_a_spoilt_answer_is_found_out(spoil: Callable[[Case, list[Case]], None], kinds: set[str]):
    """Each kind of problem is found somewhere, and nearly every spoilt answer is."""
    found, spoilt, missed = Counter[str](), 0, 0
    for _, case in accidents("first")[:400]:
        answer = placement.answer(case)
        domains = answer["pod_sets"][0].get("assignment", {}).get("domains", ())
        if not answer["ok"] or len(domains) < 2 or len(domains) == len(case["nodes"]):
            continue
        spoil(case, domains)
        problems = Judge(case, generate()).problems(answer)
        found.update(problem.partition(":")[0] for problem in problems)
        spoilt += 1
        missed += not problems
    assert kinds <= found.keys(), found
    assert spoilt > 30
    assert missed <= spoilt // 4, f"{missed} of {spoilt}"


def test_a_refusal_is_found_out_where_the_pods_fit():
    refused = {"ok": False, "pod_sets": []}
    replaced = [case for _, case in accidents("first") if placement.answer(case)["ok"]]
    plain = [case for case in replaced if len(case["pod_sets"]) == 1]
    found = sum(bool(Judge(case, generate()).problems(refused)) for case in plain)
    assert found > len(plain) // 4

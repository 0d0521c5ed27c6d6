"""The vectors, which are of Kueue 0.19, with gates of Kueue 0.20 on: what uses none of them is answered as before."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from core.model.gates import (
    GROUPED_SLICES,
    PARTIAL_SLICES,
    REJECT_FALSE_UNCONSTRAINED,
    REPLACE_MULTIPLE,
    SPREADING,
    WORKLOAD_PODS_READY,
)
from tests.replay import placement, rules, validation
from tests.replay.__main__ import FAMILIES
from tests.replay.replaced import can_fail, fail
from tests.replay.test_placement_vectors import FIRST, HERE, PEER, load

Json = dict[str, Any]
TURNED_ON = (PARTIAL_SLICES, GROUPED_SLICES, SPREADING, REPLACE_MULTIPLE, WORKLOAD_PODS_READY, REJECT_FALSE_UNCONSTRAINED)
"""Those that change something in what the vectors replay."""
FILES = {
    "first": ("placement", FIRST),
    "kep": ("placement", HERE / "placement" / "placement_kep_examples.jsonl"),
    "tables": ("placement", PEER / "placement_tables.jsonl"),
    "calls": ("placement", PEER / "placement_calls.jsonl"),
    "second pass": ("scheduling", PEER / "second_pass.jsonl"),
    "cycles": ("scheduling", PEER / "schedule_extra.jsonl"),
    "nodes": ("nodes", PEER / "nodes.jsonl"),
    "jobs": ("validation", HERE / "validation" / "validation.jsonl"),
    "more jobs": ("validation", PEER / "validation.jsonl"),
}


def turn_on(case: Json) -> Json:
    """A case with these gates on; those that it sets itself stay."""
    return {**case, **{name: dict.fromkeys(TURNED_ON, True) | (case.get(name) or {}) for name in ("gates", "feature_gates")}}


def leave_over(case: Json) -> Json:
    """A case in which slices of one layer leave a pod over."""
    made = {key: value for key, value in turn_on(case).items() if key != "expect"}
    made["pod_sets"] = [{**each, "count": each["count"] + (get_size(each) > 1)} for each in case["pod_sets"]]
    return made


def get_size(pod_set: Json) -> int:
    """The pods of a slice; 1 without slices of one layer."""
    return (pod_set.get("topology_request") or {}).get("podSetSliceSize") or 1


@pytest.mark.parametrize("name", FILES)
def test_case_with_all_newer_gates_on_is_answered_as_before(name: str):
    named, path = FILES[name]
    family, wrong, seen = FAMILIES[named], {}, 0
    for case in load(path):
        if family.leave_out(case):
            continue
        seen += 1
        blind = {key: value for key, value in turn_on(case).items() if key != family.expected}
        if found := family.differences(turn_on(case), family.answer(blind)):
            wrong[case["id"]] = found
    assert wrong == {}
    assert seen > 10


def test_replacement_with_all_newer_gates_on_is_as_before():
    accidents = [fail(case, random.Random(case["id"])) for case in load(FIRST) if can_fail(case)]
    assert len(accidents) > 100
    assert [case["id"] for case in accidents if placement.answer(turn_on(case)) != placement.answer(case)] == []


def test_slices_that_leave_a_pod_over_are_whole_but_for_the_last():
    seen = Counter[str]()
    for case in load(FIRST):
        made = leave_over(case)
        if made["pod_sets"] == case["pod_sets"] or made.get("workload"):
            continue
        answers = {each["name"]: each for each in placement.answer(made)["pod_sets"]}
        for pod_set in made["pod_sets"]:
            given = answers.get(pod_set["name"], {}).get("assignment")
            seen["placed" if given else "refused"] += 1
            if given and get_size(pod_set) > 1:
                assert find_broken(made, pod_set, get_size(pod_set), given) == [], case["id"]
    assert min(seen["placed"], seen["refused"]) > 20, seen


def find_broken(case: Json, pod_set: Json, size: int, assignment: Json) -> list[str]:
    """What is wrong with slices of a pod set, the last of which may have fewer pods."""
    level, hosts = pod_set["topology_request"]["podSetSliceRequiredTopology"], {}
    for node in case["nodes"]:
        path = tuple(node["labels"].get(label, node["name"]) for label in case["levels"])
        hosts[path[-1]] = path[: case["levels"].index(level) + 1]
    homes = [hosts[domain["values"][-1]] for domain in assignment["domains"]]
    counts = Counter[tuple[str, ...]]()
    for home, domain in zip(homes, assignment["domains"], strict=True):
        counts[home] += domain["count"]
    rests = [count % size for count in counts.values() if count % size]
    ends = [counts[home] % size > 0 for home in homes]
    return [
        *([f"{counts.total()} pods of {pod_set['count']}"] if counts.total() != pod_set["count"] else []),
        *([f"rests of {rests}"] if rests != [pod_set["count"] % size] else []),
        *(["the rest is not last"] if ends != sorted(ends) else []),
    ]


def test_rule_of_each_gate_is_needed():
    touched = [sentence for name in ("jobs", "more jobs") for case in load(FILES[name][1]) if (sentence := validation.rule(turn_on(case)))]
    for rule in rules.OF_GATES:
        assert any(rule.sentence in sentence for sentence in touched), rule.sentence


def test_slices_that_leave_pods_over_are_accepted_as_by_the_peer():
    """Without the gate that is rule d, which touches fewer cases with it."""
    cases = [case for name in ("jobs", "more jobs") for case in load(FILES[name][1])]
    before, after = (sum("d: " in (validation.rule(each) or "") for each in found) for found in (cases, map(turn_on, cases)))
    assert after < before

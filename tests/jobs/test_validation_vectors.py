"""Annotation rules against the measured cases: admitted or not, and the set of (type, field)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.jobs.annotations import MAX_LEVEL_NAME, PodSetAnnotations, topology_request, validate_pod_sets
from core.jobs.contract import Rules
from core.jobs.job import Job
from core.names import SLICE_CONSTRAINTS, SLICE_SIZE

HERE = Path(__file__).parents[1] / "vectors" / "validation" / "validation.jsonl"
PEER = Path(os.environ.get("TOPOGATE_PEER_VECTORS", Path(__file__).parents[2] / ".." / "shared" / "vectors" / "peer"))


def load(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        pytest.skip(f"{path} is not here; TOPOGATE_PEER_VECTORS names the folder of the peer's vectors")
    return [json.loads(line) for line in path.read_text().splitlines()]


def judge(case: dict[str, Any]) -> Rules:
    if case["kind"] == "annotations":
        template = {"metadata": {"annotations": case["annotations"]}}
        return validate_pod_sets([PodSetAnnotations(f"{case['field_root']}.annotations", template, case.get("pod_set_count"))])
    return Job().validate_create(case["object"])


def annotations_of(case: dict[str, Any]) -> dict[str, str]:
    if case["kind"] == "annotations":
        return dict(case["annotations"])
    return dict(case["object"]["spec"]["template"].get("metadata", {}).get("annotations") or {})


# --- deliberate differences: each a sentence and when it applies -------------------------------------

Pairs = set[tuple[str, str]]
TRAILING_COMMA = re.compile(r",\s*[\]}]")
ELASTIC_JOB = "kueue.x-k8s.io/elastic-job"


def _divides_unevenly(case: dict[str, Any], ours: Pairs, theirs: Pairs) -> bool:
    """Ours says one thing more: the slice size of this many pods."""
    extra = ours - theirs
    return not theirs - ours and all(
        kind == "FieldValueInvalid" and field.endswith((f"[{SLICE_SIZE}]", f"[{SLICE_CONSTRAINTS}]")) for kind, field in extra
    )


RULES: dict[str, Callable[[dict[str, Any], Pairs, Pairs], bool]] = {
    "d: a slice size must evenly divide the count, where the peer loses the remainder": _divides_unevenly,
    "b: the size of a layer may be a numeric string": lambda case, ours, theirs: (
        ours < theirs and re.search(r'"size":\s*"\d+"', annotations_of(case).get(SLICE_CONSTRAINTS, "")) is not None
    ),
    "a comma before a closing bracket is let pass, since the KEP's own example has one": lambda case, ours, theirs: (
        ours < theirs and TRAILING_COMMA.search(annotations_of(case).get(SLICE_CONSTRAINTS, "")) is not None
    ),
    "h: a level that no Workload can hold is refused at creation, where the peer's job waits unexplained": lambda case, ours, theirs: (
        theirs < ours and any(len(value) > MAX_LEVEL_NAME for value in annotations_of(case).values())
    ),
    "the elastic-job annotation of the peer means nothing to us yet, so it forbids nothing": lambda case, ours, theirs: (
        ours < theirs and ELASTIC_JOB in (case.get("object", {}).get("metadata", {}).get("annotations") or {})
    ),
}


def suits(case: dict[str, Any]) -> bool:
    """Default gates only (gates are a later issue); templates by themselves, and Jobs to be created."""
    job = case.get("framework") == "batch/job" and case.get("op", "create") == "create"
    return not case["gates"] and (case["kind"] == "annotations" or job)


def compare(case: dict[str, Any]) -> tuple[Pairs, Pairs]:
    ours = {(error.type.value, error.field) for error in judge(case).errors}
    theirs = {(error["type"], error.get("field", "")) for error in (*case["errors"], *case.get("upper_bound_errors", ()))}
    return ours, theirs


@pytest.mark.parametrize("path", [HERE, PEER / "validation.jsonl"], ids=["generated", "peer"])
def test_mistakes_are_found_where_the_peer_finds_them_but_for_named_rules(path: Path):
    cases = [case for case in load(path) if suits(case)]
    assert len(cases) > 20
    unexplained = {}
    for case in cases:
        ours, theirs = compare(case)
        if ours != theirs and not any(applies(case, ours, theirs) for applies in RULES.values()):
            unexplained[case["id"]] = (ours - theirs, theirs - ours)
    assert unexplained == {}


def test_each_rule_is_needed():
    cases = [case for path in (HERE, PEER / "validation.jsonl") for case in load(path) if suits(case)]
    pairs = [(case, *compare(case)) for case in cases]
    for sentence, applies in RULES.items():
        assert any(ours != theirs and applies(case, ours, theirs) for case, ours, theirs in pairs), sentence


def without_empty_group(request: dict[str, Any] | None) -> dict[str, Any]:
    """An empty group name is no group; the peer hands it on all the same."""
    return {key: value for key, value in (request or {}).items() if (key, value) != ("podSetGroupName", "")}


def test_what_is_admitted_makes_the_topology_request_that_the_peer_makes():
    """Numbers aside that rule d refuses."""
    seen = 0
    for case in load(HERE):
        if case["kind"] != "annotations" or case["gates"] or judge(case).errors or case["topology_request_errors"] or not case["admitted"]:
            continue
        seen += 1
        assert (topology_request(case["annotations"]) or {}) == without_empty_group(case.get("topology_request")), case["id"]
        labelled = topology_request(case["annotations"], pod_index_label="batch.kubernetes.io/job-completion-index")
        assert labelled == without_empty_group(case.get("topology_request_with_index_label")), case["id"]
    assert seen > 10


def test_jobs_have_the_pod_sets_that_the_peer_makes():
    seen = 0
    for case in load(HERE):
        if case["kind"] != "job" or case.get("framework") != "batch/job" or case["gates"] or judge(case).errors or not case.get("pod_sets"):
            continue
        seen += 1
        ours = [
            {"name": pod_set.name, "count": pod_set.count}
            | ({"topologyRequest": pod_set.topology_request} if pod_set.topology_request else {})
            for pod_set in Job().pod_sets(case["object"])
        ]
        assert ours == case["pod_sets"], case["id"]
    assert seen > 10

"""Pods in a wrong domain are found from objects alone, and nothing where all is well."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import JOB_COMPLETION_INDEX_LABEL, PODSET_LABEL, SLICE_NAME, SLICE_REPLACES, WORKLOAD_ANNOTATION
from e2e.audit.recount_places import find_misplaced, find_unordered, read_domains

Obj = dict[str, Any]


def build_node(name: str, rack: str, ready: str = "True") -> Obj:
    return {
        "metadata": {"name": name, "labels": {"rack": rack, "host": name}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def build_pod(node: str, **metadata: Any) -> Obj:
    named = {"namespace": "ns", "labels": {PODSET_LABEL: "main"}, "annotations": {WORKLOAD_ANNOTATION: "w"}, **metadata}
    return {"metadata": named, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


def build_workload(counts: dict[str, int], required: str | None = None) -> Obj:
    slices = [{"domainCount": 1, "podCounts": {"universal": n}, "valuesPerLevel": [{"universal": host}]} for host, n in counts.items()]
    given = {"name": "main", "topologyAssignment": {"levels": ["host"], "slices": slices}}
    asked = {"name": "main", **({"topologyRequest": {"required": required}} if required else {})}
    return {
        "metadata": {"namespace": "ns", "name": "w"},
        "spec": {"podSets": [asked]},
        "status": {"admission": {"podSetAssignments": [given]}},
    }


NODES = [build_node("a", "r1"), build_node("b", "r1"), build_node("c", "r2")]


def test_pods_where_they_were_assigned_are_well():
    assert list(find_misplaced([build_workload({"a": 1, "b": 2}, "rack")], [build_pod("a"), build_pod("b"), build_pod("b")], NODES)) == []


def test_more_pods_in_a_domain_than_assigned_are_found():
    [found] = find_misplaced([build_workload({"a": 1})], [build_pod("a"), build_pod("a")], NODES)
    assert found == "workload ns/w has 1 pods in domain a, and 2 run there"


def test_pods_in_two_domains_of_the_required_level_are_found():
    [found] = find_misplaced([build_workload({"a": 1, "c": 1}, "rack")], [build_pod("a"), build_pod("c")], NODES)
    assert found == "workload ns/w is to be in one rack, and runs in r1, r2"


def replace_first(second: Obj) -> Obj:
    return {**second, "metadata": {"namespace": "ns", "name": "x", "annotations": {SLICE_NAME: "w", SLICE_REPLACES: "ns/w"}}}


@pytest.mark.parametrize("conditions", [[], [{"type": "Finished", "status": "True"}]])
def test_pods_of_an_elastic_job_belong_where_the_workload_that_replaces_the_first_is_assigned(conditions: list[Obj]):
    first, second = build_workload({"a": 1}), replace_first(build_workload({"a": 1, "b": 1}))
    first["status"]["conditions"] = conditions
    second["status"]["conditions"] = [{"type": "Admitted", "status": "True"}]
    for order in ([first, second], [second, first]):
        assert list(find_misplaced(order, [build_pod("a"), build_pod("b")], NODES)) == []
        [found] = find_misplaced(order, [build_pod("a"), build_pod("b"), build_pod("b")], NODES)
        assert found == "workload ns/x has 1 pods in domain b, and 2 run there"


def test_pods_that_end_or_are_on_lost_nodes_are_not_judged():
    lost = [build_node("a", "r1", ready="Unknown"), *NODES[1:]]
    assert (
        list(find_misplaced([build_workload({"c": 1})], [build_pod("a"), build_pod("b", deletionTimestamp="now"), build_pod("c")], lost))
        == []
    )


def test_domains_with_values_of_their_own_are_read_in_order():
    part = {
        "domainCount": 2,
        "podCounts": {"individual": [3, 1]},
        "valuesPerLevel": [{"universal": "r"}, {"individual": {"prefix": "n-", "roots": ["1", "2"], "suffix": ".x"}}],
    }
    assert list(read_domains({"slices": [part]})) == [(("r", "n-1.x"), 3), (("r", "n-2.x"), 1)]


def ranked(host: str, rank: int, job: str = "job") -> Obj:
    labels = {PODSET_LABEL: "main", JOB_COMPLETION_INDEX_LABEL: str(rank)}
    made = build_pod(host, labels=labels, ownerReferences=[{"uid": job, "controller": True}])
    made["spec"]["nodeSelector"] = {"host": host}
    return made


def in_order_of_ranks(counts: dict[str, int]) -> Obj:
    made = build_workload(counts)
    made["spec"]["podSets"][0]["topologyRequest"] = {"podIndexLabel": JOB_COMPLETION_INDEX_LABEL}
    return made


def test_lower_rank_in_a_later_domain_is_found():
    placed = [ranked("a", 0), ranked("b", 1)]
    [found] = find_unordered([in_order_of_ranks({"b": 1, "a": 1})], placed)
    assert found == "workload ns/w has pods of pod set main out of the order of their ranks: domains [1, 0]"
    assert list(find_unordered([build_workload({"b": 1, "a": 1})], placed)) == []  # nothing says that its pods have an order


def test_ranks_in_the_order_of_domains_are_well_for_each_job_by_itself():
    placed = [ranked("a", 0), ranked("b", 1), ranked("b", 0, "another"), ranked("c", 1, "another")]
    assert list(find_unordered([in_order_of_ranks({"a": 1, "b": 2, "c": 1})], placed)) == []


def test_pods_of_higher_indexes_than_places_have_no_order():
    """Seed 669: of 4 completions with 3 pods at a time the first was done, and the fourth took its place."""
    placed = [ranked("b", 1), ranked("c", 2), ranked("a", 3)]
    assert list(find_unordered([in_order_of_ranks({"a": 1, "b": 1, "c": 1})], placed)) == []
    assert list(find_unordered([in_order_of_ranks({"a": 2, "b": 1, "c": 1})], placed)) != []

"""Elastic jobs: which workload is which, what a successor asks for, and which places are kept."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.jobs.kinds.job import Job
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import FINISHED, QUEUE_NAME_LABEL, SLICE_NAME, SLICE_REPLACES
from core.plan.jobs.workload_slices import build_successor, find_present, find_successor, list_kept_places
from core.plan.workloads.desired_workload import build_workload
from core.state.facts import WorkloadFacts, find_family
from tests.builders import build_condition_json, build_pod_set_json, build_workload_json

Json = dict[str, Any]


def workload(name: str, *, replaces: str | None = None, finished: bool = False) -> Json:
    wire = build_workload_json(name, [build_pod_set_json()], conditions=[build_condition_json(FINISHED)] if finished else [])
    notes = {SLICE_NAME: "a"} | ({SLICE_REPLACES: f"ns/{replaces}"} if replaces else {})
    wire["metadata"] |= {"annotations": notes, "namespace": "ns"}
    return wire


def test_the_present_workload_is_the_one_that_waits_for_no_other():
    one, two, three = workload("a"), workload("b", replaces="a"), workload("c", replaces="b")
    assert find_present([two, one]) == one
    assert find_successor(one, [two, one]) == two
    over = workload("a", finished=True)
    assert find_present([over, two]) == two
    assert find_present([over, workload("b", replaces="a", finished=True), three]) == three
    assert find_present([over]) is None
    assert find_successor(two, [over, two]) is None


def test_pods_go_by_the_first_workload_of_the_job():
    facts = WorkloadFacts.read(workload("b", replaces="a"))
    assert (facts.key, facts.pods_key, facts.replaces) == ("ns/b", "ns/a", "ns/a")
    assert WorkloadFacts.read(build_workload_json("x", [build_pod_set_json()])).pods_key.endswith("/x")


def test_a_successor_asks_for_all_pods_with_the_template_as_it_was():
    template: Json = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "labels": {QUEUE_NAME_LABEL: "main"}}

    def job(parallelism: int, **pod_spec: Any) -> Json:
        grown = {**template, "spec": {**template["spec"], **pod_spec}}
        return {"metadata": metadata, "spec": {"parallelism": parallelism, "template": grown}}

    present = build_workload(Job(), job(4), priority=3, priority_class=None)
    present["metadata"] |= {"uid": "w1", "annotations": {SLICE_NAME: present["metadata"]["name"]}}
    running = job(6, nodeSelector={"by": "start"})
    made = build_successor(Job(), running, present)
    name = made["metadata"]["name"]
    assert made["spec"]["podSets"][0]["count"] == 6
    assert made["spec"]["podSets"][0]["template"] == present["spec"]["podSets"][0]["template"]
    assert made["spec"]["priority"] == 3
    assert find_family(made) == f"ns/{present['metadata']['name']}" == made["metadata"]["annotations"][SLICE_REPLACES]
    assert name != present["metadata"]["name"]
    assert build_successor(Job(), job(7), present)["metadata"]["name"] == name, "one successor at most"
    later = build_successor(Job(), running, {**made, "metadata": {**made["metadata"], "uid": "w2"}})
    assert find_family(later) == find_family(made)
    assert later["metadata"]["name"] != name


def build_assignment(counts: list[int]) -> TopologyAssignment:
    return TopologyAssignment(("host",), tuple(DomainCount((f"n{i}",), count) for i, count in enumerate(counts)))


def test_the_most_scattered_places_go_where_no_pod_holds_them():
    kept = list_kept_places(build_assignment([1, 3, 2]), 3, {})
    assert kept == TopologyAssignment(("host",), (DomainCount(("n1",), 3),))
    assert list_kept_places(build_assignment([1, 3, 2]), 3, {("n0",): 1, ("n2",): 2}) == TopologyAssignment(
        ("host",), (DomainCount(("n0",), 1), DomainCount(("n2",), 2))
    )
    assert list_kept_places(build_assignment([2, 2]), 1, {("n0",): 1, ("n1",): 1}) is None, "one of them is still to go"


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), min_size=1, max_size=6), st.data())
def test_places_of_pods_that_live_are_kept_and_as_many_as_are_wanted(domains: list[tuple[int, int]], data: st.DataObject):
    given_counts = [count for count, _ in domains]
    live: dict[tuple[str, ...], int] = {(f"n{i}",): here for i, (_, here) in enumerate(domains)}
    count = data.draw(st.integers(1, sum(given_counts)))
    kept = list_kept_places(build_assignment(given_counts), count, live)
    held = {(f"n{i}",): min(pair) for i, pair in enumerate(domains)}
    if kept is None:
        assert sum(held.values()) > count
        return
    assert kept.count == count
    by_values = {domain.values: domain.count for domain in kept.domains}
    assert all(by_values.get(values, 0) >= here for values, here in held.items())
    assert all(here <= given_counts[int(values[0][1:])] for values, here in by_values.items())

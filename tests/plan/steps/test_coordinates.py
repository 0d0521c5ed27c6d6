"""Where a pod is, as its containers can read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.admission import Admission, PodSetAdmission, encode_admission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import (
    COORDINATE_PREFIXES,
    DOMAIN_INDEX_ANNOTATION,
    DOMAIN_SIZE_ANNOTATION,
    HOSTNAME_LABEL,
    JOB_COMPLETION_INDEX_LABEL,
    LEVEL_PREFIX,
    POD_INDEX_OFFSET,
    RANK_ANNOTATION,
)
from core.plan.steps.coordinates import compute_coordinates
from core.plan.steps.ungate import plan_ungating
from core.state.facts import PodFacts, WorkloadFacts
from tests.builders import RACK, build_pod_json, build_pod_set_json, build_workload_json

VALUES = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=70)


@given(st.lists(VALUES, max_size=4), st.one_of(st.none(), st.integers(0, 9)), st.lists(st.integers(0, 17)))
def test_coordinates_contain_each_level_once_and_no_other_coordinate_name(values: list[str], rank: int | None, there: list[int]):
    present = [f"{LEVEL_PREFIX}{i}" for i in there]
    stamp = compute_coordinates(values, 2, 8, rank, present)
    for i, value in enumerate(values):
        told = [part[f"{LEVEL_PREFIX}{i}"] for part in (stamp.labels, stamp.annotations) if part.get(f"{LEVEL_PREFIX}{i}") is not None]
        assert told == [value]
    for name in present:
        if int(name.removeprefix(LEVEL_PREFIX)) >= len(values):
            assert stamp.labels[name] is None
            assert stamp.annotations[name] is None
    assert stamp.annotations[RANK_ANNOTATION] == (None if rank is None else str(rank))
    assert (stamp.annotations[DOMAIN_INDEX_ANNOTATION], stamp.annotations[DOMAIN_SIZE_ANNOTATION]) == ("2", "8")
    assert all(name.startswith(COORDINATE_PREFIXES) for name in (*stamp.labels, *stamp.annotations))


def test_a_value_that_is_no_label_goes_into_an_annotation():
    stamp = compute_coordinates(["b1", "rack 7"], 0, 1, None)
    assert stamp.labels == {f"{LEVEL_PREFIX}0": "b1"}
    assert stamp.annotations[f"{LEVEL_PREFIX}1"] == "rack 7"


def planned(pods: list[dict[str, object]], *domains: tuple[str, int], offset: int = 0):
    """Plan for a workload of one indexed pod set with one node a domain."""
    assignment = TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((host,), count) for host, count in domains))
    given = PodSetAdmission("main", {"cpu": "f"}, {}, assignment.count, assignment)
    admission = Admission("cq", (given,))
    pod_set = build_pod_set_json("main", assignment.count, topology={"podIndexLabel": JOB_COMPLETION_INDEX_LABEL})
    if offset:
        pod_set["template"]["metadata"]["annotations"] = {POD_INDEX_OFFSET: str(offset)}
    workload = WorkloadFacts.read(build_workload_json("w", [pod_set], admission=encode_admission(admission)))
    return plan_ungating(workload, admission, [PodFacts.read(pod) for pod in pods], lambda given, i: ("b1", f"rack-{i}", domains[i][0]))


def build_indexed_pod(index: int, **pod: object) -> dict[str, object]:
    return build_pod_json(f"p{index}", workload="w", labels={JOB_COMPLETION_INDEX_LABEL: str(index)}, **pod)  # type: ignore[arg-type]


def test_ungated_pod_gets_its_levels_rank_and_domain():
    plan = planned([build_indexed_pod(i, gated=True) for i in range(1, 4)], ("h0", 2), ("h1", 1), offset=1)
    stamps = {action.pod.key: action.coordinates for action in plan.actions}
    assert stamps["ns/p3"].labels == {f"{LEVEL_PREFIX}0": "b1", f"{LEVEL_PREFIX}1": "rack-1", f"{LEVEL_PREFIX}2": "h1"}
    assert stamps["ns/p3"].annotations == {RANK_ANNOTATION: "3", DOMAIN_INDEX_ANNOTATION: "1", DOMAIN_SIZE_ANNOTATION: "1"}
    assert stamps["ns/p2"].annotations[DOMAIN_SIZE_ANNOTATION] == "2"


def test_coordinates_written_by_a_user_are_overwritten():
    pod = build_indexed_pod(0, gated=True)
    pod["metadata"]["labels"] |= {f"{LEVEL_PREFIX}0": "forged", f"{LEVEL_PREFIX}7": "forged"}  # type: ignore[index]
    pod["metadata"]["annotations"] |= {f"{LEVEL_PREFIX}1": "forged", RANK_ANNOTATION: "99"}  # type: ignore[index]
    (action,) = planned([pod], ("h0", 1)).actions
    labels = {name: value for name, value in action.coordinates.labels.items() if value is not None}
    assert labels == {f"{LEVEL_PREFIX}0": "b1", f"{LEVEL_PREFIX}1": "rack-0", f"{LEVEL_PREFIX}2": "h0"}
    assert action.coordinates.labels[f"{LEVEL_PREFIX}7"] is None
    assert action.coordinates.annotations[RANK_ANNOTATION] == "0"
    assert action.coordinates.annotations[f"{LEVEL_PREFIX}1"] is None


def test_pods_that_another_assignment_ungated_are_noticed():
    there, elsewhere = {HOSTNAME_LABEL: "h0"}, {HOSTNAME_LABEL: "h9"}
    pods = [
        build_indexed_pod(0, node_selector=there, node="n0"),
        build_indexed_pod(1, node_selector=elsewhere),
        build_indexed_pod(2, gated=True),
    ]
    plan = planned(pods, ("h0", 2), ("h1", 1))
    assert [pod.key for pod in plan.strays] == ["ns/p1"]


def test_of_too_many_pods_in_one_domain_those_that_are_not_bound_are_too_many():
    there = {HOSTNAME_LABEL: "h0"}
    pods = [
        build_indexed_pod(0, node_selector=there),
        build_indexed_pod(1, node_selector=there, node="n0"),
        build_indexed_pod(2, node_selector=there, terminating=True),
    ]
    assert [pod.key for pod in planned(pods, ("h0", 1)).strays] == ["ns/p0"]


def test_pods_where_they_should_be_are_no_strays():
    there = {HOSTNAME_LABEL: "h0"}
    pods = [
        build_indexed_pod(0, node_selector=there),
        build_indexed_pod(1, node_selector=there, node="n0", phase="Failed"),
        build_indexed_pod(2, gated=True),
    ]
    assert planned(pods, ("h0", 1), ("h1", 1)).strays == ()


@pytest.mark.parametrize(("offset", "first"), [(None, 1), ("0", 0)])
def test_ranks_in_a_group_begin_where_the_annotation_says(offset: str | None, first: int):
    """The workers of an MPIJob with a launcher that is no worker have indexes from 0 in a group, too: their order was lost."""
    topology = {"required": RACK, "podSetGroupName": "all"}
    leader = build_pod_set_json("launcher", 1, topology=topology)
    workers = build_pod_set_json("worker", 2, topology=topology | {"podIndexLabel": JOB_COMPLETION_INDEX_LABEL})
    workers["template"]["metadata"]["annotations"] = {} if offset is None else {POD_INDEX_OFFSET: offset}
    parts = []
    for name, hosts in (("launcher", ["h0"]), ("worker", ["h1", "h2"])):
        assignment = TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((host,), 1) for host in hosts))
        parts.append(PodSetAdmission(name, {"cpu": "f"}, {}, len(hosts), assignment))
    admission = Admission("cq", tuple(parts))
    workload = WorkloadFacts.read(build_workload_json("w", [leader, workers], admission=encode_admission(admission)))
    pods = [
        PodFacts.read(build_pod_json(f"p{i}", workload="w", pod_set="worker", gated=True, labels={JOB_COMPLETION_INDEX_LABEL: str(i)}))
        for i in (first, first + 1)
    ]
    plan = plan_ungating(workload, admission, pods, lambda given, i: (f"h{i}",))
    hosts_of = {action.pod.key: action.node_selector[HOSTNAME_LABEL] for action in plan.actions}
    assert hosts_of == {f"ns/p{first}": "h1", f"ns/p{first + 1}": "h2"}

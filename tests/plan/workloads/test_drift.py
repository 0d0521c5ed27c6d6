"""Pods that run elsewhere than they were placed, told by where their nodes are now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.admission import Admission, PodSetAdmission, encode_admission
from core.model.claimed_devices import UNCOUNTED_DEVICES
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL, PODSET_LABEL, WORKLOAD_REQUIRED_TOPOLOGY
from core.plan.workloads.drift import DriftKind, find_drift
from core.state.facts import NodeFacts, PodFacts, WorkloadFacts

RACK = "rack"
LEVELS = (RACK, HOSTNAME_LABEL)
Nodes = Mapping[str, NodeFacts]


def build_node(name: str, rack: str, host: str | None = None) -> NodeFacts:
    return NodeFacts.read({"metadata": {"name": name, "labels": {RACK: rack, HOSTNAME_LABEL: host or name}}})


def build_nodes(**racks: str) -> Nodes:
    """Nodes and the racks they are in now."""
    return {name: build_node(name, rack) for name, rack in racks.items()}


def build_pod(name: str, on: str, pod_set: str = "main", *, ending: bool = False) -> PodFacts:
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "labels": {PODSET_LABEL: pod_set}}
    metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if ending else {}
    spec = {"nodeName": on, "nodeSelector": {HOSTNAME_LABEL: on}, "containers": []}
    return PodFacts.read({"metadata": metadata, "spec": spec})


def build_workload(*hosts: str, required: bool = True, together: bool = False) -> WorkloadFacts:
    """A pod on each host, all of one pod set; `together`: each of a pod set called as the host's first letter."""
    sets: dict[str, list[str]] = {}
    for host in hosts:
        sets.setdefault(host[0] if together else "main", []).append(host)
    given = tuple(PodSetAdmission(name, {"cpu": "f"}, {}, len(own), on(own)) for name, own in sets.items())
    asked = {"topologyRequest": {"required": RACK}} if required else {}
    pod_sets = [{"name": name, "count": len(own), "template": {"spec": {"containers": []}}, **asked} for name, own in sets.items()]
    notes = {"annotations": {WORKLOAD_REQUIRED_TOPOLOGY: RACK}} if together else {}
    return WorkloadFacts.read(
        {
            "metadata": {"name": "w", "namespace": "ns", "uid": "w", **notes},
            "spec": {"podSets": pod_sets},
            "status": {"admission": encode_admission(Admission("q", given))},
        }
    )


def on(hosts: list[str]) -> TopologyAssignment:
    return TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((host,), 1) for host in hosts))


def drift(facts: WorkloadFacts, pods: list[PodFacts], there: Nodes) -> list[tuple[DriftKind, str]]:
    return [(found.kind, found.says) for found in find_drift(facts, pods, there, lambda _: LEVELS)]


def is_one(found: list[tuple[DriftKind, str]], kind: DriftKind, *named: str) -> bool:
    """Whether there is one difference, of a kind, and its text has these names and amounts."""
    return [each for each, _ in found] == [kind] and all(name in found[0][1] for name in named)


@pytest.mark.parametrize(
    ("claimed", "says"), [({"d": 2}, ""), ({"d": 1}, ""), ({"d": 5}, "p (d: 3 more)"), ({UNCOUNTED_DEVICES: 1}, "p (devices that no quota")]
)
def test_pods_that_claim_more_devices_than_were_admitted_are_drift(claimed: dict[str, int], says: str):
    facts = build_workload("a1")
    facts = replace(facts, pod_sets=(replace(facts.pod_sets[0], claimed={"d": 2}),))
    found = drift(facts, [replace(build_pod("p", "a1"), claimed=claimed)], build_nodes(a1="r1"))
    assert is_one(found, DriftKind.MORE_DEVICES, says, "pod set main", "ResourceClaimTemplate") if says else found == []


def test_pods_with_devices_of_a_pod_set_with_none_are_drift():
    found = drift(build_workload("a1"), [replace(build_pod("p", "a1"), claimed={"d": 1})], build_nodes(a1="r1"))
    assert is_one(found, DriftKind.MORE_DEVICES, "p (d: 1 more)", "the Workload counts no claims")


def test_where_pods_were_sent_is_no_drift():
    assert drift(build_workload("a1", "a2"), [build_pod("p", "a1"), build_pod("q", "a2")], build_nodes(a1="r1", a2="r1")) == []


def test_pods_in_two_racks_are_drift_only_if_one_rack_is_required():
    found = drift(build_workload("a1", "a2"), [build_pod("p", "a1"), build_pod("q", "a2")], build_nodes(a1="r1", a2="r2"))
    assert is_one(found, DriftKind.SPLIT, "pod set main", "r1 (1), r2 (1)", "one rack")
    assert (
        drift(build_workload("a1", "a2", required=False), [build_pod("p", "a1"), build_pod("q", "a2")], build_nodes(a1="r1", a2="r2")) == []
    )


def test_the_domain_of_a_whole_workload_counts_too():
    facts = build_workload("a1", "b1", required=False, together=True)
    found = drift(facts, [build_pod("p", "a1", "a"), build_pod("q", "b1", "b")], build_nodes(a1="r1", b1="r2"))
    assert is_one(found, DriftKind.SPLIT, "r1 (1), r2 (1)", "one rack")
    assert "pod set" not in found[0][1]


def test_node_with_a_changed_hostname_is_reported_with_both_names():
    there = {"a1": build_node("a1", "r1", "other")}
    found = drift(build_workload("a1"), [build_pod("p", "a1")], there)
    assert is_one(found, DriftKind.RELABELLED, "pod set main", "node a1 is other", "was a1")


def test_pod_bound_outside_its_assignment_is_reported_as_drift():
    found = drift(build_workload("a1"), [build_pod("p", "a9")], build_nodes(a1="r1", a9="r1"))
    assert is_one(found, DriftKind.OUTSIDE, "pod set main", "p on node a9")


@pytest.mark.parametrize("there", [build_pod("p", "gone"), build_pod("p", "a9", ending=True)])
def test_pods_of_lost_nodes_and_pods_that_end_are_not_adrift(there: PodFacts):
    assert drift(build_workload("a1"), [there], build_nodes(a1="r1", a9="r2")) == []


@given(st.lists(st.sampled_from(["r1", "r2", "r3"]), min_size=1, max_size=8))
def test_it_is_split_if_and_only_if_its_nodes_are_in_several_racks(racks: list[str]):
    names = [f"a{i}" for i in range(len(racks))]
    found = drift(
        build_workload(*names),
        [build_pod(f"p{i}", name) for i, name in enumerate(names)],
        build_nodes(**dict(zip(names, racks, strict=True))),
    )
    assert [kind for kind, _ in found] == ([DriftKind.SPLIT] if len(set(racks)) > 1 else [])


def test_more_pods_than_assigned_on_one_host_are_reported():
    found = find_drift(
        build_workload("n1", "n2"), [build_pod("1", "n1"), build_pod("2", "n1")], build_nodes(n1="r", n2="r"), lambda given: LEVELS
    )
    assert is_one([(drift.kind, drift.says) for drift in found], DriftKind.OUTSIDE, "pod set main", "2 on node n1")


def test_pods_that_a_controller_has_yet_to_delete_are_not_reported():
    """A job was scaled down: which of its pods go its controller decides."""
    there = [build_pod("1", "n1"), build_pod("2", "n1"), build_pod("3", "n2")]
    assert find_drift(build_workload("n1", "n2"), there, build_nodes(n1="r", n2="r"), lambda given: LEVELS) == ()


def test_racks_that_swapped_their_nodes_are_reported_where_more_pods_run_in_one_than_assigned():
    placed = TopologyAssignment((RACK,), (DomainCount(("A",), 2), DomainCount(("B",), 1)))
    given = PodSetAdmission("main", {"cpu": "f"}, {}, 3, placed)
    spec = {"podSets": [{"name": "main", "count": 3, "template": {"spec": {"containers": []}}}]}
    status = {"admission": encode_admission(Admission("q", (given,)))}
    swapped = WorkloadFacts.read({"metadata": {"name": "w", "namespace": "ns", "uid": "w"}, "spec": spec, "status": status})
    there = [
        replace(build_pod(name, on_node), node_selector={RACK: rack})
        for name, on_node, rack in (("1", "a", "A"), ("2", "a", "A"), ("3", "b", "B"))
    ]
    assert find_drift(swapped, there, build_nodes(a="A", b="B"), lambda given: LEVELS) == ()
    (found,) = find_drift(swapped, there, build_nodes(a="B", b="A"), lambda given: LEVELS)
    assert is_one([(found.kind, found.says)], DriftKind.RELABELLED, "pod set main", "node a is B", "was A")


def test_pods_on_a_node_that_left_the_flavor_are_reported():
    """`All pods run where they were placed` was said of them, while no pod made in their place could run there."""
    there, placed = build_nodes(n1="r", n2="r"), build_workload("n1", "n2")
    found = find_drift(
        placed, [build_pod("1", "n1"), build_pod("2", "n2")], there, lambda given: LEVELS, lambda _, at: "gone" if at.name == "n2" else ""
    )
    assert is_one([(drift.kind, drift.says) for drift in found], DriftKind.RELABELLED, "pod set main", "node n2", "gone")
    assert "n1" not in found[0].says

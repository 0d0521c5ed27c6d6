"""The audit of a history finds what was broken, were it for a moment only, and nothing where nothing was."""

from __future__ import annotations

from typing import Any

from core.model.admission import Admission, PodSetAdmission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL
from e2e.audit.audit import audit
from e2e.audit.history import Fact, PodFact, WorkloadFact
from e2e.manifests import build_cluster_queue
from e2e.nodes import RACK_LABEL, NodePool, build_nodes

GPU = "nvidia.com/gpu"
NODES = build_nodes(NodePool(1, 2, 1, allocatable={GPU: "2", "pods": "10"}))
FIRST, SECOND = (node["metadata"]["name"] for node in NODES)
QUEUES = [
    build_cluster_queue("own", {"f": {GPU: 2}}, cohortName="c"),
    build_cluster_queue("guest", {"f": {GPU: 2}}, cohortName="c"),
]


class Story:
    """Facts, told one after the other."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def pod(self, name: str, node: str = "", *, of: str = "w", ended: bool = False, gone: bool = False, gpus: int = 1) -> Story:
        requests = {GPU: gpus, "pods": 1}
        self.facts.append(PodFact(len(self.facts), 0.0, name, name, of, "main", node, not node, ended, gone, requests))
        return self

    def workload(self, name: str = "w", queue: str = "own", *, on: dict[str, int] | None = None, **ends: Any) -> Story:
        """Admitted to nodes, or not."""
        admission = None
        if on is not None:
            domains = tuple(DomainCount((node,), count) for node, count in on.items())
            count = sum(on.values())
            given = PodSetAdmission("main", {GPU: "f"}, {GPU: count}, count, TopologyAssignment((HOSTNAME_LABEL,), domains))
            admission = Admission(queue, (given,))
        standing = {"given_back": {}, "finished": False, "evicted": "", "preempted": "", "gone": False, **ends}
        self.facts.append(WorkloadFact(len(self.facts), 0.0, name, f"job-{name}", admission, **standing))
        return self

    def broken(self, **required: str) -> list[str]:
        return audit(self.facts, NODES, QUEUES, {f"job-{name}": level for name, level in required.items()})


def test_a_life_in_good_order_breaks_nothing() -> None:
    story = Story().workload(on={FIRST: 2}).pod("a").pod("b").pod("a", FIRST).pod("b", FIRST)
    story.pod("a", FIRST, ended=True).workload("x", on={SECOND: 1}).pod("b", FIRST, ended=True).workload(on={FIRST: 2}, finished=True)
    story.workload("y", "guest", on={FIRST: 2}).pod("a", FIRST, ended=True, gone=True).pod("c", FIRST, of="y")
    assert story.broken(w=RACK_LABEL) == []


def test_audit_finds_a_slot_promised_while_a_pod_still_uses_it() -> None:
    story = Story().workload(on={FIRST: 2}).pod("a", FIRST).pod("b", FIRST).workload(gone=True)
    story.workload("x", on={FIRST: 1})
    who = "1 by pod a, 1 by pod b, 1 x 1 promised to x/main, of which 0 came"
    assert story.broken() == [f"node {FIRST} was over capacity: 3 of 2 {GPU} used or promised: {who}"]


def test_a_node_over_capacity_for_a_moment_is_found_though_all_is_well_at_the_end() -> None:
    story = Story().pod("a", FIRST, gpus=2).pod("b", FIRST).pod("b", FIRST, gone=True)
    assert story.broken() == [f"node {FIRST} was over capacity: 3 of 2 {GPU} used or promised: 2 by pod a, 1 by pod b"]


def test_audit_counts_the_promise_to_an_ended_pod_as_used() -> None:
    story = Story().workload(on={FIRST: 2}).pod("a", FIRST, ended=True).pod("b", FIRST).pod("other", FIRST, of="alone")
    assert story.broken() == []


def test_a_cohort_that_lends_more_than_it_has_is_found() -> None:
    story = Story().workload("w", "guest", on={FIRST: 2, SECOND: 1}).workload("x", on={SECOND: 1})
    assert story.broken() == []
    assert story.workload("y", on={SECOND: 1}).broken()[-1] == f"cohort c used 5 of 4 {GPU} in f when y was admitted"


def test_quota_that_was_given_back_is_not_counted() -> None:
    story = (
        Story().workload("w", "guest", on={FIRST: 2, SECOND: 1}).workload("w", "guest", on={FIRST: 2, SECOND: 1}, given_back={"main": 2})
    )
    assert not [sentence for sentence in story.workload("x", on={SECOND: 2}).broken() if sentence.startswith("cohort")]


def test_pods_of_one_workload_in_two_racks_are_found_where_one_is_required() -> None:
    story = Story().workload(on={FIRST: 1, SECOND: 1}).pod("a", FIRST).pod("b", SECOND)
    assert story.broken() == []
    racks = ", ".join(node["metadata"]["labels"][RACK_LABEL] for node in NODES)
    assert story.broken(w=RACK_LABEL) == [f"workload w needs one {RACK_LABEL} and had pods in {racks}"]

"""Steps of a group on paper: done one after the other, each from what the one before left on pods alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from core.model.configuration import PodGroupRules
from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL, MEMBER_OF_LABEL, PODGROUP_GATE
from core.plan.pods.group_plans import DecidedGroup, plan_group
from core.plan.steps.steps import ParallelSteps, Step
from core.plan.steps.writes import Patch
from core.podgroups.acting import GroupStep, plan_step
from core.podgroups.algorithm import default_plugins
from core.podgroups.group import TopologyConstraint
from core.podgroups.members import GroupKey, Member, build_pin, find_pinned_node, group_of, read_member
from core.podgroups.podgroup_facts import PodGroupFacts
from core.resource import PatchKind
from core.state.cluster import ClusterState
from core.state.facts import NodeFacts, PodFacts
from sim.apiserver.kinds import POD_LISTS
from sim.apiserver.patches import merge, merge_strategically
from tests.builders import NAMESPACE, RACK, Node, build_node_json

KEY = GroupKey(NAMESPACE, "g")


class Paper:
    """Nodes and the pods of one group, on which the writes of a step's plan are merged as the API server merges them."""

    def __init__(self, racks: dict[str, Sequence[int]], *, min_count: int | None = None, desired: int | None = None) -> None:
        self.state, self.rules = ClusterState(), PodGroupRules()
        self.facts = PodGroupFacts(NAMESPACE, "g", "uid", (TopologyConstraint(RACK),), min_count, desired)
        self.pods: dict[str, dict[str, Any]] = {}
        for rack, sizes in racks.items():
            for number, cpu in enumerate(sizes):
                name = f"{rack}-{number}"
                labels = {RACK: rack, HOSTNAME_LABEL: name}
                self.node(Node(name, labels, {"cpu": cpu * 1000, "pods": 110}))

    def node(self, node: Node) -> None:
        self.state.observe_node(node.name, NodeFacts.read(build_node_json(node)))

    def add(self, *numbers: int, cpu: int = 1) -> None:
        for number in numbers:
            name = f"p{number}"
            labels = {MEMBER_OF_LABEL: "g", JOB_COMPLETION_INDEX_LABEL: f"{number}"}
            metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": labels}
            containers = [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}"}}}]
            self.pods[name] = {
                "metadata": metadata,
                "spec": {"containers": containers, "schedulingGates": [{"name": PODGROUP_GATE}]},
                "status": {},
            }

    @property
    def members(self) -> list[Member]:
        return [member for pod in self.pods.values() if (member := read_member(pod)) is not None]

    def fold(self) -> None:
        """As a process that starts anew finds it: what is kept stands on the pods."""
        for name, pod in self.pods.items():
            self.state.observe_pod(f"{NAMESPACE}/{name}", PodFacts.read(pod))
        for member in self.members:
            place = member.place if member.is_live and not member.node else None
            self.state.whole.hold_place(str(KEY), member.uid, place or None, member.request.requests)

    def step(self, waited_s: float = 100.0) -> GroupStep:
        self.fold()
        view = self.state.whole.capacity
        return plan_step(self.facts, self.facts.levels, KEY, self.members, view, default_plugins(), waited_s, self.rules)

    def do(self, step: GroupStep, writes: int | None = None) -> None:
        """The writes of its plan in order; `writes`: only so many."""
        now, group = datetime.now(UTC), {"metadata": {"name": KEY.name, "namespace": NAMESPACE}}
        pods = {f"{NAMESPACE}/{name}": pod for name, pod in self.pods.items()}
        plan = plan_group(DecidedGroup(KEY, group, step, pods, now, now))
        made = [one for each in plan.steps if isinstance(each.write, ParallelSteps) for one in each.write.steps]
        for one in made[:writes]:
            assert isinstance(one, Step)
            assert isinstance(one.write, Patch)
            name, body = one.write.seen["metadata"]["name"], one.write.body
            pod = self.pods[name]
            self.pods[name] = merge(pod, body) if one.write.kind is PatchKind.MERGE else merge_strategically(POD_LISTS, pod, dict(body))

    def bind(self) -> None:
        """As kube-scheduler does: what may go is where it may."""
        for pod in self.pods.values():
            if not pod["spec"].get("schedulingGates"):
                pod["spec"]["nodeName"] = find_pinned_node(pod["spec"])

    def settle(self, steps: int = 12) -> GroupStep:
        for _ in range(steps):
            step = self.step()
            if not (step.give_back or step.keep or step.let_go):
                return step
            self.do(step)
        raise AssertionError("it does not come to rest")

    def where(self) -> dict[str, str]:
        return {member.key.partition("/")[2]: member.place for member in self.members if not member.gated}


def test_a_gang_gets_its_places_in_one_rack_before_any_pod_is_let_go() -> None:
    paper = Paper({"r1": [2, 1], "r2": [2, 2]}, min_count=4)
    paper.add(0, 1, 2, 3)
    first = paper.step()
    assert [node for _, node in first.keep] == ["r2-0", "r2-0", "r2-1", "r2-1"]
    assert first.let_go == ()
    paper.do(first)
    last = paper.settle()
    assert last.is_scheduled
    assert "4 pods" in last.message
    assert paper.where() == {"p0": "r2-0", "p1": "r2-0", "p2": "r2-1", "p3": "r2-1"}, "consecutive ranks share a node"


def test_a_gang_that_is_not_all_there_waits_and_keeps_nothing() -> None:
    paper = Paper({"r1": [8]}, min_count=3)
    paper.add(0, 1)
    step = paper.settle()
    assert step.reason == "WaitingForPods"
    assert "2 of at least 3 pods" in step.message
    assert paper.where() == {}
    paper.add(2)
    assert paper.settle().is_scheduled


def test_gang_without_a_placement_reports_the_lack_of_each_rack_and_is_scheduled_once_one_fits() -> None:
    paper = Paper({"r1": [2], "r2": [3]}, min_count=4)
    paper.add(0, 1, 2, 3)
    step = paper.settle()
    assert (step.is_scheduled, step.reason) == (False, "Unschedulable")
    assert step.explanation is not None
    assert [(fact.name, fact.fit, list(map(str, fact.short))) for fact in step.explanation.facts] == [
        ("r2", 3, ["1 cpu"]),
        ("r1", 2, ["2 cpu"]),
    ]
    paper.node(Node("r2-1", {RACK: "r2", HOSTNAME_LABEL: "r2-1"}, {"cpu": 1000, "pods": 110}))
    assert paper.settle().is_scheduled


def test_pods_that_come_later_go_where_the_group_runs() -> None:
    paper = Paper({"r1": [2], "r2": [3]}, min_count=1)
    paper.add(0, 1)
    assert paper.settle().is_scheduled
    paper.bind()
    rack = paper.where()["p0"][:2]
    paper.add(2, 3)
    step = paper.settle()
    assert step.is_scheduled
    assert {node[:2] for node in paper.where().values()} == {rack}
    if rack == "r2":
        assert len(paper.where()) == 3
        assert all(part in step.message for part in ("3 pods", "1 more", "1 placement"))


def test_group_with_desired_count_waits_for_its_pods_and_gets_room_for_all() -> None:
    paper = Paper({"r1": [2], "r2": [5]}, desired=4)
    paper.add(0, 1)
    step = paper.step(waited_s=1.0)
    assert (step.reason, step.retry_s) == ("WaitingForPods", 4.0)
    assert all(part in step.message for part in ("2 of 4 desired pods", "5 s"))
    paper.settle()
    assert {node[:2] for node in paper.where().values()} == {"r2"}, "the other rack would be fuller, and too small for those to come"


def test_how_long_it_is_waited_for_is_a_setting() -> None:
    paper = Paper({"r1": [2], "r2": [5]}, desired=4)
    paper.rules = PodGroupRules(0.5)
    paper.add(0, 1)
    assert paper.step(waited_s=1.0).reason == "Scheduled"
    paper.settle()
    assert {node[:2] for node in paper.where().values()} == {"r2"}


def test_a_place_on_a_node_that_goes_is_given_back_and_another_is_found() -> None:
    paper = Paper({"r1": [1, 1, 1]}, min_count=2)
    paper.add(0, 1)
    paper.do(paper.step())
    gone = paper.members[0].kept
    paper.state.observe_node(gone, None)
    assert paper.settle().is_scheduled
    assert gone not in paper.where().values()


def test_two_groups_never_get_the_same_place() -> None:
    paper = Paper({"r1": [2]}, min_count=2)
    paper.state.whole.hold_place("ns/other", "uid-other", "r1-0", {"cpu": 1000})
    paper.add(0, 1)
    assert not paper.settle().is_scheduled
    paper.state.whole.hold_place("ns/other", "uid-other", None, {})
    assert paper.settle().is_scheduled
    assert paper.state.ledger.find_drift() == {}


def test_a_pod_that_kube_scheduler_does_not_bind_is_told() -> None:
    paper = Paper({"r1": [2]}, min_count=2)
    paper.add(0, 1)
    paper.settle()
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: a thief"}
    paper.pods["p1"]["status"]["conditions"] = [refused]
    step = paper.settle()
    assert not step.is_scheduled
    assert all(part in step.message for part in ("pod ns/p1", "node r1-0", "0/1 nodes are available: a thief"))


@pytest.mark.parametrize("writes", range(9))
def test_a_process_that_ends_between_any_two_writes_leaves_a_group_that_the_next_makes_whole(writes: int) -> None:
    """Four places are kept, then four pods let go; nobody is let go before all are kept."""
    paper = Paper({"r1": [2, 2], "r2": [2, 2]}, min_count=4)
    paper.add(0, 1, 2, 3)
    paper.do(paper.step(), min(4, writes))
    if writes > 4:
        paper.do(paper.step(), writes - 4)
    let_go = len(paper.where())
    assert not let_go or all(member.place for member in paper.members)
    assert paper.settle().is_scheduled
    assert len({node[:2] for node in paper.where().values()}) == 1
    assert paper.state.ledger.find_drift() == {}


@given(
    st.dictionaries(st.sampled_from(["r1", "r2", "r3"]), st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1),
    st.integers(1, 6),
    st.integers(1, 6),
    st.lists(st.integers(0, 5), max_size=4),
)
def test_whatever_interrupts_it_a_group_is_whole_in_one_rack_or_has_no_place_at_all(
    racks: dict[str, list[int]], count: int, min_count: int, interrupted: list[int]
) -> None:
    paper = Paper(dict(racks), min_count=min_count)
    paper.add(*range(count))
    for writes in interrupted:
        paper.do(paper.step(), writes)
        assert not paper.where() or sum(bool(member.place) for member in paper.members) >= min_count
    last = paper.settle()
    largest = max(sum(sizes) for sizes in racks.values())
    assert last.is_scheduled == (count >= min_count and largest >= min_count)
    assert len(paper.where()) == (min(count, largest) if last.is_scheduled else 0)
    assert len({node[:2] for node in paper.where().values()}) <= 1
    for name, facts in paper.state.nodes.items():
        assert sum(place == name for place in paper.where().values()) * 1000 <= facts.state.allocatable["cpu"]
    assert paper.state.ledger.find_drift() == {}


def test_pod_group_key_is_read_from_pod_labels() -> None:
    pod = {"metadata": {"name": "p", "namespace": "n", "labels": {MEMBER_OF_LABEL: "g", "topogate.dev/podgroup-replica": "3"}}}
    assert group_of(pod) == GroupKey("n", "g", 3)
    assert str(group_of(pod)) == "n/g[3]"
    assert group_of({"metadata": {"name": "p"}}) is None


def test_pinned_pod_keeps_its_own_node_affinity() -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]}}}}
    pinned = {"affinity": {"nodeAffinity": build_pin(spec, "n1")}}
    terms = pinned["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"] == term["matchExpressions"]
    assert terms[1] == {}, "it matches nothing, and nobody may add to it"
    assert find_pinned_node(pinned) == "n1"
    assert find_pinned_node(spec) == ""


def test_a_pod_of_a_deleted_node_does_not_keep_the_group_from_growing() -> None:
    paper = Paper({"r1": [1, 1, 1], "r2": [4]}, min_count=2)
    paper.add(0, 1)
    paper.settle()
    paper.bind()
    assert paper.where() == {"p0": "r1-0", "p1": "r1-1"}
    paper.state.observe_node("r1-0", None)
    assert paper.step().reason == "Scheduled"
    paper.add(2)
    assert paper.settle().reason == "Scheduled"
    assert paper.where()["p2"] == "r1-2"


def test_a_pod_of_a_deleted_node_takes_no_places_from_the_others() -> None:
    paper = Paper({"r1": [1, 1, 1]}, min_count=3)
    paper.add(0, 1, 2)
    paper.do(paper.step())
    paper.do(paper.step(), writes=0)
    first = paper.pods["p0"]
    first["spec"] = {**first["spec"], "schedulingGates": [], "nodeName": "r1-0"}
    paper.state.observe_node("r1-0", None)
    step = paper.step()
    assert step.reason != "Scattered"
    assert step.give_back == ()

"""When a node is lost for a workload, and which pods wait for one in vain; times in virtual time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.gates import NO_GATES, REPLACE_MULTIPLE, ChosenGates
from core.model.node_health_rules import HealthRules, StormRules, parse_threshold
from core.names import DOMAIN_SIZE_ANNOTATION, HOSTNAME_LABEL, LOST_NODES_THRESHOLD
from core.plan.pods.node_health import NodeShare, NodeVerdict, Outside, count_stuck, explain_outside, is_pinned, judge_node
from core.state.facts import FlavorFacts, PodFacts, TopologyFacts

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
USUAL, BY_TIME = HealthRules(), HealthRules(on_pod_termination=False)


def format_ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def build_node(ready: str = "True", since: float = 0, **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": format_ago(since)}]
    return {"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": conditions}}


def taint(effect: str, added: float | None = None) -> dict[str, Any]:
    return {"key": "broken", "effect": effect} | ({"timeAdded": format_ago(added)} if added is not None else {})


def build_pod(
    name: str = "p", *, bound: bool = True, deleted: bool = False, phase: str = "Running", reason: str = "", **more: Any
) -> PodFacts:
    """Bound to n1, or pinned to it."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": name, "annotations": {DOMAIN_SIZE_ANNOTATION: "1"}}
    metadata |= {"deletionTimestamp": format_ago(0)} if deleted else {}
    where = {"nodeName": "n1"} if bound else {"nodeSelector": {HOSTNAME_LABEL: "n1"}}
    status = {"phase": phase, **more} | ({"reason": reason} if reason else {})
    return PodFacts.read({"metadata": metadata, "spec": {"containers": [], **where}, "status": status})


def unschedulable(since: float) -> dict[str, Any]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/9 nodes",
        "lastTransitionTime": format_ago(since),
    }
    return {"conditions": [condition]}


RUNNING, ENDING, FAILED, DONE = build_pod(), build_pod(deleted=True), build_pod(phase="Failed"), build_pod(phase="Succeeded")
PINNED = build_pod("waiting", bound=False, phase="Pending")


def judge(
    found: dict[str, Any] | None, *pods: PodFacts, rules: HealthRules = USUAL, tolerations: Any = (), assigned: int = 1
) -> NodeVerdict:
    return judge_node(found, NodeShare(assigned, pods, [tolerations]), rules, NOW)


@pytest.mark.parametrize(
    ("found", "pods", "rules", "why"),
    [
        (build_node(), [RUNNING], HealthRules(), ""),
        (build_node(), [], HealthRules(), ""),
        (None, [RUNNING], HealthRules(), "it is gone"),
        (None, [DONE], HealthRules(), ""),
        (build_node("False"), [RUNNING], HealthRules(), ""),
        (build_node("Unknown", 3600), [RUNNING, FAILED], HealthRules(), ""),
        (build_node("False"), [ENDING], HealthRules(), "it is not ready"),
        (build_node("False", 29), [], HealthRules(), ""),  # nothing has been there yet, and a flap changes nothing
        (build_node("False", 30), [], HealthRules(), "it is not ready"),
        (build_node("False"), [DONE], HealthRules(), ""),
        (build_node("False", 29), [RUNNING], BY_TIME, ""),
        (build_node("False", 29), [ENDING], BY_TIME, ""),
        (build_node("False", 30), [RUNNING], BY_TIME, "it is not ready"),
        (build_node("False", 30), [RUNNING], HealthRules(after_fixed_time=True), "it is not ready"),
        (build_node("False", 0), [ENDING], HealthRules(after_fixed_time=True), "it is not ready"),
        (build_node(taints=[taint("NoSchedule")]), [RUNNING], HealthRules(), ""),
        (build_node(taints=[taint("NoSchedule")]), [RUNNING], BY_TIME, ""),
        (build_node(taints=[taint("NoSchedule")]), [FAILED], HealthRules(), "it has the taint broken:NoSchedule"),
        (build_node(taints=[taint("NoSchedule")]), [FAILED], HealthRules(on_taints=False), ""),
        (build_node(taints=[taint("PreferNoSchedule")]), [FAILED], HealthRules(), ""),
        (build_node(taints=[taint("NoExecute")]), [RUNNING], HealthRules(), ""),
        (build_node(taints=[taint("NoExecute")]), [ENDING], HealthRules(), "it has the taint broken:NoExecute"),
        (build_node(taints=[taint("NoExecute")]), [RUNNING], BY_TIME, "it has the taint broken:NoExecute"),
        (build_node(unschedulable=True), [RUNNING], HealthRules(), ""),
        (build_node(unschedulable=True), [ENDING], HealthRules(), "it is cordoned"),
        (
            build_node(),
            [build_pod(phase="Failed", reason="OutOfnvidia.com/gpu")],
            HealthRules(),
            "its kubelet rejects pods (OutOfnvidia.com/gpu)",
        ),
        (build_node(), [build_pod(phase="Failed", reason="UnexpectedAdmissionError"), RUNNING], HealthRules(), ""),
        (build_node(), [build_pod(phase="Failed", reason="Evicted")], HealthRules(), ""),
        (build_node(), [build_pod("waiting", bound=False, phase="Pending", **unschedulable(59))], HealthRules(), ""),
        (
            build_node(),
            [build_pod("waiting", bound=False, phase="Pending", **unschedulable(60))],
            HealthRules(),
            "pod waiting cannot be scheduled there: 0/9 nodes",
        ),
        (build_node(), [build_pod("waiting", bound=False, phase="Pending", **unschedulable(600)), RUNNING], HealthRules(), ""),
    ],
)
def test_a_node_is_lost(found: dict[str, Any] | None, pods: list[PodFacts], rules: HealthRules, why: str):
    assert judge(found, *pods, rules=rules).lost == why


def test_a_node_that_was_used_and_has_no_pod_any_more_is_lost_at_once():
    used = NodeShare(1, [], [()], was_used=True)
    assert judge_node(build_node("False"), used, USUAL, NOW).lost == "it is not ready"
    assert judge_node(build_node(), used, USUAL, NOW) == NodeVerdict()


TOLERATED = ({"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},)


@pytest.mark.parametrize(
    ("rules", "added", "lost", "again"),
    [(BY_TIME, 100.0, "", 200.0), (BY_TIME, 300.0, "it has the taint broken:NoExecute", None), (HealthRules(), 100.0, "", 200.0)],
)
def test_toleration_seconds_are_waited_for(rules: HealthRules, added: float, lost: str, again: float | None):
    found = judge(build_node(taints=[taint("NoExecute", added)]), RUNNING, rules=rules, tolerations=TOLERATED)
    assert (found.lost, found.look_again_s) == (lost, again)


@pytest.mark.parametrize("seconds", [10**12, 2**63 - 1])
def test_a_toleration_of_more_than_a_hundred_years_is_for_ever(seconds: int):
    """Former defect: `date value out of range` kept every lost node of the workload from being replaced."""
    long = ({"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds},)
    assert judge(build_node(taints=[taint("NoExecute")]), RUNNING, rules=BY_TIME, tolerations=long) == NodeVerdict()


def test_node_with_a_taint_tolerated_for_ever_is_not_lost():
    for_ever = ({"key": "broken", "operator": "Exists"},)
    for effect in ("NoExecute", "NoSchedule"):
        assert judge(build_node(taints=[taint(effect)]), rules=BY_TIME, tolerations=for_ever) == NodeVerdict()


def test_of_two_pod_sets_the_one_that_tolerates_a_taint_for_less_time_counts():
    """Found by the simulation (seed 99): the workload was set aside, since two times could not be compared."""
    shares = NodeShare(2, [RUNNING], [({"key": "broken", "operator": "Exists"},), TOLERATED])
    found = judge_node(build_node(taints=[taint("NoExecute", 100.0)]), shares, BY_TIME, NOW)
    assert (found.lost, found.look_again_s) == ("", 200.0)


def test_the_times_that_every_pod_is_given_count():
    """A node that is not ready gets a taint, which the API server has every pod tolerate for five minutes."""
    away = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": format_ago(10)}
    rules = HealthRules(on_pod_termination=False, not_ready_delay_s=1000)
    assert judge(build_node("False", 10, taints=[away]), RUNNING, rules=rules) == NodeVerdict(look_again_s=290.0)


def test_the_delay_of_a_node_that_is_not_ready_is_looked_at_again():
    assert judge(build_node("False", 10), RUNNING, rules=BY_TIME).look_again_s == 20.0


@pytest.mark.parametrize(
    ("found", "assigned", "ended"),
    [
        (build_node(), 1, False),
        (build_node("False"), 1, False),
        (build_node("False", 30), 1, True),
        (build_node(unschedulable=True), 1, True),
        (build_node(taints=[taint("NoSchedule")]), 1, True),
        (None, 1, True),
        (build_node(), 0, True),  # its workload has nothing there any more
        (build_node("False"), 0, True),
        ({"metadata": {"name": "n1"}, "status": {}}, 0, False),  # it has not said yet how it is
    ],
)
def test_pods_pinned_to_an_unusable_node_are_ended(found: dict[str, Any] | None, assigned: int, ended: bool):
    assert judge(found, PINNED, assigned=assigned).in_the_way == ((PINNED,) if ended else ())


def test_pending_pod_beside_running_pods_on_an_unschedulable_node_is_not_ended():
    """A cordoned node with one pod that has failed: ending its successor would only have another one made, until the job has failed."""
    for found in (build_node(unschedulable=True), build_node(taints=[taint("NoSchedule")]), build_node("False", 3600)):
        assert judge(found, RUNNING, FAILED, PINNED, assigned=2) == NodeVerdict()


def test_gated_bound_or_finished_pods_are_not_in_the_way():
    gated = PodFacts.read(
        {
            "metadata": {"name": "g", "namespace": "ns"},
            "spec": {"nodeSelector": {HOSTNAME_LABEL: "n1"}, "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]},
        }
    )
    assert not any(map(is_pinned, (gated, RUNNING, ENDING, FAILED, DONE)))
    assert judge(None, gated, RUNNING).in_the_way == ()


# --- nodes that have left their flavor or topology ------------------------------------------------------

GATED = PodFacts.read(
    {"metadata": {"name": "gated", "namespace": "ns"}, "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}, "status": {}}
)


def judge_outside(*pods: PodFacts, seconds: float, is_reported: bool = False, assigned: int = 2) -> NodeVerdict:
    """A node in good health that has been elsewhere for some seconds."""
    outside = Outside("it has left", NOW - timedelta(seconds=seconds), is_reported)
    return judge_node(build_node(), NodeShare(assigned, pods, [()], outside=outside), USUAL, NOW)


@pytest.mark.parametrize(
    ("pods", "seconds", "expected"),
    [
        ([RUNNING, RUNNING], 3600, NodeVerdict()),
        ([], 3600, NodeVerdict()),  # no pod needs the place
        ([DONE, FAILED], 3600, NodeVerdict()),
        ([GATED], 29, NodeVerdict(look_again_s=1.0)),
        ([GATED], 30, NodeVerdict("it has left")),
        ([GATED, ENDING], 30, NodeVerdict("it has left")),
        ([DONE, DONE, GATED], 30, NodeVerdict()),
        ([PINNED], 30, NodeVerdict("it has left", in_the_way=(PINNED,))),
        ([GATED, RUNNING], 29, NodeVerdict(look_again_s=1.0)),
        ([GATED, RUNNING], 30, NodeVerdict(stuck=(replace(GATED, unschedulable="it has left"),))),
        ([GATED, RUNNING, ENDING], 30, NodeVerdict()),  # the pod that ends may be the one that it follows
    ],
)
def test_judge_node_that_left_returns_a_loss_for_pods_that_wait(pods: list[PodFacts], seconds: float, expected: NodeVerdict):
    assert judge_outside(*pods, seconds=seconds) == expected


def test_judge_node_that_left_keeps_a_reported_loss_without_pods():
    """The pod that waited may have been deleted: the next one is on its way."""
    assert judge_outside(seconds=30, is_reported=True).lost == "it has left"
    assert judge_outside(RUNNING, seconds=30, is_reported=True).lost == ""


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"pool": "b", "rack": "r", HOSTNAME_LABEL: "n1"}, "it has left flavor f: its label pool is b, and the flavor selects pool=a"),
        ({"rack": "r", HOSTNAME_LABEL: "n1"}, "it has left flavor f: it has no label pool, and the flavor selects pool=a"),
        ({"pool": "a", HOSTNAME_LABEL: "n1"}, "it has left topology t: it has no label rack"),
        ({"pool": "a", "rack": "r", HOSTNAME_LABEL: "n2"}, f"its label {HOSTNAME_LABEL} is n2 now, and was n1"),
        (
            {"pool": "a", "rack": "r", HOSTNAME_LABEL: "n1"},
            "it has another place in topology t now, or another node has the same labels of its levels",
        ),
    ],
)
def test_explain_outside_names_the_label(labels: dict[str, str], why: str):
    flavor = FlavorFacts("f", {"pool": "a"}, (), (), "t")
    assert explain_outside(labels, "n1", flavor, TopologyFacts("t", ("rack", HOSTNAME_LABEL))) == why


def test_too_many_lost_nodes_are_reported_with_the_exceeded_limit():
    assert HealthRules().is_too_much(900, 1000) == ""
    rules = HealthRules(max_nodes=4, max_share=0.5)
    assert (rules.is_too_much(4, 8), rules.is_too_much(5, 100)) == ("", "nodeReplacement.maxNodes is 4")
    assert rules.is_too_much(3, 5) == "nodeReplacement.maxShare is 0.5"


@pytest.mark.parametrize("text", ["0", "9", "10", " 1", "1 ", "+1", "01", "\u0661", "", 1, None])
def test_threshold_of_lost_nodes_that_is_no_digit_from_1_to_8_is_none(text: object):
    assert parse_threshold(text) is None


def test_own_threshold_of_lost_nodes_counts_only_with_the_gate_and_beside_the_limits():
    rules = HealthRules(max_nodes=4).with_gates(ChosenGates({REPLACE_MULTIPLE: True}))
    assert [rules.is_too_much(lost, 100, 2) for lost in (2, 3)] == ["", f"{LOST_NODES_THRESHOLD} is 2"]
    assert rules.is_too_much(5, 100, 8) == "nodeReplacement.maxNodes is 4"
    assert rules.is_too_much(3, 100, None) == ""
    assert HealthRules().with_gates(NO_GATES).is_too_much(3, 100, 2) == ""


# --- storms -----------------------------------------------------------------------------------------------


def list_times(*seconds_ago: float) -> list[datetime]:
    return [NOW - timedelta(seconds=seconds) for seconds in seconds_ago]


def test_a_fifth_of_the_nodes_within_two_minutes_is_a_storm():
    rules = StormRules()
    assert rules.find(list_times(*[1.0] * 20), 100, NOW) is None
    assert rules.find(list_times(*[1.0] * 21), 100, NOW) == (21, NOW + timedelta(seconds=1799))
    assert rules.find(list_times(*[1.0] * 11, *[122.0] * 11), 100, NOW) is None
    assert rules.find(list_times(*[1.0] * 11, *[121.0] * 11), 100, NOW) is not None


def test_of_a_few_nodes_it_takes_some():
    assert StormRules().find(list_times(1, 1, 1, 1), 4, NOW) is None
    assert StormRules(min_nodes=2).find(list_times(1, 1), 4, NOW) is not None


def test_a_storm_ends_by_itself():
    assert StormRules().find(list_times(*[1799.0] * 50), 100, NOW) is not None
    assert StormRules().find(list_times(*[1800.0] * 50), 100, NOW) is None


def test_there_are_none_with_a_share_of_one():
    assert StormRules(share=1.0).find(list_times(*[1.0] * 100), 100, NOW) is None


@given(st.lists(st.floats(0, 4000), max_size=40), st.integers(1, 60), st.randoms(use_true_random=False))
def test_storms_are_as_counted_by_hand_and_know_no_order(ages: list[float], nodes: int, chance: Any):
    rules, since = StormRules(min_nodes=3), list_times(*ages)
    needed = max(3, int(0.2 * nodes) + 1)
    within = timedelta(seconds=120)
    windows = [last for last in since if sum(timedelta() <= last - each <= within for each in since) >= needed]
    expected = bool(windows) and max(windows) + timedelta(seconds=1800) > NOW
    found = rules.find(since, nodes, NOW)
    assert (found is not None) == expected
    shuffled = list(since)
    chance.shuffle(shuffled)
    assert rules.find(shuffled, nodes, NOW) == found


def test_pod_that_follows_a_succeeded_one_beside_one_that_runs_gets_another_place():
    runs, done, following = (
        replace(each, pod_set="main") for each in (build_pod("a"), build_pod("b", phase="Succeeded"), build_pod("c", bound=False))
    )
    pods = (runs, done, replace(following, gated=True, node_selector={}))
    share = NodeShare(2, pods, (), by_pod_set={"main": 2})
    assert count_stuck(share, pods[2:]) == {}, "what is done needs its place no more"
    assert count_stuck(replace(share, is_awaited=True), pods[2:]) == {"main": 1}

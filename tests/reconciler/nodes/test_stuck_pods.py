"""Pods that kube-scheduler finds not to fit beside others of their workload: what is told of them, and what the second pass is given."""

from __future__ import annotations

from core.model.node_health_rules import HealthRules
from core.names import PODS_SCHEDULABLE
from core.runtime.controller import Done, RequeueAfter
from core.state.facts import find_condition
from tests.reconciler.harness_nodes import KEY, STRICT_STORMS, NodesHarness

DELAY_S = HealthRules().unschedulable_delay_s


class StuckHarness(NodesHarness):
    """Two of the workload's pods are assigned to n0, and one to n1; of those on n0 one runs, the other does not fit."""

    def __init__(self, rules: HealthRules | None = None) -> None:
        super().__init__(rules)
        self.woken = 0
        self.health.stuck.on_change.append(self._wake)
        self.node("n0")
        self.node("n1")
        self.workload("n0", "n0", "n1")
        self.pod("runs", "n0")
        self.pod("beside", "n1")
        self.wait("waits")

    def _wake(self) -> None:
        self.woken += 1

    def wait(self, name: str) -> None:
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes: Insufficient cpu"}
        refused["lastTransitionTime"] = self.now()
        self.pod(name, pinned="n0", phase="Pending", conditions=[refused])

    @property
    def stuck(self) -> object:
        return self.observed.state.stuck.get(KEY)

    @property
    def condition(self) -> tuple[str, str, str] | None:
        found = find_condition(self.get("Workload", "w"), PODS_SCHEDULABLE)
        return (found["status"], found["reason"], found["message"]) if found is not None else None


def test_pod_that_stays_unschedulable_is_reported_once_and_passed_to_the_second_pass():
    harness = StuckHarness()
    assert harness.look() == RequeueAfter(DELAY_S)
    assert (harness.stuck, harness.condition, harness.told, harness.woken) == (None, None, [], 0)
    harness.clock.time += DELAY_S
    assert isinstance(harness.look(), RequeueAfter)
    assert harness.stuck == {"main": (("n0", 1),)}
    why = "where others of its workload run: 0/2 nodes: Insufficient cpu"
    message = f"pod waits cannot be scheduled on node n0, {why}. Another place is looked for"
    assert harness.condition == ("False", "Unschedulable", message)
    assert (harness.told, harness.woken) == ([("Unschedulable", message)], 1)
    harness.look()
    assert (len(harness.told), len(harness.writes), harness.woken) == (1, 2, 1)
    assert (harness.statuses, harness.ended) == ([], []), "no node is lost, and no pod ended"


def test_stuck_pod_without_a_written_new_assignment_is_requested_again():
    harness = StuckHarness()
    harness.clock.time += DELAY_S
    harness.look()
    harness.observed.state.observe_stuck(KEY, None)  # as the cycle does when it has found a place
    assert isinstance(harness.look(), RequeueAfter)
    assert harness.stuck == {"main": (("n0", 1),)}
    assert harness.woken == 2


def test_stuck_pod_that_has_a_new_assignment_needs_no_other_node():
    harness = StuckHarness()
    harness.clock.time += DELAY_S
    harness.look()
    harness.workload("n0", "n1", "n2")
    harness.node("n2")
    assert harness.look() == Done()
    assert harness.stuck is None


def test_when_it_is_bound_all_is_well_again():
    harness = StuckHarness()
    harness.clock.time += DELAY_S
    harness.look()
    harness.pod("waits", "n0")
    assert harness.look() == Done()
    assert harness.stuck is None
    assert harness.condition is not None
    assert harness.condition[:2] == ("True", "Scheduled")


def test_unschedulable_pod_beside_a_terminating_pod_is_not_reported_as_stuck():
    harness = StuckHarness()
    harness.pod("ends", "n0", ending=True)
    harness.clock.time += DELAY_S
    assert harness.look() == Done()
    assert (harness.stuck, harness.condition) == (None, None)


def test_where_nothing_runs_the_whole_node_is_lost():
    harness = StuckHarness()
    harness.drop("Pod", "runs")
    harness.clock.time += DELAY_S
    harness.look()
    assert (harness.unhealthy, harness.stuck) == (["n0"], None)


def test_of_more_pods_than_places_only_so_many_get_others():
    harness = StuckHarness()
    harness.wait("one-too-many")
    harness.clock.time += DELAY_S
    harness.look()
    assert harness.stuck == {"main": (("n0", 1),)}


def test_in_a_storm_nothing_is_moved():
    harness = StuckHarness(HealthRules(storm=STRICT_STORMS))
    for name in ("n2", "n3", "n4"):
        harness.node(name, ready=False, rack=name)
    harness.clock.time += DELAY_S
    assert isinstance(harness.look(), RequeueAfter)
    assert (harness.stuck, harness.condition) == (None, None)


def test_deleted_workload_has_no_stuck_pods():
    harness = StuckHarness()
    harness.clock.time += DELAY_S
    harness.look()
    harness.drop("Workload", "w")
    assert harness.look() == Done()
    assert harness.stuck is None

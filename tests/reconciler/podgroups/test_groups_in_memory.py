"""The reconciler of groups of pods where events come late, writes fail, and people do odd things."""

from __future__ import annotations

import time

import pytest

from core.model.configuration import PodGroupRules
from core.names import PAUSE_CONFIG_MAP, SYSTEM_NAMESPACE, WORKLOAD_ANNOTATION
from core.plan.steps import pacing
from core.podgroups.members import GroupKey, build_pin
from core.runtime.controller import Done, RequeueAfter
from core.runtime.http.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, Unreachable
from reconciler.podgroups.podgroups import ALL
from sim.harness import NAMESPACE
from tests.builders import RACK
from tests.reconciler.harness_groups import GroupsHarness

KEY = GroupKey(NAMESPACE, "g")


def due(harness: GroupsHarness) -> set[object]:
    """Groups that are looked at within the next second."""
    harness.clock.time += 1.0
    queue, found = harness.groups.controller.queue, set[object]()

    async def take() -> None:
        while queue.depth:
            key = (await queue.get()).key
            queue.finish(key)
            if key == ALL:
                await harness.groups.reconcile(ALL)
            else:
                found.add(key)

    harness.wait_for(take())
    return found


def test_a_gang_is_let_go_once_places_are_kept_for_all() -> None:
    harness = GroupsHarness({"r1": (1,), "r2": (2,)})
    harness.gang(2)
    harness.add("a", "b")
    assert isinstance(harness.settle(), Done)
    assert [what for what, _ in harness.steps] == ["keep", "keep", "let go", "let go"]
    assert harness.where() == {"a": "r2-0", "b": "r2-0"}
    assert harness.says[:2] == ("True", "Scheduled")
    assert "2 pods" in harness.says[2]
    harness.bind()
    assert harness.held() == {}
    assert harness.observed.state.ledger.find_drift() == {}


def test_metrics_of_a_gang_that_waits_for_a_node_count_its_refusals_then_its_placement() -> None:
    harness = GroupsHarness({"r1": (1,)})
    harness.gang(2)
    assert harness.groups.count_states() == {"placed": 0, "waiting": 0}
    harness.add("a")
    harness.settle()
    assert (harness.groups.count_states(), harness.measured.refusals) == ({"placed": 0, "waiting": 1}, []), "it lacks a pod"
    harness.add("b")
    harness.settle()
    harness.settle()
    assert (harness.measured.refusals, harness.measured.placements) == (["Unschedulable"], []), "nothing changed in between"
    harness.clock.time += 30
    harness.node("r2-0", "r2", 2)
    harness.settle()
    assert harness.measured.placements == [30.0]
    assert (harness.groups.count_states(), harness.measured.refusals) == ({"placed": 1, "waiting": 0}, ["Unschedulable"])
    harness.drop("Pod", "a")
    harness.settle()
    assert harness.groups.count_states() == {"placed": 0, "waiting": 1}
    harness.drop("Pod", "b")
    assert harness.groups.count_states() == {"placed": 0, "waiting": 0}


def test_replicas_speak_in_one_condition_and_it_comes_to_rest() -> None:
    harness = GroupsHarness({"r1": (1,), "r2": (1,)})
    harness.gang(1, replicas=3)
    for number in range(3):
        harness.add(f"p{number}", replica=str(number))
    for _ in range(6):
        for number in range(3):
            harness.look(replica=number)
    assert harness.says[0] == "False"
    assert all(part in harness.says[2] for part in ("replica 2: ", "2 placements", "1 pod"))
    told = len(harness.told)
    for _ in range(4):
        for number in range(3):
            harness.look(replica=number)
    assert len(harness.told) == told
    harness.node("r3-0", "r3", 1)
    for _ in range(3):
        harness.look(replica=2)
    assert harness.says[:2] == ("True", "Scheduled")
    assert "3 replicas" in harness.says[2]


def test_a_group_of_as_many_replicas_as_there_can_be_costs_nothing() -> None:
    harness = GroupsHarness({"r1": (1,)})
    began = time.process_time()
    harness.gang(1, replicas=2**31 - 1)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(("replica", "says"), [("3", "names replica 3"), ("x", "names replica -1")])
def test_pod_with_an_invalid_replica_is_reported_and_not_placed(replica: str, says: str) -> None:
    harness = GroupsHarness({"r1": (1,)})
    harness.gang(1, replicas=2)
    harness.add("a", replica=replica)
    harness.look(replica=3 if replica == "3" else -1)
    assert says in harness.says[2]
    assert harness.where() == {}


def test_a_pod_that_is_gone_when_it_is_let_go_leaves_nothing_behind() -> None:
    harness = GroupsHarness({"r1": (60,)})
    harness.group()
    names = [f"p{number}" for number in range(60)]
    harness.add(*names)

    def all_go(what: str, name: str) -> None:
        if what == "let go":
            for each in list(harness.pods):
                harness.drop("Pod", each)

    harness.on_step = all_go
    harness.settle()
    assert harness.held() == {}
    harness.on_step = lambda what, name: None
    harness.add("new", cpu=60)
    harness.settle()
    assert harness.where() == {"new": "r1-0"}


def test_pod_changed_before_its_nomination_is_observed_keeps_its_node() -> None:
    harness = GroupsHarness({"r1": (1,)})
    harness.group()
    harness.group(name="h")
    harness.add("a")
    harness.add("b", group="h")
    harness.late.add("Pod")
    harness.change("a", annotations={"some": "thing"})
    harness.look()
    harness.observe_next()
    assert harness.held() == {"a": "r1-0"}
    harness.look("h")
    assert harness.held() == {"a": "r1-0"}
    assert harness.says[1] == "Unschedulable"
    harness.look()
    assert harness.held() == {"a": "r1-0"}


def test_pods_of_a_group_that_have_no_place_are_looked_at_when_there_is_room() -> None:
    harness = GroupsHarness({"r1": (2,)})
    harness.group()
    harness.add("a", "b", "c")
    assert isinstance(harness.settle(), RequeueAfter)
    assert harness.says[0] == "True"
    assert all(part in harness.says[2] for part in ("2 pods", "1 pod more"))
    harness.bind()
    due(harness)
    harness.settle()
    assert isinstance(harness.look(), RequeueAfter)
    harness.change("a", status={"phase": "Succeeded"})
    assert due(harness) == {KEY}
    harness.settle()
    assert set(harness.where()) == {"a", "b", "c"}


def test_a_pod_that_names_another_group_is_that_ones_alone() -> None:
    harness = GroupsHarness({"r1": (1,)})
    harness.group()
    harness.add("a")
    harness.late.add("Pod")
    harness.look()
    assert harness.held() == {"a": "r1-0"}
    harness.change("a", labels={})
    harness.catch_up()
    assert harness.held() == {}
    harness.drop("Pod", "a")
    assert harness.groups._seen == {}


@pytest.mark.parametrize("why", ["deleted", "no such level"])
def test_held_nodes_of_a_group_that_cannot_be_ungated_are_released(why: str) -> None:
    harness = GroupsHarness({"r1": (1,)})
    harness.group()
    harness.add("a")

    def only_keep(what: str, name: str) -> None:
        if what == "let go":
            raise Conflict(409, "Conflict", "changed")

    harness.on_step = only_keep
    harness.look()
    assert harness.held() == {"a": "r1-0"}
    if why == "deleted":
        harness.drop("PodGroup", "g")
    else:
        harness.group(schedulingConstraints={"topologyConstraints": [{"level": "word"}]})
    harness.settle()
    assert harness.held() == {}
    assert "nominatedNodeName" not in harness.pods["a"]["status"]


def test_pinned_pod_without_a_nominated_node_holds_no_capacity() -> None:
    harness = GroupsHarness({"r1": (4,)})
    metadata = {"name": "odd", "namespace": NAMESPACE, "uid": "uid-odd-1", "labels": {"topogate.dev/podgroup": "none"}}
    containers = [{"name": "c", "resources": {"requests": {"cpu": "100000"}}}]
    affinity = {"nodeAffinity": build_pin({}, "r1-0")}
    harness.put({"kind": "Pod", "metadata": metadata, "spec": {"containers": containers, "affinity": affinity}})
    view = harness.observed.state.whole.capacity
    assert harness.held() == {}
    assert view.free[view.axis["cpu"]].tolist() == [4000]


def test_a_pod_with_a_workload_has_its_place_from_that() -> None:
    harness = GroupsHarness({"r1": (4,)})
    harness.gang(1)
    harness.add("a")
    harness.change("a", annotations={WORKLOAD_ANNOTATION: "w"})
    harness.settle()
    assert harness.where() == {}


def one_that_has_succeeded(cpus: int) -> GroupsHarness:
    """A gang of two pods, a and b, on one node."""
    harness = GroupsHarness({"r1": (cpus,)})
    harness.gang(2)
    harness.add("a", "b")
    harness.settle()
    harness.bind()
    for name in ("a", "b"):
        harness.change(name, status={"phase": "Succeeded"})
    return harness


def test_succeeded_gang_stays_scheduled_and_is_not_reconciled() -> None:
    harness = one_that_has_succeeded(4)
    assert isinstance(harness.settle(), Done)
    assert harness.says[0] == "True"
    harness.drop("Pod", "a")
    harness.drop("Pod", "b")
    assert isinstance(harness.settle(), Done)
    assert harness.says[0] == "True"


def test_a_pod_made_anew_follows_though_another_has_succeeded() -> None:
    harness = GroupsHarness({"r1": (4,)})
    harness.gang(2)
    harness.add("a", "b")
    harness.settle()
    harness.bind()
    harness.change("a", status={"phase": "Succeeded"})
    harness.drop("Pod", "b")
    harness.add("c")
    harness.settle()
    assert harness.where()["c"] == "r1-0"
    assert harness.says[:2] == ("True", "Scheduled")
    assert all(part in harness.says[2] for part in ("1 pod ", "1 have succeeded"))


def test_group_with_a_rejected_pod_write_reports_refused_with_the_pod() -> None:
    harness = GroupsHarness({"r1": (4,)})
    harness.gang(2)
    harness.add("a", "b")

    def refuse(what: str, name: str) -> None:
        if (what, name) == ("let go", "b"):
            raise Invalid(422, "Invalid", "spec.affinity: only additions are allowed")

    harness.on_step = refuse
    for _ in range(3):
        harness.look()
    assert set(harness.where()) == {"a"}
    assert harness.says[:2] == ("False", "Refused")
    assert "pod ns/b" in harness.says[2]
    assert "only additions are allowed" in harness.says[2]


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("at", range(4))
def test_pod_write_with_a_lost_answer_keeps_its_node_until_the_result_is_known(at: int, arrived: bool) -> None:
    harness = GroupsHarness({"r1": (2,)})
    harness.gang(2)
    harness.add("a", "b")
    count = iter(range(100))

    def lose(what: str, name: str) -> None:
        if next(count) == at:
            if arrived:
                pod = harness.pods[name]
                harness.late.add("Pod")  # nobody sees it
                if what == "keep":
                    harness.change(name, status={**pod["status"], "nominatedNodeName": "r1-0"})
                else:
                    affinity = {"nodeAffinity": build_pin(pod["spec"], "r1-0")}
                    harness.change(name, spec={**pod["spec"], "schedulingGates": [], "affinity": affinity})
                harness.late.clear()
            raise Unreachable("cut off")

    harness.on_step = lose
    results = [harness.look() for _ in range(8)]
    assert sum(isinstance(result, KubeError) for result in results) == 1
    for name in ("a", "b"):
        harness.change(name)
    harness.settle()
    assert set(harness.where().values()) == {"r1-0"}
    assert set(harness.where()) == {"a", "b"}
    harness.bind()
    assert harness.held() == {}
    assert harness.observed.state.ledger.find_drift() == {}


def test_waiting_groups_are_ordered_by_priority_then_by_age() -> None:
    harness = GroupsHarness({"r1": (0,)})
    for name, priority, created in (
        ("late", 0, "2026-01-02T00:00:00Z"),
        ("early", 0, "2026-01-01T00:00:00Z"),
        ("high", 5, "2026-01-03T00:00:00Z"),
    ):
        harness.group(name=name)
        harness.add(f"pod-{name}", group=name, priority=priority)
        pod = harness.pods[f"pod-{name}"]
        harness.put({**pod, "metadata": {**pod["metadata"], "creationTimestamp": created}})
        harness.look(name)
    assert [key.name for key in sorted(harness.groups._waiting, key=harness.groups._compute_turn)] == ["high", "early", "late"]


def test_group_is_not_placed_while_admissions_are_paused() -> None:
    harness = GroupsHarness({"r1": (4,)})
    pause = {"kind": "ConfigMap", "metadata": {"name": PAUSE_CONFIG_MAP, "namespace": SYSTEM_NAMESPACE}}
    harness.put({**pause, "data": {"admissions": '{"by": "ann"}'}})
    harness.gang(2)
    harness.add("a", "b")
    harness.settle()
    assert harness.where() == harness.held() == {}
    assert harness.says[1] == "AdmissionsPaused"
    harness.put({**pause, "data": {}})
    harness.settle()
    assert set(harness.where()) == {"a", "b"}


def test_nothing_is_judged_twice_while_nothing_changes() -> None:
    harness = GroupsHarness({"r1": (1,)})
    harness.gang(2)
    harness.add("a", "b")
    harness.settle()
    planned = []
    before = harness.groups._plan
    harness.groups._plan = lambda *given: planned.append(1) or before(*given)  # type: ignore[method-assign, func-returns-value]
    for _ in range(3):
        assert isinstance(harness.look(), RequeueAfter)
    assert planned == []
    harness.node("r1-1", "r1", 1)
    harness.settle()
    assert set(harness.where()) == {"a", "b"}


def test_nodes_that_share_a_hostname_or_have_none_are_all_there() -> None:
    harness = GroupsHarness({})
    harness.node("x", "r1", 1, **{"kubernetes.io/hostname": "h"})
    harness.node("y", "r1", 1, **{"kubernetes.io/hostname": "h"})
    harness.node("z", "r1", 1, **{"kubernetes.io/hostname": "x"})
    harness.gang(2)
    harness.add("a", "b", nodeSelector={"kubernetes.io/hostname": "h"})
    harness.settle()
    assert set(harness.where().values()) == {"x", "y"}


def test_a_pod_that_is_gone_before_its_first_write_is_no_error() -> None:
    harness = GroupsHarness({"r1": (4,)})
    harness.group()
    harness.add("a", "b")

    def gone(what: str, name: str) -> None:
        if name == "a" and what == "keep":
            harness.drop("Pod", "a")
            raise NotFound(404, "NotFound", "gone")

    harness.on_step = gone
    harness.settle()
    assert set(harness.where()) == {"b"}
    assert set(harness.held()) == {"b"}


def test_groups_that_were_refused_take_half_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five hundred of them took 36 s of the loop each time that any pod of the cluster ended."""
    harness = GroupsHarness({"r1": (1,)})
    for name in ("first", "second"):
        harness.gang(2, name=name)
        harness.add(f"{name}-a", f"{name}-b", group=name)
        harness.settle(name)
    keys = sorted(harness.groups._waiting)
    assert [key.name for key in keys] == ["first", "second"]
    plan = harness.groups._plan
    planned: list[str] = []

    def slow(key: GroupKey, *rest: object) -> object:
        planned.append(key.name)
        harness.clock.time += 5.0
        return plan(key, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(harness.groups, "_plan", slow)

    def look(key: GroupKey) -> object:
        harness.observed.state.changes += 1
        return harness.wait_for(harness.groups.reconcile(key))

    look(keys[0])
    assert isinstance(look(keys[1]), RequeueAfter)
    assert planned == ["first"]
    harness.clock.time += 5.0
    look(keys[1])
    assert planned == ["first", "second"]


def test_released_nodes_of_a_deleted_group_requeue_waiting_groups() -> None:
    harness = GroupsHarness({"r1": (4,)})
    harness.gang(4)
    harness.add("a", "b", "c", "d")
    harness.look()
    assert len(harness.held()) == 4, "kept, and not let go yet"
    harness.gang(3, name="h")
    harness.add("e", "f", "i", group="h")
    harness.look("h")
    assert "e" not in harness.held()
    harness.drop("PodGroup", "g")
    harness.settle()
    harness.settle("h")
    assert set(harness.where()) == {"e", "f", "i"}


@pytest.mark.parametrize(("counts_desired", "rack"), [(True, "r2"), (False, "r1")])
def test_desired_count_is_used_only_with_its_feature_gate_on(counts_desired: bool, rack: str) -> None:
    harness = GroupsHarness({"r1": (2,), "r2": (5,)}, rules=PodGroupRules(0.0, counts_desired))
    harness.group({"basic": {"desiredCount": 4}})
    harness.add("a", "b")
    harness.settle()
    assert {node[:2] for node in harness.where().values()} == {rack}


def test_after_a_start_nothing_is_said_of_a_group_before_all_its_replicas_are_judged() -> None:
    harness = GroupsHarness({"r1": (1,), "r2": (1,)})
    harness.gang(1, replicas=3)
    for number in range(3):
        harness.add(f"p{number}", replica=str(number))
    for number in (0, 1, 0, 1):
        harness.look(replica=number)
    assert harness.told == []
    harness.look(replica=2)
    assert len(harness.told) == 1
    assert harness.says[0] == "False"


def test_pod_with_a_replica_out_of_range_is_reported_and_other_pods_are_placed() -> None:
    harness = GroupsHarness({"r1": (4,)})
    harness.gang(1)
    harness.add("a")
    harness.add("b", replica="3")
    for _ in range(3):
        harness.look()
        harness.look(replica=3)
    (told,) = harness.told
    assert told[:2] == ("False", "Invalid")
    assert all(part in told[2] for part in ("replica 3: ", "has 1"))
    assert set(harness.where()) == {"a"}


def test_a_condition_is_of_the_group_as_it_is_now() -> None:
    harness = GroupsHarness({"r1": (4,)})
    harness.gang(2)
    harness.add("a", "b")
    harness.settle()
    (condition,) = harness.get("PodGroup", "g")["status"]["conditions"]
    assert condition["observedGeneration"] == 1
    group = harness.get("PodGroup", "g")
    harness.put({**group, "metadata": {**group["metadata"], "generation": 2}})
    harness.settle()
    (condition,) = harness.get("PodGroup", "g")["status"]["conditions"]
    assert condition["observedGeneration"] == 2


def test_gang_with_a_refused_pod_releases_its_nodes_and_retries_later() -> None:
    harness = GroupsHarness({"r1": (3,)})
    harness.gang(3)
    harness.add("a", "b", "c")

    def refuse(what: str, name: str) -> None:
        if (what, name) == ("keep", "b"):
            raise Forbidden(403, "Forbidden", "policy says no")

    harness.on_step = refuse
    assert isinstance(harness.settle(), RequeueAfter)
    assert harness.held() == {}
    assert harness.says[1] == "Refused"
    written = len(harness.steps)
    harness.clock.time += 30
    harness.look()
    assert len(harness.steps) == written, "it is not tried each moment"
    harness.on_step = lambda what, name: None
    harness.clock.time += 60
    harness.settle()
    assert set(harness.where()) == {"a", "b", "c"}


def test_a_pod_that_is_gone_and_not_seen_to_be_is_not_tried_without_end() -> None:
    harness = GroupsHarness({"r1": (4,)})
    harness.group()
    harness.add("a", "b")

    def gone(what: str, name: str) -> None:
        if name == "a":
            raise NotFound(404, "NotFound", "gone")

    harness.on_step = gone
    assert harness.look() == RequeueAfter(pacing.GROUPS_AGAIN_S)
    assert harness.look() == RequeueAfter(pacing.GROUPS_AGAIN_S)


@pytest.mark.parametrize("let_go", [0, 1, 2])
def test_group_on_a_relabeled_node_is_reported_if_ungated_and_placed_again_if_only_nominated(let_go: int) -> None:
    harness = GroupsHarness({"r1": (1, 1), "r2": (1, 1)})
    harness.gang(2)
    harness.add("a", "b")
    harness.look()
    assert set(harness.held().values()) == {"r1-0", "r1-1"}

    def ends(what: str, name: str) -> None:
        if what == "let go" and name in ("a", "b")[let_go:]:
            raise Unreachable("killed")

    if let_go:
        harness.on_step = ends
        harness.look()
        harness.on_step = lambda what, name: None
    harness.node("r1-1", "r3", 1)
    harness.settle()
    if let_go:
        assert harness.where() == {"a": "r1-0", "b": "r1-1"}, "what began is not left half done"
        assert harness.says[:2] == ("False", "Scattered")
        assert all(part in harness.says[2] for part in ("2 pods", f"no one {RACK}", "r1 1, r3 1"))
        harness.node("r1-1", "r1", 1)
        harness.settle()
        assert harness.says[:2] == ("True", "Scheduled")
    else:
        assert set(harness.where().values()) == {"r2-0", "r2-1"}
        assert harness.says[:2] == ("True", "Scheduled")


def test_a_second_round_of_a_job_is_a_gang_again() -> None:
    harness = one_that_has_succeeded(2)
    harness.node("r1-0", "r1", 1)
    harness.add("c", "d")
    harness.settle()
    assert not {"c", "d"} & set(harness.where()), "one alone would wait for the other"
    harness.node("r1-0", "r1", 2)
    harness.settle()
    assert {"c", "d"} <= set(harness.where())


def test_pods_that_end_together_requeue_a_waiting_group_once() -> None:
    harness = GroupsHarness({"r1": (4,)})
    harness.gang(5)
    harness.add("a", "b", "c", "d", "e")
    harness.settle()
    turns = []
    before = harness.groups._compute_turn
    harness.groups._compute_turn = lambda key: turns.append(key) or before(key)  # type: ignore[method-assign, func-returns-value]
    for number in range(50):
        harness.add(f"x{number}", group="h")
        harness.drop("Pod", f"x{number}")
    assert turns == []
    assert KEY in due(harness)
    assert turns == [KEY]

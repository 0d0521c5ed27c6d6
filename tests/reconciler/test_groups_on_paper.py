"""The reconciler of groups of pods where events come late, writes fail, and people do odd things."""

from __future__ import annotations

import asyncio
import time

import pytest

from core.model.configuration import PodGroupRules
from core.names import PAUSE_CONFIG_MAP, SYSTEM_NAMESPACE, WORKLOAD_ANNOTATION
from core.podgroups.members import GroupKey, pin
from core.runtime.controller import Done, RequeueAfter
from core.runtime.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, Unreachable
from reconciler.podgroups import AGAIN_S, ALL
from tests.builders import RACK
from tests.reconciler.paper_groups import NAMESPACE, PaperGroups

KEY = GroupKey(NAMESPACE, "g")


def due(paper: PaperGroups) -> set[object]:
    """Groups that are looked at within the next second."""
    paper.clock.time += 1.0
    queue, found = paper.groups.controller.queue, set[object]()
    loop = asyncio.new_event_loop()
    try:
        while queue.depth:
            key = loop.run_until_complete(queue.get()).key
            queue.done(key)
            if key == ALL:
                loop.run_until_complete(paper.groups.look(ALL))
            else:
                found.add(key)
    finally:
        loop.close()
    return found


def test_a_gang_is_let_go_once_places_are_kept_for_all() -> None:
    paper = PaperGroups({"r1": (1,), "r2": (2,)})
    paper.gang(2)
    paper.add("a", "b")
    assert isinstance(paper.settle(), Done)
    assert [what for what, _ in paper.writes] == ["keep", "keep", "let go", "let go"]
    assert paper.where() == {"a": "r2-0", "b": "r2-0"}
    assert paper.says == ("True", "Scheduled", "2 pods have their places")
    paper.bind()
    assert paper.held() == {}
    assert paper.observed.state.ledger.drift() == {}


def test_metrics_of_a_gang_that_waits_for_a_node_count_its_refusals_then_its_placement() -> None:
    """Found defect G9."""
    paper = PaperGroups({"r1": (1,)})
    paper.gang(2)
    assert paper.groups.count_states() == {"placed": 0, "waiting": 0}
    paper.add("a")
    paper.settle()
    assert (paper.groups.count_states(), paper.measured.refusals) == ({"placed": 0, "waiting": 1}, []), "it lacks a pod"
    paper.add("b")
    paper.settle()
    paper.settle()
    assert (paper.measured.refusals, paper.measured.placements) == (["Unschedulable"], []), "nothing changed in between"
    paper.clock.time += 30
    paper.node("r2-0", "r2", 2)
    paper.settle()
    assert paper.measured.placements == [30.0]
    assert (paper.groups.count_states(), paper.measured.refusals) == ({"placed": 1, "waiting": 0}, ["Unschedulable"])
    paper.drop("a")
    paper.settle()
    assert paper.groups.count_states() == {"placed": 0, "waiting": 1}
    paper.drop("b")
    assert paper.groups.count_states() == {"placed": 0, "waiting": 0}


def test_replicas_speak_in_one_condition_and_it_comes_to_rest() -> None:
    paper = PaperGroups({"r1": (1,), "r2": (1,)})
    paper.gang(1, replicas=3)
    for number in range(3):
        paper.add(f"p{number}", replica=str(number))
    for _ in range(6):
        for number in range(3):
            paper.look(replica=number)
    assert paper.says[0] == "False"
    assert paper.says[2].startswith("replica 2: none of 2 placement(s) takes 1 pod(s)")
    told = len(paper.told)
    for _ in range(4):
        for number in range(3):
            paper.look(replica=number)
    assert len(paper.told) == told
    paper.node("r3-0", "r3", 1)
    for _ in range(3):
        paper.look(replica=2)
    assert paper.says == ("True", "Scheduled", "3 replicas have their places")


def test_a_group_of_as_many_replicas_as_there_can_be_costs_nothing() -> None:
    paper = PaperGroups({"r1": (1,)})
    began = time.perf_counter()
    paper.gang(1, replicas=2**31 - 1)
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(("replica", "says"), [("3", "names replica 3"), ("x", "names replica -1")])
def test_a_replica_that_the_group_does_not_have_is_told(replica: str, says: str) -> None:
    paper = PaperGroups({"r1": (1,)})
    paper.gang(1, replicas=2)
    paper.add("a", replica=replica)
    paper.look(replica=3 if replica == "3" else -1)
    assert says in paper.says[2]
    assert paper.where() == {}


def test_a_pod_that_is_gone_when_it_is_let_go_leaves_nothing_behind() -> None:
    paper = PaperGroups({"r1": (60,)})
    paper.group()
    names = [f"p{number}" for number in range(60)]
    paper.add(*names)

    def all_go(what: str, name: str) -> None:
        if what == "let go":
            for each in list(paper.pods):
                paper.drop(each)

    paper.on_write = all_go
    paper.settle()
    assert paper.held() == {}
    paper.on_write = lambda what, name: None
    paper.add("new", cpu=60)
    paper.settle()
    assert paper.where() == {"new": "r1-0"}


def test_another_change_of_a_pod_before_the_write_is_seen_gives_its_place_to_nobody() -> None:
    paper = PaperGroups({"r1": (1,)})
    paper.group()
    paper.group(name="h")
    paper.add("a")
    paper.add("b", group="h")
    paper.is_late = True
    paper.look()
    other = {**paper.observed.pods.store.get(f"{NAMESPACE}/a")}  # type: ignore[dict-item]
    metadata = {**other["metadata"], "annotations": {"some": "thing"}, "resourceVersion": "1000"}
    paper.observed.pods.put({**other, "metadata": metadata})
    assert paper.held() == {"a": "r1-0"}
    paper.look("h")
    assert paper.held() == {"a": "r1-0"}
    assert paper.says[1] == "Unschedulable"
    assert isinstance(paper.look(), RequeueAfter), "what was written is not seen yet"


def test_pods_of_a_group_that_have_no_place_are_looked_at_when_there_is_room() -> None:
    paper = PaperGroups({"r1": (2,)})
    paper.group()
    paper.add("a", "b", "c")
    assert isinstance(paper.settle(), RequeueAfter)
    assert paper.says[0] == "True"
    assert paper.says[2].startswith("2 pods have their places; 1 pod more wait: ")
    paper.bind()
    due(paper)
    paper.settle()
    assert isinstance(paper.look(), RequeueAfter)
    paper.change("a", status={"phase": "Succeeded"})
    assert due(paper) == {KEY}
    paper.settle()
    assert set(paper.where()) == {"a", "b", "c"}


def test_a_pod_that_names_another_group_is_that_ones_alone() -> None:
    paper = PaperGroups({"r1": (1,)})
    paper.group()
    paper.add("a")
    paper.is_late = True
    paper.look()
    assert paper.held() == {"a": "r1-0"}
    paper.change("a", labels={})
    assert paper.held() == {}
    paper.drop("a")
    assert paper.groups._seen == {}


@pytest.mark.parametrize("why", ["deleted", "no such level"])
def test_places_are_given_back_where_nobody_can_be_let_go(why: str) -> None:
    paper = PaperGroups({"r1": (1,)})
    paper.group()
    paper.add("a")

    def only_keep(what: str, name: str) -> None:
        if what == "let go":
            raise Conflict(409, "Conflict", "changed")

    paper.on_write = only_keep
    paper.look()
    assert paper.held() == {"a": "r1-0"}
    if why == "deleted":
        paper.drop_group()
    else:
        paper.group(schedulingConstraints={"topologyConstraints": [{"level": "word"}]})
    paper.settle()
    assert paper.held() == {}
    assert paper.pods["a"]["status"]["nominatedNodeName"] == ""


def test_what_nobody_nominated_keeps_no_place() -> None:
    paper = PaperGroups({"r1": (4,)})
    metadata = {"name": "odd", "namespace": NAMESPACE, "uid": "uid-odd-1", "labels": {"topogate.dev/podgroup": "none"}}
    containers = [{"name": "c", "resources": {"requests": {"cpu": "100000"}}}]
    affinity = {"nodeAffinity": pin({}, "r1-0")}
    paper.put({"metadata": metadata, "spec": {"containers": containers, "schedulingGates": [], "affinity": affinity}, "status": {}})
    view = paper.observed.state.whole.capacity
    assert paper.held() == {}
    assert view.free[view.axis["cpu"]].tolist() == [4000]


def test_a_pod_with_a_workload_has_its_place_from_that() -> None:
    paper = PaperGroups({"r1": (4,)})
    paper.gang(1)
    paper.add("a")
    paper.change("a", annotations={WORKLOAD_ANNOTATION: "w"})
    paper.settle()
    assert paper.where() == {}


def one_that_has_succeeded(cpus: int) -> PaperGroups:
    """A gang of two pods, a and b, on one node."""
    paper = PaperGroups({"r1": (cpus,)})
    paper.gang(2)
    paper.add("a", "b")
    paper.settle()
    paper.bind()
    for name in ("a", "b"):
        paper.change(name, status={"phase": "Succeeded"})
    return paper


def test_a_gang_that_has_done_its_work_stays_told_and_is_not_looked_at() -> None:
    paper = one_that_has_succeeded(4)
    assert isinstance(paper.settle(), Done)
    assert paper.says[0] == "True"
    paper.drop("a")
    paper.drop("b")
    assert isinstance(paper.settle(), Done)
    assert paper.says[0] == "True"


def test_a_pod_made_anew_follows_though_another_has_succeeded() -> None:
    paper = PaperGroups({"r1": (4,)})
    paper.gang(2)
    paper.add("a", "b")
    paper.settle()
    paper.bind()
    paper.change("a", status={"phase": "Succeeded"})
    paper.drop("b")
    paper.add("c")
    paper.settle()
    assert paper.where()["c"] == "r1-0"
    assert paper.says == ("True", "Scheduled", "1 pod has its place, 1 have succeeded")


def test_what_the_api_server_will_not_have_is_told() -> None:
    paper = PaperGroups({"r1": (4,)})
    paper.gang(2)
    paper.add("a", "b")

    def refuse(what: str, name: str) -> None:
        if (what, name) == ("let go", "b"):
            raise Invalid(422, "Invalid", "spec.affinity: only additions are allowed")

    paper.on_write = refuse
    for _ in range(3):
        paper.look()
    assert set(paper.where()) == {"a"}
    assert paper.says[:2] == ("False", "Refused")
    assert "pod ns/b" in paper.says[2]
    assert "only additions are allowed" in paper.says[2]


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("at", range(4))
def test_a_write_whose_answer_is_lost_keeps_its_place_until_it_is_known(at: int, arrived: bool) -> None:
    paper = PaperGroups({"r1": (2,)})
    paper.gang(2)
    paper.add("a", "b")
    count = iter(range(100))

    def lose(what: str, name: str) -> None:
        if next(count) == at:
            if arrived:
                pod = paper.pods[name]
                if what == "keep":
                    pod["status"]["nominatedNodeName"] = "r1-0"
                else:
                    pod["spec"] |= {"schedulingGates": [], "affinity": {"nodeAffinity": pin(pod["spec"], "r1-0")}}
            raise Unreachable("cut off")

    paper.on_write = lose
    results = [paper.look() for _ in range(8)]
    assert sum(isinstance(result, KubeError) for result in results) == 1
    for name in ("a", "b"):
        paper.see(name)
    paper.settle()
    assert set(paper.where().values()) == {"r1-0"}
    assert set(paper.where()) == {"a", "b"}
    paper.bind()
    assert paper.held() == {}
    assert paper.observed.state.ledger.drift() == {}


def test_who_waits_comes_by_priority_then_by_age() -> None:
    paper = PaperGroups({"r1": (0,)})
    for name, priority, created in (
        ("late", 0, "2026-01-02T00:00:00Z"),
        ("early", 0, "2026-01-01T00:00:00Z"),
        ("high", 5, "2026-01-03T00:00:00Z"),
    ):
        paper.group(name=name)
        paper.add(f"pod-{name}", group=name, priority=priority)
        pod = paper.pods[f"pod-{name}"]
        pod["metadata"]["creationTimestamp"] = created
        paper.drop(f"pod-{name}")
        paper.put(pod)
        paper.look(name)
    assert [key.name for key in sorted(paper.groups._waiting, key=paper.groups._turn)] == ["high", "early", "late"]


def test_while_admissions_are_paused_nobody_gets_a_place() -> None:
    paper = PaperGroups({"r1": (4,)})
    pause = {"metadata": {"name": PAUSE_CONFIG_MAP, "namespace": SYSTEM_NAMESPACE, "uid": "p", "resourceVersion": "1"}}
    paper.observed.pauses.put({**pause, "data": {"admissions": '{"by": "ann"}'}})
    paper.gang(2)
    paper.add("a", "b")
    paper.settle()
    assert paper.where() == paper.held() == {}
    assert paper.says[1] == "AdmissionsPaused"
    paper.observed.pauses.put({**pause, "metadata": {**pause["metadata"], "resourceVersion": "2"}, "data": {}})
    paper.settle()
    assert set(paper.where()) == {"a", "b"}


def test_nothing_is_judged_twice_while_nothing_changes() -> None:
    paper = PaperGroups({"r1": (1,)})
    paper.gang(2)
    paper.add("a", "b")
    paper.settle()
    planned = []
    before = paper.groups._plan
    paper.groups._plan = lambda *given: planned.append(1) or before(*given)  # type: ignore[method-assign, func-returns-value]
    for _ in range(3):
        assert isinstance(paper.look(), RequeueAfter)
    assert planned == []
    paper.node("r1-1", "r1", 1)
    paper.settle()
    assert set(paper.where()) == {"a", "b"}


def test_nodes_that_share_a_hostname_or_have_none_are_all_there() -> None:
    paper = PaperGroups({})
    paper.node("x", "r1", 1, **{"kubernetes.io/hostname": "h"})
    paper.node("y", "r1", 1, **{"kubernetes.io/hostname": "h"})
    paper.node("z", "r1", 1, **{"kubernetes.io/hostname": "x"})
    paper.gang(2)
    paper.add("a", "b", nodeSelector={"kubernetes.io/hostname": "h"})
    paper.settle()
    assert set(paper.where().values()) == {"x", "y"}


def test_a_pod_that_is_gone_before_its_first_write_is_no_error() -> None:
    paper = PaperGroups({"r1": (4,)})
    paper.group()
    paper.add("a", "b")

    def gone(what: str, name: str) -> None:
        if name == "a" and what == "keep":
            paper.drop("a")
            raise NotFound(404, "NotFound", "gone")

    paper.on_write = gone
    paper.settle()
    assert set(paper.where()) == {"b"}
    assert set(paper.held()) == {"b"}


def test_groups_that_were_refused_take_half_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five hundred of them took 36 s of the loop each time that any pod of the cluster ended."""
    paper = PaperGroups({"r1": (1,)})
    for name in ("first", "second"):
        paper.gang(2, name=name)
        paper.add(f"{name}-a", f"{name}-b", group=name)
        paper.settle(name)
    keys = sorted(paper.groups._waiting)
    assert [key.name for key in keys] == ["first", "second"]
    plan = paper.groups._plan
    planned: list[str] = []

    def slow(key: GroupKey, *rest: object) -> object:
        planned.append(key.name)
        paper.clock.time += 5.0
        return plan(key, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(paper.groups, "_plan", slow)
    loop = asyncio.new_event_loop()

    def look(key: GroupKey) -> object:
        paper.observed.state.changes += 1
        return loop.run_until_complete(paper.groups.look(key))

    look(keys[0])
    assert isinstance(look(keys[1]), RequeueAfter)
    assert planned == ["first"]
    paper.clock.time += 5.0
    look(keys[1])
    assert planned == ["first", "second"]
    loop.close()


def test_places_that_are_given_back_wake_who_waits_for_them() -> None:
    paper = PaperGroups({"r1": (4,)})
    paper.gang(4)
    paper.add("a", "b", "c", "d")
    paper.look()
    assert len(paper.held()) == 4, "kept, and not let go yet"
    paper.gang(3, name="h")
    paper.add("e", "f", "i", group="h")
    paper.look("h")
    assert "e" not in paper.held()
    paper.drop_group()
    paper.settle()
    paper.settle("h")
    assert set(paper.where()) == {"e", "f", "i"}


@pytest.mark.parametrize(("counts_desired", "rack"), [(True, "r2"), (False, "r1")])
def test_nobody_looks_at_desired_counts_with_their_gate_off(counts_desired: bool, rack: str) -> None:
    paper = PaperGroups({"r1": (2,), "r2": (5,)}, rules=PodGroupRules(0.0, counts_desired))
    paper.group({"basic": {"desiredCount": 4}})
    paper.add("a", "b")
    paper.settle()
    assert {node[:2] for node in paper.where().values()} == {rack}


def test_after_a_start_nothing_is_said_of_a_group_before_all_its_replicas_are_judged() -> None:
    paper = PaperGroups({"r1": (1,), "r2": (1,)})
    paper.gang(1, replicas=3)
    for number in range(3):
        paper.add(f"p{number}", replica=str(number))
    for number in (0, 1, 0, 1):
        paper.look(replica=number)
    assert paper.told == []
    paper.look(replica=2)
    assert len(paper.told) == 1
    assert paper.says[0] == "False"


def test_a_pod_that_names_a_replica_too_many_is_told_beside_what_becomes_of_the_others() -> None:
    paper = PaperGroups({"r1": (4,)})
    paper.gang(1)
    paper.add("a")
    paper.add("b", replica="3")
    for _ in range(3):
        paper.look()
        paper.look(replica=3)
    assert paper.told == [("False", "Invalid", "replica 3: a pod names replica 3; the group has 1, from 0")]
    assert set(paper.where()) == {"a"}


def test_a_condition_is_of_the_group_as_it_is_now() -> None:
    paper = PaperGroups({"r1": (4,)})
    group = paper.gang(2)
    paper.add("a", "b")
    paper.settle()
    (condition,) = paper.observed.pod_groups.store.list()[0]["status"]["conditions"]
    assert condition["observedGeneration"] == 1
    metadata = {**group["metadata"], "generation": 2, "resourceVersion": "later"}
    paper.observed.pod_groups.put({**paper.observed.pod_groups.store.list()[0], "metadata": metadata})
    paper.settle()
    (condition,) = paper.observed.pod_groups.store.list()[0]["status"]["conditions"]
    assert condition["observedGeneration"] == 2


def test_a_gang_of_which_a_pod_is_refused_keeps_places_from_nobody() -> None:
    paper = PaperGroups({"r1": (3,)})
    paper.gang(3)
    paper.add("a", "b", "c")

    def refuse(what: str, name: str) -> None:
        if (what, name) == ("keep", "b"):
            raise Forbidden(403, "Forbidden", "policy says no")

    paper.on_write = refuse
    assert isinstance(paper.settle(), RequeueAfter)
    assert paper.held() == {}
    assert paper.says[1] == "Refused"
    written = len(paper.writes)
    paper.clock.time += 30
    paper.look()
    assert len(paper.writes) == written, "it is not tried each moment"
    paper.on_write = lambda what, name: None
    paper.clock.time += 60
    paper.settle()
    assert set(paper.where()) == {"a", "b", "c"}


def test_a_pod_that_is_gone_and_not_seen_to_be_is_not_tried_without_end() -> None:
    paper = PaperGroups({"r1": (4,)})
    paper.group()
    paper.add("a", "b")

    def gone(what: str, name: str) -> None:
        if name == "a":
            raise NotFound(404, "NotFound", "gone")

    paper.on_write = gone
    assert paper.look() == RequeueAfter(AGAIN_S)
    assert paper.look() == RequeueAfter(AGAIN_S)


@pytest.mark.parametrize("let_go", [0, 1, 2])
def test_nodes_that_are_relabelled_underneath_are_told_and_places_that_nobody_has_yet_are_looked_for_anew(let_go: int) -> None:
    paper = PaperGroups({"r1": (1, 1), "r2": (1, 1)})
    paper.gang(2)
    paper.add("a", "b")
    paper.look()
    assert set(paper.held().values()) == {"r1-0", "r1-1"}

    def ends(what: str, name: str) -> None:
        if what == "let go" and name in ("a", "b")[let_go:]:
            raise Unreachable("killed")

    if let_go:
        paper.on_write = ends
        paper.look()
        paper.on_write = lambda what, name: None
    paper.node("r1-1", "r3", 1)
    paper.settle()
    if let_go:
        assert paper.where() == {"a": "r1-0", "b": "r1-1"}, "what began is not left half done"
        assert paper.says == ("False", "Scattered", f"2 pods that have their places are in no one {RACK}: r1 1, r3 1")
        paper.node("r1-1", "r1", 1)
        paper.settle()
        assert paper.says[:2] == ("True", "Scheduled")
    else:
        assert set(paper.where().values()) == {"r2-0", "r2-1"}
        assert paper.says[:2] == ("True", "Scheduled")


def test_a_second_round_of_a_job_is_a_gang_again() -> None:
    paper = one_that_has_succeeded(2)
    paper.node("r1-0", "r1", 1)
    paper.add("c", "d")
    paper.settle()
    assert not {"c", "d"} & set(paper.where()), "one alone would wait for the other"
    paper.node("r1-0", "r1", 2)
    paper.settle()
    assert {"c", "d"} <= set(paper.where())


def test_of_what_ends_at_once_who_waits_is_woken_once() -> None:
    paper = PaperGroups({"r1": (4,)})
    paper.gang(5)
    paper.add("a", "b", "c", "d", "e")
    paper.settle()
    turns = []
    before = paper.groups._turn
    paper.groups._turn = lambda key: turns.append(key) or before(key)  # type: ignore[method-assign, func-returns-value]
    for number in range(50):
        paper.add(f"x{number}", group="h")
        paper.drop(f"x{number}")
    assert turns == []
    assert KEY in due(paper)
    assert turns == [KEY]

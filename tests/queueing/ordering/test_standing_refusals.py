"""Who was refused is not judged again while nothing could help; nobody waits who need not, for all that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from core.model.configuration import FairSharing
from core.names import REASON_IN_QUEUE, REASON_WAITING_FOR_QUOTA
from core.placement.algorithms.profile import STANDARD
from core.queueing.cycle import judge as judge_module
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.ordering.pending import Pending
from core.queueing.ordering.portions import MOST_S
from tests.builders import NAMESPACE, RACK, build_pod_set_json, build_workload_json
from tests.queueing.lives import Job, jobs, rebuilt_without, scenes
from tests.queueing.scene import Scene, get_refusals, list_admitted
from tests.queueing.shared import ALL_MAY, Shared, get_victims
from tests.strategies import scale_examples


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()

    def counting(state, workload, *rest, **options):
        counts[workload.key.partition("/")[2]] += 1
        return find_admission(state, workload, *rest, **options)

    monkeypatch.setattr(judge_module, "find_admission", counting)
    return counts


def build_two_cohorts() -> Shared:
    scene = Shared()
    for i in range(4):
        scene.rack(f"r{i}", 4)
    for name, cohort in (("a", "left"), ("b", "left"), ("c", "right")):
        scene.pool(name, "8", cohort, preemption=ALL_MAY)
    return scene


def test_of_all_that_ask_for_the_same_one_is_judged(judged: Counter[str]):
    scene = build_two_cohorts()
    scene.submit("runs", 16, queue="a", topology={"unconstrained": True})
    scene.run()
    for i in range(50):
        scene.submit(f"w{i}", 2, queue="a")
    judged.clear()
    assert set(get_refusals(scene.run())) == {f"w{i}" for i in range(50)}, "each is told"
    assert sum(judged.values()) == 1


def test_quota_released_in_another_cohort_causes_no_new_judgement(judged: Counter[str]):
    scene = build_two_cohorts()
    scene.submit("runs-a", 8, queue="a")
    scene.submit("runs-b", 8, queue="b")
    scene.submit("runs-c", 8, queue="c")
    assert list_admitted(scene.run()) == {"runs-a", "runs-b", "runs-c"}
    scene.submit("waits", 2, queue="a")
    assert get_refusals(scene.run())["waits"].reason == REASON_WAITING_FOR_QUOTA
    judged.clear()
    scene.finish("runs-c")
    assert scene.run() == {}
    assert not judged
    scene.finish("runs-b")
    assert list_admitted(scene.run()) == {"waits"}


def test_released_quota_that_is_too_small_causes_no_new_judgement(judged: Counter[str]):
    scene = build_two_cohorts()
    for name in ("a", "b"):
        for i in range(8):
            scene.submit(f"{name}{i}", queue=name)
    scene.submit("waits", 4, queue="a", priority=0)
    scene.run()
    judged.clear()
    for i in range(3):
        scene.finish(f"a{i}")
        scene.run()
    assert judged["waits"] == 0
    scene.finish("a3")
    assert "waits" in list_admitted(scene.run())


def test_cycle_after_an_interrupted_cycle_continues_with_unjudged_workloads(judged: Counter[str]):
    scene = build_two_cohorts()
    scene.submit("runs", 16, queue="a", topology={"unconstrained": True})
    scene.run()
    judged.clear()
    for i in range(6):
        scene.submit(f"w{i}", i + 1, queue="a")
    order: list[str] = []
    while len(order) < 6:
        order += [verdict.workload.key.partition("/")[2] for verdict in scene.cycle.run(_some(len(order) + 2))]
        scene.state.changes += 1  # something happens all the time
    assert order == [f"w{i}" for i in range(6)]
    assert set(judged.values()) == {1}


def _some(turns: int) -> Callable[[], bool]:
    """A budget of so many turns."""
    left = iter([True] * turns)
    return lambda: next(left, False)


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("shares", [False, True])
@given(data=st.data())
@settings(max_examples=scale_examples(2))
def test_waiting_workload_is_refused_by_a_fresh_cycle_too(shares: bool, is_slow: bool, data: st.DataObject):
    """Also where each queue may have two decisions in a round."""
    scene = data.draw(scenes(FairSharing() if shares else None))
    if is_slow:
        timer = count(0, MOST_S * 0.75).__next__
        scene.cycle = type(scene.cycle)(scene.state, STANDARD, sharing=FairSharing() if shares else None, timer=timer)
    policy = {"withinClusterQueue": data.draw(st.sampled_from(["Never", "LowerPriority"])), "reclaimWithinCohort": "Never"}
    scene.pool("c", "4", data.draw(st.sampled_from(["cohort", "another"])), preemption=policy)
    for i in range(data.draw(st.integers(2, 9))):
        job: Job = data.draw(jobs)
        job.submit(scene, f"w{i}")
        if data.draw(st.booleans()):
            scene.run()  # what comes next comes while some are on their way out
        _happen(scene, i, data)
        _settle(scene, shares=shares)
        fresh = rebuilt_without(scene, set())
        fresh.cycle = type(scene.cycle)(fresh.state, STANDARD, sharing=FairSharing() if shares else None)
        for name, outcome in Scene.run(fresh).items():
            if scene.cycle._claims.circles.find_spared(f"uid-{name}"):
                continue  # evictions would go in a circle, of which a fresh look knows nothing
            assert not isinstance(outcome, Admissible), name
            assert outcome.preempting is None, name


def _happen(scene: Shared, i: int, data: st.DataObject) -> None:
    waiting = sorted(workload.key.partition("/")[2] for workload in scene.state.workloads.list_pending())
    running = sorted(scene.running())
    match data.draw(st.sampled_from(["nothing", "finish", "finish", "delete", "node", "namespace", "move"])):
        case "finish" if running:
            scene.finish(data.draw(st.sampled_from(running)))
        case "delete" if waiting:
            scene.delete(data.draw(st.sampled_from(waiting)))
        case "node":
            scene.rack(f"new{i}", 1, cpu=data.draw(st.sampled_from([4, 12])))
        case "namespace":
            scene.state.observe_namespace("ns", {"at": str(i)})
        case "move" if waiting:
            job: Job = data.draw(jobs)
            job.submit(scene, data.draw(st.sampled_from(waiting)))


def _settle(scene: Shared, *, shares: bool) -> None:
    for _ in range(60):
        for name in sorted(scene.evicted()):
            scene.leave(name)
        verdicts = scene.run()
        is_quiet = not any(isinstance(v, Admissible) or _preempts(v) for v in verdicts.values())
        if not scene.evicted() and is_quiet and not scene.cycle.is_cut:
            return
    if shares:  # policies that go in circles (docs/queues.md) are drawn, too
        reject()
    pytest.fail("it never comes to rest")


def _preempts(outcome: Admissible | NotAdmissible) -> bool:
    return isinstance(outcome, NotAdmissible) and outcome.preempting is not None


# --- what ends a refusal ----------------------------------------------------------------------------------


def test_refusal_of_a_younger_workload_binds_no_older_one_that_may_preempt_newer_ones():
    scene = Shared()
    scene.rack("r", 2)
    scene.pool("a", "8", preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    scene.submit("runs", 8, queue="a", created="2026-01-01T00:00:05Z")
    scene.run()
    scene.submit("younger", 8, queue="a", created="2026-01-01T00:00:09Z")
    assert set(get_refusals(scene.run())) == {"younger"}
    scene.submit("older", 8, queue="a", created="2026-01-01T00:00:01Z")
    assert get_victims(scene.run()["older"]) == {"runs": REASON_IN_QUEUE}


def test_refusal_ends_when_a_reservation_moves_to_other_nodes():
    """The workload that was to be preempted is not evicted, as its priority was raised meanwhile; nothing but quota counts that."""
    scene = Shared()
    for i in range(2):
        scene.rack(f"r{i}", 2)
    scene.pool("a", "100", preemption={"withinClusterQueue": "LowerPriority"})
    scene.pool("b", "100")
    scene.submit("large", 8, queue="a", priority=1)
    scene.submit("small", 4, queue="a", priority=0)
    assert len(list_admitted(scene.run())) == 2
    scene.submit("urgent", 8, queue="a", priority=9)
    scene.submit("waits", 4, queue="b", priority=5)
    verdicts = Scene.run(scene)
    assert get_victims(verdicts["urgent"]) == {"small": REASON_IN_QUEUE}
    assert "waits" in get_refusals(verdicts)
    scene.objects["small"]["spec"]["priority"] = 10
    scene.rewrite("small")
    scene.cycle.exclude_victim(f"{NAMESPACE}/small")
    verdicts = Scene.run(scene)
    assert get_victims(verdicts["urgent"]) == {"large": REASON_IN_QUEUE}
    assert list_admitted(verdicts) == {"waits"}


def test_refusal_ends_with_a_circle_that_only_fewer_pods_would_close():
    """With all pods the workload never has the quota; with its least number it would preempt a workload that it spares."""
    scene = Shared()
    scene.rack("r", 2)
    scene.pool("a", "12", preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    scene.submit("spared", 4, queue="a", created="2026-01-01T00:00:05Z")
    scene.run()
    pod_sets = [{**build_pod_set_json(count=16, topology={"required": RACK}), "minCount": 8}]
    scene.workload(build_workload_json("waits", pod_sets, queue="a", created="2026-01-01T00:00:01Z"))
    for name in ("first", "second"):
        scene.submit(name, 99, queue="a", created="2026-01-01T00:00:09Z")
    facts = {name: scene.state.workloads.facts[f"{NAMESPACE}/{name}"] for name in scene.objects}
    for preemptor, victim in (("first", "waits"), ("second", "first"), ("spared", "second")):
        scene.cycle._claims.circles.note(facts[preemptor], [facts[victim]])
    assert set(get_refusals(scene.run())) == {"waits", "first", "second"}
    scene.delete("second")
    assert get_victims(scene.run()["waits"]) == {"spared": REASON_IN_QUEUE}


# --- groups -----------------------------------------------------------------------------------------------


@given(st.data())
def test_groups_hold_all_that_wait_each_once_and_in_order(data: st.DataObject):
    scene = build_two_cohorts()
    pending = Pending(scene.state.workloads)
    for i in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["submit", "submit", "change", "delete", "sync"])):
            case "submit":
                options = {"priority": data.draw(st.integers(0, 1)), "queue": data.draw(st.sampled_from(["a", "b"]))}
                scene.submit(f"w{i}", data.draw(st.integers(1, 2)), **options)
            case "change" if scene.state.workloads.facts:
                name = data.draw(st.sampled_from(sorted(scene.state.workloads.facts))).partition("/")[2]
                scene.submit(name, data.draw(st.integers(1, 2)), queue=data.draw(st.sampled_from(["a", "b"])))
            case "delete" if scene.state.workloads.facts:
                scene.delete(data.draw(st.sampled_from(sorted(scene.state.workloads.facts))).partition("/")[2])
            case _:
                pending.sync()
    pending.sync()
    waiting = {workload.key: workload for workload in scene.state.workloads.list_pending()}
    assert {workload.key: workload for workload in pending} == waiting
    members = [entry for group in pending.list_classes() for entry in group.members]
    assert len(members) == len(waiting)
    for group in pending.list_classes():
        assert group.members == sorted(group.members, key=lambda member: member[0])
        assert len({(w.queue, w.priority, w.pod_sets[0].count) for _, w in group.members}) == 1

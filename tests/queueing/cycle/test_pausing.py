"""Decisions while an administrator has paused something: nobody is admitted or told to go, and afterwards nothing has come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.model.configuration import FairSharing
from core.model.pause_state import NOTHING_PAUSED, Pause, Stop
from core.names import (
    REASON_ADMISSIONS_PAUSED,
    REASON_MISCONFIGURED,
    REASON_SUSPENDED,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    REASON_WAITING_FOR_PREEMPTED,
    REASON_WAITING_FOR_QUOTA,
)
from core.queueing.cycle.queue_resolution import find_inactive_reason
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from tests.queueing.cycle.test_cycle import spoil
from tests.queueing.lives import QUEUES, Job, build_policies, check, jobs
from tests.queueing.preemption.test_preemption import build_two_flavors
from tests.queueing.running import Running
from tests.queueing.scene import Scene, get_refusals, list_admitted, list_flavors
from tests.queueing.shared import ALL_MAY, Shared

ADMISSIONS = Stop("admissions", "2026-11-22T10:00:00Z", "alice", "rewiring")
EVICTIONS = replace(ADMISSIONS, what="evictions")
NO_ADMISSIONS, NO_EVICTIONS = Pause(admissions=ADMISSIONS), Pause(evictions=EVICTIONS)


# --- admissions -------------------------------------------------------------------------------------------


def test_workload_while_admissions_are_paused_waits_and_reports_author_time_reason_and_resume_command():
    scene = Scene()
    scene.rack("r", 1)
    scene.state.observe_pause(NO_ADMISSIONS)
    scene.submit("w")
    outcome = get_refusals(scene.run())["w"]
    assert outcome.reason == REASON_ADMISSIONS_PAUSED
    assert outcome.message == ADMISSIONS.sentence
    assert scene.run() == {}, "it is told once"
    scene.state.observe_pause(NOTHING_PAUSED)
    assert list_admitted(scene.run()) == {"w"}


def test_waiting_workload_reports_the_pause_and_after_resume_its_former_reason():
    scene = Scene(quota="1")
    scene.rack("r", 1)
    scene.submit("runs")
    scene.run()
    scene.submit("w")
    before = get_refusals(scene.run())["w"]
    assert before.reason == REASON_WAITING_FOR_QUOTA
    scene.state.observe_pause(NO_ADMISSIONS)
    assert get_refusals(scene.run())["w"].reason == REASON_ADMISSIONS_PAUSED
    scene.state.observe_pause(NOTHING_PAUSED)
    assert get_refusals(scene.run())["w"].message == before.message


def test_another_reason_given_is_told():
    scene = Scene()
    scene.state.observe_pause(NO_ADMISSIONS)
    scene.submit("w")
    scene.run()
    scene.state.observe_pause(Pause(admissions=replace(ADMISSIONS, reason="still rewiring")))
    assert "still rewiring" in get_refusals(scene.run())["w"].message


@pytest.mark.parametrize(
    ("how", "reason"),
    [("no LocalQueue", REASON_MISCONFIGURED), ("stopped ClusterQueue", REASON_SUSPENDED), ("another namespace", REASON_MISCONFIGURED)],
)
def test_workload_of_an_unusable_queue_while_paused_reports_the_queue_first(how: str, reason: str):
    scene = Scene()
    spoil(scene, how)
    scene.state.observe_pause(NO_ADMISSIONS)
    scene.submit("w")
    assert get_refusals(scene.run())["w"].reason == reason


def test_a_cluster_queue_is_not_active_meanwhile_and_says_so_unless_something_is_wrong_with_itself():
    scene = Scene()
    scene.state.observe_pause(NO_ADMISSIONS)
    problem = find_inactive_reason(scene.state, scene.state.cluster_queues["cq"])
    assert problem is not None
    assert problem[0] == REASON_ADMISSIONS_PAUSED
    assert problem[1].endswith(ADMISSIONS.sentence)
    scene.queue("cq", {"tas": "1"}, stopPolicy="Hold")
    problem = find_inactive_reason(scene.state, scene.state.cluster_queues["cq"])
    assert problem is not None
    assert problem[0] == "Stopped"
    scene.queue("cq", {"tas": "1"})
    scene.state.observe_pause(NO_EVICTIONS)
    assert find_inactive_reason(scene.state, scene.state.cluster_queues["cq"]) is None


def build_broken_down_scene() -> Running:
    """A workload that runs has lost a node, and there is another."""
    scene = Running()
    scene.rack("r", 2)
    scene.submit("w", 4)
    scene.run()
    (lost,) = scene.where("w")
    scene.break_down(lost)
    scene.lose("w", lost)
    return scene


def test_no_second_pass_decides_while_admissions_are_paused():
    scene = build_broken_down_scene()
    before = scene.where("w")
    scene.state.observe_pause(NO_ADMISSIONS)
    outcome = get_refusals(scene.run())["w"]
    assert outcome.reason == REASON_ADMISSIONS_PAUSED
    assert outcome.message.endswith(ADMISSIONS.sentence)
    assert scene.where("w") == before
    scene.state.observe_pause(NOTHING_PAUSED)
    assert list_admitted(scene.run()) == {"w"}
    assert scene.where("w") != before


# --- evictions --------------------------------------------------------------------------------------------


def build_preempting_scene(sharing: FairSharing | None = None) -> Shared:
    """One of low priority has all, one of high priority wants it."""
    scene = Shared(sharing=sharing)
    scene.rack("r", 1)
    scene.pool("a", "4", preemption=ALL_MAY)
    scene.submit("low", 4, queue="a")
    scene.run()
    return scene


@pytest.mark.parametrize("sharing", [None, FairSharing()], ids=["priority", "fair sharing"])
def test_preemptor_while_evictions_are_paused_waits_and_preempts_after_resume(sharing: FairSharing | None):
    scene = build_preempting_scene(sharing)
    scene.state.observe_pause(NO_EVICTIONS)
    scene.submit("high", 4, queue="a", priority=1)
    outcome = get_refusals(scene.run())["high"]
    assert outcome.preempting is None
    assert outcome.reason in (REASON_WAITING_FOR_QUOTA, REASON_TOPOLOGY_PLACEMENT_FAILED)
    assert "1 workload" in outcome.message
    assert EVICTIONS.sentence in outcome.message
    assert scene.evicted() == set()
    scene.state.observe_pause(NOTHING_PAUSED)
    assert get_refusals(scene.run())["high"].reason == REASON_WAITING_FOR_PREEMPTED
    assert scene.evicted() == {"low"}


def test_workload_that_prefers_preemption_uses_the_next_flavor_while_evictions_are_paused():
    scene = build_two_flavors(flavorFungibility={"whenCanPreempt": "MayStopSearch"})
    scene.state.observe_pause(NO_EVICTIONS)
    assert list_flavors(scene.run()["high"]) == [{"cpu": "spare"}]


def test_a_preemption_that_was_begun_leads_to_its_admission():
    scene = build_preempting_scene()
    scene.submit("high", 4, queue="a", priority=1)
    scene.run()
    scene.state.observe_pause(NO_EVICTIONS)
    outcome = get_refusals(scene.run()).get("high")
    assert outcome is None or outcome.reason == REASON_WAITING_FOR_PREEMPTED
    scene.leave("low")
    assert "high" in list_admitted(scene.run())


def test_workload_without_replacement_nodes_is_evicted_only_after_evictions_resume():
    scene = Running()
    scene.rack("r", 1)
    scene.submit("w", 4)
    scene.run()
    scene.state.observe_pause(NO_EVICTIONS)
    scene.break_down("r-n0")
    scene.lose("w", "r-n0")
    outcome = get_refusals(scene.run())["w"]
    assert not outcome.evicts
    assert EVICTIONS.sentence in outcome.message
    assert "r-n0" in outcome.message
    assert scene.run() == {}
    scene.state.observe_pause(NOTHING_PAUSED)
    assert get_refusals(scene.run())["w"].evicts


# --- whole lives ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """What a scene is made of, to make it more than once."""

    racks: tuple[int, ...]
    queues: tuple[tuple[int, dict[str, Any]], ...]  # nominal quota and preemption policy
    shares: bool
    strict: bool

    def build(self, **preemption: str) -> Shared:
        scene = Shared(sharing=FairSharing() if self.shares else None)
        for i, nodes in enumerate(self.racks):
            scene.rack(f"r{i}", nodes)
        for name, (nominal, policy) in zip(QUEUES, self.queues, strict=True):
            strategy = "StrictFIFO" if self.strict and name == "a" else "BestEffortFIFO"
            scene.pool(name, str(nominal), "cohort", preemption={**policy, **preemption}, queueingStrategy=strategy)
        return scene


worlds = st.builds(
    World,
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.tuples(*(st.tuples(st.integers(0, 8), build_policies()) for _ in QUEUES)),
    st.booleans(),
    st.booleans(),
)
steps = st.lists(jobs | st.sampled_from(["run", "finish", "leave", "button"]), min_size=8, max_size=30)


def act(scene: Shared, step: Job | str, number: int, run: Callable[[Shared], None]) -> None:
    if isinstance(step, Job):
        step.submit(scene, f"w{number}")
        run(scene)
    elif step == "run":
        run(scene)
    elif step == "finish":
        for name in sorted(scene.running())[:1]:
            scene.finish(name)
    elif step == "leave":
        for name in sorted(scene.evicted()):
            scene.leave(name)


def standing(scene: Shared) -> dict[str, Any]:
    """Who has what, and who is to go."""
    facts = scene.state.workloads.facts
    return {key: (one.evicted, one.finished, scene.state.workloads.find_holding(key)) for key, one in sorted(facts.items())}


def go_on(scene: Shared) -> bool:
    """One more cycle, after those who are to go have gone; whether anything has changed."""
    leaving = sorted(scene.evicted())
    for name in leaving:
        scene.leave(name)
    before = standing(scene)
    scene.run()
    check(scene)
    return bool(leaving) or standing(scene) != before


NEVER = {"withinClusterQueue": "Never", "borrowWithinCohort": {"policy": "Never"}}
# One that preempts in a StrictFIFO queue is told again that it does, after one that is before it has come, and whom it preempted is back.
TOLD_AGAIN = World(
    (1, 1), ((5, {**NEVER, "reclaimWithinCohort": "Any"}), *[(0, {**NEVER, "reclaimWithinCohort": "LowerPriority"})] * 2), True, True
)
TELLS_AGAIN: list[Job | str] = [
    *[Job("a", 1, 1, 0, 0)] * 3,
    *[Job("a", 1, 1, 0, 1)] * 2,
    "leave",
    Job("c", 1, 1, 0, 1),
    Job("c", 1, 2, 0, 0),
    "run",
    "finish",
    Job("a", 1, 1, 0, 0),
    Job("c", 2, 2, 1, 0),
    *["finish"] * 2,
    *[Job("a", 1, 1, 0, 0)] * 6,
    "button",
    Job("a", 1, 2, 1, 0),
]


@example(TOLD_AGAIN, TELLS_AGAIN)
@given(worlds, steps)
def test_a_pause_of_admissions_is_as_if_nothing_had_been_decided_meanwhile(world: World, script: Sequence[Job | str]):
    """The twin has no button: where this one is paused, that one does not run; when it goes on everybody is judged anew in both."""
    paused_one, twin = world.build(), world.build()
    is_paused = False

    def run(scene: Shared) -> None:
        if scene is twin and is_paused:
            scene.clock += 1
            return
        verdicts = scene.run()
        check(scene)
        if is_paused:
            assert not any(isinstance(outcome, Admissible) or outcome.preempting or outcome.evicts for outcome in verdicts.values())

    for number, step in enumerate([*script, "end"]):
        if step == "button" or (step == "end" and is_paused):
            is_paused = not is_paused
            paused_one.state.observe_pause(NO_ADMISSIONS if is_paused else NOTHING_PAUSED)
            twin.state.observe_namespace(f"another-{number}", {})  # something else is configured: no refusal stands
        for scene in (paused_one, twin):
            act(scene, step, number, run)
        assert standing(paused_one) == standing(twin)
    for _ in range(10):
        for scene in (paused_one, twin):
            go_on(scene)
        assert standing(paused_one) == standing(twin)


@given(worlds, steps)
def test_while_evictions_are_paused_all_is_decided_as_if_no_queue_might_preempt(world: World, script: Sequence[Job | str]):
    paused_one = world.build()
    paused_one.state.observe_pause(NO_EVICTIONS)
    peaceful = world.build(withinClusterQueue="Never", reclaimWithinCohort="Never", borrowWithinCohort={"policy": "Never"})  # type: ignore[arg-type]

    def run(scene: Shared) -> None:
        verdicts = scene.run()
        check(scene)
        assert not any(isinstance(outcome, NotAdmissible) and (outcome.preempting or outcome.evicts) for outcome in verdicts.values())

    for number, step in enumerate(script):
        for scene in (paused_one, peaceful):
            act(scene, step, number, run)
        assert standing(paused_one) == standing(peaceful)
    assert paused_one.evicted() == set()
    # Afterwards whoever may preempt does, and evictions end.
    paused_one.state.observe_pause(NOTHING_PAUSED)
    assert not all(go_on(paused_one) for _ in range(40))

"""Random queues, cohorts and lives: the victims are the cheapest there are, and what was promised comes true."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.names import REASON_IN_QUEUE
from core.placement.algorithms.profile import STANDARD
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.preemption import victim_search
from core.state.facts import WorkloadFacts
from tests.builders import NAMESPACE
from tests.queueing.lives import QUEUES, Job, busy_scenes, jobs, live, rebuilt_without, scenes
from tests.queueing.shared import Shared, find_preemption
from tests.strategies import scale_examples


def compute_cost(chosen: list[WorkloadFacts]) -> tuple[int, int, int]:
    return max(w.priority for w in chosen), len(chosen), sum(w.priority for w in chosen)


def may_go(scene: Shared, wanting: WorkloadFacts, chosen: list[WorkloadFacts], *, borrows: bool) -> bool:
    """Whether the rules let all of them go for a workload that then borrows or does not, judged one by one in all orders that matter."""
    mine = wanting.queue.partition("/")[2]
    policy = scene.state.cluster_queues[mine].preemption
    by_queue: dict[str, list[WorkloadFacts]] = {}
    for victim in chosen:
        queue = victim.queue.partition("/")[2]
        if queue == mine:
            newer = (victim.queued_since, victim.created) > (wanting.queued_since, wanting.created)
            equal = policy.within_queue == "LowerOrNewerEqualPriority" and victim.priority == wanting.priority and newer
            if policy.within_queue == "Never" or not (victim.priority < wanting.priority or equal):
                return False
        else:
            by_queue.setdefault(queue, []).append(victim)
            if borrows and (policy.while_borrowing == "Never" or victim.priority >= wanting.priority):
                return False
            if not borrows and policy.reclaim == "LowerPriority" and victim.priority >= wanting.priority:
                return False
    for queue, members in by_queue.items():
        nominal = scene.state.quota.get_nominal(queue, ("tas", "cpu"))
        takes = {w.key: sum(p.requests["cpu"] * p.count for p in w.pod_sets) for w in members}
        last = (
            min(takes.values()) if borrows else max(takes.values())
        )  # who could reclaim what is its queue's own does not go for a borrower
        if scene.used(queue) - sum(takes.values()) + last <= nominal:
            return False
    return True


def find_cheapest_by_force(scene: Shared, wanting: WorkloadFacts) -> tuple[int, int, int] | None:
    mine = wanting.queue.partition("/")[2]
    there = [w for w in scene.state.workloads.facts.values() if w.admission is not None]
    best = None
    for size in range(1, len(there) + 1):
        for chosen in map(list, combinations(there, size)):
            if best is not None and compute_cost(chosen) >= best:
                continue
            world = rebuilt_without(scene, {w.key for w in chosen})
            found = find_admission(world.state, wanting, world.state.cluster_queues[mine], STANDARD)
            if isinstance(found, Admissible):
                asked = sum(p.requests["cpu"] * p.count for p in wanting.pod_sets)
                borrows = world.used(mine) + asked > world.state.quota.get_nominal(mine, ("tas", "cpu"))
                # One that need not borrow may also act by the right of one that does.
                if any(may_go(scene, wanting, chosen, borrows=right) for right in ([True] if borrows else [False, True])):
                    best = compute_cost(chosen)
    return best


@given(busy_scenes(), jobs)
@settings(max_examples=scale_examples(2.5))
def test_no_cheaper_victims_than_those_found_by_trying_all(scene: Shared, job: Job):
    job.submit(scene, "wanting")
    wanting = scene.state.workloads.facts[f"{NAMESPACE}/wanting"]
    queue = scene.state.cluster_queues[job.queue]
    assume(isinstance(find_admission(scene.state, wanting, queue, STANDARD), NotAdmissible))
    before = {name: scene.used(name) for name in QUEUES}
    found = find_preemption(scene.state, wanting, queue, STANDARD, ())
    assert {name: scene.used(name) for name in QUEUES} == before
    expected = find_cheapest_by_force(scene, wanting)
    assert (None if found is None else compute_cost([victim.workload for victim in found.victims])) == expected


@given(busy_scenes(), jobs)
@settings(max_examples=scale_examples(1.5))
def test_where_not_all_can_be_tried_each_victim_is_needed(scene: Shared, job: Job):
    job.submit(scene, "wanting")
    wanting = scene.state.workloads.facts[f"{NAMESPACE}/wanting"]
    queue = scene.state.cluster_queues[job.queue]
    assume(isinstance(find_admission(scene.state, wanting, queue, STANDARD), NotAdmissible))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victim_search, "_EXACT", 0)
        found = find_preemption(scene.state, wanting, queue, STANDARD, ())
    if found is None:
        return
    gone = {victim.workload.key for victim in found.victims}
    assert isinstance(find_admission(rebuilt_without(scene, gone).state, wanting, queue, STANDARD), Admissible)
    for spared in found.victims if all(v.reason == REASON_IN_QUEUE for v in found.victims) else ():
        world = rebuilt_without(scene, gone - {spared.workload.key})
        assert isinstance(find_admission(world.state, wanting, queue, STANDARD), NotAdmissible)


@given(scenes(), st.lists(jobs, min_size=1, max_size=8), st.data())
@settings(max_examples=scale_examples(1.5))
def test_preemptor_under_random_events_gets_its_room_and_no_workload_is_lost(scene: Shared, coming: list[Job], data: st.DataObject):
    live(scene, coming, data)

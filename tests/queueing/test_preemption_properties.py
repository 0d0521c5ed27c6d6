"""Random queues, cohorts and lives: the victims are the cheapest there are, and what was promised comes true."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.names import REASON_IN_QUEUE
from core.placement.profile import STANDARD
from core.queueing import preemption
from core.queueing.flavors import find_admission
from core.queueing.outcome import Found, NotFound
from core.queueing.preemption import find_preemption
from core.state.facts import WorkloadFacts
from tests.builders import NAMESPACE, RACK
from tests.queueing.shared import Shared

QUEUES = ("a", "b", "c")
TOPOLOGIES = ({"required": RACK}, {"preferred": RACK}, {"unconstrained": True})
policies = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": st.sampled_from(["LowerPriority", "Any"]),
        "borrowWithinCohort": st.sampled_from([{"policy": "Never"}, {"policy": "LowerPriority"}]),
    }
)


@dataclass
class Job:
    queue: str
    count: int
    cpu: int
    priority: int
    topology: int

    def submit(self, scene: Shared, name: str) -> None:
        topology = TOPOLOGIES[self.topology]
        scene.submit(name, self.count, cpu=str(self.cpu), queue=self.queue, priority=self.priority, topology=topology)


jobs = st.builds(Job, st.sampled_from(QUEUES), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(0, len(TOPOLOGIES) - 1))


@st.composite
def scenes(draw: st.DrawFn) -> Shared:
    scene = Shared()
    for i in range(draw(st.integers(1, 3))):
        scene.rack(f"r{i}", draw(st.integers(1, 2)))
    for name in QUEUES:
        limits = draw(st.sampled_from([{}, {"borrowingLimit": "2"}, {"lendingLimit": "1"}]))
        scene.pool(name, str(draw(st.integers(0, 8))), "cohort", preemption=draw(policies), **limits)
    return scene


@st.composite
def busy_scenes(draw: st.DrawFn) -> Shared:
    scene = draw(scenes())
    for i, job in enumerate(draw(st.lists(jobs, min_size=1, max_size=6))):
        job.submit(scene, f"w{i}")
        name = f"w{i}"
        # As if nobody minded: a running workload may be one that others would have preempted for.
        facts = scene.state.workloads.facts[f"{NAMESPACE}/{name}"]
        queue = scene.state.cluster_queues[job.queue]
        if isinstance(find_admission(scene.state, facts, queue, STANDARD), Found):
            scene.cycle.run()
            scene.run()
        if name not in scene.running():
            scene.delete(name)
    return scene


def cost(chosen: list[WorkloadFacts]) -> tuple[int, int, int]:
    return max(w.priority for w in chosen), len(chosen), sum(w.priority for w in chosen)


def rebuilt_without(scene: Shared, gone: set[str]) -> Shared:
    """The same cluster, had the others never been there: no what-if, no overlay."""
    fresh = Shared()
    fresh.state.observe_cluster_queue("cq", None)
    for node in scene.state.nodes.values():
        fresh.state.observe_node(node.name, node)
    for queue in scene.state.cluster_queues.values():
        fresh.state.observe_cluster_queue(queue.name, queue)
    for local in scene.state.local_queues.values():
        fresh.state.observe_local_queue(local.key, local)
    for facts in scene.state.workloads.facts.values():
        if facts.key not in gone:
            fresh.state.observe_workload(facts.key, facts)
    fresh.state.refresh()
    return fresh


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
        nominal = scene.state.quota.nominal(queue, ("tas", "cpu"))
        takes = {w.key: sum(p.requests["cpu"] * p.count for p in w.pod_sets) for w in members}
        if scene.used(queue) - sum(takes.values()) + max(takes.values()) <= nominal:
            return False
    return True


def cheapest_by_force(scene: Shared, wanting: WorkloadFacts) -> tuple[int, int, int] | None:
    mine = wanting.queue.partition("/")[2]
    there = [w for w in scene.state.workloads.facts.values() if w.admission is not None]
    best = None
    for size in range(1, len(there) + 1):
        for chosen in map(list, combinations(there, size)):
            if best is not None and cost(chosen) >= best:
                continue
            world = rebuilt_without(scene, {w.key for w in chosen})
            found = find_admission(world.state, wanting, world.state.cluster_queues[mine], STANDARD)
            if isinstance(found, Found):
                asked = sum(p.requests["cpu"] * p.count for p in wanting.pod_sets)
                borrows = world.used(mine) + asked > world.state.quota.nominal(mine, ("tas", "cpu"))
                # One that need not borrow may also act by the right of one that does.
                if any(may_go(scene, wanting, chosen, borrows=right) for right in ([True] if borrows else [False, True])):
                    best = cost(chosen)
    return best


@given(busy_scenes(), jobs)
@settings(max_examples=150)
def test_no_cheaper_victims_than_those_found_by_trying_all(scene: Shared, job: Job):
    job.submit(scene, "wanting")
    wanting = scene.state.workloads.facts[f"{NAMESPACE}/wanting"]
    queue = scene.state.cluster_queues[job.queue]
    assume(isinstance(find_admission(scene.state, wanting, queue, STANDARD), NotFound))
    before = {name: scene.used(name) for name in QUEUES}
    found = find_preemption(scene.state, wanting, queue, STANDARD, ())
    assert {name: scene.used(name) for name in QUEUES} == before
    expected = cheapest_by_force(scene, wanting)
    assert (None if found is None else cost([victim.workload for victim in found.victims])) == expected


@given(busy_scenes(), jobs)
@settings(max_examples=100)
def test_where_not_all_can_be_tried_each_victim_is_needed(scene: Shared, job: Job):
    job.submit(scene, "wanting")
    wanting = scene.state.workloads.facts[f"{NAMESPACE}/wanting"]
    queue = scene.state.cluster_queues[job.queue]
    assume(isinstance(find_admission(scene.state, wanting, queue, STANDARD), NotFound))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preemption, "_EXACT", 0)
        found = find_preemption(scene.state, wanting, queue, STANDARD, ())
    if found is None:
        return
    gone = {victim.workload.key for victim in found.victims}
    assert isinstance(find_admission(rebuilt_without(scene, gone).state, wanting, queue, STANDARD), Found)
    for spared in found.victims if all(v.reason == REASON_IN_QUEUE for v in found.victims) else ():
        world = rebuilt_without(scene, gone - {spared.workload.key})
        assert isinstance(find_admission(world.state, wanting, queue, STANDARD), NotFound)


def check(scene: Shared) -> None:
    """What holds at any moment, whoever is on the way out."""
    tree, name = scene.state.quota, ("tas", "cpu")
    nominal = {queue: tree.nominal(queue, name) for queue in QUEUES}
    assert sum(scene.used(queue) for queue in QUEUES) <= sum(nominal.values())
    for queue in QUEUES:
        limit = scene.state.cluster_queues[queue].quota[name].borrowing_limit
        assert limit is None or scene.used(queue) <= nominal[queue] + limit
    assert scene.state.ledger.drift() == {}
    view = scene.state.view("tas")
    assert view is not None
    assert (view.capacity.free >= 0).all()


@given(scenes(), st.lists(jobs, min_size=1, max_size=8), st.data())
@settings(max_examples=100)
def test_whatever_happens_who_was_promised_room_gets_it_and_nobody_is_lost(scene: Shared, coming: list[Job], data: st.DataObject):
    submitted: list[str] = []
    for i, job in enumerate(coming):
        job.submit(scene, f"w{i}")
        submitted.append(f"w{i}")
        for _ in range(3):
            scene.run()
            check(scene)
        done = data.draw(st.sampled_from(["", *sorted(scene.running())]), label="who finishes")
        if done:
            scene.finish(done)
    for _ in range(40):
        leaving = sorted(scene.evicted())
        for name in leaving:
            scene.leave(name)
        verdicts = scene.run()
        check(scene)
        if not leaving and not verdicts and not scene.evicted():
            break
    else:
        pytest.fail("evictions never end")
    # Who is left waits for those who run, or could never run.
    for _ in range(len(submitted) + 1):
        for name in sorted(scene.running()):
            scene.finish(name)
        for _ in range(3):
            scene.run()
            for name in sorted(scene.evicted()):
                scene.leave(name)
    assert scene.running() == set()
    waiting = {w.key.partition("/")[2] for w in scene.state.workloads.pending()}
    alone = {name for name in waiting if fits_alone(scene, name)}
    assert alone == set()


def fits_alone(scene: Shared, name: str) -> bool:
    facts = scene.state.workloads.facts[f"{NAMESPACE}/{name}"]
    others = {key for key in scene.state.workloads.facts if key != facts.key}
    world = rebuilt_without(scene, others)
    queue = world.state.cluster_queues[facts.queue.partition("/")[2]]
    return isinstance(find_admission(world.state, facts, queue, STANDARD), Found)

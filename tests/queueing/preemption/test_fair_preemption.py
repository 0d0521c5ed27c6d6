"""Who goes for whom by fair share: tables, all sets tried by force, and random lives."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.model.configuration import FairSharing, PreemptionStrategy
from core.model.quota_tree import Share
from core.names import REASON_FAIR_SHARING, REASON_IN_QUEUE, REASON_RECLAIMED
from core.placement.algorithms.profile import STANDARD
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.preemption import victim_search
from core.state.facts import WorkloadFacts
from core.state.workload_state import compute_admission_usage
from tests.builders import NAMESPACE
from tests.queueing.lives import QUEUES, Job, busy_scenes, jobs, live, rebuilt_without, scenes
from tests.queueing.shared import Shared, find_preemption, get_victims
from tests.strategies import scale_examples

FINAL, INITIAL = PreemptionStrategy.FINAL_SHARE, PreemptionStrategy.INITIAL_SHARE
ANYWHERE = {"unconstrained": True}
ANY = {"reclaimWithinCohort": "Any"}
CPU = ("tas", "cpu")


def build_scene(*strategies: PreemptionStrategy, policy: dict[str, Any] | None = None, **weights: str) -> Shared:
    """Queues with nothing of their own, and a lender with room for 12."""
    made = Shared(sharing=FairSharing(strategies) if strategies else FairSharing())
    made.rack("r1", 10)
    made.pool("lender", "12", "cohort")
    for name, weight in weights.items():
        made.pool(name, "0", "cohort", fairSharing={"weight": weight}, preemption=ANY if policy is None else policy)
    return made


def hog(made: Shared, queue: str, *sizes: int, priority: int = 0) -> None:
    for i, size in enumerate(sizes):
        made.submit(f"{queue}{i}", size, queue=queue, topology=ANYWHERE, priority=priority)
        made.run()
    assert made.used(queue) == 1000 * sum(sizes)


def preempted(made: Shared, queue: str, size: int, *, priority: int = 0) -> dict[str, str]:
    """Who goes for a workload of this size."""
    made.submit("wanting", size, queue=queue, topology=ANYWHERE, priority=priority)
    outcome = made.run()["wanting"]
    return get_victims(outcome) if isinstance(outcome, NotAdmissible) and outcome.preempting is not None else {}


def settle(made: Shared) -> None:
    """Whoever is evicted leaves, until nobody is."""
    for _ in range(40):
        made.run()
        if not made.evicted():
            return
        for name in sorted(made.evicted()):
            made.leave(name)
    pytest.fail("evictions never end")


# --- tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("weights", "shares"), [(("1", "1"), (6, 6)), (("1", "2"), (4, 8)), (("1", "0"), (12, 0)), (("0", "1"), (0, 12))])
def test_a_hog_is_cut_back_to_its_share(weights: tuple[str, str], shares: tuple[int, int]):
    made = build_scene(a=weights[0], b=weights[1])
    hog(made, "a", *[1] * 12)
    for i in range(12):
        made.submit(f"b{i}", queue="b", topology=ANYWHERE)
    settle(made)
    assert (made.used("a") // 1000, made.used("b") // 1000) == shares


@pytest.mark.parametrize(
    ("strategies", "sizes", "wanted", "gone"),
    [
        ((FINAL,), (4, 4, 4), 4, 1),  # 8 is left, 4 is taken
        ((FINAL,), (6, 6), 6, 1),  # 6 and 6
        ((FINAL,), (6, 6), 7, 0),
        ((FINAL,), (8, 4), 8, 0),  # a would be left with 4, or with too much
        ((INITIAL,), (8, 4), 8, 1),  # 12 is more than 8
        ((INITIAL,), (12,), 11, 1),
        ((INITIAL,), (12,), 12, 0),
        ((FINAL, INITIAL), (8, 4), 8, 1),
        ((FINAL, INITIAL), (4, 4, 4), 8, 0),  # any one of two that go could come back for it
    ],
)
def test_strategies(strategies: tuple[PreemptionStrategy, ...], sizes: tuple[int, ...], wanted: int, gone: int):
    made = build_scene(*strategies, a="1", b="1")
    hog(made, "a", *sizes)
    found = preempted(made, "b", wanted)
    assert len(found) == gone
    assert set(found.values()) <= {REASON_FAIR_SHARING}


def test_preemption_message_by_fair_sharing_names_the_reason_and_the_victim():
    made = build_scene(a="1", b="1")
    hog(made, "a", 12)
    made.submit("wanting", 4, queue="b", topology=ANYWHERE)
    outcome = made.run()["wanting"]
    assert isinstance(outcome, NotAdmissible)
    assert get_victims(outcome) == {"a0": REASON_FAIR_SHARING}
    assert all(part in outcome.message for part in ("1 workload", "fair sharing", "ns/a0"))


@pytest.mark.parametrize(
    ("policy", "priority", "goes"), [("Never", 9, False), ("LowerPriority", 1, False), ("LowerPriority", 2, True), ("Any", 0, True)]
)
def test_reclaim_within_cohort_policy_limits_victims_by_priority(policy: str, priority: int, goes: bool):
    made = build_scene(a="1", b="1", policy={"reclaimWithinCohort": policy})
    hog(made, "a", 6, 6, priority=1)
    assert bool(preempted(made, "b", 6, priority=priority)) == goes


def test_borrow_within_cohort_has_no_effect_under_fair_sharing():
    made = build_scene(a="1", b="1", policy={"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}})
    hog(made, "a", 6)
    hog(made, "b", 6)
    assert preempted(made, "b", 6, priority=9) == {}


def test_queue_with_weight_zero_reclaims_its_nominal_quota():
    made = build_scene(a="1")
    made.pool("owner", "4", "cohort", preemption=ANY, fairSharing={"weight": "0"})
    hog(made, "a", 16)
    assert preempted(made, "owner", 4) == {"a0": REASON_RECLAIMED}


def test_the_queue_that_has_most_gives_first():
    made = build_scene(a="1", b="1", c="1")
    hog(made, "a", 2, 2)
    hog(made, "b", 2, 2, 2, 2)
    (victim,) = preempted(made, "c", 2)
    assert victim.startswith("b")


def test_queue_with_weight_zero_loses_workloads_first():
    made = build_scene(a="1", b="0", c="1")
    hog(made, "a", 2, 2, 2, 2)
    hog(made, "b", 2, 2, priority=9)
    (victim,) = preempted(made, "c", 2)
    assert victim.startswith("b")


def test_its_own_queue_gives_by_priority_as_without_shares():
    made = build_scene(a="1", policy={"withinClusterQueue": "LowerPriority"})
    hog(made, "a", 12)
    assert preempted(made, "a", 12, priority=1) == {"a0": REASON_IN_QUEUE}


def test_cohorts_are_compared_where_queues_meet():
    """left has 8 in two queues, right has 4 in one: right may take from left, though its queue has as much as each of them."""
    made = Shared(sharing=FairSharing())
    made.rack("r1", 10)
    made.cohort("root", nominal="12")
    for cohort in ("left", "right"):
        made.cohort(cohort, "root")
    for name, cohort in (("a", "left"), ("b", "left"), ("c", "right")):
        made.pool(name, "0", cohort, preemption=ANY)
    for name in ("a", "b"):
        hog(made, name, 2, 2)
    hog(made, "c", 4)
    assert set(preempted(made, "c", 2).values()) == {REASON_FAIR_SHARING}
    made.delete("wanting")
    assert preempted(made, "a", 2) == {}


def test_room_made_by_fair_preemption_goes_to_its_preemptor():
    """a's next is small: with its large one gone a would be below b, and its turn before b's."""
    made = build_scene(INITIAL, a="1", b="1")
    hog(made, "a", 12)
    assert preempted(made, "b", 8) == {"a0": REASON_FAIR_SHARING}
    made.submit("small", 6, queue="a", topology=ANYWHERE, priority=9)
    made.run()
    made.leave("a0")
    made.run()
    assert made.running() == {"wanting"}


def test_shares_that_stand_still_are_no_reason_to_take():
    """Both are dominated by what is not asked for: whoever took could be taken from in turn."""
    made = Shared(sharing=FairSharing())
    made.rack("r1", 10)
    made.flavor("gpus")
    for name, (cpu, gpu) in {"lender": (4, 10), "a": (0, 0), "b": (0, 0)}.items():
        groups = [
            {"coveredResources": ["cpu"], "flavors": [{"name": "tas", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]},
            {"coveredResources": ["gpu"], "flavors": [{"name": "gpus", "resources": [{"name": "gpu", "nominalQuota": gpu}]}]},
        ]
        made.queue(name, {}, resourceGroups=groups, cohortName="cohort", preemption=ANY)
        made.local_queue(name, name)
    hog(made, "a", 2, 2)
    for queue in ("a", "b"):
        made.state.quota.add(queue, {("gpus", "gpu"): 20})
    assert preempted(made, "b", 2) == {}


# --- all sets tried by force ------------------------------------------------------------------------------

Cost = tuple[tuple[tuple[tuple[bool, Fraction], ...], int], int, int]


def compute_cost(scene: Shared, chosen: list[WorkloadFacts]) -> Cost:
    def rank(w: WorkloadFacts) -> tuple[tuple[tuple[bool, Fraction], ...], int]:
        shares = scene.state.quota.compute_shares(w.queue.partition("/")[2])
        return tuple((not share.is_infinite, -share.value) for share in shares), w.priority

    return max(map(rank, chosen)), len(chosen), sum(w.priority for w in chosen)


def compute_level_share(world: Shared, mine: str, queue: str, *back: WorkloadFacts, of: str) -> Share:
    """The share, where two queues meet, of the side of one of them, with some workloads counted on it."""
    tree = world.state.quota
    above, cohorts = [mine, *tree.list_ancestors(mine)], [queue, *tree.list_ancestors(queue)]
    meet = next(cohort for cohort in cohorts if cohort in above)
    path = [of, *tree.list_ancestors(of)]
    side = path[path.index(meet) - 1]
    for w in back:
        tree.add(of, {CPU: sum(p.requests["cpu"] * p.count for p in w.pod_sets)})
    share = tree.compute_shares(of)[-1] if side == of else tree.compute_cohort_share(side)
    for w in back:
        tree.add(of, {CPU: sum(p.requests["cpu"] * p.count for p in w.pod_sets)}, -1)
    return share


def may_go(scene: Shared, world: Shared, wanting: WorkloadFacts, chosen: list[WorkloadFacts], strategy: PreemptionStrategy | None) -> bool:
    """Whether all of them may go, by a strategy or (None) since the workload only takes what is its own."""
    mine = wanting.queue.partition("/")[2]
    policy, tree = scene.state.cluster_queues[mine].preemption, scene.state.quota
    others: dict[str, list[WorkloadFacts]] = {}
    for victim in chosen:
        queue = victim.queue.partition("/")[2]
        if queue == mine:
            newer = (victim.queued_since, victim.created) > (wanting.queued_since, wanting.created)
            equal = policy.within_queue == "LowerOrNewerEqualPriority" and victim.priority == wanting.priority and newer
            if policy.within_queue == "Never" or not (victim.priority < wanting.priority or equal):
                return False
        else:
            others.setdefault(queue, []).append(victim)
            if policy.reclaim == "LowerPriority" and victim.priority >= wanting.priority:
                return False
            if not tree.is_using_others(mine, queue, CPU):
                return False
    for queue, members in others.items():
        takes = [sum(p.requests["cpu"] * p.count for p in w.pod_sets) for w in members]
        if scene.used(queue) - sum(takes) + max(takes) <= tree.get_nominal(queue, CPU):
            return False
        ours = compute_level_share(world, mine, queue, wanting, of=mine)
        if strategy is None or ours.is_zero:
            continue
        if strategy is FINAL and compute_level_share(world, mine, queue, of=queue) < ours:
            return False
        if any(compute_level_share(world, mine, queue, w, of=queue) <= ours for w in members):
            return False
    return True


def find_cheapest_by_force(scene: Shared, wanting: WorkloadFacts) -> Cost | None:
    mine = wanting.queue.partition("/")[2]
    there = [w for w in scene.state.workloads.facts.values() if w.admission is not None]
    fitting: list[tuple[list[WorkloadFacts], Shared, bool]] = []
    for size in range(1, len(there) + 1):
        for chosen in map(list, combinations(there, size)):
            world = rebuilt_without(scene, {w.key for w in chosen})
            found = find_admission(world.state, wanting, world.state.cluster_queues[mine], STANDARD)
            if isinstance(found, Admissible):
                fitting.append((chosen, world, found.borrows))
    assert scene.sharing is not None
    for i, strategy in enumerate(scene.sharing.strategies):
        costs = [
            compute_cost(scene, chosen)
            for chosen, world, borrows in fitting
            if may_go(scene, world, wanting, chosen, strategy) or (not i and not borrows and may_go(scene, world, wanting, chosen, None))
        ]
        if costs:
            return min(costs)
    return None


ORDERS = [(FINAL, INITIAL), (INITIAL,), (FINAL,), (INITIAL, FINAL)]
any_scene = st.sampled_from(ORDERS).flatmap(lambda strategies: busy_scenes(FairSharing(strategies)))


@given(any_scene, jobs)
@settings(max_examples=scale_examples(2.5))
def test_no_cheaper_victims_than_those_found_by_trying_all(scene: Shared, job: Job):
    job.submit(scene, "wanting")
    wanting = scene.state.workloads.facts[f"{NAMESPACE}/wanting"]
    queue = scene.state.cluster_queues[job.queue]
    assume(isinstance(find_admission(scene.state, wanting, queue, STANDARD), NotAdmissible))
    before = {name: scene.used(name) for name in QUEUES}
    found = find_preemption(scene.state, wanting, queue, STANDARD, (), sharing=scene.sharing)
    assert {name: scene.used(name) for name in QUEUES} == before
    expected = find_cheapest_by_force(scene, wanting)
    assert (None if found is None else compute_cost(scene, [victim.workload for victim in found.victims])) == expected


@given(any_scene, jobs)
@settings(max_examples=scale_examples(1.5))
def test_where_not_all_can_be_tried_shares_are_kept_all_the_same(scene: Shared, job: Job):
    job.submit(scene, "wanting")
    wanting = scene.state.workloads.facts[f"{NAMESPACE}/wanting"]
    queue = scene.state.cluster_queues[job.queue]
    assume(isinstance(find_admission(scene.state, wanting, queue, STANDARD), NotAdmissible))
    before = {name: scene.used(name) for name in QUEUES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victim_search, "_EXACT", 0)
        found = find_preemption(scene.state, wanting, queue, STANDARD, (), sharing=scene.sharing)
    assert {name: scene.used(name) for name in QUEUES} == before
    if found is None:
        return
    gone = [victim.workload for victim in found.victims]
    world = rebuilt_without(scene, {w.key for w in gone})
    assert isinstance(find_admission(world.state, wanting, queue, STANDARD), Admissible)
    assert scene.sharing is not None
    rights = [*scene.sharing.strategies, *([] if found.found.borrows else [None])]
    assert any(may_go(scene, world, wanting, gone, right) for right in rights)


@given(any_scene, jobs)
@settings(max_examples=scale_examples(2.5))
def test_no_victim_can_take_its_place_back(scene: Shared, job: Job):
    """Once the preemptor runs, nobody who went for it could preempt it."""
    job.submit(scene, "wanting")
    key = f"{NAMESPACE}/wanting"
    wanting = scene.state.workloads.facts[key]
    queue = scene.state.cluster_queues[job.queue]
    found = find_preemption(scene.state, wanting, queue, STANDARD, (), sharing=scene.sharing)
    if found is None or isinstance(find_admission(scene.state, wanting, queue, STANDARD), Admissible):
        return
    others = [victim.workload for victim in found.victims if victim.reason == REASON_FAIR_SHARING]
    scene.write({"wanting": NotAdmissible("", "", (), preempting=found)})
    for name in sorted(scene.evicted()):
        scene.leave(name)
    scene.write({"wanting": found.found})
    assert compute_admission_usage(found.found.admission)
    for victim in others:
        back = scene.state.workloads.facts[victim.key]
        home = scene.state.cluster_queues[back.queue.partition("/")[2]]
        if isinstance(find_admission(scene.state, back, home, STANDARD), NotAdmissible):
            again = find_preemption(scene.state, back, home, STANDARD, (), sharing=scene.sharing)
            assert again is None or key not in {v.workload.key for v in again.victims}


@given(
    st.sampled_from(ORDERS).flatmap(lambda strategies: scenes(FairSharing(strategies))),
    st.lists(jobs, min_size=1, max_size=8),
    st.data(),
)
@settings(max_examples=scale_examples(1.5))
def test_preemptor_under_fair_sharing_and_random_events_gets_its_room_and_no_workload_is_lost(
    scene: Shared, coming: list[Job], data: st.DataObject
):
    live(scene, coming, data)

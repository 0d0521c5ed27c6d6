"""Who goes for whom: within a queue, in a cohort, for quota and for place."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from core.model.configuration import FairSharing
from core.names import (
    REASON_IN_QUEUE,
    REASON_RECLAIMED,
    REASON_RECLAIMED_BY_BORROWER,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    REASON_WAITING_FOR_PREEMPTED,
    REASON_WAITING_FOR_QUOTA,
)
from core.placement.algorithms.profile import STANDARD
from core.queueing.cycle import judge
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.preemption import preemption_policy, victim_search
from tests.bench.preemption import GPUS, RACK_NODES, build, submit
from tests.builders import NAMESPACE, RACK
from tests.queueing.scene import get_refusals, list_shortages
from tests.queueing.shared import ALL_MAY, Shared, find_preemption, get_victims

LOWER = {"withinClusterQueue": "LowerPriority"}
ANYWHERE = {"unconstrained": True}


def build_one_queue(nominal: str = "8", **preemption: str) -> Shared:
    scene = Shared()
    scene.rack("r1", 2)
    scene.pool("q", nominal, preemption=preemption or LOWER)
    return scene


# --- within a queue -------------------------------------------------------------------------------------


def test_a_lower_priority_makes_room_and_the_preemptor_gets_it():
    scene = build_one_queue()
    scene.submit("low", 8, queue="q", priority=0)
    scene.run()
    scene.submit("high", 8, queue="q", priority=1)
    outcome = scene.run()["high"]
    assert get_victims(outcome) == {"low": REASON_IN_QUEUE}
    assert isinstance(outcome, NotAdmissible)
    assert outcome.reason == REASON_WAITING_FOR_PREEMPTED
    assert all(part in outcome.message for part in ("1 workload", "prioritization", "ns/low"))
    for _ in range(2):
        assert all(not get_victims(said) for said in scene.run().values()), "nobody goes twice for one room"
    scene.leave("low")
    assert "high" in scene.run()
    assert scene.running() == {"high"}


@pytest.mark.parametrize(("policy", "goes"), [("Never", False), ("LowerPriority", False), ("LowerOrNewerEqualPriority", True)])
def test_workload_of_equal_priority_is_preempted_only_if_newer_and_permitted_by_the_policy(policy: str, goes: bool):
    scene = build_one_queue(withinClusterQueue=policy)
    early = "2025-01-01T00:00:00Z"
    scene.submit("newer", 8, queue="q")
    scene.run()
    scene.submit("older", 8, queue="q", created=early)
    outcome = scene.run()["older"]
    assert isinstance(outcome, NotAdmissible)
    assert (outcome.preempting is not None) == goes
    scene.submit("newest", 8, queue="q")
    assert "newest" not in scene.run() or scene.evicted() == ({"newer"} if goes else set())


def test_workload_that_would_not_fit_after_preemption_preempts_no_workload():
    """With all of lower priority gone it would still not fit."""
    scene = build_one_queue(nominal="100")
    scene.submit("low", 4, queue="q")
    scene.submit("same", 4, queue="q", priority=1)
    scene.run()
    scene.submit("high", 8, queue="q", priority=1)
    outcome = scene.run()["high"]
    assert isinstance(outcome, NotAdmissible)
    assert (outcome.preempting, outcome.reason) == (None, REASON_TOPOLOGY_PLACEMENT_FAILED)
    assert scene.evicted() == set()


def test_one_large_victim_rather_than_many_small():
    """The many are newer and of the same priority, yet one elsewhere will do."""
    scene = build_one_queue(nominal="100")
    scene.rack("r2", 2)
    scene.submit("whole", 8, queue="q")
    scene.run()
    for i in range(8):
        scene.submit(f"small{i}", 1, queue="q")
    scene.run()
    assert len(scene.running()) == 9
    scene.submit("high", 8, queue="q", priority=1)
    assert get_victims(scene.run()["high"]) == {"whole": REASON_IN_QUEUE}


def test_a_lower_priority_goes_before_fewer_of_higher():
    scene = build_one_queue(nominal="100")
    scene.rack("r2", 2)
    scene.submit("one", 8, queue="q", priority=1)
    scene.run()
    for i in range(4):
        scene.submit(f"two{i}", 2, queue="q", priority=0)
    scene.run()
    scene.submit("high", 8, queue="q", priority=2)
    assert get_victims(scene.run()["high"]) == {f"two{i}": REASON_IN_QUEUE for i in range(4)}


def test_younger_of_two_equal_workloads_is_preempted():
    scene = build_one_queue(nominal="100")
    for name in ("older", "younger"):
        scene.submit(name, 4, queue="q")
        scene.run()
    scene.submit("high", 4, queue="q", priority=1)
    assert get_victims(scene.run()["high"]) == {"younger": REASON_IN_QUEUE}


# --- for a place ------------------------------------------------------------------------------------------


def test_victims_are_chosen_in_one_rack():
    """Quota is plenty: only those of one rack help a workload that needs one."""
    scene = Shared()
    scene.pool("q", "100", preemption=LOWER)
    for rack in ("r1", "r2", "r3"):
        scene.rack(rack, 2)
    for i in range(12):
        scene.submit(f"w{i}", 2, queue="q")
        scene.run()
    scene.submit("high", 8, queue="q", priority=1)
    chosen = get_victims(scene.run()["high"])
    assert len(chosen) == 4
    for name in chosen:
        scene.leave(name)
    scene.run()
    assert "high" in scene.running()


def test_room_made_for_a_preemptor_is_not_given_to_another_workload():
    scene = build_one_queue(nominal="100")
    scene.submit("a", 4, queue="q")
    scene.submit("b", 4, queue="q")
    scene.run()
    scene.submit("high", 8, queue="q", priority=5)
    assert set(get_victims(scene.run()["high"])) == {"a", "b"}
    scene.submit("thief", 4, queue="q", priority=4)
    scene.run()
    scene.leave("a")
    assert scene.run().get("thief") is None or "thief" not in scene.running()
    assert scene.running() == set()
    scene.leave("b")
    scene.run()
    assert scene.running() == {"high"}


def test_room_made_for_a_preemptor_is_reserved_while_its_verdict_is_being_written():
    scene = build_one_queue(nominal="100")
    scene.submit("low", 8, queue="q")
    scene.run()
    scene.submit("high", 8, queue="q", priority=5)
    scene.run()
    scene.submit("thief", 4, queue="q", priority=4)
    scene.leave("low")
    assert [verdict for verdict in scene.verdicts("high") if not isinstance(verdict.outcome, NotAdmissible)] == []
    scene.run()
    assert scene.running() == {"high"}


def test_workload_with_higher_priority_than_the_preemptor_preempts_it_after_its_admission():
    """Whoever could take it first could also be one whose own victims come back for it: evictions would never end."""
    scene = build_one_queue(nominal="100")
    scene.submit("low", 8, queue="q")
    scene.run()
    scene.submit("middle", 8, queue="q", priority=1)
    scene.run()
    scene.submit("top", 8, queue="q", priority=2)
    assert isinstance(scene.run()["top"], NotAdmissible)
    scene.leave("low")
    scene.run()
    assert scene.running() == {"middle"}
    assert get_victims(scene.run()["top"]) == {"middle": REASON_IN_QUEUE}
    scene.leave("middle")
    scene.run()
    assert scene.running() == {"top"}


def test_restarted_scheduler_evicts_no_second_victim():
    scene = build_one_queue(nominal="100")
    scene.submit("low", 8, queue="q")
    scene.submit("other", 8, queue="q")
    scene.rack("r2", 2)
    scene.run()
    scene.submit("high", 8, queue="q", priority=1)
    scene.run()
    gone = scene.evicted()
    assert len(gone) == 1
    scene.cycle = type(scene.cycle)(scene.state, scene.cycle._passes._profiles)
    assert get_victims(scene.run()["high"]) == {}
    scene.leave(gone.pop())
    scene.run()
    assert "high" in scene.running()


def test_a_victim_that_could_not_be_evicted_is_asked_again():
    scene = build_one_queue()
    scene.submit("low", 8, queue="q")
    scene.run()
    scene.submit("high", 8, queue="q", priority=1)
    (verdict,) = scene.verdicts()
    assert get_victims(verdict.outcome) == {"low": REASON_IN_QUEUE}
    assert scene.verdicts() == []
    scene.cycle.exclude_victim("ns/low")
    (verdict,) = scene.verdicts()
    assert get_victims(verdict.outcome) == {"low": REASON_IN_QUEUE}


# --- in a cohort ------------------------------------------------------------------------------------------


def build_two_queues(**preemption: object) -> Shared:
    scene = Shared()
    scene.rack("r1", 10)
    scene.pool("mine", "4", "c", preemption=preemption or ALL_MAY)
    scene.pool("theirs", "4", "c")
    return scene


def test_unused_quota_is_lent_within_the_cohort():
    scene = build_two_queues()
    scene.submit("big", 8, queue="theirs")
    scene.run()
    assert scene.running() == {"big"}
    scene.submit("more", 1, queue="theirs")
    assert get_refusals(scene.run())["more"].reason == REASON_WAITING_FOR_QUOTA


def test_borrowed_quota_is_reclaimed_by_the_queue_that_owns_it():
    scene = build_two_queues()
    scene.submit("kept", 4, queue="theirs", priority=9)
    scene.run()
    scene.submit("borrowed", 4, queue="theirs", priority=9)
    scene.run()
    scene.submit("owner", 4, queue="mine")
    assert get_victims(scene.run()["owner"]) == {"borrowed": REASON_RECLAIMED}


def test_workload_within_its_nominal_quota_is_not_reclaimed():
    scene = build_two_queues()
    scene.submit("kept", 4, queue="theirs")
    scene.run()
    scene.submit("owner", 5, queue="mine")
    outcome = scene.run()["owner"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.preempting is None
    (shortage,) = list_shortages(outcome)
    assert (shortage.cohort, shortage.available, shortage.never_fits) == ("c", 4000, False)


def test_room_promised_beyond_a_queues_own_is_not_reclaimed_from_its_other_workloads():
    """Seed 2597: a promise that borrowed let each workload of its queue be evicted, and one job that came emptied the cluster."""
    scene = build_two_queues()
    scene.submit("kept", 4, queue="theirs")
    scene.run()
    scene.submit("waits", 2, queue="theirs")
    waiting, queues = scene.state.workloads.facts[f"{NAMESPACE}/waits"], scene.state.cluster_queues
    promised = find_admission(scene.state, waiting, queues["theirs"], STANDARD)
    assert isinstance(promised, Admissible)
    assert promised.borrows
    scene.submit("owner", 4, queue="mine")
    owner, plan = scene.state.workloads.facts[f"{NAMESPACE}/owner"], {each.pod_set: each.nodes for _, each in promised.placements}
    scene.state.reserve(waiting.key, promised.admission, plan)
    assert find_preemption(scene.state, owner, queues["mine"], STANDARD, ()) is None
    scene.state.drop_claims()
    assert isinstance(find_admission(scene.state, owner, queues["mine"], STANDARD), Admissible)
    scene.state.assume(waiting.key, promised.admission, plan)
    assert find_preemption(scene.state, owner, queues["mine"], STANDARD, ()) is not None, "it is admitted, and borrows"


def test_refusal_names_quota_that_other_queues_have_borrowed():
    scene = build_two_queues(reclaimWithinCohort="LowerPriority")
    scene.submit("borrowed", 8, queue="theirs", priority=1)
    scene.run()
    scene.submit("equal", 3, queue="mine", priority=1)
    outcome = scene.run()["equal"]
    assert isinstance(outcome, NotAdmissible)
    (shortage,) = list_shortages(outcome)
    assert (shortage.used, shortage.nominal, shortage.cohort, shortage.available) == (0, 4000, "c", 0)
    assert "borrowed 4" in outcome.message


def test_reclaiming_only_lower_priorities():
    scene = build_two_queues(reclaimWithinCohort="LowerPriority")
    scene.submit("borrowed", 8, queue="theirs", priority=1)
    scene.run()
    scene.submit("equal", 4, queue="mine", priority=1)
    assert scene.evicted() == set()
    scene.submit("higher", 4, queue="mine", priority=2)
    assert get_victims(scene.run()["higher"]) == {"borrowed": REASON_RECLAIMED}


@pytest.mark.parametrize(("threshold", "goes"), [(None, True), (0, True), (-1, False)])
def test_a_borrower_may_preempt_only_below_a_threshold(threshold: int | None, goes: bool):
    borrowing = {"policy": "LowerPriority"} | ({} if threshold is None else {"maxPriorityThreshold": threshold})
    scene = build_two_queues(reclaimWithinCohort="LowerPriority", borrowWithinCohort=borrowing)
    scene.pool("third", "4", "c")
    scene.submit("low", 8, queue="theirs", priority=0)
    scene.run()
    scene.submit("big", 8, queue="mine", priority=1)
    outcome = scene.run()["big"]
    assert isinstance(outcome, NotAdmissible)
    assert (outcome.preempting is not None) == goes
    if goes:
        assert get_victims(outcome) == {"low": REASON_RECLAIMED_BY_BORROWER}


def test_reclaimed_quota_is_not_borrowed_again_by_a_higher_priority():
    """The borrower is before the owner in the queue: if it had its turn first, the two would go round for ever."""
    scene = build_two_queues()
    scene.submit("borrower", 8, queue="theirs", priority=9)
    scene.run()
    scene.submit("owner", 4, queue="mine")
    assert get_victims(scene.run()["owner"]) == {"borrower": REASON_RECLAIMED}
    scene.leave("borrower")
    scene.run()
    assert scene.running() == {"owner"}


def test_workload_at_its_borrowing_limit_reports_the_limit():
    scene = Shared()
    scene.rack("r1", 20)
    scene.pool("limited", "4", "c", borrowingLimit="2")
    scene.pool("lender", "10", "c")
    scene.submit("six", 6, queue="limited")
    scene.run()
    scene.submit("one", 1, queue="limited")
    (shortage,) = list_shortages(get_refusals(scene.run())["one"])
    assert (shortage.wanted, shortage.available, shortage.used, shortage.nominal) == (1000, 0, 6000, 4000)
    assert shortage.limit == (None, 2000)


def test_limits_of_borrowing_and_lending():
    scene = Shared()
    scene.rack("r1", 20)
    scene.pool("limited", "4", "c", borrowingLimit="2")
    scene.pool("lender", "10", "c", lendingLimit="5")
    scene.submit("seven", 7, queue="limited")
    (shortage,) = list_shortages(get_refusals(scene.run())["seven"])
    assert (shortage.never_fits, shortage.potential, shortage.limit) == (True, 6000, (None, 2000))
    scene.submit("six", 6, queue="limited")
    scene.run()
    assert scene.running() == {"six"}
    scene.submit("own", 10, queue="lender")
    assert "own" in get_refusals(scene.run())
    scene.finish("six")
    scene.run()
    assert scene.running() == {"own"}


def test_a_cohort_of_cohorts():
    scene = Shared()
    scene.rack("r1", 20)
    scene.cohort("left", "root")
    scene.cohort("right", "root", nominal="3")
    scene.pool("a", "4", "left")
    scene.pool("b", "4", "right")
    scene.submit("eleven", 11, queue="a")
    scene.run()
    assert scene.running() == {"eleven"}
    assert scene.used("a") == 11000
    scene.finish("eleven")
    scene.submit("twelve", 12, queue="a")
    (shortage,) = list_shortages(get_refusals(scene.run())["twelve"])
    assert (shortage.never_fits, shortage.potential, shortage.cohort, shortage.limit) == (True, 11000, "left", None)


@pytest.mark.parametrize("sharing", [None, FairSharing()])
def test_chain_of_1000_cohorts_lends_and_is_reclaimed_from(sharing: FairSharing | None):
    """Found by an attack: a RecursionError made each workload of such a chain `Misconfigured`."""
    scene = Shared(sharing=sharing)
    scene.rack("r1", 2)
    for i in range(1_000):
        scene.cohort(f"c{i}", f"c{i + 1}")
    scene.pool("a", "1", "c0")
    scene.pool("b", "4", "c1000", preemption={"reclaimWithinCohort": "Any"})
    scene.submit("borrows", 4, queue="a")
    scene.run()
    assert scene.running() == {"borrows"}
    scene.submit("reclaims", 4, queue="b")
    assert get_refusals(scene.run())["reclaims"].preempting is not None


def test_cycle_of_cohorts_admits_no_workload():
    scene = Shared()
    scene.rack("r1", 1)
    scene.cohort("left", "right")
    scene.cohort("right", "left")
    scene.pool("a", "4", "left")
    scene.submit("w", 1, queue="a")
    assert "inactive" in get_refusals(scene.run())["w"].message
    scene.cohort("right")
    scene.run()
    assert scene.running() == {"w"}


# --- flavors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "flavor"), [("MayStopSearch", "tas"), ("TryNextFlavor", "spare")])
def test_borrowing_or_the_next_flavor(policy: str, flavor: str):
    scene = Shared()
    scene.rack("r1", 4, kind="old")
    scene.flavor("spare", "t")
    scene.pool("lender", "4", "c")
    quotas = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": quota}]} for name, quota in (("tas", "1"), ("spare", "4"))]
    scene.queue(
        "q",
        {},
        cohortName="c",
        resourceGroups=[{"coveredResources": ["cpu"], "flavors": quotas}],
        flavorFungibility={"whenCanBorrow": policy},
    )
    scene.local_queue("q", "q")
    scene.submit("w", 3, queue="q", topology={"required": RACK})
    outcome = scene.run()["w"]
    assert not isinstance(outcome, NotAdmissible), outcome.message
    assert outcome.admission.pod_sets[0].flavors == {"cpu": flavor}


def build_two_flavors(**spec: object) -> Shared:
    """`tas` is full of what may be preempted, `spare` is free."""
    scene = Shared()
    scene.rack("r1", 1, kind="old")
    scene.flavor("spare", "t")
    quotas = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": quota}]} for name, quota in (("tas", "3"), ("spare", "1"))]
    scene.queue("q", {}, resourceGroups=[{"coveredResources": ["cpu"], "flavors": quotas}], preemption=LOWER, **spec)
    scene.local_queue("q", "q")
    scene.submit("low", 3, queue="q")
    scene.run()
    scene.submit("high", 1, queue="q", priority=1)
    return scene


def test_the_next_flavor_comes_before_preemption():
    outcome = build_two_flavors().run()["high"]
    assert not isinstance(outcome, NotAdmissible)
    assert outcome.admission.pod_sets[0].flavors == {"cpu": "spare"}


def test_unless_the_queue_says_to_stop_where_preemption_helps():
    outcome = build_two_flavors(flavorFungibility={"whenCanPreempt": "MayStopSearch"}).run()["high"]
    assert get_victims(outcome) == {"low": REASON_IN_QUEUE}
    assert isinstance(outcome, NotAdmissible)
    (shortage,) = list_shortages(outcome)
    assert (shortage.flavor, shortage.wanted - shortage.available) == ("tas", 1000)


def test_small_workload_goes_rather_than_a_large_one_that_began_last():
    """The one that began last counted as no work lost, whatever its size."""
    scene = build_one_queue()
    for name, count in (("small", 1), ("large", 7)):
        scene.submit(name, count, queue="q")
        scene.run()
    scene.submit("urgent", 1, queue="q", priority=1)
    assert get_victims(scene.run()["urgent"]) == {"small": REASON_IN_QUEUE}


def test_preemptor_with_a_failed_verdict_write_requests_its_victims_again():
    scene = build_one_queue()
    scene.submit("low", 8, queue="q", priority=0)
    scene.run()
    scene.submit("high", 8, queue="q", priority=1)
    assert [get_victims(verdict.outcome) for verdict in scene.verdicts()] == [{"low": REASON_IN_QUEUE}]
    scene.cycle.requeue_workload("uid-high")  # the write of its verdict failed, and nobody was told to go
    assert [get_victims(verdict.outcome) for verdict in scene.verdicts()] == [{"low": REASON_IN_QUEUE}]


def test_victim_of_a_deleted_preemptor_may_be_preempted_by_another():
    scene = build_one_queue()
    scene.submit("low", 8, queue="q", priority=0)
    scene.run()
    scene.submit("high", 8, queue="q", priority=1)
    scene.verdicts()  # not written: it is deleted before that
    scene.delete("high")
    scene.submit("other", 4, queue="q", priority=1)
    assert get_victims(scene.run()["other"]) == {"low": REASON_IN_QUEUE}


def test_preemptor_moved_to_another_queue_reserves_nothing_in_its_former_queue():
    scene = build_one_queue()
    scene.pool("elsewhere", "0")
    scene.submit("low", 8, queue="q", priority=0)
    scene.run()
    scene.submit("high", 8, queue="q", priority=1)
    scene.run()
    scene.submit("small", 1, queue="q", priority=0)
    scene.run()
    scene.submit("high", 8, queue="elsewhere", priority=1)
    scene.delete("low")
    for _ in range(2):
        scene.run()
    assert "small" in scene.running()


# --- how long it takes ----------------------------------------------------------------------------------


def build_crowded_scene(racks: int) -> Shared:
    """Racks of ten nodes, each taken by a workload of its own, whose names go from rack to rack; `urgent` needs one of them."""
    scene = Shared()
    scene.pool("q", "100000", preemption=ALL_MAY)
    for rack in range(racks):
        scene.rack(f"r{rack:02}", 10)
    for i in range(racks * 10):
        scene.submit(f"w{i % 10 * racks + i // 10:03}", 1, cpu="4", queue="q", topology=ANYWHERE)
    scene.run()
    assert len(scene.running()) == racks * 10
    scene.submit("urgent", 10, cpu="4", queue="q", priority=1)
    return scene


def test_preemption_among_many_candidates_tries_many_at_once(monkeypatch: pytest.MonkeyPatch):
    scene, trials = build_crowded_scene(30), Counter[str]()

    def counting(*asked: Any) -> Admissible | NotAdmissible:
        trials["all"] += 1
        return find_admission(*asked)

    monkeypatch.setattr(victim_search, "find_admission", counting)
    assert len(get_victims(scene.run()["urgent"])) == 10
    assert trials["all"] < 450  # one after the other they were 541


@pytest.mark.parametrize("steps", [1, 2_000, 10_000])
def test_preemption_without_steps_left_evicts_the_best_set_so_far(steps: int, monkeypatch: pytest.MonkeyPatch):
    scene = build_crowded_scene(30)
    monkeypatch.setattr(judge, "PREEMPTION_STEPS", steps)
    outcome = scene.run()["urgent"]
    assert isinstance(outcome, NotAdmissible)
    gone = get_victims(outcome)
    assert len(gone) >= 10
    assert outcome.preempting is not None
    assert outcome.preempting.is_cut
    assert "limit of steps" in outcome.message
    for name in gone:
        scene.leave(name)
    assert isinstance(scene.run()["urgent"], Admissible)
    assert scene.state.ledger.find_drift() == {}


def test_of_too_many_candidates_those_of_the_lowest_priority_are_looked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preemption_policy, "MOST_CANDIDATES", 12)
    scene = build_crowded_scene(3)
    for i in range(10):
        scene.submit(f"z{i}", 1, cpu="4", queue="q", priority=-1, topology=ANYWHERE)
        scene.rack(f"late{i}", 1)
    scene.run()
    scene.submit("one", 1, cpu="4", queue="q", priority=2)
    outcome = scene.run()["one"]
    assert set(get_victims(outcome)) <= {f"z{i}" for i in range(10)}


def test_preemption_without_steps_left_says_that_it_stopped(monkeypatch: pytest.MonkeyPatch):
    """Without a victim among those that were judged there may be others: the search was not ended."""
    monkeypatch.setattr(preemption_policy, "MOST_CANDIDATES", 3)
    scene = build_crowded_scene(1)
    scene.submit("all", 10, cpu="4", queue="q", priority=2)
    outcome = scene.run()["all"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.preempting is None
    assert "limit of steps" in outcome.message


def test_fewest_victims_are_found_where_part_of_a_pod_is_free_beside_them():
    """Two racks are full of candidates of one GPU, the third has a few on each node: what is free there was not counted."""
    scene = build(48, times=10)
    for number in range(2 * RACK_NODES * GPUS + 36):
        submit(scene, f"candidate-{number:03}", 1, 1, queue="mine", required=False)
    scene.run()
    submit(scene, "rack", RACK_NODES, GPUS, queue="mine", priority=5)
    (verdict,) = scene.verdicts()
    assert isinstance(verdict.outcome, NotAdmissible)
    assert verdict.outcome.preempting is not None
    assert len(verdict.outcome.preempting.victims) == 36

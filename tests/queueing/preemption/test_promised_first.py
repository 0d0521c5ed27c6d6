"""By fair share the queue of a workload that waits until an evicted one is gone comes first (`core.queueing.ordering.fair_order`)."""

from __future__ import annotations

import pytest

from core.model.configuration import FairSharing
from core.names import REASON_PENDING_EVALUATION
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.queue_facts import LocalQueueFacts
from tests.builders import NAMESPACE, build_condition_json, build_local_queue_json
from tests.queueing.scene import get_refusals, list_admitted
from tests.queueing.shared import Shared


def test_queue_of_a_workload_that_waits_for_an_evicted_one_comes_before_a_queue_with_a_lower_share():
    scene = Shared(sharing=FairSharing())
    scene.rack("r", 2)
    scene.pool("lender", "99", "cohort")
    scene.pool("a", "0", "cohort", preemption={"withinClusterQueue": "LowerPriority"})
    scene.pool("b", "99", "cohort")
    scene.submit("low", 4, cpu="1", queue="a", priority=0)
    scene.run()
    scene._write("low", build_condition_json("Evicted", time=scene.now))
    scene.submit("next", 8, cpu="1", queue="a", priority=9)
    scene.run()
    assert scene.cycle._claims.find_preempting("uid-next") is not None
    assert not scene.cycle._claims.is_preemptor("uid-next")
    scene.submit("small", 4, cpu="1", queue="b")
    assert isinstance(scene.run()["small"], NotAdmissible)
    scene.leave("low")
    assert isinstance(scene.run()["next"], Admissible)


def test_workload_that_saw_room_as_taken_is_asked_again_once_the_claim_without_victims_ends_in_the_round():
    """The victims have been told before, so that the claim names those that leave only."""
    scene = Shared()
    scene.rack("r", 4)
    scene.pool("slow", "99", preemption={"withinClusterQueue": "LowerPriority"})
    scene.pool("quick", "99")
    scene.submit("low", 8, cpu="1", queue="slow", priority=0)
    scene.run()
    scene.submit("next", 16, cpu="1", queue="slow", priority=9)
    scene.run()
    scene.run()
    claim = scene.cycle._claims.find_preempting("uid-next")
    assert claim is not None
    assert claim.victims == ()
    assert scene.cycle._claims.is_preemptor("uid-next")
    scene.pool("slow", "8", preemption={"withinClusterQueue": "LowerPriority"})
    scene.submit("small", 8, cpu="1", queue="quick", priority=10)
    scene.submit("last", 99, cpu="1", queue="quick")
    assert [verdict.workload.key for verdict in scene.cycle.run(lambda: False, is_busy=lambda uid: uid == "uid-next")] == ["ns/small"]
    found = list(scene.cycle.run())
    while scene.cycle.is_cut or scene.cycle.wants_more:
        found += scene.cycle.run()
    assert "ns/small" in {verdict.workload.key for verdict in found if isinstance(verdict.outcome, Admissible)}


@pytest.mark.parametrize("stopped", ["queue", "local queue"])
def test_room_promised_to_a_workload_of_a_stopped_queue_is_for_others(stopped: str):
    """Nothing else could have it as long as the queue was stopped."""
    scene = Shared()
    scene.rack("r1", 2)
    for name in "pq":
        scene.pool(name, "4", "c", preemption={"withinClusterQueue": "LowerPriority"})
    loose = {"unconstrained": True}
    scene.submit("low", 4, queue="q", topology=loose)
    scene.submit("first", 4, queue="p", topology=loose)
    scene.run()
    scene.submit("high", 4, queue="q", priority=1, topology=loose)
    outcome = scene.run()["high"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.preempting is not None
    if stopped == "queue":
        scene.pool("q", "4", "c", preemption={"withinClusterQueue": "LowerPriority"}, stopPolicy="Hold")
    else:
        wire = build_local_queue_json("q", "q")
        wire["spec"]["stopPolicy"] = "Hold"
        scene.state.observe_local_queue(f"{NAMESPACE}/q", LocalQueueFacts.read(wire))
    scene.delete("low")
    scene.delete("first")
    scene.submit("other", 8, queue="p", topology=loose)
    scene.run()
    scene.run()
    assert scene.state.workloads.find_holding(f"{NAMESPACE}/other") is not None


def test_preemptor_behind_a_new_head_of_its_strict_queue_is_told_so_and_preempts_again_at_the_head():
    """Found by the simulation (seed 18): it went on saying that it waited for an evicted workload, also when that was gone."""
    scene = Shared()
    scene.rack("r", 1)
    scene.pool("q", "99", queueingStrategy="StrictFIFO", preemption={"withinClusterQueue": "LowerPriority"})
    scene.submit("low", 4, cpu="1", queue="q", priority=0)
    scene.run()
    scene.submit("next", 4, cpu="1", queue="q", priority=5)
    scene.run()
    assert scene.evicted() == {"low"}
    scene.submit("large", 9, cpu="1", queue="q", priority=9)
    refusals = get_refusals(scene.run())
    assert (refusals["next"].reason, "before this one" in refusals["next"].message) == (REASON_PENDING_EVALUATION, True)
    scene.leave("low")
    assert set(scene.run()) <= {"large", "low"}, "nothing has changed for the one that is behind"
    scene.delete("large")
    assert list_admitted(scene.run()) == {"next"}

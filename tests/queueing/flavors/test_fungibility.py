"""Preemption where a queue has several flavors, or could borrow instead (ClusterQueue, spec.flavorFungibility)."""

from __future__ import annotations

import pytest

from core.names import HOSTNAME_LABEL, REASON_IN_QUEUE, REASON_RECLAIMED
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.queue_facts import ClusterQueueFacts
from tests.builders import RACK, Node
from tests.queueing.shared import Shared, get_victims

LOWER = {"withinClusterQueue": "LowerPriority"}


@pytest.mark.parametrize("preference", ["BorrowingOverPreemption", "PreemptionOverBorrowing"])
def test_borrowing_or_preemption_where_every_flavor_has_its_price(preference: str):
    scene = Shared()
    scene.rack("r1", 4)
    scene.pool("lender", "4", "c")
    fungibility = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": preference}
    scene.pool("q", "4", "c", preemption=LOWER, flavorFungibility=fungibility)
    scene.submit("low", 4, queue="q")
    scene.run()
    scene.submit("high", 4, queue="q", priority=1)
    outcome = scene.run()["high"]
    if preference == "BorrowingOverPreemption":
        assert not isinstance(outcome, NotAdmissible)
        assert outcome.borrows
    else:
        assert get_victims(outcome) == {"low": REASON_IN_QUEUE}


@pytest.mark.parametrize("fungibility", [{"whenCanBorrow": "MayStopSearch"}, {"whenCanPreempt": "MayStopSearch"}])
def test_preference_for_preemption_counts_only_where_the_next_flavor_is_tried_in_both_cases(fungibility: dict[str, str]):
    scene = Shared()
    scene.rack("r1", 4)
    scene.pool("lender", "4", "c")
    both = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": "PreemptionOverBorrowing"}
    scene.pool("q", "4", "c", preemption=LOWER, flavorFungibility=both | fungibility)
    scene.submit("low", 4, queue="q")
    scene.run()
    scene.submit("high", 4, queue="q", priority=1)
    outcome = scene.run()["high"]
    assert isinstance(outcome, Admissible)
    assert outcome.borrows


def test_queue_that_borrows_of_one_flavor_keeps_its_own_of_another():
    """The workload in its own quota was the victim: it started last, and its queue used more than its own of the other flavor."""
    scene = Shared()
    for number, kind in enumerate("xy"):
        name = f"n{number}"
        scene.flavor(f"f{number}", "t", nodeLabels={"kind": kind})
        scene.node(Node(name, {RACK: f"r{number}", HOSTNAME_LABEL: name, "kind": kind}, {"cpu": 4000, "pods": 20}))
    for queue, nominal in (("a", {"f0": "0", "f1": "4"}), ("b", {"f1": "4", "f0": "4"})):
        flavors = [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": amount}]} for flavor, amount in nominal.items()]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups, "cohortName": "c", "preemption": {"reclaimWithinCohort": "Any"}}
        scene.state.observe_cluster_queue(queue, ClusterQueueFacts.read({"metadata": {"name": queue}, "spec": spec}))
        scene.local_queue(queue, queue)
    for name in ("borrows", "owns"):
        scene.submit(name, 4, queue="a", topology={"unconstrained": True})
        scene.run()
    assert scene.running() == {"borrows", "owns"}
    scene.submit("reclaims", 4, queue="b", topology={"unconstrained": True})
    assert get_victims(scene.run()["reclaims"]) == {"borrows": REASON_RECLAIMED}

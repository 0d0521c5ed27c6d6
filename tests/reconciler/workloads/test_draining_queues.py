"""Workloads of a queue that is drained, on an API server in memory: all are evicted, however many and whatever becomes of one."""

from __future__ import annotations

import pytest

from core.names import EVICTED
from core.runtime.controller import Done, Result
from core.runtime.http.errors import Forbidden
from core.runtime.workqueue import Item
from core.state.facts import is_condition_true
from sim.apiserver.server import Refused, Request
from tests.reconciler.harness_queues import QueuesHarness

NAMES = ("w0", "w1", "w2", "w3")


@pytest.fixture
def harness() -> QueuesHarness:
    """Four workloads run."""
    harness = QueuesHarness()
    for name in NAMES:
        harness.workload(name, count=1, owner=None)
    harness.decide()
    harness.queue({"gpu": "10"}, stopPolicy="HoldAndDrain")
    return harness


def reconcile(harness: QueuesHarness) -> Result:
    results = list[Result]()

    async def reconcile() -> None:
        results.append(await harness.queues._reconcile(Item(("clusterqueues", "cq"), frozenset(), 0.0)))

    harness.wait_for(reconcile())
    return results[0]


def list_evicted(harness: QueuesHarness) -> list[str]:
    return sorted(each["metadata"]["name"] for each in harness.all("Workload") if is_condition_true(each, EVICTED))


def test_all_workloads_of_a_drained_queue_are_evicted_by_one_plan(harness: QueuesHarness):
    assert reconcile(harness) == Done()
    assert list_evicted(harness) == list(NAMES)
    assert harness.get("ClusterQueue", "cq")["status"]["reservingWorkloads"] == 4


def test_workload_that_cannot_be_evicted_holds_up_no_other_and_no_status(harness: QueuesHarness):
    """By a review: one that was too large for another condition kept all behind it running in a queue that others share."""

    def refuse(request: Request) -> None:
        if request.name == "w0":
            raise Refused(403, "Forbidden", "too large")

    harness.on_write = refuse
    with pytest.raises(Forbidden):
        reconcile(harness)
    assert list_evicted(harness) == ["w1", "w2", "w3"]
    assert harness.get("ClusterQueue", "cq")["status"]["reservingWorkloads"] == 4

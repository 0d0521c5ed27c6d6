"""A queue or cohort that is deleted while its status is computed."""

from __future__ import annotations

import pytest

from core.plan.steps import pacing
from core.runtime.controller import Done, Result
from core.runtime.workqueue import Item
from reconciler.workloads.queues import Queues
from tests.reconciler.harness_queues import QueuesHarness


def test_queue_that_is_deleted_while_it_is_counted_is_not_reported_on(monkeypatch: pytest.MonkeyPatch):
    """Former defect: `KeyError` with a traceback, again at each attempt. Nothing is read before all is counted now."""
    harness = QueuesHarness()
    under_test = Queues(harness.observed, harness.executor, harness.clock, shares_fairly=True)
    for name in ("w0", "w1"):
        harness.workload(name, count=1, owner=None)
    harness.decide()
    monkeypatch.setattr(pacing, "QUEUES_COUNTED", 1)
    counted = list[int]()

    async def delete_meanwhile(_: float) -> None:
        counted.append(1)
        if len(counted) == 1:
            harness.drop("ClusterQueue", "cq")
            harness.observed.state.refresh()

    monkeypatch.setattr(harness.clock, "sleep", delete_meanwhile)
    results = list[Result]()

    async def reconcile() -> None:
        results.append(await under_test._reconcile(Item(("clusterqueues", "cq"), frozenset(), 0.0)))

    harness.wait_for(reconcile())
    assert results == [Done()]
    assert len(counted) == 2, "all that hold its quota are counted"
    assert under_test._counted == {}, "nothing is remembered of it"
    assert [request for request in harness.writes if request.kind.kind == "ClusterQueue"] == []


def test_deleted_cohort_has_no_share():
    harness = QueuesHarness()
    share = harness.observed.state.quota.compute_cohort_share("gone")
    assert share.weighted == 0

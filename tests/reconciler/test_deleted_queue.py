"""A queue or cohort that is deleted while its status is computed."""

from __future__ import annotations

from typing import Any

import pytest

from core.resource import Obj, Resource
from core.runtime.controller import Done
from core.runtime.workqueue import Item
from reconciler.queues import Queues
from tests.reconciler.harness_queues import QueuesHarness


async def test_deleted_queue_under_fair_sharing_is_reconciled_without_error(monkeypatch: pytest.MonkeyPatch):
    """Found defect E22: `KeyError` with a traceback, again at each attempt."""
    harness = QueuesHarness()
    queues = Queues(harness.observed, harness.executor, harness.clock, shares_fairly=True)
    written: list[dict[str, Any]] = []

    async def delete_meanwhile(*_: Any) -> str:
        harness.drop("ClusterQueue", "cq")
        harness.observed.state.refresh()
        return ""

    async def write(resource: Resource, obj: Obj, status: dict[str, Any]) -> None:
        written.append(status)

    monkeypatch.setattr(queues, "_hold", delete_meanwhile)
    monkeypatch.setattr(queues, "_write", write)
    assert await queues._reconcile(Item(("clusterqueues", "cq"), frozenset(), 0.0)) == Done()
    (status,) = written
    assert status["fairSharing"] == {"weightedShare": 0}


def test_deleted_cohort_has_no_share():
    harness = QueuesHarness()
    share = harness.observed.state.quota.cohort_share("gone")
    assert share.weighted == 0

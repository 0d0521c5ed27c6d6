"""Of many queues at the start each is looked at, and none because of another: else a thousand would cost a million entries."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from core.runtime.workqueue import WorkQueue
from reconciler.workloads.queues import Queues
from tests.reconciler.harness_queues import QueuesHarness

MANY = 50


def test_at_the_start_each_is_put_in_line_once_and_later_a_change_of_one_looks_at_all(monkeypatch: pytest.MonkeyPatch):
    harness = QueuesHarness()
    for number in range(MANY):
        harness.put({"kind": "LocalQueue", "metadata": {"name": f"q{number}"}, "spec": {"clusterQueue": "cq"}})
    put: Counter[Any] = Counter()
    monkeypatch.setattr(WorkQueue, "add_after", lambda self, key, delay, reason="": put.update([key]))
    Queues(harness.observed, harness.executor, harness.clock)
    everything = {("localqueues", f"ns/q{number}") for number in range(MANY)} | {
        ("localqueues", "ns/main"),
        ("clusterqueues", "cq"),
        ("resourceflavors", "gpu"),
        ("topologies", "t"),
    }
    assert put.keys() == everything
    assert {key: count for key, count in put.items() if key[0] == "localqueues" and count > 1} == {}
    put.clear()
    harness.put({"kind": "LocalQueue", "metadata": {"name": "q1"}, "spec": {"clusterQueue": "another"}})
    assert put.keys() >= everything

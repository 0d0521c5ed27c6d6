"""Two decisions on a workload may be closer to each other than a write is to its watch event: the second stands on the first."""

from __future__ import annotations

import pytest

from core.names import MANAGER_ADMISSION, QUOTA_RESERVED
from tests.reconciler.harness_queues import QueuesHarness


class LateHarness(QueuesHarness):
    """The watch of Workloads tells nothing before `catch_up` is called."""

    def reserved(self, name: str) -> str:
        return str(self.find_condition(QUOTA_RESERVED, name)["status"])

    def submit(self) -> None:
        """A Workload that is observed, and nothing of it from then on."""
        self.queue({"gpu": "1"})
        self.workload("train", count=4, owner=None)
        self.late.add("Workload")
        self.decide()
        assert self.reserved("train") == "False"

    @property
    def verdicts(self) -> int:
        """How many were written."""
        return sum(request.params.get("fieldManager") == MANAGER_ADMISSION for request in self.writes)


@pytest.fixture
def harness() -> LateHarness:
    return LateHarness()


def test_refused_workload_is_admitted_before_the_watch_shows_the_refusal(harness: LateHarness):
    harness.submit()
    harness.queue({"gpu": "10"})
    harness.decide()
    assert harness.reserved("train") == "True"
    assert harness.verdicts == 2


def test_change_by_others_after_a_write_voids_the_decision(harness: LateHarness):
    harness.submit()
    train = harness.get("Workload", "train")
    harness.put({**train, "spec": {**train["spec"], "active": False}})
    harness.queue({"gpu": "10"})
    harness.decide()
    assert harness.reserved("train") == "False"
    assert harness.verdicts == 1
    harness.catch_up()
    harness.decide()
    assert harness.reserved("train") == "False", "it is not active"

"""Two decisions on a workload may be closer to each other than a write is to its watch event: the second write stands on the first."""

from __future__ import annotations

import pytest

from core.names import MANAGER_ADMISSION, QUOTA_RESERVED
from tests.reconciler.harness_queues import QueuesHarness


class LateHarness(QueuesHarness):
    """What is written of Workloads is observed only when `catch_up` is called."""

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


def test_who_has_just_been_told_to_wait_is_admitted_before_that_is_seen(harness: LateHarness):
    harness.submit()
    harness.queue({"gpu": "10"})
    harness.decide()
    assert harness.reserved("train") == "True"
    assert harness.verdicts == 2


def test_what_others_wrote_after_our_write_voids_the_decision(harness: LateHarness):
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


def test_what_is_seen_takes_the_place_of_a_reply_as_old_or_older(harness: LateHarness):
    harness.submit()
    replies, written = harness.scheduler._verdicts.replies, harness.get("Workload", "train")["metadata"]["resourceVersion"]

    def latest() -> str:
        return str((replies.latest("ns/train") or {"metadata": {}})["metadata"].get("resourceVersion"))

    assert latest() == written
    known = harness.observed.workloads.store.get("ns/train")
    assert known is not None
    harness.observed.workloads.put({**known, "kind": "Workload"})
    assert latest() == written, "an older one does not"
    harness.catch_up()
    assert replies._kept == {}
    assert latest() == written, "seen by now"
    harness.drop("Workload", "train")
    assert replies.latest("ns/train") is None


def test_another_of_its_name_is_not_what_was_written(harness: LateHarness):
    harness.submit()
    replies, reply = harness.scheduler._verdicts.replies, harness.get("Workload", "train")
    harness.late.clear()
    harness.drop("Workload", "train")
    assert replies.latest("ns/train") is None
    harness.put({**reply, "metadata": {**reply["metadata"], "uid": "uid-another"}})
    replies.keep(reply)
    latest = replies.latest("ns/train")
    assert latest is not None
    assert latest["metadata"]["uid"] == "uid-another"

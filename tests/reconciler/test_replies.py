"""Two decisions on a workload may be closer to each other than a write is to its watch event: the second write stands on the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from core.names import QUOTA_RESERVED
from core.runtime.errors import Conflict
from core.runtime.resource import Obj
from core.runtime.watch_step import Applied, Deleted
from core.state.facts import find_condition
from tests.builders import cluster_queue_json
from tests.reconciler.paper_queues import QueuesPaper


class LatePaper(QueuesPaper):
    """What is written is there at once and is seen only when `catch_up` is called; a write on an older version fails."""

    def __init__(self) -> None:
        self.late: list[Obj] = []
        self.conflicts = 0
        super().__init__()

    async def apply_admission(self, workload: Obj, status: Mapping[str, Any], *, strict: bool) -> Obj:
        metadata = workload["metadata"]
        there = self._whole["Workload", f"ns/{metadata['name']}"]
        if strict and there["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            self.conflicts += 1
            raise Conflict(409, "Conflict", "the object has been modified")
        return self.write({**there, "status": dict(status)})

    def write(self, obj: Obj) -> Obj:
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(self._versions))}}
        self._whole["Workload", f"ns/{obj['metadata']['name']}"] = stored
        self.late.append(stored)
        return stored

    def catch_up(self) -> None:
        for obj in self.late:
            self.observed.workloads._fold(Applied(obj))
        self.late.clear()

    def reserved(self, name: str) -> str:
        return str((find_condition(self.get("Workload", name), QUOTA_RESERVED) or {})["status"])


@pytest.fixture
def paper() -> LatePaper:
    return LatePaper()


def put_queue(paper: QueuesPaper, quota: int) -> None:
    paper.put({"kind": "ClusterQueue", **cluster_queue_json("cq", {"gpu": str(quota)})})


def test_who_has_just_been_told_to_wait_is_admitted_before_that_is_seen(paper: LatePaper):
    put_queue(paper, 1)
    paper.workload("train", count=4, owner=None)
    paper.decide()
    assert paper.reserved("train") == "False"
    put_queue(paper, 10)
    paper.decide()
    assert paper.reserved("train") == "True"
    assert paper.conflicts == 0


def test_what_others_wrote_after_our_write_voids_the_decision(paper: LatePaper):
    put_queue(paper, 1)
    train = paper.workload("train", count=4, owner=None)
    paper.decide()
    paper.write({**paper.get("Workload", "train"), "spec": {**train["spec"], "active": False}})
    put_queue(paper, 10)
    paper.decide()
    assert paper.reserved("train") == "False"
    assert paper.conflicts == 1
    paper.catch_up()
    paper.decide()
    assert paper.reserved("train") == "False", "it is not active"


def test_what_is_seen_takes_the_place_of_a_reply_as_old_or_older(paper: LatePaper):
    put_queue(paper, 1)
    paper.workload("train", count=4, owner=None)
    paper.decide()
    replies = paper.scheduler._verdicts.replies
    (reply,) = paper.late
    assert replies.latest("ns/train") == reply
    paper.observed.workloads._fold(Applied({**paper.observed.workloads.store.get("ns/train"), "kind": "Workload"}))  # type: ignore[dict-item]
    assert replies.latest("ns/train") == reply, "an older one does not"
    paper.catch_up()
    assert replies._kept == {}
    assert replies.latest("ns/train") == reply, "seen by now"
    paper.observed.workloads._fold(Deleted(reply))
    assert replies.latest("ns/train") is None


def test_another_of_its_name_is_not_what_was_written(paper: LatePaper):
    put_queue(paper, 1)
    paper.workload("train", count=4, owner=None)
    paper.decide()
    replies = paper.scheduler._verdicts.replies
    (reply,) = paper.late
    other = {**reply, "metadata": {**reply["metadata"], "uid": "uid-another", "resourceVersion": "1000"}}
    paper.observed.workloads._fold(Deleted(reply))
    assert replies.latest("ns/train") is None
    paper.observed.workloads._fold(Applied(other))
    replies.keep(reply)
    assert replies.latest("ns/train") == other

"""Pods that nobody will ungate, on an API server in memory: each is told once why it waits and what would help, the others nothing."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.contract import Defaults
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.pod_parents import LeaderWorkerSet, StatefulSet
from core.names import (
    ADMISSION_GATE,
    JOB_UID_LABEL,
    MEMBER_OF_LABEL,
    PODGROUP_GATE,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
    SUSPENDING_PARENT,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from core.plan.steps import pacing
from core.runtime.workqueue import Item
from reconciler.pods.orphaned_gated_pods import Strangers
from sim.harness import Harness
from tests.runtime.fakes import ManualClock

Json = dict[str, Any]
KINDS = {kind.kind: kind for kind in list_pod_kinds()}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-job", "controller": True}
PARENT_LABELS = {
    f"leaderworkerset.sigs.k8s.io/{part}": value for part, value in (("name", "lws"), ("group-index", "0"), ("worker-index", "0"))
}


class Watched(Harness):
    """Strangers among pods are looked for."""

    clock: ManualClock

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.strangers = Strangers(self.observed, self.executor, self.clock)

    def look(self, name: str = "p") -> list[str]:
        """What is told of a pod by looking once more."""
        before = len(self.messages)
        self.wait_for(self.strangers._reconcile(Item(f"ns/{name}", frozenset(), 0.0)))
        return self.messages[before:]

    def look_at_pods(self) -> list[int]:
        """Adds the pods that name the Workload that is gone; how many were added at each turn of the event loop."""
        (item,) = (key for key in self.strangers._queue._state._entries if not isinstance(key, str))
        turns: list[int] = []
        sleep = self.clock.sleep

        async def count(seconds: float) -> None:
            turns.append(sum(isinstance(key, str) for key in self.strangers._queue._state._entries))
            await sleep(seconds)

        self.clock.sleep = count  # type: ignore[method-assign]
        self.wait_for(self.strangers._reconcile(Item(item, frozenset(), 0.0)))
        return turns

    def is_suspected(self, name: str = "p") -> bool:
        return f"ns/{name}" in self.strangers._queue._state._entries


@pytest.fixture
def harness() -> Watched:
    return Watched()


def gated(workload: str | None = None, owner: Json | None = None, gate: str = TOPOLOGY_GATE) -> Json:
    notes = {WORKLOAD_ANNOTATION: workload} if workload else {}
    metadata = {"name": "p", "annotations": notes, "labels": {PODSET_LABEL: "main"}, "ownerReferences": [owner] if owner else []}
    return {"kind": "Pod", "metadata": metadata, "spec": {"schedulingGates": [{"name": gate}]}}


def mark(pod: Json, **labels: str) -> Json:
    """The pod with these labels alone."""
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}


def queued(notes: Json, **labels: str) -> Json:
    metadata = {"name": "p", "labels": {QUEUE_NAME_LABEL: "main", **labels}, "annotations": notes}
    return KINDS["Pod"].default({"kind": "Pod", "metadata": metadata, "spec": {"containers": []}}, Defaults())


def build_workload(owner: Json | None = JOB, **labels: str) -> Json:
    metadata = {"name": "w", "labels": labels, "ownerReferences": [owner] if owner else []}
    return {"kind": "Workload", "metadata": metadata, "spec": {"podSets": [{"name": "main", "count": 1, "template": {}}]}}


STATEFUL, LEADER_WORKER = StatefulSet.name_on_pods, LeaderWorkerSet.name_on_pods
STRANGERS = {
    "names no Workload": gated(),
    "names one that is not there": gated("w-2"),
    "names that of another": gated("w"),
    "names that of a job that is gone": gated("orphan"),
    "is not queued": gated(gate=ADMISSION_GATE),
    "says it is of a StatefulSet": queued({SUSPENDING_PARENT: STATEFUL}),
    "says it is of none that is there": queued({SUSPENDING_PARENT: LEADER_WORKER}, **PARENT_LABELS),
}


def build_scene() -> Watched:
    """With a Workload of a job, and one of a job that is gone."""
    harness = Watched()
    harness.put(build_workload())
    orphan = build_workload(None, **{JOB_UID_LABEL: "uid-gone"})
    harness.put({**orphan, "metadata": {**orphan["metadata"], "name": "orphan"}})
    return harness


@pytest.mark.parametrize("case", STRANGERS)
def test_orphaned_gated_pod_gets_one_event(case: str):
    harness = build_scene()
    harness.put(STRANGERS[case])
    assert harness.is_suspected()
    assert len(harness.look()) == 1
    harness.clock.time += 3600
    assert harness.look() == []
    assert [(event.key, event.reason, event.type) for event in harness.events] == [("ns/p", "PodStaysGated", "Warning")]


def test_pod_that_requests_more_than_its_unowned_workload_reads_the_excess(harness: Watched):
    harness.put(build_workload(None))
    pod = gated("w")
    harness.put({**pod, "spec": {**pod["spec"], "containers": [{"resources": {"requests": {"cpu": "2"}}}]}})
    (message,) = harness.look()
    assert all(part in message for part in ("requests 2 cpu", "pod set main requests 0", "Workload w"))


@pytest.mark.parametrize(("label", "shown"), [("another", "'another'"), (None, "''")])
def test_gated_pod_with_unknown_pod_set_reads_the_pod_sets_of_its_workload(harness: Watched, label: str | None, shown: str):
    """Another webhook had changed the label; the pod stayed gated without an event."""
    harness.put(build_workload())
    harness.put(mark(gated("w", JOB), **({PODSET_LABEL: label} if label else {})))
    (message,) = harness.look()
    assert all(part in message for part in (f"no pod set {shown}", f"label {PODSET_LABEL}", "it has main"))


def test_pod_that_its_named_leader_worker_set_did_not_create_is_reported(harness: Watched):
    harness.put({"kind": "LeaderWorkerSet", "metadata": {"name": "lws", "uid": "uid-lws"}, "spec": {}})
    harness.put(queued({SUSPENDING_PARENT: LEADER_WORKER}, **PARENT_LABELS))
    (message,) = harness.look()
    assert "LeaderWorkerSet lws" in message


def test_gated_pod_with_a_workload_or_a_queue_gets_no_event(harness: Watched):
    harness.put(build_workload())
    for pod in (gated("w", JOB), queued({}), {**gated("none-such"), "status": {"phase": "Failed"}}):
        harness.put(pod)
        assert not harness.is_suspected()
        assert harness.look() == []


def test_a_pod_becomes_a_stranger_when_its_workload_goes(harness: Watched):
    harness.put(build_workload())
    harness.put(gated("w", JOB))
    harness.drop("Workload", "w")
    harness.look_at_pods()
    assert harness.is_suspected()
    assert len(harness.look()) == 1


def test_pods_of_workload_that_goes_are_added_in_portions(harness: Watched, monkeypatch: pytest.MonkeyPatch):
    """Found by an attack: 50,000 of them took 0.4 s of the event loop."""
    monkeypatch.setattr(pacing, "STRANGERS_AT_ONCE", 2)
    harness.put(build_workload())
    made = gated("w", JOB)
    names = [f"p{number}" for number in range(5)]
    for name in names:
        harness.put({**made, "metadata": {**made["metadata"], "name": name}})
    harness.drop("Workload", "w")
    assert not any(map(harness.is_suspected, names))
    queued_at = harness.look_at_pods()
    assert queued_at == [2, 4]
    assert all(map(harness.is_suspected, names))


def test_gated_pod_of_a_pod_group_that_does_not_exist_is_reported_until_there_is_one(harness: Watched):
    """Former defect: it waited without a word."""
    harness.put(mark(gated(gate=PODGROUP_GATE), **{MEMBER_OF_LABEL: "train"}))
    assert harness.is_suspected()
    (message,) = harness.look()
    assert "PodGroup train" in message
    assert harness.look() == []
    harness.put({"kind": "PodGroup", "metadata": {"name": "train"}, "spec": {}})
    harness.strangers._reported.clear()
    assert harness.look() == []

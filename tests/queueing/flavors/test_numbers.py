"""Numbers of workloads that wait, by which a lap knows those that have come since (`core.queueing.ordering.portions`)."""

from __future__ import annotations

from core.queueing.ordering.pending import Pending
from core.state.facts import WorkloadFacts
from tests.queueing.shared import Shared

UID = "uid-w0"


def test_workload_that_is_queued_at_another_time_has_another_number():
    scene = Shared()
    scene.pool("q", "1")
    pending = Pending(scene.state.workloads)
    for name in ("w0", "w1"):
        scene.submit(name, 9, cpu="1", queue="q", created="2026-01-01T00:00:00Z")
    pending.sync()
    before = pending.last_number
    scene.submit("w0", 9, cpu="1", queue="q", created="2026-01-01T00:00:05Z")
    pending.sync()
    assert pending.number_of(UID) == before + 1


def test_workload_that_is_moved_to_a_group_of_another_trait_keeps_its_number():
    scene, others = Shared(), set[str]()

    def find_trait(workload: WorkloadFacts) -> bool:
        return workload.uid in others

    scene.pool("q", "1")
    pending = Pending(scene.state.workloads, trait=find_trait)
    for name in ("w0", "w1"):
        scene.submit(name, 9, cpu="1", queue="q", created="2026-01-01T00:00:00Z")
    pending.sync()
    before = pending.number_of(UID), pending.last_number
    others.add(UID)
    pending.move_changed([UID])
    assert len(pending.list_classes()) == 2
    assert (pending.number_of(UID), pending.last_number) == before

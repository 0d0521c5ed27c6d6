"""The order of pending workloads that readers see is the one in which decisions consider them, whatever has changed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.queueing.cycle.queue_resolution import make_stop_check
from core.queueing.ordering import pending_order
from core.queueing.ordering.pending import Pending
from core.queueing.ordering.pending_order import PendingLists, PendingOrder, list_pending, list_pending_of_local_queue
from core.state.facts import WorkloadFacts
from tests.builders import NAMESPACE, build_condition_json, build_pod_set_json, build_workload_json
from tests.queueing.scene import Scene

QUEUES = {"a": "cq", "b": "cq", "c": "other", "d": "missing"}


def build_scene(*, strict: bool = False) -> tuple[Scene, PendingOrder, Pending]:
    scene = Scene(strict=strict)
    scene.queue("other", {"tas": "100"})
    for name, cluster_queue in QUEUES.items():
        scene.local_queue(name, cluster_queue)
    return scene, PendingOrder(scene.state, None, make_stop_check), Pending(scene.state.workloads)


def add(scene: Scene, name: str, queue: str = "a", priority: int = 0, second: int = 0, **options: object) -> None:
    created = f"2026-01-01T00:00:{second:02}Z"
    workload = build_workload_json(name, [build_pod_set_json()], queue=queue, priority=priority, created=created, **options)  # type: ignore[arg-type]
    scene.workload(workload)


def sync(order: PendingOrder) -> PendingLists:
    order.sync()
    while order.is_behind:
        order.sync()
    return order.lists


def list_expected(scene: Scene, pending: Pending, cluster_queue: str) -> list[tuple[str, int, int]]:
    """Brute force, by the order that cycles have: all that wait, one queue after the other, those of LocalQueues that admit none last."""
    pending.sync()
    is_stopped = make_stop_check(scene.state)
    counts: dict[str, int] = {}
    found: list[tuple[str, int, int]] = []
    for workload in sorted(pending, key=lambda workload: is_stopped(workload.queue)):
        queue = scene.state.find_cluster_queue(workload)
        if queue is not None and queue.name == cluster_queue:
            found.append((workload.key, len(found), counts.get(workload.queue, 0)))
            counts[workload.queue] = counts.get(workload.queue, 0) + 1
    return found


@pytest.mark.parametrize("strict", [False, True])
def test_pending_workloads_are_listed_by_priority_time_and_name(strict: bool):
    scene, order, pending = build_scene(strict=strict)
    add(scene, "late", second=9)
    add(scene, "same-second", second=1, queue="b")
    add(scene, "early", second=1)
    add(scene, "urgent", priority=7, second=30, queue="b")
    found = [(one.workload.key, one.in_cluster_queue, one.in_local_queue) for one in list_pending(sync(order), "cq")]
    names = [("urgent", 0, 0), ("early", 1, 0), ("same-second", 2, 1), ("late", 3, 1)]
    assert found == [(f"{NAMESPACE}/{name}", whole, local) for name, whole, local in names]
    assert found == list_expected(scene, pending, "cq")


def test_workloads_of_a_stopped_local_queue_are_listed_last_until_it_admits_again():
    scene, order, _ = build_scene()
    add(scene, "urgent", priority=7)
    add(scene, "other", queue="b")
    sync(order)
    scene.local_queue("a", "cq", "Hold")
    add(scene, "late", second=30)
    found = [(one.workload.key, one.in_cluster_queue, one.in_local_queue) for one in list_pending(sync(order), "cq")]
    assert found == [(f"{NAMESPACE}/{name}", *at) for name, *at in (("other", 0, 0), ("urgent", 1, 0), ("late", 2, 1))]
    scene.local_queue("a", "cq")
    assert [one.workload.key for one in list_pending(sync(order), "cq")] == [f"{NAMESPACE}/{name}" for name in ("urgent", "other", "late")]


def test_evicted_workload_is_listed_as_of_its_eviction():
    scene, order, _ = build_scene()
    add(scene, "first", second=1)
    add(scene, "second", second=2)
    add(scene, "first", second=1, version=2, conditions=[build_condition_json("Evicted", time="2026-01-01T00:01:00Z")])
    assert [one.workload.key for one in list_pending(sync(order), "cq")] == [f"{NAMESPACE}/second", f"{NAMESPACE}/first"]


def test_local_queue_without_a_cluster_queue_lists_nothing():
    scene, order, _ = build_scene()
    add(scene, "x", queue="d")
    add(scene, "y", queue="nowhere")
    for name in ("d", "nowhere"):
        assert list(list_pending_of_local_queue(sync(order), f"{NAMESPACE}/{name}")) == []
    scene.queue("missing", {"tas": "1"})
    assert [one.workload.key for one in list_pending_of_local_queue(sync(order), f"{NAMESPACE}/d")] == [f"{NAMESPACE}/x"]


def test_lists_of_a_reader_stay_as_they_are_while_workloads_come_and_go():
    scene, order, _ = build_scene()
    for number in range(30):
        add(scene, f"w{number:02}", second=number)
    before = list_pending(sync(order), "cq")
    first = next(before)
    for number in range(0, 30, 2):
        scene.state.observe_workload(f"{NAMESPACE}/w{number:02}", None)
    assert len(list(list_pending(sync(order), "cq"))) == 15
    assert [first.workload.key, *(one.workload.key for one in before)] == [f"{NAMESPACE}/w{number:02}" for number in range(30)]


def test_sync_folds_in_a_bounded_number_of_workloads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pending_order, "MOST_CHANGED", 3)
    scene, order, _ = build_scene()
    for number in range(7):
        add(scene, f"w{number}", second=number)
    seen = []
    for _ in range(3):
        order.sync()
        seen.append((len(list(list_pending(order.lists, "cq"))), order.is_behind))
    assert seen == [(3, True), (6, True), (7, False)]


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_pending_lists_equal_brute_force_after_any_changes(seed: int, steps: int):
    chance, (scene, order, pending) = random.Random(seed), build_scene()
    version = 1
    for _ in range(steps):
        version += 1
        match chance.randrange(8):
            case 0:
                scene.state.observe_workload(f"{NAMESPACE}/w{chance.randrange(12)}", None)
            case 1:
                policy = chance.choice(["None", "None", "Hold"])
                scene.local_queue(chance.choice("abcd"), chance.choice(["cq", "other", "missing"]), policy)
            case 2:
                scene.state.observe_cluster_queue("other", None)
            case 3:
                scene.queue("other", {"tas": "100"})
            case _:
                queue, active = chance.choice([*QUEUES, "nowhere"]), chance.random() < 0.9
                add(scene, f"w{chance.randrange(12)}", queue, chance.randrange(3), chance.randrange(4), version=version, active=active)
        if chance.random() < 0.4:
            order.sync()
    lists = sync(order)
    for name in ("cq", "other"):
        expected = list_expected(scene, pending, name)
        assert [(one.workload.key, one.in_cluster_queue, one.in_local_queue) for one in list_pending(lists, name)] == expected
        offset, limit = chance.randrange(5), chance.randrange(5)
        page = list_pending(lists, name, offset=offset, limit=limit)
        assert [(one.workload.key, one.in_cluster_queue, one.in_local_queue) for one in page] == expected[offset : offset + limit]
        for local_queue in {scene.state.workloads.facts[key].queue for key, _, _ in expected}:
            of_queue = [each for each in expected if is_of(scene.state.workloads.facts[each[0]], local_queue)]
            found = list_pending_of_local_queue(lists, local_queue, offset=offset, limit=limit)
            mine = [(one.workload.key, one.in_cluster_queue, one.in_local_queue) for one in found]
            assert mine == of_queue[offset : offset + limit]
    assert set(lists.by_cluster_queue) <= {"cq", "other"}
    assert all(lists.by_cluster_queue.values()), "no empty list is kept"


def is_of(workload: WorkloadFacts, local_queue: str) -> bool:
    return workload.queue == local_queue

"""SIGKILL of the reconciler between any two of its writes: what it left is taken up by the next, nothing is lost or doubled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.proxies.writes_proxy import Cut, WritesProxy
from e2e.topogate import Topogate
from tests.long import mark_long
from tests.reconciler.scenes import Scene

SEED = 20724
POINTS = 20
# A scene of two jobs takes at least this many writes; seeded points are spread over them.
WRITES_OF_A_SCENE = 23


@pytest.fixture(scope="module")
def scene(cluster: Cluster, topogate: Topogate, kubeconfig: Path) -> Iterator[Scene]:
    """Room for exactly the two jobs of a scene: a slot booked twice would show."""
    opened = Scene(cluster).open()
    topogate.kill_reconciler()
    topogate.start_reconciler(kubeconfig=kubeconfig)
    yield opened
    opened.close()


def _points() -> list[tuple[int, bool]]:
    chance = random.Random(SEED)
    return sorted({(number, chance.random() < 0.5) for number in chance.sample(range(1, WRITES_OF_A_SCENE + 1), POINTS)})


def test_the_points_are_twenty() -> None:
    assert len(_points()) == POINTS


@pytest.mark.parametrize(("at", "after"), mark_long(_points(), but={1, 4, 8, 12, 16}))
def test_killed_at_any_write_both_jobs_still_end_up_bound(
    at: int, after: bool, scene: Scene, topogate: Topogate, proxy: WritesProxy, kubeconfig: Path
) -> None:
    """`after`: the server did the write but the reconciler never heard of it."""
    proxy.cut(Cut(at, after, topogate.kill_reconciler))
    names = (f"one-{at}", f"two-{at}")
    try:
        for name in names:
            scene.submit(name, pods=4, gpus=4, indexed=True, required=scene.rack)
        assert proxy.has_cut.wait(30), f"the scene had {len(proxy.writes)} writes only: {proxy.writes}"
        assert truth.check_invariants(scene.read()) == []
        proxy.cut(None)
        topogate.start_reconciler(kubeconfig=kubeconfig)
        for name in names:
            now = scene.until_bound(name, 4)
        assert truth.check_invariants(now) == []
        assert truth.check_never_stuck(now) == []
        for name in names:
            assert truth.as_assigned(now, name) == []
            assert truth.check_one_domain(now, name, scene.rack) == []
    finally:
        proxy.cut(None)
        if topogate.reconciler is None:
            topogate.start_reconciler(kubeconfig=kubeconfig)
        scene.clear()
        scene.eventually("the scene to be empty", lambda now: not now.workloads and not any(now.pods_of(name) for name in names))


@pytest.mark.parametrize("at", mark_long(range(3, 9), but={0, 3}))
def test_admission_write_with_a_lost_answer_is_resolved_and_usage_is_not_counted_twice(
    at: int, scene: Scene, topogate: Topogate, proxy: WritesProxy
) -> None:
    """The server did the write, the reconciler lives on and does not know. Both jobs want all nodes of the block."""
    names = (f"lost-{at}", f"also-{at}")
    proxy.cut(Cut(at, True, lambda: None))
    try:
        for name in names:
            scene.submit(name, pods=4, gpus=8, required=scene.block)
        assert proxy.has_cut.wait(30)
        now = scene.eventually(
            "one to be bound and the other to wait",
            lambda now: sorted(len(truth.check_all_bound(now, name, 4)) == 0 for name in names) == [False, True],
        )
        assert truth.check_invariants(now) == []
        winner, loser = names if truth.check_all_bound(now, names[0], 4) == [] else reversed(names)
        scene.until_waiting(loser, "TopologyPlacementFailed")
        assert truth.as_assigned(now, winner) == []
    finally:
        proxy.cut(None)
        scene.clear()
        scene.eventually("the scene to be empty", lambda now: not now.workloads and not any(now.pods_of(name) for name in names))

"""SIGKILL of the reconciler between any two writes of a replacement: the job is whole again all the same, and what ran was not touched."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.proxies.writes_proxy import Cut, WritesProxy
from e2e.topogate import Topogate
from tests.long import mark_long
from tests.reconciler.nodes.test_failed_nodes import fail, get_places, wait_until_whole
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory

# The node named, events, the new place, its event, the pod's ungating.
WRITES = 4


@pytest.fixture(scope="module")
def wide(cluster: Cluster, topogate: Topogate, kubeconfig: Path) -> Iterator[Scene]:
    opened = Scene(cluster, nodes=6).open()
    topogate.kill_reconciler()
    topogate.start_reconciler(kubeconfig=kubeconfig)
    yield opened
    opened.close()


@pytest.mark.parametrize(("at", "after"), mark_long(product(range(1, WRITES + 1), (False, True)), but={3}))
def test_killed_at_any_write_of_a_replacement_the_job_is_whole_again(
    at: int, after: bool, wide: Scene, topogate: Topogate, proxy: WritesProxy, kubeconfig: Path
) -> None:
    """`after`: the server did the write but the reconciler never heard of it."""
    name = f"train-{at}-{'after' if after else 'before'}"
    wide.submit(name, pods=3, gpus=8, required=wide.rack, indexed=True, spec={"backoffLimit": 100})
    before = get_places(wide.until_bound(name, 3), name)
    lost, *_ = sorted(before.values())
    stay = {uid: node for uid, node in before.items() if node != lost}
    proxy.cut(Cut(at, after, topogate.kill_reconciler))
    try:
        fail(wide, name, lost)
        assert proxy.has_cut.wait(30), f"the replacement had {len(proxy.writes)} writes only: {proxy.writes}"
        proxy.cut(None)
        topogate.start_reconciler(kubeconfig=kubeconfig)
        now = wait_until_whole(wide, name, 3, {lost})
        assert stay.items() <= get_places(now, name).items()
        assert truth.check_invariants(now) == []
        assert truth.check_one_domain(now, name, wide.rack) == []
        assert truth.as_assigned(now, name) == []
    finally:
        proxy.cut(None)
        if topogate.reconciler is None:
            topogate.start_reconciler(kubeconfig=kubeconfig)
        wide.cluster.set_node_ready(lost, ready=True)
        wide.clear()
        wide.eventually("the scene to be empty", lambda now: not now.workloads and not now.pods_of(name))

"""Nodes that fail in a topology of racks without hostnames: pods stay in a rack that holds them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.reconciler.nodes.test_failed_nodes import fail, get_places, get_workload, list_racks_of
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory


@pytest.fixture
def by_rack(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Two racks of two nodes with eight GPUs each; which of its nodes a pod gets kube-scheduler says."""
    opened = Scene(cluster)
    opened.by_host = False
    yield opened.open()
    opened.close()


@pytest.mark.long
def test_pod_on_a_failed_node_moves_within_its_rack_or_is_evicted_if_the_rack_is_full(by_rack: Scene) -> None:
    by_rack.submit("small", pods=1, gpus=8, required=by_rack.rack, spec={"backoffLimit": 100})
    now = by_rack.until_bound("small", 1)
    (node,), (rack,) = get_places(now, "small").values(), list_racks_of(by_rack, now, "small")
    fail(by_rack, "small", node)
    now = by_rack.eventually(
        "another node", lambda now: len(get_places(now, "small")) == 1 and node not in get_places(now, "small").values()
    )
    assert list_racks_of(by_rack, now, "small") == {rack}
    assert not truth.get_condition(get_workload(now, "small"), "Evicted")
    (other,) = get_places(now, "small").values()
    fail(by_rack, "small", other)
    now = by_rack.eventually(
        "another rack", lambda now: len(get_places(now, "small")) == 1 and list_racks_of(by_rack, now, "small") != {rack}
    )
    said = [event["message"] for event in now.events if event["reason"] == "EvictedDueToNodeFailures"]
    assert len(said) == 1
    assert said[0].startswith("Workload was evicted as its nodes failed: ")
    assert "has room for 0 of 1 pod of pod set main" in said[0]
    assert all(f"{name} (NotReady)" in said[0] for name in (node, other))
    for name in (node, other):
        by_rack.cluster.set_node_ready(name, ready=True)

"""Two reconcilers, one leader."""

from __future__ import annotations

import contextlib
import urllib.request

import pytest

from e2e.api import wait_for
from e2e.cluster import Cluster
from e2e.topogate import READY_MARK, SYSTEM_NAMESPACE, Topogate
from tests.installed import Installed
from tests.reconciler.nodes.test_failing_with_spares import fill, list_spares, with_a_spare
from tests.reconciler.scenes import WORKLOADS, Scene
from tests.scraped import Scraped

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/topogate-reconciler"


@pytest.fixture
def elected(installed: Installed) -> Topogate:
    return installed.run(leader_election=True, is_fresh=True)


def is_ready(running: Topogate) -> bool:
    """Of the reconciler that was started last."""
    try:
        with urllib.request.urlopen(f"{running.health_url}/readyz", timeout=120) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def leads(running: Topogate) -> float:
    """What the reconciler that was started last says of itself."""
    with urllib.request.urlopen(running.metrics_url, timeout=120) as reply:
        return Scraped(reply.read().decode()).value("topogate_leader")


def test_a_leader_that_is_stopped_hands_over_at_once(cluster: Cluster, elected: Topogate) -> None:
    scene = Scene(cluster).open()
    first = elected.reconciler
    assert first is not None
    holder = cluster.api.get(LEASE)["spec"]["holderIdentity"]
    elected.start_reconciler(wait=False)
    second = elected.reconciler
    assert second is not None
    with contextlib.ExitStack() as stack:
        stack.callback(first.stop, 5.0)
        scene.submit("before", pods=2, gpus=1, required=scene.rack)
        scene.until_bound("before", 2)
        wait_for("the other to have seen everything", lambda: "state is complete" in second.log.read_text())
        assert READY_MARK not in second.log.read_text()
        wait_for("who waits for the lease to be ready, or no rollout would end", lambda: is_ready(elected))
        assert leads(elected) == 0
    wait_for("the other to lead", lambda: cluster.api.get(LEASE)["spec"].get("holderIdentity") not in ("", holder))
    scene.submit("after", pods=2, gpus=1, required=scene.rack)
    scene.until_bound("after", 2)
    assert leads(elected) == 1
    scene.close()


def test_leader_killed_under_load_is_followed_without_lost_or_doubled_workloads(cluster: Cluster, elected: Topogate) -> None:
    scene = Scene(cluster).open()
    first = elected.reconciler
    assert first is not None
    elected.start_reconciler(wait=False)
    second = elected.reconciler
    assert second is not None
    wait_for("the other to have seen everything", lambda: "state is complete" in second.log.read_text())
    for number in range(16):
        scene.submit(f"load-{number}", pods=2, gpus=1, required=scene.rack)
        if number == 7:
            first.stop(grace_s=0)
    wait_for("the other to lead", lambda: READY_MARK in second.log.read_text())
    for number in range(16):
        scene.until_bound(f"load-{number}", 2)
    workloads = cluster.api.list(WORKLOADS.format(scene.namespace))
    assert len(workloads) == 16
    scene.close()


@pytest.mark.long
def test_another_leader_keeps_the_same_nodes_free(cluster: Cluster, elected: Topogate) -> None:
    scene = Scene(cluster, nodes=4).open()
    first = elected.reconciler
    assert first is not None
    elected.start_reconciler(wait=False)
    second = elected.reconciler
    assert second is not None
    _, spare = with_a_spare(scene, "train")
    wait_for("the other to have seen everything", lambda: "state is complete" in second.log.read_text())
    first.stop(grace_s=0)
    wait_for("the other to lead", lambda: READY_MARK in second.log.read_text())
    fill(scene, "filler")
    now = scene.read()
    assert list_spares(now, "train") == [spare]
    assert spare not in {pod["spec"].get("nodeName") for pod in now.pods}
    scene.close()

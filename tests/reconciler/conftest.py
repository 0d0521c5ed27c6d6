"""topogate beside the session's control plane, for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import manifests
from e2e.cluster import Cluster
from e2e.proxies.writes_proxy import WritesProxy
from e2e.topogate import Topogate
from sim.scenes.cluster import SimulatedCluster
from tests.installed import Installed
from tests.reconciler.scenes import Scene


@pytest.fixture(scope="module")
def topogate(installed: Installed) -> Topogate:
    """Without leader election, so that a killed reconciler can be followed at once."""
    return installed.run()


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """One block of two racks of two nodes with eight GPUs each, and an open queue."""
    opened = Scene(cluster).open()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def high(cluster: Cluster, topogate: Topogate) -> Iterator[str]:
    """The name of a WorkloadPriorityClass, above workloads that name none."""
    made = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"},
        "value": 100,
        "description": "",
    }
    path = manifests.get_path(made)
    cluster.api.create(path, made)
    yield "high"
    cluster.api.delete(f"{path}/high")


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[WritesProxy]:
    """Between a reconciler and the API server, where writes can be cut."""
    if isinstance(cluster, SimulatedCluster):
        yield cluster.proxy
        return
    with WritesProxy(cluster.server, cluster.ca_file, cluster.token) as running:
        yield running


@pytest.fixture(scope="module")
def kubeconfig(proxy: WritesProxy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return proxy.write_kubeconfig(tmp_path_factory.mktemp("proxy") / "kubeconfig")

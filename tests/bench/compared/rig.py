"""Case (a): the load of Kueue's performance rig."""

from __future__ import annotations

import asyncio
from typing import Any

from core.resource import Obj
from core.runtime.http.client import Client
from e2e import manifests
from e2e.api import wait_for
from e2e.cluster import Cluster
from e2e.perf_load import NAMESPACE, Load, Outcome, Player
from tests.bench.admission import TIMEOUT_S
from tests.bench.compared.managers import Manager, Measured, Window, make_manager
from tests.bench.compared.runs import FLOOR
from tests.bench.parts.floor import FloorPlayer

OTHER_PARTS = ("kube-scheduler", "kube-controller-manager", "kwok")
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
WORKLOADS_OF_LOAD, MOST_CHECKED = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads", 500


class NotPlaced(Exception):
    """A manager has admitted workloads without placing them."""


def measure_rig(subject: str, load: Load) -> Measured:
    """One run on a new control plane. Raises TimeoutError if the load does not end, and NotPlaced."""
    with Cluster() as cluster, make_manager(subject, cluster) as manager:
        _prepare(cluster, load, manager)
        window = Window(cluster, manager)
        outcome = asyncio.run(_play(cluster, load, FloorPlayer if subject == FLOOR else Player))
        waits = {f"average time to admission, {name}, s": each for name, each in outcome.averages().items()}
        measured = window.close(outcome.finished, {"wall time, s": outcome.wall_s, "evictions": outcome.evictions, **waits})
        _check_placed(cluster)
    return measured


def _prepare(cluster: Cluster, load: Load, manager: Manager) -> None:
    """Nodes and queues of the load, and no other controller than the manager."""
    cluster.add_nodes(load.node_objects())
    cluster.create_namespace(NAMESPACE)
    for part in OTHER_PARTS:
        cluster.stop_part(part)
    for obj in load.configuration():
        cluster.api.create(manifests.get_path(obj), obj)
    if manager.pids:
        wait_until_active(cluster)


def wait_until_active(cluster: Cluster) -> None:
    """Returns once the manager has said of each ClusterQueue that it admits."""
    wait_for("all ClusterQueues to be active", lambda: all(map(_is_active, cluster.api.list(QUEUES))))


def _is_active(queue: Obj) -> bool:
    conditions: list[dict[str, Any]] = (queue.get("status") or {}).get("conditions") or []
    return any(condition["type"] == "Active" and condition["status"] == "True" for condition in conditions)


def _check_placed(cluster: Cluster) -> None:
    """Raises NotPlaced if a Workload was admitted without domains: that would be another load than placement by topology. Those that were
    evicted just before the load finished them have no admission any more, and are not judged."""
    for workload in cluster.api.get(f"{WORKLOADS_OF_LOAD}?limit={MOST_CHECKED}")["items"]:
        admission = (workload.get("status") or {}).get("admission")
        if admission and not all(each.get("topologyAssignment") for each in admission["podSetAssignments"]):
            raise NotPlaced(f"the Workload {workload['metadata']['name']} was admitted without a topologyAssignment")


async def _play(cluster: Cluster, load: Load, player: type[Player]) -> Outcome:
    async with await Client.connect(str(cluster.kubeconfig), user_agent="perf-load") as client:
        return await player(client, load).run(TIMEOUT_S)

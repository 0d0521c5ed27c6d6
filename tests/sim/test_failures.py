"""Models of what fails end as the real controllers do: node lifecycle, taint eviction, pod garbage collection, and Jobs whose pods fail.

That nothing more happens on the real control plane is seen by an alarm: an object that the same controller ends later.
"""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from e2e.api import Api, wait_for
from e2e.cluster import Cluster
from e2e.nodes import NodePool, build_nodes
from e2e.standins.pods import has_condition
from sim.administrators import make_ready
from sim.apiserver.kinds import build_in
from sim.apiserver.server import Server
from sim.loop import VirtualClock, VirtualLoop
from sim.models import MODELS
from sim.models.kubelets import Kubelets
from sim.models.operators import ApiInMemory
from tests.sim.failing import (
    CLOCK,
    CLOCK_NODE,
    KEPT,
    NODES,
    JobLife,
    Life,
    NodeLife,
    Op,
    list_lives,
    make_scripted_lives,
    make_waiting_life,
    report,
)
from tests.sim.lives import POOL_LABEL, find_difference

SEEDS, FIRST = (int(os.environ.get(f"TOPOGATE_FAILURES_{name}", default)) for name, default in (("SEEDS", "8"), ("FIRST", "0")))
POOL = NodePool(blocks=1, racks=1, nodes=3, prefix="failing-", labels={POOL_LABEL: "yes"})
AT_ONCE = 16
EVERY_RUN = [*map(NodeLife, (6, 9, 66, 72)), make_waiting_life(), *map(JobLife, (0, 1, 2, 17, 18, 22, 23, 27))]  # those that end soon


class Real:
    """The real control plane."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def time(self) -> str:
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def add_node(self, node: dict[str, Any]) -> None:
        self.api.create(NODES, node)

    def stop_node(self, name: str) -> None:
        """Nothing ever renews the lease of a node that is none of kwok's."""


class Simulated:
    """A cluster in memory without topogate, with one namespace."""

    def __init__(self, namespace: str, life: Life) -> None:
        self._loop = VirtualLoop()
        self._clock = VirtualClock(self._loop)
        server = Server(build_in(), now=self.time, chance=random.Random(1))
        self.models = [model(server, self._loop, self._clock.now) for model in MODELS]
        self.api = ApiInMemory(server, "admin")
        self.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for node in (*build_nodes(POOL), *build_nodes(CLOCK), *(life.list_nodes() if isinstance(life, NodeLife) else ())):
            self.add_node(node)
            if not node["metadata"]["annotations"]:
                self._kubelets.down.add(node["metadata"]["name"])
        self.rest(5)

    @property
    def _kubelets(self) -> Kubelets:
        return next(model for model in self.models if isinstance(model, Kubelets))

    def time(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def add_node(self, node: dict[str, Any]) -> None:
        self.api.create(NODES, node)
        self.api.patch(f"{NODES}/{node['metadata']['name']}/status", {"status": make_ready(node, "True")["status"]})

    def stop_node(self, name: str) -> None:
        """The condition is as the controller says it 50 s later."""
        report(self, name, "Ready", "Unknown")

    def rest(self, seconds: float) -> None:
        """Lets time pass."""
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def close(self) -> None:
        """Ends it."""
        self._loop.close()


def find_first_difference(cluster: Cluster, life: Life) -> str:
    """Where a life on the real control plane comes to rest otherwise than in memory, empty if nowhere."""
    namespace, real = f"failing-{uuid.uuid4().hex[:8]}", Real(cluster.api)
    cluster.create_namespace(namespace)
    if isinstance(life, NodeLife):
        _add_nodes(cluster, life.list_nodes())
    simulated = Simulated(namespace, life)
    try:
        for number, op in enumerate(life.ops):
            life.carry_out(simulated, namespace, op)
            life.carry_out(real, namespace, op)
            simulated.rest(op.virtual_s)
            difference = _wait_for_equal(life, real.api, namespace, life.read(simulated.api, namespace), f"alarm-{number}", op)
            if difference:
                return f"{life.name}, after {life.ops[: number + 1]}:\n{difference}"
        return ""
    finally:
        simulated.close()
        _clean(cluster, namespace, life)


def _add_nodes(cluster: Cluster, nodes: list[dict[str, Any]]) -> None:
    """Nodes that are ready, also those that kwok does not manage."""
    for node in nodes:
        if not node["metadata"]["annotations"]:
            cluster.api.create(NODES, node)
            report(Real(cluster.api), node["metadata"]["name"], "Ready", "True")
    cluster.add_nodes([node for node in nodes if node["metadata"]["annotations"]])


def _wait_for_equal(life: Life, api: Api, namespace: str, expected: list[str], alarm: str, op: Op) -> str:
    """The difference that remains, empty if there is none once the alarm has rung."""
    if op.rest_s:
        life.make_alarm(api, namespace, alarm, op.rest_s)
    try:
        wait_for("rest", lambda: not op.rest_s or life.has_rung(api, namespace, alarm), poll_s=0.3)
        wait_for("equal objects", lambda: not find_difference(life.read(api, namespace), expected), poll_s=0.3)
    except TimeoutError:
        return find_difference(life.read(api, namespace), expected) or "the alarm has not rung"
    return ""


def _clean(cluster: Cluster, namespace: str, life: Life) -> None:
    """Lets go what a finalizer of the test keeps, and deletes the nodes."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for pod in cluster.api.list(pods):
        if KEPT in (pod["metadata"].get("finalizers") or ()):
            cluster.api.patch(f"{pods}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})
    cluster.delete_namespace(namespace)
    if isinstance(life, NodeLife):
        cluster.delete_nodes(life.nodes)


def find_differences(cluster: Cluster, played: Iterable[Life]) -> str:
    """Those of many lives that are played at the same time."""
    names = cluster.add_nodes(POOL)
    _add_clock(cluster)
    try:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return "\n".join(filter(None, threads.map(lambda life: find_first_difference(cluster, life), played)))
    finally:
        cluster.delete_nodes([*names, CLOCK_NODE])


def _add_clock(cluster: Cluster) -> None:
    """The node of the alarms. It has a taint from the beginning, as no node has that `Cluster.add_nodes` waits for."""
    [node] = build_nodes(CLOCK)
    cluster.api.create(NODES, node)
    wait_for("the clock", lambda: cluster.api.get(f"{NODES}/{CLOCK_NODE}")["status"].get("conditions"))


def test_nodes_and_jobs_that_fail_end_in_equal_objects(cluster: Cluster):
    differences = find_differences(cluster, EVERY_RUN)
    assert not differences, differences


@pytest.mark.long
@pytest.mark.timeout(3000 + 120 * SEEDS)
def test_random_nodes_and_jobs_that_fail_end_in_equal_objects(cluster: Cluster):
    """`TOPOGATE_FAILURES_SEEDS=50` plays so many of each; `TOPOGATE_FAILURES_FIRST` is the first seed."""
    played = [*list_lives(FIRST, SEEDS, is_long=True), *list_lives(FIRST, SEEDS), *make_scripted_lives()]
    differences = find_differences(cluster, played)
    assert not differences, differences


def test_nodes_and_jobs_that_fail_come_to_rest_in_memory():
    """Without the real control plane: no request is refused, and after another minute all is as before."""
    for life in (*list_lives(0, 8), *list_lives(0, 8, is_long=True), *make_scripted_lives()):
        simulated = Simulated("n", life)
        for op in life.ops:
            life.carry_out(simulated, "n", op)
            simulated.rest(op.virtual_s)
        before = life.read(simulated.api, "n")
        simulated.rest(20)
        assert life.read(simulated.api, "n") == before, life.ops
        simulated.close()


@pytest.mark.parametrize("is_kubelet_back", [False, True])
def test_pod_that_runs_on_through_an_outage_is_ready_again_once_its_node_is(is_kubelet_back: bool):
    simulated, node = Simulated("n", JobLife(0)), build_nodes(POOL)[0]["metadata"]["name"]
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i:1"}], "automountServiceAccountToken": False}
    simulated.api.create("/api/v1/namespaces/n/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    simulated.rest(5)
    before = simulated.api.get("/api/v1/namespaces/n/pods/p")
    simulated._kubelets.down.add(node)
    report(simulated, node, "Ready", "Unknown")
    simulated.rest(10)
    [marked] = simulated.api.list("/api/v1/namespaces/n/pods")
    if is_kubelet_back:
        simulated._kubelets.down.discard(node)
    report(simulated, node, "Ready", "True")
    simulated.rest(5)
    [after] = simulated.api.list("/api/v1/namespaces/n/pods")
    simulated.close()
    assert [has_condition(pod, "Ready") for pod in (before, marked, after)] == [True, False, is_kubelet_back]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]

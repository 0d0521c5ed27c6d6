"""Models end in what the real ones do: controllers of Jobs and of apps/v1, kube-scheduler, kubelets (kwok), and owner garbage collection.

Operators of other kinds are not on the real control plane: their models are the stand-ins of `e2e.standins`. `tests/operators` plays
scenes with some real ones.
"""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.api import Api, wait_for
from e2e.cluster import Cluster
from e2e.nodes import NodePool, build_nodes
from sim.administrators import make_ready
from sim.apiserver.kinds import build_in
from sim.apiserver.server import Server
from sim.loop import VirtualClock, VirtualLoop
from sim.models import MODELS
from sim.models.operators import ApiInMemory
from tests.sim.lives import POOL_LABEL, Life, carry_out, find_difference, list_lives, read_state

SEEDS, FIRST = (int(os.environ.get(f"TOPOGATE_LIVES_{name}", default)) for name, default in (("SEEDS", "2"), ("FIRST", "0")))
POOL = NodePool(blocks=1, racks=1, nodes=3, prefix="models-", labels={POOL_LABEL: "yes"})
AT_ONCE = 8


class Simulated:
    """A cluster in memory without topogate, with one namespace and a pool of nodes."""

    def __init__(self, namespace: str) -> None:
        self._loop = VirtualLoop()
        clock = VirtualClock(self._loop)
        server = Server(build_in(), now=lambda: clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"), chance=random.Random(1))
        self.models = [model(server, self._loop, clock.now) for model in MODELS]
        self.api = ApiInMemory(server, "admin")
        self.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for node in build_nodes(POOL):
            self.api.create("/api/v1/nodes", node)
            self.api.patch(f"/api/v1/nodes/{node['metadata']['name']}/status", {"status": make_ready(node, "True")["status"]})

    def rest(self) -> None:
        """Lets time pass until nothing happens any more."""
        self._loop.run_until_complete(asyncio.sleep(120))

    def close(self) -> None:
        """Ends it."""
        self._loop.close()


def find_first_difference(api: Api, life: Life) -> str:
    """Where a life on the real control plane comes to rest otherwise than in memory, empty if nowhere."""
    namespace = f"life-{uuid.uuid4().hex[:8]}"
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    wait_for(f"the account of {namespace}", lambda: api.find(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
    simulated = Simulated(namespace)
    try:
        for number, op in enumerate(life.ops):
            carry_out(simulated.api, namespace, op)
            carry_out(api, namespace, op)
            simulated.rest()
            expected = read_state(simulated.api, namespace)
            try:
                wait_for("rest", lambda: not find_difference(read_state(api, namespace), expected))  # noqa: B023, called here
            except TimeoutError:
                return f"{life.name}, after {life.ops[: number + 1]}:\n{find_difference(read_state(api, namespace), expected)}"
        return ""
    finally:
        simulated.close()
        api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.mark.timeout(3000 + 30 * SEEDS)
def test_random_lives_end_in_equal_objects(cluster: Cluster):
    """`TOPOGATE_LIVES_SEEDS=50` plays so many of each kind; `TOPOGATE_LIVES_FIRST` is the first seed."""
    cluster.add_nodes(POOL)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        differences = list(filter(None, threads.map(lambda life: find_first_difference(cluster.api, life), list_lives(FIRST, SEEDS))))
    assert not differences, "\n".join(differences)


def test_lives_of_every_kind_come_to_rest_in_memory():
    """Without the real control plane: no request is refused, and what is deleted is gone."""
    for life in list_lives(0, 10):
        simulated = Simulated("n")
        for op in life.ops:
            carry_out(simulated.api, "n", op)
            simulated.rest()
        left = read_state(simulated.api, "n")
        assert life.ops[-1].value == "Orphan" or not left, (life.ops, left)
        simulated.close()

"""What happens to nodes in a scenario, and what administrators do."""

import random
from typing import Any

from e2e.nodes import NodePool, node_objects
from sim.users import Steps
from sim.world import World

Json = dict[str, Any]
GPUS = 8  # of a node


class Administrators:
    """Administrators of a pool of nodes, which fail now and then."""

    def __init__(self, world: World, chance: random.Random, pool: NodePool) -> None:
        self._world, self._chance, self._pool = world, chance, pool
        self._removed: list[Json] = []
        self.steps: Steps = [(2, self._fail_node), (2, self.restore_nodes), (1, self._cordon), (1, self._change_quota)]

    def make_nodes(self) -> None:
        """Creates the nodes, all ready."""
        for node in node_objects(self._pool):
            self._world.apply(make_ready(node, "True"))

    def _some_node(self) -> Json | None:
        nodes = self._world.objects("", "nodes")
        return self._chance.choice(nodes) if nodes else None

    def _fail_node(self) -> str:
        node = self._some_node()
        if node is None:
            return "none"
        name = node["metadata"]["name"]
        if self._chance.random() < 0.4:
            self._removed.append({part: node[part] for part in ("metadata", "spec", "status") if part in node})
            self._world.delete({**node, "apiVersion": "v1", "kind": "Node"})
            return f"{name} is gone"
        self._world.kubelets.down.add(name)
        self._world.patch("", "nodes", node, {"status": make_ready(node, "Unknown")["status"]}, "status")
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": self._world.time()}
        self._world.patch("", "nodes", node, {"spec": {"taints": [taint]}})
        return f"{name} is not ready"

    def restore_nodes(self) -> str:
        """Makes all nodes again what they were at first; returns nothing that is worth a word."""
        for node in self._removed:
            metadata = {name: node["metadata"][name] for name in ("name", "labels") if name in node["metadata"]}
            fresh = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": node["status"]}
            self._world.apply(make_ready(fresh, "True"))
        self._removed = []
        for node in self._world.objects("", "nodes"):
            name = node["metadata"]["name"]
            if name in self._world.kubelets.down or (node.get("spec") or {}).get("unschedulable"):
                self._world.kubelets.down.discard(name)
                self._world.patch("", "nodes", node, {"status": make_ready(node, "True")["status"]}, "status")
                self._world.patch("", "nodes", node, {"spec": {"taints": None, "unschedulable": None}})
                self._world.kubelets.look_at_node(name)
        return ""

    def _cordon(self) -> str:
        node = self._some_node()
        if node is None:
            return "none"
        self._world.patch("", "nodes", node, {"spec": {"unschedulable": True}})
        return str(node["metadata"]["name"])

    def _change_quota(self) -> str:
        queue = self._chance.choice(self._world.objects("kueue.x-k8s.io", "clusterqueues"))
        [group] = queue["spec"]["resourceGroups"]
        [flavor] = group["flavors"]
        count = str(self._chance.randint(GPUS, 4 * self._pool.nodes * GPUS))
        before = int(next(each["nominalQuota"] for each in flavor["resources"] if each["name"] == "nvidia.com/gpu"))
        if int(count) < before:
            return "none: what runs beyond a smaller quota runs on"
        resources = [{**each, "nominalQuota": count} if each["name"] == "nvidia.com/gpu" else each for each in flavor["resources"]]
        changed = [{**group, "flavors": [{**flavor, "resources": resources}]}]
        self._world.patch("kueue.x-k8s.io", "clusterqueues", queue, {"spec": {"resourceGroups": changed}})
        return f"{queue['metadata']['name']} has {count}"


def make_ready(node: Json, status: str) -> Json:
    """A node with this status of its condition Ready."""
    ready = {"type": "Ready", "status": status, "reason": "Kubelet", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {**node, "status": {**(node.get("status") or {}), "conditions": [ready]}}

"""What happens to nodes in a scenario, and what administrators do."""

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from core.names import HOSTNAME_LABEL
from e2e import manifests
from e2e.nodes import NodePool, build_nodes
from sim.apiserver.server import Refused
from sim.world import Broken, World

Json = dict[str, Any]
GPUS = 8  # of a node
_KUEUE = "kueue.x-k8s.io"
_TAINT = "example.com/repair"
_TWIN, _SHORT_LIVED = "twin-of-", "spot-"  # begin the names of nodes that go again
_SHORT_LIVES, _LIFE_S = 60, 1.5
WEIGHTS = {  # how often each step is taken
    "fail_node": 2,
    "fail_rack": 1,
    "restore": 2,
    "cordon_node": 1,
    "drain_node": 1,
    "taint_node": 1,
    "relabel_node": 1,
    "change_quota": 2,
    "stop_queue": 1,
    "change_flavor": 1,
    "delete_topology": 1,
    "add_twin": 2,
    "change_cohort": 0.5,
    "add_short_lived_nodes": 0.3,
    "move_node": 2,
    "remove_label": 1,
    "change_class_value": 1,
    "make_queue_anew": 0.5,
}
WITH_GATES = ("change_levels", "move_flavor")  # steps of scenarios in which gates of Kueue 0.20 are on, which make these mutable
POOL_LABEL = "example.com/pool"
POOLS = ("a", "b")  # a node is in one; where there are two flavors, each is one of these


class Administrators:
    """Administrators of a pool of nodes, which fail now and then."""

    def __init__(self, world: World, pool: NodePool, *, lowers_quota: bool) -> None:
        self._world, self._pool, self._lowers_quota = world, pool, lowers_quota
        self._chance = random.Random(0)
        self._removed: list[Json] = []
        self._short_lived = 0  # nodes that have been made until now
        self._missing: dict[str, dict[str, str]] = {}  # by name of a node: labels that have been taken off it
        self.doubled: set[str] = set()  # names of nodes with a hostname that another node had, too

    def play(self, name: str, chance: random.Random) -> str:
        """Takes a step of `WEIGHTS`; returns what was done. Raises Refused."""
        self._chance = chance
        done: str = self.restore() if name == "restore" else getattr(self, f"_{name}")()
        return done

    def make_nodes(self) -> None:
        """Creates the nodes, all ready, those of the last block in a pool of their own."""
        blocks = sorted({node["metadata"]["labels"][self._pool.block_label] for node in build_nodes(self._pool)})
        for node in build_nodes(self._pool):
            labels = node["metadata"]["labels"]
            labels[POOL_LABEL] = POOLS[labels[self._pool.block_label] == blocks[-1]]
            self._world.apply(make_ready(node, "True"))

    # --- nodes --------------------------------------------------------------------------------------

    def _choose_node(self) -> Json:
        return self._chance.choice(self._world.objects("", "nodes"))

    def _fail_node(self) -> str:
        nodes = self._world.objects("", "nodes")
        return self._fail(self._chance.choice(nodes)) if len(nodes) > 1 else "none"

    def _fail(self, node: Json) -> str:
        name = node["metadata"]["name"]
        if self._chance.random() < 0.4 and not name.startswith((_TWIN, _SHORT_LIVED)):
            self.remove_node(name)
            return f"{name} is gone"
        self.end_kubelet(name)
        return f"{name} is not ready"

    def remove_node(self, name: str) -> None:
        """A node goes, until `restore`."""
        node = self._world.server.objects["", "nodes"]["", name].obj
        self._removed.append({part: node[part] for part in ("metadata", "status")})
        self._world.delete({"apiVersion": "v1", "kind": "Node", **node})

    def end_kubelet(self, name: str) -> None:
        """Nothing happens on a node any more, and it is not ready, until `restore`."""
        self._world.kubelets.down.add(name)
        self._set_ready(self._world.server.objects["", "nodes"]["", name].obj, "Unknown")

    def _fail_rack(self) -> str:
        label, nodes = self._pool.rack_label, self._world.objects("", "nodes")
        rack = self._choose_node()["metadata"]["labels"].get(label)
        failed = [node for node in nodes if node["metadata"]["labels"].get(label) == rack]
        return ", ".join(map(self._fail, failed)) if len(failed) < len(nodes) else "none"

    def _set_ready(self, node: Json, status: str) -> None:
        self._world.patch("", "nodes", node, {"status": make_ready(node, status)["status"]}, "status")

    def restore(self) -> str:
        """Makes nodes, queues and topologies again what they were, but for quotas and racks; returns nothing that is worth a word."""
        for node in self._removed:
            metadata = {name: node["metadata"][name] for name in ("name", "labels")}
            self._world.apply(make_ready({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": node["status"]}, "True"))
            self._world.kubelets.look_at_node(metadata["name"])  # pods that are still bound there
        self._removed = []
        for name in list(self._missing):
            self._put_labels_back(name)
        for node in self._world.objects("", "nodes"):
            if node["metadata"]["name"].startswith(_TWIN):
                self._world.kubelets.down.discard(node["metadata"]["name"])
                self._world.delete(node)
        for node in self._world.objects("", "nodes"):
            name, spec = node["metadata"]["name"], node.get("spec") or {}
            if name in self._world.kubelets.down:
                self._world.kubelets.down.discard(name)
                self._set_ready(node, "True")
                self._world.kubelets.look_at_node(name)
            own = [taint for taint in spec.get("taints") or () if taint["key"] != _TAINT]
            if spec.get("unschedulable") or len(own) < len(spec.get("taints") or ()):
                self._world.patch("", "nodes", node, {"spec": {"unschedulable": None, "taints": own or None}})
        for plural in ("clusterqueues", "localqueues"):
            for queue in self._world.objects(_KUEUE, plural):
                if queue["spec"].get("stopPolicy") not in (None, "None"):
                    self._world.patch(_KUEUE, plural, queue, {"spec": {"stopPolicy": "None"}})
        self._set_levels(self._pool.levels)
        return ""

    def _cordon_node(self) -> str:
        node = self._choose_node()
        self._world.patch("", "nodes", node, {"spec": {"unschedulable": True}})
        return str(node["metadata"]["name"])

    def _drain_node(self) -> str:
        name, pods = self._cordon_node(), self._world.objects("", "pods")
        for pod in pods:
            if pod["spec"].get("nodeName") == name and not pod["metadata"].get("deletionTimestamp"):
                self._world.delete(pod)
        return name

    def _taint_node(self) -> str:
        node, effect = self._choose_node(), self._chance.choice(["NoSchedule", "NoExecute"])
        taints = [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["key"] != _TAINT]
        self._world.patch("", "nodes", node, {"spec": {"taints": [*taints, {"key": _TAINT, "effect": effect}]}})
        return f"{node['metadata']['name']} {effect}"

    def _relabel_node(self) -> str:
        """Another rack of the same block or of another."""
        node, like = self._choose_node(), self._choose_node()
        labels = {label: like["metadata"]["labels"].get(label) for label in (self._pool.block_label, self._pool.rack_label)}
        if None in labels.values() or labels.items() <= node["metadata"]["labels"].items():
            return "none"
        self._world.relabelled.add(node["metadata"]["name"])
        self._world.patch("", "nodes", node, {"metadata": {"labels": labels}})
        return f"{node['metadata']['name']} is in {labels[self._pool.rack_label]}"

    def _move_node(self) -> str:
        """To the other pool of nodes, and so to another flavor where there are two."""
        node = self._choose_node()
        pool = POOLS[node["metadata"]["labels"].get(POOL_LABEL) == POOLS[0]]
        self._world.moved.add(node["metadata"]["name"])
        self._world.patch("", "nodes", node, {"metadata": {"labels": {POOL_LABEL: pool}}})
        return f"{node['metadata']['name']} is in pool {pool}"

    def _remove_label(self) -> str:
        """Takes a label off a node, which gets it back after a while."""
        node, label = self._choose_node(), self._chance.choice([self._pool.rack_label, POOL_LABEL, HOSTNAME_LABEL])
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        if label not in labels or name.startswith((_TWIN, _SHORT_LIVED)):
            return "none"
        self._missing.setdefault(name, {})[label] = labels[label]
        self._world.unlabelled.add(name)
        if label == POOL_LABEL:
            self._world.moved.add(name)
        self._world.patch("", "nodes", node, {"metadata": {"labels": {label: None}}})
        lasts = self._chance.choice([1.0, 20.0, 90.0])
        self._world.loop.call_later(lasts, self._put_labels_back, name)
        return f"{name} loses {label} for {lasts:.0f} s"

    def _put_labels_back(self, name: str) -> None:
        """Gives a node what it has lost and nobody has set since. One that is gone gets it when it is made again."""
        nodes = [node for node in self._world.objects("", "nodes") if node["metadata"]["name"] == name]
        for node in nodes:
            missing = self._missing.pop(name, {})
            labels = {label: value for label, value in missing.items() if label not in node["metadata"]["labels"]}
            self._world.patch("", "nodes", node, {"metadata": {"labels": labels}})
            self._world.unlabelled.discard(name)

    def _add_twin(self) -> str:
        """A node joins with the hostname of another, as after a node was cloned."""
        nodes = [node for node in self._world.objects("", "nodes") if not node["metadata"]["name"].startswith((_TWIN, _SHORT_LIVED))]
        node = self._chance.choice(nodes)
        metadata = {"name": f"{_TWIN}{node['metadata']['name']}", "labels": node["metadata"]["labels"]}
        self.doubled |= {metadata["name"], node["metadata"]["name"]}
        status = {name: node["status"][name] for name in ("allocatable", "capacity")}
        twin = make_ready({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}, "True")
        times = self._chance.choice([0, 20])
        for number in range(times):  # its kubelet is started again and again
            at = 3 * _LIFE_S * (number + self._chance.random() / 2)
            self._world.loop.call_later(at, self._delete_if_there, twin)
            self._world.loop.call_later(at + _LIFE_S, self._apply_if_possible, twin)
        self._world.apply(twin)
        if times:
            self._world.loop.call_later(3 * _LIFE_S * (times + 1), self._delete_if_there, twin)
        return f"{metadata['name']}, {times} times anew"

    def _add_short_lived_nodes(self) -> str:
        """Nodes with names of their own come and go one after the other, as an autoscaler's. They have a taint: no pod runs there."""
        like = self._choose_node()
        for number in range(_SHORT_LIVES):
            self._short_lived += 1
            name = f"{_SHORT_LIVED}{self._short_lived}"
            labels = {**like["metadata"]["labels"], HOSTNAME_LABEL: name}
            spec = {"taints": [{"key": "example.com/spot", "effect": "NoSchedule"}]}
            status = {part: like["status"][part] for part in ("allocatable", "capacity")}
            metadata = {"name": name, "labels": labels}
            node = make_ready({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}, "True")
            self._world.loop.call_later(2 * _LIFE_S * number, self._apply_if_possible, node)
            self._world.loop.call_later(2 * _LIFE_S * number + _LIFE_S, self._delete_if_there, node)
        return f"{_SHORT_LIVES}"

    def _apply_if_possible(self, obj: Json) -> None:
        with suppress(Refused):
            self._world.apply(obj)

    def _delete_if_there(self, node: Json) -> None:
        with suppress(Refused):
            self._world.delete(node)

    # --- queues -------------------------------------------------------------------------------------

    def _change_quota(self) -> str:
        queue = self._chance.choice(self._world.objects(_KUEUE, "clusterqueues"))
        [group] = queue["spec"]["resourceGroups"]
        flavor = self._chance.choice(group["flavors"])
        count = str(self._chance.randint(GPUS, 4 * self._pool.nodes * GPUS))
        before = int(next(each["nominalQuota"] for each in flavor["resources"] if each["name"] == "nvidia.com/gpu"))
        if int(count) < before and not self._lowers_quota:
            return "none: what runs beyond a smaller quota runs on"
        resources = [{**each, "nominalQuota": count} if each["name"] == "nvidia.com/gpu" else each for each in flavor["resources"]]
        flavors = [{**flavor, "resources": resources} if each["name"] == flavor["name"] else each for each in group["flavors"]]
        changed = [{**group, "flavors": flavors}]
        self._world.patch(_KUEUE, "clusterqueues", queue, {"spec": {"resourceGroups": changed}})
        if int(count) < before:
            self._world.lowered.note_lowered(queue["metadata"]["name"])
        return f"{queue['metadata']['name']} has {count} after {before}"

    def _stop_queue(self) -> str:
        plural = self._chance.choice(["clusterqueues", "localqueues"])
        queue, policy = self._chance.choice(self._world.objects(_KUEUE, plural)), self._chance.choice(["Hold", "HoldAndDrain"])
        self._world.patch(_KUEUE, plural, queue, {"spec": {"stopPolicy": policy}})
        return f"{queue['kind']} {queue['metadata']['name']} {policy}"

    def _change_flavor(self) -> str:
        """What its pods tolerate."""
        flavor = self._chance.choice(self._world.objects(_KUEUE, "resourceflavors"))
        tolerations = self._chance.choice([[], [{"key": _TAINT, "operator": "Exists", "effect": "NoSchedule"}]])
        self._world.patch(_KUEUE, "resourceflavors", flavor, {"spec": {"tolerations": tolerations}})
        return f"{len(tolerations)} tolerations"

    def _change_cohort(self) -> str:
        """The cohort of all queues gets an object without a spec (Kueue's quick start), or loses it. Raises Broken where it is refused."""
        there = self._world.objects(_KUEUE, "cohorts")
        if there:
            self._world.delete(there[0])
            return "deleted"
        try:
            self._world.apply({"apiVersion": f"{_KUEUE}/v1beta2", "kind": "Cohort", "metadata": {"name": "all"}})
        except Refused as refused:
            raise Broken(f"a Cohort without a spec is refused: {refused}") from refused
        return "made"

    def _change_class_value(self) -> str:
        """The value of a priority class, which counts for workloads that get the class later."""
        found, value = self._chance.choice(self._world.objects(_KUEUE, "workloadpriorityclasses")), self._chance.choice([-5, 1, 50, 1000])
        self._world.patch(_KUEUE, "workloadpriorityclasses", found, {"value": value})
        return f"{found['metadata']['name']} is {value}"

    def _make_queue_anew(self) -> str:
        """Deletes a LocalQueue, which comes again some time later."""
        queues = self._world.objects(_KUEUE, "localqueues")
        if not queues:
            return "none"
        queue, after = self._chance.choice(queues), self._chance.choice([0.1, 3.0, 20.0])
        metadata = {name: queue["metadata"][name] for name in ("name", "namespace")}
        self._world.delete(queue)
        again = {"apiVersion": queue["apiVersion"], "kind": queue["kind"], "metadata": metadata, "spec": queue["spec"]}
        self._world.loop.call_later(after, self._apply_if_possible, again)
        return f"{metadata['namespace']}/{metadata['name']} after {after:.1f} s"

    def _set_levels(self, levels: Sequence[str]) -> None:
        """Of the topology, which is made where it is not there."""
        known, wanted = self._world.objects(_KUEUE, "topologies"), manifests.build_topology("t", levels)
        if not known:
            self._world.apply(wanted)
        elif known[0]["spec"] != wanted["spec"]:
            self._world.patch(_KUEUE, "topologies", known[0], {"spec": wanted["spec"]})

    def _change_levels(self) -> str:
        """Levels above the hosts go, or come back. Raises Broken where that is refused."""
        *above, lowest = self._pool.levels
        levels = [*(level for level in above if self._chance.random() < 0.6), lowest]
        try:
            self._set_levels(levels)
        except Refused as refused:
            raise Broken(f"other levels of a topology are refused: {refused}") from refused
        return ", ".join(levels)

    def _move_flavor(self) -> str:
        """A flavor gets other nodes: those of a pool. Raises Broken where that is refused."""
        flavor, pool = self._chance.choice(self._world.objects(_KUEUE, "resourceflavors")), self._chance.choice(POOLS)
        self._world.moved |= {node["metadata"]["name"] for node in self._world.objects("", "nodes")}
        try:
            self._world.patch(_KUEUE, "resourceflavors", flavor, {"spec": {"nodeLabels": {POOL_LABEL: pool}}})
        except Refused as refused:
            raise Broken(f"other nodes of a flavor are refused: {refused}") from refused
        return f"{flavor['metadata']['name']} has pool {pool}"

    def _delete_topology(self) -> str:
        topologies = self._world.objects(_KUEUE, "topologies")
        for topology in topologies:
            self._world.delete(topology)
        return f"{len(topologies)} deleted"


def make_ready(node: Json, status: str) -> Json:
    """A node with this status of its condition Ready."""
    ready = {"type": "Ready", "status": status, "reason": "Kubelet", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {**node, "status": {**(node.get("status") or {}), "conditions": [ready]}}

"""Small builders for tests: a view over a handful of nodes, requests, and the JSON of Kubernetes objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.names import HOSTNAME_LABEL, PODSET_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.node_eligibility import Taint
from core.placement.topology.tree import NodeLabels, TopologyTree

BLOCK, RACK = "cloud/block", "cloud/rack"
THREE_LEVELS = (BLOCK, RACK, HOSTNAME_LABEL)
NAMESPACE = "ns"


@dataclass(frozen=True)
class Node:
    """A node of a test cluster."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int] = field(default_factory=lambda: {"cpu": 4000, "pods": 110})
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False

    @property
    def state(self) -> NodeState:
        return NodeState(self.allocatable, self.taints, self.ready, self.unschedulable)


def build_grid(blocks: int, racks: int, nodes: int, *, cpu: int = 4, pods: int = 110) -> list[Node]:
    """A regular cluster with levels block, rack, hostname: nodes are b0-r0-n0, ..."""
    return [
        Node(
            name := f"b{b}-r{r}-n{n}",
            {BLOCK: f"b{b}", RACK: f"b{b}-r{r}", HOSTNAME_LABEL: name},
            {"cpu": cpu * 1000, "pods": pods},
        )
        for b in range(blocks)
        for r in range(racks)
        for n in range(nodes)
    ]


def build_view(levels: Sequence[str], nodes: Iterable[Node]) -> FreeCapacity:
    """Free capacity over nodes that nobody uses yet."""
    nodes = list(nodes)
    tree = TopologyTree(levels, [NodeLabels(node.name, node.labels) for node in nodes])
    return FreeCapacity(tree, {node.name: node.state for node in nodes})


def request(
    count: int,
    mode: Mode = Mode.IMPLIED,
    level: str | None = None,
    *,
    slices: Sequence[tuple[str, int]] = (),
    cpu: int = 1000,
    **other: Any,
) -> PodSetRequest:
    """A pod set of `count` pods of one CPU each."""
    topology = TopologyRequest(mode, level, tuple(SliceLayer(*layer) for layer in slices))
    return PodSetRequest(other.pop("name", "main"), count, other.pop("requests", {"cpu": cpu}), topology, **other)


# --- JSON of API objects ----------------------------------------------------------------------------


def build_node_json(node: Node) -> dict[str, Any]:
    """A Node as the API server has it."""
    amounts = {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in node.allocatable.items()}
    taints = [{"key": key, "value": value, "effect": effect} for key, value, effect in node.taints]
    return {
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {"taints": taints, "unschedulable": node.unschedulable},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True" if node.ready else "False"}]},
    }


def build_pod_json(
    name: str,
    *,
    node: str = "",
    cpu: str = "1",
    phase: str = "Pending",
    workload: str | None = None,
    pod_set: str = "main",
    owner: str | None = None,
    gated: bool = False,
    terminating: bool = False,
    labels: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A Pod, by default one that topogate has nothing to do with."""
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": dict(labels or {})}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    if workload is not None:
        metadata["annotations"] = {WORKLOAD_ANNOTATION: workload}
        metadata["labels"][PODSET_LABEL] = pod_set
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": owner, "controller": True}]
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if node:
        spec["nodeName"] = node
    if gated:
        spec["schedulingGates"] = [{"name": TOPOLOGY_GATE}]
    if node_selector:
        spec["nodeSelector"] = dict(node_selector)
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def build_topology_json(name: str, levels: Sequence[str]) -> dict[str, Any]:
    """A Topology."""
    return {"metadata": {"name": name}, "spec": {"levels": [{"nodeLabel": level} for level in levels]}}


def build_flavor_json(name: str, topology: str | None = None, **spec: Any) -> dict[str, Any]:
    """A ResourceFlavor."""
    return {"metadata": {"name": name}, "spec": spec | ({"topologyName": topology} if topology else {})}


def build_cluster_queue_json(
    name: str, quotas: Mapping[str, str], *, strict: bool = False, resource: str = "cpu", **spec: Any
) -> dict[str, Any]:
    """A ClusterQueue with one resource group; `quotas` is flavor -> nominal quota."""
    flavors = [{"name": flavor, "resources": [{"name": resource, "nominalQuota": quota}]} for flavor, quota in quotas.items()]
    return {
        "metadata": {"name": name},
        "spec": {
            "queueingStrategy": "StrictFIFO" if strict else "BestEffortFIFO",
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [resource], "flavors": flavors}],
        }
        | spec,
    }


def build_local_queue_json(name: str, cluster_queue: str) -> dict[str, Any]:
    """A LocalQueue in the tests' namespace."""
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"clusterQueue": cluster_queue}}


def build_pod_set_json(
    name: str = "main", count: int = 1, *, cpu: str = "1", topology: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """`spec.podSets[i]` of a Workload."""
    template = {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]} | spec}
    return {"name": name, "count": count, "template": template} | ({"topologyRequest": dict(topology)} if topology is not None else {})


def build_workload_json(
    name: str,
    pod_sets: Sequence[Mapping[str, Any]],
    *,
    queue: str = "lq",
    priority: int = 0,
    created: str = "2026-01-01T00:00:00Z",
    version: int = 1,
    owner: str | None = None,
    admission: Mapping[str, Any] | None = None,
    conditions: Sequence[Mapping[str, Any]] = (),
    active: bool = True,
    uid: str | None = None,
) -> dict[str, Any]:
    """A Workload; pending unless it has an admission."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": uid or f"uid-{name}",
        "creationTimestamp": created,
        "resourceVersion": str(version),
        "generation": 1,
    }
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": owner, "controller": True}]
    status: dict[str, Any] = {"conditions": [dict(condition) for condition in conditions]}
    if admission is not None:
        status["admission"] = dict(admission)
    spec = {"queueName": queue, "priority": priority, "podSets": [dict(pod_set) for pod_set in pod_sets], "active": active}
    return {"metadata": metadata, "spec": spec, "status": status}


def build_condition_json(
    kind: str, status: bool = True, *, message: str = "", time: str = "2026-01-01T00:00:00Z", reason: str = ""
) -> dict[str, Any]:
    """A condition as it stands in a status."""
    value = "True" if status else "False"
    return {
        "type": kind,
        "status": value,
        "reason": reason or kind,
        "message": message,
        "lastTransitionTime": time,
        "observedGeneration": 1,
    }


class Counted(str):
    """A text that counts how often any of its kind is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__

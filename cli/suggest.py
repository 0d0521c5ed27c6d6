"""`topogate topology suggest`: from nodes to the objects that an administrator would otherwise write by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from cli.failures import BadInput, Failure
from cli.level_names import find_levels
from core.model.pod_resources import PODS, add
from core.model.quantity import format_quantity, show_count
from core.names import API_VERSION, HOSTNAME_LABEL
from core.placement.changes import show_taint
from core.resource import Obj
from core.state.facts import FlavorFacts, NodeFacts
from core.state.flavor_view import is_match

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")
_STORAGE = ("ephemeral-storage", "hugepages-", "attachable-volumes-")
# Labels that usually distinguish pools of nodes, the best known first.
_POOLS = (
    "node-group",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.present",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
)


_OPTION = {"Topology": "--name", "ResourceFlavor": "--name", "ClusterQueue": "--cluster-queue", "LocalQueue": "--local-queue"}


@dataclass(frozen=True, slots=True)
class Names:
    """What the new objects are to be called."""

    topology: str = "default"
    flavor: str = "default"
    cluster_queue: str = "cluster-queue"
    local_queue: str = "main"
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Objects to apply, and what an administrator should know of them."""

    objects: tuple[Obj, ...]
    remarks: tuple[str, ...]

    def to_yaml(self) -> str:
        """Returns the objects as YAML documents, ready for `kubectl apply -f -`."""
        return yaml.safe_dump_all(self.objects, sort_keys=False, allow_unicode=True, width=2**16)


def suggest(nodes: Sequence[NodeFacts], names: Names) -> Suggestion:
    """Returns a Topology, a ResourceFlavor, a ClusterQueue and a LocalQueue, in this order, with remarks. They are for nodes with
    accelerators, or all workers where none has any; the quota is all that these nodes have. Raises BadInput without any node. Raises
    Failure where no label is of use, no node has all labels, or the nodes have none in common for a flavor."""
    remarks: list[str] = []
    chosen = _choose_nodes(nodes, remarks)
    found = find_levels({node.name: node.labels for node in chosen})
    if not found.levels:
        raise Failure(
            f"no label of the {show_count(len(chosen), 'node')} says where they stand, not even {HOSTNAME_LABEL}: "
            "there is nothing to suggest"
        )
    if found.levels == (HOSTNAME_LABEL,):
        remarks.append("no label groups the nodes: the only level is the node itself; label them with their rack and block")
    remarks += found.remarks
    placed = [node for node in chosen if all(label in node.labels for label in found.levels)]
    if not placed:
        raise Failure([*remarks, f"no node has all labels of the levels {', '.join(found.levels)}: nothing could be placed"])
    label, value = _choose_pool(placed, nodes, remarks)
    objects = (
        _build_object("Topology", names.topology, {"levels": [{"nodeLabel": level} for level in found.levels]}),
        _build_object("ResourceFlavor", names.flavor, _build_flavor(names, label, value, placed, remarks)),
        _build_object("ClusterQueue", names.cluster_queue, _queue(names, placed)),
        _build_object("LocalQueue", names.local_queue, {"clusterQueue": names.cluster_queue}, names.namespace),
    )
    return Suggestion(objects, tuple(remarks))


def compare_with_present(suggested: Sequence[Mapping[str, Any]], present: Sequence[Obj]) -> list[str]:
    """Returns a remark, as text, on each present object that has a suggested name and differs in a field of the suggested spec. Raises
    KeyError for one without a suggested name."""
    specs = {(obj["kind"], obj["metadata"]["name"]): obj["spec"] for obj in suggested}
    remarks = []
    for obj in present:
        kind, name, there = obj["kind"], obj["metadata"]["name"], obj.get("spec") or {}
        differing = [f"spec.{field}" for field, value in specs[kind, name].items() if there.get(field) != value]
        refused = ", and the API server refuses that" if kind == "LocalQueue" else ""
        if differing:
            changes = f"applying this would change its {', '.join(differing)}{refused}"
            remarks.append(f"there is a {kind} {name} already, and {changes}; {_OPTION[kind]} names another")
    return remarks


def compare_with_flavors(suggestion: Suggestion, flavors: Sequence[FlavorFacts], nodes: Sequence[NodeFacts]) -> list[str]:
    """Returns a remark, as text, on each present flavor of another name that selects nodes of the suggested one: the suggested quota would
    count them a second time."""
    suggested = FlavorFacts.read(next(obj for obj in suggestion.objects if obj["kind"] == "ResourceFlavor"))
    mine = [node for node in nodes if is_match(suggested, node)]
    remarks = []
    for flavor in sorted(flavors, key=lambda flavor: flavor.name):
        count = sum(is_match(flavor, node) for node in mine)
        if flavor.name != suggested.name and count:
            again = f"quota of both counts these twice; give the quota to one of them, or apply this with --name {flavor.name}"
            remarks.append(
                f"there is a ResourceFlavor {flavor.name} already that selects {count} of the {show_count(len(mine), 'node')}: {again}"
            )
    return remarks


def _choose_nodes(nodes: Sequence[NodeFacts], remarks: list[str]) -> list[NodeFacts]:
    if not nodes:
        raise BadInput("there is no node")
    ordered = sorted(nodes, key=lambda node: node.name)
    workers = [node for node in ordered if not any(label in node.labels for label in _CONTROL_PLANE)] or ordered
    accelerated = [node for node in workers if _list_accelerators(node)]
    chosen = accelerated or workers
    if len(chosen) < len(nodes):
        kind = "with accelerators" if accelerated else "that are no control plane"
        remarks.append(f"{len(chosen)} of {show_count(len(nodes), 'node')} are looked at: those {kind}")
    return chosen


def _list_accelerators(node: NodeFacts) -> list[str]:
    """Extended resources: those with a domain in their name that is not Kubernetes' own."""
    return [name for name, amount in node.state.allocatable.items() if "/" in name and amount and not name.startswith("kubernetes.io/")]


def _choose_pool(placed: Sequence[NodeFacts], nodes: Sequence[NodeFacts], remarks: list[str]) -> tuple[str, str]:
    """The label that all placed nodes have in common and the fewest others have: a flavor's nodes are found by it."""
    first, mine = placed[0].labels, {node.name for node in placed}
    common = {label: value for label, value in first.items() if all(node.labels.get(label) == value for node in placed)}
    common.pop(HOSTNAME_LABEL, None)
    if not common:
        raise Failure("the nodes have no label in common by which a ResourceFlavor could name them; give them one, such as node-group=gpu")
    others = {label: sum(n.labels.get(label) == value for n in nodes if n.name not in mine) for label, value in common.items()}
    label = min(common, key=lambda each: (others[each], _POOLS.index(each) if each in _POOLS else len(_POOLS), each))
    if others[label]:
        count, pool = others[label], f"{label}={common[label]}"
        remarks.append(
            f"the flavor's label {pool} is on {show_count(count, 'other node')}, too; those without a level's label take no pods"
        )
    return label, common[label]


def _build_flavor(names: Names, label: str, value: str, placed: Sequence[NodeFacts], remarks: list[str]) -> dict[str, Any]:
    spec: dict[str, Any] = {"nodeLabels": {label: value}, "topologyName": names.topology}
    common = (taint for taint in placed[0].state.taints if all(taint in node.state.taints for node in placed))
    taints = [taint for taint in common if not taint[0].startswith(_PASSING_TAINTS)]
    if taints:
        spec["tolerations"] = [
            {"key": key, "operator": "Equal" if value else "Exists", **({"value": value} if value else {}), "effect": effect}
            for key, value, effect in taints
        ]
        remarks.append(f"all nodes have the taint {', '.join(map(show_taint, taints))}: the flavor lets its pods tolerate it")
    return spec


def _queue(names: Names, placed: Sequence[NodeFacts]) -> dict[str, Any]:
    """All that the nodes have is its quota; pods, storage and volumes are not counted by it."""
    total: dict[str, int] = {}
    for node in placed:
        add(total, node.state.allocatable)
    counted = [name for name in total if total[name] and name != PODS and not name.startswith(_STORAGE)]
    quota = {name: total[name] for name in sorted(counted, key=lambda name: ("/" in name, name))}
    resources = [{"name": name, "nominalQuota": format_quantity(name, amount)} for name, amount in quota.items()]
    groups = [{"coveredResources": list(quota), "flavors": [{"name": names.flavor, "resources": resources}]}]
    return {"namespaceSelector": {}, "resourceGroups": groups}


def _build_object(kind: str, name: str, spec: dict[str, Any], namespace: str | None = None) -> Obj:
    metadata = {"name": name} | ({"namespace": namespace} if namespace is not None else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}

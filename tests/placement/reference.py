"""The rules of feasibility and fit written a second time, per node and by trying everything out: what the engine must agree with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.model.podset import Mode, PodSetRequest
from core.placement.refusals import RefusalKind
from tests.builders import Node
from tests.strategies import Cluster


def can_tolerate(node: Node, tolerations: Sequence[Mapping[str, Any]]) -> bool:
    def covered(taint: tuple[str, str, str]) -> bool:
        for toleration in tolerations:
            right_key = toleration.get("key", "") in ("", taint[0])
            right_effect = toleration.get("effect", "") in ("", taint[2])
            right_value = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint[1]
            if right_key and right_effect and right_value:
                return True
        return False

    return all(covered(taint) for taint in node.taints)


def is_match(node: Node, selector: Mapping[str, str], affinity: Mapping[str, Any] | None) -> bool:
    if not all(key in node.labels and node.labels[key] == value for key, value in selector.items()):
        return False
    required = ((affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term(node, term) for term in required["nodeSelectorTerms"])


def _term(node: Node, term: Mapping[str, Any]) -> bool:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return False
    labels = all(_expression(node.labels.get(e["key"]), e) for e in term.get("matchExpressions") or ())
    return labels and all(_expression(node.name, e) for e in term.get("matchFields") or ())


def _expression(value: str | None, expression: Mapping[str, Any]) -> bool:
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not value.lstrip("-").isdecimal() or "_" in value:
                return False
            bound = int(expression["values"][0])
            return int(value) > bound if operator == "Gt" else int(value) < bound
    raise AssertionError(expression)


def is_usable(node: Node, request: PodSetRequest) -> bool:
    return (
        node.ready
        and not node.unschedulable
        and can_tolerate(node, request.tolerations)
        and is_match(node, request.node_selector, request.affinity)
    )


def compute_free_amounts(cluster: Cluster) -> dict[str, dict[str, int]]:
    free = {node.name: dict(node.allocatable) for node in cluster.nodes}
    for name, amounts, times in cluster.used:
        for resource, amount in amounts.items():
            free[name][resource] = free[name].get(resource, 0) - amount * times
    return free


def compute_room(node: Node, request: PodSetRequest, free: Mapping[str, int]) -> int:
    """Pods that fit on a node, found by putting one more on it until it is full."""
    if not is_usable(node, request):
        return 0
    left, pods = dict(free), 0
    while True:
        left["pods"] = left.get("pods", 0) - 1
        for resource, amount in request.requests.items():
            left[resource] = left.get(resource, 0) - amount
        if any(left[resource] < 0 for resource in ("pods", *request.requests)):
            return pods
        pods += 1


def can_fit(cluster: Cluster, request: PodSetRequest, *, level: str | None = None) -> bool:
    """Whether some way to spread the pods over nodes keeps every promise; tries all of them.

    `level`: within one domain of that level, else where the request's own mode allows.
    """
    topology = request.topology
    assert topology is not None
    free = compute_free_amounts(cluster)
    rooms = [compute_room(node, request, free[node.name]) for node in cluster.nodes]
    within = level or (topology.level if topology.mode is Mode.REQUIRED else None)
    for spread in _generate_spreads(rooms, request.count):
        used = [node for node, count in zip(cluster.nodes, spread, strict=True) if count]
        if within is not None and len({get_path(cluster, node, within) for node in used}) > 1:
            continue
        pods = {node.name: count for node, count in zip(cluster.nodes, spread, strict=True)}
        if all(has_whole_slices(cluster, pods, layer.level, layer.size, partial=topology.partial) for layer in topology.slices):
            return True
    return False


def get_path(cluster: Cluster, node: Node, level: str) -> tuple[str, ...]:
    """A node's domain at a level: all values from the top, since names recur."""
    return tuple(node.labels[label] for label in cluster.levels[: cluster.levels.index(level) + 1])


def has_whole_slices(cluster: Cluster, pods: Mapping[str, int], level: str, size: int, *, partial: bool = False) -> bool:
    """Whether the pods (by node) of each domain of a level make whole slices; with `partial` those of one domain may have a rest, which is
    that of all pods."""
    per_domain: dict[tuple[str, ...], int] = {}
    for node in cluster.nodes:
        domain = get_path(cluster, node, level)
        per_domain[domain] = per_domain.get(domain, 0) + pods.get(node.name, 0)
    rests = [count % size for count in per_domain.values() if count % size]
    return not rests or (partial and rests == [sum(pods.values()) % size])


def _generate_spreads(rooms: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    if not rooms:
        if count == 0:
            yield ()
        return
    if sum(rooms) < count:
        return
    for here in range(min(rooms[0], count), -1, -1):
        for rest in _generate_spreads(rooms[1:], count - here):
            yield (here, *rest)


def is_capacity(kind: RefusalKind) -> bool:
    """Whether a refusal is about what is free, not about the request itself."""
    return kind in (RefusalKind.NOT_FIT, RefusalKind.NO_DOMAINS)

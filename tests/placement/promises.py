"""What an answer about pods of which some already run must keep, judged node by node in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from core.model.podset import Mode, PodSetRequest
from core.placement.engine import Decision
from tests.builders import Node
from tests.placement.reference import get_path, has_whole_slices, is_usable
from tests.strategies import Cluster

Pods = Mapping[str, int]  # node -> pods


def find_broken_promises(
    cluster: Cluster,
    requests: Sequence[PodSetRequest],
    decision: Decision,
    stay: Mapping[str, Pods],
    free: Mapping[str, Mapping[str, int]],
    failed: Collection[str] = (),
) -> list[str]:
    """`stay` are per pod set the pods that must not move, `free` what is free on each node beside those."""
    left = {name: dict(amounts) for name, amounts in free.items()}
    nodes = {node.name: node for node in cluster.nodes}
    wrong: list[str] = []
    for request in requests:
        placement = next(each for each in decision.placements if each.pod_set == request.name)
        now, kept = Counter(dict(placement.nodes)), Counter(dict(stay.get(request.name, {})))
        if placement.assignment.count != request.count or now.total() != request.count:
            wrong.append(f"{request.name}: {placement.assignment.count} of {request.count} pods")
        if kept - now:
            wrong.append(f"{request.name}: moved {dict(kept - now)}")
        named: Counter[tuple[str, ...]] = Counter()
        for name, count in now.items():
            named[tuple(nodes[name].labels[level] for level in placement.assignment.levels)] += count
        if named != Counter({domain.values: domain.count for domain in placement.assignment.domains}):
            wrong.append(f"{request.name}: the assignment is not its nodes")
        for name, count in (now - kept).items():
            if name in failed or not is_usable(nodes[name], request):
                wrong.append(f"{request.name}: new pods on {name}, which takes none")
            for resource, amount in {**request.requests, "pods": 1}.items():
                left[name][resource] = left[name].get(resource, 0) - amount * count
                if left[name][resource] < 0:
                    wrong.append(f"{request.name}: {name} is over its {resource}")
        wrong += [f"{request.name}: {problem}" for problem in find_shape_problems(cluster, request, now)]
    for name, members in group_pod_sets(requests).items():
        together: Counter[str] = Counter()
        for member in members:
            together.update(dict(next(each for each in decision.placements if each.pod_set == member.name).nodes))
        level = members[0].topology.level if members[0].topology is not None else None
        if level is not None and len({get_path(cluster, nodes[node], level) for node in together}) > 1 and is_required(members[0]):
            wrong.append(f"group {name} is apart")
    return wrong


def find_shape_problems(cluster: Cluster, request: PodSetRequest, pods: Pods) -> Iterator[str]:
    """Whether the required domain is one and the slices of every layer are whole."""
    topology = request.topology
    assert topology is not None
    if topology.mode is Mode.REQUIRED:
        assert topology.level is not None
        if len({get_path(cluster, node, topology.level) for node in _used(cluster, pods)}) > 1:
            yield f"in several domains of {topology.level}"
    for layer in topology.slices:
        if not has_whole_slices(cluster, pods, layer.level, layer.size, partial=topology.partial):
            yield f"broken slices at {layer.level}"


def can_complete(cluster: Cluster, request: PodSetRequest, stay: Pods, missing: int, rooms: Mapping[str, int]) -> bool:
    """Whether some way to add the missing pods keeps every promise; tries all of them."""
    names = [node.name for node in cluster.nodes]
    for spread in _spreads([rooms[name] for name in names], missing):
        pods = Counter(dict(stay)) + Counter(dict(zip(names, spread, strict=True)))
        if not any(find_shape_problems(cluster, request, pods)):
            return True
    return False


def group_pod_sets(requests: Sequence[PodSetRequest]) -> dict[str, list[PodSetRequest]]:
    found: dict[str, list[PodSetRequest]] = {}
    for request in requests:
        if request.topology is not None and request.topology.group:
            found.setdefault(request.topology.group, []).append(request)
    return found


def is_required(request: PodSetRequest) -> bool:
    return request.topology is not None and request.topology.mode is Mode.REQUIRED


def _used(cluster: Cluster, pods: Pods) -> list[Node]:
    return [node for node in cluster.nodes if pods.get(node.name)]


def _spreads(rooms: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    if not rooms:
        if count == 0:
            yield ()
        return
    if sum(rooms) >= count:
        for here in range(min(rooms[0], count) + 1):
            for rest in _spreads(rooms[1:], count - here):
                yield (here, *rest)

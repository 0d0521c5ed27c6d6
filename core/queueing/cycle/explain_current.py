"""Why a workload has its present place: it is placed again in a view without its pods, as if its place had just been chosen."""

from collections.abc import Sequence

import numpy as np

from core.model.admission import PodSetAdmission
from core.model.podset import PodSetRequest
from core.placement.algorithms.decision import Decision, PodSetPlacement, emit
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.explain.choice import Choice, explain_choice
from core.placement.topology.free_capacity import FreeCapacity
from core.queueing.flavors.what_if_view import World
from core.state.cluster import ClusterState
from core.state.facts import PodSetFacts, WorkloadFacts

Given = tuple[PodSetFacts, PodSetAdmission]


def explain_standing(state: ClusterState, workload: WorkloadFacts) -> tuple[Choice, ...]:
    """Returns a choice for each pod set with an assignment that has pods, or places kept for them, on nodes that are there; others may have
    come and gone since it was made. A leader has none of its own (`explain_choice`). They are in the order of the pod sets, flavor by
    flavor; empty for a workload that holds no quota. The state is as before once it returns."""
    admission = state.workloads.find_holding(workload.key)
    if admission is None:
        return ()
    by_flavor: dict[str, list[Given]] = {}
    for pod_set, given in zip(workload.pod_sets, admission.pod_sets, strict=False):
        flavor = state.find_topology_flavor(given.flavors.values())
        if flavor is not None and given.assignment is not None:
            by_flavor.setdefault(flavor, []).append((pod_set, given))
    world = World(state)
    world.remove(workload.key)
    try:
        return tuple(choice for flavor, pairs in by_flavor.items() for choice in _explain(state, world, workload, flavor, pairs))
    finally:
        world.restore_all()


def _explain(state: ClusterState, world: World, workload: WorkloadFacts, flavor: str, pairs: Sequence[Given]) -> Sequence[Choice]:
    view = state.get_view(flavor)
    if view is None:
        return ()
    requests, placements = list[PodSetRequest](), list[PodSetPlacement]()
    for pod_set, _ in pairs:
        request = state.request_for(pod_set, view.flavor)
        nodes = state.ledger.list_counted_nodes((workload.pods_key, pod_set.name, workload.owner_uid))
        placement = _build_placement(view.capacity, request, nodes)
        if placement is not None:
            requests.append(request)
            placements.append(placement)
    return explain_choice(view.capacity, requests, Decision(tuple(placements)), free=world.compute_free(view)) if placements else ()


def _build_placement(capacity: FreeCapacity, request: PodSetRequest, nodes: Sequence[tuple[str, int]]) -> PodSetPlacement | None:
    shape, tree = find_shape(capacity.tree, request), capacity.tree
    known = [(tree.index[name], count) for name, count in nodes if name in tree.index]
    if not isinstance(shape, Shape) or not known:
        return None
    per_node = np.zeros(len(tree), dtype=np.int64)
    for node, count in known:
        per_node[node] += count
    return emit(capacity, request, per_node, shape)

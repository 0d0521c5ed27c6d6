"""What there is in every domain of a tree: nodes, capacity, use, and how many pods of one kind the best domain of each level holds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.model.podset import PodSetRequest
from core.placement.algorithms.domain_capacity import fits_on_nodes
from core.placement.explain.refusal_facts import list_node_reasons
from core.placement.topology.free_capacity import FreeCapacity
from core.placement.topology.tree import Indices


@dataclass(frozen=True, slots=True)
class LevelSurvey:
    """One level; arrays are per domain, in the order of the tree.

    `capacity` and `used` have a row per resource asked for, in canonical amounts, of all nodes; `free` is what is left on
    nodes that take pods of the request (`usable`, see `list_out_of_use`), where it is more than nothing. `fits` are pods.
    """

    label: str
    nodes: Indices
    usable: Indices
    capacity: Sequence[Indices]
    used: Sequence[Indices]
    free: Sequence[Indices]
    fits: Indices

    @property
    def best(self) -> int | None:
        """Index of the first domain of those that hold most pods; None where there is no domain."""
        return int(self.fits.argmax()) if len(self.fits) else None


def list_out_of_use(view: FreeCapacity, request: PodSetRequest) -> dict[str, list[str]]:
    """Returns the names of the nodes that accept no pod of `request` whatever is free on them, by reason; reasons are in the order of
    kube-scheduler's filters, names in that of the tree.

    Each node is under its first reason only, which has the text of a refusal (NotReady, unschedulable, a taint). Selectors and affinity are
    not looked at.
    """
    left, found = np.ones(len(view.tree), dtype=bool), {}
    for reason, hit in list_node_reasons(view, request):
        names = [view.tree.names[node] for node in np.flatnonzero(hit & left)]
        if names:
            found[reason] = names
        left = left & ~hit
    return found


def list_surveys(view: FreeCapacity, request: PodSetRequest, resources: Sequence[str]) -> tuple[LevelSurvey, ...]:
    """Returns what there is at each declared level, from the top; `request` is the pod that is counted (`fits`), `resources` have a row
    each, in their order; one that no node has is 0.

    Raises InvalidSelector where its node affinity cannot be evaluated.
    """
    tree = view.tree
    fits, ones, usable = fits_on_nodes(view, request).per_node, np.ones(len(tree), dtype=np.int64), np.ones(len(tree), dtype=np.int64)
    for _, hit in list_node_reasons(view, request):
        usable[hit] = 0
    nothing = np.zeros(len(tree), dtype=np.int64)
    rows = [view.axis.get(resource) for resource in resources]
    capacity = [nothing if row is None else view.allocatable[row] for row in rows]
    left = [nothing if row is None else view.free[row] for row in rows]
    used = [has - free for has, free in zip(capacity, left, strict=True)]
    free = [np.maximum(amounts, 0) * usable for amounts in left]

    def compute_sums(level: int, table: Sequence[Indices]) -> list[Indices]:
        return [tree.sum_amounts(level, amounts) for amounts in table]

    found = []
    for level, label in enumerate(tree.declared):
        count, out, fit = compute_sums(level, [ones, usable, fits])
        found.append(
            LevelSurvey(label, count, out, compute_sums(level, capacity), compute_sums(level, used), compute_sums(level, free), fit)
        )
    return tuple(found)

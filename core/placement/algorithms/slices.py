"""The levels and sizes that a request names, resolved against a tree and checked."""

from collections.abc import Callable
from dataclasses import dataclass

from core.model.gates import PARTIAL_SLICES_HINT
from core.model.podset import Mode, PodSetRequest, TopologyRequest
from core.names import AUTO_LEVEL, HOSTNAME_LABEL, SPARE_NODES
from core.placement.refusals import NotFit, RefusalKind
from core.placement.topology.tree import TopologyTree


@dataclass(frozen=True, slots=True)
class Shape:
    """Where the search starts and in what units it counts.

    `start` is the level asked for; at `slice_level` and above one unit is `slice_size` pods;
    `sizes[level]` is the number of pods that must stay together at each level (1: none). With `auto`
    the level was left to us: also a required one may be any from `start` upwards (rule k of docs/decisions/0004).
    `tail` is the number of pods of the partial slice, which counts as one unit more; 0: all slices are whole.
    """

    start: int
    slice_level: int
    slice_size: int
    sizes: tuple[int, ...]
    unit: str
    auto: bool = False
    tail: int = 0

    def count_units(self, pods: int) -> int:
        """Returns the number of slices of a pod set, or of its pods where it has none; the partial slice is one of them."""
        return -(-pods // self.slice_size)

    def count_unit_below(self, level: int) -> int:
        """Returns the number of pods handed out together at a level below the slices: the size of the next layer at or below it, 1
        without any."""
        return next((size for size in self.sizes[level:] if size > 1), 1)


def find_shape(tree: TopologyTree, request: PodSetRequest) -> Shape | NotFit:
    """Returns the shape that the level names of a request mean in a tree. Else it returns a refusal, the first of: no level at all,
    spares without the hostname as the lowest level, an unknown level, slices of a level, size or order that cannot be."""
    topology = request.topology
    known = ", ".join(tree.declared)

    def refuse(kind: RefusalKind, detail: str) -> NotFit:
        return NotFit(kind, request.name, detail)

    if topology is None:
        return refuse(
            RefusalKind.NO_LEVEL, f"pod set {request.name}: the topology request names none of required, preferred and unconstrained"
        )
    if request.spares and not tree.is_hostname:
        why = f"nodes are kept free ({SPARE_NODES}) only in topologies with the lowest level {HOSTNAME_LABEL}; this one has {known}"
        return refuse(RefusalKind.SPARES_WITHOUT_HOSTNAME, f"pod set {request.name}: {why}")
    lowest = tree.lowest
    auto = topology.level == AUTO_LEVEL and tree.find_level(AUTO_LEVEL) is None
    if auto:
        start: int | None = _find_lowest_sensible(tree, topology)
        assert start is not None
    elif topology.level is not None:
        start = tree.find_level(topology.level)
        if start is None:
            return refuse(
                RefusalKind.UNKNOWN_LEVEL, f"pod set {request.name}: no topology level {topology.level!r}; the topology has {known}"
            )
    else:
        start = 0 if topology.mode is Mode.UNCONSTRAINED and topology.slices else lowest

    sizes = _find_sizes(tree, request, topology, start, refuse)
    if isinstance(sizes, NotFit):
        return sizes
    if not topology.slices:
        return Shape(start, lowest, 1, tuple(sizes), "pod", auto)
    outer = tree.declared.index(topology.slices[0].level)
    size = topology.slices[0].size
    return Shape(start, outer, size, tuple(sizes), "slice" if size > 1 else "pod", auto, request.count % size)


def _find_sizes(
    tree: TopologyTree, request: PodSetRequest, topology: TopologyRequest, start: int, refuse: Callable[[RefusalKind, str], NotFit]
) -> list[int] | NotFit:
    """Sizes of slices by level, 1 where there are none."""
    sizes, known = [1] * len(tree.declared), ", ".join(tree.declared)
    above, size_above = start, request.count
    for i, layer in enumerate(topology.slices):
        level = tree.find_level(layer.level)
        if level is None:
            return refuse(RefusalKind.UNKNOWN_LEVEL, f"pod set {request.name}: no slice level {layer.level!r}; the topology has {known}")
        if layer.size < 1:
            return refuse(
                RefusalKind.BAD_SLICE_SIZE, f"pod set {request.name}: slice size {layer.size} at {layer.level}; at least 1 is needed"
            )
        if i == 0 and level < above:
            return refuse(
                RefusalKind.SLICE_LEVEL_ABOVE_PODSET_LEVEL,
                f"pod set {request.name}: slice level {layer.level} is above {tree.declared[start]}; it must be that level or a lower one",
            )
        if i and level <= above:
            return refuse(
                RefusalKind.SLICE_LAYERS_ORDER, f"pod set {request.name}: slice layers must go from coarse to fine; {layer.level} does not"
            )
        if size_above % layer.size and not (topology.partial and len(topology.slices) == 1):
            if i:
                return refuse(
                    RefusalKind.SLICE_LAYERS_DIVISIBILITY,
                    f"pod set {request.name}: slice size {layer.size} at {layer.level} does not divide the {size_above} above it",
                )
            fact = f"pod set {request.name}: slice size {layer.size} does not evenly divide the {request.count} pods"
            hint = ", as it must with more than one layer" if len(topology.slices) > 1 else f"; {PARTIAL_SLICES_HINT}"
            return refuse(RefusalKind.UNEVEN_SLICES, f"{fact}{hint}")
        sizes[level] = layer.size
        above, size_above = level, layer.size
    return sizes


def _find_lowest_sensible(tree: TopologyTree, topology: TopologyRequest) -> int:
    """Where the search for a level begins that was left to us: above single nodes if it is required, and not below the slices."""
    start = tree.lowest - 1 if topology.mode is Mode.REQUIRED and tree.is_hostname else tree.lowest
    slice_level = tree.find_level(topology.slices[0].level) if topology.slices else None
    return max(0, start if slice_level is None else min(start, slice_level))

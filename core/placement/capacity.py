"""How many pods and how many slices fit in every domain, bottom up (KEP-2724, Two-level scheduling)."""

from dataclasses import dataclass

from core.placement.candidates import Candidates
from core.placement.slices import Shape
from core.placement.tree import Indices, TopologyTree


@dataclass(frozen=True, slots=True)
class Fits:
    """Per declared level: pods that fit in each domain, from the slice level up whole slices, and the sum
    of its nodes' preferred-affinity scores where these count."""

    pods: tuple[Indices, ...]
    units: tuple[Indices, ...]
    scores: tuple[Indices, ...] | None = None

    def units_at(self, level: int, shape: Shape) -> Indices:
        """Units that are handed out at a level: slices down to their level, the next layer's groups below."""
        if level <= shape.slice_level:
            return self.units[level]
        return self.pods[level] // shape.unit_below(level)

    def candidates(self, level: int, shape: Shape, chosen: Indices | slice = slice(None)) -> Candidates:
        """Domains of a level, all or some, to choose among."""
        scores = self.scores[level][chosen] if self.scores is not None else None
        return Candidates(self.units_at(level, shape)[chosen], self.pods[level][chosen], scores)


def count_fits(tree: TopologyTree, shape: Shape, per_node: Indices, scores: Indices | None = None) -> Fits:
    """Sums what fits per node up to the top; at a level with a slice layer only whole slices count."""
    lowest = tree.lowest
    pods: list[Indices] = [per_node] * (lowest + 1)
    units: list[Indices] = [per_node] * (lowest + 1)
    here = tree.sum_nodes(lowest, per_node)
    for level in range(lowest, -1, -1):
        if level < lowest:
            here = tree.sum_children(level, here)
        if level > shape.slice_level and shape.sizes[level] > 1:
            here = here // shape.sizes[level] * shape.sizes[level]
        pods[level] = here
        if level == shape.slice_level:
            units[level] = here // shape.slice_size
        elif level < shape.slice_level:
            units[level] = tree.sum_children(level, units[level + 1])
        else:
            units[level] = here
    summed = None if scores is None else tuple(tree.sum_nodes(level, scores) for level in range(lowest + 1))
    return Fits(tuple(pods), tuple(units), summed)

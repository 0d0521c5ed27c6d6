"""Candidate sets of nodes, many at once, as arrays over the nodes of a tree. Those that topogate makes itself share no node in a rank."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from core.placement.topology.tree import Flags, Indices, TopologyTree


@dataclass(frozen=True, slots=True)
class Placement:
    """A candidate set of nodes (KEP-5732: Placement). `rank`: those of a lower one are tried first; `parent`: what it is a part of."""

    name: str
    nodes: Indices  # places in the tree, ascending
    rank: int = 0
    parent: "Placement | None" = None

    def build_mask(self, tree: TopologyTree) -> Flags:
        """Returns a new array with a flag per node of the tree: whether it is in the placement."""
        flags = np.zeros(len(tree), dtype=bool)
        flags[self.nodes] = True
        return flags


class Placements(Sequence[Placement]):
    """Placements of one rank in the order of their names.

    `order` are their nodes one placement after the other, `starts` where each begins in it.
    """

    __slots__ = ("names", "order", "parents", "rank", "starts")

    def __init__(
        self,
        names: Sequence[str],
        order: Indices,
        starts: Indices,
        rank: int = 0,
        parents: Sequence[Placement] = (),
    ) -> None:
        self.names, self.order, self.starts, self.rank, self.parents = tuple(names), order, starts, rank, tuple(parents)

    def compute_sums(self, per_node: Indices) -> Indices:
        """Returns the sums (int64), by placement, of an array with a value per node of the tree; each value is cut so that no sum leaves
        int64. No placement may be without nodes."""
        most = np.iinfo(np.int64).max // max(1, len(per_node))
        return np.add.reduceat(np.clip(per_node, -most, most)[self.order], self.starts) if len(self.starts) else self.starts

    def list_nodes(self, at: int) -> Indices:
        """Returns the places, ascending, that the nodes of the placement at a position have in the tree."""
        return self.order[self.starts[at] : self.starts[at + 1] if at + 1 < len(self.starts) else len(self.order)]

    def copy_with_rank(self, rank: int) -> "Placements":
        """Returns the same placements with another rank; the arrays are shared."""
        return Placements(self.names, self.order, self.starts, rank, self.parents)

    def select(self, kept: Flags) -> "Placements":
        """Returns a copy with the placements that are flagged (`kept`: a flag per placement), in their order, of the same rank and with
        their parents."""
        sizes = np.diff(self.starts, append=len(self.order))
        at = np.flatnonzero(kept).tolist()
        starts = sizes[kept].cumsum() - sizes[kept]
        parents = [self.parents[i] for i in at] if self.parents else ()
        return Placements([self.names[i] for i in at], self.order[kept.repeat(sizes)], starts, self.rank, parents)

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Placement: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Placement]: ...
    def __getitem__(self, index: int | slice) -> Placement | Sequence[Placement]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return Placement(self.names[index], self.list_nodes(index), self.rank, self.parents[index] if self.parents else None)

    def __iter__(self) -> Iterator[Placement]:
        return (self[i] for i in range(len(self)))


def join(placements: Sequence[Placement], rank: int = 0) -> Placements:
    """Returns placements, which must be in the order of their names, as one sequence of a rank, whatever rank they have. It has their
    parents only if all have one."""
    sizes = [len(placement.nodes) for placement in placements]
    if not sizes:
        return Placements((), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), rank)
    starts = np.cumsum([0, *sizes[:-1]])
    parents = [placement.parent for placement in placements if placement.parent is not None]
    order = np.concatenate([placement.nodes for placement in placements])
    return Placements([placement.name for placement in placements], order, starts, rank, parents if len(parents) == len(sizes) else ())


def build_whole(tree: TopologyTree) -> Placements:
    """Returns all nodes as one placement with an empty name and rank 0, which groups without a constraint have; no placement where there is
    no node."""
    return Placements(("",), np.arange(len(tree)), np.zeros(min(1, len(tree)), dtype=np.int64)) if len(tree) else join(())

"""Pods per node of a tree, as arrays that read like a sequence of (name, count)."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from core.placement.topology.tree import Indices, TopologyTree

Pair = tuple[str, int]


class NodeCounts(Sequence[Pair]):
    """`counts[i]` pods on the node at place `at[i]` of the tree, each node once; names are looked up only when read."""

    __slots__ = ("at", "counts", "tree")

    def __init__(self, tree: TopologyTree, at: Indices, counts: Indices) -> None:
        self.tree, self.at, self.counts = tree, at, counts

    def list_names(self) -> list[str]:
        """Returns the names of the nodes, in the order of `at`."""
        names = self.tree.names
        return [names[node] for node in self.at.tolist()]

    def __iter__(self) -> Iterator[Pair]:
        return zip(self.list_names(), self.counts.tolist(), strict=True)

    def __len__(self) -> int:
        return len(self.at)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> "NodeCounts": ...
    def __getitem__(self, index: int | slice) -> "Pair | NodeCounts":
        if isinstance(index, slice):
            return NodeCounts(self.tree, self.at[index], self.counts[index])
        return self.tree.names[int(self.at[index])], int(self.counts[index])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NodeCounts) and other.tree is self.tree:
            return np.array_equal(self.at, other.at) and np.array_equal(self.counts, other.counts)
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

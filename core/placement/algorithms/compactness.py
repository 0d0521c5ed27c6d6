"""The compactness of an answer: what the `compact` profile minimises, and what is known about its distance from the
best answer.

The measure of a pod set's assignment is a tuple, compared from its first entry on:

1. per declared level, from the top, how many domains it uses;
2. how many more pods of its kind the lowest of these domains would hold beside it. A domain that stays whole adds
   nothing, and one that is filled up adds nothing.

What is left over in levels further up is no part of it: counted after that of the nodes, it made large jobs wait longer
on streams of jobs that come and go (docs/development/compact.md).
"""

from dataclasses import dataclass

from core.placement.algorithms.domain_capacity import Fits
from core.placement.topology.tree import Indices, TopologyTree

Measure = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CompactSearch:
    """What a search for the most compact answer came to: the answer's measure, and a bound no answer is below.

    `steps` is the work it took, counted the same on every machine.
    """

    measure: Measure
    bound: Measure
    steps: int = 0

    @property
    def optimal(self) -> bool:
        """Whether the answer is proven to be the most compact."""
        return self.measure == self.bound

    @property
    def gap(self) -> int:
        """How far the first entry of the measure that is not proven may be from the least. 0 if all are proven."""
        return next((found - least for found, least in zip(self.measure, self.bound, strict=True) if found != least), 0)


def measure(tree: TopologyTree, fits: Fits, domains: Indices, count: int) -> Measure:
    """Returns the measure of `count` pods on domains of the lowest level (ascending): how many domains are used per level from the top,
    then how many more pods the lowest of these hold."""
    used, here = [len(domains)], domains
    for level in range(tree.lowest, 0, -1):
        here = tree.find_parents(level, here)
        used.append(len(here))
    return (*reversed(used), int(fits.pods[tree.lowest][domains].sum()) - count)

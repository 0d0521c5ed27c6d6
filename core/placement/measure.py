"""How compact an answer is: what the `compact` profile minimises, and what it can say about how near it came.

The measure of a pod set's assignment is a tuple, compared from its first entry on:

1. per declared level, from the top, how many domains it uses;
2. per declared level, in the order of `fragment_order`, how many more pods of its kind the domains it uses would
   hold beside it. A domain that stays whole adds nothing, and one that is filled up adds nothing.
"""

from dataclasses import dataclass

from core.placement.capacity import Fits
from core.placement.tree import Indices, TopologyTree

Measure = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Search:
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
        """In the first entry of the measure that is not proven: how far it may be from the least. 0 if all are."""
        return next((found - least for found, least in zip(self.measure, self.bound, strict=True) if found != least), 0)


def fragment_order(levels: int) -> tuple[int, ...]:
    """In which order what is left over counts: in the lowest domains first."""
    return tuple(range(levels - 1, -1, -1))


def measure(tree: TopologyTree, fits: Fits, domains: Indices, count: int) -> Measure:
    """The measure of `count` pods on domains of the lowest level (ascending)."""
    used, left, here = [0] * (tree.lowest + 1), [0] * (tree.lowest + 1), domains
    for level in range(tree.lowest, -1, -1):
        if level < tree.lowest:
            here = tree.parents_of(level + 1, here)
        used[level], left[level] = len(here), int(fits.pods[level][here].sum()) - count
    return (*used, *(left[level] for level in fragment_order(len(used))))

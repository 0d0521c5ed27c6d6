"""A topology assignment: which domain gets how many pods, in the order of ranks."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(slots=True, unsafe_hash=True)
class DomainCount:
    """`count` pods in the domain with the level values `values`, highest level first.

    A value like the others; not frozen only because that makes it three times as slow to create, and assignments have
    thousands.
    """

    values: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """Domains in the order of ranks: that of the full path of level values, but those of a partial slice come last. So it is never sorted.

    `levels` are the node labels that `values` belong to: only the hostname where that names a node
    for sure, else all levels of the topology.
    """

    levels: tuple[str, ...]
    domains: tuple[DomainCount, ...]

    @property
    def count(self) -> int:
        """The number of pods assigned in all domains."""
        return sum(domain.count for domain in self.domains)

    def move_partial_last(self, homes: Sequence[Hashable], size: int) -> "TopologyAssignment":
        """Returns an assignment in which the domains of the partial slice come last; itself if all slices of `size` pods are whole.

        `homes` has the slice domain of each domain. Of several slice domains that have a partial slice's pods beside whole slices the first
        is it. Else the order stays, so that doing it again changes nothing.
        """
        tail = self.count % size
        if not tail:
            return self
        pods = Counter[Hashable]()
        for home, domain in zip(homes, self.domains, strict=True):
            pods[home] += domain.count
        last = next((home for home, count in pods.items() if count % size == tail), None)
        ordered = sorted(zip(homes, self.domains, strict=True), key=lambda each: each[0] == last)
        return TopologyAssignment(self.levels, tuple(domain for _, domain in ordered))

    def expand(self) -> Iterator[int]:
        """Yields, for the pod of rank 0, 1, 2, ..., the index of its domain in `domains`."""
        for index, domain in enumerate(self.domains):
            for _ in range(domain.count):
                yield index

    def build_selector(self, index: int) -> dict[str, str]:
        """Returns the node selector, label to value, that pins a pod to `domains[index]`."""
        return dict(zip(self.levels, self.domains[index].values, strict=True))

"""A topology assignment: which domain gets how many pods, in the order of ranks."""

from collections.abc import Iterator
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
    """Domains in the order of the full path of level values, which is the order of ranks.

    `levels` are the node labels that `values` belong to: only the hostname where that names a node
    for sure, else all levels of the topology.
    """

    levels: tuple[str, ...]
    domains: tuple[DomainCount, ...]

    @property
    def count(self) -> int:
        """The number of pods assigned in all domains."""
        return sum(domain.count for domain in self.domains)

    def expand(self) -> Iterator[int]:
        """Yields, for the pod of rank 0, 1, 2, ..., the index of its domain in `domains`."""
        for index, domain in enumerate(self.domains):
            for _ in range(domain.count):
                yield index

    def build_selector(self, index: int) -> dict[str, str]:
        """Returns the node selector, label to value, that pins a pod to `domains[index]`."""
        return dict(zip(self.levels, self.domains[index].values, strict=True))

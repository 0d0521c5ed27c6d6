"""What is to be placed: a group of pods that belong together (KEP-5732, "Data Structures": PodGroupInfo)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from core.model.podset import PodSetRequest
from core.podgroups.devices.claims import PodClaim


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """All pods of the group share one domain of `level`, a node label.

    `preferred`: they share one where they can, else they go where the constraints before it allow (the KEP's future extensions 1 and 2).
    """

    level: str
    preferred: bool = False


@dataclass(frozen=True, slots=True)
class PodGroupInfo:
    """Pods without a node, in sets of equal pods, in the order in which they are placed; consecutive pods of a set are
    consecutive ranks.

    `min_count`: this many pods of the group, including those of `running`, must have a place, or none gets one (gang; 1
    for the basic policy). `desired_count`: how many pods are expected; a placement with room for them is preferred.
    `constraints`: coarse to fine. `running`: pods of the group by their node. `claims`: the claims that the pods of
    each set name, where a plugin needs them.
    """

    namespace: str
    name: str
    pod_sets: tuple[PodSetRequest, ...]
    constraints: tuple[TopologyConstraint, ...] = ()
    min_count: int = 1
    desired_count: int | None = None
    replica: int = 0
    running: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    claims: tuple[tuple[PodClaim, ...], ...] = ()

    @property
    def key(self) -> str:
        """Returns `namespace/name`, with the number of the replica but for the first (0): `ns/name[1]`."""
        return f"{self.namespace}/{self.name}" + (f"[{self.replica}]" if self.replica else "")

    @property
    def count(self) -> int:
        """Returns the number of pods to be placed, which are all that have no node."""
        return sum(pods.count for pods in self.pod_sets)

    @property
    def has_running(self) -> int:
        """Returns the number of its pods that have a node (`running`); no flag."""
        return sum(self.running.values())

    @property
    def missing(self) -> int:
        """Returns how many pods must get a place at least, so that `min_count` have one with those that have a node; 0 where enough have
        one already."""
        return max(0 if self.has_running >= self.min_count else 1, self.min_count - self.has_running)

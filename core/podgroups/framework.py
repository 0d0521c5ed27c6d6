"""The framework's plugins (KEP-5732, "New Plugin Interfaces") and what they are handed.

Placements are handed over many at once where the KEP hands over one: a plugin in another process is asked once, and one of ours
counts over all nodes in one go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from core.placement.free import FreeCapacity
from core.placement.node_counts import NodeCounts
from core.placement.tree import Flags, Indices
from core.podgroups.group import PodGroupInfo
from core.podgroups.placements import Placement, Placements

Scores = npt.NDArray[np.float64]


@dataclass(slots=True)
class Cycle:
    """One decision. `closed` are nodes that a plugin's assumption keeps from the group meanwhile; `notes` is for plugins."""

    view: FreeCapacity
    closed: Flags | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodGroupAssignment:
    """Where a placement has the group's pods, set by set in the group's order; of a set the first pods are on the first node named."""

    nodes: tuple[NodeCounts, ...]

    @property
    def count(self) -> int:
        return sum(int(of_set.counts.sum()) for of_set in self.nodes)


class Candidates(Protocol):
    """Feasible placements and what each of them takes."""

    placements: Placements
    pods: Indices  # how many of the group's pods each takes
    room: Indices  # the same, pods that are still to come among them, up to desired_count

    def assignment(self, at: int) -> PodGroupAssignment:
        """Where the pods of one placement would go; worked out when asked for."""


class PlacementGenerator(Protocol):
    """Phase 1: candidate placements within those that generators before it made."""

    @property
    def name(self) -> str: ...

    def generate(self, cycle: Cycle, group: PodGroupInfo, parents: Sequence[Placements]) -> Sequence[Placements]:
        """Placements by rank, the lowest first; each within one of `parents`."""


class PlacementState(Protocol):
    """Phase 2: what is taken for granted while a placement is checked, and taken back afterwards."""

    @property
    def name(self) -> str: ...

    def assume(self, cycle: Cycle, group: PodGroupInfo, placement: Placement) -> None:
        """Changes `cycle` (never its view) so that the check sees the placement as if it were chosen."""

    def revert(self, cycle: Cycle, group: PodGroupInfo, placement: Placement) -> None:
        """Leaves `cycle` as it was before `assume`."""


class PlacementScorer(Protocol):
    """Phase 3: how good feasible placements are."""

    @property
    def name(self) -> str: ...

    def score(self, cycle: Cycle, group: PodGroupInfo, candidates: Candidates) -> Scores:
        """A score for each candidate, higher is better."""


@dataclass(frozen=True, slots=True)
class Plugins:
    """What takes part, in order; scorers with their weights. `feasible_limit`: so many feasible placements are enough to choose from."""

    generators: tuple[PlacementGenerator, ...]
    scorers: tuple[tuple[PlacementScorer, float], ...]
    states: tuple[PlacementState, ...] = ()
    feasible_limit: int | None = None

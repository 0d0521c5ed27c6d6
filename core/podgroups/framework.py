"""The framework's plugins (KEP-5732, "New Plugin Interfaces") and what they are handed.

Placements are handed over many at once where the KEP hands over one: a plugin in another process is asked once, and one of ours
counts over all nodes in one go.
"""

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from core.model.plugin_choice import ALL_EVENTS, GroupEvent
from core.placement.changes import Amount
from core.placement.topology.free_capacity import FreeCapacity
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.tree import Flags, Indices
from core.podgroups.group import PodGroupInfo
from core.podgroups.placements import Placement, Placements

Scores = npt.NDArray[np.float64]


class Limits(Protocol):
    """What a plugin's assumption leaves the group of anything but nodes' resources, over the nodes of the placement in its order."""

    def limit_pods(self, pod_set: int, per_node: Indices) -> Indices:
        """Returns a copy of `per_node` (pods per node of the placement, int64), lowered so far that all these pods of a set (by its index
        in the group) together are within the limits."""

    def compute_remaining(self, pod_set: int, counts: Indices) -> "Limits":
        """Returns the limits that are left once `counts` (pods per node of the placement) of a set (by its index) are there; these here
        stay as they are."""

    def list_lacking(self, group: PodGroupInfo) -> tuple[Amount, ...]:
        """Returns the amounts of what is limited here that the placement lacks for all pods of the group that have no place yet; empty
        where it lacks nothing."""


@dataclass(slots=True)
class PlacementCycle:
    """One decision. `closed` are nodes that a plugin's assumption excludes for the group meanwhile, `limits` what else
    restricts it. `notes` is for plugins, and `why` is the reason that a generator gives for missing placements."""

    view: FreeCapacity
    closed: Flags | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    limits: Limits | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class PodGroupAssignment:
    """Where a placement has the group's pods, set by set in the group's order; of a set the first pods are on the first node named."""

    nodes: tuple[NodeCounts, ...]

    @property
    def count(self) -> int:
        """Returns the number of pods that have a place in it, of all sets together."""
        return sum(int(of_set.counts.sum()) for of_set in self.nodes)


class FeasiblePlacements(Protocol):
    """Feasible placements and what each of them takes."""

    placements: Placements
    pods: Indices  # how many of the group's pods each takes
    room: Indices  # the same with pods that are still expected, up to desired_count

    def compute_assignment(self, at: int) -> PodGroupAssignment:
        """Returns where the pods of the placement at a position would go; worked out when asked for."""


class PlacementGenerator(Protocol):
    """Phase 1: candidate placements within those that generators before it made."""

    @property
    def name(self) -> str:
        """Returns the name of the plugin."""

    def generate(self, cycle: PlacementCycle, group: PodGroupInfo, parents: Sequence[Placements]) -> Sequence[Placements]:
        """Returns sequences of placements, each of one rank, the lowest first; each placement is within one of `parents`. They are empty,
        or there are none, where nothing is left."""


@runtime_checkable
class EnqueueExtensions(Protocol):
    """KEP-5732: a generator that depends on some events only. One without `events` depends on all."""

    @property
    def events(self) -> Set[GroupEvent]:
        """Returns the events that can let a group that waits get places by this plugin; no other event does."""


def list_events(plugin: object) -> Set[GroupEvent]:
    """Returns the events that can let a group get places by this plugin: its `events`, or all where it has none."""
    return plugin.events if isinstance(plugin, EnqueueExtensions) else ALL_EVENTS


class PlacementState(Protocol):
    """Phase 2: what is assumed while a placement is checked, and reverted afterwards."""

    @property
    def name(self) -> str:
        """Returns the name of the plugin."""

    def assume(self, cycle: PlacementCycle, group: PodGroupInfo, placement: Placement) -> None:
        """Changes `cycle` (never its view) so that the check sees the placement as if it were chosen."""

    def restore_state(self, cycle: PlacementCycle, group: PodGroupInfo, placement: Placement) -> None:
        """Leaves `cycle` as it was before `assume`. It is called once for each `assume` of this placement, also where that has raised
        before its end."""


@contextmanager
def assume_placement(states: Sequence[PlacementState], cycle: PlacementCycle, group: PodGroupInfo, placement: Placement) -> Iterator[None]:
    """Lets the state plugins, in their order, assume a placement in `cycle` within the context. It is reverted, in the opposite order,
    whatever happens: also by a plugin that raises while it assumes. What a plugin raises reaches the caller."""
    begun = []
    try:
        for state in states:
            begun.append(state)
            state.assume(cycle, group, placement)
        yield
    finally:
        for state in reversed(begun):
            state.restore_state(cycle, group, placement)


class PlacementScorer(Protocol):
    """Phase 3: how good feasible placements are."""

    @property
    def name(self) -> str:
        """Returns the name of the plugin."""

    def score(self, cycle: PlacementCycle, group: PodGroupInfo, candidates: FeasiblePlacements) -> Scores:
        """Returns a score (float64) for each candidate, in their order; higher is better. It is multiplied by the plugin's weight and added
        to those of others."""


@dataclass(frozen=True, slots=True)
class Plugins:
    """What takes part, in order; scorers with their weights. `feasible_limit`: so many feasible placements are enough to choose from."""

    generators: tuple[PlacementGenerator, ...]
    scorers: tuple[tuple[PlacementScorer, float], ...]
    states: tuple[PlacementState, ...] = ()
    feasible_limit: int | None = None

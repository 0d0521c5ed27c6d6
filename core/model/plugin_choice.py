"""The configured plugins that place groups of pods: names, weights, arguments, and limits of those of other packages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

ENTRY_POINTS = "topogate.podgroup_plugins"
GENERATE, SCORE = "generate", "score"
PATH = "topogate.podGroups.plugins"  # of the configuration file
LISTS = {GENERATE: "generators", SCORE: "scorers"}  # there, by role
BUILT_IN_GENERATORS = ("TopologyPlacement",)
BUILT_IN_SCORERS = ("PodCount", "BinPacking", "RankDistance")
BUILT_IN = {GENERATE: BUILT_IN_GENERATORS, SCORE: BUILT_IN_SCORERS}
SMALLEST_MEMORY = 64 << 20  # Python itself takes 14 MiB of it


class GroupEvent(StrEnum):
    """What may let a group get places that it could not get before; generators name those that they depend on (`events`)."""

    POD_GONE = "PodGone"
    PLACE_RETURNED = "PlaceReturned"  # a place that was kept for a pod
    NODE_CHANGED = "NodeChanged"
    NODE_TOPOLOGY_CHANGED = "NodeTopologyChanged"
    DEVICES_CHANGED = "DevicesChanged"  # ResourceSlices, DeviceClasses, ResourceClaimTemplates
    CLAIM_CHANGED = "ClaimChanged"


ALL_EVENTS = frozenset(GroupEvent)
ROOM_EVENTS = frozenset({GroupEvent.POD_GONE, GroupEvent.PLACE_RETURNED, GroupEvent.NODE_CHANGED})


class Which(NamedTuple):
    """A plugin in one of its roles: a plugin with both counts as two, with arguments and a process for each."""

    role: str
    name: str

    @property
    def is_built_in(self) -> bool:
        """Whether topogate itself has the plugin for this role."""
        return self.name in BUILT_IN[self.role]


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """A plugin that is on. `weight` is of a scorer; at 0 it is off."""

    name: str
    weight: float = 1.0
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class PluginLimits:
    """What each plugin of another package may take: time for one answer, and address space.

    Two seconds: so late may every group be for each such plugin. `start_s` is for its imports, which may be large, once per process.
    """

    call_s: float = 2.0
    memory_bytes: int = 512 << 20
    start_s: float = 10.0


@dataclass(frozen=True, slots=True)
class GroupPluginRules:
    """All configured plugins; generators are in the order in which each splits the placements of those before it.
    `feasible_limit`: so many feasible placements are enough to choose from; None: all are checked."""

    generators: tuple[PluginChoice, ...] = (PluginChoice("TopologyPlacement"),)
    scorers: tuple[PluginChoice, ...] = (PluginChoice("PodCount"), PluginChoice("BinPacking"))
    limits: PluginLimits = PluginLimits()
    feasible_limit: int | None = None

    @property
    def chosen(self) -> tuple[tuple[Which, PluginChoice], ...]:
        """Every configured plugin with its role and name: all generators, then all scorers, in their order, also those of weight 0."""
        return tuple((Which(role, one.name), one) for role, of_role in self.by_role.items() for one in of_role)

    @property
    def by_role(self) -> Mapping[str, tuple[PluginChoice, ...]]:
        """The generators under `GENERATE` and the scorers under `SCORE`, in that order."""
        return {GENERATE: self.generators, SCORE: self.scorers}

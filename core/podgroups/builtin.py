"""The built-in plugins, created as configured."""

from collections.abc import Callable, Mapping
from typing import Any

from core.podgroups.framework import PlacementGenerator, PlacementScorer
from core.podgroups.scorers import BinPacking, PodCount, RankDistance
from core.podgroups.topology_placement import TopologyPlacement

Arguments = Mapping[str, Any]
GENERATORS: Mapping[str, Callable[[Arguments], PlacementGenerator]] = {
    "TopologyPlacement": lambda arguments: TopologyPlacement(),
}
SCORERS: Mapping[str, Callable[[Arguments], PlacementScorer]] = {
    "PodCount": lambda arguments: PodCount(),
    "BinPacking": lambda arguments: BinPacking(arguments.get("resources")),
    "RankDistance": lambda arguments: RankDistance(),
}

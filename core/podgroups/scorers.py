"""Scorers (KEP-5732, "Scheduler Plugins"): how many pods a placement takes, how full it then is, how near ranks are to each other."""

from collections.abc import Mapping

import numpy as np

from core.model.pod_resources import PODS
from core.podgroups.framework import FeasiblePlacements, PlacementCycle, Scores
from core.podgroups.group import PodGroupInfo


class PodCount:
    """A hundred points for each pod that fits on a placement, including expected ones.

    So one pod more always outweighs how full a placement is, whatever the size of the group.
    """

    name = "PodCount"

    def score(self, cycle: PlacementCycle, group: PodGroupInfo, candidates: FeasiblePlacements) -> Scores:
        """Returns 100 (float64) for each pod that a candidate has room for, expected ones up to desired_count included; see
        `PlacementScorer.score`."""
        return candidates.room.astype(np.float64) * 100.0


class BinPacking:
    """0 to 100: the used share of a placement once the group is there, on average over all resources that its pods
    request, or over the named resources by their weights.

    Nodes that are not ready or cordoned do not count: pods cannot use what is left on them.
    """

    name = "BinPacking"

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = weights

    def score(self, cycle: PlacementCycle, group: PodGroupInfo, candidates: FeasiblePlacements) -> Scores:
        """Returns 0 to 100 for each candidate: the share of allocatable amounts on usable nodes that is used once the group is there. It is
        the weighted mean over resources that its pods request, `pods` left aside; 0 without any. See `PlacementScorer.score`."""
        view, placements = cycle.view, candidates.placements
        asked: dict[str, int] = {}
        for pods in group.pod_sets:
            for resource, amount in pods.requests.items():
                if amount > 0 and resource != PODS:
                    asked[resource] = asked.get(resource, 0) + amount * pods.count
        weights = {resource: 1.0 if self._weights is None else self._weights.get(resource, 0.0) for resource in asked}
        total = np.zeros(len(placements))
        share = candidates.pods / max(1, group.count)
        for resource in sorted(asked):
            row = view.axis.get(resource)
            if row is None or not weights[resource]:
                continue
            has = placements.compute_sums(view.allocatable[row] * view.usable)
            left = placements.compute_sums(view.free[row] * view.usable)
            total += weights[resource] * (has - left + asked[resource] * share) / np.maximum(has, 1)
        return 100.0 * total / (sum(weights.values()) or 1.0)


class RankDistance:
    """0 to 100: how few nodes the group is spread over; consecutive ranks share a node, so fewer nodes are fewer steps between them."""

    name = "RankDistance"

    def score(self, cycle: PlacementCycle, group: PodGroupInfo, candidates: FeasiblePlacements) -> Scores:
        """Returns 0 to 100 for each candidate: 100 x (1 - (nodes in use - 1) / pods placed), so 100 on one node; 0 without pods. See
        `PlacementScorer.score`."""
        scores = np.zeros(len(candidates.placements))
        for at in range(len(scores)):
            assignment = candidates.compute_assignment(at)
            nodes = len(np.unique(np.concatenate([of_set.at for of_set in assignment.nodes]))) if assignment.nodes else 0
            scores[at] = 100.0 * (1 - (nodes - 1) / max(1, assignment.count)) if nodes else 0.0
        return scores

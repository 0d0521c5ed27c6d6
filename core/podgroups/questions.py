"""The questions to a plugin in another process, and its valid answers, as plain data: lists, numbers, strings.

Nodes are identified by their index in the tree; `reconciler.podgroups.plugin_child` adds names, as described in
docs/development/adding-a-plugin.md. A plugin is not trusted: an invalid answer is refused with one sentence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from core.model.plugin_choice import GENERATE, SCORE, Which
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.tree import Flags, Indices, TopologyTree
from core.podgroups.framework import FeasiblePlacements, PlacementCycle
from core.podgroups.group import PodGroupInfo
from core.podgroups.placements import Placement, Placements, join

Json = Mapping[str, Any]
_RANKS = 2**31


class Nonsense(ValueError):
    """An invalid answer; the message has the reason in a few words."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the state at the time when it was made.

    `compose` builds its text, at any time and in any thread: with many nodes that takes a while. Indexes in it are of
    `tree`. `asked` are the placements that it is about: to be split, or to be scored.
    """

    which: Which
    group: PodGroupInfo
    tree: TopologyTree
    asked: tuple[Placements, ...]
    compose: Callable[[], Json]


def to_generate(which: Which, cycle: PlacementCycle, group: PodGroupInfo, parents: Sequence[Placements]) -> Question:
    """Returns the question for placements within `parents`. It copies the amounts on nodes now (free ones below 0 as 0); its text is
    composed later, when `compose` is called."""
    nodes, within = _Nodes.build_nodes(cycle.view), tuple(parents)

    def compose() -> Json:
        shown = [[_build_placement(parent.names[at], parent.list_nodes(at), parent.rank) for at in range(len(parent))] for parent in within]
        return {"ask": GENERATE, "group": describe_group(group), **nodes.show(), "placements": shown}

    return Question(which, group, cycle.view.tree, within, compose)


def to_score(which: Which, cycle: PlacementCycle, group: PodGroupInfo, candidates: FeasiblePlacements) -> Question:
    """Returns the question for a score of each candidate. It copies the amounts on nodes now (free ones below 0 as 0); its text, with
    where the pods would go, is composed later, when `compose` is called."""
    nodes, placements = _Nodes.build_nodes(cycle.view), candidates.placements

    def compose() -> Json:
        shown = [_build_candidate(group, candidates, at, name) for at, name in enumerate(placements.names)]
        return {"ask": SCORE, "group": describe_group(group), **nodes.show(), "candidates": shown}

    return Question(which, group, cycle.view.tree, (placements,), compose)


def _build_placement(name: str, nodes: Indices, rank: int) -> dict[str, Any]:
    return {"name": name, "rank": rank, "nodes": nodes.tolist()}


def _build_candidate(group: PodGroupInfo, candidates: FeasiblePlacements, at: int, name: str) -> dict[str, Any]:
    nodes, pods = candidates.placements.list_nodes(at), int(candidates.pods[at])
    if len(nodes) == len(group.pod_sets) == 1:  # there may be as many such placements as nodes: nothing has to be worked out
        assignment = [[nodes.tolist(), [pods]]]
    else:
        assignment = [[of_set.at.tolist(), of_set.counts.tolist()] for of_set in candidates.compute_assignment(at).nodes]
    return {
        **_build_placement(name, nodes, candidates.placements.rank),
        "pods": pods,
        "room": int(candidates.room[at]),
        "assignment": assignment,
    }


@dataclass(frozen=True, slots=True)
class _Nodes:
    """What changes on nodes, as it was."""

    axis: Mapping[str, int]
    allocatable: Matrix
    free: Matrix
    usable: Flags

    @classmethod
    def build_nodes(cls, view: FreeCapacity) -> "_Nodes":
        return cls(dict(view.axis), view.allocatable.copy(), np.maximum(view.free, 0), view.usable.copy())

    def show(self) -> dict[str, Any]:
        amounts = {
            resource: {"allocatable": self.allocatable[row].tolist(), "free": self.free[row].tolist()}
            for resource, row in sorted(self.axis.items())
        }
        return {"amounts": amounts, "usable": self.usable.tolist()}


def describe_group(group: PodGroupInfo) -> dict[str, Any]:
    """Returns a group as plugins of other packages see it: plain data (JSON), with names of levels as node labels, requests of one pod in
    canonical amounts, and `running`: pods by node. Claims are not part of it."""
    return {
        "namespace": group.namespace,
        "name": group.name,
        "replica": group.replica,
        "minCount": group.min_count,
        "desiredCount": group.desired_count,
        "missing": group.missing,
        "running": dict(group.running),
        "constraints": [{"level": one.level, "mode": "Preferred" if one.preferred else "Required"} for one in group.constraints],
        "podSets": [
            {
                "name": pods.name,
                "count": pods.count,
                "requests": dict(pods.requests),
                "labels": dict(pods.traits.labels),
                "nodeSelector": dict(pods.node_selector),
                "affinity": pods.affinity,
                "tolerations": list(pods.tolerations),
            }
            for pods in group.pod_sets
        ],
    }


def read_scores(question: Question, answer: Any) -> dict[str, float]:
    """Returns scores by the names of the candidates. Raises Nonsense where the answer is not a list with one finite number for each, in
    their order."""
    (placements,) = question.asked
    if not isinstance(answer, list) or len(answer) != len(placements):
        raise Nonsense(f"{len(placements)} scores were asked for")
    for name, score in zip(placements.names, answer, strict=True):
        if isinstance(score, bool) or not isinstance(score, int | float) or not _is_finite(score):
            raise Nonsense(f"the score of placement {name!r} is no finite number")
    return {name: float(score) for name, score in zip(placements.names, answer, strict=True)}


def _is_finite(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:  # a whole number of thousands of digits
        return False


def read_placements(question: Question, answer: Any) -> tuple[Placements, ...]:
    """Returns generated placements, one sequence for each rank, the lowest first; those of a rank by name. Empty for an empty list. Nodes
    are in ascending order, each once.

    Raises Nonsense where the answer is no list, or a placement is malformed, has no nodes, has the name of another of its rank, or is not
    within the parent that it names.
    """
    if not isinstance(answer, list):
        raise Nonsense("a list of placements was asked for")
    by_rank: dict[int, dict[str, Placement]] = {}
    for one in answer:
        placement = _read_placement(question, one)
        of_rank = by_rank.setdefault(placement.rank, {})
        if placement.name in of_rank:
            raise Nonsense(f"two placements of rank {placement.rank} are called {placement.name!r}")
        of_rank[placement.name] = placement
    return tuple(join([of_rank[name] for name in sorted(of_rank)], rank) for rank, of_rank in sorted(by_rank.items()))


def _read_placement(question: Question, one: Any) -> Placement:
    if not isinstance(one, dict) or not isinstance(one.get("name"), str):
        raise Nonsense("a placement has no name")
    name, rank, places, parent = one["name"], one.get("rank"), one.get("nodes"), one.get("parent")
    if not isinstance(rank, int) or not _is_place(rank, _RANKS):
        raise Nonsense(f"the rank of placement {name!r} is no whole number from 0 on")
    if not isinstance(places, list) or not places or not all(_is_place(at, len(question.tree)) for at in places):
        raise Nonsense(f"placement {name!r} has no nodes, or some that are not there")
    nodes = np.unique(np.array(places, dtype=np.int64))
    within = _find_parent(question, parent)
    if within is None or not _is_within(nodes, within.nodes):
        raise Nonsense(f"placement {name!r} is not within one of those that there were before")
    return Placement(name, nodes, rank, within if within.name else None)


def _is_place(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def _find_parent(question: Question, parent: Any) -> Placement | None:
    if not isinstance(parent, list) or len(parent) != 2 or not _is_place(parent[0], len(question.asked)):
        return None
    of_rank = question.asked[parent[0]]
    return of_rank[parent[1]] if _is_place(parent[1], len(of_rank)) else None


def _is_within(nodes: Indices, parent: Indices) -> bool:
    """Whether all of some places are among others, both ascending."""
    at = np.minimum(parent.searchsorted(nodes), len(parent) - 1)
    return bool((parent[at] == nodes).all())

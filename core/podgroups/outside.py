"""Plugins in other processes, as a decision uses them: it asks, is interrupted, and is repeated once the answer has
arrived.

A decision is one moment: nothing may change between its steps, and an answer takes longer than that. So it is repeated
from the beginning with the answers that have arrived, on the nodes as they are then; only the answers that it uses in
the end count. An answer is kept as long as it is about the same group and the same placements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.model.plugin_choice import GENERATE, Which
from core.placement.topology.tree import TopologyTree
from core.podgroups.framework import FeasiblePlacements, PlacementCycle, Scores
from core.podgroups.group import PodGroupInfo
from core.podgroups.placements import Placements
from core.podgroups.questions import Question, read_placements, read_scores, to_generate, to_score

_Ranked = tuple[tuple[int, tuple[str, ...]], ...]


class Unanswered(Exception):
    """The decision cannot be made before this is answered."""

    def __init__(self, question: Question) -> None:
        super().__init__(f"{question.which.name} has not been asked yet")
        self.question = question


@dataclass(frozen=True, slots=True)
class _Generated:
    tree: TopologyTree
    parents: _Ranked
    placements: tuple[Placements, ...]


class Answers:
    """The answers for one decision, and the plugins without which it is made: `passed_over` has the reasons, `missed`
    are those of them that would have been asked. `times` is the number of questions."""

    def __init__(self, passed_over: Mapping[Which, str] | None = None) -> None:
        self._passed_over = dict(passed_over or {})
        self.missed: dict[Which, str] = {}
        self.times = 0
        self.is_used = False
        self._group: PodGroupInfo | None = None
        self._generated: dict[Which, _Generated] = {}
        self._scores: dict[tuple[Which, int], dict[str, float]] = {}

    def add_answer(self, question: Question, answer: Any) -> None:
        """Keeps the answer to a question; drops the others if they are about another group. Raises Nonsense where it is invalid, and keeps
        none of it."""
        if self._group != question.group:
            self._group = question.group
            self._generated.clear()
            self._scores.clear()
        if question.which.role == GENERATE:
            placements = read_placements(question, answer)
            self._generated[question.which] = _Generated(question.tree, _rank_placements(question.asked), placements)
        else:
            self._scores[question.which, question.asked[0].rank] = read_scores(question, answer)

    def skip_plugin(self, which: Which, why: str) -> None:
        """Records that decisions from now on are made without a plugin, and why, instead of an earlier reason. Answers that it gave stay,
        and are not used."""
        self._passed_over[which] = why

    def is_without(self, which: Which, *, is_needed: bool = True) -> bool:
        """Returns whether the decision at hand is made without a plugin. If so, and it would have been asked (`is_needed`), its reason is
        added to `missed`. Sets `is_used` in any case."""
        self.is_used = True
        if which in self._passed_over and is_needed:
            self.missed[which] = self._passed_over[which]
        return which in self._passed_over

    def get_generated(
        self, which: Which, cycle: PlacementCycle, group: PodGroupInfo, parents: Sequence[Placements]
    ) -> Sequence[Placements]:
        """Returns the placements that a plugin has answered, by rank. Raises Unanswered, with the question to ask, where it has no answer
        about this group, parents of these names and ranks, and this very tree (object)."""
        found = self._generated.get(which)
        if found is None or self._group != group or found.tree is not cycle.view.tree or found.parents != _rank_placements(parents):
            raise Unanswered(to_generate(which, cycle, group, parents))
        return found.placements

    def get_scores(self, which: Which, cycle: PlacementCycle, group: PodGroupInfo, candidates: FeasiblePlacements) -> Scores:
        """Returns the scores (float64) that a plugin has answered, in the order of the candidates. Raises Unanswered, with the question to
        ask, where it has not answered about this group and rank, or not about each candidate by name."""
        found = self._scores.get((which, candidates.placements.rank))
        if found is None or self._group != group or not all(name in found for name in candidates.placements.names):
            raise Unanswered(to_score(which, cycle, group, candidates))
        return np.array([found[name] for name in candidates.placements.names], dtype=np.float64)


def _rank_placements(placements: Sequence[Placements]) -> _Ranked:
    return tuple((one.rank, one.names) for one in placements)


@dataclass(frozen=True, slots=True)
class OutsideGenerator:
    """A generator of another package. One that is passed over leaves placements as they were."""

    which: Which
    answers: Answers

    @property
    def name(self) -> str:
        """Returns the plugin's name, as configured."""
        return self.which.name

    def generate(self, cycle: PlacementCycle, group: PodGroupInfo, parents: Sequence[Placements]) -> Sequence[Placements]:
        """Returns placements by rank, as the plugin has answered; see `PlacementGenerator.generate`. If the decision is made without it
        (`Answers.is_without`), they are the parents themselves. Raises Unanswered where the plugin must be asked first."""
        return parents if self.answers.is_without(self.which) else self.answers.get_generated(self.which, cycle, group, parents)


@dataclass(frozen=True, slots=True)
class OutsideScorer:
    """A scorer of another package. One that is passed over finds all alike; and it is not asked where there is nothing to choose."""

    which: Which
    answers: Answers

    @property
    def name(self) -> str:
        """Returns the plugin's name, as configured."""
        return self.which.name

    def score(self, cycle: PlacementCycle, group: PodGroupInfo, candidates: FeasiblePlacements) -> Scores:
        """Returns a score for each candidate, as the plugin has answered; see `PlacementScorer.score`. All are 0 if the decision is made
        without it (`Answers.is_without`), or with fewer than two candidates. Raises Unanswered where the plugin must be asked first."""
        count = len(candidates.placements)
        if self.answers.is_without(self.which, is_needed=count > 1) or count < 2:
            return np.zeros(count)
        return self.answers.get_scores(self.which, cycle, group, candidates)

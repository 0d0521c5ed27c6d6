"""In which order workloads have their turn: all groups side by side, of each the first that has not had it."""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from core.queueing.pending import Group, Order
from core.state.facts import WorkloadFacts


class Turn(NamedTuple):
    """The turn of a member of a group."""

    order: Order
    group: Group
    at: int

    @property
    def workload(self) -> WorkloadFacts:
        """Whose turn it is."""
        return self.group.members[self.at][1]


class Turns:
    """Members of groups in queue order; of a group the next has its turn only if its turn is passed on."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self._heap = list(turns)
        heapq.heapify(self._heap)

    @classmethod
    def of_all(cls, groups: Iterable[Group]) -> "Turns":
        """The turns of the first of each group."""
        return cls(Turn(group.members[0][0], group, 0) for group in groups)

    def next(self) -> Turn | None:
        """The next turn."""
        return heapq.heappop(self._heap) if self._heap else None

    def pass_on(self, turn: Turn) -> None:
        """The next of the same group will have a turn, too."""
        at = turn.at + 1
        if at < len(turn.group.members):
            heapq.heappush(self._heap, Turn(turn.group.members[at][0], turn.group, at))

"""In which order workloads have their turn: all groups side by side, of each the first that has not had it."""

import heapq
from collections.abc import Iterable
from typing import NamedTuple, Protocol

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

    @property
    def next(self) -> "Turn | None":
        """The turn of the next of the same group."""
        at = self.at + 1
        return Turn(self.group.members[at][0], self.group, at) if at < len(self.group.members) else None


class Turns(Protocol):
    """The turns of one cycle. Of a group the next has its turn only if the turn is passed on."""

    def next(self) -> tuple[Turn, bool] | None:
        """Whose turn it is, and whether it may borrow; None: all had theirs."""
        ...

    def pass_on(self, turn: Turn) -> None:
        """The next of the same group will have a turn, too."""
        ...

    def put_off(self, turn: Turn) -> None:
        """Whose turn it was would have to borrow: it is asked again after all who need not."""
        ...


def first_turns(groups: Iterable[Group]) -> list[Turn]:
    """The turns of the first of each group, in no order."""
    return [Turn(group.members[0][0], group, 0) for group in groups]


class PriorityTurns:
    """By priority and time, and who would have to borrow after all who need not."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._heap = first_turns(groups)
        heapq.heapify(self._heap)
        self._later: list[Turn] = []
        self._may_borrow = False

    def next(self) -> tuple[Turn, bool] | None:
        """See `Turns`."""
        if not self._heap and not self._may_borrow:
            self._heap, self._may_borrow = self._later, True
            heapq.heapify(self._heap)
        return (heapq.heappop(self._heap), self._may_borrow) if self._heap else None

    def pass_on(self, turn: Turn) -> None:
        """See `Turns`."""
        if turn.next is not None:
            heapq.heappush(self._heap, turn.next)

    def put_off(self, turn: Turn) -> None:
        """See `Turns`."""
        self._later.append(turn)

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
    """The turns of one cycle. Of a group the next has its turn only if the turn is passed on.

    A group notes its turns, so that the next cycle of the same round goes on behind them.
    """

    def next(self) -> tuple[Turn, bool] | None:
        """Whose turn it is, and whether it may borrow; None: all had theirs."""
        ...

    def pass_on(self, turn: Turn) -> None:
        """The next of the same group will have a turn, too."""
        ...

    def put_off(self, turn: Turn) -> None:
        """Whose turn it was would have to borrow: it is asked again after all who need not."""
        ...

    def end(self, turn: Turn) -> None:
        """No other member of the group will have a turn."""
        ...


def first_turns(groups: Iterable[Group], in_round: int) -> list[Turn]:
    """Of each group the turn of the first member that has had none in a round of cycles, in no order."""
    turns = []
    for group in groups:
        at = group.find_next(in_round)
        if at < len(group.members):
            turns.append(Turn(group.members[at][0], group, at))
    return turns


def note_passed(turn: Turn, in_round: int) -> None:
    """Notes at the group that the member has had its turn."""
    turn.group.begin(in_round)
    turn.group.passed = turn.order


def note_put_off(turn: Turn, in_round: int) -> None:
    """Notes at the group that the turn of its next member comes after those of all that need not borrow."""
    turn.group.begin(in_round)
    turn.group.is_put_off = True


def note_ended(turn: Turn, in_round: int) -> None:
    """Notes at the group that no other member has a turn."""
    turn.group.begin(in_round)
    turn.group.passed = turn.group.members[-1][0]


def is_put_off(turn: Turn, in_round: int) -> bool:
    """Whether the turn comes after those of all that need not borrow."""
    return turn.group.round == in_round and turn.group.is_put_off


class PriorityTurns:
    """By priority and time, and who would have to borrow after all who need not."""

    def __init__(self, groups: Iterable[Group], in_round: int = 0) -> None:
        self._round = in_round
        self._heap: list[Turn] = []
        self._later: list[Turn] = []
        for turn in first_turns(groups, in_round):
            (self._later if is_put_off(turn, in_round) else self._heap).append(turn)
        heapq.heapify(self._heap)
        self._may_borrow = False

    def next(self) -> tuple[Turn, bool] | None:
        """See `Turns`."""
        if not self._heap and not self._may_borrow:
            self._heap, self._may_borrow = self._later, True
            heapq.heapify(self._heap)
        return (heapq.heappop(self._heap), self._may_borrow) if self._heap else None

    def pass_on(self, turn: Turn) -> None:
        """See `Turns`."""
        note_passed(turn, self._round)
        if turn.next is not None:
            heapq.heappush(self._heap, turn.next)

    def put_off(self, turn: Turn) -> None:
        """See `Turns`."""
        note_put_off(turn, self._round)
        self._later.append(turn)

    def end(self, turn: Turn) -> None:
        """See `Turns`."""
        note_ended(turn, self._round)

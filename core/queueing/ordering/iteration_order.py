"""In which order workloads have their turn: all groups side by side, of each the first that has not had it."""

import heapq
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from core.queueing.ordering.pending import EquivalenceClass, Order
from core.state.facts import WorkloadFacts

MOST_SORTED = 10_000  # groups that one cycle sorts, in some 30 ms


class Turn(NamedTuple):
    """The turn of a member of a group."""

    order: Order
    group: EquivalenceClass
    at: int

    @property
    def workload(self) -> WorkloadFacts:
        """Returns the workload that has this turn, by the members that its group has now."""
        return self.group.members[self.at][1]

    @property
    def next(self) -> "Turn | None":
        """Returns the turn of the next member of the same group, by the members that it has now; None after the last."""
        at = self.at + 1
        return Turn(self.group.members[at][0], self.group, at) if at < len(self.group.members) else None


class Turns(Protocol):
    """The turns of one round of cycles. The next workload of a group has its turn only if the turn is passed on.

    A group records its turns. A workload keeps its turn until that is recorded: where a cycle is cut off, the next one
    continues there.
    """

    def begin(self, changed: Iterable[EquivalenceClass], promised: Iterable[tuple[str, Order]] = ()) -> None:
        """Begins a cycle. `changed`: groups that are new, or have other members than when the last cycle of the round began, even if empty;
        all where there was none. `promised`: for each workload that waits for what others release to it, the name of its queue and its
        order among all."""
        ...

    def get_next(self) -> tuple[Turn, bool] | None:
        """Returns the next turn, and whether its workload may borrow; None: all workloads had their turns. It is the same one again until
        it is passed on, put off or ended."""
        ...

    def add_follower(self, turn: Turn) -> None:
        """Records that a turn is over, and adds one for the next member of the same group, if there is one."""
        ...

    def put_off(self, turn: Turn) -> None:
        """Repeats a turn after those of all workloads that need not borrow: the workload of this one would have to. A second time it comes
        after all that were put off once."""
        ...

    def may_put_off_again(self, turn: Turn) -> bool:
        """Whether a turn that was put off may be put off once more, after all others that were."""
        ...

    def end(self, turn: Turn) -> None:
        """Ends the turns of a group: no other member will have one in this round."""
        ...


def list_first_turns(groups: Iterable[EquivalenceClass], in_round: int) -> list[Turn]:
    """Returns, for each group, the turn of the first member that has had none in a round of cycles; in the order of the groups. Groups
    without such a member have none."""
    turns = []
    for group in groups:
        at = group.find_next(in_round)
        if at < len(group.members):
            turns.append(Turn(group.members[at][0], group, at))
    return turns


def find_first(heap: list[Turn], in_round: int, *, put_off: int | None = None) -> Turn | None:
    """Returns the first turn of a heap that is still to come, and leaves it there; None if there is none. With `put_off` (None: any number)
    the group must have put off its turns exactly so often in the round.

    Removes those before it from the heap: they are over, or their group has other members now.
    """
    while heap:
        turn = heap[0]
        if is_due(turn, in_round) and put_off in (None, count_put_off(turn.group, in_round)):
            return turn
        heapq.heappop(heap)
    return None


def is_due(turn: Turn, in_round: int) -> bool:
    """Whether a turn is still to come: it is that of the first member of its group without one in the round."""
    group = turn.group
    return group.find_next(in_round) == turn.at < len(group.members) and group.members[turn.at][0] == turn.order


def add_turns(heap: list[Turn], turns: list[Turn]) -> None:
    """Adds turns to a heap in place: a few one by one, many at once."""
    if len(turns) < len(heap) // 10:
        for turn in turns:
            heapq.heappush(heap, turn)
    else:
        heap += turns
        heapq.heapify(heap)


def note_passed(turn: Turn, in_round: int) -> None:
    """Records at the group that the member, and all before it, have had their turns in the round."""
    turn.group.begin(in_round)
    turn.group.passed = turn.order


def note_put_off(turn: Turn, in_round: int) -> None:
    """Records at the group that the turn of its next member comes after those of all that need not borrow; the second time after those of
    all that were put off once."""
    turn.group.begin(in_round)
    turn.group.put_off += 1


def note_ended(turn: Turn, in_round: int) -> None:
    """Records at the group, which must have members, that none of them has another turn in the round."""
    turn.group.begin(in_round)
    turn.group.passed = turn.group.members[-1][0]


def count_put_off(group: EquivalenceClass, in_round: int) -> int:
    """Returns how often the turns of a group were put off in a round; 0 where it has no record of that round."""
    return group.put_off if group.round == in_round else 0


class PriorityTurns:
    """Turns by priority and time; a workload that would have to borrow comes after all that need not."""

    def __init__(self, in_round: int) -> None:
        self._round = in_round
        self._heaps: tuple[list[Turn], ...] = ([], [], [])  # by how often turns were put off

    def begin(self, changed: Iterable[EquivalenceClass], promised: Iterable[tuple[str, Order]] = ()) -> None:
        """Adds the turns of changed groups; see `Turns.begin`. Promises change nothing here."""
        by_times: tuple[list[Turn], ...] = ([], [], [])
        for turn in list_first_turns(changed, self._round):
            by_times[count_put_off(turn.group, self._round)].append(turn)
        for heap, turns in zip(self._heaps, by_times, strict=True):
            add_turns(heap, turns)

    def get_next(self) -> tuple[Turn, bool] | None:
        """Returns the next turn by priority and time, and whether its workload may borrow: only where its group was put off; see
        `Turns.get_next`."""
        for times, heap in enumerate(self._heaps):
            turn = find_first(heap, self._round, put_off=times)
            if turn is not None:
                return turn, times > 0
        return None

    def add_follower(self, turn: Turn) -> None:
        """Records that a turn is over, and adds one for the next member of the same group; see `Turns.add_follower`."""
        note_passed(turn, self._round)
        if (following := turn.next) is not None:
            heapq.heappush(self._heaps[count_put_off(turn.group, self._round)], following)

    def put_off(self, turn: Turn) -> None:
        """Repeats a turn after those that need not borrow; see `Turns.put_off`. Raises IndexError the third time for a group in a round."""
        note_put_off(turn, self._round)
        heapq.heappush(self._heaps[count_put_off(turn.group, self._round)], turn)

    def may_put_off_again(self, turn: Turn) -> bool:
        """Whether a turn was put off just once; see `Turns.may_put_off_again`."""
        return count_put_off(turn.group, self._round) == 1

    def end(self, turn: Turn) -> None:
        """Ends the turns of a group in this round; see `Turns.end`. Its turns are removed from the heap by a later `get_next`."""
        note_ended(turn, self._round)

"""The portion of a round that each queue may use, so that the workloads of one queue do not delay those of all others.

Decisions on the workloads of a queue are made in laps. A lap covers the workloads that wait when it begins, by their
order; each gets one decision. Once its decisions have used the queue's portion of a round, the next round continues
behind the last of them.

A workload that has come since, or was changed, does not make the lap longer: it waits for the next lap. Such workloads
also have half a portion of each round beside the lap, so that one of high priority need not wait. From that half a
workload also gets another decision if it had one in the lap and another outcome is possible now: the workloads behind
it, with turns in the lap that are still to come, must not take room that it has waited for.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from core.queueing.ordering.pending import Order

MOST_S, MOST_BESIDE_S = 0.4, 0.2  # of a lap in one round, and of other workloads; one decision may take longer
Key = tuple[str, bool]  # a queue, and whether room was promised to the workloads: these have laps of their own
_Account = tuple[Key, bool]  # of a lap, or beside it


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """A workload that is to get a decision: its place among those of its queue, and its number in the order in which they came."""

    key: Key
    order: Order
    number: int
    is_strict: bool = False  # in a StrictFIFO queue, where each round begins with the first


class Portions:
    """What queues have had of the present round. `timer` returns seconds from any time on."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._began = 0  # the number of the last workload that had come when the round began
        self._laps: dict[Key, tuple[int, Order]] = {}  # that go on: the same number when they began, and the last that had a decision
        self._had: defaultdict[_Account, float] = defaultdict(float)  # seconds
        self._last: dict[Key, Order] = {}  # of a lap the last that had a decision in this round
        self._short: set[_Account] = set()  # with workloads that got no decision in this round
        self._put_off: set[DecisionRequest] = set()  # that had a decision, which is to be made once more in the round
        self._current: _Account = ("", False), False  # for which a decision is made

    def begin_round(self, number: int) -> None:
        """Begins a round. `number` is that of the last workload that has come. A lap is the workloads of a queue that are decided on one
        after the other, over several rounds if need be. It has only those that had come when it began; later ones have time of their own
        beside it."""
        self._began = number

    def _is_beside(self, asked: DecisionRequest) -> bool:
        began, reached = self._laps.get(asked.key, (self._began, None))
        return asked.number > began or (reached is not None and not asked.is_strict and asked.order <= reached)

    def may_decide(self, asked: DecisionRequest) -> bool:
        """Whether a workload gets a decision in this round: its queue has used less than its time, or the decision was put off. That is 0.4
        s, and 0.2 s for workloads that came after the lap began, or had their decision in it. If not, `end_round` reports that another
        round is needed."""
        if asked in self._put_off:
            return True
        is_beside = self._is_beside(asked)
        account = asked.key, is_beside
        if self._had[account] < (MOST_BESIDE_S if is_beside else MOST_S):
            return True
        self._short.add(account)
        return False

    def begin_decision(self, asked: DecisionRequest) -> None:
        """Records that a workload gets a decision: time that is measured until the next call counts for its queue."""
        self._put_off.discard(asked)
        is_beside = self._is_beside(asked)
        self._current = asked.key, is_beside
        if not is_beside:
            self._last[asked.key] = max(asked.order, self._last.get(asked.key, asked.order))

    def put_off(self, asked: DecisionRequest) -> None:
        """Records that the decision on a workload is made once more in the round, when it may borrow: `may_decide` then returns True,
        whatever time is left."""
        self._put_off.add(asked)

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Counts the time spent in this context, in seconds and also where it raises, as part of the decision that began last."""
        began = self._timer()
        try:
            yield
        finally:
            self._had[self._current] += self._timer() - began

    def end_round(self) -> bool:
        """Ends a round: drops the time that was used. Returns whether another is to follow, since workloads got no decision, or a lap that
        was begun in an earlier round continued in this one."""
        is_more = bool(self._short or self._laps)
        laps = dict[Key, tuple[int, Order]]()
        for key, is_beside in self._short:
            if not is_beside:
                began, reached = self._laps.get(key, (self._began, None))
                ends = [order for order in (reached, self._last.get(key)) if order is not None]
                laps |= {key: (began, max(ends))} if ends else {}
        self._laps = laps
        for each in (self._had, self._last, self._short, self._put_off):
            each.clear()
        return is_more

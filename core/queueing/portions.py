"""How much of a round each queue may have, so that the workloads of one do not keep those of all others waiting.

Once the decisions of a queue have taken its portion of time it gets no other in the same round: its workloads keep what was reported of
them, and the next round goes on behind the last that was decided on. Once there is none behind it another round begins with the first
again. A workload that is new, or was changed, is not passed over for that, but such ones may have no more than half of the portion.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.queueing.pending import Order

MOST_S = 0.4  # of one queue in one round; one decision may take longer
Key = tuple[str, bool]  # a queue, and whether room was promised to the workloads: these have a portion of their own


class Portions:
    """What queues have had of the present round. `timer` returns seconds from any time on."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._had: defaultdict[Key, float] = defaultdict(float)  # seconds
        self._reached: dict[Key, Order] = {}  # where an earlier round ended for the queue
        self._last: dict[Key, Order] = {}  # the last that was decided on in this one
        self._short: set[Key] = set()  # queues with workloads that got no decision
        self._put_off: set[tuple[Key, Order]] = set()  # workloads that had a decision, which is to be made once more in the round
        self._current: Key = ("", False)  # the queue for which a decision is made

    def may_decide(self, key: Key, order: Order, *, is_new: bool, is_strict: bool) -> bool:
        """Whether a workload at a place of the order gets a decision. In a StrictFIFO queue no round goes on behind the first."""
        if (key, order) in self._put_off:
            self._put_off.discard((key, order))
            return True
        reached = self._reached.get(key) if not is_strict else None
        is_before = reached is not None and order <= reached
        if is_before and not is_new:
            return False
        if self._had[key] < (MOST_S / 2 if is_before else MOST_S):
            return True
        self._short.add(key)
        return False

    def begin_decision(self, key: Key, order: Order) -> None:
        """Notes that a workload gets a decision, in which the time is taken that is measured next."""
        self._current = key
        self._last[key] = max(order, self._last.get(key, order))

    def put_off(self, key: Key, order: Order) -> None:
        """Notes that the decision on a workload is made once more in the round, when it may borrow."""
        self._put_off.add((key, order))

    @contextmanager
    def measure(self) -> Iterator[None]:
        """What is done in this context is part of the decision that has begun."""
        began = self._timer()
        try:
            yield
        finally:
            self._had[self._current] += self._timer() - began

    def end_round(self) -> bool:
        """A round is over. Returns whether another is to follow since there are workloads that got no decision."""
        is_more = bool(self._short or self._reached)
        ends = {key: [order for order in (self._last.get(key), self._reached.get(key)) if order is not None] for key in self._short}
        self._reached = {key: max(orders) for key, orders in ends.items() if orders}
        self._had.clear()
        self._last.clear()
        self._short.clear()
        self._put_off.clear()
        return is_more

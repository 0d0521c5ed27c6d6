"""Remembers evictions, so that they do not go in a circle.

Each eviction follows the policies of its queue, and a circle of them need not end: one workload preempts by priority within its queue,
a second one reclaims what the first borrows, and a third one preempts the second and borrows. That makes room for the first again.
So a workload does not preempt a workload for which it was evicted, directly or through others, until one of them ends or the
configuration changes. It still gets back quota that is its queue's own: the rule holds if it would have to borrow, or needs only nodes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice

from core.state.facts import WorkloadFacts

MOST = 10_000  # evictions that are remembered; the oldest are forgotten first


class Circles:
    """Evictions of workloads that have not ended, by uid, under one configuration of queues."""

    def __init__(self) -> None:
        self._evicted: dict[tuple[str, str], tuple[str, str]] = {}  # keys of a victim and its preemptor, by their uids; the oldest first
        self._preemptors: defaultdict[str, set[str]] = defaultdict(set)
        self._at = -1

    def begin(self, facts: Mapping[str, WorkloadFacts], config_changes: int) -> bool:
        """A cycle begins: forgets the workloads that have ended, and all where the configuration has changed.

        `facts` are the workloads as they are, by key. Returns whether it forgot any.
        """

        def is_there(uid: str, key: str) -> bool:
            return key in facts and facts[key].uid == uid and not facts[key].finished

        is_new, self._at = config_changes != self._at, config_changes
        gone = [pair for pair, keys in self._evicted.items() if is_new or not all(map(is_there, pair, keys))]
        self._forget(gone)
        return bool(gone)

    def note(self, preemptor: WorkloadFacts, victims: Iterable[WorkloadFacts]) -> None:
        """A workload evicts these victims."""
        for victim in victims:
            pair = victim.uid, preemptor.uid
            self._evicted.pop(pair, None)
            self._evicted[pair] = victim.key, preemptor.key
            self._preemptors[victim.uid].add(preemptor.uid)
        self._forget(list(islice(self._evicted, max(0, len(self._evicted) - MOST))))

    def withdraw(self, pairs: Iterable[tuple[str, str]]) -> None:
        """These pairs of a victim and its preemptor did not come to an eviction."""
        self._forget([pair for pair in pairs if pair in self._evicted])

    def find_preemptors(self, uid: str) -> frozenset[str]:
        """Returns the uids of all workloads for which this one was evicted, directly or through others."""
        found, left = {uid}, [uid]
        while left:
            more = self._preemptors.get(left.pop(), set()) - found
            found |= more
            left += more
        return frozenset(found - {uid})

    def _forget(self, pairs: Iterable[tuple[str, str]]) -> None:
        for uid, preemptor in pairs:
            del self._evicted[uid, preemptor]
            self._preemptors[uid].discard(preemptor)
            if not self._preemptors[uid]:
                del self._preemptors[uid]

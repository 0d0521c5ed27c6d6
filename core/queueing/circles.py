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
        self._evicted: dict[tuple[str, str], None] = {}  # (victim, preemptor); the oldest first
        self._preemptors: defaultdict[str, set[str]] = defaultdict(set)
        self._keys: dict[str, str] = {}  # of all victims and preemptors, by uid
        self._at = -1

    def begin(self, facts: Mapping[str, WorkloadFacts], config_changes: int) -> bool:
        """A cycle begins: forgets the workloads that have ended, and all where the configuration has changed.

        `facts` are the workloads as they are, by key. Returns whether it forgot any.
        """
        gone = {uid for uid, key in self._keys.items() if key not in facts or facts[key].uid != uid or facts[key].finished}
        if config_changes != self._at:
            self._at, gone = config_changes, set(self._keys)
        if gone:
            self._forget([pair for pair in self._evicted if not gone.isdisjoint(pair)])
        return bool(gone)

    def note(self, preemptor: WorkloadFacts, victims: Iterable[WorkloadFacts]) -> None:
        """A workload evicts these victims."""
        for victim in victims:
            pair = victim.uid, preemptor.uid
            self._evicted.pop(pair, None)
            self._evicted[pair] = None
            self._preemptors[victim.uid].add(preemptor.uid)
            self._keys |= {victim.uid: victim.key, preemptor.uid: preemptor.key}
        if len(self._evicted) > MOST:
            self._forget(list(islice(self._evicted, len(self._evicted) - MOST)))

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
        left = {uid for pair in self._evicted for uid in pair}
        self._keys = {uid: key for uid, key in self._keys.items() if uid in left}

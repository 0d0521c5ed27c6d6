"""Remembers evictions, so that they do not go in a circle.

Each eviction follows the policies of its queue, and a circle of them need not end: one workload preempts by priority within its queue,
a second one reclaims what the first borrows, and a third one preempts the second and borrows. That makes room for the first again.
So a workload does not preempt a workload for which it was evicted, directly or through others. That holds until one of them ends or has
another queue or priority, or a Topology, ResourceFlavor, ClusterQueue or Cohort changes. It still gets back quota that is its queue's own:
the rule holds if it would have to borrow, or needs only nodes.

Pods that a controller makes anew, as a ReplicaSet does, have a new workload each time: they count as one (`WorkloadFacts.party`), which
never ends here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from core.state.facts import WorkloadFacts

MOST = 10_000  # evictions that are remembered; the oldest are forgotten first


class Rank(NamedTuple):
    """Of a workload, what an eviction depends on: `queue` is its LocalQueue, `key` its namespace and name."""

    key: str
    queue: str
    priority: int
    is_made_anew: bool = False


class Circles:
    """Evictions of workloads that have not ended, by party, under one set of rules."""

    def __init__(self) -> None:
        self._evicted: dict[tuple[str, str], tuple[Rank, Rank]] = {}  # a victim and its preemptor; the oldest first
        self._preemptors: defaultdict[str, set[str]] = defaultdict(set)
        self._changed: set[str] = set()  # victims that have other preemptors than at the last `collect_changed`
        self._at = -1

    def begin(self, facts: Mapping[str, WorkloadFacts], rule_changes: int) -> bool:
        """A cycle begins: forgets evictions of workloads that have ended or have another queue or priority; all after a change of rules.

        `facts` are the workloads as they are, by key. Returns whether it forgot any.
        """

        def is_same(party: str, rank: Rank) -> bool:
            if rank.is_made_anew:
                return True
            workload = facts.get(rank.key)
            return workload is not None and workload.party == party and not workload.finished and _rank(workload) == rank

        is_new, self._at = rule_changes != self._at, rule_changes
        gone = [pair for pair, ranks in self._evicted.items() if is_new or not all(map(is_same, pair, ranks))]
        self._forget(gone)
        return bool(gone)

    def note(self, preemptor: WorkloadFacts, victims: Iterable[WorkloadFacts]) -> None:
        """A workload evicts these victims."""
        for victim in victims:
            pair = victim.party, preemptor.party
            self._evicted.pop(pair, None)
            self._evicted[pair] = _rank(victim), _rank(preemptor)
            self._preemptors[victim.party].add(preemptor.party)
            self._changed.add(victim.party)
        self._forget(list(islice(self._evicted, max(0, len(self._evicted) - MOST))))

    def withdraw(self, pairs: Iterable[tuple[str, str]]) -> None:
        """These pairs of a victim and its preemptor did not come to an eviction."""
        self._forget({pair for pair in pairs if pair in self._evicted})

    def find_own_preemptors(self, party: str) -> frozenset[str]:
        """Returns the parties for which this one was evicted directly: those with the same spare the same."""
        return frozenset(self._preemptors.get(party, ()))

    def collect_changed(self) -> set[str]:
        """Returns the parties for which `find_own_preemptors` returns something else than at the last call of this method."""
        changed, self._changed = self._changed, set()
        return changed

    def find_preemptors(self, party: str) -> frozenset[str]:
        """Returns all parties for which this one was evicted, directly or through others."""
        found, left = {party}, [party]
        while left:
            more = self._preemptors.get(left.pop(), set()) - found
            found |= more
            left += more
        return frozenset(found - {party})

    def _forget(self, pairs: Iterable[tuple[str, str]]) -> None:
        for party, preemptor in pairs:
            del self._evicted[party, preemptor]
            self._preemptors[party].discard(preemptor)
            self._changed.add(party)
            if not self._preemptors[party]:
                del self._preemptors[party]


def _rank(workload: WorkloadFacts) -> Rank:
    return Rank(workload.key, workload.queue, workload.priority, bool(workload.made_by))

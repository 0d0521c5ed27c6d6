"""Records evictions, so that workloads do not evict each other in a cycle.

Each eviction follows the policies of its queue, and a cycle of them need not end: one workload preempts by priority
within its queue, a second one reclaims what the first borrows, and a third one preempts the second and borrows. That
makes room for the first again. So a workload does not preempt a workload for which it was evicted, directly or through
others. That holds until one of them ends or has another queue or priority, or a Topology, ResourceFlavor, ClusterQueue
or Cohort changes. It still reclaims its queue's own quota: the rule holds if it would have to borrow, or needs only
nodes.

A workload may also evict another one without effect: a third one, which is ahead of it, takes the room, and the victim
is admitted elsewhere. That may go on for ever with others that evict the third one. So it evicts one victim
`MOST_FUTILE` times without being admitted itself, and spares it from then on.

Pods that a controller recreates, as a ReplicaSet does, have a new workload each time: they count as one
(`WorkloadFacts.party`), which never ends here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from core.state.facts import WorkloadFacts

MOST = 10_000  # evictions that are remembered; the oldest are forgotten first
MOST_FUTILE = 3  # evictions of one workload for another that is not admitted between them


class Rank(NamedTuple):
    """Of a workload, what an eviction depends on: `queue` is its LocalQueue, `key` its namespace and name."""

    key: str
    queue: str
    priority: int
    is_made_anew: bool = False


class _Eviction(NamedTuple):
    """A victim and its preemptor, and how often the one was evicted since the other was admitted last."""

    victim: Rank
    preemptor: Rank
    times: int


class Circles:
    """Evictions of workloads that have not ended, by party, under one set of rules."""

    def __init__(self) -> None:
        self._evicted: dict[tuple[str, str], _Eviction] = {}  # by the parties of victim and preemptor; the oldest first
        self._preemptors: defaultdict[str, set[str]] = defaultdict(set)
        self._victims: defaultdict[str, set[str]] = defaultdict(set)
        self._changed: set[str] = set()  # parties with a `find_trait` that has changed since the last `collect_changed`
        self._has_dropped = False  # whether evictions were dropped since `begin` has returned that
        self._at = -1

    def begin(self, facts: Mapping[str, WorkloadFacts], rule_changes: int) -> bool:
        """Begins a cycle: drops evictions if victim or preemptor has ended or has another queue or priority; pods that are recreated count
        as if they never did. All are dropped where `rule_changes` is not that of the last call.

        `facts` are the workloads as they are, by key. Returns whether any were dropped, by whatever method, since the last call.
        """

        def is_same(party: str, rank: Rank) -> bool:
            if rank.is_made_anew:
                return True
            workload = facts.get(rank.key)
            return workload is not None and workload.party == party and not workload.finished and _rank(workload) == rank

        is_new, self._at = rule_changes != self._at, rule_changes
        gone = [pair for pair, last in self._evicted.items() if is_new or not all(map(is_same, pair, (last.victim, last.preemptor)))]
        self._drop_pairs(gone)
        has_dropped, self._has_dropped = self._has_dropped, False
        return has_dropped

    def note(self, preemptor: WorkloadFacts, victims: Iterable[WorkloadFacts]) -> None:
        """Records that a workload evicts these victims, once more where it has before; of more than `MOST` evictions the oldest are
        dropped."""
        for victim in victims:
            pair = victim.party, preemptor.party
            before = self._evicted.pop(pair, None)
            self._evicted[pair] = _Eviction(_rank(victim), _rank(preemptor), 1 if before is None else before.times + 1)
            self._preemptors[victim.party].add(preemptor.party)
            self._victims[preemptor.party].add(victim.party)
            self._changed |= {*pair}
        self._drop_pairs(list(islice(self._evicted, max(0, len(self._evicted) - MOST))))

    def withdraw(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Removes evictions that did not happen, by the parties of victim and preemptor, with all earlier ones of the same pair; unknown
        pairs are ignored."""
        self._drop_pairs({pair for pair in pairs if pair in self._evicted})

    def note_admitted(self, preemptor: WorkloadFacts) -> None:
        """Records that a workload is admitted: its evictions so far do not count as futile. They still count for cycles."""
        for victim in self._victims.get(preemptor.party, ()):
            pair = victim, preemptor.party
            if self._evicted[pair].times >= MOST_FUTILE:
                self._changed.add(preemptor.party)
            self._evicted[pair] = self._evicted[pair]._replace(times=0)

    def find_trait(self, party: str) -> tuple[frozenset[str], frozenset[str]]:
        """Returns the parties for which this one was evicted directly, and those that it has evicted `MOST_FUTILE` times without being
        admitted: parties with the same two sets spare the same."""
        if not self._evicted:
            return frozenset(), frozenset()
        return frozenset(self._preemptors.get(party, ())), self._find_futile(party)

    def _find_futile(self, party: str) -> frozenset[str]:
        return frozenset(victim for victim in self._victims.get(party, ()) if self._evicted[victim, party].times >= MOST_FUTILE)

    def collect_changed(self) -> set[str]:
        """Returns the parties for which `find_trait` may return something else than at the last call of this method."""
        changed, self._changed = self._changed, set()
        return changed

    def find_spared(self, party: str) -> frozenset[str]:
        """Returns the parties that this one must not evict: those for which it was evicted, directly or through others, and those that it
        has evicted `MOST_FUTILE` times without being admitted."""
        found, left = {party}, [party]
        while left:
            more = self._preemptors.get(left.pop(), set()) - found
            found |= more
            left += more
        return frozenset(found - {party}) | self._find_futile(party)

    def _drop_pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        for party, preemptor in pairs:
            self._has_dropped = True
            del self._evicted[party, preemptor]
            self._changed |= {party, preemptor}
            for known, one, other in ((self._preemptors, party, preemptor), (self._victims, preemptor, party)):
                known[one].discard(other)
                if not known[one]:
                    del known[one]


def _rank(workload: WorkloadFacts) -> Rank:
    return Rank(workload.key, workload.queue, workload.priority, bool(workload.made_by))

"""Workloads with what was decided for them but not yet observed, and the quota they hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from core.model.admission import Admission
from core.model.quota import Amounts, FlavorResource, QuotaOwner, QuotaTree
from core.model.spares import with_spare_usage
from core.state.facts import WorkloadFacts

Total = dict[FlavorResource, int]


@dataclass(slots=True)
class _Assumed:
    admission: Admission
    uid: str | None  # of the workload that it was decided for; None: that is not known yet
    written_at: int | None = None  # resourceVersion that the write returned


class Workloads:
    """Facts per workload; an assumed decision stands in until an event at least as new as its write is seen."""

    def __init__(self, *, counts_spares: bool = False) -> None:
        self._counts_spares = counts_spares  # nodes that are kept free for a workload use quota, too
        self.facts: dict[str, WorkloadFacts] = {}
        self._assumed: dict[str, _Assumed] = {}
        self._arrivals: dict[str, int] = {}
        self._arrived = 0
        # Kept in step with both of these by `_update`:
        self._holding: dict[str, Admission] = {}
        self._holders: dict[str, dict[str, None]] = {}  # by ClusterQueue
        self._lines_of: dict[str, tuple[str, bool]] = {}  # LocalQueue, and whether something is held
        self._lines: dict[tuple[str, bool], dict[str, None]] = {}
        self._leaving: set[str] = set()
        self._starting: dict[str, str] = {}  # key -> ClusterQueue
        self._awaiting: dict[str, WorkloadFacts] = {}
        self._unhealthy: dict[str, WorkloadFacts] = {}
        self._pending: dict[str, WorkloadFacts] = {}
        self._lenders: dict[str, None] = {}  # of those who hold something
        self._borrowed: dict[str, frozenset[str]] = {}  # by workload: the hosts of others that it was given
        self._borrowers: dict[str, dict[str, None]] = {}  # the other way round: by host
        self._elders: dict[str, str] = {}  # a workload of an elastic job -> the one whose place it takes
        self._heirs: dict[str, dict[str, None]] = {}  # and the other way round: all that say so
        self._watches: list[set[str]] = []  # keys of those whose waiting has changed
        self._by_priority: dict[str, dict[int, Total]] = {}  # of what is in use, by ClusterQueue, without:
        self._going: dict[str, Total] = {}  # what those hold who are evicted
        self._counted: dict[str, tuple[int, bool]] = {}  # priority, and whether it is evicted, as counted in these two
        self._usage: dict[str, Total] = {}  # of queues that are gone, too
        self.quota = QuotaTree()

    def observe(self, key: str, facts: WorkloadFacts | None) -> None:
        """Folds a workload's present facts (None: gone)."""
        self._observe_heir(key, facts.replaces if facts is not None else None)
        if facts is None:
            self.facts.pop(key, None)
            self._assumed.pop(key, None)
            self._arrivals.pop(key, None)
            self._update(key)
            return
        known = self.facts.get(key)
        if known is not None and known.uid != facts.uid:
            self._assumed.pop(key, None)
        if known is None or known.uid != facts.uid:
            self._arrived += 1
            self._arrivals[key] = self._arrived
        self.facts[key] = facts
        self._settle(key)

    def _observe_heir(self, key: str, elder: str | None) -> None:
        before = self._elders.pop(key, None)
        if before is not None:
            del self._heirs[before][key]
            if not self._heirs[before]:
                del self._heirs[before]
        if elder is not None:
            self._elders[key] = elder
            self._heirs.setdefault(elder, {})[key] = None
        if before is not None and before != elder:
            self._update(before)

    def elder(self, key: str) -> str | None:
        """The workload of the same job whose pods and place a workload takes over."""
        return self._elders.get(key)

    def is_replaced(self, key: str) -> bool:
        """Whether another workload of the same job holds, among its own, what this one held."""
        mine = self.facts.get(key)
        if mine is None or mine.owner_uid is None:
            return False
        heirs = (self.facts.get(heir) for heir in self._heirs.get(key, ()) if heir in self._holding)
        return any(heir is not None and heir.owner_uid == mine.owner_uid for heir in heirs)

    def assume(self, key: str, admission: Admission) -> None:
        """Notes a decision before its write is sent."""
        facts = self.facts.get(key)
        self._assumed[key] = _Assumed(admission, facts.uid if facts is not None else None)
        self._update(key)

    def is_assumed_for(self, key: str, uid: str | None) -> bool:
        """Whether a decision on its way was made for the workload of a uid (None: of whichever): another may have its name by now."""
        assumed = self._assumed.get(key)
        return assumed is not None and (uid is None or assumed.uid in (uid, None))

    def confirm(self, key: str, resource_version: int) -> None:
        """Notes the version that the write of an assumed decision returned."""
        assumed = self._assumed.get(key)
        if assumed is not None:
            assumed.written_at = resource_version
            self._settle(key)

    def forget(self, key: str) -> None:
        """Drops an assumed decision whose write failed."""
        self._assumed.pop(key, None)
        self._update(key)

    def _settle(self, key: str) -> None:
        assumed, facts = self._assumed.get(key), self.facts.get(key)
        if assumed is not None and facts is not None and assumed.written_at is not None and facts.resource_version >= assumed.written_at:
            del self._assumed[key]
        self._update(key)

    def _update(self, key: str) -> None:
        """Brings what is kept per key in line with facts and decisions; of what it takes over, too."""
        held = key in self._holding
        self._update_alone(key)
        elder = self._elders.get(key)
        if elder is not None and held != (key in self._holding):
            self._update(elder)

    def _update_alone(self, key: str) -> None:
        assumed, facts, before = self._assumed.get(key), self.facts.get(key), self._holding.pop(key, None)
        now = assumed.admission if assumed is not None else None if facts is None or facts.finished else facts.admission
        now = now if now is None or facts is None else self._what_counts(now, facts)
        replaced = self.is_replaced(key)
        now = None if replaced else now
        if now is not None:
            self._holding[key] = now
        kept_as = self._counted.pop(key, None)
        # An eviction that left nothing to hold is over: what was decided since is what comes.
        is_leaving = facts is not None and facts.evicted and (assumed is None or facts.admission is not None)
        counted = (facts.priority if facts is not None else 0, is_leaving)
        if now is not None:
            self._counted[key] = counted
        if now is not before or (now is not None and kept_as != counted):
            self._count(before, -1, kept_as)
            self._count(now, 1, counted)
            if before is not None:
                self._holders[before.cluster_queue].pop(key)
            if now is not None:
                self._holders.setdefault(now.cluster_queue, {})[key] = None
        if now is not None and is_leaving:
            self._leaving.add(key)
        else:
            self._leaving.discard(key)
        _keep(self._lenders, key, now is not None and facts is not None and _lends(now, facts))
        self._note_borrowed(key, frozenset(host for given in now.pod_sets for host in given.borrowed) if now is not None else frozenset())
        if assumed is None and now is not None and facts is not None and now.awaits_topology and facts.active and not facts.evicted:
            self._awaiting[key] = facts
        else:
            self._awaiting.pop(key, None)
        stays = assumed is None and now is not None and facts is not None and facts.active and not facts.evicted
        if stays and facts is not None and facts.unhealthy_nodes:
            self._unhealthy[key] = facts
        else:
            self._unhealthy.pop(key, None)
        if now is not None and facts is not None and not is_leaving and not facts.pods_ready:
            self._starting[key] = now.cluster_queue
        else:
            self._starting.pop(key, None)
        is_over = facts is None or facts.finished or facts.deleting or facts.on_hold
        waits = facts if facts is not None and now is None and not replaced and facts.active and not is_over else None
        self._stand_in_line(key, facts, holds=now is not None, waits=waits is not None)
        if waits is not self._pending.get(key):
            for watch in self._watches:
                watch.add(key)
            if waits is None:
                del self._pending[key]
            else:
                self._pending[key] = waits

    def _note_borrowed(self, key: str, hosts: frozenset[str]) -> None:
        before = self._borrowed.get(key, frozenset())
        for host in before - hosts:
            del self._borrowers[host][key]
            if not self._borrowers[host]:
                del self._borrowers[host]
        for host in hosts - before:
            self._borrowers.setdefault(host, {})[key] = None
        if hosts:
            self._borrowed[key] = hosts
        else:
            self._borrowed.pop(key, None)

    def _what_counts(self, admission: Admission, facts: WorkloadFacts) -> Admission:
        counted = less_reclaimed(admission, facts)
        asked = {pod_set.name: pod_set.spares for pod_set in facts.pod_sets if pod_set.spares} if self._counts_spares else {}
        return with_spare_usage(admission, counted, asked) if asked else counted

    def _stand_in_line(self, key: str, facts: WorkloadFacts | None, *, holds: bool, waits: bool) -> None:
        before, now = self._lines_of.pop(key, None), (facts.queue, holds) if facts is not None and (holds or waits) else None
        if now is not None:
            self._lines_of[key] = now
        if before != now:
            if before is not None:
                del self._lines[before][key]
                if not self._lines[before]:
                    del self._lines[before]
            if now is not None:
                self._lines.setdefault(now, {})[key] = None

    def _count(self, admission: Admission | None, sign: int, counted: tuple[int, bool] | None) -> None:
        """Counts what an admission holds; `counted`: for which priority, and whether among what is going."""
        if admission is None or counted is None:
            return
        (priority, is_going), queue, amounts = counted, admission.cluster_queue, admission_usage(admission)
        staying = self._by_priority.setdefault(queue, {})
        for total in (
            self._usage.setdefault(queue, {}),
            self._going.setdefault(queue, {}) if is_going else staying.setdefault(priority, {}),
        ):
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount * sign
                if not total[name]:
                    del total[name]
        if not staying.get(priority, True):
            del staying[priority]
        self.quota.add(queue, amounts, sign)

    def arrange(self, queues: Iterable[QuotaOwner], cohorts: Iterable[QuotaOwner]) -> None:
        """The tree of quota made anew, with all that is in use."""
        self.quota = QuotaTree(queues, cohorts)
        for queue, total in self._usage.items():
            self.quota.add(queue, total)

    def is_assumed(self, key: str) -> bool:
        """Whether a decision on the workload is still on its way."""
        return key in self._assumed

    def is_moving(self, key: str) -> bool:
        """Whether a decision on its way gives pods of a workload that was admitted other places than those that are observed."""
        assumed, facts = self._assumed.get(key), self.facts.get(key)
        if assumed is None or facts is None or facts.admission is None:
            return False
        before, after = ([given.assignment for given in admission.pod_sets] for admission in (facts.admission, assumed.admission))
        return before != after

    def holding(self, key: str) -> Admission | None:
        """The admission by which a workload holds quota and domains now: assumed, or observed and not finished. Its usage is what
        it still needs, its counts are what it was given."""
        return self._holding.get(key)

    def holders(self, cluster_queue: str) -> list[WorkloadFacts]:
        """Workloads that hold quota of a ClusterQueue."""
        return [self.facts[key] for key in self._holders.get(cluster_queue, ()) if key in self.facts]

    def holders_of(self, local_queue: str) -> list[WorkloadFacts]:
        """Workloads of a LocalQueue that hold quota."""
        return [self.facts[key] for key in self._lines.get((local_queue, True), ())]

    def count_pending(self, local_queue: str) -> int:
        """How many of a LocalQueue wait for a decision."""
        return len(self._lines.get((local_queue, False), ()))

    def leaving(self) -> set[str]:
        """Keys of workloads that are evicted and still hold something."""
        return set(self._leaving)

    def starting(self) -> Mapping[str, str]:
        """Workloads that hold something and whose pods are not said to be ready, and their ClusterQueues."""
        return self._starting

    def lenders(self) -> Sequence[str]:
        """Keys of workloads that would lend nodes which are kept free for them, whatever becomes of them now."""
        return list(self._lenders)

    def lends(self, key: str) -> bool:
        """Whether a workload lends nodes that are kept free for it: it needs none of them now, as far as its nodes are concerned."""
        facts = self.facts.get(key) if key in self._lenders else None
        return facts is not None and facts.active and not (facts.evicted or facts.deleting or facts.unhealthy_nodes)

    def has_borrowers(self) -> bool:
        """Whether any workload was given such nodes of others."""
        return bool(self._borrowed)

    def find_borrowers(self, host: str) -> Sequence[str]:
        """Keys of workloads that were given one such node of another, by its hostname."""
        return list(self._borrowers.get(host, ()))

    def awaiting_topology(self) -> list[WorkloadFacts]:
        """Workloads that have quota and wait for a second pass."""
        return list(self._awaiting.values())

    def unhealthy(self) -> list[WorkloadFacts]:
        """Workloads that run, or are about to, of whose nodes some are said to have failed."""
        return list(self._unhealthy.values())

    def arrival(self, key: str) -> int:
        """The place of a workload among all in the order in which they were first seen."""
        return self._arrivals[key]

    def pending(self) -> Iterable[WorkloadFacts]:
        """Workloads that wait for a decision."""
        return self._pending.values()

    def find_pending(self, key: str) -> WorkloadFacts | None:
        """A workload, if it waits for a decision."""
        return self._pending.get(key)

    def watch_pending(self) -> set[str]:
        """A set to which the keys are added of all that begin or end to wait for a decision, or change while they wait; the caller
        empties it. Those who wait now are in it."""
        self._watches.append(set(self._pending))
        return self._watches[-1]

    def usage_below(self, cluster_queue: str, priority: int, name: FlavorResource, *, inclusive: bool = False) -> int:
        """What workloads of a lower priority, or of the same, hold of a ClusterQueue's quota who are not evicted."""
        by_priority = self._by_priority.get(cluster_queue, {})
        return sum(total.get(name, 0) for of, total in by_priority.items() if of < priority or (inclusive and of == priority))

    def leaving_usage(self, cluster_queue: str) -> Amounts:
        """What those hold of a ClusterQueue's quota who are evicted."""
        return self._going.get(cluster_queue, {})

    def usage(self, cluster_queue: str) -> Amounts:
        """Quota of a ClusterQueue that is held, per flavor and resource."""
        return self._usage.get(cluster_queue, {})


def _keep(index: dict[str, None], key: str, is_in: bool) -> None:
    if is_in:
        index[key] = None
    else:
        index.pop(key, None)


def _lends(admission: Admission, facts: WorkloadFacts) -> bool:
    return any(given.spares and pod_set.lends for pod_set, given in zip(facts.pod_sets, admission.pod_sets, strict=False))


def add_usage(total: dict[FlavorResource, int], admission: Admission, times: int = 1) -> None:
    """Adds what an admission holds, per flavor and resource."""
    for pod_set in admission.pod_sets:
        for resource, flavor in pod_set.flavors.items():
            total[flavor, resource] = total.get((flavor, resource), 0) + pod_set.usage.get(resource, 0) * times


def less_reclaimed(admission: Admission, facts: WorkloadFacts) -> Admission:
    """An admission that uses no quota for pods that have done their work and come no more (KEP-78). The pods of a pod set are
    alike, so that what each uses is what all were given by their number."""
    needed = {pod_set.name: pod_set.count for pod_set in facts.pod_sets if pod_set.reclaimed}
    if all(given.count <= needed.get(given.name, given.count) for given in admission.pod_sets):
        return admission
    pod_sets = []
    for given in admission.pod_sets:
        left = min(given.count, needed.get(given.name, given.count))
        usage = {name: -(-amount * left // given.count) if given.count else amount for name, amount in given.usage.items()}
        pod_sets.append(replace(given, usage=usage))
    return replace(admission, pod_sets=tuple(pod_sets))


def admission_usage(admission: Admission) -> dict[FlavorResource, int]:
    """What an admission holds, per flavor and resource."""
    total: dict[FlavorResource, int] = {}
    add_usage(total, admission)
    return total

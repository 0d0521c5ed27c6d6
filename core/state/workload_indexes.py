"""Workloads by how they stand: one index each for quota, lines, lending, and workloads of elastic jobs. All are brought in line by
`core.state.workloads` whenever a workload stands otherwise."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from core.model.admission import Admission
from core.model.quota_tree import Amounts, FlavorResource, QuotaOwner, QuotaTree
from core.state.facts import WorkloadFacts
from core.state.spreading_counts import SpreadingIndex
from core.state.workload_state import Standing, compute_admission_usage

Total = dict[FlavorResource, int]
Value = TypeVar("Value")


def put_or_drop(index: dict[str, Value], key: str, value: Value | None) -> None:
    """Sets the value for a key of an index, in place; None removes it."""
    if value is None:
        index.pop(key, None)
    else:
        index[key] = value


class HeldQuota:
    """What is held of quota: by workload, ClusterQueue and priority, and what of it is going."""

    def __init__(self) -> None:
        self._held: dict[str, Admission] = {}
        self._counted: dict[str, tuple[int, bool]] = {}  # priority, and whether it is evicted, as it was counted
        self._holders: dict[str, dict[str, None]] = {}  # by ClusterQueue
        self._by_priority: dict[str, dict[int, Total]] = {}  # of what is in use, by ClusterQueue, without:
        self._going: dict[str, Total] = {}  # what evicted workloads hold
        self._usage: dict[str, Total] = {}  # of queues that are gone, too
        self.tree = QuotaTree()

    def put(self, key: str, standing: Standing) -> None:
        """Records what a workload holds now, in place of what it held before, with its priority and whether it is evicted. The quota tree
        follows."""
        before, counted_before = self._held.get(key), self._counted.get(key)
        now, counted = standing.held, (standing.priority, standing.is_leaving)
        if now is before and (now is None or counted == counted_before):
            return
        self._count(before, -1, counted_before)
        self._count(now, 1, counted)
        if before is not None:
            self._holders[before.cluster_queue].pop(key)
        if now is not None:
            self._holders.setdefault(now.cluster_queue, {})[key] = None
        put_or_drop(self._held, key, now)
        put_or_drop(self._counted, key, counted if now is not None else None)

    def _count(self, admission: Admission | None, sign: int, counted: tuple[int, bool] | None) -> None:
        if admission is None or counted is None:
            return
        (priority, is_going), queue, amounts = counted, admission.cluster_queue, compute_admission_usage(admission)
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
        self.tree.add(queue, amounts, sign)

    def arrange(self, queues: Iterable[QuotaOwner], cohorts: Iterable[QuotaOwner]) -> None:
        """Replaces `tree` by a new one of these ClusterQueues and cohorts, with all present usage."""
        self.tree = QuotaTree(queues, cohorts)
        for queue, total in self._usage.items():
            self.tree.add(queue, total)

    def get(self, key: str) -> Admission | None:
        """Returns the admission by which a workload holds quota; None where it holds none."""
        return self._held.get(key)

    def list_holders(self, cluster_queue: str) -> Iterable[str]:
        """Returns the keys of workloads that hold quota of a ClusterQueue. It is no copy; those with the latest changes of what they hold
        come last."""
        return self._holders.get(cluster_queue, ())

    def sum_below(self, cluster_queue: str, priority: int, name: FlavorResource, *, inclusive: bool) -> int:
        """Returns how much of one flavor and resource workloads of a priority below `priority` hold of a ClusterQueue's quota, in canonical
        units. `inclusive`: those of `priority` itself count, too. Evicted workloads do not count."""
        by_priority = self._by_priority.get(cluster_queue, {})
        return sum(total.get(name, 0) for of, total in by_priority.items() if of < priority or (inclusive and of == priority))

    def get_going(self, cluster_queue: str) -> Amounts:
        """Returns what evicted workloads still hold of a ClusterQueue's quota, by flavor and resource in canonical units. It is no copy."""
        return self._going.get(cluster_queue, {})

    def get_usage(self, cluster_queue: str) -> Amounts:
        """Returns the quota of a ClusterQueue that is held, evicted workloads included, by flavor and resource in canonical units. It is no
        copy."""
        return self._usage.get(cluster_queue, {})


class Lines:
    """Workloads that wait for a decision, and those that hold something, by LocalQueue."""

    def __init__(self) -> None:
        self._lines_of: dict[str, tuple[str, bool]] = {}  # LocalQueue, and whether something is held
        self._lines: dict[tuple[str, bool], dict[str, None]] = {}
        self.pending: dict[str, WorkloadFacts] = {}
        self._watches: list[set[str]] = []  # keys of workloads that begin or end to wait, or change while they wait

    def put(self, key: str, standing: Standing) -> None:
        """Records whether a workload waits or holds something, and in which LocalQueue, by its facts. Sets of `watch` get its key where it
        begins or ends to wait, or changes while it waits."""
        pending = standing.pending
        self._put_in_line(key, standing, waits=pending is not None)
        if pending is self.pending.get(key):
            return
        for watch in self._watches:
            watch.add(key)
        put_or_drop(self.pending, key, pending)

    def _put_in_line(self, key: str, standing: Standing, *, waits: bool) -> None:
        facts, holds = standing.facts, standing.held is not None
        before, now = self._lines_of.pop(key, None), (facts.queue, holds) if facts is not None and (holds or waits) else None
        if now is not None:
            self._lines_of[key] = now
        if before == now:
            return
        if before is not None:
            del self._lines[before][key]
            if not self._lines[before]:
                del self._lines[before]
        if now is not None:
            self._lines.setdefault(now, {})[key] = None

    def list_line(self, local_queue: str, *, holds: bool) -> Sequence[str]:
        """Returns a new list of keys of workloads of a LocalQueue, that hold something (`holds`) or else wait. First are those that did so
        first."""
        return list(self._lines.get((local_queue, holds), ()))

    def count_line(self, local_queue: str, *, holds: bool) -> int:
        """Returns the number of workloads that `list_line` returns."""
        return len(self._lines.get((local_queue, holds), ()))

    def watch(self) -> set[str]:
        """Returns a set to which the keys are added of all that begin or end to wait for a decision, or change while they wait.

        The caller empties it. Those that wait now are in it.
        """
        self._watches.append(set(self.pending))
        return self._watches[-1]

    def remove_watch(self, watch: set[str]) -> None:
        """Ends that keys are added to a set of `watch`; nothing happens for any other set."""
        self._watches = [each for each in self._watches if each is not watch]


class Lending:
    """Workloads that would lend nodes which are kept free for them, and those that were given such nodes."""

    def __init__(self) -> None:
        self.lenders: dict[str, None] = {}
        self._borrowed: dict[str, frozenset[str]] = {}  # by workload: the hosts of others that it was given
        self._borrowers: dict[str, dict[str, None]] = {}  # the other way round: by host

    def put(self, key: str, standing: Standing) -> None:
        """Records whether a workload would lend nodes that are kept free for it, and which nodes of others it was given."""
        if standing.lends:
            self.lenders[key] = None
        else:
            self.lenders.pop(key, None)
        given = [each for each in standing.held.pod_sets if each.borrowed] if standing.held is not None else ()
        if not given and key not in self._borrowed:
            return
        before, hosts = self._borrowed.get(key, frozenset()), frozenset(host for each in given for host in each.borrowed)
        for host in before - hosts:
            del self._borrowers[host][key]
            if not self._borrowers[host]:
                del self._borrowers[host]
        for host in hosts - before:
            self._borrowers.setdefault(host, {})[key] = None
        put_or_drop(self._borrowed, key, hosts or None)

    def has_borrowers(self) -> bool:
        """Returns whether any workload was given nodes of others."""
        return bool(self._borrowed)

    def find_borrowers(self, host: str) -> Sequence[str]:
        """Returns the keys, as a new list, of workloads that were given a node of another one, by the node's hostname; empty where none
        was."""
        return list(self._borrowers.get(host, ()))


class Heirs:
    """Workloads of elastic jobs, and the workloads that they replace. Users that may write Workloads can let some name each other in a
    circle, or one itself: these replace none."""

    def __init__(self) -> None:
        self._elders: dict[str, str] = {}
        self._heirs: dict[str, dict[str, None]] = {}  # the other way round: all workloads that replace one
        self._circling: set[str] = set()  # those that are in a circle

    def put(self, key: str, elder: str | None) -> list[str]:
        """Records the workload (None: none) that another one, `key`, replaces. Returns the keys of all others that replace, or are replaced
        by, another one now."""
        before = self._elders.get(key)
        if before == elder:
            return []
        affected = dict.fromkeys(self._list_circle(key, is_known=True) if key in self._circling else ())
        self._circling.difference_update(affected)
        if before is not None:
            affected[before] = None
            del self._elders[key], self._heirs[before][key]
            if not self._heirs[before]:
                del self._heirs[before]
        if elder is not None:
            self._elders[key] = elder
            self._heirs.setdefault(elder, {})[key] = None
            circle = self._list_circle(key)
            affected.update(dict.fromkeys(circle))
            self._circling.update(circle)
        affected.pop(key, None)
        return list(affected)

    def _list_circle(self, key: str, *, is_known: bool = False) -> list[str]:
        """The keys of the circle that one is in, itself first; empty where it is in none. No way leads to it from a known circle."""
        found, following = [key], self._elders.get(key)
        while following is not None and following != key and (is_known or following not in self._circling):
            found.append(following)
            following = self._elders.get(following)
        return found if following == key else []

    def get_elder(self, key: str) -> str | None:
        """Returns the key of the workload that one replaces; None where there is none, or both are in a circle."""
        return self._elders.get(key) if key not in self._circling else None

    def list_heirs(self, key: str) -> list[str]:
        """Returns the keys of the workloads that replace one, those observed last at the end."""
        return [heir for heir in self._heirs.get(key, ()) if heir not in self._circling]


class StandingIndexes:
    """All of them together."""

    def __init__(self) -> None:
        self.quota, self.lines, self.lending = HeldQuota(), Lines(), Lending()
        self.spreading = SpreadingIndex()
        self.leaving: set[str] = set()
        self.starting: dict[str, str] = {}  # key -> ClusterQueue
        self.awaiting: dict[str, WorkloadFacts] = {}
        self.unhealthy: dict[str, WorkloadFacts] = {}

    def put(self, key: str, standing: Standing) -> None:
        """Records how a workload stands now in all indexes, in place of what they had for its key. Where it does not belong in an index any
        more it is removed from that."""
        self.quota.put(key, standing)
        if standing.held is not None and standing.is_leaving:
            self.leaving.add(key)
        else:
            self.leaving.discard(key)
        self.lending.put(key, standing)
        self.spreading.put(key, standing)
        put_or_drop(self.awaiting, key, standing.awaiting)
        put_or_drop(self.unhealthy, key, standing.unhealthy)
        put_or_drop(self.starting, key, standing.starting)
        self.lines.put(key, standing)

"""The pending workloads of each queue in the order in which they are considered, for readers outside of the decisions.

Both queueing strategies consider the workloads of a ClusterQueue in one order (`build_order`): StrictFIFO stops at the first that cannot be
admitted, BestEffortFIFO goes on behind it. What changes is folded in by `PendingOrder.sync`, a bounded number of workloads at a time. It
replaces the lists that have changed and leaves the former ones as they were. So a reader that holds `PendingLists` has one moment of all
queues, for as long as it reads and without a copy of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter

from core.model.pods_ready_rules import PodsReadyRules
from core.queueing.ordering.pending import build_order
from core.queueing.ordering.waiting_order import IsStopped
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts

MOST_CHANGED = 1_000  # workloads that one `sync` folds in, in some 20 ms where 100,000 wait
Place = tuple[bool, int, str, str, str]  # whether its LocalQueue admits none now, and `pending.Order`: lower goes first
Member = tuple[Place, WorkloadFacts]


@dataclass(frozen=True, slots=True)
class PendingWorkload:
    """A workload that waits, and how many are before it in its ClusterQueue and in its LocalQueue."""

    workload: WorkloadFacts
    in_cluster_queue: int
    in_local_queue: int


@dataclass(frozen=True, slots=True)
class PendingLists:
    """All pending workloads at one moment, the first to be considered first: by ClusterQueue, and by LocalQueue (namespace/name). Nothing
    in it changes. `cluster_queues` has the ClusterQueue of each LocalQueue with pending workloads; None: it has none, and no position."""

    by_cluster_queue: Mapping[str, Sequence[Member]] = field(default_factory=dict)
    by_local_queue: Mapping[str, Sequence[Member]] = field(default_factory=dict)
    cluster_queues: Mapping[str, str | None] = field(default_factory=dict)


def list_pending(lists: PendingLists, cluster_queue: str, *, offset: int = 0, limit: int | None = None) -> Iterator[PendingWorkload]:
    """Yields at most `limit` (None: all) pending workloads of a ClusterQueue after the first `offset`, in the order in which they are
    considered."""
    before: dict[str, int] = {}  # of each LocalQueue: how many were yielded or skipped
    members = lists.by_cluster_queue.get(cluster_queue, ())
    for at in range(offset, _find_end(members, offset, limit)):
        order, workload = members[at]
        if workload.queue not in before:
            before[workload.queue] = bisect_left(lists.by_local_queue[workload.queue], (order,))
        yield PendingWorkload(workload, at, before[workload.queue])
        before[workload.queue] += 1


def list_pending_of_local_queue(
    lists: PendingLists, local_queue: str, *, offset: int = 0, limit: int | None = None
) -> Iterator[PendingWorkload]:
    """Yields at most `limit` (None: all) pending workloads of a LocalQueue (namespace/name) after its first `offset`, in the order in which
    they are considered. Yields none where its ClusterQueue does not exist, since nothing considers them then."""
    cluster_queue = lists.cluster_queues.get(local_queue)
    if cluster_queue is None:
        return
    of_all, members, found = lists.by_cluster_queue[cluster_queue], lists.by_local_queue[local_queue], 0
    for at in range(offset, _find_end(members, offset, limit)):
        order, workload = members[at]
        found = bisect_left(of_all, (order,), lo=found)
        yield PendingWorkload(workload, found, at)


def _find_end(members: Sequence[Member], offset: int, limit: int | None) -> int:
    return len(members) if limit is None else min(len(members), offset + limit)


class PendingOrder:
    """Keeps `lists` in step with the workloads and queues of a state, as of the last `sync`. Workloads of LocalQueues that admit none now
    come last; `make_stop_check` returns what says that of a LocalQueue, good until the configuration changes."""

    def __init__(self, state: ClusterState, rules: PodsReadyRules | None, make_stop_check: Callable[[ClusterState], IsStopped]) -> None:
        self._state, self._rules, self._make_stop_check = state, rules, make_stop_check
        self._is_stopped = make_stop_check(state)
        self._stopped = dict[str, bool]()  # of each LocalQueue in the lists, as its members are placed
        self._changed = state.workloads.watch_pending()
        self._members: dict[str, Member] = {}  # by key of the workload
        self._config_changes = -1
        self.lists = PendingLists()

    @property
    def is_behind(self) -> bool:
        """Whether workloads have changed that are not folded in yet."""
        return bool(self._changed)

    def sync(self) -> None:
        """Replaces `lists` by those with the next `MOST_CHANGED` workloads that have changed, and with all queues as they are now."""
        is_config_same = self._config_changes == self._state.config_changes
        if not self._changed and is_config_same:
            return
        by_local_queue = dict(self.lists.by_local_queue)
        by_cluster_queue, cluster_queues = dict(self.lists.by_cluster_queue), dict(self.lists.cluster_queues)
        if not is_config_same:
            self._config_changes, self._is_stopped = self._state.config_changes, self._make_stop_check(self._state)
            self._move_local_queues(by_local_queue, by_cluster_queue, cluster_queues)
        removed, added = self._collect_changes()
        of_queues = _Edits()
        for local_queue in (*removed, *(name for name in added if name not in removed)):
            if local_queue not in cluster_queues:
                cluster_queues[local_queue] = self._find_cluster_queue(local_queue)
            gone, new = removed.get(local_queue, []), added.get(local_queue, [])
            of_queues.add(cluster_queues[local_queue], gone, new)
            _change(by_local_queue, local_queue, gone, new)
            if local_queue not in by_local_queue:
                del cluster_queues[local_queue]
                self._stopped.pop(local_queue, None)
        of_queues.apply(by_cluster_queue)
        self.lists = PendingLists(by_cluster_queue, by_local_queue, cluster_queues)

    def _collect_changes(self) -> tuple[dict[str, list[Member]], dict[str, list[Member]]]:
        """Returns the members that are to be removed and to be added, by LocalQueue."""
        removed: defaultdict[str, list[Member]] = defaultdict(list)
        added: defaultdict[str, list[Member]] = defaultdict(list)
        keys = list(islice(self._changed, MOST_CHANGED))
        self._changed.difference_update(keys)
        for key in keys:
            before, now = self._members.pop(key, None), self._state.workloads.find_pending(key)
            if before is not None:
                removed[before[1].queue].append(before)
            if now is not None:
                is_stopped = self._stopped.setdefault(now.queue, self._is_stopped(now.queue))
                member = self._members[key] = (is_stopped, *build_order(now, self._rules)), now
                added[now.queue].append(member)
        return removed, added

    def _move_local_queues(
        self,
        by_local_queue: dict[str, Sequence[Member]],
        by_cluster_queue: dict[str, Sequence[Member]],
        cluster_queues: dict[str, str | None],
    ) -> None:
        """Moves the workloads of LocalQueues that belong to another ClusterQueue now, or have stopped or begun to admit."""
        moved = _Edits()
        for local_queue, members in [*by_local_queue.items()]:
            before, now = cluster_queues[local_queue], self._find_cluster_queue(local_queue)
            was_stopped, is_stopped = self._stopped[local_queue], self._is_stopped(local_queue)
            placed = members
            if was_stopped != is_stopped:
                placed = by_local_queue[local_queue] = [((is_stopped, *place[1:]), workload) for place, workload in members]
                self._stopped[local_queue] = is_stopped
                self._members |= {member[1].key: member for member in placed}
            if before != now or was_stopped != is_stopped:
                cluster_queues[local_queue] = now
                moved.add(before, members, ())
                moved.add(now, (), placed)
        moved.apply(by_cluster_queue)

    def _find_cluster_queue(self, local_queue: str) -> str | None:
        found = self._state.local_queues.get(local_queue)
        return found.cluster_queue if found is not None and found.cluster_queue in self._state.cluster_queues else None


class _Edits:
    """What is to be removed from lists and added to them, by name, so that each list is copied once. Without a name there is none."""

    def __init__(self) -> None:
        self._removed: defaultdict[str, list[Member]] = defaultdict(list)
        self._added: defaultdict[str, list[Member]] = defaultdict(list)

    def add(self, name: str | None, removed: Iterable[Member], added: Iterable[Member]) -> None:
        if name is not None:
            self._removed[name].extend(removed)
            self._added[name].extend(added)

    def apply(self, lists: dict[str, Sequence[Member]]) -> None:
        for name, removed in self._removed.items():
            _change(lists, name, removed, self._added[name])


def _change(lists: dict[str, Sequence[Member]], name: str, removed: Iterable[Member], added: Iterable[Member]) -> None:
    """Replaces one of `lists` by a new one; removes it where it is empty."""
    former, members, copied = lists.get(name, ()), list[Member](), 0
    # Where the former list is cut, and what comes there; None: the member at the cut goes. What comes is before what goes.
    cuts = [(bisect_left(former, (member[0],)), False, member) for member in sorted(added, key=itemgetter(0))]
    goes = [(bisect_left(former, (order,)), True, None) for order, _ in removed]
    for at, is_removed, member in sorted([*cuts, *goes], key=itemgetter(0, 1)):
        members += former[copied:at]
        copied = at + is_removed
        members += [member] if member is not None else ()
    members += former[copied:]
    if members:
        lists[name] = members
    else:
        lists.pop(name, None)

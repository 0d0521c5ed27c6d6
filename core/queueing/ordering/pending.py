"""Workloads that wait, in groups of those that ask a LocalQueue for the same: what the first of a group is refused, all of it are."""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from core.model.pods_ready_rules import PodsReadyRules
from core.queueing.flavors.outcome import NotAdmissible
from core.queueing.ordering.queue_order import queue_order
from core.queueing.ordering.standing_refusals import StandingRefusal
from core.state.facts import PodSetFacts, WorkloadFacts
from core.state.workloads import Workloads

MOST_ADDED = 2_000  # new workloads that one `sync` adds, in some 30 ms
Order = tuple[int, str, str, str]  # lower goes first; no two are equal


def build_order(workload: WorkloadFacts, rules: PodsReadyRules | None = None) -> Order:
    """Returns the place of a workload among all, as a sort key: that of `queue_order`, then its key."""
    return (*queue_order(workload, rules), workload.key)


@dataclass(eq=False, slots=True)
class EquivalenceClass:
    """Workloads that are alike in all but their names and pod labels, the first to be served first."""

    key: tuple[Hashable, Hashable]  # its trait, and what it asks for
    members: list[tuple[Order, WorkloadFacts]] = field(default_factory=list)
    refusal: StandingRefusal | None = None  # of all that have none of their own
    shared_outcome: NotAdmissible | None = None  # the reason of all that have no refusal of their own
    is_held_up: bool = False  # no member is decided on now, with or without a refusal of its own
    unreported: dict[str, None] = field(default_factory=dict)  # uids of members to which the present reason is to be reported
    round: int = -1  # of cycles, for which the next two hold
    passed: Order | None = None  # members up to this place have had their turn
    put_off: int = 0  # how often: the next member would have to borrow, and its turn comes after those of others

    def __lt__(self, other: "EquivalenceClass") -> bool:
        """Any order will do: it is asked for only where a workload was in both groups, one after the other, and one turn is over."""
        return id(self) < id(other)

    def begin(self, in_round: int) -> None:
        """Sets the group to this round: drops its turns and how often they were put off, if those are of another round."""
        if self.round != in_round:
            self.round, self.passed, self.put_off = in_round, None, 0

    def reset(self, in_round: int) -> None:
        """Gives all members another turn in this round, put off as often as before."""
        self.begin(in_round)
        self.passed = None

    def find_next(self, in_round: int) -> int:
        """Returns the index of the first member that has had no turn in a round; the number of members where all have had theirs."""
        if self.round != in_round or self.passed is None:
            return 0
        return bisect_right(self.members, self.passed, key=lambda member: member[0])


@dataclass(frozen=True, slots=True)
class _Place:
    group: EquivalenceClass
    order: Order
    workload: WorkloadFacts
    number: int


class Pending:
    """All groups, in step with the workloads as of the last `sync`. What `trait` returns then is equal for all of a group."""

    def __init__(
        self,
        workloads: Workloads,
        rules: PodsReadyRules | None = None,
        trait: Callable[[WorkloadFacts], Hashable] = lambda workload: None,
    ) -> None:
        self._trait = trait
        self._workloads = workloads
        self._rules = rules
        self._changed = workloads.watch_pending()
        self._groups: dict[Hashable, EquivalenceClass] = {}
        self._places: dict[str, _Place] = {}  # by key of the workload
        self._keys: dict[str, str] = {}  # by uid
        self._uids: defaultdict[str, set[str]] = defaultdict(set)  # by party
        self._misplaced: set[str] = set()  # uids of workloads that may have another trait
        self._regrouped: dict[EquivalenceClass, None] = {}  # groups with members that have come or gone
        self.last_number = 0  # of the workload that came last, or asked for something else
        self.is_behind = False  # whether another call is to come before all are decided on

    def close(self) -> None:
        """Ends that changes are recorded for it. For callers that read the order once: `sync` finds no more changes then."""
        self._workloads.remove_pending_watch(self._changed)

    def sync(self) -> list[str]:
        """Adds, moves and removes workloads as they have changed since the last time. Returns uids of those that do not wait any more, or
        ask for something else.

        Of new workloads it adds `MOST_ADDED` at most: where more are left `is_behind` is true, and another call adds more. So it is after
        one that added more than half as many, since sorting all comes next.
        """
        others, emptied, later = [], [], []
        added = 0
        for key in self._changed:
            before, now = self._places.get(key), self._workloads.find_pending(key)
            if before is None and now is not None:
                added += 1
                if added > MOST_ADDED:
                    later.append(key)
                    continue
            if before is not None and (now is None or not _is_same(before.workload, now)):
                others.append(before.workload.uid)
            is_reported = before is not None and before.workload.uid not in before.group.unreported
            if before is not None:
                self._remove_member(key, before)
                emptied += [before.group] if not before.group.members else []
            if now is not None:
                group = self._put_in(key, now, before)
                if is_reported and before is not None and before.group is group and before.workload.uid == now.uid:
                    group.unreported.pop(now.uid)
        self._changed.clear()
        self._changed.update(later)
        self.is_behind = added > MOST_ADDED // 2
        for group in emptied:
            if not group.members:
                self._groups.pop(group.key, None)
        return others

    def move_changed(self, parties: Iterable[str]) -> None:
        """Moves workloads that have another trait now, by their parties, to the groups that have it: `MOST_ADDED` at most. Where more are
        left `is_behind` is true, and another call moves more."""
        self._misplaced.update(*(self._uids[party] for party in parties if party in self._uids))
        for uid in sorted(self._misplaced)[:MOST_ADDED]:
            self._misplaced.discard(uid)
            key = self._keys.get(uid)
            if key is None or self._places[key].group.key[0] == self._trait(self._places[key].workload):
                continue
            place = self._places[key]
            self._remove_member(key, place)
            if not place.group.members:
                del self._groups[place.group.key]
            self._put_in(key, place.workload, place)
        self.is_behind |= bool(self._misplaced)

    def _put_in(self, key: str, workload: WorkloadFacts, before: _Place | None) -> EquivalenceClass:
        same = self._trait(workload), _build_key(workload)
        group = self._groups.get(same)
        if group is None:
            group = self._groups[same] = EquivalenceClass(same)
        order = build_order(workload, self._rules)
        insort(group.members, (order, workload))
        self._regrouped[group] = None
        is_same = before is not None and before.order == order and before.workload.uid == workload.uid
        keeps = is_same and before is not None and (before.group is group or _is_same(before.workload, workload))
        number = before.number if before is not None and keeps else self.last_number + 1
        self.last_number = max(number, self.last_number)
        self._places[key] = _Place(group, order, workload, number)
        self._keys[workload.uid] = key
        self._uids[workload.party].add(workload.uid)
        group.unreported[workload.uid] = None
        return group

    def _remove_member(self, key: str, place: _Place) -> None:
        group, uid = place.group, place.workload.uid
        del group.members[bisect_left(group.members, place.order, key=lambda member: member[0])]
        group.unreported.pop(uid, None)
        self._regrouped[group] = None
        if self._keys.get(uid) == key:
            del self._keys[uid]
            self._uids[place.workload.party].discard(uid)
            if not self._uids[place.workload.party]:
                del self._uids[place.workload.party]
        del self._places[key]

    def list_classes(self) -> list[EquivalenceClass]:
        """Returns a new list of all groups, none of them empty, in no certain order."""
        return list(self._groups.values())

    def collect_changed(self) -> list[EquivalenceClass]:
        """Returns the groups with members that have come or gone since the last call; empty ones need no turn and do no harm."""
        changed, self._regrouped = list(self._regrouped), {}
        return changed

    def find(self, uid: str) -> WorkloadFacts | None:
        """Returns a workload that waits, by uid; None if it does not."""
        key = self._keys.get(uid)
        return self._places[key].workload if key is not None else None

    def order_of(self, uid: str) -> Order:
        """Returns the place among all of a workload that waits, as a sort key; lower goes first. Raises KeyError where it does not wait."""
        return self._places[self._keys[uid]].order

    def number_of(self, uid: str) -> int:
        """Returns the number of a workload that waits, in the order in which these came or began to ask for what they ask for. Raises
        KeyError where it does not wait."""
        return self._places[self._keys[uid]].number

    def group_of(self, uid: str) -> EquivalenceClass | None:
        """Returns the group of a workload that waits; None if it does not."""
        key = self._keys.get(uid)
        return self._places[key].group if key is not None else None

    def __contains__(self, uid: object) -> bool:
        return uid in self._keys

    def __iter__(self) -> Iterator[WorkloadFacts]:
        """All that wait, in the order in which they are served."""
        members = sorted(member for group in self._groups.values() for member in group.members)
        return (workload for _, workload in members)


def find_heads(
    groups: Iterable[EquivalenceClass], queue_of: Callable[[WorkloadFacts], str | None], is_held_back: Callable[[str], bool]
) -> dict[str, str]:
    """Returns, by queue, the uid of the first workload that is not held back, in each queue that `queue_of` names for any. Where it returns
    None for the first member of a group, all of that are left out."""
    firsts: dict[str, tuple[Order, str]] = {}
    for group in groups:
        queue = queue_of(group.members[0][1])
        found = next((member for member in group.members if not is_held_back(member[1].uid)), None) if queue is not None else None
        if queue is None or found is None:
            continue
        order, workload = found
        if queue not in firsts or order < firsts[queue][0]:
            firsts[queue] = order, workload.uid
    return {queue: uid for queue, (_, uid) in firsts.items()}


def _is_same(before: WorkloadFacts, now: WorkloadFacts) -> bool:
    """Whether two facts of a workload are equal in all that decides its class and its order."""
    was, is_now = ((w.uid, w.queue, w.priority, w.pod_sets, w.together, w.profile, w.replaces, w.refused) for w in (before, now))
    return was == is_now


def _build_key(workload: WorkloadFacts) -> Hashable:
    asked = workload.queue, workload.priority, workload.together, workload.profile, workload.replaces, workload.refused
    if workload.replaces is not None:  # only a workload of the same owner takes over what another holds
        return asked, workload.owner_uid, tuple(map(_build_pod_set_key, workload.pod_sets))
    return asked, tuple(map(_build_pod_set_key, workload.pod_sets))


def _build_pod_set_key(pod_set: PodSetFacts) -> Hashable:
    """All but the labels of its pods, which name their job."""
    traits = pod_set.traits
    return (
        pod_set.name,
        pod_set.count,
        pod_set.min_count,
        frozenset(pod_set.counted_requests.items()),
        pod_set.topology,
        frozenset(pod_set.node_selector.items()),
        repr(pod_set.affinity),
        repr(pod_set.tolerations),
        pod_set.group,
        pod_set.none_of,
        pod_set.spares,
        pod_set.spreading,
        traits.is_particular,
        traits.unjudged,
        traits.spread_keys,
    )

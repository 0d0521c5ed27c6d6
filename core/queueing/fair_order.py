"""Whose turn it is by fair share: of the heads of all queues the one that leaves its cohort's members most alike (KEP-1714).

At every cohort, from the lowest to the root, its members compete: that one wins whose share (dominant, by weight) is the lowest
with its head counted as admitted; of equals the head of higher priority, then the one that waits longer. Whoever need not borrow
comes before all who must (the peer's gate FairSharingPrioritizeNonBorrowing, which is on). Trees of cohorts have nothing to do
with each other: of their winners the one is next who need not borrow, then by priority and time.

Within a queue the order is as ever. A queue whose workload was promised room comes before all others until that one had its turn:
else whoever gained by the victims' going could take the room that was made for another.

Which flavors a head would have is not known before it is judged; it is taken to have the first that have the quota for it.
A turn costs as many comparisons as a cohort has members; shares are reckoned anew only where usage has changed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from core.model.quota import Amounts, FlavorResource, Share
from core.model.resources import add
from core.queueing.quota import pod_set_usage
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts

Asked = frozenset[tuple[str, int]]  # canonical amounts by resource
_Comparable = tuple[bool, float, Fraction]  # a share; the float decides nearly always, and is compared far faster
_Standing = tuple[bool, bool, _Comparable, int]  # what a head competes by among the members of a cohort; lower wins
_Reckoned = tuple[bool, tuple[_Comparable, ...]]  # whether a head must borrow, and the shares with it, from the root down


class _Line:
    """A queue and those who wait in it, the first of whom competes."""

    def __init__(self, queue: ClusterQueueFacts, cohorts: Sequence[str]) -> None:
        self.queue = queue
        self.cohorts = cohorts  # nearest first
        self.waiting: list[tuple[int, WorkloadFacts]] = []  # place among all, workload
        self.next = 0
        self.promised = -1  # up to whom the line is served first
        self.must_borrow = False  # somebody was put off: all behind it wait for that, too
        self.reckoned: dict[Asked, _Reckoned] = {}
        self.may_borrow = False  # whether its head does
        self.standings: list[_Standing] = []
        self.standing_of_tree = (True, True, 0)
        self.winner: _Line | None = self


class _Bout:
    """A cohort, among whose members one wins; `level` counts from the root."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.members: dict[_Line | _Bout, None] = {}
        self.lines: list[_Line] = []  # all below
        self.winner: _Line | None = None

    def decide(self) -> None:
        level, winners = self.level, [member.winner for member in self.members if member.winner is not None]
        self.winner = min(winners, key=lambda line: line.standings[level], default=None)


class FairOrder:
    """Yields those who wait in turn; see the module."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._asked: dict[str, tuple[WorkloadFacts, ClusterQueueFacts, Asked]] = {}  # by uid, kept over cycles
        self._lines: dict[str, _Line] = {}
        self._bouts: dict[str, _Bout] = {}

    def turns(self, pending: Sequence[WorkloadFacts], is_promised: Callable[[str], bool]) -> Iterator[tuple[WorkloadFacts, bool]]:
        """Who is next, and whether it may borrow; `pending` are in the order of priority and time."""
        yield from self._line_up(pending, is_promised)
        roots: list[_Line | _Bout] = [bout for bout in self._bouts.values() if bout.level == 0]
        roots += [line for line in self._lines.values() if not line.cohorts]
        tree = self._state.quota
        while True:
            line = min((r.winner for r in roots if r.winner is not None), key=lambda line: line.standing_of_tree, default=None)
            if line is None:
                return
            before, place, may_borrow = dict(tree.usage(line.queue.name)), line.next, line.may_borrow
            line.next += 1
            yield line.waiting[place][1], may_borrow
            if tree.usage(line.queue.name) != before:
                self._reckon_anew(line)
            else:
                self._advance(line)

    def put_off(self, workload: WorkloadFacts) -> None:
        """Whose turn it was would have to borrow: it is asked again, and those behind it in its queue, after all who need not."""
        queue = self._state.find_cluster_queue(workload)
        assert queue is not None
        line = self._lines[queue.name]
        line.next -= 1
        line.must_borrow = True

    # --- heads ------------------------------------------------------------------------------------------

    def _line_up(self, pending: Sequence[WorkloadFacts], is_promised: Callable[[str], bool]) -> Iterator[tuple[WorkloadFacts, bool]]:
        """Sorts all into their queues; yields those who have none, whom only a message awaits."""
        self._lines, self._bouts = {}, {}
        if len(self._asked) > 2 * len(pending) + 64:
            uids = {workload.uid for workload in pending}
            self._asked = {uid: asked for uid, asked in self._asked.items() if uid in uids}
        for place, workload in enumerate(pending):
            queue = self._state.find_cluster_queue(workload)
            if queue is None:
                yield workload, False
                continue
            line = self._lines.get(queue.name)
            if line is None:
                line = self._lines[queue.name] = _Line(queue, self._state.quota.ancestors(queue.name))
            line.waiting.append((place, workload))
            if is_promised(workload.uid):
                line.promised = len(line.waiting) - 1
        for line in self._lines.values():
            member: _Line | _Bout = line
            for level, cohort in zip(range(len(line.cohorts) - 1, -1, -1), line.cohorts, strict=True):
                bout = self._bouts.setdefault(cohort, _Bout(level))
                bout.lines.append(line)
                bout.members[member] = None
                member = bout
            self._stand(line)
        self._decide(self._bouts.values())

    def _advance(self, line: _Line) -> None:
        """The next of a queue competes; nobody else's standing has changed by that."""
        self._stand(line)
        for cohort in line.cohorts:
            self._bouts[cohort].decide()

    def _reckon_anew(self, line: _Line) -> None:
        """Usage of a queue has changed, and with it what is left in its whole tree."""
        for other in self._bouts[line.cohorts[-1]].lines if line.cohorts else [line]:
            other.reckoned.clear()
            self._stand(other)
        self._decide(self._bouts.values())

    @staticmethod
    def _decide(bouts: Iterable[_Bout]) -> None:
        for bout in sorted(bouts, key=lambda bout: -bout.level):
            bout.decide()

    def _stand(self, line: _Line) -> None:
        if line.next == len(line.waiting):
            line.winner = None
            return
        place, workload = line.waiting[line.next]
        asked = self._asked_by(workload, line.queue)
        reckoned = line.reckoned.get(asked)
        if reckoned is None:
            reckoned = line.reckoned[asked] = self._reckon(line.queue, asked)
        borrows, shares = reckoned
        after_promised, line.may_borrow = line.next > line.promised, borrows or line.must_borrow
        line.standings = [(after_promised, line.may_borrow, share, place) for share in shares]
        line.standing_of_tree = after_promised, line.may_borrow, place

    # --- shares -----------------------------------------------------------------------------------------

    def _asked_by(self, workload: WorkloadFacts, queue: ClusterQueueFacts) -> Asked:
        known = self._asked.get(workload.uid)
        if known is None or known[0] is not workload or known[1] is not queue:
            total: dict[str, int] = {}
            for pod_set in workload.pod_sets:
                add(total, pod_set_usage(pod_set, queue, self._state.resource_rules))
            known = self._asked[workload.uid] = workload, queue, frozenset(total.items())
        return known[2]

    def _reckon(self, queue: ClusterQueueFacts, asked: Asked) -> _Reckoned:
        tree = self._state.quota
        amounts = self._likely_usage(queue, dict(asked))
        usage = tree.usage(queue.name)
        borrows = any(amount and usage.get(name, 0) + amount > tree.nominal(queue.name, name) for name, amount in amounts.items())
        return borrows, tuple(_comparable(share) for share in tree.shares(queue.name, amounts))

    def _likely_usage(self, queue: ClusterQueueFacts, asked: dict[str, int]) -> Amounts:
        """What it would take: of each group the first flavor that has enough left, or would if nothing were in use, or the first."""
        tree = self._state.quota
        likely: dict[FlavorResource, int] = {}
        for group in queue.groups:
            wanted = {resource: asked[resource] for resource in group.resources if resource in asked}
            rest = [f for f in group.flavors if all(n <= tree.available(queue.name, (f, r)) for r, n in wanted.items())]
            rest = rest or [f for f in group.flavors if all(n <= tree.potential(queue.name, (f, r)) for r, n in wanted.items())]
            flavor = next(iter(rest or group.flavors), None)
            likely |= {(flavor, resource): amount for resource, amount in wanted.items()} if flavor is not None else {}
        return likely


def _comparable(share: Share) -> _Comparable:
    return share.is_infinite, float(share.value), share.value

"""The order of workloads with fair sharing: of the heads of all queues, the next is the one that leaves the shares of
its cohort's members most alike (KEP-1714).

The members of each cohort compete, from the lowest cohort to the root. The member with the lowest dominant, weighted
share wins, with its head counted as admitted. Among equals the head of higher priority wins, then the one that has
waited longer. A head that need not borrow comes before all heads that must (Kueue's gate
FairSharingPrioritizeNonBorrowing, which is on). Trees of cohorts are independent: of their winners, one that need not
borrow comes first, then priority and time decide.

Within a queue the order is that of the queue. A queue with a workload for which others were evicted comes before all
other queues until that workload had its turn. Otherwise a workload that gains by the evictions could take what was
released for another one.

The flavors of a head are not known before it is decided on; it is assumed to get the first ones with enough quota. A
turn needs as many comparisons as a cohort has members; shares are computed again only where usage has changed.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from core.model.quota_tree import Amounts, FlavorResource, QuotaTree, Share
from core.queueing.flavors.quota_shortage import compute_usage
from core.queueing.ordering.iteration_order import (
    Turn,
    add_turns,
    count_put_off,
    find_first,
    list_first_turns,
    note_ended,
    note_passed,
    note_put_off,
)
from core.queueing.ordering.pending import EquivalenceClass, Order
from core.state.cluster import ClusterState
from core.state.queue_facts import ClusterQueueFacts

_Amounts = frozenset[tuple[str, int]]  # canonical amounts by resource
_Comparable = tuple[bool, float, Fraction]  # a share; the float decides nearly always, and is compared far faster
_Standing = tuple[bool, bool, _Comparable, Order]  # what a head competes by among the members of a cohort; lower wins
_Reckoned = tuple[bool, tuple[_Comparable, ...]]  # whether a head must borrow, and the shares with it, from the root down


class _Line:
    """A queue and its pending workloads; the first of them competes."""

    def __init__(self, queue: ClusterQueueFacts, cohorts: Sequence[str]) -> None:
        self.queue = queue
        self.cohorts = cohorts  # nearest first
        self.waiting: list[Turn] = []  # a heap
        self.promised: Order | None = None  # the line is served first up to this place
        self.put_off: set[EquivalenceClass] = set()  # groups; all others of the line wait for what those wait for
        self.reckoned: dict[_Amounts, _Reckoned] = {}
        self.may_borrow = False  # whether its head does
        self.standings: list[_Standing] = []
        self.standing_of_tree: tuple[bool, bool, Order] = (True, True, (0, "", "", ""))
        self.winner: _Line | None = self


class _Bout:
    """A cohort; one of its members wins. `level` counts from the root."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.members: dict[_Line | _Bout, None] = {}
        self.lines: list[_Line] = []  # all below
        self.winner: _Line | None = None

    def decide(self) -> None:
        level, winners = self.level, [member.winner for member in self.members if member.winner is not None]
        self.winner = min(winners, key=lambda line: line.standings[level], default=None)


class FairTurns:
    """Turns by fair share; see the module and `core.queueing.ordering.iteration_order.Turns`. Where queues or cohorts change new turns are
    made."""

    def __init__(self, state: ClusterState, in_round: int) -> None:
        self._state = state
        self._round = in_round
        self._lines: dict[str, _Line] = {}
        self._bouts: dict[str, _Bout] = {}
        self._asked: dict[EquivalenceClass, _Amounts] = {}
        self._homeless: list[Turn] = []  # of workloads without a queue, for which only a message is due
        self._last: tuple[_Line, Mapping[FlavorResource, int]] | None = None  # the queue of the last turn, and its usage before that turn
        self._roots: list[_Line | _Bout] = []

    def begin(self, changed: Iterable[EquivalenceClass], promised: Iterable[tuple[str, Order]] = ()) -> None:
        """Adds the turns of changed groups, and computes all shares again; see `Turns.begin`. A queue that is `promised` room comes before
        all others up to the last place given for it; one without pending workloads is ignored."""
        self._last, changed = None, list(changed)
        for group in changed:
            self._asked.pop(group, None)
        self._sort_turns(list_first_turns(changed, self._round))
        for line in self._lines.values():
            line.promised = None
            line.put_off = {group for group in line.put_off if group.find_next(self._round) < len(group.members)}
        for name, order in promised:
            named = self._lines.get(name)
            if named is not None:
                named.promised = max(order, named.promised or order)
        for line in self._lines.values():
            line.reckoned.clear()
            self._enter_line(line)
        self._decide(self._bouts.values())

    def get_next(self) -> tuple[Turn, bool] | None:
        """Returns the turn of the head that wins by share, and whether it may borrow: it must, or groups of its queue were put off.
        Workloads without a queue come first. If the usage of the last turn's queue has changed, shares are computed again; see
        `Turns.get_next`."""
        homeless = find_first(self._homeless, self._round)
        if homeless is not None:
            return homeless, False
        tree = self._state.quota
        if self._last is not None:
            line, before = self._last
            if tree.get_usage(line.queue.name) != before:
                self._drop_shares(line)
            else:
                self._advance_line(line)
        best = min((r.winner for r in self._roots if r.winner is not None), key=lambda line: line.standing_of_tree, default=None)
        if best is None:
            return None
        self._last = best, dict(tree.get_usage(best.queue.name))
        return best.waiting[0], best.may_borrow

    def add_follower(self, turn: Turn) -> None:
        """Records that a turn is over, and adds one for the next member of the same group, if there is one, to its queue; see
        `Turns.add_follower`."""
        note_passed(turn, self._round)
        if turn.next is None:
            return
        line = self._find_line(turn)
        heapq.heappush(line.waiting if line is not None else self._homeless, turn.next)

    def put_off(self, turn: Turn) -> None:
        """Repeats a turn after those that need not borrow, and with it those behind it in its queue; see `Turns.put_off`. Raises
        AssertionError for a workload without a ClusterQueue."""
        line = self._find_line(turn)
        assert line is not None
        note_put_off(turn, self._round)
        line.put_off.add(turn.group)

    def may_put_off_again(self, turn: Turn) -> bool:
        """Returns False, since the order of those that borrow is by share; see `Turns.may_put_off_again`."""
        return False

    def end(self, turn: Turn) -> None:
        """Ends the turns of a group in this round; see `Turns.end`. Its queue goes on with its other groups."""
        note_ended(turn, self._round)

    def _find_line(self, turn: Turn) -> _Line | None:
        queue = self._state.find_cluster_queue(turn.workload)
        return self._lines[queue.name] if queue is not None else None

    # --- heads ------------------------------------------------------------------------------------------

    def _sort_turns(self, turns: Iterable[Turn]) -> None:
        """Sorts turns into their queues."""
        more: dict[str, list[Turn]] = {}
        for turn in turns:
            queue = self._state.find_cluster_queue(turn.workload)
            if queue is None:
                heapq.heappush(self._homeless, turn)
                continue
            if queue.name not in self._lines:
                self._join(_Line(queue, self._state.quota.list_ancestors(queue.name)))
            more.setdefault(queue.name, []).append(turn)
        for name, added in more.items():
            line = self._lines[name]
            add_turns(line.waiting, added)
            line.put_off.update(turn.group for turn in added if count_put_off(turn.group, self._round))

    def _join(self, line: _Line) -> None:
        """A queue competes from now on in its cohort, and that in those above."""
        self._lines[line.queue.name] = line
        member: _Line | _Bout = line
        for level, cohort in zip(range(len(line.cohorts) - 1, -1, -1), line.cohorts, strict=True):
            if cohort not in self._bouts:
                self._bouts[cohort] = _Bout(level)
                self._roots += [self._bouts[cohort]] if level == 0 else []
            bout = self._bouts[cohort]
            bout.lines.append(line)
            bout.members[member] = None
            member = bout
        self._roots += [line] if not line.cohorts else []

    def _advance_line(self, line: _Line) -> None:
        """Lets the next workload of a queue compete. The standing of no other queue has changed."""
        self._enter_line(line)
        for cohort in line.cohorts:
            self._bouts[cohort].decide()

    def _drop_shares(self, line: _Line) -> None:
        """Drops the shares of all queues in the tree: the usage of one queue has changed, and with it the quota left in
        its tree."""
        for other in self._bouts[line.cohorts[-1]].lines if line.cohorts else [line]:
            other.reckoned.clear()
            self._enter_line(other)
        self._decide(self._bouts.values())

    @staticmethod
    def _decide(bouts: Iterable[_Bout]) -> None:
        for bout in sorted(bouts, key=lambda bout: -bout.level):
            bout.decide()

    def _enter_line(self, line: _Line) -> None:
        turn = find_first(line.waiting, self._round)
        if turn is None:
            line.winner = None
            return
        line.winner = line
        asked = self._compute_request(turn, line.queue)
        reckoned = line.reckoned.get(asked)
        if reckoned is None:
            reckoned = line.reckoned[asked] = self._compute_shares(line.queue, asked)
        borrows, shares = reckoned
        after_promised, line.may_borrow = line.promised is None or turn.order > line.promised, borrows or bool(line.put_off)
        line.standings = [(after_promised, line.may_borrow, share, turn.order) for share in shares]
        line.standing_of_tree = after_promised, line.may_borrow, turn.order

    # --- shares -----------------------------------------------------------------------------------------

    def _compute_request(self, turn: Turn, queue: ClusterQueueFacts) -> _Amounts:
        known = self._asked.get(turn.group)
        if known is None:
            total = compute_usage(turn.workload.pod_sets, queue, self._state.resource_rules)
            known = self._asked[turn.group] = frozenset(total.items())
        return known

    def _compute_shares(self, queue: ClusterQueueFacts, asked: _Amounts) -> _Reckoned:
        tree = self._state.quota
        amounts = estimate_usage(tree, queue, dict(asked))
        shares = tree.compute_shares(queue.name, amounts)
        return is_borrowing(tree, queue, amounts), tuple(_build_sort_key(share) for share in shares)


def estimate_usage(tree: QuotaTree, queue: ClusterQueueFacts, asked: Mapping[str, int]) -> Amounts:
    """Returns what a workload would probably take of quota, by flavor and resource. Of each resource group it is the first flavor that has
    enough left, or would have if nothing were in use, or the first. `asked`: canonical amounts by resource. Raises KeyError where the tree
    does not have the queue."""
    likely: dict[FlavorResource, int] = {}
    for group in queue.groups:
        wanted = {resource: asked[resource] for resource in group.resources if resource in asked}
        rest = [f for f in group.flavors if all(n <= tree.compute_available(queue.name, (f, r)) for r, n in wanted.items())]
        rest = rest or [f for f in group.flavors if all(n <= tree.compute_potential(queue.name, (f, r)) for r, n in wanted.items())]
        flavor = next(iter(rest or group.flavors), None)
        likely |= {(flavor, resource): amount for resource, amount in wanted.items()} if flavor is not None else {}
    return likely


def is_borrowing(tree: QuotaTree, queue: ClusterQueueFacts, amounts: Amounts) -> bool:
    """Whether a queue has to borrow any of these canonical amounts beside what it uses. Raises KeyError where the tree does not have the
    queue."""
    usage = tree.get_usage(queue.name)
    return any(amount and usage.get(name, 0) + amount > tree.get_nominal(queue.name, name) for name, amount in amounts.items())


def _build_sort_key(share: Share) -> _Comparable:
    return share.is_infinite, float(share.value), share.value

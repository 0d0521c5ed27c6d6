"""Preemption with fair sharing: which workloads may be preempted by share (KEP-1714; Configuration,
fairSharing.preemptionStrategies).

Two queues are compared at their lowest common cohort: by the shares of its two children that have one of the queues
each. The workload counts as in use on its side.

- LessThanOrEqualToFinalShare: once all victims are gone, the share of the side that gave is equal to or above that of
  the side that took.
- LessThanInitialShare: the share of the side that took stays below the one that the other side had.
- By either strategy no victim could be preempting in turn: with any victim back, its side would be beyond the other
  one. So preemption does not go on for ever.

A side that takes nothing beyond its own quota is not compared: that is reclaiming (Kueue's gate
FairSharingPreemptWithinNominal, which is on).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from core.model.configuration import PreemptionStrategy
from core.model.quota_tree import Amounts, QuotaTree, Share

Excess = tuple[tuple[bool, Fraction], ...]  # from the root down, the more the lower, so that it sorts first


@dataclass(frozen=True, slots=True)
class ShareRule:
    """By which comparison a queue may take from others."""

    queue: str
    strategy: PreemptionStrategy

    def allows(self, tree: QuotaTree, wanted: Amounts, gone: Iterable[tuple[str, Amounts]]) -> bool:
        """Whether a workload that uses `wanted` (canonical amounts) may have preempted the workloads `gone`: the queue of each, another
        than the rule's, and its usage. Each alone must be fair (`is_fair`) at the lowest cohort that both queues have in common, with all
        others gone. The tree counts neither it nor these."""
        ours = tree.compute_shares(self.queue, wanted)
        for queue, amounts in {(queue, tuple(sorted(amounts.items()))): (queue, amounts) for queue, amounts in gone}.values():
            level = tree.find_meeting_level(self.queue, queue)
            if not self.is_fair(ours[level], tree.compute_shares(queue)[level], tree.compute_shares(queue, amounts)[level]):
                return False
        return True

    def is_fair(self, ours: Share, after: Share, before: Share) -> bool:
        """Whether one workload may go; `ours` is the share of the side that takes, the others are of the side that gives, without and with
        that workload. The share `before` must be above `ours`, and by the strategy LessThanOrEqualToFinalShare `after` at least as high.
        True where `ours` is 0: that side only reclaims its own."""
        if ours.is_zero:
            return True
        return before > ours and (self.strategy is PreemptionStrategy.INITIAL_SHARE or after >= ours)

    def begin(self, tree: QuotaTree, wanted: Amounts) -> "OneByOne":
        """Returns a trial of candidates one after the other, for a workload that uses `wanted` (canonical amounts). It changes the tree
        until its `end` is called."""
        return OneByOne(self, tree, wanted)


class OneByOne:
    """Removes candidates one after the other, each if shares allow it. `end` restores the tree.

    Of the workloads removed from one queue only the one with the least effect on return is checked again, so that many
    can be tried. `ShareRule.allows` decides in the end.
    """

    def __init__(self, rule: ShareRule, tree: QuotaTree, wanted: Amounts) -> None:
        self._rule, self._tree, self._wanted = rule, tree, wanted
        self._ours = tree.compute_shares(rule.queue, wanted)
        self._levels: dict[str, int] = {}
        self._gone: list[tuple[str, Amounts]] = []
        self._least: dict[str, Amounts] = {}  # by queue

    def release_if_allowed(self, queue: str, amounts: Amounts, *, is_own: bool) -> bool:
        """Removes the usage of a candidate in `queue` from the tree if shares let it go after those before it; one of the preemptor's own
        queue (`is_own`) always. Returns whether they do; if not, the tree is as before."""
        tree, before = self._tree, self._ours
        level = -1 if is_own else self._find_level(queue)
        tree.add(queue, amounts, -1)
        if level != 0:  # below the root it is on the side of the one that takes, too
            self._ours = tree.compute_shares(self._rule.queue, self._wanted)
        if not is_own:
            after, back = tree.compute_shares(queue)[level], tree.compute_shares(queue, amounts)[level]
            least = tree.compute_shares(queue, self._least[queue])[level] if queue in self._least else back
            if not self._rule.is_fair(self._ours[level], after, min(back, least)):
                tree.add(queue, amounts)
                self._ours = before
                return False
            if back <= least:
                self._least[queue] = amounts
        self._gone.append((queue, amounts))
        return True

    def _find_level(self, queue: str) -> int:
        if queue not in self._levels:
            self._levels[queue] = self._tree.find_meeting_level(self._rule.queue, queue)
        return self._levels[queue]

    def end(self) -> None:
        """Adds the usage of all removed workloads back to the tree; to be called once."""
        for queue, amounts in self._gone:
            self._tree.add(queue, amounts)

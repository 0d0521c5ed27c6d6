"""What shares say about who may go: preemption by fair share (KEP-1714; Configuration, fairSharing.preemptionStrategies).

Two queues are compared where they meet: by the shares of the two children of their lowest common cohort, each of which has
one of the queues below it. The workload counts as in use on its side.

- LessThanOrEqualToFinalShare: once all have gone, the side that gave is at its share or above that of the side that took.
- LessThanInitialShare: the side that took stays below what the other one had.
- By either no victim could take its place back by the same right: with any one of them back, its side would be beyond the
  other. So nobody is preempted in turn, for ever.

A side that takes nothing beyond what is its own is compared with nobody: that is reclaiming (the peer's gate
FairSharingPreemptWithinNominal, which is on).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from core.model.configuration import PreemptionStrategy
from core.model.quota import Amounts, QuotaTree, Share

Excess = tuple[tuple[bool, Fraction], ...]  # from the root down, the more the lower, so that it sorts first


@dataclass(frozen=True, slots=True)
class ShareRule:
    """By which comparison a queue may take from others."""

    queue: str
    strategy: PreemptionStrategy

    def allows(self, tree: QuotaTree, wanted: Amounts, gone: Iterable[tuple[str, Amounts]]) -> bool:
        """Whether a workload that takes `wanted` may have made these go: victims in other queues, which the tree counts no more."""
        ours = tree.shares(self.queue, wanted)
        for queue, amounts in gone:
            level = tree.meeting_level(self.queue, queue)
            if not self._is_fair(ours[level], tree.shares(queue)[level], tree.shares(queue, amounts)[level]):
                return False
        return True

    def _is_fair(self, ours: Share, after: Share, before: Share) -> bool:
        if ours.is_zero:
            return True
        return before > ours and (self.strategy is PreemptionStrategy.INITIAL_SHARE or after >= ours)

    def begin(self, tree: QuotaTree, wanted: Amounts) -> "OneByOne":
        """Trial of candidates one after the other."""
        return OneByOne(self, tree, wanted)


class OneByOne:
    """Candidates who go one after the other, each if shares allow it; the tree is as before at the `end`.

    Of those who went from one queue only the one whose return would change least is looked at again, so that many can be tried:
    `ShareRule.allows` has the last word.
    """

    def __init__(self, rule: ShareRule, tree: QuotaTree, wanted: Amounts) -> None:
        self._rule, self._tree, self._wanted = rule, tree, wanted
        self._gone: list[tuple[str, Amounts]] = []
        self._least: dict[str, Amounts] = {}  # by queue

    def lets_go(self, queue: str, amounts: Amounts, *, is_own: bool) -> bool:
        """Whether a candidate may go after those before it, and if so, lets it go."""
        tree, least = self._tree, self._least.get(queue, amounts)
        tree.add(queue, amounts, -1)
        if not is_own and not self._rule.allows(tree, self._wanted, [(queue, amounts), (queue, least)]):
            tree.add(queue, amounts)
            return False
        self._least[queue] = min(least, amounts, key=lambda back: tree.shares(queue, back))
        self._gone.append((queue, amounts))
        return True

    def end(self) -> None:
        """Counts everybody again."""
        for queue, amounts in self._gone:
            self._tree.add(queue, amounts)

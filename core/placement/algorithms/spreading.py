"""Rules of topology spreading: which domains of a level a pod set may have, and which of them it takes first (KEP-13746 of Kueue).

A pod set with rules has a required level, and no rule is of a level below that: it is in one domain of each rule's level. So rules only
close and order the domains of the required level, before a single one is chosen, and what is below it is dealt as without them.
"""

from dataclasses import dataclass

import numpy as np

from core.model.podset import PodSetRequest
from core.model.topology_spreading import CountedRule
from core.placement.topology.tree import Flags, Indices, TopologyTree

_USED, _UNUSED, _OVER = 0, 1, 2  # tiers of a preferred rule, the best first


@dataclass(frozen=True, slots=True)
class SpreadRules:
    """The rules of a pod set, at least one, on a tree."""

    tree: TopologyTree
    rules: tuple[CountedRule, ...]

    @property
    def deepest(self) -> int:
        """The lowest level of a rule, as an index; domains of this level and below it can be judged."""
        return self.rules[-1].level

    def find_ancestors(self, rule: CountedRule, level: int, domains: Indices) -> Indices:
        """Returns the domains of the rule's level that some domains of a level are in."""
        for at in range(level, rule.level, -1):
            domains = self.tree.levels[at].parents[domains]
        return domains

    def find_open(self, level: int) -> Flags:
        """Returns a flag per domain of a level, which no rule is below: whether no required rule closes it."""
        closed = np.zeros(self.tree.levels[0].count, dtype=bool)
        at = 0
        for rule in (rule for rule in self.rules if rule.rule.required):
            closed = self._expand_down(closed, at, rule.level) | rule.over
            at = rule.level
        return ~self._expand_down(closed, at, level)

    def _expand_down(self, closed: Flags, level: int, lower: int) -> Flags:
        """Flags of domains of a level, given to all domains of a lower level in them."""
        for at in range(level + 1, lower + 1):
            closed = closed[self.tree.levels[at].parents]
        return closed

    def find_closed_nodes(self) -> Flags | None:
        """Returns a flag per node: whether it is in a domain that a required rule closes. None where none does."""
        is_open = self.find_open(self.deepest)
        if is_open.all():
            return None
        here = self.tree.levels[self.deepest]
        return (~is_open).repeat(here.ends - here.starts)

    def select(self, level: int, domains: Indices) -> Indices:
        """Returns those of some domains of a level (indexes, ascending; no rule is below the level) that are open and of the best tier of
        these: first by the coarser of two preferred rules, then by the other."""
        domains = domains[self.find_open(level)[domains]]
        for key in self._list_keys(level, domains):
            if len(domains) < 2:
                break
            at = key[domains]
            domains = domains[at == at.min()]
        return domains

    def order(self, level: int, domains: Indices) -> Indices:
        """Returns the open ones of some domains of a level (no rule is below it), by their tiers, the best first, and within a tier in the
        order in which they came."""
        domains = domains[self.find_open(level)[domains]]
        keys = [key[domains] for key in self._list_keys(level, domains)]
        return domains[np.lexsort(keys[::-1])] if keys else domains

    def _list_keys(self, level: int, domains: Indices) -> list[Indices]:
        """Per preferred rule, coarse to fine, the tier of each domain of a level, with what it has more than its share counted in: those
        that are over come last, the fewest of them first. Only `domains` are filled in."""
        keys = []
        for rule in self.rules:
            if not rule.rule.required:
                tiers = np.where(rule.over, _OVER + rule.counts, np.where(rule.counts > 0, _USED, _UNUSED))
                key = np.zeros(self.tree.levels[level].count, dtype=np.int64)
                key[domains] = tiers[self.find_ancestors(rule, level, domains)]
                keys.append(key)
        return keys


def find_spread(tree: TopologyTree, request: PodSetRequest) -> SpreadRules | None:
    """Returns the rules of a pod set on the tree for which they were counted; None where it has none."""
    return SpreadRules(tree, request.spreading) if request.spreading else None


def find_closed_nodes(tree: TopologyTree, request: PodSetRequest) -> Flags | None:
    """Returns a flag per node: whether a rule of the pod set closes its domain. None where none does."""
    return SpreadRules(tree, request.spreading).find_closed_nodes() if request.spreading else None

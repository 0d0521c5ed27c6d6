"""What rules of topology spreading have to do with a refusal or a choice: the rule, the domain, its count and share, what opens it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.model.podset import PodSetRequest
from core.model.quantity import show_count
from core.model.topology_spreading import WHOLE, CountedRule, format_share
from core.placement.algorithms.domain_capacity import Fits
from core.placement.algorithms.slices import Shape
from core.placement.algorithms.spreading import SpreadRules
from core.placement.explain.suggested_changes import Refused
from core.placement.refusals import NotFit, RefusalKind, with_note
from core.placement.topology.tree import Flags, TopologyTree

_SHOWN = 3  # domains that a sentence names


@dataclass(frozen=True, slots=True)
class SpreadDomain:
    """A domain with the Workloads that a rule counts in it and in its parent, and the share (thousandths) that it may have."""

    domain: tuple[str, ...]
    count: int
    whole: int
    share: int

    @property
    def needed(self) -> int:
        """The fewest Workloads in the parent with which as many in the domain do not close it."""
        return -(-self.count * WHOLE // self.share)

    @property
    def too_many(self) -> int:
        """The fewest Workloads of the domain that must end, and no others, so that it is not closed."""
        return min(self.count, -(-(self.count * WHOLE - self.share * self.whole) // (WHOLE - self.share)))

    def show_opening(self) -> str:
        """Returns what opens the domain: more Workloads around it, or fewer in it."""
        around = f"in {'/'.join(self.domain[:-1])}" if len(self.domain) > 1 else "in all"
        return f"{show_count(self.needed, 'Workload')} {around} or {self.too_many} fewer in {'/'.join(self.domain)}"

    def __str__(self) -> str:
        return f"{'/'.join(self.domain)} has {self.count} of {show_count(self.whole, 'Workload')}"


def refuse_below_rule(tree: TopologyTree, request: PodSetRequest, shape: Shape) -> NotFit | None:
    """Returns a refusal of a pod set with a rule of a level below its required level; None where there is none."""
    below = next((rule for rule in request.spreading if rule.level > shape.start), None)
    if below is None:
        return None
    text = f"topology spreading level {below.rule.key} is below the podset topology {tree.declared[shape.start]}"
    return NotFit(RefusalKind.SPREADING_BELOW_PODSET_LEVEL, request.name, f"pod set {request.name}: {text}")


def with_spreading(refusal: NotFit, refused: Refused, spread: SpreadRules, everywhere: Fits) -> NotFit:
    """Returns a refusal with what the rules close, and what opens one of these domains. It is of kind SPREADING where none is open at the
    required level. `everywhere` is what fits in all domains, closed ones included."""
    shape, tree = refused.shape, spread.tree
    level = spread.deepest if shape.auto else shape.start
    is_open = spread.find_open(level)
    if not is_open.any():
        text = f"topology spreading excludes all topology domains at level: {tree.declared[shape.start]}"
        refusal = replace(refusal, kind=RefusalKind.SPREADING, detail=text, fit=0)
    if refusal.explanation is None:
        return refusal
    # Closed domains open again: that the others never hold it says nothing, and where none is open nothing was counted.
    levels = refusal.explanation.levels if is_open.any() else ()
    refusal = replace(refusal, explanation=replace(refusal.explanation, never=None, levels=levels))
    able = ~is_open & (everywhere.count_all_units_at(level, shape) >= refused.wanted)
    for rule in spread.rules:
        if rule.rule.required and rule.over.any():
            refusal = with_note(refusal, _describe_closed(spread, rule))
    blocked = able.nonzero()[0]
    if len(blocked):
        refusal = with_note(refusal, _describe_opening(spread, level, blocked[: _SHOWN * _SHOWN].tolist(), refused))
    elif not is_open.any():
        refusal = with_note(refusal, f"None of them has room for {_show_whole(refused)} either")
    return refusal


def _show_whole(refused: Refused) -> str:
    return show_count(refused.wanted, refused.shape.unit)


def find_spread_domain(tree: TopologyTree, rule: CountedRule, domain: int) -> SpreadDomain:
    """Returns what a rule counts in a domain of its level, by index."""
    return SpreadDomain(tree.get_values(rule.level, domain), int(rule.counts[domain]), int(rule.wholes[domain]), rule.rule.share)


def _describe_closed(spread: SpreadRules, rule: CountedRule) -> str:
    over = rule.over.nonzero()[0]
    shown = ", ".join(str(find_spread_domain(spread.tree, rule, domain)) for domain in over[:_SHOWN].tolist())
    more = f" and {len(over) - _SHOWN} more" if len(over) > _SHOWN else ""
    share = format_share(rule.rule.share)
    return f"Topology spreading ({rule.rule.key}, at most {share}) closes {len(over)} of {len(rule.counts)}: {shown}{more}"


def _describe_opening(spread: SpreadRules, level: int, blocked: Sequence[int], refused: Refused) -> str:
    """The closed domain, of some that have room for all, that opens with the fewest changes, and with which."""
    nearest: tuple[int, str] | None = None
    for domain in blocked:
        closing = []
        for rule in spread.rules:
            at = int(spread.find_ancestors(rule, level, np.array([domain]))[0])
            if rule.rule.required and rule.over[at]:
                closing.append(find_spread_domain(spread.tree, rule, at))
        ways = " and, by the other rule, ".join(each.show_opening() for each in closing)
        cost = sum(min(each.needed - each.whole, each.too_many) for each in closing)
        name = "/".join(spread.tree.get_values(level, domain))
        if nearest is None or cost < nearest[0]:
            nearest = cost, f"{name} has room for {_show_whole(refused)}, and opens with {ways}"
    assert nearest is not None
    return nearest[1]


def describe_chosen(spread: SpreadRules, level: int, domain: int, is_open: Flags) -> str:
    """Returns for each rule what it counts in the domain that a pod set was given, and how many domains of its level are closed, which are
    not open by `is_open`, a flag for each."""
    parts = []
    for rule in spread.rules:
        at = int(spread.find_ancestors(rule, level, np.array([domain]))[0])
        found, share = find_spread_domain(spread.tree, rule, at), format_share(rule.rule.share)
        limit = f"at most {share}" if rule.rule.required else f"{share} preferred"
        over = ", exceeded" if rule.over[at] else ""
        parts.append(f"{rule.rule.key} {found} ({limit}{over})")
    closed = f"; {int((~is_open).sum())} of {len(is_open)} closed" if not is_open.all() else ""
    return f"topology spreading: {', '.join(parts)}{closed}"

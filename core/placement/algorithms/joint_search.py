"""A joint search for pod sets that hinder each other: whatever their order, if there is a fit it is found.

Placed one after the other, a pod set may take what only a later one could have used. Here every domain
offers what it can hold of all of them at once. Let one pod set, the largest, be the first; a domain's
*offer* is an array over the units given to each of the others, holding the most units of the first
that fit beside them, or -1. A node's offer follows from what is free on it; a domain's is the
max-plus convolution of its children's. On the way up counts become coarser: at a level with slices only
whole ones count, and where pods must stay in one domain, it is all of them or none. A tie, of a group or
of a whole workload, leaves only the offers that have all of its members or none.

Offers are exact; the search gives up (None) where they would need more than `JOINT_STEPS` of the decision's budget.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np

from core.model.quantity import saturate
from core.model.step_budget import StepBudget
from core.placement.algorithms.slices import Shape
from core.placement.topology.free_capacity import FreeCapacity, Matrix, sum_amounts, with_pod
from core.placement.topology.tree import Flags, Indices

JOINT_STEPS = 30_000
_CELLS = 200  # touched in one step
_CALL = 12  # steps of one pass over small arrays
_PAIRS_LIMIT = 20_000  # nodes times what they can be given of the pod sets after the first
_NO = -(2**40)


class _OutOfSteps(Exception):
    """The budget is spent."""


@dataclass(frozen=True, slots=True)
class JointRequest:
    """One pod set of the search: whole from level `whole_at` upwards (None: it may spread over all)."""

    count: int
    requests: Mapping[str, int]
    shape: Shape
    eligible: Flags
    whole_at: int | None

    def count_unit(self, level: int) -> int:
        """Returns the number of pods handed out together at a level: all of them from `whole_at` upwards; else a slice of the next layer
        at or below it, or one pod."""
        if self.whole_at is not None and level <= self.whole_at:
            return self.count
        return self.shape.count_unit_below(level)


@dataclass(frozen=True, slots=True)
class Tie:
    """Pod sets, by their place in the list, that must all be in one domain of a level."""

    level: int
    members: frozenset[int]


class JointSearch:
    """Offers of all domains, level by level, and the way back from a whole to its parts."""

    def __init__(self, view: FreeCapacity, requests: Sequence[JointRequest], ties: Sequence[Tie], free: Matrix, steps: StepBudget) -> None:
        self._tree, self._view, self._free = view.tree, view, free
        # The one with most pods is what offers count; the others span them.
        first = max(range(len(requests)), key=lambda i: (requests[i].count, -i))
        self._order = [first, *(i for i in range(len(requests)) if i != first)]
        self._requests = [requests[i] for i in self._order]
        self._ties = [Tie(tie.level, frozenset(self._order.index(i) for i in tie.members)) for tie in ties]
        self._offers: list[list[Indices]] = []  # per level from the nodes up, per domain
        self._steps = steps

    def run(self) -> list[Indices] | None:
        """Returns pods per node for each request, in the order given; None if there is no fit, or none was found within the limit."""
        if not self._is_affordable() or not self._has_enough_in_all():
            return None
        try:
            return self._search()
        except _OutOfSteps:
            return None

    def _search(self) -> list[Indices] | None:
        depth = len(self._tree.levels) - 1
        offers = [self._settle(offer, depth) for offer in self._list_node_offers()]
        self._offers = [offers]
        for level in range(depth - 1, -1, -1):
            spans = pairwise(self._tree.levels[level].first_child.tolist())
            offers = [self._settle(self._combine(offers[first:end], level + 1)[-1], level) for first, end in spans]
            self._offers.insert(0, offers)
        target = tuple(request.count // unit for request, unit in zip(self._requests, self._list_units(0), strict=True))
        if self._combine(offers, 0)[-1][target[1:]] < target[0]:
            return None
        return self._assign_target(target)

    # --- limits -----------------------------------------------------------------------------------------

    def _is_affordable(self) -> bool:
        spanned = prod(min(request.count, self._count_most_on_node(request)) + 1 for request in self._requests[1:])
        if len(self._tree) * spanned <= _PAIRS_LIMIT:
            return True
        self._steps.stop()
        return False

    def _spend(self, cells: int) -> None:
        if not self._steps.spend(_CALL + cells // _CELLS):
            raise _OutOfSteps

    def _count_most_on_node(self, request: JointRequest) -> int:
        return int((self._fit(request.requests, self._free) * request.eligible).max(initial=0))

    def _has_enough_in_all(self) -> bool:
        """Whether the nodes that any of the pod sets may use have enough of every resource for all of them."""
        usable = np.logical_or.reduce([request.eligible for request in self._requests])
        for resource in {name for request in self._requests for name in with_pod(request.requests)}:
            row = self._view.axis.get(resource)
            have = 0 if row is None else sum_amounts(self._free[row][usable])
            if sum(with_pod(request.requests).get(resource, 0) * request.count for request in self._requests) > have:
                return False
        return True

    # --- offers -----------------------------------------------------------------------------------------

    def _fit(self, requests: Mapping[str, int], free: Matrix) -> Indices:
        fit = np.full(len(self._tree), 2**40)
        for resource, amount in with_pod(requests).items():
            row = self._view.axis.get(resource)
            fit = np.minimum(fit, np.maximum(free[row] // amount, 0) if row is not None else 0)
        return fit

    def _list_node_offers(self) -> list[Indices]:
        first, others = self._requests[0], self._requests[1:]
        most = [min(request.count, self._count_most_on_node(request)) for request in others]
        offers = np.full((len(self._tree), *(count + 1 for count in most)), _NO)
        for given in product(*(range(count + 1) for count in most)):
            self._spend(self._free.size)
            free, holds = self._free.copy(), np.ones(len(self._tree), dtype=bool)
            for request, count in zip(others, given, strict=True):
                if count:
                    holds &= request.eligible
                    for resource, amount in with_pod(request.requests).items():
                        row = self._view.axis[resource]  # else there is not enough in all
                        free[row] -= saturate(amount * count)
                        holds &= free[row] >= 0
            fit = np.minimum(self._fit(first.requests, free) * first.eligible, first.count)
            index: tuple[slice | int, ...] = (slice(None), *given)
            offers[index] = np.where(holds, fit, _NO)
        return list(offers)

    def _list_units(self, level: int) -> list[int]:
        """Pods handed out together at a level, per request; single pods on the nodes below the lowest declared one."""
        return [request.count_unit(level) if level <= self._tree.lowest else 1 for request in self._requests]

    def _settle(self, offer: Indices, level: int) -> Indices:
        """An offer of a domain, made in the units of the level below, in those of its own level; its ties kept."""
        self._spend(offer.size)
        ratios = [unit // lower for unit, lower in zip(self._list_units(level), self._list_units(level + 1), strict=True)]
        if any(ratio > 1 for ratio in ratios):
            offer = offer[tuple(slice(None, None, ratio) for ratio in ratios[1:])]
            offer = np.where(offer >= 0, offer // ratios[0], _NO)
        for tie in self._ties:
            if tie.level == level:
                offer = _filter_tie(offer, tie)
        return offer

    def _combine(self, offers: Sequence[Indices], level: int) -> list[Indices]:
        """Offers of the first 0, 1, 2, ... of some domains of a level together."""
        most = [request.count // unit for request, unit in zip(self._requests, self._list_units(level), strict=True)]
        nothing = np.full(tuple(count + 1 for count in most[1:]), _NO)
        nothing[(0,) * nothing.ndim] = 0
        sums = [nothing]
        for offer in offers:
            self._spend(nothing.size)
            so_far, both = sums[-1], np.full_like(nothing, _NO)
            for given in np.argwhere(offer >= 0).tolist():
                self._spend(both.size)
                # With the dots these are arrays also where one pod set is alone, and so there is no axis.
                there: tuple[Any, ...] = (..., *(slice(count, None) for count in given))
                here: tuple[Any, ...] = (..., *(slice(None, size - count) for count, size in zip(given, both.shape, strict=True)))
                into, before = both[there], so_far[here]
                np.maximum(into, before + offer[tuple(given)], out=into)  # what is below 0 stays so
            sums.append(np.minimum(both, most[0], out=both))
        return sums

    # --- the way back -----------------------------------------------------------------------------------

    def _assign_target(self, target: tuple[int, ...]) -> list[Indices]:
        shares = self._share(self._offers[0], 0, target)
        for level in range(1, len(self._tree.levels)):
            ratios = [unit // lower for unit, lower in zip(self._list_units(level - 1), self._list_units(level), strict=True)]
            above, shares = shares, []
            for (first, end), share in zip(pairwise(self._tree.levels[level - 1].first_child.tolist()), above, strict=True):
                wanted = tuple(count * ratio for count, ratio in zip(share, ratios, strict=True))
                shares += self._share(self._offers[level][first:end], level, wanted)
        units = self._list_units(len(self._tree.levels) - 1)
        per_node = [np.array(column, dtype=np.int64) * unit for column, unit in zip(zip(*shares, strict=True), units, strict=True)]
        return [per_node[self._order.index(i)] for i in range(len(self._order))]

    def _share(self, offers: Sequence[Indices], level: int, target: tuple[int, ...]) -> list[tuple[int, ...]]:
        """What each of some domains gets of a target that they hold together: as much as it can, from the largest offer down."""
        no_pods = (0,) * len(target)
        shares = [no_pods] * len(offers)
        if target == no_pods:
            return shares
        # A pod set that stays in one domain gets the first domain that holds it; the last in order is asked first.
        together = any(unit == request.count for request, unit in zip(self._requests, self._list_units(level), strict=True))
        size = sorted(range(len(offers)), key=lambda i: (int(offers[i].flat[0]), i if together else -i), reverse=together)
        sums = self._combine([offers[i] for i in size], level)
        for place in range(len(size) - 1, -1, -1):
            offer, before = offers[size[place]], sums[place]
            share = _find_best_share(offer, before, target)
            shares[size[place]] = share
            target = tuple(whole - part for whole, part in zip(target, share, strict=True))
        return shares


def _filter_tie(offer: Indices, tie: Tie) -> Indices:
    """Only what has all members of a tie or none; at its level each of them is whole, so there is one unit or none of it."""
    offer = offer.copy()
    for given in np.ndindex(offer.shape):
        has = {bool(given[member - 1]) for member in tie.members if member}
        if len(has) > 1:
            offer[given] = _NO
        elif has and 0 in tie.members:
            offer[given] = int(True in has) if offer[given] >= int(True in has) else _NO
    return offer


def _find_best_share(offer: Indices, before: Indices, target: tuple[int, ...]) -> tuple[int, ...]:
    """The largest part of a target that one domain can take and leave the rest to those before it."""
    for given in sorted(np.argwhere(offer >= 0).tolist(), key=lambda given: (-sum(given), given)):
        rest = tuple(whole - part for whole, part in zip(target[1:], given, strict=True))
        holds = int(offer[tuple(given)])
        if min(rest) >= 0 and before[rest] >= 0 and before[rest] + holds >= target[0]:
            return min(holds, target[0]), *given
    raise AssertionError("an offer promised what its parts do not hold")

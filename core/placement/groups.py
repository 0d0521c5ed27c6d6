"""Pod set groups: a leader and its workers in one domain (KEP-2724, Cross-PodSet Topology Aware scheduling).

What a domain holds is counted twice, alone and beside the leader. A node that could take the leader
holds fewer workers beside it; of all nodes of a domain the leader goes where that costs least, so a
domain's count beside the leader is its count less its cheapest child's loss.
"""

from dataclasses import dataclass

import numpy as np

from core.model.podset import Mode, PodSetRequest
from core.placement.capacity import Fits
from core.placement.levels import hand_down_each
from core.placement.profile import LEAST_FREE_CAPACITY, Algorithm
from core.placement.slices import Shape
from core.placement.tree import Flags, Indices, TopologyTree

_NEVER = np.iinfo(np.int64).max // 4  # the loss of a domain that cannot take the leader


@dataclass(frozen=True, slots=True)
class GroupFits:
    """Fits of the workers alone, and the same with the leader beside them; `takes_leader` per level and domain."""

    alone: Fits
    beside: Fits
    takes_leader: tuple[Flags, ...]


@dataclass(frozen=True, slots=True)
class GroupChosen:
    """Domains of one level, units of workers on each, and the domain that has the leader, too."""

    domains: Indices
    units: Indices
    leader: int


def split_roles(first: PodSetRequest, second: PodSetRequest) -> tuple[PodSetRequest, PodSetRequest]:
    """Workers and leader: the leader is the smaller pod set; on a tie the first listed is the workers."""
    return (second, first) if first.count < second.count else (first, second)


def count_group_fits(tree: TopologyTree, shape: Shape, fits: Fits, alone: Indices, beside: Indices, takes_leader: Flags) -> GroupFits:
    """`alone` and `beside` are workers per node without and with the leader there, `fits` the sums of the first."""
    lowest = tree.lowest
    flags: list[Flags] = [takes_leader] * (lowest + 1)
    pods: list[Indices] = [alone] * (lowest + 1)
    units: list[Indices] = [alone] * (lowest + 1)
    here = tree.any_nodes(lowest, takes_leader)
    loss = tree.least_nodes(lowest, np.where(takes_leader, alone - beside, _NEVER))
    unit_loss = loss
    for level in range(lowest, -1, -1):
        if level < lowest:
            here = tree.any_children(level, here)
            loss, unit_loss = tree.least_children(level, loss), tree.least_children(level, unit_loss)
        flags[level] = here
        held = fits.pods[level] - loss
        size = shape.sizes[level]
        if level > shape.slice_level and size > 1:
            held = held // size * size
            loss = np.where(here, fits.pods[level] - held, _NEVER)
        pods[level] = np.where(here, held, 0)
        if level == shape.slice_level:
            unit_loss = np.where(here, fits.units[level] - pods[level] // shape.slice_size, _NEVER)
        elif level > shape.slice_level:
            unit_loss = loss
        units[level] = np.where(here, fits.units[level] - unit_loss, 0)
    return GroupFits(fits, Fits(tuple(pods), tuple(units), fits.scores), tuple(flags))


def find_group_start(fits: GroupFits, shape: Shape, mode: Mode, algorithm: Algorithm, wanted: int) -> tuple[int, GroupChosen] | None:
    """As `levels.find_start`, with the leader in one of the domains chosen."""
    level = shape.start
    while True:
        beside = fits.beside.candidates(level, shape)
        holds = (fits.takes_leader[level] & (beside.units >= wanted)).nonzero()[0]
        if len(holds):
            chosen = algorithm.choose(beside.some(holds), wanted)
            assert chosen is not None  # each of them holds everything
            domain = int(holds[chosen[0][0]])
            return level, GroupChosen(np.array([domain]), np.array([wanted]), domain)
        if mode is Mode.REQUIRED and (not shape.auto or level == 0):
            return None
        if mode not in (Mode.REQUIRED, Mode.PREFERRED) or level == 0:
            spread = _fill_with_leader(fits, shape, algorithm, level, np.arange(len(beside.units)), wanted)
            return (level, spread) if spread is not None else None
        level -= 1


def descend_group(
    tree: TopologyTree, fits: GroupFits, shape: Shape, algorithm: Algorithm, level: int, chosen: GroupChosen
) -> tuple[Indices, Indices, int]:
    """As `levels.descend`; also the lowest domain that has the leader."""
    while level < min(shape.slice_level, tree.lowest):
        pool = tree.children_of_all(level, chosen.domains)
        level += 1
        chosen = hand_down_with_leader(fits, shape, algorithm, level, pool, int(chosen.units.sum()))
    size = shape.slice_size if level <= shape.slice_level else shape.unit_below(level)
    domains, pods, leader = chosen.domains, chosen.units * size, chosen.leader
    while level < tree.lowest:
        level += 1
        size = shape.unit_below(level)
        led = domains == leader
        children = tree.children(level - 1, leader)
        part = hand_down_with_leader(fits, shape, LEAST_FREE_CAPACITY, level, children, int(pods[led][0]) // size)
        others = hand_down_each(tree, fits.alone, shape, level, domains[~led], pods[~led])
        domains, leader = np.append(part.domains, others[0]), part.leader
        pods = np.append(part.units * size, others[1])
    order = domains.argsort()
    return domains[order], pods[order], leader


def hand_down_with_leader(fits: GroupFits, shape: Shape, algorithm: Algorithm, level: int, domains: Indices, wanted: int) -> GroupChosen:
    """As `levels.hand_down`, with the leader in one of the domains."""
    chosen = _fill_with_leader(fits, shape, algorithm, level, domains, wanted)
    # What a parent holds beside the leader is counted with its cheapest child, so the children always hold it.
    assert chosen is not None, f"level {level} lost the leader's place on the way down"
    return chosen


def _fill_with_leader(fits: GroupFits, shape: Shape, algorithm: Algorithm, level: int, domains: Indices, wanted: int) -> GroupChosen | None:
    """Units for domains of a level: the first that can take the leader and leave room for all the rest goes first."""
    alone, beside = fits.alone.some_candidates(level, shape, domains), fits.beside.some_candidates(level, shape, domains)
    ordered = algorithm.order(alone)
    spare = int(alone.units.sum()) - alone.units + beside.units
    able = ordered[(fits.takes_leader[level][domains] & (spare >= wanted))[ordered]]
    if not len(able):
        return None
    leader = able[0]
    if algorithm.tightest and beside.units[leader] >= wanted:
        held = beside.units[able]
        leader = able[np.argmin(np.where(held >= wanted, held, _NEVER))]
    taken = min(int(beside.units[leader]), wanted)
    left = np.ones(len(domains), dtype=bool)
    left[leader] = False
    others = left.nonzero()[0]
    rest = algorithm.fill(alone.some(others), wanted - taken)
    assert rest is not None  # `spare` says so
    return GroupChosen(domains[np.append(leader, others[rest[0]])], np.append(taken, rest[1]), int(domains[leader]))

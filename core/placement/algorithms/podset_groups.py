"""Pod set groups: a leader and its workers in one domain (KEP-2724, Cross-PodSet Topology Aware scheduling).

What a domain holds is counted twice, alone and beside the leader. A node that could take the leader
holds fewer workers beside it; of all nodes of a domain the leader goes where that costs least, so a
domain's count beside the leader is its count less its cheapest child's loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from core.model.podset import Mode, PodSetRequest, TopologyRequest
from core.placement.algorithms.candidates import Candidates
from core.placement.algorithms.domain_capacity import Fits, NodeFits, fits_on_nodes, request_shape, with_left
from core.placement.algorithms.levels import assign_children_of_each, choose_one
from core.placement.algorithms.partial_slice import add_partial, find_partial_home
from core.placement.algorithms.profile import LEAST_FREE_CAPACITY, Algorithm
from core.placement.algorithms.slices import Shape
from core.placement.algorithms.spreading import SpreadRules
from core.placement.refusals import NotFit, RefusalKind
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.tree import Flags, Indices, TopologyTree

_NEVER = np.iinfo(np.int64).max // 4  # the loss of a domain that cannot take the leader


@dataclass(frozen=True, slots=True)
class GroupFits:
    """Fits of the workers alone, and the same with the leader beside them.

    Per level and domain also whether it takes the leader, and what that costs it in pods and in units. With a partial slice, which may be
    in another child than the leader, `left` of `beside` is the size of that slice where it fits beside leader and units, else 0.
    """

    alone: Fits
    beside: Fits
    takes_leader: tuple[Flags, ...]
    loss: tuple[Indices, ...]
    unit_loss: tuple[Indices, ...]


@dataclass(slots=True)
class GroupNodeFits:
    """Per node whether it takes the leader and what that costs the workers; kept and mended as `NodeFits` are."""

    position: int
    workers: NodeFits
    takes_leader: Flags
    loss: Indices
    by_shape: dict[tuple[int, tuple[int, ...]], GroupFits] = field(default_factory=dict)

    def sum_up(self, tree: TopologyTree, shape: Shape) -> GroupFits:
        """Returns what fits in every domain for a shape, counted once for each shape; it is kept, and must not be changed."""
        key = (shape.slice_level, shape.sizes)
        found = self.by_shape.get(key)
        if found is None:
            found = self.by_shape[key] = _build_empty_fits(tree, self.workers.sum_up(tree, shape))
            _count_levels(tree, key, self, found, None)
        return _with_left(tree, shape, found) if shape.tail else found

    def close_nodes(self, closed: Flags) -> "GroupNodeFits":
        """Returns a copy in which some nodes (a flag per node) take neither the leader nor workers, with nothing summed over them yet."""
        loss = np.where(closed, _NEVER, self.loss)
        return GroupNodeFits(self.position, self.workers.close_nodes(closed), self.takes_leader & ~closed, loss)


@dataclass(frozen=True, slots=True)
class GroupChosen:
    """Domains of one level, units of workers on each, and the domain that has the leader, too."""

    domains: Indices
    units: Indices
    leader: int


def find_mixed(requests: Sequence[PodSetRequest]) -> NotFit | None:
    """Returns a refusal (MIXED_GROUP) where the pod sets of a group of more than two do not all ask for the same mode and level; None
    where they do, and for up to two."""
    asked = {(request.topology.mode, request.topology.level) for request in requests if request.topology is not None}
    if len(requests) <= 2 or len(asked) <= 1:
        return None
    names, group = tuple(request.name for request in requests), requests[0].topology.group if requests[0].topology is not None else ""
    shown = ", ".join(f"{request.name} {_show(request.topology)}" for request in requests)
    return NotFit(
        RefusalKind.MIXED_GROUP,
        names[0],
        f"pod set group {group}: all its pod sets must have the same required or preferred level, not {shown}",
        group=names,
    )


def _show(topology: TopologyRequest | None) -> str:
    return "none" if topology is None else f"{topology.mode.value} {topology.level or ''}".strip()


def split_roles(first: PodSetRequest, second: PodSetRequest) -> tuple[PodSetRequest, PodSetRequest]:
    """Returns workers and leader: the leader is the smaller pod set; on a tie the first listed is the workers."""
    return (second, first) if first.count < second.count else (first, second)


def fits_of_group(view: FreeCapacity, workers: PodSetRequest, leader: PodSetRequest, free: Matrix | None = None) -> GroupNodeFits:
    """Returns, for each node, the workers that it holds, whether it takes the leader (all its pods), and how many workers fewer it holds
    beside it. It is kept and mended as by `fits_on_nodes`, with `free` as there.

    Raises InvalidSelector where the node affinity of either cannot be evaluated.
    """
    leads, alone = fits_on_nodes(view, leader, free), fits_on_nodes(view, workers, free)
    beside = fits_on_nodes(view, workers, free, (leader.requests, leader.count))
    particular = view.is_particular(workers.traits) or view.is_particular(leader.traits)
    if particular and view.around.is_conflicting(workers.traits, leader.traits):
        beside = replace(beside, per_node=np.zeros_like(beside.per_node))
    keeps = free is None and not particular
    key = ("group", request_shape(view, workers), request_shape(view, leader), leader.count)
    kept: GroupNodeFits | None = view.kept.pop(key, None) if keeps else None
    changed = view.find_changed_since(kept.position) if kept is not None else None
    if kept is None or changed is None or kept.workers is not alone:
        takes_leader = leads.eligible & (leads.per_node >= leader.count)
        kept = GroupNodeFits(view.position, alone, takes_leader, np.where(takes_leader, alone.per_node - beside.per_node, _NEVER))
    elif len(changed):
        kept.takes_leader[changed] = takes_leader = leads.eligible[changed] & (leads.per_node[changed] >= leader.count)
        kept.loss[changed] = np.where(takes_leader, alone.per_node[changed] - beside.per_node[changed], _NEVER)
        kept.position = view.position
        for shape_key, fits in kept.by_shape.items():
            _count_levels(view.tree, shape_key, kept, fits, changed)
    if keeps:
        view.cache(key, kept)
    return kept


def _build_empty_fits(tree: TopologyTree, alone: Fits) -> GroupFits:
    def list_arrays() -> tuple[Indices, ...]:
        return tuple(np.empty(tree.levels[level].count, dtype=np.int64) for level in range(tree.lowest + 1))

    flags = tuple(np.empty(tree.levels[level].count, dtype=bool) for level in range(tree.lowest + 1))
    return GroupFits(alone, Fits(list_arrays(), list_arrays()), flags, list_arrays(), list_arrays())


def _count_levels(
    tree: TopologyTree, shape: tuple[int, tuple[int, ...]], on_nodes: GroupNodeFits, fits: GroupFits, changed: Indices | None
) -> None:
    """Fills in `fits` from the nodes up; with `changed`, for the domains of these nodes alone."""
    (slice_level, sizes), lowest, at = shape, tree.lowest, changed
    for level in range(lowest, -1, -1):
        if level == lowest and tree.is_hostname:
            here, loss = (on_nodes.takes_leader, on_nodes.loss) if at is None else (on_nodes.takes_leader[at], on_nodes.loss[at])
            unit_loss = loss
        else:
            flags, losses, unit_losses = on_nodes.takes_leader, on_nodes.loss, on_nodes.loss
            if level < lowest:
                flags, losses, unit_losses = fits.takes_leader[level + 1], fits.loss[level + 1], fits.unit_loss[level + 1]
            at = None if at is None else tree.find_parents(level + 1, at)
            here = tree.reduce_children(np.logical_or, level, flags, at)
            loss = tree.reduce_children(np.minimum, level, losses, at)
            unit_loss = tree.reduce_children(np.minimum, level, unit_losses, at)
        these: Indices | slice = slice(None) if at is None else at
        pods, units, size = fits.alone.pods[level][these], fits.alone.units[level][these], sizes[level]
        held = pods - loss
        if level > slice_level and size > 1:  # `pods` are whole slices, but the leader may fit into what they leave over
            below = on_nodes.workers.per_node if level == lowest else fits.alone.pods[level + 1]
            every = below[these] if level == lowest and tree.is_hostname else tree.reduce_children(np.add, level, below, at)
            held = (every - loss) // size * size
            loss = np.where(here, pods - held, _NEVER)
        fits.beside.pods[level][these] = held = np.where(here, held, 0)
        if level == slice_level:
            unit_loss = np.where(here, units - held // size, _NEVER)
        elif level > slice_level:
            unit_loss = loss
        fits.beside.units[level][these] = np.where(here, units - unit_loss, 0)
        fits.takes_leader[level][these], fits.loss[level][these], fits.unit_loss[level][these] = here, loss, unit_loss


def _with_left(tree: TopologyTree, shape: Shape, fits: GroupFits) -> GroupFits:
    alone, level = with_left(tree, shape, fits.alone), shape.slice_level
    assert alone.left is not None
    has_room = fits.takes_leader[level] & (fits.beside.pods[level] % shape.slice_size >= shape.tail)
    flags = [has_room]
    for level in range(shape.slice_level - 1, -1, -1):
        below, parents = level + 1, tree.levels[level + 1].parents
        elsewhere = tree.reduce_children(np.add, level, (alone.left[below] >= shape.tail).astype(np.int64))[parents]
        held = _add_elsewhere(elsewhere - (alone.left[below] >= shape.tail), fits.beside.units[below], has_room)
        gained = np.where(fits.takes_leader[below], held - fits.alone.units[below], -_NEVER)
        all_units = fits.alone.units[level] + tree.reduce_children(np.maximum, level, gained)
        has_room = fits.takes_leader[level] & (all_units > fits.beside.units[level])
        flags.insert(0, has_room)
    beside = replace(fits.beside, left=tuple(np.where(flag, shape.tail, 0) for flag in flags))
    return replace(fits, alone=alone, beside=beside)


def _add_elsewhere(elsewhere: Indices, units: Indices, has_room: Flags) -> Indices:
    """Units of each domain beside the leader, with one more where the partial slice fits beside all units: in it or in one of the others,
    of which so many have room for it."""
    all_units: Indices = units + ((elsewhere > 0) | has_room)
    return all_units


def count_led_units(fits: GroupFits, shape: Shape, level: int, domains: Indices) -> Indices:
    """Returns, for each of some domains of a level, the units that all of them hold together with the leader in that one; with the partial
    slice, where the shape has one. It does not say whether the domain takes the leader."""
    alone, beside = fits.alone.count_units_at(level, shape)[domains], fits.beside.count_units_at(level, shape)[domains]
    if shape.tail and level <= shape.slice_level:
        assert fits.alone.left is not None
        assert fits.beside.left is not None
        has_room = fits.alone.left[level][domains] >= shape.tail
        beside = _add_elsewhere(has_room.sum() - has_room, beside, fits.beside.left[level][domains] >= shape.tail)
    return int(alone.sum()) - alone + beside


def find_group_start(
    fits: GroupFits, shape: Shape, mode: Mode, algorithm: Algorithm, wanted: int, rules: SpreadRules | None = None
) -> tuple[int, GroupChosen] | None:
    """Returns the level at which workers and leader fit, with the domains there, whole units of workers on each and the domain that has the
    leader; None if they do not fit. Levels, modes, `wanted` and `rules` are as in `levels.find_start`."""
    level = shape.start
    while True:
        beside = fits.beside.list_candidates(level, shape)
        all_units = fits.beside.count_all_units_at(level, shape)
        holds = (fits.takes_leader[level] & (all_units >= wanted)).nonzero()[0]
        holds = holds if rules is None else rules.select(level, holds)
        if len(holds):
            chosen = choose_one(beside.select(holds), all_units[holds], shape, algorithm, wanted)
            domain = int(holds[chosen[0][0]])
            return level, GroupChosen(np.array([domain]), chosen[1], domain)
        if mode is Mode.REQUIRED and (not shape.auto or level == (0 if rules is None else rules.deepest)):
            return None
        if mode not in (Mode.REQUIRED, Mode.PREFERRED) or level == 0:
            spread = _fill_with_leader(fits, shape, algorithm, level, np.arange(len(beside.units)), wanted)
            return (level, spread) if spread is not None else None
        level -= 1


def assign_group_below(
    tree: TopologyTree, fits: GroupFits, shape: Shape, algorithm: Algorithm, level: int, chosen: GroupChosen
) -> tuple[Indices, Indices, int]:
    """Returns domains of the lowest declared level, pods of workers on each, in the order of level values, and the one of these that has
    the leader. Units are handed down as by `levels.assign_below`."""
    while level < min(shape.slice_level, tree.lowest):
        pool = tree.list_children_of_all(level, chosen.domains)
        level += 1
        chosen = assign_children_with_leader(fits, shape, algorithm, level, pool, int(chosen.units.sum()) + (shape.tail > 0))
    size = shape.slice_size if level <= shape.slice_level else shape.count_unit_below(level)
    domains, pods, leader = chosen.domains, chosen.units * size, chosen.leader
    if shape.tail:
        held, left = _list_rooms(fits, shape, level, domains, domains == leader)
        pods[find_partial_home(held.units, left, shape.tail, chosen.units)] += shape.tail
    while level < tree.lowest:
        level += 1
        size = shape.count_unit_below(level)
        led = domains == leader
        children = tree.list_children(level - 1, leader)
        part = assign_children_with_leader(fits, shape, LEAST_FREE_CAPACITY, level, children, int(pods[led][0]) // size)
        others = assign_children_of_each(tree, fits.alone, shape, level, domains[~led], pods[~led])
        domains, leader = np.append(part.domains, others[0]), part.leader
        pods = np.append(part.units * size, others[1])
    order = domains.argsort()
    return domains[order], pods[order], leader


def assign_children_with_leader(
    fits: GroupFits, shape: Shape, algorithm: Algorithm, level: int, domains: Indices, wanted: int
) -> GroupChosen:
    """Returns which of `domains` (indexes at a level) are used, the whole units of workers on each, and the one that has the leader, which
    comes first. There are `wanted` units in all, the partial slice included; the domains must hold these and the leader."""
    chosen = _fill_with_leader(fits, shape, algorithm, level, domains, wanted)
    # What a parent holds beside the leader is counted with its cheapest child, so the children always hold it.
    assert chosen is not None, f"level {level} lost the leader's place on the way down"
    return chosen


def _fill_with_leader(fits: GroupFits, shape: Shape, algorithm: Algorithm, level: int, domains: Indices, wanted: int) -> GroupChosen | None:
    """Units for domains of a level: the first that can take the leader and leave room for all the rest goes first."""
    alone, beside = fits.alone.select_candidates(level, shape, domains), fits.beside.select_candidates(level, shape, domains)
    ordered = algorithm.order(alone)
    left_over = count_led_units(fits, shape, level, domains)
    able = ordered[(fits.takes_leader[level][domains] & (left_over >= wanted))[ordered]]
    if not len(able):
        return None
    has_partial = shape.tail > 0 and level <= shape.slice_level
    wanted -= has_partial
    leader = able[0]
    if algorithm.tightest and beside.units[leader] >= wanted:
        held = beside.units[able]
        leader = able[np.argmin(np.where(held >= wanted, held, _NEVER))]
    taken = min(int(beside.units[leader]), wanted)
    left = np.ones(len(domains), dtype=bool)
    left[leader] = False
    others = left.nonzero()[0]
    rest = algorithm.fill(alone.select(others), wanted - taken)
    assert rest is not None  # ensured by `left_over`
    chosen = np.append(leader, others[rest[0]]), np.append(taken, rest[1])
    if has_partial:
        candidates, room = _list_rooms(fits, shape, level, domains, ~left)
        widened = add_partial(candidates, room, shape.tail, algorithm, chosen, fixed=1)
        assert widened is not None  # ensured by `left_over`
        chosen = widened
    return GroupChosen(domains[chosen[0]], chosen[1], int(domains[leader]))


def _list_rooms(fits: GroupFits, shape: Shape, level: int, domains: Indices, led: Flags) -> tuple[Candidates, Indices]:
    """Domains as candidates, that with the leader as it is beside it, and the pods that each holds beside its whole units."""
    alone, beside = fits.alone.select_candidates(level, shape, domains), fits.beside.select_candidates(level, shape, domains)
    assert fits.alone.left is not None
    assert fits.beside.left is not None
    left = np.where(led, fits.beside.left[level][domains], fits.alone.left[level][domains])
    return alone._replace(units=np.where(led, beside.units, alone.units), pods=np.where(led, beside.pods, alone.pods)), left

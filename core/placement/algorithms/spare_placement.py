"""Spares: nodes of the domain that a pod set is in, kept free beside it, each with room for what its fullest node has.

A pod set is placed as if it asked for none; most times its domain has the spares, too. Where it has not, the domains that have room for
both are tried, the tightest first. One that has it is found by a number f, the most pods that any node gets: k spares are room for f
pods each, and all other nodes hold f at most, so that there is room for n pods where

    sum over nodes of min(room, f)  -  k * f  >=  n        with at least k nodes that hold f

Between two values of the nodes' room this only grows with f, so only these values are tried. Without slices that is
exact: whichever of the nodes with room for f are spares, the others hold as much. With slices it matters which they are: with one spare
that is exact, too; with more a fit may be missed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from core.model.pod_resources import PODS
from core.model.podset import Mode, PodSetRequest
from core.model.quantity import show_count
from core.placement.algorithms.decision import Decision, PodSetPlacement, subtract_pods
from core.placement.algorithms.domain_capacity import count_fits, fits_on_nodes
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.refusals import NotFit, RefusalKind
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.tree import Flags, Indices, TopologyTree

_MOST_TRIALS = 64  # at one level, a quarter of these where pods are in slices
_WEIGHED = 4  # spares that are chosen by what they cost slices; of more the others are the tightest
# Places a unit on a free matrix, None for the view's own.
PlaceUnit = Callable[[FreeCapacity, Matrix | None], Sequence[PodSetPlacement] | NotFit]


def place_with_spares(
    view: FreeCapacity, unit: Sequence[PodSetRequest], free: Matrix | None, place: PlaceUnit
) -> Sequence[PodSetPlacement] | NotFit:
    """Places a unit, of which at least one pod set asks for spares, and names these; `place` does so without them. `free` (None: the view's
    own) is not changed.

    Returns a placement for each pod set, or the refusal: that of `place` without spares, or NO_SPARES where only these do not fit or were
    not found within the budget of steps.
    """
    asking = next(request for request in unit if request.spares)
    for request in unit:
        shape = find_shape(view.tree, request)
        if isinstance(shape, NotFit):
            return shape
    shape = find_shape(view.tree, max(unit, key=lambda request: request.count))
    assert isinstance(shape, Shape)
    found = place(view, free)
    if isinstance(found, NotFit):
        return found
    before = view.free if free is None else free
    room = np.minimum(fits_on_nodes(view, asking, free).per_node, asking.count)
    quiet = view.set_explains(False)
    for level in _list_levels(asking, shape):
        inside = _find_span(view.tree, level, found)
        chosen = _choose(view, unit, found, before, inside) if inside is not None else None
        if chosen is not None:
            return chosen
        for trial, allowed, spares in _list_trials(view, unit, shape, level, room, before):
            if not view.budget.spend(2 * view.pass_steps * len(unit)):
                return _refuse(view, asking, _list_levels(asking, shape)[-1], room)
            again = place(quiet, trial)
            chosen = None if isinstance(again, NotFit) else _choose(view, unit, again, before, allowed if spares is None else spares)
            if chosen is not None:
                return chosen
    return _refuse(view, asking, _list_levels(asking, shape)[-1], room)


def pick_spares(
    view: FreeCapacity,
    request: PodSetRequest,
    wanted: int,
    pods: int,
    *,
    free: Matrix,
    used: Flags,
    near: Flags,
    inside: Flags,
) -> list[int]:
    """Returns up to `wanted` nodes, by index, with room for `pods` pods each (at least 1) out of `free`: `inside`, and none of them `used`.
    The nearest to the nodes in `near` come first, of these the tightest, then by index. Raises InvalidSelector where the node affinity
    cannot be evaluated."""
    tree = view.tree
    room = np.where(view.find_eligible(request) & inside & ~used, view.count_pods_that_fit(request, free), 0)
    able = np.flatnonzero(room >= max(1, pods))
    shared = np.zeros(len(tree), dtype=np.int64)  # how many of their levels' domains have pods
    for level in tree.levels[: tree.lowest + 1] if len(tree) else ():
        shared += np.repeat(np.logical_or.reduceat(near, level.starts), level.ends - level.starts)
    order = np.lexsort((room[able], -shared[able]))
    return [int(node) for node in able[order[:wanted]]]


def with_spares_kept(
    view: FreeCapacity, requests: Sequence[PodSetRequest], decision: Decision, held: Mapping[str, Sequence[str]], free: Matrix | None
) -> Decision:
    """Returns a copy of a decision on pods with the spares that it leaves room for: of the nodes that are held, by pod set, else others. A
    refusal, or a decision by other lowest levels than the hostname, is returned as it is.

    There may be fewer than are asked for: what runs does not wait for them. Raises InvalidSelector where a node affinity cannot be
    evaluated.
    """
    if decision.refusal is not None or not view.tree.is_hostname:
        return decision
    tree, left = view.tree, (view.free if free is None else free).copy()
    for request, placement in zip(requests, decision.placements, strict=True):
        subtract_pods(view, left, request, placement.nodes)
    placements = []
    for request, placement in zip(requests, decision.placements, strict=True):
        own, pods = _find_used(tree, [placement]), max((count for _, count in placement.nodes), default=0)
        inside, nodes = find_domain(tree, request, own), list[int]()
        for allowed in (inside & build_flags(tree, held.get(request.name, ())), inside) if request.spares and pods else ():
            taken = own.copy()
            taken[nodes] = True
            nodes += pick_spares(view, request, request.spares - len(nodes), pods, free=left, used=taken, near=own, inside=allowed)
        spares = tuple(sorted((tree.names[node], pods) for node in nodes))
        subtract_pods(view, left, request, spares)
        placements.append(replace(placement, spares=spares))
    return replace(decision, placements=tuple(placements))


def build_flags(tree: TopologyTree, names: Iterable[str]) -> Flags:
    """Returns a flag per node of the tree: whether it is among the names; names that are not there are ignored."""
    flags = np.zeros(len(tree), dtype=bool)
    flags[[tree.index[name] for name in names if name in tree.index]] = True
    return flags


def find_domain(tree: TopologyTree, request: PodSetRequest, used: Flags) -> Flags:
    """Returns a flag per node: whether the spares of a pod set on the `used` nodes may be there. That is the one domain that all of these
    share, at the required level or above; anywhere where none is required, or there is none."""
    anywhere = np.ones(len(tree), dtype=bool)
    shape = find_shape(tree, request)
    if isinstance(shape, NotFit) or request.topology is None or request.topology.mode is not Mode.REQUIRED or not used.any():
        return anywhere
    for level in range(shape.start, -1, -1):
        domains = np.flatnonzero(tree.has_any_node(level, used))
        if len(domains) == 1:
            return _find_nodes(tree, level, int(domains[0]))
    return anywhere


def _list_levels(request: PodSetRequest, shape: Shape) -> list[int | None]:
    """Levels at which one domain should have pods and spares, the best first; None: all nodes are one domain."""
    mode = request.topology.mode if request.topology is not None else Mode.IMPLIED
    upwards: list[int | None] = [*range(shape.start, -1, -1)]
    if mode is Mode.REQUIRED:
        return upwards if shape.auto else upwards[:1]
    return [*upwards, None] if mode is Mode.PREFERRED else [None]


def _find_nodes(tree: TopologyTree, level: int | None, domain: int) -> Flags:
    if level is None:
        return np.ones(len(tree), dtype=bool)
    flags = np.zeros(len(tree), dtype=bool)
    flags[tree.levels[level].starts[domain] : tree.levels[level].ends[domain]] = True
    return flags


def _find_span(tree: TopologyTree, level: int | None, placements: Sequence[PodSetPlacement]) -> Flags | None:
    """The domain of a level that all pods are in; None if they are in several."""
    if level is None:
        return _find_nodes(tree, None, 0)
    used = _find_used(tree, placements)
    domains = np.flatnonzero(tree.has_any_node(level, used))
    return _find_nodes(tree, level, int(domains[0])) if len(domains) == 1 else None


def _find_used(tree: TopologyTree, placements: Sequence[PodSetPlacement]) -> Flags:
    return build_flags(tree, (name for placement in placements for name, _ in placement.nodes))


def _choose(
    view: FreeCapacity, unit: Sequence[PodSetRequest], placements: Sequence[PodSetPlacement], before: Matrix, inside: Flags
) -> list[PodSetPlacement] | None:
    """The placements with their spares, all on nodes `inside`; None where there are not enough."""
    left, used = before.copy(), _find_used(view.tree, placements)
    by_name = {placement.pod_set: placement for placement in placements}
    for request in unit:
        subtract_pods(view, left, request, by_name[request.name].nodes)
    for request in unit:
        placement = by_name[request.name]
        pods = max((count for _, count in placement.nodes), default=0)
        wanted, own = request.spares if pods else 0, _find_used(view.tree, [placement])
        nodes = pick_spares(view, request, wanted, pods, free=left, used=used, near=own, inside=inside) if wanted else []
        if len(nodes) < wanted:
            return None
        spares = tuple(sorted((view.tree.names[node], pods) for node in nodes))
        subtract_pods(view, left, request, spares)
        used[nodes] = True
        by_name[request.name] = replace(placement, spares=spares)
    return [by_name[placement.pod_set] for placement in placements]


def _list_trials(
    view: FreeCapacity, unit: Sequence[PodSetRequest], shape: Shape, level: int | None, room: Indices, before: Matrix
) -> Iterator[tuple[Matrix, Flags, Flags | None]]:
    """What is left free for the pods, per trial: one domain, less spares where these are chosen first; the domain, and these spares."""
    asking, tree = next(request for request in unit if request.spares), view.tree
    trials = 0
    for domain in _list_able(tree, level, room, asking.count, asking.spares):
        inside = _find_nodes(tree, level, domain)
        alone = before.copy()
        alone[:, ~inside] = np.minimum(alone[:, ~inside], 0)
        for most in _list_caps(room[inside], asking.count, asking.spares) if len(unit) == 1 else []:
            trial, spares = alone.copy(), np.zeros(len(tree), dtype=bool)
            spares[_set_aside(tree, shape, np.where(inside, room, 0), most, asking.spares)] = True
            trial[:, spares] = np.minimum(trial[:, spares], 0)
            trial[view.axis[PODS]] = np.minimum(trial[view.axis[PODS]], most)
            yield trial, inside, spares
            trials += 1
        if len(unit) > 1 or shape.slice_size > 1:
            yield alone, inside, None
            trials += 1
        if trials >= (_MOST_TRIALS if shape.slice_size == 1 else _MOST_TRIALS // 4):
            return


def _set_aside(tree: TopologyTree, shape: Shape, room: Indices, most: int, spares: int) -> list[int]:
    """Nodes with room for `most` pods, the tightest first; where pods are in slices one after the other that costs fewest of these."""
    able = np.flatnonzero(room >= most)
    able = able[np.argsort(room[able], kind="stable")]
    if shape.slice_size == 1:
        return [int(node) for node in able[:spares]]
    finest = max(level for level, size in enumerate(shape.sizes) if size > 1)
    left, aside = np.minimum(room, most), list[int]()
    homes = np.searchsorted(tree.levels[finest].starts, able, side="right")
    for _ in range(min(spares, _WEIGHED)):
        best, best_units = -1, -1
        free = np.array([node not in aside for node in able.tolist()], dtype=bool)
        for first in np.unique(homes[free], return_index=True)[1][: _MOST_TRIALS // 4].tolist():
            node = int(able[free][first])
            without = left.copy()
            without[node] = 0
            units = int(count_fits(tree, shape, without).count_units_at(0, shape).sum())
            if units > best_units:
                best, best_units = node, units
        aside.append(best)
        left[best] = 0
    return aside + [node for node in able.tolist() if node not in aside][: spares - len(aside)]


def _list_able(tree: TopologyTree, level: int | None, room: Indices, count: int, spares: int) -> list[int]:
    """Domains of a level that have room for the pods and so many spares, the tightest first."""
    if level is None:
        return [0] if _list_caps(room, count, spares) else []
    held = tree.sum_nodes(level, room)
    enough = np.flatnonzero(held >= count + spares)
    starts, ends = tree.levels[level].starts, tree.levels[level].ends
    able = [domain for domain in enough.tolist() if _list_caps(room[starts[domain] : ends[domain]], count, spares)]
    return sorted(able, key=lambda domain: (int(held[domain]), domain))


def _list_caps(room: Indices, count: int, spares: int) -> list[int]:
    """The most pods that a node may get so that there is room for spares as large, the largest number first."""
    sizes = np.unique(room[room > 0])[::-1].tolist()
    return [most for most in sizes if (room >= most).sum() >= spares and int(np.minimum(room, most).sum()) - spares * most >= count]


def _refuse(view: FreeCapacity, request: PodSetRequest, level: int | None, room: Indices) -> NotFit:
    """Where there is room for the pods, and for how many of the spares."""
    tree, count = view.tree, request.count
    here = "the topology" if level is None else tree.declared[level]
    best, where = 0, here
    domains = 1 if level is None else tree.levels[level].count
    for domain in range(domains):
        held = room[_find_nodes(tree, level, domain)]
        while best + 1 < request.spares and _list_caps(held, count, best + 1):  # a domain without room for so many has none for more
            best, where = best + 1, here if level is None else f"{here} {'/'.join(tree.get_values(level, domain))}"
    has = (
        f"{where} has room for the pods and {best} of the {show_count(request.spares, 'spare node')}"
        if best
        else f"no {here} has room for both"
    )
    if level is None and not best:
        has = f"{here} has room for no spare node beside them"
    spares = show_count(request.spares, "spare node")
    text = f"pod set {request.name}: its {show_count(count, 'pod')} would fit, but not with {spares} beside them: {has}"
    text += ". It would fit with fewer spare nodes, or with more nodes free"
    return NotFit(RefusalKind.NO_SPARES, request.name, text, wanted=request.spares)

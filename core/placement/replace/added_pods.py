"""Adds pods to a pod set and leaves its other pods where they are.

Partly filled slices are completed where they are, from the finest layer to the coarsest. What is left are whole slices.
They go back to the slice domain they were in as far as it holds them. Then, in a required domain, they go to the one
where the survivors are; with a preferred level, to the nearest domains first, from that level upwards; otherwise
wherever the algorithm of the mode places them.

A partial slice that has lost only a part of its pods is completed where it is, too. One that has lost all of them goes where it was, else
into a domain that the pod set uses, else where a whole slice would go. Where that cannot be, another slice that has lost pods is the
partial one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.model.podset import Mode, PodSetRequest, TopologyRequest
from core.model.quantity import show_count
from core.placement.algorithms.candidates import Candidates
from core.placement.algorithms.domain_capacity import Fits, count_fits
from core.placement.algorithms.levels import assign_below
from core.placement.algorithms.own_limit import limit_beside_own
from core.placement.algorithms.profile import LEAST_FREE_CAPACITY, Algorithm, Profile
from core.placement.algorithms.slices import Shape
from core.placement.explain.refusal_facts import refuse
from core.placement.explain.suggested_changes import Refused
from core.placement.refusals import NotFit, RefusalKind
from core.placement.topology.free_capacity import FreeCapacity, Matrix, with_pod
from core.placement.topology.tree import Flags, Indices, TopologyTree

_MOST_HOMES = 4  # slice domains that are tried for the rest of a partial slice


@dataclass(frozen=True, slots=True)
class PresentPods:
    """The pods around which others are added, per node: those of the pod set that stay, and those that lost their node.

    `present` are the pods that define where the pod set is: its own that stay, in a group also those of the other
    members. `gone` pods have lost a node that is not known any more. `beside` are pods that stay on nodes outside of
    the tree, each counted on a node that is in the same domains of all levels but the lowest.
    """

    kept: Indices
    present: Indices
    lost: Indices
    gone: int = 0
    beside: Indices | None = None


class Completion:
    """One pod set being completed: `room` for more of its pods per node by capacity, and what was `added` so far.

    For pods that keep apart from their own kind `_find_room` returns how many more may be in some domains; it is called
    again after each step.
    """

    def __init__(
        self, view: FreeCapacity, request: PodSetRequest, shape: Shape, profile: Profile, around: PresentPods, eligible: Flags, free: Matrix
    ) -> None:
        assert request.topology is not None  # the shape was found in it
        self.topology: TopologyRequest = request.topology
        self.view, self.request, self.shape, self.around, self.free, self.eligible = view, request, shape, around, free, eligible
        self.tree: TopologyTree = view.tree
        self.algorithm = profile.get_algorithm(self.topology.mode)
        self.room: Indices = np.where(eligible, view.count_pods_that_fit(request, free), 0)
        self.added: Indices = np.zeros_like(self.room)
        scores = view.compute_preferred_scores(request, eligible) if profile.respects_preferred_affinity else None
        self.scores = None if scores is None else tuple(self.tree.sum_nodes(level, scores) for level in range(self.tree.lowest + 1))

    def add(self, missing: int) -> NotFit | None:
        """Finds a place for `missing` more pods. Returns None, and has them in `added` and no more in `room`. Else returns a refusal with
        the reason; then these may have a part of them."""
        if self.topology.mode is Mode.REQUIRED and not self.shape.auto and len(self._count_present_at(self.shape.start)) > 1:
            label = self.tree.declared[self.shape.start]
            return self._build_stale_refusal(f"its pods are in several domains of level {label}, though one is required")
        refused: NotFit | None = None
        for home in self._list_partial_homes() if self.shape.tail else [None]:
            if refused is not None and not self.view.budget.spend(self.view.pass_steps):
                break
            room, added = self.room, self.added
            refusal = self._add(missing, home)
            if refusal is None:
                return None
            refused, self.room, self.added = refused or refusal, room, added
        return refused

    def _add(self, missing: int, home: int | None) -> NotFit | None:
        """As `add`, with the rest of the partial slice in one slice domain (`home`); None: there is none, or all of it is placed anew."""
        total = missing
        for level in reversed(self._list_layers()):
            refusal, missing = self._complete_slices(level, missing, home)
            if refusal is not None:
                return refusal
        partial = self.shape.tail if home is None else 0
        if missing < partial or (missing - partial) % self.shape.slice_size:
            return self._build_stale_refusal(f"the pods to be placed ({missing}) are not whole slices of {self.shape.slice_size}")
        rest = (missing - partial) // self.shape.slice_size
        rest -= self._return_slices(rest)
        refusal = self._place_slices(rest, self.shape if partial else replace(self.shape, tail=0)) if rest or partial else None
        if refusal is None and self.added.sum() < total:  # pods that keep apart by several keys were in each other's way
            everywhere = np.arange(self.tree.levels[0].count)
            return self._refuse(replace(self.shape, tail=0), 0, everywhere, total // self.shape.slice_size)
        return refusal

    # --- slices that stand partly ---------------------------------------------------------------------

    def _list_layers(self) -> list[int]:
        return [level for level, size in enumerate(self.shape.sizes) if size > 1]

    def _count_own_at(self, level: int) -> Indices:
        """Pods of the pod set per domain of a layer: those that stay there, and those that were added."""
        own = self.around.kept + self.added
        if self.around.beside is not None and level < self.tree.lowest:
            own = own + self.around.beside
        return self.tree.sum_nodes(level, own)

    def _list_partial_homes(self) -> list[int | None]:
        """Slice domains that may have the rest of the partial slice, the likeliest first; None: it is placed anew. Known is only which one
        had all of it, as long as its lost nodes are known."""
        size, tail = self.shape.slice_size, self.shape.tail
        counts = self._count_own_at(self.shape.slice_level)
        former = np.flatnonzero((counts + self.tree.sum_nodes(self.shape.slice_level, self.around.lost)) % size == tail)
        able = np.flatnonzero((counts % size > 0) & (counts % size <= tail))
        homes: list[int | None] = able[np.lexsort((-able, -(counts[able] % size)))].tolist()
        first = [None] if len(former) and former[-1] not in able else [home for home in former[-1:].tolist() if home in able]
        return [*first, *(home for home in [*homes, None] if home not in first)][:_MOST_HOMES]

    def _complete_slices(self, level: int, missing: int, home: int | None = None) -> tuple[NotFit | None, int]:
        """Fills up each domain of a layer that holds part of a slice, `home` up to a partial slice; all finer layers are whole already."""
        size = self.shape.sizes[level]
        counts = self._count_own_at(level)
        inner, domains = self._build_shape_below(level), np.flatnonzero(counts % size)
        lacking = size - counts[domains] % size
        if home is not None:
            lacking[domains == home] -= size - self.shape.tail
        left, units = missing - lacking.cumsum(), lacking // inner.slice_size
        broken = (left < 0) | (lacking % inner.slice_size > 0)  # on a node outside of the tree a finer slice may stand partly
        stops = broken | (self._fits(inner, level, domains).count_units_at(level, inner)[domains] < units)
        end = int(stops.argmax()) if stops.any() else len(domains)
        self._put_each(inner, level, domains[:end], units[:end])
        if end == len(domains):
            return None, missing - int(lacking.sum())
        if broken[end]:
            return self._build_stale_refusal(f"its pods are not in whole slices of {size} at level {self.tree.declared[level]}"), missing
        domain, short = int(domains[end]), int(lacking[end])
        note = f"{show_count(short, 'more pod')} must complete slices of {size} in {self._name(level, domain)}"
        lost = self.around.lost[self.tree.levels[level].starts[domain] : self.tree.levels[level].ends[domain]]
        if (self.shape.tail or self.topology.group) and lost.any():
            node = self.tree.names[int(self.tree.levels[level].starts[domain]) + int(lost.argmax())]
            note = f"cannot replace the node {node} without splitting a PodSet slice: {note}"
        return self._refuse(inner, level, np.array([domain]), int(units[end]), note), missing

    def _build_shape_below(self, level: int) -> Shape:
        """The shape of what is handed out inside one slice domain: units of the next finer layer."""
        sizes = (1,) * (level + 1) + self.shape.sizes[level + 1 :]
        size = next((size for size in sizes if size > 1), 1)
        return replace(
            self.shape, start=level, slice_level=level - 1, slice_size=size, sizes=sizes, unit="slice" if size > 1 else "pod", tail=0
        )

    # --- whole slices ---------------------------------------------------------------------------------

    def _return_slices(self, rest: int) -> int:
        """Puts whole slices back where they were, as far as that has room; those of unknown home where others are."""
        level, size = self.shape.slice_level, self.shape.slice_size
        done = int(self._return_into(level, 0, None, np.array([rest * size]))[0]) // size
        if self.around.gone and size > 1:
            kept = self.tree.sum_nodes(level, self.around.kept)
            done += self._put(self.shape, level, np.flatnonzero(kept), min(rest - done, self.around.gone // size), self.algorithm)
        return done

    def _return_into(self, level: int, outer: int, parents: Indices | None, pods: Indices) -> Indices:
        """Puts pods back into those domains of a layer that keep some and lost others, first into the finer domains that lost some.

        At most `pods` in all that are in each of some domains of the level `outer`, the `parents` (ascending; None: there is one, of
        everything). Returns how many were put into each of these, shape (parents,).
        """
        size, within = self.shape.sizes[level], self._build_shape_below(level)
        back = self.tree.sum_nodes(level, self.around.lost) - self.tree.sum_nodes(level, self.added)
        domains = np.flatnonzero((self.tree.sum_nodes(level, self.around.kept) > 0) & (back >= size))
        of = np.zeros_like(domains)
        if parents is not None:
            above, starts = self.tree.levels[outer], self.tree.levels[level].starts[domains]
            of = above.starts[parents].searchsorted(starts, side="right") - 1
            inside = (of >= 0) & (starts < above.ends[parents][of])
            domains, of = domains[inside], of[inside]
        holds = self._fits(within, level, domains).count_units_at(level, within)[domains] * within.slice_size
        most = np.minimum(back[domains], holds) // size * size
        before = most.cumsum() - most
        firsts = np.minimum(of.searchsorted(np.arange(len(pods))), max(len(of) - 1, 0))
        here = np.clip((pods[of] + before[firsts[of]]) - before, 0, most) // size * size
        domains, of, here = domains[here > 0], of[here > 0], here[here > 0]
        returned = np.zeros_like(pods)
        np.add.at(returned, of, here)
        finer = next((below for below in self._list_layers() if below > level), None)
        if len(domains):
            inner = self._return_into(finer, level, domains, here) if finer is not None else 0
            self._put_each(within, level, domains, (here - inner) // within.slice_size)
        return returned

    def _place_slices(self, rest: int, shape: Shape) -> NotFit | None:
        """Whole slices that have no slice domain to go back to, and the partial slice if the shape has it. That one comes last: where it
        fits does not depend on which domains have the whole ones."""
        everywhere = np.arange(self.tree.levels[0].count)
        if shape.tail and not rest and self._put_into(shape.slice_level, self._list_former_homes()):
            return None
        if not self.tree.is_hostname and self.around.lost.any():
            # Pods without a node of their own leave their domain only if all of it has failed.
            domains = self._find_lost_but_alive()
            if len(domains):
                return self._refuse(shape, self.tree.lowest, domains, rest, "its live nodes do not hold the pods of the failed ones")
        wanted = rest + (shape.tail > 0)
        if self.topology.mode is Mode.REQUIRED:
            return self._place_required(rest, shape)
        if self.topology.mode is Mode.PREFERRED:
            pools = [(level, self._count_present_at(level)) for level in range(shape.start, -1, -1)]
            for level, pool in (*pools, (0, everywhere)):
                rest -= self._put(shape, level, pool, rest, self.algorithm)
            is_placed = not rest and self._put_partial(shape, *pools, (0, everywhere))
            return None if is_placed else self._refuse(shape, 0, everywhere, wanted)
        everywhere = np.arange(self.tree.levels[shape.start].count)
        if self._count_units(shape, shape.start, everywhere) < wanted:
            return self._refuse(shape, shape.start, everywhere, wanted)
        self._put(shape, shape.start, everywhere, rest, self.algorithm)
        self._put_partial(shape, (shape.start, everywhere))
        return None

    def _place_required(self, rest: int, shape: Shape) -> NotFit | None:
        """In the one domain where the pod set is; a level that was left to us may also be a higher one."""
        levels, wanted = range(shape.start, -1 if shape.auto else shape.start - 1, -1), rest + (shape.tail > 0)
        home = self._count_present_at(levels[0])
        for level in levels:
            home = self._count_present_at(level)
            if len(home) == 1 and self._count_units(shape, level, home) >= wanted:
                self._put(shape, level, home, rest, self.algorithm)
                self._put_partial(shape, (level, home))
                return None
        if not len(home):
            return self._refuse(shape, levels[-1], home, wanted, "The other pods of the workload run on nodes outside of the topology")
        note = f"The other pods of the workload keep it in {self._name(levels[-1], int(home[0]))}"
        return self._refuse(shape, levels[-1], home, wanted, note)

    def _list_former_homes(self) -> Indices:
        """Slice domains that had the partial slice and whole ones, and have lost pods."""
        level = self.shape.slice_level
        counts, lost = self._count_own_at(level), self.tree.sum_nodes(level, self.around.lost)
        kept = counts - self.tree.sum_nodes(level, self.added)
        return np.flatnonzero(((kept + lost) % self.shape.slice_size == self.shape.tail) & (kept > 0) & (lost > 0))

    def _put_partial(self, shape: Shape, *pools: tuple[int, Indices]) -> bool:
        """Puts the partial slice, if the shape has it, where it was, else where whole slices of the pod set are, else into the first pool
        (domains of a level) with room; False if none has."""
        level, used = shape.slice_level, np.flatnonzero(self._count_own_at(shape.slice_level))
        near = (level, self._list_former_homes()), (level, used)
        return not shape.tail or any(self._put_into(*pool) for pool in (*near, *pools))

    def _put_into(self, level: int, pool: Indices) -> bool:
        """Puts the partial slice into one of some domains of a level; False if none of them has room."""
        fits = self._fits(self.shape, level, pool)
        able = pool[fits.count_all_units_at(level, self.shape)[pool] > 0]
        if not len(able):
            return False
        chosen = self.algorithm.choose(fits.select_candidates(level, self.shape, able), 0)
        assert chosen is not None  # any holds no whole slice
        self._count(level, pool, *assign_below(self.tree, fits, self.shape, self.algorithm, level, (able[chosen[0]], chosen[1])))
        return True

    def _find_lost_but_alive(self) -> Indices:
        lowest = self.tree.lowest
        lost = self.tree.sum_nodes(lowest, self.around.lost)
        return np.flatnonzero((lost > self.tree.sum_nodes(lowest, self.added)) & self.tree.has_any_node(lowest, self.eligible))

    def _count_present_at(self, level: int) -> Indices:
        return np.flatnonzero(self.tree.sum_nodes(level, self.around.present))

    # --- capacity -------------------------------------------------------------------------------------

    def _find_room(self, level: int, pool: Indices) -> Indices:
        """Pods per node that some domains of a level take together; for pods that keep apart nothing elsewhere."""
        if not self.request.traits.is_particular:
            return self.room
        room = np.where(self._find_nodes(level, pool), self.room, 0)
        limit_beside_own(self.view, self.request, room, self.around.kept + self.added)
        return room

    def _find_nodes(self, level: int, pool: Indices) -> Flags:
        inside = np.zeros(len(self.tree), dtype=bool)
        for domain in pool.tolist():
            inside[self.tree.levels[level].starts[domain] : self.tree.levels[level].ends[domain]] = True
        return inside

    def _fits(self, shape: Shape, level: int, pool: Indices) -> Fits:
        return replace(count_fits(self.tree, shape, self._find_room(level, pool)), scores=self.scores)

    def _count_units(self, shape: Shape, level: int, pool: Indices) -> int:
        fits = self._fits(shape, level, pool)
        units = int(fits.count_units_at(level, shape)[pool].sum())
        return units if fits.left is None else units + int(fits.left[level][pool].max(initial=0) >= shape.tail)

    def _put(self, shape: Shape, level: int, pool: Indices, wanted: int, algorithm: Algorithm) -> int:
        """Puts as many of the whole units as some domains of a level hold there; one domain if any holds all of them."""
        shape = replace(shape, tail=0) if shape.tail else shape
        fits = self._fits(shape, level, pool)
        units = fits.count_units_at(level, shape)[pool]
        wanted = min(wanted, int(units.sum()))
        if not wanted:
            return 0
        candidates = Candidates(units, fits.pods[level][pool], None if fits.scores is None else fits.scores[level][pool])
        chosen = algorithm.choose(candidates, wanted) or algorithm.fill(candidates, wanted)
        assert chosen is not None  # together they hold that many
        domains, pods = assign_below(self.tree, fits, shape, algorithm, level, (pool[chosen[0]], chosen[1]))
        self._count(level, pool, domains, pods)
        return wanted

    def _put_each(self, shape: Shape, level: int, domains: Indices, wanted: Indices) -> None:
        """Puts units into each of some domains of a layer, the fullest domains inside first, as many as each holds. `shape` is that of the
        layer below."""
        domains, wanted = domains[wanted > 0], wanted[wanted > 0]
        if len(domains):
            fits = self._fits(shape, level, domains)
            wanted = np.minimum(wanted, fits.count_units_at(level, shape)[domains])
            self._count(level, domains, *assign_below(self.tree, fits, shape, LEAST_FREE_CAPACITY, level, (domains, wanted)))

    def _count(self, level: int, pool: Indices, domains: Indices, pods: Indices) -> None:
        """Counts pods per domain of the lowest level as added; they are in the pool, some domains of a level."""
        here = count_on_nodes(self.tree, self._find_room(level, pool), domains, pods)
        self.added, self.room = self.added + here, self.room - here

    # --- refusals -------------------------------------------------------------------------------------

    def _name(self, level: int, domain: int) -> str:
        return f"{self.tree.declared[level]} {'/'.join(self.tree.get_values(level, domain))}"

    def _build_stale_refusal(self, why: str) -> NotFit:
        return NotFit(RefusalKind.STALE_ASSIGNMENT, self.request.name, f"pod set {self.request.name}: {why}")

    def _refuse(self, shape: Shape, level: int, pool: Indices, wanted: int, note: str | None = None) -> NotFit:
        """Explains that some domains of a level do not hold so many more units."""
        inside = self._find_nodes(level, pool)
        pods = wanted * shape.slice_size - (shape.slice_size - shape.tail if shape.tail else 0)
        if max(shape.sizes[:level], default=1) > 1:  # slices span these domains: what they hold is counted in units of the layers inside
            shape = self._build_shape_below(level - 1)
        request = replace(self.request, count=pods, topology=_confine_to_one(self.topology, level, self.tree, pool))
        room = np.where(inside, self._find_room(level, pool), 0)
        fits = count_fits(self.tree, shape, room)
        free = self.free.copy()
        for resource, amount in with_pod(self.request.requests).items():
            if resource in self.view.axis:
                free[self.view.axis[resource]] -= amount * self.added
        own = self.around.kept + self.added
        among = inside & (self.around.lost == 0)
        shape = replace(shape, start=level, auto=False)
        refusal = refuse(Refused(self.view, request, shape, fits, self.eligible & inside, room, free, among=among, own=own))
        if note is None or refusal.explanation is None:
            return refusal
        return replace(refusal, explanation=replace(refusal.explanation, notes=(note, *refusal.explanation.notes)))


def _confine_to_one(topology: TopologyRequest, level: int, tree: TopologyTree, pool: Indices) -> TopologyRequest:
    """As what a refusal explains the request: confined to the one domain, if it is one."""
    return replace(topology, mode=Mode.REQUIRED, level=tree.declared[level]) if len(pool) == 1 else topology


def count_on_nodes(tree: TopologyTree, room: Indices, domains: Indices | Sequence[int], pods: Indices | Sequence[int]) -> Indices:
    """Returns pods per node, int64, for `pods` on each of `domains` of the lowest level (indexes): each domain's nodes in order, as many as
    each has room for (`room`, pods per node). What a domain has no room for is left out; where domains are nodes, room is not looked at."""
    here = np.zeros_like(room)
    if tree.is_hostname:
        here[domains] = pods
        return here
    level = tree.levels[tree.lowest]
    for domain, count in zip(domains, pods, strict=True):
        span = slice(int(level.starts[domain]), int(level.ends[domain]))
        before = np.cumsum(room[span]) - room[span]
        here[span] = np.clip(count - before, 0, room[span])
    return here

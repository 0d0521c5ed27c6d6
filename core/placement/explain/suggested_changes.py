"""Looks for the smallest changes that would make a refused pod set fit.

Four kinds: a higher level instead of the one required (or, where no domain of any level is enough, preferring it), slices at a
higher level, fewer pods, and changes to nodes: ready, uncordoned, a taint less, so much freed. The smallest takes the fewest levels,
pods or nodes; of equal ones level goes before pods and pods before nodes, since the first two are the owner's to change.
Only where none of them is enough by itself, a higher level and nodes are named together.

Nodes are chosen in the domain that needs the fewest of them, then one where it is enough to free something or to make nodes
usable, and not both, then the one that lacks fewest pods, then by level values. Of its nodes those that gain most go first,
then those on which the least share of a node must be freed, then by level values; the last one is the one with the least
share to free for what is still missing. Where slices are kept together, slice domains are completed one after the other,
those that can do it with fewest nodes first; nodes that turn out not to be needed are removed again. So the nodes need not
be the fewest there, but each of them is needed.
The first domain is looked into in any case, the others as long as the decision has steps left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from core.model.podset import Mode, PodSetRequest
from core.placement.algorithms.domain_capacity import Fits, count_fits
from core.placement.algorithms.podset_groups import GroupFits, count_led_units
from core.placement.algorithms.slices import Shape
from core.placement.changes import NodeFixes, SuggestedChange
from core.placement.topology.free_capacity import FreeCapacity, Matrix, with_pod
from core.placement.topology.node_eligibility import Tolerations
from core.placement.topology.tree import Flags, Indices

_PICK_STEPS = 40  # of choosing nodes of one domain, or of counting what they make
_MOST_HOMES = 32  # domains looked into: the most promising ones
_MOST_PARTS = 64  # slice domains completed
_MOST_CHECKS = 64  # tries to leave something out
WHOLE = -1  # the "level" of all domains together


@dataclass(frozen=True)
class Refused:
    """A pod set that does not fit, and what was counted for it.

    `free` is what it was placed by, `free_before` what was free before the pod sets that come before it took theirs (None where
    that is not known, as of what is being completed), `room` what each node holds of it (0 where it may not go). With a
    `group` it is the workers, and `fits` are those beside the `leader`. Of an assignment that is being completed `own` pods per
    node stay, and `among` are the only nodes it may have; neither the number of its pods nor its level can be another then.
    """

    view: FreeCapacity
    request: PodSetRequest
    shape: Shape
    fits: Fits
    eligible: Flags
    room: Indices
    free: Matrix
    group: GroupFits | None = None
    free_before: Matrix | None = None
    among: Flags | None = None
    own: Indices | None = None
    leader: PodSetRequest | None = None

    @cached_property
    def gain(self) -> Indices:
        """The number of pods that each node could hold at most (`could`) beyond those that it holds now (`room`), int64 per node."""
        return self.could - self.room

    @property
    def wanted(self) -> int:
        """The number of units (slices, or pods without any) that must fit."""
        return self.shape.count_units(self.request.count)

    @property
    def is_particular(self) -> bool:
        """Whether other pods decide what fits, too: what was counted then holds for nodes and levels as they are alone."""
        return self.view.is_particular(self.request.traits)

    @property
    def mode(self) -> Mode:
        """The mode of the request."""
        assert self.request.topology is not None  # else it has no shape
        return self.request.topology.mode

    @cached_property
    def emptied(self) -> Matrix:
        """Free matrix as it would be without the pods of all other workloads; a lower bound where `free_before` is not known."""
        if self.free is self.view.free and self.own is None:
            return self.view.allocatable
        if self.free_before is not None:
            others_gone: Matrix = self.view.allocatable - (self.free_before - self.free)
            if self.view.elsewhere is not None:  # there `free` is nothing
                others_gone[:, self.view.elsewhere] = self.view.allocatable[:, self.view.elsewhere]
            return others_gone
        emptied: Matrix = self.free + self.view.allocatable - np.maximum(self.view.free, self.free)
        if self.own is not None:
            for resource, amount in with_pod(self.request.requests).items():
                if resource in self.view.axis:
                    emptied[self.view.axis[resource]] -= amount * self.own
        return np.maximum(emptied, self.free)

    @cached_property
    def allowed(self) -> Flags:
        """A flag per node: whether the pod set may use it or might once it is ready, uncordoned and without taints."""
        view, request = self.view, self.request
        out = ~view.usable
        verdicts = view.taint_verdicts(request.tolerations)
        if any(taint is not None for taint in verdicts):
            out |= np.array([taint is not None for taint in verdicts])[view.taint_class]
        allowed = view.match_labels(request.node_selector, request.affinity) & (out | self.eligible)
        if view.closed is not None:
            allowed &= ~view.closed
        return allowed if self.among is None else allowed & self.among

    @cached_property
    def could(self) -> Indices:
        """Pods that each node could hold at most, per node, if it were usable and without the pods of other workloads; 0 where it is not
        `allowed`."""
        could = self.view.count_pods_that_fit(self.request, self.emptied)
        could *= self.allowed
        return np.maximum(could, self.room, out=could)

    @cached_property
    def could_fit(self) -> Fits:
        """The pods and units that would fit in every domain at most, summed from `could`."""
        return count_fits(self.view.tree, self.shape, self.could)

    def count_units(self, fits: Fits, level: int) -> Indices:
        """Returns the units per domain of a level, the partial slice counted, too; with `WHOLE` an array of one number, of all domains
        together. In a group, and only for its own `fits`, that number is of the workers once one domain has the leader, where it costs
        least."""
        if level != WHOLE:
            return fits.count_all_units_at(level, self.shape)
        in_all: Indices = fits.count_units_at(0, self.shape).sum(keepdims=True)
        if fits.left is not None:  # there is one partial slice at most
            in_all = in_all + (fits.left[0].max() >= self.shape.tail)
        if self.group is None or fits is not self.fits or not self.group.takes_leader[0].any():
            return in_all
        # Of all domains one alone pays for the leader.
        held = count_led_units(self.group, self.shape, 0, np.arange(len(self.group.takes_leader[0])))
        most: Indices = held[self.group.takes_leader[0]].max(keepdims=True)
        return most

    def count_largest(self, fit: int, level: int) -> int:
        """Returns the largest number of pods, fewer than requested, that would fit in one domain of a level (`WHOLE`: in all), where `fit`
        units of the request fit. Slices are whole but for one; 0 if not even one is."""
        size, left = self.shape.slice_size, self.fits.left
        if left is None or not fit:
            return fit * size
        if level != WHOLE:
            most = int((self.fits.count_units_at(level, self.shape) * size + left[level]).max())
        elif self.group is None:
            most = int(self.fits.count_units_at(0, self.shape).sum() * size + left[0].max())
        else:
            most = (fit - 1) * size
        return most if most >= size else 0

    def count_held_at(self, level: int, fits: Fits, per_node: Indices) -> Indices:
        """Returns the pods (`per_node`, from which `fits` were summed) per domain of a level. At all but the lowest those are left out that
        make no whole slice below it."""
        tree = self.view.tree
        return tree.sum_nodes(level, per_node) if level == tree.lowest else tree.sum_children(level, fits.pods[level + 1])

    def count_unlocked(self, at: Indices) -> Indices:
        """Returns, for each of the nodes `at` (indexes), the pods that it would hold with what is free on it now, once it may be used; 0
        for one that may be used already."""
        if self.eligible[at].all():
            return np.zeros_like(at)
        return np.where(self.eligible[at], 0, np.minimum(self.view.count_pods_that_fit(self.request, self.free, at), self.gain[at]))

    def compute_burden(self, at: Indices, extra: Indices) -> npt.NDArray[np.float64]:
        """Returns, for each of the nodes `at`, what share of it must be freed for `extra` more pods, summed over resources."""
        held, shares = self.room[at] + extra, np.zeros(len(at))
        for resource, amount in with_pod(self.request.requests).items():
            row = self.view.axis[resource]
            shares += np.maximum(amount * held - self.free[row, at], 0) / np.maximum(self.view.allocatable[row, at], 1)
        return shares.round(9)

    def find_span(self, level: int, domain: int) -> slice:
        """Returns the nodes of the domain with index `domain` at a level, as a slice of node indexes; with `WHOLE` all nodes, whatever
        `domain` is."""
        if level == WHOLE:
            return slice(0, len(self.view.tree))
        here = self.view.tree.levels[level]
        return slice(int(here.starts[domain]), int(here.ends[domain]))


def find_changes(refused: Refused, fit: int) -> tuple[SuggestedChange, ...]:
    """Returns changes that are each sufficient, the smallest first; `fit` units fit as asked. Empty where none was found within the budget
    of steps. With changes of one kind none of two kinds is looked for. Raises InvalidSelector where the node affinity cannot be evaluated.
    """
    shape, is_new = refused.shape, refused.own is None
    required = refused.mode is Mode.REQUIRED
    asked = (0 if shape.auto else shape.start) if required else WHOLE
    higher = [*range(asked - 1, -1, -1), WHOLE] if required and is_new and not refused.is_particular else []
    if refused.request.spreading:  # its rules need a required level, at their own or below it
        higher = [level for level in higher if level >= refused.request.spreading[-1].level]
    changes = []
    wider = next((level for level in higher if refused.count_units(refused.fits, level).max() >= refused.wanted), None)
    if wider is not None:
        changes.append(_suggest_raised(refused, asked, wider))
    if is_new and (largest := refused.count_largest(fit, asked)):
        changes.append(SuggestedChange(refused.request.count - largest, pods=largest))
    if is_new and (slices_at := _find_level_for_slices(refused, asked)) is not None:
        changes.append(SuggestedChange(shape.slice_level - slices_at, slices=refused.view.tree.declared[slices_at]))
    nodes = find_nodes(refused, asked)
    if nodes is not None:
        changes.append(SuggestedChange(len(nodes), nodes=nodes))
    if changes:
        return tuple(sorted(changes, key=lambda change: change.size))
    for level in higher:
        nodes = find_nodes(refused, level)
        if nodes is not None:
            raised = _suggest_raised(refused, asked, level)
            return (SuggestedChange(raised.size + len(nodes), raised.level, raised.preferred, nodes=nodes),)
    return ()


def _find_level_for_slices(refused: Refused, asked: int) -> int | None:
    """The lowest level above that of the slices, and not above the one asked for, at which slices of the same size all fit; None where
    there is none, or the slices have layers, a leader, rules of spreading or other pods that decide."""
    shape, tree = refused.shape, refused.view.tree
    is_simple = shape.slice_size > 1 and not shape.tail and sum(size > 1 for size in shape.sizes) == 1
    if not is_simple or refused.group is not None or refused.is_particular or refused.request.spreading:
        return None
    for level in range(shape.slice_level - 1, (0 if shape.auto else shape.start) - 1, -1):
        held = tree.sum_nodes(level, refused.room) // shape.slice_size
        for above in range(level - 1, asked - 1, -1):
            held = tree.sum_children(above, held) if above != WHOLE else held.sum(keepdims=True)
        if held.max(initial=0) >= refused.wanted:
            return level
    return None


def _suggest_raised(refused: Refused, asked: int, level: int) -> SuggestedChange:
    if level == WHOLE:
        return SuggestedChange(asked + 1, preferred=True)
    return SuggestedChange(asked - level, level=refused.view.tree.declared[level])


# --- nodes ----------------------------------------------------------------------------------------

Gains = tuple[Indices, Indices]  # nodes, and how many more pods each is to hold


def find_nodes(refused: Refused, level: int) -> NodeFixes | None:
    """Returns what must change on nodes of one domain of a level (`WHOLE`: of all) so that it holds the pod set; None if nothing is enough,
    or nothing was found within the limits of the search.

    None also for a leader with its workers (`group`), with a partial slice, and where other pods decide what fits.
    """
    if refused.group is not None or refused.shape.tail or refused.is_particular:
        return None
    shape, wanted = refused.shape, refused.wanted
    held = refused.count_units(refused.fits, level)
    homes = (refused.count_units(refused.could_fit, level) >= wanted).nonzero()[0]
    if not len(homes):
        return None
    missing = wanted - held[homes]
    # No home needs fewer nodes than this, so the search may end before all are tried.
    least = -(-((missing - 1) * shape.slice_size + 1) // np.maximum(_compute_most_gained(refused, level)[homes], 1))
    behind = missing + (wanted + 1) * _needs_both(refused, level)[homes]
    ranks = least * 2 * (wanted + 1) + behind
    best: tuple[int, int, Gains] | None = None
    for number in range(min(len(homes), _MOST_HOMES)):
        if number and not refused.view.budget.spend(refused.view.pass_steps):
            break
        place = int(ranks.argmin())
        home, rank = int(homes[place]), int(ranks[place])
        if best is not None and best[:2] <= (rank, home):
            break
        ranks[place] = np.iinfo(np.int64).max
        gains = _choose(refused, level, home, int(missing[place]))
        if gains is not None:
            here = len(gains[0]) * 2 * (wanted + 1) + int(behind[place]), home, gains
            best = here if best is None or here[:2] < best[:2] else best
    return None if best is None else _name(refused, *best[2])


def _needs_both(refused: Refused, level: int) -> Flags:
    """Per domain whether nodes of it must be made usable and something be freed, so that neither alone gives room for pods enough."""
    locked = (refused.allowed & ~refused.eligible).nonzero()[0]
    if not len(locked):
        return np.zeros(1 if level == WHOLE else len(refused.view.tree.levels[level].starts), dtype=bool)
    unlocked = refused.room.copy()
    unlocked[locked] += refused.count_unlocked(locked)
    freed = np.where(refused.eligible, refused.could, refused.room)
    short = [_sum_by_domain(refused, level, room) < refused.wanted * refused.shape.slice_size for room in (unlocked, freed)]
    both: Flags = short[0] & short[1]
    return both


def _sum_by_domain(refused: Refused, level: int, room: Indices) -> Indices:
    """Pods per domain of a level, or of all domains together (`WHOLE`)."""
    return np.array([room.sum()]) if level == WHOLE else refused.view.tree.sum_nodes(level, room)


def _compute_most_gained(refused: Refused, level: int) -> Indices:
    """Per domain the most pods that one node of it can gain."""
    gain: Indices = refused.gain
    if level == WHOLE:
        return np.array([gain.max()])
    starts = refused.view.tree.levels[level].starts
    return gain if len(starts) == len(gain) else np.maximum.reduceat(gain, starts)


def _choose(refused: Refused, level: int, home: int, missing: int) -> Gains | None:
    """Nodes of a domain that together gain so many units; None if that takes too long to find."""
    layers = [below for below, size in enumerate(refused.shape.sizes) if size > 1]
    span = refused.find_span(level, home)
    if not layers:
        at, extra = _pick(refused, span, missing)
        return _limit_to_needed(refused, at, missing)
    parts: list[Gains] = []
    if not _grow(refused, layers, span, missing, parts):
        return None
    at, extra = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return _leave_out(refused, level, home, at, extra)


def _pick(refused: Refused, span: slice, missing: int) -> Gains:
    """As few nodes of a span as gain so many pods together."""
    refused.view.budget.charge(_PICK_STEPS + (span.stop - span.start) // 40)
    gain = refused.gain[span]
    most = int(gain.max())
    before, needed = 0, 1
    if most < missing:
        sums = np.sort(gain)[::-1].cumsum()
        needed = int(sums.searchsorted(missing)) + 1
        most, before = int(sums[needed - 1] - sums[needed - 2]), int(sums[needed - 2])
    taken = (gain > most).nonzero()[0] if needed > 1 else np.zeros(0, dtype=np.int64)
    if needed - 1 > len(taken):
        equal = (gain == most).nonzero()[0]
        first = _find_least(refused.compute_burden(equal + span.start, np.full(len(equal), most)), needed - 1 - len(taken))
        taken = np.append(taken, equal[first])
    rest = missing - before
    able = gain >= rest
    able[taken] = False
    last = able.nonzero()[0]
    last = last[_find_least(refused.compute_burden(last + span.start, np.full(len(last), rest)), 1)]
    return np.append(taken, last) + span.start, np.append(gain[taken], rest)


def _find_least(keys: npt.NDArray[np.float64], count: int) -> Indices:
    """Places of the smallest keys, of equal ones the first."""
    if count == 1:
        return np.array([keys.argmin()])
    bound = np.partition(keys, count - 1)[count - 1]
    below, equal = (keys < bound).nonzero()[0], (keys == bound).nonzero()[0]
    return np.append(below, equal[: count - len(below)])


def _limit_to_needed(refused: Refused, at: Indices, missing: int) -> Gains:
    """The same nodes, with nothing freed that those which become usable make unnecessary."""
    usable_then = refused.count_unlocked(at)
    more = refused.gain[at] - usable_then
    rest = missing - int(usable_then.sum())
    return at, usable_then + np.clip(rest - (more.cumsum() - more), 0, more)


def _grow(refused: Refused, layers: Sequence[int], span: slice, missing: int, parts: list[Gains]) -> bool:
    """Adds nodes of a span that make so many more units of the first layer; False if that takes too many steps."""
    if not layers:
        parts.append(_pick(refused, span, missing))
        return len(parts) <= _MOST_PARTS
    level, tree = layers[0], refused.view.tree
    size = refused.shape.sizes[level]
    starts, ends = tree.levels[level].starts, tree.levels[level].ends
    first, last = (int(edge) for edge in starts.searchsorted([span.start, span.stop]))
    held = refused.count_held_at(level, refused.fits, refused.room)[first:last]
    could = refused.count_held_at(level, refused.could_fit, refused.could)[first:last]
    more, lacks = could // size - held // size, size - held % size
    nodes = -(-lacks // np.maximum(_compute_most_gained(refused, level)[first:last], 1))
    unit = next((refused.shape.sizes[below] for below in layers[1:]), 1)
    for domain in np.lexsort((lacks, nodes, more == 0)).tolist():
        taken = min(int(more[domain]), missing)
        inside = slice(int(starts[first + domain]), int(ends[first + domain]))
        if not _grow(refused, layers[1:], inside, (taken * size - int(held[domain]) % size) // unit, parts):
            return False
        missing -= taken
        if not missing:
            break
    return True


def _leave_out(refused: Refused, level: int, home: int, at: Indices, extra: Indices) -> Gains | None:
    """Removes nodes that are not needed: a node that becomes usable may hold more than it was chosen for. None if that
    takes too long."""
    unlocked = refused.count_unlocked(at)
    if not (unlocked > extra).any():
        return at, extra
    span = refused.find_span(level, home)
    checks = 0

    def is_enough(extra: Indices) -> bool:
        nonlocal checks
        checks += 1
        refused.view.budget.charge(_PICK_STEPS + (span.stop - span.start) // 40)
        room = refused.room[span].copy()
        room[at - span.start] += np.where(extra > 0, np.maximum(extra, unlocked), 0)
        return _count_units_of(refused, level, span, room) >= refused.wanted

    for i in range(len(at)):
        kept, extra[i] = int(extra[i]), 0
        if is_enough(extra):
            continue
        low, high = max(1, int(unlocked[i])), max(kept, int(unlocked[i]))
        while low < high:
            extra[i] = middle = (low + high) // 2
            low, high = (low, middle) if is_enough(extra) else (middle + 1, high)
        extra[i] = high
        if checks > _MOST_CHECKS:
            return None
    return at[extra > 0], extra[extra > 0]


def _count_units_of(refused: Refused, level: int, span: slice, room: Indices) -> int:
    """Units that one domain holds, counted from the room of its nodes alone."""
    tree, shape = refused.view.tree, refused.shape
    units = None
    for below in range(tree.lowest, max(level, 0) - 1, -1):
        here = tree.levels[below]
        first, last = here.starts.searchsorted([span.start, span.stop])
        bounds = here.starts[first:last] - span.start if below == tree.lowest else here.first_child[first:last] - here.first_child[first]
        room = np.add.reduceat(room, bounds)
        units = np.add.reduceat(units, bounds) if units is not None else None
        if below > shape.slice_level:
            room = room // shape.sizes[below] * shape.sizes[below]
        elif below == shape.slice_level:
            units = room // shape.slice_size
    return int((room // shape.count_unit_below(max(level, 0)) if units is None else units).sum())


def _name(refused: Refused, at: Indices, extra: Indices) -> NodeFixes:
    """What must change on nodes so that they hold so many more pods, in the order of the tree."""
    order = at.argsort()
    at, extra = at[order], extra[order]
    view, held = refused.view, refused.room[at] + extra
    freed = {
        resource: np.maximum(amount * held - refused.free[view.axis[resource], at], 0)
        for resource, amount in sorted(with_pod(refused.request.requests).items())
    }
    classes = view.taint_class[at]
    all_taints, tolerations = view.taints_by_class, Tolerations(refused.request.tolerations)
    taints = {
        number: tuple(taint for taint in all_taints[number] if tolerations.find_untolerated([taint]))
        for number in np.unique(classes).tolist()
    }
    return NodeFixes([view.tree.names[node] for node in at.tolist()], view.ready[at], view.cordoned[at], classes, taints, freed)

"""Why a pod set got its domain and not the next best: values, and a sentence from them.

Made when asked for, from the view as it was when the decision was made. What is counted for a shape of request is
kept with the view, so it costs little after `place`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.model.podset import Mode, PodSetRequest
from core.model.quantity import show_count
from core.placement.algorithms.compactness import CompactSearch
from core.placement.algorithms.decision import Decision, PodSetPlacement, subtract_pods
from core.placement.algorithms.domain_capacity import fits_on_nodes
from core.placement.algorithms.podset_groups import fits_of_group, split_roles
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.algorithms.spreading import find_spread
from core.placement.algorithms.tied_pod_sets import OneDomain
from core.placement.explain.spreading_facts import describe_chosen
from core.placement.refusals import LevelFact, truncate
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.topology_spread import describe_unmet
from core.placement.topology.tree import Flags, Indices, TopologyTree

_SHOWN = 3  # domains that a sentence names


@dataclass(frozen=True, slots=True)
class HeldDomain:
    """A domain, and how many units of a pod set it held."""

    domain: tuple[str, ...]
    units: int

    def __str__(self) -> str:
        return f"{'/'.join(self.domain)} with room for {self.units}"


@dataclass(frozen=True, slots=True)
class Choice:
    """The domains of one level that one pod set uses, beside the other domains of that level.

    `used` names the first few of the `count` domains used. `able` counts the domains that held all `wanted` units by
    themselves; `next_best` is the tightest of them that is not used, or where none is able the one that held most.
    `too_small` is the best domain of the level asked for, where no domain of it was large enough. `beside` names what
    was placed with it and counted with it.
    """

    pod_set: str
    level: str
    used: tuple[HeldDomain, ...]
    count: int
    domains: int
    able: int
    wanted: int
    unit: str
    next_best: HeldDomain | None = None
    too_small: LevelFact | None = None
    beside: str = ""
    looked_ahead: bool = False
    search: CompactSearch | None = None
    largest: int = 0  # units that the domain held which held most
    unjudged: tuple[str, ...] = ()  # fields of its pod template that only kube-scheduler evaluates
    profile: str = ""  # the placement profile that chose, where it is not `kep`
    spreading: str = ""  # what its rules of topology spreading count in the domain that it got

    @property
    def excess(self) -> int | None:
        """How many more domains are used than the fewest that could hold all pods: 0 where the search has proven it the most compact,
        otherwise at least 0, compared with as many domains as large as the largest.

        None where the capacity of single domains is not enough to know: with a leader, or where other pods decide.
        """
        if self.search is not None and self.search.optimal:
            return 0
        if self.beside or self.largest <= 0:
            return None
        return max(0, self.count - -(-self.wanted // self.largest))

    @property
    def _whole(self) -> str:
        return f"its {self.unit}" if self.wanted == 1 else f"all {show_count(self.wanted, self.unit)}"

    def __str__(self) -> str:
        beside = f" and {self.beside}" if self.beside else ""
        text = f"pod set {self.pod_set}{beside}: "
        if self.too_small is not None:
            text += f"no {self.too_small.level} holds {self._whole}, the best holds {self.too_small.fit}; "
        text += self._show_one() if self.count == 1 else self._show_many()
        if self.looked_ahead:
            text += "; placed together with the other pod sets, since one after the other they would not fit"
        if self.search is not None:
            proven = "no answer is more compact" if self.search.optimal else f"proven to within {self.search.gap} of the most compact"
            text += f"; {proven}"
        if self.spreading:
            text += f"; {self.spreading}"
        if self.profile:
            text += f"; placement profile {self.profile}"
        if self.unjudged:
            text += f"; not judged: {', '.join(self.unjudged)}"
        return text

    def _show_one(self) -> str:
        (used,) = self.used
        text = f"{self.level} {'/'.join(used.domain)}"
        if self.able and used.units < self.wanted:  # it has filled up, or nodes of it have failed, since
            other = f"; {self.next_best} would hold all {self.wanted}" if self.next_best is not None else ""
            return f"{text} with room for {used.units} of {show_count(self.wanted, self.unit)} now{other}"
        if self.domains == 1:
            return f"{text}, the only one"
        if self.able == 1:
            return f"{text}, the only one of {self.domains} that holds {self._whole}"
        if self.next_best is None:
            return f"{text}, one of {self.domains}"
        if not self.able:  # nodes have failed or filled up since
            return f"{text} with room for {used.units}; none holds {self._whole} now; next {self.next_best}"
        tightest = "the tightest" if used.units <= self.next_best.units else "one"
        able = f"{tightest} of {self.able} that hold {self._whole}"
        return f"{text} with room for {used.units}, {able}; next {self.next_best}"

    def _show_many(self) -> str:
        shown = ", ".join("/".join(held.domain) for held in self.used)
        more = f" and {self.count - len(self.used)} more" if self.count > len(self.used) else ""
        able = f"{self.able} hold" if self.able else "none holds"
        text = f"{self.count} of {self.domains} {self.level}s ({shown}{more}); {able} {self._whole} alone"
        return text if self.next_best is None else f"{text}; next {self.next_best}"


def explain_choice(
    view: FreeCapacity, requests: Sequence[PodSetRequest], decision: Decision, *, free: Matrix | None = None
) -> tuple[Choice, ...]:
    """Returns why each placed pod set got its domains, in the order of the requests. A leader has no choice of its own, but is named in
    that of its workers. Pod sets that the decision has not placed are left out.

    `view` and `free` are what `place` was given, as they were then; they are not changed.
    """
    by_name = {placement.pod_set: placement for placement in decision.placements}
    placed = [request for request in requests if request.name in by_name]
    choices, is_copied = [], False
    for i, request in enumerate(placed):
        leader = _find_partner(request, placed)
        if leader is not None and split_roles(*sorted((request, leader), key=placed.index))[0] is not request:
            continue
        choice = _explain_one(view, request, leader, by_name[request.name], free)
        if choice is not None:
            all_placed = [(each.traits, by_name[each.name].nodes) for each in placed]
            members = [member for member in (request, leader) if member is not None]
            unjudged = dict.fromkeys(field for member in members for field in describe_unmet(view, member, all_placed))
            search = by_name[request.name].search
            if decision.looked_ahead or search is not None or unjudged:  # a copy costs as much as the rest
                choice = replace(choice, looked_ahead=decision.looked_ahead, search=search, unjudged=tuple(unjudged))
            choices.append(choice)
        if i + 1 < len(placed):
            if free is None or not is_copied:
                free, is_copied = (view.free if free is None else free).copy(), True
            for member in (request,) if leader is None else (request, leader):
                subtract_pods(view, free, member, by_name[member.name].nodes)
    return tuple(choices)


def explain_together(view: FreeCapacity, decision: Decision, together: OneDomain) -> str:
    """Returns a text that names the domain that all pods of a workload share, as its request asks. `together` is what `place` was given,
    `decision` one without a refusal.

    The choices of its pod sets may name lower levels only. Where the level is preferred, it is the lowest shared domain at or above that
    level; without any, the text says in how many domains of that level the pods are. Empty if there are no pods.
    """
    tree = view.tree
    asked = tree.find_level(together.level)
    assert asked is not None  # it was placed
    used = [tuple(np.unique(np.concatenate([_find_used(tree, level, p) for p in decision.placements]))) for level in range(asked + 1)]
    if not used[asked]:
        return ""  # pod sets of no pods
    shared = next((level for level in range(asked, -1, -1) if len(used[level]) == 1), None)
    instead = "" if shared == asked else f"no {together.level} holds all pods, "
    if shared is None:
        return f"{instead}they are in {len(used[asked])} ({together.why})"
    return f"{instead}all pods in {tree.declared[shared]} {'/'.join(_get_values(tree, shared, int(used[shared][0])))} ({together.why})"


def show_choices(choices: Sequence[Choice]) -> str:
    """Returns the texts of the choices as one sentence, with semicolons, cut to the length of a condition's message."""
    return truncate("; ".join(map(str, choices)))


def _find_partner(request: PodSetRequest, requests: Sequence[PodSetRequest]) -> PodSetRequest | None:
    """The other pod set of a group of two."""
    group = request.topology.group if request.topology is not None else None
    others = [other for other in requests if other is not request and other.topology is not None and other.topology.group == group]
    return others[0] if group and len(others) == 1 else None


def _explain_one(
    view: FreeCapacity, request: PodSetRequest, leader: PodSetRequest | None, placement: PodSetPlacement, free: Matrix | None
) -> Choice | None:
    tree, shape = view.tree, find_shape(view.tree, request)
    assert isinstance(shape, Shape)  # it was placed
    level = tree.declared.index(placement.level)
    asked = _count_units(view, request, leader, shape, shape.start, free)
    units = asked if level == shape.start else _count_units(view, request, leader, shape, level, free)
    wanted = shape.count_units(request.count) if level <= shape.slice_level else request.count // shape.count_unit_below(level)
    used = _find_used(tree, level, placement)
    mode = request.topology.mode if request.topology is not None else Mode.IMPLIED
    others = np.ones(len(units), dtype=bool)
    others[used] = False
    able, is_particular = units >= wanted, view.is_particular(request.traits)
    if is_particular:  # other pods decide, too: the capacity of a domain alone is not enough to know
        others[:], able = False, np.zeros_like(able)
    spread, spreading = find_spread(tree, request if leader is None or request.spreading else leader), ""
    if spread is not None and spread.deepest <= level:
        is_open = spread.find_open(level)
        others, able = others & is_open, able & is_open
        spreading = describe_chosen(spread, level, int(used[0]), is_open) if len(used) == 1 else ""
    too_small = None
    if level < shape.start and mode in (Mode.REQUIRED, Mode.PREFERRED) and (asked < wanted).all():
        best = int(asked.argmax())
        too_small = LevelFact(
            tree.declared[shape.start], len(asked), tree.get_values(shape.start, best), int(asked[best]), wanted, shape.unit
        )
    return Choice(
        request.name,
        placement.level,
        tuple(_describe_held(tree, level, domain, units) for domain in used[:_SHOWN].tolist()),
        len(used),
        len(units),
        int(np.count_nonzero(able)),
        wanted,
        shape.unit,
        _find_next_best(tree, level, units, others, able),
        too_small,
        "" if leader is None else leader.name,
        largest=0 if is_particular else int(units.max(initial=0)),
        spreading=spreading,
    )


def _count_units(
    view: FreeCapacity, request: PodSetRequest, leader: PodSetRequest | None, shape: Shape, level: int, free: Matrix | None
) -> Indices:
    """What every domain of a level held, beside the leader if there is one."""
    if leader is None or leader.topology is None:
        return fits_on_nodes(view, request, free).sum_up(view.tree, shape).count_all_units_at(level, shape)
    whole = replace(leader, topology=replace(leader.topology, slices=()))
    group = fits_of_group(view, request, whole, free).sum_up(view.tree, shape)
    return np.where(group.takes_leader[level], group.beside.count_all_units_at(level, shape), 0)


def _find_used(tree: TopologyTree, level: int, placement: PodSetPlacement) -> Indices:
    """Domains of a level that a placement uses."""
    if isinstance(placement.nodes, NodeCounts) and placement.nodes.tree is tree:
        nodes = placement.nodes.at
    else:
        nodes = np.array([tree.index[name] for name, _ in placement.nodes], dtype=np.int64)
    used = np.zeros(len(tree.levels[level].starts), dtype=bool)
    used[tree.levels[level].starts.searchsorted(nodes, side="right") - 1] = True
    return used.nonzero()[0]


def _describe_held(tree: TopologyTree, level: int, domain: int, units: Indices) -> HeldDomain:
    return HeldDomain(_get_values(tree, level, domain), int(units[domain]))


def _get_values(tree: TopologyTree, level: int, domain: int) -> tuple[str, ...]:
    values = tree.get_values(level, domain)
    alone = level == tree.lowest and len(tree.emitted_levels) == 1  # the hostname alone identifies the node
    return values[-1:] if alone else values


def _find_next_best(tree: TopologyTree, level: int, units: Indices, others: Flags, able: Flags) -> HeldDomain | None:
    left = (others & able).nonzero()[0]
    if len(left):
        return _describe_held(tree, level, int(left[units[left].argmin()]), units)
    held = units * others
    domain = int(held.argmax())
    return _describe_held(tree, level, domain, units) if held[domain] > 0 else None

"""Why a group has no place: what each placement lacks, where kube-scheduler 1.36 has the message of an arbitrary one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.model.quantity import show_count
from core.model.step_budget import SENTENCE, UNLIMITED, StepBudget
from core.placement.changes import Amount
from core.placement.explain.refusal_facts import find_exclusions
from core.placement.refusals import Exclusion, show_exclusions, truncate
from core.placement.topology.free_capacity import FreeCapacity, with_pod
from core.placement.topology.tree import Indices
from core.podgroups.framework import PlacementCycle, PlacementState, assume_placement
from core.podgroups.group import PodGroupInfo
from core.podgroups.placement_feasibility import are_apart, check, check_one
from core.podgroups.placements import Placements

_SHOWN = 3  # placements that a sentence names
_STEPS = 30_000  # of the decision's


@dataclass(frozen=True, slots=True)
class PlacementFact:
    """One placement: how many of the pods it takes, and what its nodes together lack for all of them.

    `short` is empty where its nodes have enough between them, but not where a whole pod could use it. `beside`: what it lacks that no node
    has as a resource.
    """

    name: str
    nodes: int
    fit: int
    short: tuple[Amount, ...] = ()
    beside: tuple[Amount, ...] = ()

    @property
    def lacks(self) -> tuple[Amount, ...]:
        """Returns all amounts that the placement lacks: `short`, then `beside`; empty where both are."""
        return self.short + self.beside


@dataclass(frozen=True, slots=True)
class GroupExplanation:
    """Why no placement has room for `wanted` of the group's `count` pods; `facts` begins with the placement with room
    for most.

    `why`: the reason that a plugin gives for missing placements, or for what it leaves out. There were `placements`;
    where the steps of the decision are not enough for all, `facts` has the most promising ones.
    """

    group: str
    level: str
    wanted: int
    count: int
    facts: tuple[PlacementFact, ...]
    exclusions: tuple[Exclusion, ...]
    total_nodes: int
    running: int = 0
    why: str = ""
    is_labelled: bool = False  # whether any node has the label of the level
    placements: int = 0

    def __str__(self) -> str:
        """The sentence that the user reads."""
        if not self.facts:
            return truncate(self._explain_without_placements())
        where = f"{self.level} " if self.level else ""
        best = self.facts[0].fit
        need = show_count(self.wanted, "pod") if self.wanted == self.count else f"{self.wanted} of {show_count(self.count, 'pod')}"
        some = f"{len(self.facts)} looked at of " if len(self.facts) != self.placements else ""
        text = f"none of {some}{show_count(self.placements, 'placement')} takes {need}, the best takes {best}"
        shown = [_show(where, fact, self.count) for fact in self.facts[:_SHOWN] if fact.fit or fact.beside]
        if shown:
            text += f": {'; '.join(shown)}"
        if self.exclusions:
            text += f". Total nodes: {self.total_nodes}; excluded: {show_exclusions(self.exclusions)}"
        text += f". {SENTENCE}" if len(self.facts) != self.placements else ""
        return truncate(f"{text}. {self.why}" if self.why else f"{text}.")

    def _explain_without_placements(self) -> str:
        if self.why:
            return self.why
        if self.running:
            pods = f"{show_count(self.running, 'running pod')} {'is' if self.running == 1 else 'are'}"
            return f"its {pods} in no one {self.level or 'placement'}, so that there is none for the others."
        if self.is_labelled:
            return f"there is no placement: the plugins make none of the nodes with the label {self.level}."
        return f"there is no placement: no node has the label {self.level}." if self.level else "there is no node."


def explain(
    view: FreeCapacity, group: PodGroupInfo, tried: Sequence[Placements], states: Sequence[PlacementState] = (), why: str = ""
) -> GroupExplanation:
    """Returns the facts for the placements of the lowest rank that has any, those that take most pods first, then by name; without
    placements only what the nodes are like. `tried` are all that were generated, `why` is the reason that a plugin gives for missing ones.
    Placements beyond the budget of steps are left out, but never the first.

    Raises InvalidSelector where a node affinity cannot be evaluated, and what the state plugins raise (NotServed).
    """
    budget = StepBudget() if view.budget is UNLIMITED else view.budget
    view = view.copy_with_budget(budget.split_off(_STEPS))
    cycle = PlacementCycle(view)
    placements = next((one for one in sorted(tried, key=lambda one: one.rank) if len(one)), None)
    level = group.constraints[-1].level if group.constraints else ""
    exclusions = find_exclusions(view, group.pod_sets[0], view.free) if group.pod_sets else ()
    if placements is None:
        labelled, running = any(level in labels for labels in view.tree.labels), group.has_running
        return GroupExplanation(group.key, level, group.missing, group.count, (), exclusions, len(view.tree), running, why, labelled)
    number = len(placements)
    placements, fits, lacks = _count_assumed_fits(cycle, group, placements, states) if states else _fits(cycle, group, placements)
    sizes = placements.compute_sums(np.ones(len(view.tree), dtype=np.int64))
    short = _compute_short(view, group, placements)
    count = group.count
    facts = [
        PlacementFact(name, int(sizes[at]), int(fits[at]), *((_list_amounts(short, at), lacks[at]) if fits[at] < count else ()))
        for at, name in enumerate(placements.names)
    ]
    facts.sort(key=lambda fact: (-fact.fit, fact.name))
    return GroupExplanation(
        group.key,
        level,
        group.missing,
        group.count,
        tuple(facts),
        exclusions,
        len(view.tree),
        group.has_running,
        why,
        placements=number,
    )


_Fits = tuple[Placements, Indices, Sequence[tuple[Amount, ...]]]  # placements that were checked, pods, and what each lacks beside resources


def _fits(cycle: PlacementCycle, group: PodGroupInfo, placements: Placements) -> _Fits:
    if len(group.pod_sets) == 1 or are_apart(cycle, group, placements):
        checked = check(cycle, group, placements)
        return checked.placements, checked.pods, [()] * len(checked.placements)
    return _count_assumed_fits(cycle, group, placements, ())


def _count_assumed_fits(cycle: PlacementCycle, group: PodGroupInfo, placements: Placements, states: Sequence[PlacementState]) -> _Fits:
    """How many pods placements take as state plugins have it, and what they lack beside resources of nodes."""
    fits: list[int] = []
    lacks: list[tuple[Amount, ...]] = []
    for placement in placements:
        if fits and not cycle.view.budget.spend(0):
            break
        with assume_placement(states, cycle, group, placement):
            fits.append(check_one(cycle, group, placement, to_the_end=True)[0].count)
            lacks.append(cycle.limits.list_lacking(group) if cycle.limits is not None else ())
    return placements.select(np.arange(len(placements)) < len(fits)), np.array(fits, dtype=np.int64), lacks


def _compute_short(view: FreeCapacity, group: PodGroupInfo, placements: Placements) -> dict[str, Indices]:
    """Per resource what the usable nodes of each placement together lack for all pods."""
    asked: dict[str, int] = {}
    for pods in group.pod_sets:
        for resource, amount in with_pod(pods.requests).items():
            asked[resource] = asked.get(resource, 0) + amount * pods.count
    eligible = np.logical_or.reduce([view.find_eligible(pods) for pods in group.pod_sets])
    found = {}
    for resource, amount in sorted(asked.items()):
        row = view.axis.get(resource)
        has = np.zeros(len(view.tree), dtype=np.int64) if row is None else np.maximum(view.free[row], 0) * eligible
        found[resource] = np.maximum(amount - placements.compute_sums(has), 0)
    return found


def _list_amounts(short: dict[str, Indices], at: int) -> tuple[Amount, ...]:
    return tuple(Amount(resource, int(lacks[at])) for resource, lacks in short.items() if lacks[at])


def _show(where: str, fact: PlacementFact, count: int) -> str:
    text = f"{where}{fact.name} {fact.fit} of {count}" if fact.name else f"all nodes together {fact.fit} of {count}"
    return f"{text}, short of {', '.join(map(str, fact.lacks))}" if fact.lacks else text

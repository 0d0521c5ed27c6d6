"""The next step for one group, from the group, its pods and the nodes.

Gate and pin: a place is kept for every pod that gets one before the first of them is ungated, so that no other pod
takes the place of a later one (KEP-5732).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.model.configuration import PodGroupRules
from core.model.podset import PodSetRequest
from core.model.step_budget import StepBudget
from core.placement.topology.free_capacity import FreeCapacity
from core.podgroups.algorithm import Chosen, decide
from core.podgroups.framework import Plugins
from core.podgroups.group import PodGroupInfo, TopologyConstraint
from core.podgroups.group_explanation import GroupExplanation, explain
from core.podgroups.members import GroupKey, Member, as_pod_sets, list_set_claims, order_members, split
from core.podgroups.podgroup_facts import PodGroupFacts
from core.podgroups.required_domain import count_there, describe_spread, find_domain

SCHEDULED, UNSCHEDULABLE, WAITING, SCATTERED = "Scheduled", "Unschedulable", "WaitingForPods", "Scattered"
Place = tuple[Member, str]  # a pod and a node
NONE_FOR_OTHERS = "the places that are kept for some of its pods leave none for the others"


@dataclass(frozen=True, slots=True)
class GroupStep:
    """What to do for a group, in this order: places to give back, places to keep, pods to ungate; and the condition to
    report.

    `hand_over`: the PodGroup of kube-scheduler that must exist first. `waits`: whether a pod waits for room, or for
    another change that other objects may bring. `retry_s`: seconds until the next attempt although nothing has changed;
    None: only a change can help. `explanation`: what each placement lacks, where pods wait for one.
    """

    is_scheduled: bool
    reason: str
    message: str
    give_back: tuple[Member, ...] = ()
    keep: tuple[Place, ...] = ()
    let_go: tuple[Place, ...] = ()
    waits: bool = False
    retry_s: float | None = None
    explanation: GroupExplanation | None = None
    hand_over: Mapping[str, Any] | None = None


def plan_step(
    facts: PodGroupFacts,
    constraints: Sequence[TopologyConstraint],
    key: GroupKey,
    members: Sequence[Member],
    view: FreeCapacity,
    plugins: Plugins,
    waited_s: float,
    rules: PodGroupRules = PodGroupRules(),  # noqa: B008  # frozen
) -> GroupStep:
    """Returns the next step for a replica of a group; doing it and planning again leads to a whole group, or to the reason why not.
    `constraints`: its levels as node labels, coarse to fine. `members` are all pods that name it; `view`, which is not changed, counts what
    they have or is kept for them as used. `waited_s`: seconds since the last pod came. Raises InvalidSelector for a bad node affinity,
    GroupTooLarge where too many pods or unlike pods wait, and NotServed or Unanswered from plugins."""
    view = view.copy_with_budget(StepBudget())
    live = order_members(member for member in members if member.is_live)
    done = sum(member.succeeded for member in members)
    placed = [m for m in live if m.place and (m.gated or m.place in view.tree.index)]  # the others were on a deleted node
    waiting = [m for m in live if m.gated and not m.place]
    adrift = [m for m in live if not m.gated and not m.place]  # without the gate, and not sent by topogate
    if (lost := _give_back_lost(placed, view)) is not None:
        return lost
    wanted, on = facts.min_count or 1, count_there((member.place for member in placed), view)
    if find_domain(constraints, on, view) is None:
        return _build_scattered_step(placed, describe_spread(constraints, on, view))
    needed = wanted if len(live) >= wanted else wanted - done  # a gang that is there is one, whatever ended before
    if len(live) < needed:
        return _build_waiting_step(len(live) + done, wanted, placed)
    if not waiting:
        return _build_whole_step(placed, adrift, done)
    desired, patience_s = facts.desired_count or 0, rules.desired_count_wait_s
    if not placed and len(live) + done < desired and waited_s < patience_s:
        message = f"{len(live) + done} of {desired} desired pods are there; more are waited for, up to {patience_s:g} s after the last"
        return GroupStep(False, WAITING, message, retry_s=patience_s - waited_s)
    sets = split(waiting, view.neighbours)
    group = PodGroupInfo(
        key.namespace,
        key.name,
        as_pod_sets(sets),
        tuple(constraints),
        max(needed, len(placed) + 1),  # of those that come later each single one is welcome
        facts.desired_count,
        key.replica,
        on,
        list_set_claims(sets),
    )
    outcome = decide(view, group, plugins)
    if outcome.chosen is not None:
        keep = tuple(_choose_places(outcome.chosen, [member for equal in sets for member in equal], group.pod_sets))
        places = len(keep) + len(placed)
        return GroupStep(False, SCHEDULED, f"{_name(outcome.chosen)} has places for {places} of {len(live)} pods", keep=keep, waits=True)
    if len(placed) < needed and placed and all(member.gated for member in placed):
        return GroupStep(False, UNSCHEDULABLE, NONE_FOR_OTHERS, give_back=tuple(placed), waits=True)
    lacks = explain(view, group, outcome.tried, plugins.states, outcome.why)
    if len(placed) >= needed:
        whole = _build_whole_step(placed, adrift, done)
        message = f"{whole.message}; {_format_pod_count(len(waiting))} more wait: {lacks}"
        return replace(whole, message=message, waits=True, explanation=lacks)
    return GroupStep(False, UNSCHEDULABLE, str(lacks), waits=True, explanation=lacks)


def _give_back_lost(placed: Sequence[Member], view: FreeCapacity) -> GroupStep | None:
    """Places are given back that are kept on nodes which cannot be used any more."""
    lost = tuple(m for m in placed if m.gated and not m.node and not _is_usable(view, m.place))
    if not lost:
        return None
    why = f"node {lost[0].place}, where a place was kept for pod {lost[0].key}, cannot be used any more"
    return GroupStep(False, UNSCHEDULABLE, why, give_back=lost, waits=True)


def _build_waiting_step(here: int, wanted: int, placed: Sequence[Member]) -> GroupStep:
    """Returns the step for a gang with pods missing: no pod is ungated, and no place is kept for it, unless the gang
    was complete before."""
    kept = tuple(member for member in placed if member.gated)
    return GroupStep(False, WAITING, f"{here} of at least {wanted} pods are there", give_back=kept if len(kept) == len(placed) else ())


def _build_scattered_step(placed: Sequence[Member], where: str) -> GroupStep:
    """Returns the step for a group with nodes that were relabelled. While no pod is ungated, all pods are placed again;
    otherwise pods stay where they are, and the gated ones are ungated."""
    kept = tuple(member for member in placed if member.gated)
    if len(kept) == len(placed):
        return GroupStep(
            False, SCATTERED, f"the places that were kept for {_format_pod_count(len(kept))} are {where}", give_back=kept, waits=True
        )
    let_go = tuple((member, member.place) for member in kept)
    return GroupStep(False, SCATTERED, f"{_format_pod_count(len(placed))} that have their places are {where}", let_go=let_go, waits=True)


def _build_whole_step(placed: Sequence[Member], adrift: Sequence[Member], done: int) -> GroupStep:
    """Returns the step that ungates every placed pod that is still gated, lowest rank first."""
    let_go = tuple((member, member.place) for member in placed if member.gated)
    stuck = [member for member in (*placed, *adrift) if not member.gated and not member.node and member.unschedulable]
    if stuck:
        to = stuck[0].place or stuck[0].sent  # `place` is empty if its record is lost, or if another component pinned the pod
        where = f"to node {to}, where its place is" if to else "anywhere"
        message = f"kube-scheduler does not bind pod {stuck[0].key} {where}: {stuck[0].unschedulable}"
        return GroupStep(False, UNSCHEDULABLE, message, let_go=let_go, waits=True)
    message = f"{_format_pod_count(len(placed))} {'has its place' if len(placed) == 1 else 'have their places'}"
    return GroupStep(True, SCHEDULED, f"{message}, {done} have succeeded" if done else message, let_go=let_go)


def _format_pod_count(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _is_usable(view: FreeCapacity, node: str) -> bool:
    at = view.tree.index.get(node)
    return at is not None and bool(view.usable[at])


def _choose_places(chosen: Chosen, waiting: Sequence[Member], sets: Sequence[PodSetRequest]) -> Sequence[Place]:
    """Which pod goes to which node: ranks in order over the nodes in order, set by set; of a set that fits in part the first."""
    found: list[Place] = []
    first = 0
    for pods, of_set in zip(sets, chosen.assignment.nodes, strict=True):
        found += zip(waiting[first : first + pods.count], (name for name, count in of_set for _ in range(count)), strict=False)
        first += pods.count
    return found


def _name(chosen: Chosen) -> str:
    return f"placement {chosen.placement.name}" if chosen.placement.name else "the cluster"

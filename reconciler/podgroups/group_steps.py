"""The next step for a group of pods, from the observed cluster: for the reconciler, and for commands that only read."""

from collections.abc import Sequence
from dataclasses import replace

from core.model.configuration import PodGroupRules
from core.placement.topology.node_eligibility import InvalidSelector
from core.plan.pods.group_plans import is_native
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.podgroups.acting import GroupStep, plan_step
from core.podgroups.devices.claims import NotServed
from core.podgroups.devices.device_placement import DevicePlacement, find_apart
from core.podgroups.devices.inventory import PlacedClaims
from core.podgroups.framework import Plugins
from core.podgroups.group import TopologyConstraint
from core.podgroups.members import GroupKey, GroupTooLarge, Member, group_of, read_member
from core.podgroups.native import NotNative, build_native_group, plan_native_step
from core.podgroups.podgroup_facts import (
    PodGroupFacts,
    UnknownAlias,
    find_template,
    read_aliases,
    read_pod_group,
    read_template_levels,
    resolve,
)
from core.resource import Obj
from core.runtime.watch.store import build_object_key
from reconciler.observe.observed import Observed
from reconciler.observe.served import Served

INVALID, NO_CONSTRAINT, HANDED_OVER, LOST = "Invalid", "NoConstraint", "HandedOver", "ConstraintLost"
APART = "DevicesApart"
_DRA = "spec.schedulingConstraints.draConstraints"


def list_members(observed: Observed, key: GroupKey) -> dict[str, Member]:
    """Returns the pods that name one replica of a group, over or not, by key (namespace/name), in the order of the keys."""
    seen = (read_once(observed, pod) for pod in observed.pods.store.list_by_index("podgroup", str(key)))
    return {member.key: member for member in seen if member is not None}


def read_once(observed: Observed, pod: Obj) -> Member | None:
    """Returns what `read_member` reads from an observed pod; each state of it is read once. None where it names no group."""
    key = build_object_key(pod)
    known = observed.members.get(key)
    if known is None or known[0] is not pod:
        known = observed.members[key] = pod, read_member(pod)
    return known[1]


def hold_place(observed: Observed, member: Member, place: str) -> None:
    """Keeps a place on the node `place`, and the devices of its claims, for a pod until it is bound. From then on the pod itself counts;
    its devices do once they are allocated. Where `place` is empty, or the pod is over, what was kept for it is dropped."""
    if observed.devices is not None:
        is_placed = member.is_live and bool(place)
        observed.devices.inventory.record_claims(
            member.uid, PlacedClaims(member.group.namespace, place, member.claims) if is_placed else None
        )
    if member.is_live and not member.node and place:
        observed.state.whole.hold_place(str(member.group), member.uid, place, member.request.requests, member.request.traits)
    else:
        observed.state.whole.hold_place(str(member.group), member.uid, None, {})


def hold_places(observed: Observed) -> None:
    """Keeps the places of pods of all groups (`hold_place`): once, for a command that reads a cluster that does not change."""
    for key in list_replicas(observed):
        for member in list_members(observed, key).values():
            hold_place(observed, member, member.place)


def drop_place(observed: Observed, key: GroupKey, uid: str) -> None:
    """Drops the place and the devices that are kept for the pod of a group with a uid, which is gone or has no place any more."""
    observed.state.whole.hold_place(str(key), uid, None, {})
    if observed.devices is not None:
        observed.devices.inventory.record_claims(uid, None)


def list_replicas(observed: Observed, group: str | None = None) -> list[GroupKey]:
    """Returns the replicas with pods, sorted: of the group with a key (namespace/name), or of all groups."""
    named = {key for pod in observed.pods.store.list() if (key := group_of(pod)) is not None}
    return sorted(key for key in named if group in (None, f"{key.namespace}/{key.name}"))


def plan_next_step(
    observed: Observed,
    plugins: Plugins,
    rules: PodGroupRules,
    key: GroupKey,
    group: Obj | None,
    members: Sequence[Member],
    waited_s: float,
) -> GroupStep:
    """Returns the next step of one replica of a group, with the reason and message of its condition; writes nothing. `group` None: there is
    no such PodGroup. `members`: all pods of the replica. `waited_s`: seconds since the last of them came. A mistake in the group is a step
    with the reason `Invalid`, no error. Raises Unanswered where a plugin of another package is to be asked first."""
    kept = tuple(member for member in members if member.is_live and member.gated and member.place)
    if group is None:
        return GroupStep(False, INVALID, "there is no such PodGroup", give_back=kept)
    facts = read_pod_group(group)
    facts = facts if rules.counts_desired else replace(facts, desired_count=None)
    if not 0 <= key.replica < facts.replicas:
        problem = f"a pod names replica {key.replica}; the group has {facts.replicas}, from 0"
        return GroupStep(False, INVALID, problem, give_back=kept)
    if facts.claim_templates and observed.devices is not None and observed.devices.lack:
        return replace(
            _build_impossible_step(observed.devices),
            message=f"{_DRA}: {observed.devices.lack}",
            give_back=kept if observed.devices.are_missing else (),
        )
    if not facts.is_constrained:
        free = tuple((member, "") for member in members if member.is_live and member.gated)
        lost = find_lost(observed, group)
        if lost:
            return GroupStep(False, LOST, lost, let_go=free)
        return GroupStep(True, NO_CONSTRAINT, "the group has no constraint: kube-scheduler places its pods", let_go=free)
    try:
        levels = resolve(facts.levels, read_aliases(observed.node_topologies.store.list()))
        if any(member.native for member in members):
            step = _plan_native(observed, plugins, facts, levels, key, group, members)
            if step.waits and not step.is_scheduled and waited_s < pacing.HANDED_OVER_S:  # which has had no time yet
                return GroupStep(
                    False,
                    HANDED_OVER,
                    "kube-scheduler looks for a place",
                    retry_s=pacing.HANDED_OVER_S - waited_s,
                    hand_over=step.hand_over,
                )
            return step
        if observed.devices is None or not facts.claim_templates:
            return plan_step(facts, levels, key, members, observed.state.whole.capacity, plugins, waited_s, rules)
        inventory, placed = observed.devices.inventory, [member.claims for member in members if member.is_live and member.place]
        devices = DevicePlacement(inventory, key.namespace, facts.claim_templates, placed)
        plugins = replace(plugins, generators=(*plugins.generators, devices), states=(*plugins.states, devices))
        step = plan_step(facts, levels, key, members, observed.state.whole.capacity, plugins, waited_s, rules)
        apart = find_apart(inventory, key.namespace, facts.claim_templates, placed)
        if not apart:
            return step
        message = step.message if apart in step.message else f"{step.message}; {apart}"
        return replace(step, is_scheduled=False, reason=APART, message=message)
    except (UnknownAlias, InvalidSelector, GroupTooLarge) as error:
        return GroupStep(False, INVALID, str(error), give_back=kept, waits=True)
    except NotServed as error:
        return GroupStep(False, INVALID, f"{_DRA}: {error}", give_back=kept, waits=True)


def find_lost(observed: Observed, group: Obj) -> str:
    """Returns, as text, the constraint of the template from which a PodGroup of kube-scheduler's own was made, where the group lacks it;
    else an empty text.
    """
    named = find_template(group) if is_native(group) else None
    if named is None or observed.native is None:
        return ""
    workload = observed.native.workloads.store.get(f"{group['metadata']['namespace']}/{named[0]}")
    levels = read_template_levels(workload, named[1]) if workload is not None else ()
    if not levels or read_pod_group(group).is_constrained:
        return ""
    asked = f"template {named[1]} of Workload {named[0]} asks for one {levels[0].level}"
    return f"{asked}, which the creator of the PodGroup left out: its pods go anywhere"


def _build_impossible_step(needed: Served) -> GroupStep:
    """What is needed is not there, or not seen yet."""
    return GroupStep(False, INVALID, needed.lack, retry_s=pacing.DISCOVERY_S if needed.are_missing else pacing.AWAY_S)


def _plan_native(
    observed: Observed,
    plugins: Plugins,
    facts: PodGroupFacts,
    levels: Sequence[TopologyConstraint],
    key: GroupKey,
    group: Obj,
    members: Sequence[Member],
) -> GroupStep:
    """Returns the step for a group with pods that kube-scheduler places; topogate's PodGroup is handed over to it
    first. Raises InvalidSelector."""
    assert observed.native is not None  # groups are only reconciled where both kinds are watched
    if observed.native.lack:
        return _build_impossible_step(observed.native)
    step = plan_native_step(facts, levels, key, members, observed.state.whole.capacity, plugins)
    if is_native(group):
        return step
    try:
        wanted = build_native_group(facts, levels, key)
    except NotNative as error:
        return GroupStep(False, INVALID, str(error))
    present = observed.native.pod_groups.store.get(f"{key.namespace}/{wanted['metadata']['name']}")
    if present is None:
        return replace(step, hand_over=wanted)
    named = f"PodGroup {present['metadata']['name']} of {r.NATIVE_POD_GROUPS.api_version}"
    if facts.uid not in {owner["uid"] for owner in present["metadata"].get("ownerReferences") or ()}:
        return GroupStep(False, INVALID, f"{named}, by which kube-scheduler would place the pods, was not made for this one: delete either")
    if any(present["spec"].get(part) != wanted["spec"].get(part) for part in ("schedulingPolicy", "schedulingConstraints")):
        return replace(step, message=f"{step.message}; {named} says what this one did when it was handed over, and cannot be changed")
    return step

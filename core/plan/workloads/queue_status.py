"""What is reported of queues, cohorts, flavors and topologies, what keeps those that are in use, and how the workloads of a queue that is
drained are evicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.model.quantity import format_quantity, show_count
from core.model.quota_tree import FlavorResource, Quota, Share
from core.names import (
    ACTIVE,
    EVENT_STILL_IN_USE,
    EVENT_UNKNOWN_PROFILE,
    EVICTIONS_PAUSED,
    NODES_PLACED,
    NODES_REACHABLE,
    PLACEMENT_PROFILE,
    PLACEMENT_PROFILES,
    REASON_ADMISSIONS_PAUSED,
    REASON_READY,
    RESOURCE_IN_USE_FINALIZER,
)
from core.placement.topology.tree import LeftOut
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.conditions import Condition, set_conditions
from core.plan.steps.steps import Event, Hold, Log, MadeSteps, Overtaken, ParallelSteps, Plan, Step, make_plan
from core.plan.workloads.workload_steps import plan_eviction_of
from core.resource import Obj, Resource
from core.state.facts import read_profile_name
from core.state.queue_facts import ClusterQueueFacts

Json = Mapping[str, Any]
EXAMPLES = 5
STILL_IN_USE = "report what its deletion waits for"
_OPTIONAL = ("fairSharing", "flavorsReservation", "flavorsUsage")  # parts of a status that it may lose
Problem = tuple[str, str]  # reason and message of what can admit nothing


@dataclass(frozen=True, slots=True)
class Users:
    """The objects by which another is in use, by name. `is_reported`: the delay of its deletion by them was reported before."""

    resource: Resource
    names: Sequence[str]
    is_reported: bool = False

    def hold(self, obj: Obj) -> bool:
        """Returns whether the deletion of an object waits for them: there are some, it is being deleted and has topogate's finalizer."""
        metadata = obj["metadata"]
        return bool(self.names and metadata.get("deletionTimestamp")) and RESOURCE_IN_USE_FINALIZER in (metadata.get("finalizers") or ())

    def __str__(self) -> str:
        one, end = len(self.names) == 1, "over" if self.resource is r.WORKLOADS else "gone"
        named = f"{self.resource.kind}{'' if one else 's'} {_list(sorted(self.names))}"
        return f"still used by {named}; it goes when {'that is' if one else 'they are'} {end}"


@dataclass(frozen=True, slots=True)
class WorkloadCounts:
    """How many workloads of a queue wait, hold quota, and are admitted; and what the last two hold, by flavor and resource."""

    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    reserved: Mapping[FlavorResource, int] = field(default_factory=dict)
    used: Mapping[FlavorResource, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterQueueState:
    """What is known of a ClusterQueue. `evictions_paused`: why none is
    evicted. `share`: None where sharing is not fair. `idle_flavors`: those with a topology of which no node takes pods."""

    obj: Obj
    queue: ClusterQueueFacts
    problem: Problem | None
    users: Users
    counted: WorkloadCounts
    evictions_paused: str | None = None
    share: Share | None = None
    idle_flavors: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LocalQueueState:
    """What is known of a LocalQueue. `names`: the ClusterQueue that it names; `queue`: that, None where it is not there. `problem` is of
    that. `admissions_paused`: why no workload is admitted."""

    obj: Obj
    names: str
    queue: ClusterQueueFacts | None
    problem: Problem | None
    counted: WorkloadCounts
    is_stopped: bool = False
    admissions_paused: str | None = None


@dataclass(frozen=True, slots=True)
class TopologyState:
    """What is known of a Topology: the nodes of all its flavors, and those without a place by flavor. `storm`: why no node is replaced."""

    obj: Obj
    users: Users
    nodes: int
    left_out: Sequence[tuple[str, LeftOut]] = ()
    storm: str | None = None


def plan_cluster_queue(f: ClusterQueueState, now: str) -> Plan:
    """Returns the plan for finalizer and status of a ClusterQueue, with steps only for what changes. It also reports a placement profile
    that does not exist, each time."""
    reason, message = f.problem or (REASON_READY, "Can admit new workloads")
    # Such a queue is active for Kueue, too: its workloads may use other flavors, and nodes may come.
    message += f"; no node takes pods of flavor {_list(sorted(f.idle_flavors))}" if f.idle_flavors and f.problem is None else ""
    message += f"; {f.users}" if f.users.hold(f.obj) else ""
    # Paused evictions are reported beside everything else: a queue is active all the same.
    paused = [Condition(EVICTIONS_PAUSED, True, "Paused", f.evictions_paused)] if f.evictions_paused is not None else []
    quota = f.queue.quota if f.queue.cohort else None
    status = {
        "conditions": _set(f.obj, now, Condition(ACTIVE, f.problem is None, reason, message), *paused),
        **_count(f.counted, f.queue, quota),
        **(_show_share(f.share) if f.share is not None else {}),
    }
    return make_plan(
        _report_unknown_profile(r.CLUSTER_QUEUES, f.obj),
        *plan_finalizer(r.CLUSTER_QUEUES, f.obj, f.users),
        _report(r.CLUSTER_QUEUES, f.obj, status),
    )


def plan_local_queue(f: LocalQueueState, now: str) -> Plan:
    """Returns the plan for the status of a LocalQueue; without a step where it is so already. A missing ClusterQueue is reported before a
    stop of the LocalQueue, and that before a problem of the ClusterQueue."""
    if f.queue is None:
        condition = Condition(ACTIVE, False, "ClusterQueueDoesNotExist", f"ClusterQueue {f.names} doesn't exist")
    elif f.is_stopped:
        condition = Condition(ACTIVE, False, "Stopped", "LocalQueue is stopped")
    elif f.problem is not None:
        message = f"ClusterQueue {f.queue.name} can't admit new workloads"
        if f.problem[0] == REASON_ADMISSIONS_PAUSED and f.admissions_paused is not None:  # no other problem of it is its users'
            message += f": {f.admissions_paused}"
        condition = Condition(ACTIVE, False, "ClusterQueueIsInactive", message)
    else:
        condition = Condition(ACTIVE, True, REASON_READY, "Can submit new workloads to ClusterQueue")
    status = {"conditions": _set(f.obj, now, condition), **_count(f.counted, f.queue)}
    return make_plan(_report(r.LOCAL_QUEUES, f.obj, status))


def plan_cohort(cohort: Obj, share: Share | None) -> Plan:
    """Returns the plan for the status of a Cohort: its share, or none where sharing is not fair (None). It is empty where that is there
    already."""
    return make_plan(_report(r.COHORTS, cohort, _show_share(share) if share is not None else {}))


def plan_flavor(flavor: Obj, users: Users) -> Plan:
    """Returns the plan for the finalizer of a ResourceFlavor, which has no status; empty where nothing changes."""
    return make_plan(*plan_finalizer(r.RESOURCE_FLAVORS, flavor, users))


def plan_topology(f: TopologyState, now: str) -> Plan:
    """Returns the plan for the finalizer and the status of a Topology, with steps only for what changes. The status shows which nodes of
    its flavors have no clear place, and why (decision 3 of docs/decisions/0004)."""
    problems = []
    for flavor, left_out in f.left_out:
        for label, names in left_out.missing_label.items():
            problems.append(f'flavor "{flavor}": {show_count(len(names), "node")} without the label {label}: {_list(names)}')
        problems += [f'flavor "{flavor}": nodes {_list(names)} share every level value' for names in left_out.same_path]
    # A Topology has no condition of its own for this, and a reader of its status should not have to look for events.
    held = f"{f.users}. " if f.users.hold(f.obj) else ""
    if problems:
        message = f"{held}Left out, because their place in the topology is unknown: {'; '.join(problems)}"
        condition = Condition(NODES_PLACED, False, "NodesLeftOut", message)
    else:
        carried = "1 node carries" if f.nodes == 1 else f"{f.nodes} nodes carry"
        condition = Condition(NODES_PLACED, True, "AllNodesPlaced", f"{held}{carried} all level labels")
    status = {"conditions": _set(f.obj, now, condition, *_show_storm(f))}
    return make_plan(
        _report_unknown_profile(r.TOPOLOGIES, f.obj), *plan_finalizer(r.TOPOLOGIES, f.obj, f.users), _report(r.TOPOLOGIES, f.obj, status)
    )


def plan_evictions(running: Sequence[Obj], reason: str, message: str, now: str) -> Step | None:
    """Returns the step that evicts each of the `running` workloads, one after the other, with `reason` and `message`; None where there are
    none. So it is for stop policy HoldAndDrain: admitted workloads are stopped, too, and wait until the queue goes on.

    Likewise for a namespace that is being deleted: its pods go first. None can come, and a pod that a finalizer keeps can keep the rest for
    ever. A workload that has changed is reconciled again by its event, and those that a pause keeps when it ends. One that is refused does
    not stop the others.
    """

    def evict(workload: Obj) -> Step:
        step = plan_eviction_of(workload, reason, message, now)
        return replace(step, passes=frozenset(Overtaken), holds_up=Hold.UNLESS_REFUSED)

    return Step("evict", ParallelSteps((MadeSteps(running, evict),)), holds_up=Hold.UNLESS_REFUSED) if running else None


def plan_finalizer(resource: Resource, obj: Obj, users: Users) -> list[Step]:
    """Returns the steps that set topogate's finalizer on an object that has users, or remove it from one that has none; empty where it is
    so. So it cannot vanish under them. An object that is being deleted gets none. The reason for which a deletion waits is reported once,
    unless `users.is_reported`, though its users change. kubectl waits in silence, and its user looks when it has waited for too long."""
    finalizers, steps = obj["metadata"].get("finalizers") or [], list[Step]()
    is_held, is_deleting = RESOURCE_IN_USE_FINALIZER in finalizers, bool(obj["metadata"].get("deletionTimestamp"))
    if users.names and not is_held and not is_deleting:
        steps.append(Step("hold what is in use", w.set_finalizers(resource, obj, [*finalizers, RESOURCE_IN_USE_FINALIZER])))
    elif is_held and not users.names:
        kept = [finalizer for finalizer in finalizers if finalizer != RESOURCE_IN_USE_FINALIZER]
        steps.append(Step("release what is not in use", w.set_finalizers(resource, obj, kept)))
    if users.hold(obj) and not users.is_reported:
        steps.append(Step(STILL_IN_USE, events=(Event(resource, obj, EVENT_STILL_IN_USE, str(users), warning=True),)))
    return steps


def _report_unknown_profile(resource: Resource, obj: Obj) -> Step | None:
    """Reports a profile that does not exist to the author of the object: the profile is ignored."""
    profile = read_profile_name(obj)
    if profile is None or profile in PLACEMENT_PROFILES:
        return None
    message = (
        f"there is no placement profile {profile!r}, so that {PLACEMENT_PROFILE} is ignored; there are {', '.join(PLACEMENT_PROFILES)}"
    )
    log = Log("annotation is ignored", {"object": f"{resource.kind} {obj['metadata']['name']}", "why": message}, warning=True)
    return Step("report unknown profile", None, (Event(resource, obj, EVENT_UNKNOWN_PROFILE, message, warning=True),), log)


def _report(resource: Resource, obj: Obj, status: dict[str, Any]) -> Step | None:
    """A status that differs from the one there is.

    An empty list counts as absent: the API server leaves it out where an apply takes the last entry of a list, and keeps it where
    there was no list before.
    """
    before, status = _remove_empty_lists(obj.get("status") or {}), _remove_empty_lists(status)
    is_without = any(name in before and name not in status for name in _OPTIONAL)
    if not is_without and all(before.get(key) == value for key, value in status.items()):
        return None
    return Step("report status", w.patch_status(resource, obj, status, yields=True))


def _set(obj: Obj, now: str, *conditions: Condition) -> list[dict[str, Any]]:
    set_now = {condition.type for condition in conditions}
    before = [c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] != EVICTIONS_PAUSED or c["type"] in set_now]
    return set_conditions(before, conditions, now=now, generation=int(obj["metadata"].get("generation") or 0))


def _count(counted: WorkloadCounts, queue: ClusterQueueFacts | None, quota: Mapping[FlavorResource, Quota] | None = None) -> dict[str, Any]:
    """Counters and usage of a queue; with `quota` also what is borrowed beyond it."""
    return {
        "pendingWorkloads": counted.pending,
        "reservingWorkloads": counted.reserving,
        "admittedWorkloads": counted.admitted,
        "flavorsReservation": _list_flavors(queue, counted.reserved, quota),
        "flavorsUsage": _list_flavors(queue, counted.used, quota),
    }


def _list_flavors(
    queue: ClusterQueueFacts | None, usage: Mapping[FlavorResource, int], quota: Mapping[FlavorResource, Quota] | None
) -> list[dict[str, Any]]:
    def show(flavor: str, name: str) -> dict[str, str]:
        total = usage.get((flavor, name), 0)
        shown = {"name": name, "total": format_quantity(name, total)}
        if quota is None:
            return shown
        nominal = quota.get((flavor, name), Quota(0)).nominal
        return shown | {"borrowed": format_quantity(name, max(0, total - nominal))}

    resources: dict[str, dict[str, None]] = {flavor: {} for flavor in (queue.flavors if queue is not None else ())}
    for group in queue.groups if queue is not None else ():
        for flavor in group.flavors:
            resources[flavor].update(dict.fromkeys(group.resources))
    return [{"name": flavor, "resources": [show(flavor, name) for name in names]} for flavor, names in resources.items()]


def _show_storm(f: TopologyState) -> list[Condition]:
    """Returns no condition where there has been no storm."""
    if f.storm is not None:
        return [Condition(NODES_REACHABLE, False, "Storm", f.storm)]
    known = any(c.get("type") == NODES_REACHABLE for c in (f.obj.get("status") or {}).get("conditions") or ())
    return [Condition(NODES_REACHABLE, True, "Calm", "Nodes that are not ready are replaced one by one")] if known else []


def _show_share(share: Share) -> dict[str, Any]:
    return {"fairSharing": {"weightedShare": share.weighted}}


def _remove_empty_lists(status: Json) -> dict[str, Any]:
    return {name: value for name, value in status.items() if value != []}


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:EXAMPLES])
    return shown if len(names) <= EXAMPLES else f"{shown} and {len(names) - EXAMPLES} more"

"""Status of queues, flavors and topologies: Active conditions, counters, finalizers, nodes left out."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from core.model.quantity import format_quantity, show_count
from core.model.quota import NO_SHARE, FlavorResource, Quota, Share
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
    REASON_LOCAL_QUEUE_STOPPED,
    REASON_QUEUE_STOPPED,
    REASON_READY,
    RESOURCE_IN_USE_FINALIZER,
)
from core.plan import resources as r
from core.plan import writes as w
from core.plan.conditions import Condition, set_conditions
from core.plan.steps import make_plan
from core.plan.workload_steps import plan_eviction_of
from core.queueing.ways import inactive_reason
from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.errors import Conflict, NotFound
from core.runtime.pace import yielding
from core.runtime.store import Change, object_key
from core.runtime.workqueue import Item
from core.state.facts import WorkloadFacts, profile_of
from core.state.queue_facts import ResourceGroup
from core.state.standing import add_usage
from reconciler.controllers import build_controller
from reconciler.execute import Executor, Paused
from reconciler.observed import Observed
from reconciler.storms import Storms

logger = logging.getLogger(__name__)
ENDING_S = 5.0  # between two looks at a namespace that is being deleted, until all in it are evicted
SETTLE_S, BUSY_S = 0.5, 5.0  # a change is counted half a second later, and those of a busy queue every five seconds
EXAMPLES = 5
COUNTED_AT_ONCE = 5_000  # workloads of a queue
_OPTIONAL = ("fairSharing", "flavorsReservation", "flavorsUsage")  # parts of a status that it may lose


class Queues:
    """Reconciles the status of one ClusterQueue, Cohort, LocalQueue, ResourceFlavor or Topology at a time."""

    def __init__(
        self, observed: Observed, executor: Executor, clock: Clock, *, shares_fairly: bool = False, storms: Storms | None = None
    ) -> None:
        self._storms = storms
        if storms is not None:
            storms.on_change.append(self._on_storm)
        self._shares_fairly = shares_fairly
        self._observed = observed
        self._executor = executor
        self.controller = build_controller("queues", self._reconcile, clock, workers=2)
        self._queue = self.controller.queue
        self._clock = clock
        self._counted: dict[tuple[str, str], float] = {}  # when, by plural and key
        self._held_back: dict[tuple[str, str], str] = {}  # what was told that its deletion waits, by plural and name: its uid
        for resource, informer in {**self._informers(), r.ADMISSION_CHECKS: observed.admission_checks}.items():
            informer.add_handler(partial(self._on_configuration, resource))
        observed.pauses.add_handler(self._on_pause)
        observed.nodes.add_handler(self._on_node)
        observed.workloads.add_handler(self._on_workload)
        observed.namespaces.add_handler(self._on_namespace)

    def _on_namespace(self, change: Change) -> None:
        if change.new is not None and change.new["metadata"].get("deletionTimestamp"):
            self._queue.add_after((r.NAMESPACES.plural, object_key(change.obj)), SETTLE_S, "namespace is being deleted")

    def _on_configuration(self, resource: Resource, change: Change) -> None:
        """Whatever is configured may matter to all, which come anyway at the start; of what is written only whether a check is active."""
        informers = self._informers()
        if change.initial:
            if resource in informers:
                self._queue.add_after((resource.plural, object_key(change.obj)), SETTLE_S, "seen at the start")
            return
        if change.old is not None and change.new is not None and _as_configured(change.old) == _as_configured(change.new):
            return
        if change.new is None:
            for remembered in (self._counted, self._held_back):
                remembered.pop((resource.plural, object_key(change.obj)), None)
        for of_kind, informer in informers.items():
            for key in list(informer.store.keys()):
                self._queue.add_after((of_kind.plural, key), SETTLE_S, "configuration changed")

    def _on_pause(self, _change: Change) -> None:
        """All queues say so, and what is to be drained is looked at again."""
        for resource, informer in ((r.CLUSTER_QUEUES, self._observed.cluster_queues), (r.LOCAL_QUEUES, self._observed.local_queues)):
            for key in list(informer.store.keys()):
                self._queue.add_after((resource.plural, key), SETTLE_S, "pause changed")

    def _count_soon(self, resource: Resource, key: str) -> None:
        """Counters of a queue are out of date."""
        since = self._clock.monotonic() - self._counted.get((resource.plural, key), float("-inf"))
        self._queue.add_after((resource.plural, key), max(SETTLE_S, BUSY_S - since), "workload changed")

    def _informers(self) -> Mapping[Resource, Any]:
        observed = self._observed
        return {
            r.CLUSTER_QUEUES: observed.cluster_queues,
            r.COHORTS: observed.cohorts,
            r.LOCAL_QUEUES: observed.local_queues,
            r.RESOURCE_FLAVORS: observed.flavors,
            r.TOPOLOGIES: observed.topologies,
        }

    def _on_node(self, change: Change) -> None:
        if change.old is not None and change.new is not None and _labels(change.old) == _labels(change.new):
            return
        self._look_at_topologies("nodes changed")

    def _on_storm(self) -> None:
        self._look_at_topologies("a storm has begun or is over")

    def _look_at_topologies(self, reason: str) -> None:
        for name in list(self._observed.topologies.store.keys()):
            self._queue.add_after((r.TOPOLOGIES.plural, name), SETTLE_S, reason)

    def _on_workload(self, change: Change) -> None:
        namespace = change.obj["metadata"]["namespace"]
        if namespace in self._observed.state.ending_namespaces:  # an admission may have been on its way
            self._queue.add_after((r.NAMESPACES.plural, namespace), SETTLE_S, "workload changed")
        for workload in (change.old, change.new):
            if workload is None:
                continue
            local = f"{namespace}/{workload['spec'].get('queueName') or ''}"
            self._count_soon(r.LOCAL_QUEUES, local)
            facts = self._observed.state.local_queues.get(local)
            # The queue it was admitted by, too: its LocalQueue may be gone before it is.
            holder = ((workload.get("status") or {}).get("admission") or {}).get("clusterQueue")
            for name in filter(None, {facts.cluster_queue if facts is not None else None, holder}):
                self._count_soon(r.CLUSTER_QUEUES, name)
                for cohort in self._observed.state.quota.ancestors(name) if self._shares_fairly else ():
                    self._count_soon(r.COHORTS, cohort)

    async def _reconcile(self, item: Item) -> Result:
        plural, key = cast("tuple[str, str]", item.key)
        if plural == r.NAMESPACES.plural:
            return await self._end_namespace(key)
        resource, informer = next((res, inf) for res, inf in self._informers().items() if res.plural == plural)
        obj = informer.store.get(key)
        if obj is None:
            self._held_back.pop((plural, key), None)
            self._counted.pop((plural, key), None)
            return Done()
        self._counted[plural, key] = self._clock.monotonic()
        if resource in (r.CLUSTER_QUEUES, r.TOPOLOGIES):
            await self._tell_of_unknown_profile(resource, obj)
        if resource is r.CLUSTER_QUEUES:
            await self._cluster_queue(obj)
        elif resource is r.COHORTS:
            await self._write(resource, obj, _weighted(self._observed.state.quota.cohort_share(key)) if self._shares_fairly else {})
        elif resource is r.LOCAL_QUEUES:
            await self._local_queue(obj)
        elif resource is r.RESOURCE_FLAVORS:
            users = [name for name, queue in self._observed.state.cluster_queues.items() if key in queue.flavors]
            await self._hold(resource, obj, r.CLUSTER_QUEUES, users)
        else:
            users = [name for name, flavor in self._observed.state.flavors.items() if flavor.topology == key]
            why_held = await self._hold(resource, obj, r.RESOURCE_FLAVORS, users)
            await self._topology(obj, why_held)
        return Done()

    async def _end_namespace(self, name: str) -> Result:
        """Evicts the workloads of a namespace that is being deleted: its pods go first, none can come, and a pod that a finalizer keeps can
        keep the rest for ever."""
        state = self._observed.state
        if name not in state.ending_namespaces:
            return Done()
        holding = [facts for key, facts in state.workloads.facts.items() if key.startswith(f"{name}/") and facts.admission is not None]
        await self._drain(holding, REASON_LOCAL_QUEUE_STOPPED, f"namespace {name} is being deleted")
        is_all = all(facts.evicted or facts.finished for facts in holding)
        return Done() if is_all else RequeueAfter(ENDING_S)

    async def _hold(self, resource: Resource, obj: Obj, of: Resource, users: Sequence[str]) -> str:
        """Keeps the finalizer on what is in use, so that it cannot vanish under its users. Says what a deletion waits for, if one does."""
        metadata = obj["metadata"]
        finalizers, deleting = metadata.get("finalizers") or [], bool(metadata.get("deletionTimestamp"))
        held = RESOURCE_IN_USE_FINALIZER in finalizers
        if users and not held and not deleting:
            await self._executor.write(w.set_finalizers(resource, obj, [*finalizers, RESOURCE_IN_USE_FINALIZER]))
        elif held and not users:
            await self._executor.write(w.set_finalizers(resource, obj, [f for f in finalizers if f != RESOURCE_IN_USE_FINALIZER]))
        if not (users and held and deleting):
            return ""
        why = _still_used(of, sorted(users))
        key = resource.plural, metadata["name"]
        if self._held_back.get(key) != metadata["uid"]:
            # Once, though its users change: kubectl waits in silence, and its user looks when it has waited for too long.
            self._held_back[key] = metadata["uid"]
            self._executor.reporter.event(resource, obj, EVENT_STILL_IN_USE, why, warning=True)
        return why

    async def _tell_of_unknown_profile(self, resource: Resource, obj: Obj) -> None:
        """A profile that does not exist is passed over; whoever wrote it should know."""
        profile = profile_of(obj)
        if profile is None or profile in PLACEMENT_PROFILES:
            return
        message = (
            f"there is no placement profile {profile!r}, so that {PLACEMENT_PROFILE} is ignored; there are {', '.join(PLACEMENT_PROFILES)}"
        )
        logger.warning("annotation is ignored", extra={"object": f"{resource.kind} {obj['metadata']['name']}", "why": message})
        self._executor.reporter.event(resource, obj, EVENT_UNKNOWN_PROFILE, message, warning=True)

    # --- queues -------------------------------------------------------------------------------------

    async def _cluster_queue(self, obj: Obj) -> None:
        state = self._observed.state
        queue = state.cluster_queues.get(obj["metadata"]["name"])
        if queue is None:
            return
        locals_of = [key for key, local in state.local_queues.items() if local.cluster_queue == queue.name]
        holding = state.workloads.holders(queue.name)
        why_held = await self._hold(r.CLUSTER_QUEUES, obj, r.WORKLOADS, [workload.key for workload in holding])
        problem = inactive_reason(state, queue)
        reason, message = problem or (REASON_READY, "Can admit new workloads")
        message += f"; {why_held}" if why_held else ""
        if queue.drains:
            await self._drain(holding, REASON_QUEUE_STOPPED, f"The ClusterQueue is stopped: {queue.name}")
        reserved, used = await self._sum_usage(holding)
        status = {
            "conditions": self._conditions(obj, Condition(ACTIVE, problem is None, reason, message), *self._pauses()),
            "pendingWorkloads": sum(map(state.workloads.count_pending, locals_of)),
            "reservingWorkloads": len(holding),
            "admittedWorkloads": sum(1 for w in holding if w.admitted),
            "flavorsReservation": self._flavor_list(queue.flavors, queue.groups, reserved, queue.quota if queue.cohort else None),
            "flavorsUsage": self._flavor_list(queue.flavors, queue.groups, used, queue.quota if queue.cohort else None),
        }
        await self._write(r.CLUSTER_QUEUES, obj, status | (self._share_of(queue.name) if self._shares_fairly else {}))

    def _pauses(self) -> list[Condition]:
        """That nobody is evicted is said beside everything else: a queue is active all the same."""
        stop = self._observed.state.pause.evictions
        return [Condition(EVICTIONS_PAUSED, True, "Paused", stop.sentence)] if stop is not None else []

    async def _local_queue(self, obj: Obj) -> None:
        state, key = self._observed.state, object_key(obj)
        local = state.local_queues.get(key)
        if local is None:
            return
        queue = state.cluster_queues.get(local.cluster_queue)
        holding = state.workloads.holders_of(key)
        if local.drains:
            await self._drain(holding, REASON_LOCAL_QUEUE_STOPPED, f"The LocalQueue is stopped: {obj['metadata']['name']}")
        if queue is None:
            condition = Condition(ACTIVE, False, "ClusterQueueDoesNotExist", f"ClusterQueue {local.cluster_queue} doesn't exist")
        elif local.stopped:
            condition = Condition(ACTIVE, False, "Stopped", "LocalQueue is stopped")
        elif (problem := inactive_reason(state, queue)) is not None:
            message = f"ClusterQueue {queue.name} can't admit new workloads"
            if problem[0] == REASON_ADMISSIONS_PAUSED and state.pause.admissions is not None:  # no other problem of it is its users'
                message += f": {state.pause.admissions.sentence}"
            condition = Condition(ACTIVE, False, "ClusterQueueIsInactive", message)
        else:
            condition = Condition(ACTIVE, True, REASON_READY, "Can submit new workloads to ClusterQueue")
        groups = queue.groups if queue is not None else ()
        flavors = queue.flavors if queue is not None else ()
        reserved, used = await self._sum_usage(holding)
        status = {
            "conditions": self._conditions(obj, condition),
            "pendingWorkloads": state.workloads.count_pending(key),
            "reservingWorkloads": len(holding),
            "admittedWorkloads": sum(1 for w in holding if w.admitted),
            "flavorsReservation": self._flavor_list(flavors, groups, reserved),
            "flavorsUsage": self._flavor_list(flavors, groups, used),
        }
        await self._write(r.LOCAL_QUEUES, obj, status)

    def _share_of(self, cluster_queue: str) -> dict[str, Any]:
        shares = self._observed.state.quota.shares(cluster_queue)
        return _weighted(shares[-1] if shares else NO_SHARE)

    async def _drain(self, holding: Sequence[WorkloadFacts], reason: str, message: str) -> None:
        """Stop policy HoldAndDrain: what was admitted is stopped, too, and waits until the queue goes on."""
        for facts in holding:
            workload = self._observed.workloads.store.get(facts.key)
            if workload is not None and facts.admission is not None and not facts.evicted and not facts.finished:
                try:
                    await self._executor.execute(make_plan(plan_eviction_of(workload, reason, message, self._executor.now())))
                except (Conflict, NotFound, Paused):
                    continue  # it has changed: its event, or that of the pause's end, brings us here again

    async def _sum_usage(self, workloads: Sequence[WorkloadFacts]) -> tuple[dict[FlavorResource, int], dict[FlavorResource, int]]:
        """What workloads hold of quota, and what those of them hold that are admitted; in portions. What changes meanwhile is counted
        the next time."""
        reserved, used = dict[FlavorResource, int](), dict[FlavorResource, int]()
        for number, workload in enumerate(workloads, start=1):
            admission = self._observed.state.workloads.holding(workload.key)
            if admission is not None:
                add_usage(reserved, admission)
                if workload.admitted:
                    add_usage(used, admission)
            if number % COUNTED_AT_ONCE == 0:
                await self._clock.sleep(0)
        return reserved, used

    @staticmethod
    def _flavor_list(
        flavors: tuple[str, ...],
        groups: Sequence[ResourceGroup],
        usage: Mapping[FlavorResource, int],
        quota: Mapping[FlavorResource, Quota] | None = None,
    ) -> list[dict[str, Any]]:
        """With `quota` also what is borrowed beyond it."""

        def entry(flavor: str, name: str) -> dict[str, str]:
            total = usage.get((flavor, name), 0)
            shown = {"name": name, "total": format_quantity(name, total)}
            if quota is None:
                return shown
            nominal = quota.get((flavor, name), Quota(0)).nominal
            return shown | {"borrowed": format_quantity(name, max(0, total - nominal))}

        resources: dict[str, dict[str, None]] = {flavor: {} for flavor in flavors}
        for group in groups:
            for flavor in group.flavors:
                resources[flavor].update(dict.fromkeys(group.resources))
        return [{"name": flavor, "resources": [entry(flavor, name) for name in names]} for flavor, names in resources.items()]

    # --- topologies -----------------------------------------------------------------------------------

    async def _topology(self, obj: Obj, why_held: str) -> None:
        """Reports which nodes of its flavors have no clear place, and why (decision 3 of docs/decisions/0004)."""
        state, name = self._observed.state, obj["metadata"]["name"]
        views = [view for flavor, facts in state.flavors.items() if facts.topology == name and (view := state.view(flavor)) is not None]
        problems, nodes = [], set[str]()  # several flavors may have a node
        for view in views:
            nodes.update(view.capacity.tree.names)
            left_out = view.capacity.tree.left_out
            for label, names in left_out.missing_label.items():
                count = show_count(len(names), "node")
                problems.append(f'flavor "{view.flavor.name}": {count} without the label {label}: {_some(names)}')
            for names in left_out.same_path:
                problems.append(f'flavor "{view.flavor.name}": nodes {_some(names)} share every level value')
        # A Topology has no condition of its own for this, and a reader of its status should not have to look for events.
        held = f"{why_held}. " if why_held else ""
        if problems:
            message = held + "Left out, since their place is not known: " + "; ".join(problems)
            condition = Condition(NODES_PLACED, False, "NodesLeftOut", message)
        else:
            carried = "1 node carries" if len(nodes) == 1 else f"{len(nodes)} nodes carry"
            condition = Condition(NODES_PLACED, True, "AllNodesPlaced", f"{held}{carried} all level labels")
        await self._write(r.TOPOLOGIES, obj, {"conditions": self._conditions(obj, condition, *self._storm(obj))})

    def _storm(self, topology: Obj) -> list[Condition]:
        """Nothing is said of storms where there has been none."""
        storm = self._storms.find(topology["metadata"]["name"]) if self._storms is not None else None
        if storm is not None:
            return [Condition(NODES_REACHABLE, False, "Storm", str(storm))]
        known = any(c.get("type") == NODES_REACHABLE for c in (topology.get("status") or {}).get("conditions") or ())
        return [Condition(NODES_REACHABLE, True, "Calm", "Nodes that are not ready are replaced one by one")] if known else []

    # --- writing --------------------------------------------------------------------------------------

    def _conditions(self, obj: Obj, *conditions: Condition) -> list[dict[str, Any]]:
        set_now = {condition.type for condition in conditions}
        before = [c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] != EVICTIONS_PAUSED or c["type"] in set_now]
        generation = int(obj["metadata"].get("generation") or 0)
        return set_conditions(before, conditions, now=self._executor.now(), generation=generation)

    async def _write(self, resource: Resource, obj: Obj, status: dict[str, Any]) -> None:
        """Writes a status that differs from the one there is.

        An empty list counts as absent: the API server leaves it out where an apply takes the last entry of a list, and keeps it where
        there was no list before.
        """
        before, status = _remove_empty_lists(obj.get("status") or {}), _remove_empty_lists(status)
        is_without = any(name in before and name not in status for name in _OPTIONAL)
        if is_without or any(before.get(key) != value for key, value in status.items()):
            with yielding():
                await self._executor.write(w.patch_status(resource, obj, status))


def _remove_empty_lists(status: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in status.items() if value != []}


def _weighted(share: Share) -> dict[str, Any]:
    return {"fairSharing": {"weightedShare": share.weighted}}


def _as_configured(obj: Obj) -> Any:
    metadata = obj["metadata"]
    said = [metadata.get(name) for name in ("uid", "labels", "annotations", "finalizers", "deletionTimestamp")]
    active = (
        [(c["type"], c["status"]) for c in (obj.get("status") or {}).get("conditions") or ()] if obj["kind"] == "AdmissionCheck" else []
    )
    return said, obj.get("spec"), active


def _labels(node: Obj) -> Any:
    return node["metadata"].get("labels")


def _still_used(resource: Resource, users: Sequence[str]) -> str:
    """Whose object waits for what: `users` are the names of objects of the resource."""
    one = len(users) == 1
    end = "over" if resource is r.WORKLOADS else "gone"
    return f"still used by {resource.kind}{'' if one else 's'} {_some(users)}; it goes when {'that is' if one else 'they are'} {end}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:EXAMPLES])
    return shown if len(names) <= EXAMPLES else f"{shown} and {len(names) - EXAMPLES} more"

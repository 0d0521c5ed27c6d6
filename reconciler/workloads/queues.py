"""Status of queues, flavors and topologies: Active conditions, counters, finalizers, nodes left out.

Workloads of a queue that is drained, and of a namespace that is being deleted, are evicted."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

from core.model.quota_tree import NO_SHARE, FlavorResource
from core.names import REASON_LOCAL_QUEUE_STOPPED, REASON_QUEUE_STOPPED
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps.steps import NOTHING, Plan, Step, make_plan
from core.plan.workloads.queue_status import (
    STILL_IN_USE,
    ClusterQueueState,
    LocalQueueState,
    TopologyState,
    Users,
    WorkloadCounts,
    plan_cluster_queue,
    plan_cohort,
    plan_evictions,
    plan_flavor,
    plan_local_queue,
    plan_topology,
)
from core.queueing.cycle.queue_resolution import find_inactive_reason
from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import Item
from core.state.facts import WorkloadFacts, is_condition_true
from core.state.workload_state import add_usage
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor, Left
from reconciler.nodes.mass_not_ready import Storms
from reconciler.observe.observed import Observed


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
        self._held_back: dict[tuple[str, str], str] = {}  # objects with a reported delay of their deletion, by plural and name: their uids
        for resource, informer in {**self._list_informers(), r.ADMISSION_CHECKS: observed.admission_checks}.items():
            informer.add_handler(partial(self._on_configuration, resource))
        observed.pauses.add_handler(self._on_pause)
        observed.nodes.add_handler(self._on_node)
        observed.workloads.add_handler(self._on_workload)
        observed.namespaces.add_handler(self._on_namespace)

    def _on_namespace(self, change: Change) -> None:
        if change.new is not None and change.new["metadata"].get("deletionTimestamp"):
            self._queue.add_after((r.NAMESPACES.plural, build_object_key(change.obj)), pacing.QUEUES_SETTLE_S, "namespace is being deleted")

    def _on_configuration(self, resource: Resource, change: Change) -> None:
        """Whatever is configured may matter to all, which come anyway at the start; of what is written only whether a check is active."""
        informers = self._list_informers()
        if change.initial:
            if resource in informers:
                self._queue.add_after((resource.plural, build_object_key(change.obj)), pacing.QUEUES_SETTLE_S, "seen at the start")
            return
        if change.old is not None and change.new is not None and _as_configured(change.old) == _as_configured(change.new):
            return
        if change.new is None:
            for remembered in (self._counted, self._held_back):
                remembered.pop((resource.plural, build_object_key(change.obj)), None)
        for of_kind, informer in informers.items():
            for key in list(informer.store.list_keys()):
                self._queue.add_after((of_kind.plural, key), pacing.QUEUES_SETTLE_S, "configuration changed")

    def _on_pause(self, _change: Change) -> None:
        """Queues all queues: their conditions report the pause, and those to be drained are reconciled again."""
        for resource, informer in ((r.CLUSTER_QUEUES, self._observed.cluster_queues), (r.LOCAL_QUEUES, self._observed.local_queues)):
            for key in list(informer.store.list_keys()):
                self._queue.add_after((resource.plural, key), pacing.QUEUES_SETTLE_S, "pause changed")

    def _count_soon(self, resource: Resource, key: str) -> None:
        """Counters of a queue are out of date."""
        since = self._clock.monotonic() - self._counted.get((resource.plural, key), float("-inf"))
        self._queue.add_after((resource.plural, key), max(pacing.QUEUES_SETTLE_S, pacing.QUEUES_BUSY_S - since), "workload changed")

    def _list_informers(self) -> Mapping[Resource, Any]:
        observed = self._observed
        return {
            r.CLUSTER_QUEUES: observed.cluster_queues,
            r.COHORTS: observed.cohorts,
            r.LOCAL_QUEUES: observed.local_queues,
            r.RESOURCE_FLAVORS: observed.flavors,
            r.TOPOLOGIES: observed.topologies,
        }

    def _on_node(self, change: Change) -> None:
        if not change.initial and _read_usability(change.old) != _read_usability(change.new):
            for name in list(self._observed.cluster_queues.store.list_keys()):  # conditions report flavors without a usable node
                self._count_soon(r.CLUSTER_QUEUES, name)
        if change.old is not None and change.new is not None and _get_labels(change.old) == _get_labels(change.new):
            return
        self._queue_topologies("nodes changed")

    def _on_storm(self) -> None:
        self._queue_topologies("a storm has begun or is over")

    def _queue_topologies(self, reason: str) -> None:
        for name in list(self._observed.topologies.store.list_keys()):
            self._queue.add_after((r.TOPOLOGIES.plural, name), pacing.QUEUES_SETTLE_S, reason)

    def _on_workload(self, change: Change) -> None:
        namespace = change.obj["metadata"]["namespace"]
        if namespace in self._observed.state.ending_namespaces:  # an admission may have been on its way
            self._queue.add_after((r.NAMESPACES.plural, namespace), pacing.QUEUES_SETTLE_S, "workload changed")
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
                for cohort in self._observed.state.quota.list_ancestors(name) if self._shares_fairly else ():
                    self._count_soon(r.COHORTS, cohort)

    async def _reconcile(self, item: Item) -> Result:
        plural, key = cast("tuple[str, str]", item.key)
        if plural == r.NAMESPACES.plural:
            return await self._end_namespace(key)
        resource, informer = next((res, inf) for res, inf in self._list_informers().items() if res.plural == plural)
        counted = await self._count(resource, key) if resource in (r.CLUSTER_QUEUES, r.LOCAL_QUEUES) else WorkloadCounts()
        obj = informer.store.get(key)
        if obj is None:
            self._held_back.pop((plural, key), None)
            self._counted.pop((plural, key), None)
            return Done()
        self._counted[plural, key] = self._clock.monotonic()
        users = self._find_users(resource, obj)
        left = Left()
        try:
            plan = self._plan(resource, obj, users, counted).begin_with(self._plan_drain(resource, key))
            return await self._executor.execute(plan, left)
        finally:
            if STILL_IN_USE in left.done:
                self._held_back[plural, key] = obj["metadata"]["uid"]

    # --- what is to go --------------------------------------------------------------------------------

    def _plan_drain(self, resource: Resource, key: str) -> Step | None:
        """Evicts what holds quota by a queue that is drained. One that could not be evicted holds up no other, nor the queue's status."""
        state = self._observed.state
        cluster_queue = state.cluster_queues.get(key) if resource is r.CLUSTER_QUEUES else None
        local_queue = state.local_queues.get(key) if resource is r.LOCAL_QUEUES else None
        if cluster_queue is not None and cluster_queue.drains:
            return self._evict(state.workloads.list_holders(key), REASON_QUEUE_STOPPED, f"The ClusterQueue is stopped: {key}")
        if local_queue is not None and local_queue.drains:
            why = f"The LocalQueue is stopped: {key.partition('/')[2]}"
            return self._evict(state.workloads.list_local_holders(key), REASON_LOCAL_QUEUE_STOPPED, why)
        return None

    async def _end_namespace(self, name: str) -> Result:
        state = self._observed.state
        if name not in state.ending_namespaces:
            return Done()
        holding = [facts for key, facts in state.workloads.facts.items() if key.startswith(f"{name}/") and facts.admission is not None]
        evict = self._evict(holding, REASON_LOCAL_QUEUE_STOPPED, f"namespace {name} is being deleted")
        is_all = all(facts.evicted or facts.finished for facts in holding)
        return await self._executor.execute(make_plan(evict, again_s=None if is_all else pacing.NAMESPACE_ENDING_S))

    def _evict(self, workloads: Iterable[WorkloadFacts], reason: str, message: str) -> Step | None:
        running = (facts.key for facts in workloads if facts.admission is not None and not facts.evicted and not facts.finished)
        found = [workload for key in running if (workload := self._observed.workloads.store.get(key)) is not None]
        return plan_evictions(found, reason, message, self._executor.format_now())

    # --- facts and plans --------------------------------------------------------------------------------

    def _plan(self, resource: Resource, obj: Obj, users: Users, counted: WorkloadCounts) -> Plan:
        now = self._executor.format_now()
        if resource is r.CLUSTER_QUEUES:
            return self._plan_cluster_queue(obj, users, counted, now)
        if resource is r.LOCAL_QUEUES:
            return self._plan_local_queue(obj, counted, now)
        if resource is r.COHORTS:
            share = self._observed.state.quota.compute_cohort_share(obj["metadata"]["name"]) if self._shares_fairly else None
            return plan_cohort(obj, share)
        if resource is r.RESOURCE_FLAVORS:
            return plan_flavor(obj, users)
        return plan_topology(self._read_topology(obj, users), now)

    def _plan_cluster_queue(self, obj: Obj, users: Users, counted: WorkloadCounts, now: str) -> Plan:
        state = self._observed.state
        queue = state.cluster_queues.get(obj["metadata"]["name"])
        if queue is None:
            return NOTHING
        paused = state.pause.evictions.sentence if state.pause.evictions is not None else None
        shares = state.quota.compute_shares(queue.name) if self._shares_fairly else []
        share = (shares[-1] if shares else NO_SHARE) if self._shares_fairly else None
        idle = [name for name in queue.flavors if (view := state.get_view(name)) is not None and not view.capacity.usable.any()]
        known = ClusterQueueState(obj, queue, find_inactive_reason(state, queue), users, counted, paused, share, idle)
        return plan_cluster_queue(known, now)

    def _plan_local_queue(self, obj: Obj, counted: WorkloadCounts, now: str) -> Plan:
        state, key = self._observed.state, build_object_key(obj)
        local = state.local_queues.get(key)
        if local is None:
            return NOTHING
        queue = state.cluster_queues.get(local.cluster_queue)
        problem = find_inactive_reason(state, queue) if queue is not None else None
        paused = state.pause.admissions.sentence if state.pause.admissions is not None else None
        known = LocalQueueState(obj, local.cluster_queue, queue, problem, counted, local.stopped, paused)
        return plan_local_queue(known, now)

    def _read_topology(self, obj: Obj, users: Users) -> TopologyState:
        state, name = self._observed.state, obj["metadata"]["name"]
        views = [view for flavor, facts in state.flavors.items() if facts.topology == name and (view := state.get_view(flavor)) is not None]
        nodes = set[str]().union(*(view.capacity.tree.names for view in views))  # several flavors may have a node
        left_out = [(view.flavor.name, view.capacity.tree.left_out) for view in views]
        storm = self._storms.find(name) if self._storms is not None else None
        return TopologyState(obj, users, len(nodes), left_out, str(storm) if storm is not None else None)

    def _find_users(self, resource: Resource, obj: Obj) -> Users:
        state, name = self._observed.state, obj["metadata"]["name"]
        is_reported = self._held_back.get((resource.plural, name)) == obj["metadata"]["uid"]
        if resource is r.CLUSTER_QUEUES:
            return Users(r.WORKLOADS, [workload.key for workload in state.workloads.list_holders(name)], is_reported)
        if resource is r.RESOURCE_FLAVORS:
            queues = [queue.name for queue in state.cluster_queues.values() if name in queue.flavors]
            return Users(r.CLUSTER_QUEUES, queues, is_reported)
        flavors = [flavor for flavor, facts in state.flavors.items() if facts.topology == name] if resource is r.TOPOLOGIES else []
        return Users(r.RESOURCE_FLAVORS, flavors, is_reported)

    async def _count(self, resource: Resource, key: str) -> WorkloadCounts:
        """Workloads of a queue, and what they hold of quota; in portions. What changes meanwhile is counted the next time."""
        workloads = self._observed.state.workloads
        is_local = resource is r.LOCAL_QUEUES
        holding = workloads.list_local_holders(key) if is_local else workloads.list_holders(key)
        reserved, used = dict[FlavorResource, int](), dict[FlavorResource, int]()
        for number, workload in enumerate(holding, start=1):
            admission = workloads.find_holding(workload.key)
            if admission is not None:
                add_usage(reserved, admission)
                if workload.admitted:
                    add_usage(used, admission)
            if number % pacing.QUEUES_COUNTED == 0:
                await self._clock.sleep(0)
        local_queues = self._observed.state.local_queues.items()
        locals_of = [key] if is_local else [name for name, local in local_queues if local.cluster_queue == key]
        pending = sum(map(workloads.count_pending, locals_of))
        return WorkloadCounts(pending, len(holding), sum(1 for workload in holding if workload.admitted), reserved, used)


def _as_configured(obj: Obj) -> Any:
    metadata = obj["metadata"]
    said = [metadata.get(name) for name in ("uid", "labels", "annotations", "finalizers", "deletionTimestamp")]
    active = (
        [(c["type"], c["status"]) for c in (obj.get("status") or {}).get("conditions") or ()] if obj["kind"] == "AdmissionCheck" else []
    )
    return said, obj.get("spec"), active


def _read_usability(node: Obj | None) -> Any:
    """What decides whether a node takes pods of a flavor, taints aside."""
    if node is None:
        return None
    return _get_labels(node), bool((node.get("spec") or {}).get("unschedulable")), is_condition_true(node, "Ready")


def _get_labels(node: Obj) -> Any:
    return node["metadata"].get("labels")

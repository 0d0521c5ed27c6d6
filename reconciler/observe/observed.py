"""The cluster as observed: one informer per resource, all folded into one `ClusterState`."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from core.jobs.contract import JobKind
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.registry import KINDS
from core.model.configuration import ResourceRules
from core.model.pause_state import NOTHING_PAUSED, Pause
from core.names import (
    LWS_WORKER_INDEX_LABEL,
    MANAGER_ADMISSION,
    PAUSE_CONFIG_MAP,
    SPARK_DRIVER,
    SPARK_ROLE_LABEL,
    SYSTEM_NAMESPACE,
)
from core.plan.pods.node_health import is_node_lost
from core.plan.pods.pod_units import (
    ALONE,
    GROUP,
    PARENTS,
    find_group_owner,
    find_pod_unit,
    find_workload_unit,
    get_owner_of_named,
    is_unowned,
)
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.podgroups.members import Member
from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.http.client import Client
from core.runtime.tasks import start_eternal
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change, build_object_key, read_version
from core.state.check_facts import CheckFacts, ProvisioningConfig
from core.state.cluster import ClusterState
from core.state.daemonsets import DaemonSetFacts
from core.state.facts import FlavorFacts, NodeFacts, PodFacts, TopologyFacts, WorkloadFacts, find_controller, find_family
from core.state.gated_facts import with_partial_slices, with_spreading
from core.state.owners import Owners, is_orphaned, mark_uid, read_owner, show_owner
from core.state.pod_defaults import LimitRange, PodDefaults, RuntimeClass
from core.state.queue_facts import ClusterQueueFacts, CohortFacts, LocalQueueFacts, NamespaceFacts
from reconciler.observe.counted_devices import CountedDevices
from reconciler.observe.indexes import add_indexes, find_owned, list_workloads_of_pod, show_as_owner
from reconciler.observe.informers import Informers
from reconciler.observe.installed_kinds import InstalledKinds, is_served
from reconciler.observe.pods_being_ungated import Ungating
from reconciler.observe.refold import Again
from reconciler.observe.watch_progress import WatchProgress

Facts = TypeVar("Facts")


class Observed(Informers):
    """Informers and the state folded from them.

    A part that has to know of a change adds a handler to the informer after construction, and so is called after the state has been
    changed.
    """

    _woken_at = 0  # `state.changes` when the scheduler was last woken for nodes or pods that have other devices

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str = SYSTEM_NAMESPACE,
        kinds: Sequence[JobKind] = KINDS,
        reserve_daemon_sets: bool = True,
        resource_rules: ResourceRules | None = None,
        reclaims_pods: bool = True,
        keeps_spares: bool = True,
        places_groups: bool = False,
        partial_slices: bool = False,
        spreads: bool = False,
        bounds_devices: bool = False,
        copied_labels: Sequence[str] = (),
    ) -> None:
        self._spreads, self.copied_labels = spreads, copied_labels
        self._reclaims_pods, self._keeps_spares, self._partial_slices = reclaims_pods, keeps_spares, partial_slices
        self.state = ClusterState(reserve_daemon_sets=reserve_daemon_sets, resource_rules=resource_rules)
        # Workloads with pods that will be others by what is known now: a LimitRange or a RuntimeClass has changed.
        self._to_read = Again(self._read_workload_again, pacing.READ_AT_ONCE, clock, self._wake)
        self._to_own = Again(self._observe_owner_again, pacing.OWNED_AT_ONCE, clock)  # pods of an owner that came after them, or went
        self._nodes_to_read = Again(self._read_node_again, pacing.READ_AT_ONCE, clock, self._wake_if_changed)
        self._pods_to_read = Again(self._read_pod_again, pacing.READ_AT_ONCE, clock, self._wake_if_changed)
        self.again = (self._to_read, self._to_own, self._nodes_to_read, self._pods_to_read)
        counts = bool(self.state.resource_rules.device_classes)
        super().__init__(
            client,
            clock,
            namespace,
            kinds,
            self._to_read.add,
            reserves_daemon_sets=self.state.reserves_daemon_sets,
            places_groups=places_groups,
            counts_devices=counts,
            bounds_devices=bounds_devices,
        )
        self.counted: CountedDevices | None = None  # None: quota counts no devices
        self.pod_defaults = PodDefaults()
        self.provisioning: dict[str, ProvisioningConfig] = {}
        self.pod_facts: dict[str, PodFacts] = {}
        self.members: dict[str, tuple[Obj, Member | None]] = {}  # by key of the pod: the object that was read, and what was read from it
        self.owners = Owners()
        self.ungating, self.pods_progress = Ungating(), WatchProgress(self.pods.watcher)
        self._unowned: dict[str, str | None] = {}  # workloads without an owner, and the owner of the pods that name them
        self.on_pod_read: list[Callable[[Obj], None]] = []  # called with pods that turned out to be another's, or to claim other devices
        self._index()
        self._fold_all()
        if counts and self.devices is not None:
            self.counted = CountedDevices(
                self.devices,
                self.state.resource_rules,
                clock,
                (self.workloads, self._to_read.add),
                (self.pods, self._pods_to_read.add),
                (self.nodes, self._nodes_to_read.add),
                bounds_nodes=bounds_devices,
            )
        self._by_resource = {informer.resource: informer for informer in self.informers}

    def _index(self) -> None:
        """Before anything is folded: facts of pods depend on their owners."""
        add_indexes(self.pods.store, self.workloads.store, self.nodes.store, self.provisioning_requests.store)
        for of_kind in self.jobs.values():
            of_kind.store.add_index("uid", lambda job: [show_as_owner(job)])
        for informer_of_owners in (*self.jobs.values(), *self.parents.values(), *self.between.values()):
            informer_of_owners.add_handler(self._observe_owner)
        self.pods.add_handler(self._observe_leader)
        self.pods.add_handler(self._observe_driver)

    def _fold_all(self) -> None:
        state = self.state
        self._fold(self.pauses, Pause.read, self._observe_pause)
        self._fold(self.namespaces, NamespaceFacts.read, lambda name, facts: state.observe_namespace(name, *facts or (None,)))
        self._fold(self.limit_ranges, LimitRange.read, self._observe_limit_range)
        self._fold(self.runtime_classes, RuntimeClass.read, self._observe_runtime_class)
        self.priority_classes.add_handler(self._observe_priority_class)
        self._fold(self.topologies, TopologyFacts.read, state.observe_topology)
        self._fold(self.flavors, FlavorFacts.read, state.observe_flavor)
        self._fold(self.cluster_queues, ClusterQueueFacts.read, state.observe_cluster_queue)
        self._fold(self.admission_checks, CheckFacts.read, state.observe_check)
        self._fold(self.provisioning_configs, ProvisioningConfig.read, self._observe_config)
        self._fold(self.cohorts, CohortFacts.read, state.observe_cohort)
        self._fold(self.local_queues, LocalQueueFacts.read, state.observe_local_queue)
        self._fold(self.nodes, self._read_node, state.observe_node, self._replace_unreadable_node)
        self._fold(self.daemon_sets, DaemonSetFacts.read, state.observe_daemon_set)
        self._fold(self.pods, self._read_pod, self._observe_pod, self._replace_unreadable_pod)
        for of_devices, read, observe in self.devices.folds if self.devices is not None else ():
            self._fold(of_devices, read, observe)
        self._fold(self.workloads, self._read_workload, state.observe_workload)
        self.workloads.add_handler(self._observe_unowned)

    def observe_reply(self, resource: Resource, obj: Obj, manager: str | None = None) -> None:
        """Folds in an object of `resource` that the API server has answered with, if it is newer than what is observed. Does nothing for a
        resource that is not watched. A Workload that `manager` kueue-admission has written has what was decided on it: that is assumed no
        longer, or it has become void."""
        informer = self._by_resource.get(resource)
        if informer is not None:
            informer.observe_reply(obj)
        if resource == r.WORKLOADS and manager == MANAGER_ADMISSION:
            self.state.confirm(build_object_key(obj), read_version(obj), obj["metadata"]["uid"])

    def _observe_pause(self, key: str, pause: Pause | None) -> None:
        if key.rpartition("/")[2] == PAUSE_CONFIG_MAP:  # files may have others
            self.state.observe_pause(pause or NOTHING_PAUSED)

    def _observe_limit_range(self, key: str, limit_range: LimitRange | None) -> None:
        self.pod_defaults.observe_limit_range(key, limit_range)
        namespace = key.partition("/")[0]
        self._to_read.add(key for key in list(self.workloads.store.list_keys()) if key.partition("/")[0] == namespace)

    def _observe_runtime_class(self, name: str, runtime_class: RuntimeClass | None) -> None:
        self.pod_defaults.observe_runtime_class(name, runtime_class)
        self._to_read.add(self.workloads.store.list_keys())

    def _observe_priority_class(self, change: Change) -> None:
        if self.pod_defaults.observe_priority_class(change.obj["metadata"]["name"], exists=change.new is not None):
            self._to_read.add(self.workloads.store.list_keys())

    def _read_workload_again(self, key: str) -> None:
        self._read_again(self.workloads, key, self._read_workload, self.state.observe_workload)

    def _read_node_again(self, key: str) -> None:
        self._read_again(self.nodes, key, self._read_node, self.state.observe_node)

    def _read_pod_again(self, key: str) -> None:
        self._read_again(self.pods, key, self._read_pod, self._observe_pod_again)

    def _observe_pod_again(self, key: str, facts: PodFacts) -> None:
        before = self.pod_facts.get(key)
        self._observe_pod(key, facts)
        if before is not None and before.claimed != facts.claimed:
            self._notify_of_pod(self.pods.store.objects[key])

    def _notify_of_pod(self, pod: Obj) -> None:
        for notify in self.on_pod_read:
            notify(pod)

    def _read_again(self, informer: Informer, key: str, read: Callable[[Obj], Facts], observe: Callable[[str, Facts], None]) -> None:
        obj = informer.store.get(key)
        if obj is None:
            return
        try:
            observe(key, read(obj))
        except Exception as error:
            self.set_aside.add(informer.resource, key, obj, error)
        else:
            self.set_aside.remove(informer.resource, key)

    def _wake_if_changed(self) -> None:
        """Claims of running pods come and go all the time: most of them help no workload that waits."""
        if self._woken_at != self.state.changes:
            self._woken_at = self.state.changes
            self._wake()

    def _wake(self) -> None:
        for wake in self.state.on_free:
            wake()

    def _observe_config(self, name: str, config: ProvisioningConfig | None) -> None:
        if config is None:
            self.provisioning.pop(name, None)
        else:
            self.provisioning[name] = config

    def _observe_pod(self, key: str, pod: PodFacts | None) -> None:
        if pod is None:
            self.pod_facts.pop(key, None)
            self.members.pop(key, None)
        else:
            owner = self._find_owner(key, pod)
            if owner != pod.owner_uid:
                pod = replace(pod, owner_uid=owner)
            self.pod_facts[key] = pod
        self.state.observe_pod(key, pod)

    def _find_owner(self, key: str, pod: PodFacts) -> str | None:
        """Returns the owner of a pod's workload: the pod itself, its group, or the highest queued object above it; None
        if it has none."""
        if pod.workload in self._unowned:
            # As its workload. None where its job is gone: what runs on holds the place it was given, not another beside it.
            return self._unowned[pod.workload]
        obj = self.pods.store.get(key)
        unit = find_pod_unit(obj) if obj is not None else None
        if unit is not None and unit.source == ALONE:
            return mark_uid(r.show_kind(r.PODS), pod.uid)
        if unit is not None and unit.source == GROUP:
            return find_group_owner(unit)
        if pod.owner_uid is None:
            return None
        direct, before = show_owner(key.partition("/")[0], pod.owner_uid), self.pod_facts.get(key)
        if before is not None and before.uid == pod.uid and before.owner_uid is not None and not self.owners.has(direct):
            return before.owner_uid  # a part of its job was deleted before it: it still holds the place that its workload gave it
        return read_owner(self.owners.find_queued_root(direct))

    def _observe_leader(self, change: Change) -> None:
        """Workers of a LeaderWorkerSet belong to its leaders."""
        if (change.obj["metadata"].get("labels") or {}).get(LWS_WORKER_INDEX_LABEL) == "0":
            self._observe_pod_as_owner(change)

    def _observe_driver(self, change: Change) -> None:
        """Executors of a SparkApplication belong to its driver."""
        if (change.obj["metadata"].get("labels") or {}).get(SPARK_ROLE_LABEL) == SPARK_DRIVER:
            self._observe_pod_as_owner(change)

    def _observe_pod_as_owner(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        self._observe_owned(show_owner(metadata["namespace"], mark_uid(r.show_kind(r.PODS), metadata["uid"])), change)

    def _observe_owner(self, change: Change) -> None:
        self._observe_owned(show_as_owner(change.obj), change)

    def _observe_owned(self, key: str, change: Change) -> None:
        """Pods may be seen before what they belong to; then they are folded again."""
        below = self.owners.list_descendants(key)
        if not self.owners.observe(key, self._mark_owners(change.new) if change.new is not None else None):
            return
        self._observe_owners_of([pod for owner in below for pod in self.pods.store.list_by_index("owner", owner)])

    def _observe_unowned(self, change: Change) -> None:
        """Pods of a workload that has lost its owner have none, either; those that name one that never had an owner are its own."""
        key, now = build_object_key(change.obj), dict[str, str | None]()
        if change.new is not None and is_unowned(change.new):
            now = {key: get_owner_of_named(key)}
        elif change.new is not None and is_orphaned(change.new):
            now = {key: None}
        before = {key: self._unowned.pop(key)} if key in self._unowned else {}
        self._unowned |= now
        if now == before:
            return
        self._observe_owners_of(self.pods.store.list_by_index("workload", key))

    def _observe_owners_of(self, pods: Iterable[Obj]) -> None:
        """The first thousand at once, the others in later turns of the event loop."""
        left = iter(pods)
        for pod in islice(left, pacing.OWNED_AT_ONCE):
            self._observe_owner_of(pod)
        self._to_own.add(map(build_object_key, left))

    def _observe_owner_again(self, key: str) -> None:
        pod = self.pods.store.get(key)
        if pod is not None:
            self._observe_owner_of(pod)

    def _observe_owner_of(self, pod: Obj) -> None:
        """Folds a pod again if it turns out to be another's than was known. One that cannot be is set aside, and holds up no other."""
        key = build_object_key(pod)
        facts = self.pod_facts.get(key)
        if facts is None:
            return
        try:
            direct = replace(facts, owner_uid=(find_controller(pod) or {}).get("uid"))
            if facts.owner_uid != self._find_owner(key, direct):
                self._observe_pod(key, direct)
                self._notify_of_pod(pod)
        except Exception as error:
            self.set_aside.add(self.pods.resource, key, pod, error)

    def _read_node(self, node: Obj) -> NodeFacts:
        facts = NodeFacts.read(node)
        return self.counted.adjust_node(facts) if self.counted is not None else facts

    def _read_pod(self, pod: Obj) -> PodFacts:
        facts = PodFacts.read(pod)
        if self.counted is None:
            return facts
        workload = self.state.workloads.facts.get(facts.workload or "")
        pod_sets = workload.pod_sets if workload is not None and workload.admission is not None else ()
        reserved = next((pod_set.claimed for pod_set in pod_sets if pod_set.name == facts.pod_set), {})
        return self.counted.adjust_pod(facts, pod, reserved)

    def _read_workload(self, workload: Obj) -> WorkloadFacts:
        if not self._reclaims_pods:
            status = {name: value for name, value in (workload.get("status") or {}).items() if name != "reclaimablePods"}
            workload = {**workload, "status": status}
        adjusted, refused = self.pod_defaults.adjust_workload(workload)
        facts = _read_facts(self._mark_owners(adjusted))
        if refused:
            facts = replace(facts, refused=refused)
        facts = self.volumes.adjust(facts, adjusted)
        facts = self.counted.adjust_workload(facts, adjusted) if self.counted is not None else facts
        facts = with_partial_slices(facts) if self._partial_slices else facts
        facts = with_spreading(facts, workload) if self._spreads else facts
        return facts if self._keeps_spares else facts.copy_without_spares()

    @staticmethod
    def _fold(
        informer: Informer,
        read: Callable[[Any], Facts],
        observe: Callable[[str, Facts | None], None],
        stand_in: Callable[[str, Any], Facts | None] = lambda key, obj: None,
    ) -> None:
        """Hands the facts of each object to `observe`. An object that cannot be read is set aside by its informer. Until it can be
        read it counts as what `stand_in` makes of it or, where that is None, as what it was when it was last read."""

        def handle(change: Change) -> None:
            key = build_object_key(change.obj)
            if change.new is None:
                observe(key, None)
                return
            try:
                facts = read(change.new)
            except Exception:
                instead = stand_in(key, change.new)
                if instead is not None:
                    observe(key, instead)
                raise
            observe(key, facts)

        informer.add_handler(handle)

    def _replace_unreadable_node(self, name: str, node: Obj) -> NodeFacts | None:
        """Returns the former facts of a node, which gets no more pods."""
        known = self.state.nodes.get(name)
        return replace(known, state=replace(known.state, unschedulable=True)) if known is not None else None

    def _replace_unreadable_pod(self, key: str, pod: Obj) -> PodFacts | None:
        """A pod that fills the node on which it is: how much of it the pod uses is not known."""
        known, node = self.pod_facts.get(key), (pod.get("spec") or {}).get("nodeName")
        if known is not None and known.node == node:
            return known
        return PodFacts.fill_node(key, pod["metadata"].get("uid", ""), node) if isinstance(node, str) and node else None

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Starts all informers in `group`, stage by stage, and returns when each has been listed once. Kinds that cannot be listed for a
        while, or are not served, may not be listed then; see `InstalledKinds.start` and `Served.start`."""
        for stage in self.stages:
            for informer in stage:
                start_eternal(group, f"informer {informer.resource}", informer.run())
            for informer in stage:
                await informer.wait_synced()
        await InstalledKinds(self.definitions, self.optional, group, self._is_used).start()
        for built_in in self.built_in:
            await built_in.start(group)
        if self.counted is not None:
            await self.counted.settle()
            start_eternal(group, "devices of nodes", self.counted.run())
        for again in self.again:
            await again.refold_all()

    def _is_used(self, informer: Informer) -> bool:
        """Whether a Workload, a pod or a job that has been listed has a controller of an informer's kind."""
        kind = f"{informer.resource.kind}.{informer.resource.group}"
        objects = (obj for one in (self.workloads, self.pods, *self.jobs.values()) for obj in one.store.list())
        return any((owner := find_controller(obj)) is not None and r.build_owner_key(owner) == kind for obj in objects)

    async def list_once(self, list_one: Callable[[Informer], Awaitable[None]] = Informer.list_once) -> None:
        """Lists everything once, for callers that read once: watches nothing. `list_one` lists one informer; resources that the cluster
        lacks are left out. Raises a `KubeError` where a list fails, or what `list_one` raises for it."""
        for stage in self.stages:
            for informer in stage:
                await list_one(informer)
        definitions = self.definitions.store.list()
        for informer in self.optional.values():
            if is_served(informer.resource, definitions):
                await list_one(informer)
        for built_in in self.built_in:
            for informer in built_in.informers if await built_in.is_served() else ():
                await list_one(informer)
        if self.counted is not None:
            await self.counted.settle()
        for again in self.again:
            await again.refold_all()

    def fill(self, objects: Mapping[Resource, Iterable[Obj]]) -> None:
        """Replaces all objects, and the state folded from them, by those at hand, by resource, without any API server. A resource that is
        not in `objects` becomes empty, and one that is not watched is ignored. Where they have no PersistentVolumeClaims none is missing.
        """
        self.volumes.expect_all(bool(objects.get(r.VOLUME_CLAIMS)))
        for informer in self.informers:
            informer.fill(objects.get(informer.resource, ()))
        if self.counted is not None:
            self.counted.count_now()
        for again in self.again:
            while again.refold_some():
                pass

    def find_pod_group(self, key: str) -> Obj | None:
        """Returns the PodGroup with a key (namespace/name): ours, else kube-scheduler's own; None where there is neither."""
        ours = self.pod_groups.store.get(key)
        return ours if ours is not None or self.native is None else self.native.pod_groups.store.get(key)

    def find_present(self, family: str) -> Obj | None:
        """Returns the workload that holds the place of pods that name the workload `family` (namespace/name). Of an elastic job it may be
        the one that took over. Where none holds a place it is the one of that name; None where that is gone."""
        named = self.workloads.store.list_by_index("family", family)
        holding = (workload for workload in named if self.state.workloads.find_holding(build_object_key(workload)) is not None)
        return next(holding, self.workloads.store.get(family))

    def list_present_of_pod(self, pod: Obj) -> list[str]:
        """Returns the key of the workload of `find_present` for a pod, alone in a list; empty where the pod names none or it is gone."""
        return [build_object_key(found) for family in list_workloads_of_pod(pod) if (found := self.find_present(family)) is not None]

    def list_pods(self, workload: str) -> list[PodFacts]:
        """Returns the facts of the pods that name a workload (namespace/name; of an elastic job its family), in the order of their keys. A
        pod that is being ungated is shown without its gate, also where that has not been seen yet."""
        keys = map(build_object_key, self.pods.store.list_by_index("workload", workload))
        return [self.ungating.adjust(self.pod_facts[key]) for key in keys if key in self.pod_facts]

    def list_live_pods(self, workload: str) -> list[PodFacts]:
        """Returns those of `list_pods` that are not over: pods that are being deleted use what they were given until they are gone."""
        return [pod for pod in self.list_pods(workload) if not pod.terminal]

    def is_lost_node(self, name: str) -> bool:
        """Whether the node of a name is gone or not ready (`is_node_lost`); False for an empty name."""
        return is_node_lost(self.nodes.store.objects, name)

    def has_owner(self, workload: Obj) -> bool | None:
        """Returns whether the controller of a workload still exists, with the same uid. Without one: False where its job was deleted, True
        for a plain pod group, else None. None also where the kind of the owner is not watched or still being listed."""
        owner = find_controller(workload)
        if owner is None:
            return False if is_orphaned(workload) else True if find_workload_unit(workload) is not None else None
        informer = self.find_owning(owner)
        if informer is None or informer.is_listing:
            return None
        found = informer.store.get(f"{workload['metadata']['namespace']}/{owner['name']}")
        return found is not None and owner["uid"] in (uid := found["metadata"]["uid"], mark_uid(r.build_owner_key(owner), uid))

    def find_owning(self, owner: Mapping[str, Any]) -> Informer | None:
        """Returns the informer of the kind that an owner reference names: pods, kinds that are queued, and those that are queued through
        their pods. None for any other kind."""
        if (owner["apiVersion"], owner["kind"]) == (Pod.version, Pod.kind):
            return self.pods
        parent = PARENTS.get(owner["kind"])
        if parent is not None and owner["apiVersion"] == f"{parent.group}/{parent.version}":
            return self.parents[parent.kind]
        return self.jobs.get(r.build_owner_key(owner))

    def find_job(self, workload: Obj) -> tuple[JobKind, Obj] | None:
        """Returns the kind and the job that a workload was made for; None where the job is gone, or the workload was made for none."""
        owner = find_controller(workload)
        kind = self.kinds.get(r.build_owner_key(owner)) if owner is not None else None
        if owner is None or kind is None:
            return None
        job = self.jobs[r.build_key(kind)].store.get(f"{workload['metadata']['namespace']}/{owner['name']}")
        return (kind, job) if job is not None and job["metadata"]["uid"] == owner["uid"] else None

    def count_live_pods(self, job: Obj) -> tuple[int, int]:
        """Returns two numbers of pods of a job, or of anything that is its, that are not over: those that are waited for, and those that
        are left alone (`PodFacts.is_left_alone`). Ungated pods of a part that is gone count, too."""
        alone = [pod.is_left_alone for pod in self._list_pods_of_job(job) if not pod.terminal]
        return alone.count(False), alone.count(True)

    def find_live_pods(self, job: Obj) -> list[PodFacts]:
        """Returns the pods of a job, or of anything that is its, that are not over, without those that are left alone (see
        `count_live_pods`)."""
        return [pod for pod in self._list_pods_of_job(job) if not pod.terminal and not pod.is_left_alone]

    def find_running_pods(self, job: Obj) -> list[PodFacts]:
        """Returns those of `find_live_pods` that have no gate any more, also where that has not been seen yet."""
        return [pod for pod in map(self.ungating.adjust, self.find_live_pods(job)) if not pod.gated]

    def _list_pods_of_job(self, job: Obj) -> Iterable[PodFacts]:
        pods = (pod for owner in self.owners.list_descendants(show_as_owner(job)) for pod in self.pods.store.list_by_index("owner", owner))
        families = {find_family(workload) for workload in find_owned(self.workloads.store, job)}
        named = (pod for family in families for pod in self.pods.store.list_by_index("workload", family))
        # A part of the job that is gone, as the RayCluster of a suspended RayJob, leaves its pods to the garbage collector. A gated
        # pod holds nothing, and may have been made by a user for that.
        left = (pod for pod in named if find_controller(pod) is not None and self.has_owner(pod) is False)
        own, others = ([facts for pod in each if (facts := self.pod_facts.get(build_object_key(pod))) is not None] for each in (pods, left))
        return [*own, *(facts for facts in others if not self.ungating.adjust(facts).gated)]

    def find_unmarked_pods(self, job: Obj) -> list[Obj]:
        """Returns the pods of a job, or of anything below it, that have the topology gate, name no workload and are not being deleted. They
        would wait for ever."""
        return [
            pod for owner in self.owners.list_descendants(show_as_owner(job)) for pod in self.pods.store.list_by_index("unmarked", owner)
        ]

    def find_job_of_pod(self, pod: Obj) -> tuple[str, str] | None:
        """Returns the kind's key in `jobs` and the key (namespace/name) of a pod's job: the highest above it that names a queue, else its
        controller. None where that is not known or no job."""
        owner = find_controller(pod)
        if owner is None:
            return None
        root = self.owners.find_queued_root(show_owner(pod["metadata"]["namespace"], owner["uid"]))
        jobs = ((key, job) for key, informer in self.jobs.items() for job in informer.store.list_by_index("uid", root))
        return next(((key, build_object_key(job)) for key, job in jobs), None)


def _read_facts(workload: Obj) -> WorkloadFacts:
    facts, unit = WorkloadFacts.read(workload), find_workload_unit(workload)
    if is_unowned(workload):
        return replace(facts, owner_uid=get_owner_of_named(facts.key))
    return replace(facts, owner_uid=find_group_owner(unit)) if unit is not None and unit.source == GROUP else facts

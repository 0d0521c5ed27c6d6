"""One informer for each resource that is watched, and the order in which they are first listed."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from core.jobs.contract import JobKind
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_kinds import POD_SETS
from core.jobs.kinds.pod_parents import StatefulSet
from core.names import PAUSE_CONFIG_MAP
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.garbage import exclude_live_objects
from core.runtime.http.client import Client
from core.runtime.http.errors import KubeError
from core.runtime.watch.informer import Informer
from core.runtime.watch.set_aside import SetAside
from core.runtime.watch.watcher import is_behind
from reconciler.observe.device_informers import Devices
from reconciler.observe.native_groups import NativeGroups
from reconciler.observe.related import Related
from reconciler.observe.served import Served
from reconciler.observe.slim import (
    mark_unknown_owners,
    remove_false_marks,
    remove_managed_fields,
    slim_between,
    slim_daemon_set,
    slim_definition,
    slim_node,
    slim_pod,
    slim_stateful_set,
    with_writers_of,
)
from reconciler.observe.volume_informers import ObservedVolumes

logger = logging.getLogger(__name__)


class Informers:
    """All informers. Configuration and nodes are listed before pods, and pods before workloads, so that an assignment
    is read when the tree that it names exists.

    `reserves_daemon_sets`: whether DaemonSets are watched; `places_groups`: whether devices and kube-scheduler's own
    PodGroups are, where they are served. `read_again` gets the keys of Workloads with volumes that have changed.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        kinds: Sequence[JobKind],
        read_again: Callable[[Iterable[str]], None],
        *,
        reserves_daemon_sets: bool,
        places_groups: bool,
        counts_devices: bool,
        bounds_devices: bool,
    ) -> None:
        self.set_aside = SetAside()

        def make_informer(resource: Resource, transform: Callable[[Obj], Obj] = remove_managed_fields) -> Informer:
            return Informer(client, resource, transform=transform, clock=clock, settle=exclude_live_objects, set_aside=self.set_aside)

        # One object, the only one of its kind that may be read.
        named = f"metadata.name={PAUSE_CONFIG_MAP}"
        self.pauses = Informer(client, r.CONFIG_MAPS, namespace=namespace, field_selector=named, clock=clock, set_aside=self.set_aside)
        self.nodes = make_informer(r.NODES, slim_node)
        self._mark_owners = partial(mark_unknown_owners, known=r.list_owners((*kinds, *POD_SETS)))
        queued = Pod(kinds)
        self.pods = make_informer(r.PODS, lambda pod: self._mark_owners(remove_false_marks(slim_pod(pod), queued)))
        self.daemon_sets = make_informer(r.DAEMON_SETS, slim_daemon_set)
        self._reserves_daemon_sets = reserves_daemon_sets
        self.namespaces = make_informer(r.NAMESPACES)
        self.limit_ranges = make_informer(r.LIMIT_RANGES)
        self.runtime_classes = make_informer(r.RUNTIME_CLASSES)
        self.priority_classes = make_informer(r.PRIORITY_CLASSES)
        self.workload_priority_classes = make_informer(r.WORKLOAD_PRIORITY_CLASSES)
        self.topologies = make_informer(r.TOPOLOGIES)
        self.flavors = make_informer(r.RESOURCE_FLAVORS)
        self.cluster_queues = make_informer(r.CLUSTER_QUEUES)
        self.cohorts = make_informer(r.COHORTS)
        self.admission_checks = make_informer(r.ADMISSION_CHECKS)
        self.provisioning_configs = make_informer(r.PROVISIONING_REQUEST_CONFIGS)
        self.provisioning_requests = make_informer(r.PROVISIONING_REQUESTS)
        self.local_queues = make_informer(r.LOCAL_QUEUES)
        self.pod_groups = make_informer(r.POD_GROUPS)
        self.node_topologies = make_informer(r.NODE_TOPOLOGIES)
        reads_slices = places_groups or bounds_devices
        self.devices = Devices(client, clock, make_informer, reads_slices=reads_slices) if places_groups or counts_devices else None
        self.native = NativeGroups(client, clock, make_informer) if places_groups else None
        self.workloads = make_informer(r.WORKLOADS)
        self.kinds = {r.build_key(kind): kind for kind in kinds}
        self.jobs = {key: make_informer(r.get_resource(kind), with_writers_of(kind.suspend_path)) for key, kind in self.kinds.items()}
        self.related = Related(kinds, make_informer)
        self.definitions = make_informer(r.CUSTOM_RESOURCE_DEFINITIONS, slim_definition)
        # Their pods are queued, not they themselves.
        self.parents = {
            kind.kind: make_informer(r.get_resource(kind), slim_stateful_set if isinstance(kind, StatefulSet) else remove_managed_fields)
            for kind in POD_SETS
        }
        self.volumes = ObservedVolumes(make_informer, self.workloads, self.parents[StatefulSet.kind], read_again)
        self.owning = (*self.jobs.values(), *self.parents.values(), self.pods)  # what workloads are made for
        # Between pods of an AppWrapper's Deployment and the AppWrapper.
        self.between = {resource.kind: make_informer(resource, slim_between) for resource in (r.DEPLOYMENTS, r.REPLICA_SETS)}

    @property
    def stages(self) -> tuple[tuple[Informer, ...], ...]:
        """Returns the informers without which there is no state, in groups: each group is listed once the one before has been. They are
        definitions and configuration with nodes, then pods, then Workloads."""
        configuration = (
            self.pauses,
            self.namespaces,
            self.limit_ranges,
            self.runtime_classes,
            self.volumes.claims,
            self.volumes.volumes,
            self.priority_classes,
            self.workload_priority_classes,
            self.topologies,
            self.flavors,
            self.cluster_queues,
            self.cohorts,
            self.admission_checks,
            self.local_queues,
            self.nodes,
            *((self.daemon_sets,) if self._reserves_daemon_sets else ()),
        )
        return (self.definitions, *configuration), (self.pods,), (self.workloads,)

    @property
    def awaited(self) -> tuple[Informer, ...]:
        """Returns the informers without which there is no state, in the order in which they are first listed."""
        return tuple(informer for stage in self.stages for informer in stage)

    @property
    def optional(self) -> dict[str, Informer]:
        """Returns the informers of resources that a cluster may lack, in a new dict. Jobs and what they refer to have `Kind.group` as a key
        (`Job.batch`), what owns pods has its kind (`StatefulSet`).

        By `plural.group` it has ProvisioningRequests with their configurations, and topogate's PodGroups and NodeTopologies, which an older
        installation lacks. Those of `built_in` are not in it.
        """
        may_lack = (self.provisioning_configs, self.provisioning_requests, self.pod_groups, self.node_topologies)
        others = {str(informer.resource): informer for informer in may_lack}
        return {**self.jobs, **self.parents, **self.between, **self.related.informers, **others}

    @property
    def informers(self) -> tuple[Informer, ...]:
        """Returns all informers, in the order in which they are first listed."""
        return *self.awaited, *self.optional.values(), *(informer for built_in in self.built_in for informer in built_in.informers)

    @property
    def built_in(self) -> tuple[Served, ...]:
        """Returns the groups of APIs that Kubernetes itself has or has not: devices and its own PodGroups. Empty where groups are not
        placed.
        """
        return tuple(built_in for built_in in (self.devices, self.native) if built_in is not None)

    async def wait_for_watches(self, client: Client, clock: Clock, version: str | None = None) -> None:
        """Waits until everything that the previous leader may have written has come by the watches of `awaited`: up to the resource
        `version` at which its work had ended, or where that is not known (None), all that was written before this call.

        A watch may hang for two minutes unnoticed. So each that is behind is opened again and waited for: some seconds where nothing of its
        resource has changed. While the API server cannot be read this is tried once a second. Raises TimeoutError where a watch is
        still behind after `pacing.CATCH_UP_S` seconds (two minutes)."""
        while version is None:
            try:
                version = (await client.list_page(r.WORKLOADS, limit=1)).resource_version
            except KubeError as error:
                logger.warning("what was written before cannot be read yet", extra={"error": str(error)})
                await clock.sleep(1.0)
        watchers = [informer.watcher for informer in self.awaited]
        behind = [(watcher, watcher.opened) for watcher in watchers if is_behind(watcher.version, version)]
        for watcher, _ in behind:
            watcher.refresh(version)
        until = clock.monotonic() + pacing.CATCH_UP_S
        while late := [watcher for watcher, opened in behind if not watcher.has_reached(version, opened)]:
            if clock.monotonic() > until:
                names = ", ".join(sorted(str(watcher.resource) for watcher in late))
                raise TimeoutError(f"the watches of {names} deliver nothing: what was written before this process leads is not known")
            await clock.sleep(pacing.CATCH_UP_LOOK_S)

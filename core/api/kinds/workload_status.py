"""The status of a Workload: its admission, the checks it must pass, what went wrong and what happens next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.api.kinds.assignment_fields import TopologyAssignmentFields
from core.api.kinds.flavor_kind import Tolerations
from core.api.kinds.marks import ATOMIC_LIST, Mark, add_rule, default_on_server, list_map
from core.api.kinds.meta import DNS_LABEL, Conditions, Int32, ObjectName, ResourceList, Time, Wire
from core.api.kinds.quota_fields import CheckName

# The API server's limits on what a status may hold; with them a status fits in one object and CEL's cost is bounded.
MAX_POD_SETS = 18
MAX_UNHEALTHY_NODES = 1000

PodSetName = Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
ClusterName = Annotated[str, Field(max_length=256)]


class PodSetAssignment(Wire):
    """What one pod set was given."""

    name: Annotated[PodSetName, default_on_server("main")] = "main"
    """The pod set."""
    flavors: Mapping[str, ObjectName] = Field(default_factory=dict)
    """The flavor for each resource."""
    resource_usage: ResourceList = Field(default_factory=dict)
    """What all pods of the pod set need together, at the time of admission."""
    count: Annotated[Int32, Field(ge=0)] | None = None
    """How many pods were admitted."""
    topology_assignment: TopologyAssignmentFields | None = None
    """Where the pods go."""
    delayed_topology_request: Literal["Pending", "Ready"] | None = None
    """Pending: the topology assignment follows in a second pass. Ready: it was made in one."""


class AdmissionFields(Wire):
    """The quota that the workload has."""

    cluster_queue: ObjectName
    """The queue that has the quota."""
    pod_set_assignments: Annotated[tuple[PodSetAssignment, ...], Field(max_length=MAX_POD_SETS), list_map("name")]
    """What each pod set was given, in the order of spec.podSets."""


class RequeueState(Wire):
    """When the workload is queued again."""

    count: Annotated[Int32, Field(ge=0)] | None = None
    """How often it was."""
    requeue_at: Time | None = None
    """When it is next."""


class PodSetUpdate(Wire):
    """What an admission check adds to the pods of a pod set."""

    name: PodSetName
    """The pod set."""
    labels: Mapping[str, str] = Field(default_factory=dict)
    """Labels to add."""
    annotations: Mapping[str, str] = Field(default_factory=dict)
    """Annotations to add."""
    node_selector: Mapping[str, str] = Field(default_factory=dict)
    """Node selectors to add."""
    tolerations: Tolerations = ()
    """Tolerations to add."""


class AdmissionCheckState(Wire):
    """How far one admission check is."""

    name: CheckName
    """The check."""
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    """Its state."""
    last_transition_time: Time
    """Since when."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, for people."""
    retry_count: Annotated[Int32, Field(ge=0)] | None = None
    """How often it was tried again."""
    requeue_after_seconds: Annotated[Int32, Field(ge=0)] | None = None
    """How long to wait before the next try."""
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], Field(max_length=MAX_POD_SETS), ATOMIC_LIST] = ()
    """What the check adds to the pods."""


class PodSetRequestFields(Wire):
    """What a pod set that is not admitted would need."""

    name: PodSetName
    """The pod set."""
    resources: ResourceList = Field(default_factory=dict)
    """All its pods' resources together."""


class ReclaimablePods(Wire):
    """Pods that need their quota no more."""

    name: PodSetName
    """The pod set."""
    count: Annotated[Int32, Field(ge=0)]
    """How many of its pods."""


class UnhealthyNode(Wire):
    """A node that failed under the workload and has not been replaced."""

    name: Annotated[str, Field(max_length=253)]
    """The node."""


class Evictions(Wire):
    """How often the workload was evicted for one cause."""

    reason: Annotated[str, Field(max_length=316)]
    """The reason of the Evicted condition."""
    underlying_cause: Annotated[str, Field(max_length=316)]
    """What was behind it; may be empty."""
    count: Annotated[Int32, Field(ge=0)]
    """How often."""


class SchedulingStats(Wire):
    """What the workload went through."""

    evictions: Annotated[tuple[Evictions, ...], Field(max_length=256), list_map("reason", "underlyingCause")] = ()
    """By cause."""


class PreemptionGateState(Wire):
    """Whether a gate of spec.preemptionGates lets the workload preempt."""

    name: Annotated[str, Field(min_length=1, max_length=316)]
    """The gate."""
    position: Literal["Open", "Closed"]
    """Open lets it."""
    last_transition_time: Time
    """Since when."""


class WorkloadStatus(Wire):
    """What the workload was given, and how it fares."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
            "clusterName cannot be changed once it is set",
        ),
        add_rule(
            "!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
            "clusterName and nominatedClusterNames exclude each other",
        ),
    )

    conditions: Conditions = ()
    """QuotaReserved, Admitted, PodsReady, Evicted, Finished and others."""
    admission: AdmissionFields | None = None
    """The quota it has."""
    requeue_state: RequeueState | None = None
    """When it is queued again."""
    reclaimable_pods: Annotated[tuple[ReclaimablePods, ...], Field(max_length=MAX_POD_SETS), list_map("name")] = ()
    """Pods that need their quota no more."""
    admission_checks: Annotated[tuple[AdmissionCheckState, ...], Field(max_length=8), list_map("name")] = ()
    """How far the admission checks are."""
    resource_requests: Annotated[tuple[PodSetRequestFields, ...], Field(max_length=MAX_POD_SETS), list_map("name")] = ()
    """What it would need; empty once it is admitted."""
    accumulated_past_execution_time_seconds: Int32 | None = None
    """How long it was admitted before it was last evicted."""
    scheduling_stats: SchedulingStats | None = None
    """What it went through."""
    nominated_cluster_names: Annotated[tuple[ClusterName, ...], Field(max_length=10), ATOMIC_LIST] = ()
    """Clusters it was offered to."""
    cluster_name: ClusterName | None = None
    """The cluster it runs in."""
    preemption_gates: Annotated[tuple[PreemptionGateState, ...], Field(max_length=8), list_map("name")] = ()
    """Whether it may preempt."""
    unhealthy_nodes: Annotated[tuple[UnhealthyNode, ...], Field(max_length=MAX_UNHEALTHY_NODES), list_map("name")] = ()
    """Nodes that failed under it and are being replaced."""

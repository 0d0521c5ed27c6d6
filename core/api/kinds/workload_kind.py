"""Workload: what a job asks for (spec) and what it was given (status). The unit of admission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from core.api.kinds.crd import AGE, Crd, PrinterColumn
from core.api.kinds.marks import ATOMIC_LIST, Mark, add_rule, default_on_server, list_map
from core.api.kinds.meta import DNS_SUBDOMAIN, OPEN_OBJECT, Int32, KubernetesObject, LevelReference, ObjectName, Wire
from core.api.kinds.workload_status import MAX_POD_SETS, PodSetName, WorkloadStatus

MAX_SLICE_LAYERS = 3

IndexLabel = Annotated[str, Field(max_length=317)]

PodTemplate = Annotated[
    Mapping[str, Any],
    WithJsonSchema({"type": "object", "properties": {"metadata": OPEN_OBJECT, "spec": OPEN_OBJECT}, "required": ["spec"]}),
]
"""A pod template, kept whole and unvalidated: its schema would be 8,000 lines that change with every Kubernetes release and
would prune fields newer than ours. The job that it was taken from, and every pod made of it, is validated by the API server."""


class SliceConstraint(Wire):
    """One layer of nested slices."""

    topology: Annotated[LevelReference, Field(min_length=1)]
    """The level within one domain of which each slice of this layer must be."""
    size: Annotated[Int32, Field(ge=1)]
    """How many pods are in a slice of this layer."""


class PodSetTopologyRequest(Wire):
    """How close to each other the pods must be."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            """!(has(self.required) && has(self.preferred))
               && !((has(self.required) || has(self.preferred)) && has(self.unconstrained) && self.unconstrained)""",
            "at most one of required, preferred and unconstrained can be set",
        ),
        add_rule(
            "!has(self.podSetSliceSize) || has(self.podSetSliceRequiredTopology)",
            "podSetSliceSize needs podSetSliceRequiredTopology",
        ),
        add_rule(
            """!has(self.podsetSliceRequiredTopologyConstraints) || size(self.podsetSliceRequiredTopologyConstraints) == 0
               || (!has(self.podSetSliceRequiredTopology) && !has(self.podSetSliceSize))""",
            "podsetSliceRequiredTopologyConstraints cannot be combined with podSetSliceRequiredTopology or podSetSliceSize",
        ),
    )

    required: LevelReference | None = None
    """The level within one domain of which all pods must be."""
    preferred: LevelReference | None = None
    """The level within one domain of which all pods should be; wider levels are tried in turn."""
    unconstrained: bool | None = None
    """Pods may be anywhere there is capacity, which is checked node by node."""
    pod_index_label: IndexLabel | None = None
    """The pod label that holds a pod's rank."""
    sub_group_index_label: IndexLabel | None = None
    """The pod label that holds the index of a pod's replicated job."""
    sub_group_count: Annotated[Int32, Field(ge=0)] | None = None
    """The number of replicated jobs."""
    pod_set_group_name: Annotated[str, Field(max_length=256)] | None = None
    """Pod sets of the same group are placed together, in one flavor."""
    pod_set_slice_required_topology: LevelReference | None = None
    """The level within one domain of which each slice must be."""
    pod_set_slice_size: Annotated[Int32, Field(ge=1)] | None = None
    """How many pods are in a slice."""
    podset_slice_required_topology_constraints: Annotated[
        tuple[SliceConstraint, ...],
        Field(max_length=MAX_SLICE_LAYERS),
        ATOMIC_LIST,
        add_rule("self.all(a, self.exists_one(b, b.topology == a.topology))", "each layer must name another topology"),
        add_rule(
            "[0, 1].all(i, i + 1 >= size(self) || self[i].size % self[i + 1].size == 0)",
            "the size of each layer must be a multiple of the size of the layer below it",
        ),
    ] = ()
    """Nested slices from the widest layer to the narrowest. (Lower-case podset: the wire contract's spelling.)"""


class PodSet(Wire):
    """Pods of one template."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule("!has(self.minCount) || self.minCount <= self.count", "minCount must not be more than count"),
        add_rule(
            """!has(self.topologyRequest) || !has(self.topologyRequest.podSetSliceSize)
               || self.count == 0 || self.topologyRequest.podSetSliceSize <= self.count""",
            "podSetSliceSize must not be greater than count",
        ),
    )

    name: Annotated[PodSetName, default_on_server("main")] = "main"
    """The name of the pod set within the workload."""
    template: PodTemplate
    """What the pods look like; of the metadata labels and annotations only."""
    count: Annotated[Int32, Field(ge=0), default_on_server(1)] = 1
    """The number of pods."""
    min_count: Annotated[Int32, Field(ge=0)] | None = None
    """The least number of pods the job can work with, 0 if it can do without; partial admission is off if absent."""
    topology_request: PodSetTopologyRequest | None = None
    """How close to each other the pods must be."""


class PriorityClassRef(Wire):
    """Where the priority comes from."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            "self.group != 'scheduling.k8s.io' || self.kind == 'PriorityClass'", "in the group scheduling.k8s.io the kind is PriorityClass"
        ),
        add_rule(
            "self.group != 'kueue.x-k8s.io' || self.kind == 'WorkloadPriorityClass'",
            "in the group kueue.x-k8s.io the kind is WorkloadPriorityClass",
        ),
    )

    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    """The API group of the class."""
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    """The kind of the class."""
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
    """The name of the class."""


class PreemptionGate(Wire):
    """A component that must agree before this workload preempts others."""

    name: Annotated[str, Field(min_length=1, max_length=316)]
    """Its name."""


class WorkloadSpec(Wire):
    """What a job asks for."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule("!has(self.priorityClassRef) || has(self.priority)", "priority must be set where priorityClassRef is"),
    )

    pod_sets: Annotated[tuple[PodSet, ...], Field(min_length=1, max_length=MAX_POD_SETS), list_map("name")]
    """The pods, by template."""
    queue_name: ObjectName | None = None
    """The LocalQueue."""
    priority_class_ref: PriorityClassRef | None = None
    """Where the priority comes from."""
    priority: Int32 | None = None
    """Higher is admitted first."""
    active: Annotated[bool, default_on_server(True)] = True
    """False keeps the workload out of the queue and evicts it if it was admitted."""
    maximum_execution_time_seconds: Annotated[Int32, Field(ge=1)] | None = None
    """How long it may stay admitted before it is deactivated."""
    preemption_gates: Annotated[tuple[PreemptionGate, ...], Field(max_length=8), list_map("name")] = ()
    """The components that must agree before it preempts others."""


def _is_true(subject: str, condition: str) -> str:
    held = f"{subject}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True')"
    return f"(has({subject}.status) && has({subject}.status.conditions) && {held})"


_RESERVED = _is_true("self", "QuotaReserved")
_WAS_RESERVED = _is_true("oldSelf", "QuotaReserved")


class Workload(KubernetesObject):
    """A job as the queue sees it."""

    # Whether anything changed at all is asked first: conditions are read with every write of a status, and that costs the API server
    # more than all else that these rules look at.
    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            f"""!has(self.status) || !has(self.status.admission)
                || size(self.spec.podSets) == size(self.status.admission.podSetAssignments) || !{_RESERVED}""",
            "status.admission must have one podSetAssignment for each of spec.podSets",
        ),
        add_rule(
            f"""!has(oldSelf.spec.queueName) || !has(self.spec.queueName) || self.spec.queueName == oldSelf.spec.queueName
                || !({_RESERVED} && {_WAS_RESERVED})""",
            "queueName cannot be changed while quota is reserved",
        ),
        add_rule(
            f"has(self.spec.priorityClassRef) == has(oldSelf.spec.priorityClassRef) || !{_WAS_RESERVED}",
            "priorityClassRef can be neither set nor removed while quota is reserved",
        ),
        add_rule(
            f"""!has(self.spec.priorityClassRef) || !has(oldSelf.spec.priorityClassRef)
                || (self.spec.priorityClassRef.group == oldSelf.spec.priorityClassRef.group
                    && self.spec.priorityClassRef.kind == oldSelf.spec.priorityClassRef.kind
                    && (self.spec.priorityClassRef.group != 'scheduling.k8s.io'
                        || self.spec.priorityClassRef.name == oldSelf.spec.priorityClassRef.name))
                || !{_WAS_RESERVED}""",
            "while quota is reserved priorityClassRef can only be changed to another WorkloadPriorityClass",
        ),
        add_rule(
            f"""(has(self.spec.maximumExecutionTimeSeconds) ? self.spec.maximumExecutionTimeSeconds : 0)
                == (has(oldSelf.spec.maximumExecutionTimeSeconds) ? oldSelf.spec.maximumExecutionTimeSeconds : 0)
                || !({_is_true("self", "Admitted")} && {_is_true("oldSelf", "Admitted")})""",
            "maximumExecutionTimeSeconds cannot be changed while the workload is admitted",
        ),
    )
    crd: ClassVar[Crd] = Crd(
        "workloads",
        "Namespaced",
        ("kwl", "kueueworkload", "kueueworkloads"),
        has_status=True,
        columns=(
            PrinterColumn("Queue", ".spec.queueName", "string", "The LocalQueue the workload is in"),
            PrinterColumn("Reserved in", ".status.admission.clusterQueue", "string", "The ClusterQueue it has quota of"),
            PrinterColumn("Admitted", ".status.conditions[?(@.type=='Admitted')].status", "string", "Whether it is admitted"),
            PrinterColumn("Finished", ".status.conditions[?(@.type=='Finished')].status", "string", "Whether it has finished"),
            PrinterColumn("Priority", ".spec.priority", "integer", "Workloads of a higher priority are considered first", priority=1),
            PrinterColumn("Reason", ".status.conditions[?(@.type=='QuotaReserved')].reason", "string", "Why it waits"),
            PrinterColumn(
                "Message",
                ".status.conditions[?(@.type=='QuotaReserved')].message",
                "string",
                "What it lacks, and what would help",
                priority=1,
            ),
            AGE,
        ),
    )

    spec: WorkloadSpec
    """What the job asks for."""
    status: WorkloadStatus = Field(default_factory=WorkloadStatus)
    """What it was given."""

"""ClusterQueue, LocalQueue and Cohort: where workloads wait, and for which quota."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.api.kinds.crd import Crd, PrinterColumn
from core.api.kinds.marks import ATOMIC_LIST, IMMUTABLE, SET_LIST, Mark, add_rule, default_on_server, list_map
from core.api.kinds.meta import Conditions, Int32, KubernetesObject, LabelSelector, ObjectName, OpenObject, Wire
from core.api.kinds.quota_fields import (
    CheckName,
    CohortName,
    FairSharingFields,
    FairSharingStatus,
    FlavorUsages,
    ResourceGroups,
    StopPolicy,
)

_PENDING = PrinterColumn("Pending Workloads", ".status.pendingWorkloads", "integer", "Workloads that wait for admission")


class FlavorFungibility(Wire):
    """When to try the next flavor instead of borrowing or preempting in this one."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
            "preference needs TryNextFlavor for both whenCanBorrow and whenCanPreempt",
        ),
    )

    when_can_borrow: Annotated[Literal["MayStopSearch", "TryNextFlavor"], default_on_server("MayStopSearch")] = "MayStopSearch"
    """What to do where the workload fits only by borrowing."""
    when_can_preempt: Annotated[Literal["MayStopSearch", "TryNextFlavor"], default_on_server("TryNextFlavor")] = "TryNextFlavor"
    """What to do where the workload fits only by preemption."""
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which to choose where every flavor needs one of them."""


class BorrowWithinCohort(Wire):
    """Whether a workload that borrows may preempt in other queues of the cohort."""

    policy: Annotated[Literal["Never", "LowerPriority"], default_on_server("Never")] = "Never"
    """The workloads that it may preempt."""
    max_priority_threshold: Int32 | None = None
    """Only workloads of at most this priority are preempted."""


class ClusterQueuePreemption(Wire):
    """Which workloads a pending one may preempt."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) && self.borrowWithinCohort.policy != 'Never')",
            "borrowWithinCohort needs a reclaimWithinCohort other than Never",
        ),
    )

    reclaim_within_cohort: Annotated[Literal["Never", "LowerPriority", "Any"], default_on_server("Never")] = "Never"
    """Whether quota lent to other queues of the cohort is taken back by preemption."""
    borrow_within_cohort: Annotated[BorrowWithinCohort, default_on_server({})] = Field(default_factory=BorrowWithinCohort)
    """Whether a workload that borrows may preempt."""
    within_cluster_queue: Annotated[Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"], default_on_server("Never")] = "Never"
    """The workloads of its own queue that it may preempt."""


class AdmissionCheckRule(Wire):
    """An admission check and the flavors it is for."""

    name: CheckName
    """The AdmissionCheck."""
    on_flavors: Annotated[tuple[ObjectName, ...], Field(max_length=64), SET_LIST] = ()
    """The flavors for which it is performed; all if empty."""


class AdmissionChecksStrategy(Wire):
    """Which admission checks workloads must pass."""

    admission_checks: Annotated[tuple[AdmissionCheckRule, ...], Field(min_length=1, max_length=64), list_map("name")]
    """The checks."""


class AdmissionScope(Wire):
    """Whether admission takes the usage of the past into account."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """How."""


class ClusterQueueSpec(Wire):
    """The quota of a ClusterQueue and how it is given out."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            """has(self.cohortName) || !has(self.resourceGroups)
               || self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))""",
            "borrowingLimit needs a cohortName",
        ),
    )

    resource_groups: ResourceGroups = ()
    """The quota, by groups of resources. A resource and a flavor may each be in one group only."""
    cohort_name: CohortName | None = None
    """The cohort; its members lend each other unused quota."""
    queueing_strategy: Annotated[Literal["StrictFIFO", "BestEffortFIFO"], default_on_server("BestEffortFIFO")] = "BestEffortFIFO"
    """Whether a workload that cannot be admitted holds up those behind it (StrictFIFO) or not."""
    namespace_selector: LabelSelector | None = None
    """The namespaces with workloads that may use this queue: none if absent, all if empty."""
    flavor_fungibility: Annotated[FlavorFungibility, default_on_server({})] = Field(default_factory=FlavorFungibility)
    """When to try the next flavor."""
    preemption: Annotated[ClusterQueuePreemption, default_on_server({})] = Field(default_factory=ClusterQueuePreemption)
    """Which workloads may be preempted."""
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Which admission checks workloads must pass."""
    stop_policy: Annotated[StopPolicy, default_on_server("None")] = "None"
    """Hold admits nothing more; HoldAndDrain also evicts what was admitted."""
    fair_sharing: FairSharingFields | None = None
    """How the queue takes part in fair sharing."""
    admission_scope: AdmissionScope | None = None
    """Whether the usage of the past counts."""
    concurrent_admission_policy: OpenObject | None = None
    """Kueue's policy for admission to several flavors at once. It is stored and has no effect."""


class ClusterQueueStatus(Wire):
    """What is queued and in use."""

    conditions: Conditions = ()
    """Active says whether workloads can be admitted, and if not, why."""
    flavors_reservation: FlavorUsages = ()
    """Quota reserved by workloads, by flavor."""
    flavors_usage: FlavorUsages = ()
    """Quota used by admitted workloads, by flavor."""
    pending_workloads: Int32 = 0
    """Workloads that wait for admission."""
    reserving_workloads: Int32 = 0
    """Workloads that have quota."""
    admitted_workloads: Int32 = 0
    """Workloads that are admitted and have not finished."""
    fair_sharing: FairSharingStatus | None = None
    """The queue's share."""
    pending_workloads_status: OpenObject | None = None
    """What Kueue has written in v1beta1 about the first workloads that wait. topogate does not write it."""
    effective_quotas: OpenObject | None = None
    """What a DynamicQuotaOrchestrator of Kueue gives the queue in place of its nominal quota. It is stored and has no effect."""


class ClusterQueue(KubernetesObject):
    """A pool of quota, by flavor and resource, with the rules by which workloads get it."""

    crd: ClassVar[Crd] = Crd(
        "clusterqueues",
        "Cluster",
        ("cq",),
        has_status=True,
        columns=(
            PrinterColumn("Cohort", ".spec.cohortName", "string", "The cohort the queue belongs to"),
            PrinterColumn("Strategy", ".spec.queueingStrategy", "string", "How workloads are ordered", priority=1),
            _PENDING,
            PrinterColumn("Admitted Workloads", ".status.admittedWorkloads", "integer", "Workloads admitted and not finished", priority=1),
        ),
    )

    spec: ClusterQueueSpec = Field(default_factory=ClusterQueueSpec)
    """The quota."""
    status: ClusterQueueStatus = Field(default_factory=ClusterQueueStatus)
    """What is queued and in use."""


class LocalQueueSpec(Wire):
    """Which ClusterQueue a namespace's workloads go to."""

    cluster_queue: Annotated[ObjectName, IMMUTABLE] | None = None
    """The ClusterQueue."""
    stop_policy: Annotated[StopPolicy, default_on_server("None")] = "None"
    """Hold admits nothing more; HoldAndDrain also evicts what was admitted."""
    fair_sharing: FairSharingFields | None = None
    """How the queue takes part in fair sharing."""


class LocalQueueStatus(Wire):
    """What is queued and in use."""

    conditions: Conditions = ()
    """Active says whether workloads can be admitted, and if not, why."""
    pending_workloads: Int32 = 0
    """Workloads that wait for admission."""
    reserving_workloads: Int32 = 0
    """Workloads that have quota."""
    admitted_workloads: Int32 = 0
    """Workloads that are admitted and have not finished."""
    flavors_reservation: FlavorUsages = ()
    """Quota reserved by workloads, by flavor."""
    flavors_usage: FlavorUsages = ()
    """Quota used by admitted workloads, by flavor."""
    fair_sharing: FairSharingStatus | None = None
    """The queue's share."""
    flavors: Annotated[tuple[OpenObject, ...], Field(max_length=1024), ATOMIC_LIST] = ()
    """What Kueue has written about the flavors of the queue. topogate does not write it."""


class LocalQueue(KubernetesObject):
    """A namespace's door to a ClusterQueue."""

    crd: ClassVar[Crd] = Crd(
        "localqueues",
        "Namespaced",
        ("queue", "queues", "lq"),
        has_status=True,
        columns=(
            PrinterColumn("ClusterQueue", ".spec.clusterQueue", "string", "The ClusterQueue behind this queue"),
            _PENDING,
            PrinterColumn("Admitted Workloads", ".status.admittedWorkloads", "integer", "Workloads admitted and not finished"),
        ),
    )

    spec: LocalQueueSpec = Field(default_factory=LocalQueueSpec)
    """Which ClusterQueue."""
    status: LocalQueueStatus = Field(default_factory=LocalQueueStatus)
    """What is queued and in use."""


class CohortSpec(Wire):
    """A cohort's place in the tree, and quota of its own."""

    parent_name: CohortName | None = None
    """The parent cohort; a root if absent."""
    resource_groups: ResourceGroups = ()
    """Quota that all members may use, on top of their own."""
    fair_sharing: FairSharingFields | None = None
    """How the cohort takes part in fair sharing."""


class CohortStatus(Wire):
    """The cohort's share."""

    fair_sharing: FairSharingStatus | None = None
    """The share."""
    effective_quotas: OpenObject | None = None
    """What a DynamicQuotaOrchestrator of Kueue gives the cohort in place of its nominal quota. It is stored and has no effect."""


class Cohort(KubernetesObject):
    """A group of ClusterQueues, and of cohorts, that lend each other unused quota."""

    crd: ClassVar[Crd] = Crd("cohorts", "Cluster", ("co",), has_status=True)

    spec: CohortSpec = Field(default_factory=CohortSpec)
    """Its place in the tree."""
    status: CohortStatus = Field(default_factory=CohortStatus)
    """Its share."""

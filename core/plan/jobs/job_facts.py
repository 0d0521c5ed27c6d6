"""What is known of one job when its next steps are planned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.jobs.contract import JobKind, Resizable
from core.jobs.prebuilt_label import find_prebuilt_name
from core.names import FIELD_MANAGER
from core.plan.jobs.workload_priority import Classes
from core.plan.steps import api_resources as r
from core.plan.steps.steps import Event
from core.resource import Obj
from core.state.facts import FlavorFacts, PodFacts, WorkloadFacts, build_object_key, find_family


@dataclass(frozen=True)
class ChildJob:
    """An object of a queued kind below a job, as a Job of a JobSet. Pods of an observed one are counted when they are first read."""

    kind: JobKind
    obj: Obj
    has_pods: bool = False
    live_pods: Sequence[PodFacts] = ()


@dataclass(frozen=True)
class PodsOfJob:
    """Pods of a job. Of one that is observed each value is computed when it is first read: a job may have 50,000 pods, and most steps need
    no count of them."""

    has_any: bool = False  # by the status of the job and by what is observed; of a job that creates no more pods
    may_have_run: bool = False  # of a suspended job: pods may run that have not been observed yet
    may_be_unseen: bool = False  # of a job that creates no more pods: some may run that have not been observed yet
    running: Sequence[PodFacts] = ()  # those that are past their gates and not over
    left: Sequence[PodFacts] = ()  # the same without those that end on nodes that are lost
    of_workload: Sequence[PodFacts] = ()  # those that name its Workload and are not over
    unmarked: Sequence[Obj] = ()  # gated pods that name no Workload
    excess: str = ""  # what its controller has made beyond the admission; empty where nothing
    parts: Sequence[ChildJob] = ()
    named: frozenset[str] = frozenset()  # names of Workloads that its pods name


@dataclass(frozen=True, slots=True)
class Holder:
    """The Workload that a job names (label `kueue.x-k8s.io/prebuilt-workload-name`), and what has it already; empty where nothing has."""

    workload: Obj | None
    held_by: str = ""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job. `job` has what it refers to and, of a job that is resized by a part, the counts of that.

    `owned`: all Workloads that it controls, `workload` being that by which it runs or waits. `missing`: what it refers
    to and does not exist. `place`: where the Workload's pods are.
    """

    kind: JobKind
    job: Obj
    now: str
    workload: Obj | None = None
    owned: Sequence[Obj] = ()
    is_queued: bool = True  # it names a queue, and nothing above it does
    missing: str = ""
    facts: WorkloadFacts | None = None
    place: str = ""
    flavors: Mapping[str, FlavorFacts] = field(default_factory=dict)
    classes: Classes = field(default_factory=lambda: Classes({}, {}))
    pods: PodsOfJob = field(default_factory=PodsOfJob)
    named: Holder = field(default_factory=lambda: Holder(None))
    writers: frozenset[str] = frozenset()  # field managers from which `suspend` has its value; empty where that is not known
    is_elastic_on: bool = False
    is_elastic_with_topology: bool = False
    suspensions: int = 0  # within the last minutes
    suspension_wait_s: float = 0.0  # until its turn to be suspended comes again
    pods_left_are_reported: bool = False
    copied_labels: Sequence[str] = ()  # that its Workload gets from it

    @property
    def suspended(self) -> bool:
        """Returns whether the job is suspended, so that it makes no pods."""
        return self.kind.is_suspended(self.job)

    @property
    def started(self) -> bool:
        """Returns whether a template of the job carries the workload annotation that a start puts there, whether it is suspended again or
        not."""
        return self.kind.is_started(self.job)

    @property
    def prebuilt(self) -> str | None:
        """Returns the name of the Workload that the job names by label or annotation, there or not; None where it names none."""
        return find_prebuilt_name(self.job)

    @property
    def labels(self) -> Mapping[str, str]:
        """Returns the labels of the job; empty where it has none."""
        labels: Mapping[str, str] = self.job["metadata"].get("labels") or {}
        return labels

    @property
    def is_going(self) -> bool:
        """Returns whether the job is being deleted."""
        return bool(self.job["metadata"].get("deletionTimestamp"))

    @property
    def key(self) -> str:
        """Returns `namespace/name` of the job."""
        return build_object_key(self.job)

    @property
    def family(self) -> str:
        """Returns the key (`namespace/name`) by which the pods of its Workload are found, see `find_family`; empty without a Workload."""
        return find_family(self.workload) if self.workload is not None else ""

    @property
    def is_resizable(self) -> bool:
        """Returns whether the job is resized while it runs: it is elastic, of a kind that can be, names no Workload, and the feature is on.
        Its pods wait behind the topology gate until they are admitted, on any flavor."""
        return self.is_elastic_on and isinstance(self.kind, Resizable) and self.kind.is_resizable(self.job) and self.prebuilt is None

    @property
    def is_suspended_by_another(self) -> bool:
        """Returns whether the field managers that wrote the value of `suspend` are known and topogate is not among them (`writers`).
        Whether the job is suspended, or was started, is not looked at. Every stop is written under topogate's name, and only on the job as
        it was seen. So a suspension that was there before is not taken over."""
        return bool(self.writers) and FIELD_MANAGER not in self.writers

    def build_event(self, reason: str, message: str, *, warning: bool = False) -> Event:
        """Returns an event on the job, with type Warning if `warning`, else Normal; emitting it is left to the plan's executor."""
        return Event(r.get_resource(self.kind), self.job, reason, message, warning)

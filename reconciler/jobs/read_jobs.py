"""What is known of a job when its next steps are planned, read from what is observed."""

from collections.abc import Sequence
from functools import cached_property

from core.jobs.contract import JobKind, ResizedByPart
from core.jobs.prebuilt_label import find_prebuilt_name
from core.names import QUEUE_NAME_LABEL, WORKLOAD_ANNOTATION
from core.plan.jobs.job_facts import ChildJob, Holder, JobFacts, PodsOfJob
from core.plan.jobs.resize import is_slice
from core.plan.jobs.workload_priority import Classes
from core.plan.jobs.workload_slices import find_present
from core.plan.pods.pod_units import find_workload_unit
from core.plan.steps import api_resources as r
from core.plan.workloads.desired_workload import build_workload_name
from core.resource import Obj
from core.state.facts import PodFacts, build_object_key, find_controller, find_family
from core.state.owners import is_orphaned
from core.state.whereabouts import describe_place
from reconciler.jobs.child_objects import find_excess_of_parts, find_parts
from reconciler.observe.indexes import find_owned, show_as_owner
from reconciler.observe.observed import Observed
from reconciler.observe.related import get_related_resource
from reconciler.observe.slim import list_writers


def read_job(observed: Observed, kind: JobKind, job: Obj, *, is_elastic_on: bool, is_elastic_with_topology: bool) -> JobFacts:
    """Returns what is observed of a job, its Workload and its pods; what it has of pods is looked up when it is first read. Not
    filled in are the time and what the process remembers: suspensions, reported pods. `is_elastic_on` and `is_elastic_with_topology` are
    the feature gates of that name."""
    job, missing = observed.related.expand(kind, job)
    bare = JobFacts(kind, job, "", is_elastic_on=is_elastic_on, is_elastic_with_topology=is_elastic_with_topology)
    job = _read_size(observed, bare)
    owned = find_owned(observed.workloads.store, job)
    workload, key = _find_workload(kind, job, owned), show_as_owner(job)
    facts = observed.state.workloads.facts.get(build_object_key(workload)) if workload is not None else None
    return JobFacts(
        kind,
        job,
        "",
        workload,
        owned,
        QUEUE_NAME_LABEL in (job["metadata"].get("labels") or {}) and observed.owners.find_queued_root(key) == key,
        missing or "",
        facts,
        describe_place(observed.state, facts.admission) if facts is not None and facts.admission is not None else "",
        observed.state.flavors,
        read_classes(observed),
        _PodsOfJob(observed, kind, job, workload),
        _read_holder(observed, job) if workload is None else Holder(None),
        frozenset(list_writers(job)),
        is_elastic_on,
        is_elastic_with_topology,
        copied_labels=observed.copied_labels,
    )


def read_classes(observed: Observed) -> Classes:
    """Returns copies of the present priority classes, by name, of both kinds: a plan may be made in a thread, while others come."""
    return Classes(dict(observed.workload_priority_classes.store.objects), dict(observed.priority_classes.store.objects))


def may_have_unseen_pods(observed: Observed, workload: Obj, version: str, generation: object = None) -> bool:
    """Returns whether pods of a workload that were created before a resource version may run without having been observed. False where
    nothing is admitted, and where all its pod sets have a topology assignment: the gate holds their pods back. Otherwise True until the
    watch of pods has passed `version`, within seconds: call it again then. With another `generation` of the job, which may have created
    pods in between, the answer is determined again."""
    facts = observed.state.workloads.facts.get(build_object_key(workload))
    given = facts.admission.pod_sets if facts is not None and facts.admission is not None else ()
    if all(pod_set.assignment is not None for pod_set in given):
        return False
    return not observed.pods_progress.has_passed((workload["metadata"]["uid"], generation), version)


def _read_size(observed: Observed, f: JobFacts) -> Obj:
    """A running job with the pod counts of the object by which it is resized, if there is one."""
    kind, job = f.kind, f.job
    if f.suspended or not f.is_resizable or not isinstance(kind, ResizedByPart):  # a Protocol is asked last: that takes 20 microseconds
        return job
    informer = observed.jobs.get(r.show_kind(get_related_resource(kind.part)))
    part = informer.store.get(f"{job['metadata']['namespace']}/{kind.find_part(job)}") if informer is not None else None
    owner = find_controller(part) if part is not None else None
    is_its_own = owner is not None and owner["uid"] == job["metadata"]["uid"]
    return kind.with_counts_of(job, part) if part is not None and is_its_own else job


def _find_workload(kind: JobKind, job: Obj, owned: Sequence[Obj]) -> Obj | None:
    """Of several Workloads of one elastic job that by which its pods run."""
    present = find_present(owned) if any(map(is_slice, owned)) else None
    if present is not None:
        return dict(present)
    name = find_prebuilt_name(job) or build_workload_name(kind, job)
    return next((workload for workload in owned if workload["metadata"]["name"] == name), owned[0] if owned else None)


class _PodsOfJob(PodsOfJob):
    """Reads each value from what is observed when it is first asked for."""

    def __init__(self, observed: Observed, kind: JobKind, job: Obj, workload: Obj | None) -> None:
        self._observed, self._kind, self._job, self._workload = observed, kind, job, workload
        self._family = find_family(workload) if workload is not None else ""
        metadata = job["metadata"]
        self._version, self._generation = metadata["resourceVersion"], metadata.get("generation")

    @cached_property
    def has_any(self) -> bool:
        return _has_pods(self._observed, self._kind, self._job)

    @cached_property
    def may_have_run(self) -> bool:
        of = self._job["metadata"]["uid"], self._generation
        return self._generation != 1 and not self._observed.pods_progress.has_passed(of, self._version)

    @cached_property
    def may_be_unseen(self) -> bool:
        return self._workload is not None and may_have_unseen_pods(self._observed, self._workload, self._version, self._generation)

    @cached_property
    def running(self) -> Sequence[PodFacts]:
        return self._observed.find_running_pods(self._job)

    @cached_property
    def left(self) -> Sequence[PodFacts]:
        return [pod for pod in self.running if not (pod.terminating and self._observed.is_lost_node(pod.node))]

    @cached_property
    def of_workload(self) -> Sequence[PodFacts]:
        return self._observed.list_live_pods(self._family)

    @cached_property
    def unmarked(self) -> Sequence[Obj]:
        return self._observed.find_unmarked_pods(self._job)

    @cached_property
    def excess(self) -> str:
        return find_excess_of_parts(self._observed, self._job, self._workload) if self._workload is not None else ""

    @cached_property
    def parts(self) -> Sequence[ChildJob]:
        return [_ChildJob(self._observed, kind, part) for kind, part in find_parts(self._observed, self._job)]

    @cached_property
    def named(self) -> frozenset[str]:
        pods = self._observed.pods.store.list_by_index("workload", self._family)
        return frozenset(str(pod["metadata"]["annotations"][WORKLOAD_ANNOTATION]) for pod in pods)


class _ChildJob(ChildJob):
    """Likewise."""

    _observed: Observed

    def __init__(self, observed: Observed, kind: JobKind, obj: Obj) -> None:
        vars(self).update(kind=kind, obj=obj, _observed=observed)

    @cached_property
    def has_pods(self) -> bool:
        return _has_pods(self._observed, self.kind, self.obj)

    @cached_property
    def live_pods(self) -> Sequence[PodFacts]:
        return self._observed.find_live_pods(self.obj)


def _has_pods(observed: Observed, kind: JobKind, job: Obj) -> bool:
    """Whether a stopped job still has pods: by its own status, and by those that are seen."""
    live, left_alone = observed.count_live_pods(job)
    if live or kind.count_active_pods(job, left_alone) == 0:
        return live > 0
    # The status of a part that a finalizer keeps from being deleted is never written again, and the job's status counts it.
    parts = find_parts(observed, job)
    staying = [(of_part, part) for of_part, part in parts if not part["metadata"].get("deletionTimestamp")]
    return len(staying) == len(parts) or any(of_part.count_active_pods(part) > 0 for of_part, part in staying)


def _read_holder(observed: Observed, job: Obj) -> Holder:
    """The Workload that a job names, and what has it. Pods may run under one that has no owner."""
    name = find_prebuilt_name(job)
    workload = observed.workloads.store.get(f"{job['metadata']['namespace']}/{name}") if name is not None else None
    if workload is None:
        return Holder(None)
    owner, unit = find_controller(workload), find_workload_unit(workload)
    if owner is not None:
        return Holder(workload, f"{owner['kind']} {owner['name']}")
    if unit is not None:
        return Holder(workload, f"the pod group {unit.name}")
    if is_orphaned(workload):
        return Holder(workload, "a job that was deleted without its pods")
    is_used = any(not pod.gated for pod in observed.list_live_pods(find_family(workload)))
    return Holder(workload, "pods that run under it" if is_used else "")

"""trainer.kubeflow.org/v1alpha1 TrainJob."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Finish, Json, Reference, RelatedKind
from core.jobs.kinds.job import count_pods_at_once
from core.jobs.schema_check import BOOLEAN, INTEGER, POD_TEMPLATE, TEXT, Fields, ListOf
from core.jobs.template_parts import compute_added_parts, copy_object, get_parts, with_parts
from core.jobs.templated import MOST_ROLES, Role, TemplatedKind, find_own_gates, get, parse_integer
from core.jobs.templates import is_started
from core.names import JOB_COMPLETION_INDEX_LABEL, JOBSET_JOB_INDEX_LABEL, QUEUE_NAME_LABEL

_GROUP, _VERSION = "trainer.kubeflow.org", "v1alpha1"
CLUSTER_RUNTIME = RelatedKind("ClusterTrainingRuntime", _GROUP, _VERSION, "clustertrainingruntimes", namespaced=False)
RUNTIME = RelatedKind("TrainingRuntime", _GROUP, _VERSION, "trainingruntimes", namespaced=True)
MANAGER = "kueue.x-k8s.io/manager"  # of the patch that is ours
_EXPANDED = "topogate.dev/runtime"  # where an expanded job has its runtime
_STEP_LABEL = f"{_GROUP}/trainjob-ancestor-step"
_NODE = "node"  # the job, and the container, that trains
MAX_PATCHES = 256  # of replicated jobs: each is merged into a template
_REPLICATED_JOB = Fields({"name": TEXT, "template": Fields({"spec": Fields({"template": POD_TEMPLATE})})})
_PATCH = Fields(
    {
        "manager": TEXT,
        "trainingRuntimeSpec": Fields({"template": Fields({"spec": Fields({"replicatedJobs": ListOf(_REPLICATED_JOB)})})}),
    }
)


class TrainJob(TemplatedKind):
    """One pod set per replicated job of its runtime's JobSet, with the patches of the TrainJob on it.

    What a start adds is written as a runtime patch of our own (Trainer 2.2 or newer) and reaches the pods through a JobSet,
    which never takes a gate away again, so the gate is added only at the start.
    """

    kind, group, version, plural = "TrainJob", _GROUP, _VERSION, "trainjobs"
    spec_shape = Fields(
        {
            "suspend": BOOLEAN,
            "runtimeRef": Fields({"name": TEXT, "kind": TEXT, "apiGroup": TEXT}),
            "trainer": Fields({"numNodes": INTEGER, "resourcesPerNode": Fields()}),
            "runtimePatches": ListOf(_PATCH),
        }
    )
    gates_at_creation = False
    related = (CLUSTER_RUNTIME, RUNTIME)

    def find_reference(self, job: Json) -> Reference | None:
        """Returns the runtime that the TrainJob names, by default a ClusterTrainingRuntime; None where it has no name or another kind. The
        API group is not looked at."""
        named = get(job, ("spec", "runtimeRef")) or {}
        kind = named.get("kind") or CLUSTER_RUNTIME.kind
        found = next((related for related in self.related if related.kind == kind), None)
        return Reference(found, named["name"]) if found is not None and named.get("name") else None

    def expand(self, job: Json, found: Json) -> dict[str, Any]:
        """Returns a shallow copy of the TrainJob that also holds its runtime, which is never written; see `Referring.expand`."""
        return {**job, _EXPANDED: found}

    def count_own_pods(self, job: Json) -> dict[str, int]:
        """Returns the pods of the replicated job that trains, by its name as the pod set. Empty where the TrainJob sets no `numNodes`, or
        its runtime is not there. The runtime defines its number of replicas, and Trainer allows one only."""
        if get(job, ("spec", "trainer", "numNodes")) is None:
            return {}
        runtime = (job.get(_EXPANDED) or {}).get("spec") or {}
        return {
            replicated.get("name") or "": parse_integer(replicated.get("replicas"), 1) * nodes
            for replicated in _list_replicated_jobs(runtime)
            if (nodes := _count_nodes(job, runtime, replicated)) is not None
        }

    def list_roles(self, job: Json) -> list[Role]:
        """Returns one role per replicated job of its runtime in their order, at most `MOST_ROLES`; none without the runtime. Its template
        has the patches of the TrainJob on it, topogate's own included."""
        runtime = (job.get(_EXPANDED) or {}).get("spec") or {}
        return [self._build_role(job, runtime, replicated) for replicated in _list_replicated_jobs(runtime)]

    def _build_role(self, job: Json, runtime: Json, replicated: Json) -> Role:
        name, spec = replicated.get("name") or "", dict(get(replicated, ("template", "spec")) or {})
        nodes = _count_nodes(job, runtime, replicated)
        if nodes is not None:
            spec |= {"parallelism": nodes, "completions": nodes}
        replicas, pods = parse_integer(replicated.get("replicas"), 1), count_pods_at_once(spec)
        return Role(
            name,
            replicas * pods,
            (),
            f"job[{name}]",
            with_parts(_build_base(job, replicated), _build_patched(job, name, ours=True)),
            pod_index_label=JOB_COMPLETION_INDEX_LABEL,
            sub_group_index_label=JOBSET_JOB_INDEX_LABEL,
            sub_group_count=replicas,
            default_slice_size=pods,
            metadata_shown="",
        )

    def list_annotation_paths(self, job: Json) -> list[str]:
        """Returns one text: where its runtime has the annotations of its pods."""
        return ["spec.template.spec.replicatedJobs[i].template.spec.template.metadata.annotations of its runtime"]

    def put_template(self, job: dict[str, Any], role: Role, template: Json) -> None:
        """Writes what `template` has beyond the runtime's template with the patches of others into topogate's own runtime patch, in place.
        Other roles' parts of that stay; without any the patch is removed."""
        runtime = (job.get(_EXPANDED) or {}).get("spec") or {}
        replicated = next(each for each in _list_replicated_jobs(runtime) if each.get("name") == role.pod_set)
        added = compute_added_parts(_build_base(job, replicated), template)
        patches = [patch for patch in job["spec"].get("runtimePatches") or () if patch.get("manager") != MANAGER]
        ours = [entry for entry in _list_patches(job, ours=True) if entry.get("name") != role.pod_set]
        if added:
            ours.append({"name": role.pod_set, "template": {"spec": {"template": with_parts({}, added)}}})
        if ours:
            patches.append({"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": ours}}}})
        if patches:
            job["spec"]["runtimePatches"] = patches
        else:
            job["spec"].pop("runtimePatches", None)

    def default_change(self, old: Json, new: Json) -> dict[str, Any]:
        """Returns a copy of `new` as it should be stored. It gets topogate's patches of `old` back, if the job has a queue, runs before and
        after, and `new` has none. The manager of a patch shows that it is topogate's, as the runtime is not at hand."""
        changed = copy_object(new)
        labels = (new.get("metadata") or {}).get("labels") or {}
        ours = [patch for patch in get(old, ("spec", "runtimePatches")) or () if patch.get("manager") == MANAGER]
        runs = not self.is_suspended(old) and not self.is_suspended(new)
        if QUEUE_NAME_LABEL in labels and ours and runs and not _list_patches(new, ours=True):
            changed["spec"]["runtimePatches"] = [*(get(new, ("spec", "runtimePatches")) or ()), *ours]
        return changed

    def is_started(self, job: Json) -> bool:
        """Returns whether topogate's own patch carries the workload annotation; the present runtime, which may be another one than at its
        start, is not looked at."""
        templates = (get(entry, ("template", "spec", "template")) or {} for entry in _list_patches(job, ours=True))
        return any(is_started(template) for template in templates)

    def restore(self, job: Json, pod_sets: Sequence[Json] | None) -> dict[str, Any]:
        """Returns a copy of the stopped TrainJob without topogate's patch; `pod_sets` are not used. What else the Workload's templates had
        is in the runtime, or was when it was admitted."""
        changed = copy_object(job)
        patches = [patch for patch in get(job, ("spec", "runtimePatches")) or () if patch.get("manager") != MANAGER]
        if patches:
            changed["spec"]["runtimePatches"] = patches
        else:
            changed["spec"].pop("runtimePatches", None)
        return changed

    def validate_kind(self, job: Json) -> Iterator[FieldError]:
        """Yields errors of the reference to a runtime, of too many patches, and of templates that carry the topology gate by themselves."""
        named = get(job, ("spec", "runtimeRef")) or {}
        if self.find_reference(job) is None:
            kinds = " or ".join(related.kind for related in self.related)
            shown = f"{named.get('kind') or ''} {named.get('name') or ''}".strip()
            yield FieldError(ErrorType.INVALID, "spec.runtimeRef", shown, f"the name of a {kinds} is expected")
        counts = Counter[bool]()
        for patch in get(job, ("spec", "runtimePatches")) or ():
            counts[patch.get("manager") == MANAGER] += len(_list_entries(patch))
        patches = max(counts.values(), default=0)  # a start adds ours to as many as a user may have
        if patches > MAX_PATCHES:
            accepted = f"at most {MAX_PATCHES} patches of replicated jobs are expected"
            yield FieldError(ErrorType.TOO_MANY, "spec.runtimePatches", patches, accepted)
        bases = {
            each.get("name") or "": _build_base(job, each) for each in _list_replicated_jobs((job.get(_EXPANDED) or {}).get("spec") or {})
        }
        yield from find_own_gates([replace(role, template=bases[role.pod_set]) for role in self.list_roles(job)])

    def count_active_pods(self, job: Json, dropped: int = 0) -> int:
        """Returns the number of Jobs, not of pods, that its status counts as active; see `JobKind.count_active_pods`."""
        return sum(int(status.get("active") or 0) for status in (job.get("status") or {}).get("jobsStatus") or ())

    def are_pods_ready(self, job: Json) -> bool | None:
        """Returns whether all of its Jobs are ready or have succeeded; see `TemplatedKind.are_jobs_ready`. None where its status has no
        numbers, or its runtime is not there."""
        return self.are_jobs_ready(self.list_roles(job), (job.get("status") or {}).get("jobsStatus") or ())

    def count_reclaimable_pods(self, job: Json) -> dict[str, int]:
        """Returns, per pod set, all pods of Jobs that have succeeded; pod sets without such a Job are absent."""
        return self.count_done_jobs(self.list_roles(job), (job.get("status") or {}).get("jobsStatus") or ())

    def find_finish(self, job: Json) -> Finish | None:
        """Returns how the TrainJob ended by its conditions Complete and Failed; None while neither is True."""
        return self.finish_by_condition(job, "Complete", "Failed")


def _list_replicated_jobs(runtime: Json) -> list[Json]:
    return list((get(runtime, ("template", "spec", "replicatedJobs")) or ())[:MOST_ROLES])


def _count_nodes(job: Json, runtime: Json, replicated: Json) -> int | None:
    """Returns the pods of the replicated job that trains: as the TrainJob sets them, else the policy of its runtime."""
    policy = runtime.get("mlPolicy") or {}
    trains = get(replicated, ("template", "metadata", "labels", _STEP_LABEL)) == "trainer"
    launcher_is_node = get(policy, ("mpi", "runLauncherAsNode"))
    nodes = get(job, ("spec", "trainer", "numNodes"))
    nodes = policy.get("numNodes") if nodes is None else nodes
    if nodes is None:
        return None
    if launcher_is_node:
        return int(nodes) - 1 if replicated.get("name") == _NODE else None
    return int(nodes) if trains else None


def _build_base(job: Json, replicated: Json) -> dict[str, Any]:
    """A replicated job's template without what a start adds."""
    template = copy_object(get(replicated, ("template", "spec", "template")) or {})
    resources = get(job, ("spec", "trainer", "resourcesPerNode"))
    for container in (template.get("spec") or {}).get("containers") or () if resources else ():
        if container.get("name") == _NODE:
            container["resources"] = resources
    return with_parts(template, _build_patched(job, replicated.get("name") or "", ours=False))


def _list_patches(job: Json, *, ours: bool) -> list[Json]:
    """Returns the patches of replicated jobs, ours or those of others: at most as many as are accepted."""
    entries = (
        entry
        for patch in get(job, ("spec", "runtimePatches")) or ()
        if (patch.get("manager") == MANAGER) == ours
        for entry in _list_entries(patch)
    )
    return list(islice(entries, MAX_PATCHES))


def _list_entries(patch: Json) -> Sequence[Json]:
    return get(patch, ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")) or ()


def _build_patched(job: Json, name: str, *, ours: bool) -> dict[str, Any]:
    """Parts that patches give the template of one replicated job."""
    template: dict[str, Any] = {}
    for entry in _list_patches(job, ours=ours):
        if entry.get("name") == name:
            template = with_parts(template, get_parts(get(entry, ("template", "spec", "template")) or {}))
    return get_parts(template)

"""jobset.x-k8s.io/v1alpha2 JobSet."""

from typing import Any

from core.jobs.annotations import with_default_slice_size
from core.jobs.contract import Finish, Gang, Json
from core.jobs.kinds.job import count_pods_at_once
from core.jobs.schema_check import BOOLEAN, INTEGER, POD_TEMPLATE, TEXT, Fields, ListOf
from core.jobs.templated import MOST_ROLES, Role, TemplatedKind, get, parse_integer, put
from core.names import JOB_COMPLETION_INDEX_LABEL, JOBSET_JOB_INDEX_LABEL, QUEUE_NAME_LABEL

_JOB = Fields({"spec": Fields({"parallelism": INTEGER, "completions": INTEGER, "template": POD_TEMPLATE})})
_REPLICATED_JOB = Fields({"name": TEXT, "replicas": INTEGER, "template": _JOB})


class JobSet(TemplatedKind):
    """One pod set per replicated job; each of its Jobs is a sub-group, ranked by completion index within.

    JobSet creates its child Jobs while it is suspended and, when resumed, merges gates into them but takes none away
    (jobset#1294), so the gate is added only at the start.
    """

    kind, group, version, plural = "JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets"
    spec_shape = Fields({"suspend": BOOLEAN, "replicatedJobs": ListOf(_REPLICATED_JOB)})
    gates_at_creation = False

    def list_roles(self, job: Json) -> list[Role]:
        """Returns one role per replicated job in their order, at most `MOST_ROLES`. Its count is that of replicas (1 by default) times the
        pods that each Job runs at once, which are the slice size by default."""
        roles = []
        for i, replicated in enumerate(((job.get("spec") or {}).get("replicatedJobs") or ())[:MOST_ROLES]):
            spec = (replicated.get("template") or {}).get("spec") or {}
            replicas, pods = parse_integer(replicated.get("replicas"), 1), count_pods_at_once(spec)
            roles.append(
                Role(
                    replicated.get("name") or "",
                    replicas * pods,
                    ("spec", "replicatedJobs", i, "template", "spec", "template"),
                    f"spec.replicatedJobs[{i}].template.spec.template",
                    spec.get("template") or {},
                    pod_index_label=JOB_COMPLETION_INDEX_LABEL,
                    sub_group_index_label=JOBSET_JOB_INDEX_LABEL,
                    sub_group_count=replicas,
                    default_slice_size=pods,
                )
            )
        return roles

    def default_more(self, job: dict[str, Any]) -> dict[str, Any]:
        """Returns the given JobSet with the default size of slices set in place: the pods that one Job runs at once; see
        `with_default_slice_size`."""
        for role in self.list_roles(job):
            assert role.default_slice_size is not None
            notes = with_default_slice_size(role.annotations, role.default_slice_size)
            if notes != role.annotations:
                put(job, (*role.path, "metadata", "annotations"), notes)
        return job

    def default_change(self, old: Json, new: Json) -> dict[str, Any]:
        """Returns a copy of `new` as it should be stored. What topogate added to the templates and an applied manifest lacks is put back
        (`TemplatedKind.default_change`). Default slice sizes follow `parallelism` if the JobSet has a queue and is suspended before and
        after. Templates of one that runs are immutable."""
        changed = super().default_change(old, new)
        is_queued = QUEUE_NAME_LABEL in ((new.get("metadata") or {}).get("labels") or {})
        return self.default_more(changed) if is_queued and self.is_suspended(old) and self.is_suspended(new) else changed

    def find_gang(self, job: Json) -> Gang:
        """Returns one gang of all pods of replicated jobs without `dependsOn`; with the startup policy InOrder, only of the first of them.
        Pods of Jobs that have succeeded do not count, as they may be gone."""
        done = self.count_reclaimable_pods(job)
        in_order = get(job, ("spec", "startupPolicy", "startupPolicyOrder")) == "InOrder"
        replicated = get(job, ("spec", "replicatedJobs")) or ()
        roles = zip(self.list_roles(job), replicated, strict=False)  # of too many, which are refused, only the first have one
        counts = [role.count - done.get(role.pod_set, 0) for role, one in roles if not one.get("dependsOn")]
        return Gang(sum(counts[:1] if in_order else counts))

    def count_active_pods(self, job: Json, dropped: int = 0) -> int:
        """Returns the number of Jobs, not of pods, that its status counts as active; see `JobKind.count_active_pods`."""
        return sum(int(status.get("active") or 0) for status in (job.get("status") or {}).get("replicatedJobsStatus") or ())

    def are_pods_ready(self, job: Json) -> bool | None:
        """Returns whether, for each replicated job, as many Jobs are ready or have succeeded as it has replicas; None where its status
        has no numbers, or it has no replicated job."""
        return self.are_jobs_ready(self.list_roles(job), (job.get("status") or {}).get("replicatedJobsStatus") or ())

    def count_reclaimable_pods(self, job: Json) -> dict[str, int]:
        """Returns, per pod set, all pods of Jobs that have succeeded; pod sets without such a Job are absent."""
        return self.count_done_jobs(self.list_roles(job), (job.get("status") or {}).get("replicatedJobsStatus") or ())

    def find_finish(self, job: Json) -> Finish | None:
        """Returns how the JobSet ended by its conditions Completed and Failed; None while neither is True."""
        return self.finish_by_condition(job, "Completed", "Failed")

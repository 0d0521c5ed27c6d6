"""ray.io/v1 RayCluster."""

from collections.abc import Iterator

from core.jobs.contract import FieldError, Finish, Json
from core.jobs.elastic_annotation import is_elastic, validate_changed_elastic
from core.jobs.kinds.ray import RAY_CLUSTER_SPEC, are_ray_pods_ready, check_changed_ray, list_ray_roles, validate_ray
from core.jobs.templated import Role, TemplatedKind


class RayCluster(TemplatedKind):
    """Pod sets `head` and one per worker group. It runs until it is deleted or has failed."""

    kind, group, version, plural = "RayCluster", "ray.io", "v1", "rayclusters"
    spec_shape = RAY_CLUSTER_SPEC

    def list_roles(self, job: Json) -> list[Role]:
        """Returns `head`, of one pod, and one role per worker group, named after it in lower case, with all its pods; see
        `list_ray_roles`."""
        return list_ray_roles(job, ("spec",))

    def validate_kind(self, job: Json) -> Iterator[FieldError]:
        """Yields errors of ELASTIC_JOB, of an autoscaler without it or that asks for too much, and of worker groups without a name; see
        `validate_ray`."""
        return validate_ray(job, ("spec",))

    def validate_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        """Yields an error where the elastic annotation changes or, while an elastic RayCluster runs, the autoscaler."""
        if self.is_suspended(old) or self.is_suspended(new):
            return validate_changed_elastic(old, new)
        return check_changed_ray(old, new, ("spec",))

    def is_resizable(self, job: Json) -> bool:
        """Returns whether the annotation ELASTIC_JOB of the RayCluster is exactly `true`."""
        return is_elastic(job)

    def are_pods_ready(self, job: Json) -> bool | None:
        """Returns whether head and workers are ready by its status; None where that has no state or no count of workers. See
        `are_ray_pods_ready`."""
        return are_ray_pods_ready(job, ("spec",), ("status",))

    def find_finish(self, job: Json) -> Finish | None:
        """Returns a failure, with its reason or a default text, where the state is `failed`; else None, as it never succeeds."""
        status = job.get("status") or {}
        return Finish(False, status.get("reason") or "RayCluster failed") if status.get("state") == "failed" else None

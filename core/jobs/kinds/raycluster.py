"""ray.io/v1 RayCluster."""

from collections.abc import Iterator

from core.jobs.contract import FieldError, Finish, Json
from core.jobs.elastic_annotation import is_elastic, rules_of_changed_elastic
from core.jobs.kinds.ray import RAY_CLUSTER_SPEC, ray_pods_ready, ray_roles, ray_rules
from core.jobs.templated import Role, TemplatedKind


class RayCluster(TemplatedKind):
    """Pod sets `head` and one per worker group. It runs until it is deleted or has failed."""

    kind, group, version, plural = "RayCluster", "ray.io", "v1", "rayclusters"
    spec_shape = RAY_CLUSTER_SPEC

    def roles(self, job: Json) -> list[Role]:
        return ray_roles(job, ("spec",))

    def rules_of_kind(self, job: Json) -> Iterator[FieldError]:
        return ray_rules(job, ("spec",))

    def rules_of_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        return rules_of_changed_elastic(old, new)

    def is_resizable(self, job: Json) -> bool:
        return is_elastic(job)

    def pods_ready(self, job: Json) -> bool | None:
        return ray_pods_ready(job, ("spec",), ("status",))

    def finished(self, job: Json) -> Finish | None:
        status = job.get("status") or {}
        return Finish(False, status.get("reason") or "RayCluster failed") if status.get("state") == "failed" else None

"""ray.io/v1 RayService."""

from collections.abc import Iterator

from core.jobs.contract import FieldError, Finish, Json
from core.jobs.ray import RAY_CLUSTER_SPEC, ray_pods_ready, ray_roles, ray_rules
from core.jobs.shape import Fields
from core.jobs.templated import Path, Role, TemplatedKind

_CLUSTER: Path = ("spec", "rayClusterConfig")


class RayService(TemplatedKind):
    """Pod sets of its Ray cluster, through which it is suspended, too. It serves until it is deleted.

    While KubeRay upgrades one without interruption, the pods of its second cluster stay gated: they are not admitted.
    """

    kind, group, version, plural = "RayService", "ray.io", "v1", "rayservices"
    spec_shape = Fields({"rayClusterConfig": RAY_CLUSTER_SPEC})
    suspend_path = (*_CLUSTER, "suspend")

    def roles(self, job: Json) -> list[Role]:
        return ray_roles(job, _CLUSTER)

    def rules_of_kind(self, job: Json) -> Iterator[FieldError]:
        return ray_rules(job, _CLUSTER)

    def pods_ready(self, job: Json) -> bool | None:
        return ray_pods_ready(job, _CLUSTER, ("status", "activeServiceStatus", "rayClusterStatus"))

    def finished(self, job: Json) -> Finish | None:
        return None

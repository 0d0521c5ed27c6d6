"""ray.io/v1 RayService."""

from collections.abc import Iterator
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Finish, Json
from core.jobs.elastic_annotation import is_elastic, validate_changed_elastic
from core.jobs.kinds.ray import (
    CLUSTER,
    RAY_CLUSTER_SPEC,
    are_ray_pods_ready,
    check_changed_ray,
    list_ray_roles,
    validate_ray,
    with_groups_of,
)
from core.jobs.schema_check import TEXT, Fields
from core.jobs.templated import Path, Role, TemplatedKind, get

_CLUSTER: Path = ("spec", "rayClusterConfig")
_CHANGES = ("template", "replicas", "minReplicas", "maxReplicas", "scaleStrategy")  # of a worker group of the same cluster


class RayService(TemplatedKind):
    """Pod sets of its Ray cluster, through which it is suspended, too. It serves until it is deleted.

    KubeRay makes a second cluster beside the first when the description of a running one changes otherwise than in its
    replicas, unless the strategy of upgrades is None: such changes are refused, as that cluster is not admitted.
    """

    kind, group, version, plural = "RayService", "ray.io", "v1", "rayservices"
    spec_shape = Fields({"rayClusterConfig": RAY_CLUSTER_SPEC, "upgradeStrategy": Fields({"type": TEXT})})
    suspend_path = (*_CLUSTER, "suspend")
    part = CLUSTER

    def list_roles(self, job: Json) -> list[Role]:
        """Returns `head`, of one pod, and one role per worker group, named after it in lower case, with all its pods; see
        `list_ray_roles`."""
        return list_ray_roles(job, _CLUSTER)

    def validate_kind(self, job: Json) -> Iterator[FieldError]:
        """Yields errors of ELASTIC_JOB, of an autoscaler without it or that asks for too much, and of worker groups without a name; see
        `validate_ray`."""
        return validate_ray(job, _CLUSTER)

    def validate_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        """Yields errors of the elastic annotation. Of a service that runs before and after also those of its autoscaler, and of changes for
        which KubeRay would make a second cluster. These are all but replicas and templates of its cluster, unless `upgradeStrategy.type` is
        None, which may not be given up while it runs."""
        if self.is_suspended(old) or self.is_suspended(new):
            yield from validate_changed_elastic(old, new)
            return
        yield from check_changed_ray(old, new, _CLUSTER)
        strategies = [get(obj, ("spec", "upgradeStrategy", "type")) for obj in (old, new)]
        if strategies[0] == "None" != strategies[1]:
            accepted = "None is expected while it runs, as KubeRay would upgrade it to what was changed before; suspend it first"
            yield FieldError(ErrorType.INVALID, "spec.upgradeStrategy.type", strategies[1], accepted)
        elif strategies[1] != "None" and _describe(old) != _describe(new):
            accepted = (
                "a running service keeps its cluster, but for replicas of its worker groups: KubeRay would make a second cluster beside "
                "the first; suspend it first, or set spec.upgradeStrategy.type to None"
            )
            yield FieldError(ErrorType.FORBIDDEN, "spec.rayClusterConfig", None, accepted)

    def is_resizable(self, job: Json) -> bool:
        """Returns whether the annotation ELASTIC_JOB of the RayService is exactly `true`."""
        return is_elastic(job)

    def find_part(self, job: Json) -> str | None:
        """Returns the name of the RayCluster that an autoscaler resizes, the active one before one that is pending; None where there is
        none. Without an autoscaler it returns None, too: then KubeRay resizes the cluster as the service defines."""
        if not get(job, (*_CLUSTER, "enableInTreeAutoscaling")):
            return None
        names = (get(job, ("status", which, "rayClusterName")) for which in ("activeServiceStatus", "pendingServiceStatus"))
        return next((name for name in names if name), None)

    def with_counts_of(self, job: Json, part: Json) -> dict[str, Any]:
        """Returns a copy of the RayService with counts and `suspend` of the worker groups of its RayCluster (`part`), by name; see
        `with_groups_of`."""
        return with_groups_of(job, _CLUSTER, part)

    def are_pods_ready(self, job: Json) -> bool | None:
        """Returns whether head and workers of the active service are ready by its status; None where that has no state or no count of
        workers. See `are_ray_pods_ready`."""
        return are_ray_pods_ready(job, _CLUSTER, ("status", "activeServiceStatus", "rayClusterStatus"))

    def find_finish(self, job: Json) -> Finish | None:
        """Returns None: a RayService serves until it is deleted."""
        return None


def _describe(job: Json) -> dict[str, Any]:
    """What of its cluster KubeRay compares (`generateHashWithoutReplicas...`); pod templates have a rule of their own."""
    cluster = get(job, _CLUSTER) or {}
    head = {name: value for name, value in (cluster.get("headGroupSpec") or {}).items() if name != "template"}
    groups = [{name: value for name, value in group.items() if name not in _CHANGES} for group in cluster.get("workerGroupSpecs") or ()]
    return {**cluster, "headGroupSpec": head, "workerGroupSpecs": groups}

"""What RayCluster, RayJob and RayService (ray.io/v1) share: the description of a Ray cluster."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Json, RelatedKind
from core.jobs.elastic_annotation import is_elastic, validate_changed_elastic, validate_elastic
from core.jobs.pod_rules import check_pod_spec
from core.jobs.schema_check import BOOLEAN, INTEGER, POD_TEMPLATE, TEXT, Fields, ListOf
from core.jobs.template_parts import copy_object
from core.jobs.templated import MOST_ROLES, Path, Role, get, parse_integer
from core.names import ELASTIC_JOB, RAY_HOST_INDEX_LABEL, RAY_REPLICA_INDEX_LABEL

HEAD = "head"
CLUSTER = RelatedKind("RayCluster", "ray.io", "v1", "rayclusters", namespaced=True)
_OF_AUTOSCALER: Json = {"cpu": "500m", "memory": "512Mi"}  # BuildAutoscalerContainer of KubeRay
_MOST_REPLICAS = 2**31 - 1  # of a group without maxReplicas
_COUNTS = dict.fromkeys(("replicas", "minReplicas", "maxReplicas", "numOfHosts"), INTEGER)
_WORKERS = Fields({"groupName": TEXT, "suspend": BOOLEAN, **_COUNTS, "template": POD_TEMPLATE})
RAY_CLUSTER_SPEC = Fields(
    {
        "suspend": BOOLEAN,
        "enableInTreeAutoscaling": BOOLEAN,
        "autoscalerOptions": Fields({"resources": Fields()}),
        "headGroupSpec": Fields({"template": POD_TEMPLATE}),
        "workerGroupSpecs": ListOf(_WORKERS),
    }
)


def list_ray_roles(job: Json, path: Path) -> list[Role]:
    """Returns the roles of the Ray cluster at a path of a job: `head` of one pod, then one per worker group, at most `MOST_ROLES` of these.
    A group is named in lower case and has replicas times hosts pods: `replicas` (1 by default) between `minReplicas` and `maxReplicas`, 0
    while it is suspended. With an autoscaler `head` has its container added.

    A group of several hosts per replica is ranked by host within replica. KubeRay gives its pods these indexes from 1.5 on, by a feature
    gate; pods without them are placed in no order.
    """
    cluster = get(job, path) or {}
    shown = ".".join(map(str, path))
    head = (cluster.get("headGroupSpec") or {}).get("template") or {}
    added = (_build_autoscaler(cluster),) if cluster.get("enableInTreeAutoscaling") else ()
    roles = [Role(HEAD, 1, (*path, "headGroupSpec", "template"), f"{shown}.headGroupSpec.template", head, added=added)]
    for i, group in enumerate((cluster.get("workerGroupSpecs") or ())[:MOST_ROLES]):
        replicas, hosts = _count_replicas(group), parse_integer(group.get("numOfHosts"), 1)
        several = hosts > 1
        roles.append(
            Role(
                (group.get("groupName") or "").lower(),
                replicas * hosts,
                (*path, "workerGroupSpecs", i, "template"),
                f"{shown}.workerGroupSpecs[{i}].template",
                group.get("template") or {},
                pod_index_label=RAY_HOST_INDEX_LABEL if several else None,
                sub_group_index_label=RAY_REPLICA_INDEX_LABEL if several else None,
                sub_group_count=replicas if several else None,
                named=f"{shown}.workerGroupSpecs[{i}].groupName",
            )
        )
    return roles


def _build_autoscaler(cluster: Json) -> dict[str, Any]:
    """The container that KubeRay adds to the head of a cluster with autoscaling (`autoscalerOptions.resources`, else its defaults)."""
    own = (cluster.get("autoscalerOptions") or {}).get("resources")
    return {"name": "autoscaler", "resources": {"requests": _OF_AUTOSCALER, "limits": _OF_AUTOSCALER} if own is None else own}


def check_changed_ray(old: Json, new: Json, path: Path) -> Iterator[FieldError]:
    """Yields the errors of a change of a job that runs, with its Ray cluster at a path. ELASTIC_JOB may not change, and the autoscaler of a
    job that was elastic may not be turned on or off."""
    yield from validate_changed_elastic(old, new)
    before, after = (bool(get(job, (*path, "enableInTreeAutoscaling"))) for job in (old, new))
    if is_elastic(old) and before != after:
        shown = ".".join(map(str, path))
        yield FieldError(
            ErrorType.FORBIDDEN, f"{shown}.enableInTreeAutoscaling", after, "is settled while an elastic job runs; suspend it first"
        )


def with_groups_of(job: Json, path: Path, cluster: Json) -> dict[str, Any]:
    """Returns a copy of a job. Worker groups of its Ray cluster, at a path, get counts and `suspend` of a RayCluster's groups of the same
    name; groups that the RayCluster does not have stay as they are."""
    changed = copy_object(job)
    groups = {group.get("groupName"): group for group in get(cluster, ("spec", "workerGroupSpecs")) or ()}
    for group in get(changed, (*path, "workerGroupSpecs")) or ():
        now = groups.get(group.get("groupName"), group)
        group |= {name: now[name] for name in (*_COUNTS, "suspend") if name in now}
    return changed


def _count_replicas(group: Json) -> int:
    """Replicas that KubeRay makes of a worker group: at least `minReplicas`, at most `maxReplicas`, none while it is suspended.

    Its CRD has a default for `replicas`; where that is absent all the same, one is counted, as Kueue does.
    """
    if group.get("suspend"):
        return 0
    least = parse_integer(group.get("minReplicas"), 0)
    most = parse_integer(group.get("maxReplicas"), _MOST_REPLICAS)
    return max(0, min(max(parse_integer(group.get("replicas"), 1), least), most))


def are_ray_pods_ready(job: Json, path: Path, status_path: Path) -> bool | None:
    """Returns whether head and workers of the Ray cluster at a path are ready by the status at another. False in any state but `ready`;
    None where that has no state or no count of workers. The state is `ready` once it has been, so that the count of workers and the
    condition of the head decide, where there are such."""
    status = get(job, status_path) or {}
    if status.get("state") not in (None, "", "ready"):
        return False
    workers = status.get("readyWorkerReplicas")
    if not status.get("state") or workers is None:
        return None
    head_is_ready = all(c.get("status") == "True" for c in status.get("conditions") or () if c.get("type") == "HeadPodReady")
    return head_is_ready and int(workers) >= sum(role.count for role in list_ray_roles(job, path) if role.pod_set != HEAD)


def validate_ray(job: Json, path: Path) -> Iterator[FieldError]:
    """Yields an error for a wrong ELASTIC_JOB of a job (`validate_elastic`), and those of its Ray cluster at a path. An autoscaler needs an
    elastic job, and its container may not ask for too much. Each worker group needs a name."""
    cluster, shown = get(job, path) or {}, ".".join(map(str, path))
    yield from validate_elastic(job)
    if cluster.get("enableInTreeAutoscaling") and not is_elastic(job):
        accepted = f'false is expected, or the annotation {ELASTIC_JOB}: "true": else workers that are added would not be admitted'
        yield FieldError(ErrorType.INVALID, f"{shown}.enableInTreeAutoscaling", True, accepted)
    if cluster.get("enableInTreeAutoscaling"):
        options = f"{shown}.autoscalerOptions"
        errors = check_pod_spec(options, {"containers": [_build_autoscaler(cluster)]})
        yield from (replace(error, field=f"{options}.resources") for error in errors)
    for i, group in enumerate((cluster.get("workerGroupSpecs") or ())[:MOST_ROLES]):
        if not group.get("groupName"):
            yield FieldError(ErrorType.REQUIRED, f"{shown}.workerGroupSpecs[{i}].groupName", None, "a name is needed")

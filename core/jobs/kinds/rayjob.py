"""ray.io/v1 RayJob."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Finish, Json
from core.jobs.elastic_annotation import is_elastic, validate_changed_elastic
from core.jobs.kinds.ray import (
    CLUSTER,
    HEAD,
    RAY_CLUSTER_SPEC,
    are_ray_pods_ready,
    check_changed_ray,
    list_ray_roles,
    validate_ray,
    with_groups_of,
)
from core.jobs.schema_check import BOOLEAN, POD_TEMPLATE, TEXT, TEXTS, Fields
from core.jobs.template_parts import get_parts
from core.jobs.templated import Path, Role, TemplatedKind, get
from core.jobs.templates import restore_template

SUBMITTER = "submitter"
_SUBMITTER_CONTAINER: Json = {
    "name": "ray-job-submitter",
    "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
}
_CLUSTER: Path = ("spec", "rayClusterSpec")
_HEAD_TEMPLATE: Path = (*_CLUSTER, "headGroupSpec", "template")
_SUBMITTER_TEMPLATE: Path = ("spec", "submitterPodTemplate")


class RayJob(TemplatedKind):
    """Pod sets of its Ray cluster, and `submitter` where a Job of its own submits to it (K8sJobMode).

    In SidecarMode KubeRay adds the submitter to the head's pod as a container, which counts there.
    """

    kind, group, version, plural = "RayJob", "ray.io", "v1", "rayjobs"
    part = CLUSTER
    spec_shape = Fields(
        {
            "suspend": BOOLEAN,
            "shutdownAfterJobFinishes": BOOLEAN,
            "submissionMode": TEXT,
            "clusterSelector": TEXTS,
            "rayClusterSpec": RAY_CLUSTER_SPEC,
            "submitterPodTemplate": POD_TEMPLATE,
        }
    )

    def list_roles(self, job: Json) -> list[Role]:
        """Returns the roles of its Ray cluster and, only where `submissionMode` is K8sJobMode, `submitter` last, with the template that
        KubeRay would make where the job has none. In SidecarMode `head` has the container of the submitter in addition."""
        roles = list_ray_roles(job, _CLUSTER)
        if (job.get("spec") or {}).get("submissionMode") == "SidecarMode":
            roles = [replace(role, added=(*role.added, _SUBMITTER_CONTAINER)) if role.pod_set == HEAD else role for role in roles]
        if (job.get("spec") or {}).get("submissionMode") == "K8sJobMode":
            template = get(job, _SUBMITTER_TEMPLATE) or _default_submitter(get(job, _HEAD_TEMPLATE))
            roles.append(Role(SUBMITTER, 1, _SUBMITTER_TEMPLATE, "spec.submitterPodTemplate", template))
        return roles

    def validate_kind(self, job: Json) -> Iterator[FieldError]:
        """Yields an error for a `clusterSelector` (pods of that cluster would not be counted) and one where `shutdownAfterJobFinishes` is
        not true (capacity would be kept after the end). Then come those of its Ray cluster (`validate_ray`)."""
        spec = job.get("spec") or {}
        if spec.get("clusterSelector"):
            accepted = "may not be set: pods of a cluster that is there already cannot be queued; give a rayClusterSpec"
            yield FieldError(ErrorType.FORBIDDEN, "spec.clusterSelector", None, accepted)
        if not spec.get("shutdownAfterJobFinishes"):
            accepted = "true is expected: else the cluster would hold its capacity when the job has ended"
            yield FieldError(ErrorType.INVALID, "spec.shutdownAfterJobFinishes", False, accepted)
        yield from validate_ray(job, _CLUSTER)

    def validate_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        """Yields an error where the elastic annotation changes or, while an elastic job runs, the autoscaler."""
        if self.is_suspended(old) or self.is_suspended(new):
            return validate_changed_elastic(old, new)
        return check_changed_ray(old, new, _CLUSTER)

    def is_resizable(self, job: Json) -> bool:
        """Returns whether the RayJob is elastic and has an autoscaler: KubeRay makes no other change of a running RayJob's cluster."""
        return is_elastic(job) and bool(get(job, (*_CLUSTER, "enableInTreeAutoscaling")))

    def find_part(self, job: Json) -> str | None:
        """Returns the name of its RayCluster by its status, with or without an autoscaler; None where it has none."""
        return get(job, ("status", "rayClusterName")) or None

    def with_counts_of(self, job: Json, part: Json) -> dict[str, Any]:
        """Returns a copy of the RayJob with counts and `suspend` of the worker groups of its RayCluster (`part`), by name; see
        `with_groups_of`."""
        return with_groups_of(job, _CLUSTER, part)

    def restore(self, job: Json, pod_sets: Sequence[Json] | None) -> dict[str, Any]:
        """Returns a copy of the stopped RayJob with its own templates (`JobKind.restore`), without a submitter's template that the start
        wrote. That would keep the image of the head as it was then."""
        changed = super().restore(job, pod_sets)
        template = get(changed, _SUBMITTER_TEMPLATE) or {}
        spec = restore_template(template, {})["spec"]  # without a Workload additions of the start to it may still be there
        heads = [get(job, _HEAD_TEMPLATE), *(pod_set["template"] for pod_set in pod_sets or () if pod_set["name"] == HEAD)]
        if (pod_sets is None or not get_parts(template)) and any(spec == _default_submitter(head)["spec"] for head in heads):
            del changed["spec"]["submitterPodTemplate"]
        return changed

    def are_pods_ready(self, job: Json) -> bool | None:
        """Returns whether head and workers are ready by the status of its cluster; None where that has no state or no count of workers.
        The submitter is not looked at. See `are_ray_pods_ready`."""
        return are_ray_pods_ready(job, _CLUSTER, ("status", "rayClusterStatus"))

    def find_finish(self, job: Json) -> Finish | None:
        """Returns how the RayJob ended; None while its deployment status is neither Complete nor Failed. It succeeded only if `jobStatus`
        is SUCCEEDED."""
        status = job.get("status") or {}
        if status.get("jobDeploymentStatus") not in ("Complete", "Failed"):
            return None
        succeeded = status.get("jobStatus") == "SUCCEEDED"
        return Finish(succeeded, status.get("message") or f"RayJob {'finished successfully' if succeeded else 'failed'}")


def _default_submitter(head: Json | None) -> dict[str, Any]:
    """What KubeRay makes a submitter of where the job has no template for it: the head's image, and requests of its own."""
    containers = ((head or {}).get("spec") or {}).get("containers") or [{}]
    container = {**_SUBMITTER_CONTAINER, "image": containers[0].get("image") or ""}
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}

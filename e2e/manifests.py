"""The objects that scenarios are made of: queues over a pool of nodes, and annotated jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.names import (
    API_VERSION,
    ELASTIC_JOB,
    PREFERRED_TOPOLOGY,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    UNCONSTRAINED_TOPOLOGY,
)

ANNOTATIONS = {
    "required": REQUIRED_TOPOLOGY,
    "preferred": PREFERRED_TOPOLOGY,
    "unconstrained": UNCONSTRAINED_TOPOLOGY,
    "slice_topology": SLICE_REQUIRED_TOPOLOGY,
    "slice_size": SLICE_SIZE,
}
RUN_SECONDS = "e2e.topogate.dev/run-seconds"


def _build_object(kind: str, name: str, spec: Mapping[str, Any], namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def build_topology(name: str, levels: Sequence[str]) -> dict[str, Any]:
    return _build_object("Topology", name, {"levels": [{"nodeLabel": label} for label in levels]})


def build_flavor(name: str, node_labels: Mapping[str, str], topology_name: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"nodeLabels": dict(node_labels)}
    return _build_object("ResourceFlavor", name, spec | ({"topologyName": topology_name} if topology_name else {}))


def build_cluster_queue(
    name: str, flavors: Mapping[str, Mapping[str, str | int]], *, strategy: str = "BestEffortFIFO", **spec: Any
) -> dict[str, Any]:
    """`flavors` maps each flavor to its nominal quotas; all flavors cover the same resources, in the order given."""
    covered = list(next(iter(flavors.values())))
    group = {
        "coveredResources": covered,
        "flavors": [
            {"name": name, "resources": [{"name": r, "nominalQuota": quotas[r]} for r in covered]} for name, quotas in flavors.items()
        ],
    }
    return _build_object("ClusterQueue", name, {"namespaceSelector": {}, "queueingStrategy": strategy, "resourceGroups": [group], **spec})


def build_local_queue(name: str, namespace: str, queue: str) -> dict[str, Any]:
    return _build_object("LocalQueue", name, {"clusterQueue": queue}, namespace)


def build_job(
    name: str,
    namespace: str,
    *,
    pods: int,
    gpus: int = 1,
    queue: str | None = "main",
    indexed: bool = False,
    run_seconds: int | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    pod_spec: Mapping[str, Any] | None = None,
    **topology_request: str | int,
) -> dict[str, Any]:
    """A batch/v1 Job whose pods ask for `gpus` GPUs each.

    Topology by keyword: required, preferred, unconstrained, slice_topology, slice_size.

    Its pods run for ever, or for `run_seconds` and then complete.
    """
    template_annotations = {ANNOTATIONS[key]: str(value) for key, value in topology_request.items()} | dict(annotations or {})
    if run_seconds is not None:
        template_annotations |= {RUN_SECONDS: f"{run_seconds}s", "e2e.topogate.dev/complete": "true"}
    resources = {"requests": {"cpu": "1", "nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "worker", "image": "registry.example/worker:1", "resources": resources if gpus else {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": ({QUEUE_NAME_LABEL: queue} if queue else {}) | dict(labels or {})},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed" if indexed else "NonIndexed",
            "template": {
                "metadata": {"annotations": template_annotations},
                "spec": {"restartPolicy": "Never", "containers": [container], **(pod_spec or {})},
            },
            **(spec or {}),
        },
    }


def make_elastic_ray(kind: str, name: str, namespace: str, *, workers: int, gpus: int = 1, **topology_request: str) -> dict[str, Any]:
    """A RayCluster, RayJob or RayService in which an autoscaler adds and takes away workers: between 0 and 40."""
    asked: dict[str, Any] = {**topology_request}
    head, worker = (build_job(name, namespace, pods=1, gpus=each, **asked)["spec"]["template"] for each in (0, gpus))
    for template in (head, worker):
        del template["spec"]["restartPolicy"]
    half = {"cpu": "500m"}
    cluster: dict[str, Any] = {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"resources": {"requests": half, "limits": half}},  # by default memory, too
        "headGroupSpec": {"template": head},
        "workerGroupSpecs": [{"groupName": "gpu", "replicas": workers, "minReplicas": 0, "maxReplicas": 40, "template": worker}],
    }
    specs: dict[str, dict[str, Any]] = {
        "RayCluster": cluster,
        "RayJob": {"entrypoint": "true", "shutdownAfterJobFinishes": True, "submissionMode": "HTTPMode", "rayClusterSpec": cluster},
        "RayService": {"rayClusterConfig": cluster},
    }
    metadata = {"name": name, "namespace": namespace, "labels": {QUEUE_NAME_LABEL: "main"}, "annotations": {ELASTIC_JOB: "true"}}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata, "spec": specs[kind]}


def get_path(obj: Mapping[str, Any]) -> str:
    """Where an object is created."""
    group_version, plural = obj["apiVersion"], _PLURALS.get(obj["kind"], obj["kind"].lower() + "s")
    root = f"/api/{group_version}" if "/" not in group_version else f"/apis/{group_version}"
    namespace = obj["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


_PLURALS = {
    "DeviceClass": "deviceclasses",
    "NetworkPolicy": "networkpolicies",
    "PriorityClass": "priorityclasses",
    "Topology": "topologies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}

"""Pods and what makes them, and where they are, for the tests of kinds that are queued through their pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.names import ADMISSION_GATE, HOSTNAME_LABEL, POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT, QUEUE_NAME_LABEL
from e2e import manifests
from e2e.audit import truth
from e2e.manifests import ANNOTATIONS, build_job
from tests.reconciler.scenes import WORKLOADS, Scene

INDEX = "index"


def build_pod_spec(gpus: int, *, restart: str = "Always") -> dict[str, Any]:
    return {**build_job("any", "any", pods=1, gpus=gpus)["spec"]["template"]["spec"], "restartPolicy": restart}


def build_topology(**asked: Any) -> dict[str, str]:
    return {ANNOTATIONS[key]: str(value) for key, value in asked.items()}


def build_template(
    gpus: int, labels: Mapping[str, str] | None = None, notes: Mapping[str, str] | None = None, **asked: Any
) -> dict[str, Any]:
    metadata = {"labels": dict(labels or {}), "annotations": {**build_topology(**asked), **(notes or {})}}
    return {"metadata": metadata, "spec": build_pod_spec(gpus)}


def build_pod(
    scene: Scene, name: str, *, gpus: int = 4, group: str | None = None, total: int = 0, index: int | None = None, **asked: Any
) -> dict[str, Any]:
    labels = {QUEUE_NAME_LABEL: "main"} | ({POD_GROUP_NAME: group} if group else {}) | ({INDEX: str(index)} if index is not None else {})
    notes = build_topology(**asked) | ({POD_GROUP_TOTAL_COUNT: str(total)} if group else {})
    notes |= {"kueue.x-k8s.io/pod-group-pod-index-label": INDEX} if index is not None else {}
    metadata = {"name": name, "namespace": scene.namespace, "labels": labels, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": build_pod_spec(gpus, restart="Never")}


def of_set(kind: str, scene: Scene, name: str, replicas: int, of_pods: Mapping[str, Any]) -> dict[str, Any]:
    """A StatefulSet or Deployment."""
    labels = {"app": name}
    made = {**of_pods, "metadata": {**of_pods["metadata"], "labels": {**of_pods["metadata"]["labels"], **labels}}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": made}
    spec |= {"serviceName": name} if kind == "StatefulSet" else {}
    metadata = {"name": name, "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def list_live_pods(now: truth.Snapshot, scene: Scene, **labels: str) -> list[dict[str, Any]]:
    """Pods of the scene that are not ended or ending, by labels (`_` for what a keyword cannot hold)."""
    return [
        pod
        for pod in now.pods
        if pod["metadata"]["namespace"] == scene.namespace
        and not truth.is_terminal(pod)
        and not pod["metadata"].get("deletionTimestamp")
        and all((pod["metadata"].get("labels") or {}).get(name) == value for name, value in labels.items())
    ]


def bound(pods: list[dict[str, Any]], count: int) -> bool:
    return len(pods) == count and all(pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates") for pod in pods)


def is_waiting(pods: list[dict[str, Any]], count: int) -> bool:
    """All of them behind the admission gate."""
    return len(pods) == count and all(ADMISSION_GATE in [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()] for pod in pods)


def list_hosts_by(label: str, now: truth.Snapshot, pods: list[dict[str, Any]]) -> list[str]:
    """Hosts in the order of an index label."""
    return [now.label_of(pod, HOSTNAME_LABEL) for pod in sorted(pods, key=lambda pod: int(pod["metadata"]["labels"][label]))]


def list_domains(now: truth.Snapshot, pods: list[dict[str, Any]], level: str) -> set[str]:
    return {now.label_of(pod, level) for pod in pods}


def list_workload_names(now: truth.Snapshot, scene: Scene) -> list[str]:
    return sorted(w["metadata"]["name"] for w in now.workloads if w["metadata"]["namespace"] == scene.namespace)


def set_active(scene: Scene, workload: str, active: bool) -> None:
    scene.api.patch(f"{WORKLOADS.format(scene.namespace)}/{workload}", {"spec": {"active": active}})


def remove(scene: Scene, obj: Mapping[str, Any]) -> None:
    scene.api.request("DELETE", f"{manifests.get_path(obj)}/{obj['metadata']['name']}?propagationPolicy=Background")

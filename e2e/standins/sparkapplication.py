"""A stand-in for the Spark operator (sparkoperator.k8s.io/v1beta2) and for the driver, which makes the executors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from e2e.standins.pods import Obj, PodStandIn, Wanted, compute_phase

_STATES = {"Succeeded": "COMPLETED", "Failed": "FAILED", "Running": "RUNNING"}


class SparkApplicationStandIn(PodStandIn):
    """The driver is the application's; executors are the driver's, as soon as it is on a node. The application ends as its driver does,
    and its executors with it."""

    group, version, kind, plural = "sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications"

    def wanted(self, obj: Obj, pods: Mapping[str, Obj]) -> Iterable[Wanted]:
        name = obj["metadata"]["name"]
        yield Wanted(f"{name}-driver", _build_template(obj, "driver"), {"spark-role": "driver", "spark-app-name": name})
        driver = pods.get(f"{name}-driver")
        if driver is None or not driver["spec"].get("nodeName"):
            return
        metadata = driver["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
        for i in range(1, obj["spec"]["executor"].get("instances", 1) + 1):
            labels = {"spark-role": "executor", "spark-exec-id": str(i), "spark-app-name": name}
            yield Wanted(f"{name}-exec-{i}", _build_template(obj, "executor"), labels, owner=owner)

    def status(self, obj: Obj, wanted: Iterable[Wanted], pods: Mapping[str, Obj]) -> Obj:
        if self.is_suspended(obj):
            return {"applicationState": {"state": "SUSPENDED"}}
        driver = pods.get(f"{obj['metadata']['name']}-driver")
        return {"applicationState": {"state": _STATES[compute_phase([driver])] if driver is not None else "RUNNING"}}

    def set_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """The operator may update the status, and not patch it."""
        if (obj.get("status") or {}) != status:
            metadata = obj["metadata"]
            path = f"{self.path}/namespaces/{metadata['namespace']}/{self.plural}/{metadata['name']}/status"
            kind = {"apiVersion": f"{self.group}/{self.version}", "kind": self.kind}
            self.api.replace(path, {**obj, **kind, "status": dict(status)})

    def is_over(self, obj: Obj) -> bool:
        return ((obj.get("status") or {}).get("applicationState") or {}).get("state") in ("COMPLETED", "FAILED")

    def cleans_up(self, obj: Obj) -> bool:
        return True


def _build_template(obj: Obj, role: str) -> Obj:
    """The pod template beside the fields, with the fields on it."""
    pod = obj["spec"][role]
    template: Obj = deepcopy(pod.get("template") or {})
    metadata, spec = template.setdefault("metadata", {}), template.setdefault("spec", {})
    for name in ("labels", "annotations"):
        metadata[name] = {**(metadata.get(name) or {}), **(pod.get(name) or {})}
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **(pod.get("nodeSelector") or {})}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *(pod.get("tolerations") or ())]
    requests = {"cpu": pod.get("coreRequest") or str(pod.get("cores", 1)), "memory": f"{_compute_memory(obj['spec'], pod)}Mi"}
    if pod.get("gpu"):
        requests[pod["gpu"]["name"]] = str(pod["gpu"]["quantity"])
    limits = {key: value for key, value in requests.items() if "/" in key}
    resources = {"requests": requests} | ({"limits": limits} if limits else {})
    spec["containers"] = [{"name": f"spark-kubernetes-{role}", "image": "registry.example/spark:1", "resources": resources}]
    return template


def _compute_memory(spec: Obj, pod: Obj) -> int:
    """MiB that Spark requests: the heap and its overhead."""
    heap, overhead = (int(text[:-1]) * {"m": 1, "g": 1024}[text[-1]] for text in (pod.get("memory", "1g"), pod.get("memoryOverhead", "0m")))
    return heap + (overhead or max(384, int(heap * (0.4 if spec.get("type") in ("Python", "R") else 0.1))))

"""A stand-in for Kubeflow Trainer (trainer.kubeflow.org/v1alpha1): a TrainJob and its runtime become a JobSet."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from e2e.standins.base import StandIn, build_crd
from e2e.standins.pods import Obj

_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"


class TrainJobStandIn(StandIn):
    """While the JobSet is suspended it is made what TrainJob, runtime and patches say."""

    group, version, kind, plural = "trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"

    @classmethod
    def definitions(cls) -> list[Obj]:
        runtime = build_crd(cls.group, cls.version, "ClusterTrainingRuntime", "clustertrainingruntimes")
        runtime["spec"]["scope"] = "Cluster"
        namespaced = build_crd(cls.group, cls.version, "TrainingRuntime", "trainingruntimes")
        return [*super().definitions(), runtime, namespaced]

    def reconcile(self, obj: Obj) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            return
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
        jobset = self.api.find(f"{path}/{name}")  # before its runtime: a JobSet that is gone is made by the runtime as it is after that
        named = obj["spec"]["runtimeRef"]
        where = f"namespaces/{namespace}/trainingruntimes" if named.get("kind") == "TrainingRuntime" else "clustertrainingruntimes"
        runtime = self.api.find(f"{self.path}/{where}/{named['name']}")
        if runtime is None:
            return
        spec = _build_jobset_spec(obj, runtime)
        if jobset is None:
            metadata = {"name": name, "namespace": namespace, "ownerReferences": [self.owner_of(obj)]}
            self.api.create(path, {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec})
            return
        if jobset["spec"].get("suspend") and jobset["spec"] != spec:
            self.api.patch(f"{path}/{name}", {"spec": spec})
        elif spec["suspend"] and not jobset["spec"].get("suspend"):
            self.api.patch(f"{path}/{name}", {"spec": {"suspend": True}})
        of_jobset = jobset.get("status") or {}
        status: Obj = {"jobsStatus": of_jobset.get("replicatedJobsStatus") or []}
        for condition in of_jobset.get("conditions") or ():
            if condition["type"] in ("Completed", "Failed"):
                status["conditions"] = [condition | {"type": "Complete" if condition["type"] == "Completed" else "Failed"}]
        self.set_status(obj, status)


def _build_jobset_spec(obj: Obj, runtime: Obj) -> Obj:
    spec: Obj = deepcopy(runtime["spec"]["template"]["spec"])
    spec["suspend"] = bool(obj["spec"].get("suspend"))
    nodes = (obj["spec"].get("trainer") or {}).get("numNodes")
    for replicated in spec["replicatedJobs"]:
        job = replicated["template"]
        if nodes is not None and ((job.get("metadata") or {}).get("labels") or {}).get(_STEP_LABEL) == "trainer":
            job["spec"] |= {"parallelism": nodes, "completions": nodes}
        for patch in obj["spec"].get("runtimePatches") or ():
            for entry in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
                if entry["name"] == replicated["name"]:
                    _merge(job["spec"]["template"], entry["template"]["spec"]["template"])
    return spec


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """Maps are merged, lists added to."""
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        elif isinstance(value, list):
            target[key] = [*(target.get(key) or []), *value]
        else:
            target[key] = value

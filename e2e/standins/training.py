"""Stand-ins for the training operator (kubeflow.org/v1): PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar

from e2e.standins.pods import Obj, PodStandIn, Wanted, build_condition, compute_phase

JOB_NAME, REPLICA_TYPE, REPLICA_INDEX = (f"training.kubeflow.org/{name}" for name in ("job-name", "replica-type", "replica-index"))


class TrainingStandIn(PodStandIn):
    """`field` is where the spec has the map of replica types."""

    group, version = "kubeflow.org", "v1"
    suspend_path = ("spec", "runPolicy", "suspend")
    field: ClassVar[str]

    def wanted(self, obj: Obj, pods: Mapping[str, Obj]) -> Iterable[Wanted]:
        for role, replica in obj["spec"][self.field].items():
            for index in range(replica.get("replicas", 1)):
                name = f"{obj['metadata']['name']}-{role.lower()}-{index}"
                labels = {JOB_NAME: obj["metadata"]["name"], REPLICA_TYPE: role.lower(), REPLICA_INDEX: str(index)}
                yield Wanted(name, replica["template"], labels, role)

    def status(self, obj: Obj, wanted: Iterable[Wanted], pods: Mapping[str, Obj]) -> Obj:
        active = Counter(each.role for each in wanted if each.name in pods and compute_phase([pods[each.name]]) == "Running")
        status: Obj = {"replicaStatuses": {role: {"active": active[role]} for role in obj["spec"][self.field]}}
        done = compute_phase(pods.values()) if pods else "Running"
        return status | ({"conditions": [build_condition(done, f"the job is {done.lower()}")]} if done != "Running" else {})


class PyTorchJobStandIn(TrainingStandIn):
    kind, plural, field = "PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs"


class TFJobStandIn(TrainingStandIn):
    kind, plural, field = "TFJob", "tfjobs", "tfReplicaSpecs"


class XGBoostJobStandIn(TrainingStandIn):
    kind, plural, field = "XGBoostJob", "xgboostjobs", "xgbReplicaSpecs"


class PaddleJobStandIn(TrainingStandIn):
    kind, plural, field = "PaddleJob", "paddlejobs", "paddleReplicaSpecs"


class JAXJobStandIn(TrainingStandIn):
    kind, plural, field = "JAXJob", "jaxjobs", "jaxReplicaSpecs"

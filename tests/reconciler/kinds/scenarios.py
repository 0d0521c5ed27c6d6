"""Objects of every kind whose objects hold pod templates, as small as shows where their pods go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.names import LWS_WORKER_INDEX_LABEL, REQUIRED_TOPOLOGY
from e2e.manifests import build_job
from e2e.standins.appwrapper import AppWrapperStandIn
from e2e.standins.base import StandIn
from e2e.standins.jobset import JobSetStandIn
from e2e.standins.leaderworkerset import LeaderWorkerSetStandIn
from e2e.standins.mpijob import MPIJobStandIn
from e2e.standins.ray import RayClusterStandIn, RayJobStandIn, RayServiceStandIn
from e2e.standins.sparkapplication import SparkApplicationStandIn
from e2e.standins.training import (
    JAXJobStandIn,
    PaddleJobStandIn,
    PyTorchJobStandIn,
    TFJobStandIn,
    XGBoostJobStandIn,
)
from e2e.standins.trainjob import TrainJobStandIn

Obj = dict[str, Any]
COMPLETION_INDEX, REPLICA_INDEX = "batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index"
RUNTIME = "kinds-of-tests"
GPUS = 4  # of each pod: two share a node


@dataclass(frozen=True)
class Scenario:
    """A kind, and an object of it whose pods are to be in one domain of a level.

    `ranked` is the pod set that has ranks, by the labels that they are read from, the most significant first.
    `broken` is where an object says what it must not: annotations that exclude each other, under this path.
    """

    kind: str
    spec: Callable[[str], Obj]  # by the annotation's level
    pods: Mapping[str, int]
    standins: tuple[type[StandIn], ...]
    broken: str
    ranked: tuple[str, ...] = ()
    rank_labels: tuple[str, ...] = ()
    suspend_path: tuple[str, ...] = ("spec", "suspend")

    @property
    def group_version(self) -> str:
        main = self.standins[0]
        return f"{main.group}/{main.version}"

    @property
    def plural(self) -> str:
        return self.standins[0].plural

    @property
    def total(self) -> int:
        return sum(self.pods.values())

    @property
    def gpus(self) -> int:
        """Of all its pods."""
        return GPUS * sum(count for pod_set, count in self.pods.items() if pod_set != "submitter")


def build_template(level: str, gpus: int = GPUS, **more: str) -> Obj:
    """A pod template that requires one domain of a level."""
    made: Obj = build_job("any", "any", pods=1, gpus=gpus, annotations={REQUIRED_TOPOLOGY: level} | more)["spec"]["template"]
    return made


def _replicas(field: str, **roles: int) -> Callable[[str], Obj]:
    def spec(level: str) -> Obj:
        return {field: {role: {"replicas": count, "template": build_template(level)} for role, count in roles.items()}}

    return spec


def _training(kind: str, field: str, standin: type[StandIn], **roles: int) -> Scenario:
    return Scenario(
        kind,
        _replicas(field, **roles),
        {role.lower(): count for role, count in roles.items()},
        (standin,),
        f"spec.{field}[Worker].template.metadata.annotations",
        ("worker",),
        (REPLICA_INDEX,),
        ("spec", "runPolicy", "suspend"),
    )


def _build_jobset(level: str) -> Obj:
    def replicated(name: str, replicas: int, pods: int) -> Obj:
        spec = {"parallelism": pods, "completions": pods, "template": build_template(level)}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    return {"replicatedJobs": [replicated("leader", 1, 1), replicated("workers", 2, 2)]}


def _build_ray_cluster(level: str) -> Obj:
    workers = {"groupName": "workers", "replicas": 2, "numOfHosts": 2, "template": build_template(level)}
    return {"headGroupSpec": {"template": build_template(level)}, "workerGroupSpecs": [workers]}


def _ray_job(level: str) -> Obj:
    spec = {"shutdownAfterJobFinishes": True, "submissionMode": "K8sJobMode", "entrypoint": "python main.py"}
    return spec | {"rayClusterSpec": _build_ray_cluster(level), "submitterPodTemplate": build_template(level, gpus=0)}


def _spark(level: str) -> Obj:
    def pod(**more: Any) -> Obj:
        gpu = {"name": "nvidia.com/gpu", "quantity": GPUS}
        return {"cores": 1, "memory": "512m", "gpu": gpu, "annotations": {REQUIRED_TOPOLOGY: level}, **more}

    return {"type": "Scala", "mode": "cluster", "driver": pod(), "executor": pod(instances=3)}


def _wrapped(level: str) -> Obj:
    torch = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "wrapped"},
        "spec": _replicas("pytorchReplicaSpecs", Master=1, Worker=3)(level),
    }
    return {"components": [{"template": torch}]}


def _train(level: str) -> Obj:
    """Its runtime asks for nothing, its patch for a domain."""
    patch = {"metadata": {"annotations": {REQUIRED_TOPOLOGY: level}}}
    entry = {"name": "node", "template": {"spec": {"template": patch}}}
    return {
        "runtimeRef": {"name": RUNTIME},
        "trainer": {"numNodes": 4},
        "runtimePatches": [
            {"manager": "tests.example.com/user", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [entry]}}}}
        ],
    }


def runtime() -> Obj:
    """What TrainJobs of the tests refer to."""
    node = {
        "name": "node",
        "replicas": 1,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"parallelism": 1, "completions": 1, "template": {"spec": build_template("any")["spec"]}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": RUNTIME},
        "spec": {"template": {"spec": {"replicatedJobs": [node]}}},
    }


_MPI = Scenario(
    "MPIJob",
    lambda level: {"slotsPerWorker": 1, "runLauncherAsWorker": True, **_replicas("mpiReplicaSpecs", Launcher=1, Worker=4)(level)},
    {"launcher": 1, "worker": 4},
    (MPIJobStandIn,),
    "spec.mpiReplicaSpecs[Worker].template.metadata.annotations",
    ("worker",),
    (REPLICA_INDEX,),
    ("spec", "runPolicy", "suspend"),
)
_RAY_RANKS = ("ray.io/worker-group-replica-index", "ray.io/replica-host-index")
_RAY_PODS = {"head": 1, "workers": 4}
_ANNOTATIONS = "template.metadata.annotations"
SCENARIOS = (
    Scenario(
        "JobSet",
        _build_jobset,
        {"leader": 1, "workers": 4},
        (JobSetStandIn,),
        f"spec.replicatedJobs[1].template.spec.{_ANNOTATIONS}",
        ("workers",),
        ("jobset.sigs.k8s.io/job-index", COMPLETION_INDEX),
    ),
    _MPI,
    _training("PyTorchJob", "pytorchReplicaSpecs", PyTorchJobStandIn, Master=1, Worker=4),
    _training("TFJob", "tfReplicaSpecs", TFJobStandIn, Chief=1, PS=2, Worker=3),
    _training("XGBoostJob", "xgbReplicaSpecs", XGBoostJobStandIn, Master=1, Worker=3),
    _training("PaddleJob", "paddleReplicaSpecs", PaddleJobStandIn, Master=1, Worker=3),
    _training("JAXJob", "jaxReplicaSpecs", JAXJobStandIn, Worker=4),
    Scenario(
        "RayCluster",
        _build_ray_cluster,
        _RAY_PODS,
        (RayClusterStandIn,),
        f"spec.workerGroupSpecs[0].{_ANNOTATIONS}",
        ("workers",),
        _RAY_RANKS,
    ),
    Scenario(
        "RayJob",
        _ray_job,
        _RAY_PODS | {"submitter": 1},
        (RayJobStandIn, RayClusterStandIn),
        f"spec.rayClusterSpec.workerGroupSpecs[0].{_ANNOTATIONS}",
        ("workers",),
        _RAY_RANKS,
    ),
    Scenario(
        "RayService",
        lambda level: {"rayClusterConfig": _build_ray_cluster(level)},
        _RAY_PODS,
        (RayServiceStandIn, RayClusterStandIn),
        f"spec.rayClusterConfig.workerGroupSpecs[0].{_ANNOTATIONS}",
        ("workers",),
        _RAY_RANKS,
        ("spec", "rayClusterConfig", "suspend"),
    ),
    Scenario("SparkApplication", _spark, {"driver": 1, "executor": 3}, (SparkApplicationStandIn,), "spec.executor.annotations"),
    Scenario(
        "TrainJob",
        _train,
        {"node": 4},
        (TrainJobStandIn, JobSetStandIn),
        "job[node].annotations",
        ("node",),
        (COMPLETION_INDEX,),
    ),
    Scenario(
        "AppWrapper",
        _wrapped,
        {"wrapper-0": 1, "wrapper-1": 3},
        (AppWrapperStandIn, PyTorchJobStandIn),
        f"spec.components[0].template.spec.pytorchReplicaSpecs[Worker].{_ANNOTATIONS}",
        ("wrapper-1",),
        (REPLICA_INDEX,),
    ),
)


def _build_leader_worker_set(level: str) -> Obj:
    """By default a group is made anew with the first of its pods that is lost."""
    made = build_template(level)
    workers = {**made, "spec": {**made["spec"], "restartPolicy": "Always"}}
    return {"replicas": 1, "leaderWorkerTemplate": {"size": 4, "restartPolicy": "None", "workerTemplate": workers}}


# Not among those above: it cannot be suspended.
LEADER_WORKER_SET = Scenario(
    "LeaderWorkerSet",
    _build_leader_worker_set,
    {"main": 4},
    (LeaderWorkerSetStandIn,),
    f"spec.leaderWorkerTemplate.workerTemplate.{_ANNOTATIONS}",
    ("main",),
    (LWS_WORKER_INDEX_LABEL,),
)

"""What a real operator wants of an object that its stand-in does not look at: images that run, names of containers, fields
that its own rules require. Nothing here may concern topogate: labels, annotations and sizes stay as the scene has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from e2e.operators.spark import VERSION as SPARK
from e2e.scenarios.stories import Story

Obj = dict[str, Any]
EXAMPLES = "registry.example/"
PAUSE = "registry.k8s.io/pause:3.10"
RAY = "2.52.0"
RAY_IMAGE, SPARK_IMAGE = f"rayproject/ray:{RAY}", f"docker.io/library/spark:{SPARK}"
SPARK_ACCOUNT = "spark"
_IMAGES = {"agnhost": "registry.k8s.io/e2e-test-images/agnhost"}
# Each finds its own container by its name, and refuses a template without it.
_CONTAINERS = {
    "PyTorchJob": "pytorch",
    "TFJob": "tensorflow",
    "XGBoostJob": "xgboost",
    "PaddleJob": "paddle",
    "JAXJob": "jax",
    "ClusterTrainingRuntime": "node",
}


def build_real_object(obj: Mapping[str, Any]) -> Obj:
    """The object as its operator takes it."""
    made: Obj = deepcopy(dict(obj))
    _walk(made, str(made.get("kind") or ""))
    more = _MORE.get(str(made.get("kind")))
    if more is not None:
        more(made["spec"])
    return made


def _walk(value: Any, kind: str) -> None:
    if isinstance(value, list):
        for entry in value:
            _walk(entry, kind)
    elif isinstance(value, dict):
        if isinstance(value.get("kind"), str) and "spec" in value:
            kind = value["kind"]  # what an AppWrapper wraps
        for container in value["containers"] if isinstance(value.get("containers"), list) else ():
            _make_real(container, kind)
        for entry in value.values():
            _walk(entry, kind)


def _make_real(container: Obj, kind: str) -> None:
    image = str(container.get("image") or "")
    if image.startswith(EXAMPLES):
        name, _, tag = image.removeprefix(EXAMPLES).partition(":")
        known = _IMAGES.get(name, PAUSE)
        container["image"] = RAY_IMAGE if kind.startswith("Ray") else known if ":" in known else f"{known}:{tag}"
    container["name"] = _CONTAINERS.get(kind, container.get("name"))


def _adjust_ray_cluster(spec: Obj) -> None:
    spec.setdefault("rayVersion", RAY)
    spec["headGroupSpec"].setdefault("rayStartParams", {})
    for group in spec.get("workerGroupSpecs") or ():
        group.setdefault("rayStartParams", {})
        group.setdefault("minReplicas", group["replicas"])
        group.setdefault("maxReplicas", group["replicas"])


def _adjust_ray_job(spec: Obj) -> None:
    _adjust_ray_cluster(spec["rayClusterSpec"])
    spec["entrypoint"] = "sleep 86400"


def _adjust_spark(spec: Obj) -> None:
    spec |= {
        "image": SPARK_IMAGE,
        "sparkVersion": SPARK,
        "mainClass": "org.apache.spark.examples.SparkPi",
        "mainApplicationFile": "local:///opt/spark/examples/jars/spark-examples.jar",
        "arguments": ["5000"],  # minutes of work
        "restartPolicy": {"type": "Never"},
    }
    spec["driver"]["serviceAccount"] = SPARK_ACCOUNT


def _adjust_training_job(spec: Obj) -> None:
    """By default some fail with the first pod that is lost."""
    for name, roles in spec.items():
        for replicas in roles.values() if name.endswith("ReplicaSpecs") else ():
            replicas.setdefault("restartPolicy", "OnFailure")


_MORE: dict[str, Callable[[Obj], None]] = {
    **dict.fromkeys(("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"), _adjust_training_job),
    "RayCluster": _adjust_ray_cluster,
    "RayJob": _adjust_ray_job,
    "RayService": lambda spec: _adjust_ray_cluster(spec["rayClusterConfig"]),
    "SparkApplication": _adjust_spark,
}


def build_account_objects(namespace: str) -> list[Obj]:
    """Whom a Spark driver makes its executors as."""
    metadata = {"name": SPARK_ACCOUNT, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        },
    ]


class RealStory(Story):
    """A story whose images run."""

    def load(self) -> Obj:
        return build_real_object(super().load())

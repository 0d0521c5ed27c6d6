"""What the rules refuse of a new object they refuse of a change, too, whether the job waits or runs; what was stored before stays."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from core.jobs.contract import Defaults, PodSetStart
from core.jobs.kinds.pod_kinds import POD_SETS
from core.jobs.kinds.pod_parents import Deployment
from core.jobs.kinds.registry import KINDS
from core.names import (
    ELASTIC_JOB,
    MAX_EXEC_TIME_LABEL,
    MIN_PARALLELISM,
    MULTIKUEUE_CONTROLLER,
    PREBUILT_WORKLOAD,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    UNCONSTRAINED_TOPOLOGY,
    WORKLOAD_ANNOTATION,
)
from tests.reconciler.kinds.scenarios import SCENARIOS
from tests.webhook.asking import Webhook, get_causes

Obj = dict[str, Any]
RACK = "cloud.provider.com/topology-rack"
_KINDS: tuple[Any, ...] = (*KINDS, *POD_SETS, Deployment())
OF_KINDS = {kind.kind: kind for kind in _KINDS}


@dataclass(frozen=True)
class Mistake:
    """What makes an object of a kind one that is refused: at `field`."""

    kind: str
    field: str
    make: Callable[[Obj], Any]

    def __str__(self) -> str:
        return f"{self.kind} {self.field}"


def sets(*path: str | int, value: Any) -> Callable[[Obj], None]:
    def change(obj: Obj) -> None:
        here: Any = obj
        for key in path[:-1]:
            here = here[key] if isinstance(key, int) else here.setdefault(key, {})
        here[path[-1]] = value

    return change


def build_job_object(kind: str) -> Obj:
    """A queued object of a kind, as it is stored while it waits."""
    if kind in ("Job", "StatefulSet", "Deployment"):
        spec: Obj = {"replicas": 2} if kind != "Job" else {"parallelism": 2, "completions": 2}
        spec["template"] = {"metadata": {"annotations": {REQUIRED_TOPOLOGY: RACK}}, "spec": {"containers": [{"name": "c"}]}}
    elif kind == "LeaderWorkerSet":
        template = {"metadata": {"annotations": {REQUIRED_TOPOLOGY: RACK}}, "spec": {"containers": [{"name": "c"}]}}
        spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}
    else:
        spec = next(scenario for scenario in SCENARIOS if scenario.kind == kind).spec(RACK)
    described = OF_KINDS[kind]
    group_version = f"{described.group}/{described.version}"
    metadata: Obj = {"name": "train", "namespace": "team-a", "labels": {QUEUE_NAME_LABEL: "main"}, "annotations": {}}
    stored: Obj = described.default({"apiVersion": group_version, "kind": kind, "metadata": metadata, "spec": deepcopy(spec)}, Defaults())
    return stored


def started(obj: Obj) -> Obj:
    kind = OF_KINDS[obj["kind"]]
    if not hasattr(kind, "start"):
        return obj
    starts = [PodSetStart(p.name, True, annotations={WORKLOAD_ANNOTATION: "w"}) for p in kind.list_pod_sets(obj)]
    running: Obj = kind.start(obj, starts)
    return running


_CLUSTERS = (("RayCluster", ("spec",)), ("RayJob", ("spec", "rayClusterSpec")), ("RayService", ("spec", "rayClusterConfig")))
_REPLICAS: tuple[tuple[str, str], ...] = (
    ("PyTorchJob", "pytorchReplicaSpecs"),
    ("TFJob", "tfReplicaSpecs"),
    ("XGBoostJob", "xgbReplicaSpecs"),
)
_REPLICAS += (("PaddleJob", "paddleReplicaSpecs"), ("JAXJob", "jaxReplicaSpecs"), ("MPIJob", "mpiReplicaSpecs"))
_NODE = "named-node"
_OF_TEMPLATES = (
    ("Job", ("spec", "template"), "spec.template"),
    ("StatefulSet", ("spec", "template"), None),
    *((kind, ("spec", field, "Worker", "template"), f"spec.{field}[Worker].template") for kind, field in _REPLICAS),
    *((kind, (*path, "headGroupSpec", "template"), f"{'.'.join(path)}.headGroupSpec.template") for kind, path in _CLUSTERS),
)
MISTAKES = (
    *(
        Mistake(kind, f"{'.'.join(path)}.enableInTreeAutoscaling", sets(*path, "enableInTreeAutoscaling", value=True))
        for kind, path in _CLUSTERS
    ),
    Mistake("RayJob", "spec.shutdownAfterJobFinishes", sets("spec", "shutdownAfterJobFinishes", value=False)),
    Mistake("RayJob", "spec.clusterSelector", sets("spec", "clusterSelector", value={"ray.io/cluster": "other"})),
    Mistake("SparkApplication", "spec.dynamicAllocation.enabled", sets("spec", "dynamicAllocation", value={"enabled": True})),
    *(
        Mistake(kind, f"{shown}.spec.nodeName", sets(*path, "spec", "nodeName", value=_NODE))
        for kind, path, shown in _OF_TEMPLATES
        if shown is not None
    ),
    *(
        Mistake(kind, f"spec.{field}", sets("spec", field, "worker", value={"replicas": 9, "template": {"spec": {"containers": []}}}))
        for kind, field in _REPLICAS
    ),
    Mistake(
        "AppWrapper", "spec.components[0].podSets[0].path", sets("spec", "components", 0, "podSets", value=[{"path": "template.spec"}])
    ),
    Mistake("Job", f"metadata.annotations[{ELASTIC_JOB}]", sets("metadata", "annotations", ELASTIC_JOB, value="perhaps")),
    Mistake("Job", f"metadata.annotations[{MIN_PARALLELISM}]", sets("metadata", "annotations", MIN_PARALLELISM, value="77")),
    *(
        mistake
        for kind in sorted(OF_KINDS)
        for mistake in (
            Mistake(kind, f"metadata.labels[{QUEUE_NAME_LABEL}]", sets("metadata", "labels", QUEUE_NAME_LABEL, value="")),
            Mistake(kind, f"metadata.labels[{MAX_EXEC_TIME_LABEL}]", sets("metadata", "labels", MAX_EXEC_TIME_LABEL, value="never")),
        )
        if not (kind == "Deployment" and MAX_EXEC_TIME_LABEL in mistake.field)
    ),
    *(
        Mistake(kind.kind, f"metadata.labels[{PREBUILT_WORKLOAD}]", sets("metadata", "labels", PREBUILT_WORKLOAD, value="Not_A_Name"))
        for kind in KINDS
    ),
)


def list_refused_fields(obj: Obj, old: Obj | None = None) -> set[str]:
    """Fields of a refusal, empty where the object is allowed."""
    response = Webhook().validate(obj, old)
    return set() if response["allowed"] else set(get_causes(response))


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistake_in_update_is_refused_as_at_creation(mistake: Mistake) -> None:
    """Some through `spec`, some through metadata alone."""
    waiting = build_job_object(mistake.kind)
    assert list_refused_fields(waiting) == set()
    for old in (None, waiting, started(waiting)):
        changed = deepcopy(waiting if old is None else old)
        mistake.make(changed)
        found = list_refused_fields(changed, old)
        # A running job keeps its templates, which is said of the whole template.
        assert mistake.field in found or (old is not waiting and any(mistake.field.startswith(f"{field}.") for field in found))


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_object_stored_with_mistake_can_be_changed_otherwise(mistake: Mistake) -> None:
    """Objects of an earlier release, which lacked the rule, can still be labelled, suspended and finished."""
    stored = started(build_job_object(mistake.kind))
    mistake.make(stored)
    labelled = deepcopy(stored)
    labelled["metadata"]["labels"]["mine"] = "still"
    assert list_refused_fields(labelled, stored) == set()
    kind: Any = OF_KINDS[mistake.kind]
    if hasattr(kind, "suspend"):
        assert list_refused_fields(kind.suspend(stored), stored) == set()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (f"label {MAX_EXEC_TIME_LABEL}", "60"),
        (f"annotation {MIN_PARALLELISM}", "1"),
        (f"label {PREBUILT_WORKLOAD}", "other"),
        (f"annotation {ELASTIC_JOB}", "true"),
    ],
)
def test_settled_mark_of_running_job_cannot_change_by_metadata_alone(name: str, value: str) -> None:
    part, _, key = name.partition(" ")
    running = started(build_job_object("Job"))
    changed = deepcopy(running)
    changed["metadata"][f"{part}s"][key] = value
    assert list_refused_fields(changed, running) == {f"metadata.{part}s[{key}]"}
    changed["metadata"][f"{part}s"] = {**running["metadata"][f"{part}s"], "mine": "still"}
    assert list_refused_fields(changed, running) == set()


def test_topology_of_waiting_job_is_judged_when_its_queue_changes_not_again() -> None:
    """A job that is given a queue is judged as a whole, one that leaves it not at all."""
    queued = build_job_object("Job")
    sets("spec", "template", "metadata", "annotations", value={UNCONSTRAINED_TOPOLOGY: "perhaps"})(queued)
    free = deepcopy(queued)
    del free["metadata"]["labels"][QUEUE_NAME_LABEL]
    assert list_refused_fields(queued, free) == {f"spec.template.metadata.annotations[{UNCONSTRAINED_TOPOLOGY}]"}
    assert list_refused_fields(free, queued) == set()


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("Job", ("spec", "parallelism")),
        ("PyTorchJob", ("spec", "pytorchReplicaSpecs", "Worker", "replicas")),
        ("MPIJob", ("spec", "mpiReplicaSpecs", "Worker", "replicas")),
        ("RayCluster", ("spec", "workerGroupSpecs", 0, "replicas")),
        ("RayCluster", ("spec", "workerGroupSpecs", 0, "minReplicas")),  # its operator has at least as many
    ],
)
@pytest.mark.parametrize("has_topology", [True, False])
def test_running_job_without_gates_gets_no_more_pods(kind: str, field: tuple[str | int, ...], has_topology: bool) -> None:
    """They would run before the job is stopped for it, for as long as they take to end: 56 GPUs ran on a quota of 16."""
    waiting = build_job_object(kind)
    if kind == "Job":
        waiting["spec"]["completions"] = 9
    described = next(each for each in KINDS if each.kind == kind)
    notes = {WORKLOAD_ANNOTATION: "w"}
    running = described.start(waiting, [PodSetStart(p.name, has_topology, annotations=notes) for p in described.list_pod_sets(waiting)])
    larger, smaller = deepcopy(running), deepcopy(running)
    sets(*field, value=9)(larger)
    sets(*field, value=1)(smaller)
    assert bool(list_refused_fields(larger, running)) is not has_topology
    assert list_refused_fields(smaller, running) == set()


@pytest.mark.parametrize("name", [kind.kind for kind in KINDS])
def test_job_that_is_left_to_multikueue_draws_a_warning_that_names_the_field(name: str):
    obj, kind = build_job_object(name), OF_KINDS[name]
    assert kind.validate_create(obj).warnings == ()
    path = (*kind.suspend_path[:-1], "managedBy")
    sets(*path, value=MULTIKUEUE_CONTROLLER)(obj)
    judged = kind.validate_create(obj)
    assert judged.errors == ()
    assert [warning.partition(":")[0] for warning in judged.warnings] == [".".join(map(str, path))]
    sets(*path, value="example.com/another")(obj)
    assert kind.validate_create(obj).warnings == ()


@pytest.mark.parametrize(("kind", "path"), _CLUSTERS)
def test_autoscaler_of_a_running_elastic_ray_cluster_cannot_be_switched(kind: str, path: tuple[str, ...]):
    """Found by a reader: a RayCluster's could, though the container of the autoscaler is counted with its head."""
    old = build_job_object(kind)
    old["metadata"].setdefault("annotations", {})[ELASTIC_JOB] = "true"
    sets(*OF_KINDS[kind].suspend_path, value=False)(old)
    sets(*path, "enableInTreeAutoscaling", value=True)(old)
    new = deepcopy(old)
    sets(*path, "enableInTreeAutoscaling", value=False)(new)
    errors = list(OF_KINDS[kind].validate_change(old, new))
    assert f"{'.'.join(path)}.enableInTreeAutoscaling" in [error.field for error in errors]

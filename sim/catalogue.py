"""What users submit: the jobs of `examples/`, of every kind, with other numbers of pods, and with an end."""

import random
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from core.names import (
    PODSET_GROUP_NAME,
    PREFERRED_TOPOLOGY,
    PRIORITY_CLASS_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    TOPOLOGY_ANNOTATIONS,
    UNCONSTRAINED_TOPOLOGY,
)
from sim.models.kubelets import ENDS_BADLY, RUN_SECONDS

Json = dict[str, Any]
EXAMPLES = Path(__file__).parent.parent / "examples"
_COUNTS = ("replicas", "minReplicas", "maxReplicas", "parallelism", "completions", "instances", "numNodes", "size")
_GPU = "nvidia.com/gpu"
_NESTED = ("JobSet", "LeaderWorkerSet")  # whose numbers multiply
_SERVING = ("Deployment", "StatefulSet", "LeaderWorkerSet", "RayCluster", "RayService")  # whose pods run until they are deleted
_OTHERS = ("Topology", "ResourceFlavor", "ClusterQueue", "LocalQueue", "TrainingRuntime")


@cache
def read_examples() -> dict[str, list[Json]]:
    """Examples by the name of their file: a job, or the pods of a group, and what belongs to it before."""
    found = {}
    for path in [*sorted(EXAMPLES.glob("*.yaml")), *sorted((EXAMPLES / "kinds").glob("*.yaml"))]:
        objects = list(yaml.safe_load_all(path.read_text()))
        if objects[-1]["kind"] not in _OTHERS and "mistakes" not in path.name:
            found[path.stem] = objects
    return found


def make_job(name: str, namespace: str, chance: random.Random, most: int, example: str = "") -> list[Json]:
    """The objects of a job like an example, or like any, the job last; each of its numbers of pods is at most `most`."""
    objects = deepcopy(read_examples()[example or chance.choice(list(read_examples()))])
    is_group = len(objects) > 1 and objects[-1]["kind"] == "Pod"
    count = chance.randint(1, min(most, 3) if objects[-1]["kind"] in _NESTED else most)
    gpus, other = chance.choice(["1", "4", "8"]), chance.choice([REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, UNCONSTRAINED_TOPOLOGY])
    labels = {PRIORITY_CLASS_LABEL: chance.choice(["low", "high"])} if chance.random() < 0.5 else {}
    ends: Json = {RUN_SECONDS: str(chance.choice([5, 60, 300]))} if chance.random() < 0.8 and objects[-1]["kind"] not in _SERVING else {}
    if ends and chance.random() < 0.1:
        ends[ENDS_BADLY] = "true"
    for number, obj in enumerate(objects):
        metadata = obj["metadata"]
        own = f"{name}-{number}" if is_group or number < len(objects) - 1 else name
        metadata |= {"name": own, "namespace": namespace, "labels": {**(metadata.get("labels") or {}), **labels}}
        if is_group:
            metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = name
        _change_counts(obj["spec"], count)
        for template in [obj] if obj["kind"] == "Pod" else _find_templates(obj["spec"]):
            _change_template(template, gpus, other, ends)
            notes = template.get("metadata", {}).get("annotations", {})
            if SLICE_SIZE in notes:
                notes[SLICE_SIZE] = str(count if count % 2 else count // 2)
    _finish(objects, name)
    return objects


def _change_counts(value: Any, count: int) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _COUNTS and isinstance(inner, int) and inner > 1:
                value[key] = max(count, 2) if key == "size" else count
            else:
                _change_counts(inner, count)
    elif isinstance(value, list):
        for inner in value:
            _change_counts(inner, count)


def _find_templates(value: Any) -> Iterator[Json]:
    """Pod templates, and what a SparkApplication has in their place."""
    if isinstance(value, dict):
        if "containers" in (value.get("spec") or {}) or "cores" in value:
            yield value
        for inner in value.values():
            yield from _find_templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_templates(inner)


def _change_template(template: Json, gpus: str, other: str, ends: Json) -> None:
    metadata = template if "cores" in template else template.setdefault("metadata", {})
    notes = metadata.setdefault("annotations", {})
    level = notes.get(REQUIRED_TOPOLOGY)
    if level is not None and not any(name in notes for name in TOPOLOGY_ANNOTATIONS if name != REQUIRED_TOPOLOGY):
        del notes[REQUIRED_TOPOLOGY]
        if other == UNCONSTRAINED_TOPOLOGY and PODSET_GROUP_NAME in notes:
            other = PREFERRED_TOPOLOGY  # a group is in one domain
        notes[other] = "true" if other == UNCONSTRAINED_TOPOLOGY else level
    notes |= ends
    for container in (template.get("spec") or {}).get("containers") or ():
        for amounts in container["resources"].values():
            if _GPU in amounts:
                amounts[_GPU] = gpus


def _finish(objects: list[Json], name: str) -> None:
    """What a kind needs to be whole: its names, and what ends it."""
    job = objects[-1]
    spec = job["spec"]
    if job["kind"] in ("Deployment", "StatefulSet"):
        spec["selector"] = {"matchLabels": {"app": name}}
        spec["template"]["metadata"]["labels"] = {"app": name}
    elif job["kind"] == "TrainJob":
        spec["runtimeRef"]["name"] = objects[0]["metadata"]["name"]
    elif job["kind"] == "AppWrapper":
        for component in spec["components"]:
            component["template"]["metadata"]["name"] = f"{name}-{component['template']['kind'].lower()}"
    elif job["apiVersion"].startswith("kubeflow.org/"):
        spec["runPolicy"] = {"cleanPodPolicy": "Running"}
    elif job["kind"] == "RayJob":
        head = spec["rayClusterSpec"]["headGroupSpec"]["template"]
        spec |= {"submissionMode": "K8sJobMode", "submitterPodTemplate": deepcopy(head)}
        for template in _find_templates(spec["rayClusterSpec"]):
            for note in (RUN_SECONDS, ENDS_BADLY):
                template["metadata"]["annotations"].pop(note, None)

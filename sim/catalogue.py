"""What users submit: the jobs of `examples/`, of every kind, with other numbers of pods, and with an end."""

import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from core.names import (
    COMPLETIONS_EQUAL_PARALLELISM,
    ELASTIC_JOB,
    MIN_PARALLELISM,
    PODSET_GROUP_NAME,
    PODSET_LABEL,
    PREBUILT_WORKLOAD,
    PREFERRED_TOPOLOGY,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    SPARE_NODES,
    TOPOLOGY_ANNOTATIONS,
    TOPOLOGY_GATE,
    UNCONSTRAINED_TOPOLOGY,
    WORKLOAD_ANNOTATION,
)
from e2e import manifests
from sim.models.kubelets import ENDS_BADLY, FAILING_INDEX, RUN_SECONDS, STAGGER_SECONDS
from sim.models.tools import OF_TOOL

Json = dict[str, Any]
EXAMPLES = Path(__file__).parent.parent / "examples"
_COUNTS = ("replicas", "minReplicas", "maxReplicas", "parallelism", "completions", "instances", "numNodes", "size")
_GPU = "nvidia.com/gpu"
_NESTED = ("JobSet", "LeaderWorkerSet")  # whose numbers multiply
_SERVING = ("Deployment", "StatefulSet", "LeaderWorkerSet", "RayCluster", "RayService")  # whose pods run until they are deleted
_RACK = "cloud.provider.com/topology-rack"
_MADE_HERE = ("prebuilt", "unowned", "partial", "failed-index")  # which no example shows
_LONG_S = 10**12  # for which some pods tolerate a taint
_OTHERS = ("Topology", "ResourceFlavor", "ClusterQueue", "LocalQueue", "TrainingRuntime")


@cache
def read_examples() -> dict[str, list[Json]]:
    """Examples by the name of their file: a job, or the pods of a group, and what belongs to it before."""
    found = {}
    for path in [*sorted(EXAMPLES.glob("*.yaml")), *sorted((EXAMPLES / "kinds").glob("*.yaml"))]:
        objects = list(yaml.load_all(path.read_text(), yaml.CSafeLoader))
        if objects[-1]["kind"] not in _OTHERS and "mistakes" not in path.name:
            found[path.stem] = objects
    return found


def make_job(name: str, namespace: str, chance: random.Random, most: int, example: str = "") -> list[Json]:
    """The objects of a job like an example, or like any, the job last; each of its numbers of pods is at most `most`."""
    example = example or chance.choice([*read_examples(), *_MADE_HERE])
    if example in ("partial", "failed-index"):
        return [_make_indexed(name, namespace, chance, most, is_partial=example == "partial")]
    if example in _MADE_HERE:
        return _make_with_workload(name, namespace, chance, most, has_owner=example == "prebuilt")
    objects = deepcopy(read_examples()[example])
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
    _add_oddities(objects[-1], chance)
    return objects


def make_elastic_job(name: str, namespace: str, chance: random.Random, most: int) -> Json:
    """A job that grows and shrinks while it runs. Some Jobs end once each of their pods has been made three times."""
    kind = chance.choice(["Job", "Job", "RayCluster", "RayJob", "RayService"])
    level: Json = {chance.choice(["required", "preferred"]): _RACK}
    count, gpus, ends = chance.randint(1, most), chance.choice([1, 4, 8]), chance.random() < 0.3
    if kind != "Job":
        return manifests.make_elastic_ray(kind, name, namespace, workers=count, gpus=gpus, **level)
    spec = {"completions": 3 * most if ends else 1000}
    job = manifests.build_job(name, namespace, pods=count, gpus=gpus, indexed=chance.random() < 0.3, spec=spec, **level)
    job["metadata"]["annotations"] = {ELASTIC_JOB: "true"}
    if ends:
        job["spec"]["template"]["metadata"]["annotations"][RUN_SECONDS] = "60"
    return job


def _add_oddities(job: Json, chance: random.Random) -> None:
    """What few users ask for: spares, very long tolerations, a RayJob without a submitter, names that no pod set can have."""
    templates = [job] if job["kind"] == "Pod" else [each for each in _find_templates(job["spec"]) if "spec" in each]
    for template in templates:
        notes = template["metadata"]["annotations"]
        if job["kind"] in ("Job", "JobSet") and REQUIRED_TOPOLOGY in notes and PODSET_GROUP_NAME not in notes and chance.random() < 0.3:
            notes[SPARE_NODES] = "1"
    if chance.random() < 0.15:
        toleration: Json = {"key": "example.com/repair", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LONG_S}
        if chance.random() < 0.5:
            del toleration["key"]  # of all taints, those of nodes that are not ready among them
        for template in templates if job["kind"] != "Pod" else ():
            template["spec"]["tolerations"] = [toleration]
    if job["kind"] == "RayJob" and chance.random() < 0.5:
        del job["spec"]["submitterPodTemplate"]
    if job["kind"] == "RayCluster":
        group = job["spec"]["workerGroupSpecs"][0]
        if chance.random() < 0.15:
            group["groupName"] = "gpu_group"
        if chance.random() < 0.5:
            group["replicas"] = chance.randint(0, group["minReplicas"])


def _make_with_workload(name: str, namespace: str, chance: random.Random, most: int, *, has_owner: bool) -> list[Json]:
    """A Workload that a user has written, and the Job that names it, or pods that do and have no owner."""
    count, gpus = chance.randint(1, most), chance.choice(["1", "4", "8"])
    if not has_owner:
        return build_tool_workload(name, namespace, {"main": count}, gpus)
    spec, ends = _build_spec(gpus), {RUN_SECONDS: str(chance.choice([5, 60, 300]))}
    workload: Json = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": f"{name}-own", "namespace": namespace},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": count, "template": {"spec": spec}}]},
    }
    labels = {QUEUE_NAME_LABEL: "main", PREBUILT_WORKLOAD: f"{name}-own"}
    template = {"metadata": {"annotations": ends}, "spec": deepcopy(spec)}
    job_spec = {"parallelism": count, "completions": count, "completionMode": "Indexed", "template": template}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return [workload, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job_spec}]


def build_tool_workload(
    name: str, namespace: str, counts: Mapping[str, int], gpus: str, least: Mapping[str, int] = MappingProxyType({})
) -> list[Json]:
    """The Workload of a tool and its pods, which have no owner; `counts` by pod set, of which those in `least` can do with so many."""
    request = {"topologyRequest": {"required": _RACK}}
    template = {"spec": _build_spec(gpus)}
    workload: Json = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": f"{name}-own", "namespace": namespace, "annotations": {OF_TOOL: "true"}},
        "spec": {
            "queueName": "main",
            "podSets": [
                {"name": each, "count": count, "template": template, **request, **({"minCount": least[each]} if each in least else {})}
                for each, count in counts.items()
            ],
        },
    }
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": namespace,
                "labels": {PODSET_LABEL: pod_set},
                "annotations": {WORKLOAD_ANNOTATION: f"{name}-own"},
            },
            "spec": {**_build_spec(gpus), "schedulingGates": [{"name": TOPOLOGY_GATE}]},
        }
        for number, pod_set in enumerate(chain.from_iterable(repeat(each, count) for each, count in counts.items()))
    ]
    return [workload, *pods]


def _build_spec(gpus: str) -> Json:
    amounts = {"requests": {"cpu": "1", _GPU: gpus}, "limits": {_GPU: gpus}}
    return {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "registry.example/worker:1", "resources": amounts}]}


def _make_indexed(name: str, namespace: str, chance: random.Random, most: int, *, is_partial: bool) -> Json:
    """A Job whose pods end one after the other: one that may run with fewer pods, or one with an index that fails for good."""
    count, gpus = chance.randint(2, max(most, 2)), chance.choice(["1", "4", "8"])
    amounts = {"requests": {"cpu": "1", _GPU: gpus}, "limits": {_GPU: gpus}}
    run_seconds, stagger_seconds = chance.choice([5, 60, 120]), chance.choice([0, 5, 10])
    notes = {RUN_SECONDS: str(run_seconds), STAGGER_SECONDS: str(stagger_seconds)}
    placed = chance.choice([{REQUIRED_TOPOLOGY: _RACK}, {PREFERRED_TOPOLOGY: _RACK}, {UNCONSTRAINED_TOPOLOGY: "true"}, {}])
    spec: Json = {
        "parallelism": count,
        "completions": chance.choice([count, count, count + 1, 2 * count]),
        "completionMode": "Indexed",
        "template": {
            "metadata": {"annotations": {**notes, **placed}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "worker", "image": "registry.example/worker:1", "resources": amounts}],
            },
        },
    }
    metadata: Json = {"name": name, "namespace": namespace, "labels": {QUEUE_NAME_LABEL: "main"}, "annotations": {}}
    if chance.random() < 0.5:
        metadata["labels"][PRIORITY_CLASS_LABEL] = chance.choice(["low", "high"])
    if is_partial:
        metadata["annotations"][MIN_PARALLELISM] = str(chance.randint(1, count - 1))
        if chance.random() < 0.5:
            metadata["annotations"][COMPLETIONS_EQUAL_PARALLELISM] = "true"
            spec["completions"] = count
        elif chance.random() < 0.3:
            del spec["completionMode"]
    else:
        spec |= {"backoffLimitPerIndex": chance.choice([0, 1]), "backoffLimit": 2 * count + 2}
        spec["template"]["metadata"]["annotations"][FAILING_INDEX] = str(chance.randrange(count))
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


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

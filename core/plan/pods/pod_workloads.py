"""The workload that a unit of pods asks for: its parts, and whether the present pods ask for something else."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from core.jobs.annotation_catalog import OF_A_TEMPLATE
from core.jobs.contract import PodSetTemplate
from core.jobs.execution_time import parse_execution_time
from core.jobs.kinds.pod import Pod, build_pod_set, build_pod_topology_request, group_total, has_admission_gate
from core.jobs.kinds.pod_parents import PodParent
from core.model.pod_resources import compute_pod_requests
from core.model.quantity import show_count
from core.names import (
    API_VERSION,
    COMPONENT_WORKLOAD_INDEX,
    IS_GROUP_WORKLOAD,
    JOB_OWNER_GVK,
    JOB_OWNER_NAME,
    MADE_BY,
    POD_GROUP_FAST_ADMISSION,
    PROVISIONING_ANNOTATIONS,
    QUEUE_NAME_LABEL,
    RESOURCE_IN_USE_FINALIZER,
)
from core.plan.pods.pod_units import Unit, compute_seniority, find_pod_role, note_of, queue_of
from core.plan.workloads.desired_workload import KEPT_ANNOTATIONS, build_hashed_name, build_workload_labels
from core.state.facts import find_controller

Json = dict[str, Any]
MAX_SHOWN_CHARS = 100  # of an annotation in a message; slices in layers are a list of any length


@dataclass(frozen=True, slots=True)
class DesiredWorkload:
    """The workload that a unit asks for."""

    name: str
    queue: str
    pod_sets: tuple[PodSetTemplate, ...]
    owners: tuple[Json, ...]
    labels: Mapping[str, str]  # of the pods or their parent
    annotations: Mapping[str, str]
    marks: Mapping[str, str]  # annotations that mark the kind of the workload
    job_uid: str | None = None

    @property
    def priority_class(self) -> str | None:
        """Returns the name of the pods' PriorityClass, of the first template that has one; None where none has."""
        names = ((pod_set.template.get("spec") or {}).get("priorityClassName") for pod_set in self.pod_sets)
        return next((name for name in names if name), None)


def build_parent_workload(parent: PodParent, obj: Json, unit: Unit) -> DesiredWorkload | None:
    """Returns the workload of the pods of a StatefulSet, or of one replica of a LeaderWorkerSet. None where the parent is in no queue, is
    being deleted, or has no replica of the unit's index (any more)."""
    return read_parent(parent, obj, unit) if (unit.index or 0) < parent.count_workloads(obj) else None


def read_parent(parent: PodParent, obj: Json, unit: Unit) -> DesiredWorkload | None:
    """Returns the same as `build_parent_workload`, also where the parent has no replicas now; None where it is in no queue or is being
    deleted."""
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    if QUEUE_NAME_LABEL not in labels or metadata.get("deletionTimestamp"):
        return None
    called = metadata["name"] if unit.index is None else f"{metadata['name']}-{unit.index}"
    marks = {
        IS_GROUP_WORKLOAD: "true",
        JOB_OWNER_GVK: f"{parent.group}/{parent.version}, Kind={parent.kind}",
        JOB_OWNER_NAME: metadata["name"],
    }
    return DesiredWorkload(
        build_hashed_name(parent.kind, parent.group, called, metadata.get("uid", "")),
        labels[QUEUE_NAME_LABEL],
        tuple(parent.list_pod_sets(obj)),
        (_build_owner_fields(f"{parent.group}/{parent.version}", parent.kind, metadata),),
        labels,
        metadata.get("annotations") or {},
        marks | ({} if unit.index is None else {COMPONENT_WORKLOAD_INDEX: str(unit.index)}),
        metadata.get("uid"),
    )


def build_pod_workload(pod: Json, whole: Pod) -> DesiredWorkload:
    """Returns the workload of a pod that is alone; `pod` is as the API server has it, `whole` the kind. Raises KeyError where the pod names
    no queue."""
    metadata, owner = pod["metadata"], find_controller(pod)
    labels = metadata.get("labels") or {}
    return DesiredWorkload(
        build_hashed_name(Pod.kind, Pod.group, metadata["name"], metadata.get("uid", "")),
        labels[QUEUE_NAME_LABEL],
        tuple(whole.list_pod_sets(pod)),
        (_build_owner_fields(Pod.version, Pod.kind, metadata),),
        labels,
        metadata.get("annotations") or {},
        {MADE_BY: owner["uid"]} if owner is not None else {},
        metadata.get("uid"),
    )


@dataclass(frozen=True, slots=True)
class PlainPodGroup:
    """A plain pod group as its pods describe it: pods per role, and an example pod for each role; or what is wrong, or
    missing."""

    roles: Mapping[str, int]
    examples: Mapping[str, str]  # name of a pod per role
    queue: str = ""
    requests: Mapping[str, Json | None] = field(default_factory=dict)  # topology request per role, of pods that wait
    problem: str | None = None
    missing: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)  # that its Workload is to have


def describe_missing_pods(unit: Unit, group: PlainPodGroup) -> str:
    """Returns a sentence that a group waits for the pods that are `missing`."""
    return f"group {unit.name} waits for {show_count(group.missing, 'more pod')}; it is queued when all are there"


def read_group(unit: Unit, pods: Sequence[Json], copied_labels: Collection[str] = ()) -> PlainPodGroup:
    """Returns what the pods of a group ask for together. Pods being deleted are not counted, finished ones are, the most senior first up to
    the total (`compute_seniority`). `missing`: how many of the total are not there, 1 without any pod. With fast admission and one role
    none is missing, and that role has the total.

    It has only a `problem` where pods differ in queue or total count, or have no total. Gated pods of one role that ask for another
    topology are a problem, too, and so are pods with other values of a label that its Workload is to have (`copied_labels`).
    """
    counted = sorted((pod for pod in pods if not pod["metadata"].get("deletionTimestamp")), key=compute_seniority)
    if not counted:
        return PlainPodGroup({}, {}, missing=1)
    for what, read in (("queue", queue_of), ("total count", group_total)):
        said = {read(pod): pod["metadata"]["name"] for pod in reversed(counted)}
        if len(said) > 1:
            shown = ", ".join(f"{value} (pod {name})" for value, name in sorted(said.items(), key=lambda entry: entry[1]))
            return PlainPodGroup({}, {}, problem=f"pods of group {unit.name} differ in their {what}: {shown}; delete those that are wrong")
    total = group_total(counted[0])
    if not total:
        return PlainPodGroup({}, {}, problem=f"pods of group {unit.name} do not say how many they are")
    counted = counted[:total]
    asking: dict[str, Json] = {}
    for pod in counted:
        first = asking.setdefault(find_pod_role(pod), pod) if has_admission_gate(pod) else pod
        if first is not pod and _get_asked_topology(first) != _get_asked_topology(pod):
            return PlainPodGroup({}, {}, problem=_describe_other_request(unit, first, pod))
    labels: dict[str, str] = {}
    for key, pod in product(copied_labels, counted):
        of_pod = pod["metadata"].get("labels") or {}
        if key in of_pod and labels.setdefault(key, of_pod[key]) != of_pod[key]:
            shown = f"label {key}: {labels[key]} and {of_pod[key]} (pod {pod['metadata']['name']})"
            return PlainPodGroup({}, {}, problem=f"pods of group {unit.name} differ in their {shown}; delete those that are wrong")
    requests = {role: build_pod_topology_request(pod) for role, pod in asking.items()}
    roles = Counter(find_pod_role(pod) for pod in counted)
    examples = {find_pod_role(pod): pod["metadata"]["name"] for pod in reversed(counted)}
    missing = total - len(counted)
    if missing and len(roles) == 1 and note_of(counted[0], POD_GROUP_FAST_ADMISSION) == "true":
        roles, missing = Counter(dict.fromkeys(roles, total)), 0
    return PlainPodGroup(dict(sorted(roles.items())), examples, queue_of(counted[0]), requests, missing=missing, labels=labels)


def build_group_workload(unit: Unit, group: PlainPodGroup, pods: Sequence[Json], examples: Mapping[str, Json]) -> DesiredWorkload:
    """Returns the workload of a whole group, called as the group. `examples` are one pod per role as the API server has it; labels and
    annotations are those of the example in the role of the most senior of `pods`. Raises KeyError where a role has no example.

    No pod owns it, and it goes with the last one. The garbage collector would take it from a running group once all of its first pods have
    been replaced. A large group would be too long a list.
    """
    first = examples[find_pod_role(min(pods, key=compute_seniority))]["metadata"]
    pod_sets = tuple(build_pod_set(role, count, examples[role]) for role, count in group.roles.items())
    labels, notes = {**(first.get("labels") or {}), **group.labels}, first.get("annotations") or {}
    return DesiredWorkload(unit.name, group.queue, pod_sets, (), labels, notes, {IS_GROUP_WORKLOAD: "true"})


def build_workload_of_pods(
    wanted: DesiredWorkload, namespace: str, *, priority: int, priority_class: Json | None, copied_labels: Collection[str] = ()
) -> dict[str, Any]:
    """Returns a new Workload (JSON) for a unit, active and with topogate's finalizer. `priority_class`: its `spec.priorityClassRef`; None:
    it gets none.

    Of the annotations it keeps those about placement and provisioning, and the trace; all `marks` are added. Of the labels it keeps
    those with a key in `copied_labels` (`build_workload_labels`). A time limit in the labels becomes `spec.maximumExecutionTimeSeconds`.
    """
    spec: dict[str, Any] = {
        "queueName": wanted.queue,
        "active": True,
        "priority": priority,
        "podSets": [pod_set.to_wire() for pod_set in wanted.pod_sets],
    }
    if priority_class is not None:
        spec["priorityClassRef"] = dict(priority_class)
    seconds = parse_execution_time(wanted.labels)
    if seconds is not None:
        spec["maximumExecutionTimeSeconds"] = seconds
    notes = {key: value for key, value in wanted.annotations.items() if key in KEPT_ANNOTATIONS or key.startswith(PROVISIONING_ANNOTATIONS)}
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": wanted.name,
            "namespace": namespace,
            "labels": build_workload_labels(wanted.labels, wanted.job_uid or None, copied_labels),
            "annotations": notes | dict(wanted.marks),
            "finalizers": [RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": [dict(owner) for owner in wanted.owners],
        },
        "spec": spec,
    }


def has_other_request(wanted: DesiredWorkload, workload: Json) -> bool:
    """Returns whether a parent's present pods (`wanted`) differ from those of its workload. Compared are the queue, and name, number,
    requests, claims, topology request and node rules of each pod set. What does not matter for where they run, such as an image, may change
    meanwhile. Raises InvalidQuantity where requests cannot be read."""

    def reduce_to_essence(pod_set: Json) -> tuple[Any, ...]:
        spec = pod_set["template"].get("spec") or {}
        place = (spec.get(part) or None for part in ("nodeSelector", "affinity", "tolerations", "runtimeClassName", "resourceClaims"))
        return pod_set["name"], pod_set["count"], compute_pod_requests(spec), pod_set.get("topologyRequest"), *place

    if wanted.queue != workload["spec"].get("queueName"):
        return True
    return [reduce_to_essence(pod_set.to_wire()) for pod_set in wanted.pod_sets] != [
        reduce_to_essence(pod_set) for pod_set in workload["spec"]["podSets"]
    ]


def _build_owner_fields(api_version: str, kind: str, metadata: Json) -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata.get("uid", "")}
    return reference | {"controller": True, "blockOwnerDeletion": True}


def with_requests(workload: Json, requests: Mapping[str, Json | None]) -> list[Json] | None:
    """Returns shallow copies of a workload's pod sets (JSON) with other topology requests. `requests`: the JSON by name of the pod set;
    None removes it, and a pod set that is not named keeps its own. None where they have them already."""
    changed = []
    for pod_set in workload["spec"]["podSets"]:
        request = requests.get(pod_set["name"], pod_set.get("topologyRequest"))
        rest = {key: value for key, value in pod_set.items() if key != "topologyRequest"}
        changed.append(rest | ({"topologyRequest": request} if request else {}))
    return None if changed == workload["spec"]["podSets"] else changed


def _get_asked_topology(pod: Json) -> dict[str, str | None]:
    notes = pod["metadata"].get("annotations") or {}
    return {name: notes.get(name) for name in OF_A_TEMPLATE}


def _describe_other_request(unit: Unit, *pods: Json) -> str:
    """Of two pods that are alike in all but what they ask for."""
    asked = {pod["metadata"]["name"]: _get_asked_topology(pod) for pod in pods}
    one, other = asked.values()
    differing = (
        f"{name} is " + ", ".join(f"{_format_value(notes[name])} (pod {pod})" for pod, notes in asked.items())
        for name in one
        if one[name] != other[name]
    )
    text = f"pods {' and '.join(asked)} of group {unit.name} are alike, but ask for different topologies"
    return f"{text}: {'; '.join(differing)}; delete those that are wrong"


def _format_value(value: str | None) -> str:
    if value is None:
        return "not set"
    return value if len(value) <= MAX_SHOWN_CHARS else f"{value[: MAX_SHOWN_CHARS - 3]}..."

"""Pods that are queued themselves: which of them are one workload, what it is, and which may start.

A unit is what one workload stands for: a pod alone, a pod group, the pods of a StatefulSet or of one replica of a
LeaderWorkerSet. Plain functions of JSON objects as they are observed, pods cut down to what is kept of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.jobs.contract import Finish, PodSetTemplate
from core.jobs.pod import Pod, group_name, group_total, has_admission_gate, pod_set_of, pod_topology_request
from core.jobs.pod_parents import LeaderWorkerSet, PodParent, StatefulSet, lws_group
from core.model.resources import pod_requests
from core.names import (
    API_VERSION,
    COMPONENT_WORKLOAD_INDEX,
    IS_GROUP_WORKLOAD,
    JOB_OWNER_GVK,
    JOB_OWNER_NAME,
    JOB_UID_LABEL,
    MAIN_POD_SET,
    MANAGED,
    MAX_EXEC_TIME_LABEL,
    POD_GROUP_FAST_ADMISSION,
    POD_GROUP_SERVING,
    PODSET_GROUP_NAME,
    PRIORITY_CLASS_LABEL,
    PROVISIONING_ANNOTATIONS,
    QUEUE_NAME_LABEL,
    RESOURCE_IN_USE_FINALIZER,
    RETRIABLE_IN_GROUP,
    ROLE_HASH,
    SLICE_SIZE,
    SUSPENDING_PARENT,
    TOPOLOGY_ANNOTATIONS,
)
from core.plan.workload import KEPT_ANNOTATIONS, hashed_name
from core.state.facts import controller_of, read_index
from core.state.owners import is_orphaned

Json = dict[str, Any]
ALONE, GROUP = "Pod", "PodGroup"
UNKNOWN = "Unassigned"  # a pod whose parent has not told yet which of its pods it is, or has let go of it
_BY_PARENT: Mapping[str, type[PodParent]] = {StatefulSet.name_on_pods: StatefulSet, LeaderWorkerSet.name_on_pods: LeaderWorkerSet}
PARENTS: Mapping[str, type[PodParent]] = {parent.kind: parent for parent in _BY_PARENT.values()}


@dataclass(frozen=True, slots=True)
class Unit:
    """What one workload stands for. `index` tells the workloads of one parent apart where it has several."""

    source: str  # ALONE, GROUP, UNKNOWN, or the kind of the parent
    namespace: str
    name: str
    index: int | None = None

    def __str__(self) -> str:
        return f"{self.source} {self.namespace}/{self.name}" + ("" if self.index is None else f"/{self.index}")


def unit_of_pod(pod: Json) -> Unit | None:
    """The unit of a queued pod, None of others."""
    metadata = pod["metadata"]
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if labels.get(MANAGED) != "true" or QUEUE_NAME_LABEL not in labels:
        return None
    namespace, parent = metadata["namespace"], _BY_PARENT.get(notes.get(SUSPENDING_PARENT, ""))
    if parent is LeaderWorkerSet:
        found = lws_group(pod)
        return Unit(parent.kind, namespace, *found) if found is not None else Unit(UNKNOWN, namespace, metadata["name"])
    owner = controller_of(pod)
    if parent is StatefulSet and owner is None:
        return Unit(UNKNOWN, namespace, metadata["name"])  # orphaned, or made by hand: it stays as it is
    if parent is StatefulSet and owner is not None and owner["kind"] == parent.kind:
        return Unit(parent.kind, namespace, owner["name"])
    group = group_name(pod)
    return Unit(GROUP, namespace, group) if group is not None else Unit(ALONE, namespace, metadata["name"])


def unit_of_workload(workload: Json) -> Unit | None:
    """The unit that a workload stands for, None where it is no workload of pods."""
    metadata, owner = workload["metadata"], controller_of(workload)
    notes, namespace = metadata.get("annotations") or {}, metadata["namespace"]
    if owner is None:
        # That of an orphaned parent still says that its pods are a group, but there is none of its name.
        return Unit(GROUP, namespace, metadata["name"]) if IS_GROUP_WORKLOAD in notes and not is_orphaned(workload) else None
    if (owner["apiVersion"], owner["kind"]) == (Pod.version, Pod.kind):
        return Unit(ALONE, namespace, owner["name"])
    parent = PARENTS.get(owner["kind"])
    if parent is None or owner["apiVersion"] != f"{parent.group}/{parent.version}":
        return None
    return Unit(parent.kind, namespace, owner["name"], read_index(notes.get(COMPONENT_WORKLOAD_INDEX, "")))


def queue_to_follow(pod: Json) -> str:
    """The queue that a workload of pods is in by its pods, if they may move it: what serves stays where it is."""
    return "" if _note(pod, POD_GROUP_SERVING) == "true" else _queue(pod)


def with_requests(workload: Json, requests: Mapping[str, Json | None]) -> list[Json] | None:
    """Pod sets of a workload that ask for what their pods ask for by now, None where they do."""
    changed = []
    for pod_set in workload["spec"]["podSets"]:
        request = requests.get(pod_set["name"], pod_set.get("topologyRequest"))
        rest = {key: value for key, value in pod_set.items() if key != "topologyRequest"}
        changed.append(rest | ({"topologyRequest": request} if request else {}))
    return None if changed == workload["spec"]["podSets"] else changed


def owner_of_group(unit: Unit) -> str:
    """Who owns the pods of a plain group, where pods and workload are matched by the uid of their owner."""
    return f"pod group {unit.namespace}/{unit.name}"


# --- the workload -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """The workload that a unit asks for."""

    name: str
    queue: str
    pod_sets: tuple[PodSetTemplate, ...]
    owners: tuple[Json, ...]
    labels: Mapping[str, str]  # of the pods or their parent
    annotations: Mapping[str, str]
    marks: Mapping[str, str]  # annotations that say what kind of workload it is
    job_uid: str | None = None


def wanted_of_parent(parent: PodParent, obj: Json, unit: Unit) -> Wanted | None:
    """The workload of the pods of a StatefulSet, or of one replica of a LeaderWorkerSet; None where it is to have none."""
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    if QUEUE_NAME_LABEL not in labels or metadata.get("deletionTimestamp") or (unit.index or 0) >= parent.workloads(obj):
        return None
    called = metadata["name"] if unit.index is None else f"{metadata['name']}-{unit.index}"
    marks = {
        IS_GROUP_WORKLOAD: "true",
        JOB_OWNER_GVK: f"{parent.group}/{parent.version}, Kind={parent.kind}",
        JOB_OWNER_NAME: metadata["name"],
    }
    return Wanted(
        hashed_name(parent.kind, parent.group, called, metadata.get("uid", "")),
        labels[QUEUE_NAME_LABEL],
        tuple(parent.pod_sets(obj)),
        (_controlled_by(f"{parent.group}/{parent.version}", parent.kind, metadata),),
        labels,
        metadata.get("annotations") or {},
        marks | ({} if unit.index is None else {COMPONENT_WORKLOAD_INDEX: str(unit.index)}),
        metadata.get("uid"),
    )


def wanted_alone(pod: Json, whole: Pod) -> Wanted:
    """The workload of a pod that is alone; `pod` as the API server has it."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    return Wanted(
        hashed_name(Pod.kind, Pod.group, metadata["name"], metadata.get("uid", "")),
        labels[QUEUE_NAME_LABEL],
        tuple(whole.pod_sets(pod)),
        (_controlled_by(Pod.version, Pod.kind, metadata),),
        labels,
        metadata.get("annotations") or {},
        {},
        metadata.get("uid"),
    )


@dataclass(frozen=True, slots=True)
class Group:
    """A plain pod group as its pods tell: pods per role, and one pod that shows what each is; or what is wrong, or missing."""

    roles: Mapping[str, int]
    examples: Mapping[str, str]  # name of a pod per role
    queue: str = ""
    requests: Mapping[str, Json | None] = field(default_factory=dict)  # topology request per role, of pods that wait
    problem: str | None = None
    missing: int = 0


def read_group(unit: Unit, pods: Sequence[Json]) -> Group:
    """What the pods of a group ask for together. Pods on their way out are not counted, finished ones are."""
    counted = sorted((pod for pod in pods if not pod["metadata"].get("deletionTimestamp")), key=_seniority)
    if not counted:
        return Group({}, {}, missing=1)
    for what, read in (("queue", _queue), ("total count", group_total)):
        said = {read(pod): pod["metadata"]["name"] for pod in reversed(counted)}
        if len(said) > 1:
            shown = ", ".join(f"{value} (pod {name})" for value, name in sorted(said.items(), key=lambda entry: entry[1]))
            return Group({}, {}, problem=f"pods of group {unit.name} differ in their {what}: {shown}; delete those that are wrong")
    total = group_total(counted[0])
    if not total:
        return Group({}, {}, problem=f"pods of group {unit.name} do not say how many they are")
    counted = counted[:total]
    asking: dict[str, Json] = {}
    for pod in counted:
        first = asking.setdefault(role_of_pod(pod), pod) if has_admission_gate(pod) else pod
        if first is not pod and _topology_asked(first) != _topology_asked(pod):
            names = f"{first['metadata']['name']} and {pod['metadata']['name']}"
            return Group({}, {}, problem=f"pods {names} of group {unit.name} are alike, but ask for different topologies")
    requests = {role: pod_topology_request(pod) for role, pod in asking.items()}
    roles = Counter(role_of_pod(pod) for pod in counted)
    examples = {role_of_pod(pod): pod["metadata"]["name"] for pod in reversed(counted)}
    missing = total - len(counted)
    if missing and len(roles) == 1 and _note(counted[0], POD_GROUP_FAST_ADMISSION) == "true":
        roles, missing = Counter(dict.fromkeys(roles, total)), 0
    return Group(dict(sorted(roles.items())), examples, _queue(counted[0]), requests, missing=missing)


def wanted_of_group(unit: Unit, group: Group, pods: Sequence[Json], examples: Mapping[str, Json]) -> Wanted:
    """The workload of a whole group, called as the group. `examples` are one pod per role as the API server has it.

    No pod owns it: the garbage collector would take it from a running group once all of its first pods have been
    replaced, and a large group would be too long a list. It goes with the last pod.
    """
    first = examples[role_of_pod(min(pods, key=_seniority))]["metadata"]
    pod_sets = tuple(pod_set_of(role, count, examples[role]) for role, count in group.roles.items())
    labels, notes = first.get("labels") or {}, first.get("annotations") or {}
    return Wanted(unit.name, group.queue, pod_sets, (), labels, notes, {IS_GROUP_WORKLOAD: "true"})


def build_workload_of_pods(wanted: Wanted, namespace: str, *, priority: int, priority_class: Json | None) -> dict[str, Any]:
    """A new Workload for a unit."""
    spec: dict[str, Any] = {
        "queueName": wanted.queue,
        "active": True,
        "priority": priority,
        "podSets": [pod_set.to_wire() for pod_set in wanted.pod_sets],
    }
    if priority_class is not None:
        spec["priorityClassRef"] = dict(priority_class)
    seconds = wanted.labels.get(MAX_EXEC_TIME_LABEL, "")
    if seconds.isascii() and seconds.isdigit():
        spec["maximumExecutionTimeSeconds"] = int(seconds)
    notes = {key: value for key, value in wanted.annotations.items() if key in KEPT_ANNOTATIONS or key.startswith(PROVISIONING_ANNOTATIONS)}
    labels = {JOB_UID_LABEL: wanted.job_uid} if wanted.job_uid else {}
    if PRIORITY_CLASS_LABEL in wanted.labels:
        labels[PRIORITY_CLASS_LABEL] = wanted.labels[PRIORITY_CLASS_LABEL]
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": wanted.name,
            "namespace": namespace,
            "labels": labels,
            "annotations": notes | dict(wanted.marks),
            "finalizers": [RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": [dict(owner) for owner in wanted.owners],
        },
        "spec": spec,
    }


def asks_otherwise(wanted: Wanted, workload: Json) -> bool:
    """Whether a parent's pods by now are others in number, requests or place than those of its workload. What does not
    matter for where they run, an image for one, may change under way."""

    def essence(pod_set: Json) -> tuple[Any, ...]:
        return pod_set["name"], pod_set["count"], pod_requests(pod_set["template"].get("spec") or {}), pod_set.get("topologyRequest")

    return [essence(pod_set.to_wire()) for pod_set in wanted.pod_sets] != [essence(pod_set) for pod_set in workload["spec"]["podSets"]]


def _controlled_by(api_version: str, kind: str, metadata: Json) -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata.get("uid", "")}
    return reference | {"controller": True, "blockOwnerDeletion": True}


# --- its pods ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What is to be done with the pods of an admitted unit now: those to start with their pod sets, those to delete and
    why, those that are too many; `problems` say why others stay behind."""

    start: tuple[tuple[Json, str], ...] = ()
    delete: tuple[tuple[Json, str], ...] = ()
    excess: tuple[Json, ...] = ()
    problems: tuple[str, ...] = ()


def is_terminal(pod: Json) -> bool:
    """Whether a pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_going(pod: Json) -> bool:
    """Whether a pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def role_of_pod(pod: Json) -> str:
    """The role of a pod in its plain group."""
    return _note(pod, ROLE_HASH) or MAIN_POD_SET


def matters(pod: Json) -> tuple[Any, ...]:
    """What of a pod can change what is to be done with its unit; where it runs, or whether it is ready, does not."""
    metadata = pod["metadata"]
    notes = metadata.get("annotations") or {}
    return (
        has_admission_gate(pod),
        is_terminal(pod),
        is_going(pod),
        metadata.get("finalizers"),
        _queue(pod),
        unit_of_pod(pod),
        {name: value for name, value in notes.items() if name not in KEPT_ANNOTATIONS} if has_admission_gate(pod) else None,
    )


def plan_start(counts: Mapping[str, int], pods: Sequence[tuple[Json, str]], *, deletes_excess: bool) -> PodPlan:
    """Which pods of an admitted unit start: no more of a pod set than were admitted, whatever else is there.

    `pods` come with their pod sets. Ended pods of a plain group that succeeded keep their place, others free it. One that
    is being deleted has its place until it is gone: who replaces it waits, and is not too many.
    """
    start: list[tuple[Json, str]] = []
    delete: list[tuple[Json, str]] = []
    excess: list[Json] = []
    problems: list[str] = []
    by_role: dict[str, list[Json]] = {}
    for pod, role in pods:
        by_role.setdefault(role, []).append(pod)
    for role, members in sorted(by_role.items()):
        if role not in counts:
            names = ", ".join(pod["metadata"]["name"] for pod in members[:3])
            problems.append(f"the workload was admitted without pods like {names} (role {role})")
            delete += [(pod, "it is no part of what was admitted") for pod in members if _stays(pod)]
            continue
        done = sum(1 for pod in members if (pod.get("status") or {}).get("phase") == "Succeeded") if deletes_excess else 0
        room = max(0, counts[role] - done)
        staying = [pod for pod in members if _stays(pod)]
        if len(staying) > room:
            over = sorted(staying, key=_seniority)[room:]
            delete += [(pod, f"more than the {counts[role]} pods that were admitted run") for pod in over]
        waiting = sorted((pod for pod in members if _waits(pod)), key=_seniority)
        free = max(0, room - len(still_running(members)))
        start += [(pod, role) for pod in waiting[:free]]
        if deletes_excess:
            excess += waiting[max(0, room - len(staying)) :]
    return PodPlan(tuple(start), tuple(delete), tuple(excess), tuple(problems))


def excess_of_group(pods: Sequence[Json], total: int) -> list[Json]:
    """Pods that wait beyond the total of their plain group, the youngest; those that failed are replaced, not counted."""
    counted = [pod for pod in sorted(pods, key=_seniority) if not is_going(pod) and (pod.get("status") or {}).get("phase") != "Failed"]
    return [pod for pod in counted[total:] if _waits(pod)]


def plan_stop(pods: Sequence[Json], reason: str) -> tuple[tuple[Json, str], ...]:
    """Pods of a unit that may not run: those that have passed the admission gate are deleted."""
    return tuple((pod, reason) for pod in pods if _stays(pod))


def still_running(pods: Sequence[Json]) -> list[Json]:
    """Pods that have passed the admission gate and are not gone."""
    return [pod for pod in pods if _runs(pod)]


def to_release(pods: Sequence[Json], *, finished: bool, remembers: bool) -> tuple[Json, ...]:
    """Pods whose finalizer has done its work: all of a finished unit, else those being deleted. Where success is counted by
    pods (`remembers`), one that succeeded is kept until all is over."""
    return tuple(
        pod
        for pod in pods
        if MANAGED in (pod["metadata"].get("finalizers") or ())
        and (finished or (is_going(pod) and not (remembers and (pod.get("status") or {}).get("phase") == "Succeeded")))
    )


def finish_of(unit: Unit, counts: Mapping[str, int], pods: Sequence[Json]) -> Finish | None:
    """How a unit ended, None while it has not: a pod with itself, a group once all its pods have succeeded, or all have
    ended and one says that none will replace it. What serves never ends."""
    ended = [pod for pod in pods if is_terminal(pod)]
    succeeded = sum(1 for pod in ended if pod["status"]["phase"] == "Succeeded")
    total = sum(counts.values())
    if unit.source == ALONE and ended:
        return Finish(succeeded > 0, "Pod succeeded" if succeeded else "Pod failed")
    if unit.source != GROUP or not ended or any(_note(pod, POD_GROUP_SERVING) == "true" for pod in pods):
        return None
    if succeeded >= total:
        return Finish(True, f"Pods succeeded: {succeeded}/{total}")
    final = any(_note(pod, RETRIABLE_IN_GROUP) == "false" for pod in pods)
    if final and len(ended) == len(pods):
        return Finish(False, f"Pods succeeded: {succeeded}/{total}; the others may not be replaced")
    return None


def _runs(pod: Json) -> bool:
    return not has_admission_gate(pod) and not is_terminal(pod)


def _stays(pod: Json) -> bool:
    return _runs(pod) and not is_going(pod)


def _waits(pod: Json) -> bool:
    return has_admission_gate(pod) and not is_terminal(pod) and not is_going(pod)


def _seniority(pod: Json) -> tuple[bool, bool, str, str]:
    """Pods that have started before those that wait, then the oldest first."""
    metadata = pod["metadata"]
    return has_admission_gate(pod), is_going(pod), metadata.get("creationTimestamp") or "", metadata["name"]


def _topology_asked(pod: Json) -> list[Any]:
    notes = pod["metadata"].get("annotations") or {}
    return [notes.get(name) for name in (*TOPOLOGY_ANNOTATIONS, SLICE_SIZE, PODSET_GROUP_NAME)]


def _queue(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(QUEUE_NAME_LABEL, ""))


def _note(pod: Json, name: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))

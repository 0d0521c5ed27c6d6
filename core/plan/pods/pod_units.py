"""Pods that are queued themselves: which of them are one workload, and which workload is theirs.

A unit is what one workload stands for: a pod alone, a pod group, the pods of a StatefulSet or of one replica of a
LeaderWorkerSet. Plain functions of JSON objects as they are observed, pods cut down to what is kept of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.jobs.kinds.pod import Pod, group_name, has_admission_gate
from core.jobs.kinds.pod_parents import LeaderWorkerSet, PodParent, StatefulSet, find_lws_group
from core.names import (
    COMPONENT_WORKLOAD_INDEX,
    IS_GROUP_WORKLOAD,
    JOB_UID_LABEL,
    MAIN_POD_SET,
    MANAGED,
    POD_GROUP_SERVING,
    QUEUE_NAME_LABEL,
    ROLE_HASH,
    SUSPENDING_PARENT,
)
from core.plan.steps import api_resources as r
from core.plan.workloads.desired_workload import KEPT_ANNOTATIONS
from core.state.facts import PodFacts, find_controller, read_index
from core.state.owners import is_orphaned, mark_uid

Json = dict[str, Any]
ALONE, GROUP = "Pod", "PodGroup"
UNKNOWN = "Unassigned"  # a pod of a parent that has not labelled it yet, or has released it
_BY_PARENT: Mapping[str, type[PodParent]] = {StatefulSet.name_on_pods: StatefulSet, LeaderWorkerSet.name_on_pods: LeaderWorkerSet}
PARENTS: Mapping[str, type[PodParent]] = {parent.kind: parent for parent in _BY_PARENT.values()}


@dataclass(frozen=True, slots=True)
class Unit:
    """The object for which one workload is created. `index` distinguishes the workloads of one parent that has several."""

    source: str  # ALONE, GROUP, UNKNOWN, or the kind of the parent
    namespace: str
    name: str
    index: int | None = None

    def __str__(self) -> str:
        return f"{self.source} {self.namespace}/{self.name}" + ("" if self.index is None else f"/{self.index}")


def find_pod_unit(pod: Json) -> Unit | None:
    """Returns the unit of a pod; None for a pod that is not queued itself: it needs the label MANAGED with value true, and one that names a
    queue. The unit is UNKNOWN where a parent has not labelled the pod yet, or has released it."""
    metadata = pod["metadata"]
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if labels.get(MANAGED) != "true" or QUEUE_NAME_LABEL not in labels:
        return None
    namespace, parent = metadata["namespace"], _BY_PARENT.get(notes.get(SUSPENDING_PARENT, ""))
    if parent is LeaderWorkerSet:
        found = find_lws_group(pod)
        return Unit(parent.kind, namespace, *found) if found is not None else Unit(UNKNOWN, namespace, metadata["name"])
    owner = find_controller(pod)
    if parent is StatefulSet and owner is None:
        return Unit(UNKNOWN, namespace, metadata["name"])  # orphaned, or made by hand: it stays as it is
    if parent is StatefulSet and owner is not None and owner["kind"] == parent.kind:
        return Unit(parent.kind, namespace, owner["name"])
    group = group_name(pod)
    return Unit(GROUP, namespace, group) if group is not None else Unit(ALONE, namespace, metadata["name"])


def find_workload_unit(workload: Json) -> Unit | None:
    """Returns the unit that a workload stands for, by its controller; None where it is no workload of pods. One without a controller is
    that of a plain group only if it is marked as such and not orphaned. Whether the unit has pods is not looked at."""
    metadata, owner = workload["metadata"], find_controller(workload)
    notes, namespace = metadata.get("annotations") or {}, metadata["namespace"]
    if owner is None:
        # That of an orphaned parent is still marked as one of a group, but there is no group of its name.
        return Unit(GROUP, namespace, metadata["name"]) if IS_GROUP_WORKLOAD in notes and not is_orphaned(workload) else None
    if (owner["apiVersion"], owner["kind"]) == (Pod.version, Pod.kind):
        return Unit(ALONE, namespace, owner["name"])
    parent = PARENTS.get(owner["kind"])
    if parent is None or owner["apiVersion"] != f"{parent.group}/{parent.version}":
        return None
    return Unit(parent.kind, namespace, owner["name"], read_index(notes.get(COMPONENT_WORKLOAD_INDEX, "")))


def queue_to_follow(pod: Json) -> str:
    """Returns the name of the LocalQueue to which a pod moves its workload: the one that it names. Empty where it names none or serves
    (POD_GROUP_SERVING), as what serves stays where it is."""
    return "" if note_of(pod, POD_GROUP_SERVING) == "true" else queue_of(pod)


def find_group_owner(unit: Unit) -> str:
    """Returns the text `pod group NAMESPACE/NAME`, which takes the place of an owner's uid for the pods and the workload of a plain group:
    they are matched by it, as no object owns them."""
    return f"pod group {unit.namespace}/{unit.name}"


def is_made_for(source: Mapping[str, Any], pod: Mapping[str, Any], facts: PodFacts | None) -> bool:
    """Returns whether a pod was made for the object `source`, not by hand with its labels: by its controller, or by the highest queued
    object above it (`facts` of the pod; None: not known)."""
    owners = (find_controller(pod) or {}).get("uid"), facts.owner_uid if facts is not None else None
    uid, namespace = source["metadata"]["uid"], source["metadata"]["namespace"]
    is_owner = uid in owners or mark_uid(r.show_kind(r.PODS), uid) in owners
    return is_owner and bool(namespace == pod["metadata"]["namespace"])


def is_unowned(workload: Json) -> bool:
    """Returns whether a Workload was made without an owner. The pods that name it are its own, as in Kueue (KEP-2724, Enforcing the
    assignment).

    False for a Workload with the label of a job: that job has left it behind, or will adopt it.
    """
    labels = workload["metadata"].get("labels") or {}
    return find_controller(workload) is None and JOB_UID_LABEL not in labels and find_workload_unit(workload) is None


def get_owner_of_named(key: str) -> str:
    """Returns the text `workload KEY`, by which a Workload without an owner and the pods that name it are matched: it takes the place of an
    owner's uid. `key`: the Workload's namespace/name."""
    return f"workload {key}"


def is_terminal(pod: Json) -> bool:
    """Returns whether a pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_going(pod: Json) -> bool:
    """Returns whether a pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def find_pod_role(pod: Json) -> str:
    """Returns the hash of a pod's shape, by its annotation ROLE_HASH, which names its role in its plain group; `main` where it has none."""
    return note_of(pod, ROLE_HASH) or MAIN_POD_SET


def read_relevant_state(pod: Json) -> tuple[Any, ...]:
    """Returns those parts of a pod that can change what is to be done with its unit, as a tuple to be compared with `==`. Where it runs, or
    whether it is ready, is not among them; annotations only while it has the admission gate."""
    metadata = pod["metadata"]
    notes = metadata.get("annotations") or {}
    return (
        has_admission_gate(pod),
        is_terminal(pod),
        is_going(pod),
        metadata.get("finalizers"),
        queue_of(pod),
        find_pod_unit(pod),
        {name: value for name, value in notes.items() if name not in KEPT_ANNOTATIONS} if has_admission_gate(pod) else None,
    )


def compute_seniority(pod: Json) -> tuple[bool, bool, str, str]:
    """Returns a key for sorting pods: those past the admission gate first, of them those not being deleted, then the
    oldest, then by name."""
    metadata = pod["metadata"]
    return has_admission_gate(pod), is_going(pod), metadata.get("creationTimestamp") or "", metadata["name"]


def queue_of(pod: Json) -> str:
    """Returns the name of the LocalQueue that a pod names; empty where it names none."""
    return str((pod["metadata"].get("labels") or {}).get(QUEUE_NAME_LABEL, ""))


def note_of(pod: Json, name: str) -> str:
    """Returns the value of an annotation of a pod; empty where it has none of that name."""
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))

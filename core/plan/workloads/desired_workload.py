"""The Workload that a job asks for, and what of an admission goes back into the job."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from core.jobs.contract import JobKind, PodSetStart, PodSetTemplate
from core.jobs.execution_time import parse_execution_time
from core.jobs.templates import remove_duplicate_env
from core.model.admission import Admission
from core.names import (
    API_VERSION,
    CLUSTER_QUEUE_LABEL,
    JOB_UID_LABEL,
    LOCAL_QUEUE_LABEL,
    LOST_NODES_THRESHOLD,
    PLACEMENT_PROFILE,
    PODSET_LABEL,
    PRIORITY_CLASS_LABEL,
    PROVISIONING_ANNOTATIONS,
    QUEUE_NAME_LABEL,
    RESOURCE_IN_USE_FINALIZER,
    SLICE_NAME,
    TRACEPARENT_ANNOTATION,
    UNCONSTRAINED_TOPOLOGY,
    WAIT_FOR_PODS_READY,
    WORKLOAD_ANNOTATION,
    WORKLOAD_PREFERRED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from core.state.facts import FlavorFacts

Json = Mapping[str, Any]
_ASKING_ANNOTATIONS = (
    PLACEMENT_PROFILE,
    WORKLOAD_REQUIRED_TOPOLOGY,
    WORKLOAD_PREFERRED_TOPOLOGY,
    LOST_NODES_THRESHOLD,
    WAIT_FOR_PODS_READY,
)
KEPT_ANNOTATIONS = (TRACEPARENT_ANNOTATION, *_ASKING_ANNOTATIONS)  # the job's that its Workload has, too
_MAX_NAME = 253
_HASH = 5
_LABEL_VALUE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class MissingFlavor(LookupError):
    """A flavor that pods were admitted to does not exist, so that its nodes are unknown."""


def build_workload_name(kind: JobKind, job: Json) -> str:
    """Returns the name of a Workload that belongs to one job and no other: kind and name, and a hash of these, group and uid, as Kueue
    names it."""
    metadata = job["metadata"]
    return build_hashed_name(kind.kind, kind.group, metadata["name"], metadata.get("uid", ""))


def build_hashed_name(kind: str, group: str, name: str, uid: str) -> str:
    """Returns the name of a workload, of at most 253 characters, from kind, group, name and uid of its owner: `kind-name`, cut, and 5
    hexadecimal digits of a hash."""
    prefix = f"{kind.lower()}-{name}"[: _MAX_NAME - _HASH - 1]
    text = "\n".join((kind, group, name, uid))
    return f"{prefix}-{hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:_HASH]}"


def find_changed_annotations(asked: Mapping[str, str], workload: Json) -> dict[str, str | None]:
    """Returns those annotations about placement and provisioning that differ between a job (`asked`: its annotations) and its Workload,
    with the job's values; None for those that the job lacks. Others are not looked at."""
    said = workload["metadata"].get("annotations") or {}
    of_provisioning = sorted(name for name in {*asked, *said} if name.startswith(PROVISIONING_ANNOTATIONS))
    return {name: asked.get(name) for name in (*_ASKING_ANNOTATIONS, *of_provisioning) if asked.get(name) != said.get(name)}


def build_workload_labels(labels: Mapping[str, str], job_uid: str | None, copied: Collection[str]) -> dict[str, str]:
    """Returns the labels of a new Workload: of those of its job (`labels`) the ones with a `copied` key, PRIORITY_CLASS_LABEL if it has a
    value, and JOB_UID_LABEL where there is a `job_uid`, whatever the job has there."""
    found = {key: labels[key] for key in copied if key in labels and key != JOB_UID_LABEL}
    if job_uid is not None:
        found[JOB_UID_LABEL] = job_uid
    if priority_class := labels.get(PRIORITY_CLASS_LABEL):
        found[PRIORITY_CLASS_LABEL] = priority_class
    return found


def build_workload(
    kind: JobKind, job: Json, *, priority: int, priority_class: Json | None, copied_labels: Collection[str] = ()
) -> dict[str, Any]:
    """Returns a new Workload (JSON) for a job, owned by it, active and with topogate's finalizer. `priority_class`: its
    `spec.priorityClassRef`; None: it gets none. Of the job's annotations it keeps those about placement and provisioning, and the trace, of
    its labels those with a key in `copied_labels` (`build_workload_labels`). Raises KeyError where the job has no queue."""
    metadata = job["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    spec: dict[str, Any] = {
        "queueName": labels[QUEUE_NAME_LABEL],
        "active": True,
        "priority": priority,
        "podSets": [pod_set.to_wire() for pod_set in kind.list_pod_sets(job)],
    }
    if priority_class is not None:
        spec["priorityClassRef"] = dict(priority_class)
    seconds = parse_execution_time(labels)
    if seconds is not None:
        spec["maximumExecutionTimeSeconds"] = seconds
    kept = {key: value for key, value in annotations.items() if key in KEPT_ANNOTATIONS or key.startswith(PROVISIONING_ANNOTATIONS)}
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": build_workload_name(kind, job),
            "namespace": metadata["namespace"],
            "labels": build_workload_labels(labels, metadata["uid"], copied_labels),
            "annotations": kept,
            "finalizers": [RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": f"{kind.group}/{kind.version}",
                    "kind": kind.kind,
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def has_other_pod_sets(wanted: Sequence[PodSetTemplate], workload: Json) -> bool:
    """Returns whether a suspended job's pod sets, with their order, are no longer those of its workload, in any field. Duplicate
    environment variables in the Workload are no difference, nor are fields that a job's pod set never has."""
    return [pod_set.to_wire() for pod_set in wanted] != [_normalize_pod_set(pod_set) for pod_set in workload["spec"]["podSets"]]


def has_other_counts(wanted: Sequence[PodSetTemplate], workload: Json) -> bool:
    """Returns whether a running job's pod sets or their counts are no longer those it was admitted with (`get_admitted_counts`). Templates
    are not compared, as they carry what the start gave them."""
    admitted = get_admitted_counts(workload)
    return [(p.name, p.count) for p in wanted] != [(p["name"], admitted[p["name"]]) for p in workload["spec"]["podSets"]]


def list_restored_pod_sets(kind: JobKind, job: Json, workload: Json) -> list[dict[str, Any]]:
    """Returns the pod sets (JSON) of a stopped job's workload, to restore the job by; they are not copied, but for the case that follows. A
    job may have been admitted with fewer pods than it had asked for. If its user has changed the number since, that stays: then the entry
    is a copy without `minCount`."""
    pod_sets: list[dict[str, Any]] = workload["spec"]["podSets"]
    given = ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
    admitted = {entry["name"]: int(entry["count"]) for entry in given if entry.get("count") is not None}
    if not any(pod_set.get("minCount") is not None and pod_set["name"] in admitted for pod_set in pod_sets):
        return pod_sets
    kept = {pod_set.name for pod_set in kind.list_pod_sets(job) if pod_set.count != admitted.get(pod_set.name, pod_set.count)}
    return [{key: value for key, value in one.items() if key != "minCount" or one["name"] not in kept} for one in pod_sets]


def get_admitted_counts(workload: Json) -> dict[str, int]:
    """Returns the pods that a job is to have, by name of the pod set: the admitted number for one with a `minCount`, if it is admitted,
    else the requested number. The admitted number of a pod set without a `minCount` is not used: it is lower where some pods have finished
    and are not replaced, and the job still asks for as many."""
    given = ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
    counts = {entry["name"]: int(entry["count"]) for entry in given if entry.get("count") is not None}
    return {
        pod_set["name"]: counts.get(pod_set["name"], int(pod_set["count"]))
        if pod_set.get("minCount") is not None
        else int(pod_set["count"])
        for pod_set in workload["spec"]["podSets"]
    }


def _normalize_pod_set(pod_set: Json) -> dict[str, Any]:
    compared = {key: pod_set[key] for key in ("name", "count", "minCount", "template", "topologyRequest") if key in pod_set}
    return compared | ({"template": remove_duplicate_env(compared["template"])} if "template" in compared else {})


def start_infos(workload: Json, admission: Admission, flavors: Mapping[str, FlavorFacts], local_queue: str) -> list[PodSetStart]:
    """Returns what each pod template gets when the job starts, in the order of the pod sets (KEP-2724). It comes of flavors and checks,
    with labels and annotations that name workload and queues. Checks win over flavors, and topogate's names over checks; of two flavors or
    checks the later one wins. `count` is set only for a pod set with a `minCount`. A queue with a name that can be no label value gets no
    label. Raises MissingFlavor where a flavor of the admission does not exist, ValueError where the admission has another number of pod
    sets."""
    metadata = workload["metadata"]
    traceparent = (metadata.get("annotations") or {}).get(TRACEPARENT_ANNOTATION)
    infos = []
    for pod_set, given in zip(workload["spec"]["podSets"], admission.pod_sets, strict=True):
        names = dict.fromkeys(given.flavors.values())
        missing = next((name for name in names if name not in flavors), None)
        if missing is not None:
            raise MissingFlavor(f"ResourceFlavor {missing} does not exist")
        used = [flavors[name] for name in names]
        labels = {PODSET_LABEL: given.name}
        labels |= {
            key: value
            for key, value in ((LOCAL_QUEUE_LABEL, local_queue), (CLUSTER_QUEUE_LABEL, admission.cluster_queue))
            if _LABEL_VALUE.fullmatch(value)
        }
        annotations = {WORKLOAD_ANNOTATION: metadata["name"]}
        if SLICE_NAME in (metadata.get("annotations") or {}):
            annotations[SLICE_NAME] = metadata["annotations"][SLICE_NAME]
        request = pod_set.get("topologyRequest") or {}
        if given.assignment is not None and not any(request.get(mode) for mode in ("required", "preferred", "unconstrained")):
            annotations[UNCONSTRAINED_TOPOLOGY] = "true"
        if traceparent:
            annotations[TRACEPARENT_ANNOTATION] = traceparent
        updates = _list_updates(workload, given.name)
        infos.append(
            PodSetStart(
                given.name,
                # Pods that it gets later wait until they are admitted.
                given.assignment is not None or not given.count or SLICE_NAME in annotations,
                {key: value for flavor in used for key, value in flavor.node_labels.items()} | _join_updates(updates, "nodeSelector"),
                tuple(
                    t
                    for source in (*(flavor.tolerations for flavor in used), *(u.get("tolerations") or () for u in updates))
                    for t in source
                ),
                _join_updates(updates, "labels") | labels,
                _join_updates(updates, "annotations") | annotations,
                given.count if pod_set.get("minCount") is not None else None,
            )
        )
    return infos


def _list_updates(workload: Json, pod_set: str) -> list[Json]:
    """What admission checks add to a pod set (status.admissionChecks[].podSetUpdates)."""
    checks = (workload.get("status") or {}).get("admissionChecks") or ()
    return [update for check in checks for update in check.get("podSetUpdates") or () if update.get("name") == pod_set]


def _join_updates(updates: Iterable[Json], field: str) -> dict[str, str]:
    return {key: value for update in updates for key, value in (update.get(field) or {}).items()}


def describe_changes(workload: Json, changes: Json, notes: Iterable[str]) -> str:
    """Returns what of a Workload's spec is changed, as text for an event: names of fields and of annotations (`notes`), sorted, and for
    queue, priority and time limit the value before and after, such as `priority 0 -> 1000`."""
    described = {name: name for name in (*changes, *notes)}
    for name in described.keys() & {"queueName", "priority", "maximumExecutionTimeSeconds"}:
        before, after = (spec.get(name) for spec in (workload.get("spec") or {}, changes))
        before = 0 if name == "priority" and before is None else before
        described[name] = f"{name} {_show_value(before)} -> {_show_value(after)}"
    return f"Updated Workload: {', '.join(described[name] for name in sorted(described))}"


def _show_value(value: object) -> str:
    return "none" if value is None else str(value)

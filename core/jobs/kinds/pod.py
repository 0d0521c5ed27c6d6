"""v1 Pod: a pod that is queued itself, alone or as one of a pod group.

It waits behind two gates: `admission` until its workload is admitted, `topology` until it has its domain. Both are there
from the start, since a gate can never be added to a pod later.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from core.jobs import annotations
from core.jobs.contract import Defaults, ErrorType, FieldError, JobKind, Json, PodSetTemplate, Rules
from core.jobs.execution_time import validate_execution_time
from core.jobs.pod_rules import CHOOSES_NODES, check_pod_spec, check_size
from core.jobs.prebuilt_label import list_pod_warnings
from core.jobs.schema_check import POD_SPEC, Fields
from core.jobs.template_parts import copy_object
from core.jobs.templates import remove_duplicate_env
from core.names import (
    ADMISSION_GATE,
    MAIN_POD_SET,
    MANAGED,
    MEMBER_OF_LABEL,
    POD_GROUP_INDEX_LABEL,
    POD_GROUP_INDEX_LABEL_NAME,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    POD_INDEX_OFFSET,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
    ROLE_HASH,
    SLICE_NAME,
    SUSPENDING_PARENT,
    TOPOLOGY_GATE,
    TRACEPARENT_ANNOTATION,
    WORKLOAD_ANNOTATION,
)

MAX_GROUP_PODS = 100_000  # the most that can be assigned
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DAEMON_SET = ("DaemonSet", "apps")
STATIC_POD = "kubernetes.io/config.mirror"
# Labels that define that a pod is queued, and its group.
SETTLED_LABELS = (QUEUE_NAME_LABEL, MANAGED, POD_GROUP_NAME)
SETTLED_ANNOTATIONS = (POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT, ROLE_HASH, SUSPENDING_PARENT)


class Pod:
    """Pods of `kinds` are left alone: it is their owner that is queued."""

    kind: ClassVar[str] = "Pod"
    group: ClassVar[str] = ""
    version: ClassVar[str] = "v1"
    plural: ClassVar[str] = "pods"
    spec_shape: ClassVar[Fields] = POD_SPEC
    defaults_updates: ClassVar[bool] = False  # gates cannot be added later

    def __init__(self, kinds: Sequence[JobKind] = ()) -> None:
        self.left_alone = frozenset({(kind.kind, kind.group) for kind in kinds} | {_DAEMON_SET})

    def is_left_alone(self, pod: Json) -> bool:
        """Returns whether a pod belongs to its node (static pod), or its controller is a DaemonSet or of one of the `kinds` given at
        creation. Kind and API group are compared. Other owners do not count."""
        metadata = pod.get("metadata") or {}
        if STATIC_POD in (metadata.get("annotations") or {}):
            return True
        owner = _find_controller(metadata)
        return owner is not None and (owner.get("kind"), (owner.get("apiVersion") or "").rpartition("/")[0]) in self.left_alone

    def default(self, job: Json, defaults: Defaults) -> dict[str, Any]:
        """Returns a copy of a pod. A queued one, also by the default queue, gets label and finalizer MANAGED, the hash of its shape and the
        traceparent. The value of the label that POD_GROUP_INDEX_LABEL_NAME names becomes its index. It gets both gates, after others,
        unless it names a node. What only a start sets (pod set, Workload, slice name) is removed. A pod without a queue, or left alone, is
        unchanged."""
        changed = copy_object(job)
        metadata = changed.setdefault("metadata", {})
        labels = metadata.get("labels") or {}
        if self.is_left_alone(job):
            return changed
        if QUEUE_NAME_LABEL not in labels:
            if not defaults.default_queue:
                return changed
            labels = {**labels, QUEUE_NAME_LABEL: defaults.default_queue}
        # Only a start sets these on a pod; values from a user are removed.
        labels = {key: value for key, value in labels.items() if key != PODSET_LABEL}
        notes = {key: value for key, value in (metadata.get("annotations") or {}).items() if key not in (WORKLOAD_ANNOTATION, SLICE_NAME)}
        notes[ROLE_HASH] = compute_role_hash(changed.get("spec") or {})
        index_label = notes.get(POD_GROUP_INDEX_LABEL_NAME)
        if index_label in labels:
            labels = {**labels, POD_GROUP_INDEX_LABEL: labels[index_label]}
        metadata["labels"] = {**labels, MANAGED: "true"}
        metadata["annotations"] = notes | ({TRACEPARENT_ANNOTATION: defaults.traceparent} if defaults.traceparent else {})
        finalizers = metadata.get("finalizers") or []
        if MANAGED not in finalizers:
            metadata["finalizers"] = [*finalizers, MANAGED]
        spec = changed.setdefault("spec", {})
        if spec.get("nodeName"):
            return changed  # it is refused for that: behind gates the API server refuses it for these
        gates = [gate for gate in spec.get("schedulingGates") or () if gate.get("name") not in (ADMISSION_GATE, TOPOLOGY_GATE)]
        spec["schedulingGates"] = [*gates, {"name": ADMISSION_GATE}, {"name": TOPOLOGY_GATE}]
        return changed

    def validate_create(self, job: Json) -> Rules:
        """Returns the errors and warnings of a new pod: node, size, annotations, time limit, membership of a PodGroup, and what a group
        needs. A pod that is left alone has none. Whether it has a queue is not looked at."""
        if self.is_left_alone(job):
            return Rules()
        notes = (job.get("metadata") or {}).get("annotations") or {}
        # How many pods there are is known where they come from, and judged there.
        grouped = group_name(job) is not None or SUSPENDING_PARENT in notes
        # The offset of a parent's pods is judged on its template, where it may have been written before there was a rule.
        judged_here = {key: value for key, value in notes.items() if key != POD_INDEX_OFFSET or SUSPENDING_PARENT not in notes}
        template = {"metadata": {"annotations": judged_here, "labels": _index_of(job)}}
        asked = annotations.PodSetAnnotations("metadata.annotations", template, None if grouped else 1, is_job=True)
        judged = annotations.validate_pod_sets([asked])
        spec = job.get("spec") or {}
        asks = check_pod_spec("spec", spec, is_pod=True)
        errors = (
            *_check_node(spec),
            *judged.errors,
            *_group_errors(job),
            *_check_one_system(job),
            *validate_execution_time(job),
            *check_size("spec", [spec], of_pods=True),
            *check_size("metadata", [(job.get("metadata") or {}).get("labels"), notes]),  # its Workload has them, too
            *asks,
        )
        return Rules(errors, (*judged.warnings, *list_pod_warnings(job)))

    def validate_update(self, old: Json, new: Json) -> Rules:
        """Returns an error for each of SETTLED_LABELS, and of a queued pod SETTLED_ANNOTATIONS, that changes. A queued pod may name another
        queue while it carries the admission gate. A pod that was left alone has no errors."""
        if self.is_left_alone(old):
            return Rules()
        return Rules(tuple(_change_errors(old, new)))

    def list_pod_sets(self, job: Json) -> list[PodSetTemplate]:
        """Returns the pod set `main` of one pod. It is for a pod that is in no group; whether it is in one is not looked at."""
        return [build_pod_set(MAIN_POD_SET, 1, job)]


def _check_node(spec: Json) -> Iterator[FieldError]:
    if spec.get("nodeName"):
        yield FieldError(ErrorType.FORBIDDEN, "spec.nodeName", spec["nodeName"], CHOOSES_NODES)


def _index_of(pod: Json) -> dict[str, Any]:
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return {name: labels[name] for name in (POD_GROUP_INDEX_LABEL,) if name in labels}


def _check_one_system(pod: Json) -> Iterator[FieldError]:
    """A queued pod is placed by its admission: as a member of a PodGroup it would keep a place that no quota counts."""
    group = ((pod.get("metadata") or {}).get("labels") or {}).get(MEMBER_OF_LABEL)
    if group is not None:
        accepted = (
            f"is not accepted beside {QUEUE_NAME_LABEL}: a PodGroup is for pods without a queue; remove one of them "
            "(every pod has a queue where its namespace is managed by topogate)"
        )
        yield FieldError(ErrorType.FORBIDDEN, f"metadata.labels[{MEMBER_OF_LABEL}]", group, accepted)


def build_pod_set(name: str, count: int, pod: Json) -> PodSetTemplate:
    """Returns the pod set of `count` pods that are all like one, without a `minCount`; see `build_pod_template` and
    `build_pod_topology_request`."""
    return PodSetTemplate(name, count, build_pod_template(pod), build_pod_topology_request(pod))


def build_pod_topology_request(pod: Json) -> dict[str, Any] | None:
    """Returns the `topologyRequest` (JSON) of the pod set that a pod is in, by its annotations; see `build_topology_request`.
    POD_GROUP_INDEX_LABEL is always there as the label of the pod index, so that it is never None."""
    notes = (pod.get("metadata") or {}).get("annotations") or {}
    return annotations.build_topology_request(notes, pod_index_label=POD_GROUP_INDEX_LABEL)


def build_pod_template(pod: Json) -> dict[str, Any]:
    """Returns a copy of a pod as the template that a Workload keeps. It has labels, annotations and spec, without node name, hostname and
    gates. What topogate notes on a pod (label MANAGED, ROLE_HASH, traceparent) is left out, and so are empty labels or annotations. Each
    environment variable is there once."""
    metadata = pod.get("metadata") or {}
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key not in ("nodeName", "schedulingGates", "hostname")}
    notes = {key: value for key, value in (metadata.get("annotations") or {}).items() if key not in (ROLE_HASH, TRACEPARENT_ANNOTATION)}
    kept = {"labels": {key: value for key, value in (metadata.get("labels") or {}).items() if key != MANAGED}, "annotations": notes}
    return remove_duplicate_env({"metadata": {key: value for key, value in kept.items() if value}, "spec": spec})


def group_name(pod: Json) -> str | None:
    """Returns the name of the pod group that a pod names by label POD_GROUP_NAME; where that is absent or empty, by the annotation. None
    where it names none."""
    metadata = pod.get("metadata") or {}
    found = (metadata.get("labels") or {}).get(POD_GROUP_NAME) or (metadata.get("annotations") or {}).get(POD_GROUP_NAME)
    return str(found) if found else None


def group_total(pod: Json) -> int | None:
    """Returns the number of pods in the group of a pod, by its annotation; None where that is absent or not 1 to 9 digits. Its range is not
    checked."""
    text = ((pod.get("metadata") or {}).get("annotations") or {}).get(POD_GROUP_TOTAL_COUNT, "")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def has_admission_gate(pod: Json) -> bool:
    """Returns whether a pod carries the admission gate, so that it waits to be admitted."""
    return any(gate.get("name") == ADMISSION_GATE for gate in (pod.get("spec") or {}).get("schedulingGates") or ())


def compute_role_hash(spec: Json) -> str:
    """Returns 8 hexadecimal digits that are equal for pods of one pod set of a group: of equal requests, ports, priority and equal demands
    on nodes. Images, commands and limits do not count. It is Kueue's name of a pod that has none of `_SHAPE_IF_SET` and no sidecar, which
    Kueue leaves out."""
    shape = {name: spec.get(name) for name in _SHAPE} | {
        part: _list_containers(spec.get(part)) for part in ("containers", "initContainers")
    }
    shape |= {name: spec[name] for name in _SHAPE_IF_SET if spec.get(name)}
    text = json.dumps({"spec": shape}, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]  # JSON may hold halves of characters


_SHAPE = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)


# With the pod's own network each port of a container is one of its node; resources of the whole pod stand over those of its containers.
_SHAPE_IF_SET = ("hostNetwork", "resources")


def _list_containers(containers: Any) -> list[dict[str, Any]] | None:
    if not containers:
        return None
    return [
        {"resources": {"requests": (c.get("resources") or {}).get("requests") or {}}, "ports": c.get("ports")}
        | ({"restartPolicy": "Always"} if c.get("restartPolicy") == "Always" else {})  # the requests of a sidecar are added
        for c in containers
    ]


def _find_controller(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)


def _group_errors(pod: Json) -> Iterator[FieldError]:
    metadata = pod.get("metadata") or {}
    notes = metadata.get("annotations") or {}
    if SUSPENDING_PARENT in notes:
        return  # its parent has the number of pods
    name, text = group_name(pod), notes.get(POD_GROUP_TOTAL_COUNT)
    count_field = f"metadata.annotations[{POD_GROUP_TOTAL_COUNT}]"
    if name is None:
        if text is not None:
            yield FieldError(ErrorType.REQUIRED, f"metadata.labels[{POD_GROUP_NAME}]", None, f"is needed beside {POD_GROUP_TOTAL_COUNT}")
        return
    if not _OBJECT_NAME.fullmatch(name) or len(name) > 253:
        part = "labels" if POD_GROUP_NAME in (metadata.get("labels") or {}) else "annotations"
        accepted = "a name of lower-case letters, digits, '-' and '.' is expected: the group's Workload is called so"
        yield FieldError(ErrorType.INVALID, f"metadata.{part}[{POD_GROUP_NAME}]", name, accepted)
    total = group_total(pod)
    if text is None:
        found = "; it was found as a label, but it is an annotation" if POD_GROUP_TOTAL_COUNT in (metadata.get("labels") or {}) else ""
        accepted = f"is needed beside {POD_GROUP_NAME}: the number of pods of the group{found}"
        yield FieldError(ErrorType.REQUIRED, count_field, None, accepted)
    elif total is None or not 1 <= total <= MAX_GROUP_PODS:
        yield FieldError(ErrorType.INVALID, count_field, text, f"a whole number of 1 to {MAX_GROUP_PODS} is expected")


def _change_errors(old: Json, new: Json) -> Iterator[FieldError]:
    before, after = old.get("metadata") or {}, new.get("metadata") or {}
    labels_before, labels = before.get("labels") or {}, after.get("labels") or {}
    queued_before = labels_before.get(MANAGED) == "true" and QUEUE_NAME_LABEL in labels_before
    for name in SETTLED_LABELS:
        if labels.get(name) == labels_before.get(name):
            continue
        if name == QUEUE_NAME_LABEL and queued_before and name in labels and has_admission_gate(new):
            continue  # not admitted yet: it may change queues
        accepted = _describe_kept(name, labels_before.get(name), new) if queued_before else "a pod is queued when it is created, not later"
        yield FieldError(ErrorType.FORBIDDEN, f"metadata.labels[{name}]", labels.get(name), accepted)
    if not queued_before:
        return
    notes_before, notes = before.get("annotations") or {}, after.get("annotations") or {}
    for name in SETTLED_ANNOTATIONS:
        if notes.get(name) != notes_before.get(name):
            accepted = _describe_kept(name, notes_before.get(name), new)
            yield FieldError(ErrorType.FORBIDDEN, f"metadata.annotations[{name}]", notes.get(name), accepted)


def _describe_kept(name: str, value: Any, pod: Json) -> str:
    """What a queued pod must keep of what it was created with."""
    if name == POD_GROUP_NAME and value is None:
        return "a pod that was created in no group joins none; delete it and create it in that group"
    if name == POD_GROUP_NAME:
        return f"a pod stays in its group {value!r}; delete it and create it in the other"
    if name == QUEUE_NAME_LABEL and has_admission_gate(pod):
        return f"a queued pod stays queued; name {value!r} or another queue, or delete it and create it without"
    if name == QUEUE_NAME_LABEL:
        return f"an admitted pod keeps its queue {value!r}"
    return "is settled when the pod is created: " + ("none was given" if value is None else f"it keeps {value!r}")

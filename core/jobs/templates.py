"""What every kind does to its pod templates: the gate before start, what a start adds, what a stop gives back."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from core.jobs.contract import Json, PodSetStart
from core.names import (
    CLUSTER_QUEUE_LABEL,
    JOB_CONTROLLER_UID_LABELS,
    LOCAL_QUEUE_LABEL,
    PODSET_LABEL,
    TOPOLOGY_ANNOTATIONS,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)

START_LABELS = (PODSET_LABEL, LOCAL_QUEUE_LABEL, CLUSTER_QUEUE_LABEL)


def asks_for_topology(template: Json) -> bool:
    """Whether a pod template carries a topology annotation."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return any(name in annotations for name in TOPOLOGY_ANNOTATIONS)


def has_gate(template: Json) -> bool:
    """Whether a pod template carries the topology gate."""
    return any(gate.get("name") == TOPOLOGY_GATE for gate in (template.get("spec") or {}).get("schedulingGates") or ())


def with_gate(template: Json) -> dict[str, Any]:
    """The template with the topology gate on it."""
    changed = deepcopy(dict(template))
    if not has_gate(changed):
        gates = changed.setdefault("spec", {}).get("schedulingGates") or []
        changed["spec"]["schedulingGates"] = [*gates, {"name": TOPOLOGY_GATE}]
    return changed


def ungate_patch(template: Json) -> dict[str, Any]:
    """Merge patch of a pod template that takes the topology gate off."""
    gates = [gate for gate in (template.get("spec") or {}).get("schedulingGates") or () if gate.get("name") != TOPOLOGY_GATE]
    return {"spec": {"schedulingGates": gates or None}}


def workload_template(template: Json) -> dict[str, Any]:
    """A pod template as a Workload keeps it: without the labels that the job controller adds for itself."""
    kept = deepcopy(dict(template))
    metadata = kept.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in JOB_CONTROLLER_UID_LABELS}
    kept["metadata"] = {key: value for key, value in metadata.items() if key in ("annotations", "finalizers")} | (
        {"labels": labels} if labels else {}
    )
    return kept


def start_patch(template: Json, start: PodSetStart) -> dict[str, Any]:
    """Merge patch of a pod template that makes gate, labels, annotations, node labels and tolerations exact.

    A merge patch replaces lists whole, so gates and tolerations are written in full.
    """
    spec = template.get("spec") or {}
    gates = [gate for gate in spec.get("schedulingGates") or () if gate.get("name") != TOPOLOGY_GATE]
    if start.gated:
        gates = [*gates, {"name": TOPOLOGY_GATE}]
    tolerations = [*(spec.get("tolerations") or ())]
    tolerations += [toleration for toleration in start.tolerations if toleration not in tolerations]
    changed: dict[str, Any] = {"schedulingGates": gates or None, "tolerations": tolerations or None}
    if start.node_selector:
        changed["nodeSelector"] = dict(start.node_selector)
    return {"metadata": {"labels": dict(start.labels), "annotations": dict(start.annotations)}, "spec": changed}


def restore_patch(template: Json, original: Json) -> dict[str, Any]:
    """Merge patch that takes from a template what `start_patch` gave it, by the workload's copy of the original."""
    now_meta, now_spec = template.get("metadata") or {}, template.get("spec") or {}
    then_meta, then_spec = original.get("metadata") or {}, original.get("spec") or {}
    return {
        "metadata": {
            "labels": _difference(
                now_meta.get("labels"), then_meta.get("labels"), keep=(*JOB_CONTROLLER_UID_LABELS, "batch.kubernetes.io/job-name")
            ),
            "annotations": _difference(now_meta.get("annotations"), then_meta.get("annotations")),
        },
        "spec": {
            "schedulingGates": then_spec.get("schedulingGates"),
            "tolerations": then_spec.get("tolerations"),
            "nodeSelector": _difference(now_spec.get("nodeSelector"), then_spec.get("nodeSelector")),
        },
    }


def without_start(template: Json) -> dict[str, Any]:
    """A started template less the labels and annotations that only a start puts there."""
    bare = deepcopy(dict(template))
    metadata = bare.setdefault("metadata", {})
    for part, names in (("labels", START_LABELS), ("annotations", (WORKLOAD_ANNOTATION,))):
        metadata[part] = {key: value for key, value in (metadata.get(part) or {}).items() if key not in names}
    return bare


def _difference(now: Mapping[str, str] | None, then: Mapping[str, str] | None, keep: tuple[str, ...] = ()) -> dict[str, str | None]:
    """Merge patch of a string map from one state to another."""
    gone: dict[str, str | None] = {key: None for key in now or {} if key not in (then or {}) and key not in keep}
    return gone | dict(then or {})


def is_started(template: Json) -> bool:
    """Whether a template carries the workload annotation that a start puts there."""
    return WORKLOAD_ANNOTATION in ((template.get("metadata") or {}).get("annotations") or {})

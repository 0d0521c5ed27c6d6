"""What every kind does to its pod templates: the gate before start, what a start adds, what a stop gives back."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.jobs.annotations import FALSE_VALUES
from core.jobs.contract import Json, PodSetStart
from core.jobs.template_parts import LISTS, MAPS, copy_object, get_parts
from core.names import (
    CLUSTER_QUEUE_LABEL,
    JOB_CONTROLLER_UID_LABELS,
    LOCAL_QUEUE_LABEL,
    MANAGED,
    PODSET_LABEL,
    SLICE_NAME,
    TOPOLOGY_ANNOTATIONS,
    TOPOLOGY_GATE,
    UNCONSTRAINED_TOPOLOGY,
    WORKLOAD_ANNOTATION,
)

_REPLACED = {(UNCONSTRAINED_TOPOLOGY, value) for value in FALSE_VALUES}  # a start writes `true` in the place of these
START_LABELS = (PODSET_LABEL, LOCAL_QUEUE_LABEL, CLUSTER_QUEUE_LABEL)


def has_topology_annotation(template: Json) -> bool:
    """Returns whether a pod template carries any of TOPOLOGY_ANNOTATIONS, with whatever value."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return any(name in annotations for name in TOPOLOGY_ANNOTATIONS)


def has_gate(template: Json) -> bool:
    """Returns whether a pod template carries the topology gate."""
    return any(gate.get("name") == TOPOLOGY_GATE for gate in (template.get("spec") or {}).get("schedulingGates") or ())


def with_gate(template: Json) -> dict[str, Any]:
    """Returns a copy of the template with the topology gate on it, once; a new one comes after the other gates."""
    changed = copy_object(template)
    if not has_gate(changed):
        gates = changed.setdefault("spec", {}).get("schedulingGates") or []
        changed["spec"]["schedulingGates"] = [*gates, {"name": TOPOLOGY_GATE}]
    return changed


def remove_gate(template: Json) -> dict[str, Any]:
    """Returns a copy of the template without the topology gate; other gates stay."""
    changed = copy_object(template)
    spec = changed.get("spec") or {}
    _set_list(spec, "schedulingGates", [gate for gate in spec.get("schedulingGates") or () if gate.get("name") != TOPOLOGY_GATE])
    return changed


def build_workload_template(template: Json) -> dict[str, Any]:
    """Returns a copy of a pod template as a Workload keeps it: spec, annotations, finalizers, and labels without those that the Job
    controller adds for itself. Each environment variable is there once (`remove_duplicate_env`). What else it has the API server prunes
    from a Workload: a component of an AppWrapper that is a Pod has apiVersion and kind."""
    whole = remove_duplicate_env(template)
    kept = {"spec": whole["spec"]} if "spec" in whole else {}
    metadata = whole.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in JOB_CONTROLLER_UID_LABELS}
    kept["metadata"] = {key: value for key, value in metadata.items() if key in ("annotations", "finalizers")} | (
        {"labels": labels} if labels else {}
    )
    return kept


def remove_duplicate_env(template: Json) -> dict[str, Any]:
    """Returns a copy of the template with one environment variable of each name per container: the last one stays, at its place. Kueue
    writes Workloads so. Lists with an entry without a name stay as they are."""
    changed = copy_object(template)
    for part in ("initContainers", "containers"):
        for container in (changed.get("spec") or {}).get(part) or ():
            env = container.get("env")
            if isinstance(env, list) and all(isinstance(entry, Mapping) and isinstance(entry.get("name"), str) for entry in env):
                last = {entry["name"]: i for i, entry in enumerate(env)}
                container["env"] = [entry for i, entry in enumerate(env) if last[entry["name"]] == i]
    return changed


def build_started(template: Json, start: PodSetStart) -> dict[str, Any]:
    """Returns a copy of the template with the topology gate if `start.gated`, else without. It gets labels, annotations and node selector
    of the start, which replace its own of the same key, and those of its tolerations that it lacks. An own annotation SLICE_NAME and label
    MANAGED are removed."""
    changed = with_gate(template) if start.gated else remove_gate(template)
    metadata, spec = changed.setdefault("metadata", {}), changed.setdefault("spec", {})
    if SLICE_NAME in (metadata.get("annotations") or {}):  # pods are found by this annotation, so only a start sets it
        metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if key != SLICE_NAME}
    if MANAGED in (metadata.get("labels") or {}):  # by which pods of groups are known: a pod of a job that had it would pass for one
        metadata["labels"] = {key: value for key, value in metadata["labels"].items() if key != MANAGED}
    for part, added in (("labels", start.labels), ("annotations", start.annotations)):
        if added:
            metadata[part] = {**(metadata.get(part) or {}), **added}
    if start.node_selector:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **start.node_selector}
    tolerations = [*(spec.get("tolerations") or ())]
    _set_list(spec, "tolerations", tolerations + [toleration for toleration in start.tolerations if toleration not in tolerations])
    return changed


def restore_template(template: Json, original: Json) -> dict[str, Any]:
    """Returns a copy of the template with labels, annotations, node selector, tolerations and gates of `original`, the Workload's copy from
    before the start. Of its own ones it keeps only labels that the Job controller adds, where `original` lacks them."""
    changed = copy_object(template)
    metadata, spec = changed.setdefault("metadata", {}), changed.setdefault("spec", {})
    then_meta, then_spec = original.get("metadata") or {}, original.get("spec") or {}
    added_later = (*JOB_CONTROLLER_UID_LABELS, "batch.kubernetes.io/job-name")
    own = {key: value for key, value in (metadata.get("labels") or {}).items() if key in added_later}
    _set_map(metadata, "labels", own | (then_meta.get("labels") or {}))
    _set_map(metadata, "annotations", then_meta.get("annotations") or {})
    _set_map(spec, "nodeSelector", then_spec.get("nodeSelector") or {})
    for part in ("schedulingGates", "tolerations"):
        _set_list(spec, part, then_spec.get(part) or ())
    return changed


def remove_start(template: Json) -> dict[str, Any]:
    """Returns a copy of a started template without the labels and annotations that only a start puts there. Node selector, tolerations and
    gates stay as they are."""
    bare = copy_object(template)
    metadata = bare.setdefault("metadata", {})
    for part, names in (("labels", START_LABELS), ("annotations", (WORKLOAD_ANNOTATION, SLICE_NAME))):
        metadata[part] = {key: value for key, value in (metadata.get(part) or {}).items() if key not in names}
    return bare


def has_lost_start(template: Json, before: Json) -> bool:
    """Returns whether `template` is the started one from `before` without what a start added. It lacks the workload annotation at least,
    or has the false value of `podset-unconstrained-topology` that the start replaced, and may lack other labels, annotations, node labels,
    tolerations and gates. False where it has any other value or differs otherwise."""
    own, then = get_parts(template), get_parts(before)
    is_whole = is_started(template) and not _REPLACED & {*(own.get("annotations") or {}).items()}
    if is_whole or not is_started(before) or restore_template(template, template) != restore_template(before, template):
        return False
    for name in MAPS:
        kept = {key: value for key, value in (own.get(name) or {}).items() if (key, value) not in _REPLACED}
        if not kept.items() <= (then.get(name) or {}).items() or not (own.get(name) or {}).keys() <= (then.get(name) or {}).keys():
            return False
    return all(entry in then.get(name, ()) for name in LISTS for entry in own.get(name, ()))


def has_lost_gate(template: Json, before: Json) -> bool:
    """Returns whether `template` is the one from `before` without the topology gate, and equal in all else."""
    return not has_gate(template) and with_gate(template) == before


def is_started(template: Json) -> bool:
    """Returns whether a template carries the workload annotation that a start puts there."""
    return WORKLOAD_ANNOTATION in ((template.get("metadata") or {}).get("annotations") or {})


def _set_list(obj: dict[str, Any], name: str, values: Sequence[Any]) -> None:
    """Sets a list, or takes an empty one away, as the API server does."""
    if values:
        obj[name] = [*values]
    else:
        obj.pop(name, None)


def _set_map(obj: dict[str, Any], name: str, values: Mapping[str, Any]) -> None:
    if values:
        obj[name] = dict(values)
    else:
        obj.pop(name, None)

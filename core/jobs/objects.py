"""Defaults and rules of topogate's own objects that their CRDs cannot state.

The schema and its CEL rules are judged by the API server; what is here needs arithmetic on
quantities, several fields at once, or is worth a warning only.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.jobs.annotations import find_uneven
from core.jobs.contract import ErrorType, FieldError, Json, Rules
from core.jobs.template_parts import copy_object
from core.jobs.templated import Path, get
from core.model.label_names import is_label_name
from core.model.quantity import parse_canonical, parse_quantity
from core.names import MAIN_POD_SET, MULTIKUEUE_CONTROLLER, PREEMPTION_CONFIG, QUOTA_RESERVED, SLICE_NAME

# Fields of a ClusterQueue that are not implemented yet, with the value that has no effect (the default of the API
# server).
_NOT_SERVED: Mapping[Path, Any] = {
    ("admissionScope",): None,
    ("concurrentAdmissionPolicy",): None,
}
_NO_EFFECT = "is stored but has no effect in this version of topogate"
_MAX_REQUEST_LEVEL = 63  # what PodSetTopologyRequest can name; a Topology's label may be longer


@dataclass(frozen=True, slots=True)
class ObjectRules:
    """How one kind of our own objects is defaulted and judged. `default` is None where a kind has no defaults; `validate` gets the old
    object on updates."""

    kind: str
    plural: str
    default: Callable[[Json], dict[str, Any]] | None
    validate: Callable[[Json, Json | None], Rules]


def _return_unchanged(obj: Json) -> dict[str, Any]:
    return dict(obj)


# --- Workload -------------------------------------------------------------------------------------


def default_workload(workload: Json) -> dict[str, Any]:
    """Returns a copy of a Workload in which a lone pod set without a name is called `main`. Nothing else is defaulted."""
    changed = copy_object(workload)
    pod_sets = (changed.get("spec") or {}).get("podSets") or []
    if len(pod_sets) == 1 and not pod_sets[0].get("name"):
        pod_sets[0]["name"] = MAIN_POD_SET
    return changed


def validate_workload(workload: Json, old: Json | None) -> Rules:
    """Returns errors, and no warnings, of a Workload. Requests and limits of pods and containers, and overhead, must be maps of quantities
    of at least 0. Slices must have a size of at least 1 that divides the pods (`find_uneven`), and
    `podSetSliceSize` needs `podSetSliceRequiredTopology`. Two pod sets of one name, or two with a `minCount`, are an error. So are pod sets
    other than in `old` (None: it is new) where both have quota reserved, but an elastic job may have fewer pods. A pod set that is as in
    `old` is not judged by itself again."""
    spec = workload.get("spec") or {}
    errors: list[FieldError] = []
    before = ((old or {}).get("spec") or {}).get("podSets") or ()
    for i, pod_set in enumerate(spec.get("podSets") or ()):
        # What was stored under other gates must not keep its user from deactivating it.
        if i >= len(before) or before[i] != pod_set:
            errors += _validate_pod_set(f"spec.podSets[{i}]", pod_set)
    names = Counter(pod_set.get("name") for pod_set in spec.get("podSets") or ())
    variable = [i for i, pod_set in enumerate(spec.get("podSets") or ()) if pod_set.get("minCount") is not None]
    for i in variable[1:]:
        accepted = f"one pod set at most can do with fewer pods; spec.podSets[{variable[0]}] is one"
        errors.append(FieldError(ErrorType.INVALID, f"spec.podSets[{i}].minCount", spec["podSets"][i]["minCount"], accepted))
    for name, count in names.items():
        if count > 1:
            errors.append(FieldError(ErrorType.DUPLICATE, "spec.podSets", name, "each pod set has a name of its own"))
    if old is not None and _has_quota(old) and _has_quota(workload) and not _has_same_pod_sets(old, workload):
        errors.append(
            FieldError(ErrorType.FORBIDDEN, "spec.podSets", None, "may not change while quota is reserved; suspend the job first")
        )
    return Rules(tuple(errors))


def _has_same_pod_sets(old: Json, new: Json) -> bool:
    """Whether pod sets are as they were; those of an elastic job may have fewer pods, which is how it shrinks."""
    before, after = ((obj.get("spec") or {}).get("podSets") or [] for obj in (old, new))
    if before == after or SLICE_NAME not in ((old.get("metadata") or {}).get("annotations") or {}):
        return bool(before == after)
    fewer = all(int(two.get("count") or 0) <= int(one.get("count") or 0) for one, two in zip(before, after, strict=False))
    return fewer and [{**pod_set, "count": 0} for pod_set in before] == [{**pod_set, "count": 0} for pod_set in after]


def _has_quota(workload: Json) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == QUOTA_RESERVED and c.get("status") == "True" for c in conditions)


def _validate_pod_set(path: str, pod_set: Json) -> Iterator[FieldError]:
    spec = (pod_set.get("template") or {}).get("spec") or {}
    for part in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(part) or ()):
            for kind in ("requests", "limits"):
                amounts = (container.get("resources") or {}).get(kind) or {}
                yield from _validate_quantities(f"{path}.template.spec.{part}[{i}].resources.{kind}", amounts)
    for kind in ("requests", "limits"):
        yield from _validate_quantities(f"{path}.template.spec.resources.{kind}", (spec.get("resources") or {}).get(kind) or {})
    yield from _validate_quantities(f"{path}.template.spec.overhead", spec.get("overhead") or {})
    request, count = pod_set.get("topologyRequest") or {}, int(pod_set.get("count") or 0)
    layers = request.get("podsetSliceRequiredTopologyConstraints") or []
    yield from _validate_slices(f"{path}.topologyRequest", request)
    size = layers[0].get("size") if layers else request.get("podSetSliceSize")
    if isinstance(size, int) and size > 0:
        field, least = f"{path}.topologyRequest.podSetSliceSize", pod_set.get("minCount")
        yield from find_uneven(field, size, size, count, layers=len(layers) or 1, min_count=least)


def _validate_slices(path: str, request: Json) -> Iterator[FieldError]:
    """What our CRD refuses already, and another's of the same group lets pass."""
    expected = "a whole number of at least 1 is expected"
    for i, layer in enumerate(request.get("podsetSliceRequiredTopologyConstraints") or ()):
        if (layer.get("size") or 0) < 1:
            yield FieldError(
                ErrorType.INVALID, f"{path}.podsetSliceRequiredTopologyConstraints[{i}].size", layer.get("size") or 0, expected
            )
    size = request.get("podSetSliceSize")
    if size is not None and not request.get("podSetSliceRequiredTopology"):
        yield FieldError(ErrorType.FORBIDDEN, f"{path}.podSetSliceSize", None, "means nothing without podSetSliceRequiredTopology")
    elif size is not None and size < 1:
        yield FieldError(ErrorType.INVALID, f"{path}.podSetSliceSize", size, expected)


def _validate_quantities(path: str, amounts: Any) -> Iterator[FieldError]:
    if not isinstance(amounts, dict):
        yield FieldError(ErrorType.TYPE_INVALID, path, amounts, "a map of resource names to quantities is expected")
        return
    for name, text in amounts.items():
        try:
            if parse_canonical(name, text) < 0:
                yield FieldError(ErrorType.INVALID, f"{path}[{name}]", text, "a quantity of at least 0 is expected")
        except ValueError:  # InvalidQuantity, or more digits than Python turns into a number
            yield FieldError(ErrorType.INVALID, f"{path}[{name}]", text, "a quantity such as 500m, 4 or 1.5Gi is expected")


# --- Topology, ResourceFlavor, ClusterQueue ---------------------------------------------------------


def validate_topology(topology: Json, old: Json | None) -> Rules:
    """Returns a warning for each level with a label of more than 63 characters, which no pod set could name, and no errors. `old` is not
    looked at."""
    warnings = [
        f"spec.levels[{i}].nodeLabel: {label!r} is longer than the {_MAX_REQUEST_LEVEL} characters that a pod set's request may have"
        for i, level in enumerate((topology.get("spec") or {}).get("levels") or ())
        if len(label := level.get("nodeLabel") or "") > _MAX_REQUEST_LEVEL
    ]
    return Rules((), tuple(warnings))


def validate_flavor(flavor: Json, old: Json | None) -> Rules:
    """Returns errors, and no warnings, for names and values of node labels and effects of taints that Kubernetes would not accept on a
    node. Tolerations without a key need Exists. Keys and values of taints are not looked at, nor is `old`."""
    spec = flavor.get("spec") or {}
    errors: list[FieldError] = []
    for label, value in (spec.get("nodeLabels") or {}).items():
        if not is_label_name(label):
            errors.append(FieldError(ErrorType.INVALID, "spec.nodeLabels", label, "a node label name is expected"))
        if value and not (is_label_name(value) and "/" not in value):
            accepted = "a label value is expected: letters, digits, '-', '_' and '.', at most 63"
            errors.append(FieldError(ErrorType.INVALID, f"spec.nodeLabels[{label}]", value, accepted))
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    for i, taint in enumerate(spec.get("nodeTaints") or ()):
        if taint.get("effect") not in effects:
            accepted = f"one of {', '.join(effects)} is expected"
            errors.append(FieldError(ErrorType.NOT_SUPPORTED, f"spec.nodeTaints[{i}].effect", taint.get("effect"), accepted))
    for i, toleration in enumerate(spec.get("tolerations") or ()):
        if not toleration.get("key") and (toleration.get("operator") or "Equal") != "Exists":
            accepted = "must be Exists where no key is given"
            errors.append(FieldError(ErrorType.INVALID, f"spec.tolerations[{i}].operator", toleration.get("operator"), accepted))
    return Rules(tuple(errors))


def validate_cluster_queue(queue: Json, old: Json | None) -> Rules:
    """Returns errors where a resource or a flavor is in several groups, or a flavor does not list the covered resources in their order. A
    quota, a limit or a weight that is no quantity of at least 0 is an error, too; one that is absent is none. Fields that are not served
    yet (`admissionScope`, `concurrentAdmissionPolicy`, `status.effectiveQuotas`, the annotation PREEMPTION_CONFIG) give a warning. `old` is
    not looked at."""
    spec = queue.get("spec") or {}
    return Rules((*_validate_quota(spec), *_validate_weight(spec)), (*_list_unserved_fields(spec), *_list_unserved_parts(queue)))


def validate_cohort(cohort: Json, old: Json | None) -> Rules:
    """Returns the errors of groups, quotas, limits and weight that `validate_cluster_queue` describes, and others where a cohort is its own
    parent or has limits without a parent. `status.effectiveQuotas` gives a warning. `old` is not looked at."""
    spec, name = cohort.get("spec") or {}, cohort["metadata"].get("name")
    errors = [*_validate_quota(spec), *_validate_weight(spec)]
    if spec.get("parentName") and spec["parentName"] == name:
        errors.append(FieldError(ErrorType.INVALID, "spec.parentName", name, "another cohort is expected"))
    if not spec.get("parentName"):
        for i, j, k, resource in _list_resources(spec):
            for limit in ("borrowingLimit", "lendingLimit"):
                if resource.get(limit) is not None:
                    path = f"spec.resourceGroups[{i}].flavors[{j}].resources[{k}].{limit}"
                    errors.append(FieldError(ErrorType.INVALID, path, resource[limit], "needs a parentName"))
    return Rules(tuple(errors), tuple(_list_unserved_parts(cohort)))


def validate_local_queue(queue: Json, old: Json | None) -> Rules:
    """Returns a warning where `spec.fairSharing` is there, and no errors: it is for fair sharing by the usage of the past, which is not
    served."""
    weighted = get(queue, ("spec", "fairSharing")) is not None
    return Rules((), (f"spec.fairSharing {_NO_EFFECT}",) if weighted else ())


def validate_admission_check(check: Json, old: Json | None) -> Rules:
    """Returns a warning for the controller of MultiKueue, with which a check stays inactive, and one for `retryDelayMinutes`, which only
    v1beta1 has; no errors. A webhook gets the object as v1beta2, and with all of the fields that were written."""
    spec, warnings = check.get("spec") or {}, list[str]()
    if spec.get("controllerName") == MULTIKUEUE_CONTROLLER:
        inactive = "topogate runs no jobs in other clusters; a ClusterQueue with this check stays inactive"
        warnings.append(f"spec.controllerName: {MULTIKUEUE_CONTROLLER}: {inactive}")
    if spec.get("retryDelayMinutes") is not None:
        warnings.append("spec.retryDelayMinutes has no effect: the controller of a check decides when it tries again")
    return Rules((), tuple(warnings))


def _validate_weight(spec: Json) -> Iterator[FieldError]:
    """Checks the weight by which shares are divided: below 0, the queue with the largest usage would be served first."""
    weight = get(spec, ("fairSharing", "weight"))
    if weight is None:
        return
    try:
        if parse_quantity(weight, milli=True) < 0:
            yield FieldError(ErrorType.INVALID, "spec.fairSharing.weight", weight, "a quantity of at least 0 is expected")
    except ValueError:
        yield FieldError(ErrorType.INVALID, "spec.fairSharing.weight", weight, "a quantity such as 500m, 1 or 3 is expected")


def _list_resources(spec: Json) -> Iterator[tuple[int, int, int, Json]]:
    for i, group in enumerate(spec.get("resourceGroups") or ()):
        for j, flavor in enumerate(group.get("flavors") or ()):
            for k, resource in enumerate(flavor.get("resources") or ()):
                yield i, j, k, resource


def _validate_quota(spec: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    resource_groups: dict[str, int] = {}
    flavor_groups: dict[str, int] = {}
    for i, group in enumerate(spec.get("resourceGroups") or ()):
        path, covered = f"spec.resourceGroups[{i}]", list(group.get("coveredResources") or ())
        for name in covered:
            if resource_groups.setdefault(name, i) != i:
                accepted = f"is covered by group {resource_groups[name]} already"
                errors.append(FieldError(ErrorType.DUPLICATE, f"{path}.coveredResources", name, accepted))
        for j, flavor in enumerate(group.get("flavors") or ()):
            flavor_name = flavor.get("name") or ""
            if flavor_groups.setdefault(flavor_name, i) != i:
                accepted = f"is in group {flavor_groups[flavor_name]} already"
                errors.append(FieldError(ErrorType.DUPLICATE, f"{path}.flavors[{j}].name", flavor_name, accepted))
            named = [resource.get("name") for resource in flavor.get("resources") or ()]
            if named != covered:
                accepted = f"must be the covered resources in their order: {', '.join(covered)}"
                errors.append(FieldError(ErrorType.INVALID, f"{path}.flavors[{j}].resources", ", ".join(map(str, named)), accepted))
    for i, j, k, resource in _list_resources(spec):
        for field in ("nominalQuota", "borrowingLimit", "lendingLimit"):
            if field == "nominalQuota" or resource.get(field) is not None:
                path = f"spec.resourceGroups[{i}].flavors[{j}].resources[{k}].{field}"
                errors += _validate_quantities(path, {resource.get("name") or "": resource.get(field, 0)})
    return errors


def _list_unserved_fields(spec: Json) -> Iterator[str]:
    for path, nothing in _NOT_SERVED.items():
        if get(spec, path) not in (None, nothing):
            yield f"spec.{'.'.join(map(str, path))} {_NO_EFFECT}"


def _list_unserved_parts(obj: Json) -> Iterator[str]:
    """Warnings of what other programs of Kueue add to a ClusterQueue or a Cohort beside its spec."""
    annotations = get(obj, ("metadata", "annotations"))
    if isinstance(annotations, Mapping) and PREEMPTION_CONFIG in annotations:
        yield f"metadata.annotations[{PREEMPTION_CONFIG}] {_NO_EFFECT}: spec.preemption alone says what is preempted"
    if get(obj, ("status", "effectiveQuotas")) is not None:
        yield f"status.effectiveQuotas {_NO_EFFECT}: the nominal quota of the spec counts"


OBJECTS = (
    ObjectRules("Workload", "workloads", default_workload, validate_workload),
    ObjectRules("Topology", "topologies", _return_unchanged, validate_topology),
    ObjectRules("ResourceFlavor", "resourceflavors", _return_unchanged, validate_flavor),
    ObjectRules("ClusterQueue", "clusterqueues", _return_unchanged, validate_cluster_queue),
    ObjectRules("Cohort", "cohorts", _return_unchanged, validate_cohort),
    ObjectRules("LocalQueue", "localqueues", None, validate_local_queue),
    ObjectRules("AdmissionCheck", "admissionchecks", None, validate_admission_check),
)

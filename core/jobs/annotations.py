"""The topology annotations of a pod template: read once, judged by the rules every kind shares.

Rules are those of KEP-2724, Validation and PodSet slice size validation, that the object alone can
break. Whether a level exists is known only to the queue's topology, so that is judged after creation.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

from core.jobs.annotation_catalog import OWN, Places, warn_of_own, warn_of_template
from core.jobs.contract import ErrorType, FieldError, Json, Rules
from core.jobs.odd_values import warn_of_values
from core.model.gates import GROUPED_SLICES, PARTIAL_SLICES, PARTIAL_SLICES_HINT
from core.model.label_names import SUBDOMAIN, is_label_name
from core.model.podset import MOST_SPARES, read_lends, read_spares
from core.names import (
    AUTO_LEVEL,
    DEFAULTED_SLICE_SIZE,
    LEND_SPARES,
    PLACEMENT_PROFILE,
    PLACEMENT_PROFILES,
    POD_INDEX_OFFSET,
    PODGROUP_GATE,
    PODSET_GROUP_NAME,
    PREFERRED_TOPOLOGY,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    SPARE_NODES,
    TOPOLOGY_ANNOTATIONS,
    UNCONSTRAINED_TOPOLOGY,
    WORKLOAD_PREFERRED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)

MAX_LAYERS = 3
MAX_LEVEL_NAME = 63  # PodSetTopologyRequest; a Topology's own label may be longer
_MAX_INT32 = 2**31 - 1
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
FALSE_VALUES = ("0", "f", "F", "FALSE", "false", "False")
# A string without an end is taken whole, too: else each of its characters would be tried as a beginning.
_STRING_OR_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+"?)|,(?=\s*[\]}])')
_MOST_SHOWN = 63  # characters of a value
_SIZE_EXPECTED = "a whole number of at least 1 is expected"
_SPARES_EXPECTED = f"a whole number of nodes from 0 to {MOST_SPARES} is expected"
_OFFSET = re.compile(r"\+?[0-9]{1,9}")  # what `core.state.facts.read_index` reads, with the sign that Kueue accepts
_OFFSET_EXPECTED = "the index of the first pod is expected: a whole number from 0 to 999999999"
_LABEL_NAME = "a node label name such as cloud.provider.com/topology-rack is expected"


@dataclass(frozen=True, slots=True)
class PodSetAnnotations:
    """A pod template to be judged: where its annotations are, and how many pods it makes.

    `default_slice_size` is what a kind assumes where none is given (JobSet: parallelism); `is_job`: each of its pods is a
    workload by itself, which reads here what others read on the job; `index_offset`: the offset of indexes that the webhook
    itself writes there, if any. `min_count` are the fewest pods it can do with, None for all.
    """

    path: str
    template: Json
    count: int | None
    default_slice_size: int | None = None
    is_job: bool = False
    index_offset: str | None = None
    min_count: int | None = None

    @property
    def annotations(self) -> Mapping[str, str]:
        """Returns the annotations of the template; empty where it has none."""
        return (self.template.get("metadata") or {}).get("annotations") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """Returns the labels of the template; empty where it has none."""
        return (self.template.get("metadata") or {}).get("labels") or {}


def build_topology_request(
    annotations: Mapping[str, str],
    *,
    pod_index_label: str | None = None,
    sub_group_index_label: str | None = None,
    sub_group_count: int | None = None,
    default_slice_size: int | None = None,
) -> dict[str, Any] | None:
    """Returns the `topologyRequest` (JSON) of a pod set from its annotations, with the given labels of indexes and count of sub-groups.
    None where it would be empty.

    Of several modes required wins over preferred, and that over unconstrained (kept also if false); layers of slices win over a single one.
    A group is kept only with required or preferred. `default_slice_size`: pods of a slice without an annotation of its size. Values that
    cannot be read are left out, and so is a slice level without a size of at least 1. The webhook reports them, and a job that was created
    without it still gets a workload.
    """
    request: dict[str, Any] = {}
    if annotations.get(REQUIRED_TOPOLOGY):
        request["required"] = annotations[REQUIRED_TOPOLOGY]
    elif annotations.get(PREFERRED_TOPOLOGY):
        request["preferred"] = annotations[PREFERRED_TOPOLOGY]
    elif annotations.get(UNCONSTRAINED_TOPOLOGY) in _TRUE + FALSE_VALUES:
        request["unconstrained"] = annotations[UNCONSTRAINED_TOPOLOGY] in _TRUE
    layers = _parse_layers(annotations.get(SLICE_CONSTRAINTS))
    if layers:
        request["podsetSliceRequiredTopologyConstraints"] = [{"topology": name, "size": size} for name, size in layers]
    elif annotations.get(SLICE_REQUIRED_TOPOLOGY):
        size = _parse_integer(annotations[SLICE_SIZE]) if SLICE_SIZE in annotations else default_slice_size
        if size is not None and size > 0:
            request |= {"podSetSliceRequiredTopology": annotations[SLICE_REQUIRED_TOPOLOGY], "podSetSliceSize": size}
    if annotations.get(PODSET_GROUP_NAME) and ("required" in request or "preferred" in request):
        request["podSetGroupName"] = annotations[PODSET_GROUP_NAME]
    for name, value in (
        ("podIndexLabel", pod_index_label),
        ("subGroupIndexLabel", sub_group_index_label),
        ("subGroupCount", sub_group_count),
    ):
        if value is not None:
            request[name] = value
    return request or None


def with_default_slice_size(annotations: Mapping[str, str], size: int) -> dict[str, str]:
    """Returns a copy of a template's annotations with `size` (pods) as the slice size and as DEFAULTED_SLICE_SIZE (KEP-2724, PodSet Slice
    size validation). That is done only beside SLICE_REQUIRED_TOPOLOGY without layers or a group, and for a size from 1 to 2**31 - 1.

    An earlier default is replaced, or removed where there is no default any more. A size that differs from DEFAULTED_SLICE_SIZE is the
    user's and stays; then only DEFAULTED_SLICE_SIZE is removed.
    """
    mark = annotations.get(DEFAULTED_SLICE_SIZE)
    if annotations.get(SLICE_SIZE, mark) != mark:
        return {name: value for name, value in annotations.items() if name != DEFAULTED_SLICE_SIZE}
    kept = {name: value for name, value in annotations.items() if name not in (SLICE_SIZE, DEFAULTED_SLICE_SIZE)}
    is_sliced = SLICE_REQUIRED_TOPOLOGY in kept and SLICE_CONSTRAINTS not in kept and PODSET_GROUP_NAME not in kept
    return kept | ({SLICE_SIZE: str(size), DEFAULTED_SLICE_SIZE: str(size)} if is_sliced and _is_size(size) else {})


def validate_own(
    annotations: Mapping[str, Any],
    before: Mapping[str, Any],
    places: Places | None = None,
    labels: Mapping[str, Any] | None = None,
    labels_before: Mapping[str, Any] | None = None,
) -> Rules:
    """Returns the errors and warnings of annotations and labels of a job itself, of any kind, that are new or have another value. Errors
    are of the level of the whole job (also that both kinds are there), the placement profile and the name of the queue. Warnings are those
    of `warn_of_own`.

    `before` and `labels_before`: those of the stored job, empty for a new one. `places`: None for a Pod, which has no pod templates.
    """
    new = {name: value for name, value in annotations.items() if before.get(name) != value}
    new_labels = [name for name, value in (labels or {}).items() if (labels_before or {}).get(name) != value]
    errors = [*_validate_of_the_job(OWN, annotations, new)]
    queue = (labels or {}).get(QUEUE_NAME_LABEL)
    if QUEUE_NAME_LABEL in new_labels and not (isinstance(queue, str) and SUBDOMAIN.fullmatch(queue)):
        accepted = "the name of a LocalQueue is expected: lower-case letters, digits, '-' and '.'; without the label no queue is named"
        errors.append(FieldError(ErrorType.INVALID, f"metadata.labels[{QUEUE_NAME_LABEL}]", queue, accepted))
    return Rules(tuple(errors), tuple(warn_of_own(new, new_labels, places, annotations.keys() - new.keys())))


def _validate_of_the_job(path: str, annotations: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FieldError]:
    """What is about all pods of a job, where it counts."""
    yield from _validate_tie(path, annotations, new)
    profile = new.get(PLACEMENT_PROFILE)
    if profile is not None and profile not in PLACEMENT_PROFILES:
        accepted = f"one of {', '.join(PLACEMENT_PROFILES)} is expected"
        yield FieldError(ErrorType.NOT_SUPPORTED, f"{path}[{PLACEMENT_PROFILE}]", profile, accepted)


def _validate_tie(path: str, annotations: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FieldError]:
    """Checks the level for all pod sets together. Whether it is at or above their own levels depends on the topology,
    and is not checked here."""
    ties = [name for name in (WORKLOAD_REQUIRED_TOPOLOGY, WORKLOAD_PREFERRED_TOPOLOGY) if name in annotations]
    if len(ties) > 1 and any(name in new for name in ties):
        yield FieldError(ErrorType.INVALID, path, ", ".join(ties), "these annotations exclude each other; keep one of them")
    for name in ties:
        if name not in new:
            continue
        if new[name] == AUTO_LEVEL:
            accepted = f"the level of a whole job is named; {_LABEL_NAME} ({AUTO_LEVEL} is for {REQUIRED_TOPOLOGY} and -preferred-topology)"
            yield FieldError(ErrorType.INVALID, f"{path}[{name}]", new[name], accepted)
        elif not (isinstance(new[name], str) and is_label_name(new[name])):
            yield FieldError(ErrorType.INVALID, f"{path}[{name}]", new[name], _LABEL_NAME)


def validate_pod_sets(pod_sets: Sequence[PodSetAnnotations]) -> Rules:
    """Returns all errors, each once, and all warnings of the annotations and labels of a job's pod templates. Errors are of levels, slices,
    groups, offsets of indexes and spare nodes. A template with the gate of PodGroups is an error, and so are templates of one group that
    ask for different levels. Level of the whole job and placement profile are judged only where each pod is a workload (`is_job`), and not
    on the pod itself.
    """
    errors = [error for pod_set in pod_sets for error in _validate(pod_set)]
    errors += _validate_groups(pod_sets)
    # By their text: the value of an error may be any JSON.
    return Rules(tuple({repr(error): error for error in errors}.values()), tuple(_list_warnings(pod_sets)))


def _validate(pod_set: PodSetAnnotations) -> Iterator[FieldError]:
    yield from _validate_modes(pod_set)
    if pod_set.is_job and pod_set.path != OWN:
        yield from _validate_of_the_job(pod_set.path, pod_set.annotations, pod_set.annotations)
    yield from _validate_slices(pod_set)
    yield from _validate_constraints(pod_set)
    yield from _validate_group(pod_set)
    yield from _validate_index_offset(pod_set)
    yield from _validate_spares(pod_set)
    gates = (pod_set.template.get("spec") or {}).get("schedulingGates") or ()
    if any(gate.get("name") == PODGROUP_GATE for gate in gates):
        accepted = "the pods of a queued job are placed by its Workload, and no controller removes this gate: leave it out, or the queue"
        yield FieldError(ErrorType.FORBIDDEN, f"{pod_set.path.removesuffix(OWN)}spec.schedulingGates", PODGROUP_GATE, accepted)


def _reject(pod_set: PodSetAnnotations, kind: ErrorType, name: str, accepted: str) -> FieldError:
    """A mistake in one annotation; one that is forbidden is so whatever its value."""
    value = pod_set.annotations.get(name) if kind is not ErrorType.FORBIDDEN else None
    return FieldError(kind, f"{pod_set.path}[{name}]", value, accepted)


def _validate_modes(pod_set: PodSetAnnotations) -> Iterator[FieldError]:
    """Which levels are asked for, and how."""
    annotations = pod_set.annotations
    modes = [name for name in (REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, UNCONSTRAINED_TOPOLOGY) if name in annotations]
    if len(modes) > 1:
        yield FieldError(ErrorType.INVALID, pod_set.path, ", ".join(modes), "these annotations exclude each other; keep one of them")
    for name in (REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, SLICE_REQUIRED_TOPOLOGY):
        value = annotations.get(name)
        if value == AUTO_LEVEL and name == SLICE_REQUIRED_TOPOLOGY:  # a Workload with it could only be deactivated
            accepted = f"the level of slices is named; {_LABEL_NAME} ({AUTO_LEVEL} is for {REQUIRED_TOPOLOGY} and -preferred-topology)"
            yield _reject(pod_set, ErrorType.INVALID, name, accepted)
        elif value is not None and not is_label_name(value) and not (value == AUTO_LEVEL and name in modes):
            yield _reject(pod_set, ErrorType.INVALID, name, _LABEL_NAME)
        elif value is not None and len(value) > MAX_LEVEL_NAME:
            yield _reject(pod_set, ErrorType.INVALID, name, f"at most {MAX_LEVEL_NAME} characters are expected, as a Workload can hold")
    unconstrained = annotations.get(UNCONSTRAINED_TOPOLOGY)
    if unconstrained is not None and unconstrained not in _TRUE + FALSE_VALUES:
        yield _reject(pod_set, ErrorType.INVALID, UNCONSTRAINED_TOPOLOGY, '"true" or "false" is expected')


def _validate_constraints(pod_set: PodSetAnnotations) -> Iterator[FieldError]:
    """Slices in layers, which are asked for in one annotation."""
    annotations = pod_set.annotations
    if SLICE_CONSTRAINTS not in annotations:
        return
    for name in (SLICE_REQUIRED_TOPOLOGY, SLICE_SIZE):
        if name in annotations:
            accepted = f"may not stand beside {name}; keep one of the two ways to ask for slices"
            yield _reject(pod_set, ErrorType.FORBIDDEN, SLICE_CONSTRAINTS, accepted)
    yield from _validate_layers(pod_set, annotations[SLICE_CONSTRAINTS])


def _validate_group(pod_set: PodSetAnnotations) -> Iterator[FieldError]:
    annotations = pod_set.annotations
    group = annotations.get(PODSET_GROUP_NAME)
    if group is None:
        return
    if _is_unsigned(group):
        yield _reject(pod_set, ErrorType.INVALID, PODSET_GROUP_NAME, "a name that is no number is expected")
    for name in (SLICE_REQUIRED_TOPOLOGY, SLICE_SIZE, SLICE_CONSTRAINTS):
        if name in annotations:
            accepted = f"may not stand beside {name}; with feature gate {GROUPED_SLICES} a group may have slices"
            yield replace(_reject(pod_set, ErrorType.FORBIDDEN, PODSET_GROUP_NAME, accepted), gate=GROUPED_SLICES)
    if REQUIRED_TOPOLOGY not in annotations and PREFERRED_TOPOLOGY not in annotations:
        accepted = f"a group needs {REQUIRED_TOPOLOGY} or {PREFERRED_TOPOLOGY} on each of its pod templates"
        yield _reject(pod_set, ErrorType.FORBIDDEN, PODSET_GROUP_NAME, accepted)


def _validate_index_offset(pod_set: PodSetAnnotations) -> Iterator[FieldError]:
    offset = pod_set.annotations.get(POD_INDEX_OFFSET)
    if offset is None:
        return
    if not (isinstance(offset, str) and _OFFSET.fullmatch(offset)):
        yield _reject(pod_set, ErrorType.INVALID, POD_INDEX_OFFSET, _OFFSET_EXPECTED)
    elif pod_set.annotations.get(PODSET_GROUP_NAME) and offset != pod_set.index_offset:
        accepted = f"may not stand beside {PODSET_GROUP_NAME}: the pods of a group are counted through; leave it out"
        yield _reject(pod_set, ErrorType.FORBIDDEN, POD_INDEX_OFFSET, accepted)


def _validate_spares(pod_set: PodSetAnnotations) -> Iterator[FieldError]:
    annotations = pod_set.annotations
    spares = annotations.get(SPARE_NODES)
    if spares is not None and not any(name in annotations for name in TOPOLOGY_ANNOTATIONS):
        accepted = f"means nothing without a topology; {_SPARES_EXPECTED}, beside {REQUIRED_TOPOLOGY} or another mode"
        yield _reject(pod_set, ErrorType.INVALID, SPARE_NODES, accepted)
    elif spares is not None and read_spares(spares) is None:
        yield _reject(pod_set, ErrorType.INVALID, SPARE_NODES, _SPARES_EXPECTED)
    lends = annotations.get(LEND_SPARES)
    if lends is not None and read_lends(lends) is None:
        yield _reject(pod_set, ErrorType.INVALID, LEND_SPARES, '"true" or "false" is expected')
    elif lends is not None and spares is None:
        yield _reject(pod_set, ErrorType.FORBIDDEN, LEND_SPARES, f"means nothing without {SPARE_NODES}, which are lent")


def _validate_slices(pod_set: PodSetAnnotations) -> Iterator[FieldError]:
    annotations, field = pod_set.annotations, f"{pod_set.path}[{SLICE_SIZE}]"
    text = annotations.get(SLICE_SIZE)
    if SLICE_REQUIRED_TOPOLOGY not in annotations:
        if text is not None:
            yield FieldError(ErrorType.FORBIDDEN, field, None, f"means nothing without {SLICE_REQUIRED_TOPOLOGY}; set both or none")
            if not _is_size(_parse_integer(text)):
                yield FieldError(ErrorType.INVALID, field, text, _SIZE_EXPECTED)
        return
    if text is None:
        if pod_set.default_slice_size is None:
            yield FieldError(ErrorType.REQUIRED, field, None, f"a number of pods is needed beside {SLICE_REQUIRED_TOPOLOGY}")
            return
        size: int | None = pod_set.default_slice_size
    else:
        size = _parse_integer(text)
    if size is None or not _is_size(size):
        yield FieldError(ErrorType.INVALID, field, text, _format_divisors(pod_set.count) if pod_set.count else _SIZE_EXPECTED)
    elif pod_set.count is not None:
        yield from find_uneven(field, text, size, pod_set.count, min_count=pod_set.min_count)


def find_uneven(field: str, value: Any, size: int, count: int, *, layers: int = 1, min_count: int | None = None) -> Iterator[FieldError]:
    """Yields the error of slices of `size` pods, at least 1, that do not divide `count` pods evenly; none if they do. Gate PARTIAL_SLICES
    lifts it for a single layer of slices with no more pods than there are, unless the pod set can do with fewer pods (`min_count`)."""
    if not count % size:
        return
    accepted, gate = _format_divisors(count), ""
    if size > count:
        accepted = f"a slice must not have more than the {count} pods; {accepted}"
    elif layers > 1:
        accepted = f"{accepted} where there is more than one layer"
    elif min_count is not None:
        accepted = f"{accepted} where a job can do with fewer pods"
    else:
        accepted, gate = f"{accepted}; {PARTIAL_SLICES_HINT}", PARTIAL_SLICES
    yield FieldError(ErrorType.INVALID, field, value, accepted, gate)


def _validate_layers(pod_set: PodSetAnnotations, text: str) -> Iterator[FieldError]:
    field = f"{pod_set.path}[{SLICE_CONSTRAINTS}]"
    example = '[{"topology": "cloud.provider.com/topology-rack", "size": 16}]'
    try:
        entries = _load(text)
    except _NotReadable as error:
        yield FieldError(ErrorType.INVALID, field, None, f"is no JSON ({error}); a list such as {example} is expected")
        return
    if not isinstance(entries, list):
        yield FieldError(ErrorType.INVALID, field, None, f"a list of 1 to {MAX_LAYERS} layers such as {example} is expected")
        return
    if not 1 <= len(entries) <= MAX_LAYERS:
        accepted = f"layers are given; a list of 1 to {MAX_LAYERS} layers such as {example} is expected"
        yield FieldError(ErrorType.INVALID, field, len(entries), accepted)
        return
    layers = [_parse_layer(entry or {}) if isinstance(entry, dict) or entry is None else (None, None) for entry in entries]
    unreadable = [i for i, (topology, size) in enumerate(layers) if not isinstance(topology, str) or size is None or abs(size) > _MAX_INT32]
    if unreadable:  # what has the wrong type makes the annotation unreadable as a whole
        problems = "; ".join(problem for i, entry in enumerate(entries) for problem in _explain_layer(pod_set, f"[{i}]", entry))
        yield FieldError(ErrorType.INVALID, field, None, f"{problems}; a list such as {example} is expected")
        return
    seen: dict[str, int] = {}
    above: int | None = None
    for i, (topology, size) in enumerate(layers):
        assert isinstance(topology, str)
        assert size is not None
        written = {key.lower() for key, value in (entries[i] or {}).items() if value is not None}
        others = ", ".join(sorted(written - {"topology", "size"}))
        missing = f"is missing, {others} is not read; " if others else "is missing; "
        if not is_label_name(topology):
            found, accepted = (topology, _LABEL_NAME) if "topology" in written else (None, f"{missing}{_LABEL_NAME}")
            yield FieldError(ErrorType.INVALID, f"{field}[{i}].topology", found, accepted)
        elif topology in seen:
            accepted = f"each layer names another level; {SLICE_CONSTRAINTS}[{seen[topology]}] has this one"
            yield FieldError(ErrorType.DUPLICATE, f"{field}[{i}].topology", topology, accepted)
        seen.setdefault(topology, i)
        if size < 1:
            number, accepted = (size, _SIZE_EXPECTED) if "size" in written else (None, f"{missing}{_SIZE_EXPECTED}")
            yield FieldError(ErrorType.INVALID, f"{field}[{i}].size", number, accepted)
            continue
        if above is not None and above % size:
            accepted = f"a divisor of the {above} of the layer above is expected"
            yield FieldError(ErrorType.INVALID, f"{field}[{i}].size", size, accepted)
        if i == 0 and pod_set.count is not None:
            yield from find_uneven(field, size, size, pod_set.count, layers=len(layers), min_count=pod_set.min_count)
        above = size


def _validate_groups(pod_sets: Sequence[PodSetAnnotations]) -> Iterator[FieldError]:
    groups: dict[str, list[PodSetAnnotations]] = {}
    for pod_set in pod_sets:
        if pod_set.annotations.get(PODSET_GROUP_NAME):
            groups.setdefault(pod_set.annotations[PODSET_GROUP_NAME], []).append(pod_set)
    for name, members in groups.items():
        if len({_find_asked_levels(member) for member in members}) > 1:
            for member in members:
                accepted = f"all pod templates of group {name!r} must have the same {REQUIRED_TOPOLOGY} or {PREFERRED_TOPOLOGY}"
                yield FieldError(ErrorType.INVALID, member.path, name, accepted)


def _find_asked_levels(pod_set: PodSetAnnotations) -> tuple[str | None, str | None]:
    """Returns the required and the preferred level, of which at most one is set; that they exclude each other is
    reported elsewhere."""
    required = pod_set.annotations.get(REQUIRED_TOPOLOGY)
    return (required, None) if required else (None, pod_set.annotations.get(PREFERRED_TOPOLOGY))


def _list_warnings(pod_sets: Sequence[PodSetAnnotations]) -> Iterator[str]:
    asking = [p for p in pod_sets if REQUIRED_TOPOLOGY in p.annotations or PREFERRED_TOPOLOGY in p.annotations]
    for pod_set in pod_sets if asking else ():
        if pod_set not in asking and pod_set.annotations.get(UNCONSTRAINED_TOPOLOGY) not in _TRUE:
            missing = f"neither {REQUIRED_TOPOLOGY} nor {PREFERRED_TOPOLOGY}"
            yield f"{pod_set.path}: {missing} is set here; these pods are placed as unconstrained"
    for pod_set in pod_sets:
        if SPARE_NODES in pod_set.annotations and pod_set.is_job and pod_set.count == 1:
            yield f"{pod_set.path}[{SPARE_NODES}]: has no effect: a pod by itself is not replaced when its node fails"
        yield from warn_of_template(pod_set.path, pod_set.annotations, pod_set.labels, is_job=pod_set.is_job)
        yield from warn_of_values(pod_set.path, pod_set.annotations, pod_set.labels)
        for i, entry in enumerate(_parse_entries(pod_set.annotations.get(SLICE_CONSTRAINTS))):
            unknown = sorted(key for key in entry if key.lower() not in ("topology", "size"))
            if unknown:
                yield f"{pod_set.path}[{SLICE_CONSTRAINTS}][{i}]: only topology and size are read, not {', '.join(unknown)}"


def _format_divisors(count: int) -> str:
    if count < 1:
        return "there are no pods to be sliced"
    small = [size for size in range(1, min(isqrt(count), 50_000) + 1) if count % size == 0]
    fitting = sorted({*small, *(count // size for size in small)})
    shown = ", ".join(map(str, fitting)) if len(fitting) <= 12 else f"{', '.join(map(str, fitting[:11]))}, ... {count}"
    return f"slices must evenly divide the {count} pods: one of {shown} is expected"


class _NotReadable(ValueError):
    """A text that is no JSON; the message has the position."""


def _load(text: str) -> Any:
    """JSON as users write it: a comma before a closing bracket is let pass (the KEP's own example has one). Raises _NotReadable."""
    try:
        return json.loads(_STRING_OR_TRAILING_COMMA.sub(lambda match: match[1] or " ", text))
    except json.JSONDecodeError as error:
        raise _NotReadable(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists in lists
        raise _NotReadable("too long or too deep") from None


def _parse_entries(text: str | None) -> list[dict[str, Any]]:
    """The layers of an annotation as far as they can be read at all."""
    try:
        entries = _load(text) if text else []
    except _NotReadable:
        return []
    return entries if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) else []


def _parse_layers(text: str | None) -> list[tuple[str, int]]:
    layers = [_parse_layer(entry) for entry in _parse_entries(text)]
    return [(name, size) for name, size in layers if isinstance(name, str) and size is not None]


def _parse_layer(entry: Mapping[str, Any]) -> tuple[Any, int | None]:
    """Returns the level and the size of a layer; the case of its keys is ignored, as in Kueue."""
    read = {key.lower(): value for key, value in entry.items()}
    topology, size = read.get("topology"), read.get("size")
    return "" if topology is None else topology, _parse_size(0 if size is None else size)


def _explain_layer(pod_set: PodSetAnnotations, at: str, entry: Any) -> Iterator[str]:
    """What of a layer is not accepted, each with the value."""
    if not isinstance(entry, dict | None):
        yield f"{at} is {_show_json(entry)}, and a topology with a size is expected"
        return
    read = {key.lower(): value for key, value in (entry or {}).items()}
    topology, size = _parse_layer(entry or {})
    if not isinstance(topology, str) or not is_label_name(topology):
        yield f"{at}.topology is {_show_json(read.get('topology'))}, and {_LABEL_NAME}"
    if not _is_size(size):
        is_first = at == "[0]" and bool(pod_set.count)
        yield f"{at}.size is {_show_json(read.get('size'))}, and {_format_divisors(pod_set.count or 0) if is_first else _SIZE_EXPECTED}"


def _show_json(value: Any) -> str:
    """A value as it is written; one that is missing or null is missing."""
    text = json.dumps(value, ensure_ascii=False)
    return "missing" if value is None else text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _parse_size(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    return value if isinstance(value, int) else _parse_integer(value) if isinstance(value, str) else None


def _is_size(size: int | None) -> bool:
    return size is not None and 1 <= size <= _MAX_INT32


def _is_unsigned(text: str) -> bool:
    """Whether a text is a number to Kubernetes: digits that 64 bits can hold."""
    return re.fullmatch(r"[0-9]{1,20}", text) is not None and int(text) < 2**64


def _parse_integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,10}", text) else None

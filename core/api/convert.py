"""Objects of our kinds between v1beta1 and v1beta2, one function for each kind and direction: plain JSON in, plain JSON out.

Nothing is lost either way. What the other version cannot say is noted in an annotation (`core.api.convert_notes`); on the way back
the note is taken where it still agrees with the fields, so that a client of v1beta1 that reads, changes and writes an object keeps
what it never saw, and what it did change holds. A note that says something else, or is forged or malformed, is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from core.api.convert_assignment import MAX_CHARS, count_chars, to_domains, to_slices
from core.api.convert_notes import Json, copy_items, copy_object, get_part, put_note, remove_note, rename
from core.api.kinds.meta import DNS_SUBDOMAIN
from core.api.kinds.workload_kind import MAX_SLICE_LAYERS
from core.api.v1beta1 import POD_PRIORITY, WORKLOAD_PRIORITY
from core.model.wire.encoding import InvalidAssignment
from core.names import API_VERSION, FIELDS_OF_V1BETA1, FIELDS_OF_V1BETA2, GROUP, MAIN_POD_SET, OLD_API_VERSION

_CONSTRAINTS = "podsetSliceRequiredTopologyConstraints"
_CLASSES = {WORKLOAD_PRIORITY: (GROUP, "WorkloadPriorityClass"), POD_PRIORITY: ("scheduling.k8s.io", "PriorityClass")}
# What v1beta1 once called MayStopSearch.
_OLD_WORDS = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
_STOP = "MayStopSearch"
_MAX_QUOTE_CHARS = 256
MAX_CHARS_AT_ONCE = 60 * 1024 * 1024
"""Of topology assignments in v1beta1 in one review: some 250 MB of memory."""


class Unconvertible(ValueError):
    """The object cannot be said in the version asked for; the message says which, and why."""


def convert(obj: Mapping[str, Any], version: str) -> Json:
    """Returns a copy of the object in another version (`version`: apiVersion), or in the same if it has that. What was given is not
    changed; parts that are equal in both are shared. The note of what the given version could not express is removed and used where it
    agrees with the fields; what the new version cannot express becomes a note. Raises Unconvertible for another kind or version, and for a
    topology assignment that the version cannot express."""
    kind, given = obj.get("kind"), obj.get("apiVersion")
    functions = _KINDS.get(kind) if isinstance(kind, str) else None
    # By comparison: what stands there may be anything, and not everything can be in a set.
    if functions is None or given not in (API_VERSION, OLD_API_VERSION) or version not in (API_VERSION, OLD_API_VERSION):
        asked = f"{_format_value(kind)} of {_format_value(given)} cannot be converted to {_format_value(version)}"
        raise Unconvertible(f"{asked}: {', '.join(_KINDS)} of {GROUP} can, between v1beta1 and v1beta2")
    converted = {**obj, "apiVersion": version}
    if given == version:
        return converted
    upwards = version == API_VERSION
    here, there = (FIELDS_OF_V1BETA2, FIELDS_OF_V1BETA1) if upwards else (FIELDS_OF_V1BETA1, FIELDS_OF_V1BETA2)
    note = remove_note(converted, here)
    remove_note(converted, there)  # it belongs to the other version: here it means nothing
    try:
        put_note(converted, there, functions[upwards](converted, note))
    except InvalidAssignment as error:
        metadata = obj.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        raise Unconvertible(f"{kind} {_format_value(name)!r} cannot be converted to {version}: {error}") from None
    return converted


def check_size(objects: Iterable[Mapping[str, Any]], version: str) -> None:
    """Raises Unconvertible where objects of v1beta2 that are converted to v1beta1 at once have assignments of more than `MAX_CHARS_AT_ONCE`
    characters together. An assignment of more than `MAX_CHARS` does not count, since it is shown as nothing. Does nothing for another
    `version`."""
    if version != OLD_API_VERSION:
        return
    assignments = (given.get("topologyAssignment") for obj in objects if obj.get("apiVersion") == API_VERSION for given in _find_given(obj))
    sizes = (count_chars(wire) for wire in assignments if isinstance(wire, dict))
    total = sum(size for size in sizes if size <= MAX_CHARS)  # others are shown as nothing
    if total > MAX_CHARS_AT_ONCE:
        found = f"topology assignments of {total // 1_000_000} MB at once cannot be converted to {version}"
        raise Unconvertible(f"{found}; at most {MAX_CHARS_AT_ONCE // 1_000_000} MB can: list fewer objects at once (limit)")


def _find_given(obj: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    status = obj.get("status")
    admission = status.get("admission") if isinstance(status, dict) else None
    assigned = admission.get("podSetAssignments") if isinstance(admission, dict) else None
    return (given for given in (assigned if isinstance(assigned, list) else ()) if isinstance(given, dict))


def _format_value(given: Any) -> str:
    text = str(given)
    return text if len(text) <= _MAX_QUOTE_CHARS else text[: _MAX_QUOTE_CHARS - 1] + "…"


# --- Workload ---------------------------------------------------------------------------------------------


def convert_workload_to_v1beta1(obj: Json, note: Json) -> Json:
    """Changes a Workload of v1beta2 in place into v1beta1; returns what v1beta1 cannot express, to be noted: constraints and slices by pod
    set. `note` is what was noted on the way to v1beta2. Of it only the priority class is used, where the Workload has no
    `priorityClassRef`. An assignment that cannot be read or is too large gets no domains."""
    spec, status = copy_object(obj, "spec"), copy_object(obj, "status")
    constraints, shapes = {}, {}
    if spec is not None:
        _name_priority(spec, note)
        for pod_set in copy_items(spec, "podSets"):
            request = copy_object(pod_set, "topologyRequest")
            if request is not None and _CONSTRAINTS in request:
                constraints[_name_of(pod_set)] = request.pop(_CONSTRAINTS)
    rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    for given in _list_assignments(status):
        wire = given.get("topologyAssignment")
        if isinstance(wire, dict):
            given["topologyAssignment"], shape = to_domains(wire)
            if shape is not None:
                shapes[_name_of(given)] = shape
    return {"constraints": constraints, "slices": shapes}


def convert_workload_to_v1beta2(obj: Json, note: Json) -> Json:
    """Changes a Workload of v1beta1 in place into v1beta2; returns what v1beta2 cannot express, to be noted: name and source of a priority
    class that make no reference. `note` is what was noted on the way to v1beta1; of it slices and valid constraints are used. Raises
    InvalidAssignment, which names the field, where v1beta2 cannot express an assignment."""
    spec, status = copy_object(obj, "spec"), copy_object(obj, "status")
    noted: Json = {}
    if spec is not None:
        noted = _build_priority_reference(spec)
        for pod_set in copy_items(spec, "podSets"):
            request = copy_object(pod_set, "topologyRequest")
            if request is not None:
                request.pop(_CONSTRAINTS, None)
                constraints = get_part(note, "constraints", _name_of(pod_set))
                if _may_be_added(constraints, request):
                    request[_CONSTRAINTS] = constraints
    rename(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    for index, given in enumerate(_list_assignments(status)):
        shown = given.get("topologyAssignment")
        if isinstance(shown, dict):
            try:
                given["topologyAssignment"] = to_slices(shown, get_part(note, "slices", _name_of(given)))
            except InvalidAssignment as error:
                raise InvalidAssignment(f"status.admission.podSetAssignments[{index}].topologyAssignment.{error}") from None
    return noted


def _list_assignments(status: Json | None) -> list[Json]:
    admission = copy_object(status, "admission") if status is not None else None
    return copy_items(admission, "podSetAssignments") if admission is not None else []


def _name_of(pod_set: Json) -> str:
    name = pod_set.get("name")
    return name if isinstance(name, str) else MAIN_POD_SET


def _may_be_added(constraints: Any, request: Json) -> bool:
    """Whether these are constraints that the schema of v1beta2 would take, and v1beta1 has not said otherwise since."""
    if not isinstance(constraints, list) or len(constraints) > MAX_SLICE_LAYERS or not all(map(_is_constraint, constraints)):
        return False
    sizes = [one["size"] for one in constraints]
    nested = all(wide % narrow == 0 for wide, narrow in pairwise(sizes))
    distinct = len({one["topology"] for one in constraints}) == len(constraints)
    alone = "podSetSliceRequiredTopology" not in request and "podSetSliceSize" not in request
    return nested and distinct and (alone or not constraints)


def _is_constraint(one: Any) -> bool:
    if not isinstance(one, dict) or one.keys() != {"topology", "size"}:
        return False
    topology, size = one["topology"], one["size"]
    return isinstance(topology, str) and 1 <= len(topology) <= 63 and type(size) is int and 1 <= size < 2**31


def _name_priority(spec: Json, note: Json) -> None:
    reference = spec.pop("priorityClassRef", None)
    for field in ("priorityClassName", "priorityClassSource"):
        spec.pop(field, None)
    if isinstance(reference, dict):
        group_and_kind = [reference.get("group"), reference.get("kind")]
        for source, named in _CLASSES.items():
            if group_and_kind == [*named]:
                spec |= {"priorityClassName": reference.get("name"), "priorityClassSource": source}
        return
    name, source = (get_part(note, field) for field in ("priorityClassName", "priorityClassSource"))
    if name is not None and not _is_source(source) and "priority" in spec and _is_name(name):
        spec["priorityClassName"] = name
    if source == "" or (_is_source(source) and name is None):
        spec["priorityClassSource"] = source


def _build_priority_reference(spec: Json) -> Json:
    spec.pop("priorityClassRef", None)
    name, source = (spec.pop(field, None) for field in ("priorityClassName", "priorityClassSource"))
    if name is not None and _is_source(source):
        group, kind = _CLASSES[source]
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
        return {}
    return {"priorityClassName": name, "priorityClassSource": source}


def _is_source(source: Any) -> bool:
    return isinstance(source, str) and source in _CLASSES


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= 253 and re.fullmatch(DNS_SUBDOMAIN, name) is not None


# --- queues -----------------------------------------------------------------------------------------------


def convert_cluster_queue_to_v1beta1(obj: Json, note: Json) -> Json:
    """Changes a ClusterQueue of v1beta2 in place into v1beta1; returns an empty note. `note` is what was noted on the way to v1beta2: the
    list of admission checks and old words of `flavorFungibility`. Each is used only where the present fields still mean the same."""
    spec = copy_object(obj, "spec")
    rename(spec, "cohortName", "cohort")
    if spec is None:
        return {}
    spec.pop("admissionChecks", None)
    checks, strategy = get_part(note, "admissionChecks"), spec.get("admissionChecksStrategy")
    if isinstance(checks, list) and strategy == _build_strategy(checks):
        spec.pop("admissionChecksStrategy", None)
        spec["admissionChecks"] = checks
    fungibility = copy_object(spec, "flavorFungibility") or {}
    for field, word in _OLD_WORDS.items():
        if fungibility.get(field) == _STOP and get_part(note, field) == word:
            fungibility[field] = word
    return {}


def convert_cluster_queue_to_v1beta2(obj: Json, note: Json) -> Json:
    """Changes a ClusterQueue of v1beta1 in place into v1beta2; returns what v1beta2 cannot express, to be noted: the list of admission
    checks, and old words of `flavorFungibility` (Borrow, Preempt). `note` is not used. Beside `admissionChecksStrategy` the list is
    dropped."""
    spec = copy_object(obj, "spec")
    rename(spec, "cohort", "cohortName")
    if spec is None:
        return {}
    noted: Json = {}
    checks = spec.pop("admissionChecks", None)
    if isinstance(checks, list) and "admissionChecksStrategy" not in spec:
        strategy = _build_strategy(checks)
        spec |= {"admissionChecksStrategy": strategy} if strategy is not None else {}
        noted["admissionChecks"] = checks
    fungibility = copy_object(spec, "flavorFungibility") or {}
    for field, word in _OLD_WORDS.items():
        if fungibility.get(field) == word:
            fungibility[field] = _STOP
            noted[field] = word
    return noted


def _build_strategy(checks: list[Any]) -> Json | None:
    return {"admissionChecks": [{"name": check} for check in checks]} if checks else None


def convert_local_queue_to_v1beta1(obj: Json, note: Json) -> Json:
    """Renames `flavorsUsage` in the status of a LocalQueue to `flavorUsage`, in place; returns an empty note. `note` is not used."""
    rename(copy_object(obj, "status"), "flavorsUsage", "flavorUsage")
    return {}


def convert_local_queue_to_v1beta2(obj: Json, note: Json) -> Json:
    """Renames `flavorUsage` in the status of a LocalQueue to `flavorsUsage`, in place; returns an empty note. `note` is not used."""
    rename(copy_object(obj, "status"), "flavorUsage", "flavorsUsage")
    return {}


def convert_cohort_to_v1beta1(obj: Json, note: Json) -> Json:
    """Changes nothing, since both versions express the same; returns an empty note."""
    return {}


def convert_cohort_to_v1beta2(obj: Json, note: Json) -> Json:
    """Changes nothing, since both versions express the same; returns an empty note."""
    return {}


_Function = Callable[[Json, Json], Json]
# Kind -> (to v1beta1, to v1beta2).
_KINDS: Mapping[str, tuple[_Function, _Function]] = {
    "ClusterQueue": (convert_cluster_queue_to_v1beta1, convert_cluster_queue_to_v1beta2),
    "Cohort": (convert_cohort_to_v1beta1, convert_cohort_to_v1beta2),
    "LocalQueue": (convert_local_queue_to_v1beta1, convert_local_queue_to_v1beta2),
    "Workload": (convert_workload_to_v1beta1, convert_workload_to_v1beta2),
}
CONVERTED = tuple(_KINDS)

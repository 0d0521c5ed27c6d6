"""Rules of queued jobs and pods that a feature gate switches on (`core.model.gates`): what Kueue refuses only with that gate."""

from collections.abc import Iterator, Mapping
from typing import Any

from core.jobs.annotation_catalog import OWN
from core.jobs.annotations import FALSE_VALUES
from core.jobs.contract import ErrorType, FieldError, Json, Rules
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_parents import PodParent
from core.jobs.spreading_rules import SpreadTemplate, validate_spreading
from core.jobs.templated import TemplatedKind, with_changes
from core.model.gates import REJECT_FALSE_UNCONSTRAINED, REPLACE_MULTIPLE, SPREADING, WORKLOAD_PODS_READY, ChosenGates
from core.model.node_health_rules import MAX_THRESHOLD, parse_threshold
from core.model.own_pods_ready import MOST_READY_S, BadTimes, parse_times
from core.names import (
    LOST_NODES_THRESHOLD,
    PODSET_GROUP_NAME,
    REQUIRED_TOPOLOGY,
    SUSPENDING_PARENT,
    TOPOLOGY_SPREADING,
    UNCONSTRAINED_TOPOLOGY,
    WAIT_FOR_PODS_READY,
)


def validate_gated(kind: object, job: Json, old: Json | None, gates: ChosenGates, most_ready_s: float = MOST_READY_S) -> Rules:
    """Returns the errors of a job or pod by the rules that `gates` switch on, without those that `old` shows as well (None: it is new, or
    was not queued before). `most_ready_s`: the longest time in WAIT_FOR_PODS_READY, in seconds; it is kept while the job runs. No warnings.
    Kinds other than TemplatedKind, PodParent and Pod have no errors."""
    judged = Rules(tuple(_list_errors(kind, job, gates, most_ready_s)))
    changed: tuple[FieldError, ...] = ()
    if gates.is_on(SPREADING):
        before = list(_list_spread_templates(kind, old)) if old is not None else []
        changed = tuple(validate_spreading(list(_list_spread_templates(kind, job)), before, at_all=True))
    if old is None:
        return Rules((*judged.errors, *changed))
    changed += tuple(_validate_changed_times(kind, old, job)) if gates.is_on(WORKLOAD_PODS_READY) else ()
    return with_changes(changed, judged, Rules(tuple(_list_errors(kind, old, gates, most_ready_s))))


def _validate_changed_times(kind: object, old: Json, job: Json) -> Iterator[FieldError]:
    """A job that runs keeps its times, and a pod always: its Workload is made once."""
    runs = isinstance(kind, Pod) or (isinstance(kind, TemplatedKind) and not kind.is_suspended(old) and not kind.is_suspended(job))
    before, after = ((obj.get("metadata") or {}).get("annotations") or {} for obj in (old, job))
    if runs and before.get(WAIT_FOR_PODS_READY) != after.get(WAIT_FOR_PODS_READY):
        is_job = isinstance(kind, TemplatedKind)
        accepted = "may not change while it runs; suspend it first" if is_job else "is settled when the pod is created"
        yield FieldError(ErrorType.INVALID, f"{OWN}[{WAIT_FOR_PODS_READY}]", after.get(WAIT_FOR_PODS_READY), accepted)


def _validate_times(kind: object, job: Json, most_ready_s: float) -> Iterator[FieldError]:
    is_on_template = isinstance(kind, PodParent) and kind.pods_alone
    own = (OWN, (job.get("metadata") or {}).get("annotations") or {})
    for path, annotations in list_templates(kind, job) if is_on_template or isinstance(kind, Pod) else (own,):
        text = annotations.get(WAIT_FOR_PODS_READY)
        try:
            if text is not None:
                parse_times(text, most_ready_s)
        except BadTimes as error:
            yield FieldError(ErrorType.INVALID, f"{path}[{WAIT_FOR_PODS_READY}]", text, str(error))


def validate_gated_workload(workload: Json, old: Json | None, gates: ChosenGates) -> Rules:
    """Returns the errors of a Workload by the rules that `gates` switch on, without those that `old` shows as well (None: it is new). No
    warnings."""
    changed: tuple[FieldError, ...] = ()
    if gates.is_on(SPREADING):
        changed = tuple(validate_spreading(list(_list_pod_sets(workload)), list(_list_pod_sets(old or {})), at_all=False))
    if not gates.is_on(REPLACE_MULTIPLE):
        return Rules(changed)
    return with_changes(changed, Rules(tuple(_validate_threshold(workload))), Rules(tuple(_validate_threshold(old or {}))))


def _list_spread_templates(kind: object, job: Json) -> Iterator[SpreadTemplate]:
    for path, notes in list_templates(kind, job):
        yield SpreadTemplate(path, notes.get(TOPOLOGY_SPREADING), notes.get(REQUIRED_TOPOLOGY), notes.get(PODSET_GROUP_NAME))


def _list_pod_sets(workload: Json) -> Iterator[SpreadTemplate]:
    """The pod sets of a Workload, as far as they have the shape of one: its schema is checked after this."""
    pod_sets = _get_map(workload, "spec").get("podSets")
    for i, pod_set in enumerate(pod_sets if isinstance(pod_sets, list) else ()):
        notes = _get_map(_get_map(_get_map(pod_set, "template"), "metadata"), "annotations")
        asked, path = _get_map(pod_set, "topologyRequest"), f"spec.podSets[{i}].template.{OWN}"
        yield SpreadTemplate(path, notes.get(TOPOLOGY_SPREADING), asked.get("required"), asked.get("podSetGroupName"))


def _get_map(obj: Any, name: str) -> Mapping[str, Any]:
    found = obj.get(name) if isinstance(obj, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _validate_threshold(obj: Json) -> Iterator[FieldError]:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    text = annotations.get(LOST_NODES_THRESHOLD)
    if text is not None and parse_threshold(text) is None:
        yield FieldError(ErrorType.INVALID, f"{OWN}[{LOST_NODES_THRESHOLD}]", text, f"must be an integer between 1 and {MAX_THRESHOLD}")


def _list_errors(kind: object, job: Json, gates: ChosenGates, most_ready_s: float) -> Iterator[FieldError]:
    if gates.is_on(WORKLOAD_PODS_READY):
        yield from _validate_times(kind, job, most_ready_s)
    if gates.is_on(REPLACE_MULTIPLE):
        yield from _validate_threshold(job)
    if gates.is_on(REJECT_FALSE_UNCONSTRAINED):
        for path, annotations in list_templates(kind, job):
            value = annotations.get(UNCONSTRAINED_TOPOLOGY)
            if value in FALSE_VALUES:
                accepted = f'"true" is expected, or no annotation (feature gate {REJECT_FALSE_UNCONSTRAINED})'
                yield FieldError(ErrorType.INVALID, f"{path}[{UNCONSTRAINED_TOPOLOGY}]", value, accepted)


def list_templates(kind: object, job: Json) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields paths and contents of the annotations of pod templates. Those of a pod that a parent made are left out: they were judged on
    its template, which may be older than a rule. Other kinds than TemplatedKind, PodParent and Pod have none."""
    if isinstance(kind, TemplatedKind | PodParent):
        for role in kind.list_roles(job):
            yield role.annotations_shown, role.annotations
    elif isinstance(kind, Pod) and not kind.is_left_alone(job):
        annotations = (job.get("metadata") or {}).get("annotations") or {}
        if SUSPENDING_PARENT not in annotations:
            yield OWN, annotations

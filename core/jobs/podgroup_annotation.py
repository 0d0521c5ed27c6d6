"""The annotation by which a job that is not queued has its pods placed together: read, judged, and what its templates get by it.

The webhook makes the pods members of a group, by what it writes on their templates, and writes nothing else: a request that is only
tried must leave nothing behind. The group itself is made by the reconciler (`core.plan.jobs.job_podgroup`).
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from core.jobs.annotation_catalog import OF_A_TEMPLATE, OWN
from core.jobs.contract import ErrorType, FieldError, Gang, Json, Rules
from core.jobs.placer import find_placer, validate_placer, validate_settled, with_wait
from core.jobs.podgroup_levels import SHOWN, read_levels, validate_levels
from core.jobs.schema_check import Fields
from core.jobs.template_parts import copy_object
from core.jobs.templated import Role, check_role_count, get, put
from core.names import (
    MEMBER_OF_LABEL,
    PODGROUP_TOPOLOGY,
    QUEUE_NAME_LABEL,
    WORKLOAD_PREFERRED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)

_MAX_NAME = 63  # the group's name is the value of a label
_HASH = 8


@runtime_checkable
class Grouping(Protocol):
    """A kind with pods that can be placed as PodGroups, without a queue."""

    kind: ClassVar[str]
    group: ClassVar[str]
    version: ClassVar[str]
    plural: ClassVar[str]
    spec_shape: ClassVar[Fields]

    def list_roles(self, job: Json) -> list[Role]:
        """Returns the pod templates of a job, in the order in which the job has them."""
        ...

    def find_gang(self, job: Json) -> Gang:
        """Returns the number of pods that are placed at once (`min_count`), and how many groups of so many the job has (`replicas`)."""
        ...


def find_asked(job: Json) -> str | None:
    """Returns the value, as a text, of the annotation PODGROUP_TOPOLOGY of a job; None where it has none."""
    text = _get_map(job, "annotations").get(PODGROUP_TOPOLOGY)
    return None if text is None else str(text)


def find_group(kind: Grouping, job: Json) -> str | None:
    """Returns the group by the label MEMBER_OF_LABEL of a job's templates, as the webhook has written it: that of the first one that has
    it. None where none has."""
    named = (((role.template.get("metadata") or {}).get("labels") or {}).get(MEMBER_OF_LABEL) for role in kind.list_roles(job))
    return next((name for name in named if name), None)


def group_name(kind: Grouping, job: Json, seed: str) -> str:
    """Returns a name of at most 63 characters for the group of a new job. It has kind, name or `generateName`, cut, and a hash of these,
    the API group and `seed`.

    The job may have no name yet. `seed` is unlike that of any other request: pods of a former job of the same name may still be there.
    """
    metadata = job.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    prefix = f"{kind.kind.lower()}-{name}"[: _MAX_NAME - _HASH - 1].rstrip("-.")
    text = "\n".join((kind.kind, kind.group, str(name), seed))
    return f"{prefix}-{hashlib.sha1(text.encode(errors='surrogatepass'), usedforsecurity=False).hexdigest()[:_HASH]}"


def with_membership(kind: Grouping, job: Json, name: str) -> dict[str, Any]:
    """Returns a copy of the job with pods that are members of the group `name` from their creation, and wait for their places
    (`with_wait`). A template that names another group was copied from another job; the name is replaced. A template that is missing is not
    made."""
    changed = copy_object(job)
    for role in kind.list_roles(changed):
        if not isinstance(get(changed, role.path), dict):
            continue  # a template that is missing is not made here
        labels = get(changed, (*role.path, "metadata", "labels")) or {}
        put(changed, (*role.path, "metadata", "labels"), {**labels, MEMBER_OF_LABEL: name})
        put(changed, (*role.path, "spec"), with_wait(get(changed, (*role.path, "spec")) or {}, name, find_placer(job)))
    return changed


def validate_new(kind: Grouping, job: Json) -> Rules:
    """Returns all errors of a job that has PODGROUP_TOPOLOGY, without warnings. They are of its levels, its placing component, what may not
    stand beside it, node names, and too many templates. Without the annotation it is judged as an empty text."""
    text = find_asked(job) or ""
    placed_by = validate_placer(kind.kind, job, read_levels(text))
    own = (*_validate_one_system(kind, job), *_validate_nodes(kind, job), *check_role_count(kind.list_roles(job)))
    return Rules((*validate_levels(text), *placed_by, *own))


def validate_change(kind: Grouping, old: Json, new: Json) -> Rules:
    """Returns the errors of a change. PODGROUP_TOPOLOGY may not be added later. Once the job's templates name a group, it may not change or
    go, nor may the component that places the pods. Either error is the only one. Otherwise `validate_new` judges a job that still has it,
    if it, the component, node names or what it may not stand beside have changed."""
    before, after = find_asked(old), find_asked(new)
    if before != after and (before is None or find_group(kind, old) is not None):
        kept = "it was made without" if before is None else f"it keeps {before!r}"
        accepted = f"is settled when the {kind.kind} is created: {kept}; make another one"
        return Rules((FieldError(ErrorType.FORBIDDEN, SHOWN, after or "", accepted),))
    if after is not None and find_group(kind, old) is not None and (settled := tuple(validate_settled(kind.kind, old, new))):
        return Rules(settled)
    if after is None or (before == after and _list_related_values(kind, old) == _list_related_values(kind, new)):
        return Rules()
    return validate_new(kind, new)


def _validate_one_system(kind: Grouping, job: Json) -> Iterator[FieldError]:
    """A queued job is placed by its admission, and its pods are members of nothing."""
    queue = _get_map(job, "labels").get(QUEUE_NAME_LABEL)
    if queue is not None:
        accepted = (
            f"may not stand beside {PODGROUP_TOPOLOGY}, which is for jobs without a queue; keep one of them "
            "(a job gets its queue by itself where its namespace is managed by topogate)"
        )
        yield FieldError(ErrorType.FORBIDDEN, f"metadata.labels[{QUEUE_NAME_LABEL}]", queue, accepted)
    others = f"may not stand beside {PODGROUP_TOPOLOGY}: this is for queued jobs, that for jobs without a queue; keep one of them"
    for name in (WORKLOAD_REQUIRED_TOPOLOGY, WORKLOAD_PREFERRED_TOPOLOGY):
        if name in _get_map(job, "annotations"):
            yield FieldError(ErrorType.FORBIDDEN, f"{OWN}[{name}]", None, others)
    for role in kind.list_roles(job):
        for name in OF_A_TEMPLATE:
            if name in role.annotations:
                yield FieldError(ErrorType.FORBIDDEN, f"{role.annotations_shown}[{name}]", None, others)
    for shown, text in _find_asked_between(kind, job).items():
        accepted = f"may not stand beside that of the {kind.kind} itself: what it makes would be a group by itself; keep one of them"
        yield FieldError(ErrorType.FORBIDDEN, f"{shown}[{PODGROUP_TOPOLOGY}]", text, accepted)


def _find_asked_between(kind: Grouping, job: Json) -> dict[str, Any]:
    """The annotation on templates of objects between a job and its pods, such as the Jobs of a JobSet, by where it stands."""
    found: dict[str, Any] = {}
    for role in kind.list_roles(job):
        for end in range(1, len(role.path)):
            annotations = get(job, (*role.path[:end], "metadata", "annotations"))
            if isinstance(annotations, Mapping) and PODGROUP_TOPOLOGY in annotations:
                shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in role.path[:end]).lstrip(".")
                found[f"{shown}.{OWN}"] = annotations[PODGROUP_TOPOLOGY]
    return found


def _validate_nodes(kind: Grouping, job: Json) -> Iterator[FieldError]:
    """A pod that names its node cannot wait for a place."""
    for role in kind.list_roles(job):
        node = (role.template.get("spec") or {}).get("nodeName")
        if node:
            yield FieldError(ErrorType.FORBIDDEN, f"{role.shown}.spec.nodeName", node, "topogate chooses the nodes of a group")


def _list_related_values(kind: Grouping, job: Json) -> list[object]:
    """What the annotation is judged with."""
    own = _get_map(job, "annotations")
    ties = [own.get(name) for name in (WORKLOAD_REQUIRED_TOPOLOGY, WORKLOAD_PREFERRED_TOPOLOGY)]
    templates = [
        [(role.template.get("spec") or {}).get("nodeName"), *(name in role.annotations for name in OF_A_TEMPLATE)]
        for role in kind.list_roles(job)
    ]
    return [_get_map(job, "labels").get(QUEUE_NAME_LABEL), find_placer(job), ties, templates, _find_asked_between(kind, job)]


def _get_map(job: Json, part: str) -> Mapping[str, Any]:
    """Labels or annotations, none where they are no map: a review may hold anything."""
    found = (job.get("metadata") or {}).get(part)
    return found if isinstance(found, Mapping) else {}

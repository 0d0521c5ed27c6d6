"""Which component places the pods of a job's PodGroup: topogate, unless the job names kube-scheduler.

There, pods are members of kube-scheduler's own PodGroup (Kubernetes 1.36, alpha) by `spec.schedulingGroup`, and wait
because of it, without a gate of topogate's.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.jobs.annotation_catalog import OWN
from core.jobs.contract import ErrorType, FieldError, Json
from core.jobs.podgroup_levels import PREFERRED, SHOWN, RequestedLevel
from core.jobs.templated import Role
from core.names import MEMBER_OF_LABEL, PODGROUP_GATE, PODGROUP_PLACED_BY

TOPOGATE, KUBE_SCHEDULER = "topogate", "kube-scheduler"
_SHOWN = f"{OWN}[{PODGROUP_PLACED_BY}]"
_FIELD = "schedulingGroup"
_INSTEAD = f"leave out {PODGROUP_PLACED_BY}, and topogate places them"


def find_placer(job: Json) -> str:
    """Returns the text of the annotation PODGROUP_PLACED_BY of a job, which may be any; TOPOGATE where it has none, or annotations that are
    no map."""
    annotations = (job.get("metadata") or {}).get("annotations")
    return str(annotations.get(PODGROUP_PLACED_BY, TOPOGATE)) if isinstance(annotations, Mapping) else TOPOGATE


def with_wait(spec: Json, group: str, placed_by: str) -> dict[str, Any]:
    """Returns a shallow copy of a pod template's spec with pods that wait until their group is placed. `placed_by` kube-scheduler: the
    group's name is in `schedulingGroup`, in place of another, and topogate's gate is removed. Any other: topogate's gate is added once,
    `group` is not used, and `schedulingGroup` stays."""
    gates = spec.get("schedulingGates") or []
    others = [gate for gate in gates if gate.get("name") != PODGROUP_GATE]
    if placed_by != KUBE_SCHEDULER:
        return dict(spec) if len(others) < len(gates) else {**spec, "schedulingGates": [*gates, {"name": PODGROUP_GATE}]}
    rest = {key: value for key, value in spec.items() if key != "schedulingGates"}
    return {**rest, **({"schedulingGates": others} if others else {}), _FIELD: {"podGroupName": group}}


def validate_placer(kind: str, job: Json, levels: Sequence[RequestedLevel]) -> Iterator[FieldError]:
    """Yields an error where PODGROUP_PLACED_BY names no known component. kube-scheduler requires one level only. With it there is one error
    for a `kind` other than Job, one for several `levels`, and one for each preferred level."""
    placed_by = find_placer(job)
    if placed_by not in (TOPOGATE, KUBE_SCHEDULER):
        yield FieldError(ErrorType.NOT_SUPPORTED, _SHOWN, placed_by, f"{TOPOGATE} or {KUBE_SCHEDULER} is expected")
    if placed_by != KUBE_SCHEDULER:
        return
    if kind != "Job":
        accepted = f"is for Jobs only: pods of a {kind} cannot be members of kube-scheduler's own PodGroup; {_INSTEAD}"
        yield FieldError(ErrorType.FORBIDDEN, _SHOWN, placed_by, accepted)
    if len(levels) > 1:
        accepted = f"kube-scheduler takes one level for the pods of a group; name one, or {_INSTEAD}"
        yield FieldError(ErrorType.TOO_MANY, SHOWN, len(levels), accepted)
    for level in levels:
        if level.mode == PREFERRED:
            accepted = f"kube-scheduler only requires a level; name it without :{PREFERRED}, or {_INSTEAD}"
            yield FieldError(ErrorType.INVALID, SHOWN, f"{level.name}:{PREFERRED}", accepted)


def validate_settled(kind: str, old: Json, new: Json) -> Iterator[FieldError]:
    """Yields an error where the job names another component than before to place its pods; none named is TOPOGATE. Pods that are there and
    those that follow are placed by one. `kind` is for the message."""
    before, after = find_placer(old), find_placer(new)
    if before != after:
        accepted = f"is settled when the {kind} is created: {before} places its pods; make another one"
        yield FieldError(ErrorType.FORBIDDEN, _SHOWN, after, accepted)


def find_dropped(roles: Sequence[Role], job: Json) -> Iterator[FieldError]:
    """Yields an error for each template that was made a member and does not name the PodGroup any more, where kube-scheduler places the
    pods: they would not be placed together."""
    if find_placer(job) != KUBE_SCHEDULER:
        return
    for role in roles:
        is_member = MEMBER_OF_LABEL in ((role.template.get("metadata") or {}).get("labels") or {})
        if is_member and not (role.template.get("spec") or {}).get(_FIELD):
            accepted = (
                "the API server drops it: kube-scheduler's own PodGroups are served since Kubernetes 1.36 where the feature gate "
                f"GenericWorkload is on; {_INSTEAD}"
            )
            yield FieldError(ErrorType.REQUIRED, f"{role.shown}.spec.{_FIELD}", None, accepted)

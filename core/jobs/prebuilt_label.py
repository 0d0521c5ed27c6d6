"""The label by which a job names a Workload that was, or will be, created for it by another component: reading and checks."""

import re
from collections.abc import Iterator

from core.jobs.contract import ErrorType, FieldError, Json
from core.names import PREBUILT_WORKLOAD

MAX_NAME = 253
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # a DNS subdomain (RFC 1123)


def find_prebuilt_name(job: Json) -> str | None:
    """Returns the name of the Workload that a job names by its label or, only where that is absent, by its annotation. None where it names
    none, or an empty one. The name is not checked."""
    found = _find_named_field(job)
    return found[1] or None if found is not None else None


def validate_prebuilt(job: Json) -> Iterator[FieldError]:
    """Yields an error where label or, without it, annotation PREBUILT_WORKLOAD is no name of an object: 1 to `MAX_NAME` lower-case letters,
    digits, `-` and `.`."""
    found = _find_named_field(job)
    if found is None:
        return
    part, name = found
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        accepted = f"the name of a Workload is expected: at most {MAX_NAME} lower-case letters, digits, '-' and '.'"
        yield FieldError(ErrorType.INVALID, _format_field(part), name, accepted)


def validate_changed_prebuilt(old: Json, new: Json) -> Iterator[FieldError]:
    """Yields an error where a job names another Workload than before, or one or none for the first time. The caller asks only for a running
    job, which keeps its Workload. The same name may move between label and annotation."""
    before, after = _find_named_field(old), _find_named_field(new)
    if (before or (None, None))[1] == (after or (None, None))[1]:
        return
    kept = "it has one of its own" if before is None else f"it keeps {before[1]!r}"
    part = (after or before or ("labels", ""))[0]
    yield FieldError(
        ErrorType.INVALID, _format_field(part), after[1] if after else "", f"is settled while the job runs: {kept}; suspend it first"
    )


def list_pod_warnings(job: Json) -> tuple[str, ...]:
    """Returns one warning for pods, or objects that are queued through their pods, that name a Workload, also by an empty text; empty where
    they have neither label nor annotation PREBUILT_WORKLOAD."""
    found = _find_named_field(job)
    return (f"{_format_field(found[0])}: has no effect: a Workload is made for these pods all the same",) if found is not None else ()


def _find_named_field(job: Json) -> tuple[str, str] | None:
    """Returns the field that has the name, and the name; None where none has it."""
    metadata = job.get("metadata") or {}
    for part in ("labels", "annotations"):
        if PREBUILT_WORKLOAD in (metadata.get(part) or {}):
            return part, str(metadata[part][PREBUILT_WORKLOAD])
    return None


def _format_field(part: str) -> str:
    return f"metadata.{part}[{PREBUILT_WORKLOAD}]"

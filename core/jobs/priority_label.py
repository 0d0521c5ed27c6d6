"""The label that names a WorkloadPriorityClass: how it may change."""

from collections.abc import Iterator

from core.jobs.contract import ErrorType, FieldError, Json
from core.names import PRIORITY_CLASS_LABEL


def check_changed_priority(old: Json, new: Json) -> Iterator[FieldError]:
    """Yields an error where an object's label PRIORITY_CLASS_LABEL goes or becomes empty. A queued one may name another class, or its
    first, but not none (as in Kueue)."""
    before, after = (((obj.get("metadata") or {}).get("labels") or {}).get(PRIORITY_CLASS_LABEL) for obj in (old, new))
    if before and not after:
        accepted = f"cannot be removed from a queued object; keep {before!r} or name another WorkloadPriorityClass"
        yield FieldError(ErrorType.INVALID, f"metadata.labels[{PRIORITY_CLASS_LABEL}]", after or "", accepted)

"""The label for how long a job may be admitted: reading and checks."""

import re
from collections.abc import Iterator, Mapping

from core.jobs.contract import ErrorType, FieldError, Json
from core.names import MAX_EXEC_TIME_LABEL

MAX_SECONDS = 2**31 - 1  # of spec.maximumExecutionTimeSeconds, an int32
_FIELD = f"metadata.labels[{MAX_EXEC_TIME_LABEL}]"


def parse_execution_time(labels: Mapping[str, str]) -> int | None:
    """Returns the seconds, from 1 to `MAX_SECONDS`, for which a job with these labels may be admitted. None without a limit: no label, one
    that is no whole number, or one beyond that range."""
    text = labels.get(MAX_EXEC_TIME_LABEL, "")
    seconds = int(text) if re.fullmatch(r"[0-9]{1,10}", text) else 0
    return seconds if 1 <= seconds <= MAX_SECONDS else None


def validate_execution_time(job: Json) -> Iterator[FieldError]:
    """Yields an error where an object has the label, and not with a whole number of seconds from 1 to `MAX_SECONDS`."""
    labels = _get_labels(job)
    if MAX_EXEC_TIME_LABEL in labels and parse_execution_time(labels) is None:
        accepted = f"a whole number of seconds is expected, 1 to {MAX_SECONDS}"
        yield FieldError(ErrorType.INVALID, _FIELD, labels[MAX_EXEC_TIME_LABEL], accepted)


def validate_changed_execution_time(old: Json, new: Json) -> Iterator[FieldError]:
    """Yields an error where the label MAX_EXEC_TIME_LABEL has another value than before, is new or is gone. The caller asks only for a
    running job, which keeps the time it was admitted for."""
    before, after = _get_labels(old).get(MAX_EXEC_TIME_LABEL), _get_labels(new).get(MAX_EXEC_TIME_LABEL)
    if before != after:
        kept = "none was given" if before is None else f"it keeps {before!r}"
        yield FieldError(ErrorType.INVALID, _FIELD, after or "", f"is settled while the job runs: {kept}; suspend it first")


def _get_labels(job: Json) -> Mapping[str, str]:
    return (job.get("metadata") or {}).get("labels") or {}

"""The annotation by which a Job may be resized while it runs: read, and judged."""

from collections.abc import Iterator

from core.jobs.contract import ErrorType, FieldError, Json
from core.names import ELASTIC_JOB, MIN_PARALLELISM

_FIELD = f"metadata.annotations[{ELASTIC_JOB}]"


def is_elastic(job: Json) -> bool:
    """Returns whether a job may be resized while it runs: its annotation is exactly `true`."""
    return _get_value(job) == "true"


def validate_elastic(job: Json) -> Iterator[FieldError]:
    """Yields an error where a job has the annotation ELASTIC_JOB with another value than true or false, and one where it is true beside
    MIN_PARALLELISM."""
    said = _get_value(job)
    if said is not None and said not in ("true", "false"):
        yield FieldError(ErrorType.INVALID, _FIELD, said, '"true" or "false" is expected')
    if said == "true" and MIN_PARALLELISM in ((job.get("metadata") or {}).get("annotations") or {}):
        accepted = f"an elastic job is admitted whole; leave out {MIN_PARALLELISM}, and resize it as you like"
        yield FieldError(ErrorType.FORBIDDEN, f"metadata.annotations[{MIN_PARALLELISM}]", None, accepted)


def validate_changed_elastic(old: Json, new: Json) -> Iterator[FieldError]:
    """Yields an error where ELASTIC_JOB has another value than before, is new or is gone: a job is elastic from its creation, or never."""
    before, after = _get_value(old), _get_value(new)
    if before != after:
        kept = "none was given" if before is None else f"it keeps {before!r}"
        yield FieldError(ErrorType.FORBIDDEN, _FIELD, after or "", f"is settled when the job is created: {kept}")


def _get_value(job: Json) -> str | None:
    return ((job.get("metadata") or {}).get("annotations") or {}).get(ELASTIC_JOB)

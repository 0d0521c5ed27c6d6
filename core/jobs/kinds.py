"""All kinds of job that topogate knows."""

from core.jobs.contract import JobKind
from core.jobs.job import Job

KINDS: tuple[JobKind, ...] = (Job(),)


def find_kind(group: str, kind: str) -> JobKind | None:
    """A kind by group and name."""
    return next((known for known in KINDS if (known.group, known.kind) == (group, kind)), None)

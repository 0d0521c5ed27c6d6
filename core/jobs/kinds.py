"""All kinds of job that topogate knows."""

from core.jobs.contract import JobKind
from core.jobs.job import Job

KINDS: tuple[JobKind, ...] = (Job(),)

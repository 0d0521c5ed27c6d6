"""All kinds of job that topogate brings along; others come from packages (entry points of group `topogate.integrations`)."""

from collections.abc import Iterable

from core.jobs.contract import JobKind
from core.jobs.job import Job
from core.jobs.jobset import JobSet

KINDS: tuple[JobKind, ...] = (Job(), JobSet())
INTEGRATIONS = "topogate.integrations"


def with_integrations(found: Iterable[JobKind]) -> tuple[JobKind, ...]:
    """Our kinds and those of other packages. Raises ValueError where two describe one kind."""
    kinds = {(kind.group, kind.kind): kind for kind in KINDS}
    for kind in found:
        if (kind.group, kind.kind) in kinds:
            raise ValueError(f"{kind.kind} of {kind.group or 'the core group'} is described twice: by {type(kind).__module__}, too")
        kinds[kind.group, kind.kind] = kind
    return tuple(kinds.values())

"""Facts that are read off one job."""

from core.jobs.contract import Referring
from core.names import FIELD_MANAGER
from core.resource import Obj
from reconciler.slim import writers


def list_references(kind: Referring, job: Obj) -> list[str]:
    """The object that a job refers to, with its namespace (None: it is in none), for an index."""
    reference = kind.reference(job)
    if reference is None:
        return []
    return [f"{job['metadata']['namespace'] if reference.related.namespaced else None}/{reference}"]


def is_suspended_by_another(job: Obj) -> bool:
    """Whether the suspension of a job that we had started is not ours: every stop of ours is written under our name, and only on the
    job as it was seen, so that a suspension that was there before is not taken over. False where nobody is known to have written it."""
    known = writers(job)
    return bool(known) and FIELD_MANAGER not in known

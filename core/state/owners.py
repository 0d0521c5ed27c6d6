"""Who belongs to whom: a pod of a JobSet is owned by a Job that is owned by the JobSet, and it is the JobSet that was queued."""

from collections.abc import Mapping
from typing import Any

from core.names import JOB_UID_LABEL, MULTIKUEUE_ORIGIN, QUEUE_NAME_LABEL
from core.state.facts import controller_of

_MOST_STEPS = 16  # owner references that run in a circle end here


def is_orphaned(workload: Mapping[str, Any]) -> bool:
    """Whether a workload was made for an object that was deleted without it (`kubectl delete --cascade=orphan`): nobody
    owns it any more. One that was made by hand never had an owner, and one of a plain pod group needs none. One that a manager of
    several clusters has copied here has the label of a job there, and waits for its job to follow."""
    labels = workload["metadata"].get("labels") or {}
    return controller_of(workload) is None and JOB_UID_LABEL in labels and MULTIKUEUE_ORIGIN not in labels


class Owners:
    """Job objects by uid: the object that controls each, and whether it names a queue."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str | None, bool]] = {}
        self._children: dict[str, set[str]] = {}

    def observe(self, uid: str, job: Mapping[str, Any] | None) -> bool:
        """Folds a job object (None: gone); says whether anything changed about who belongs to whom."""
        now = None if job is None else ((controller_of(job) or {}).get("uid"), QUEUE_NAME_LABEL in (job["metadata"].get("labels") or {}))
        before = self._known.get(uid)
        if now == before:
            return False
        if before is not None and before[0] is not None:
            siblings = self._children[before[0]]
            siblings.discard(uid)
            if not siblings:
                del self._children[before[0]]
        if now is None:
            del self._known[uid]
        else:
            self._known[uid] = now
            if now[0] is not None:
                self._children.setdefault(now[0], set()).add(uid)
        return True

    def queued_root(self, uid: str) -> str:
        """The highest object above one that names a queue; the object itself where none above it does."""
        root, here = uid, uid
        for _ in range(_MOST_STEPS):
            parent, queued = self._known.get(here, (None, False))
            if queued:
                root = here
            if parent is None or parent not in self._known:
                break
            here = parent
        return root

    def descendants(self, uid: str) -> set[str]:
        """Objects below one, and itself."""
        found, left = {uid}, [uid]
        while left:
            below = self._children.get(left.pop(), set()) - found
            found |= below
            left += below
        return found

"""The owners of pods: a pod of a JobSet is owned by a Job that is owned by the JobSet, and it is the JobSet that was queued."""

from collections.abc import Mapping
from typing import Any

from core.names import JOB_UID_LABEL, MULTIKUEUE_ORIGIN, QUEUE_NAME_LABEL
from core.state.facts import find_controller

_MOST_STEPS = 16  # owner references that run in a circle end here


def is_orphaned(workload: Mapping[str, Any]) -> bool:
    """Returns whether a Workload (JSON) has no controller now, has the label of its job's uid, and is no copy of MultiKueue. Its object was
    deleted without it (`kubectl delete --cascade=orphan`). One that was created by hand never had an owner, and one of a plain pod group
    needs none. A copy waits for its job to follow."""
    labels = workload["metadata"].get("labels") or {}
    return find_controller(workload) is None and JOB_UID_LABEL in labels and MULTIKUEUE_ORIGIN not in labels


def show_owner(namespace: str | None, uid: str) -> str:
    """Returns `namespace/uid`, the key of an owner by which the objects that it controls are looked up: they are in its namespace. Any user
    can name the uid of an object of another namespace in a reference. What has such a reference stays where a finalizer holds it."""
    return f"{namespace}/{uid}"


def mark_uid(kind: str, uid: str) -> str:
    """Returns the uid under which an owner of a kind that any user can name is known: no object of another kind has such a uid."""
    return f"{kind}/{uid}"


def read_owner(key: str) -> str:
    """Returns the uid in a key of `show_owner`."""
    return key.partition("/")[2]


class Owners:
    """Job objects by their keys (`show_owner`): the object that controls each, and whether it names a queue."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str | None, bool]] = {}
        self._children: dict[str, set[str]] = {}

    def observe(self, key: str, job: Mapping[str, Any] | None) -> bool:
        """Records a job object (JSON; None: gone) by its key (`show_owner`). Returns whether it came or went, has another controller, or
        begins or ends to name a queue."""
        owner = find_controller(job) if job is not None else None
        parent = show_owner(key.partition("/")[0], owner["uid"]) if owner is not None else None
        now = None if job is None else (parent, QUEUE_NAME_LABEL in (job["metadata"].get("labels") or {}))
        before = self._known.get(key)
        if now == before:
            return False
        if before is not None and before[0] is not None:
            siblings = self._children[before[0]]
            siblings.discard(key)
            if not siblings:
                del self._children[before[0]]
        if now is None:
            del self._known[key]
        else:
            self._known[key] = now
            if now[0] is not None:
                self._children.setdefault(now[0], set()).add(key)
        return True

    def has(self, key: str) -> bool:
        """Returns whether a job object of that key is there."""
        return key in self._known

    def find_queued_root(self, key: str) -> str:
        """Returns the key of the highest object that names a queue, among one and those that control it; its own where none does. It goes
        up as far as objects are known, 16 at most."""
        root, here = key, key
        for _ in range(_MOST_STEPS):
            parent, queued = self._known.get(here, (None, False))
            if queued:
                root = here
            if parent is None or parent not in self._known:
                break
            here = parent
        return root

    def list_descendants(self, key: str) -> set[str]:
        """Returns the keys of the objects below one, at any depth, and its own, as a new set."""
        found, left = {key}, [key]
        while left:
            below = self._children.get(left.pop(), set()) - found
            found |= below
            left += below
        return found

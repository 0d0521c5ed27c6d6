"""What our own writes left of workloads, until the watch has brought as much.

A write is guarded by the version that was seen. The watch is behind by more than the time between two decisions on a
workload (it waits; a moment later it is admitted), and the second write would fail for nothing but the first.
"""

from core.runtime.informer import Informer
from core.runtime.resource import Obj
from core.runtime.store import Change, object_key
from reconciler.slim import without_managed_fields


class Replies:
    """Of guarded writes only: then nobody else's change lies between what was seen and the reply."""

    def __init__(self, workloads: Informer) -> None:
        self._store = workloads.store
        self._kept: dict[str, Obj] = {}
        workloads.add_handler(self._on_workload)

    def keep(self, reply: Obj) -> None:
        """What the API server answered to a guarded write."""
        key = object_key(reply)
        seen = self._store.get(key)
        if seen is not None and seen["metadata"]["uid"] == reply["metadata"]["uid"] and _version(reply) > _version(seen):
            self._kept[key] = without_managed_fields(reply)

    def latest(self, key: str) -> Obj | None:
        """The workload as it was last written by us or seen, whichever is newer; None where it is gone."""
        return self._kept.get(key) or self._store.get(key)

    def _on_workload(self, change: Change) -> None:
        key = object_key(change.obj)
        kept = self._kept.get(key)
        if kept is None:
            return
        is_same = change.new is not None and change.new["metadata"]["uid"] == kept["metadata"]["uid"]
        if change.new is None or not is_same or _version(change.new) >= _version(kept):
            del self._kept[key]


def _version(obj: Obj) -> int:
    """Versions of one resource can be compared since Kubernetes 1.35 (KEP-5504)."""
    return int(obj["metadata"]["resourceVersion"])

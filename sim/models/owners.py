"""The garbage collector of owners."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime

from sim.apiserver.server import FOREGROUND, Change, Server
from sim.models.base import Json, Key, Model, find_owner, get_key


class GarbageCollector(Model):
    """Deletes what has lost its owners, and what waits for it: `blockOwnerDeletion` is taken as given."""

    user = "system:serviceaccount:kube-system:generic-garbage-collector"

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        self.resources = tuple(server.objects)
        super().__init__(server, loop, now)
        self._of_owner: dict[str, set[tuple[tuple[str, str], Key]]] = {}

    def _observe(self, change: Change) -> None:
        at = change.resource, get_key(change.last)
        for obj, is_there in ((change.old, False), (change.new, True)):
            for owner in (obj or {"metadata": {}})["metadata"].get("ownerReferences") or ():
                found = self._of_owner.setdefault(owner["uid"], set())
                (found.add if is_there else found.discard)(at)
        super()._observe(change)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        uid = change.last["metadata"]["uid"]
        if change.new is None:
            yield from sorted(self._of_owner.pop(uid, ()))
            for owner in change.last["metadata"].get("ownerReferences") or ():
                found = find_owner(self.server, owner, change.last)
                if found is not None:
                    yield found
        elif change.new["metadata"].get("deletionTimestamp") or change.old is None:
            yield change.resource, get_key(change.new)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        obj = self.find(resource, key)
        if obj is None:
            return
        metadata = obj["metadata"]
        finalizers = metadata.get("finalizers") or []
        below = [(r, k) for r, k in sorted(self._of_owner.get(metadata["uid"], ())) if self.find(r, k) is not None]
        if metadata.get("deletionTimestamp") and "orphan" in finalizers:
            for r, k in below:
                child = self.find(r, k)
                left = [owner for owner in (child or obj)["metadata"].get("ownerReferences") or () if owner["uid"] != metadata["uid"]]
                self.patch(r, k, {"metadata": {"ownerReferences": left or None}})
            self.patch(resource, key, {"metadata": {"finalizers": [name for name in finalizers if name != "orphan"]}})
            return
        if metadata.get("deletionTimestamp") and FOREGROUND in finalizers:
            for r, k in below:
                child = self.find(r, k)
                if child is not None and not child["metadata"].get("deletionTimestamp"):
                    self.delete(r, child, propagationPolicy="Foreground")
            if not [1 for r, k in below if self.find(r, k) is not None]:
                self.patch(resource, key, {"metadata": {"finalizers": [name for name in finalizers if name != FOREGROUND]}})
            return
        owners = metadata.get("ownerReferences") or ()
        if owners and not metadata.get("deletionTimestamp") and not any(self._exists(owner, obj) for owner in owners):
            self.delete(resource, obj, propagationPolicy="Background")

    def _exists(self, owner: Json, obj: Json) -> bool:
        at = find_owner(self.server, owner, obj)
        if at is None:
            return True  # of a kind that is not served nobody knows
        found = self.find(*at)
        return found is not None and found["metadata"]["uid"] == owner["uid"]

"""What all models have in common: they look at what has changed a moment later, and write through the API server."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from sim.kinds import Kind
from sim.server import MERGE, Change, Refused, Request, Server

Json = dict[str, Any]
Key = tuple[str, str]
POD, JOB, NODE = ("", "pods"), ("batch", "jobs"), ("", "nodes")


class Model:
    """Looks at objects of some resources a moment after they have changed."""

    user = "system:kube-controller-manager"
    resources: tuple[tuple[str, str], ...] = ()
    after_s = 0.05

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        self.server, self.loop, self.now = server, loop, now
        self._due: dict[tuple[tuple[str, str], Key], None] = {}
        self._is_waiting = False
        self.is_stopped = False
        server.on_change.append(self._observe)

    def _observe(self, change: Change) -> None:
        if change.resource not in self.resources:
            return
        for resource, key in self.find_due(change):
            self.add(resource, key)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        """What is to be looked at after a change."""
        yield change.resource, key_of(change.last)

    def add(self, resource: tuple[str, str], key: Key, after_s: float | None = None) -> None:
        """Looks at an object a moment later."""
        if after_s is not None:
            self.loop.call_later(after_s, self.add, resource, key)
            return
        self._due[resource, key] = None
        if not self._is_waiting:
            self._is_waiting = True
            self.loop.call_later(self.after_s, self._run)

    def _run(self) -> None:
        self._is_waiting = False
        due, self._due = self._due, {}
        if self.is_stopped:
            return
        for resource, key in due:
            try:
                self.look(resource, key)
            except Refused as refused:
                if refused.code not in (404, 409):
                    self.loop.call_later(1.0, self.add, resource, key)
                elif refused.code == 409:
                    self.add(resource, key)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        """Does what is to be done with one object. Raises Refused."""
        raise NotImplementedError

    # --- writing ------------------------------------------------------------------------------------

    def find(self, resource: tuple[str, str], key: Key) -> Json | None:
        """An object as it is now."""
        stored = self.server.objects[resource].get(key)
        return stored.obj if stored is not None else None

    def kind(self, resource: tuple[str, str]) -> Kind:
        """The kind of a resource, at the version in which it is served."""
        return next(kind for kind in self.server.kinds.values() if kind.resource == resource)

    def request(self, verb: str, resource: tuple[str, str], key: Key, body: Any = None, subresource: str = "") -> Request:
        """A request of this component."""
        return Request(verb, self.kind(resource), *key, subresource, {}, body, MERGE, self.user)

    def patch(self, resource: tuple[str, str], key: Key, body: Json, subresource: str = "") -> Json:
        """Merge patch."""
        return self.server.patch(self.request("patch", resource, key, body, subresource))

    def delete(self, resource: tuple[str, str], obj: Json, **options: Any) -> None:
        """Deletes the very object."""
        body = {"preconditions": {"uid": obj["metadata"]["uid"]}, **options}
        self.server.delete(self.request("delete", resource, key_of(obj), body))

    def time(self) -> str:
        """Now, as the API has it."""
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of_node(name: str) -> Key:
    """The key of a node."""
    return "", name


def key_of(obj: Mapping[str, Any]) -> Key:
    """Namespace and name."""
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def controller_of(obj: Mapping[str, Any]) -> Json | None:
    """The owner that controls an object."""
    return next((owner for owner in obj["metadata"].get("ownerReferences") or () if owner.get("controller")), None)


def phase_of(pod: Mapping[str, Any]) -> str:
    """The phase of a pod."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_over(pod: Mapping[str, Any]) -> bool:
    """Whether the containers of a pod have ended for good."""
    return phase_of(pod) in ("Succeeded", "Failed")

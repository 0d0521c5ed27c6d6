"""What all models have in common: they look at what has changed a moment later, and write through the API server."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from sim.apiserver.kinds import Kind
from sim.apiserver.server import MERGE, Change, Refused, Request, Server

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
        for observed in self.resources:
            server.on_change_of[observed].append(self._observe)

    def _observe(self, change: Change) -> None:
        for resource, key in self.find_due(change):
            self.add(resource, key)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        """What is to be looked at after a change."""
        yield change.resource, get_key(change.last)

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
        return self.server.kind_of[resource]

    def request(self, verb: str, resource: tuple[str, str], key: Key, body: Any = None, subresource: str = "") -> Request:
        """A request of this component."""
        return Request(verb, self.kind(resource), *key, subresource, {}, body, MERGE, self.user)

    def patch(self, resource: tuple[str, str], key: Key, body: Json, subresource: str = "") -> Json:
        """Merge patch."""
        return self.server.patch(self.request("patch", resource, key, body, subresource))

    def delete(self, resource: tuple[str, str], obj: Json, **options: Any) -> None:
        """Deletes the very object."""
        body = {"preconditions": {"uid": obj["metadata"]["uid"]}, **options}
        self.server.delete(self.request("delete", resource, get_key(obj), body))

    def time(self) -> str:
        """Now, as the API has it."""
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")


class OwnerModel(Model):
    """A controller of one kind: looks at an object when it changes or what it controls."""

    resource: tuple[str, str]
    owner_kind: str

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if change.resource == self.resource:
            yield self.resource, get_key(change.last)
            return
        owners = [get_controller(obj) for obj in (change.old, change.last) if obj is not None]  # what has lost its owner is made anew
        for name in dict.fromkeys(owner["name"] for owner in owners if owner is not None and owner["kind"] == self.owner_kind):
            yield self.resource, (change.last["metadata"]["namespace"], name)

    def find_owned(self, resource: tuple[str, str], obj: Json) -> list[Json]:
        """Objects of a resource that an object controls, by name."""
        uid = obj["metadata"]["uid"]
        found = (stored.obj for _, stored in sorted(self.server.objects[resource].items()))
        return [each for each in found if (get_controller(each) or {}).get("uid") == uid]

    def set_status(self, obj: Json, status: Json) -> None:
        """Writes those parts of a status that differ, None for what it has no more."""
        old = obj.get("status") or {}
        if any(old.get(name) != value for name, value in status.items()):
            self.patch(self.resource, get_key(obj), {"status": status}, "status")

    def create(self, resource: tuple[str, str], namespace: str, body: Json) -> None:
        """Creates an object."""
        self.server.create(Request("create", self.kind(resource), namespace, "", "", {}, body, user=self.user))


def get_node_key(name: str) -> Key:
    """The key of a node."""
    return "", name


def get_key(obj: Mapping[str, Any]) -> Key:
    """Namespace and name."""
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def get_controller(obj: Mapping[str, Any]) -> Json | None:
    """The owner that controls an object."""
    owner: Json
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner
    return None


def find_owner(server: Server, owner: Json, obj: Json) -> tuple[tuple[str, str], Key] | None:
    """Where an owner of an object is stored, if it is; None where its kind is not served."""
    group, _, _ = owner["apiVersion"].rpartition("/")
    kind = server.kind_named.get((group, owner["kind"]))
    if kind is None:
        return None
    return kind.resource, (obj["metadata"].get("namespace") or "" if kind.namespaced else "", owner["name"])


def list_owners(server: Server, obj: Json) -> list[tuple[tuple[str, str], Key]]:
    """Where the object is stored that controls an object, and what controls that, up to the first that is not stored."""
    owners = list[tuple[tuple[str, str], Key]]()
    while (owner := get_controller(obj)) is not None and (found := find_owner(server, owner, obj)) is not None:
        owners.append(found)
        stored = server.objects[found[0]].get(found[1])
        if stored is None:
            break
        obj = stored.obj
    return owners


def build_owner_reference(obj: Json, api_version: str, kind: str) -> Json:
    """The owner reference of what an object controls."""
    metadata = obj["metadata"]
    named = {"apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}
    return {**named, "controller": True, "blockOwnerDeletion": True}


def make_pod(owner: Json, template: Json, labels: Mapping[str, str], notes: Mapping[str, str] | None = None) -> Json:
    """A pod of a template, without a name, that an owner reference says who controls it."""
    given = template.get("metadata") or {}
    metadata: Json = {"labels": {**(given.get("labels") or {}), **labels}, "ownerReferences": [owner]}
    metadata["annotations"] = {**(given.get("annotations") or {}), **(notes or {})}
    if given.get("finalizers"):
        metadata["finalizers"] = given["finalizers"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(template.get("spec") or {})}


def get_phase(pod: Mapping[str, Any]) -> str:
    """The phase of a pod."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_over(pod: Mapping[str, Any]) -> bool:
    """Whether the containers of a pod have ended for good."""
    return get_phase(pod) in ("Succeeded", "Failed")


def set_pod_condition(pod: Mapping[str, Any], kind: str, status: str, time: str, reason: str = "") -> list[Json]:
    """The conditions of a pod with one as it is now; empty if it is so already."""
    known = (pod.get("status") or {}).get("conditions") or []
    old: Json = next((condition for condition in known if condition["type"] == kind), {})
    if (old.get("status"), old.get("reason", "")) == (status, reason):
        return []
    since = old["lastTransitionTime"] if old.get("status") == status else time
    new = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since, **({"reason": reason} if reason else {})}
    return [*(condition for condition in known if condition["type"] != kind), new]

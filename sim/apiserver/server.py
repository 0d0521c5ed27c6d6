"""The API server: verbs on objects in memory, with the answers of a real one.

Nothing here waits, reads a clock or is random by itself: `Server` is told the time and draws names from what it is given. One call is one
request, carried out whole. Objects are never changed once stored, so that what is read may be kept.
"""

import json
import random
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError, to_json

from sim.apiserver import fields
from sim.apiserver.defaults import admit, fill_in
from sim.apiserver.fields import Manager, Managers, Taken
from sim.apiserver.kinds import Kind
from sim.apiserver.object_parts import find_empty, keep_server_metadata, limit_to_part, may_go, read_spec, strip_managers, take_part
from sim.apiserver.patches import apply_json_patch, merge, merge_strategically
from sim.apiserver.schemas import complete, find_problems
from sim.apiserver.selectors import has_matching_fields, has_matching_labels

Json = dict[str, Any]
Resource = tuple[str, str]  # group, plural
Key = tuple[str, str]  # namespace (empty where there is none), name
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of generated names, as in Kubernetes
APPLY, MERGE, STRATEGIC, JSON_PATCH = (
    f"application/{name}" for name in ("apply-patch+yaml", "merge-patch+json", "strategic-merge-patch+json", "json-patch+json")
)
LEASES = "coordination.k8s.io", "leases"
NODES = "", "nodes"
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
BEFORE = Manager("before-first-apply", "Update")
BOOKMARK_EVERY_S = 60.0
NOTHING: Mapping[str, Any] = {}


class Refused(Exception):
    """An answer of 400 and above."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        details = {name: value for name, value in details.items() if value}
        self.status |= {"reason": reason, **({"details": details} if details else {}), "code": code}


class Request(NamedTuple):
    """A request for an object or a collection, as its path says."""

    verb: str  # get, list, watch, create, update, patch, delete
    kind: Kind
    namespace: str
    name: str = ""
    subresource: str = ""
    params: Mapping[str, str] = NOTHING
    body: Any = None
    content_type: str = "application/json"
    user: str = "admin"


class Stored(NamedTuple):
    """An object, and who set which field of it and when.

    An apply to a custom resource stores empty parts of its metadata, too. They are never shown, but the next write drops them, and so is
    a change even where it changes nothing else.
    """

    obj: Json
    managers: Managers
    times: Mapping[Manager, str]
    empty: Mapping[str, Any]  # those parts, and the time of the apply


class Change(NamedTuple):
    """What one write did to one object."""

    version: int
    resource: Resource
    old: Json | None
    new: Json | None  # None where it was deleted; `last` is then how it was, with the version of its deletion
    last: Json


Admit = Callable[[Request, Json | None, Json | None], Json | None]
"""Asked of every write with the object before and after it; returns the object as it is to be stored. Raises Refused."""


def _admit_all(_: Request, __: Json | None, new: Json | None) -> Json | None:
    return new


class Server:
    """Objects by resource and key, and the history of their changes."""

    def __init__(self, kinds: Iterable[Kind], *, now: Callable[[], str], chance: random.Random, admit: Admit = _admit_all) -> None:
        """`now` is the wall clock as the API writes it."""
        self.kinds: dict[tuple[str, str, str], Kind] = {}
        self.kind_of: dict[Resource, Kind] = {}  # at the version that was served first
        self.kind_named: dict[tuple[str, str], Kind] = {}  # by group and kind, likewise
        self.objects: dict[Resource, dict[Key, Stored]] = {}
        self.version = 1
        self.history: list[Change] = []
        self._changes: dict[Resource, list[Change]] = {}  # the history of each resource
        self._last: Counter[Resource] = Counter()  # version of its last change
        self.written: Counter[Resource] = Counter()  # writes
        self._written: dict[tuple[int, str], tuple[Json, bytes]] = {}  # objects as they are sent, by the id of their metadata
        self.first_version = 1  # of the history that is kept; what is older is gone
        self.on_change: list[Callable[[Change], None]] = []
        self.on_change_of: defaultdict[Resource, list[Callable[[Change], None]]] = defaultdict(list)
        self.watchers: dict[Resource, list[Callable[[], None]]] = {}  # woken by each change of a resource
        self.now, self._chance, self._admit = now, chance, admit
        self._lists: dict[str, tuple[int, list[Json]]] = {}  # by continue token
        for kind in kinds:
            self.serve(kind)

    def serve(self, kind: Kind) -> None:
        """From now on objects of the kind can be written."""
        self.kinds[kind.group, kind.version, kind.plural] = kind
        self.kind_of.setdefault(kind.resource, kind)
        self.kind_named.setdefault((kind.group, kind.kind), kind)
        self.objects.setdefault(kind.resource, {})
        self._changes.setdefault(kind.resource, [])
        self.watchers.setdefault(kind.resource, [])

    def copy(self) -> "Server":
        """A server with the same objects, of whose writes nobody hears: for what is tried out."""
        made = copy(self)
        made.objects = {resource: dict(found) for resource, found in self.objects.items()}
        made.history, made.on_change, made.on_change_of = [], [], defaultdict(list)
        made._changes, made.watchers = defaultdict(list), defaultdict(list)
        made.written, made._last = Counter(), Counter()
        return made

    @property
    def writes(self) -> int:
        """How many there were, but for those of leases: these go on for ever."""
        return self.written.total() - self.written[LEASES]

    def compact(self) -> None:
        """Forgets the history: watches and continue tokens from before are answered 410."""
        for changes in (self.history, *self._changes.values()):
            changes.clear()
        self._written.clear()
        self.first_version = self.version + 1
        self._lists.clear()

    # --- reading ------------------------------------------------------------------------------------

    def read(self, request: Request) -> Json:
        """The object of a get."""
        return self._present(request.kind, self._find(request).obj)

    def list_objects(self, request: Request) -> Json:
        """The answer of a list. Raises Refused with 410 where its continue token is too old."""
        token, limit = request.params.get("continue", ""), int(request.params.get("limit") or 0)
        if token:
            if token not in self._lists:
                message = "The provided continue parameter is too old to display a consistent list result."
                raise Refused(410, "Expired", message)
            version, left = self._lists[token]
        else:
            version, left = self.version, list(self.select(request))
            if request.params.get("resourceVersionMatch") == "Exact":
                version = int(request.params["resourceVersion"])
                left = self._select_past(request, version)
        page, number = list[Json](), 0
        while number < len(left) and (not limit or len(page) < limit):
            if is_selected(request, left[number]):
                page.append(left[number])
            number += 1
        left = left[number:]  # what a selector leaves out is looked at, too: the next page may be empty
        metadata: Json = {**({"continue": ""} if request.kind.is_custom else {}), "resourceVersion": str(version)}
        if left:
            metadata["continue"] = f"token-{version}-{len(self._lists)}"
            if not request.params.get("labelSelector") and not request.params.get("fieldSelector"):
                metadata["remainingItemCount"] = len(left)
            self._lists[metadata["continue"]] = version, left
        items = [self._present(request.kind, obj) if request.kind.is_custom else obj for obj in page]
        return {"kind": f"{request.kind.kind}List", "apiVersion": request.kind.api_version, "metadata": metadata, "items": items}

    def select(self, request: Request) -> Iterator[Json]:
        """The objects of a collection, by namespace and name, whatever the selectors."""
        stored = self.objects[request.kind.resource]
        for key in sorted(stored):
            if not request.namespace or key[0] == request.namespace:
                yield stored[key].obj

    def _select_past(self, request: Request, version: int) -> list[Json]:
        """The same as they were at a version. Raises Refused with 410 where that is too old."""
        if version < self.first_version - 1:
            raise Refused(410, "Expired", f"too old resource version: {version} ({self.first_version - 1})")
        found: dict[Key, Json | None] = {key: stored.obj for key, stored in self.objects[request.kind.resource].items()}
        for change in reversed(self._changes[request.kind.resource]):
            if change.version <= version:
                break
            found[change.last["metadata"].get("namespace") or "", change.last["metadata"]["name"]] = change.old
        return [obj for key, obj in sorted(found.items()) if obj is not None and request.namespace in ("", key[0])]

    def read_changes(self, request: Request, after: int) -> list[tuple[int, Json]]:
        """Watch events after a version, each with its own. Raises Refused with 410 where that is too old."""
        if after < self.first_version - 1 or after > self.version:
            raise Refused(410, "Expired", f"too old resource version: {after} ({self.first_version - 1})")
        if self._last[request.kind.resource] <= after:
            return []
        changes = self._changes[request.kind.resource]
        begin = bisect_right(changes, after, key=lambda change: change.version)
        return [event for change in changes[begin:] for event in self.to_events(request, change)]

    def to_events(self, request: Request, change: Change) -> list[tuple[int, Json]]:
        """What a watcher sees of a change of an object of its kind: nothing, or one event."""
        was, is_ = (obj is not None and self._is_seen(request, obj) for obj in (change.old, change.new))
        if not (was or is_):
            return []
        kind = "MODIFIED" if was and is_ else "ADDED" if is_ else "DELETED"
        shown = change.last if change.new is None or is_ else {**(change.old or {}), "metadata": self._with_version(change)}
        return [(change.version, {"type": kind, "object": self._present(request.kind, shown)})]

    def _is_seen(self, request: Request, obj: Json) -> bool:
        return (not request.namespace or obj["metadata"].get("namespace") == request.namespace) and is_selected(request, obj)

    @staticmethod
    def _with_version(change: Change) -> Json:
        return {**(change.old or {})["metadata"], "resourceVersion": str(change.version)}

    def _present(self, kind: Kind, obj: Json) -> Json:
        return {"kind": kind.kind, "apiVersion": kind.api_version, **{k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}}

    def to_bytes(self, answer: Json) -> bytes:
        """An answer as it is sent; an object that is stored is written out once, whoever reads it."""
        return self._write_once(answer, answer["apiVersion"])

    def _write_once(self, obj: Json, form: str) -> bytes:
        metadata = obj["metadata"]
        found = self._written.get((id(metadata), form))
        if found is None:
            found = self._written[id(metadata), form] = metadata, to_bytes(obj)  # an id stands for an object that is kept
        return found[1]

    def write_list(self, answer: Json) -> bytes:
        """The answer of a list as it is sent."""
        items = b",".join(self._write_once(obj, "of a list") for obj in answer["items"])  # these may not say what kind they are
        return to_bytes({**answer, "items": []})[:-2] + items + b"]}"

    def write_out(self, change: Change) -> bytes:
        """The object of a change as watchers are sent it."""
        return self.to_bytes(self._present(self.kind_of[change.resource], change.last))

    def _find(self, request: Request) -> Stored:
        stored = self.objects[request.kind.resource].get((request.namespace, request.name))
        if stored is None:
            raise self._not_found(request.kind, request.name)
        return stored

    @staticmethod
    def _not_found(kind: Kind, name: str) -> Refused:
        called = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        return Refused(404, "NotFound", f'{called} "{name}" not found', name=name, group=kind.group, kind=kind.plural)

    # --- writing ------------------------------------------------------------------------------------

    def create(self, request: Request) -> Json:
        """The answer of a create."""
        kind, body = request.kind, self._check_body(request)
        if kind.plural == "selfsubjectreviews":  # answered, not stored
            return self._present(kind, {"metadata": {}, "status": {"userInfo": {"username": request.user}}})
        metadata = dict(body.get("metadata") or {})
        if metadata.get("resourceVersion"):
            raise Refused(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        self._check_namespace(request, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:58] + "".join(self._chance.choice(_LETTERS) for _ in range(5))
        if not metadata.get("name"):
            raise self._invalid(kind, "", ["metadata.name: Required value: name or generateName is required"])
        for name in ("managedFields", "deletionTimestamp", "deletionGracePeriodSeconds", "uid", "creationTimestamp", "generation"):
            metadata.pop(name, None)
        if kind.resource != NODES:  # a kubelet registers its node with its status
            body = {name: value for name, value in body.items() if not (name == "status" and kind.has_status)}
        return self._make(request, {**body, "metadata": metadata}, {}, self._updater(request))

    def _make(self, request: Request, body: Json, managers: Managers, manager: Manager | None) -> Json:
        kind, metadata = request.kind, body["metadata"]
        key = metadata.get("namespace") or "", metadata["name"]
        empty = self._find_empty(request, metadata)
        metadata = {name: value for name, value in metadata.items() if value not in ({}, [], None)}
        new = self._complete(kind, {**body, "metadata": {**metadata, "uid": self._make_uid(), "creationTimestamp": self.now()}}, None)
        if kind.has_generation:
            new = {**new, "metadata": {**new["metadata"], "generation": 1}}
        if manager is not None:  # what admission changes then is nobody's
            managers = fields.note_update(managers, manager, fields.compare(kind, None, new))
        new = self._judge(request, None, new)
        if key in self.objects[kind.resource]:
            called = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
            details = {"name": key[1], "group": kind.group, "kind": kind.plural}
            is_going = self.objects[kind.resource][key].obj["metadata"].get("deletionTimestamp")
            message = f'{"object is being deleted: " if is_going else ""}{called} "{key[1]}" already exists'
            raise Refused(409, "AlreadyExists", message, **details)
        return self._present(kind, self._store(request, None, new, managers, empty))

    def update(self, request: Request) -> Json:
        """The answer of a replace."""
        stored, body = self._find(request), self._check_body(request)
        metadata = dict(body.get("metadata") or {})
        self._check_namespace(request, metadata)
        if metadata.get("name") not in (None, request.name):
            message = f"the name of the object ({metadata['name']}) does not match the name on the URL ({request.name})"
            raise Refused(400, "BadRequest", message)
        return self._change(request, stored, {**body, "metadata": {**metadata, "name": request.name}}, self._updater(request))

    def patch(self, request: Request) -> Json:
        """The answer of a patch; of an apply to nothing that of a create."""
        if request.content_type == APPLY:
            return self._apply(request)
        stored = self._find(request)
        if request.content_type == MERGE:
            body = merge(stored.obj, request.body)
        elif request.content_type == STRATEGIC and not request.kind.is_custom:
            body = merge_strategically(request.kind.keys, stored.obj, request.body)
        elif request.content_type == JSON_PATCH:
            body = apply_json_patch(stored.obj, request.body)
        else:
            raise Refused(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {request.content_type}")
        return self._change(request, stored, body, self._updater(request))

    def _apply(self, request: Request) -> Json:
        kind, body = request.kind, self._check_body(request)
        metadata = {**(body.get("metadata") or {}), "name": request.name}
        if kind.namespaced:
            metadata["namespace"] = request.namespace
        name = request.params.get("fieldManager")
        if not name:
            raise Refused(
                400, "BadRequest", "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
            )
        if "managedFields" in metadata:
            raise Refused(400, "BadRequest", "metadata.managedFields must be nil")
        manager, force = Manager(name, "Apply", request.subresource), request.params.get("force") == "true"
        stored = self.objects[kind.resource].get((request.namespace, request.name))
        if stored is None:
            if request.subresource:
                raise self._not_found(kind, request.name)
            if metadata.get("uid") or metadata.get("resourceVersion"):
                raise self._conflict(kind, request.name, "uid mismatch: the object does not exist")
            wanted = {key: value for key, value in body.items() if not (key == "status" and kind.has_status)}
            applied, managers = fields.apply(kind, None, {**wanted, "metadata": metadata}, {}, manager, force=force)
            self._check_namespace(request, metadata)
            return self._make(request, applied, managers, None)
        wanted = limit_to_part(kind, request.subresource, {**body, "metadata": metadata})
        try:
            known = stored.managers or {BEFORE: fields.list_owned(kind.schema_of_fields, stored.obj)}
            applied, managers = fields.apply(kind, stored.obj, wanted, known, manager, force=force)
        except Taken as taken:
            raise self._explain_taken(kind, request.name, taken) from taken
        self._check_preconditions(request, stored.obj, metadata)
        return self._change(request, stored, applied, None, managers)

    def _change(self, request: Request, stored: Stored, body: Json, manager: Manager | None, managers: Managers | None = None) -> Json:
        """Stores an object in place of another; `managers` where an apply has found them."""
        kind, old = request.kind, stored.obj
        self._check_preconditions(request, old, body.get("metadata") or {})
        new = take_part(kind, request.subresource, old, body)
        empty = self._find_empty(request, new["metadata"])
        new = self._complete(kind, {**new, "metadata": keep_server_metadata(old, new["metadata"])}, old)
        if kind.has_generation and read_spec(new) != read_spec(old):
            new = {**new, "metadata": {**new["metadata"], "generation": old["metadata"].get("generation", 0) + 1}}
        if manager is not None:
            managers = stored.managers
            if managers:  # else nobody's fields were noted before, and none are from now on
                managers = fields.note_update(managers, manager, fields.compare(kind, old, new))
        new = self._judge(request, old, new)
        if strip_managers(new) == strip_managers(old) and managers == stored.managers and empty == stored.empty:
            return self._present(kind, old)
        if may_go(new):
            self._remove(request, stored)
            return self._present(kind, self._with_managers(request, stored, new, managers or {})[0])
        return self._present(kind, self._store(request, stored, new, managers or {}, empty))

    def delete(self, request: Request) -> Json:
        """The answer of a delete: the object, where it stays for its finalizers or its grace period, else a Status."""
        stored, options = self._find(request), {**request.params, **(request.body or {})}
        kind, metadata = request.kind, stored.obj["metadata"]
        asked = options.get("preconditions") or {}
        for part, what, perhaps in (("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")):
            if asked.get(part) not in (None, metadata[part]):
                raise self._another(kind, request.name, what, asked[part], metadata[part], perhaps)
        self._admit(request, stored.obj, None)
        finalizers = list(metadata.get("finalizers") or ())
        policy = options.get("propagationPolicy")
        for wanted, name in (("Foreground", FOREGROUND), ("Orphan", ORPHAN)):
            if policy == wanted and name not in finalizers:
                finalizers.append(name)
            elif policy is not None and policy != wanted and name in finalizers:
                finalizers.remove(name)
        grace = self._find_grace(kind, stored.obj, options.get("gracePeriodSeconds"))
        if not finalizers and not grace:
            if kind.resource == ("", "pods"):
                time = metadata.get("deletionTimestamp") or self.now()
                going = {**metadata, "deletionTimestamp": time, "deletionGracePeriodSeconds": 0}
                going["generation"] = metadata["generation"] + (not metadata.get("deletionTimestamp"))
                if going != metadata:  # told to watchers before it is gone
                    self._store(request, stored, {**stored.obj, "metadata": going}, stored.managers)
                    stored = self._find(request)
                return self._present(kind, self._remove(request, stored))
            self._remove(request, stored)
            named = {"name": request.name, "group": kind.group, "kind": kind.plural, "uid": metadata["uid"]}
            details = {name: value for name, value in named.items() if value}
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        if metadata.get("deletionTimestamp") and grace >= metadata.get("deletionGracePeriodSeconds", 0):
            grace, time = metadata.get("deletionGracePeriodSeconds", 0), metadata["deletionTimestamp"]
        else:
            time = self.now()
        marked = {**metadata, "deletionTimestamp": time, "deletionGracePeriodSeconds": grace}
        if not metadata.get("deletionTimestamp") and "generation" in metadata:
            marked["generation"] = metadata["generation"] + 1
        if finalizers:
            marked["finalizers"] = finalizers
        new = {**stored.obj, "metadata": marked}
        if strip_managers(new) == strip_managers(stored.obj) and not stored.empty:
            return self._present(kind, stored.obj)
        return self._present(kind, self._store(request, stored, new, stored.managers))

    @staticmethod
    def _find_grace(kind: Kind, obj: Json, asked: Any) -> int:
        if kind.resource != ("", "pods"):
            return 0
        spec, phase = obj.get("spec") or {}, (obj.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        return int(spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked)

    # --- parts of a write ---------------------------------------------------------------------------

    def _find_empty(self, request: Request, metadata: Json) -> Mapping[str, Any]:
        """See `Stored`. Within a second an apply is equal to the one before; later the time of its manager differs."""
        found = find_empty(metadata) if request.content_type == APPLY and request.kind.is_custom else {}
        return {**found, "at": self.now()} if found else NOTHING

    def _store(self, request: Request, stored: Stored | None, new: Json, managers: Managers, empty: Mapping[str, Any] = NOTHING) -> Json:
        self.version += 1
        new, times = self._with_managers(request, stored, new, managers)
        metadata = {**new["metadata"], "resourceVersion": str(self.version)}
        new = {**new, "metadata": metadata}
        self.objects[request.kind.resource][metadata.get("namespace") or "", metadata["name"]] = Stored(new, managers, times, empty)
        self._note(Change(self.version, request.kind.resource, stored.obj if stored is not None else None, new, new))
        return new

    def _with_managers(self, request: Request, stored: Stored | None, obj: Json, managers: Managers) -> tuple[Json, dict[Manager, str]]:
        before, known = (stored.times, stored.managers) if stored is not None else ({}, {})
        times = {manager: before[manager] if known.get(manager) == paths else self.now() for manager, paths in managers.items()}
        metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
        if managers:
            metadata["managedFields"] = fields.write_managers(managers, request.kind.api_version, times)
        return {**obj, "metadata": metadata}, times

    def _remove(self, request: Request, stored: Stored) -> Json:
        """Watchers see an object go as it was stored last."""
        self.version += 1
        metadata = {**stored.obj["metadata"], "resourceVersion": str(self.version)}
        last = {**stored.obj, "metadata": metadata}
        del self.objects[request.kind.resource][metadata.get("namespace") or "", metadata["name"]]
        self._note(Change(self.version, request.kind.resource, stored.obj, None, last))
        return last

    def _note(self, change: Change) -> None:
        self.written[change.resource] += 1
        self._last[change.resource] = change.version
        self.history.append(change)
        self._changes[change.resource].append(change)
        for tell in (*self.on_change, *self.on_change_of[change.resource]):
            tell(change)
        for wake in self.watchers[change.resource]:
            wake()

    @staticmethod
    def _complete(kind: Kind, obj: Json, old: Json | None) -> Json:
        return complete(kind, obj, old or {}) if kind.is_custom else fill_in(kind, obj, old or {})

    def _judge(self, request: Request, old: Json | None, new: Json) -> Json:
        if not request.kind.is_custom:
            new = admit(request.kind, new, self.now(), is_new=old is None)
        admitted = self._admit(request, old, new)
        new = self._complete(request.kind, admitted, old) if admitted is not None and admitted is not new else new
        problems = find_problems(request.kind, new, old)
        if problems:
            raise self._invalid(request.kind, new["metadata"].get("name", ""), problems)
        return new

    def _check_body(self, request: Request) -> Json:
        body = request.body
        if not isinstance(body, dict):
            raise Refused(400, "BadRequest", "the body is not an object")
        named = body.get("apiVersion"), body.get("kind")
        if named != (request.kind.api_version, request.kind.kind) and (named != (None, None) or request.kind.is_custom):
            message = f"the object provided is unrecognized (must be of type {request.kind.kind})"
            raise Refused(400, "BadRequest", message)
        return {name: value for name, value in body.items() if name not in ("apiVersion", "kind")}

    def _check_namespace(self, request: Request, metadata: Json) -> None:
        if not request.kind.namespaced:
            metadata.pop("namespace", None)
            return
        if metadata.setdefault("namespace", request.namespace) != request.namespace:
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise Refused(400, "BadRequest", message)
        if request.verb == "create" or not self.objects[request.kind.resource].get((request.namespace, request.name)):
            found = self.objects[("", "namespaces")].get(("", request.namespace))
            if found is None:
                raise Refused(404, "NotFound", f'namespaces "{request.namespace}" not found', name=request.namespace, kind="namespaces")
            if found.obj["metadata"].get("deletionTimestamp"):
                message = f"unable to create new content in namespace {request.namespace} because it is being terminated"
                raise Refused(403, "Forbidden", message)

    def _check_preconditions(self, request: Request, old: Json, metadata: Json) -> None:
        """Raises Refused where another object or version was meant. At the status a patch may name any uid.

        The storage compares the uid of a replace before it looks at the object.
        """
        wanted, known, version = metadata.get("uid"), old["metadata"], metadata.get("resourceVersion")
        is_another = wanted and wanted != known["uid"]
        if is_another and request.verb == "update":
            message = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {known['uid']}"
            raise self._conflict(request.kind, request.name, message)
        if not version and request.verb == "update" and request.kind.is_custom:
            problem = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise self._invalid(request.kind, request.name, [problem])
        if version and version != known["resourceVersion"]:
            message = "the object has been modified; please apply your changes to the latest version and try again"
            raise self._conflict(request.kind, request.name, message)
        if is_another and not (request.subresource and request.kind.is_custom):
            raise self._invalid(request.kind, request.name, [f'metadata.uid: Invalid value: "{wanted}": field is immutable'])

    def _updater(self, request: Request) -> Manager:
        return Manager(request.params.get("fieldManager") or request.user, "Update", request.subresource)

    def _make_uid(self) -> str:
        digits = f"{self._chance.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    @staticmethod
    def _invalid(kind: Kind, name: str, problems: Sequence[str]) -> Refused:
        called = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
        shown = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        return Refused(422, "Invalid", f'{called} "{name}" is invalid: {shown}', name=name, group=kind.group, kind=kind.kind)

    @staticmethod
    def _conflict(kind: Kind, name: str, why: str) -> Refused:
        called = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        message = f'Operation cannot be fulfilled on {called} "{name}": {why}'
        return Refused(409, "Conflict", message, name=name, group=kind.group, kind=kind.plural)

    @staticmethod
    def _another(kind: Kind, name: str, what: str, wanted: str, found: str, perhaps: str) -> Refused:
        """A precondition of a delete that does not hold."""
        called = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
        message = (
            f'Operation cannot be fulfilled on {called} "{name}": the {what} in the precondition ({wanted}) does not match the {what} in '
            f"record ({found}). The object might have been {perhaps}"
        )
        return Refused(409, "Conflict", message, name=name, group=kind.group, kind=kind.kind)

    @staticmethod
    def _explain_taken(kind: Kind, name: str, taken: Taken) -> Refused:
        fields_of = {_describe(kind, manager): sorted(map(fields.show_path, paths)) for manager, paths in taken.fields.items()}
        count = sum(map(len, fields_of.values()))
        if count == 1:
            [(manager, [path])] = fields_of.items()
            told = f"1 conflict: conflict with {manager}: {path}"
        else:
            lines = [
                line for manager, paths in sorted(fields_of.items()) for line in (f"conflicts with {manager}:", *(f"- {p}" for p in paths))
            ]
            told = f"{count} conflicts: " + "\n".join(lines)
        return Refused(409, "Conflict", f"Apply failed with {told}", name=name, group=kind.group, kind=kind.plural)


def is_selected(request: Request, obj: Json) -> bool:
    """Whether the selectors of a list or watch choose an object."""
    labels, wanted = request.params.get("labelSelector"), request.params.get("fieldSelector")
    return (not labels or has_matching_labels(labels, obj)) and (not wanted or has_matching_fields(wanted, obj))


def _describe(kind: Kind, manager: Manager) -> str:
    told = f'"{manager.name}"' + (f' with subresource "{manager.subresource}"' if manager.subresource else "")
    return told + (f" using {kind.api_version}" if manager.operation == "Update" else "")


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def to_bytes(answer: Mapping[str, Any]) -> bytes:
    """An answer as it is sent."""
    try:
        return to_json(answer)
    except PydanticSerializationError:  # half of a surrogate pair
        return _ENCODER.encode(answer).encode()

"""What a test of one controller needs: an API server in memory, a client of it, and the state that is observed of it at once.

No model of a controller runs here. A test stores objects as it likes (`put`), runs what it tests, and reads what is on the server then.
"""

import asyncio
import atexit
import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from core.names import MANAGER_ADMISSION
from core.plan.steps.managed_status import read_managed_status
from core.runtime.clock import Clock, SystemClock
from core.runtime.http.client import Client
from core.runtime.http.errors import build_error
from core.runtime.http.transport import Transport
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import build_object_key
from core.runtime.watch.watch_step import Applied, Deleted
from reconciler.execute.event_recorder import Reporter
from reconciler.execute.executor import Executor
from reconciler.observe.observed import Observed
from sim.apiserver import fields
from sim.apiserver.fields import Manager
from sim.apiserver.kinds import POD_LISTS, Kind, build_in, read_definitions
from sim.apiserver.routes import find_request, handle_request
from sim.apiserver.server import Change, Refused, Request, Server, Stored, to_bytes
from sim.loop import VirtualLoop
from sim.transport import Faults, Sender, SimTransport

Json = dict[str, Any]
Result = TypeVar("Result")
CRDS = Path(__file__).parent.parent / "charts" / "topogate" / "files" / "crds"
USER = "topogate"
NAMESPACE = "ns"  # of objects that name none
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Event(NamedTuple):
    """An event as it was recorded; `key` is namespace and name of the object, or its name."""

    kind: str
    key: str
    reason: str
    message: str
    type: str


@cache
def list_kinds() -> tuple[Kind, ...]:
    """Whatever topogate watches: built-in kinds, the kinds of the chart, and kinds of others, which keep all that is written."""
    ours = [yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted(CRDS.glob("*.yaml"))]
    kinds = [*build_in(), *read_definitions(ours)]
    known = {(kind.group, kind.version, kind.plural) for kind in kinds}
    for informer in Observed(Client.make_offline(), SystemClock(), places_groups=True).informers:
        found = informer.resource
        if (found.group, found.version, found.plural) not in known:
            is_built_in = found.group.endswith(".k8s.io") and not found.group.endswith(".x-k8s.io")
            parts = dict.fromkeys(("spec", "status"), _ANYTHING)
            schema, keys = (None, POD_LISTS) if is_built_in else ({"type": "object", "properties": parts}, {})
            names = (found.group, found.version, found.plural, found.kind, found.namespaced)
            kinds.append(Kind(*names, has_status=True, has_generation=True, schema=schema, keys=keys))
    return tuple(kinds)


@cache
def _open_loop() -> VirtualLoop:
    """One for all: what waits on one loop cannot wait on another."""
    loop = VirtualLoop()
    atexit.register(loop.close)
    return loop


class DelayedTransport(SimTransport):
    """Each write takes `delay_s` longer to arrive."""

    delay_s = 0.0

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        if method != "GET":
            await asyncio.sleep(self.delay_s)
        return await super().request(method, path, **options)


class DirectTransport(Transport):
    """Requests are carried out without latency; `meet` is awaited before each, and raises what goes wrong."""

    address = "https://in-memory.example:6443"

    def __init__(self, server: Server, meet: Callable[[Request], Awaitable[None]], user: str = USER) -> None:
        self._server, self._meet, self._user = server, meet, user

    async def aclose(self) -> None:
        """Nothing is open."""

    async def request(self, method: str, path: str, *, body: bytes | None = None, content_type: str = "", **options: Any) -> bytes:
        request = find_request(self._server, method, path, options.get("params") or {}, body, content_type, self._user)
        await self._meet(request)
        try:
            return to_bytes(handle_request(self._server, request))
        except Refused as refused:
            raise build_error(refused.code, json.dumps(refused.status).encode()) from refused


class Harness:
    """An empty cluster, and topogate's view of it."""

    def __init__(self, clock: Clock, **options: Any) -> None:
        """`options` are those of `Observed`."""
        self.clock = clock
        self.server = Server(list_kinds(), now=self.now, chance=random.Random(1))
        self.faults = Faults(random.Random(2))
        self.writes: list[Request] = []  # that were carried out for `client`
        self.on_write: Callable[[Request], None] = lambda _: None  # called before each; raises Refused or a KubeError
        sender = Sender(USER, on_write=self.writes.append, before_write=lambda request: self.on_write(request))
        self.transport = DelayedTransport(self.server, sender, self.faults)
        self.client = Client(self.transport)
        self.late: set[str] = set()  # kinds whose changes are not observed before `catch_up`
        self._missed: list[Change] = []
        self._watches: dict[tuple[str, str], list[tuple[Request, Informer]]] = {}
        self.observed = Observed(self.client, clock, **options)
        self.client.on_reply = self.observed.observe_reply
        reporter = Reporter(self.client, clock, self.observed)
        self.executor = Executor(self.client, clock, reporter, paused=lambda: self.observed.state.pause)
        for informer in self.observed.informers:
            self.follow(informer)
        self.server.on_change.append(self._note_change)
        for name in ("default", NAMESPACE):
            self.put({"kind": "Namespace", "metadata": {"name": name}})

    def now(self) -> str:
        """The time as the API has it."""
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    # --- what is observed ---------------------------------------------------------------------------

    def follow(self, informer: Informer) -> None:
        """From now on an informer observes what its watch would."""
        resource = informer.resource
        kind = self.server.kinds[resource.group, resource.version, resource.plural]
        params = {"fieldSelector": informer._field_selector or ""}
        self._watches.setdefault(kind.resource, []).append((Request("watch", kind, informer._namespace or "", params=params), informer))

    def catch_up(self) -> None:
        """What was late is observed, and so is from now on whatever happens."""
        self.late.clear()
        while self._missed:
            self.observe_next()

    def observe_next(self) -> None:
        """The next change that was late is observed."""
        self._observe(self._missed.pop(0))

    def _note_change(self, change: Change) -> None:
        if any(request.kind.kind in self.late for request, _ in self._watches.get(change.resource, ())):
            self._missed.append(change)
        else:
            self._observe(change)

    def _observe(self, change: Change) -> None:
        for request, informer in self._watches.get(change.resource, ()):
            for _, event in self.server.to_events(request, change):
                informer._fold((Deleted if event["type"] == "DELETED" else Applied)(event["object"]))

    # --- what others do -----------------------------------------------------------------------------

    def put(self, obj: Mapping[str, Any]) -> Json:
        """The object, stored as it is given, uid and status and all; in place of one of its name, which is deleted if it has another uid.

        What its conditions leave out is as if they had become so now. Of the status of a Workload the admission is topogate's own, as it
        would be had topogate written it.
        """
        kind = self._find_kind(str(obj["kind"]), str(obj.get("apiVersion", "")))
        body = {name: value for name, value in json.loads(json.dumps(obj)).items() if name not in ("apiVersion", "kind")}
        metadata = body["metadata"]
        key = self._find_key(kind, metadata["name"], metadata.get("namespace"))
        stored = self.server.objects[kind.resource].get(key)
        known = stored.obj["metadata"] if stored is not None else {}
        made = {"uid": f"uid-{key[1]}", "creationTimestamp": self.now(), **({"generation": 1} if kind.has_generation else {})}
        kept = {name: known.get(name, value) for name, value in made.items()}
        body["metadata"] = {**kept, **metadata, **({"namespace": key[0]} if kind.namespaced else {})}
        if stored is not None and known["uid"] != body["metadata"]["uid"]:
            self._remove(kind, stored)
            stored = None
        if key[0] and ("", key[0]) not in self.server.objects["", "namespaces"]:
            self.put({"kind": "Namespace", "metadata": {"name": key[0]}})
        if kind.is_custom and (conditions := (body.get("status") or {}).get("conditions")):
            missing = {"message": "", "lastTransitionTime": self.now()}
            body["status"]["conditions"] = [{"reason": each["type"], **missing, **each} for each in conditions]
        managers = dict(stored.managers) if stored is not None else {}
        if kind.kind == "Workload":
            managers |= _get_own_admission(kind, body)
        self.server._store(
            Request("update", kind, *key), stored, self.server._complete(kind, body, stored.obj if stored is not None else None), managers
        )
        return self.get(f"{kind.kind}.{kind.group}", key[1], key[0])

    def drop(self, kind: str, name: str, namespace: str = NAMESPACE) -> None:
        """An object is gone, whatever held it."""
        found = self._find_kind(kind)
        self._remove(found, self.server.objects[found.resource][self._find_key(found, name, namespace)])

    def delete(self, kind: str, name: str, namespace: str = NAMESPACE, **options: Any) -> None:
        """A user deletes an object, which stays while it has finalizers or a grace period."""
        found = self._find_kind(kind)
        self.server.delete(Request("delete", found, *self._find_key(found, name, namespace), body=options, user="user"))

    def get(self, kind: str, name: str, namespace: str = NAMESPACE) -> Json:
        """An object as the API server has it. Raises KeyError."""
        found = self._find_kind(kind)
        return self.server._present(found, self.server.objects[found.resource][self._find_key(found, name, namespace)].obj)

    def all(self, kind: str) -> list[Json]:
        """All objects of a kind, by namespace and name."""
        found = self._find_kind(kind)
        return [self.server._present(found, stored.obj) for _, stored in sorted(self.server.objects[found.resource].items())]

    # --- what topogate did --------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        """Events, in the order in which they were recorded."""
        made = (change.new for change in self.server.history if change.resource == ("", "events") and change.new is not None)
        return [
            Event(about["kind"], build_object_key({"metadata": about}), event["reason"], event["message"], event["type"])
            for event in made
            for about in [event["involvedObject"]]
        ]

    @property
    def messages(self) -> list[str]:
        """Messages of all events."""
        return [event.message for event in self.events]

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine that is run to its end, in virtual time; the events that it reports are written. Raises what it raises.
        What it leaves running is cancelled."""
        loop = _open_loop()
        try:
            return loop.run_until_complete(self._run_and_report(work))
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))

    async def _run_and_report(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return await work
        finally:
            await self.executor.reporter.settle()

    # --- inside -------------------------------------------------------------------------------------

    def _find_kind(self, called: str, api_version: str = "") -> Kind:
        """By name, or name and group (`Job.batch`)."""
        name, _, group = called.partition(".")
        kinds = [kind for kind in self.server.kinds.values() if kind.kind == name and group in ("", kind.group)]
        return next((kind for kind in kinds if kind.api_version == api_version), kinds[0])

    @staticmethod
    def _find_key(kind: Kind, name: str, namespace: str | None) -> tuple[str, str]:
        return (namespace or NAMESPACE) if kind.namespaced else "", name

    def _remove(self, kind: Kind, stored: Stored) -> None:
        self.server._remove(Request("delete", kind, ""), stored)


def _get_own_admission(kind: Kind, workload: Json) -> dict[Manager, fields.Paths]:
    status = {name: value for name, value in read_managed_status(workload).items() if value}
    owned = fields.list_owned(kind.schema_of_fields, {"status": status}) if status else fields.NO_PATHS
    return {Manager(MANAGER_ADMISSION, "Apply", "status"): owned} if owned else {}

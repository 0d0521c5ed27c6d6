"""Doubles for the runtime's tests: an API server as a plain model, a client that speaks to it without a network, a clock set by hand."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from core.runtime.errors import Gone, KubeError
from core.runtime.resource import Obj, Page, Resource

CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")


def make_obj(name: str, version: int | str, *, uid: str | None = None, namespace: str = "ns", **fields: Any) -> Obj:
    metadata = {"namespace": namespace, "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **fields}


def name_of(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


T0 = datetime(2026, 1, 1, tzinfo=UTC)


class LoopClock:
    """The time of day passes as the loop's does."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return T0 + timedelta(seconds=self.monotonic())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """Time stands still until the test says otherwise."""

    def __init__(self, start: float = 1000.0) -> None:
        self.time = start

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time)

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


@dataclass
class ModelServer:
    """What an API server promises of lists and watches: consistent pages, history since a version, 410 when that is compacted."""

    objects: dict[str, Obj] = field(default_factory=dict)
    version: int = 1
    history: list[tuple[int, str, Obj]] = field(default_factory=list)
    compacted: int = 0
    pages: dict[str, tuple[int, list[Obj]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self.changed: Callable[[], None] = lambda: None

    def put(self, name: str) -> Obj:
        known = self.objects.get(name)
        self.version += 1
        uid = known["metadata"]["uid"] if known else f"uid-{name}-{next(self._numbers)}"
        obj = make_obj(name, self.version, uid=uid)
        self.objects[name] = obj
        self.history.append((self.version, "MODIFIED" if known else "ADDED", obj))
        self.changed()
        return obj

    def delete(self, name: str) -> None:
        known = self.objects.pop(name)
        self.version += 1
        last = {**known, "metadata": {**known["metadata"], "resourceVersion": str(self.version)}}
        self.history.append((self.version, "DELETED", last))
        self.changed()

    def compact(self) -> None:
        """Forget all history: every version and continue token given out so far is too old."""
        self.version += 1
        self.compacted = self.version
        self.history.clear()
        self.pages.clear()

    def page(self, limit: int | None, token: str) -> Page:
        if token:
            if token not in self.pages:
                raise Gone(410, "Expired", "the continue token is too old")
            version, items = self.pages[token]
        else:
            version, items = self.version, [self.objects[name] for name in sorted(self.objects)]
        if limit is None or len(items) <= limit:
            return Page(items, str(version))
        following = f"token-{next(self._numbers)}"
        self.pages[following] = version, items[limit:]
        return Page(items[:limit], str(version), following)

    def since(self, version: str) -> list[tuple[int, str, Obj]]:
        if int(version) < self.compacted:
            raise Gone(410, "Expired", "too old resource version")
        return [entry for entry in self.history if entry[0] > int(version)]


def raw(kind: str, obj: Obj) -> Obj:
    return {"type": kind, "object": obj}


def status(code: int, reason: str) -> Obj:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": reason, "message": reason}}


def bookmark(version: int | str) -> Obj:
    return raw("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": str(version)}})


class FakeClient:
    """Lists and watches a ModelServer. `faults` are taken one per request: an error to raise, or what to do with the next stream.

    Stream faults: `"close"` ends it at once, `"mute"` when its time is over, `"lag"` also with a bookmark of a cache in which nothing is
    new, `"hang"` never says anything, `"gone"` sends 410 in the stream, any dict is sent as an event first.
    """

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.faults: list[KubeError | str | Obj | None] = []
        self.requests: list[tuple[float, str]] = []
        self._changed = asyncio.Event()
        server.changed = self._changed.set

    def _fault(self, verb: str) -> KubeError | str | Obj | None:
        self.requests.append((asyncio.get_running_loop().time(), verb))
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, KubeError):
            raise fault
        return fault

    async def list_page(self, resource: Resource, namespace: str | None, *, limit: int | None, continue_token: str, **_: Any) -> Page:
        self._fault("list")
        await asyncio.sleep(0)
        return self.server.page(limit, continue_token)

    async def watch(
        self, resource: Resource, namespace: str | None, *, resource_version: str, timeout_seconds: int, **_: Any
    ) -> AsyncGenerator[Obj, None]:
        fault = self._fault("watch")
        match fault:
            case "close":
                return
            case "hang":
                await asyncio.sleep(10**9)
            case "mute" | "lag":
                await asyncio.sleep(timeout_seconds)
                if fault == "lag":
                    yield bookmark(resource_version)
                return
            case "gone":
                yield status(410, "Expired")
                return
            case dict():
                yield fault
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_seconds
        version = resource_version
        while True:
            for number, kind, obj in self.server.since(version):
                version = str(number)
                yield raw(kind, obj)
            self._changed.clear()
            try:
                async with asyncio.timeout_at(ends_at):
                    await self._changed.wait()
            except TimeoutError:
                yield bookmark(self.server.version)
                return

"""ConfigMaps on the API server in memory, and a client whose requests fail in named ways."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Any

from core.resource import Obj
from core.runtime.http.client import Client
from core.runtime.http.errors import KubeError
from sim.apiserver.kinds import build_in
from sim.apiserver.server import MERGE, Request, Server, to_bytes
from sim.transport import Faults, Sender, SimTransport
from tests.runtime.fakes import bookmark, status

NAMESPACE = "ns"
Fault = KubeError | str | Obj | None


def open_server() -> Server:
    """An API server with one namespace."""
    server = Server(build_in(), now=lambda: "2026-01-01T00:00:00Z", chance=random.Random(1))
    server.create(Request("create", server.kinds["", "v1", "namespaces"], "", body={"metadata": {"name": NAMESPACE}}))
    return server


class ConfigMaps:
    """An API server with ConfigMaps, which other clients write, and a client of it. `faults` are those of the client's next requests."""

    def __init__(self, names: Iterable[str] = (), faults: Iterable[Fault] = ()) -> None:
        self.api = open_server()
        self.kind = self.api.kinds["", "v1", "configmaps"]
        self.faults = list(faults)
        self.requests: list[tuple[float, str]] = []  # of the client: when, and its verb
        self.client = Client(FaultyTransport(self))
        for name in names:
            self.put(name)

    @property
    def version(self) -> str:
        """The version of the last write."""
        return str(self.api.version)

    @property
    def objects(self) -> dict[str, Obj]:
        """All of them, by name."""
        stored = self.api.objects[self.kind.resource]
        return {name: self.api._present(self.kind, each.obj) for (_, name), each in stored.items()}

    def put(self, name: str) -> None:
        """Creates an object, or changes it."""
        data = {"data": {"version": self.version}}
        if name in self.objects:
            self.api.patch(Request("patch", self.kind, NAMESPACE, name, body=data, content_type=MERGE))
        else:
            self.api.create(Request("create", self.kind, NAMESPACE, body={"metadata": {"name": name}, **data}))

    def delete(self, name: str) -> None:
        """Deletes an object."""
        self.api.delete(Request("delete", self.kind, NAMESPACE, name))

    def read_changes(self, after: int) -> list[Obj]:
        """Watch events after a version. Raises Refused with 410 where that is too old."""
        return [event for _, event in self.api.read_changes(Request("watch", self.kind, ""), after)]


class FaultyTransport(SimTransport):
    """Takes the next of the faults for each request: an error to raise, or what becomes of the stream.

    `"close"` ends the stream at once, `"mute"` when its time is over, `"lag"` likewise, after a bookmark of a cache in which nothing is
    new. `"hang"` never sends anything, `"gone"` sends 410 in the stream, any dict is sent as an event first.
    """

    def __init__(self, maps: ConfigMaps) -> None:
        super().__init__(maps.api, Sender("reader"), Faults(random.Random(2)))
        self._maps = maps

    def _take_fault(self, verb: str) -> Fault:
        self._maps.requests.append((asyncio.get_running_loop().time(), verb))
        fault = self._maps.faults.pop(0) if self._maps.faults else None
        if isinstance(fault, KubeError):
            raise fault
        return fault

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        self._take_fault("list")
        return await super().request(method, path, **options)

    async def read_lines(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        fault = self._take_fault("watch")
        match fault:
            case "close":
                return
            case "hang":
                await asyncio.sleep(10**9)
            case "mute" | "lag":
                await asyncio.sleep(float(params["timeoutSeconds"]))
                if fault == "lag":
                    yield to_bytes(bookmark(params["resourceVersion"]))
                return
            case "gone":
                yield to_bytes(status(410, "Expired"))
                return
            case dict():
                yield to_bytes(fault)
        async with aclosing(super().read_lines(path, params=params)) as stream:
            async for line in stream:
                yield line

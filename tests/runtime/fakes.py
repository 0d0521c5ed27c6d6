"""Clocks that tests set, and objects and watch events as the API server writes them."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

from core.resource import Obj, Resource
from core.runtime.http.client import Client
from core.runtime.http.transport import Endpoint, Transport

CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")


def make_obj(name: str, version: int | str, *, uid: str | None = None, namespace: str = "ns", **fields: Any) -> Obj:
    metadata = {"namespace": namespace, "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **fields}


def name_of(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def connect_to(url: str, *, token: str | None = None, tls: ssl.SSLContext | None = None, timeout_s: float = 30.0) -> Client:
    """A client of the API server at an address, without any configuration file."""

    async def authorize() -> str | None:
        return f"Bearer {token}" if token else None

    return Client(Transport(Endpoint(url, tls, authorize=authorize), user_agent="topogate", timeout_s=timeout_s))


T0 = datetime(2026, 1, 1, tzinfo=UTC)


class LoopClock:
    """The time of day passes as the loop's does."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def read_timer(self) -> float:
        return self.monotonic()

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

    def read_timer(self) -> float:
        return self.time

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time)

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


def raw(kind: str, obj: Obj) -> Obj:
    return {"type": kind, "object": obj}


def status(code: int, reason: str) -> Obj:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": reason, "message": reason}}


def bookmark(version: int | str) -> Obj:
    return raw("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": str(version)}})

"""What elections compete for: one Lease on an API server in memory."""

from __future__ import annotations

import asyncio
import json

from core.resource import Obj
from core.runtime.http.client import Client
from core.runtime.http.errors import KubeError, build_error
from sim.apiserver.server import Refused, Request
from sim.harness import DirectTransport
from tests.runtime.config_maps import open_server


class LeaseServer:
    """An API server with namespace `ns`. `failing` makes every request fail, `hanging` makes it never end."""

    def __init__(self) -> None:
        self.api = open_server()
        self.client = Client(DirectTransport(self.api, self._disturb))
        self.failing: KubeError | None = None
        self.hanging = False
        self._kind = self.api.kinds["coordination.k8s.io", "v1", "leases"]

    async def _disturb(self, _: Request) -> None:
        await asyncio.sleep(0)
        if self.hanging:
            await asyncio.sleep(10**9)
        if self.failing is not None:
            raise self.failing

    @property
    def lease(self) -> Obj | None:
        stored = self.api.objects[self._kind.resource].get(("ns", "lease"))
        return {"apiVersion": self._kind.api_version, "kind": "Lease", **stored.obj} if stored is not None else None

    @property
    def writes(self) -> list[str]:
        """Holders that were written, one after the other."""
        written = (change.new for change in self.api.history if change.resource == self._kind.resource)
        return [str(lease["spec"]["holderIdentity"]) for lease in written if lease is not None]

    def put(self, body: Obj, *, create: bool) -> Obj:
        """The answer to a request that arrives now. Raises a KubeError."""
        write, verb = (self.api.create, "create") if create else (self.api.update, "update")
        try:
            return write(Request(verb, self._kind, "ns", "" if create else "lease", body=body))
        except Refused as refused:
            raise build_error(refused.code, json.dumps(refused.status).encode()) from refused

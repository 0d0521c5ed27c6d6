"""The visibility API on a port of its own, over real TLS, with the certificates of a front proxy; the API server's answers are given."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from certs.pki import KeyPair, issue_ca, issue_serving
from core.resource import Obj, Resource
from core.runtime.clock import SystemClock
from core.runtime.http.errors import KubeError
from core.runtime.serving.connections import Connections
from core.runtime.serving.http_port import make_runner
from core.runtime.serving.paced_site import PacedSite
from core.runtime.serving.tls import HeldCa, ServingCertificate
from core.runtime.watch.store import Store
from core.runtime.watch.watch_step import Applied
from e2e.pki import FRONT_PROXY_NAME, issue_client
from reconciler.visibility.access_reviews import AccessReviews
from reconciler.visibility.front_proxy import FrontProxyRules
from reconciler.visibility.pending_pages import PendingPages
from reconciler.visibility.visibility_api import MOST_HEADERS
from reconciler.visibility.visibility_server import VisibilityServer, make_certificate_reader
from tests.builders import build_pod_set_json, build_workload_json
from tests.queueing.scene import Scene

NOW = datetime.now(UTC)
SERVER_CA, PROXY_CA, OTHER_CA = (issue_ca(name, NOW) for name in ("server", "front proxy", "another"))
SERVER = issue_serving(SERVER_CA, ["127.0.0.1"], NOW)
PROXY = issue_client(PROXY_CA, FRONT_PROXY_NAME, NOW)
USER = {"X-Remote-User": "jane", "X-Remote-Group": "team-a", "X-Remote-Extra-Scopes": "all"}


def build_config(ca: bytes = PROXY_CA.certificate, names: str = f'["{FRONT_PROXY_NAME}"]') -> dict[str, str]:
    """The data of the ConfigMap as a kube-apiserver writes it."""
    return {
        "requestheader-client-ca-file": ca.decode(),
        "requestheader-allowed-names": names,
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }


class Judge:
    """An API server that answers SubjectAccessReviews: allows what `allowed` says, or fails."""

    def __init__(self) -> None:
        self.asked: list[Obj] = []
        self.allowed = True
        self.fails: KubeError | None = None

    async def create(self, resource: Resource, body: Obj) -> Obj:
        assert resource.plural == "subjectaccessreviews"
        self.asked.append(body["spec"])
        if self.fails is not None:
            raise self.fails
        return {**body, "status": {"allowed": self.allowed}}


class Asking:
    """A client that reads each answer whole."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, path: str, method: str = "GET", **options: Any) -> aiohttp.ClientResponse:
        async with self._session.request(method, path, **options) as reply:
            await reply.read()
        return reply


class Visibility:
    """A server with two queues; `submit` adds a workload to the first."""

    def __init__(self, folder: Path) -> None:
        self.scene, self.store, self.judge = Scene(), Store(), Judge()
        self.scene.queue("empty", {"tas": "1"})
        self.scene.local_queue("second", "cq")
        self.pages = PendingPages(self.scene.state, self.store)
        self.clock = SystemClock()
        self.ca = HeldCa(PROXY_CA.certificate)
        for name, content in (("tls.crt", SERVER.certificate), ("tls.key", SERVER.key)):
            (folder / name).write_bytes(content)
        self.certificate = ServingCertificate(folder / "tls.crt", folder / "tls.key", self.ca)
        self.connections = Connections(self.clock, 16)
        reader = make_certificate_reader(self.certificate)
        self.server = VisibilityServer(self.pages, AccessReviews(self.judge, self.clock), self.clock, reader, self.connections)
        self.server.rules = FrontProxyRules.read(build_config())
        self.folder, self.address = folder, ""

    def submit(self, name: str, queue: str = "lq", **options: Any) -> None:
        workload = build_workload_json(name, [build_pod_set_json()], queue=queue, **options)
        self.scene.workload(workload)
        self.store.apply(Applied(workload))

    def sync(self) -> None:
        self.pages._order.sync()
        while self.pages._order.is_behind:
            self.pages._order.sync()
        self.pages.is_complete = True

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Visibility]:
        self.sync()
        runner = make_runner(self.server.app, shutdown_timeout_s=1.0, most_headers=MOST_HEADERS)
        await runner.setup()
        listening = self.connections.listen("127.0.0.1", 0)
        await PacedSite(runner, listening, self.connections, ssl_context=self.certificate.context).start()
        self.address = f"https://127.0.0.1:{listening.getsockname()[1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    @asynccontextmanager
    async def connect(self, shown: KeyPair | None = PROXY, headers: Mapping[str, str] = USER) -> AsyncIterator[Asking]:
        """A client with a certificate (None: without)."""
        tls = ssl.create_default_context(cadata=SERVER_CA.certificate.decode())
        if shown is not None:
            path = self.folder / "client.pem"
            path.write_bytes(shown.certificate + shown.key)
            tls.load_cert_chain(path)
        async with aiohttp.ClientSession(self.address, headers=dict(headers), connector=aiohttp.TCPConnector(ssl=tls)) as session:
            yield Asking(session)


def issue_ended_ca() -> KeyPair:
    """A CA that ended a minute ago."""
    return issue_ca("ended", NOW - timedelta(days=2), timedelta(days=2) - timedelta(minutes=1))

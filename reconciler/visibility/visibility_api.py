"""The visibility API as a part of the reconciler's process: it waits for its certificate and serves until it is cancelled.

Whatever it lacks is logged and tried again: decisions go on without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Never

from core.model.pods_ready_rules import PodsReadyRules
from core.plan.steps.api_resources import CONFIG_MAPS
from core.runtime.clock import Clock
from core.runtime.http.client import Client
from core.runtime.serving.connections import Connections
from core.runtime.serving.http_port import make_runner
from core.runtime.serving.paced_site import PacedSite
from core.runtime.serving.tls import POLL_S, HeldCa, ServingCertificate, UnusableCertificate, warn_of_end
from core.runtime.tasks import start_eternal
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change
from reconciler.observe.observed import Observed
from reconciler.settings import VisibilitySettings
from reconciler.visibility.access_reviews import AccessReviews
from reconciler.visibility.front_proxy import CONFIG_MAP, NAMESPACE, BadFrontProxyRules, FrontProxyRules
from reconciler.visibility.pending_pages import PendingPages
from reconciler.visibility.visibility_server import VisibilityServer, make_certificate_reader

logger = logging.getLogger(__name__)
MOST_CONNECTIONS = 128
MOST_HEADERS = 1024  # the API server sends one for each group of a user
RETRY_S = 10.0
SHUTDOWN_S = 2.0


class VisibilityApi:
    """Serves the pending workloads of what a reconciler observes. `client` is its own: the reconciler's sends nothing while another replica
    leads. `is_complete` returns whether everything has been listed once."""

    def __init__(
        self,
        settings: VisibilitySettings,
        client: Client,
        observed: Observed,
        is_complete: Callable[[], bool],
        clock: Clock,
        rules: PodsReadyRules | None = None,
    ) -> None:
        self._settings, self._clock, self._is_complete = settings, clock, is_complete
        self._ca = HeldCa()
        self._config = Informer(client, CONFIG_MAPS, namespace=NAMESPACE, field_selector=f"metadata.name={CONFIG_MAP}", clock=clock)
        self._config.add_handler(self._read_rules)
        self._rules: FrontProxyRules | None = None
        informers = (observed.workloads, observed.local_queues, observed.cluster_queues)
        self._pages = PendingPages(observed.state, observed.workloads.store, rules, [informer.watcher for informer in informers])
        self._reviews = AccessReviews(client, clock)
        self._server: VisibilityServer | None = None
        self._certificate: ServingCertificate | None = None
        self._complaint = ""

    async def run(self) -> Never:
        """Serves as soon as everything is listed and there is a certificate. Never returns. An address that cannot be listened on is logged
        and tried again every `RETRY_S` seconds."""
        async with asyncio.TaskGroup() as group:
            start_eternal(group, "front proxy of the visibility API", self._config.run())
            start_eternal(group, "order of pending workloads", self._update_order())
            certificate = self._certificate = await self._wait_for_certificate()
            start_eternal(group, "certificate of the visibility API", certificate.watch(self._clock))
            start_eternal(group, "end of the visibility API's certificate", warn_of_end(certificate, self._clock))
            while True:
                try:
                    await self._serve(certificate)
                except OSError as error:
                    self._report(f"{self._settings.host}:{self._settings.port}: {error}")
                await self._clock.sleep(RETRY_S)

    async def _update_order(self) -> Never:
        while not self._is_complete():
            await self._clock.sleep(POLL_S / 4)
        await self._pages.run(self._clock)

    async def _wait_for_certificate(self) -> ServingCertificate:
        """The Secret is mounted, and with certificates of our own it is written by the webhook, later than this process may start."""
        while True:
            try:
                return ServingCertificate(self._settings.cert_file, self._settings.key_file, self._ca)
            except UnusableCertificate as error:
                self._report(str(error))
            await self._clock.sleep(POLL_S)

    async def _serve(self, certificate: ServingCertificate) -> Never:
        connections = Connections(self._clock, MOST_CONNECTIONS)
        reader = make_certificate_reader(certificate)
        self._server = VisibilityServer(self._pages, self._reviews, self._clock, reader, connections)
        self._server.rules = self._rules
        runner = make_runner(self._server.app, shutdown_timeout_s=SHUTDOWN_S, most_headers=MOST_HEADERS)
        await runner.setup()
        try:
            listening = connections.listen(self._settings.host, self._settings.port)
            site = PacedSite(runner, listening, connections, ssl_context=certificate.context)
            await site.start()
            logger.info("serving the visibility API", extra={"address": site.name})
            await connections.watch()
        finally:
            await runner.cleanup()

    def _read_rules(self, change: Change) -> None:
        """Uses the rules of the ConfigMap from now on, for new connections and for those that are open. Rules that cannot be used, or that
        are gone, leave the former ones."""
        if change.new is None:
            return
        try:
            self._rules = FrontProxyRules.read(change.new.get("data") or {})
        except BadFrontProxyRules as error:
            self._report(f"ConfigMap {NAMESPACE}/{CONFIG_MAP}: {error}")
            return
        self._ca.pem = self._rules.ca
        if self._certificate is not None:
            self._certificate.reload()
        if self._server is not None:
            self._server.rules = self._rules

    def _report(self, text: str) -> None:
        """Logs a problem once, not at every try."""
        if text != self._complaint:
            logger.warning("the visibility API is not in order", extra={"error": text})
        self._complaint = text

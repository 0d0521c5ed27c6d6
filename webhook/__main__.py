"""`python -m webhook`: the webhook process."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from certs import pki
from certs.pki import KeyPair
from certs.rotation import Rotation
from core.jobs.contract import JobKind
from core.jobs.kinds.registry import INTEGRATIONS, UnusableIntegration, with_integrations
from core.metric_names import CERTIFICATE_EXPIRY, LOOP_LAG, OF_WEBHOOK, TASKS
from core.names import DEFAULT_LOCAL_QUEUE, GROUP, VERSION
from core.resource import Obj, Resource
from core.runtime import plugins
from core.runtime.clock import SystemClock
from core.runtime.http.client import Client
from core.runtime.http.errors import KubeError, NotFound
from core.runtime.http.kubeconfig import UnusableKubeconfig
from core.runtime.report import logs, telemetry
from core.runtime.report.metrics import Metrics, Reading
from core.runtime.report.probes import serve_probes
from core.runtime.report.sampling import Sampling
from core.runtime.serving.connections import Connections
from core.runtime.serving.paced_site import PacedSite
from core.runtime.serving.shared_limits import set_up_memory
from core.runtime.serving.tls import HeldCertificate, ServingCertificate, UnusableCertificate, warn_of_end
from core.runtime.tasks import LoopLag, run_until_stopped, start_eternal
from core.trace_names import BEGINS, REFUSED, WORK
from webhook.known_names import KnownNames
from webhook.lookup import LookupFailed, run_on_own_loop
from webhook.review import Reviews
from webhook.server import AdmissionServer
from webhook.settings import Settings, parse

logger = logging.getLogger(__name__)
LOCAL_QUEUES = Resource(GROUP, VERSION, "localqueues", "LocalQueue")
SERVICE = "topogate-webhook"
LOOKUP_TIMEOUT_S = 2.0
SWITCH_INTERVAL_S = 0.0005  # a large review is judged on a thread; others must not wait for it at each of their steps
# Objects of reviews have no cycles: looking for some after every few hundred is a third of the time that a large one takes.
GC_THRESHOLDS = (50_000, 20, 100)
GRACE_S = 10.0
DRAIN_S = 5.0  # in-flight reviews get this long


async def serve(settings: Settings, kinds: Sequence[JobKind], metrics: Metrics) -> None:
    """Runs the webhook until a signal stops it. Raises what ended it otherwise: an error of the start as it is, one of a task in an
    exception group.
    """
    clock = SystemClock()
    files, held = _choose_certificate(settings)
    certificate = files or held
    assert certificate is not None
    async with await Client.connect(settings.kubeconfig, user_agent="topogate-webhook") as client:
        rotation = None
        if settings.own is not None and held is not None:
            rotation = Rotation(client, settings.own, _use_by(held), clock)
        names = KnownNames(client, clock)
        reviews = _make_reviews(client, kinds, names, settings)

        def find_unready_reason() -> str:
            end = certificate.not_after
            if end is not None and end <= clock.now():
                return f"the certificate ended at {end.isoformat()}"
            return rotation.find_unready_reason() if rotation is not None else ""

        connections = Connections(clock)
        asks = settings.client_ca_file is not None
        server = AdmissionServer(reviews, find_unready_reason, metrics, clock, connections=connections, asks_for_certificate=asks)
        runner = server.make_runner(shutdown_timeout_s=DRAIN_S)
        await runner.setup()

        async def main(group: asyncio.TaskGroup) -> None:
            start_eternal(group, "certificate watch", certificate.watch(clock))
            start_eternal(group, "end of the certificate", warn_of_end(certificate, clock))
            if rotation is not None:
                start_eternal(group, "certificate rotation", rotation.run())
            start_eternal(group, "connections", connections.watch())
            start_eternal(group, "names of queues", names.run())
            start_eternal(group, "event loop lag", LoopLag(clock, on_lag=lambda seconds: metrics.record(LOOP_LAG, seconds)).run())
            start_eternal(group, "metrics", metrics.run(clock))

        async def drain() -> None:
            await server.retire(lambda: len(connections))
            await runner.cleanup()

        async def listen() -> None:
            listening = connections.listen(settings.host, settings.port)
            site = PacedSite(runner, listening, connections, ssl_context=certificate.context)
            await site.start()
            server.ready = True
            logger.info("serving", extra={"address": site.name})

        try:
            metrics.read_by(lambda: {TASKS: {(): len(asyncio.all_tasks())}})
            metrics.read_by(lambda: _make_expiry(certificate.not_after, clock.now()))
            async with _serve_probes(settings, metrics, server):
                await run_until_stopped(main, grace_s=GRACE_S, before=listen, on_stop=drain)
        finally:
            await runner.cleanup()


def _serve_probes(settings: Settings, metrics: Metrics, server: AdmissionServer) -> AbstractAsyncContextManager[None]:
    return serve_probes(
        settings.host,
        metrics=metrics,
        metrics_port=settings.metrics_port,
        metrics_host=settings.metrics_host,
        health_port=settings.health_port,
        why_not_ready=server.find_unready_reason,
    )


def _make_reviews(client: Client, kinds: Sequence[JobKind], names: KnownNames, settings: Settings) -> Reviews:
    look = _Lookups(client)
    return Reviews(
        run_on_own_loop(look.has_default_queue),
        kinds,
        run_on_own_loop(look.find),
        gates=settings.gates,
        most_ready_s=settings.most_ready_s,
        list_name_warnings=run_on_own_loop(names.list_warnings),
    )


class _Lookups:
    """What reviews ask the API server. Raise LookupFailed where it does not answer in time."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def has_default_queue(self, namespace: str) -> bool:
        """Whether a namespace has the LocalQueue that jobs without one get."""
        return await self.find(LOCAL_QUEUES, DEFAULT_LOCAL_QUEUE, namespace) is not None

    async def find(self, resource: Resource, name: str, namespace: str) -> Obj | None:
        """An object, None where it is not there."""
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                return await self._client.get(resource, name, namespace if resource.namespaced else None)
        except NotFound:
            return None
        except (KubeError, TimeoutError) as error:
            raise LookupFailed(str(error) or f"no answer in {LOOKUP_TIMEOUT_S:g} s") from error


def _choose_certificate(settings: Settings) -> tuple[ServingCertificate | None, HeldCertificate | None]:
    """What to serve with, one of the two."""
    if settings.own is None:
        assert settings.cert_file is not None
        assert settings.key_file is not None
        return ServingCertificate(settings.cert_file, settings.key_file, settings.client_ca_file), None
    held = HeldCertificate(settings.client_ca_file)
    # No client trusts this certificate; but probes, which do not check it, are answered from the start, and `/readyz`
    # can report what is missing.
    at = SystemClock().now()
    _use_by(held)(pki.issue_serving(pki.issue_ca("not published", at), settings.own.names, at))
    return None, held


def _make_expiry(not_after: datetime | None, now: datetime) -> Reading:
    return {CERTIFICATE_EXPIRY: {(): (not_after - now).total_seconds()}} if not_after is not None else {}


def _use_by(held: HeldCertificate) -> Callable[[KeyPair], None]:
    return lambda pair: held.use_pair(pair.certificate, pair.key)


def main(arguments: list[str] | None = None) -> int:
    """Runs the webhook until a signal stops it. Returns its exit status: 0 after a signal, 1 where it cannot serve or a part of it has
    ended, 2 for an unusable kubeconfig. Wrong arguments end the process with status 2.
    """
    settings = parse(arguments)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    set_up_memory()
    logs.configure(settings.log_level)
    sampling = Sampling(slow_s=settings.trace_slow_s, keeps=REFUSED, alone=BEGINS, work=WORK)
    endpoint, protocol = settings.otlp_endpoint, settings.otlp_protocol
    traces = telemetry.set_up(SERVICE, endpoint=endpoint, protocol=protocol, ratio=settings.trace_ratio, sampling=sampling)
    metrics = Metrics(SERVICE, OF_WEBHOOK, endpoint=endpoint, protocol=protocol)
    try:
        asyncio.run(serve(settings, with_integrations(plugins.load(INTEGRATIONS)), metrics))
    except (plugins.BrokenPlugin, UnusableIntegration, OSError, UnusableCertificate) as error:
        logger.error("the webhook cannot serve", extra={"error": str(error)})
        return 1
    except UnusableKubeconfig as error:
        logger.error("the webhook cannot serve", extra={"error": str(error)})
        return 2  # as for wrong arguments: it will not get better by itself
    except Exception:
        logger.exception("the webhook ends")
        return 1
    finally:
        traces.shutdown()
        metrics.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m reconciler`: the reconciler process."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from core.jobs.contract import JobKind
from core.jobs.kinds.registry import INTEGRATIONS, UnusableIntegration, with_integrations
from core.metric_names import LEADER, OF_RECONCILER, TASKS
from core.model.gates import LOCAL_QUEUE_METRICS
from core.runtime import plugins
from core.runtime.clock import Clock, SystemClock
from core.runtime.garbage import exclude_survivors_of_long_collections
from core.runtime.http.client import Client
from core.runtime.http.kubeconfig import UnusableKubeconfig
from core.runtime.http.rate_limiter import RateLimiter
from core.runtime.lease import LeaderElection, LeadershipLost
from core.runtime.report import logs, telemetry
from core.runtime.report.metrics import Metrics
from core.runtime.report.probes import serve_probes
from core.runtime.report.sampling import Sampling
from core.runtime.tasks import LoopLag, run_until_stopped, start_eternal
from core.trace_names import BEGINS, REFUSED, WORK
from reconciler.app import Reconciler
from reconciler.behaviour import Behaviour
from reconciler.execute.recorder import Recorder
from reconciler.health import Health
from reconciler.settings import Settings, parse
from reconciler.visibility.visibility_api import VisibilityApi

logger = logging.getLogger(__name__)
SERVICE = LEASE_NAME = "topogate-reconciler"
GRACE_S, DRAIN_S = 10.0, 7.0  # to end in all, and to finish what is under way: after that the lease is given back


async def serve(settings: Settings, kinds: Sequence[JobKind], metrics: Metrics) -> None:
    """Runs the reconciler until a signal stops it. Raises what ended it otherwise: an error of the start as it is, one of a task in an
    exception group.
    """
    clock = SystemClock()
    health, recorder = Health(clock), Recorder(metrics, by_local_queue=settings.gates.is_on(LOCAL_QUEUE_METRICS))

    async def connect() -> Client:
        return await Client.connect(settings.kubeconfig, user_agent="topogate-reconciler")

    # The visibility API's own, since the first sends nothing while another replica leads.
    async with await connect() as client, await connect() as of_lease, await connect() as of_visibility:
        client.pace = RateLimiter(clock, *settings.pace) if settings.pace is not None else None

        behaviour = Behaviour.read(settings)
        reconciler = Reconciler(client, clock, behaviour, namespace=settings.namespace, kinds=kinds, recorder=recorder)
        health.reconciler = reconciler
        metrics.read_by(reconciler.read_gauges)
        if settings.leader_elect:
            health.election = _build_election(settings, of_lease, clock, connect)
            client.fence = health.election.count_seconds_left

        visibility = _build_visibility(settings, of_visibility, reconciler, clock)

        def is_leading() -> bool:
            return reconciler.deciding is not None and (health.election is None or health.election.leads)

        async def main(group: asyncio.TaskGroup) -> None:
            start_eternal(group, "event loop lag", LoopLag(clock, on_lag=recorder.record_lag).run())
            start_eternal(group, "metrics", metrics.run(clock))
            start_eternal(group, "the reconciler", reconciler.run(health.election))
            if visibility is not None:
                start_eternal(group, "the visibility API", visibility.run())

        async def stop() -> None:
            health.stopping = True
            if reconciler.deciding is not None:
                with suppress(TimeoutError):  # writes that an API server does not answer in time are found out about by the next leader
                    async with asyncio.timeout(DRAIN_S):
                        await reconciler.deciding.drain()

        metrics.read_by(lambda: {LEADER: {(): is_leading()}, TASKS: {(): len(asyncio.all_tasks())}})
        ports = serve_probes(
            settings.health_address,
            metrics=metrics,
            metrics_host=settings.metrics_address,
            metrics_port=settings.metrics_port,
            health_port=settings.health_port,
            why_not_alive=health.find_dead_reason,
            why_not_ready=health.find_unready_reason,
        )
        async with ports:
            await run_until_stopped(main, grace_s=GRACE_S, on_stop=stop)


def _build_election(settings: Settings, client: Client, clock: Clock, connect: Callable[[], Awaitable[Client]]) -> LeaderElection:
    rules = settings.lease
    return LeaderElection(
        client,
        settings.namespace,
        LEASE_NAME,
        settings.identity,
        lease_duration_s=rules.lease_duration_s,
        renew_deadline_s=rules.renew_deadline_s,
        retry_period_s=rules.retry_period_s,
        clock=clock,
        connect=connect,
    )


def _build_visibility(settings: Settings, client: Client, reconciler: Reconciler, clock: Clock) -> VisibilityApi | None:
    if settings.visibility is None:
        return None
    observed = reconciler.observed
    return VisibilityApi(settings.visibility, client, observed, lambda: reconciler.is_complete, clock, settings.pods_ready)


def _find_first(error: Exception) -> Exception:
    """Of an exception group the first that is none."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def main(arguments: list[str] | None = None) -> int:
    """Runs the reconciler until a signal stops it. Returns its exit status: 0 after a signal, 1 where it cannot start or a part of it has
    ended, 2 for an unusable kubeconfig. Wrong arguments end the process with status 2.
    """
    settings = parse(arguments)
    logs.configure(settings.log_level)
    exclude_survivors_of_long_collections()
    for warning in settings.gates.warnings:
        logger.warning("a feature gate draws a warning", extra={"why": warning})
    for warning in settings.warnings:
        logger.warning("a setting of the configuration file", extra={"why": warning})
    sampling = Sampling(slow_s=settings.trace_slow_s, keeps=REFUSED, alone=BEGINS, work=WORK)
    endpoint, protocol = settings.otlp_endpoint, settings.otlp_protocol
    traces = telemetry.set_up(SERVICE, endpoint=endpoint, protocol=protocol, ratio=settings.trace_ratio, sampling=sampling)
    metrics = Metrics(SERVICE, OF_RECONCILER, endpoint=endpoint, protocol=protocol)
    try:
        asyncio.run(serve(settings, with_integrations(plugins.load(INTEGRATIONS)), metrics))
    except (plugins.BrokenPlugin, UnusableIntegration, OSError) as error:
        logger.error("the reconciler cannot start", extra={"error": str(error)})
        return 1
    except UnusableKubeconfig as error:
        logger.error("the reconciler cannot start", extra={"error": str(error)})
        return 2  # as for wrong arguments: it will not get better by itself
    except Exception as error:
        lost = error.subgroup(LeadershipLost) if isinstance(error, ExceptionGroup) else None
        if lost is None:
            logger.exception("the reconciler ends")
        else:
            logger.error("the reconciler ends: another process leads", extra={"error": str(_find_first(lost))})
        return 1
    finally:
        traces.shutdown()
        metrics.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())

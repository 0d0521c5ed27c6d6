"""`python -m reconciler`: the reconciler process."""

import asyncio
import logging
import sys
from collections.abc import Sequence

from core.jobs.contract import JobKind
from core.jobs.kinds import INTEGRATIONS, UnusableIntegration, with_integrations
from core.model.gates import PARTIAL_ADMISSION
from core.queueing.second_pass import NodeReplacement
from core.runtime import logs, plugins, telemetry
from core.runtime.client import Client
from core.runtime.clock import SystemClock
from core.runtime.kubeconfig import UnusableKubeconfig
from core.runtime.lease import LeaderElection
from core.runtime.pace import Pace
from core.runtime.tasks import run_until_stopped
from reconciler.app import Reconciler
from reconciler.settings import Settings, parse

logger = logging.getLogger(__name__)
LEASE_NAME = "topogate-reconciler"
GRACE_S = 10.0


async def serve(settings: Settings, kinds: Sequence[JobKind]) -> None:
    """Runs until stopped by a signal; raises what ended it otherwise."""
    clock = SystemClock()
    async with await Client.connect(settings.kubeconfig, user_agent="topogate-reconciler") as client:
        client.pace = Pace(clock, *settings.pace) if settings.pace is not None else None

        async def work() -> None:
            reconciler = Reconciler(
                client,
                clock,
                settings.profiles,
                namespace=settings.namespace,
                kinds=kinds,
                reserve_daemon_sets=settings.reserve_daemon_sets,
                nominates_nodes=settings.nominates_nodes,
                pods_ready=settings.pods_ready,
                second_pass=settings.second_pass,
                replacement=NodeReplacement.from_gates(settings.gates),
                resource_rules=settings.resources,
                gates=settings.gates,
                sharing=settings.fair_sharing,
                shrinks=settings.gates.is_on(PARTIAL_ADMISSION),
            )
            await reconciler.run()

        async def main(group: asyncio.TaskGroup) -> None:
            if settings.leader_elect:
                await LeaderElection(client, settings.namespace, LEASE_NAME, settings.identity, clock=clock).run(work)
            else:
                await work()

        await run_until_stopped(main, grace_s=GRACE_S)


def main() -> int:
    settings = parse()
    logs.configure(settings.log_level)
    for warning in settings.gates.warnings:
        logger.warning("a setting will not last", extra={"why": warning})
    for warning in settings.warnings:
        logger.warning("a setting of the configuration file", extra={"why": warning})
    traces = telemetry.setup("topogate-reconciler", endpoint=settings.otlp_endpoint)
    try:
        asyncio.run(serve(settings, with_integrations(plugins.load(INTEGRATIONS))))
    except (plugins.BrokenPlugin, UnusableIntegration) as error:
        logger.error("the reconciler cannot start", extra={"error": str(error)})
        return 1
    except UnusableKubeconfig as error:
        logger.error("the reconciler cannot start", extra={"error": str(error)})
        return 2  # as for wrong arguments: it will not get better by itself
    except Exception:
        logger.exception("the reconciler ends")
        return 1
    finally:
        traces.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())

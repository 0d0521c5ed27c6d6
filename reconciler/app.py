"""The reconciler put together: informers, state, loops."""

import asyncio
import logging

from core.placement.profile import MIXED
from core.runtime.client import Client
from core.runtime.clock import Clock
from core.runtime.tasks import eternal
from reconciler.apply import Writer
from reconciler.jobs import Jobs
from reconciler.observed import Observed
from reconciler.queues import Queues
from reconciler.scheduler import Scheduler
from reconciler.ungater import Ungater

logger = logging.getLogger(__name__)


class Reconciler:
    """Everything that runs while this process leads."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.observed = Observed(client, clock)
        writer = Writer(client, clock)
        self.scheduler = Scheduler(self.observed, writer, clock, MIXED)
        self.jobs = Jobs(self.observed, writer, clock)
        self.ungater = Ungater(self.observed, writer, clock)
        self.queues = Queues(self.observed, writer, clock)

    async def run(self) -> None:
        """Never returns: lists everything, then works. Whatever ends a part ends all."""
        async with asyncio.TaskGroup() as group:
            await self.observed.start(group)
            logger.info(
                "state is complete",
                extra={"nodes": len(self.observed.nodes.store), "workloads": len(self.observed.workloads.store)},
            )
            eternal(group, "scheduler", self.scheduler.run())
            for part in (self.jobs, self.ungater, self.queues):
                eternal(group, part.controller.name, part.controller.run())

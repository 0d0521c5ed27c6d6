"""The reconciler put together: informers, state, loops."""

import asyncio
import logging
from collections.abc import Sequence

from core.jobs.contract import JobKind
from core.jobs.kinds import KINDS
from core.model.configuration import FairSharing, ResourceRules, SecondPass
from core.model.gates import ELASTIC_JOBS, ELASTIC_JOBS_WITH_TOPOLOGY, NO_GATES, RECLAIMABLE_PODS, ChosenGates
from core.model.pods_ready import PodsReadyRules
from core.names import SYSTEM_NAMESPACE
from core.placement.profile import Profiles
from core.queueing.second_pass import REPLACES, NodeReplacement
from core.runtime.client import Client
from core.runtime.clock import Clock
from core.runtime.tasks import eternal
from reconciler.activity import Activity
from reconciler.apply import Writer
from reconciler.checks import Checks
from reconciler.jobs import Jobs
from reconciler.observed import Observed
from reconciler.orphans import Orphans
from reconciler.pausing import Pausing
from reconciler.pods import Pods
from reconciler.pods_ready import PodsReady
from reconciler.provisioning import Provisioning
from reconciler.queues import Queues
from reconciler.reclaimable import Reclaimable
from reconciler.scheduler import Scheduler
from reconciler.strangers import Strangers
from reconciler.ungater import Ungater

logger = logging.getLogger(__name__)
AUDIT_S = 60.0


class Reconciler:
    """Everything that runs while this process leads."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        profiles: Profiles,
        *,
        namespace: str = SYSTEM_NAMESPACE,
        kinds: Sequence[JobKind] = KINDS,
        reserve_daemon_sets: bool = True,
        nominates_nodes: bool = False,
        pods_ready: PodsReadyRules | None = None,
        second_pass: SecondPass = SecondPass(),  # noqa: B008, a frozen value
        replacement: NodeReplacement = REPLACES,
        resource_rules: ResourceRules | None = None,
        gates: ChosenGates = NO_GATES,
        sharing: FairSharing | None = None,
        shrinks: bool = True,
    ) -> None:
        self._clock = clock
        reclaims = gates.is_on(RECLAIMABLE_PODS)
        self.observed = Observed(
            client,
            clock,
            namespace=namespace,
            kinds=kinds,
            reserve_daemon_sets=reserve_daemon_sets,
            resource_rules=resource_rules,
            reclaims_pods=reclaims,
        )
        writer = Writer(client, clock, paused=lambda: self.observed.state.pause)
        self.scheduler = Scheduler(self.observed, writer, clock, profiles, pods_ready, second_pass, replacement, sharing, shrinks=shrinks)
        self.jobs = Jobs(self.observed, writer, clock, is_elastic=gates.is_on(ELASTIC_JOBS) and gates.is_on(ELASTIC_JOBS_WITH_TOPOLOGY))
        self.pods = Pods(self.observed, writer, clock)
        self.activity = Activity(self.observed, writer, clock)
        self.reclaimable = Reclaimable(self.observed, writer, clock) if reclaims else None
        self.orphans = Orphans(self.observed, writer, clock)
        self.strangers = Strangers(self.observed, writer, clock)
        self.ungater = Ungater(self.observed, writer, clock, nominates=nominates_nodes)
        self.checks = Checks(self.observed, writer, clock, second_pass)
        self.provisioning = Provisioning(self.observed, writer, clock)
        self.queues = Queues(self.observed, writer, clock, shares_fairly=sharing is not None)
        self.pods_ready = PodsReady(self.observed, writer, clock, pods_ready) if pods_ready is not None else None
        parts = (
            self.jobs,
            self.pods,
            self.activity,
            self.reclaimable,
            self.orphans,
            self.strangers,
            self.ungater,
            self.queues,
            self.checks,
            self.provisioning,
            self.pods_ready,
        )
        self._controllers = [part.controller for part in parts if part is not None]
        self.pause = Pausing(self.observed, self._controllers)

    async def run(self) -> None:
        """Never returns: lists everything, then works. Whatever ends a part ends all."""
        async with asyncio.TaskGroup() as group:
            await self.observed.start(group)
            logger.info(
                "state is complete",
                extra={"nodes": len(self.observed.nodes.store), "workloads": len(self.observed.workloads.store)},
            )
            eternal(group, "scheduler", self.scheduler.run())
            eternal(group, "ledger audit", self._audit())
            for controller in self._controllers:
                eternal(group, controller.name, controller.run())

    async def _audit(self) -> None:
        """Recounts the ledger now and then; a drift is a bug of ours that should be known before users meet it (DESIGN decision 7)."""
        while True:
            await self._clock.sleep(AUDIT_S)
            drift = self.observed.state.ledger.drift()
            if drift:
                node, (used, counted) = next(iter(drift.items()))
                logger.error("ledger drifts", extra={"nodes": len(drift), "node": node, "used": dict(used), "counted": dict(counted)})

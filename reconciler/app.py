"""The reconciler put together: informers, state, loops."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from core.jobs.contract import JobKind
from core.jobs.kinds.registry import KINDS
from core.model.gates import (
    DEVICES_ON_NODES,
    ELASTIC_JOBS,
    ELASTIC_JOBS_WITH_TOPOLOGY,
    LOCAL_QUEUE_METRICS,
    PARTIAL_SLICES,
    POD_GROUPS,
    RECLAIMABLE_PODS,
    SPREADING,
)
from core.names import SYSTEM_NAMESPACE
from core.plan.steps import pacing
from core.runtime.clock import Clock
from core.runtime.controller import Controller
from core.runtime.garbage import give_back_pages
from core.runtime.http.client import Client
from core.runtime.lease import LeaderElection
from core.runtime.report.metrics import Reading
from core.runtime.tasks import start_eternal
from core.runtime.watch.late_handlers import delay_handlers
from core.state.ledger import Drift
from core.state.promises import Missing, find_missing
from reconciler.behaviour import Behaviour
from reconciler.execute.event_recorder import Reporter
from reconciler.execute.executor import Executor
from reconciler.execute.recorder import UNRECORDED, Recorder
from reconciler.jobs.jobs import Jobs
from reconciler.jobs.podgroups_of_jobs import PodGroupsOfJobs
from reconciler.jobs.reclaimable import Reclaimable
from reconciler.measure.gauges import Gauges, read_controllers
from reconciler.measure.latency_metrics import Milestones
from reconciler.nodes.domain_health import DomainHealth
from reconciler.nodes.mass_not_ready import Storms
from reconciler.nodes.node_health import NodeHealth
from reconciler.nodes.spares import Spares
from reconciler.observe.observed import Observed
from reconciler.observe.sync_errors import Troubles
from reconciler.podgroups.group_plugins import GroupPlugins
from reconciler.podgroups.podgroups import PodGroups
from reconciler.pods.free_members import FreeMembers
from reconciler.pods.orphaned_gated_pods import Strangers
from reconciler.pods.orphans import Orphans
from reconciler.pods.pods import Pods
from reconciler.pods.ungater import Ungater
from reconciler.schedule.scheduler import Scheduler
from reconciler.workloads.activity import Activity
from reconciler.workloads.checks import Checks
from reconciler.workloads.drift import DriftAudit
from reconciler.workloads.pausing import Pausing
from reconciler.workloads.pods_ready import PodsReady
from reconciler.workloads.provisioning import Provisioning
from reconciler.workloads.queues import Queues

logger = logging.getLogger(__name__)
SHOWN = 10  # workloads that an audit describes; of more only the number is logged


class Reconciler:
    """Watches the cluster all the time, and decides while it leads.

    The deciding parts are created when it becomes the leader, and get everything that was observed until then. So a
    successor decides as soon as it leads, however many objects there are, and a replica that waits for years keeps no
    more than the present objects. No decision is made before all parts have got every object; meanwhile the event loop
    runs other tasks as well.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        behaviour: Behaviour,
        *,
        namespace: str = SYSTEM_NAMESPACE,
        kinds: Sequence[JobKind] = KINDS,
        recorder: Recorder = UNRECORDED,
    ) -> None:
        self._client, self._clock = client, clock
        self.is_complete = False  # whether everything has been listed once
        self.deciding: Deciding | None = None
        self.observed = Observed(
            client,
            clock,
            namespace=namespace,
            kinds=kinds,
            reserve_daemon_sets=behaviour.reserve_daemon_sets,
            resource_rules=behaviour.resource_rules,
            reclaims_pods=behaviour.gates.is_on(RECLAIMABLE_PODS),
            keeps_spares=behaviour.replacement.is_on,
            places_groups=behaviour.gates.is_on(POD_GROUPS),
            partial_slices=behaviour.gates.is_on(PARTIAL_SLICES),
            spreads=behaviour.gates.is_on(SPREADING),
            bounds_devices=behaviour.gates.is_on(DEVICES_ON_NODES),
            copied_labels=behaviour.copied_labels,
        )
        client.on_reply = self.observed.observe_reply
        self.troubles = Troubles(self.observed, clock, client)
        self.pause = Pausing(self.observed, lambda: self.deciding.controllers if self.deciding is not None else ())
        executor = Executor(client, clock, Reporter(client, clock, self.observed, recorder), paused=lambda: self.pause.state)
        self._prepare = partial(Deciding, self.observed, executor, clock, behaviour, recorder)

    def read_gauges(self) -> Reading:
        """Returns the present values of all gauges, per instrument by label values; empty while this process does not decide: of several
        replicas one must report them.
        """
        return self.deciding.read_gauges() if self.deciding is not None else {}

    async def run(self, election: LeaderElection | None) -> None:
        """Lists and watches the cluster, and makes decisions: at once where `election` is None, else while it is won, once the watches have
        caught up with what was written before. Never returns. Raises what ends a part, in an exception group: LeadershipLost, or
        TimeoutError where a watch does not catch up, among others."""

        async def wait_and_lead(election: LeaderElection) -> None:
            await self.observed.wait_for_watches(self._client, self._clock, election.handed_over)
            await self.lead()

        async with asyncio.TaskGroup() as group:
            # Watches are complete before it leads, so that a new leader decides at once, however much there is to list.
            await self.follow(group)
            if election is not None:
                await election.run(partial(wait_and_lead, election))
            else:
                await self.lead()

    async def follow(self, group: asyncio.TaskGroup) -> None:
        """Starts tasks in `group` that list everything and keep it up to date, and that end what is reserved for a time. Sets `is_complete`
        and returns once all is listed, but for kinds that cannot be listed for a while."""
        start_eternal(group, "what cannot be seen", self.troubles.run())
        start_eternal(group, "pages given back", self._give_back())
        start_eternal(group, "the time", self._observe_time())
        for number, again in enumerate(self.observed.again):
            start_eternal(group, f"objects looked at again {number}", again.run())
        await self.observed.start(group)
        self.is_complete = True
        logger.info(
            "state is complete",
            extra={"nodes": len(self.observed.nodes.store), "workloads": len(self.observed.workloads.store)},
        )

    async def _observe_time(self) -> None:
        """Ends what is reserved for a time."""
        while True:
            if self.observed.state.observe_time(self._clock.monotonic(), self._clock.now().timestamp()) and self.deciding is not None:
                self.deciding.scheduler.wake_in(0)
            await self._clock.sleep(pacing.CLOCK_LOOK_S)

    async def _give_back(self) -> None:
        while True:
            await self._clock.sleep(pacing.PAGES_S)
            give_back_pages()

    async def lead(self) -> None:
        """Creates the deciding parts and sets `deciding`; then decides and writes by what `follow` keeps up to date. Never returns; raises
        what ends a part, in an exception group."""
        with delay_handlers() as late:
            deciding = self._prepare()
        await late.run_calls(self._clock)
        self.deciding = deciding
        logger.info("deciding")
        await deciding.run()


class Deciding:
    """All parts that decide and write."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock, behaviour: Behaviour, recorder: Recorder) -> None:
        self._observed, self._executor, self._clock = observed, executor, clock
        self._is_draining = False
        gates, health, replacement = behaviour.gates, behaviour.node_health, behaviour.replacement
        is_fair, by_local_queue = behaviour.sharing is not None, gates.is_on(LOCAL_QUEUE_METRICS)
        self.storms = Storms(observed, clock, health.storm)
        self.scheduler = Scheduler(
            observed,
            executor,
            clock,
            behaviour.profiles,
            behaviour.pods_ready,
            behaviour.second_pass,
            replacement,
            behaviour.sharing,
            shrinks=behaviour.shrinks,
            storms=self.storms,
            requeue=health.requeue,
            recorder=recorder,
        )
        is_elastic, with_topology = gates.is_on(ELASTIC_JOBS), gates.is_on(ELASTIC_JOBS_WITH_TOPOLOGY)
        self.jobs = Jobs(observed, executor, clock, is_elastic=is_elastic, with_topology=with_topology)
        self.pods = Pods(observed, executor, clock)
        self.activity = Activity(observed, executor, clock)
        self.reclaimable = Reclaimable(observed, executor, clock) if gates.is_on(RECLAIMABLE_PODS) else None
        self.orphans = Orphans(observed, executor, clock)
        self.strangers = Strangers(observed, executor, clock)
        self.ungater = Ungater(observed, executor, clock, nominates=behaviour.nominates_nodes, waits_for_nodes=replacement.is_on)
        self.checks = Checks(observed, executor, clock, behaviour.second_pass)
        self.provisioning = Provisioning(observed, executor, clock)
        self.queues = Queues(observed, executor, clock, shares_fairly=is_fair, storms=self.storms)
        self.node_health = NodeHealth(observed, executor, clock, health, self.storms.is_affected) if replacement.is_on else None
        self.domain_health = DomainHealth(observed, executor, clock, health, self.storms.is_affected) if replacement.is_on else None
        waits = behaviour.pods_ready is not None or behaviour.own_pods_ready.reads_times
        ready_rules = behaviour.pods_ready, behaviour.own_pods_ready
        self.pods_ready = PodsReady(observed, executor, clock, *ready_rules) if waits else None
        self.spares = Spares(
            observed, executor, clock, replacement.leaving_taints, self.storms.is_affected, lambda: self.scheduler.makes_room
        )
        plugins = GroupPlugins(behaviour.group_plugins, clock, recorder) if gates.is_on(POD_GROUPS) else None
        self.pod_groups = PodGroups(observed, executor, clock, plugins, behaviour.pod_groups, recorder) if plugins is not None else None
        self.pod_groups_of_jobs = PodGroupsOfJobs(observed, executor, clock) if plugins is not None else None
        self.free_members = FreeMembers(observed, executor, clock) if plugins is None else None
        self.drift = DriftAudit(observed, executor, clock)
        self.milestones = Milestones(observed, clock, recorder)
        self.gauges = Gauges(observed, self.scheduler, clock, shares_fairly=is_fair, storms=self.storms, by_local_queue=by_local_queue)
        self._connect()

    def _connect(self) -> None:
        """What one part has to do with another."""
        if self.node_health is not None:
            self.node_health.stuck.on_change.append(lambda: self.scheduler.wake_in(0))
        self.gauges.spares = self.spares.count
        if self.pod_groups is not None:
            self.gauges.pod_groups = self.pod_groups.count_states
        self.gauges.adrift = lambda: {kind.value: count for kind, count in self.drift.counts.items()}
        for aside in self._observed.set_aside.objects:
            self._executor.reporter.report_set_aside(aside)
        self._observed.set_aside.on_add.append(self._executor.reporter.report_set_aside)

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """Returns the controllers of all parts; parts that a setting switches off have none."""
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
            self.node_health,
            self.domain_health,
            self.spares,
            self.pod_groups,
            self.pod_groups_of_jobs,
            self.free_members,
        )
        return tuple(part.controller for part in parts if part is not None)

    def read_gauges(self) -> Reading:
        """Returns the present values of all gauges (`Gauges.read`) and of the controllers' queues (`read_controllers`), per instrument by
        label values."""
        return {**self.gauges.read(), **read_controllers(self.controllers)}

    async def run(self) -> None:
        """Runs all deciding parts and never returns. Raises what ends one of them, in an exception group."""
        async with asyncio.TaskGroup() as group:
            start_eternal(group, "events", self._executor.reporter.run())
            start_eternal(group, "scheduler", self.scheduler.run())
            start_eternal(group, "ledger audit", self._audit())
            start_eternal(group, "storms", self.storms.run())
            start_eternal(group, "drift audit", self.drift.run())
            if self.pod_groups is not None:
                start_eternal(group, "plugins of groups", self.pod_groups.plugins.run())
            for controller in self.controllers:
                start_eternal(group, controller.name, self._run_controller(controller))

    async def _run_controller(self, controller: Controller) -> None:
        await controller.run()
        if self._is_draining:
            await asyncio.Event().wait()  # the process ends soon

    async def drain(self) -> None:
        """Stops the scheduler and all controllers: they begin nothing more. Returns once the writes that are under way have been answered,
        and queued events have been written for `pacing.EVENTS_DRAIN_S` seconds. `run` goes on, with the audits."""
        self._is_draining = True
        await asyncio.gather(self.scheduler.drain(), *(controller.drain() for controller in self.controllers))
        await self._executor.reporter.settle(pacing.EVENTS_DRAIN_S)

    async def _audit(self) -> None:
        """Recounts the ledger at intervals: a drift is a bug of topogate (decision 7 of docs/decisions/0004)."""
        while True:
            await self._clock.sleep(pacing.AUDIT_S)
            drift, missing = await self._recount(), await self._find_missing()
            self.gauges.drifting = len(drift) + len(missing)
            for key, why in list(missing.items())[:SHOWN]:
                logger.error("an assignment is not reserved", extra={"workload": key, "why": why})
            if drift:
                node, (used, counted) = next(iter(drift.items()))
                logger.error("ledger drifts", extra={"nodes": len(drift), "node": node, "used": dict(used), "counted": dict(counted)})

    async def _find_missing(self) -> Missing:
        """What workloads were promised and the ledger does not have, found twice: a decision may be in between."""
        first, second = await self._find_missing_now(), await self._find_missing_now()
        return {key: why for key, why in second.items() if key in first}

    async def _find_missing_now(self) -> Missing:
        found: Missing = {}
        for step, missing in enumerate(find_missing(self._observed.state)):
            if missing is not None:
                found = missing
            elif step % pacing.RECOUNTED_AT_ONCE == 0:
                await self._clock.sleep(0)
        return found

    async def _recount(self) -> Drift:
        drift: Drift = {}
        for step, found in enumerate(self._observed.state.ledger.audit()):
            if found is not None:
                drift = found
            elif step % pacing.RECOUNTED_AT_ONCE == 0:
                await self._clock.sleep(0)
        return drift

"""What the reconciler would decide now, for commands that only read: the same state, the same cycle, nothing written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from core.jobs.contract import JobKind
from core.jobs.kinds.registry import KINDS
from core.model.gates import DEVICES_ON_NODES, NODE_REPLACEMENT, PARTIAL_ADMISSION, PARTIAL_SLICES, RECLAIMABLE_PODS, SPREADING
from core.podgroups.members import GroupKey, Member
from core.runtime.clock import Clock
from core.runtime.http.client import Client
from core.state.facts import WorkloadFacts
from reconciler.execute.tracing import parse_time
from reconciler.observe.observed import Observed
from reconciler.settings import Settings

if TYPE_CHECKING:  # `topogate queue` decides nothing and does not wait for what decides
    from core.podgroups.acting import GroupStep
    from core.queueing.cycle.run import Verdict

_AT_ONCE_S = float("inf")  # a command does not wait for pods that may come


class Outlook:
    """A cluster as it was listed once (`observed.list_once`), or as files describe it (`observed.fill`)."""

    def __init__(self, client: Client, clock: Clock, settings: Settings, kinds: Sequence[JobKind] = KINDS) -> None:
        self.settings = settings
        self._clock = clock
        self.observed = Observed(
            client,
            clock,
            namespace=settings.namespace,
            kinds=kinds,
            reserve_daemon_sets=settings.reserve_daemon_sets,
            resource_rules=settings.resources,
            reclaims_pods=settings.gates.is_on(RECLAIMABLE_PODS),
            keeps_spares=settings.gates.is_on(NODE_REPLACEMENT),
            places_groups=True,
            partial_slices=settings.gates.is_on(PARTIAL_SLICES),
            spreads=settings.gates.is_on(SPREADING),
            bounds_devices=settings.gates.is_on(DEVICES_ON_NODES),
            copied_labels=settings.copied_labels,
        )
        self.state = self.observed.state

    def decide(self, keys: Collection[str]) -> dict[str, Verdict]:
        """Returns the verdicts on the workloads with these keys, by key. Like the reconciler it decides first on all that have their turn
        before them. A key has none if the workload is unknown, does not wait, or is to be queued again later only.

        As in the reconciler what is admitted on the way is used from then on, here in the state alone."""
        from core.queueing.cycle.cycle import Cycle
        from core.queueing.cycle.second_pass import NodeReplacement

        settings = self.settings
        cycle = Cycle(
            self.state,
            settings.profiles,
            settings.pods_ready,
            NodeReplacement.from_gates(settings.gates, settings.node_health.leaving_taints),
            settings.fair_sharing,
            shrinks=settings.gates.is_on(PARTIAL_ADMISSION),
        )
        found: dict[str, Verdict] = {}
        for verdict in cycle.run(is_held_back=self.list_later().__contains__):
            if verdict.workload.key in keys:
                found[verdict.workload.key] = verdict
            if len(found) == len(keys):
                break
        return found

    def now(self) -> datetime:
        """Returns the present wall time in UTC, by which `is_later` judges."""
        return self._clock.now()

    def plan_group(self, key: GroupKey) -> tuple[list[Member], GroupStep]:
        """Returns the pods of one replica of a group, in the order of their keys, and its next step. Pods that are over are there, too. The
        step is planned with the default plugins, and as if no more pods would come. Changes nothing."""
        from core.podgroups.algorithm import default_plugins
        from reconciler.podgroups.group_steps import list_members, plan_next_step

        members, group = list(list_members(self.observed, key).values()), self.observed.find_pod_group(f"{key.namespace}/{key.name}")
        return members, plan_next_step(self.observed, default_plugins(), self.settings.pod_groups, key, group, members, _AT_ONCE_S)

    def list_later(self) -> set[str]:
        """Returns the uids of the workloads that may be queued again only later than now (`is_later`)."""
        return {facts.uid for facts in self.state.workloads.facts.values() if self.is_later(facts)}

    def is_later(self, workload: WorkloadFacts) -> bool:
        """Whether a workload may be queued again only later than now (`status.requeueState.requeueAt`); False where it has none."""
        until = parse_time(workload.requeue_at)
        return until is not None and until > self._clock.now()

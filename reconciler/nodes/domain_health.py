"""Evicts workloads when a domain of several nodes no longer holds what was assigned to it
(`core.queueing.cycle.domain_room`).

Level-triggered, a workload at a time. A shortage counts once it has lasted as long as a node may be not ready; a storm
holds it back.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial

from core.model.node_health_rules import HealthRules
from core.names import HOSTNAME_LABEL
from core.plan.pods.node_steps import plan_end_of_short
from core.plan.steps import pacing
from core.queueing.cycle.domain_room import count_pods, find_short, list_wide
from core.runtime.apart import FEW, run_apart
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import Item
from core.state.facts import WorkloadFacts, find_family
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.nodes.node_memory import place_of
from reconciler.observe.indexes import list_workloads_of_pod
from reconciler.observe.observed import Observed

_Domain = tuple[tuple[str, ...], tuple[str, ...]]  # levels, values


class DomainHealth:
    """Reconciles one workload at a time by namespace/name. `is_held`: whether the workload is in a storm."""

    def __init__(
        self,
        observed: Observed,
        executor: Executor,
        clock: Clock,
        rules: HealthRules,
        is_held: Callable[[WorkloadFacts], bool] = lambda workload: False,
    ) -> None:
        self._observed, self._clock, self._rules, self._is_held = observed, clock, rules, is_held
        self._executor = executor
        self._domains: dict[str, frozenset[_Domain]] = {}  # by workload, of several nodes each
        self._users: dict[_Domain, set[str]] = defaultdict(set)  # the other way round
        self._short_since: dict[str, float] = {}  # by workload
        self.controller = build_controller("domain health", self._reconcile, clock, workers=1)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.pods.add_handler(self._on_pod)
        observed.nodes.add_handler(self._on_node)

    # --- keys to look at ----------------------------------------------------------------------------------------

    def _on_workload(self, change: Change) -> None:
        key = build_object_key(change.obj)
        facts = self._observed.state.workloads.facts.get(key) if change.new is not None else None
        now, before = _find_domains(facts), self._domains.pop(key, frozenset())
        for domain in before - now:
            self._users[domain].discard(key)
            if not self._users[domain]:
                del self._users[domain]
        for domain in now - before:
            self._users[domain].add(key)
        if now:
            self._domains[key] = now
        else:
            self._short_since.pop(key, None)
        if now != before:
            self._queue.add_after(key, pacing.NODES_BATCH_S, "workload changed")

    def _on_pod(self, change: Change) -> None:
        if not self._domains:
            return
        for workload in self._observed.list_present_of_pod(change.obj) if list_workloads_of_pod(change.obj) else ():
            if workload in self._domains:
                self._queue.add_after(workload, pacing.NODES_BATCH_S, "pod changed")

    def _on_node(self, change: Change) -> None:
        if not self._users or (change.old is not None and change.new is not None and place_of(change.old) == place_of(change.new)):
            return
        for node in (change.old, change.new):
            labels = (node["metadata"].get("labels") or {}) if node is not None else {}
            for levels in {levels for levels, _ in self._users}:
                for key in self._users.get((levels, tuple(labels.get(level, "") for level in levels)), ()):
                    self._queue.add_after(key, pacing.NODES_BATCH_S, f"node {change.obj['metadata']['name']} changed")

    # --- one workload -------------------------------------------------------------------------------------------

    async def _reconcile(self, item: Item) -> Result:
        return await self.reconcile(str(item.key))

    async def reconcile(self, key: str) -> Result:
        """Evicts a running workload where domains of several nodes that it is assigned to have lacked room for its pods for
        `not_ready_delay_s` seconds; the time goes on as long as any of them does. Waits in a storm, and while a decision on it is being
        written. Returns RequeueAfter with the seconds until it is to be judged again, else Done. Raises KubeError where a write fails, and
        Paused while evictions are paused."""
        workload = self._observed.workloads.store.get(key)
        facts = self._observed.state.workloads.facts.get(key)
        if workload is None or facts is None or not facts.runs:
            self._short_since.pop(key, None)
            return Done()
        if self._observed.state.workloads.is_assumed(key):
            return RequeueAfter(pacing.NODES_BATCH_S)
        state, pods = self._observed.state, self._observed.list_pods(find_family(workload))
        wide = list_wide(state, facts)
        counted = await run_apart(len(pods), partial(count_pods, wide, facts.owner_uid, pods, state.nodes))
        if self._observed.workloads.store.get(key) is not workload or state.workloads.is_assumed(key):
            return RequeueAfter(pacing.NODES_BATCH_S)
        if len(pods) > FEW:
            before, wide = wide, list_wide(state, facts)
            if [each.nodes for each in wide] != [each.nodes for each in before]:
                return RequeueAfter(pacing.NODES_BATCH_S)
        short = find_short(state, facts, wide, counted)
        if short is None:
            self._short_since.pop(key, None)
            return Done()
        now = self._clock.monotonic()
        left = self._short_since.setdefault(key, now) + self._rules.not_ready_delay_s - now
        if left > 0:
            return RequeueAfter(left)
        if self._is_held(facts):
            return RequeueAfter(pacing.STORM_LOOK_S)
        return await self._executor.execute(plan_end_of_short(workload, short.sentence, self._rules, self._clock.now()))


def _find_domains(facts: WorkloadFacts | None) -> frozenset[_Domain]:
    if facts is None or facts.admission is None or not facts.runs:
        return frozenset()
    assignments = (given.assignment for given in facts.admission.pod_sets)
    return frozenset(
        (tuple(assignment.levels), domain.values)
        for assignment in assignments
        if assignment is not None and assignment.levels[-1] != HOSTNAME_LABEL
        for domain in assignment.domains
    )

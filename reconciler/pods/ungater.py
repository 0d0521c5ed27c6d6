"""The topology ungater: gives each gated pod of an admitted workload its domain, by rank where ranks are known.

Events of one workload are gathered for a second, so that the pods of a job that come one by one are placed together. A
workload is reconciled by one worker at a time. What was written to its pods is observed when it is answered; until then
they count as ungated (`reconciler.observe.pods_being_ungated`).
"""

from dataclasses import replace
from datetime import datetime
from functools import partial

from core.plan.pods.pod_units import is_unowned
from core.plan.pods.ungate_steps import BEGIN, BOUND, UngatingFacts, plan_pods
from core.plan.steps import pacing
from core.resource import Obj
from core.runtime.apart import run_apart
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import Item
from core.state.facts import WorkloadFacts, find_family
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor, Left
from reconciler.jobs.child_objects import limit_facts
from reconciler.observe.indexes import get_hostname, list_workloads_of_pod
from reconciler.observe.observed import Observed


class Ungater:
    """Reconciles one workload at a time by namespace/name."""

    def __init__(
        self, observed: Observed, executor: Executor, clock: Clock, *, nominates: bool = False, waits_for_nodes: bool = False
    ) -> None:
        """`nominates` and `waits_for_nodes` as in `UngatingFacts`."""
        self._observed, self._executor, self._clock = observed, executor, clock
        self._nominates, self._waits_for_nodes = nominates, waits_for_nodes
        self._began: dict[str, datetime] = {}  # when pods were first ungated since an admission, until all are bound
        self.controller = build_controller("ungater", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        observed.pods.add_handler(self._on_pod)
        observed.workloads.add_handler(self._on_workload)
        observed.on_pod_read.append(self._on_pod_read)

    def _on_pod_read(self, pod: Obj) -> None:
        for workload in list_workloads_of_pod(pod):
            self._queue.add_after(workload, pacing.UNGATING_BATCH_S, "its pods are known")

    def _on_pod(self, change: Change) -> None:
        for workload in list_workloads_of_pod(change.obj):
            self._queue.add_after(workload, pacing.UNGATING_BATCH_S, "pod changed")

    def _on_workload(self, change: Change) -> None:
        key = find_family(change.obj)
        if change.new is None and self._observed.find_present(key) is None:
            self._began.pop(key, None)
        else:
            self._queue.add_after(key, pacing.UNGATING_BATCH_S, "workload changed")

    async def _reconcile(self, item: Item) -> Result:
        key = str(item.key)  # by which pods name it: of an elastic job that of its first Workload
        workload = self._observed.find_present(key)
        facts = self._observed.state.workloads.facts.get(build_object_key(workload)) if workload is not None else None
        if workload is None or facts is None or not _may_run_pods(workload, facts):
            self._began.pop(key, None)
            return Done()
        if self._is_moving(facts.key):
            return RequeueAfter(pacing.UNGATING_BATCH_S)  # another place is being written
        seen = self._read(key, workload, facts)
        planned = await run_apart(len(seen.naming), partial(plan_pods, seen))
        if not self._is_given(workload, facts):
            return RequeueAfter(pacing.UNGATING_BATCH_S)  # what changed it has queued it again, or it is about to give places back
        left, began = Left(), self._clock.now()
        self._observed.ungating.begin(planned.places)
        try:
            return await self._executor.execute(planned.plan, left)
        finally:
            self._observed.ungating.end(planned.places)
            if BEGIN in left.done and self._observed.find_present(key) is not None:
                self._began[key] = began
            if BOUND in left.done:
                self._began.pop(key, None)

    def _read(self, key: str, workload: Obj, facts: WorkloadFacts) -> UngatingFacts:
        assert facts.admission is not None
        observed, lost = self._observed, self._list_lost_hosts(facts)
        return UngatingFacts(
            workload,
            replace(limit_facts(observed, facts), unhealthy_nodes=lost),
            facts.admission,
            observed.list_pods(key),
            observed.state.find_places(facts.admission.pod_sets),
            observed.pods.store.objects,
            observed.nodes.store.objects,
            observed.state.names_by_host,
            self._executor.format_now(),
            self._began.get(key),
            nominates=self._nominates,
            waits_for_nodes=self._waits_for_nodes,
        )

    def _list_lost_hosts(self, facts: WorkloadFacts) -> frozenset[str]:
        """Returns the hostnames of the lost nodes of a workload. Its status has the name of a node, or a hostname as its assignment has it;
        one that is both means the node with that hostname (`NodeHealth`)."""
        if not facts.unhealthy_nodes:
            return frozenset()
        given = facts.admission.pod_sets if facts.admission is not None else ()
        hosts = {domain.values[-1] for each in given if each.assignment is not None for domain in each.assignment.domains}
        nodes = {name: self._observed.nodes.store.get(name) for name in facts.unhealthy_nodes}
        return frozenset(name if name in hosts or node is None else get_hostname(node) for name, node in nodes.items())

    def _is_moving(self, key: str) -> bool:
        """Whether pods of a workload get other places than it has, or fewer: that is decided, or being written."""
        return self._observed.state.workloads.is_moving(key) or self._executor.is_moving(key)

    def _is_given(self, workload: Obj, facts: WorkloadFacts) -> bool:
        """Whether a workload still has the places that it had, and its pods may be ungated."""
        now = self._observed.state.workloads.facts.get(build_object_key(workload))
        if now is None or not _may_run_pods(workload, now) or self._is_moving(now.key):
            return False
        return now is facts or (now.admission, now.unhealthy_nodes) == (facts.admission, facts.unhealthy_nodes)


def _may_run_pods(workload: Obj, facts: WorkloadFacts) -> bool:
    """Whether pods of a workload may be ungated: it is admitted, and one without an owner is not being deleted."""
    return facts.admission is not None and facts.runs and not (is_unowned(workload) and facts.deleting)

"""Reclaimable pods: quota of finished pods is released for other workloads while the job runs on (KEP-78).

Level-triggered, a workload at a time: by the status of its job, where it counts such pods
(`core.jobs.contract.Reclaiming`), and by the pods of a pod group. The nodes are free as soon as the pods are gone from
them. What is written here prevents that quota and nodes are held for pods that would replace the finished ones.
"""

from collections import Counter

from core.jobs.contract import Reclaiming
from core.jobs.elastic_annotation import is_elastic
from core.plan.jobs.reclaimable import count_succeeded, plan_finished_pods
from core.plan.pods.pod_units import GROUP, find_workload_unit
from core.plan.steps import pacing
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.facts import find_family
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.observe.indexes import find_owned, list_workloads_of_pod
from reconciler.observe.observed import Observed


class Reclaimable:
    """Reconciles one workload at a time by namespace/name."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed = observed
        self._executor = executor
        self.controller = build_controller("reclaimable pods", self._reconcile, clock, workers=2)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.pods.add_handler(self._on_pod)
        for key, kind in observed.kinds.items():
            if isinstance(kind, Reclaiming):
                observed.jobs[key].add_handler(self._on_job)

    def _on_workload(self, change: Change) -> None:
        if change.new is not None:
            self._queue.add(build_object_key(change.obj), "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_job(self, change: Change) -> None:
        for workload in find_owned(self._observed.workloads.store, change.obj):
            self._queue.add_after(build_object_key(workload), pacing.RECLAIMABLE_BATCH_S, "job changed")

    def _on_pod(self, change: Change) -> None:
        if change.new is None or (change.new.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            for workload in list_workloads_of_pod(change.obj):
                self._queue.add_after(workload, pacing.RECLAIMABLE_BATCH_S, "pod is over")

    async def _reconcile(self, item: Item) -> Result:
        workload = self._observed.workloads.store.get(str(item.key))
        done = self._count_done(workload) if workload is not None else None
        if workload is None or done is None:
            return Done()
        running, has_job = self._count_running(workload), self._observed.find_job(workload) is not None
        return await self._executor.execute(plan_finished_pods(workload, done, running, self._executor.format_now(), has_job=has_job))

    def _count_running(self, workload: Obj) -> Counter[str]:
        """Pods of a workload per pod set that are past their gates and not over."""
        facts = self._observed.state.workloads.facts.get(build_object_key(workload))
        uid = facts.owner_uid if facts is not None else None
        own = (pod for pod in self._observed.list_live_pods(find_family(workload)) if pod.owner_uid == uid)
        return Counter(pod.pod_set or "" for pod in own if not pod.gated and not pod.dropped)

    def _count_done(self, workload: Obj) -> dict[str, int] | None:
        """Returns the number of finished pods per pod set; None where neither a status nor the pods show it."""
        found = self._observed.find_job(workload)
        if found is not None:
            kind, job = found
            if not isinstance(kind, Reclaiming) or is_elastic(job):
                return None  # one that may be resized sets the number of pods that it needs itself
            job, missing = self._observed.related.expand(kind, job)
            pod_sets = workload["spec"]["podSets"]
            if any(pod_set.get("minCount") is not None for pod_set in pod_sets):
                job = kind.restore(job, pod_sets)  # it may run with fewer pods than its Workload counts
            return dict(kind.count_reclaimable_pods(job)) if missing is None and kind.find_finish(job) is None else None
        unit = find_workload_unit(workload)
        if unit is None or unit.source != GROUP:
            return None
        return count_succeeded(self._observed.pods.store.list_by_index("unit", str(unit)))  # not what merely names the workload

"""waitForPodsReady: the condition PodsReady, and the timers that evict and deactivate workloads when their pods are not
ready in time.

Level-triggered, a workload at a time: the statuses alone decide what is done (`core.plan.workloads.pods_ready`), and
contain the start times of the timers. The scheduler applies the backoff that follows an eviction, whether this runs or
not.
"""

import random
from collections.abc import Callable
from typing import Any

from core.jobs.elastic_annotation import is_elastic
from core.model.own_pods_ready import NOTHING_OWN, OwnPodsReady
from core.model.pods_ready_rules import PodsReadyRules
from core.names import IS_GROUP_WORKLOAD, MAX_NOT_READY_COUNT
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.workloads.desired_workload import get_admitted_counts
from core.plan.workloads.pods_ready import Seen, are_pods_ready, plan_pods_ready
from core.plan.workloads.workload_steps import plan_action
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.facts import find_controller, find_family, is_condition_true
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.observe.indexes import find_owned
from reconciler.observe.observed import Observed

MAX_JITTER = 0.1  # of the backoff: what was evicted together does not come back together


class PodsReady:
    """Reconciles one workload at a time by namespace/name. `rules` are those of the cluster (None: only workloads with times of their own
    are waited for), `own` what of them a workload says for itself. `jitter` draws the share of a backoff that it is made longer by."""

    def __init__(
        self,
        observed: Observed,
        executor: Executor,
        clock: Clock,
        rules: PodsReadyRules | None,
        own: OwnPodsReady = NOTHING_OWN,
        jitter: Callable[[], float] = lambda: random.uniform(0.0, MAX_JITTER),
    ) -> None:
        self._observed = observed
        self._executor = executor
        self._clock = clock
        self._rules, self._own = rules, own
        self._jitter = jitter
        self.controller = build_controller("pods ready", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.pods.add_handler(self._on_pod)
        for informer in observed.jobs.values():
            informer.add_handler(self._on_job)

    def _on_workload(self, change: Change) -> None:
        if change.new is not None:
            self._queue.add(build_object_key(change.obj), "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_job(self, change: Change) -> None:
        for workload in find_owned(self._observed.workloads.store, change.obj):
            self._queue.add(build_object_key(workload), "job changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_pod(self, change: Change) -> None:
        if change.old is not None and change.new is not None and _read_relevant_state(change.old) == _read_relevant_state(change.new):
            return
        for workload in self._observed.list_present_of_pod(change.obj):
            self._queue.add_after(workload, pacing.PODS_READY_BATCH_S, "pod changed")

    async def _reconcile(self, item: Item) -> Result:
        key = str(item.key)
        workload = self._observed.workloads.store.get(key)
        rules = self._own.choose_rules(self._rules, workload) if workload is not None else None
        if workload is None or rules is None:
            return Done()
        action = plan_pods_ready(workload, self._observe(workload), rules, self._clock.now(), self._jitter())
        return await self._executor.execute(plan_action(workload, action, self._executor.format_now()))

    def _observe(self, workload: Obj) -> Seen:
        """Returns whether the pods are ready: by the status of the job where it shows that, else by the pods."""
        owner = find_controller(workload)
        if owner is None or r.build_owner_key(owner) not in self._observed.kinds:
            return Seen(self._are_pods_ready(workload))
        found = self._observed.find_job(workload)
        if found is None:
            return Seen(ready=False, over=True)
        kind, job = found
        job, _ = self._observed.related.expand(kind, job)
        started = (job.get("status") or {}).get("startTime")
        # A suspended job has no pods, whatever its status still shows of earlier ones. What an elastic job asks for
        # beyond its admission may take its time.
        reported = False if kind.is_suspended(job) else None if is_elastic(job) else kind.are_pods_ready(job)
        return Seen(self._are_pods_ready(workload) if reported is None else reported, started, kind.find_finish(job) is not None)

    def _are_pods_ready(self, workload: Obj) -> bool:
        counts, pods = get_admitted_counts(workload), self._observed.pods.store.list_by_index("workload", find_family(workload))
        is_group = IS_GROUP_WORKLOAD in (workload["metadata"].get("annotations") or {})
        return are_pods_ready(counts, pods, self._own.count_tolerated(pods, sum(counts.values())) if is_group else 0)


def _read_relevant_state(pod: Obj) -> tuple[Any, ...]:
    phase = (pod.get("status") or {}).get("phase")
    tolerated = (pod["metadata"].get("annotations") or {}).get(MAX_NOT_READY_COUNT)
    return is_condition_true(pod, "Ready"), phase == "Succeeded", bool(pod["metadata"].get("deletionTimestamp")), tolerated

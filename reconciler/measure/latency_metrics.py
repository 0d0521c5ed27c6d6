"""Transitions of workloads, counted when they are observed: in one place, whichever component wrote them.

Transitions before the start of this process were counted by its predecessor. Of changes that were missed while a watch
was cut off only the last is seen, as every reader of the API sees them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from core.names import (
    ADMISSION_GATE,
    ADMITTED,
    EVICTED,
    FINISHED,
    IS_GROUP_WORKLOAD,
    PODS_READY,
    QUOTA_RESERVED,
    REASON_RECOVERED,
    REASON_WAIT_FOR_RECOVERY,
    TOPOLOGY_GATE,
)
from core.plan.steps.eviction_counts import count_all_evictions
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.watch.store import Change
from core.state.facts import find_condition, is_condition_true
from reconciler.execute.recorder import QueuesOfWorkload, Recorder
from reconciler.execute.tracing import find_traceparent, parse_time
from reconciler.observe.indexes import list_workloads_of_pod
from reconciler.observe.observed import Observed

_COUNTED = (QUOTA_RESERVED, ADMITTED, PODS_READY, EVICTED, FINISHED)
_Conditions = Mapping[str, Mapping[str, Any]]  # that stand at True, by type


class Milestones:
    """Counts by changes of workloads, and by pods that lose their gate."""

    def __init__(self, observed: Observed, clock: Clock, recorder: Recorder) -> None:
        self._clock, self._recorder = clock, recorder
        self._queued: dict[str, datetime] = {}  # since when those were queued that hold quota; their statuses lose that time
        observed.workloads.add_handler(self._on_workload)
        observed.cluster_queues.add_handler(self._on_cluster_queue)
        observed.pods.add_handler(self._on_pod)
        self._observed = observed

    def _on_cluster_queue(self, change: Change) -> None:
        if change.new is not None:
            self._recorder.queue_seen(change.new["metadata"]["name"])

    def _on_pod(self, change: Change) -> None:
        """Gates of a pod are off: how long after the pod was there and its workload was admitted."""
        if change.old is None or change.new is None:
            return
        before = _list_gates(change.old)
        removed = before - _list_gates(change.new)
        if not removed:
            return
        workloads = filter(None, map(self._observed.find_present, list_workloads_of_pod(change.new)))
        for workload in workloads:
            admitted = (find_condition(workload, ADMITTED) or {}).get("lastTransitionTime") or ""
            since = parse_time(max(admitted, change.new["metadata"].get("creationTimestamp") or "") or None)
            if since is None:
                continue
            waited_s, traceparent = self._count_seconds_since(since), find_traceparent(workload)
            for gate in removed if is_condition_true(workload, ADMITTED) else ():
                is_group = (workload["metadata"].get("annotations") or {}).get(IS_GROUP_WORKLOAD) == "true"
                self._recorder.record_gate_removal(waited_s, gate, _queue_of(workload), traceparent, is_group=is_group)
            if before == {TOPOLOGY_GATE}:  # one that loses both gates at once is started, and needs no place
                self._recorder.record_ungating(waited_s, traceparent)

    def _on_workload(self, change: Change) -> None:
        if change.new is None:
            self._queued.pop(change.obj["metadata"]["uid"], None)
            return
        now, before = _list_true(change.new), _list_true(change.old)
        reached = {kind for kind, since in now.items() if _time(before.get(kind)) != _time(since)}
        if reached and not change.initial:
            self._count(change.new, change.old, now, before, reached)

    def _count(self, workload: Obj, old: Obj | None, now: _Conditions, before: _Conditions, reached: set[str]) -> None:
        uid, traceparent = workload["metadata"]["uid"], find_traceparent(workload)
        queue = _queue_of(workload) or _queue_of(old)
        queues = QueuesOfWorkload(queue, (workload.get("spec") or {}).get("queueName") or "", workload["metadata"]["namespace"])
        if QUOTA_RESERVED in reached:
            # The write that gives quota ends the eviction in the status; until then it was queued since that.
            since = _time(before.get(EVICTED)) or parse_time(workload["metadata"].get("creationTimestamp"))
            if since is not None:
                self._queued[uid] = since
        waited_s = self._count_seconds_since(self._queued.get(uid) or parse_time(workload["metadata"].get("creationTimestamp")))
        if QUOTA_RESERVED in reached and queue is not None:
            self._recorder.record_quota(queues, waited_s, traceparent)
        if ADMITTED in reached and queue is not None:
            has_checks = bool((workload.get("status") or {}).get("admissionChecks"))
            checked_s = self._count_seconds_since(_time(now.get(QUOTA_RESERVED))) if has_checks else None
            self._recorder.record_admission(queues, waited_s, checked_s, traceparent)
        if FINISHED in reached and queue is not None:
            self._recorder.record_finish(queues, _count_admitted(workload, now), traceparent)
        if PODS_READY in reached and queue is not None and now[PODS_READY].get("reason") == REASON_RECOVERED:
            lost = find_condition(old or {}, PODS_READY) or {}
            if lost.get("reason") == REASON_WAIT_FOR_RECOVERY:
                self._recorder.record_recovery(queues, self._count_seconds_since(_time(lost)), traceparent)
        elif PODS_READY in reached and queue is not None:
            self._recorder.record_ready(queues, waited_s, self._count_seconds_since(_time(now.get(ADMITTED))), traceparent)
        if EVICTED in reached:
            self._queued.pop(uid, None)
            is_first = count_all_evictions(workload) <= 1
            self._recorder.record_eviction(queues, str(now[EVICTED].get("reason") or ""), is_first=is_first)

    def _count_seconds_since(self, moment: datetime | None) -> float:
        return max(0.0, (self._clock.now() - moment).total_seconds()) if moment is not None else 0.0


def _list_true(workload: Obj | None) -> _Conditions:
    conditions = ((workload or {}).get("status") or {}).get("conditions") or ()
    return {c["type"]: c for c in conditions if c.get("status") == "True" and c["type"] in _COUNTED}


def _time(condition: Mapping[str, Any] | None) -> datetime | None:
    return parse_time(condition.get("lastTransitionTime")) if condition is not None else None


def _list_gates(pod: Obj) -> frozenset[str]:
    """Returns the gates of a pod that topogate removes."""
    gates = (gate.get("name") for gate in (pod.get("spec") or {}).get("schedulingGates") or ())
    return frozenset(gate for gate in gates if gate in (ADMISSION_GATE, TOPOLOGY_GATE))


def _count_admitted(workload: Obj, now: _Conditions) -> float:
    """Returns for how many seconds a workload was admitted until it finished: the present admission and, as its status has them, those
    before."""
    past_s = float((workload.get("status") or {}).get("accumulatedPastExecutionTimeSeconds") or 0)
    since, until = _time(now.get(ADMITTED)), _time(now.get(FINISHED))
    return past_s + (max(0.0, (until - since).total_seconds()) if since is not None and until is not None else 0.0)


def _queue_of(workload: Obj | None) -> str | None:
    admission = ((workload or {}).get("status") or {}).get("admission")
    return admission["clusterQueue"] if admission else None

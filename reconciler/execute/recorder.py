"""What the reconciler counts, each method one thing that happens. Names, labels and buckets are in `core.metric_names`."""

from collections.abc import Iterable
from typing import NamedTuple

from core import metric_names as m
from core.names import REASON_DEACTIVATED
from core.placement.explain.choice import Choice
from core.runtime.report.metrics import OTHER, Instrument, Sink, Unmeasured


class QueuesOfWorkload(NamedTuple):
    """Those of a workload: its ClusterQueue, where that is known, and name and namespace of its LocalQueue."""

    cluster_queue: str | None
    name: str
    namespace: str


class Recorder:
    """Counts into a sink; without one, nowhere."""

    def __init__(self, sink: Sink | None = None, *, by_local_queue: bool = False) -> None:
        self._sink = sink if sink is not None else Unmeasured()
        self._by_local_queue = by_local_queue

    # --- the scheduler ------------------------------------------------------------------------------

    def record_cycle(self, *, succeeded: bool, seconds: float) -> None:
        """Counts a cycle in which a decision was made, and records its `seconds`, both by its result: success if a workload got quota."""
        result = m.SUCCESS if succeeded else m.INADMISSIBLE
        self._sink.add(m.ADMISSION_ATTEMPTS, result)
        self._sink.record(m.ADMISSION_ATTEMPT_DURATION, seconds, result)

    def record_decision(self, *, found: bool, seconds: float) -> None:
        """Records the seconds that one decision on a workload took. `found`: whether it admits the workload. It counts no workload."""
        self._sink.record(m.DECISION_DURATION, seconds, m.FOUND if found else m.REFUSED)

    def record_placement(self, choices: Iterable[Choice], traceparent: str | None) -> None:
        """Records, for each choice of domains, how many more domains than the fewest it uses, by level; nothing for a choice without that
        number. `traceparent` names the trace of the workload.
        """
        for choice in choices:
            if choice.excess is not None:
                self._sink.record(m.EXCESS_DOMAINS, choice.excess, choice.level, traceparent=traceparent)

    def record_write(self, seconds: float, traceparent: str | None) -> None:
        """Records the seconds from the decision on an admission until it was written. `traceparent` names the trace of the workload."""
        self._sink.record(m.VERDICT_WRITE, seconds, traceparent=traceparent)

    def record_preemption(self, by_queue: str | None, reason: str) -> None:
        """Counts a workload that is preempted by another, of the ClusterQueue `by_queue` (None: not known, counted as `OTHER`), for a
        reason."""
        self._sink.add(m.PREEMPTED_WORKLOADS, by_queue or OTHER, reason)

    # --- the lives of workloads -----------------------------------------------------------------------

    def queue_seen(self, cluster_queue: str) -> None:
        """Adds 0 to the counters of a ClusterQueue, of workloads with quota and of admitted ones. They exist then, and their first count is
        seen as an increase."""
        for counter in (m.QUOTA_RESERVED_WORKLOADS, m.ADMITTED_WORKLOADS):
            self._sink.add(counter, cluster_queue, by=0)

    def record_quota(self, queues: QueuesOfWorkload, waited_s: float, traceparent: str | None) -> None:
        """Counts a workload that got quota, and records for how many seconds it had waited since it was queued. Without a ClusterQueue in
        `queues` it counts as `OTHER`; by LocalQueue it counts only where that is on."""
        self._add(m.QUOTA_RESERVED_WORKLOADS, queues)
        self._record(m.QUOTA_RESERVED_WAIT, waited_s, queues, traceparent)

    def record_admission(self, queues: QueuesOfWorkload, waited_s: float, checked_s: float | None, traceparent: str | None) -> None:
        """Counts a workload that was admitted, and records the seconds since it was queued (`waited_s`) and those that its checks took
        (`checked_s`; None: it has none, and nothing is recorded). Labels are those of `record_quota`."""
        self._add(m.ADMITTED_WORKLOADS, queues)
        self._record(m.ADMISSION_WAIT, waited_s, queues, traceparent)
        if checked_s is not None:
            self._record(m.CHECKS_WAIT, checked_s, queues, traceparent)

    def record_ready(self, queues: QueuesOfWorkload, waited_s: float, admitted_s: float, traceparent: str | None) -> None:
        """Records a workload with pods that became ready: the seconds since it was queued (`waited_s`) and since it was admitted
        (`admitted_s`). Labels are those of `record_quota`."""
        self._record(m.READY_WAIT, waited_s, queues, traceparent)
        self._record(m.ADMITTED_UNTIL_READY, admitted_s, queues, traceparent)

    def record_recovery(self, queues: QueuesOfWorkload, seconds: float, traceparent: str | None) -> None:
        """Records for how many `seconds` pods of a workload that ran were not ready until all were again. Labels are those of
        `record_quota`."""
        self._record(m.RECOVERY_WAIT, seconds, queues, traceparent)

    def record_finish(self, queues: QueuesOfWorkload, admitted_s: float, traceparent: str | None) -> None:
        """Records for how many seconds a workload that has finished was admitted in total. Labels are those of `record_quota`."""
        self._record(m.EXECUTION_TIME, admitted_s, queues, traceparent)

    def record_eviction(self, queues: QueuesOfWorkload, reason: str, *, is_first: bool) -> None:
        """Counts a workload that was evicted, by the `reason` of its condition `Evicted`. One that begins with `CAUSE_MARK` counts as
        `REASON_DEACTIVATED`, and what follows the mark as the cause; else the cause is empty. Other labels are those of `record_quota`.
        `is_first`: it was not evicted before, and is counted once more among such workloads."""
        cause = ""
        if reason.startswith(m.CAUSE_MARK):
            reason, cause = REASON_DEACTIVATED, reason.removeprefix(m.CAUSE_MARK)
        self._add(m.EVICTED_WORKLOADS, queues, reason, cause)
        if is_first:
            self._sink.add(m.EVICTED_ONCE, queues.cluster_queue or OTHER, reason, cause)

    def _add(self, counter: Instrument, queues: QueuesOfWorkload, *values: str) -> None:
        self._sink.add(counter, queues.cluster_queue or OTHER, *values)
        if self._by_local_queue:
            self._sink.add(m.BY_LOCAL_QUEUE[counter], queues.name, queues.namespace, *values)

    def _record(self, histogram: Instrument, value: float, queues: QueuesOfWorkload, traceparent: str | None) -> None:
        self._sink.record(histogram, value, queues.cluster_queue or OTHER, traceparent=traceparent)
        if self._by_local_queue:
            self._sink.record(m.BY_LOCAL_QUEUE[histogram], value, queues.name, queues.namespace, traceparent=traceparent)

    # --- groups of pods -------------------------------------------------------------------------------

    def record_group_placement(self, seconds: float) -> None:
        """Records the `seconds` from when the last pod of a group was observed until the places of its pods were written."""
        self._sink.record(m.GROUP_PLACEMENT, seconds)

    def count_group_refusal(self, reason: str) -> None:
        """Counts an evaluation of a group's replica that found no places, by the reason of its condition."""
        self._sink.add(m.GROUP_REFUSALS, reason)

    # --- plugins of other packages --------------------------------------------------------------------

    def record_plugin(self, plugin: str) -> None:
        """Adds 0 to the counters of a plugin, one for each result: they exist then, and their first count is seen as an increase."""
        for result in sorted(m.PLUGIN_ANSWERS.labels[1].values or ()):
            self._sink.add(m.PLUGIN_ANSWERS, plugin, result, by=0)

    def record_plugin_answer(self, plugin: str) -> None:
        """Counts a question that a plugin has answered."""
        self._sink.add(m.PLUGIN_ANSWERS, plugin, m.ANSWERED)

    def record_plugin_failure(self, plugin: str, kind: str) -> None:
        """Counts a question that a plugin has not answered, by the kind of the failure (`PluginFailed.kind`)."""
        self._sink.add(m.PLUGIN_ANSWERS, plugin, kind)

    # --- pods, events, the process ----------------------------------------------------------------------

    def record_ungating(self, seconds: float, traceparent: str | None) -> None:
        """Records the seconds from when a pod could have been ungated until its gate was removed. `traceparent` names the trace of its
        workload.
        """
        self._sink.record(m.UNGATE_LATENCY, seconds, traceparent=traceparent)

    def record_gate_removal(self, seconds: float, gate: str, cluster_queue: str | None, traceparent: str | None, *, is_group: bool) -> None:
        """Records the same seconds for a gate, by its name, of a pod that is started or gets its place. `cluster_queue` is that of its
        workload (None: counted as `OTHER`); `is_group`: the pod is one of a group of plain pods."""
        labels = cluster_queue or OTHER, gate, "true" if is_group else "false", m.LEADS
        self._sink.record(m.GATE_REMOVAL, seconds, *labels, traceparent=traceparent)

    def record_lag(self, seconds: float) -> None:
        """Records by how many seconds the event loop was late."""
        self._sink.record(m.LOOP_LAG, seconds)

    def record_dropped_event(self) -> None:
        """Counts an event that was not written, since there were too many."""
        self._sink.add(m.EVENTS_DROPPED)


UNRECORDED = Recorder()

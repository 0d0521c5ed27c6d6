"""Pods behind a gate of topogate's that no controller will remove: an event on the pod reports why, and what would
help.

Nothing else is done to them. The creators and owners of pods are observed a moment after the pods, so there is a delay
before the event. What belongs to a known job or unit is reported by its controller.
"""

from dataclasses import dataclass

from core.jobs.kinds.pod import has_admission_gate
from core.names import ADMISSION_GATE, EVENT_STAYS_GATED, PODGROUP_GATE, PODSET_LABEL, QUEUE_NAME_LABEL, TOPOLOGY_GATE
from core.plan.pods.pod_units import PARENTS, UNKNOWN, find_pod_unit, is_going, is_made_for, is_terminal, is_unowned
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps.steps import Event, make_plan, report
from core.plan.steps.ungate import find_excess
from core.podgroups.members import group_of
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.owners import is_orphaned
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.jobs.child_objects import limit_facts
from reconciler.observe.indexes import is_gated, list_workloads_of_pod
from reconciler.observe.observed import Observed


@dataclass(frozen=True, slots=True)
class _PodsOf:
    """The pods that name a Workload, by its key."""

    workload: str


class Strangers:
    """Looks at one pod at a time by namespace/name; pods of a Workload that is gone are added in portions first."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed = observed
        self._executor = executor
        self._clock = clock
        self._reported: dict[str, tuple[str, str]] = {}  # by key: uid and message, each reported once
        self.controller = build_controller("strangers", self._reconcile, clock)
        self._queue = self.controller.queue
        observed.pods.add_handler(self._on_pod)
        observed.workloads.add_handler(self._on_workload)

    def _on_pod(self, change: Change) -> None:
        if change.new is None:
            self._reported.pop(build_object_key(change.obj), None)
        elif self._find_reason(change.new) is not None:
            self._queue.add_after(
                build_object_key(change.new), pacing.STRANGER_PATIENCE_S, "pod waits", INITIAL_PRIORITY if change.initial else 0
            )

    def _on_workload(self, change: Change) -> None:
        if change.new is None or is_orphaned(change.new):
            self._queue.add_after(_PodsOf(build_object_key(change.obj)), pacing.STRANGER_PATIENCE_S, "the workload is gone")

    async def _reconcile(self, item: Item) -> Result:
        if isinstance(item.key, _PodsOf):
            await self._add_pods(item.key.workload)
            return Done()
        pod = self._observed.pods.store.get(str(item.key))
        why = self._find_reason(pod) if pod is not None else None
        if pod is None or why is None:
            return Done()
        reported = pod["metadata"]["uid"], why
        if self._reported.get(str(item.key)) == reported:
            return Done()
        result = await self._executor.execute(make_plan(report(Event(r.PODS, pod, EVENT_STAYS_GATED, why, warning=True))))
        self._reported[str(item.key)] = reported
        return result

    async def _add_pods(self, workload: str) -> None:
        for number, pod in enumerate(self._observed.pods.store.list_by_index("workload", workload), start=1):
            self._queue.add(build_object_key(pod), "its workload is gone")
            if number % pacing.STRANGERS_AT_ONCE == 0:
                await self._clock.sleep(0)

    def _find_reason(self, pod: Obj) -> str | None:
        """Returns why no controller will remove the gate of a pod and what would help; None where one will, or the pod
        has no gate."""
        if is_going(pod) or is_terminal(pod):
            return None
        if has_admission_gate(pod):
            return self._find_admission_reason(pod)
        return self._find_domain_reason(pod) if is_gated(pod) else self._explain_missing_group(pod)

    def _explain_missing_group(self, pod: Obj) -> str | None:
        group = group_of(pod)
        is_held = any(gate.get("name") == PODGROUP_GATE for gate in (pod.get("spec") or {}).get("schedulingGates") or ())
        if group is None or not is_held or self._observed.find_pod_group(f"{group.namespace}/{group.name}") is not None:
            return None
        return f"the gate {PODGROUP_GATE} stays on: PodGroup {group.name}, which the pod names, does not exist; create it or delete the pod"

    def _find_admission_reason(self, pod: Obj) -> str | None:
        unit = find_pod_unit(pod)
        if unit is None:
            return f"the gate {ADMISSION_GATE} is taken off queued pods only; create the pod anew with the label {QUEUE_NAME_LABEL}"
        if unit.source == UNKNOWN:
            return "the StatefulSet or LeaderWorkerSet that the pod says it is of has not made it, or has let go of it; delete the pod"
        if unit.source not in PARENTS:
            return None
        parent = self._observed.parents[unit.source].store.get(f"{unit.namespace}/{unit.name}")
        if parent is None:
            return f"its {unit.source} {unit.name} does not exist; delete the pod"
        if "spec" in parent and not is_made_for(parent, pod, self._observed.pod_facts.get(build_object_key(pod))):
            return f"{unit.source} {unit.name}, of which it says it is, has not made it; delete the pod"
        return None

    def _find_domain_reason(self, pod: Obj) -> str | None:
        gate = f"the gate {TOPOLOGY_GATE}"
        for key in list_workloads_of_pod(pod):
            name = key.partition("/")[2]
            workload = self._observed.workloads.store.get(key)
            if workload is None:
                return f"{gate} is taken off by Workload {name}, which does not exist; delete the pod, what is queued makes it anew"
            if is_orphaned(workload):
                return f"{gate} stays on: the job of Workload {name} is gone; delete the pod, until then {name} holds its quota"
            facts = self._observed.state.workloads.facts.get(key)
            facts = limit_facts(self._observed, facts) if facts is not None else None
            of_pod = self._observed.pod_facts.get(build_object_key(pod))
            if facts is not None and of_pod is not None and (facts.owner_uid is None or facts.owner_uid != of_pod.owner_uid):
                return f"{gate} stays on: the pod was not made by the job of Workload {name}, which it names; delete the pod"
            named = [pod_set.name for pod_set in facts.pod_sets] if facts is not None else []
            if facts is not None and of_pod is not None and (of_pod.pod_set or "") not in named:
                return (
                    f"{gate} stays on: Workload {name} has no pod set {of_pod.pod_set or ''!r}, which the label {PODSET_LABEL} of the pod"
                    f" names; it has {', '.join(named)}. Another admission webhook may write that label; delete the pod"
                )
            if facts is not None and of_pod is not None and is_unowned(workload) and (excess := find_excess(of_pod, facts.pod_sets)):
                return f"{gate} stays on: the pod {excess} (Workload {name}); delete the pod"
            return None
        if find_pod_unit(pod) is not None or self._observed.find_job_of_pod(pod) is not None:
            return None
        return (
            f"{gate} is taken off pods of queued jobs only, and the pod is of none; delete it, and queue what makes it"
            f" (label {QUEUE_NAME_LABEL}) or take the gate off its template"
        )

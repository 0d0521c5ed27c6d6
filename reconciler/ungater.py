"""The topology ungater: gives each gated pod of an admitted workload its domain, by rank where ranks are known.

Events of one workload are gathered for a second, so that the pods of a job that come one by one are
placed together; a workload with ungatings still unobserved is left alone until they are seen.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from core import trace_names as t
from core.model.admission import Admission, PodSetAdmission
from core.names import (
    ADMITTED,
    EVENT_POD_OUTSIDE_ASSIGNMENT,
    EVENT_STAYS_GATED,
    EVENT_WORKLOAD_REFUSED,
    HOSTNAME_LABEL,
    RESOURCE_IN_USE_FINALIZER,
    SLICE_NAME,
    TOPOLOGY_GATE,
)
from core.plan import resources as r
from core.plan import writes as w
from core.plan.node_health import find_placed, is_pinned
from core.plan.pod_units import is_unowned
from core.plan.reports import report_rank_order
from core.plan.steps import make_plan
from core.plan.ungate import Ungate, UngatePlan, find_excess, plan_ungating
from core.resource import Obj
from core.runtime.apart import run_apart
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.errors import Conflict, Invalid, KubeError, NotFound, truncated
from core.runtime.store import Change, object_key
from core.runtime.workqueue import Item
from core.state.facts import PodFacts, WorkloadFacts, condition_is_true, family_of, find_condition
from core.state.flavor_view import AssignedPlaces
from reconciler import tracing
from reconciler.controllers import build_controller
from reconciler.execute import REFUSALS, Executor
from reconciler.indexes import hostname_of, workloads_of_pod
from reconciler.metrics import UNRECORDED, Recorder
from reconciler.observed import Observed
from reconciler.parts import limit_facts

logger = logging.getLogger(__name__)
HELD_S = 10.0  # the node on which a pod ends may go down meanwhile
BATCH_S = 1.0  # KEP-2724, Enforcing the assignment
EXCESS_S = 60.0  # the LimitRange or RuntimeClass that a pod has its requests from may be observed later than the pod
MOST_UNGATED = 5_000  # pods of a workload at once
MOST_SHOWN = 300  # characters of a refusal
MOST_TOLD = 100  # pods of a workload with an event on each that stays gated for what it requests; their template is the same


@dataclass(slots=True)
class _Progress:
    """Ungating of one workload since its admission, until all its pods are bound."""

    began: datetime
    expected: int


class Ungater:
    """Reconciles one workload at a time by namespace/name."""

    def __init__(
        self,
        observed: Observed,
        executor: Executor,
        clock: Clock,
        *,
        nominates: bool = False,
        waits_for_nodes: bool = False,
        recorder: Recorder = UNRECORDED,
    ) -> None:
        """`waits_for_nodes`: pods stay gated while their node is not ready, since lost nodes are replaced (`reconciler.node_health`)."""
        self._observed = observed
        self._waits_for_nodes = waits_for_nodes
        self._recorder = recorder
        self._executor = executor
        self._clock = clock
        self._expectations = observed.ungating
        self._nominates = nominates
        self._progress: dict[str, _Progress] = {}
        self.controller = build_controller("ungater", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        observed.pods.add_handler(self._on_pod)
        observed.workloads.add_handler(self._on_workload)
        observed.on_owner.append(self._on_owner)

    def _on_owner(self, pod: Obj) -> None:
        for workload in workloads_of_pod(pod):
            self._queue.add_after(workload, BATCH_S, "its pods are known")

    def _on_pod(self, change: Change) -> None:
        pod = change.obj
        facts = self._observed.pod_facts.get(object_key(pod)) if change.new is not None else None
        for workload in workloads_of_pod(pod):
            if facts is None or not facts.gated or facts.terminal:
                self._expectations.observe(workload, pod["metadata"]["uid"])
            self._queue.add_after(workload, BATCH_S, "pod changed")

    def _on_workload(self, change: Change) -> None:
        key = family_of(change.obj)
        if change.new is None and self._observed.present(key) is None:
            self._expectations.forget(key)
            self._progress.pop(key, None)
        else:
            self._queue.add_after(key, BATCH_S, "workload changed")

    async def _reconcile(self, item: Item) -> Result:
        key = str(item.key)
        workload = self._observed.present(key)
        facts = self._observed.state.workloads.facts.get(object_key(workload)) if workload is not None else None
        unowned = workload is not None and is_unowned(workload)
        if workload is None or facts is None or facts.admission is None or not facts.runs or (unowned and facts.deleting):
            self._progress.pop(key, None)
            return Done()
        if self._is_moving(facts.key):
            return RequeueAfter(BATCH_S)  # another place is being written
        now = self._clock.monotonic()
        if not self._expectations.satisfied(key, now):
            return RequeueAfter(max(BATCH_S, self._expectations.retry_in(key, now) or BATCH_S))
        naming = self._observed.pods_of(key)
        places = self._observed.state.find_places(facts.admission.pod_sets)
        limited, is_elastic = limit_facts(self._observed, facts), SLICE_NAME in (workload["metadata"].get("annotations") or {})
        planned = partial(self._plan, limited, facts.admission, naming, places, unowned=unowned, is_elastic=is_elastic)
        pods, plan = await run_apart(len(naming), planned)
        if not self._is_given(workload, facts) or not self._expectations.satisfied(key, now):
            return RequeueAfter(BATCH_S)  # what changed it has queued it again, or it is about to give places back
        refused = await self._deal_with_strays(workload, plan.strays, find_placed(facts))
        if unowned and plan.actions:
            workload = await self._keep_until_pods_end(workload)
        for pod, message in plan.excessive[:MOST_TOLD]:
            source = self._observed.pods.store.get(pod.key)
            if source is not None:
                self._executor.reporter.event(r.PODS, source, EVENT_WORKLOAD_REFUSED, message, warning=True)
        some_run = any(not pod.gated for pod in naming)
        failed = await self._ungate(key, workload, facts.admission, plan.actions, some_run=some_run) if plan.actions else []
        # Reported even if one pod can never be ungated: the others run, and their users look for the order of their ranks.
        is_ranked = any(action.by_rank for action in plan.actions)
        await self._executor.execute(make_plan(report_rank_order(workload, plan.broken, self._executor.now(), kept=is_ranked)))
        for error in (*refused, *failed):
            raise error
        self._watch_binding(key, workload, sum(given.count for given in facts.admission.pod_sets if given.assignment is not None), pods)
        if plan.excessive and not plan.held:
            return RequeueAfter(EXCESS_S)
        return RequeueAfter(HELD_S) if plan.held else Done()

    def _is_moving(self, key: str) -> bool:
        """Whether pods of a workload get other places than it says, or fewer: that is decided, or being written."""
        return self._observed.state.workloads.is_moving(key) or self._executor.is_moving(key)

    def _is_given(self, workload: Obj, facts: WorkloadFacts) -> bool:
        """Whether a workload still has the places that it had, and its pods may be ungated."""
        now = self._observed.state.workloads.facts.get(object_key(workload))
        if now is None or not now.runs or (is_unowned(workload) and now.deleting) or self._is_moving(now.key):
            return False
        return now is facts or (now.admission, now.unhealthy_nodes) == (facts.admission, facts.unhealthy_nodes)

    def _plan(
        self,
        facts: WorkloadFacts,
        admission: Admission,
        naming: Sequence[PodFacts],
        places: AssignedPlaces,
        *,
        unowned: bool,
        is_elastic: bool,
    ) -> tuple[list[PodFacts], UngatePlan]:
        """The workload's own pods among those that name it, and what is to be done with them."""
        # Where the workload has lost its owner, no pod is its own (`Observed._owner_of`).
        pods = [pod for pod in naming if pod.owner_uid == facts.owner_uid is not None]
        known = self._observed.nodes.store.get
        lost = facts.unhealthy_nodes | {hostname_of(node) for node in map(known, facts.unhealthy_nodes) if node is not None}
        if unowned:  # its pods are not made by a template that was judged: quota limits what each requests, too
            pods = [pod for pod in pods if not (pod.gated and find_excess(pod, facts.pod_sets))]
        own = {pod.key for pod in pods}
        others = [pod for pod in naming if pod.key not in own and not pod.terminal and not pod.gated]
        facts, has_ready_node = replace(facts, unhealthy_nodes=lost), partial(self._has_ready_node, places)
        plan = plan_ungating(facts, admission, pods, places.level_values, self._is_up, has_ready_node, others, is_elastic=is_elastic)
        # Those that are seen ungated bring us back for the others.
        return pods, replace(plan, actions=plan.actions[:MOST_UNGATED])

    async def _keep_until_pods_end(self, workload: Obj) -> Obj:
        """With a finalizer: a Workload without an owner that is deleted holds its quota while pods of it run (`reconciler.orphans`)."""
        finalizers = workload["metadata"].get("finalizers") or []
        if RESOURCE_IN_USE_FINALIZER in finalizers:
            return workload
        return await self._executor.write(w.set_finalizers(r.WORKLOADS, workload, [*finalizers, RESOURCE_IN_USE_FINALIZER]))

    def _has_ready_node(self, places: AssignedPlaces, given: PodSetAdmission, values: tuple[str, ...]) -> bool:
        """Whether a pod that is sent to a domain could run there; where nothing replaces nodes it is sent in any case."""
        if not self._waits_for_nodes:
            return True
        return any(map(self._is_up, places.domain_nodes(given, values)))

    def _is_host_up(self, host: str) -> bool:
        """By its name or, where that is another, by its hostname."""
        if self._observed.nodes.store.get(host) is not None:
            return self._is_up(host)
        return any(self._is_up(node["metadata"]["name"]) for node in self._observed.nodes.store.by_index("hostname", host))

    def _is_up(self, node: str) -> bool:
        known = self._observed.nodes.store.get(node)
        return known is not None and condition_is_true(known, "Ready")

    async def _ungate(
        self, key: str, workload: Obj, admission: Admission, actions: tuple[Ungate, ...], *, some_run: bool
    ) -> list[KubeError]:
        """Ungates them all; returns the errors worth another attempt. `some_run`: pods of the workload have been ungated before."""
        # Raised before the first write: the event may overtake the answer.
        self._expectations.expect_places(key, {action.pod.uid: action.node_selector for action in actions}, self._clock.monotonic())
        if key not in self._progress:
            self._progress[key] = _Progress(self._clock.now(), len(actions))
            self._tell_of_gathering(workload, actions, some_run)
        attributes = {t.WORKLOAD: workload["metadata"]["name"], t.POD_COUNT: len(actions)}
        with tracing.step(t.UNGATE, workload, attributes, links=self._causes(workload, actions)) as span:
            tracing.tell_of_ungating(span, actions)
            given = {pod_set.name: pod_set for pod_set in admission.pod_sets}
            results: list[KubeError | None] = [None] * len(actions)
            left = iter(enumerate(actions))

            async def work() -> None:
                for i, action in left:
                    results[i] = await self._patch(key, workload, action, self._node_of(given.get(action.pod_set), action))

            # No task for each pod: with 10,000 the event loop would do nothing else until all of them had begun.
            await asyncio.gather(*(work() for _ in range(min(self._executor.most_at_once, len(actions)))))
            failed = [error for error in results if error is not None]
            tracing.tell_of_failures(span, zip(actions, results, strict=True))
            logger.info("pods ungated", extra={"workload": key, "count": len(actions) - len(failed), "failed": len(failed)})
        return failed

    def _tell_of_gathering(self, workload: Obj, actions: Sequence[Ungate], some_run: bool) -> None:
        """What the pods of a batch have been waited for since: the admission, or where others run already their own creation."""
        since = (find_condition(workload, ADMITTED) or {}).get("lastTransitionTime") or ""
        if some_run:
            pods = (pod for action in actions if (pod := self._observed.pods.store.get(action.pod.key)) is not None)
            since = max(since, min((pod["metadata"].get("creationTimestamp") or "" for pod in pods), default=""))
        attributes = {t.WORKLOAD: workload["metadata"]["name"], t.POD_COUNT: len(actions)}
        with tracing.step(t.GATHERED, workload, attributes, start=tracing.parse_time(since or None)):
            pass

    def _causes(self, workload: Obj, actions: Sequence[Ungate]) -> list[str | None]:
        """Of a batch: the decision, and the stories of pods that came otherwise than with their workload."""
        pods = (pod for action in actions if (pod := self._observed.pods.store.get(action.pod.key)) is not None)
        return [tracing.decision_of(workload), *tracing.other_stories(pods, than=workload)]

    async def _report_refused(self, action: Ungate, error: Invalid) -> None:
        """Records an event on a pod that the API server does not let be sent to its place."""
        pod = self._observed.pods.store.get(action.pod.key)
        if pod is not None:
            place = ", ".join(f"{key}={value}" for key, value in sorted(action.node_selector.items()))
            why = f"the gate {TOPOLOGY_GATE} stays on: the pod cannot be sent to {place}: {truncated(str(error), MOST_SHOWN)}"
            what = "its nodeSelector was set otherwise, perhaps by another admission webhook; delete the pod once that is mended"
            self._executor.reporter.event(r.PODS, pod, EVENT_STAYS_GATED, f"{why}; {what}", warning=True)

    async def _patch(self, key: str, workload: Obj, action: Ungate, node: str | None) -> KubeError | None:
        """Patches one pod; returns the error worth another attempt. No event will come of a write that failed."""
        try:
            if node is not None:
                await self._executor.write_in_turn(w.nominate(action.pod, node))
            written = await self._executor.write_in_turn(w.ungate(action))
        except (NotFound, Conflict):
            return None  # gone, or another pod of this name; its event is on the way
        except Invalid as error:
            # A selector of the user's own contradicts the domain; only a new pod can help, but the others go on.
            logger.warning("pod cannot be ungated", extra={"pod": action.pod.key, "error": str(error)})
            await self._report_refused(action, error)
            return error
        except KubeError as error:
            return error
        finally:
            self._expectations.observe(key, action.pod.uid)  # what was written is seen by now
        self._record(workload, written)
        return None

    def _record(self, workload: Obj, pod: Obj) -> None:
        admitted = (find_condition(workload, ADMITTED) or {}).get("lastTransitionTime") or ""
        since = tracing.parse_time(max(admitted, pod["metadata"].get("creationTimestamp") or "") or None)
        if since is not None:
            seconds = (self._clock.now() - since).total_seconds()
            self._recorder.ungated(max(0.0, seconds), tracing.traceparent_of(workload))

    async def _deal_with_strays(self, workload: Obj, strays: Sequence[PodFacts], placed: Collection[str]) -> list[KubeError]:
        """A pod that is not bound yet is deleted, so that another one comes in its place, gated; one that runs is reported. Returns the
        refusals of those that must not be deleted: others are ungated nevertheless."""
        refused: list[KubeError] = []
        for pod in strays:
            name = pod.key.partition("/")[2]
            if pod.node and pod.node not in self._observed.state.nodes:
                continue  # it is lost with its node, whose place another has by now
            if self._waits_for_nodes and is_pinned(pod, placed) and not self._is_host_up(pod.node_selector[HOSTNAME_LABEL]):
                continue  # `node_health` ends it, in phase Failed with a reason that a podFailurePolicy can match
            if pod.node:
                message = f"pod {name} runs on node {pod.node}, outside of the workload's assignment"
            else:
                message = f"pod {name} was ungated by another assignment and is not bound yet; it is deleted"
                seen = self._observed.find_pod(pod)
                if seen is None:
                    continue
                try:
                    await self._executor.write(w.delete_pod(seen, w.Guard.WAITING))
                except (NotFound, Conflict):
                    continue  # gone, or bound by now: its change is looked at next
                except REFUSALS as error:
                    refused.append(error)
                    continue
            logger.warning("pod outside of its workload's assignment", extra={"pod": pod.key, "node": pod.node})
            self._executor.reporter.event(r.WORKLOADS, workload, EVENT_POD_OUTSIDE_ASSIGNMENT, message, warning=True)
        return refused

    def _node_of(self, given: PodSetAdmission | None, action: Ungate) -> str | None:
        """The node whose slot is to be kept for a pod: where its domain is one node."""
        if not self._nominates or given is None or given.assignment is None:
            return None
        values = tuple(action.node_selector[level] for level in given.assignment.levels)
        nodes = self._observed.state.find_places([given]).domain_nodes(given, values)
        return nodes[0] if len(nodes) == 1 else None

    def _watch_binding(self, key: str, workload: Obj, expected: int, pods: list[PodFacts]) -> None:
        """Ends the story of a workload's trace once all of its pods are bound."""
        progress = self._progress.get(key)
        bound = sum(1 for pod in pods if pod.node and not pod.terminal and not pod.terminating)
        if progress is None or bound < expected:
            return
        del self._progress[key]
        attributes = {t.WORKLOAD: workload["metadata"]["name"], t.POD_COUNT: bound}
        with tracing.step(t.BOUND, workload, attributes, start=progress.began):
            pass

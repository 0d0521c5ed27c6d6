"""Steps in the life of a Workload that are the same whatever it stands for."""

import logging
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, assert_never

from core import trace_names as t
from core.model.admission import admission_from_wire
from core.names import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVENT_STOPPED,
    EVICTED,
    PRIORITY_CLASS_LABEL,
    QUOTA_RESERVED,
    REASON_DEACTIVATED,
    RESOURCE_IN_USE_FINALIZER,
)
from core.plan import resources as r
from core.plan import writes as w
from core.plan.actions import Action, Amend, Deactivate, Evict, Wait
from core.plan.admission import amended_status, build_held_status, evicted_status, released_status
from core.plan.conditions import Condition, set_conditions
from core.resource import Obj
from core.runtime.controller import Done, RequeueAfter, Result, Retryable
from core.runtime.errors import Conflict, NotFound
from core.runtime.store import object_key
from core.state.facts import PodFacts, condition_is_true, find_condition, is_on_hold
from core.state.whereabouts import describe_place
from reconciler import tracing
from reconciler.execute import Executor
from reconciler.observed import Observed

logger = logging.getLogger(__name__)
MAX_NAMED_CLASSES = 5  # a message is read, not searched


class WorkloadSteps:
    """Writes to Workloads by what was observed of them."""

    def __init__(self, observed: Observed, executor: Executor) -> None:
        self._observed = observed
        self._executor = executor

    def priority(self, labels: Mapping[str, str], class_of_pods: Callable[[], str | None]) -> tuple[int, dict[str, str] | None]:
        """See `find_priority`."""
        return find_priority(self._observed, labels, class_of_pods)

    def find_changed_priority(self, workload: Obj, labels: Mapping[str, str], class_of_pods: Callable[[], str | None]) -> dict[str, Any]:
        """The parts of a waiting workload's spec with its priority, where its job names another class than the workload has; else nothing.

        The value of a class is read when a workload gets that class. A class that has another value later, is deleted, or becomes the
        cluster's default does not change workloads that exist (KEP-83). Raises Retryable where the class does not exist.
        """
        if _get_named_class(labels, class_of_pods) == _get_class_of(workload):
            return {}
        priority, reference = self.priority(labels, class_of_pods)
        spec = workload["spec"]
        if int(spec.get("priority") or 0) == priority and spec.get("priorityClassRef") == reference:
            return {}
        return {"priority": priority, "priorityClassRef": reference}

    async def evict(
        self,
        workload: Obj,
        reason: str,
        message: str,
        *,
        also: Sequence[Condition] = (),
        requeue_state: Mapping[str, Any] | None = None,
    ) -> None:
        """To be stopped; quota and domains are kept until it has. In the same write other conditions, and when it is queued again."""
        status = evicted_status(workload, reason, message, self._executor.now(), also, requeue_state)
        evicted = {t.WORKLOAD: workload["metadata"]["name"], t.REASON: reason, t.MESSAGE: message}
        with tracing.step(t.EVICT, workload, evicted):
            await self._executor.do(w.apply_admission(workload, status))
        logger.info("workload evicted", extra={"workload": object_key(workload), "reason": reason})
        self._executor.reporter.event(r.WORKLOADS, workload, f"EvictedDueTo{reason}", message)

    async def end_pods(self, workload: Obj, pods: Sequence[PodFacts], otherwise: str) -> None:
        """Deletes pods that no controller ends, and says on each why: by its workload's eviction, `otherwise` where there was none."""
        evicted = find_condition(workload, EVICTED) if condition_is_true(workload, EVICTED) else None
        for pod in pods:
            if pod.terminating:
                continue
            try:
                await self._executor.do(w.delete_pod(w.name_pod(pod)))
            except (NotFound, Conflict):
                continue
            observed = self._observed.pods.store.get(pod.key)
            if observed is not None:
                self._executor.reporter.event(r.PODS, observed, EVENT_STOPPED, (evicted or {}).get("message") or otherwise)

    def may_have_unseen_pods(self, workload: Obj, version: str, generation: object = None) -> bool:
        """Whether pods of a workload that were made before a resource version may run without having been observed. Where no topology gate
        holds them back they run before they are seen. Within seconds it is known: look again then. With another `generation` of the job,
        which may have made pods in between, it is to be known anew."""
        facts = self._observed.state.workloads.facts.get(object_key(workload))
        given = facts.admission.pod_sets if facts is not None and facts.admission is not None else ()
        if all(pod_set.assignment is not None for pod_set in given):
            return False
        return not self._observed.pods_progress.has_passed((workload["metadata"]["uid"], generation), version)

    def may_have_run(self, job: Obj) -> bool:
        """Whether a suspended job may have pods that have not been observed yet: its spec was changed, or may have been, perhaps for a
        moment to run. Within seconds it is known, as above."""
        metadata = job["metadata"]
        generation = metadata.get("generation")
        return generation != 1 and not self._observed.pods_progress.has_passed((metadata["uid"], generation), metadata["resourceVersion"])

    async def take(self, workload: Obj, action: Action | None) -> Result:
        """One step that was planned by the workload's own statuses; the event of its write leads to the next."""
        match action:
            case None:
                return Done()
            case Wait(seconds):
                return RequeueAfter(seconds)
            case Amend(conditions, state, drop, annotations):
                workload = await self._annotate(workload, annotations)
                status = amended_status(workload, conditions, self._executor.now(), state, drop)
                await self._executor.do(w.apply_admission(workload, status))
                reasons = [condition.reason for condition in conditions]
                logger.info("workload amended", extra={"workload": object_key(workload), "reasons": reasons})
            case Evict(reason, message, also, state, annotations):
                workload = await self._annotate(workload, annotations)
                await self.evict(workload, reason, message, also=also, requeue_state=state)
            case Deactivate():
                target = find_condition(workload, DEACTIVATION_TARGET) or {}
                await self._executor.do(w.deactivate(workload, f"{REASON_DEACTIVATED}DueTo{target.get('reason') or 'Unknown'}"))
                logger.info("workload deactivated", extra={"workload": object_key(workload)})
            case _:
                assert_never(action)
        return Done()

    async def _annotate(self, workload: Obj, annotations: Mapping[str, str]) -> Obj:
        """Before the status that goes with them; as it is now."""
        return (
            await self._executor.do(w.patch_workload(workload, {"metadata": {"annotations": dict(annotations)}}))
            if annotations
            else workload
        )

    async def give_back(self, workload: Obj) -> bool:
        """Quota and domains of what has stopped; says whether there was anything to give back."""
        if not condition_is_true(workload, QUOTA_RESERVED):
            return False
        before = find_condition(workload, EVICTED) or {}
        await self._release(workload, before.get("message") or "The workload was stopped", released_status)
        return True

    async def hold(self, workload: Obj, why: str) -> None:
        """The same of a workload that asks for no pods: it is not queued until `end_hold`."""
        if not is_on_hold(workload):
            await self._release(workload, why, build_held_status)

    async def end_hold(self, workload: Obj) -> None:
        """A workload that was on hold waits for quota."""
        if is_on_hold(workload):
            await self._release(workload, "The workload is no longer on hold", released_status)

    async def _release(self, workload: Obj, why: str, build_status: Callable[[Obj, str, str, str], dict[str, Any]]) -> None:
        admission = admission_from_wire((workload.get("status") or {}).get("admission"))
        place = describe_place(self._observed.state, admission) if admission is not None else ""
        status = build_status(workload, why, self._executor.now(), place)
        with tracing.step(t.RELEASE, workload, {t.WORKLOAD: workload["metadata"]["name"], t.MESSAGE: why}):
            await self._executor.do(w.apply_admission(workload, status))

    async def finish(self, workload: Obj, condition: Condition) -> Obj:
        """Said to be over; what it held is free."""
        generation = int(workload["metadata"].get("generation") or 0)
        wire = set_conditions([], [condition], now=self._executor.now(), generation=generation)[0]
        attributes = {t.WORKLOAD: workload["metadata"]["name"], t.REASON: condition.reason, t.MESSAGE: condition.message}
        with tracing.step(t.FINISH, workload, attributes):
            return await self._executor.do(w.apply_workload_condition(workload, wire))

    async def drop_finalizer(self, workload: Obj) -> None:
        """Nothing keeps the object any more."""
        finalizers = workload["metadata"].get("finalizers") or []
        if RESOURCE_IN_USE_FINALIZER in finalizers:
            kept = [finalizer for finalizer in finalizers if finalizer != RESOURCE_IN_USE_FINALIZER]
            try:
                await self._executor.do(w.set_finalizers(r.WORKLOADS, workload, kept))
            except NotFound:
                return


def find_priority(
    observed: Observed, labels: Mapping[str, str], class_of_pods: Callable[[], str | None]
) -> tuple[int, dict[str, str] | None]:
    """Of the workload's own class, then of the pods' class, then the cluster's default. Raises Retryable."""
    name = labels.get(PRIORITY_CLASS_LABEL)
    if name:
        found = observed.workload_priority_classes.store.get(name)
        if found is None:
            raise Retryable(_no_such_class(observed, name))
        reference = {"group": r.WORKLOAD_PRIORITY_CLASSES.group, "kind": "WorkloadPriorityClass", "name": name}
        return int(found.get("value") or 0), reference
    classes = observed.priority_classes.store
    name = class_of_pods()
    found = classes.get(name) if name else next((c for c in classes.list() if c.get("globalDefault")), None)
    if found is None:
        return 0, None
    reference = {"group": r.PRIORITY_CLASSES.group, "kind": "PriorityClass", "name": found["metadata"]["name"]}
    return int(found.get("value") or 0), reference


def _get_named_class(labels: Mapping[str, str], class_of_pods: Callable[[], str | None]) -> tuple[str, str] | None:
    """Kind and name of the class that a job names; None where the cluster's default counts."""
    if name := labels.get(PRIORITY_CLASS_LABEL):
        return r.WORKLOAD_PRIORITY_CLASSES.kind, name
    name = class_of_pods()
    return (r.PRIORITY_CLASSES.kind, name) if name else None


def _get_class_of(workload: Obj) -> tuple[str, str] | None:
    """Kind and name of the class that a workload's job named when the workload got its priority; None where the default counted.

    A workload refers to the cluster's default, too, and does not refer to a class of its pods that did not exist: so the class of its
    pods is read from its pod sets.
    """
    reference = workload["spec"].get("priorityClassRef") or {}
    if reference.get("kind") == r.WORKLOAD_PRIORITY_CLASSES.kind:
        return r.WORKLOAD_PRIORITY_CLASSES.kind, str(reference["name"])
    names = ((pod_set["template"].get("spec") or {}).get("priorityClassName") for pod_set in workload["spec"]["podSets"])
    name = next((name for name in names if name), None)
    return (r.PRIORITY_CLASSES.kind, name) if name else None


def _no_such_class(observed: Observed, name: str) -> str:
    """What was most likely meant comes first."""
    there = [found["metadata"]["name"] for found in observed.workload_priority_classes.store.list()]
    nearest = get_close_matches(name, sorted(there), n=MAX_NAMED_CLASSES, cutoff=0.0)
    more = len(there) - len(nearest)
    known = f"there are {', '.join(nearest)}{f' and {more} more' if more else ''}" if nearest else "there is none at all"
    return f'WorkloadPriorityClass "{name}" does not exist; {known}. The job waits until it does, or names another'


def may_run(workload: Obj) -> bool:
    """Whether pods of a workload may be there: it is admitted, and neither evicted, deactivated nor deleted."""
    admitted = condition_is_true(workload, ADMITTED) and not condition_is_true(workload, EVICTED)
    return admitted and workload["spec"].get("active", True) is not False and not workload["metadata"].get("deletionTimestamp")

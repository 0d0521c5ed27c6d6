"""Elastic jobs: a running Job that is resized is not stopped (annotation `kueue.x-k8s.io/elastic-job`, workload slices).

the Job asks for                step
more pods                       a second Workload asks for all of them; until it is admitted the new pods wait, gated
more, and that is admitted      the first is finished, WorkloadSliceReplaced; its pods run on under the second
fewer than are admitted         the Workload's count, and once the pods are gone its admission, are reduced in place
more of one pod set and         first the latter, then the former
fewer of another
as many again as are admitted   a second Workload that waits is deleted

A job that is resized through an object below it, as a RayJob by the autoscaler of its RayCluster, asks for as many pods as that does.
"""

import logging
from collections.abc import Mapping

from core.jobs.contract import JobKind, Resizable, ResizedByPart
from core.jobs.prebuilt import prebuilt_name
from core.jobs.templates import has_gate
from core.model.admission import Admission, admission_to_wire
from core.names import (
    ADMITTED,
    EVENT_CREATED_WORKLOAD,
    EVENT_UPDATED_WORKLOAD,
    EVICTED,
    FINISHED,
    REASON_SLICE_REPLACED,
    SLICE_NAME,
    WORKLOAD_ANNOTATION,
)
from core.plan import resources as r
from core.plan import writes as w
from core.plan.admission import managed_status
from core.plan.conditions import Condition
from core.plan.elastic import build_successor, counts_of, find_present, find_successor, is_alike, shrink, with_counts
from core.plan.reserved import must_ask_anew
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.errors import AlreadyExists
from core.runtime.store import object_key
from core.state.facts import condition_is_true, controller_of, family_of, find_condition
from reconciler.execute import Executor
from reconciler.indexes import find_siblings
from reconciler.observed import Observed
from reconciler.related import resource_of_related
from reconciler.steps import WorkloadSteps

logger = logging.getLogger(__name__)
POLL_S = 1.0
_GIVEN_BACK = "reduced admission"  # what the ungater waits for
MOST_REPLACED = 4  # Workloads of one job that are over, beside the first


class Elastic:
    """Resizes jobs by what was observed of them. `is_on`, and `with_topology` on flavors with one: where the gates are off, a job that is
    resized is stopped."""

    def __init__(
        self, observed: Observed, executor: Executor, steps: WorkloadSteps, clock: Clock, *, is_on: bool, with_topology: bool
    ) -> None:
        self._observed = observed
        self._executor = executor
        self._steps = steps
        self._clock = clock
        self._is_on = is_on
        self._with_topology = with_topology

    def serves(self, kind: JobKind, job: Obj) -> bool:
        """Whether a job is resized while it runs: its pods wait behind the topology gate until they are admitted, on any flavor."""
        return self._is_on and isinstance(kind, Resizable) and kind.is_resizable(job) and prebuilt_name(job) is None

    def read_size(self, kind: JobKind, job: Obj) -> Obj:
        """A running job with the pod counts of the object by which it is resized, if there is one."""
        if not isinstance(kind, ResizedByPart) or kind.is_suspended(job) or not self.serves(kind, job):
            return job
        name = kind.find_part(job)
        informer = self._observed.jobs.get(r.show_kind(resource_of_related(kind.part)))
        part = informer.store.get(f"{job['metadata']['namespace']}/{name}") if informer is not None else None
        owner = controller_of(part) if part is not None else None
        is_its_own = owner is not None and owner["uid"] == job["metadata"]["uid"]
        return kind.with_counts_of(job, part) if part is not None and is_its_own else job

    def marks(self, kind: JobKind, job: Obj, workload: Obj) -> Obj:
        """A new Workload of an elastic job says that it is the first one."""
        if not self.serves(kind, job):
            return workload
        metadata = workload["metadata"]
        return {**workload, "metadata": {**metadata, "annotations": {**metadata["annotations"], SLICE_NAME: metadata["name"]}}}

    def find_present(self, owned: list[Obj]) -> Obj | None:
        """Of several Workloads of one elastic job that by which its pods run; None where the job is not elastic."""
        if not any(SLICE_NAME in (workload["metadata"].get("annotations") or {}) for workload in owned):
            return None
        found = find_present(owned)
        return dict(found) if found is not None else None

    def _successor(self, workload: Obj) -> Obj | None:
        found = find_successor(workload, find_siblings(self._observed.workloads.store, workload))
        return dict(found) if found is not None else None

    async def drop_successor(self, workload: Obj) -> bool:
        """Of a job that does not run (any more): what it asks for is asked for by one Workload. Returns whether that is the other one: it
        has been admitted, and what is to become of the job is to be judged by it."""
        if SLICE_NAME not in (workload["metadata"].get("annotations") or {}):
            return False
        for left in self._find_left(workload):
            await self._steps.drop_finalizer(left)
        successor = self._successor(workload)
        if successor is not None and successor["metadata"].get("deletionTimestamp"):
            await self._steps.drop_finalizer(successor)
        elif successor is not None and condition_is_true(successor, ADMITTED) and not condition_is_true(successor, EVICTED):
            await self._replace(workload, successor)
            return True
        elif successor is not None:
            await self._executor.do(w.delete_workload(successor, w.Guard.AS_SEEN))  # its event brings us back to let it go
        return False

    async def resize(self, kind: JobKind, job: Obj, workload: Obj) -> Result | None:
        """The next step of a job that runs; None where it has the size that it was admitted with, or is not resized while it runs."""
        if SLICE_NAME not in (workload["metadata"].get("annotations") or {}):
            return None
        for left in self._find_left(workload):
            await self._steps.drop_finalizer(left)
        successor = self._successor(workload)
        if successor is not None and successor["metadata"].get("deletionTimestamp"):
            await self._steps.drop_finalizer(successor)
            return Done()
        if successor is not None and condition_is_true(successor, ADMITTED):
            return await self._replace(workload, successor)
        facts = self._observed.state.workloads.facts.get(object_key(workload))
        if facts is None or facts.admission is None:
            return None
        if not self._may_resize(kind, job, facts.admission):
            if successor is None:
                return None
            await self._executor.do(w.delete_workload(successor, w.Guard.AS_SEEN))
            return Done()
        # No pod names it before it is admitted: what it held while it waited for its admission checks is free at once.
        if successor is not None and condition_is_true(successor, EVICTED) and await self._steps.give_back(successor):
            return Done()
        wanted, has = {p.name: p.count for p in kind.pod_sets(job)}, counts_of(workload)
        if wanted.keys() != has.keys() or not any(wanted.values()):
            return None
        grows = any(wanted[name] > has[name] for name in has)
        if successor is not None and not grows:
            await self._executor.do(w.delete_workload(successor, w.Guard.AS_SEEN))
            return Done()
        kept = {name: min(wanted[name], has[name]) for name in has}
        if kept != has:
            await self._executor.do(w.patch_workload(workload, {"spec": {"podSets": with_counts(workload, kept)}}))
            return Done()
        less = self._find_less(workload, facts.admission, has, wanted)
        if less is None:
            return RequeueAfter(POLL_S)  # what they hold is theirs until they are gone
        if less:
            return await self._give_back(kind, job, workload, facts.admission, less)
        return await self._grow(kind, job, workload, successor) if grows else None

    def _may_resize(self, kind: JobKind, job: Obj, admission: Admission) -> bool:
        """Whether a job that is admitted runs by a start of ours, so that pods that come wait behind the gate of its templates."""
        if not self.serves(kind, job) or not kind.is_started(job) or not all(has_gate(pod_set.template) for pod_set in kind.pod_sets(job)):
            return False
        return self._with_topology or all(given.assignment is None for given in admission.pod_sets)

    def _find_less(self, workload: Obj, admission: Admission, has: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int] | None:
        """By pod set to how many pods its admission is to be reduced; None while pods are still there that are to go, by which it is known
        which places are given back. A pod set that is to grow again keeps what its pods have."""
        less: dict[str, int] = {}
        past_gates = [pod for pod in self._observed.live_pods(family_of(workload)) if not pod.gated]
        for given in admission.pod_sets:
            held = [pod for pod in past_gates if pod.pod_set == given.name]
            if given.count <= has[given.name]:
                continue
            if len(held) > wanted[given.name] or any(pod.terminating for pod in held):
                return None
            if max(has[given.name], len(held)) < given.count:
                less[given.name] = max(has[given.name], len(held))
        return less

    def _find_left(self, workload: Obj) -> list[Obj]:
        """Workloads before this one that are finished and keep their finalizer: a process ended between the two writes."""
        siblings = find_siblings(self._observed.workloads.store, workload)
        return [each for each in siblings if _is_over(each) and each["metadata"].get("finalizers")]

    async def _grow(self, kind: JobKind, job: Obj, workload: Obj, successor: Obj | None) -> Result:
        made = build_successor(kind, job, workload)
        labels = job["metadata"].get("labels") or {}
        changes = self._steps.find_changed_priority(successor or made, labels, lambda: kind.priority_class(job))
        if successor is not None and counts_of(successor) != counts_of(made):
            changes["podSets"] = made["spec"]["podSets"]
        if successor is None:
            made["spec"] = {name: value for name, value in (made["spec"] | changes).items() if value is not None}
            try:
                await self._executor.do(w.create_workload(made))
            except AlreadyExists:
                return RequeueAfter(POLL_S)  # its event is on the way, or it is still going away
            await self._tell(kind, job, EVENT_CREATED_WORKLOAD, f"Created Workload: {object_key(made)}, to grow; what runs goes on")
        elif not is_alike(successor, workload) or (changes and must_ask_anew(successor, changes)):
            await self._executor.do(w.delete_workload(successor, w.Guard.AS_SEEN))  # its event brings us back to make another
        elif changes:
            await self._executor.do(w.patch_workload(successor, {"spec": changes}))
            await self._tell(kind, job, EVENT_UPDATED_WORKLOAD, f"Updated Workload: {object_key(made)}")
        return Done()

    async def _replace(self, workload: Obj, successor: Obj) -> Result:
        message = f"its pods run on under Workload {object_key(successor)}"
        if not condition_is_true(workload, FINISHED):
            workload = await self._steps.finish(workload, Condition(FINISHED, True, REASON_SLICE_REPLACED, message))
            logger.info("workload replaced", extra={"workload": object_key(workload), "by": object_key(successor)})
        await self._steps.drop_finalizer(workload)
        await self._delete_replaced(workload)
        return Done()

    async def _delete_replaced(self, workload: Obj) -> None:
        """Of the Workloads that were replaced before this one the first, those which pods name, and the last ones are kept: a job may be
        resized thousands of times."""
        pods = self._observed.pods.store.by_index("workload", family_of(workload))
        named = {pod["metadata"]["annotations"][WORKLOAD_ANNOTATION] for pod in pods} | {family_of(workload).partition("/")[2]}
        owned = find_siblings(self._observed.workloads.store, workload)
        replaced = [each for each in owned if _is_replaced(each) and each["metadata"]["name"] not in named]
        replaced.sort(key=lambda each: (each["metadata"].get("creationTimestamp") or "", each["metadata"]["name"]))
        for each in replaced[:-MOST_REPLACED]:
            await self._executor.do(w.delete_workload(each))

    async def _give_back(self, kind: JobKind, job: Obj, workload: Obj, admission: Admission, counts: Mapping[str, int]) -> Result:
        left = shrink(admission, counts, self._observed.live_pods(family_of(workload)))
        if left is None:
            return RequeueAfter(POLL_S)  # what they hold is theirs until they are gone
        status = managed_status(workload) | {"admission": admission_to_wire(left)}
        family = family_of(workload)
        self._observed.ungating.expect(family, [_GIVEN_BACK], self._clock.monotonic())  # no pod is let in by what it had before
        try:
            await self._executor.do(w.apply_admission(workload, status))
        finally:
            self._observed.ungating.observe(family, _GIVEN_BACK)
        logger.info("workload shrunk", extra={"workload": object_key(workload), "pods": counts_of(workload)})
        await self._tell(kind, job, EVENT_UPDATED_WORKLOAD, f"Updated Workload: {object_key(workload)}, it gave back what it needs no more")
        return Done()

    async def _tell(self, kind: JobKind, job: Obj, reason: str, message: str) -> None:
        self._executor.reporter.event(r.resource_of(kind), job, reason, message)


def _is_replaced(workload: Obj) -> bool:
    return _is_over(workload) and not (workload["metadata"].get("deletionTimestamp") or workload["metadata"].get("finalizers"))


def _is_over(workload: Obj) -> bool:
    """Whether another has taken over its pods."""
    found = find_condition(workload, FINISHED) or {}
    return found.get("status") == "True" and found.get("reason") == REASON_SLICE_REPLACED

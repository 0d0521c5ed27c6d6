"""Elastic jobs: a running Job that is resized is not stopped (annotation `kueue.x-k8s.io/elastic-job`, workload slices).

the Job asks for                step
more pods                       a second Workload asks for all of them; until it is admitted the new pods wait, gated
more, and that is admitted      the first is finished, WorkloadSliceReplaced; its pods run on under the second
fewer than are admitted         the Workload's count, and once the pods are gone its admission, are reduced in place
as many again as are admitted   a second Workload that waits is deleted
"""

import logging

from core.jobs.contract import JobKind
from core.jobs.elastic import is_elastic
from core.jobs.job import Job
from core.jobs.prebuilt import prebuilt_name
from core.model.admission import admission_to_wire
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
from core.plan.admission import managed_status
from core.plan.conditions import Condition
from core.plan.elastic import build_successor, counts_of, find_present, find_successor, shrink, with_counts
from core.plan.reserved import must_ask_anew
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.errors import AlreadyExists
from core.runtime.resource import Obj
from core.runtime.store import object_key
from core.state.facts import condition_is_true, family_of, find_condition
from reconciler import resources as r
from reconciler.apply import Writer
from reconciler.indexes import find_siblings
from reconciler.observed import Observed
from reconciler.steps import WorkloadSteps

logger = logging.getLogger(__name__)
POLL_S = 1.0
MOST_REPLACED = 4  # Workloads of one job that are over, beside the first


class Elastic:
    """Resizes jobs by what was observed of them. `is_on`: where the gates are off, a job that is resized is stopped."""

    def __init__(self, observed: Observed, writer: Writer, steps: WorkloadSteps, *, is_on: bool) -> None:
        self._observed = observed
        self._writer = writer
        self._steps = steps
        self._is_on = is_on

    def serves(self, kind: JobKind, job: Obj) -> bool:
        """Whether a job is resized while it runs, where all of its pods have a place: then those that come wait behind their gate."""
        return self._is_on and (kind.kind, kind.group) == (Job.kind, Job.group) and is_elastic(job) and prebuilt_name(job) is None

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

    async def drop_successor(self, workload: Obj) -> None:
        """Of a job that does not run (any more): what it asks for is asked for by one Workload."""
        successor = self._successor(workload) if SLICE_NAME in (workload["metadata"].get("annotations") or {}) else None
        if successor is not None and successor["metadata"].get("deletionTimestamp"):
            await self._steps.drop_finalizer(successor)
        elif successor is not None:
            await self._writer.delete_workload(successor)  # its event brings us back to let it go

    async def resize(self, kind: JobKind, job: Obj, workload: Obj) -> Result | None:
        """The next step of a job that runs; None where it has the size that it was admitted with, or is not resized while it runs."""
        facts = self._observed.state.workloads.facts.get(object_key(workload))
        if not self.serves(kind, job) or SLICE_NAME not in (workload["metadata"].get("annotations") or {}):
            return None
        if facts is None or facts.admission is None or any(given.assignment is None for given in facts.admission.pod_sets):
            return None
        successor = self._successor(workload)
        if successor is not None and successor["metadata"].get("deletionTimestamp"):
            await self._steps.drop_finalizer(successor)
            return Done()
        if successor is not None and condition_is_true(successor, ADMITTED):
            return await self._replace(workload, successor)
        # No pod names it before it is admitted: what it held while it waited for its admission checks is free at once.
        if successor is not None and condition_is_true(successor, EVICTED) and await self._steps.give_back(successor):
            return Done()
        wanted, has = {p.name: p.count for p in kind.pod_sets(job)}, counts_of(workload)
        if wanted.keys() != has.keys() or not all(wanted.values()):
            return None
        if any(wanted[name] > has[name] for name in has):
            return await self._grow(kind, job, workload, successor)
        if successor is not None:
            await self._writer.delete_workload(successor)
            return Done()
        if wanted != has:
            await self._writer.patch_workload(workload, {"spec": {"podSets": with_counts(workload, kind.pod_sets(job))}})
            return Done()
        if any(given.count > has.get(given.name, given.count) for given in facts.admission.pod_sets):
            return await self._give_back(kind, job, workload)
        return None

    async def _grow(self, kind: JobKind, job: Obj, workload: Obj, successor: Obj | None) -> Result:
        made = build_successor(kind, job, workload)
        if successor is None:
            try:
                await self._writer.create_workload(made)
            except AlreadyExists:
                return RequeueAfter(POLL_S)  # its event is on the way, or it is still going away
            await self._tell(kind, job, EVENT_CREATED_WORKLOAD, f"Created Workload: {object_key(made)}, to grow; what runs goes on")
        elif counts_of(successor) != counts_of(made) and must_ask_anew(successor, made["spec"]):
            await self._writer.delete_workload(successor)  # its event brings us back to make another
        elif counts_of(successor) != counts_of(made):
            await self._writer.patch_workload(successor, {"spec": {"podSets": made["spec"]["podSets"]}})
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
            await self._writer.delete_workload(each)

    async def _give_back(self, kind: JobKind, job: Obj, workload: Obj) -> Result:
        facts = self._observed.state.workloads.facts[object_key(workload)]
        assert facts.admission is not None
        left = shrink(facts.admission, counts_of(workload), self._observed.live_pods(family_of(workload)))
        if left is None:
            return RequeueAfter(POLL_S)  # what they hold is theirs until they are gone
        status = managed_status(workload) | {"admission": admission_to_wire(left)}
        await self._writer.apply_admission(workload, status, strict=True)
        logger.info("workload shrunk", extra={"workload": object_key(workload), "pods": counts_of(workload)})
        await self._tell(kind, job, EVENT_UPDATED_WORKLOAD, f"Updated Workload: {object_key(workload)}, it gave back what it needs no more")
        return Done()

    async def _tell(self, kind: JobKind, job: Obj, reason: str, message: str) -> None:
        await self._writer.event(r.resource_of(kind), job, reason, message)


def _is_replaced(workload: Obj) -> bool:
    found = find_condition(workload, FINISHED) or {}
    going = workload["metadata"].get("deletionTimestamp") or workload["metadata"].get("finalizers")
    return found.get("status") == "True" and found.get("reason") == REASON_SLICE_REPLACED and not going

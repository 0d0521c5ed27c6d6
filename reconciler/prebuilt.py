"""Jobs that name a Workload which was made beforehand, or will be: no other is made for them, and they wait for that one.

the Workload                            the job
is not there (yet)                      stays suspended, and says for what it waits
is another's: a job's, a pod group's,   stays suspended, and says what has it
or of pods that a deleted job has left
is nobody's                             takes it: from then on it goes with the job
asks for something else than the job    the Workload is finished, OutOfSync; the job stays suspended, and says what differs
"""

import logging

from core.jobs.contract import JobKind
from core.jobs.prebuilt import prebuilt_name
from core.names import EVENT_WAITING_FOR_WORKLOAD, EVENT_WORKLOAD_REFUSED, FINISHED, REASON_OUT_OF_SYNC
from core.plan import resources as r
from core.plan import writes as w
from core.plan.conditions import Condition
from core.plan.pod_units import unit_of_workload
from core.plan.prebuilt import adoption, find_difference
from core.resource import Obj
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.store import object_key
from core.state.facts import controller_of, family_of, find_condition
from core.state.owners import is_orphaned
from reconciler.execute import Executor
from reconciler.observed import Observed
from reconciler.steps import WorkloadSteps

logger = logging.getLogger(__name__)
HELD_S = 30.0  # nothing reports that the last pod of another has ended


class Prebuilt:
    """Finds, takes and judges the Workloads that jobs name."""

    def __init__(self, observed: Observed, executor: Executor, steps: WorkloadSteps) -> None:
        self._observed = observed
        self._executor = executor
        self._steps = steps
        for informer in observed.jobs.values():
            informer.store.add_index("prebuilt", _key_of_prebuilt)

    def jobs_of(self, workload: Obj) -> list[tuple[str, str]]:
        """Key of the kind and of each job that names a Workload."""
        key = object_key(workload)
        return [
            (kind, object_key(job)) for kind, informer in self._observed.jobs.items() for job in informer.store.by_index("prebuilt", key)
        ]

    async def take(self, kind: JobKind, job: Obj) -> Result:
        """The Workload that a job names becomes the job's, if it is nobody's; else the job is told what it waits for."""
        name, namespace = prebuilt_name(job), job["metadata"]["namespace"]
        workload = self._observed.workloads.store.get(f"{namespace}/{name}")
        if workload is None or workload["metadata"].get("deletionTimestamp"):
            message = f"waits for the Workload {namespace}/{name}, which does not exist{'' if workload is None else ' any more'}"
            await self._tell(kind, job, EVENT_WAITING_FOR_WORKLOAD, message)
            return Done()
        holder = self._find_holder(workload)
        if holder:
            message = f"the Workload {namespace}/{name} is that of {holder}; name another, or none to have one made"
            await self._tell(kind, job, EVENT_WORKLOAD_REFUSED, message)
            return RequeueAfter(HELD_S)
        await self._executor.do(w.patch_workload(workload, adoption(kind, job, workload)))
        logger.info("prebuilt workload taken", extra={"workload": object_key(workload), "job": object_key(job)})
        return Done()

    def _find_holder(self, workload: Obj) -> str:
        """What a Workload belongs to already, empty if it is free. Pods may run under one that has no owner."""
        owner, unit = controller_of(workload), unit_of_workload(workload)
        if owner is not None:
            return f"{owner['kind']} {owner['name']}"
        if unit is not None:
            return f"the pod group {unit.name}"
        if is_orphaned(workload):
            return "a job that was deleted without its pods"
        return "pods that run under it" if any(not pod.gated for pod in self._observed.live_pods(family_of(workload))) else ""

    async def is_in_step(self, kind: JobKind, job: Obj, workload: Obj) -> bool:
        """Whether a Workload asks for what the job will run; one that does not is over."""
        difference = find_difference(kind.pod_sets(job), workload)
        if difference is None:
            return True
        message = f"the prebuilt Workload is out of step with its job: {difference}"
        await self._steps.finish(workload, Condition(FINISHED, True, REASON_OUT_OF_SYNC, message))
        logger.info("prebuilt workload is out of step", extra={"workload": object_key(workload), "difference": difference})
        return False

    async def after_the_end(self, kind: JobKind, job: Obj, workload: Obj) -> None:
        """A job that does not end with its Workload is told why, and how to go on."""
        why = (find_condition(workload, FINISHED) or {}).get("message") or ""
        message = f"the Workload {object_key(workload)} is finished: {why}. Delete it and make another one, or name another one"
        await self._tell(kind, job, EVENT_WORKLOAD_REFUSED, message)

    async def _tell(self, kind: JobKind, job: Obj, reason: str, message: str) -> None:
        self._executor.reporter.event(r.resource_of(kind), job, reason, message, warning=True)


def _key_of_prebuilt(job: Obj) -> list[str]:
    name = prebuilt_name(job)
    return [f"{job['metadata']['namespace']}/{name}"] if name is not None else []

"""Jobs that name a Workload which was made beforehand, or will be: no other is made for them, and they wait for that one.

the Workload                            the job
is not there (yet)                      stays suspended, and says for what it waits
is another job's                        stays suspended, and says whose it is
is nobody's                             takes it: from then on it goes with the job
asks for something else than the job    the Workload is finished, OutOfSync; the job stays suspended, and says what differs
"""

import logging

from core.jobs.contract import JobKind
from core.jobs.prebuilt import prebuilt_name
from core.names import EVENT_WAITING_FOR_WORKLOAD, EVENT_WORKLOAD_REFUSED, FINISHED, REASON_OUT_OF_SYNC
from core.plan.conditions import Condition
from core.plan.prebuilt import adoption, find_difference
from core.runtime.resource import Obj
from core.runtime.store import object_key
from core.state.facts import controller_of, find_condition
from reconciler import resources as r
from reconciler.apply import Writer
from reconciler.observed import Observed
from reconciler.steps import WorkloadSteps

logger = logging.getLogger(__name__)


class Prebuilt:
    """Finds, takes and judges the Workloads that jobs name."""

    def __init__(self, observed: Observed, writer: Writer, steps: WorkloadSteps) -> None:
        self._observed = observed
        self._writer = writer
        self._steps = steps
        for informer in observed.jobs.values():
            informer.store.add_index("prebuilt", _key_of_prebuilt)

    def jobs_of(self, workload: Obj) -> list[tuple[str, str]]:
        """Key of the kind and of each job that names a Workload."""
        key = object_key(workload)
        return [
            (kind, object_key(job)) for kind, informer in self._observed.jobs.items() for job in informer.store.by_index("prebuilt", key)
        ]

    async def take(self, kind: JobKind, job: Obj) -> None:
        """The Workload that a job names becomes the job's, if it is nobody's; else the job is told what it waits for."""
        name, namespace = prebuilt_name(job), job["metadata"]["namespace"]
        workload = self._observed.workloads.store.get(f"{namespace}/{name}")
        if workload is None or workload["metadata"].get("deletionTimestamp"):
            message = f"waits for the Workload {namespace}/{name}, which does not exist{'' if workload is None else ' any more'}"
            await self._tell(kind, job, EVENT_WAITING_FOR_WORKLOAD, message)
            return
        owner = controller_of(workload)
        if owner is not None:
            whose = f"{owner['kind']} {owner['name']}"
            message = f"the Workload {namespace}/{name} is that of {whose}; name another, or none to have one made"
            await self._tell(kind, job, EVENT_WORKLOAD_REFUSED, message)
            return
        await self._writer.patch_workload(workload, adoption(kind, job, workload))
        logger.info("prebuilt workload taken", extra={"workload": object_key(workload), "job": object_key(job)})

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
        await self._writer.event(r.resource_of(kind), job, reason, message, warning=True)


def _key_of_prebuilt(job: Obj) -> list[str]:
    name = prebuilt_name(job)
    return [f"{job['metadata']['namespace']}/{name}"] if name is not None else []

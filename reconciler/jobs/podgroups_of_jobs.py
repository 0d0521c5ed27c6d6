"""PodGroups of jobs that request one by their annotation: created for the job, updated with it, and deleted with it by
garbage collection.

The webhook makes the pods members, on their templates; they wait until their group exists. The condition of the group
is reported as an event of the job, too, where the owner of the job looks for it.
"""

from dataclasses import dataclass
from functools import partial

from core.jobs.kinds.pod_kinds import POD_SETS
from core.jobs.podgroup_annotation import Grouping, find_asked
from core.names import POD_GROUP_SCHEDULED
from core.plan.jobs.job_podgroup import build_pod_group, plan_job_group, plan_refused_group
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps.conditions import Condition
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.http.errors import Conflict, Forbidden, Invalid, NotFound
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import Item
from core.state.facts import find_condition, find_controller
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.observe.observed import Observed


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """A job of some kind."""

    kind: str
    job: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.job}"


class PodGroupsOfJobs:
    """Reconciles one job at a time, by kind and key."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed, self._executor = observed, executor
        self._kinds: dict[str, tuple[Grouping, Informer]] = {}
        self._unreported: dict[JobKey, Condition] = {}  # of their groups
        for kind in observed.kinds.values():
            if isinstance(kind, Grouping):
                self._kinds[_name(kind)] = kind, observed.jobs[_name(kind)]
        for parent in POD_SETS:
            if isinstance(parent, Grouping):
                self._kinds[_name(parent)] = parent, observed.parents[parent.kind]
        self.controller = build_controller("podgroups-of-jobs", self._reconcile, clock)
        for name, (_, informer) in self._kinds.items():
            informer.add_handler(partial(self._on_job, name))
        observed.pod_groups.add_handler(self._on_group)

    def _on_job(self, kind: str, change: Change) -> None:
        if change.new is not None and find_asked(change.new) is not None:
            self.controller.queue.add(JobKey(kind, build_object_key(change.new)), "the job changed")

    def _on_group(self, change: Change) -> None:
        """Reverts changes and deletions of a group by others, and queues a new condition to be reported. At a start no
        condition is new."""
        owner = find_controller(change.obj)
        if owner is None or r.build_owner_key(owner) not in self._kinds:
            return
        key = JobKey(r.build_owner_key(owner), f"{change.obj['metadata'].get('namespace')}/{owner['name']}")
        if change.old is not None and change.new is not None:
            verdict = _find_verdict(change.new)
            if verdict is not None and verdict != _find_verdict(change.old):
                self._unreported[key] = verdict
            elif change.old.get("spec") == change.new.get("spec"):
                return
        self.controller.queue.add(key, "its PodGroup changed")

    async def _reconcile(self, item: Item) -> Result:
        assert isinstance(item.key, JobKey)
        return await self.reconcile(item.key)

    async def reconcile(self, key: JobKey) -> Result:
        """Writes the PodGroup of a job where it is missing or differs, and reports its new condition as an event of the job. Does nothing
        for a job that is gone, is being deleted or asks for no group. Returns RequeueAfter where the write met a Conflict or NotFound;
        also, with a Warning event, where it is refused (Invalid, Forbidden) or a PodGroup of another owner has the name. Else returns Done.
        Raises any other KubeError."""
        kind, informer = self._kinds[key.kind]
        job = informer.store.get(key.job)
        wanted = None if job is None or job["metadata"].get("deletionTimestamp") else build_pod_group(kind, job)
        if job is None or wanted is None:
            self._unreported.pop(key, None)
            return Done()
        present = self._observed.pod_groups.store.get(build_object_key(wanted))
        plan = plan_job_group(informer.resource, job, wanted, present, self._unreported.get(key))
        self._unreported.pop(key, None)  # the first step reports it
        try:
            return await self._executor.execute(plan)
        except Conflict:
            return RequeueAfter(1.0)  # another has come in its place
        except NotFound:  # it is gone meanwhile; if there was none, its namespace is being deleted, or PodGroups are not served
            return RequeueAfter(1.0 if present is not None else pacing.JOB_GROUP_REFUSED_S)
        except (Invalid, Forbidden) as error:
            why = f"the API server does not take its PodGroup: {error}"
            return await self._executor.execute(plan_refused_group(informer.resource, job, why))


def _find_verdict(group: Obj) -> Condition | None:
    found = find_condition(group, POD_GROUP_SCHEDULED)
    if found is None:
        return None
    return Condition(POD_GROUP_SCHEDULED, found.get("status") == "True", str(found.get("reason")), str(found.get("message")))


def _name(kind: Grouping) -> str:
    return f"{kind.kind}.{kind.group}"

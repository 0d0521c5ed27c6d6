"""Workloads without a job: they hold quota and nodes as long as a pod that names them lives, and no longer.

A deleted job leaves its pods behind until they have ended. One that is deleted with `--cascade=orphan` leaves them for as
long as they run, and its workload without an owner. For a job of any kind:

    workload                         pods that name it   step
    any                              some live           wait: what they use is not free
    orphaned, and may not run        some run            delete them; those that wait behind their gates never start
    admitted, or waiting             none                finished, once the watch of its job's kind is known to have seen as
                                                         much as the one of Workloads; quota and domains are given back
    deleted                          none                let it go
    deleted, never had an owner      some wait gated     let it go: they never start
    orphaned, finished               any                 delete it: no garbage collector takes it
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.names import FINISHED, REASON_OWNER_NOT_FOUND
from core.plan.pods.pod_units import is_unowned
from core.plan.steps import pacing
from core.plan.steps.conditions import Condition
from core.plan.steps.steps import NOTHING, PASSED_OVER, Plan, Step, make_plan, wait
from core.plan.steps.writes import delete_workload
from core.plan.workloads.workload_steps import drop_finalizer, end_pods, finish, may_run
from core.resource import Obj
from core.state.facts import PodFacts, is_condition_true
from core.state.owners import is_orphaned


@dataclass(frozen=True)
class OrphanFacts:
    """A workload. `has_owner`: whether what it was made for is there; None where that cannot be known. `pods`: those that name it and are
    not over. Of an observed one the last two are found when they are first read."""

    workload: Obj
    now: str
    has_owner: bool | None
    pods: Sequence[PodFacts]
    may_have_unseen_pods: bool = False
    may_have_unseen_owner: bool = False


def plan_orphan(f: OrphanFacts) -> Plan:
    """Returns what is to be done with a workload that may have lost its job. It waits for its pods, or ends them, then finishes it, removes
    its finalizer, and deletes it if it is orphaned. The plan is empty while its owner is there, or while that is not known and it is not
    being deleted. Pods are only ended where it is orphaned and may not run."""
    workload, leaves = f.workload, bool(f.workload["metadata"].get("deletionTimestamp"))
    if f.has_owner or (f.has_owner is None and not leaves):
        return NOTHING
    finished, orphaned = is_condition_true(workload, FINISHED), is_orphaned(workload)
    pods, ended = list(() if finished else f.pods), tuple[Step, ...]()
    is_stopped = orphaned and not may_run(workload)
    if is_stopped:
        # The garbage collector leaves them alone. Recreated pods are gated, and hold nothing that is given back.
        pods = [pod for pod in pods if not pod.gated]
        ended = end_pods(workload, pods, "Workload is deleted or deactivated, and its job is gone")
    if is_unowned(workload):
        pods = [pod for pod in pods if not pod.gated]
    if pods:
        return make_plan(*ended, again_s=pacing.STOP_POLL_S if is_stopped else None)
    if not finished and f.may_have_unseen_pods:
        return wait(pacing.STOP_POLL_S)
    if not finished and not leaves and f.may_have_unseen_owner:
        return wait(pacing.STOP_POLL_S)
    gone = Condition(FINISHED, True, REASON_OWNER_NOT_FOUND, "what it was made for does not exist any more, nor does a pod of it")
    return make_plan(
        finish(workload, gone, f.now, "workload of what is gone is finished") if not finished and not leaves else None,
        drop_finalizer(workload),
        Step("delete workload", delete_workload(workload), passes=PASSED_OVER) if orphaned and not leaves else None,
    )

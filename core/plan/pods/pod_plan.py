"""What is to be done with the pods of a unit: which start, which are too many, which may go, and how it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.jobs.contract import Finish
from core.jobs.kinds.pod import has_admission_gate
from core.names import (
    MANAGED,
    POD_GROUP_SERVING,
    RETRIABLE_IN_GROUP,
)
from core.plan.pods.pod_units import ALONE, GROUP, Unit, compute_seniority, is_going, is_terminal, note_of

Json = dict[str, Any]
_NONE: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What is to be done with the pods of an admitted unit now: those to start with their pod sets, those to delete
    with the reason, and those that are too many. `problems` are the reasons why others are not started."""

    start: tuple[tuple[Json, str], ...] = ()
    delete: tuple[tuple[Json, str], ...] = ()
    excess: tuple[Json, ...] = ()
    problems: tuple[str, ...] = ()


def plan_start(
    counts: Mapping[str, int], pods: Sequence[tuple[Json, str]], *, deletes_excess: bool, reclaimed: Mapping[str, int] = _NONE
) -> PodPlan:
    """Returns which pods of an admitted unit start, of each pod set the most senior. They are no more than were admitted (`counts`),
    whatever other pods there are. `pods` come with their pod sets. Those that run beyond these, or are of a pod set that `counts` lacks,
    are to be deleted; the latter are a `problem`, too. Of a plain group (`deletes_excess`) pods that succeeded keep their place, others
    that ended free it, and waiting ones beyond the count are `excess`. One that is being deleted has its place until it is gone.
    `reclaimed`, per pod set, have released their place, though nothing may be left of them."""
    start: list[tuple[Json, str]] = []
    delete: list[tuple[Json, str]] = []
    excess: list[Json] = []
    problems: list[str] = []
    by_role: dict[str, list[Json]] = {}
    for pod, role in pods:
        by_role.setdefault(role, []).append(pod)
    for role, members in sorted(by_role.items()):
        if role not in counts:
            names = ", ".join(pod["metadata"]["name"] for pod in members[:3])
            problems.append(f"the workload was admitted without pods like {names} (role {role})")
            delete += [(pod, "it is no part of what was admitted") for pod in members if _is_staying(pod)]
            continue
        done = sum(1 for pod in members if (pod.get("status") or {}).get("phase") == "Succeeded") if deletes_excess else 0
        room = max(0, counts[role] - max(done, reclaimed.get(role, 0)))
        staying = [pod for pod in members if _is_staying(pod)]
        if len(staying) > room:
            over = sorted(staying, key=compute_seniority)[room:]
            delete += [(pod, f"more than the {counts[role]} pods that were admitted run") for pod in over]
        waiting = sorted((pod for pod in members if _is_waiting(pod)), key=compute_seniority)
        free = max(0, room - len(list_running(members)))
        start += [(pod, role) for pod in waiting[:free]]
        if deletes_excess:
            excess += waiting[max(0, room - len(staying)) :]
    return PodPlan(tuple(start), tuple(delete), tuple(excess), tuple(problems))


def list_excess(pods: Sequence[Json], total: int) -> list[Json]:
    """Returns the pods that wait behind the admission gate and are not among the first `total` of their plain group by `compute_seniority`,
    in that order. Those that failed or are being deleted are not counted: they are replaced."""
    counted = [
        pod for pod in sorted(pods, key=compute_seniority) if not is_going(pod) and (pod.get("status") or {}).get("phase") != "Failed"
    ]
    return [pod for pod in counted[total:] if _is_waiting(pod)]


def plan_stop(pods: Sequence[Json], reason: str) -> tuple[tuple[Json, str], ...]:
    """Returns the pods that have passed the admission gate, have not ended and are not being deleted, in their order, each with `reason`.
    They are to be deleted."""
    return tuple((pod, reason) for pod in pods if _is_staying(pod))


def list_running(pods: Sequence[Json]) -> list[Json]:
    """Returns the pods that have passed the admission gate and have not ended, in their order; those that are being deleted are
    included."""
    return [pod for pod in pods if _is_running(pod)]


def to_release(pods: Sequence[Json], *, finished: bool, remembers: bool, is_evicted: bool = False) -> tuple[Json, ...]:
    """Returns those pods with topogate's finalizer that need it no longer: all of a finished unit, otherwise those that are being deleted.
    Where success is counted by pods (`remembers`), a succeeded pod is kept until the unit is finished. In an evicted group (`is_evicted`),
    pods that failed or will fail are kept until all are replaced, as in Kueue. So the controller that replaces them sees them fail."""
    return tuple(
        pod
        for pod in pods
        if MANAGED in (pod["metadata"].get("finalizers") or ())
        and (finished or (is_going(pod) and not (remembers and (pod.get("status") or {}).get("phase") == "Succeeded")))
        and not (is_evicted and _is_failing(pod))
    )


def finish_of(unit: Unit, counts: Mapping[str, int], pods: Sequence[Json]) -> Finish | None:
    """Returns how a unit ended; None while it has not. A pod that is alone ends its unit. A group ends once all its pods have succeeded, or
    all have ended and one is marked as not to be replaced. A serving unit, and one of a parent, never ends. `counts`: the pods of the
    workload by pod set."""
    ended = [pod for pod in pods if is_terminal(pod)]
    succeeded = sum(1 for pod in ended if pod["status"]["phase"] == "Succeeded")
    total = sum(counts.values())
    if unit.source == ALONE and ended:
        return Finish(succeeded > 0, "Pod succeeded" if succeeded else "Pod failed")
    if unit.source != GROUP or not ended or any(note_of(pod, POD_GROUP_SERVING) == "true" for pod in pods):
        return None
    if succeeded >= total:
        return Finish(True, f"Pods succeeded: {succeeded}/{total}")
    final = any(note_of(pod, RETRIABLE_IN_GROUP) == "false" for pod in pods)
    if final and len(ended) == len(pods):
        return Finish(False, f"Pods succeeded: {succeeded}/{total}; the others may not be replaced")
    return None


def _is_failing(pod: Json) -> bool:
    """Whether a pod has failed, or its kubelet will report how it ends: it has a grace period, unlike one without a node."""
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Failed" or (phase != "Succeeded" and pod["metadata"].get("deletionGracePeriodSeconds") != 0)


def _is_running(pod: Json) -> bool:
    return not has_admission_gate(pod) and not is_terminal(pod)


def _is_staying(pod: Json) -> bool:
    return _is_running(pod) and not is_going(pod)


def _is_waiting(pod: Json) -> bool:
    return has_admission_gate(pod) and not is_terminal(pod) and not is_going(pod)

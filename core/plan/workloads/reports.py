"""Conditions of a Workload beside those of its life: each is reported by one part of topogate, under a field manager of
its own.

Each is written when the Workload does not have it yet. For most workloads there is nothing to report, and nothing is
written.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from core.names import BORROWED_SPARES, PLACEMENT_KEPT, PODS_SCHEDULABLE, RANK_ORDER_KEPT, SPARES, SPARES_HELD
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.conditions import Condition, has_condition, set_conditions
from core.plan.steps.steps import Event, Log, Overtaken, Step
from core.plan.workloads.drift import Drift
from core.queueing.cycle.kept_spares import KeptSpares
from core.resource import Obj
from core.state.facts import PodFacts, build_object_key, find_condition

DRIFT_MANAGER, STUCK_MANAGER = "topogate-drift", "topogate-node-health"
SPARES_MANAGER, RANKS_MANAGER = "topogate-spares", "topogate-ungater"
_NAMED = 3  # pods that a condition names


def report_drift(workload: Obj, drifts: Sequence[Drift], now: str, *, runs: bool) -> Step | None:
    """Returns the step that sets the condition PlacementKept, for whether all pods run where they were placed. If not, the reason is the
    kind of the first of `drifts`, and the log gets a warning. None where it stands so, or all is well and nothing was reported before.
    `runs`: whether the workload does; it is part of the message."""
    if drifts:
        condition = Condition(PLACEMENT_KEPT, False, drifts[0].kind.value, "; ".join(drift.says for drift in drifts))
        return _report(workload, condition, DRIFT_MANAGER, now, warning="drift")
    message = "All pods run where they were placed" if runs else "The workload does not run"
    return _end(workload, Condition(PLACEMENT_KEPT, True, "Kept", message), DRIFT_MANAGER, now)


def report_stuck(workload: Obj, stuck: Sequence[tuple[str, PodFacts]], now: str, *, runs: bool = True) -> Step | None:
    """Returns the step that sets the condition PodsSchedulable, with an event if it is False. None where it stands so, or all is well and
    nothing was reported before. `stuck`: pods that their node does not take, each behind the name of its node. `runs`: whether the workload
    does; it is part of the message."""
    if not stuck:
        well = "All pods are scheduled, or wait for no longer than usual" if runs else "The workload does not run"
        return _end(workload, Condition(PODS_SCHEDULABLE, True, "Scheduled", well), STUCK_MANAGER, now)
    texts = [
        f"pod {pod.key.partition('/')[2]} cannot be scheduled on node {node}, where others of its workload run: "
        f"{pod.unschedulable or 'Unschedulable'}"
        for node, pod in stuck[:_NAMED]
    ]
    more = f" and {len(stuck) - _NAMED} more pods" if len(stuck) > _NAMED else ""
    condition = Condition(PODS_SCHEDULABLE, False, "Unschedulable", f"{'; '.join(texts)}{more}. Another place is looked for")
    return _report(workload, condition, STUCK_MANAGER, now, warning="pods cannot be scheduled", is_event=True)


def report_spares(workload: Obj, kept: Collection[KeptSpares] | None, now: str) -> Step | None:
    """Returns the step that sets the condition SparesHeld, for whether all nodes are kept free that are asked for; None where it stands
    so. `kept`: what is kept per pod set. It is None where the workload has no place: that is only reported where the condition was set
    before."""
    if kept is None:
        message = "The workload has no place beside which nodes could be kept free"
        return _end(workload, Condition(SPARES_HELD, False, "NotAdmitted", message), SPARES_MANAGER, now)
    is_missing = any(one.missing for one in kept)
    condition = Condition(SPARES_HELD, not is_missing, "Missing" if is_missing else "Held", "; ".join(map(str, kept)))
    return _report(workload, condition, SPARES_MANAGER, now)


def name_spares(workload: Obj, held: str | None, kept: Collection[KeptSpares]) -> Step:
    """Returns the step that writes the nodes that are kept free for a workload on itself: so the next leader keeps the same. `held` is
    the annotation's text; None removes it."""
    log = Log("spares kept", {"workload": build_object_key(workload), "nodes": {one.pod_set: list(one.nodes) for one in kept}})
    return Step("name spares", w.set_annotations(r.WORKLOADS, workload, {SPARES: held}), log=log)


def restore_borrowed(workload: Obj, borrowed: str) -> Step:
    """Returns the step that writes again, with a warning in the log, which nodes a workload has borrowed, after another program has changed
    it. Without them their holder could not have them back. `borrowed` is the annotation's text."""
    log = Log(
        "borrowed nodes of a workload were changed by another program, and are written again",
        {"workload": build_object_key(workload)},
        True,
    )
    return Step("restore borrowed", w.set_annotations(r.WORKLOADS, workload, {BORROWED_SPARES: borrowed}), log=log)


def report_rank_order(workload: Obj, broken: Mapping[str, str], now: str, *, kept: bool) -> Step | None:
    """Returns the step that sets the condition RankOrderKept, for whether the order of ranks could be kept. None where it stands so, or no
    pod was placed by rank (`kept`) and no order is broken. `broken`: by pod set, why it could not."""
    if broken:
        why = "; ".join(f"pod set {name}: {why}" for name, why in sorted(broken.items()))
        message = f"Pods are placed in the order of the list, not of ranks: {why}"
        return _report(workload, Condition(RANK_ORDER_KEPT, False, "RankOrderBroken", message), RANKS_MANAGER, now)
    if not kept:
        return None
    return _report(workload, Condition(RANK_ORDER_KEPT, True, "RankOrderKept", "Consecutive ranks share a domain"), RANKS_MANAGER, now)


def _end(workload: Obj, condition: Condition, manager: str, now: str) -> Step | None:
    """Reports that all is well again; nothing for a workload without an earlier report."""
    return _report(workload, condition, manager, now) if find_condition(workload, condition.type) is not None else None


def _report(workload: Obj, condition: Condition, manager: str, now: str, *, warning: str = "", is_event: bool = False) -> Step | None:
    before: list[Any] = [c for c in (workload.get("status") or {}).get("conditions") or () if c.get("type") == condition.type]
    if has_condition(before, condition):
        return None
    generation = int(workload["metadata"].get("generation") or 0)
    wire = set_conditions(before, [condition], now=now, generation=generation)[0]
    events = (Event(r.WORKLOADS, workload, condition.reason, condition.message, warning=True),) if is_event else ()
    fields = {"workload": build_object_key(workload), "reason": condition.reason, "why": condition.message}
    log = Log(warning, fields, warning=True) if warning else None
    gone = frozenset({Overtaken.GONE})
    return Step(f"report {condition.type}", w.apply_workload_condition(workload, wire, manager), events, log, passes=gone)

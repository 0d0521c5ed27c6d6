"""What a verdict of the scheduler writes, and when a second pass that failed is made again."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from core.model.configuration import ResourceRules, SecondPass
from core.model.node_health_rules import RequeueRules
from core.plan.steps.actions import to_time
from core.plan.workloads.admission_status import build_admitted_status, build_evicted_status, build_waiting_status
from core.plan.workloads.checks import find_ready_time
from core.plan.workloads.requeue import evict_for_lost_nodes
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible


def build_verdict_status(
    workload: Mapping[str, Any],
    verdict: Verdict,
    now: str,
    rules: ResourceRules | None = None,
    requeue: RequeueRules = RequeueRules(),  # noqa: B008, a frozen value
    place: str = "",
) -> dict[str, Any] | None:
    """Returns the status to be applied: admitted, evicted or waiting. None where a workload keeps what it has, and its second pass is to be
    tried again. `rules` define how quota counts requests, `requeue` how long an evicted workload waits.

    `place`: where an admitted workload that was evicted before will be, as text. Raises InvalidAssignment where an assignment cannot be
    written.
    """
    outcome = verdict.outcome
    if isinstance(outcome, Admissible):
        return build_admitted_status(workload, outcome.admission, now, outcome.checks, place)
    if outcome.evicts:  # as `core.plan.workloads.verdict_steps` does in two writes
        evict = evict_for_lost_nodes(workload, outcome.message, requeue, to_time(now))
        return build_evicted_status(workload, evict.reason, evict.message, now, evict.also, evict.requeue_state)
    if verdict.is_second_pass:
        return None
    return build_waiting_status(workload, verdict.workload, outcome.reason, outcome.message, now, rules)


def compute_next_pass_s(workload: Mapping[str, Any], now: datetime, second_pass: SecondPass) -> float | None:
    """Returns the seconds from `now` until a failed second pass is repeated. None where only an event can help: without admission checks,
    with unhealthy nodes, or where the time is up and the workload is evicted before. They count from when the last check became Ready, so
    that a restarted process keeps to it."""
    status = workload.get("status") or {}
    checks = status.get("admissionChecks") or ()
    if not checks or status.get("unhealthyNodes"):
        return None
    waited = (now - find_ready_time(checks, now)).total_seconds()
    return second_pass.compute_wait_s(max(0.0, waited))

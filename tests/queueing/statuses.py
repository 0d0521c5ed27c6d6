"""The status that a verdict leads to, for cycles that are played without a reconciler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.model.configuration import ResourceRules
from core.model.node_health_rules import RequeueRules
from core.plan.steps.actions import to_time
from core.plan.workloads.admission_status import build_admitted_status, build_evicted_status, build_waiting_status
from core.plan.workloads.requeue import evict_for_lost_nodes
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible


def build_verdict_status(
    workload: Mapping[str, Any], verdict: Verdict, now: str, rules: ResourceRules | None = None
) -> dict[str, Any] | None:
    """The status to be applied: admitted, evicted or waiting; None where a workload keeps what it has. An eviction is one write here."""
    outcome = verdict.outcome
    if isinstance(outcome, Admissible):
        return build_admitted_status(workload, outcome.admission, now, outcome.checks)
    if outcome.evicts:
        evict = evict_for_lost_nodes(workload, outcome.message, RequeueRules(), to_time(now))
        return build_evicted_status(workload, evict.reason, evict.message, now, evict.also, evict.requeue_state)
    if verdict.is_second_pass:
        return None
    return build_waiting_status(workload, verdict.workload, outcome.reason, outcome.message, now, rules)

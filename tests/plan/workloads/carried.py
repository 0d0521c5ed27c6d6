"""What an action leaves of a Workload: the writes of its plan, merged by the rules of the API server in memory."""

from __future__ import annotations

from typing import Any

from core.plan.steps.actions import Action
from core.plan.steps.steps import Then
from core.plan.steps.writes import Apply, Patch
from core.plan.workloads.workload_steps import plan_action
from sim.apiserver.patches import merge


def carry_out(wire: dict[str, Any], action: Action | None, now: str) -> dict[str, Any]:
    """A status is the admission's alone, as in the tests that call this."""
    for step in plan_action(wire, action, now).steps:
        write = step.write.build(wire) if isinstance(step.write, Then) else step.write
        assert isinstance(write, Apply | Patch)
        wire = {**wire, "status": dict(write.body["status"])} if isinstance(write, Apply) else merge(wire, write.body)
    return wire

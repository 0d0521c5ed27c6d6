"""One condition of a Workload, told by whoever owns it."""

from core.plan import writes as w
from core.plan.conditions import Condition, says, set_conditions
from core.resource import Obj
from core.runtime.errors import NotFound
from reconciler.execute import Executor


async def report_condition(executor: Executor, workload: Obj, condition: Condition, manager: str) -> bool:
    """Writes the condition unless the Workload says it already, or is gone; whether it was written. Raises KubeError."""
    before = [c for c in (workload.get("status") or {}).get("conditions") or () if c.get("type") == condition.type]
    if says(before, condition):
        return False
    generation = int(workload["metadata"].get("generation") or 0)
    wire = set_conditions(before, [condition], now=executor.now(), generation=generation)[0]
    try:
        await executor.write(w.apply_workload_condition(workload, wire, manager))
    except NotFound:
        return False
    return True

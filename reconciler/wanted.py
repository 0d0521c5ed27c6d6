"""The workload that a unit of pods asks for by its parent, or by its pods as the API server has them, once all are there."""

from collections.abc import Sequence
from functools import partial

from core.jobs.pod import Pod
from core.names import EVENT_WAITING_FOR_PODS, EVENT_WORKLOAD_REFUSED
from core.plan import resources as r
from core.plan.pod_plan import excess_of_group
from core.plan.pod_units import ALONE, PARENTS, Unit, is_going, is_terminal
from core.plan.pod_workloads import Wanted, read_group, wanted_alone, wanted_of_group, wanted_of_parent
from core.resource import Obj
from core.runtime.apart import run_apart
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result, Retryable
from core.runtime.errors import NotFound
from reconciler.execute import Executor
from reconciler.unit_steps import PARENTS_BY_KIND, UnitSteps

PATIENCE_S = 10.0  # before anyone is told that pods of a group are missing


class WantedWorkloads:
    """Remembers since when groups wait for the rest of their pods."""

    def __init__(self, executor: Executor, steps: UnitSteps, clock: Clock, pod: Pod) -> None:
        self._executor = executor
        self._steps = steps
        self._clock = clock
        self._pod = pod
        self._waiting_since: dict[Unit, float] = {}

    def __len__(self) -> int:
        return len(self._waiting_since)

    def forget(self, unit: Unit) -> None:
        """A unit of which nothing is left."""
        self._waiting_since.pop(unit, None)

    def of_parent(self, unit: Unit, source: Obj) -> Wanted | None:
        """What the parent of a unit asks for, None where it asks for nothing (any more) or the unit has no parent."""
        return wanted_of_parent(PARENTS_BY_KIND[unit.source], source, unit) if unit.source in PARENTS else None

    async def find(self, unit: Unit, source: Obj, pods: Sequence[Obj]) -> Wanted | None:
        """The workload that the unit asks for, None where it cannot have one (yet)."""
        if unit.source in PARENTS:
            return self.of_parent(unit, source)
        if unit.source == ALONE:
            return await self._find_alone(unit, source)
        return await self._find_of_group(unit, source, pods)

    async def _find_alone(self, unit: Unit, source: Obj) -> Wanted | None:
        if is_terminal(source) or is_going(source):
            return None
        try:
            return wanted_alone(await self._executor.read(r.PODS, unit.namespace, unit.name), self._pod)
        except NotFound:
            return None

    async def _find_of_group(self, unit: Unit, source: Obj, pods: Sequence[Obj]) -> Wanted | None:
        if all(is_terminal(pod) or is_going(pod) for pod in pods):
            return None  # nobody waits for anything
        group = await run_apart(len(pods), partial(read_group, unit, pods))
        if group.problem is not None:
            await self._steps.tell(unit, source, EVENT_WORKLOAD_REFUSED, group.problem, warning=True)
            return None
        if group.missing:
            await self._tell_missing(unit, source, group.missing)
            return None
        self.forget(unit)
        await self._steps.delete_excess(unit, await run_apart(len(pods), partial(excess_of_group, pods, sum(group.roles.values()))))
        try:
            examples = {role: await self._executor.read(r.PODS, unit.namespace, name) for role, name in group.examples.items()}
        except NotFound as error:
            raise Retryable(f"a pod of group {unit.name} is gone") from error
        return await run_apart(len(pods), lambda: wanted_of_group(unit, group, [pod for pod in pods if not is_going(pod)], examples))

    async def _tell_missing(self, unit: Unit, source: Obj, missing: int) -> None:
        now = self._clock.monotonic()
        since = self._waiting_since.setdefault(unit, now)
        if now - since >= PATIENCE_S:
            message = f"group {unit.name} waits for {missing} more pod{'s' if missing > 1 else ''}; it is queued when all are there"
            await self._steps.tell(unit, source, EVENT_WAITING_FOR_PODS, message, warning=True)

    def look_again(self, unit: Unit) -> Result:
        """When there will be something to tell of a unit that cannot be queued."""
        since = self._waiting_since.get(unit)
        if since is None:
            return Done()
        rest = since + PATIENCE_S - self._clock.monotonic()
        return RequeueAfter(rest + 0.1) if rest > 0 else Done()

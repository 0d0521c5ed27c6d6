"""Jobs with quota and without pods that can run: the API server or a webhook is in the way."""

from collections.abc import Sequence

from core.jobs.contract import JobKind
from core.names import (
    ADMITTED,
    CLUSTER_QUEUE_LABEL,
    DEACTIVATION_TARGET,
    EVENT_WORKLOAD_REFUSED,
    EVICTED,
    PODSET_LABEL,
    REASON_DEACTIVATED,
    REASON_JOB_CHANGED,
    REASON_START_REFUSED,
    WORKLOAD_ANNOTATION,
)
from core.plan import resources as r
from core.plan.actions import Amend
from core.plan.conditions import Condition
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.errors import BadRequest, Forbidden, Invalid, KubeError, truncated
from core.state.facts import find_condition
from reconciler.execute import Executor
from reconciler.steps import WorkloadSteps

PATIENCE_S = 300.0  # after the first refusal: what refuses the start may be repaired until then
FORGOTTEN_S = 3600.0  # a refusal that none has followed
MAX_REASON = 500  # characters of a refusal in a condition
_NO_RIGHT = "cannot patch resource"  # by the authorizer: topogate's own rights are missing, and the job is not wrong


class RefusedStarts:
    """Reports refused starts; deactivates a workload if its start has been refused for `PATIENCE_S`, by this process."""

    def __init__(self, steps: WorkloadSteps, executor: Executor, clock: Clock) -> None:
        self._steps, self._executor, self._clock = steps, executor, clock
        self._since: dict[tuple[str, str], float] = {}  # by uid and admission of a workload: its first refusal

    def forget(self, workload: Obj) -> None:
        """Its job has been started."""
        self._since.pop(_read_admission(workload), None)

    async def report(self, kind: JobKind, job: Obj, workload: Obj, error: KubeError) -> None:
        """Records events where a rule refused the start, and in the end the condition DeactivationTarget on the Workload."""
        if not isinstance(error, BadRequest | Forbidden | Invalid):
            return
        if not isinstance(error, Invalid):  # of these an event is recorded anyway
            self._executor.reporter.event(r.resource_of(kind), job, EVENT_WORKLOAD_REFUSED, str(error), warning=True)
        name = f"{kind.kind} {job['metadata']['name']}"
        self._executor.reporter.event(
            r.WORKLOADS, workload, EVENT_WORKLOAD_REFUSED, f"the start of {name} is refused: {error}", warning=True
        )
        if isinstance(error, Forbidden) and _NO_RIGHT in error.message:
            return
        now = self._clock.monotonic()
        self._since = {key: at for key, at in self._since.items() if now - at < FORGOTTEN_S}
        if now - self._since.setdefault(_read_admission(workload), now) < PATIENCE_S:
            return
        await self._deactivate(workload, f"the start of {name} is refused: {truncated(str(error), MAX_REASON)}")

    async def stop_unmarked(self, kind: JobKind, job: Obj, workload: Obj, pods: Sequence[Obj]) -> None:
        """Stops a running job with gated pods that name no Workload."""
        changed = next((pod for pod in pods if _is_of_started_template(pod)), None)
        if changed is None:
            # Its controller made them of the templates as they were before the start, and will again once they are gone.
            message = "pods were made of the job's templates before it was started; it starts again without them"
            await self._steps.evict(workload, REASON_JOB_CHANGED, message)
            return
        message = (
            f"pod {changed['metadata']['name']} has no annotation {WORKLOAD_ANNOTATION}, and the template of its {kind.kind} has one:"
            " another admission webhook removes it, and without it no pod gets a node"
        )
        self._executor.reporter.event(r.resource_of(kind), job, EVENT_WORKLOAD_REFUSED, message, warning=True)
        await self._deactivate(workload, message)

    async def _deactivate(self, workload: Obj, message: str) -> None:
        target = Condition(DEACTIVATION_TARGET, True, REASON_START_REFUSED, message)
        state = (workload.get("status") or {}).get("requeueState")
        await self._steps.take(workload, Amend((target,), state))


def _read_admission(workload: Obj) -> tuple[str, str]:
    return workload["metadata"]["uid"], (find_condition(workload, ADMITTED) or {}).get("lastTransitionTime") or ""


def _is_of_started_template(pod: Obj) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return PODSET_LABEL in labels and CLUSTER_QUEUE_LABEL in labels


def is_start_refused(workload: Obj) -> bool:
    """Whether a Workload was deactivated since its job could not be started."""
    evicted = find_condition(workload, EVICTED) or {}
    return evicted.get("reason") == f"{REASON_DEACTIVATED}DueTo{REASON_START_REFUSED}"

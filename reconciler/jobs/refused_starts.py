"""Jobs with quota that the API server or a webhook refuses to start."""

from core.names import ADMITTED
from core.plan.steps import pacing
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.http.errors import Forbidden, KubeError
from core.state.facts import find_condition

MAX_REASON = 500  # characters of a refusal in a condition
_NO_RIGHT = "cannot patch resource"  # by the authorizer: topogate's own rights are missing, and the job is not wrong


class RefusedStarts:
    """Since when the start of each workload is refused, by uid and admission, as this process has seen it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}

    def remove(self, workload: Obj) -> None:
        """Drops the refusals of a workload's start under its present admission: its job has been started."""
        self._since.pop(_read_admission(workload), None)

    def has_lasted(self, workload: Obj, error: KubeError) -> bool:
        """Records that the start of a workload was refused now. Returns whether it has been refused for `pacing.START_PATIENCE_S` seconds
        under this admission; after `pacing.START_FORGOTTEN_S` it counts anew. Always False, and nothing is recorded, where the right to
        patch is missing."""
        if isinstance(error, Forbidden) and _NO_RIGHT in error.message:
            return False
        now = self._clock.monotonic()
        self._since = {key: at for key, at in self._since.items() if now - at < pacing.START_FORGOTTEN_S}
        return now - self._since.setdefault(_read_admission(workload), now) >= pacing.START_PATIENCE_S


def _read_admission(workload: Obj) -> tuple[str, str]:
    return workload["metadata"]["uid"], (find_condition(workload, ADMITTED) or {}).get("lastTransitionTime") or ""

"""waitForPodsReady: how long pods may take to be ready, and what happens to a workload with pods that are not (KEP-349)."""

from dataclasses import dataclass
from enum import Enum


class Scope(Enum):
    """The scope in which one workload is admitted at a time; wider scopes block more. Values are those of
    `blockAdmissionScope`."""

    CLUSTER = "Cluster"
    COHORT = "Cohort"
    CLUSTER_QUEUE = "ClusterQueue"


class RequeueTime(Enum):
    """What an evicted workload queues up by. Values are those of `requeuingStrategy.timestamp`."""

    EVICTION = "Eviction"
    CREATION = "Creation"


@dataclass(frozen=True, slots=True)
class PodsReadyRules:
    """The settings of waitForPodsReady, if it is on; times in seconds, defaults are those of KEP-349.

    `timeout_s` runs from the job's start, `recovery_timeout_s` (None: for ever) from the moment at which pods that had
    been ready are not. After `backoff_limit` evictions (None: never) the workload is deactivated. `blocks`: no other
    workload of the scope is admitted before the pods of the last one are ready; None if it blocks no workload.
    """

    timeout_s: float = 300.0
    recovery_timeout_s: float | None = None
    blocks: Scope | None = None
    requeue_time: RequeueTime = RequeueTime.EVICTION
    backoff_limit: int | None = None
    backoff_base_s: float = 60.0
    backoff_max_s: float = 3600.0

    def compute_backoff_s(self, count: int, jitter: float) -> float:
        """Returns the seconds for which a workload is held back that is evicted for the `count`th time (from 1).

        These are base x 2^(count - 1) and `jitter` as a share of that, at most `backoff_max_s`.
        """
        pause = self.backoff_base_s
        for _ in range(count - 1):
            if pause >= self.backoff_max_s:
                break
            pause *= 2
        return float(min(pause * (1 + jitter), self.backoff_max_s))

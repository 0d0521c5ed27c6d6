"""When a node counts as lost for a workload, and when so many are that the network is the likelier reason."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from core.model.gates import REPLACE_AFTER_FIXED_TIME, REPLACE_MULTIPLE, REPLACE_ON_POD_TERMINATION, REPLACE_ON_TAINTS, ChosenGates
from core.names import LEAVING_TAINTS, LOST_NODES_THRESHOLD

MAX_THRESHOLD = 8


def parse_threshold(text: object) -> int | None:
    """Returns the number of lost nodes that a value of LOST_NODES_THRESHOLD accepts: a digit from 1 to `MAX_THRESHOLD`. None for any other
    value."""
    return int(text) if isinstance(text, str) and len(text) == 1 and text in "12345678" else None


@dataclass(frozen=True, slots=True)
class StormRules:
    """More than `share` of a topology's nodes, and at least `min_nodes`, that turned not ready within `within_s` of each other are a storm.
    It is over when these are ready again, and after `longest_s` in any case. A share of 1: there are none."""

    share: float = 0.2
    min_nodes: int = 5
    within_s: float = 120.0
    longest_s: float = 1800.0

    def find(self, since: Sequence[datetime], nodes: int, now: datetime) -> tuple[int, datetime] | None:
        """Returns the number of nodes in the latest storm, and the time until which it counts: `longest_s` after its last node turned not
        ready. None where there is no storm, or that time has come at `now`.

        `since`, in any order: when each node that is not ready now turned so; `nodes`: how many the topology has in all. The result depends
        on nothing else, so that a restarted reconciler gets the same.
        """
        times = sorted(since)
        needed = max(self.min_nodes, int(self.share * nodes) + 1)
        window, found, first = timedelta(seconds=self.within_s), None, 0
        for last, time in enumerate(times):
            while time - times[first] > window:
                first += 1
            if last - first + 1 >= needed:
                found = last - first + 1, time + timedelta(seconds=self.longest_s)
        return found if found is not None and now < found[1] else None


@dataclass(frozen=True, slots=True)
class RequeueRules:
    """How long a workload waits that is evicted for lost nodes time after time; times in seconds.

    The first time it does not wait, since other domains may have room. One that has run for `forget_after_s` before
    counts from the first time again.
    """

    base_s: float = 10.0
    limit_s: float = 600.0
    forget_after_s: float = 600.0

    def wait_s(self, times: int) -> float:
        """Returns the seconds before a workload is queued again after its `times`th eviction in a row (from 1): 0, `base_s`, twice that ...
        up to `limit_s`."""
        if times < 2:
            return 0.0
        return min(self.limit_s, self.base_s * 2.0 ** min(times - 2, 64))


@dataclass(frozen=True, slots=True)
class HealthRules:
    """When a node counts as lost; times in seconds.

    `max_nodes` and `max_share` (of the nodes that a workload is assigned to): beyond these it is evicted and not repaired; None: never.
    `reads_threshold`: so it is beyond its own threshold (LOST_NODES_THRESHOLD).
    """

    on_pod_termination: bool = True
    on_taints: bool = True
    after_fixed_time: bool = False
    not_ready_delay_s: float = 30.0
    unschedulable_delay_s: float = 60.0
    max_nodes: int | None = None
    max_share: float | None = None
    storm: StormRules = StormRules()
    requeue: RequeueRules = RequeueRules()
    reads_threshold: bool = False
    leaving_taints: tuple[str, ...] = LEAVING_TAINTS  # of nodes that take replaced pods only where no others do

    def with_gates(self, gates: ChosenGates) -> "HealthRules":
        """Returns a copy of the rules in which the gates REPLACE_ON_POD_TERMINATION, REPLACE_ON_TAINTS, REPLACE_AFTER_FIXED_TIME and
        REPLACE_MULTIPLE, set or by default, replace `on_pod_termination`, `on_taints`, `after_fixed_time` and `reads_threshold`; all else
        stays."""
        return replace(
            self,
            on_pod_termination=gates.is_on(REPLACE_ON_POD_TERMINATION),
            on_taints=gates.is_on(REPLACE_ON_TAINTS),
            after_fixed_time=gates.is_on(REPLACE_AFTER_FIXED_TIME),
            reads_threshold=gates.is_on(REPLACE_MULTIPLE),
        )

    def is_too_much(self, lost: int, nodes: int, threshold: int | None = None) -> str:
        """Returns the text of the setting, with its value, that forbids a repair if `lost` of a workload's `nodes` nodes (both numbers) are
        lost. `threshold`: the workload's own; None: it has none. It is looked at first, then `max_nodes`, then `max_share`. Empty if none
        forbids it."""
        if self.reads_threshold and threshold is not None and lost > threshold:
            return f"{LOST_NODES_THRESHOLD} is {threshold}"
        if self.max_nodes is not None and lost > self.max_nodes:
            return f"nodeReplacement.maxNodes is {self.max_nodes}"
        if self.max_share is not None and lost > self.max_share * nodes:
            return f"nodeReplacement.maxShare is {self.max_share:g}"
        return ""

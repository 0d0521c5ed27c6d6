"""What a cycle is given and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass, field

from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.facts import WorkloadFacts


@dataclass(slots=True)
class Run:
    """What the caller of a cycle knows about workloads, by uid, and how far the cycle is. `served` has the workloads with evicted victims
    that had their turns first."""

    is_held_back: Callable[[str], bool]
    is_busy: Callable[[str], bool]
    may_go_on: Callable[[], bool]
    served: set[str] = field(default_factory=set)
    admitted: set[str] = field(default_factory=set)  # of these
    current: WorkloadFacts | None = None  # the workload that is decided on
    has_decided: bool = False  # whether it has decided on a workload, or begun to


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a cycle decided on one workload: it is admitted or gets another place, or why it waits or is evicted
    (`NotAdmissible.evicts`)."""

    workload: WorkloadFacts
    outcome: Admissible | NotAdmissible
    is_second_pass: bool = False  # it has its quota: its place waited for checks, or it has lost nodes, or pods of it are stuck

    @property
    def is_urgent(self) -> bool:
        """Whether it gives or takes quota or nodes; any other one only reports why a workload waits."""
        if self.is_second_pass or isinstance(self.outcome, Admissible):
            return True
        return self.outcome.preempting is not None and bool(self.outcome.preempting.victims)

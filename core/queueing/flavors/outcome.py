"""The result of a search: an admission of a workload, or the reason why there is none and the workloads to preempt."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from core.model.admission import Admission
from core.model.pod_resources import Resources
from core.names import (
    REASON_FAIR_SHARING,
    REASON_IN_QUEUE,
    REASON_RECLAIMED,
    REASON_RECLAIMED_BY_BORROWER,
    REASON_SPARES_TAKEN_BACK,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    REASON_WAITING_FOR_PREEMPTED,
    REASON_WAITING_FOR_QUOTA,
)
from core.placement.engine import PodSetPlacement
from core.placement.explain.choice import Choice
from core.placement.refusals import NotFit
from core.queueing.flavors.quota_shortage import QuotaShortage
from core.state.facts import WorkloadFacts

# Reasons that come and go with each workload that starts or ends: one today, another tomorrow.
PASSING = {REASON_WAITING_FOR_QUOTA, REASON_TOPOLOGY_PLACEMENT_FAILED, REASON_WAITING_FOR_PREEMPTED}
CURABLE = (REASON_TOPOLOGY_PLACEMENT_FAILED, REASON_WAITING_FOR_QUOTA)  # reasons that may go where other workloads go

_SHOWN = 5  # workloads that a message names

_WHY = {
    REASON_IN_QUEUE: "prioritization in the ClusterQueue",
    REASON_RECLAIMED: "reclamation within the cohort",
    REASON_RECLAIMED_BY_BORROWER: "reclamation within the cohort while borrowing",
    REASON_FAIR_SHARING: "fair sharing within the cohort",
    REASON_SPARES_TAKEN_BACK: "spare nodes that were lent to it and are taken back",
}


def name_workloads(keys: Sequence[str], of: WorkloadFacts | None) -> str:
    """Returns a text with the keys of the first five of some workloads that are in the namespace of the workload `of`, and how many others
    there are. Users of that namespace read the message, and may have no right to read names in others. None: all are named alike. Empty
    without keys."""
    namespace = of.key.partition("/")[0] if of is not None else None
    own = [key for key in keys if namespace in (None, key.partition("/")[0])]
    beyond = len(keys) - len(own)
    named = ", ".join(own[:_SHOWN]) + (f" and {len(own) - _SHOWN} more" if len(own) > _SHOWN else "")
    return " and ".join(filter(None, (named, f"{beyond} of other namespaces" if beyond else "")))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One flavor tried for one pod set, and why it did not serve."""

    pod_set: str
    flavor: str
    reason: str
    sentence: str
    refusal: NotFit | None = None
    pods: int | None = None  # of the pod set, where fewer were tried than it asks for
    shortage: QuotaShortage | None = None


def join_sentences(attempts: Iterable[Attempt], pod_set: str) -> str:
    """Returns the sentences of the attempts, each once in their order, joined by semicolons. A leading `pod set NAME: ` with the name in
    `pod_set` is left out: the message has named it already. Empty without attempts."""
    return "; ".join(dict.fromkeys(attempt.sentence.removeprefix(f"pod set {pod_set}: ") for attempt in attempts))


@dataclass(frozen=True, slots=True)
class Admissible:
    """A way to admit a workload."""

    admission: Admission
    placements: tuple[tuple[str, PodSetPlacement], ...]  # flavor, placement
    attempts: tuple[Attempt, ...]
    choices: tuple[Choice, ...] = ()  # why there
    together: str = ""  # the domain of the level that the workload asks for, if it does
    borrows: bool = False  # from its cohort
    checks: tuple[str, ...] = ()  # admission checks to be passed
    leaves: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()  # pod set, and the nodes from which it takes how many pods
    loans: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of a holder of spares, and those it lends for this
    fewer_since: str = ""  # why not with all the pods that it asks for, of one that is admitted with fewer


@dataclass(frozen=True, slots=True)
class Victim:
    """A workload that must go, and by which right."""

    workload: WorkloadFacts
    reason: str

    @property
    def why(self) -> str:
        """Returns words for a message, such as `reclamation within the cohort`, for the right by which the workload is preempted. Raises
        KeyError for a `reason` that is no such right."""
        return _WHY[self.reason]


@dataclass(frozen=True, slots=True)
class Beside:
    """What a workload that has a place gets on other nodes in addition: amounts per node, and pods per pod set."""

    amounts: tuple[tuple[str, Resources], ...] = ()
    pods: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Preempting:
    """The admission of a workload once its victims, and the workloads that are leaving already, are gone.

    `beside`: what a workload that has a place gets in addition. `is_cut`: the search stopped at its limit of steps, so
    that more workloads may be preempted than necessary. `unseen`: workloads that have to go, too, and are preempted
    once their admission is observed.
    """

    found: Admissible
    victims: tuple[Victim, ...]
    leaving: tuple[str, ...]  # keys
    beside: Beside = Beside()
    is_cut: bool = False
    unseen: tuple[str, ...] = ()  # keys


@dataclass(frozen=True, slots=True)
class NotAdmissible:
    """No way to admit a workload now; `breaks_rule`: nor ever, as it is. With `preempting` it will be, once others are gone.

    `evicts`: one that is admitted already loses its place for this reason. `spares`: there are workloads that it does not preempt only
    because evictions would go in a circle (`core.queueing.preemption.eviction_cycles`).
    """

    reason: str
    message: str
    attempts: tuple[Attempt, ...]
    breaks_rule: bool = False
    preempting: Preempting | None = None
    evicts: bool = False
    spares: bool = False

    def drop_victims(self) -> "NotAdmissible":
        """Returns the same outcome with `preempting` None; the same object where it is None already.

        The victims were evicted when it was decided. By now they may run again, and no decision requires that they are evicted once more.
        """
        return replace(self, preempting=None) if self.preempting is not None else self


Outcome = Admissible | NotAdmissible

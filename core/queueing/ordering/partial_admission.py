"""Partial admission: the most pods with which a workload with a `minCount` can be admitted (KEP-420; PodSet, minCount).

All pod sets that have a `minCount` shrink together, each by the same part of its surplus; slices stay whole (rule d of
docs/decisions/0004). With fewer pods less of every quota and node is used, so that the largest number that fits is
found by bisection.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from core.model.admission import Admission
from core.model.pieces import Pieces
from core.names import MIN_PARALLELISM
from core.placement.refusals import truncate
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.facts import PodSetFacts, WorkloadFacts

MOST_OF_REASON = 300  # characters, of an event that has no more than 1024


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A pod set that is admitted with fewer pods than it asks for."""

    pod_set: str
    given: int
    asked: int
    least: int

    def __str__(self) -> str:
        minimum = f"{MIN_PARALLELISM} accepts {self.least} or more"
        return f"pod set {self.pod_set} has {self.given} of the {self.asked} pods that it asked for ({minimum})"


def list_shortfalls(workload: WorkloadFacts, admission: Admission) -> list[Shortfall]:
    """Returns, in the order of the workload, its pod sets with a `minCount` to which an admission gives fewer pods than they ask for; empty
    if there are none."""
    pairs = zip(workload.pod_sets, admission.pod_sets, strict=False)
    return [
        Shortfall(pod_set.name, given.count, pod_set.count, pod_set.min_count)
        for pod_set, given in pairs
        if pod_set.min_count is not None and given.count < pod_set.count
    ]


def describe_shortfalls(workload: WorkloadFacts, found: Admissible) -> str:
    """Returns a text about the pods that a workload is not given; empty where each pod set with a `minCount` has all. It also has at most
    300 characters of why they do not fit, if `found` has that."""
    text = ", ".join(map(str, list_shortfalls(workload, found.admission)))
    return f"{text}, since not all fit: {truncate(found.fewer_since, MOST_OF_REASON)}" if text and found.fewer_since else text


def can_shrink(workload: WorkloadFacts) -> bool:
    """Whether a workload may run with fewer pods than it asks for: a pod set has a `minCount` below its count."""
    return _count_surplus(workload) > 0


def find_largest(
    workload: WorkloadFacts, judge: Callable[[WorkloadFacts], Pieces[Admissible | NotAdmissible]]
) -> Pieces[Admissible | NotAdmissible | None]:
    """Yields wherever `judge` does. Returns its outcome for the most pods, fewer than requested, with which a workload is admitted, or will
    be once victims are gone.

    None if there is no such number. The requested number of pods itself counts as judged already.
    """
    most = tuple(pod_set.count for pod_set in workload.pod_sets)
    judged: dict[tuple[int, ...], Admissible | NotAdmissible | None] = {most: None}

    def judge_step(step: int) -> Pieces[Admissible | NotAdmissible | None]:
        smaller = _build_shrunk(workload, step)
        counts = tuple(pod_set.count for pod_set in smaller.pod_sets)
        if counts not in judged:
            outcome = yield from judge(smaller)
            judged[counts] = outcome if isinstance(outcome, Admissible) or outcome.preempting is not None else None
        return judged[counts]

    low, high = 1, _count_surplus(workload)  # the least step that will do is among [low, high]
    if high <= 0 or (yield from judge_step(high)) is None:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if (yield from judge_step(middle)) is not None else (middle + 1, high)
    return (yield from judge_step(low))


def build_smallest(workload: WorkloadFacts) -> WorkloadFacts:
    """Returns a copy of the workload with the fewest pods with which it may run: each pod set has its `minCount`, rounded up to whole
    slices. It is the workload itself where it cannot shrink."""
    return _build_shrunk(workload, _count_surplus(workload)) if can_shrink(workload) else workload


def show_minimum(workload: WorkloadFacts) -> str:
    """Returns a text with the least number of pods of each pod set that may shrink (`2 of 4 pods of pod set main`); empty if none may. They
    are whole slices (`build_smallest`), in the order of the workload."""
    return ", ".join(_show_pod_sets(workload))


def _show_pod_sets(workload: WorkloadFacts) -> Iterator[str]:
    for pod_set, least in zip(workload.pod_sets, build_smallest(workload).pod_sets, strict=True):
        if least.count < pod_set.count:
            yield f"{least.count} of {pod_set.count} pods of pod set {pod_set.name}"


def _count_surplus(workload: WorkloadFacts) -> int:
    return sum(map(_count_surplus_of, workload.pod_sets))


def _count_surplus_of(pod_set: PodSetFacts) -> int:
    return max(0, pod_set.count - pod_set.min_count) if pod_set.min_count is not None else 0


def _build_shrunk(workload: WorkloadFacts, step: int) -> WorkloadFacts:
    """With so many pods fewer, all pod sets together, or a few more than that where slices would be broken."""
    total = _count_surplus(workload)
    return replace(workload, pod_sets=tuple(_with(pod_set, _count_surplus_of(pod_set) * step // total) for pod_set in workload.pod_sets))


def _with(pod_set: PodSetFacts, fewer: int) -> PodSetFacts:
    slices = pod_set.topology.slices if pod_set.topology is not None else ()
    size = max(1, slices[0].size) if slices else 1
    whole = -(-(pod_set.count - fewer) // size) * size
    return replace(pod_set, count=min(pod_set.count, whole)) if fewer else pod_set

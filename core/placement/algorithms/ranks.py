"""Which pod goes to which domain: by rank where every rank is known, else in the order of the list.

Rank r belongs to the domain at place r of the assignment with every domain repeated by its count, so
consecutive ranks share a domain (KEP-2724, Story 4).
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate

from core.model.places import give_up
from core.model.podset import TopologyRequest
from core.model.wire.assignment import TopologyAssignment


@dataclass(frozen=True, slots=True)
class RankedPod:
    """A live pod of a pod set: where it is pinned already, None while it is gated.

    A terminating pod still fills its place, but its rank is its successor's already.
    """

    name: str
    labels: Mapping[str, str]
    domain: tuple[str, ...] | None
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class Distribution:
    """The domain (an index into the assignment) of each gated pod that has a place.

    `broken` is the reason why ranks could not be used, with the pod; None where the order of ranks is kept or where the
    pods have none.
    """

    domains: Mapping[str, int]
    by_rank: bool
    broken: str | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)  # of the pods placed by rank


def assign_pods(
    assignment: TopologyAssignment,
    pods: Sequence[RankedPod],
    request: TopologyRequest | None,
    *,
    offset: int = 0,
    count: int | None = None,
    ended: Mapping[tuple[str, ...], int] | None = None,
    surplus: int = 0,
) -> Distribution:
    """Returns the domain of each gated pod of a pod set that gets a place; a pod for which none is left is absent. `pods` are all its live
    pods; `offset` is the index that the pod of rank 0 has in its label.

    `count` is the count of the pod set, where not all of it is assigned. `surplus` is the number of pods that are not expected any more.
    `ended` is the number of pods that have succeeded, per domain.

    The whole pod set is assigned in the order of the list if the rank of one pod is missing, malformed, out of range or a duplicate, or if
    one pod runs outside of the assignment. The same applies to a place by rank that was given up, and, without being `broken`, if no pod
    has a rank. Pods that run in other domains than their ranks require, as after a node was replaced, stay, and the missing ranks are
    placed around them. Kueue drops all ranks then.
    """
    if request is None or request.pod_index_label is None:
        return Distribution(_assign_greedily(assignment, pods, ended or {}, surplus), by_rank=False)
    staying = [pod for pod in pods if not pod.terminating]
    if not any(request.pod_index_label in pod.labels for pod in staying):
        return Distribution(
            _assign_greedily(assignment, pods, ended or {}, surplus), by_rank=False
        )  # pods without ranks have no order to keep
    ranks, broken = _compute_ranks(staying, request, assignment.count if count is None else count, assignment.count, offset)
    if broken is None:
        ends = list(accumulate(domain.count for domain in assignment.domains))  # an assignment may be of billions of pods
        order = {name: bisect_right(ends, rank) for name, rank in ranks.items()}
        values = [domain.values for domain in assignment.domains]
        wrong = next((pod for pod in staying if pod.domain is not None and pod.domain != values[order[pod.name]]), None)
        gated = [pod.name for pod in staying if pod.domain is None]
        if wrong is not None:
            if not surplus and all(pod.domain is None or pod.domain in values for pod in staying):
                return _assign_around(assignment, pods, ranks, ended or {})
            broken = f"pod {wrong.name} of rank {ranks[wrong.name]} is in another domain than its rank's"
        elif (
            late := _find_late(assignment, gated, order, _count_given_up(assignment, _count_here(pods), ended or {}, surplus))
        ) is not None:
            broken = f"the place of rank {ranks[late]} was given up before pod {late} came"
        else:
            return Distribution({name: order[name] for name in gated}, by_rank=True, ranks={name: ranks[name] for name in gated})
    return Distribution(_assign_greedily(assignment, pods, ended or {}, surplus), by_rank=False, broken=broken)


def _count_here(pods: Sequence[RankedPod]) -> Counter[tuple[str, ...]]:
    return Counter(pod.domain for pod in pods if pod.domain is not None)


def _count_given_up(
    assignment: TopologyAssignment, here: Mapping[tuple[str, ...], int], ended: Mapping[tuple[str, ...], int], surplus: int
) -> list[int]:
    """Returns the places per domain that were given up; `here` are pods that have one."""
    empty = [max(0, domain.count - here.get(domain.values, 0)) for domain in assignment.domains]
    return give_up(empty, [ended.get(domain.values, 0) for domain in assignment.domains], surplus)


def _find_late(assignment: TopologyAssignment, gated: Sequence[str], order: Mapping[str, int], given_up: Sequence[int]) -> str | None:
    """The first of the gated pods for which the domain of its rank has no place left; `order` has the domains of all that stay."""
    room = [domain.count - less for domain, less in zip(assignment.domains, given_up, strict=True)]
    wanted = Counter(order.values())
    return next((name for name in gated if wanted[order[name]] > room[order[name]]), None)


def _assign_around(
    assignment: TopologyAssignment, pods: Sequence[RankedPod], ranks: Mapping[str, int], ended: Mapping[tuple[str, ...], int]
) -> Distribution:
    """Ranks that are missing, around pods that stay where another assignment had them, as after a node was replaced.

    A domain with pods takes the ranks next to theirs; the others take what is left, in its order.
    """
    index = {domain.values: i for i, domain in enumerate(assignment.domains)}
    empty = [domain.count - ended.get(domain.values, 0) for domain in assignment.domains]
    held: dict[int, list[int]] = {}
    for pod in pods:
        if pod.domain in index:
            at = index[pod.domain]
            empty[at] -= 1
            if not pod.terminating:
                held.setdefault(at, []).append(ranks[pod.name])
    missing = _Missing(sorted(ranks[pod.name] for pod in pods if pod.domain is None and not pod.terminating))
    places: dict[int, int] = {}
    for at in sorted(held, key=lambda at: min(held[at])):
        for nearest in missing.remove_nearest(held[at], empty[at]):
            held[at].append(nearest)
            places[nearest] = at
    free = (at for at, room in enumerate(empty) if at not in held for _ in range(max(0, room)))
    for rank, at in zip(missing, free, strict=False):
        places[rank] = at
        held.setdefault(at, []).append(rank)
    apart = next((sorted(own) for own in held.values() if max(own) - min(own) + 1 != len(own)), None)
    broken = f"ranks {apart[0]} and {apart[-1]} share a domain with none of those between them" if apart is not None else None
    gated = {pod.name: ranks[pod.name] for pod in pods if pod.domain is None and not pod.terminating and ranks[pod.name] in places}
    return Distribution({name: places[rank] for name, rank in gated.items()}, by_rank=True, broken=broken, ranks=gated)


class _Missing:
    """Ranks that are to be placed, ascending; those that were taken are skipped."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = ranks
        self._after = list(range(len(ranks) + 1))  # from each place on the first that is left, or a place nearer to it
        self._before = list(range(len(ranks) + 1))  # one more than the place up to which it is so backwards; 0 is none

    def __iter__(self) -> Iterator[int]:
        return (rank for i, rank in enumerate(self._ranks) if self._after[i] == i)

    def remove_nearest(self, held: Sequence[int], most: int) -> list[int]:
        """Takes up to `most` ranks, one by one the nearest to those that are held or were taken; of equally near ones the lower."""
        nearest: list[tuple[int, int]] = []  # distance, place
        for rank in held if most > 0 else ():
            self._add_next_to(rank, bisect_left(self._ranks, rank), nearest)
        taken: list[int] = []
        while nearest and len(taken) < most:
            _, place = heappop(nearest)
            if self._after[place] != place:
                continue  # it has been taken
            self._after[place], self._before[place + 1] = place + 1, place
            taken.append(self._ranks[place])
            self._add_next_to(self._ranks[place], place, nearest)
        return taken

    def _add_next_to(self, rank: int, place: int, nearest: list[tuple[int, int]]) -> None:
        after, before = _follow(self._after, place), _follow(self._before, place)
        if after < len(self._ranks):
            heappush(nearest, (self._ranks[after] - rank, after))
        if before > 0:
            heappush(nearest, (rank - self._ranks[before - 1], before - 1))


def _follow(steps: list[int], place: int) -> int:
    """Where steps lead from a place; those that were made are halved for the next time."""
    while steps[place] != place:
        steps[place] = steps[steps[place]]
        place = steps[place]
    return place


def _compute_ranks(
    pods: Sequence[RankedPod], request: TopologyRequest, count: int, assigned: int, offset: int
) -> tuple[dict[str, int], str | None]:
    """Rank of each pod, or why there is none."""
    groups = request.sub_group_count
    if request.sub_group_index_label is not None and (not groups or count % groups):
        return {}, f"{count} pods cannot be {groups or 0} equal sub-groups"
    size = count // groups if groups else count
    ranks: dict[str, int] = {}
    taken: dict[int, str] = {}
    assert request.pod_index_label is not None
    for pod in pods:
        index, problem = _index(pod, request.pod_index_label)
        if index is None:
            return {}, problem
        rank = index - offset
        if request.sub_group_index_label is not None:
            group, problem = _index(pod, request.sub_group_index_label)
            if group is None:
                return {}, problem
            if not 0 <= rank < size:
                return {}, f"pod {pod.name} has index {index}, outside of its sub-group of {size}"
            rank += group * size
        if not 0 <= rank < assigned:
            return {}, f"pod {pod.name} has rank {rank}, outside of the {assigned} assigned"
        if rank in taken:
            return {}, f"pods {taken[rank]} and {pod.name} both have rank {rank}"
        ranks[pod.name] = rank
        taken[rank] = pod.name
    return ranks, None


def _index(pod: RankedPod, label: str) -> tuple[int | None, str | None]:
    text = pod.labels.get(label)
    if text is None:
        return None, f"pod {pod.name} has no label {label}"
    if not text.isascii() or not text.isdigit():
        return None, f"pod {pod.name} has label {label}={text}, which is no index"
    return int(text), None


def _assign_greedily(
    assignment: TopologyAssignment, pods: Sequence[RankedPod], ended: Mapping[tuple[str, ...], int], surplus: int
) -> dict[str, int]:
    """Into empty places, those last at which a pod has succeeded: they may soon be given up."""
    here = _count_here(pods)
    gone = _count_given_up(assignment, here, ended, surplus)
    empty = [max(0, domain.count - here[domain.values]) - less for domain, less in zip(assignment.domains, gone, strict=True)]
    done = [ended.get(domain.values, 0) - less for domain, less in zip(assignment.domains, gone, strict=True)]
    fresh = [max(0, count - used) for count, used in zip(empty, done, strict=True)]
    used = [count - own for count, own in zip(empty, fresh, strict=True)]
    places = (i for counts in (fresh, used) for i, count in enumerate(counts) for _ in range(count))
    gated = (pod for pod in pods if pod.domain is None and not pod.terminating)
    return {pod.name: place for pod, place in zip(gated, places, strict=False)}

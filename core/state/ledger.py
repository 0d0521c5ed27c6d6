"""The one ledger of usage per node (DESIGN decision 7).

Every pod is in exactly one counter until it is gone:

    assigned, not bound yet (not created, gated, or on its way)   reservation of its pod set
    bound, running or terminating, ours or not                    the pod itself
    succeeded, failed, deleted                                    nowhere

A reservation is what an assignment still expects on a node: pods assigned less pods of that pod set
bound there, never below zero. So a pod that is bound moves from one counter to the other in one step.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from core.model.resources import Resources, add
from core.placement.free import FreeCapacity
from core.state.facts import PodFacts

PodSetKey = tuple[str, str, str | None]  # workload key, pod set name, uid of the owner of its pods
Usage = dict[str, dict[str, int]]  # node -> resource -> amount


@dataclass(frozen=True, slots=True)
class Domain:
    """Pods assigned to one domain: all its nodes, and on which of them the engine counted how many.

    One node where the hostname is the lowest level. In a wider domain kube-scheduler chooses the node;
    until it has, the plan, which showed that whole pods fit, stands for its choice.
    """

    nodes: frozenset[str]
    plan: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.plan)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a pod set with an assignment was given; `requests` are of one pod, its one of `pods` included."""

    requests: Resources
    domains: tuple[Domain, ...]


class Ledger:
    """Usage per node, passed on to the free matrices of all flavors that have the node."""

    def __init__(self) -> None:
        self.usage: Usage = {}
        self._views: list[FreeCapacity] = []
        self._pods: dict[str, PodFacts] = {}
        self._reservations: dict[PodSetKey, Reservation] = {}
        self._bound: dict[PodSetKey, Counter[str]] = {}  # pods of a pod set bound per node, while they hold it
        self._reserved: dict[PodSetKey, Counter[str]] = {}  # what is taken now for a reservation, per node

    # --- views ------------------------------------------------------------------------------------

    def attach(self, view: FreeCapacity) -> None:
        """Takes all usage so far from a new view and keeps it up to date from now on."""
        for node, amounts in self.usage.items():
            view.take(node, amounts)
        self._views.append(view)

    def detach(self, view: FreeCapacity) -> None:
        """Forgets a view."""
        self._views.remove(view)

    def _take(self, node: str, amounts: Resources, times: int) -> None:
        if not times:
            return
        here = self.usage.setdefault(node, {})
        add(here, amounts, times)
        if not any(here.values()):
            del self.usage[node]
        for view in self._views:
            view.take(node, amounts, times)

    # --- pods -------------------------------------------------------------------------------------

    def observe_pod(self, key: str, pod: PodFacts | None) -> bool:
        """Folds a pod's present facts (None: gone). Says whether that freed capacity."""
        old = self._pods.pop(key, None)
        if pod is not None:
            self._pods[key] = pod
        if old is not None and pod is not None and _same_burden(old, pod):
            return False
        for facts, sign in ((old, -1), (pod, 1)):
            if facts is not None and _holds(facts):
                self._take(facts.node, facts.requests, sign)
                pod_set = _pod_set_of(facts)
                if pod_set is not None:
                    self._count_bound(pod_set, facts, sign)
        return old is not None and _holds(old)

    def _count_bound(self, key: PodSetKey, pod: PodFacts, sign: int) -> None:
        counter = self._bound.setdefault(key, Counter())
        counter[pod.node] += sign
        if not counter[pod.node]:
            del counter[pod.node]
        if not counter:
            del self._bound[key]
        reservation = self._reservations.get(key)
        if reservation is not None:
            for domain in reservation.domains:
                if pod.node in domain.nodes:
                    self._settle(key, reservation, domain)

    # --- reservations -----------------------------------------------------------------------------

    def reserve(self, key: PodSetKey, reservation: Reservation | None) -> None:
        """Sets (None: drops) what a pod set was assigned; bound pods of it are counted against that."""
        for node, count in self._reserved.pop(key, Counter()).items():
            self._take(node, self._reservations[key].requests, -count)
        self._reservations.pop(key, None)
        if reservation is not None:
            self._reservations[key] = reservation
            for domain in reservation.domains:
                self._settle(key, reservation, domain)

    def _settle(self, key: PodSetKey, reservation: Reservation, domain: Domain) -> None:
        """Brings what is taken for one domain in line with the pods bound in it."""
        taken = self._reserved.setdefault(key, Counter())
        want = _still_expected(domain, self._bound.get(key, Counter()))
        for node, _ in domain.plan:
            change = want[node] - taken[node]
            if change:
                self._take(node, reservation.requests, change)
                taken[node] += change
            if not taken[node]:
                del taken[node]
        if not taken:
            del self._reserved[key]

    # --- invariant --------------------------------------------------------------------------------

    def recount(self) -> Usage:
        """Usage computed anew from the facts alone; must equal `usage` at any time."""
        fresh = Ledger()
        for pod_key, pod in self._pods.items():
            fresh.observe_pod(pod_key, pod)
        for key, reservation in self._reservations.items():
            fresh.reserve(key, reservation)
        return fresh.usage

    def drift(self) -> dict[str, tuple[Mapping[str, int], Mapping[str, int]]]:
        """Nodes whose usage differs from a recount, with both; empty when all is well."""
        counted = self.recount()
        return {
            node: (self.usage.get(node, {}), counted.get(node, {}))
            for node in self.usage.keys() | counted.keys()
            if Counter(self.usage.get(node, {})) != Counter(counted.get(node, {}))
        }


def _holds(pod: PodFacts) -> bool:
    return bool(pod.node) and not pod.terminal


def _pod_set_of(pod: PodFacts) -> PodSetKey | None:
    return (pod.workload, pod.pod_set, pod.owner_uid) if pod.workload and pod.pod_set else None


def _same_burden(old: PodFacts, new: PodFacts) -> bool:
    return (old.node, old.terminal, old.requests, _pod_set_of(old)) == (new.node, new.terminal, new.requests, _pod_set_of(new))


def _still_expected(domain: Domain, bound: Counter[str]) -> Counter[str]:
    """Pods of the plan that are not bound yet, per node: pods bound elsewhere in the domain count, too."""
    rest = max(0, domain.count - sum(bound[node] for node in bound if node in domain.nodes))
    expected: Counter[str] = Counter()
    for node, planned in domain.plan:
        here = min(rest, max(0, planned - bound[node]))
        expected[node] = here
        rest -= here
    return expected

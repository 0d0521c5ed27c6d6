"""The one ledger of usage per node (decision 7 of docs/decisions/0004).

Every pod is in exactly one counter until it is gone:

    assigned, not bound yet (not created, gated, or on its way)   reservation of its pod set
    assigned, done, and never made again (reclaimed)              nowhere
    wanted by a DaemonSet, not bound yet                          share of the DaemonSet (daemonsets.py)
    bound, running or terminating, ours or not                    the pod itself
    succeeded, failed, deleted                                    nowhere

A reservation is what an assignment still expects on a node: pods assigned less pods of that pod set
bound there, never below zero. So a pod that is bound moves from one counter to the other in one step.

A pod that ends leaves its place to its replacement. Where a pod set has a `surplus`, that many are not expected any more,
and their places are given up: those of pods that were seen to succeed (core.model.places, which the ungater uses, too).
Since each end of a pod may move that choice, it is made again by `settle`; until then more is counted, never less.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np

from core.model.places import count_ended_since, give_up
from core.model.pod_resources import Resources, add
from core.model.pod_traits import NO_TRAITS, Labels, PodTraits
from core.placement.topology.free_capacity import FreeCapacity
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.tree import Indices
from core.state.cluster_affinity import ClusterNeighbours
from core.state.daemonsets import DaemonSetFacts, DaemonSets, Windows
from core.state.facts import PodFacts
from core.state.usage import Usage, UsageTable

Drift = Mapping[str, tuple[Mapping[str, int], Mapping[str, int]]]  # node -> its usage, and that of a recount
PodSetKey = tuple[str, str, str | None]  # workload key, pod set name, uid of the owner of its pods
K = TypeVar("K", str, PodSetKey)


@dataclass(frozen=True, slots=True)
class Domain:
    """Pods assigned to one domain of several nodes, and on which of them the engine counted how many.

    kube-scheduler chooses the node; until it has, the plan, which showed that whole pods fit, stands
    for its choice.
    """

    nodes: frozenset[str]
    plan: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        """Returns the number of pods in the plan."""
        return sum(count for _, count in self.plan)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a pod set with an assignment was given. `requests` are of one pod, including one of `pods`. `surplus` is the
    number of assigned pods that are not expected any more, `done_before` that of pods that had succeeded before it was
    assigned.

    `pinned` are pods per node, each named once, in domains of that node alone; `domains` are those with several nodes.
    """

    requests: Resources
    pinned: Sequence[tuple[str, int]]
    domains: tuple[Domain, ...] = ()
    traits: PodTraits = NO_TRAITS
    surplus: int = 0
    done_before: int = 0

    @property
    def count(self) -> int:
        """Returns the number of pods that were given a place on nodes which are there."""
        return sum(count for _, count in self.pinned) + sum(domain.count for domain in self.domains)

    def list_nodes(self) -> Collection[str]:
        """Returns the names of nodes on which its pods are counted before they are bound; a node of several domains may occur again."""
        return [name for name, _ in self.pinned] + [name for domain in self.domains for name, _ in domain.plan]


@dataclass(slots=True)
class _Taken:
    """What is in use for a reservation: `pinned[i]` of `planned[i]` pods on the node of slots[i], and per node of wider domains."""

    reservation: Reservation
    slots: Indices
    planned: Indices
    pinned: Indices
    wide: Counter[str] = field(default_factory=Counter)
    places: dict[str, int] | None = None  # node -> i, once a pod is bound


class Ledger:
    """Usage per node, passed on to the free matrices of all flavors that have the node."""

    def __init__(
        self,
        node_labels: Callable[[str], Labels] = lambda name: {},
        namespace_labels: Callable[[str], Labels | None] = lambda name: None,
        windows: Windows | None = None,
    ) -> None:
        self._pods: dict[str, PodFacts] = {}
        self._taken: dict[PodSetKey, _Taken] = {}
        # Nothing refers back to the ledger: each minute's audit makes one that must go at once (`core.runtime.garbage`).
        self._table = UsageTable(partial(_list_slots, self._taken))
        self._keys: dict[str, dict[PodSetKey, None]] = {}  # of `_taken`, by workload
        self._unnamed: dict[PodSetKey, None] = {}  # of `_taken`: those with nodes that are places in a tree
        self._versions: dict[str, int] = {}  # of what `list_held` returns, by workload
        self._moves = 0
        self.neighbours = ClusterNeighbours(self._pods, node_labels, namespace_labels)
        self.daemons = DaemonSets(partial(_use_daemon_share, self._table, self.neighbours), windows)
        self._bound: dict[PodSetKey, Counter[str]] = {}  # pods of a pod set bound per node, while they hold it
        # Those that have ended well, by key: when they were made, and where they ran.
        self._succeeded: dict[PodSetKey, dict[str, tuple[str, str]]] = {}
        self._left_behind: dict[PodSetKey, dict[str, PodFacts]] = {}  # bound pods, by key, that were deleted by force
        self._rejected: dict[PodSetKey, dict[str, PodFacts]] = {}  # those that a kubelet has refused, by key
        self._ending: dict[str, dict[str, PodFacts]] = {}  # of those bound, by node and by key, that are ending
        self._stale: dict[PodSetKey, None] = {}  # of those with a surplus, where pods have changed since it was given up

    @property
    def usage(self) -> Usage:
        """Returns, as new maps, amounts per node and resource, in canonical units, where anything is in use. It calls `settle` first."""
        self.settle()
        return self._table.read()

    def attach(self, view: FreeCapacity) -> None:
        """Subtracts all usage so far from the free amounts of a new view, in place, and keeps it up to date from now on. The view also gets
        the ledger's own `neighbours` and `daemon_shares`, not copied."""
        self._table.attach(view)
        view.neighbours, view.daemon_shares = self.neighbours, self.daemons.shares

    def detach(self, view: FreeCapacity) -> None:
        """Stops keeping a view up to date, if it was; its free amounts stay as they are."""
        self._table.detach(view)

    # --- pods -------------------------------------------------------------------------------------

    def observe_pod(self, key: str, pod: PodFacts | None) -> bool:
        """Applies a pod's present facts (None: gone). Returns whether that may help a workload: a pod that used a node went, ended, or
        has another node, pod set or requests. It also may if affinity was asked for (`ClusterNeighbours.observe_pod`)."""
        old = self._pods.pop(key, None)
        if pod is not None:
            self._pods[key] = pod
        awaited = self.neighbours.observe_pod(key, old, pod)
        self._note_oddity(key, old, pod)
        if old is not None and pod is not None and _has_same_burden(old, pod):
            return awaited
        self.daemons.observe_pod(old, pod)
        for facts, sign in ((old, -1), (pod, 1)):
            if facts is not None and facts.holds:
                self._table.use_slot(self._table.get_slot(facts.node), facts.requests, sign)
                pod_set = _find_pod_set(facts)
                if pod_set is not None:
                    self._count_bound(pod_set, facts.node, sign)
            elif facts is not None and facts.succeeded and facts.node:
                self._note_success(key, facts, sign)
        return awaited or (old is not None and old.holds)

    def _count_bound(self, key: PodSetKey, node: str, sign: int) -> None:
        _count(self._bound, key, node, sign)
        taken = self._taken.get(key)
        if taken is not None:
            self._note_move(key[0])
            self._settle(key, taken, node)
            if taken.reservation.surplus:
                self._stale[key] = None

    def _note_oddity(self, pod_key: str, old: PodFacts | None, pod: PodFacts | None) -> None:
        for facts, is_there in ((old, False), (pod, True)):
            if facts is None or not (facts.terminating or facts.dropped or facts.rejected) or (key := _find_pod_set(facts)) is None:
                continue
            if facts.terminating and facts.holds:
                _list(self._ending, facts.node, pod_key, facts if is_there else None)
            if facts.dropped and facts.holds:
                _list(self._left_behind, key, pod_key, facts if is_there else None)
            if facts.rejected:
                _list(self._rejected, key, pod_key, facts if is_there else None)

    @property
    def has_odd_pods(self) -> bool:
        """Returns whether there is any pod that was deleted by force and has not ended, or that a kubelet has refused."""
        return bool(self._left_behind or self._rejected)

    def list_left_behind(self, key: PodSetKey) -> Collection[PodFacts]:
        """Returns the bound pods of a pod set that were deleted by force and have not ended, as they still use their nodes. Empty if it has
        a reservation. It is no copy."""
        return self._left_behind.get(key, {}).values() if key not in self._taken else ()

    def list_rejected(self, key: PodSetKey) -> Collection[PodFacts]:
        """Returns the pods of a pod set that a kubelet has refused, as long as the objects are there, with a reservation or without. It is
        no copy."""
        return self._rejected.get(key, {}).values()

    def _note_success(self, pod_key: str, pod: PodFacts, sign: int) -> None:
        key = _find_pod_set(pod)
        if key is not None:
            ended = self._succeeded.setdefault(key, {})
            if sign > 0:
                ended[pod_key] = pod.created, pod.node
            else:
                del ended[pod_key]
            if not ended:
                del self._succeeded[key]
            if key in self._taken and self._taken[key].reservation.surplus:
                self._stale[key] = None

    def settle(self) -> None:
        """Gives up the reserved places of pods that are not expected any more (`Reservation.surplus`). Only pod sets with pods that ended,
        came or went since the last call are looked at."""
        for key in [key for key in self._stale if key in self._taken]:
            self.reserve(key, self._taken[key].reservation)
        self._stale.clear()

    # --- reservations -----------------------------------------------------------------------------

    def reserve(self, key: PodSetKey, reservation: Reservation | None) -> None:
        """Sets what a pod set was assigned, in place of what it was before; None removes it. Bound pods of it are counted themselves, and
        only the rest less `surplus` is reserved. The free amounts of attached views and `neighbours` change
        in place."""
        old = self._taken.pop(key, None)
        if old is None and reservation is None:
            return
        self._unnamed.pop(key, None)
        if old is not None:
            self._keys[key[0]].pop(key)
            if not self._keys[key[0]]:
                del self._keys[key[0]]
            self._note_move(key[0])
            self._table.use_slots(old.slots, old.reservation.requests, -old.pinned)
            for node, count in old.wide.items():
                self._table.use_slot(self._table.get_slot(node), old.reservation.requests, -count)
            self._count_neighbours(old.reservation, -1)
        if reservation is None:
            self.neighbours.reserve(key, NO_TRAITS, None)
            return
        self.neighbours.reserve(key, reservation.traits, reservation.list_nodes)
        self._count_neighbours(reservation, 1)
        nodes = reservation.pinned
        if isinstance(nodes, NodeCounts):
            self._unnamed[key] = None
        planned = nodes.counts if isinstance(nodes, NodeCounts) else np.array([count for _, count in nodes], dtype=np.int64)
        bound, pinned = self._bound.get(key, Counter()), planned.copy()
        if bound:
            pinned = np.maximum(planned - np.array([bound[node] for node, _ in nodes], dtype=np.int64), 0)
        left_out = self._count_left_out(key, reservation, pinned, bound) if reservation.surplus else None
        if left_out is not None:
            pinned -= left_out[: len(planned)]
        self._keys.setdefault(key[0], {})[key] = None
        self._note_move(key[0])
        taken = self._taken[key] = _Taken(reservation, self._table.get_slots(nodes), planned, pinned)
        self._table.use_slots(taken.slots, reservation.requests, pinned)
        for at, domain in enumerate(reservation.domains, len(planned)):
            self._settle_wide(taken, domain, bound, 0 if left_out is None else int(left_out[at]))

    def name_nodes(self, workload: str | None = None) -> None:
        """Lists by name the nodes of a workload's reservations (None: of all), which so refer to no tree any more."""
        keys = list(self._unnamed) if workload is None else [key for key in self._keys.get(workload, ()) if key in self._unnamed]
        for key in keys:
            del self._unnamed[key]
            taken = self._taken[key]
            taken.reservation = replace(taken.reservation, pinned=tuple(taken.reservation.pinned))
            self.neighbours.reserve(key, taken.reservation.traits, taken.reservation.list_nodes)

    def _count_left_out(self, key: PodSetKey, reservation: Reservation, pinned: Indices, bound: Counter[str]) -> Indices:
        """Returns, per pinned node and then per wider domain, the number of places for which no pod is expected any more."""
        ended = count_ended_since(self._succeeded.get(key, {}).values(), reservation.done_before)
        wide = [_count_still_expected(domain, bound).total() for domain in reservation.domains]
        of_pinned = [ended[node] for node, _ in reservation.pinned]
        of_wide = [sum(ended[node] for node in domain.nodes) for domain in reservation.domains]
        return np.array(give_up([*pinned.tolist(), *wide], [*of_pinned, *of_wide], reservation.surplus), dtype=np.int64)

    def _count_neighbours(self, reservation: Reservation, sign: int) -> None:
        """Ports and anti-affinity of pods to come keep others away as long as the reservation stands, bound or not."""
        if reservation.traits.is_particular:
            for node in reservation.list_nodes():
                self.neighbours.count(reservation.traits, node, sign)

    @contextmanager
    def ignore_neighbours(self, workload: str, lost: Mapping[str, AbstractSet[str]]) -> Iterator[None]:
        """Ignores, inside the block, pods of a workload (its `pods_key`) on lost nodes: they keep no other pod away and bring none near.

        `lost` are names of nodes by pod set; only pod sets with a reservation are looked at. Ignored are their pods that are bound there,
        and those assigned there. What they use stays counted. Not to be nested.
        """
        self.settle()
        assigned = {key: self._taken[key].reservation for key in self._keys.get(workload, ()) if lost.get(key[1])}
        some = any(not lost[key[1]].isdisjoint(self._bound.get(key, ())) for key in assigned)
        bound = {name: pod for name, pod in self._pods.items() if pod.workload == workload and pod.holds} if some else {}
        bound = {name: pod for name, pod in bound.items() if pod.node in lost.get(pod.pod_set or "", ())}

        for key, reservation in assigned.items():
            self._move_neighbours(key, reservation, lost[key[1]], -1)
        self.neighbours.ignore(bound)
        try:
            yield
        finally:
            self.neighbours.ignore({})
            for key, reservation in assigned.items():
                self._move_neighbours(key, reservation, lost[key[1]], 1)

    def _move_neighbours(self, key: PodSetKey, reservation: Reservation, lost: AbstractSet[str], sign: int) -> None:
        """Takes pods that are assigned away from some of their nodes, or back to these, as other pods see it."""
        nodes = frozenset(reservation.list_nodes())
        for node in nodes & lost:
            self.neighbours.count(reservation.traits, node, sign)
        self.neighbours.reserve(key, reservation.traits, reservation.list_nodes if sign > 0 else (nodes - lost).copy)

    def _settle(self, key: PodSetKey, taken: _Taken, node: str) -> None:
        """Brings what is taken for a node's domain in line with the pods bound in it."""
        bound = self._bound.get(key, Counter())
        if taken.places is None:
            taken.places = {name: i for i, (name, _) in enumerate(taken.reservation.pinned)}
        place = taken.places.get(node)
        if place is not None:
            expected = max(0, int(taken.planned[place]) - bound[node])
            change = expected - int(taken.pinned[place])
            if change:
                taken.pinned[place] = expected
                self._table.use_slot(int(taken.slots[place]), taken.reservation.requests, change)
        for domain in taken.reservation.domains:
            if node in domain.nodes:
                self._settle_wide(taken, domain, bound)

    def _settle_wide(self, taken: _Taken, domain: Domain, bound: Counter[str], less: int = 0) -> None:
        want = _count_still_expected(domain, bound)
        for node, _ in reversed(domain.plan):
            here = min(less, want[node])
            want[node] -= here
            less -= here
        for node, _ in domain.plan:
            change = want[node] - taken.wide[node]
            if change:
                self._table.use_slot(self._table.get_slot(node), taken.reservation.requests, change)
                taken.wide[node] += change

    def list_held(self, workload: str) -> list[tuple[Resources, list[tuple[str, int]]]]:
        """Returns what is counted for a workload (its `pods_key`): per reservation the requests of one pod in canonical units, and pods per
        node, bound or still expected. Beside its pod sets these are its spare nodes, and what `ClusterState.assume` (`leaves`) and
        `reserve_beside` count. Empty where it has none."""
        held = []
        for key in self._keys.get(workload, ()):
            taken = self._taken[key]
            per_node = dict(self._bound.get(key, {}))
            pinned = zip((name for name, _ in taken.reservation.pinned), taken.pinned.tolist(), strict=True)
            for name, count in chain(taken.wide.items(), pinned):
                if count:
                    per_node[name] = per_node.get(name, 0) + count
            held.append((taken.reservation.requests, [(name, count) for name, count in per_node.items() if count]))
        return held

    def read_version(self, workload: str) -> int:
        """Returns a number that changes whenever the result of `list_held` may have changed; 0 for a workload (its `pods_key`) without
        reservations."""
        return self._versions.get(workload, 0)

    def _note_move(self, workload: str) -> None:
        self._moves += 1
        if workload in self._keys:
            self._versions[workload] = self._moves
        else:
            self._versions.pop(workload, None)

    def count_expected(self, key: PodSetKey) -> Mapping[str, int]:
        """Returns the number of pods per node, which may be 0, that are planned in domains of several nodes and not bound yet. Empty
        without a reservation. It is no copy."""
        taken = self._taken.get(key)
        return taken.wide if taken is not None else {}

    def count_assigned(self, key: PodSetKey) -> Mapping[str, int]:
        """Returns the number of pods per node that a pod set was assigned, bound or not, those that are not expected any more included.
        Empty without a reservation."""
        taken, found = self._taken.get(key), Counter[str]()
        if taken is not None:
            found.update(dict(taken.reservation.pinned))
            for domain in taken.reservation.domains:
                found.update(dict(domain.plan))
        return found

    def compute_ending_usage(self, node: str) -> dict[str, int]:
        """Returns what pods that are being deleted and have not ended use on a node, by resource in canonical units. Only pods that name a
        workload and a pod set count, and only where that has no reservation."""
        total: dict[str, int] = {}
        for pod in self._ending.get(node, {}).values():
            if _find_pod_set(pod) not in self._taken:
                add(total, pod.requests)
        return total

    def has_bound_pods(self, workload: str) -> bool:
        """Returns whether any pod of a workload (its `pods_key`) is bound to a node and has not ended; only pod sets with a reservation
        count."""
        return any(self._bound.get(key) for key in self._keys.get(workload, ()))

    def is_running_on(self, workload: str, node: str) -> bool:
        """Returns whether a pod of a workload (its `pods_key`) is bound to a node and is not being deleted; only pod sets with a
        reservation count."""
        ending = Counter(_find_pod_set(pod) for pod in self._ending.get(node, {}).values())
        return any(self._bound.get(key, Counter())[node] > ending[key] for key in self._keys.get(workload, ()))

    def list_counted_nodes(self, key: PodSetKey) -> list[tuple[str, int]]:
        """Returns the nodes that the pods of a pod set are counted on, with numbers of pods: where they are bound, else where they are
        expected. Where that makes another number than were assigned, as while old pods end, it is the plan. Empty without a reservation."""
        taken = self._taken.get(key)
        if taken is None:
            return []
        planned = Counter(dict(taken.reservation.pinned))
        for domain in taken.reservation.domains:
            planned.update(dict(domain.plan))
        now = Counter(self._bound.get(key, Counter()))
        now.update(taken.wide)
        now.update(dict(zip((name for name, _ in taken.reservation.pinned), taken.pinned.tolist(), strict=True)))
        # More are bound than were assigned while old pods end: the plan has the places of those that stay.
        counted = now if now.total() == planned.total() else planned
        return [(name, count) for name, count in counted.items() if count]

    # --- invariant --------------------------------------------------------------------------------

    def audit(self) -> Iterator[Drift | None]:
        """Yields None once per node, DaemonSet, pod and reservation that it counts again. At last it yields, as `find_drift` does, what
        differed at the moment of the first step, whatever happens between the steps."""
        self.settle()
        nodes, sets = list(self.daemons.nodes.items()), list(self.daemons.sets.items())
        pods, reserved = list(self._pods.items()), [(key, taken.reservation) for key, taken in self._taken.items()]
        usage = self._count_all()
        fresh = Ledger(windows={name: dict(ends) for name, ends in self.daemons.windows.items()})
        for name, node in nodes:
            fresh.daemons.observe_node(name, node)
            yield None
        for key, facts in sets:
            fresh.daemons.observe_set(key, facts)
            yield None
        for pod_key, pod in pods:
            fresh.observe_pod(pod_key, pod)
            yield None
        for pod_set, reservation in reserved:
            fresh.reserve(pod_set, reservation)
            yield None
        counted = fresh._count_all()
        yield {
            node: (usage.get(node, {}), counted.get(node, {}))
            for node in usage.keys() | counted.keys()
            if usage.get(node) != counted.get(node)
        }

    def _count_all(self) -> dict[str, Mapping[str, int]]:
        usage, others = self.usage, self.neighbours.count_by_node()
        return {node: {**usage.get(node, {}), **others.get(node, {})} for node in usage.keys() | others.keys()}

    def find_drift(self) -> Drift:
        """Returns the nodes with usage that differs from that of a ledger built from the facts alone, each with its usage and the recounted
        one. They are by resource in canonical units, with numbers of pods by port and anti-affinity; empty without a difference."""
        return next(found for found in self.audit() if found is not None)


def _list_slots(taken: Mapping[PodSetKey, _Taken]) -> list[Indices]:
    return [each.slots for each in taken.values()]


def _use_daemon_share(table: UsageTable, neighbours: ClusterNeighbours, facts: DaemonSetFacts, node: str, sign: int) -> None:
    table.use_slot(table.get_slot(node), facts.requests, sign)
    neighbours.count(facts.traits, node, sign)


def _find_pod_set(pod: PodFacts) -> PodSetKey | None:
    return (pod.workload, pod.pod_set, pod.owner_uid) if pod.workload and pod.pod_set else None


def _list(table: dict[K, dict[str, PodFacts]], key: K, pod_key: str, pod: PodFacts | None) -> None:
    """Enters a pod of a pod set, or of a node, None: strikes it off."""
    if pod is not None:
        table.setdefault(key, {})[pod_key] = pod
        return
    del table[key][pod_key]
    if not table[key]:
        del table[key]


def _count(counters: dict[PodSetKey, Counter[str]], key: PodSetKey, node: str, sign: int) -> None:
    counter = counters.setdefault(key, Counter())
    counter[node] += sign
    if not counter[node]:
        del counter[node]
    if not counter:
        del counters[key]


def _has_same_burden(old: PodFacts, new: PodFacts) -> bool:
    was, now = ((pod.node, pod.terminal, pod.succeeded, pod.requests, _find_pod_set(pod)) for pod in (old, new))
    return was == now


def _count_still_expected(domain: Domain, bound: Counter[str]) -> Counter[str]:
    """Pods of the plan that are not bound yet, per node: pods bound elsewhere in the domain count, too."""
    rest = max(0, domain.count - sum(bound[node] for node in bound if node in domain.nodes))
    expected: Counter[str] = Counter()
    for node, planned in domain.plan:
        here = min(rest, max(0, planned - bound[node]))
        expected[node] = here
        rest -= here
    return expected

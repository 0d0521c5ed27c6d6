"""Lending of spare nodes: workloads of lower priority run on them until their holder needs them.

The ledger counts the room that a spare node must provide as used, lent or not, and counts the pods of a borrower as
well. So a lent node is used beyond its capacity by just the lent amount, and no other pod is placed there. A workload
that may borrow sees the lent amount as free (`Offer`). The holder sees its own spare nodes as free, and the pods on
them as gone (`Loan`). Pods never use more than a node has.

The borrowed nodes of a workload are recorded on the workload (core.model.spare_nodes). A loan ends without any action
once the node has room for both, the spare is kept elsewhere, or the borrower's priority was raised. All functions here
use the present state alone.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from core.model.pod_resources import Resources
from core.model.quantity import saturate
from core.placement.algorithms.decision import subtract_placement
from core.placement.topology.free_capacity import FreeCapacity, Matrix, with_pod
from core.queueing.flavors.outcome import Admissible, name_workloads
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.flavor_view import FlavorView

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Offer:
    """What a workload lends of one of its pod sets: room for so many pods of it on each node."""

    holder: WorkloadFacts
    view: FlavorView
    requests: Resources  # of one pod, its one of `pods` included
    nodes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Borrower:
    """A workload on a lent node, and what its pods take there."""

    workload: WorkloadFacts
    amounts: Resources


@dataclass(frozen=True, slots=True)
class Loan:
    """A spare node that other workloads use. `borrowers` are in the order in which they are evicted.

    `amounts` is the part of their use that does not fit on the node beside the spare. There may be no borrowers: pods
    of a workload that is gone may still be ending.
    """

    node: str
    borrowers: tuple[Borrower, ...]
    amounts: Resources
    ending: Resources  # used on the node by ending pods of workloads that hold nothing any more

    @property
    def keys(self) -> tuple[str, ...]:
        """Returns the keys (namespace/name) of the borrowers, in the order in which they are evicted."""
        return tuple(borrower.workload.key for borrower in self.borrowers)


# --- borrowers ---------------------------------------------------------------------------------------------


def list_offers(state: ClusterState, priority: int) -> list[Offer]:
    """Returns what is lent to a workload of this priority: the spare nodes of workloads of higher (not equal) priority that may lend them,
    one offer for each of their pod sets. One that is inactive, evicted or being deleted, or has failed nodes or stuck pods, lends none.
    Nodes that are lent already are among them."""
    workloads = state.workloads
    holders = (workloads.facts[key] for key in workloads.list_lenders() if workloads.is_lending(key) and key not in state.stuck)
    return [offer for holder in holders if holder.priority > priority for offer in _list_offers_of(state, holder)]


def select_offers(offers: Iterable[Offer], hosts: Collection[str]) -> list[Offer]:
    """Returns copies of the offers with only the nodes that are among `hosts`: by hostname, as assignments name them. Offers without such a
    node are left out."""
    kept = ((offer, tuple(entry for entry in offer.nodes if offer.view.get_host(entry[0]) in hosts)) for offer in offers)
    return [replace(offer, nodes=nodes) for offer, nodes in kept if nodes]


def _list_offers_of(state: ClusterState, holder: WorkloadFacts) -> Iterator[Offer]:
    admission = state.workloads.find_holding(holder.key)
    for pod_set, given in zip(holder.pod_sets, admission.pod_sets if admission is not None else (), strict=False):
        flavor = state.find_topology_flavor(given.flavors.values()) if pod_set.lends and given.spares else None
        view = state.get_view(flavor) if flavor is not None else None
        nodes = view.list_spares(given) if view is not None else ()
        if view is not None and nodes:
            yield Offer(holder, view, with_pod(pod_set.requests), nodes)


def release(view: FlavorView, free: Matrix, offers: Iterable[Offer]) -> None:
    """Adds what is lent to `free` (canonical amounts, resources by nodes of the view), in place; nodes and resources that the view does not
    have are left out.

    Nothing is lent to pods that are not assigned to single nodes: the pods to evict from a node must be known.
    """
    for offer in offers if view.capacity.tree.is_hostname else ():
        for node, pods in offer.nodes:
            _give(view.capacity, free, node, offer.requests, pods)


def note_loans(state: ClusterState, workload: WorkloadFacts, found: Admissible, offers: Sequence[Offer]) -> Admissible:
    """Returns a copy of what was found with offers taken as free, with the nodes noted that have no room for it without them.

    The admission names them as borrowed, by hostname, and `loans` has their names by the key of their holder, both sorted.
    """
    requests = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    short: dict[str, set[str]] = {}
    hosts: dict[str, set[str]] = {}
    for flavor in {flavor for flavor, _ in found.placements}:
        view = state.get_view(flavor)
        assert view is not None  # it was placed there
        left, index = view.capacity.free.copy(), view.capacity.tree.index
        for _, placement in found.placements:
            subtract_placement(view.capacity, left, state.request_for(requests[placement.pod_set], view.flavor), placement)
        for name, placement in found.placements:
            rows = [view.capacity.axis[r] for r in with_pod(requests[placement.pod_set].requests) if r in view.capacity.axis]
            if name == flavor:
                short[placement.pod_set] = {node for node, _ in placement.nodes if (left[rows, index[node]] < 0).any()}
                hosts[placement.pod_set] = {view.get_host(node) for node in short[placement.pod_set]}
    nodes = {node for names in short.values() for node in names}
    holders: dict[str, set[str]] = {}
    for offer in offers:
        holders.setdefault(offer.holder.key, set()).update(nodes.intersection(name for name, _ in offer.nodes))
    pod_sets = tuple(replace(given, borrowed=tuple(sorted(hosts.get(given.name, ())))) for given in found.admission.pod_sets)
    loans = tuple((key, tuple(sorted(names))) for key, names in sorted(holders.items()) if names)
    return replace(found, admission=replace(found.admission, pod_sets=pod_sets), loans=loans)


def show_loans(loans: Iterable[tuple[str, Sequence[str]]], borrower: WorkloadFacts | None) -> str:
    """Returns a text with the spare nodes that a workload has borrowed, at most five for each holder, and the holders (`name_workloads`);
    empty if there are none."""
    lent = "; ".join(f"{_format_list(nodes)} of {name_workloads([key], borrower)}" for key, nodes in loans)
    return f"on spare nodes lent to it, which it has to leave when they are needed: {lent}" if lent else ""


# --- lenders -----------------------------------------------------------------------------------------------


def list_loans(state: ClusterState, holder: WorkloadFacts, leaving: Collection[str] = ()) -> list[Loan]:
    """Returns the lent spare nodes of a workload on which not all fits beside the spare, sorted by node. In each, borrowers that are
    evicted or `leaving` (keys) come first, then those that were admitted last, and only as many as must go for the room. Left out is a node
    where neither borrowers of lower priority nor ending pods use any of what is lacking."""
    found: dict[str, Loan] = {}
    taken: dict[str, Mapping[str, Resources]] = {}  # by borrower and node: one may have pods on all of them
    for offer in _list_offers_of(state, holder):
        free, axis, index = offer.view.capacity.free, offer.view.capacity.axis, offer.view.capacity.tree.index
        for node, _ in offer.nodes:
            over = {r: -int(free[row, index[node]]) for r, row in axis.items() if free[row, index[node]] < 0}
            loan = _build_loan(state, offer, node, over, leaving, taken) if over and node not in found else None
            if loan is not None:
                found[node] = loan
    return [found[node] for node in sorted(found)]


def list_borrowed(state: ClusterState, workload: WorkloadFacts) -> list[tuple[str, tuple[str, ...]]]:
    """Returns the keys of holders, sorted, each with the names of its spare nodes, sorted, that this workload would have to leave for it;
    empty if there are none."""
    holders = (state.workloads.facts[key] for key in sorted(state.workloads.list_lenders()))
    loans = ((holder.key, tuple(loan.node for loan in list_loans(state, holder) if workload.key in loan.keys)) for holder in holders)
    return [(key, nodes) for key, nodes in loans if nodes]


def choose_borrowers(borrowers: Iterable[Borrower], wanted: Resources) -> tuple[Borrower, ...]:
    """Returns, in their order, as few of the first borrowers as use `wanted` (canonical amounts) together, without those that others make
    needless; all that use any of it where that is less."""
    chosen, left = list[Borrower](), dict(wanted)
    for borrower in borrowers:
        if any(left.get(resource, 0) > 0 and amount > 0 for resource, amount in borrower.amounts.items()):
            chosen.append(borrower)
            left = {resource: amount - borrower.amounts.get(resource, 0) for resource, amount in left.items()}
    for borrower in reversed(chosen):  # of several resources another may take more
        if all(amount + borrower.amounts.get(resource, 0) <= 0 for resource, amount in left.items()):
            chosen.remove(borrower)
            left = {resource: amount + borrower.amounts.get(resource, 0) for resource, amount in left.items()}
    return tuple(chosen)


def give_back(capacity: FreeCapacity, free: Matrix, loans: Iterable[Loan]) -> None:
    """Adds the `amounts` of loans to `free`, what their holder may use (canonical amounts, resources by nodes), in place. Nodes that are
    not in it are left out."""
    for loan in loans:
        _give(capacity, free, loan.node, loan.amounts, 1)


def count_reserved_once(state: ClusterState, view: FlavorView) -> FreeCapacity:
    """Returns a copy of the nodes of a flavor with other free amounts: what is kept for one workload and lent to another is counted as used
    once, not twice."""
    free, seen = view.capacity.free.copy(), set[str]()
    for key in state.workloads.list_lenders() if state.workloads.has_borrowers() else ():
        loans = [loan for loan in list_loans(state, state.workloads.facts[key]) if loan.node not in seen]
        give_back(view.capacity, free, loans)
        seen.update(loan.node for loan in loans)
    return view.capacity.with_free(free)


def show_lent(loans: Sequence[Loan], holder: WorkloadFacts | None) -> str:
    """Returns a text with the number of lent spare nodes, and the first five, each with its borrowers (`name_workloads`); empty if there
    are none."""
    nodes = [f"{loan.node} to {name_workloads(loan.keys, holder) or 'pods that are ending'}" for loan in loans[:_SHOWN]]
    more = f" and {len(loans) - _SHOWN} more" if len(loans) > _SHOWN else ""
    return f"{len(loans)} of these lent: {', '.join(nodes)}{more}" if loans else ""


def _build_loan(
    state: ClusterState, offer: Offer, node: str, over: Resources, leaving: Collection[str], taken: dict[str, Mapping[str, Resources]]
) -> Loan | None:
    workloads, host = state.workloads, offer.view.get_host(node)

    def find_taken(borrower: WorkloadFacts) -> Resources:
        if borrower.key not in taken:
            taken[borrower.key] = _sum_by_node(state, borrower)
        return taken[borrower.key].get(node, {})

    borrowers = [
        Borrower(facts, find_taken(facts))
        for key in workloads.find_borrowers(host)
        if (facts := workloads.facts.get(key)) is not None and facts.priority < offer.holder.priority
    ]
    ending = state.ledger.compute_ending_usage(node)
    # Other borrowers are not evicted for room that leaving borrowers already give back.
    borrowers.sort(key=lambda borrower: (borrower.workload.created, borrower.workload.key), reverse=True)
    borrowers.sort(key=lambda borrower: borrower.workload.reserved_at or "~", reverse=True)
    borrowers.sort(key=lambda borrower: not (borrower.workload.evicted or borrower.workload.key in leaving))
    chosen = choose_borrowers(borrowers, {resource: amount - ending.get(resource, 0) for resource, amount in over.items()})
    theirs = Counter(ending)
    for borrower in chosen:
        theirs.update(borrower.amounts)
    amounts = {resource: min(amount, theirs[resource]) for resource, amount in over.items() if theirs[resource] > 0}
    return Loan(node, chosen, amounts, ending) if amounts else None


def _sum_by_node(state: ClusterState, workload: WorkloadFacts) -> Mapping[str, Resources]:
    """What the pods of a workload take by node, bound or expected."""
    total = dict[str, dict[str, int]]()
    for requests, nodes in state.ledger.list_held(workload.pods_key):
        for name, count in nodes:
            on_node = total.setdefault(name, {})
            for resource, amount in requests.items():
                on_node[resource] = on_node.get(resource, 0) + amount * count
    return total


def _give(capacity: FreeCapacity, free: Matrix, node: str, amounts: Resources, times: int) -> None:
    place = capacity.tree.index.get(node)
    for resource, amount in amounts.items() if place is not None else ():
        if resource in capacity.axis:
            row = capacity.axis[resource]
            free[row, place] = saturate(int(free[row, place]) + amount * times)


def _format_list(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")

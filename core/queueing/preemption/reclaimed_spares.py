"""The lent spare nodes that a workload takes back when it has lost nodes: the fewest with which its pods get as good a
place as with all of them.

Another node that serves as well is used at once, and no workload is evicted. Otherwise the borrowers on the chosen
nodes are evicted, and the workload waits for them in its old place. What is lent stays reserved for it, and is not lent
again while it has lost nodes. What it gets in addition is reserved meanwhile (core.queueing.preemption.reservations);
otherwise the evictions could be without effect.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from core.model.pod_resources import Resources
from core.model.podset import Mode, PodSetRequest
from core.names import REASON_SPARES_TAKEN_BACK, REASON_WAITING_FOR_PREEMPTED
from core.placement.algorithms.decision import Decision
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.algorithms.spare_placement import build_flags
from core.placement.refusals import truncate
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.tree import TopologyTree
from core.queueing.flavors.outcome import Admissible, Beside, NotAdmissible, Preempting, Victim
from core.queueing.flavors.spare_lending import Borrower, Loan, choose_borrowers
from core.queueing.preemption.reservations import show
from core.state.facts import WorkloadFacts


def sort_fewest_first(loans: Sequence[Loan], leaving: Collection[str]) -> list[Loan]:
    """Returns the loans in a new order, those first for which the fewest borrowers have to be evicted that are neither evicted nor
    `leaving` (keys) already; equal ones stay as they were.

    So an eviction that was requested is used, and one borrower on several nodes comes before two that share a node.
    """
    return sorted(loans, key=lambda loan: sum(not (one.workload.evicted or one.workload.key in leaving) for one in loan.borrowers))


def choose_loans(
    tree: TopologyTree, requests: Sequence[PodSetRequest], loans: Sequence[Loan], decide: Callable[[Sequence[Loan]], Decision]
) -> Decision:
    """Returns the decision on lost pods with as few of the first loans ended as give a place as good as with all of them; with none, where
    that is as good. A refusal is worst; of places only the number of domains that pod sets with a preferred level use counts, the coarsest
    level first. `decide` returns the decision with some of the loans ended; with more of them it never gets worse."""
    without = decide(())
    if not loans:
        return without
    wanted = _compute_cost(tree, requests, decide(loans))
    if _compute_cost(tree, requests, without) <= wanted:
        return without
    low, high = 1, len(loans)
    while low < high:
        middle = (low + high) // 2
        if _compute_cost(tree, requests, decide(loans[:middle])) <= wanted:
            high = middle
        else:
            low = middle + 1
    return decide(loans[:low])


def find_needed(capacity: FreeCapacity, left: Matrix, nodes: Collection[str], loans: Sequence[Loan]) -> tuple[list[Borrower], list[str]]:
    """Returns the borrowers to evict, each once and as few as make room beside `Loan.ending`, and the names of the lent nodes that need
    room: of `loans`, in their order, those in `nodes` with an amount below zero in `left` (canonical amounts, resources by nodes: what pods
    leave there if no borrower is evicted). Nodes without a loan are not looked at. A node may need room without any borrower."""
    going: dict[str, Borrower] = {}
    short = []
    for loan in loans:
        place = capacity.tree.index.get(loan.node)
        if loan.node not in nodes or place is None:
            continue
        lack = {resource: -int(left[row, place]) for resource, row in capacity.axis.items() if left[row, place] < 0}
        if lack:
            short.append(loan.node)
            chosen = [borrower for borrower in loan.borrowers if borrower.workload.key in going]  # for another node
            leaving = [loan.ending, *(borrower.amounts for borrower in chosen)]
            rest = {resource: amount - sum(part.get(resource, 0) for part in leaving) for resource, amount in lack.items()}
            others = [borrower for borrower in loan.borrowers if borrower.workload.key not in going]
            going |= {borrower.workload.key: borrower for borrower in choose_borrowers(others, rest)}
    return list(going.values()), short


def find_beside(capacity: FreeCapacity, left: Matrix) -> Iterator[tuple[str, Resources]]:
    """Yields each node where pods take what is not kept for them, by name in the order of the tree, with the canonical amounts that they
    take. `left` (resources by nodes) has what they leave of what is free in `capacity`."""
    more = capacity.free - left
    for node in np.flatnonzero((more > 0).any(axis=0)).tolist():
        yield capacity.tree.names[node], {resource: int(more[row, node]) for resource, row in capacity.axis.items() if more[row, node] > 0}


def wait_for_borrowers(
    workload: WorkloadFacts,
    found: Admissible,
    nodes: Sequence[str],
    borrowers: Collection[WorkloadFacts],
    leaving: Collection[str],
    beside: Beside,
) -> NotAdmissible:
    """Returns the outcome of a workload that waits until the borrowers are gone from the spare nodes (`nodes`: names) that it takes back.
    `found` is its place there, `beside` what it takes that is not kept for it. Victims are those that are neither evicted nor `leaving`
    (keys) already; there may be none."""
    victims = tuple(Victim(w, REASON_SPARES_TAKEN_BACK) for w in borrowers if not w.evicted and w.key not in leaving)
    victim_keys = {victim.workload.key for victim in victims}
    preempting = Preempting(found, victims, tuple(sorted(w.key for w in borrowers if w.key not in victim_keys)), beside)
    lost = ", ".join(sorted(workload.unhealthy_nodes)) if workload.unhealthy_nodes else "nodes that do not take its pods"
    why = show(preempting, workload) or "waits until pods that end there are gone"
    message = truncate(f"its pods of {lost} go to spare nodes that it had lent: {', '.join(sorted(nodes))}; it {why}")
    return NotAdmissible(REASON_WAITING_FOR_PREEMPTED, message, found.attempts, preempting=preempting)


def _compute_cost(tree: TopologyTree, requests: Sequence[PodSetRequest], decision: Decision) -> tuple[bool, list[int]]:
    """No place costs more than any; else the domains that pods are in which are together by preference, the coarsest level first."""
    if decision.refusal is not None:
        return True, []
    spread = [0] * len(tree.levels)
    for request, placement in zip(requests, decision.placements, strict=True):
        shape = find_shape(tree, request)
        if isinstance(shape, Shape) and request.topology is not None and request.topology.mode is Mode.PREFERRED:
            used = build_flags(tree, (node for node, _ in placement.nodes))
            for level in range(shape.start + 1):
                spread[level] += int(np.count_nonzero(tree.has_any_node(level, used)))
    return False, spread

"""Placement of pod sets that have host ports or pod affinity, also of pods that must stay near to or apart from their
own kind.

Pods with affinity to their own kind follow the first of them into its domain: the domains are tried one by one, the
tightest first. No place is given that kube-scheduler would refuse. One that it would accept may be missed; the refusal
reports that.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from core.model.podset import Mode, PodSetRequest
from core.placement.algorithms.decision import Decision
from core.placement.algorithms.domain_capacity import fits_on_nodes
from core.placement.algorithms.own_limit import find_required_domains, list_own_terms
from core.placement.algorithms.slices import find_shape
from core.placement.refusals import Explanation, NotFit, RefusalKind
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.node_eligibility import InvalidSelector
from core.placement.topology.pod_affinity import PodNeighbours
from core.placement.topology.tree import Indices

_MOST_DOMAINS = 256  # tried one by one
_SORT_PASSES = 6  # what it costs to count pods by domains that are none of a level
# Places requests one after the other on a view.
PlaceInOrder = Callable[[FreeCapacity, Sequence[PodSetRequest], Matrix | None], Decision]


def place_particular(in_order: PlaceInOrder, view: FreeCapacity, requests: Sequence[PodSetRequest], free: Matrix | None) -> Decision:
    """Places requests of which some have host ports or pod affinity; `in_order` does so on one view without a look at the others.

    Returns the placements in the order of the requests, or none of them and a refusal.
    """
    refusal: NotFit | None = None
    refused: tuple[FreeCapacity, Sequence[PodSetRequest]] | None = None  # the attempt that gives the reason
    try:
        for tried_view, asked in _list_attempts(view.set_explains(False), _order_followed_first(view.around, requests), free):
            if refusal is not None and not view.budget.spend(view.pass_steps):
                break
            decision = in_order(tried_view, asked, free)
            wrong = find_conflict(view, asked, decision) if decision.refusal is None else decision.refusal
            if wrong is None:
                by_name = {placement.pod_set: placement for placement in decision.placements}
                return replace(decision, placements=tuple(by_name[request.name] for request in requests))
            if refusal is None or wrong.fit > refusal.fit:
                refusal, refused = wrong, (tried_view, asked) if wrong is decision.refusal else None
        if refused is not None and view.explains:
            tried_view, asked = refused
            refusal = in_order(tried_view.set_explains(True), asked, free).refusal
    except InvalidSelector:
        refusal = in_order(view, requests, free).refusal  # it names the pod set and the reason
    assert refusal is not None
    return Decision((), refusal)


def _order_followed_first(around: PodNeighbours, requests: Sequence[PodSetRequest]) -> list[PodSetRequest]:
    """Returns the pod sets in the given order, but each with affinity to the pods of another pod set after that pod set."""
    waiting, ordered = list(requests), list[PodSetRequest]()
    while waiting:

        def is_following(request: PodSetRequest) -> bool:
            return any(other is not request and around.is_followed(request.traits, other.traits) for other in waiting)  # noqa: B023 - at once

        ordered.append(next((request for request in waiting if not is_following(request)), waiting[0]))
        waiting = [request for request in waiting if request is not ordered[-1]]
    return ordered


# --- what is tried ------------------------------------------------------------------------------------


def _list_attempts(
    view: FreeCapacity, requests: Sequence[PodSetRequest], free: Matrix | None
) -> Iterator[tuple[FreeCapacity, Sequence[PodSetRequest]]]:
    for asked in _list_widened(view, requests):
        for tried_view in _list_views(view, asked, free):
            yield tried_view, asked


def _list_widened(view: FreeCapacity, requests: Sequence[PodSetRequest]) -> Iterator[Sequence[PodSetRequest]]:
    """Which node a domain lends depends on the level that pods must share, so a preferred level is required first,
    then the one above it, and so on."""
    starts = {
        request.name: shape.start
        for request in requests
        if request.topology is not None and request.topology.mode is Mode.PREFERRED and _is_lending(view, request)
        if not isinstance(shape := find_shape(view.tree, request), NotFit)
    }
    for wider in range(max(starts.values(), default=-1) + 1):
        yield [
            replace(request, topology=replace(request.topology, mode=Mode.REQUIRED, level=view.tree.declared[starts[request.name] - wider]))
            if request.topology is not None and starts.get(request.name, -1) >= wider
            else request
            for request in requests
        ]
    yield requests


def _is_lending(view: FreeCapacity, request: PodSetRequest) -> bool:
    """Whether it goes one to a domain of several nodes."""
    for term in list_own_terms(view.around, request.traits):
        codes = view.tree.encode_label(term.key)[0]
        codes = codes[codes >= 0]
        if len(np.unique(codes)) < len(codes):
            return True
    return False


def _list_views(view: FreeCapacity, requests: Sequence[PodSetRequest], free: Matrix | None) -> Iterator[FreeCapacity]:
    """The view; where pods follow the first of their own kind, confined for these to one domain after the other, and then once more with
    the other pods that they would follow."""
    series = [request for request in requests if request.traits.affinity and view.around.judge(request.traits).first]
    if not series:
        yield view
        return
    view.budget.charge(_SORT_PASSES * view.pass_steps * len(series))
    keys = sorted({term.key for request in series for term in request.traits.affinity})
    codes = np.stack([view.tree.encode_label(key)[0] for key in keys])
    _, domain_of = np.unique(codes, axis=1, return_inverse=True)
    domain_of = domain_of.reshape(-1)
    held = np.stack([_count_held(view, request, domain_of, free) for request in series])
    wanted = np.array([request.count for request in series])[:, None]
    largest = int(wanted.argmax())
    order = held[largest].argsort(kind="stable")
    holds = np.logical_and.reduce(held >= wanted)
    domains = order[holds[order]][:_MOST_DOMAINS]
    following = [request.traits for request in series]
    others = [request.traits for request in requests if request not in series]
    followed = [other for other in others if any(view.around.is_followed(traits, other) for traits in following)]
    for confined in (following, [*following, *followed]) if followed else (following,):
        for domain in domains.tolist() or [int((held - wanted).min(axis=0).argmax())]:
            yield view.copy_confined(confined, domain_of == domain)


def _count_held(view: FreeCapacity, request: PodSetRequest, domain_of: Indices, free: Matrix | None) -> Indices:
    """Pods that each domain holds; of those in one domain of the level that all must share, if there is one."""
    per_node = fits_on_nodes(view, request, free).per_node
    shared = find_required_domains(view, request)
    pairs, both = np.unique(np.stack([domain_of, shared]), axis=1, return_inverse=True)
    held = np.zeros(int(domain_of.max()) + 1, dtype=np.int64)
    np.maximum.at(held, pairs[0], np.bincount(both.reshape(-1), per_node).astype(np.int64))
    return held


# --- whether it holds ---------------------------------------------------------------------------------


def find_conflict(view: FreeCapacity, requests: Sequence[PodSetRequest], decision: Decision) -> NotFit | None:
    """Returns a refusal for the first two pod sets that were placed together and that kube-scheduler would keep apart by pod anti-affinity,
    or of which one must be near the other by pod affinity and is not; None if there are none. The decision must have all placements.

    Placed one after the other, pod sets see each other. Those of a group are placed at once, seeing no more than that both cannot be on one
    node.
    """
    around = view.around
    placed = {placement.pod_set: placement.nodes for placement in decision.placements}
    for one, other in combinations(requests, 2):
        mine, others = [name for name, _ in placed[one.name]], [name for name, _ in placed[other.name]]
        for key in dict.fromkeys(term.key for term in around.list_terms_between(one.traits, other.traits)):
            if around.are_in_one_domain(key, mine, others):
                met = f"pod anti-affinity by {key}"
                note = f"{one.name} and {other.name} are kept apart by {met}; a place for pod sets of one group is not searched for by that"
                return _refuse(one, note)
    for one in requests:
        others = [request.name for request in requests if request is not one and around.is_followed(one.traits, request.traits)]
        names = {name for other in others for name, _ in placed[other]}
        if names and not around.are_near(one.traits, names, [name for name, _ in placed[one.name]]):
            keys = " and ".join(sorted({term.key for term in one.traits.affinity}))
            note = (
                f"{one.name} must be near {', '.join(others)} by pod affinity by {keys}; a place for that was tried in single domains only"
            )
            return _refuse(one, note)
    return None


def _refuse(request: PodSetRequest, note: str) -> NotFit:
    return NotFit(RefusalKind.NOT_FIT, request.name, "", 0, request.count, explanation=Explanation(request.name, notes=(note,)))

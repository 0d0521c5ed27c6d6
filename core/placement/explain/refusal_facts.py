"""The facts behind a refusal: per level the best domain and what it lacks, which nodes are out by what, what would help.

Made only when a pod set does not fit, never on the way to a placement.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from core.model.pod_traits import PodTerm
from core.model.podset import Mode, PodSetRequest
from core.model.quantity import show_count
from core.placement.algorithms.domain_capacity import Fits, count_fits
from core.placement.algorithms.own_limit import list_own_terms
from core.placement.algorithms.slices import Shape
from core.placement.algorithms.spreading import find_closed_nodes
from core.placement.changes import Amount, show_taint
from core.placement.explain.never_fits import find_never
from core.placement.explain.suggested_changes import WHOLE, Refused, find_changes
from core.placement.refusals import TOPOLOGY_DOMAIN, Exclusion, Explanation, LevelFact, NotFit, RefusalKind, show_exclusions
from core.placement.topology.free_capacity import FreeCapacity, Matrix, sum_amounts, with_pod
from core.placement.topology.node_eligibility import InvalidSelector
from core.placement.topology.tree import Flags, Indices


def refuse(refused: Refused) -> NotFit:
    """Returns a refusal (NOT_FIT) of a pod set with known levels, with what fits and why no more does. Without an explanation where the
    view does not explain."""
    view, request, shape, fits, wanted = refused.view, refused.request, refused.shape, refused.fits, refused.wanted
    if not view.explains:
        return NotFit(RefusalKind.NOT_FIT, request.name, "", _count_fit(refused), wanted, shape.unit)
    eligible, free = refused.eligible, refused.free
    required = refused.mode is Mode.REQUIRED
    reachable = [0] if shape.start == 0 else list(range(shape.start, -1, -1))
    lends = list_own_terms(view.around, request.traits) if request.traits.anti_affinity else []
    if lends:  # which node counts for a domain of the term depends on the level asked for
        reachable = reachable[:1]
    facts = [_build_level_fact(view, request, shape, fits, level, wanted, eligible, free) for level in reachable]
    asked = WHOLE
    if required:
        fit, asked = facts[-1 if shape.auto else 0].fit, reachable[-1 if shape.auto else 0]
    else:
        fit = int(refused.count_units(fits, WHOLE).sum())
        short = _compute_short(view, request, eligible, free, slice(0, len(view.tree))) if fit else ()
        facts.append(LevelFact("", 1, (), fit, wanted, shape.unit, short))
    notes = [*_list_slice_notes(refused, fit), *_list_leader_notes(refused, asked)]
    if shape.tail and fit == wanted - 1 and refused.count_largest(fit, asked) >= request.count - shape.tail:
        notes.append(f"cannot place the partial slice of PodSet {request.name} in a single topology domain")
    notes += _list_caveats(request, lends)
    changes = find_changes(refused, fit)
    explanation = Explanation(
        request.name,
        tuple(facts),
        find_exclusions(view, request, free),
        len(view.tree),
        refused.count_largest(fit, asked),
        tuple(notes),
        changes,
        None if changes else find_never(refused),
    )
    return NotFit(RefusalKind.NOT_FIT, request.name, "", fit, wanted, shape.unit, explanation)


def _list_slice_notes(refused: Refused, fit: int) -> Iterator[str]:
    """How many pods of a slice the best domain has room for, where none has room for one slice."""
    shape, tree = refused.shape, refused.view.tree
    if fit or shape.slice_size == 1 or refused.own is not None:
        return
    most = int(tree.sum_nodes(shape.slice_level, refused.room).max(initial=0))
    if 0 < most < shape.slice_size:
        yield f"A slice is {shape.slice_size} pods in one {tree.declared[shape.slice_level]}; the best has room for {most}"


def _list_leader_notes(refused: Refused, level: int) -> Iterator[str]:
    """Whether the leader of a group is why its workers do not fit in a domain of a level (`WHOLE`: in all); with slices also why it is."""
    group, shape, view, wanted = refused.group, refused.shape, refused.view, refused.wanted
    if group is None:
        return
    if not group.takes_leader[0].any():
        why = ""
        if refused.leader is not None and shape.slice_size > 1:
            why = f"; excluded for it: {show_exclusions(find_exclusions(view, refused.leader, refused.free))}"
        yield f"No node can take the leader{why}"
        return
    held = refused.count_units(group.alone, level)
    best = int(np.argmax(held))
    if shape.slice_size == 1 or held[best] < wanted:
        return
    what = f"{'all ' if wanted > 1 else ''}{show_count(wanted, shape.unit)} would fit"
    if level == WHOLE:
        yield f"Without the leader {what}"
        return
    where = f"{view.tree.declared[level]} {'/'.join(view.tree.get_values(level, best))}"
    yield f"Without the leader {what} in {where}{'' if group.takes_leader[level][best] else ', where no node can take it'}"


def _count_fit(refused: Refused) -> int:
    """Returns the number of units that fit, as an explanation reports it."""
    view, request, shape, fits = refused.view, refused.request, refused.shape, refused.fits
    if refused.mode is not Mode.REQUIRED:
        return int(refused.count_units(fits, WHOLE).sum())
    lends = bool(request.traits.anti_affinity) and bool(list_own_terms(view.around, request.traits))
    return int(fits.count_all_units_at(0 if shape.auto and not lends else shape.start, shape).max())


def refuse_without_nodes(view: FreeCapacity, request: PodSetRequest, shape: Shape) -> NotFit:
    """Returns a refusal (NO_DOMAINS) that explains that there is no node at all to place anything on: nodes not ready or cordoned make no
    domain. It is INVALID_SELECTOR where the node affinity cannot be evaluated. Without any node in the tree it has a text and no
    explanation."""
    tree, name = view.tree, request.name
    text = f"pod set {name}: no topology domains at level {tree.declared[shape.start]}; "
    if not len(tree):
        lacking = (
            f"{show_count(len(nodes), 'node')} without label {label} (e.g. {nodes[0]})"
            for label, nodes in tree.left_out.missing_label.items()
        )
        return NotFit(RefusalKind.NO_DOMAINS, name, text + (", ".join(lacking) or "no node of the flavor has it"))
    none = np.zeros(len(tree), dtype=np.int64)
    refused = Refused(view, request, shape, count_fits(tree, shape, none), none > 0, none, view.free)
    try:
        exclusions, changes = find_exclusions(view, request, view.free), find_changes(refused, 0)
        never = None if changes else find_never(refused)
    except InvalidSelector as error:
        return NotFit(RefusalKind.INVALID_SELECTOR, name, f"pod set {name}: {error}")
    text += f"none of the flavor's {show_count(len(tree), 'node')} can be used ({show_exclusions(exclusions)})"
    explanation = Explanation(name, exclusions=exclusions, total_nodes=len(tree), changes=changes, never=never)
    return NotFit(RefusalKind.NO_DOMAINS, name, text, explanation=explanation)


def _compute_daemon_share(view: FreeCapacity, resource: str) -> Indices:
    """What is kept of a resource for pods of DaemonSets that are not there yet, per node."""
    return np.fromiter(
        (view.daemon_shares.get(name, {}).get(resource, 0) for name in view.tree.names), dtype=np.int64, count=len(view.tree)
    )


def _list_caveats(request: PodSetRequest, lends: Sequence[PodTerm]) -> list[str]:
    """What stands between this judgement and kube-scheduler's own."""
    notes = [f"Its pods go one to each {key}, by their own anti-affinity" for key in sorted({term.key for term in lends})]
    if request.traits.host_ports:
        notes.append(f"Its pods go one to a node, by host port {', '.join(map(str, request.traits.host_ports))}")
    if request.traits.affinity:
        notes.append("Pods with affinity to their own kind follow the first: one domain is chosen per pod set, not for all of the workload")
    if request.traits.unjudged:
        notes.append(f"Not judged: {', '.join(request.traits.unjudged)}")
    return notes


def _build_level_fact(
    view: FreeCapacity, request: PodSetRequest, shape: Shape, fits: Fits, level: int, wanted: int, eligible: Flags, free: Matrix
) -> LevelFact:
    tree = view.tree
    units = fits.count_all_units_at(level, shape)
    best = int(units.argmax())
    span = slice(int(tree.levels[level].starts[best]), int(tree.levels[level].ends[best]))
    fit = int(units[best])
    short = _compute_short(view, request, eligible, free, span) if 0 < fit < wanted else ()
    return LevelFact(tree.declared[level], len(units), tree.get_values(level, best), fit, wanted, shape.unit, short)


def _compute_short(view: FreeCapacity, request: PodSetRequest, eligible: Flags, free: Matrix, span: slice) -> tuple[Amount, ...]:
    """What the eligible nodes of a domain together lack for the whole pod set; nothing where only whole pods do not fit."""
    missing = []
    for resource, amount in with_pod(request.requests).items():
        row = view.axis.get(resource)
        have = 0 if row is None else sum_amounts(free[row, span][eligible[span]])
        if amount * request.count > have:
            missing.append(Amount(resource, amount * request.count - have))
    return tuple(missing)


def list_node_reasons(view: FreeCapacity, request: PodSetRequest) -> Iterator[tuple[str, Flags]]:
    """Yields reasons why nodes take no pod whatever is free on them, each with a flag per node, in the order of kube-scheduler's filters. A
    reason may hold for no node, a node may have several."""
    yield "NotReady", ~view.ready
    yield "unschedulable", view.cordoned
    for number, taint in enumerate(view.taint_verdicts(request.tolerations)):
        if taint is not None:
            yield f'taint "{show_taint(taint)}"', view.taint_class == number


def find_exclusions(view: FreeCapacity, request: PodSetRequest, free: Matrix) -> tuple[Exclusion, ...]:
    """Returns the reasons why nodes take no pod, sorted by their text, each with the number of nodes and the first of them. A node counts
    once, under its first reason in the order of kube-scheduler's filters. `free` is the free matrix by which a resource counts as missing.

    Raises InvalidSelector where the node affinity cannot be evaluated.
    """
    left = np.ones(len(view.tree), dtype=bool)
    found: list[Exclusion] = []

    def exclude(reason: str, hit: Flags) -> None:
        nonlocal left
        hit = hit & left
        if count := int(np.count_nonzero(hit)):
            found.append(Exclusion(reason, count, view.tree.names[int(hit.argmax())]))
            left ^= hit

    for reason, hit in list_node_reasons(view, request):
        exclude(reason, hit)
    exclude("nodeSelector", ~view.match_labels(request.node_selector, None))
    exclude("affinity", ~view.match_labels({}, request.affinity))
    for port in request.traits.host_ports:
        exclude(f"host port {port}", view.around.find_taken_port(port))
    if view.elsewhere is not None:
        exclude(TOPOLOGY_DOMAIN, view.elsewhere)
    for resource, amount in sorted(with_pod(request.requests).items()):
        row = view.axis.get(resource)
        short = np.ones_like(left) if row is None else free[row] < amount
        if row is not None and view.daemon_shares:
            exclude("DaemonSet share", short & (free[row] + _compute_daemon_share(view, resource) >= amount))
        exclude(f'resource "{resource}"', short)
    if view.is_particular(request.traits):
        verdicts = view.around.judge(request.traits)
        exclude("inter-pod affinity", verdicts.far)
        exclude("inter-pod anti-affinity", verdicts.apart)
        exclude("existing pods' inter-pod anti-affinity", verdicts.repelled)
    closed = find_closed_nodes(view.tree, request)
    if closed is not None:
        exclude("topology spreading", closed)
    return tuple(sorted(found, key=lambda exclusion: exclusion.reason))

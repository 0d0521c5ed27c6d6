"""The second pass: it places workloads that have quota once their admission checks have provided the nodes, and places
pods of running workloads again when their nodes fail.

The flavor is the one that was chosen with the quota. What the checks add to the pod sets (a node selector for the new
nodes, tolerations) is applied (KEP-2724, Support for ProvisioningRequests). Pods on healthy nodes stay where they are;
any number of failed nodes is replaced at once (core.placement.replace.replacement).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import groupby

import numpy as np

from core.model.admission import Admission, PodSetAdmission
from core.model.gates import NODE_REPLACEMENT, REPLACE_MULTIPLE, REPLACEMENT_FAILS_FAST, ChosenGates
from core.model.pod_resources import Resources
from core.model.podset import PodSetRequest
from core.names import (
    CHECK_READY,
    HOSTNAME_LABEL,
    LEAVING_TAINTS,
    REASON_NODE_FAILURES,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    TOPOLOGY_PENDING,
    TOPOLOGY_READY,
)
from core.placement.algorithms.profile import Profile, Profiles
from core.placement.algorithms.spare_placement import build_flags, find_domain
from core.placement.engine import Decision, PodSetPlacement, place, subtract_pods
from core.placement.refusals import NotFit, RefusalKind, format_refusal, truncate
from core.placement.replace.replacement import replace_failed
from core.placement.topology.free_capacity import Matrix
from core.placement.topology.placed_pods import PlacedPodSet, find_failed, locate
from core.placement.topology.tree import Flags
from core.placement.what_if import WhatIf
from core.queueing.flavors.flavor_search import FlavorSearch, build_admissible, find_outside, place_unit
from core.queueing.flavors.leftover_pods import Past
from core.queueing.flavors.outcome import Admissible, Attempt, Beside, NotAdmissible, join_sentences
from core.queueing.flavors.spare_lending import Loan, give_back, list_loans
from core.queueing.flavors.spread_requests import SpreadAsker
from core.queueing.flavors.what_if_view import World, copy_without_nodes
from core.queueing.ordering.queue_order import queue_order
from core.queueing.preemption.reclaimed_spares import choose_loans, find_beside, find_needed, sort_fewest_first, wait_for_borrowers
from core.state.cluster import ClusterState
from core.state.facts import CheckState, NodeFacts, PodSetFacts, TopologyFacts, WorkloadFacts
from core.state.flavor_view import FlavorView
from core.state.queue_facts import ClusterQueueFacts


@dataclass(frozen=True, slots=True)
class NodeReplacement:
    """The handling of pods on failed nodes.

    `is_on`: such pods are placed again. `fails_fast`: a workload with pods that have no other place is evicted at once;
    otherwise it keeps what it has, and is tried again. `reads_threshold`: a workload with a threshold of lost nodes of its own
    is evicted only beyond that.
    """

    is_on: bool = True
    fails_fast: bool = True
    leaving_taints: frozenset[str] = frozenset(LEAVING_TAINTS)  # of nodes that are taken only where there are no others
    reads_threshold: bool = False

    @classmethod
    def from_gates(cls, gates: ChosenGates, leaving_taints: Iterable[str] = LEAVING_TAINTS) -> "NodeReplacement":
        """Returns the handling that the gates NODE_REPLACEMENT, REPLACEMENT_FAILS_FAST and REPLACE_MULTIPLE ask for, with the keys of these
        taints."""
        on, fails_fast, reads = (gates.is_on(name) for name in (NODE_REPLACEMENT, REPLACEMENT_FAILS_FAST, REPLACE_MULTIPLE))
        return cls(on, fails_fast, frozenset(leaving_taints), reads)


REPLACES = NodeReplacement()


def list_due_for_second_pass(state: ClusterState, replacement: NodeReplacement = REPLACES) -> list[WorkloadFacts]:
    """Returns the workloads with quota, first to be served first, that have passed all checks and have no place yet. If replacement is on,
    also those with an assignment to a failed node on which no pod of theirs runs, and those with `has_stuck_pods`."""
    due = {w.key: w for w in state.workloads.list_awaiting_topology() if w.quota_reserved and _has_passed(state, w)}
    if replacement.is_on:
        due |= {w.key: w for w in state.workloads.list_unhealthy() if w.quota_reserved and _has_lost_nodes(state, w)}
        due |= {w.key: w for key in state.stuck if (w := state.workloads.facts.get(key)) is not None and has_stuck_pods(state, w)}
    return sorted(due.values(), key=lambda w: (*queue_order(w), w.key))


def _has_passed(state: ClusterState, workload: WorkloadFacts) -> bool:
    queue = state.cluster_queues.get(workload.admission.cluster_queue) if workload.admission is not None else None
    if queue is None or workload.admission is None:
        return False
    ready = {check.name for check in workload.checks if check.state == CHECK_READY}
    flavors = {flavor for pod_set in workload.admission.pod_sets for flavor in pod_set.flavors.values()}
    return ready.issuperset(queue.list_checks(flavors))


def has_stuck_pods(state: ClusterState, workload: WorkloadFacts) -> bool:
    """Whether a node rejects pods of a running workload though it serves others of it, as was observed (`state.stuck`). False while the
    workload has failed nodes, which come first, a change of its admission is being written, or its ClusterQueue is unknown."""
    known = workload.admission is not None and workload.admission.cluster_queue in state.cluster_queues
    is_assumed = state.workloads.is_assumed(workload.key)  # other spares, for one: what is decided on must be what is held
    return known and workload.runs and workload.key in state.stuck and not workload.unhealthy_nodes and not is_assumed


def _has_lost_nodes(state: ClusterState, workload: WorkloadFacts) -> bool:
    """Whether its assignment names a node that is reported as failed, or a domain that has one."""
    is_known = workload.admission is not None and workload.admission.cluster_queue in state.cluster_queues
    if workload.admission is None or not is_known or _is_served_again(state, workload):
        return False
    for given in workload.admission.pod_sets:
        values = {domain.values for domain in given.assignment.domains} if given.assignment is not None else set()
        if workload.unhealthy_nodes & {value[-1] for value in values}:
            return True
        view = _find_view(state, given)
        failed = find_failed(view.capacity.tree, workload.unhealthy_nodes) if view is not None else np.zeros(0, dtype=bool)
        if view is not None and values & {view.capacity.tree.emitted[domain] for domain in _find_domains(view, failed)}:
            return True
    return False


def _is_served_again(state: ClusterState, workload: WorkloadFacts) -> bool:
    """Whether its pods run on a node that is reported as failed, and is ready and evicts none now.

    The process that writes `status.unhealthyNodes` removes such a node from it. A process that has seen that field late
    must not move assignments away from running pods. A hostname in the assignment means the node that has it, and no
    other node with that name. Where several flavors have a node with such a hostname any of these nodes may have
    failed.
    """
    gone, served = set[str](), _find_served(state, workload)
    for given in workload.admission.pod_sets if workload.admission is not None else ():
        view, levels = _find_view(state, given), given.assignment.levels if given.assignment is not None else ()
        for domain in given.assignment.domains if given.assignment is not None and len(levels) > 1 and levels[-1] == HOSTNAME_LABEL else ():
            if domain.values[-1] in workload.unhealthy_nodes and (view is None or view.find_domain(domain.values) is None):
                gone.add(domain.values[-1])
    hosts = {host for named in served.values() for host in named}
    nodes = [node for name in workload.unhealthy_nodes - hosts - gone if (node := state.nodes.get(name)) is not None]
    is_served = any(all(named[host] is _Served.RUNS for named in served.values() if host in named) for host in hosts)
    return is_served or any(_is_running_well_on(state, workload, node) for node in nodes)


class _Served(Enum):
    """The state of a pod set on a node that is reported as failed, and that its assignment names by the hostname alone."""

    RUNS = "the node is well and has pods of the workload"
    IDLE = "the node is well"
    LOST = "neither"


def _find_served(state: ClusterState, workload: WorkloadFacts) -> dict[str, dict[str, _Served]]:
    """By pod set, of the failed nodes those that its assignment names by their hostnames alone. A node that is the place of another pod
    set, of another flavor, is not meant."""
    named, places = dict[str, set[str]](), dict[str, set[str]]()
    for given in workload.admission.pod_sets if workload.admission is not None else ():
        if given.assignment is not None and given.assignment.levels == (HOSTNAME_LABEL,):
            named[given.name] = {domain.values[-1] for domain in given.assignment.domains} & workload.unhealthy_nodes
            view = _find_view(state, given)
            places[given.name] = (
                {name for host in named[given.name] for name in view.list_domain_nodes((host,))} if view is not None else set()
            )
    anywhere = {name for each in places.values() for name in each}

    def judge(pod_set: str, host: str) -> _Served:
        here = [node for node in state.find_named(host) if node.name in places[pod_set]]
        left = [node for node in state.find_named(host) if node.name not in anywhere]  # its flavor, for one
        if any(_is_running_well_on(state, workload, node) for node in (*here, *left)):
            return _Served.RUNS
        return _Served.IDLE if any(map(_is_well, here)) else _Served.LOST

    return {pod_set: {host: judge(pod_set, host) for host in hosts} for pod_set, hosts in named.items()}


def _find_spared(served: Mapping[str, Mapping[str, _Served]], pod_sets: Collection[str]) -> set[str]:
    """Of the names of failed nodes those that mean nodes of other flavors than that of some pod sets: their own runs pods, or is well where
    that of others is not."""
    lost = {host for named in served.values() for host, found in named.items() if found is _Served.LOST}
    own = ((host, found) for pod_set in pod_sets for host, found in served.get(pod_set, {}).items())
    return {host for host, found in own if found is _Served.RUNS or (found is _Served.IDLE and host in lost)}


def _is_well(node: NodeFacts) -> bool:
    return node.state.ready and not any(effect == "NoExecute" for _, _, effect in node.state.taints)


def _is_running_well_on(state: ClusterState, workload: WorkloadFacts, node: NodeFacts) -> bool:
    return _is_well(node) and state.ledger.is_running_on(workload.pods_key, node.name)


def _find_domains(view: FlavorView, nodes: Flags) -> set[int]:
    level = view.capacity.tree.levels[view.capacity.tree.lowest]
    return set((np.searchsorted(level.starts, np.flatnonzero(nodes), side="right") - 1).tolist())


def _find_view(state: ClusterState, given: PodSetAdmission) -> FlavorView | None:
    flavor = state.find_topology_flavor(given.flavors.values())
    return state.get_view(flavor) if flavor is not None else None


def find_second_pass(
    state: ClusterState,
    workload: WorkloadFacts,
    queue: ClusterQueueFacts,
    profiles: Profiles,
    replacement: NodeReplacement = REPLACES,
    leaving: Collection[str] = (),
) -> Admissible | NotAdmissible:
    """Returns a place for all pod sets that need one, or a refusal for all; the workload must have an admission, else AssertionError. The
    refusal `evicts` where pods on failed nodes have no other place and `replacement` fails fast. It is `preempting` where workloads must
    leave spare nodes lent to them.

    A workload that both lost nodes and waits for a place gets replacements in this pass and the place in the next. The workloads `leaving`
    (keys) are being evicted already and are not evicted again.
    """

    def choose_profile(topology: TopologyFacts) -> Profile:
        return profiles.find_nearest(workload.profile, queue.profile, topology.profile)

    assert workload.admission is not None
    asker = SpreadAsker.build(workload, queue.name)
    search = FlavorSearch(World(state), choose_profile, workload.together, Past.read_past(state, workload), spreading=asker)
    lost = bool(workload.unhealthy_nodes) and _has_lost_nodes(state, workload)
    if replacement.is_on and (lost or has_stuck_pods(state, workload)):
        return _find_replacement(search, workload, workload.admission, replacement, leaving)
    waiting: dict[str, list[PodSetFacts]] = {}
    for pod_set, given in zip(workload.pod_sets, workload.admission.pod_sets, strict=True):
        flavor = state.find_topology_flavor(given.flavors.values())
        if given.delayed == TOPOLOGY_PENDING and flavor is not None:
            waiting.setdefault(flavor, []).append(apply_updates(replace(pod_set, count=given.count), workload.checks))
    for name, pod_sets in waiting.items():
        if not place_unit(state, tuple(pod_sets), state.flavors[name], search):
            names = ", ".join(pod_set.name for pod_set in pod_sets)
            message = truncate(f'couldn\'t place pod set {names} on the nodes of flavor "{name}": {join_sentences(search.attempts, names)}')
            return NotAdmissible(REASON_TOPOLOGY_PLACEMENT_FAILED, message, tuple(search.attempts))
    placed = {placement.pod_set: placement for _, placement in search.placements}
    pod_sets_given = tuple(
        replace(given, assignment=found.assignment, delayed=TOPOLOGY_READY, spares=found.spare_names)
        if (found := placed.get(given.name)) is not None
        else given
        for given in workload.admission.pod_sets
    )
    return build_admissible(search, Admission(queue.name, pod_sets_given), queue)


def apply_updates(pod_set: PodSetFacts, checks: Iterable[CheckState]) -> PodSetFacts:
    """Returns a copy of a pod set with the node selector and tolerations that its admission checks add to it, in the order of the checks.
    Of a label that several set, the last value holds, also before the pod set's own. It is the same object without such updates."""
    for check in checks:
        for update in check.updates:
            if update.get("name") == pod_set.name:
                selector = {**pod_set.node_selector, **(update.get("nodeSelector") or {})}
                pod_set = replace(pod_set, node_selector=selector, tolerations=pod_set.tolerations + tuple(update.get("tolerations") or ()))
    return pod_set


# --- failed nodes -----------------------------------------------------------------------------------------


def _find_replacement(
    search: FlavorSearch, workload: WorkloadFacts, admission: Admission, replacement: NodeReplacement, leaving: Collection[str]
) -> Admissible | NotAdmissible:
    """Other nodes for the pods that have lost theirs, flavor by flavor: none of them minds where any of these pods was."""
    state = search.world.state
    held = [
        (state.find_topology_flavor(given.flavors.values()) or "", pod_set, given)
        for pod_set, given in zip(workload.pod_sets, admission.pod_sets, strict=True)
        if given.assignment is not None
    ]
    groups, lost, served = list[_Group](), dict[str, frozenset[str]](), _find_served(state, workload)
    for name, group in groupby(sorted(held, key=lambda one: one[0]), key=lambda one: one[0]):
        members, view = list(group), state.get_view(name)
        if view is None:
            why, fails_fast = f'flavor "{name}" or its topology is not there', _may_evict(workload, replacement)
            return _build_refusal(search, workload, name, why, fails_fast=fails_fast)
        parts = [_build_held(state, view, workload, pod_set, given) for _, pod_set, given in members]
        failed = workload.unhealthy_nodes - _find_spared(served, [pod_set.name for _, pod_set, _ in members])
        groups.append(_Group(view, parts, {pod_set.name: view.list_spares(given) for _, pod_set, given in members}, failed))
        lost |= _find_lost(state, view, parts, failed)
    with state.ledger.ignore_neighbours(workload.pods_key, lost):
        return _replace_groups(search, workload, admission, groups, replacement, leaving)


@dataclass(frozen=True, slots=True)
class _Group:
    """Pod sets of one workload with one flavor: what they have, by pod set the nodes that are kept free for them with pods, and the nodes
    that have failed, but for those that have failed in another flavor. `moved`
    is what pod sets of other flavors get in the same decision (pods more, and spares, for which they give back theirs)."""

    view: FlavorView
    parts: list[PlacedPodSet]
    spares: Mapping[str, Sequence[tuple[str, int]]]
    failed: frozenset[str]
    moved: list[tuple[PodSetRequest, Sequence[tuple[str, int]]]] = field(default_factory=list)


def _may_evict(workload: WorkloadFacts, replacement: NodeReplacement) -> bool:
    """What runs is not evicted for a pod that is stuck beside it. A workload that has lost more nodes than its own threshold is evicted
    when that is reported (`core.plan.pods.node_steps`)."""
    waits = replacement.reads_threshold and workload.most_lost_nodes is not None
    return replacement.fails_fast and bool(workload.unhealthy_nodes) and not waits


def _replace_groups(
    search: FlavorSearch,
    workload: WorkloadFacts,
    admission: Admission,
    groups: Sequence[_Group],
    replacement: NodeReplacement,
    leaving: Collection[str],
) -> Admissible | NotAdmissible:
    state, checks = search.world.state, tuple(check.name for check in workload.checks)
    leaves: list[tuple[str, tuple[tuple[str, int], ...]]] = []
    kept: dict[str, frozenset[str]] = {}
    going: dict[str, WorkloadFacts] = {}  # by key: workloads on lent spare nodes that are needed
    taken_back: list[str] = []
    amounts: list[tuple[str, Resources]] = []
    pods: list[tuple[str, tuple[tuple[str, int], ...]]] = []
    for group in groups:
        view, parts, name = group.view, group.parts, group.view.flavor.name
        loans = sort_fewest_first(list_loans(state, workload, leaving), leaving)
        decide = partial(_replace_where_it_lasts, search, group, workload, replacement.leaving_taints)
        decision = choose_loans(view.capacity.tree, [part.request for part in parts], loans, decide)
        if decision.refusal is not None:
            # A workload can also have pods on a node that is about to be reported as failed. It is decided on then: no
            # pod is known to be lost yet.
            hurried = _may_evict(workload, replacement) and decision.refusal.kind is not RefusalKind.STALE_ASSIGNMENT
            sentence = format_refusal(view.topology.name, decision.refusal)
            return _build_refusal(search, workload, name, sentence, decision.refusal, fails_fast=hurried)
        search.placements += ((name, placement) for placement in decision.placements)
        gained = _compute_gained(view, parts, decision.placements)
        spared = _find_remaining_spares(group, decision.placements, gained, loans)
        kept |= {name: frozenset(node for node, _ in nodes) for name, nodes in spared.items()}
        if loans:
            rest = _subtract_gained(view, parts, gained, _find_free(group))
            there = {node for nodes in gained.values() for node, _ in nodes}
            borrowers, taken = find_needed(view.capacity, rest, there, loans)
            going |= {borrower.workload.key: borrower.workload for borrower in borrowers}
            taken_back += taken
            amounts += find_beside(view.capacity, _subtract_gained(view, parts, gained, _find_free(replace(group, moved=[]))))
            pods += ((pod_set, tuple(nodes)) for pod_set, nodes in gained.items() if nodes)
        leaves += (
            (placement.pod_set, left)
            for part, placement in zip(parts, decision.placements, strict=True)
            if (left := _list_kept_nodes(view, part, placement))
        )
        search.taken += (
            (part.request, replace(placement, nodes=gained[placement.pod_set]))
            for part, placement in zip(parts, decision.placements, strict=True)
        )
        _add_moves(group, [other for other in groups if other is not group], gained, spared)
    placed = {placement.pod_set: placement for _, placement in search.placements}
    pod_sets = tuple(_build_moved(given, placed.get(given.name), kept.get(given.name, ())) for given in admission.pod_sets)
    found = replace(admission, pod_sets=pod_sets)
    if found == admission and not workload.unhealthy_nodes:  # else it would be asked for again and again
        why = "their place is named by labels of nodes that are others by now"
        return _build_refusal(search, workload, groups[0].view.flavor.name, why, fails_fast=False)
    outcome = Admissible(found, tuple(search.placements), tuple(search.attempts), checks=checks, leaves=tuple(leaves))
    if not taken_back:
        return outcome
    return wait_for_borrowers(workload, outcome, taken_back, going.values(), leaving, Beside(tuple(amounts), tuple(pods)))


def _name_failed(view: FlavorView, parts: Sequence[PlacedPodSet], failed: Collection[str]) -> list[str | tuple[str, ...]]:
    """The failed nodes as the engine takes them: a hostname that an assignment names is that one's, whatever other node has it as its
    name. Where the assignment names all levels it is the domain that is not there any more, if there is one."""
    hosts = {domain.values for part in parts for domain in part.assignment.domains if part.assignment.levels == (HOSTNAME_LABEL,)}
    named: list[str | tuple[str, ...]] = [(name,) if (name,) in hosts else name for name in sorted(failed)]
    wide = (part.assignment for part in parts if len(part.assignment.levels) > 1 and part.assignment.levels[-1] == HOSTNAME_LABEL)
    named_domains = (domain.values for each in wide for domain in each.domains if domain.values[-1] in failed)
    gone = {values for values in named_domains if view.find_domain(values) is None}
    return [*(name for name in named if name not in {values[-1] for values in gone}), *sorted(gone)]


def _find_lost(state: ClusterState, view: FlavorView, parts: Sequence[PlacedPodSet], failed: Collection[str]) -> dict[str, frozenset[str]]:
    """By pod set the nodes on which none of its pods stay: a pod that gets another place is not its own neighbour in the old one."""
    found, tree = dict[str, frozenset[str]](), view.capacity.tree
    named = _name_failed(view, parts, failed)
    out = find_failed(tree, named)
    hosts = {node.name for host in failed for node in state.find_named(host)}
    for part in parts:
        located = locate(view.capacity, part, named, out)
        empty = {tree.names[at] for at in np.flatnonzero((located.kept == 0) & (located.lost > 0))}
        kept = {tree.names[at] for at in np.flatnonzero(located.kept)}
        found[part.request.name] = frozenset(empty | ({*failed, *hosts} - kept))
    return found


def _build_moved(given: PodSetAdmission, placement: PodSetPlacement | None, kept: Collection[str]) -> PodSetAdmission:
    """With its new place, and those of its spares that are still kept free."""
    if placement is None:
        return given
    return replace(given, assignment=placement.assignment, spares=tuple(name for name in given.spares if name in kept))


def _add_moves(
    group: _Group,
    others: Sequence[_Group],
    gained: Mapping[str, Sequence[tuple[str, int]]],
    spared: Mapping[str, Sequence[tuple[str, int]]],
) -> None:
    """The other groups count what the pod sets of this one have got, and the spares for which they give back theirs."""
    for asks in (part.request for part in group.parts):
        back = [(node, -count) for node, count in group.spares[asks.name]] if asks.name in spared else []
        for other in others:
            other.moved.extend((asks, nodes) for nodes in (back, gained[asks.name], spared.get(asks.name, ())))


def _compute_gained(
    view: FlavorView, parts: Sequence[PlacedPodSet], placements: Sequence[PodSetPlacement]
) -> dict[str, list[tuple[str, int]]]:
    """By pod set how many pods more there are on which nodes than until now."""
    found = {}
    for part, placement in zip(parts, placements, strict=True):
        before = dict(_list_former_nodes(view, part))
        found[placement.pod_set] = [(name, count - before.get(name, 0)) for name, count in placement.nodes if count > before.get(name, 0)]
    return found


def _subtract_gained(
    view: FlavorView, parts: Sequence[PlacedPodSet], gained: Mapping[str, Sequence[tuple[str, int]]], free: Matrix
) -> Matrix:
    """What these pods leave of what is free."""
    left = free.copy()
    for part in parts:
        subtract_pods(view.capacity, left, part.request, gained[part.request.name])
    return left


def _find_remaining_spares(
    group: _Group, placements: Sequence[PodSetPlacement], gained: Mapping[str, Sequence[tuple[str, int]]], loans: Sequence[Loan]
) -> dict[str, list[tuple[str, int]]]:
    """By pod set its spares, each with pods, that have room for what its fullest node has now, none of its pods, and are in the domain that
    these must share: they may have been given to pods of another pod set, that node may have got more, or all pods have gone to another
    domain."""
    capacity = group.view.capacity
    left = _subtract_gained(group.view, group.parts, gained, _find_free(group, loans))
    found: dict[str, list[tuple[str, int]]] = {}
    for part, placement in zip(group.parts, placements, strict=True):
        now, kept = dict(placement.nodes), list[tuple[str, int]]()
        if not now:  # all its pods are on nodes outside of the tree
            continue
        inside = find_domain(capacity.tree, part.request, build_flags(capacity.tree, now))
        for name, _ in group.spares[part.request.name]:
            room = int(capacity.count_pods_that_fit(part.request, left, np.array([capacity.tree.index[name]]))[0])
            if name not in now and inside[capacity.tree.index[name]] and room >= max(now.values()):
                kept.append((name, max(now.values())))
                subtract_pods(capacity, left, part.request, [(name, max(now.values()))])
        found[part.request.name] = kept
    return found


def _build_held(
    state: ClusterState, view: FlavorView, workload: WorkloadFacts, pod_set: PodSetFacts, given: PodSetAdmission
) -> PlacedPodSet:
    assert given.assignment is not None
    # Spares that are missing keep no pod from its place: they are looked for once all have one.
    request = state.request_for(apply_updates(replace(pod_set, count=given.count, spares=0), workload.checks), view.flavor)
    nodes = (
        None if view.capacity.tree.is_hostname else state.ledger.list_counted_nodes((workload.pods_key, pod_set.name, workload.owner_uid))
    )
    stuck = state.stuck[workload.key].get(pod_set.name, ()) if has_stuck_pods(state, workload) else ()
    return PlacedPodSet(request, given.assignment, nodes, stuck, find_outside(state, view, given.assignment))


def _replace_where_it_lasts(
    search: FlavorSearch, group: _Group, workload: WorkloadFacts, leaving_taints: frozenset[str], given_back: Sequence[Loan]
) -> Decision:
    """On the nodes that are kept free for that, else on nodes that are not about to go and have rejected no pods of it, if that can be;
    some spares are given back by those they are lent to."""
    nodes, tree = search.world.state.nodes, group.view.capacity.tree
    free = _find_free(group, given_back)
    going = {name for name, node in nodes.items() if node.taint_keys & leaving_taints} | search.past.rejecting
    kept = {name for each in group.spares.values() for name, _ in each} - going
    if kept:
        others = np.array([name not in kept for name in tree.names], dtype=bool)
        decision = _replace(search, group, workload, others, free)
        if decision.refusal is None:
            return decision
    leaving = np.array([name in going for name in tree.names], dtype=bool)
    if leaving.any():
        decision = _replace(search, group, workload, leaving, free)
        if decision.refusal is None:
            return decision
    return _replace(search, group, workload, np.zeros(len(tree), dtype=bool), free)


def _find_free(group: _Group, given_back: Sequence[Loan] = ()) -> Matrix:
    """What is free for pod sets of a workload, the nodes that are kept free for them included; where these are lent what others leave of
    them, unless they are given back."""
    capacity = group.view.capacity
    if not any(group.spares.values()) and not group.moved:
        return capacity.free
    what_if = WhatIf(capacity)
    what_if.use_capacity(group.moved)
    what_if.release((part.request, group.spares[part.request.name]) for part in group.parts)
    give_back(capacity, what_if.free, given_back)
    return what_if.free


def _replace(search: FlavorSearch, group: _Group, workload: WorkloadFacts, but: Flags, free: Matrix) -> Decision:
    """As the engine replaces failed nodes, on none of those in `but`; pod sets that are tied to one domain stay in the one that those have
    which stay. `free` is what is free for it."""
    profile, tie, parts = search.profile(group.view.topology), search.together, group.parts
    failed = _name_failed(group.view, parts, group.failed)
    capacity = search.copy_with_pods(search.world.get_capacity(group.view), [part.request for part in parts])

    def place_anywhere(beyond: Flags | None = None) -> Decision:
        out_of_reach = but if beyond is None else but | beyond
        left = copy_without_nodes(free, out_of_reach) if out_of_reach.any() else free
        is_movable = workload.remade or not search.world.state.ledger.has_bound_pods(workload.pods_key)  # a plain pod may be gated still
        return replace_failed(capacity, parts, failed, profile, free=left, recreated=is_movable)

    level = capacity.tree.find_level(tie.level) if tie is not None else None
    if tie is None or level is None or not workload.remade:
        return place_anywhere()
    tree, out = capacity.tree, find_failed(capacity.tree, failed)
    located = [locate(capacity, part, failed, out) for part in parts]
    kept = np.sum([found.present for found in located], axis=0)
    if kept.any():
        domain = int(np.searchsorted(tree.levels[level].starts, int(np.argmax(kept > 0)), side="right")) - 1
        beyond = np.ones(len(tree), dtype=bool)
        beyond[tree.levels[level].starts[domain] : tree.levels[level].ends[domain]] = False
        decision = place_anywhere(beyond)
    elif any(found.outside for found in located):  # in a domain without any node in the tree
        decision = place_anywhere(np.ones(len(tree), dtype=bool))
    else:
        requests = [replace(part.request, count=part.assignment.count) for part in parts]
        decision = place(capacity.close_nodes(out), requests, profile, free=copy_without_nodes(free, out | but), together=tie)
    return decision if decision.refusal is None or tie.required else place_anywhere()


def _list_kept_nodes(view: FlavorView, part: PlacedPodSet, placement: PodSetPlacement) -> tuple[tuple[str, int], ...]:
    """How many pods a replacement takes from which nodes that are there."""
    now = dict(placement.nodes)
    return tuple(
        (name, count - now.get(name, 0))
        for name, count in _list_former_nodes(view, part)
        if count > now.get(name, 0) and name in view.capacity.tree.index
    )


def _list_former_nodes(view: FlavorView, part: PlacedPodSet) -> Sequence[tuple[str, int]]:
    """Its pods per node until now."""
    if part.nodes is not None:
        return part.nodes
    return [(name, domain.count) for domain in part.assignment.domains for name in view.list_domain_nodes(domain.values)[:1]]


def _build_refusal(
    search: FlavorSearch, workload: WorkloadFacts, flavor: str, why: str, refusal: NotFit | None = None, *, fails_fast: bool
) -> NotAdmissible:
    nodes = ", ".join(sorted(workload.unhealthy_nodes))
    search.attempts.append(Attempt(", ".join(p.name for p in workload.pod_sets), flavor, REASON_TOPOLOGY_PLACEMENT_FAILED, why, refusal))
    attempts = tuple(search.attempts)
    if not nodes:
        stuck = search.world.state.stuck.get(workload.key, {}).values()
        nodes = ", ".join(sorted({node for counts in stuck for node, _ in counts}))
        message = truncate(f"there is no other place for pods that cannot be scheduled on {nodes}; {why}")
        return NotAdmissible(REASON_TOPOLOGY_PLACEMENT_FAILED, message, attempts)
    if fails_fast:
        return _evict_for_nodes(workload, why, attempts)
    message = truncate(f"there is no replacement for unhealthy node(s): {nodes}; {why}")
    return NotAdmissible(REASON_TOPOLOGY_PLACEMENT_FAILED, message, attempts)


def refuse_unwritable(workload: WorkloadFacts, why: NotAdmissible, replacement: NodeReplacement) -> NotAdmissible:
    """Returns the outcome of a second pass where the place that it found cannot be written: `why` as it is. Only for a workload with failed
    nodes, and if `replacement` fails fast, it is another one that `evicts` it, with the message of `why`."""
    return _evict_for_nodes(workload, why.message, why.attempts) if _may_evict(workload, replacement) else why


def _evict_for_nodes(workload: WorkloadFacts, why: str, attempts: tuple[Attempt, ...]) -> NotAdmissible:
    nodes = ", ".join(sorted(workload.unhealthy_nodes))
    message = truncate(f"Workload was evicted as there was no replacement for unhealthy node(s): {nodes}; {why}")
    return NotAdmissible(REASON_NODE_FAILURES, message, attempts, evicts=True)

"""The spare nodes of a running workload: nodes that still serve are kept, and the others are replaced.

Level-triggered: the number of spare nodes that the workload asks for is compared with those that it holds, whatever
happened meanwhile. Where there is no other node, one that does not serve now stays reserved, since it may serve again;
the missing number is reported.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from core.model.admission import Admission, PodSetAdmission
from core.model.podset import PodSetRequest
from core.model.quantity import show_count
from core.model.spare_nodes import find_fullest
from core.placement.algorithms.spare_placement import build_flags, find_domain, pick_spares
from core.placement.engine import subtract_pods
from core.placement.explain.survey import list_out_of_use
from core.placement.topology.free_capacity import Matrix
from core.placement.topology.node_eligibility import InvalidSelector
from core.placement.topology.tree import Flags
from core.queueing.cycle.second_pass import apply_updates
from core.queueing.flavors.leftover_pods import Past
from core.queueing.flavors.spare_lending import Loan, give_back, list_loans, show_lent
from core.state.cluster import ClusterState
from core.state.facts import PodSetFacts, WorkloadFacts
from core.state.flavor_view import FlavorView

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class KeptSpares:
    """The spares of one pod set: nodes that serve, and nodes that are held and do not serve now, with why."""

    pod_set: str
    wanted: int
    serving: tuple[str, ...]
    broken: tuple[tuple[str, str], ...]
    pods: int
    fills: bool = True  # whether others were looked for
    lent: tuple[Loan, ...] = ()  # of those that serve
    holder: WorkloadFacts | None = None  # for which they are kept, where some are lent

    @property
    def nodes(self) -> tuple[str, ...]:
        """Returns the names of all nodes that are held, sorted: those that serve, and those that do not serve now."""
        return tuple(sorted((*self.serving, *(name for name, _ in self.broken))))

    @property
    def missing(self) -> int:
        """Returns how many more nodes should serve than do, at least 0; nodes that are held and do not serve now count as missing."""
        return max(0, self.wanted - len(self.serving))

    def __str__(self) -> str:
        names = ", ".join(self.serving[:_SHOWN]) + (f" and {len(self.serving) - _SHOWN} more" if len(self.serving) > _SHOWN else "")
        spares = f"{len(self.serving)} of {show_count(self.wanted, 'spare node')}"
        text = f"pod set {self.pod_set}: {spares} kept free for {show_count(self.pods, 'pod')} each"
        text += f": {names}" if names else ""
        text += f"; {show_lent(self.lent, self.holder)}" if self.lent else ""
        if self.missing:
            none = f"no other node of its domain has room for {show_count(self.pods, 'pod')}"
            text += f"; {none if self.fills else 'no other is taken while workloads make room for one that waits'}"
            text += "".join(f"; {name} does not serve now: {why}" for name, why in self.broken[:_SHOWN])
        return text


def list_kept_spares(
    state: ClusterState, workload: WorkloadFacts, leaving_taints: Collection[str] = (), *, fills: bool = True
) -> tuple[KeptSpares, ...]:
    """Returns the spare nodes for each pod set that asks for some and has an assignment to single nodes, in the order of the workload.
    Empty without an admission; nothing is changed. Where a node affinity cannot be evaluated no node serves, and the error is the reason.

    Nodes with a taint of these `leaving_taints` (keys), and nodes where the kubelet has rejected pods of the workload, are used only where
    there are no others. Unless `fills` is set, no node is added that is not already reserved.
    """
    if workload.admission is None:
        return ()
    kept: list[KeptSpares] = []
    loans = list_loans(state, workload)
    pod_sets = zip(workload.pod_sets, workload.admission.pod_sets, strict=False)
    placed = [(pod_set, given, _find_view(state, given)) for pod_set, given in pod_sets if pod_set.spares and given.assignment is not None]
    asking = [(pod_set, given, view) for pod_set, given, view in placed if view is not None and view.capacity.tree.is_hostname]
    worlds: dict[str, tuple[FlavorView, Matrix]] = {}  # by flavor: what is free beside what is decided here, of any flavor
    for _, _, view in asking:
        if view.flavor.name not in worlds:
            worlds[view.flavor.name] = view, view.capacity.free.copy()
            give_back(view.capacity, worlds[view.flavor.name][1], loans)
    for pod_set, given, view in asking:
        request = state.request_for(pod_set, view.flavor)
        for other, free in worlds.values():
            subtract_pods(other.capacity, free, request, view.list_spares(given), -1)
        found = _list_kept(state, view, workload, pod_set, given, worlds[view.flavor.name][1], leaving_taints, fills=fills)
        for other, free in worlds.values():
            subtract_pods(other.capacity, free, request, [(node, found.pods) for node in found.nodes])
        lent = tuple(loan for loan in loans if loan.node in found.serving and loan.node in given.spares)
        kept.append(replace(found, lent=lent, holder=workload if lent else None))
    return tuple(kept)


def with_kept(admission: Admission, kept: Collection[KeptSpares]) -> Admission:
    """Returns the admission with the nodes of `kept` as the spares of their pod sets, and without spares for all other pod sets. It is the
    same object where nothing differs."""
    nodes = {one.pod_set: one.nodes for one in kept}
    pod_sets = tuple(given.with_spares(nodes.get(given.name, ())) for given in admission.pod_sets)
    return admission if pod_sets == admission.pod_sets else replace(admission, pod_sets=pod_sets)


def _find_view(state: ClusterState, given: PodSetAdmission) -> FlavorView | None:
    flavor = state.find_topology_flavor(given.flavors.values())
    return state.get_view(flavor) if flavor is not None else None


def _list_nodes(view: FlavorView, given: PodSetAdmission) -> list[str]:
    domains = given.assignment.domains if given.assignment is not None else ()
    return [name for domain in domains for name in view.list_domain_nodes(domain.values)]


def _list_kept(
    state: ClusterState,
    view: FlavorView,
    workload: WorkloadFacts,
    pod_set: PodSetFacts,
    given: PodSetAdmission,
    free: Matrix,
    leaving_taints: Collection[str],
    *,
    fills: bool,
) -> KeptSpares:
    capacity, tree, pods = view.capacity, view.capacity.tree, find_fullest(given)
    request = replace(state.request_for(apply_updates(replace(pod_set, count=given.count), workload.checks), view.flavor), spares=0)

    own, held = build_flags(tree, _list_nodes(view, given)), build_flags(tree, given.spares)
    inside = _find_domain(view, workload, request, own) & ~build_flags(tree, workload.unhealthy_nodes)
    going = {name for name, node in state.nodes.items() if node.taint_keys and not node.taint_keys.isdisjoint(leaving_taints)}
    leaving = build_flags(tree, going | Past.read_past(state, workload).rejecting)
    serving: list[int] = []
    try:
        others = (inside & ~leaving, inside) if fills else (held & False, held & False)
        for allowed in (inside & held & ~leaving, others[0], inside & held, others[1]):
            wanted = pod_set.spares - len(serving)
            taken = own.copy()
            taken[serving] = True
            serving += pick_spares(capacity, request, wanted, pods, free=free, used=taken, near=own, inside=allowed)
        why = list_out_of_use(capacity, request)
    except InvalidSelector as error:
        serving, why = [], {str(error): list(given.spares)}
    reasons = {name: reason for reason, names in why.items() for name in names}
    names = {tree.names[node] for node in serving}
    broken = [name for name in given.spares if name in tree.index and name not in names and (inside & ~own)[tree.index[name]]]
    reported = tuple(
        (name, reasons.get(name, f"it has no room for {show_count(pods, 'pod')}")) for name in broken[: pod_set.spares - len(serving)]
    )
    return KeptSpares(pod_set.name, pod_set.spares, tuple(sorted(names)), reported, pods, fills)


def _find_domain(view: FlavorView, workload: WorkloadFacts, request: PodSetRequest, own: Flags) -> Flags:
    """Where spares of a pod set may be: in its required domain, and in that of the whole workload where it asks for one."""
    tree, tie = view.capacity.tree, workload.together
    inside = find_domain(tree, request, own)
    level = tree.find_level(tie.level) if tie is not None and tie.required else None
    if level is None or not own.any():
        return inside
    domain = int(np.searchsorted(tree.levels[level].starts, int(np.argmax(own)), side="right")) - 1
    tied = np.zeros(len(tree), dtype=bool)
    tied[tree.levels[level].starts[domain] : tree.levels[level].ends[domain]] = True
    return inside & tied

"""Flavor search with topology inside: a flavor that has the quota but not the place is passed over,
and the next one is tried."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

from core.model.admission import Admission, PodSetAdmission
from core.model.pod_resources import PODS
from core.model.podset import Mode, PodSetRequest
from core.model.quota_tree import FlavorResource
from core.model.wire.assignment import TopologyAssignment
from core.names import (
    KEP_PROFILE,
    REASON_EXCEEDS_MAX_QUOTA,
    REASON_NO_MATCHING_FLAVOR,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    REASON_WAITING_FOR_QUOTA,
    TOPOLOGY_PENDING,
)
from core.placement.algorithms.decision import subtract_placement
from core.placement.algorithms.profile import Profile, Profiles
from core.placement.algorithms.spare_placement import with_spares_kept
from core.placement.engine import OneDomain, PodSetPlacement
from core.placement.explain.choice import Choice, explain_choice, explain_together
from core.placement.refusals import NotFit, format_refusal, truncate
from core.placement.replace.resized_pod_sets import resize
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.node_eligibility import InvalidSelector, find_untolerated, is_satisfiable, read_taints
from core.queueing.flavors.leftover_pods import Leftovers, Past
from core.queueing.flavors.outcome import Admissible, Attempt, NotAdmissible, join_sentences
from core.queueing.flavors.quota_shortage import (
    QuotaShortage,
    compute_pod_set_usage,
    compute_spares_usage,
    compute_usage,
    find_shortage,
    has_to_borrow,
)
from core.queueing.flavors.spread_requests import SpreadAsker
from core.queueing.flavors.what_if_view import World
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, PodSetFacts, TopologyFacts, WorkloadFacts
from core.state.flavor_view import FlavorView
from core.state.queue_facts import STOP, ClusterQueueFacts

Combination = tuple[tuple[tuple[str, ...], str], ...]  # per group: resources, flavor
Unit = tuple[PodSetFacts, ...]  # pod sets that get one flavor and quota for all or none
_Mark = tuple[
    list[tuple[PodSetRequest, PodSetPlacement]], list[tuple[str, PodSetPlacement]], list[Choice], str, bool, dict[FlavorResource, int]
]
_CHOICE_STEPS = 20  # of judging one choice of flavors by quota
_MOST_CHOICES = 32  # of flavors for all pod sets, tried at once


@dataclass(frozen=True, slots=True)
class _Served:
    """A choice of flavors that quota allows, the topology-aware one among them, if any, and whether quota must be borrowed."""

    flavor: FlavorFacts | None
    borrows: bool = False


@dataclass(slots=True)
class FlavorSearch:
    """The amounts that the placed pod sets of one workload use; `profile` returns the profile with which they are
    placed in a topology."""

    world: World
    profile: Callable[[TopologyFacts], Profile]
    together: OneDomain | None = None
    past: Past = Past()  # noqa: RUF009, a frozen value
    grows: Admission | None = None  # the present admission of a workload that grows; its new pods come next to it
    spreading: SpreadAsker | None = None  # the workload, where it has rules of topology spreading
    quota: dict[FlavorResource, int] = field(default_factory=dict)
    borrows: bool = False
    taken: list[tuple[PodSetRequest, PodSetPlacement]] = field(default_factory=list)
    placements: list[tuple[str, PodSetPlacement]] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    shared: str = ""
    attempts: list[Attempt] = field(default_factory=list)

    def mark(self) -> _Mark:
        """Returns a copy of the places, choices and quota that the search has taken so far, for `reset`; attempts are not part of it."""
        return list(self.taken), list(self.placements), list(self.choices), self.shared, self.borrows, dict(self.quota)

    def reset(self, mark: _Mark) -> None:
        """Sets places, choices and quota of the search to those of a mark, and keeps all attempts. A mark serves once, since it is not
        copied."""
        self.taken, self.placements, self.choices, self.shared, self.borrows, self.quota = mark

    def refuse(self, unit: Unit, flavor: str, reason: str, sentence: str, refusal: NotFit | None = None) -> _Served | None:
        """Adds an attempt with the `reason` why a flavor does not serve pod sets, and a `sentence` for users; `refusal` is that of the
        search for a place, if there is one. Returns None, which is what a choice comes to that does not serve."""
        self.attempts.append(Attempt(_format_names(unit), flavor, reason, sentence, refusal))
        return None

    def refuse_for_quota(self, unit: Unit, shortage: QuotaShortage, note: str = "") -> _Served | None:
        """Adds an attempt that lacks quota, with the amounts, `note` and, where it never fits, a remedy. Returns None, as `refuse` does."""
        reason, remedy = REASON_WAITING_FOR_QUOTA, ""
        if shortage.never_fits:
            reason, remedy = REASON_EXCEEDS_MAX_QUOTA, "; request less, or have the quota raised"
        self.attempts.append(Attempt(_format_names(unit), shortage.flavor, reason, f"{shortage}{note}{remedy}", shortage=shortage))
        return None

    def compute_free(self, view: FlavorView, leftovers: Leftovers = ()) -> Matrix | None:
        """Returns the canonical amounts that are free on the nodes of a flavor, resources by nodes. What the pod sets placed so far use
        there is subtracted, and what `leftovers` use is added, in a copy. Without either it is what the world returns: its own array, or
        None where they are those of the view."""
        free, capacity = self.world.compute_free(view), view.capacity
        if not self.taken and not leftovers:
            return free
        free = (capacity.free if free is None else free).copy()
        self.world.subtract_held(view, free, leftovers, -1)
        for request, placement in self.taken:
            subtract_placement(capacity, free, request, placement)
        return free

    def copy_with_pods(self, capacity: FreeCapacity, requests: Sequence[PodSetRequest]) -> FreeCapacity:
        """Returns a copy of a flavor's nodes with the pods that this search has placed as neighbours. It is `capacity` itself where neither
        these nor the requests have host ports, (anti-)affinity or a spread."""
        company = [(request.traits, placement.nodes) for request, placement in self.taken]
        if not any(traits.is_particular for traits in (*(traits for traits, _ in company), *(request.traits for request in requests))):
            return capacity
        return capacity.copy_with_pods(*company)


def find_admission(
    state: ClusterState,
    workload: WorkloadFacts,
    queue: ClusterQueueFacts,
    profiles: Profiles,
    world: World | None = None,
    grows: Admission | None = None,
) -> Admissible | NotAdmissible:
    """Returns the first way to admit the workload, or why there is none: tries the queue's flavors in order for every pod set, quota and
    topology both, in the cluster as it is or in another `world`.

    A choice of flavors that has to borrow is taken only where none fits without, unless the queue's `whenCanBorrow` stops at it. `grows` is
    the present admission of a workload that grows. One that is tied to one domain gets one flavor. Where pod sets do not fit one after the
    other, they are tried at once (rule l of docs/decisions/0004). The profile is the one named nearest to the workload: by itself, by its
    queue, by the topology.
    """

    def choose_profile(topology: TopologyFacts) -> Profile:
        return profiles.find_nearest(workload.profile, queue.profile, topology.profile)

    units = list_units(workload) if grows is None else _list_growing(workload, grows)
    world = World(state) if world is None else world
    asker = SpreadAsker.build(workload, queue.name) if grows is None else None
    search = FlavorSearch(world, choose_profile, workload.together, Past.read_past(state, workload), grows, asker)
    given: dict[str, PodSetAdmission] = {}
    for unit in units:
        outcome = _find_for_unit(state, unit, queue, search)
        if outcome is None:
            names = _format_names(unit)
            tried = [attempt for attempt in search.attempts if attempt.pod_set == names]
            if given and grows is None and _may_fit_otherwise(tried, search.quota):
                found = _find_at_once(world, workload, units, queue, choose_profile)
                if found is not None:
                    return found
            message = f"couldn't assign flavors to pod set {names}: {join_sentences(tried, names)}"
            return NotAdmissible(_choose_reason(tried), truncate(message), tuple(search.attempts))
        given |= {admission.name: admission for admission in outcome}
    ordered = tuple(given[pod_set.name] for pod_set in workload.pod_sets)
    return build_admissible(search, Admission(queue.name, ordered), queue)


def _may_fit_otherwise(tried: Iterable[Attempt], own: Mapping[FlavorResource, int]) -> bool:
    """Whether a pod set may be refused only because of what pod sets before it got: a place, or quota of a flavor that
    they use.

    Otherwise a search for victims would find, with one of them gone, a choice of flavors under which none has to go.
    """
    flavors = {name for (name, _), amount in own.items() if amount}
    for_quota = REASON_WAITING_FOR_QUOTA, REASON_EXCEEDS_MAX_QUOTA
    return any(a.reason == REASON_TOPOLOGY_PLACEMENT_FAILED or (a.reason in for_quota and a.flavor in flavors) for a in tried)


def build_admissible(search: FlavorSearch, admission: Admission, queue: ClusterQueueFacts) -> Admissible:
    """Returns what a search has come to as an outcome with this admission, and the admission checks that its flavors have in the queue."""
    flavors = {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()}
    return Admissible(
        admission,
        tuple(search.placements),
        tuple(search.attempts),
        tuple(search.choices),
        search.shared,
        search.borrows,
        tuple(queue.list_checks(flavors)),
    )


def _find_at_once(
    world: World,
    workload: WorkloadFacts,
    units: Sequence[Unit],
    queue: ClusterQueueFacts,
    profile_for: Callable[[TopologyFacts], Profile],
) -> Admissible | None:
    """Flavors for all units first, in the order the queue lists them, then all pod sets of a flavor placed together."""
    usages = [compute_usage(unit, queue, world.state.resource_rules) for unit in units]
    choices = product(*(list(_list_combinations(queue, usage)) for usage in usages))
    for choice in islice(choices, _MOST_CHOICES):
        if not world.budget.spend(_CHOICE_STEPS):
            return None
        past, asker = Past.read_past(world.state, workload), SpreadAsker.build(workload, queue.name)
        search, state = FlavorSearch(world, profile_for, None, past, spreading=asker), world.state
        served = [_serve(state, *part, queue, search) for part in zip(units, usages, choice, strict=True)]
        if None in served:
            continue
        by_flavor: dict[str, tuple[FlavorFacts, list[PodSetFacts]]] = {}
        for unit, flavor, chosen in zip(units, (each.flavor for each in served if each is not None), choice, strict=True):
            if flavor is not None and not _is_delayed(state, queue, [name for _, name in chosen]):
                by_flavor.setdefault(flavor.name, (flavor, []))[1].extend(unit)
        placed = all(place_unit(state, tuple(pod_sets), flavor, search) for flavor, pod_sets in by_flavor.values())
        parts = zip(units, usages, served, choice, strict=True)
        if placed and all(of is not None and _count_spares(unit, usage, of, each, queue, search) for unit, usage, of, each in parts):
            given = [each for part in zip(units, choice, strict=True) for each in _admit(*part, queue, search)]
            by_name = {admission.name: admission for admission in given}
            ordered = tuple(by_name[pod_set.name] for pod_set in workload.pod_sets)
            return build_admissible(search, Admission(queue.name, ordered), queue)
    return None


def list_units(workload: WorkloadFacts) -> list[Unit]:
    """Returns the pod sets that get one flavor together: those of a group (rule g of docs/decisions/0004), or all where they are tied to
    one domain; or one alone. Units are in the order of their first pod sets."""
    if workload.together is not None:
        return [workload.pod_sets]
    units: dict[str, list[PodSetFacts]] = {}
    for i, pod_set in enumerate(workload.pod_sets):
        units.setdefault(f"group {pod_set.group}" if pod_set.group else f"pod set {i}", []).append(pod_set)
    return [tuple(unit) for unit in units.values()]


def _list_growing(workload: WorkloadFacts, grows: Admission) -> list[Unit]:
    """What grows at once: pod sets on the same flavors, so that the pods that stay are counted before any is added to another pod set."""
    held = {given.name: given.flavors for given in grows.pod_sets}
    units: list[tuple[dict[str, str], list[PodSetFacts]]] = []
    for unit in list_units(workload):
        own = {resource: flavor for pod_set in unit for resource, flavor in held.get(pod_set.name, {}).items()}
        for known, members in units:
            common = own.keys() & known.keys()
            if common and all(own[resource] == known[resource] for resource in common):
                known |= own
                members += unit
                break
        else:
            units.append((own, [*unit]))
    return [tuple(members) for _, members in units]


def _format_names(unit: Unit) -> str:
    return ", ".join(pod_set.name for pod_set in unit)


def _choose_reason(attempts: list[Attempt]) -> str:
    """The reason that stands for all: what is nearest to being admitted."""
    reasons = {attempt.reason for attempt in attempts}
    for reason in (REASON_TOPOLOGY_PLACEMENT_FAILED, REASON_WAITING_FOR_QUOTA, REASON_EXCEEDS_MAX_QUOTA):
        if reason in reasons:
            return reason
    return REASON_NO_MATCHING_FLAVOR


def _find_for_unit(state: ClusterState, unit: Unit, queue: ClusterQueueFacts, search: FlavorSearch) -> list[PodSetAdmission] | None:
    usage = compute_usage(unit, queue, state.resource_rules)
    covered = {resource for group in queue.groups for resource in group.resources}
    uncovered = sorted(resource for resource, amount in usage.items() if amount and resource not in covered)
    if uncovered:
        sentence = f'ClusterQueue "{queue.name}" has no quota for {", ".join(uncovered)}'
        search.attempts.append(Attempt(_format_names(unit), "", REASON_NO_MATCHING_FLAVOR, sentence))
        return None
    if not queue.groups:
        search.attempts.append(Attempt(_format_names(unit), "", REASON_NO_MATCHING_FLAVOR, f'ClusterQueue "{queue.name}" has no flavor'))
        return None
    borrowing: tuple[Combination, _Mark] | None = None  # the first that fits by borrowing, while one is looked for that needs not
    for number, combination in enumerate(_filter_kept(_list_combinations(queue, usage), unit, search)):
        if number and not search.world.budget.spend(_CHOICE_STEPS):
            break
        before = search.mark()
        if (served := _place(state, unit, usage, combination, queue, search)) is not None:
            if not served.borrows or queue.fungibility.when_can_borrow == STOP:
                return _admit(unit, combination, queue, search)
            borrowing = (combination, search.mark()) if borrowing is None else borrowing
        search.reset(before)
    if borrowing is None:
        return None
    combination, found = borrowing
    search.reset(found)
    return _admit(unit, combination, queue, search)


def _place(
    state: ClusterState, unit: Unit, usage: Mapping[str, int], combination: Combination, queue: ClusterQueueFacts, search: FlavorSearch
) -> _Served | None:
    """Quota by one choice of flavors, and a place where one is to be found now."""
    served = _serve(state, unit, usage, combination, queue, search)
    if served is None or served.flavor is None or _is_delayed(state, queue, [flavor for _, flavor in combination]):
        return served
    return _count_spares(unit, usage, served, combination, queue, search) if place_unit(state, unit, served.flavor, search) else None


def _count_spares(
    unit: Unit, usage: Mapping[str, int], served: _Served, combination: Combination, queue: ClusterQueueFacts, search: FlavorSearch
) -> _Served | None:
    """Judges quota again where it counts spares: how much these hold is known only with the place."""
    rules = search.world.state.resource_rules
    more = compute_spares_usage(unit, search.placements, queue, rules) if rules.counts_spares else {}
    if not more:
        return served
    tree, borrowed = search.world.quota, served.borrows
    whole = {resource: amount + more.get(resource, 0) for resource, amount in usage.items()}
    for resources, name in combination:
        others = {(name, resource): search.quota.get((name, resource), 0) - usage.get(resource, 0) for resource in resources}
        shortage = find_shortage(tree, queue.name, name, resources, whole, others)
        if shortage is not None:
            return search.refuse_for_quota(unit, shortage, ", spare nodes counted")
        borrowed |= has_to_borrow(tree, queue.name, name, resources, whole, others)
    for resources, name in combination:
        for resource in resources:
            search.quota[name, resource] = search.quota.get((name, resource), 0) + more.get(resource, 0)
    search.borrows |= borrowed
    return _Served(served.flavor, borrowed)


def _is_delayed(state: ClusterState, queue: ClusterQueueFacts, flavors: Sequence[str]) -> bool:
    """Whether the nodes come only with an admission check, so that the place is found in a second pass."""
    checks = (state.checks.get(name) for name in queue.list_checks(flavors))
    return any(check is not None and check.delays_topology for check in checks)


def _admit(unit: Unit, combination: Combination, queue: ClusterQueueFacts, search: FlavorSearch) -> list[PodSetAdmission]:
    state = search.world.state
    flavors = {resource: flavor for resources, flavor in combination for resource in resources}
    placed = {placement.pod_set: placement for _, placement in search.placements}
    admissions = []
    for pod_set in unit:
        own = compute_pod_set_usage(pod_set, queue, state.resource_rules)
        usage = {resource: own.get(resource, 0) for resource in flavors}
        placement = placed.get(pod_set.name) if pod_set.count else None  # no pods are nowhere
        assignment = placement.assignment if placement is not None else None
        waits = assignment is None and pod_set.count > 0 and state.find_topology_flavor(flavors.values()) is not None
        delayed = TOPOLOGY_PENDING if waits and _is_delayed(state, queue, list(flavors.values())) else None
        spares = placement.spare_names if placement is not None else ()
        admissions.append(PodSetAdmission(pod_set.name, flavors, usage, pod_set.count, assignment, delayed, spares))
    return admissions


def _filter_kept(combinations: Iterator[Combination], unit: Unit, search: FlavorSearch) -> Iterator[Combination]:
    """Of what grows only the flavors that it has."""
    names = {pod_set.name for pod_set in unit}
    has = [given.flavors for given in search.grows.pod_sets if given.name in names] if search.grows is not None else []
    refused = []
    for combination in combinations:
        lacking = [name for resources, name in combination for flavors in has for r in resources if flavors.get(r, name) != name]
        if not lacking:
            yield combination
        refused += lacking
    for name in dict.fromkeys(refused):
        search.refuse(unit, name, REASON_NO_MATCHING_FLAVOR, f'flavor "{name}" is not that of the pods which run')


def _list_combinations(queue: ClusterQueueFacts, usage: Mapping[str, int]) -> Iterator[Combination]:
    """One flavor per resource group that pod sets need, in the order the queue lists them.

    A pod set that asks for nothing is placed by the first group's flavors, and holds none of each of their resources.
    """
    needed = [(tuple(r for r in group.resources if r in usage), group.flavors) for group in queue.groups]
    first = queue.groups[0]
    groups = [entry for entry in needed if entry[0]] or [(first.resources, first.flavors)]
    yield from product(*([(resources, flavor) for flavor in flavors] for resources, flavors in groups))


def _serve(
    state: ClusterState, unit: Unit, usage: Mapping[str, int], combination: Combination, queue: ClusterQueueFacts, search: FlavorSearch
) -> _Served | None:
    """Judges one choice of flavors by what they are and by quota, and takes that; topology is judged by `place_unit`."""
    topological: list[FlavorFacts] = []
    tree, borrowed = search.world.quota, False
    placed_by = state.find_topology_flavor(name for _, name in combination)
    for resources, name in combination:
        flavor = state.flavors.get(name)
        if flavor is None:
            return search.refuse(unit, name, REASON_NO_MATCHING_FLAVOR, f'flavor "{name}" does not exist')
        # Pods need no node for what only quota counts, as long as another flavor has nodes for them.
        in_kind = not placed_by or any(r == PODS or r in pod_set.requests or r in pod_set.none_of for pod_set in unit for r in resources)
        mismatch = next((why for p in unit if (why := _find_mismatch(state, p, flavor, queue, in_kind=in_kind)) is not None), None)
        if mismatch is not None:
            return search.refuse(unit, name, REASON_NO_MATCHING_FLAVOR, mismatch)
        shortage = find_shortage(tree, queue.name, name, resources, usage, search.quota)
        if shortage is not None:
            return search.refuse_for_quota(unit, shortage)
        borrowed |= has_to_borrow(tree, queue.name, name, resources, usage, search.quota)
        if flavor.topology:
            topological.append(flavor)
    names = [flavor.name for flavor in topological]
    if len(set(names)) > 1:
        quoted = " and ".join(f'"{name}"' for name in names)
        return search.refuse(unit, names[0], REASON_NO_MATCHING_FLAVOR, f"flavors {quoted} cannot place one pod set together")
    if search.together is not None and not topological:
        sentence = f'flavor "{combination[0][1]}" has no topology, and {search.together.why} asks for one {search.together.level}'
        return search.refuse(unit, combination[0][1], REASON_NO_MATCHING_FLAVOR, sentence)
    search.borrows |= borrowed
    for resources, name in combination:
        for resource in resources:
            search.quota[name, resource] = search.quota.get((name, resource), 0) + usage.get(resource, 0)
    return _Served(topological[0] if topological else None, borrowed)


def place_unit(state: ClusterState, unit: Unit, flavor: FlavorFacts, search: FlavorSearch) -> bool:
    """Places pod sets on the nodes of a flavor; those of a workload that grows, next to the pods that it has. Returns True and adds to the
    search their places, and why there if its world gives reasons. Returns False and adds only the attempt where they do not fit, or the
    flavor's topology does not exist."""
    view = search.world.get_view(flavor.name)
    if view is None:
        sentence = f'flavor "{flavor.name}": topology "{flavor.topology}" does not exist'
        search.refuse(unit, flavor.name, REASON_NO_MATCHING_FLAVOR, sentence)
        return False
    requests = [state.request_for(pod_set, flavor) for pod_set in unit]
    if search.spreading is not None:
        with_rules = search.spreading.add_rules(search.world, view, unit, requests)
        if isinstance(with_rules, str):
            search.refuse(unit, flavor.name, REASON_NO_MATCHING_FLAVOR, with_rules)
            return False
        requests = with_rules
    capacity, free = search.copy_with_pods(search.world.get_capacity(view), requests), search.compute_free(view)
    profile = search.profile(view.topology)
    if search.grows is not None:
        previous = {given.name: given.assignment for given in search.grows.pod_sets if given.assignment is not None}
        bare = [replace(request, spares=0) for request in requests]
        outside = {values: labels for each in previous.values() for values, labels in find_outside(state, view, each).items()}
        decision = resize(capacity, bare, previous, profile, free=free, outside=outside)
        for_spares = search.world.compute_free_for_spares(view, free)
        decision = with_spares_kept(capacity, requests, decision, {given.name: given.spares for given in search.grows.pod_sets}, for_spares)
    else:
        past = search.past
        decision, free = past.place_around(
            capacity, requests, profile, search.together, free, lambda: search.compute_free(view, past.leftovers)
        )
    if decision.refusal is not None:
        sentence = format_refusal(view.topology.name, decision.refusal) if search.world.explains else ""
        search.refuse(unit, flavor.name, REASON_TOPOLOGY_PLACEMENT_FAILED, sentence, decision.refusal)
        return False
    search.taken += zip(requests, decision.placements, strict=True)
    if not search.world.explains or search.grows is not None:
        search.placements += ((flavor.name, placement) for placement in decision.placements)
        return True
    named = "" if profile.name.startswith(KEP_PROFILE) else profile.name
    choices = explain_choice(capacity, requests, decision, free=free)
    search.choices += [replace(choice, profile=named) for choice in choices] if named else choices
    if search.together is not None:
        search.shared = explain_together(capacity, decision, search.together)
    search.placements += ((flavor.name, placement) for placement in decision.placements)
    return True


def find_outside(state: ClusterState, view: FlavorView, assignment: TopologyAssignment) -> Mapping[tuple[str, ...], Mapping[str, str]]:
    """Returns, for an assignment by hostnames, the labels of nodes that exist but are not in the flavor's tree, by the values of their
    domain. Empty where the lowest level is another."""
    if not view.capacity.tree.is_hostname:
        return {}
    missing = [domain.values for domain in assignment.domains if view.find_domain(domain.values) is None]
    nodes = ((values, state.nodes.get(values[-1]) or next(iter(state.find_named(values[-1])[-1:]), None)) for values in missing)
    return {values: node.labels for values, node in nodes if node is not None}


def _find_mismatch(
    state: ClusterState, pod_set: PodSetFacts, flavor: FlavorFacts, queue: ClusterQueueFacts, *, in_kind: bool
) -> str | None:
    """Why a flavor cannot serve a pod set whatever is free, if so; `in_kind` if it is for what pods themselves ask for."""
    explicit = pod_set.topology is None or pod_set.topology.mode is not Mode.IMPLIED
    if explicit and in_kind and not flavor.topology:
        remedy = "leave out the annotations that ask for one, or name a Topology in its spec.topologyName"
        return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling: it has no topology; {remedy}'
    if not explicit and flavor.topology and not all((f := state.flavors.get(name)) is not None and f.topology for name in queue.flavors):
        return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
    try:
        satisfied = is_satisfiable(flavor.node_labels, pod_set.node_selector, pod_set.affinity)
    except InvalidSelector as error:
        return f"pod set {pod_set.name}: {error}"
    if not satisfied:
        odd = next(((k, v) for k, v in pod_set.node_selector.items() if flavor.node_labels.get(k, v) != v), None)
        detail = f": nodeSelector {odd[0]}={odd[1]}, where the flavor has {odd[0]}={flavor.node_labels[odd[0]]}" if odd is not None else ""
        return f'the pod set\'s node selector or affinity does not match the node labels of flavor "{flavor.name}"{detail}'
    taint = find_untolerated(read_taints({"taints": flavor.node_taints}), pod_set.tolerations + flavor.tolerations)
    if taint is not None:
        key, value, effect = taint
        return f'taint {key}{"=" if value else ""}{value}:{effect} of flavor "{flavor.name}" is not tolerated'
    return None

"""The state of the cluster, built from events: the scheduler, the ungater, status writers and the CLI read it.

Every `observe_*` method takes the facts of an object (None: it is gone), in any order. The state depends on the present
objects alone: observing the same objects in a new state gives an equal one.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from core.model.admission import Admission, PodSetAdmission
from core.model.configuration import ResourceRules
from core.model.pause_state import NOTHING_PAUSED, Pause
from core.model.pod_resources import PODS, Resources, add
from core.model.podset import PodSetRequest
from core.model.quota_tree import FlavorResource, QuotaTree
from core.names import HOSTNAME_LABEL
from core.placement.topology.free_capacity import FreeCapacity, with_pod
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.topology_spread import require_labels
from core.placement.topology.tree import NodeLabels, TopologyTree
from core.state.check_facts import CheckFacts
from core.state.daemonsets import DaemonSetFacts
from core.state.facts import FlavorFacts, NodeFacts, PodFacts, PodSetFacts, TopologyFacts, WorkloadFacts
from core.state.flavor_view import AssignedPlaces, FlavorView, build_reservation, is_match, list_spares
from core.state.ledger import Ledger, PodSetKey, Reservation
from core.state.queue_facts import ClusterQueueFacts, CohortFacts, LocalQueueFacts
from core.state.whole_view import WholeView
from core.state.workload_state import add_usage
from core.state.workloads import Workloads

T = TypeVar("T")
# What a workload holds, the owner of its pods, what they ask for; the key by which they are found, and the workload
# that it replaces.
_Held = tuple[Admission | None, str | None, tuple[PodSetFacts, ...], str, str | None]
NodesByPodSet = Mapping[str, Sequence[tuple[str, int]]]  # pod set -> (node, pods): where the engine counted them
_NOTHING: NodesByPodSet = {}


class ClusterState:
    """Nodes, pods, queues and workloads, and the ledger of what they use.

    `changes` counts events that could help a pending workload: nodes that came or changed, capacity or quota given
    back, queues and flavors edited. `config_changes` counts those of them that are neither of nodes nor of what uses
    them; `quota.changes` those of quota given back, and of workloads that can be preempted now and could not before.
    With `reserve_daemon_sets` nodes keep room for the pods that DaemonSets are about to put there. `resource_rules`
    define how quota counts requests.
    """

    def __init__(self, *, reserve_daemon_sets: bool = True, resource_rules: ResourceRules | None = None) -> None:
        self.changes = self.config_changes = self.rule_changes = self.node_changes = 0
        self.resource_rules = resource_rules or ResourceRules()
        self.reserves_daemon_sets = reserve_daemon_sets
        self.nodes: dict[str, NodeFacts] = {}
        self.names_by_host: dict[str, frozenset[str]] = {}  # of nodes by their hostname label
        self.topologies: dict[str, TopologyFacts] = {}
        self.flavors: dict[str, FlavorFacts] = {}
        self.cluster_queues: dict[str, ClusterQueueFacts] = {}
        self.cohorts: dict[str, CohortFacts] = {}
        self.checks: dict[str, CheckFacts] = {}
        self.local_queues: dict[str, LocalQueueFacts] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.ending_namespaces: set[str] = set()  # that are being deleted
        self.pause: Pause = NOTHING_PAUSED
        self.workloads = Workloads(counts_spares=self.resource_rules.counts_spares)
        self.ledger = Ledger(self._get_node_labels, self.namespaces.get)
        self.on_free: list[Callable[[], None]] = []  # called when a change that is no informer event may help a pending workload
        self.whole = WholeView(self.nodes, self.ledger, self._on_free)
        self._views: dict[str, FlavorView] = {}
        # The last views of flavors with nodes that have come, gone or moved since, and no other change.
        self._former_views: dict[str, FlavorView] = {}
        self._plans: dict[str, NodesByPodSet] = {}
        self._claims: list[str] = []
        self._claimed: dict[str, dict[FlavorResource, int]] = {}  # by ClusterQueue
        self._beside: dict[str, list[PodSetKey]] = {}  # what is claimed for workloads beside what they hold
        self.stuck: dict[str, NodesByPodSet] = {}  # by workload: pods that nodes do not take, though they serve others of it
        self._leaving: dict[str, list[PodSetKey]] = {}  # what is counted where decisions on their way take pods from
        self._lending: set[str] = set()  # keys of workloads that are recorded as lending nodes
        self._quota_is_old = False
        self._dropped: set[str] = set()  # flavors with a view that events have dropped, until the next refresh

    # --- folding ----------------------------------------------------------------------------------

    def observe_node(self, name: str, node: NodeFacts | None) -> None:
        """Records that a node came, changed or went (None), which `changes` and `node_changes` count; equal facts change nothing. Where it
        came, went or has other labels, the views of flavors that select it are dropped, until `get_view` or `refresh` builds them. Other
        views, and any change of its state, follow in place."""
        old = self.nodes.get(name)
        if node == old:
            return
        if node is None:
            del self.nodes[name]
        else:
            self.nodes[name] = node
        self._note_hostname(name, old, node)
        self.ledger.daemons.observe_node(name, node)
        self.changes += 1
        self.node_changes += 1
        self.whole.observe_node(name, old, node)
        moved = old is None or node is None or old.labels != node.labels
        for flavor, view in list(self._views.items()):
            if moved and any(facts is not None and is_match(view.flavor, facts) for facts in (old, node)):
                former = self._views[flavor]
                self._drop_view(flavor)
                self._former_views[flavor] = former
            elif not moved and node is not None and name in view.capacity.tree.index:
                view.capacity.observe_node(name, node.state)

    def _note_hostname(self, name: str, old: NodeFacts | None, node: NodeFacts | None) -> None:
        before, now = (facts.labels.get(HOSTNAME_LABEL) if facts is not None else None for facts in (old, node))
        if before == now:
            return
        if before is not None:
            self.names_by_host[before] -= {name}
            if not self.names_by_host[before]:
                del self.names_by_host[before]
        if now is not None:
            self.names_by_host[now] = self.names_by_host.get(now, frozenset()) | {name}

    def find_named(self, host: str) -> list[NodeFacts]:
        """Returns the facts of the nodes with this hostname label, sorted by name: none, one, or several where labels are wrong."""
        return [self.nodes[name] for name in sorted(self.names_by_host.get(host, ()))]

    def _on_free(self) -> None:
        self.changes += 1
        for wake in self.on_free:
            wake()

    def observe_pod(self, key: str, pod: PodFacts | None) -> None:
        """Records that a pod came, changed or went (None). `changes` counts it only if that may help a workload (`Ledger.observe_pod`)."""
        if self.ledger.observe_pod(key, pod):
            self.changes += 1

    def observe_stuck(self, key: str, stuck: NodesByPodSet | None) -> None:
        """Records the pods of a workload that nodes do not take, though they serve others of it, in place of those before. `stuck` has a
        tuple of (node, pods) pairs for each pod set, sorted by node; None, never an empty map: it has none now. `changes` counts any
        difference, also one of order."""
        self.changes += _update(self.stuck, key, stuck)

    def observe_daemon_set(self, key: str, daemon_set: DaemonSetFacts | None) -> None:
        """Records that a DaemonSet came, changed or went (None), and reserves shares of nodes for it (`DaemonSets.observe_set`). `changes`
        counts any difference. Nothing happens where `reserve_daemon_sets` is off."""
        if self.reserves_daemon_sets:
            self.changes += self.ledger.daemons.observe_set(key, daemon_set)

    def observe_time(self, now: float, since_1970: float = -math.inf) -> bool:
        """Gives back what is reserved on nodes for pods of DaemonSets, where the time for that is over at `now`, in seconds of any clock.
        `since_1970` is the same moment in seconds of the calendar. Returns whether a share was given back, which `changes` counts."""
        given_back = self.ledger.daemons.observe_time(now, since_1970)
        self.changes += given_back
        return given_back

    def observe_topology(self, name: str, topology: TopologyFacts | None) -> None:
        """Records that a Topology came, changed or went (None). A change drops views on it, until `get_view` or `refresh` builds them.
        `changes`, `config_changes` and `rule_changes` count it."""
        if self._change_rules(_update(self.topologies, name, topology)):
            for flavor, view in list(self._views.items()):
                if view.topology.name == name:
                    self._drop_view(flavor)

    def observe_flavor(self, name: str, flavor: FlavorFacts | None) -> None:
        """Records that a ResourceFlavor came, changed or went (None). A change drops its view, until `get_view` or `refresh` builds it.
        `changes`, `config_changes` and `rule_changes` count it."""
        if self._change_rules(_update(self.flavors, name, flavor)):
            self._drop_view(name)

    def observe_cluster_queue(self, name: str, queue: ClusterQueueFacts | None) -> None:
        """Records that a ClusterQueue came, changed or went (None). After a change `quota` builds its tree anew. `changes`,
        `config_changes` and `rule_changes` count it."""
        if self._change_rules(_update(self.cluster_queues, name, queue)):
            self._quota_is_old = True

    def observe_cohort(self, name: str, cohort: CohortFacts | None) -> None:
        """Records that a Cohort came, changed or went (None). After a change `quota` builds its tree anew. `changes`, `config_changes` and
        `rule_changes` count it."""
        if self._change_rules(_update(self.cohorts, name, cohort)):
            self._quota_is_old = True

    def observe_check(self, name: str, check: CheckFacts | None) -> None:
        """Records that an AdmissionCheck came, changed or went (None), which `changes` and `config_changes` count."""
        self._apply_configuration(_update(self.checks, name, check))

    def observe_local_queue(self, key: str, queue: LocalQueueFacts | None) -> None:
        """Records that a LocalQueue came, changed or went (None), which `changes` and `config_changes` count."""
        self._apply_configuration(_update(self.local_queues, key, queue))

    def observe_namespace(self, name: str, labels: Mapping[str, str] | None, is_ending: bool = False) -> None:
        """Records the labels of a Namespace (None: it is gone); `is_ending`: it is being deleted, and nothing can be created in it any
        more. `changes` and `config_changes` count a difference."""
        self.ledger.neighbours.observe_namespace()
        was_ending = name in self.ending_namespaces
        (self.ending_namespaces.add if is_ending else self.ending_namespaces.discard)(name)
        self._apply_configuration(_update(self.namespaces, name, labels) or was_ending != is_ending)

    def observe_pause(self, pause: Pause) -> None:
        """Records what an administrator has paused, in place of what was before. `changes` and `config_changes` count a difference."""
        self._apply_configuration(pause != self.pause)
        self.pause = pause

    def _change_rules(self, is_change: bool) -> bool:
        self.rule_changes += is_change
        return self._apply_configuration(is_change)

    def _apply_configuration(self, is_change: bool) -> bool:
        self.changes += is_change
        self.config_changes += is_change
        return is_change

    def observe_workload(self, key: str, workload: WorkloadFacts | None) -> None:
        """Records that a Workload came, changed or went (None), and corrects quota and reservations. An assumed decision for it ends where
        it is gone, has another uid, or is as new as the confirmed write. `changes` counts it where what it held has changed, or it begins
        to lend nodes; its coming alone does not count."""
        before, old = self._get_held(key), self.workloads.facts.get(key)
        others = self.workloads.observe(key, workload)
        if not self.workloads.is_assumed(key):
            self._end_leaving(key)
        self._note_change(key, before)
        self._follow_others(others, key)
        held = self.workloads.find_holding(key)
        if held is not None and _read_standing(old) != _read_standing(workload):
            self.quota.note_change(held.cluster_queue)

    def _follow_others(self, others: Sequence[str], key: str) -> None:
        """Corrects the places of workloads that hold, or no longer hold, what they did not, since `key` replaces another one now."""
        holding = {other: self.workloads.find_holding(other) for other in (*others, key)} if others else {}
        for other, admission in holding.items():
            facts = self.workloads.facts.get(other)
            if admission is None and facts is not None:
                self.changes += 1
                self._release(facts.pods_key, [pod_set.name for pod_set in facts.pod_sets], facts.owner_uid)
        for other, admission in holding.items():  # one of the same job may hold the places that another has given back
            if admission is not None:
                self._reserve(other, admission)

    def _release(self, pods_key: str, pod_sets: Iterable[str], owner: str | None) -> None:
        for name in pod_sets:
            self.ledger.reserve((pods_key, name, owner), None)
            self.ledger.reserve((pods_key, list_spares(name), owner), None)

    # --- decisions not yet observed -----------------------------------------------------------------

    def assume(self, key: str, admission: Admission, plan: NodesByPodSet, leaves: NodesByPodSet = _NOTHING) -> None:
        """Counts a decision as used from this moment, in place of an earlier one, before its write is even sent. `plan`: where the engine
        counted the pods of each pod set, as (node, pods). `leaves`, in the same shape: other nodes where pods are counted, too, until
        `confirm`, `drop_assumed` or the next decision. Without facts of the workload nothing is reserved."""
        self._plans[key] = plan
        before = self._get_held(key)
        self.workloads.assume(key, admission)
        self._note_change(key, before)
        self._end_leaving(key)
        facts = self.workloads.facts.get(key)
        for pod_set in facts.pod_sets if facts is not None else ():
            nodes = leaves.get(pod_set.name)
            if nodes and facts is not None:
                left: PodSetKey = (facts.pods_key, f"{pod_set.name} before", facts.owner_uid)
                self._leaving.setdefault(key, []).append(left)
                self.ledger.reserve(left, Reservation(with_pod(pod_set.requests), tuple(nodes)))
        # Where the hostname is the lowest level the assignment has all nodes; a plan by names keeps no tree alive.
        durable = {name: tuple(nodes) for name, nodes in plan.items() if not (isinstance(nodes, NodeCounts) and nodes.tree.is_hostname)}
        if durable:
            self._plans[key] = durable
        else:
            self._plans.pop(key, None)

    def assume_spares(self, key: str, admission: Admission) -> None:
        """Counts, as `assume` does, an admission that leaves a workload its places and changes the nodes kept free for it. The plan of the
        last decision stays; pods that it `leaves` are counted no longer."""
        self.assume(key, admission, self._plans.get(key, _NOTHING))

    def confirm(self, key: str, resource_version: int, uid: str | None = None) -> None:
        """Records that the write of an assumed decision succeeded with a resourceVersion. The decision counts until the Workload is
        observed at least as new; that may be so already. Pods that it `leaves` (`assume`) are counted no longer. Nothing happens without an
        assumed decision, or where it is for another workload of that name than the one of `uid` (None: any)."""
        if not self.workloads.is_assumed_for(key, uid):
            return
        self._end_leaving(key)
        before = self._get_held(key)
        self.workloads.confirm(key, resource_version)
        self._note_change(key, before)
        self.ledger.name_nodes(self.get_pods_key(key))

    def drop_assumed(self, key: str, uid: str | None = None, *, helps: bool = True) -> None:
        """Removes an assumed decision, if there is one, after its write failed, so that the observed admission counts again. `helps`:
        `changes` counts what is given back, and workloads that wait are tried again. Nothing happens where the decision is for another
        workload of that name than the one of `uid` (None: any)."""
        if uid is not None and not self.workloads.is_assumed_for(key, uid):
            return
        self._end_leaving(key)
        before = self._get_held(key)
        self.workloads.drop_assumed(key)
        self._note_change(key, before, helps=helps)

    def _end_leaving(self, key: str) -> None:
        for left in self._leaving.pop(key, ()):
            self.ledger.reserve(left, None)
            self.changes += 1

    def reserve(self, key: str, admission: Admission, plan: NodesByPodSet) -> None:
        """Counts what a workload will be given once others are gone, on top of what they hold, as an assumed decision until `drop_claims`.
        A second call for a workload changes nothing."""
        if key not in self._claims:
            self._claims.append(key)
            self.assume(key, admission, plan)
            if (held := self.workloads.find_holding(key)) is not None:  # with its spares, where these use quota
                add_usage(self._claimed.setdefault(held.cluster_queue, {}), held)

    def copy_claimed(self) -> dict[str, dict[FlavorResource, int]]:
        """Returns a copy of the quota that `reserve` counts now, by ClusterQueue, then by flavor and resource, in canonical units."""
        return {queue: dict(amounts) for queue, amounts in self._claimed.items()}

    def reserve_beside(
        self, key: str, amounts: Iterable[tuple[str, Resources]], pods: Iterable[tuple[str, Sequence[tuple[str, int]]]]
    ) -> None:
        """Counts on nodes what a workload that holds a place will be given beside it once others are gone, until `drop_claims`. It replaces
        what an earlier call counted for the workload. One that is not observed gets nothing. `amounts` are resources per node, in canonical
        units. `pods` are, by pod set, numbers per node; they count for ports and affinity only. Unknown pod sets are ignored."""
        self.release_beside(key)
        facts = self.workloads.facts.get(key)
        if facts is None:
            return
        traits = {pod_set.name: pod_set.traits for pod_set in facts.pod_sets}
        reserved = [Reservation(taken, ((node, 1),)) for node, taken in amounts]
        reserved += (Reservation({}, nodes, traits=traits[name]) for name, nodes in pods if name in traits)
        for i, reservation in enumerate(reserved):
            one: PodSetKey = (facts.pods_key, f"beside {i}", facts.owner_uid)
            self._beside.setdefault(key, []).append(one)
            self.ledger.reserve(one, reservation)

    def release_beside(self, key: str) -> None:
        """Removes from the nodes what `reserve_beside` counts for a workload, if anything. `changes` does not count that."""
        for one in self._beside.pop(key, ()):
            self.ledger.reserve(one, None)

    def note_unclaimed(self, cluster_queue: str) -> None:
        """Counts a change, in `changes` and in the quota tree, as a reservation of a ClusterQueue's quota has ended: a refused workload may
        fit now. It removes nothing."""
        self.changes += 1
        self.quota.note_change(cluster_queue)

    def drop_claims(self) -> None:
        """Removes all that `reserve` and `reserve_beside` count; this is no change that could help pending workloads."""
        for key in self._claims:
            before = self._get_held(key)
            self.workloads.drop_assumed(key)
            self._note_change(key, before, helps=False)
        self._claims.clear()
        self._claimed.clear()
        for key in list(self._beside):
            self.release_beside(key)

    def list_starting(self) -> Iterator[tuple[str, str]]:
        """Yields key and ClusterQueue of workloads that hold quota, are not evicted and have pods that are not reported as ready. Those
        that `reserve` counts are left out: they have no pods to wait for."""
        return ((key, queue) for key, queue in self.workloads.list_starting().items() if key not in self._claims)

    def _get_node_labels(self, name: str) -> Mapping[str, str]:
        node = self.nodes.get(name)
        return node.labels if node is not None else {}

    def _get_held(self, key: str) -> _Held:
        facts = self.workloads.facts.get(key)
        owner, pod_sets = (facts.owner_uid, facts.pod_sets) if facts is not None else (None, ())
        return self.workloads.find_holding(key), owner, pod_sets, self.get_pods_key(key), self.workloads.find_replaced(key)

    def get_pods_key(self, key: str) -> str:
        """Returns the key of the workload that the pods of a workload name: of an elastic job that of the first one. It is its own for all
        others and for one that is not observed."""
        facts = self.workloads.facts.get(key)
        return facts.pods_key if facts is not None else key

    def _note_change(self, key: str, before: _Held, *, helps: bool = True) -> None:
        now = self._get_held(key)
        self._note_lending(key)
        if now == before:
            return
        if before[0] is not None:
            if helps:
                self.changes += 1
                self.quota.note_change(before[0].cluster_queue)
            self._release(before[3], [given.name for given in before[0].pod_sets], before[1])
        if now[0] is None:
            self._plans.pop(key, None)
            elder = before[4]
            held = self.workloads.find_holding(elder) if elder is not None else None
            if elder is not None and held is not None:
                self._reserve(elder, held)  # what was to take its place does not
        else:
            self._reserve(key, now[0])

    def _note_lending(self, key: str) -> None:
        """Records that a workload lends nodes: when it begins to, that may help a pending workload."""
        if not self.workloads.is_lending(key):
            self._lending.discard(key)
        elif key not in self._lending:
            self._lending.add(key)
            self.changes += 1

    # --- views --------------------------------------------------------------------------------------

    def get_view(self, flavor_name: str) -> FlavorView | None:
        """Returns a topology-aware flavor over its nodes, built if need be and kept up to date: one object for all callers. None if the
        flavor or its topology is not there, or it names none."""
        view = self._views.get(flavor_name)
        if view is None:
            flavor = self.flavors.get(flavor_name)
            topology = self.topologies.get(flavor.topology) if flavor is not None and flavor.topology else None
            if flavor is None or topology is None:
                self._former_views.pop(flavor_name, None)
                return None
            view = self._build_view(flavor, topology)
        return view

    def get_built_view(self, flavor_name: str) -> FlavorView | None:
        """Returns the same as `get_view`, but None where the view is not built yet."""
        return self._views.get(flavor_name)

    def _build_view(self, flavor: FlavorFacts, topology: TopologyFacts) -> FlavorView:
        nodes = [node for node in self.nodes.values() if is_match(flavor, node)]
        tree = TopologyTree(topology.levels, [NodeLabels(node.name, node.labels) for node in nodes])
        capacity = FreeCapacity(tree, {node.name: node.state for node in nodes})
        view = self._views[flavor.name] = FlavorView(flavor, topology, capacity)
        self.ledger.attach(capacity)
        # Where assignments of this flavor are counted depends on its tree.
        former, moved = self._former_views.pop(flavor.name, None), None
        if former is not None and (former.flavor, former.topology) == (flavor, topology):
            moved = view.find_moved(former)
            self.ledger.name_nodes()  # what the engine counted on the former tree would keep that alive
        for key in list(self.workloads.facts) if moved is None or moved else ():
            admission = self.workloads.find_holding(key)
            if admission is None or not _is_using(admission, flavor.name):
                continue
            if moved is None or not moved.isdisjoint(_list_places(admission)):
                self._reserve(key, admission)
        return view

    def _drop_view(self, flavor: str) -> None:
        self._former_views.pop(flavor, None)
        view = self._views.pop(flavor, None)
        if view is not None:
            self.ledger.detach(view.capacity)
            self._dropped.add(flavor)

    def refresh(self) -> bool:
        """Builds every view that is missing, so that reservations of all flavors are counted, and settles the ledger (`Ledger.settle`).
        Returns whether events dropped any view since the last call. Reservations on a flavor that is gone, or has no topology any more, are
        removed."""
        self.ledger.settle()
        is_changed = bool(self._dropped)
        for name, flavor in self.flavors.items():
            if flavor.topology:
                self.get_view(name)
        lost = {name for name in self._dropped if name not in self._views}
        self._dropped.clear()
        for key in list(self.workloads.facts) if lost else ():
            admission = self.workloads.find_holding(key)
            if admission is not None and any(_is_using(admission, name) for name in lost):
                self._reserve(key, admission)
        return is_changed

    # --- reservations -------------------------------------------------------------------------------

    def _reserve(self, key: str, admission: Admission) -> None:
        facts = self.workloads.facts.get(key)
        if facts is None:
            return
        for pod_set, given in zip(facts.pod_sets, admission.pod_sets, strict=False):
            flavor = self.find_topology_flavor(given.flavors.values())
            view = self.get_view(flavor) if flavor is not None else None
            pod_set_key: PodSetKey = (facts.pods_key, pod_set.name, facts.owner_uid)
            spares_key: PodSetKey = (facts.pods_key, list_spares(pod_set.name), facts.owner_uid)
            # Former reservations of a workload must not block its own plan.
            self.ledger.reserve(pod_set_key, None)
            self.ledger.reserve(spares_key, None)
            if given.assignment is None or view is None:
                continue
            requests = dict(pod_set.requests)
            add(requests, {PODS: 1})
            plan = self._plans.get(key, {}).get(pod_set.name)
            reservation = build_reservation(view, pod_set, requests, given.assignment, plan)
            surplus = max(0, reservation.count - pod_set.count) if pod_set.reclaimed else 0
            done_before = pod_set.reclaimed - surplus
            self.ledger.reserve(pod_set_key, replace(reservation, surplus=surplus, done_before=done_before) if surplus else reservation)
            spares = view.list_spares(given)
            if spares:
                self.ledger.reserve(spares_key, Reservation(requests, spares))

    def find_topology_flavor(self, flavors: Iterable[str]) -> str | None:
        """Returns the first of these names of flavors, in their order, that exists and names a topology, there or not; None where none
        does."""
        return next((name for name in flavors if (facts := self.flavors.get(name)) is not None and facts.topology), None)

    # --- reading --------------------------------------------------------------------------------------

    @property
    def quota(self) -> QuotaTree:
        """Returns the quota of all queues and cohorts, with present usage: one tree, in which usage changes in place. It is replaced by a
        new one only after a queue or cohort has changed; an earlier one is not kept up to date."""
        if self._quota_is_old:
            self._quota_is_old = False
            owners = (queue.owner for queue in self.cluster_queues.values())
            self.workloads.arrange(owners, (cohort.owner for cohort in self.cohorts.values()))
        return self.workloads.quota

    def find_places(self, given: Iterable[PodSetAdmission]) -> AssignedPlaces:
        """Returns an object that finds the domains of these pod sets' assignments, by the views of their flavors. The views are those of
        now, built if need be, and not copied."""
        flavors = {pod_set.name: self.find_topology_flavor(pod_set.flavors.values()) for pod_set in given}
        return AssignedPlaces({name: self.get_view(flavor) if flavor is not None else None for name, flavor in flavors.items()})

    def request_for(self, pod_set: PodSetFacts, flavor: FlavorFacts) -> PodSetRequest:
        """Returns a pod set, with the pods that it still needs, as it would be placed on a flavor's nodes. The flavor's tolerations are
        joined to its own, and nodes must have the label keys of its hard spread constraints. Labels of the flavor are not in it."""
        return PodSetRequest(
            pod_set.name,
            pod_set.count,
            pod_set.requests,
            pod_set.topology,
            pod_set.node_selector,
            require_labels(pod_set.affinity, pod_set.traits.spread_keys),
            pod_set.tolerations + flavor.tolerations,
            pod_set.traits,
            pod_set.spares,
        )

    def find_cluster_queue(self, workload: WorkloadFacts) -> ClusterQueueFacts | None:
        """Returns the ClusterQueue a workload is queued in, by the LocalQueue that it names; None unless both exist. Stopped queues are
        returned, too."""
        local = self.local_queues.get(workload.queue)
        return self.cluster_queues.get(local.cluster_queue) if local is not None else None


def _read_standing(facts: WorkloadFacts | None) -> tuple[object, ...] | None:
    """Returns the facts that decide whether a workload that holds quota may be preempted; None for one that holds none."""
    if facts is None or facts.admission is None:
        return None
    return facts.priority, facts.evicted, facts.finished, facts.deleting


def _list_places(admission: Admission) -> Iterator[tuple[str, ...]]:
    """What `FlavorView.find_moved` returns where the reservations of an admission change: its domains and its spare nodes."""
    for given in admission.pod_sets:
        for domain in given.assignment.domains if given.assignment is not None else ():
            yield domain.values
        for name in given.spares:
            yield (name,)


def _is_using(admission: Admission, flavor: str) -> bool:
    return any(flavor in pod_set.flavors.values() for pod_set in admission.pod_sets)


def _update(table: dict[str, T], key: str, value: T | None) -> bool:
    if table.get(key) == value:
        return False
    if value is None:
        del table[key]
    else:
        table[key] = value
    return True

"""A cluster that benches live through: one topology-aware flavor behind one queue, served as the reconciler serves it.

Nodes, pods and workloads are observed, and a decision is one `Cycle.run` as in the scheduler's own cycle: flavor
search, quota, placement, and the usage assumed. Workloads come one at a time, so that each cycle has one to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.model.pod_resources import PODS, add, parse_resources
from core.model.podset import parse_topology_request
from core.model.quota_tree import Quota
from core.placement.algorithms.profile import MIXED, Profile, Profiles
from core.placement.refusals import NotFit
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.node_eligibility import read_taints
from core.queueing.cycle.cycle import Cycle
from core.queueing.flavors.outcome import Admissible
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, NodeFacts, PodFacts, PodSetFacts, TopologyFacts, WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts, LocalQueueFacts, ResourceGroup

NAMESPACE, FLAVOR, TOPOLOGY = "bench", "default", "default"
_PLENTY = 2**60


@dataclass(frozen=True, slots=True)
class Refused:
    """The sentence that the workload's condition gets, and the engine's refusal behind it."""

    message: str
    refusal: NotFit


class Life:
    """The state of one cluster, and the scheduler's cycle over it."""

    def __init__(
        self,
        levels: Sequence[str],
        nodes: Iterable[NodeFacts],
        *,
        node_labels: Mapping[str, str] | None = None,
        tolerations: tuple[Mapping[str, Any], ...] = (),
        profile: Profile = MIXED,
    ) -> None:
        self.state = state = ClusterState()
        resources: set[str] = set()
        for node in nodes:
            state.observe_node(node.name, node)
            resources |= node.state.allocatable.keys()
        quota = dict.fromkeys(sorted(resources - {PODS}), _PLENTY)
        groups = (ResourceGroup(tuple(quota), (FLAVOR,)),)
        quotas = {(FLAVOR, resource): Quota(amount) for resource, amount in quota.items()}
        state.observe_namespace(NAMESPACE, {})
        state.observe_topology(TOPOLOGY, TopologyFacts(TOPOLOGY, tuple(levels)))
        state.observe_flavor(FLAVOR, FlavorFacts(FLAVOR, node_labels or {}, (), tolerations, TOPOLOGY))
        state.observe_cluster_queue("queue", ClusterQueueFacts("queue", False, groups, {}, "None", False, quota=quotas))
        state.observe_local_queue(f"{NAMESPACE}/queue", LocalQueueFacts(f"{NAMESPACE}/queue", "queue", "None"))
        state.refresh()
        self._cycle = Cycle(state, Profiles({}, profile))

    @property
    def capacity(self) -> FreeCapacity:
        """What is free now."""
        view = self.state.get_view(FLAVOR)
        assert view is not None
        return view.capacity

    def decide(self, workload: WorkloadFacts) -> Admissible | Refused:
        """A workload comes and is judged; what it was given is in use from here on."""
        self.state.observe_workload(workload.key, workload)
        (verdict,) = self._cycle.run()
        if isinstance(verdict.outcome, Admissible):
            return verdict.outcome
        refusal = verdict.outcome.attempts[-1].refusal if verdict.outcome.attempts else None
        if refusal is None:
            raise AssertionError(f"{workload.key} was not judged by its topology: {verdict.outcome.message}")
        return Refused(verdict.outcome.message, refusal)

    def release(self, key: str) -> None:
        """A workload is gone, and with it all it was given."""
        self.state.observe_workload(key, None)


def read_node(node: Mapping[str, Any]) -> NodeFacts:
    """A node of a stream's first line."""
    state = NodeState(parse_resources(node["allocatable"]), read_taints(node), node.get("ready", True), node.get("unschedulable", False))
    return NodeFacts(node["name"], node["labels"], state)


def change_node(node: NodeFacts, event: Mapping[str, Any]) -> NodeFacts:
    """A node after an event of a stream: what the event does not name stays."""
    state = replace(
        node.state,
        taints=read_taints(event) if "taints" in event else node.state.taints,
        ready=event.get("ready", node.state.ready),
        unschedulable=event.get("unschedulable", node.state.unschedulable),
    )
    return replace(node, state=state)


def build_pod(name: str, node: str, requests: Mapping[str, int], *, terminal: bool = False) -> PodFacts:
    """A pod that is none of ours."""
    amounts = dict(requests)
    add(amounts, {PODS: 1})
    return PodFacts(f"other/{name}", name, node, terminal, False, False, amounts, None, None, None, {}, {})


def build_workload(name: str, pod_sets: Iterable[Mapping[str, Any]]) -> WorkloadFacts:
    """A workload of pod sets as a stream writes them."""
    return workload_of(name, tuple(_read_pod_set(pod_set) for pod_set in pod_sets))


def workload_of(name: str, pod_sets: tuple[PodSetFacts, ...]) -> WorkloadFacts:
    """A workload that waits in the queue."""
    return WorkloadFacts(
        key=f"{NAMESPACE}/{name}",
        uid=name,
        queue=f"{NAMESPACE}/queue",
        priority=0,
        created="",
        queued_since="",
        active=True,
        deleting=False,
        owner_uid=f"owner-of-{name}",
        pod_sets=pod_sets,
        admission=None,
        quota_reserved=False,
        admitted=False,
        evicted=False,
        finished=False,
        resource_version=1,
    )


def _read_pod_set(pod_set: Mapping[str, Any]) -> PodSetFacts:
    topology, group = parse_topology_request(pod_set.get("topology_request")), pod_set.get("pod_set_group_name")
    return PodSetFacts(
        pod_set["name"],
        pod_set["count"],
        pod_set["single_pod_requests"],
        replace(topology, group=group) if topology is not None and group else topology,
        pod_set.get("node_selector") or {},
        pod_set.get("affinity"),
        tuple(pod_set.get("tolerations") or ()),
        group=group,
    )

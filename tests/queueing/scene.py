"""A small cluster with queues, and a scheduler whose verdicts are written at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core.model.configuration import FairSharing, ResourceRules
from core.model.pods_ready_rules import PodsReadyRules
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import STANDARD
from core.placement.refusals import NotFit
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.flavors.quota_shortage import QuotaShortage
from core.queueing.ordering.pending import Pending
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, NodeFacts, PodFacts, TopologyFacts, WorkloadFacts, build_object_key
from core.state.queue_facts import ClusterQueueFacts, LocalQueueFacts
from tests.builders import (
    NAMESPACE,
    RACK,
    Node,
    build_cluster_queue_json,
    build_flavor_json,
    build_local_queue_json,
    build_node_json,
    build_pod_set_json,
    build_topology_json,
    build_workload_json,
)


class Scene:
    """One topology `t` of racks and hosts, one topology-aware flavor `tas` over all nodes; the rest is up to the test."""

    def __init__(
        self,
        *,
        quota: str = "100",
        strict: bool = False,
        sharing: FairSharing | None = None,
        resource_rules: ResourceRules | None = None,
    ) -> None:
        self.state = ClusterState(resource_rules=resource_rules)
        self.sharing = sharing
        self.cycle = Cycle(self.state, STANDARD, sharing=sharing)
        self.version = 1
        self.state.observe_namespace(NAMESPACE, {})
        self.state.observe_topology("t", TopologyFacts.read(build_topology_json("t", [RACK, HOSTNAME_LABEL])))
        self.flavor("tas", "t")
        self.queue("cq", {"tas": quota}, strict=strict)
        self.local_queue("lq", "cq")

    def flavor(self, name: str, topology: str | None = None, **spec: Any) -> None:
        self.state.observe_flavor(name, FlavorFacts.read(build_flavor_json(name, topology, **spec)))

    def queue(self, name: str, quotas: Mapping[str, str], **options: Any) -> None:
        self.state.observe_cluster_queue(name, ClusterQueueFacts.read(build_cluster_queue_json(name, quotas, **options)))

    def local_queue(self, name: str, cluster_queue: str, stop_policy: str = "None") -> None:
        queue = build_local_queue_json(name, cluster_queue)
        queue["spec"]["stopPolicy"] = stop_policy
        self.state.observe_local_queue(f"{NAMESPACE}/{name}", LocalQueueFacts.read(queue))

    def rack(self, name: str, nodes: int, *, cpu: int = 4, **labels: str) -> None:
        for i in range(nodes):
            self.node(Node(f"{name}-n{i}", {RACK: name, HOSTNAME_LABEL: f"{name}-n{i}", **labels}, {"cpu": cpu * 1000, "pods": 10}))

    def node(self, node: Node) -> None:
        self.state.observe_node(node.name, NodeFacts.read(build_node_json(node)))

    def pod(self, pod: Mapping[str, Any]) -> None:
        self.state.observe_pod(build_object_key(pod), PodFacts.read(pod))

    def workload(self, workload: Mapping[str, Any]) -> str:
        self.state.observe_workload(build_object_key(workload), WorkloadFacts.read(workload))
        return build_object_key(workload)

    def submit(self, name: str, count: int = 1, *, cpu: str = "1", topology: Mapping[str, Any] | None = None, **options: Any) -> str:
        """A workload of one pod set, by default for one rack."""
        pod_sets = [build_pod_set_json(count=count, cpu=cpu, topology={"required": RACK} if topology is None else topology)]
        return self.workload(build_workload_json(name, pod_sets, **options))

    def delete(self, name: str) -> None:
        self.state.observe_workload(f"{NAMESPACE}/{name}", None)

    def run(self) -> dict[str, Admissible | NotAdmissible]:
        """One cycle; verdicts by name of workload."""
        return {verdict.workload.key.partition("/")[2]: verdict.outcome for verdict in self.verdicts()}

    def verdicts(self, *busy: str) -> list[Verdict]:
        """Those of one cycle; verdicts on the `busy` ones are still being written."""

        def is_busy(uid: str) -> bool:
            return uid.removeprefix("uid-") in busy

        verdicts = list(self.cycle.run(is_busy=is_busy))
        while (verdict := self.cycle.update_next_reason(is_busy)) is not None:
            verdicts.append(verdict)
        return verdicts


def list_in_queue_order(state: ClusterState, rules: PodsReadyRules | None = None) -> list[WorkloadFacts]:
    """Who waits, the first to be served first."""
    pending = Pending(state.workloads, rules)
    pending.sync()
    return list(pending)


def list_admitted(verdicts: Mapping[str, Admissible | NotAdmissible]) -> set[str]:
    return {name for name, outcome in verdicts.items() if isinstance(outcome, Admissible)}


def get_refusals(verdicts: Mapping[str, Admissible | NotAdmissible]) -> dict[str, NotAdmissible]:
    return {name: outcome for name, outcome in verdicts.items() if isinstance(outcome, NotAdmissible)}


def list_refusals(found: Admissible | NotAdmissible) -> list[NotFit]:
    """Why flavors had no place, in the order in which they were tried."""
    return [attempt.refusal for attempt in found.attempts if attempt.refusal is not None]


def list_shortages(found: Admissible | NotAdmissible) -> list[QuotaShortage]:
    """Which quota flavors lacked, in the order in which they were tried."""
    return [attempt.shortage for attempt in found.attempts if attempt.shortage is not None]


def list_flavors(found: Admissible | NotAdmissible) -> list[dict[str, str]]:
    assert isinstance(found, Admissible), found
    return [dict(pod_set.flavors) for pod_set in found.admission.pod_sets]


def build_times(names: Iterable[str]) -> dict[str, str]:
    """Creation times that make an order."""
    return {name: f"2026-01-01T00:00:{i:02}Z" for i, name in enumerate(names)}

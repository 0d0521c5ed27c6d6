"""The worst cases of controllers: each turn of the event loop in which they work is a step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from core.model.node_health_rules import HealthRules
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.encoding import encode
from core.names import ADMITTED, HOSTNAME_LABEL, QUOTA_RESERVED
from core.plan.pods.pod_units import GROUP, Unit
from core.plan.steps import api_resources as r
from core.resource import Obj, Resource
from core.runtime.clock import SystemClock
from core.runtime.http.client import Client
from core.runtime.http.transport import Nowhere
from core.runtime.watch.watch_step import Deleted
from core.runtime.workqueue import Item
from reconciler.execute.event_recorder import Reporter
from reconciler.execute.executor import Executor
from reconciler.jobs.jobs import Jobs
from reconciler.nodes.domain_health import DomainHealth
from reconciler.nodes.node_health import NodeHealth
from reconciler.observe.observed import Observed
from reconciler.pods.orphaned_gated_pods import Strangers
from reconciler.pods.pods import Pods
from reconciler.pods.ungater import Ungater
from reconciler.workloads.drift import DriftAudit
from reconciler.workloads.queues import Queues
from tests.bench.parts.steps import NODES, PODS, Steps, case, turns
from tests.builders import (
    BLOCK,
    RACK,
    Node,
    build_cluster_queue_json,
    build_flavor_json,
    build_node_json,
    build_pod_set_json,
    build_topology_json,
)
from tests.reconciler import harness_pods
from tests.reconciler.pods.test_ungater import OWNER, build_pod, build_workload

THROUGHOUT_MS = 5_000  # of all turns of one case in the thread of the event loop


class Answering(Client):
    """A client without an API server, which in this process would be measured, too: what is written goes nowhere, and is answered in the
    next turn of the event loop with the object as it was."""

    def __init__(self) -> None:
        super().__init__(Nowhere())
        self.observed: Observed | None = None
        self.workloads: list[Obj] = []  # that were made

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None, **_: Any) -> Obj:
        await asyncio.sleep(0)
        made = named(dict(body))
        if resource is r.WORKLOADS:
            self.workloads.append(made)
        return made

    async def get(self, resource: Resource, name: str, namespace: str | None = None, **_: Any) -> Obj:
        await asyncio.sleep(0)
        assert self.observed is not None
        found = self.observed._by_resource[resource].store.get(f"{namespace}/{name}" if namespace else name)
        return found if found is not None else {"metadata": {"name": name, "namespace": namespace}}

    async def patch(self, resource: Resource, name: str, namespace: str | None, body: Any, **_: Any) -> Obj:
        return await self.get(resource, name, namespace)

    async def delete(self, resource: Resource, name: str, namespace: str | None = None, **_: Any) -> Obj:
        return await self.get(resource, name, namespace)


class Watching:
    """What is observed, and an executor whose writes go nowhere."""

    def __init__(self) -> None:
        clock, self.client = SystemClock(), Answering()
        self.observed = self.client.observed = Observed(self.client, clock)
        self.executor = Executor(self.client, clock, Reporter(self.client, clock, self.observed))


class Group(Watching):
    """A plain group of pods."""

    def __init__(self) -> None:
        super().__init__()
        self.pods = Pods(self.observed, self.executor, SystemClock())
        created: Obj = {"namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}
        self.observed.pods.fill(named(harness_pods.build_pod(f"p{number:05}", group="g", total=PODS, **created)) for number in range(PODS))

    def reconcile(self) -> Steps:
        return turns(self.pods._reconcile(Item(Unit(GROUP, "ns", "g"), frozenset(), 0.0)))


@case(THROUGHOUT_MS)
def plain_group_of_50_000_pods_that_comes() -> Steps:
    return Group().reconcile()


@case(THROUGHOUT_MS)
def plain_group_of_50_000_pods_that_starts() -> Steps:
    group = Group()
    for _ in group.reconcile():
        pass
    (workload,) = group.client.workloads
    group.observed.flavors.put(named({"metadata": {"name": "f"}, "spec": {}}))
    group.observed.workloads.put({**workload, "status": harness_pods.admitted(workload)})
    return group.reconcile()


def named(obj: Obj) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "uid": f"uid-{obj['metadata']['name']}", "resourceVersion": "1"}}


def in_namespace(obj: Obj) -> Obj:
    return named({**obj, "metadata": {**obj["metadata"], "namespace": "ns"}})


@case(THROUGHOUT_MS)
def ungating_of_50_000_pods_in_one_wide_domain() -> Steps:
    made, whole = Watching(), build_workload()
    ungater = Ungater(made.observed, made.executor, SystemClock(), waits_for_nodes=True)
    made.observed.topologies.put(named(build_topology_json("t", (BLOCK,))))
    made.observed.flavors.put(named(build_flavor_json("f", "t")))
    made.observed.nodes.fill(named(build_node_json(Node(f"n{number:04}", {BLOCK: "b"}, {"cpu": 1}))) for number in range(NODES))
    whole["spec"]["podSets"][0]["count"] = PODS
    given = {"name": "main", "count": PODS, "flavors": {"cpu": "f"}}
    given["topologyAssignment"] = encode(TopologyAssignment((BLOCK,), (DomainCount(("b",), PODS),)))
    whole["status"]["admission"]["podSetAssignments"] = [given]
    made.observed.workloads.put(in_namespace(whole))
    made.observed.pods.fill(in_namespace(build_pod(number)) for number in range(PODS))
    return turns(ungater._reconcile(Item("ns/w", frozenset(), 0.0)))


def _make_newer(obj: Obj) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": "2"}}


class WholeCluster(Watching):
    """A job of all pods on all nodes, the last of which is gone. Each node is a domain, of the hostname or of a block of its own.
    `are_away`: the labels of all other nodes are."""

    def __init__(self, *, by_hostname: bool, are_away: bool) -> None:
        super().__init__()
        whole, observed, lowest = build_workload(), self.observed, HOSTNAME_LABEL if by_hostname else RACK
        names = [f"n{number:04}" for number in range(NODES)]
        observed.topologies.put(named(build_topology_json("t", (BLOCK, lowest))))
        observed.flavors.put(named(build_flavor_json("f", "t")))
        blocks: dict[str, str] = {} if are_away else {BLOCK: "b"}
        labels = ({HOSTNAME_LABEL: name, RACK: name, **blocks} for name in names[:-1])
        observed.nodes.fill(named(build_node_json(Node(each[HOSTNAME_LABEL], each, {"cpu": 10}))) for each in labels)
        whole["spec"]["podSets"][0]["count"] = PODS
        given = {"name": "main", "count": PODS, "flavors": {"cpu": "f"}}
        levels, above = ((HOSTNAME_LABEL,), ()) if by_hostname else ((BLOCK, RACK), ("b",))
        domains = tuple(DomainCount((*above, name), PODS // NODES) for name in names)
        given["topologyAssignment"] = encode(TopologyAssignment(levels, domains))
        whole["status"]["admission"]["podSetAssignments"] = [given]
        observed.workloads.put(in_namespace(whole))
        self._levels = levels
        observed.pods.fill(in_namespace(self._place(build_pod(number), names[number % NODES])) for number in range(PODS))
        observed.state.get_view("f")  # made by what decides

    def _place(self, made: Obj, node: str) -> Obj:
        selector = dict(zip(self._levels, (node,) if len(self._levels) == 1 else ("b", node), strict=True))
        return {**made, "spec": {**made["spec"], "schedulingGates": [], "nodeName": node, "nodeSelector": selector}}

    def end_admission(self) -> None:
        """The workload is evicted while its pods are sent to their nodes and are not bound."""
        over = build_workload()
        over["spec"]["podSets"][0]["count"] = PODS
        over["status"] = {}
        unbound = [{**made, "spec": {**made["spec"], "nodeName": ""}} for made in self.observed.pods.store.list()]
        self.observed.workloads.put(_make_newer(in_namespace(over)))
        for made in unbound:
            self.observed.pods.put(_make_newer(made))

    def look_at_nodes(self) -> Steps:
        return turns(NodeHealth(self.observed, self.executor, SystemClock(), HealthRules()).reconcile("ns/w"))

    def look_at_domains(self) -> Steps:
        return turns(DomainHealth(self.observed, self.executor, SystemClock(), HealthRules()).reconcile("ns/w"))

    def look_for_drift(self) -> Steps:
        return turns(DriftAudit(self.observed, self.executor, SystemClock()).audit())


@case(THROUGHOUT_MS)
def node_lost_by_a_job_of_50_000_pods() -> Steps:
    return WholeCluster(by_hostname=True, are_away=False).look_at_nodes()


@case(THROUGHOUT_MS)
def eviction_of_a_job_of_50_000_pods_that_are_not_bound() -> Steps:
    made = WholeCluster(by_hostname=True, are_away=False)
    made.end_admission()
    return made.look_at_nodes()


@case(THROUGHOUT_MS)
def labels_lost_by_all_nodes_of_a_job_of_50_000_pods() -> Steps:
    return WholeCluster(by_hostname=True, are_away=True).look_at_nodes()


@case(THROUGHOUT_MS)
def node_lost_by_a_job_in_5_000_racks() -> Steps:
    return WholeCluster(by_hostname=False, are_away=False).look_at_domains()


@case(THROUGHOUT_MS)
def labels_lost_by_all_racks_of_a_job_of_50_000_pods() -> Steps:
    return WholeCluster(by_hostname=False, are_away=True).look_at_domains()


@case(THROUGHOUT_MS)
def drift_of_a_job_of_50_000_pods() -> Steps:
    return WholeCluster(by_hostname=True, are_away=True).look_for_drift()


@case(THROUGHOUT_MS)
def job_of_50_000_pods_that_leaves_them() -> Steps:
    observed = Watching().observed
    jobs = observed.jobs["Job.batch"]
    job: Obj = {"kind": "Job", "metadata": {"name": "train", "namespace": "ns", "uid": OWNER["uid"], "resourceVersion": "1"}, "spec": {}}
    jobs.fill([{**job, "metadata": {**job["metadata"], "labels": {}}}])
    observed.pods.fill(in_namespace(build_pod(number)) for number in range(PODS))

    def leave() -> Steps:
        jobs._fold(Deleted(job))
        yield None
        for again in observed.again:
            while again.refold_some():
                yield None

    return leave()


@case(THROUGHOUT_MS)
def workload_of_50_000_gated_pods_that_goes() -> Steps:
    made, gone = Watching(), in_namespace(build_workload())
    made.observed.workloads.put(gone)
    made.observed.pods.fill(in_namespace(build_pod(number)) for number in range(PODS))
    orphaned = Strangers(made.observed, made.executor, SystemClock())

    def go() -> Steps:
        made.observed.workloads._fold(Deleted(gone))
        yield None
        (item,) = (key for key in orphaned.controller.queue._state._entries if not isinstance(key, str))
        yield from turns(orphaned._reconcile(Item(item, frozenset(), 0.0)))

    return go()


@case(THROUGHOUT_MS)
def training_runtime_of_50_000_train_jobs_that_changes() -> Steps:
    made = Watching()
    jobs = made.observed.jobs["TrainJob.trainer.kubeflow.org"]
    runtimes = made.observed.related.informers["TrainingRuntime.trainer.kubeflow.org"]
    reconciled = Jobs(made.observed, made.executor, SystemClock())
    metadata = {"namespace": "ns", "resourceVersion": "1"}
    spec = {"runtimeRef": {"name": "r", "kind": "TrainingRuntime"}}
    jobs.fill({"metadata": {**metadata, "name": f"t{number}", "uid": f"t{number}"}, "spec": spec} for number in range(PODS))
    entries = reconciled.controller.queue._state._entries
    entries.clear()

    def change() -> Steps:
        runtimes.put({"metadata": {**metadata, "name": "r", "uid": "r"}, "spec": {}})
        yield None
        (item,) = entries
        yield from turns(reconciled._reconcile(Item(item, frozenset(), 0.0)))

    return change()


@case(THROUGHOUT_MS)
def queue_of_50_000_running_workloads() -> Steps:
    since = "2026-01-01T00:00:00Z"
    made, amounts = Watching(), {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    given = {"name": "main", "count": 1, "flavors": dict.fromkeys(amounts, "f"), "resourceUsage": amounts}
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [given]},
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in (QUOTA_RESERVED, ADMITTED)],
    }
    made.observed.flavors.put(named(build_flavor_json("f")))
    made.observed.cluster_queues.put(named(build_cluster_queue_json("cq", {"f": "100"})))
    queues = Queues(made.observed, made.executor, SystemClock())
    spec = {"queueName": "lq", "podSets": [build_pod_set_json()]}
    made.observed.workloads.fill(
        in_namespace({"metadata": {"name": f"w{number}"}, "spec": spec, "status": status}) for number in range(PODS)
    )
    return turns(queues._reconcile(Item(("clusterqueues", "cq"), frozenset(), 0.0)))

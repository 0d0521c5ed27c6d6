"""The real reconciler and webhook in a cluster in memory: jobs run through, the audit holds, and a run is the same each time."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from core.jobs.pod_rules import MAX_SELECTOR_ENTRIES, MAX_TEMPLATE_BYTES, MAX_TEMPLATE_VALUES, MAX_TOLERATIONS
from core.model.wire.encoding import compute_encoded_size
from core.names import PLACEMENT_KEPT, PRIORITY_CLASS_LABEL, TOPOLOGY_GATE
from core.plan.steps import pacing
from core.state.cluster import ClusterState
from e2e import manifests
from e2e.nodes import NodePool, build_nodes
from sim.apiserver.server import Refused
from sim.lowered import LATE_S
from sim.models.kubelets import RUN_SECONDS
from sim.world import DOUBTED_S, World

Json = dict[str, Any]
POOL = NodePool(blocks=1, racks=2, nodes=4)
LONGEST_START_S = 10.0  # after a replica was killed its next process starts


def open_world(seed: int, flavor: Json | None = None) -> World:
    world = World(seed)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for node in build_nodes(POOL):
        world.apply({**node, "status": {**node["status"], "conditions": [ready]}})
    world.apply(manifests.build_topology("t", POOL.levels))
    world.apply(flavor or manifests.build_flavor("f", {}, "t"))
    world.apply(manifests.build_cluster_queue("cq", {"f": {"cpu": 100, "nvidia.com/gpu": 48}}))
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    world.apply(manifests.build_local_queue("main", "team", "cq"))
    world.start_replicas(1)
    world.run_for(5)
    return world


def build_job(name: str, pods: int, seconds: float | None = 30, rack: str = "") -> Json:
    made = manifests.build_job(name, "team", pods=pods, gpus=8, **({"required": rack} if rack else {}))  # type: ignore[arg-type]
    if seconds is not None:
        made["spec"]["template"]["metadata"]["annotations"][RUN_SECONDS] = str(seconds)
    return made


def complete(world: World) -> list[str]:
    return [
        each["metadata"]["name"]
        for each in world.objects("batch", "jobs")
        if any(condition["type"] == "Complete" for condition in (each.get("status") or {}).get("conditions") or ())
    ]


def build_rack(world: World, pod: Json) -> str:
    nodes = {node["metadata"]["name"]: node for node in world.objects("", "nodes")}
    return str(nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][POOL.rack_label])


def tolerations(count: int) -> list[Json]:
    return [{"key": f"example.com/k{i}", "operator": "Exists"} for i in range(count)]


def at_limit_of_nodes() -> Json:
    """Node affinity that is true of all nodes."""
    expressions = [{"key": f"example.com/k{i}", "operator": "DoesNotExist"} for i in range(MAX_SELECTOR_ENTRIES)]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}


AT_LIMITS: dict[str, Json] = {
    "tolerations": {"tolerations": tolerations(MAX_TOLERATIONS)},
    "node affinity": {"affinity": at_limit_of_nodes()},
    "values": {"hostAliases": [{} for _ in range(MAX_TEMPLATE_VALUES - 40)]},
    "bytes": {"hostAliases": [{"ip": "x" * (MAX_TEMPLATE_BYTES - 900)}]},
}


@pytest.mark.parametrize("limit", AT_LIMITS)
def test_job_at_a_limit_is_started_with_additions_of_its_flavor(limit: str):
    """topogate's own webhook refused the start, which exceeds the limit, and the job held its quota without pods."""
    labels = {POOL.block_label: build_nodes(POOL)[0]["metadata"]["labels"][POOL.block_label]}
    flavor = manifests.build_flavor("f", labels, "t")
    flavor["spec"]["tolerations"] = [{"key": "example.com/flavor", "operator": "Exists"}]
    world = open_world(1, flavor)
    made = build_job("limit", 1)
    made["spec"]["template"]["spec"] |= AT_LIMITS[limit]
    world.apply(made)
    world.run_for(20)
    (pod,) = world.objects("", "pods")
    assert pod["spec"]["nodeName"]
    assert pod["spec"]["nodeSelector"].items() >= labels.items()
    world.run_for(60)
    assert complete(world) == ["limit"]


def test_jobs_run_in_one_rack_each_within_the_quota_until_all_are_complete():
    world = open_world(1)
    for number in range(6):
        world.apply(build_job(f"job-{number}", 3, rack=POOL.rack_label))
    most = 0
    for _ in range(200):
        world.run_for(1)
        assert world.find_broken() == []
        bound = [pod for pod in world.objects("", "pods") if pod["spec"].get("nodeName")]
        most = max(most, sum(pod["status"]["phase"] == "Running" for pod in bound))
        racks: dict[str, set[str]] = {}
        for pod in bound:
            racks.setdefault(pod["metadata"]["labels"]["job-name"], set()).add(build_rack(world, pod))
        assert all(len(each) == 1 for each in racks.values())
        if len(complete(world)) == 6:
            break
    assert complete(world) == [f"job-{number}" for number in range(6)]
    assert most == 6, "the quota is 48 GPUs"


def test_nothing_is_written_once_nothing_changes():
    world = open_world(2)
    world.apply(build_job("runs", 3, seconds=None, rack=POOL.rack_label))
    world.run_for(5)
    world.apply(build_job("waits", 4, rack=POOL.rack_label))
    world.run_for(120)
    pods = world.objects("", "pods")
    assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 3
    assert not any(gate["name"] == TOPOLOGY_GATE for pod in pods for gate in pod["spec"].get("schedulingGates") or ())
    [message] = {
        condition["message"]
        for workload in world.objects("kueue.x-k8s.io", "workloads")
        if workload["metadata"]["ownerReferences"][0]["name"] == "waits"
        for condition in workload["status"]["conditions"]
        if condition["type"] == "QuotaReserved"
    }
    assert "needs 8 more nvidia.com/gpu" in message
    before = world.server.writes
    world.run_for(600)
    assert world.server.writes == before


def test_webhook_refuses_a_job_in_memory_as_it_does_anywhere():
    world = open_world(3)
    with pytest.raises(Refused, match="podset-required-topology"):
        world.apply(build_job("wrong", 2, rack="not a label!"))
    made = world.apply(build_job("right", 2, rack=POOL.rack_label))
    assert made["spec"]["suspend"] is True


def test_run_of_a_seed_is_the_same_each_time():
    def play() -> list[tuple[int, str, str]]:
        world = open_world(4)
        for number in range(4):
            world.apply(build_job(f"job-{number}", 2, rack=POOL.rack_label))
        world.run_for(100)
        world.close()
        return [(change.version, change.resource[1], change.last["metadata"]["name"]) for change in world.server.history]

    one, other = play(), play()
    assert one == other
    assert len(one) > 150


def test_deleted_job_takes_its_pods_and_workload_along():
    world = open_world(5)
    made = world.apply(build_job("goes", 2, seconds=None))
    world.run_for(20)
    assert len(world.objects("", "pods")) == 2
    world.delete(made, propagationPolicy="Background")
    world.run_for(90)
    assert world.objects("batch", "jobs") == []
    assert world.objects("", "pods") == []
    assert world.objects("kueue.x-k8s.io", "workloads") == []


def test_pods_of_a_node_that_was_gone_run_on_where_their_workload_reports_it(monkeypatch: pytest.MonkeyPatch):
    """Here pods of a node that is gone are deleted sooner than topogate looks at it, in Kubernetes a minute later."""
    monkeypatch.setattr(pacing, "NODE_GONE_S", pacing.NODES_BATCH_S)
    world = open_world(7)
    world.apply(build_job("stays", 1, seconds=None, rack=POOL.rack_label))
    world.run_for(5)
    [pod] = world.objects("", "pods")
    name = pod["spec"]["nodeName"]
    [node] = [each for each in world.objects("", "nodes") if each["metadata"]["name"] == name]
    world.delete(node)
    world.run_for(1)
    labels = node["metadata"]["labels"]
    world.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": node["status"]})
    for number in range(5):
        world.apply(build_job(f"other-{number}", 1, seconds=None))
    world.run_for(DOUBTED_S + 10)
    assert world.find_broken() == []
    bound = [each["spec"].get("nodeName") for each in world.objects("", "pods")]
    assert len(bound) == 6
    assert None not in bound
    assert bound.count(name) == 1, "nobody else is sent to where the pods still are"

    [replica] = world.replicas
    replica.kill()
    [workload] = [each for each in world.objects("kueue.x-k8s.io", "workloads") if "stays" in each["metadata"]["name"]]
    conditions = [each for each in workload["status"]["conditions"] if each["type"] != PLACEMENT_KEPT]
    assert len(conditions) < len(workload["status"]["conditions"]), "it says that its pods run elsewhere"
    world.patch("kueue.x-k8s.io", "workloads", workload, {"status": {"conditions": conditions}}, "status")
    assert any(f"0 pods in domain {name}" in each for each in world.find_broken()), "what is not told is found"


def test_drift_that_came_while_no_process_led_is_reported_soon_after_one_leads():
    """Each leader waited for a minute first. Where it was not the leader for so long nothing was reported (seed 9512)."""
    world = open_world(7)
    world.apply(build_job("stays", 1, seconds=None, rack=POOL.rack_label))
    world.run_for(5)
    [pod], [replica] = world.objects("", "pods"), world.replicas
    [node] = [each for each in world.objects("", "nodes") if each["metadata"]["name"] == pod["spec"]["nodeName"]]
    replica.kill()
    world.patch("", "nodes", node, {"metadata": {"labels": {POOL.rack_label: None}}})
    world.run_for(LONGEST_START_S + pacing.DRIFT_SETTLE_S + 1)
    [workload] = world.objects("kueue.x-k8s.io", "workloads")
    found = {each["type"]: (each["status"], each["reason"]) for each in workload["status"]["conditions"]}
    assert found.get(PLACEMENT_KEPT) == ("False", "Relabelled")


def test_workload_keeps_its_place_on_a_node_that_was_gone_for_a_second():
    """It had another place by the time the node was back, and a job that requires one rack could run in two."""
    world = open_world(7)
    world.apply(build_job("stays", 1, seconds=None, rack=POOL.rack_label))
    world.run_for(5)
    [pod] = world.objects("", "pods")
    [node] = [each for each in world.objects("", "nodes") if each["metadata"]["name"] == pod["spec"]["nodeName"]]
    [before] = world.objects("kueue.x-k8s.io", "workloads")
    world.delete(node)
    world.run_for(1)
    metadata = {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]}
    world.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": node["status"]})
    world.run_for(DOUBTED_S + 10)
    [after] = world.objects("kueue.x-k8s.io", "workloads")
    assert after["status"]["admission"] == before["status"]["admission"]
    assert after["status"]["conditions"] == before["status"]["conditions"]


def test_size_of_a_replacement_does_not_count_the_place_that_it_replaces():
    """Seed 2184: both were counted, so that a job of more than half of what etcd takes had no other place."""
    world = open_world(8)
    world.apply(build_job("moves", 2, seconds=None))
    world.run_for(5)
    [workload] = world.objects("kueue.x-k8s.io", "workloads")
    as_read = {**workload, "metadata": {k: v for k, v in workload["metadata"].items() if k != "managedFields"}}
    world.limit_workloads(compute_encoded_size(as_read) + 40)  # the name of the lost node
    host = min(pod["spec"]["nodeName"] for pod in world.objects("", "pods"))
    world.delete(next(each for each in world.objects("", "nodes") if each["metadata"]["name"] == host))
    world.run_for(DOUBTED_S + 30)
    [workload] = world.objects("kueue.x-k8s.io", "workloads")
    conditions = {each["type"]: each["status"] for each in workload["status"]["conditions"]}
    assert conditions["Admitted"] == "True"
    assert "Evicted" not in conditions
    assert {pod["spec"]["nodeName"] for pod in world.objects("", "pods")}.isdisjoint({host})


def test_workload_that_etcd_would_not_take_preempts_none():
    """It did, and then had no place either, after each start of a process (seed 7 of full-size ones)."""
    world = open_world(6)
    for name, value in (("low", 1), ("high", 100)):
        world.apply({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})
    [queue] = world.objects("kueue.x-k8s.io", "clusterqueues")
    world.patch("kueue.x-k8s.io", "clusterqueues", queue, {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
    for name, pods in (("low", 6), ("high", 2)):
        made = build_job(name, pods, seconds=None)
        made["metadata"]["labels"][PRIORITY_CLASS_LABEL] = name
        world.apply(made)
        world.run_for(10)
        world.limit_workloads(1000)
    reasons = {
        (each["metadata"]["ownerReferences"][0]["name"], condition["type"], condition["status"]): condition["message"]
        for each in world.objects("kueue.x-k8s.io", "workloads")
        for condition in each["status"]["conditions"]
    }
    assert ("low", "Admitted", "True") in reasons
    assert not any(kind == "Evicted" for _, kind, _ in reasons)
    assert "etcd takes 1000" in reasons["high", "QuotaReserved", "False"]
    writes = world.server.writes
    world.run_for(60)
    assert world.server.writes == writes


def test_workload_admitted_beyond_a_lowered_quota_is_found_next_to_one_that_may_run_on(monkeypatch: pytest.MonkeyPatch):
    """No excess was found in the rest of a life in which a quota had been lowered."""
    observe, is_deaf = ClusterState.observe_cluster_queue, list[bool]()
    monkeypatch.setattr(ClusterState, "observe_cluster_queue", lambda *told: None if is_deaf else observe(*told))
    world = open_world(9)
    world.apply(build_job("before", 4, seconds=None))
    world.run_for(5)
    is_deaf.append(True)
    world.patch("kueue.x-k8s.io", "clusterqueues", *lower(world, 24))
    world.lowered.note_lowered("cq")
    world.run_for(LATE_S + 1)
    assert world.find_broken() == []
    world.apply(build_job("beyond", 1, seconds=None))
    world.run_for(5)
    assert world.find_broken() == ["queue cq may use 24 nvidia.com/gpu of flavor f, and pods use 40"]


def lower(world: World, gpus: int) -> tuple[Json, Json]:
    """The only queue, and a patch that gives it another quota."""
    [queue] = world.objects("kueue.x-k8s.io", "clusterqueues")
    [group] = deepcopy(queue["spec"]["resourceGroups"])
    group["flavors"][0]["resources"][1]["nominalQuota"] = str(gpus)
    return queue, {"spec": {"resourceGroups": [group]}}

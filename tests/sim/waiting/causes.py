"""One cluster with a job for each cause to wait, and what its user and its administrator read about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from e2e import manifests
from e2e.nodes import NodePool, build_nodes
from sim.administrators import make_ready
from sim.models.checks import CHECK, CheckController, make_check
from sim.world import WORKLOADS, World

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
POOL = NodePool(blocks=1, racks=2, nodes=4, labels={"pool": "a"})
CORDONED = NodePool(blocks=1, racks=1, nodes=2, prefix="c-", labels={"pool": "cordoned"})
RUNNING = "holds"


@dataclass
class Cause:
    """A job that waits, in a queue of its own. `queue` is of the ClusterQueue's spec, `asks` of the job. `holder`: pods of a job that holds
    quota of that queue."""

    asks: dict[str, Any]
    queue: dict[str, Any] = field(default_factory=dict)
    quota: int = 64
    flavor: str = "gpus"
    holder: int = 0
    named_queue: str = ""
    prepare: Callable[[World], None] = lambda _: None


def _build_cohort(world: World) -> None:
    """Another queue of the cohort, which has lent nothing and uses all it has."""
    spec = {"cohortName": "teams"}
    world.apply(manifests.build_cluster_queue("others", {"gpus": {"cpu": 100, "memory": "1Ti", GPU: 8}}, **spec))
    world.apply(manifests.build_local_queue("others", "ns", "others"))
    world.apply(manifests.build_job("others-run", "ns", pods=1, gpus=8, queue="others"))


RACK = POOL.rack_label
CAUSES: dict[str, Cause] = {
    "quota of the queue": Cause({"pods": 1, "gpus": 8}, quota=8, holder=1),
    "more than all quota": Cause({"pods": 2, "gpus": 8}, quota=8),
    "quota of the cohort": Cause({"pods": 2, "gpus": 8}, {"cohortName": "teams"}, quota=8, prepare=_build_cohort),
    "lower priority runs": Cause({"pods": 1, "gpus": 8, "priority": "high"}, {"preemption": {"withinClusterQueue": "Never"}}, 8, holder=1),
    "no such queue": Cause({"pods": 1, "gpus": 1}, named_queue="no-such-queu"),
    "stopped queue": Cause({"pods": 1, "gpus": 1}, {"stopPolicy": "Hold"}),
    "no such flavor": Cause({"pods": 1, "gpus": 1}, flavor="missing"),
    "level too small": Cause({"pods": 5, "gpus": 8, "required": RACK}),
    "cordoned nodes": Cause({"pods": 1, "gpus": 8, "required": RACK}, flavor="cordoned"),
    "node selector": Cause({"pods": 1, "gpus": 1, "pod_spec": {"nodeSelector": {"zone": "nowhere"}}}),
    "admission check": Cause({"pods": 1, "gpus": 1}, {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}}),
    "unknown level": Cause({"pods": 1, "gpus": 1, "required": f"{RACK}s"}),
    "flavor without a topology": Cause({"pods": 1, "gpus": 1, "required": RACK}, flavor="plain"),
}


def get_name(cause: str) -> str:
    """The name of a cause's job and queues."""
    return cause.replace(" ", "-")


def open_world() -> World:
    """All jobs wait, for a minute by now."""
    world = World(1)
    for node in build_nodes(POOL):
        world.apply(make_ready(node, "True"))
    for node in build_nodes(CORDONED):
        world.apply({**make_ready(node, "True"), "spec": {**node.get("spec", {}), "unschedulable": True}})
    world.apply(manifests.build_topology("levels", POOL.levels))
    for name, labels, topology in (("gpus", POOL.labels, "levels"), ("cordoned", CORDONED.labels, "levels"), ("plain", POOL.labels, None)):
        world.apply(manifests.build_flavor(name, labels, topology))
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    world.apply({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000})
    world.apply(make_check(world.time()))
    for controller in world.models:
        if isinstance(controller, CheckController):
            controller.is_stopped = True  # nobody answers
    for cause, each in CAUSES.items():
        name = get_name(cause)
        world.apply(manifests.build_cluster_queue(name, {each.flavor: {"cpu": 100, "memory": "1Ti", GPU: each.quota}}, **each.queue))
        world.apply(manifests.build_local_queue(name, "ns", name))
        each.prepare(world)
    world.start_reconciler()
    world.run_for(5)
    for cause, each in CAUSES.items():
        if each.holder:
            world.apply(manifests.build_job(f"{get_name(cause)}-{RUNNING}", "ns", pods=each.holder, gpus=8, queue=get_name(cause)))
    world.run_for(10)
    for cause, each in CAUSES.items():
        asks = dict(each.asks)
        priority = asks.pop("priority", None)
        job = manifests.build_job(get_name(cause), "ns", queue=each.named_queue or get_name(cause), **asks)
        if priority:
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
        world.apply(job)
    world.run_for(60)
    return world


def find_workload(world: World, cause: str) -> Json:
    """The Workload of a cause's job."""
    name = get_name(cause)
    [found] = [each for each in world.objects(*WORKLOADS) if each["metadata"]["ownerReferences"][0]["name"] == name]
    return found


def read_condition(workload: Json, kind: str = "QuotaReserved") -> str:
    """Reason and message of a condition, as `kubectl describe workload` shows them; empty where there is none."""
    found = [each for each in workload.get("status", {}).get("conditions", ()) if each["type"] == kind]
    return f"{found[0]['reason']}: {found[0]['message']}" if found else ""


def list_events(world: World, kind: str, name: str) -> list[str]:
    """Type, reason and message of events, as `kubectl describe` shows them, the oldest first."""
    found = [e for e in world.objects("", "events") if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == (kind, name)]
    return [f"{e['type']} {e['reason']}: {e['message']}" for e in sorted(found, key=lambda e: str(e["metadata"]["creationTimestamp"]))]

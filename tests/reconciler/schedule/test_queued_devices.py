"""Jobs that claim devices (DRA), from the webhook to their pods, with a model of the controllers that make and allocate claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core.model.configuration import ResourceRules
from core.model.gates import DEVICES, DEVICES_ON_NODES, ChosenGates
from core.names import PLACEMENT_KEPT, PRIORITY_CLASS_LABEL
from core.plan.steps import api_resources as r
from core.resource import Resource
from e2e import manifests
from e2e.nodes import NodePool, build_nodes
from e2e.standins.pods import has_condition
from sim.administrators import make_ready
from sim.apiserver.server import Refused
from sim.models.base import JOB, NODE, POD, is_over
from sim.world import WORKLOADS, World
from tests.podgroups.devices import CLASS, TEMPLATE, build_claim_spec, build_device_class, build_resource_slice

Json = dict[str, Any]
GPUS = "example.com/gpus"
POOL = NodePool(blocks=1, racks=2, nodes=2, labels={"pool": "a"})
TEMPLATES, CLAIMS, SLICES = (("resource.k8s.io", plural) for plural in ("resourceclaimtemplates", "resourceclaims", "resourceslices"))
WATCHED = (r.DEVICE_CLASSES, r.RESOURCE_CLAIM_TEMPLATES, r.RESOURCE_CLAIMS, r.RESOURCE_SLICES)
_PRIORITY = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def define(resource: Resource) -> Json:
    """A built-in kind of DRA, as the simulation has kinds of others."""
    schema = {"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {"plural": resource.plural, "kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


_open: list[World] = []


@pytest.fixture(autouse=True)
def close_worlds() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


def _waits_for_node(pod: Json) -> bool:
    """Whether kube-scheduler has found no node with free devices for a pod that topogate has let go."""
    return not is_over(pod) and not pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName")


class Cluster:
    """Four nodes in two racks with so many devices each, and quota for `quota` of them."""

    def __init__(self, devices: list[int], *, quota: int = 100, on_nodes: bool = True, has_topology: bool = True) -> None:
        self.world = world = World(1, [define(one) for one in WATCHED], gates=ChosenGates({DEVICES: True}))
        _open.append(world)
        for node, count in zip(build_nodes(POOL), devices, strict=True):
            world.apply(make_ready(node, "True"))
            name = node["metadata"]["name"]
            world.apply(_bare(build_resource_slice(name, count, node=name)))
        world.apply(_bare(build_device_class()))
        world.apply(manifests.build_topology("t", POOL.levels))
        world.apply(manifests.build_flavor("f", POOL.labels, "t" if has_topology else None))
        preemption = {"withinClusterQueue": "LowerPriority"}
        world.apply(manifests.build_cluster_queue("cq", {"f": {"cpu": 100, GPUS: quota}}, preemption=preemption))
        world.apply({**_PRIORITY, "metadata": {"name": "high"}, "value": 100})
        world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
        world.apply(manifests.build_local_queue("main", "ns", "cq"))
        self._has_topology = has_topology
        gates = ChosenGates({DEVICES_ON_NODES: on_nodes})
        world.start_reconciler(gates=gates, resource_rules=ResourceRules(device_classes={CLASS: GPUS}))

    def template(self, count: int) -> Json:
        spec = {"spec": build_claim_spec(count)}
        metadata = {"name": TEMPLATE, "namespace": "ns"}
        return self.world.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec})

    def submit(self, name: str, pods: int, claim: Json | None = None, labels: dict[str, str] | None = None) -> Json:
        claims = [{"name": "gpu", **(claim or {"resourceClaimTemplateName": TEMPLATE})}]
        asked: dict[str, Any] = {"required": POOL.rack_label} if self._has_topology else {}
        return self.world.apply(
            manifests.build_job(name, "ns", pods=pods, gpus=0, pod_spec={"resourceClaims": claims}, labels=labels, **asked)
        )

    def run(self, seconds: float = 20) -> None:
        self.world.run_for(seconds)
        self.world.audit()
        assert [pod["metadata"]["name"] for pod in self.world.objects("", "pods") if _waits_for_node(pod)] == []

    def places(self, job: str) -> list[str]:
        """Nodes of its pods that are bound."""
        pods = (pod for pod in self.world.objects(*POD) if pod["metadata"]["name"].startswith(f"{job}-"))
        return sorted(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))

    def workload(self, job: str) -> Json:
        found = (each for each in self.world.objects(*WORKLOADS) if f"-{job}-" in each["metadata"]["name"])
        return next(found)

    def why(self, job: str) -> str:
        conditions = self.workload(job).get("status", {}).get("conditions") or ()
        return next((each["message"] for each in conditions if each["type"] == "QuotaReserved"), "")

    @property
    def nodes(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in self.world.objects(*NODE))

    @property
    def messages(self) -> list[str]:
        return [event["message"] for event in self.world.objects("", "events")]


def _bare(obj: Json) -> Json:
    """As a client creates it."""
    return {**obj, "metadata": {"name": obj["metadata"]["name"]}}


def test_jobs_that_claim_devices_run_where_these_are_free_and_wait_otherwise():
    cluster = Cluster([4, 2, 4, 4])
    cluster.template(2)
    cluster.submit("first", 4)
    cluster.run()
    *_, c, d = cluster.nodes
    assert cluster.places("first") == [c, c, d, d]  # 6 devices are too few for 8 on the first rack
    usage = cluster.workload("first")["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]
    assert usage[GPUS] == "8"
    cluster.submit("second", 3)
    cluster.submit("third", 1)
    cluster.run()
    a, b, *_ = cluster.nodes
    assert cluster.places("second") == [a, a, b]
    assert cluster.places("third") == []
    assert f'resource "devices of class {CLASS}"' in cluster.why("third")
    first = next(job for job in cluster.world.objects(*JOB) if job["metadata"]["name"] == "first")
    cluster.world.delete(first, propagationPolicy="Background")
    cluster.run(60)
    assert len(cluster.places("third")) == 1


def test_a_job_of_higher_priority_preempts_for_devices_of_a_node():
    """Quota is enough for both: the devices of one rack are not."""
    cluster = Cluster([2, 0, 1, 0])
    cluster.template(1)
    cluster.submit("low", 2)
    cluster.run()
    a, *_ = cluster.nodes
    assert cluster.places("low") == [a, a]
    cluster.submit("high", 2, labels={PRIORITY_CLASS_LABEL: "high"})
    cluster.run(60)
    assert cluster.places("high") == [a, a]
    assert has_condition(cluster.workload("low"), "Preempted")


def test_pods_without_a_gate_from_a_changed_template_are_reported():
    cluster = Cluster([4, 4, 4, 4], has_topology=False, on_nodes=False)
    template = cluster.template(1)
    cluster.submit("job", 2)
    cluster.run()
    cluster.world.delete(template)
    cluster.template(3)
    pod = next(pod for pod in cluster.world.objects(*POD) if pod["metadata"]["name"].startswith("job-"))
    cluster.world.delete(pod)
    cluster.run(100)
    assert len(cluster.places("job")) == 2
    kept = next(each for each in cluster.workload("job")["status"]["conditions"] if each["type"] == PLACEMENT_KEPT)
    assert (kept["status"], kept["reason"]) == ("False", "MoreDevices")
    assert "devices of class gpu.example.com: 2 more" in kept["message"]


def test_quota_of_devices_bounds_jobs_without_a_look_at_nodes():
    cluster = Cluster([8, 8, 8, 8], quota=6, on_nodes=False)
    cluster.template(2)
    cluster.submit("first", 2)
    cluster.run()
    cluster.submit("second", 2)
    cluster.run()
    assert len(cluster.places("first")) == 2
    assert cluster.places("second") == []
    assert f"needs 2 more {GPUS}; 4 of 6 in use" in cluster.why("second")


def test_a_job_waits_for_its_template_and_starts_when_it_comes():
    cluster = Cluster([4, 4, 4, 4])
    cluster.submit("early", 2)
    cluster.run()
    assert "there is no ResourceClaimTemplate one-gpu in namespace ns; create it" in cluster.why("early")
    cluster.template(4)
    cluster.run()
    assert len(cluster.places("early")) == 2


def test_a_claim_that_pods_share_is_refused_when_the_job_is_created():
    cluster = Cluster([4, 4, 4, 4])
    with pytest.raises(Refused, match=r"resourceClaims\[0\].resourceClaimName"):
        cluster.submit("shared", 2, {"resourceClaimName": "ours"})


@pytest.mark.parametrize("on_nodes", [True, False])
def test_pods_made_from_a_changed_template_stay_gated_and_say_so(on_nodes: bool):
    """A template cannot be changed, but deleted and created anew; what was counted is what was admitted."""
    cluster = Cluster([4, 4, 4, 4], on_nodes=on_nodes)
    template = cluster.template(2)
    cluster.submit("job", 2)
    cluster.run()
    assert len(cluster.places("job")) == 2
    cluster.world.delete(template)
    cluster.template(4)
    pod = next(pod for pod in cluster.world.objects(*POD) if pod["metadata"]["name"].startswith("job-"))
    cluster.world.delete(pod)
    cluster.run(60)
    assert len(cluster.places("job")) == 1
    assert any("claims more than was admitted of a pod of main (devices of class gpu.example.com: 2 more)" in m for m in cluster.messages)
    usage = cluster.workload("job")["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]
    assert usage[GPUS] == "4"
    changed = next(t for t in cluster.world.objects(*TEMPLATES))
    cluster.world.delete(changed)
    cluster.template(2)
    cluster.run(60)
    assert len(cluster.places("job")) == 2
    assert has_condition(cluster.workload("job"), "Admitted")

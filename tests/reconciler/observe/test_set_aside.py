"""No object's content ends or stalls the reconciler: what cannot be handled is set aside, counted, reported and tried again."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from core.model.configuration import ResourceRules
from core.names import EVENT_SET_ASIDE
from core.placement.algorithms.profile import STANDARD
from core.plan.steps import api_resources as r
from core.resource import Obj
from core.runtime.http.client import Client
from core.runtime.watch.informer import Informer
from core.state.facts import PodFacts
from reconciler.app import Deciding, Reconciler
from reconciler.behaviour import Behaviour
from sim.harness import Harness
from tests.builders import NAMESPACE, RACK, Node, build_node_json, build_pod_json
from tests.runtime.fakes import ManualClock

VALUES: tuple[Any, ...] = (
    "text", -1, 2**70, None, [None], ["x"], {"x": None}, {"": ["y"]}, [{"name": 3}]
)  # fmt: skip
PARTS = ("spec", "status", "metadata")
FIELDS = {
    "metadata": ("labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp", "creationTimestamp"),
    "spec": (
        "containers", "initContainers", "schedulingGates", "nodeName", "nodeSelector", "affinity", "tolerations", "overhead", "resources",
        "taints", "unschedulable", "template", "selector", "replicas", "parallelism", "completions", "suspend", "queueName", "podSets",
        "priority", "active", "levels", "nodeLabels", "topologyName", "resourceGroups", "cohort", "cohortName", "parentName", "preemption",
        "flavorFungibility", "namespaceSelector", "stopPolicy", "admissionChecks", "parameters", "controllerName", "clusterQueue",
        "fairSharing", "replicatedJobs", "leaderWorkerTemplate", "runPolicy", "mpiReplicaSpecs", "pytorchReplicaSpecs", "headGroupSpec",
        "workerGroupSpecs", "components", "driver", "executor", "minCount", "topologyConstraint", "provisioningClassName",
        "resourceClaims", "pool", "devices",
    ),
    "status": ("allocatable", "conditions", "phase", "reason", "admission", "requeueState", "reclaimablePods", "unhealthyNodes",
               "admissionChecks", "resourceClaimStatuses", "active", "ready"),
}  # fmt: skip


def garbage() -> list[Obj]:
    """Each part, and each field of it, as everything that it is not."""
    objects: list[Obj] = []
    for part in PARTS:
        if part != "metadata":
            objects += [{part: value} for value in VALUES]
        objects += [{part: {field: value}} for field in FIELDS[part] for value in VALUES]
    return objects


def with_name(obj: Obj, informer: Informer, number: int, version: int) -> Obj:
    resource = informer.resource
    metadata = {"name": f"odd-{number}", "uid": f"uid-{number}", "resourceVersion": str(version), **obj.get("metadata", {})}
    if resource.namespaced:
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj, "metadata": metadata}


class Gates:
    """All features that have informers of their own."""

    @staticmethod
    def is_on(gate: str) -> bool:
        return True


def whole() -> tuple[Reconciler, Deciding]:
    clock = ManualClock()
    counts = ResourceRules(device_classes={"gpu.example.com": "example.com/gpus"})
    behaviour = Behaviour(STANDARD, gates=Gates(), resource_rules=counts)  # type: ignore[arg-type]
    reconciler = Reconciler(Client.make_offline(), clock, behaviour)
    return reconciler, reconciler._prepare()


def test_every_informer_survives_every_kind_of_garbage(caplog: pytest.LogCaptureFixture):
    """Former defect: one unreadable object ended the process where a handler was not guarded."""
    caplog.set_level(logging.CRITICAL, "core.runtime")  # thousands of tracebacks
    reconciler, _ = whole()
    observed, version = reconciler.observed, 0
    odd = garbage()
    for informer in observed.informers:
        for number, obj in enumerate(odd):
            version += 1
            informer.put(with_name(obj, informer, number, version))
        assert len(informer.store) == len(odd), informer.resource
        assert {str(aside.resource) for aside in observed.set_aside.objects} <= {str(each.resource) for each in observed.informers}
        observed.state.refresh()
        informer.drop_all()
        assert len(observed.set_aside) == 0, informer.resource
    assert observed.state.ledger.find_drift() == {}


def test_garbage_of_all_kinds_at_once_is_survived(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.CRITICAL, "core.runtime")
    reconciler, _ = whole()
    observed = reconciler.observed
    for informer in observed.informers:
        for number, value in enumerate(VALUES):
            informer.put(with_name({"spec": value, "status": value}, informer, number, number))
    assert len(observed.set_aside) > 20
    observed.state.refresh()
    for informer in observed.informers:
        informer.drop_all()
    assert len(observed.set_aside) == 0
    assert observed.state.ledger.find_drift() == {}


def test_a_pod_that_cannot_be_read_fills_its_node_alone():
    reconciler, _ = whole()
    observed = reconciler.observed
    for name in ("n0", "n1"):
        node = build_node_json(Node(name, {RACK: "r", "kubernetes.io/hostname": name}))
        node["metadata"] |= {"uid": name, "resourceVersion": "1"}
        observed.nodes.put(node)
    pod = build_pod_json("odd", node="n0")
    pod["metadata"]["resourceVersion"] = "1"
    pod["spec"]["containers"] = [{"resources": {"requests": {"cpu": "no quantity"}}}]
    observed.pods.put(pod)
    free = observed.state.whole.capacity
    at = {name: int(free.free[free.axis["pods"], free.tree.index[name]]) for name in ("n0", "n1")}
    assert at["n0"] < 0 < at["n1"]
    assert [aside.obj["metadata"]["name"] for aside in observed.set_aside.objects] == ["odd"]
    mended = build_pod_json("odd", node="n0")
    mended["metadata"]["resourceVersion"] = "2"
    observed.pods.put(mended)
    assert int(free.free[free.axis["pods"], free.tree.index["n0"]]) == 109
    assert len(observed.set_aside) == 0


def test_a_node_that_cannot_be_read_any_more_gets_no_more_pods():
    reconciler, _ = whole()
    observed = reconciler.observed
    node = build_node_json(Node("n0", {RACK: "r", "kubernetes.io/hostname": "n0"}))
    node["metadata"] |= {"uid": "n0", "resourceVersion": "1"}
    observed.nodes.put(node)
    odd = {**node, "metadata": {**node["metadata"], "resourceVersion": "2"}, "status": {**node["status"], "allocatable": {"cpu": "many"}}}
    observed.nodes.put(odd)
    assert observed.state.nodes["n0"].state.unschedulable
    assert observed.state.nodes["n0"].state.allocatable["cpu"] == 4000


async def test_an_object_that_is_set_aside_has_one_event_and_one_log_line(caplog: pytest.LogCaptureFixture):
    reconciler, _ = whole()
    observed, harness = reconciler.observed, Harness(ManualClock())
    observed.set_aside.on_add.append(harness.executor.reporter.report_set_aside)
    for version in ("1", "2", "3"):
        pod = build_pod_json("odd", node="n0", cpu="much")
        pod["metadata"]["resourceVersion"] = version
        observed.pods.put(pod)
    await harness.executor.reporter.settle()
    [event] = harness.events
    assert (event.key, event.reason) == (f"{NAMESPACE}/odd", EVENT_SET_ASIDE)
    assert "'much'" in event.message
    lines = [record for record in caplog.records if record.message == "object set aside"]
    assert [record.__dict__["object"] for record in lines] == [f"{NAMESPACE}/odd"]


def test_facts_of_a_pod_that_fills_its_node_hold_it():
    assert PodFacts.fill_node("ns/p", "uid", "n0").holds
    assert r.PODS.namespaced

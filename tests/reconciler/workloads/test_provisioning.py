"""Nodes are asked for by ProvisioningRequests, of a stand-in for the autoscaler.

A job of three nodes in one rack needs a third one in a rack of two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from core.names import CONSUMES_PROVISIONING, PROVISIONING_CLASS_NAME
from e2e import manifests
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.proxies.writes_proxy import Cut, WritesProxy
from e2e.standins.autoscaler import AutoscalerStandIn, Eta, Nodes, Refusal
from e2e.topogate import Topogate
from tests.long import mark_long
from tests.reconciler.provisioning import AT_ONCE, ROOT, Provisioned, get_eviction_messages, has_quota, is_evicted, list_event_reasons
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.in_memory

TIMEOUT_S = 6
ONCE_MORE = {**AT_ONCE, "backoffLimitCount": 1}
Json = dict[str, Any]
Make = Callable[..., Provisioned]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    file = tmp_path_factory.mktemp("provisioning") / "config.json"
    configuration = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    second_pass = {"baseDelay": "1s", "timeout": f"{TIMEOUT_S}s"}
    file.write_text(json.dumps(configuration | {"topogate": {"secondPass": second_pass}}))
    return ["--config", str(file)]


@pytest.fixture(scope="module")
def autoscaler(cluster: Cluster, topogate: Topogate, options: list[str]) -> Iterator[AutoscalerStandIn]:
    topogate.kill_reconciler()
    topogate.start_reconciler(options=options)
    with AutoscalerStandIn(cluster.api) as running:
        yield running
    running.uninstall()


@pytest.fixture
def make(scene: Scene, autoscaler: AutoscalerStandIn) -> Iterator[Make]:
    """Gives the scene's queue a provisioning check."""
    made: list[Provisioned] = []

    def build(retry: Json = AT_ONCE, **spec: Any) -> Provisioned:
        made.append(Provisioned(scene, autoscaler, retry, **spec))
        return made[-1]

    yield build
    for one in made:
        one.close()


def test_nodes_that_come_in_time_are_used(scene: Scene, make: Make) -> None:
    nodes = make(parameters={"zone": "a", "tier": "low"})
    nodes.answer(Nodes([nodes.node(1)]))
    job = manifests.build_job("train", scene.namespace, pods=3, gpus=8, required=scene.rack)
    job["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/tier": "high"}
    scene.create(job)
    now = scene.until_bound("train", 3)
    assert truth.check_one_domain(now, "train", scene.rack) == []
    (request,), workload = nodes.requests(), now.workload_of("train")
    assert workload is not None
    name = f"{workload['metadata']['name']}-{nodes.check}-1"
    assert request["metadata"]["name"] == name
    assert request["spec"] == {
        "provisioningClassName": nodes.class_name,
        "parameters": {"zone": "a", "tier": "high"},
        "podSets": [{"podTemplateRef": {"name": f"ppt-{name}-main"}, "count": 3}],
    }
    (template,) = nodes.templates()
    assert template["metadata"]["name"] == f"ppt-{name}-main"
    assert template["template"]["spec"]["nodeSelector"] == scene.pool.labels
    assert "schedulingGates" not in template["template"]["spec"]
    for made in (request, template):
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Workload", workload["metadata"]["uid"])
    (given,) = workload["status"]["admission"]["podSetAssignments"]
    assert given["delayedTopologyRequest"] == "Ready"
    assert nodes.state(now)["message"] == "nodes are there"
    for pod in now.pods_of("train"):
        assert pod["metadata"]["annotations"][CONSUMES_PROVISIONING] == name
        assert pod["metadata"]["annotations"][PROVISIONING_CLASS_NAME] == nodes.class_name
    assert {"ProvisioningRequestCreated", "AdmissionCheckUpdated"} <= list_event_reasons(now)
    scene.clear()
    scene.eventually("what was asked with to be collected", lambda _: not nodes.requests() and not nodes.templates())


def test_nodes_that_are_late_are_waited_for(scene: Scene, make: Make) -> None:
    nodes = make()
    late = nodes.node(1)
    nodes.answer(Nodes([late], ready=False))
    scene.submit("train", pods=3, gpus=8, required=scene.rack)
    now = scene.eventually("the second pass to be told of", lambda now: "SecondPassFailed" in list_event_reasons(now))
    assert has_quota(now), "it keeps its quota"
    assert nodes.state(now)["state"] == "Ready"
    scene.cluster.set_node_ready(late["metadata"]["name"], True)
    now = scene.until_bound("train", 3)
    assert truth.check_one_domain(now, "train", scene.rack) == []
    assert len(nodes.asked()) == 1


@pytest.mark.long
def test_too_few_nodes_are_asked_for_once_more(scene: Scene, make: Make) -> None:
    nodes = make()
    nodes.answer(Nodes(), Nodes([nodes.node(2)]))
    scene.submit("train", pods=3, gpus=8, required=scene.rack)
    scene.eventually("its quota to be given back", lambda now: f"within {TIMEOUT_S} s" in get_eviction_messages(now))
    now = scene.until_bound("train", 3)
    assert nodes.state(now)["retryCount"] == 1
    first, second = (asked["metadata"]["name"] for asked in nodes.asked())
    assert (first[-2:], second[-2:]) == ("-1", "-2")
    assert nodes.consumed(now) == {second}
    scene.eventually("the first request to be gone", lambda _: [r["metadata"]["name"] for r in nodes.requests()] == [second])
    assert len(nodes.templates()) == 1


@pytest.mark.long
def test_nodes_scattered_over_racks_are_asked_for_once_more_and_then_no_more(scene: Scene, make: Make) -> None:
    nodes = make(ONCE_MORE)
    nodes.answer(Nodes([nodes.node(rack, 1) for rack in (3, 4, 5)]), Nodes([nodes.node(rack, 1) for rack in (6, 7, 8)]))
    scene.submit("train", pods=3, gpus=8, required=scene.rack)
    scene.eventually("its quota to be given back", get_eviction_messages)
    now = scene.eventually("it to be deactivated", lambda now: is_evicted(now, "DeactivatedDueToAdmissionCheckRejected"))
    assert (now.workload_of("train") or {})["spec"]["active"] is False
    assert "given up after 2 attempts" in truth.get_condition(now.workload_of("train"), "Evicted")["message"]
    assert len(nodes.asked()) == 2
    assert not now.pods_of("train")
    assert not has_quota(now)


def test_workload_after_failed_provisioning_is_deactivated_and_starts_all_attempts_after_reactivation(scene: Scene, make: Make) -> None:
    nodes = make(ONCE_MORE)
    nodes.answer(Refusal("no such machines in zone a"), Refusal("and none in zone b"), Nodes([nodes.node(1)]))
    scene.submit("train", pods=3, gpus=8, required=scene.rack)
    scene.eventually(
        "its quota to be given back", lambda now: "Retrying after failure: no such machines in zone a" in get_eviction_messages(now)
    )
    now = scene.eventually("it to be deactivated", lambda now: is_evicted(now, "DeactivatedDueToAdmissionCheckRejected"))
    assert "and none in zone b (given up after 2 attempts)" in truth.get_condition(now.workload_of("train"), "Evicted")["message"]
    assert "retryCount" not in nodes.state(now)
    assert len(nodes.asked()) == 2
    scene.patch_workload("train", {"spec": {"active": True}})
    now = scene.until_bound("train", 3)
    assert len(nodes.asked()) == 3


def test_capacity_that_is_revoked_while_it_runs_evicts_and_is_asked_for_again(scene: Scene, make: Make) -> None:
    nodes = make()
    nodes.answer(Nodes([nodes.node(1)]))
    scene.submit("train", pods=3, gpus=8, required=scene.rack)
    now = scene.until_bound("train", 3)
    (request,) = nodes.requests()
    nodes.autoscaler.say(request["metadata"]["name"], scene.namespace, "CapacityRevoked", "spot is gone")
    now = scene.eventually("another request", lambda _: len(nodes.asked()) == 2)
    second = nodes.asked()[1]["metadata"]["name"]
    now = scene.eventually("it to run on that", lambda now: nodes.consumed(now) == {second} and not truth.check_all_bound(now, "train", 3))
    assert "EvictedDueToAdmissionCheck" in list_event_reasons(now)
    assert nodes.state(now)["retryCount"] == 1


def test_a_booking_that_expires_before_there_is_a_place_is_not_waited_out(scene: Scene, make: Make) -> None:
    nodes = make()
    nodes.answer(Nodes([nodes.node(1)], ready=False), Nodes([nodes.node(1, 4)]))
    scene.submit("train", pods=3, gpus=8, required=scene.rack)
    scene.eventually("the second pass to be told of", lambda now: "SecondPassFailed" in list_event_reasons(now))
    (request,) = nodes.requests()
    nodes.autoscaler.say(request["metadata"]["name"], scene.namespace, "BookingExpired", "ten minutes are over")
    now = scene.until_bound("train", 3)
    assert len(nodes.asked()) == 2
    nodes.autoscaler.say(nodes.asked()[1]["metadata"]["name"], scene.namespace, "BookingExpired", "as it always does")
    scene.submit("next", pods=1, gpus=1, required=scene.rack)
    scene.until_bound("next", 1)
    assert not truth.is_true(scene.read().workload_of("train"), "Evicted"), "what runs needs no booking"
    assert nodes.state(now)["retryCount"] == 1


def test_pods_go_where_the_provider_says_that_the_nodes_are(scene: Scene, make: Make) -> None:
    """The rack of old nodes would do, but is not what was provisioned."""
    updates = {"nodeSelector": [{"key": scene.rack, "valueFromProvisioningClassDetail": "Rack"}]}
    nodes = make(podSetUpdates=updates)
    chosen = nodes.node(7, 1)["metadata"]["labels"][scene.rack]
    nodes.answer(Nodes([nodes.node(7, number) for number in (1, 2)], details={"Rack": chosen}))
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    now = scene.until_bound("train", 2)
    assert {now.label_of(pod, scene.rack) for pod in now.pods_of("train")} == {chosen}


def test_quota_is_taken_while_nodes_are_on_their_way(scene: Scene, make: Make) -> None:
    nodes = make()
    nodes.answer(Eta("in about ten minutes"))
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    now = scene.eventually("the provider's words", lambda now: nodes.state(now).get("message") == "in about ten minutes")
    assert nodes.state(now)["state"] == "Pending"
    (given,) = (now.workload_of("train") or {})["status"]["admission"]["podSetAssignments"]
    assert given["delayedTopologyRequest"] == "Pending"
    assert "topologyAssignment" not in given

    def reserved(_: truth.Snapshot) -> bool:
        status = scene.api.get(nodes.queue_path)["status"]
        totals = [{r["name"]: r["total"] for r in status[field][0]["resources"]}[GPU] for field in ("flavorsReservation", "flavorsUsage")]
        return totals == ["16", "0"]

    scene.eventually("reservation without usage", reserved)
    nodes.answer(Nodes())
    now = scene.until_bound("train", 2)
    assert len(nodes.asked()) == 1


def test_provisioning_request_of_a_deactivated_workload_is_deleted(scene: Scene, make: Make) -> None:
    nodes = make()
    nodes.answer(Eta("in about ten minutes"), Nodes([nodes.node(1)]))
    scene.submit("train", pods=3, gpus=8, required=scene.rack)
    scene.eventually("the provider's words", lambda now: nodes.state(now).get("message") == "in about ten minutes")
    scene.patch_workload("train", {"spec": {"active": False}})
    scene.eventually("the request to be gone", lambda now: not has_quota(now) and not nodes.requests() and not nodes.templates())
    scene.patch_workload("train", {"spec": {"active": True}})
    now = scene.until_bound("train", 3)
    assert "retryCount" not in nodes.state(now)
    assert len(nodes.asked()) == 2


def test_workload_without_provisioned_resources_creates_no_provisioning_request(scene: Scene, make: Make) -> None:
    nodes = make(managedResources=["example.com/other"])
    nodes.answer(Refusal("should not have been asked"))
    scene.submit("train", pods=1, gpus=8, required=scene.rack)
    now = scene.until_bound("train", 1)
    assert nodes.state(now)["message"] == "the ProvisioningRequest is not needed"
    assert not nodes.asked()


def test_provisioning_check_is_inactive_while_its_config_or_api_is_missing(scene: Scene, make: Make, autoscaler: AutoscalerStandIn) -> None:
    nodes = make()
    nodes.answer(Nodes())
    config = scene.api.get(f"{ROOT}/provisioningrequestconfigs/{nodes.config}")
    scene.api.delete(f"{ROOT}/provisioningrequestconfigs/{nodes.config}")
    scene.eventually("the check to be inactive", lambda _: nodes.active() == ("False", "ParametersNotFound"))
    nodes.create("ProvisioningRequestConfig", config["spec"])
    scene.eventually("the check to be active", lambda _: nodes.active() == ("True", "Active"))
    parameters = scene.api.get(f"{ROOT}/admissionchecks/{nodes.check}")["spec"]["parameters"]
    scene.api.patch(f"{ROOT}/admissionchecks/{nodes.check}", {"spec": {"parameters": None}})
    scene.eventually("the check to be inactive", lambda _: nodes.active() == ("False", "MissingParameters"))
    scene.api.patch(f"{ROOT}/admissionchecks/{nodes.check}", {"spec": {"parameters": parameters}})
    scene.eventually("the check to be active", lambda _: nodes.active() == ("True", "Active"))
    autoscaler.uninstall()
    scene.eventually("the check to be inactive", lambda _: nodes.active() == ("False", "NotInstalled"))
    scene.submit("train", pods=1, gpus=8, required=scene.rack)
    assert "is inactive" in scene.until_waiting("train", "Suspended")
    autoscaler.install()
    scene.until_bound("train", 1)


# --- a reconciler that is killed ---------------------------------------------------------------------------


@pytest.fixture
def watched(proxy: WritesProxy, kubeconfig: Path, topogate: Topogate, options: list[str], autoscaler: object) -> Iterator[Path]:
    """The way for a reconciler through the proxy."""
    topogate.kill_reconciler()
    topogate.start_reconciler(kubeconfig=kubeconfig, options=options)
    yield kubeconfig
    proxy.cut(None)
    if topogate.reconciler is not None:
        topogate.kill_reconciler()
    topogate.start_reconciler(options=options)


STATUS = "PATCH .*/workloads/.*/status"


@pytest.mark.parametrize("after", mark_long([False, True], but={1}))
@pytest.mark.parametrize(
    ("only", "at"),
    mark_long([("POST .*/podtemplates", 1), ("POST .*/provisioningrequests", 1), (STATUS, 1), (STATUS, 2), (STATUS, 3)], but={1, 3}),
)
def test_restarted_reconciler_creates_no_second_provisioning_request(
    only: str, at: int, after: bool, scene: Scene, make: Make, proxy: WritesProxy, topogate: Topogate, options: list[str], watched: Path
) -> None:
    nodes = make()
    nodes.answer(Nodes([nodes.node(1)]))
    proxy.cut(Cut(at, after, topogate.kill_reconciler, only))
    scene.submit("train", pods=3, gpus=8, required=scene.rack)
    assert proxy.has_cut.wait(30), f"these were all: {proxy.writes}"
    proxy.cut(None)
    topogate.start_reconciler(kubeconfig=watched, options=options)
    now = scene.until_bound("train", 3)
    assert truth.check_one_domain(now, "train", scene.rack) == []
    assert len(nodes.asked()) == 1
    assert len(nodes.requests()) == 1
    assert len(nodes.templates()) == 1
    assert "retryCount" not in nodes.state(now)
    assert not truth.get_condition(now.workload_of("train"), "Evicted"), "one admission"


@pytest.mark.parametrize(("at", "after"), mark_long(product([2, 3, 4], (False, True)), but={3}))
def test_restarted_reconciler_counts_a_provisioning_failure_once(
    at: int, after: bool, scene: Scene, make: Make, proxy: WritesProxy, topogate: Topogate, options: list[str], watched: Path
) -> None:
    nodes = make()
    nodes.answer(Refusal("none left"), Nodes([nodes.node(1)]))
    proxy.cut(Cut(at, after, topogate.kill_reconciler, STATUS))
    scene.submit("train", pods=3, gpus=8, required=scene.rack)
    assert proxy.has_cut.wait(30), f"these were all: {proxy.writes}"
    proxy.cut(None)
    topogate.start_reconciler(kubeconfig=watched, options=options)
    now = scene.until_bound("train", 3)
    assert nodes.state(now)["retryCount"] == 1
    assert len(nodes.asked()) == 2

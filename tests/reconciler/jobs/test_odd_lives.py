"""Jobs and workloads that go ways nobody planned: nothing is held for ever, nobody else is kept waiting."""

from __future__ import annotations

import pytest

from core.names import API_VERSION, QUEUE_NAME_LABEL, WORKLOAD_REQUIRED_TOPOLOGY
from e2e import manifests
from e2e.api import ApiError
from e2e.audit import truth
from e2e.topogate import Topogate
from tests.reconciler.scenes import WORKLOADS, Scene

pytestmark = pytest.mark.in_memory


def test_a_job_made_again_under_its_old_name_gets_the_place_of_the_old_one(scene: Scene) -> None:
    scene.submit("again", pods=4, gpus=8, required=scene.block)
    old = scene.until_bound("again", 4).workload_of("again")
    assert old is not None
    scene.delete_job("again")
    scene.submit("again", pods=4, gpus=8, required=scene.block)

    def new_is_bound(now: truth.Snapshot) -> bool:
        names = {w["metadata"]["uid"] for w in now.workloads}
        return old["metadata"]["uid"] not in names and truth.check_all_bound(now, "again", 4) == []

    scene.eventually("the new one to be bound and the old workload to be gone", new_is_bound)


def test_workload_with_invalid_node_affinity_does_not_block_other_jobs(scene: Scene, topogate: Topogate) -> None:
    template = manifests.build_job("x", scene.namespace, pods=1, gpus=1)["spec"]["template"]
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"operator": "In"}]}, None]}
    template["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    pod_set = {"name": "main", "count": 1, "template": template, "topologyRequest": {"required": scene.rack}}
    body = {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {"name": "nonsense", "namespace": scene.namespace},
        "spec": {"queueName": "main", "podSets": [pod_set]},
    }
    scene.api.create(WORKLOADS.format(scene.namespace), body)
    scene.submit("sane", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("sane", 2)
    assert topogate.reconciler is not None
    assert topogate.reconciler.is_running


def test_a_workload_deactivated_before_its_suspended_job_was_seen_gives_everything_back(scene: Scene) -> None:
    """What a crash between the two writes of a suspension by hand leaves behind."""
    scene.submit("held", pods=4, gpus=8, required=scene.block)
    scene.until_bound("held", 4)
    scene.patch_workload("held", {"spec": {"active": False}})
    scene.patch_job("held", {"spec": {"suspend": True}})
    scene.eventually("its quota to be given back", lambda now: not truth.is_true(now.workload_of("held"), "QuotaReserved"))
    scene.submit("next", pods=4, gpus=8, required=scene.block)
    scene.until_bound("next", 4)


def test_a_running_sliced_job_is_resized_only_to_whole_slices(scene: Scene) -> None:
    scene.submit("sliced", pods=4, gpus=1, required=scene.block, slice_topology=scene.rack, slice_size=2)
    scene.until_bound("sliced", 4)
    with pytest.raises(ApiError, match="slices must evenly divide the 3 pods"):
        scene.patch_job("sliced", {"spec": {"parallelism": 3}})
    assert scene.job("sliced")["spec"]["suspend"] is False
    assert truth.check_all_bound(scene.read(), "sliced", 4) == []
    scene.patch_job("sliced", {"spec": {"parallelism": 2}})
    scene.until_bound("sliced", 2)


def test_a_suspended_job_that_leaves_its_queue_leaves_nothing_behind(scene: Scene) -> None:
    scene.submit("filler", pods=4, gpus=8, required=scene.block)
    scene.until_bound("filler", 4)
    scene.submit("leaver", pods=1, gpus=1, required=scene.rack)
    scene.until_waiting("leaver", "TopologyPlacementFailed")
    scene.patch_job("leaver", {"metadata": {"labels": {QUEUE_NAME_LABEL: None}}})
    scene.eventually("its workload to be gone", lambda now: now.workload_of("leaver") is None)
    assert not scene.job("leaver")["spec"]["template"]["spec"].get("schedulingGates")
    scene.delete_job("filler")
    scene.patch_job("leaver", {"spec": {"suspend": False}})
    scene.eventually(
        "it to run without us",
        lambda now: any(p["spec"].get("nodeName") for p in now.pods if p["metadata"]["name"].startswith("leaver-")),
    )


def test_job_of_a_refused_workload_gets_an_event_with_the_reason(scene: Scene) -> None:
    scene.submit("classy", pods=1, gpus=1, required=scene.rack, labels={"kueue.x-k8s.io/priority-class": "none-such"})
    scene.eventually(
        "the event", lambda now: any("none-such" in e["message"] for e in now.events if e["involvedObject"]["name"] == "classy")
    )


def test_unknown_topology_level_deactivates_the_workload_and_is_reported_on_the_job(scene: Scene) -> None:
    """It must not wait for ever."""
    scene.submit("train", pods=2, required="cloud.provider.com/topology-zone")
    message = scene.until_waiting("train", "Misconfigured")
    assert "no topology level 'cloud.provider.com/topology-zone'" in message
    assert scene.rack in message
    now = scene.eventually("it to be deactivated", lambda now: (now.workload_of("train") or {"spec": {}})["spec"].get("active") is False)
    assert scene.job("train")["spec"]["suspend"] is True
    now = scene.eventually(
        "the event on the job",
        lambda now: any(e["involvedObject"]["name"] == "train" and e["reason"] == "WorkloadRefused" for e in now.events),
    )
    told = [event["message"] for event in now.events if event["involvedObject"]["name"] == "train" and event["reason"] == "WorkloadRefused"]
    assert "topology-zone" in told[0]
    annotations = {"kueue.x-k8s.io/podset-required-topology": scene.rack}
    scene.patch_job("train", {"spec": {"template": {"metadata": {"annotations": annotations}}}})
    scene.until_bound("train", 2)


def test_a_wrong_level_of_a_whole_job_is_mended_on_the_job(scene: Scene) -> None:
    made = manifests.build_job("train", scene.namespace, pods=2)
    made["metadata"]["annotations"] = {WORKLOAD_REQUIRED_TOPOLOGY: "cloud.provider.com/topology-zone"}
    scene.create(made)
    assert "no topology level" in scene.until_waiting("train", "Misconfigured")
    scene.eventually("it to be deactivated", lambda now: (now.workload_of("train") or {"spec": {}})["spec"].get("active") is False)
    scene.patch_job("train", {"metadata": {"annotations": {WORKLOAD_REQUIRED_TOPOLOGY: scene.rack}}})
    scene.until_bound("train", 2)


@pytest.mark.long
def test_a_job_that_waits_may_ask_for_a_larger_domain_for_all_its_pods_or_for_none(scene: Scene) -> None:
    for name, level in (("wider", scene.block), ("anywhere", None)):
        made = manifests.build_job(name, scene.namespace, pods=3, gpus=8)
        made["metadata"]["annotations"] = {WORKLOAD_REQUIRED_TOPOLOGY: scene.rack}
        scene.create(made)
        scene.until_waiting(name, "TopologyPlacementFailed")
        scene.patch_job(name, {"metadata": {"annotations": {WORKLOAD_REQUIRED_TOPOLOGY: level}}})
        scene.until_bound(name, 3)
        scene.delete_job(name)
        scene.eventually(f"{name} to be gone", lambda now, name=name: now.workload_of(name) is None)  # type: ignore[misc]


@pytest.mark.long
def test_a_job_too_large_for_its_rack_follows_the_advice_of_its_event(scene: Scene) -> None:
    """docs/users.md: completions cannot be changed, parallelism can while the job is suspended."""
    scene.submit("big", pods=3, gpus=8, required=scene.rack)
    assert "or with 2 pods" in scene.until_waiting("big", "TopologyPlacementFailed")
    scene.patch_job("big", {"spec": {"parallelism": 2}})
    scene.eventually("two pods to run", lambda now: scene.job("big").get("status", {}).get("ready") == 2)
    assert scene.job("big")["spec"]["completions"] == 3


@pytest.mark.long
def test_job_that_its_user_suspends_between_eviction_and_stop_stays_suspended(scene: Scene, topogate: Topogate) -> None:
    """The moment between the eviction and the stop, held: over a restart, too, the API server knows who suspended the job."""
    scene.submit("resized", pods=4, gpus=1, required=scene.block)
    now = scene.until_bound("resized", 4)
    topogate.kill_reconciler()
    scene.patch_job("resized", {"spec": {"parallelism": 2}})
    workload = now.workload_of("resized")
    assert workload is not None
    why = {"type": "Evicted", "status": "True", "reason": "DeactivatedDueToJobChanged", "message": "resized"}
    conditions = [*workload["status"]["conditions"], {**why, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    path = f"{WORKLOADS.format(scene.namespace)}/{workload['metadata']['name']}"
    scene.api.patch(f"{path}/status", {"status": {"conditions": conditions}})
    scene.patch_job("resized", {"spec": {"suspend": True}})
    topogate.start_reconciler()

    def is_given_back(now: truth.Snapshot) -> bool:
        workload = now.workload_of("resized")
        reason = truth.get_condition(workload, "Evicted").get("reason")
        return reason == "DeactivatedDueToJobSuspended" and not truth.is_true(workload, "QuotaReserved")

    now = scene.eventually("its quota to be given back", is_given_back)
    assert (now.workload_of("resized") or {})["spec"]["active"] is False
    assert scene.job("resized")["spec"]["suspend"] is True
    scene.patch_job("resized", {"spec": {"suspend": False}})
    scene.until_bound("resized", 2)


@pytest.mark.long
def test_a_stop_of_topogate_is_known_as_its_own(scene: Scene, topogate: Topogate) -> None:
    """A resized job is stopped and runs again, though its reconciler was killed in between."""
    scene.submit("stopped", pods=4, gpus=1, required=scene.block)
    scene.until_bound("stopped", 4)
    scene.patch_job("stopped", {"spec": {"parallelism": 2}})
    scene.eventually("it to be stopped", lambda now: scene.job("stopped")["spec"]["suspend"] is True)
    topogate.kill_reconciler()
    topogate.start_reconciler()
    scene.until_bound("stopped", 2)

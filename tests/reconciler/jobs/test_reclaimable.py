"""Reclaimable pods: who waits gets the quota and the nodes of pods that have done their work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from core.model.gates import read_gates
from core.names import IS_GROUP_WORKLOAD, MANAGED, POD_GROUP_NAME, PODSET_LABEL, PREEMPTED, QUEUE_NAME_LABEL, WORKLOAD_ANNOTATION
from core.resource import Obj
from core.runtime.http.client import Client
from core.runtime.workqueue import Item
from core.state.facts import find_condition
from e2e.audit import truth
from e2e.topogate import Topogate
from reconciler.execute.executor import Executor
from reconciler.jobs.reclaimable import Reclaimable
from reconciler.observe.observed import Observed
from tests.builders import build_pod_set_json, build_workload_json
from tests.reconciler.scenes import Scene
from tests.reconciler.workloads.test_activity import TimedHarness
from tests.runtime.fakes import ManualClock

pytestmark = pytest.mark.in_memory

QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{}queue"


def get_reclaimable(now: truth.Snapshot, job: str) -> dict[str, int]:
    status = (now.workload_of(job) or {}).get("status") or {}
    return {entry["name"]: entry["count"] for entry in status.get("reclaimablePods") or ()}


def succeed(scene: Scene, job: str, count: int) -> list[str]:
    """So many of the job's pods that run end well; the nodes they were on."""
    running = [pod for pod in scene.read().pods_of(job) if not truth.is_terminal(pod)][:count]
    for pod in running:
        scene.end_pod(pod["metadata"]["name"], {"phase": "Succeeded"})
    return [pod["spec"]["nodeName"] for pod in running]


def list_live_pods(now: truth.Snapshot, job: str) -> list[dict[str, Any]]:
    return [pod for pod in now.pods_of(job) if not truth.is_terminal(pod)]


def narrow(scene: Scene, quota: int) -> None:
    """So many GPUs of quota, fewer than the nodes have."""
    queue = scene.api.get(QUEUE.format(scene.prefix))
    for resource in queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
        resource["nominalQuota"] = str(quota) if resource["name"] != "cpu" else resource["nominalQuota"]
    scene.api.patch(QUEUE.format(scene.prefix), {"spec": {"resourceGroups": queue["spec"]["resourceGroups"]}})


# --- on an API server in memory -----------------------------------------------------------------------------------------------


class DoneHarness(TimedHarness):
    """An admitted workload of two pods, and the controller of what is done of it."""

    def __init__(self) -> None:
        super().__init__(ManualClock())

    def look(self) -> None:
        done = Reclaimable(self.observed, self.executor, self.clock)
        self.wait_for(done._reconcile(Item("ns/train", frozenset(), 0.0)))


def test_a_job_that_begins_anew_is_queued_for_all_it_needs():
    """As a JobSet does whose failure policy restarts it: its pods would wait for ever for places that are others' by now."""
    harness = DoneHarness()
    harness.job(succeeded=1)
    harness.train_for(1000)
    harness.look()
    assert harness.train["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
    assert not harness.is_true("Evicted")
    harness.job(succeeded=0)
    harness.look()
    assert harness.is_true("Evicted")
    assert "created again" in (find_condition(harness.train, "Evicted") or {})["message"]
    harness.look()
    assert harness.train["status"]["reclaimablePods"] == [{"name": "main", "count": 1}], "it still holds its quota"
    harness.wait_for(harness.stop_job())
    harness.look()
    assert not harness.train["status"].get("reclaimablePods")


def test_pods_that_name_a_group_and_are_no_members_give_no_quota_back():
    """Pods outside the group may be made by a user, name its workload and succeed at once."""
    observed = Observed(cast("Client", None), ManualClock())
    wire = build_workload_json("g", [build_pod_set_json("main", 2)])
    wire["metadata"].setdefault("annotations", {})[IS_GROUP_WORKLOAD] = "true"
    observed.workloads.put(wire)

    def pod(name: str, labels: Mapping[str, str]) -> Obj:
        metadata = {
            "name": name,
            "namespace": wire["metadata"]["namespace"],
            "uid": name,
            "resourceVersion": "1",
            "labels": {PODSET_LABEL: "main", **labels},
            "annotations": {WORKLOAD_ANNOTATION: "g"},
        }
        return {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Succeeded"}}

    reclaimable = Reclaimable(observed, cast("Executor", None), ManualClock())
    for number in range(2):
        observed.pods.put(pod(f"forged-{number}", {}))
    assert reclaimable._count_done(wire) == {}
    observed.pods.put(pod("member", {POD_GROUP_NAME: "g", MANAGED: "true", QUEUE_NAME_LABEL: "main"}))
    assert reclaimable._count_done(wire) == {"main": 1}


def test_reclaimable_pods_with_feature_gate_off_do_not_reduce_pod_set_count():
    assert read_gates(["ReclaimablePods=false"]).is_on("ReclaimablePods") is False
    wire = {**build_workload_json("w", [build_pod_set_json("main", 4)]), "status": {"reclaimablePods": [{"name": "main", "count": 3}]}}
    for reclaims, count in ((True, 1), (False, 4)):
        observed = Observed(cast("Client", None), ManualClock(), reclaims_pods=reclaims)
        assert observed._read_workload(wire).pod_sets[0].count == count


# --- on the real control plane ------------------------------------------------------------------------------


def test_workload_that_waits_for_quota_is_admitted_when_pods_of_another_job_succeed(scene: Scene, topogate: Topogate) -> None:
    narrow(scene, 16)
    scene.submit("first", pods=4, gpus=4, unconstrained="true")
    scene.until_bound("first", 4)
    scene.submit("second", pods=2, gpus=4, required=scene.rack)
    assert "needs 8 more" in scene.until_waiting("second", "WaitingForQuota")
    succeed(scene, "first", 1)
    scene.eventually("one pod to be reclaimable", lambda now: get_reclaimable(now, "first") == {"main": 1})
    assert not truth.is_true(scene.read().workload_of("second"), "QuotaReserved"), "that is not enough yet"
    succeed(scene, "first", 1)
    now = scene.until_bound("second", 2)
    assert truth.check_invariants(now) == []
    assert len(list_live_pods(now, "first")) == 2
    workload = now.workload_of("first")
    assert workload is not None
    assert truth.get_condition(workload, PREEMPTED) == {}
    assert workload["status"]["admission"]["podSetAssignments"][0]["count"] == 4, "the assignment stays as it is"
    topogate.kill_reconciler()
    topogate.start_reconciler()
    scene.submit("third", pods=1, gpus=1)
    scene.until_waiting("third", "WaitingForQuota")
    succeed(scene, "first", 2)
    scene.until_bound("third", 1)


def test_their_nodes_are_free_too_and_a_failed_pod_comes_back_to_its_own(scene: Scene) -> None:
    """All GPUs are in use: what is freed goes to who waits, and is not waited for by pods that never come."""
    scene.submit("first", pods=4, gpus=8, required=scene.block)
    scene.until_bound("first", 4)
    scene.submit("second", pods=2, gpus=8, unconstrained="true")
    scene.until_waiting("second", "TopologyPlacementFailed")
    freed = succeed(scene, "first", 2)
    now = scene.until_bound("second", 2)
    assert sorted(pod["spec"]["nodeName"] for pod in now.pods_of("second")) == sorted(freed)
    assert truth.check_invariants(now) == []
    lost = next(pod for pod in scene.read().pods_of("first") if not truth.is_terminal(pod))
    scene.end_pod(lost["metadata"]["name"], {"phase": "Failed"})

    def is_back(now: truth.Snapshot) -> bool:
        pods = list_live_pods(now, "first")
        return len(pods) == 2 and all(pod["spec"].get("nodeName") for pod in pods)

    now = scene.eventually("the failed pod to be made again", is_back)
    assert lost["spec"]["nodeName"] in [pod["spec"]["nodeName"] for pod in list_live_pods(now, "first")]
    assert truth.check_invariants(now) == []


@pytest.mark.long
def test_a_job_with_more_completions_than_pods_gives_back_at_its_end_only(scene: Scene) -> None:
    scene.submit("long", pods=2, gpus=8, required=scene.rack, spec={"completions": 4})
    scene.until_bound("long", 2)
    succeed(scene, "long", 2)
    scene.eventually("the next two to run", lambda now: sum(1 for p in list_live_pods(now, "long") if p["spec"].get("nodeName")) == 2)
    assert get_reclaimable(scene.read(), "long") == {}
    succeed(scene, "long", 1)
    scene.eventually("one to be reclaimable", lambda now: get_reclaimable(now, "long") == {"main": 1})
    succeed(scene, "long", 1)
    scene.eventually("it to be finished", lambda now: truth.is_true(now.workload_of("long"), "Finished"))


@pytest.mark.long
def test_evicted_job_with_succeeded_pods_requests_only_its_remaining_pods(scene: Scene) -> None:
    scene.submit("train", pods=4, gpus=8, required=scene.block)
    scene.until_bound("train", 4)
    succeed(scene, "train", 3)
    scene.eventually("three to be reclaimable", lambda now: get_reclaimable(now, "train") == {"main": 3})
    scene.patch_workload("train", {"spec": {"active": False}})
    scene.eventually(
        "it to be stopped", lambda now: not list_live_pods(now, "train") and not truth.is_true(now.workload_of("train"), "QuotaReserved")
    )
    scene.submit("other", pods=3, gpus=8, unconstrained="true")
    scene.until_bound("other", 3)
    scene.patch_workload("train", {"spec": {"active": True}})

    def runs(now: truth.Snapshot) -> bool:
        return any(pod["spec"].get("nodeName") for pod in list_live_pods(now, "train"))

    now = scene.eventually("its last pod to run", runs)
    workload = now.workload_of("train")
    assert workload is not None
    (given,) = workload["status"]["admission"]["podSetAssignments"]
    assert given["count"] == 1
    assert given["resourceUsage"]["nvidia.com/gpu"] == "8"
    (pod,) = list_live_pods(now, "train")
    assert pod["metadata"]["labels"][PODSET_LABEL] == "main"
    assert truth.check_invariants(now) == []

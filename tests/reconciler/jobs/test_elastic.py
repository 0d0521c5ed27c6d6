"""Elastic jobs: they grow next to what runs, give back what they need no more, and nothing is stopped."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import ELASTIC_JOB, SLICE_NAME, SLICE_REPLACES
from e2e import manifests
from e2e.audit import truth
from e2e.topogate import Topogate
from tests.installed import Installed
from tests.reconciler.jobs.test_reclaimable import narrow
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory

GATE = ["--feature-gates", "ElasticJobsViaWorkloadSlicesWithTAS=true"]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def topogate(installed: Installed) -> Topogate:
    """With the gate on that is off by default."""
    running = installed.run()
    running.kill_reconciler()
    running.start_reconciler(options=GATE)
    return running


def submit(scene: Scene, name: str, *, pods: int, gpus: int = 2, **topology: Any) -> None:
    job = manifests.build_job(name, scene.namespace, pods=pods, gpus=gpus, spec={"completions": 100}, **topology)
    job["metadata"]["annotations"] = {ELASTIC_JOB: "true"}
    scene.create(job)


def size(scene: Scene, name: str, pods: int) -> None:
    scene.patch_job(name, {"spec": {"parallelism": pods}})


def list_uids(now: truth.Snapshot, job: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in now.pods_of(job)}


def count_admitted(now: truth.Snapshot, job: str) -> int:
    admission = ((now.workload_of(job) or {}).get("status") or {}).get("admission") or {}
    return sum(given["count"] for given in admission.get("podSetAssignments") or ())


def list_slices(now: truth.Snapshot) -> list[tuple[str | None, str | None]]:
    """Of each workload why it is finished, and whom it replaces."""
    return sorted(
        (
            (truth.get_condition(w, "Finished").get("reason"), (w["metadata"].get("annotations") or {}).get(SLICE_REPLACES))
            for w in now.workloads
        ),
        key=str,
    )


def get_waiting_message(now: truth.Snapshot) -> str:
    """What the workload that waits says."""
    told = [truth.get_condition(w, "QuotaReserved") for w in now.workloads]
    return "; ".join(str(c.get("message")) for c in told if c.get("status") == "False")


def list_gated_pods(now: truth.Snapshot) -> list[dict[str, Any]]:
    return [pod for pod in now.pods_of("train") if truth.has_gate(pod)]


def test_elastic_job_grows_within_its_rack_then_shrinks_then_waits_for_room_in_the_rack(scene: Scene, topogate: Topogate) -> None:
    submit(scene, "train", pods=4, required=scene.rack)
    now = scene.until_bound("train", 4)
    first, rack = now.workload_of("train"), {now.label_of(pod, scene.rack) for pod in now.pods_of("train")}
    assert first is not None
    assert first["metadata"]["annotations"][SLICE_NAME] == first["metadata"]["name"]
    before = list_uids(now, "train")

    size(scene, "train", 6)
    now = scene.until_bound("train", 6)
    now = scene.eventually("the first workload to be replaced", lambda now: ("WorkloadSliceReplaced", None) in list_slices(now))
    assert before < list_uids(now, "train"), "what ran runs on"
    assert {now.label_of(pod, scene.rack) for pod in now.pods_of("train")} == rack
    second = now.workload_of("train")
    assert second is not None
    assert second["metadata"]["annotations"][SLICE_REPLACES] == f"{scene.namespace}/{first['metadata']['name']}"
    assert second["metadata"]["annotations"][SLICE_NAME] == first["metadata"]["name"]
    assert truth.check_invariants(now) == []
    assert truth.as_assigned(now, "train") == []

    topogate.kill_reconciler()
    topogate.start_reconciler(options=GATE)
    size(scene, "train", 2)
    now = scene.eventually("four to be given back", lambda now: count_admitted(now, "train") == 2 and len(now.pods_of("train")) == 2)
    assert list_uids(now, "train") < before | list_uids(now, "train")
    shrunk = now.workload_of("train")
    assert shrunk is not None
    assert shrunk["metadata"]["uid"] == second["metadata"]["uid"], "in place"
    assert shrunk["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["nvidia.com/gpu"] == "4"
    assert truth.as_assigned(now, "train") == []
    assert truth.check_invariants(now) == []

    kept = list_uids(now, "train")
    size(scene, "train", 10)
    now = scene.eventually("it to wait, and say why", lambda now: "the job runs on with 2 of 10 pods" in get_waiting_message(now))
    assert "allows to fit only 6 out of 8" in get_waiting_message(now)
    assert kept <= list_uids(now, "train")
    assert scene.job("train")["spec"]["suspend"] is False
    now = scene.eventually("the job's controller to make the others", lambda now: len(list_gated_pods(now)) == 8)
    size(scene, "train", 8)
    now = scene.until_bound("train", 8)
    assert kept < list_uids(now, "train")
    assert {now.label_of(pod, scene.rack) for pod in now.pods_of("train")} == rack


def test_resized_elastic_job_needs_quota_for_added_pods_only_and_releases_quota_of_removed_pods(scene: Scene) -> None:
    narrow(scene, 12)
    submit(scene, "train", pods=4, required=scene.rack)
    scene.until_bound("train", 4)
    size(scene, "train", 6)
    scene.until_bound("train", 6)
    scene.submit("other", pods=2, gpus=2, unconstrained="true")
    scene.until_waiting("other", "WaitingForQuota")
    size(scene, "train", 7)
    now = scene.eventually("it to wait for quota", lambda now: "the job runs on with 6 of 7 pods" in get_waiting_message(now))
    assert len([pod for pod in now.pods_of("train") if not truth.has_gate(pod)]) == 6
    size(scene, "train", 4)
    scene.until_bound("other", 2)
    now = scene.until_bound("train", 4)
    assert count_admitted(now, "train") == 4
    assert truth.check_invariants(now) == []


@pytest.mark.long
def test_a_job_that_grows_no_more_has_one_workload_and_one_that_is_stopped_asks_for_all(scene: Scene) -> None:
    submit(scene, "train", pods=4, gpus=4, required=scene.rack)
    before = list_uids(scene.until_bound("train", 4), "train")
    size(scene, "train", 5)
    scene.eventually("a second workload to wait", lambda now: "4 of 5 pods" in get_waiting_message(now))
    size(scene, "train", 4)
    now = scene.eventually("it to be gone", lambda now: len(now.workloads) == 1 and len(now.pods_of("train")) == 4)
    assert list_uids(now, "train") == before
    size(scene, "train", 5)
    scene.eventually("a second workload to wait", lambda now: "4 of 5 pods" in get_waiting_message(now))
    scene.patch_workload("train", {"spec": {"active": False}})
    scene.eventually("it to be stopped", lambda now: not now.pods_of("train") and len(now.workloads) == 1)
    scene.patch_workload("train", {"spec": {"active": True}})
    assert "only 4 out of 5" in scene.until_waiting("train", "TopologyPlacementFailed")
    size(scene, "train", 3)
    scene.until_bound("train", 3)


def test_a_job_that_is_not_elastic_is_stopped_and_queued_again(scene: Scene) -> None:
    scene.submit("stiff", pods=2, gpus=2, required=scene.rack, spec={"completions": 100})
    before = list_uids(scene.until_bound("stiff", 2), "stiff")
    size(scene, "stiff", 3)
    now = scene.until_bound("stiff", 3)
    assert not before & list_uids(now, "stiff")

"""waitForPodsReady: two of KEP-349's four scenarios, and a reconciler that is killed while its timers run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.names import QUEUE_NAME_LABEL
from e2e import manifests
from e2e.audit import truth
from e2e.topogate import Topogate
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory

Json = dict[str, Any]
NOBODY = {"schedulerName": "nobody"}  # pods that are admitted and never bound
PATIENT: Json = {"timeout": "5m"}
Follow = Callable[[Json | None], None]


@pytest.fixture
def follow(topogate: Topogate, tmp_path: Path) -> Follow:
    """Has the reconciler killed, and another by these rules follow it; None: with the feature off."""

    def start(rules: Json | None) -> None:
        file = tmp_path / "config.json"
        configuration = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
        file.write_text(json.dumps(configuration | ({"waitForPodsReady": rules} if rules is not None else {})))
        topogate.kill_reconciler()
        topogate.start_reconciler(options=["--config", str(file)])

    return start


def get_status(now: truth.Snapshot, job: str) -> dict[str, Any]:
    found: dict[str, Any] = (now.workload_of(job) or {}).get("status") or {}
    return found


def get_ready_condition(now: truth.Snapshot, job: str) -> tuple[str | None, str | None]:
    condition = truth.get_condition(now.workload_of(job), "PodsReady")
    return condition.get("status"), condition.get("reason")


def get_eviction_reason(now: truth.Snapshot, job: str) -> str | None:
    condition = truth.get_condition(now.workload_of(job), "Evicted")
    return condition.get("reason") if condition.get("status") == "True" else None


def fail_a_pod(scene: Scene, job: str) -> None:
    pod = scene.read().pods_of(job)[0]["metadata"]
    body = {"metadata": {"annotations": {"e2e.topogate.dev/fail": "true"}}}
    scene.api.patch(f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}", body)


def test_pods_ready_condition_is_written_for_running_workloads_only_with_the_feature_on(scene: Scene, follow: Follow) -> None:
    follow(None)
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    scene.eventually("its pods to be ready", lambda _: scene.job("train").get("status", {}).get("ready") == 2)
    scene.submit("later", pods=1, gpus=8, required=scene.rack)
    now = scene.until_bound("later", 1)
    assert get_ready_condition(now, "train") == (None, None), "all that came before has been handled by now"
    scene.delete_job("later")
    follow(PATIENT)
    now = scene.eventually("the condition", lambda now: get_ready_condition(now, "train") == ("True", "Started"))
    assert get_eviction_reason(now, "train") is None
    scene.submit("next", pods=2, gpus=8, required=scene.rack, pod_spec=NOBODY)
    scene.eventually("the next one to wait", lambda now: get_ready_condition(now, "next") == ("False", "WaitForStart"))
    scene.delete_job("train")
    scene.delete_job("next")


@pytest.mark.long
def test_pods_that_do_not_get_ready_in_time_evict_their_workload_until_the_limit_deactivates_it(scene: Scene, follow: Follow) -> None:
    rules = {"timeout": "2s", "requeuingStrategy": {"backoffBaseSeconds": 8, "backoffLimitCount": 1}}
    follow(rules)
    scene.submit("stuck", pods=2, gpus=8, required=scene.rack, pod_spec=NOBODY)

    def waits_for_its_backoff(now: truth.Snapshot) -> bool:
        quota = truth.get_condition(now.workload_of("stuck"), "QuotaReserved")
        return quota.get("status") == "False" and str(quota.get("message")).startswith("Not to be admitted before 2")

    now = scene.eventually("it to be held back", waits_for_its_backoff)
    follow(rules)  # which finds all it needs in the status
    assert get_eviction_reason(now, "stuck") == "PodsReadyTimeout"
    assert scene.job("stuck")["spec"]["suspend"]
    state = get_status(now, "stuck")["requeueState"]
    assert state["count"] == 1
    assert state["requeueAt"] in truth.get_condition(now.workload_of("stuck"), "QuotaReserved")["message"]
    assert get_ready_condition(now, "stuck") == ("False", "WaitForStart")
    assert "EvictedDueToPodsReadyTimeout" in [event["reason"] for event in now.events]

    def runs_again(now: truth.Snapshot) -> bool:
        return truth.is_true(now.workload_of("stuck"), "Admitted") and get_eviction_reason(now, "stuck") is None

    now = scene.eventually("it to be admitted again", runs_again)
    assert truth.get_condition(now.workload_of("stuck"), "Admitted")["lastTransitionTime"] >= state["requeueAt"]
    assert truth.get_condition(now.workload_of("stuck"), "Requeued")["reason"] == "BackoffFinished"
    assert get_status(now, "stuck")["requeueState"] == {"count": 1}

    def is_deactivated(now: truth.Snapshot) -> bool:
        workload = now.workload_of("stuck")
        return workload is not None and workload["spec"]["active"] is False and "admission" not in workload["status"]

    now = scene.eventually("it to be deactivated", is_deactivated)
    assert get_eviction_reason(now, "stuck") == "DeactivatedDueToRequeuingLimitExceeded"
    message = truth.get_condition(now.workload_of("stuck"), "Evicted")["message"]
    assert "backoffLimitCount is 1" in message
    assert "ClusterRole topogate-batch-admin" in message
    scene.submit("next", pods=4, gpus=8, required=scene.block)
    scene.until_bound("next", 4)
    scene.delete_job("next")

    scene.patch_workload("stuck", {"spec": {"active": True}})
    scene.eventually("it to be admitted once more", lambda now: truth.is_true(now.workload_of("stuck"), "Admitted"))
    scene.eventually("its count to begin anew", lambda now: "requeueState" not in get_status(now, "stuck"))
    scene.eventually("its first eviction", lambda now: get_status(now, "stuck").get("requeueState", {}).get("count") == 1)
    scene.delete_job("stuck")


@pytest.mark.long
def test_a_pod_that_fails_and_is_replaced_in_time_leaves_its_workload_alone(scene: Scene, follow: Follow) -> None:
    follow(PATIENT | {"recoveryTimeout": "5m"})
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    scene.eventually("the condition", lambda now: get_ready_condition(now, "train") == ("True", "Started"))
    fail_a_pod(scene, "train")
    scene.eventually("it to wait for the other pod", lambda now: get_ready_condition(now, "train") == ("False", "WaitForRecovery"))
    now = scene.eventually("it to have recovered", lambda now: get_ready_condition(now, "train") == ("True", "Recovered"))
    assert get_eviction_reason(now, "train") is None
    scene.delete_job("train")


def test_pods_that_are_queued_themselves_are_looked_at(scene: Scene, follow: Follow) -> None:
    follow(PATIENT)
    for name, more in (("runs", {}), ("stuck", NOBODY)):
        template = manifests.build_job(name, scene.namespace, pods=1)["spec"]["template"]["spec"]
        metadata = {"name": name, "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}}
        scene.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template | more})
    scene.eventually("one to be ready", lambda now: get_ready_condition(now, "runs") == ("True", "Started"))
    scene.eventually("one to wait", lambda now: get_ready_condition(now, "stuck") == ("False", "WaitForStart"))


def test_a_pod_that_is_not_replaced_in_time_evicts_its_workload(scene: Scene, follow: Follow) -> None:
    follow(PATIENT | {"recoveryTimeout": "1s", "requeuingStrategy": {"backoffBaseSeconds": 1}})
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    scene.eventually("the condition", lambda now: get_ready_condition(now, "train") == ("True", "Started"))
    fail_a_pod(scene, "train")  # the Job controller takes ten seconds to make another
    now = scene.eventually("it to be evicted", lambda now: get_eviction_reason(now, "train") == "PodsReadyTimeout")
    assert "A pod was lost" in truth.get_condition(now.workload_of("train"), "Evicted")["message"]
    assert get_status(now, "train")["requeueState"]["count"] == 1
    scene.eventually("it to run again from its start", lambda now: get_ready_condition(now, "train") == ("True", "Started"))
    scene.delete_job("train")

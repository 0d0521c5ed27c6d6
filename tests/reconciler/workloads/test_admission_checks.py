"""Admission checks; the test plays the controller that judges them. Those that bring nodes: test_provisioning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.audit import truth
from tests.reconciler.scenes import WORKLOADS, Scene

pytestmark = pytest.mark.in_memory

ROOT = "/apis/kueue.x-k8s.io/v1beta2"
CUSTOM = "example.com/judge"
Json = dict[str, Any]


class Judge:
    """An AdmissionCheck of the scene's queue, and the states that its controller writes."""

    def __init__(self, scene: Scene, controller: str) -> None:
        self.scene, self.name = scene, f"{scene.prefix}check"
        body: Json = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": self.name}}
        scene.api.create(f"{ROOT}/admissionchecks", body | {"spec": {"controllerName": controller}})
        self.set_active(active=True)
        strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": self.name}]}}
        scene.api.patch(f"{ROOT}/clusterqueues/{scene.prefix}queue", {"spec": strategy})
        scene.eventually("the queue to be active with it", lambda _: self.active()[0] == "True" and self.is_known())

    def is_known(self) -> bool:
        return bool(self.scene.api.get(f"{ROOT}/clusterqueues/{self.scene.prefix}queue")["spec"].get("admissionChecksStrategy"))

    def active(self) -> tuple[str | None, str | None]:
        condition = truth.get_condition(self.scene.api.get(f"{ROOT}/clusterqueues/{self.scene.prefix}queue"), "Active")
        return condition.get("status"), condition.get("reason")

    def set_active(self, *, active: bool) -> None:
        condition = {"type": "Active", "status": str(active), "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.scene.api.patch(f"{ROOT}/admissionchecks/{self.name}/status", {"status": {"conditions": [condition]}})

    def say(self, job: str, state: str, message: str = "", **more: Any) -> None:
        workload = self.scene.read().workload_of(job)
        assert workload is not None
        now = self.scene.read().workload_of(job)
        assert now is not None
        (check,) = now["status"]["admissionChecks"]
        changed = {**check, "state": state, "message": message, "lastTransitionTime": _later(check), **more}
        path = f"{WORKLOADS.format(self.scene.namespace)}/{workload['metadata']['name']}/status"
        self.scene.api.patch(path, {"status": {"admissionChecks": [changed]}})


def _later(check: Json) -> str:
    return str(check["lastTransitionTime"])


@pytest.fixture
def judges(scene: Scene) -> Iterator[list[Judge]]:
    made: list[Judge] = []
    yield made
    scene.clear()
    scene.api.patch(f"{ROOT}/clusterqueues/{scene.prefix}queue", {"spec": {"admissionChecksStrategy": None}})
    for judge in made:
        scene.api.delete(f"{ROOT}/admissionchecks/{judge.name}")


def list_checks(now: truth.Snapshot, job: str) -> dict[str, str]:
    status = (now.workload_of(job) or {}).get("status") or {}
    return {check["name"]: check["state"] for check in status.get("admissionChecks") or ()}


def reason_not_admitted(now: truth.Snapshot, job: str) -> str | None:
    condition = truth.get_condition(now.workload_of(job), "Admitted")
    return condition.get("reason") if condition.get("status") == "False" else None


def has_quota(now: truth.Snapshot, job: str) -> bool:
    return truth.is_true(now.workload_of(job), "QuotaReserved")


def test_a_check_of_another_kind_delays_the_start_and_keeps_the_place(scene: Scene, judges: list[Judge]) -> None:
    judge = Judge(scene, CUSTOM)
    judges.append(judge)
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    now = scene.eventually("its quota", lambda now: reason_not_admitted(now, "train") == "UnsatisfiedAdmissionChecks")
    assert list_checks(now, "train") == {judge.name: "Pending"}
    (given,) = now.workload_of("train")["status"]["admission"]["podSetAssignments"]  # type: ignore[index]
    assert given["topologyAssignment"]["levels"] == ["kubernetes.io/hostname"]
    assert scene.job("train")["spec"]["suspend"]
    update = {"name": "main", "labels": {"by": "judge"}, "annotations": {"approved": "yes"}}
    judge.say("train", "Ready", podSetUpdates=[update])
    now = scene.until_bound("train", 2)
    for pod in now.pods_of("train"):
        assert pod["metadata"]["labels"]["by"] == "judge"
        assert pod["metadata"]["annotations"]["approved"] == "yes"


def test_retry_gives_the_quota_back_for_a_while_and_asks_again(scene: Scene, judges: list[Judge]) -> None:
    judge = Judge(scene, CUSTOM)
    judges.append(judge)
    scene.submit("train", pods=1, gpus=8, required=scene.rack)
    scene.eventually("its quota", lambda now: has_quota(now, "train"))
    judge.say("train", "Retry", "not now", requeueAfterSeconds=3)
    now = scene.eventually("its quota to be given back", lambda now: not has_quota(now, "train"))
    told = truth.get_condition(now.workload_of("train"), "Evicted")
    assert (told["reason"], told["message"]) == ("AdmissionCheck", f"At least one admission check is false: {judge.name}: not now")
    assert list_checks(now, "train") == {judge.name: "Pending"}
    assert truth.get_condition(now.workload_of("train"), "QuotaReserved")["message"].startswith("Not to be admitted before 2")
    scene.eventually("its quota again", lambda now: has_quota(now, "train"))
    judge.say("train", "Ready")
    scene.until_bound("train", 1)


def test_rejected_deactivates_and_reactivation_asks_anew(scene: Scene, judges: list[Judge]) -> None:
    judge = Judge(scene, CUSTOM)
    judges.append(judge)
    scene.submit("train", pods=1, gpus=8, required=scene.rack)
    scene.eventually("its quota", lambda now: has_quota(now, "train"))
    judge.say("train", "Rejected", "never")
    now = scene.eventually("it to be deactivated", lambda now: not has_quota(now, "train"))
    workload = now.workload_of("train")
    assert workload is not None
    assert workload["spec"]["active"] is False
    assert truth.get_condition(workload, "Evicted")["reason"] == "DeactivatedDueToAdmissionCheckRejected"
    assert "never" in truth.get_condition(workload, "Evicted")["message"]
    scene.patch_workload("train", {"spec": {"active": True}})
    scene.eventually("its quota again", lambda now: has_quota(now, "train"))
    assert list_checks(scene.read(), "train") == {judge.name: "Pending"}
    judge.say("train", "Ready")
    scene.until_bound("train", 1)


def test_cluster_queue_condition_names_its_missing_or_inactive_check(scene: Scene, judges: list[Judge]) -> None:
    judge = Judge(scene, CUSTOM)
    judges.append(judge)
    judge.set_active(active=False)
    scene.eventually("the queue to be inactive", lambda _: judge.active() == ("False", "AdmissionCheckInactive"))
    scene.submit("train", pods=1, gpus=8, required=scene.rack)
    assert "is inactive" in scene.until_waiting("train", "Suspended")
    judge.set_active(active=True)
    scene.eventually("its quota", lambda now: has_quota(now, "train"))
    scene.api.delete(f"{ROOT}/admissionchecks/{judge.name}")
    scene.eventually("the queue to miss it", lambda _: judge.active() == ("False", "AdmissionCheckNotFound"))
    judges.clear()


def test_admission_check_that_changes_to_retry_or_rejected_evicts_the_running_workload(scene: Scene, judges: list[Judge]) -> None:
    judge = Judge(scene, CUSTOM)
    judges.append(judge)
    scene.submit("train", pods=1, gpus=8, required=scene.rack)
    scene.eventually("its quota", lambda now: has_quota(now, "train"))
    judge.say("train", "Ready")
    scene.until_bound("train", 1)
    judge.say("train", "Retry", "not any more", requeueAfterSeconds=5)
    now = scene.eventually("its quota to be given back", lambda now: not has_quota(now, "train"))
    assert truth.get_condition(now.workload_of("train"), "Evicted")["reason"] == "AdmissionCheck"
    assert not now.pods_of("train"), "what had quota has stopped before"
    scene.eventually("its quota again", lambda now: has_quota(now, "train"))
    judge.say("train", "Ready")
    scene.until_bound("train", 1)
    judge.say("train", "Rejected", "never again")
    now = scene.eventually("it to be deactivated", lambda now: (now.workload_of("train") or {})["spec"]["active"] is False)
    told = truth.get_condition(now.workload_of("train"), "Evicted")
    assert told["reason"] == "DeactivatedDueToAdmissionCheckRejected"
    assert "never again" in told["message"]
    scene.eventually("its quota to be given back", lambda now: not has_quota(now, "train"))
    scene.patch_workload("train", {"spec": {"active": True}})
    scene.eventually("its quota again", lambda now: has_quota(now, "train"))
    assert (scene.read().workload_of("train") or {})["spec"]["active"] is True

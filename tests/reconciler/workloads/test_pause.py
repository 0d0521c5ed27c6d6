"""`topogate pause` and `resume` on the real control plane: in force at once, kept over a crash, and over when it is said to be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from cli.program import main
from core.names import EVICTIONS_PAUSED, PRIORITY_CLASS_LABEL
from e2e.api import ApiError, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import SYSTEM_NAMESPACE, Topogate
from reconciler.rbac import list_pause_rights
from tests.reconciler.scenes import QUEUES, Scene

pytestmark = pytest.mark.cluster
CONFIG_MAPS = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"
CONFIG_MAP = f"{CONFIG_MAPS}/topogate-pause"
GENEROUS_S = 10.0  # of a machine that does other things, too; what is meant is 2 s


@dataclass(frozen=True)
class Button:
    """The command, as an administrator of this cluster."""

    cluster: Cluster
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self.capsys.readouterr()
        ended = main([*arguments, "--kubeconfig", str(self.cluster.kubeconfig)])
        said = "".join(self.capsys.readouterr())
        assert ended == code, (ended, said)
        return said


@pytest.fixture
def button(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Iterator[Button]:
    yield Button(cluster, capsys)
    cluster.api.delete(CONFIG_MAP)  # else whoever comes next would wait


def build_condition(scene: Scene, kind: str) -> dict[str, Any]:
    """Of the scene's ClusterQueue."""
    return dict(truth.get_condition(scene.api.get(f"{QUEUES}/{scene.prefix}queue"), kind))


def never_started(scene: Scene, *jobs: str) -> bool:
    now = scene.read()
    return all(scene.job(name)["spec"]["suspend"] and not now.pods_of(name) for name in jobs)


def test_admissions_are_paused_at_once_and_over_a_crash_and_go_on_when_it_is_said(scene: Scene, topogate: Topogate, button: Button):
    scene.submit("before", pods=2, gpus=1, required=scene.rack)
    scene.until_bound("before", 2)
    began = time.monotonic()
    said = button("pause", "admissions", "--reason", "rack r1 is being rewired", "--no-wait")
    scene.submit("waits", pods=2, gpus=1, required=scene.rack)
    wait_for("the queue to say so", lambda: build_condition(scene, "Active").get("reason") == "AdmissionsPaused", GENEROUS_S, poll_s=0.02)
    print(f"\npaused after {time.monotonic() - began:.2f} s, the command's own time included")
    message = scene.until_waiting("waits", "AdmissionsPaused")
    assert said == "admissions are paused\n"
    assert message.startswith("admissions are paused by ")
    assert message.endswith(": rack r1 is being rewired; `topogate resume admissions` ends that")
    assert build_condition(scene, "Active")["status"] == "False"

    topogate.kill_reconciler()
    scene.submit("later", pods=2, gpus=1, required=scene.rack)
    topogate.start_reconciler()
    scene.until_waiting("later", "AdmissionsPaused")
    assert never_started(scene, "waits", "later")
    assert truth.check_all_bound(scene.read(), "before", 2) == [], "what runs runs on"

    began = time.monotonic()
    said = button("resume", "admissions")
    print(f"resumed after {time.monotonic() - began:.2f} s: {said}")
    assert "admissions go on" in said
    assert "in force: reported by " in said
    for name in ("waits", "later"):
        scene.until_bound(name, 2)
    assert build_condition(scene, "Active")["status"] == "True"


def test_pause_command_waits_for_all_queues_and_reports_an_earlier_pause(scene: Scene, button: Button):
    began = time.monotonic()
    said = button("pause", "all", "--reason", "maintenance")
    print(f"\nboth in force after {time.monotonic() - began:.2f} s: {said}")
    assert "admissions are paused\nevictions are paused\nin force: reported by " in said
    assert build_condition(scene, "Active")["reason"] == "AdmissionsPaused"
    told = build_condition(scene, EVICTIONS_PAUSED)
    assert (told["status"], told["reason"]) == ("True", "Paused")
    before = scene.api.get(CONFIG_MAP)["data"]
    said = button("pause", "evictions", "--reason", "another")
    assert "evictions were paused before, by " in said
    assert "maintenance; that stands" in said
    assert scene.api.get(CONFIG_MAP)["data"] == before
    assert "maintenance; `topogate resume admissions` ends that" in button("pause", "status")
    said = button("resume", "admissions")
    assert "admissions go on" in said
    assert scene.api.get(CONFIG_MAP)["data"] == {"evictions": before["evictions"]}
    assert "admissions were not paused\nevictions go on" in button("resume", "all")
    assert button("pause", "status") == "admissions are not paused\nevictions are not paused\n"
    assert build_condition(scene, EVICTIONS_PAUSED) == {}


def test_pause_key_that_cannot_be_read_pauses_until_resume(scene: Scene, button: Button):
    """Whoever wrote it by hand wanted something stopped."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "topogate-pause"}}
    scene.api.create(CONFIG_MAPS, body | {"data": {"admissions": "yes, please"}, "binaryData": {"evictions": "AAA="}})
    scene.submit("waits", pods=1, gpus=1)
    assert "its key admissions says, which cannot be read: it is not JSON" in scene.until_waiting("waits", "AdmissionsPaused")
    said = button("resume", "all")
    assert said.count("which cannot be read") == 2
    scene.until_bound("waits", 1)


def test_pause_in_a_namespace_without_a_reconciler_or_a_missing_one_fails(scene: Scene, button: Button, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cli.stopping.WAIT_S", 1.0)
    said = button("pause", "admissions", "--namespace", scene.namespace, code=1)
    assert "with --namespace=" in said
    assert "there is no namespace nowhere" in button("pause", "admissions", "--namespace", "nowhere", code=1)
    assert "--reason is for pausing" in button("pause", "status", "--reason", "x", code=2)


@pytest.mark.long
def test_workload_is_not_preempted_while_evictions_are_paused(scene: Scene, button: Button, high: str):
    scene.allow_preemption()
    for name in ("one", "two"):
        scene.submit(name, pods=2, gpus=8, required=scene.rack)
        scene.until_bound(name, 2)
    button("pause", "evictions")
    scene.submit("large", pods=2, gpus=8, required=scene.rack, labels={PRIORITY_CLASS_LABEL: high})
    message = scene.until_waiting("large", "TopologyPlacementFailed")
    assert all(part in message for part in ("1 workload", "evictions are paused by "))
    now = scene.read()
    assert all(truth.check_all_bound(now, name, 2) == [] for name in ("one", "two"))
    assert build_condition(scene, "Active")["status"] == "True", "who fits is admitted all the same"
    button("resume", "evictions")
    scene.until_bound("large", 2)


def test_replacement_pod_of_an_admitted_job_is_ungated_while_admissions_are_paused(scene: Scene, button: Button):
    scene.submit("train", pods=2, gpus=1, required=scene.rack)
    first = {pod["metadata"]["name"] for pod in scene.until_bound("train", 2).pods_of("train")}
    button("pause", "all")
    name = min(first)
    scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/{name}", grace_period_s=0)

    def is_replaced(now: truth.Snapshot) -> bool:
        return name not in {pod["metadata"]["name"] for pod in now.pods_of("train")} and truth.check_all_bound(now, "train", 2) == []

    now = scene.eventually("another pod to be bound", is_replaced)
    assert truth.check_one_domain(now, "train", scene.rack) == []


def test_job_suspended_by_its_user_releases_quota_while_everything_is_paused(scene: Scene, button: Button):
    scene.submit("train", pods=2, gpus=1, required=scene.rack)
    scene.submit("other", pods=2, gpus=1, required=scene.rack)
    for name in ("train", "other"):
        scene.until_bound(name, 2)
    button("pause", "all")
    scene.patch_job("train", {"spec": {"suspend": True}})
    scene.patch_workload("other", {"spec": {"active": False}})
    scene.eventually("both to give back what they had", lambda now: not now.pods_of("train") and not now.pods_of("other"))

    def gave_back(now: truth.Snapshot, name: str) -> bool:
        return truth.get_condition(now.workload_of(name), "QuotaReserved").get("status") == "False"

    scene.eventually("their quota to be free", lambda now: gave_back(now, "train") and gave_back(now, "other"))


def test_the_rights_of_the_chart_show_this_config_map_and_no_other(cluster: Cluster, topogate: Topogate):
    rbac, name = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}", "pause-reader"
    accounts = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts"
    api = cluster.api
    subject = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM_NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    try:
        api.create(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
        api.create(f"{rbac}/roles", {"metadata": {"name": name}, "rules": list_pause_rights()})
        api.create(f"{rbac}/rolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
        token = api.create(f"{accounts}/{name}/token", body)["status"]["token"]
        with closing(api.for_token(str(token))) as reader:
            ours = f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dtopogate-pause"
            assert wait_for("the role to hold", lambda: _status(reader, ours) == 200)
            assert _status(reader, f"{ours}&watch=true&timeoutSeconds=1") == 200
            for path in (CONFIG_MAPS, f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dkube-root-ca.crt", CONFIG_MAP, "/api/v1/configmaps"):
                assert _status(reader, path) == 403
    finally:
        for path in (f"{rbac}/rolebindings/{name}", f"{rbac}/roles/{name}", f"{accounts}/{name}"):
            api.delete(path)


def _status(api: Any, path: str) -> int:
    try:
        api.get(path)
    except ApiError as error:
        return error.status
    return 200

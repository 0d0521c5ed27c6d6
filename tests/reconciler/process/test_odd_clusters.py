"""What clusters have beside topogate: quotas of pods, Pod Security, sidecars that a webhook adds, budgets, odd nodes, other schedulers."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from certs.pki import issue_ca, issue_serving
from core.names import HOSTNAME_LABEL, PRIORITY_CLASS_LABEL
from e2e import manifests
from e2e.audit import truth
from e2e.nodes import build_node
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.cluster
SIDECAR = {"name": "sidecar", "image": "registry.example/proxy:1", "resources": {"requests": {"cpu": "1"}}}
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class _Injector(BaseHTTPRequestHandler):
    """Adds a container to each pod, as service meshes do."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        patch = json.dumps([{"op": "add", "path": "/spec/containers/-", "value": SIDECAR}]).encode()
        answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def injected(scene: Scene, folder: Path) -> Iterator[None]:
    """A real mutating webhook for the pods of the scene's namespace."""
    ca = issue_ca("injector", datetime.now(UTC))
    serving = issue_serving(ca, ["127.0.0.1"], datetime.now(UTC))
    (folder / "tls.crt").write_bytes(serving.certificate)
    (folder / "tls.key").write_bytes(serving.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Injector)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    name = f"{scene.prefix}injector"
    hook = {
        "name": "injector.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": f"https://127.0.0.1:{server.server_port}/", "caBundle": base64.b64encode(ca.certificate).decode()},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    }
    metadata = {"name": name}
    made = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": metadata,
        "webhooks": [hook],
    }
    scene.api.create(HOOKS, made)
    try:
        yield
    finally:
        scene.api.delete(f"{HOOKS}/{name}")
        server.shutdown()
        thread.join()
        server.server_close()


def list_warnings(scene: Scene, reason: str) -> list[str]:
    events = scene.api.list(f"/api/v1/namespaces/{scene.namespace}/events")
    return [event["message"] for event in events if event["reason"] == reason]


def test_job_in_a_namespace_with_a_quota_of_pods_is_whole_once_that_is_raised(scene: Scene) -> None:
    quotas = f"/api/v1/namespaces/{scene.namespace}/resourcequotas"
    scene.api.create(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})
    scene.submit("train", pods=4, gpus=4, required=scene.rack, indexed=True)
    scene.eventually("two pods to be bound", lambda now: sum(bool(pod["spec"].get("nodeName")) for pod in now.pods_of("train")) == 2)
    scene.eventually("the Job controller to be refused others", lambda now: list_warnings(scene, "FailedCreate"))
    assert truth.is_true(scene.read().workload_of("train"), "Admitted")
    scene.api.patch(f"{quotas}/few", {"spec": {"hard": {"pods": "10"}}})
    now = scene.until_bound("train", 4)
    assert len({now.label_of(pod, scene.rack) for pod in now.pods_of("train")}) == 1
    assert truth.as_assigned(now, "train") == []


def test_job_under_restricted_pod_security_is_placed_and_runs(scene: Scene) -> None:
    enforced = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    scene.api.patch(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": enforced}})
    user = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    made = manifests.build_job("train", scene.namespace, pods=4, gpus=4, required=scene.rack, pod_spec={"securityContext": user})
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    scene.create(made)
    now = scene.until_bound("train", 4)
    assert truth.as_assigned(now, "train") == []
    scene.submit("lax", pods=1, gpus=1, required=scene.rack)
    scene.eventually("its pods to be refused, with the reason on the Job", lambda now: list_warnings(scene, "FailedCreate"))
    assert any("violates PodSecurity" in message for message in list_warnings(scene, "FailedCreate"))


def test_pods_with_a_sidecar_of_a_webhook_stay_gated_unless_the_template_has_requests_of_the_whole_pod(
    scene: Scene, tmp_path: Path
) -> None:
    with injected(scene, tmp_path):
        scene.submit("train", pods=2, gpus=1, required=scene.rack)
        scene.eventually("its pods to be refused their place", lambda now: len(list_warnings(scene, "WorkloadRefused")) >= 2)
        pods = scene.read().pods_of("train")
        assert [len(pod["spec"]["containers"]) for pod in pods] == [2, 2]
        assert all(truth.has_gate(pod) for pod in pods)
        assert any("(a sidecar)" in message for message in list_warnings(scene, "WorkloadRefused"))
        scene.delete_job("train")
        whole = {"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}
        scene.submit("whole", pods=2, gpus=1, required=scene.rack, pod_spec=whole)
        now = scene.until_bound("whole", 2)
        assert {len(pod["spec"]["containers"]) for pod in now.pods_of("whole")} == {2}
        usage = (now.workload_of("whole") or {})["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]
        assert usage["cpu"] == "6"


def test_job_that_a_disruption_budget_covers_is_preempted_all_the_same(scene: Scene, high: str) -> None:
    """A budget is for evictions by drains; what preempts suspends the job."""
    scene.allow_preemption()
    scene.submit("low", pods=4, gpus=8, required=scene.block)
    scene.until_bound("low", 4)
    budget = {
        "metadata": {"name": "all"},
        "spec": {"minAvailable": 4, "selector": {"matchLabels": {"batch.kubernetes.io/job-name": "low"}}},
    }
    scene.api.create(f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets", budget)
    scene.submit("urgent", pods=2, gpus=8, required=scene.rack, labels={PRIORITY_CLASS_LABEL: high})
    scene.until_bound("urgent", 2)
    assert truth.is_true(scene.read().workload_of("low"), "Evicted")


def test_node_that_gets_its_resources_and_its_place_late_is_used_then(scene: Scene) -> None:
    node = build_node(scene.pool, 1, 3, 1)
    place = {scene.pool.block_label: node["metadata"]["labels"].pop(scene.pool.block_label)}
    place[scene.rack] = node["metadata"]["labels"].pop(scene.rack)
    allocatable, node["status"] = node["status"]["allocatable"], {}
    name = node["metadata"]["name"]
    scene.cluster.add_nodes([node])
    kwok = scene.api.get(f"/api/v1/nodes/{name}")["status"].get("allocatable") or {}
    assert GPU not in kwok
    for job in ("first", "second"):
        scene.submit(job, pods=2, gpus=8, required=scene.rack)
        scene.until_bound(job, 2)
    scene.submit("third", pods=1, gpus=8, required=scene.rack)
    scene.until_waiting("third", "TopologyPlacementFailed")
    scene.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"allocatable": allocatable, "capacity": allocatable}})
    assert scene.read().pods_of("third") == []
    scene.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": place}})
    now = scene.until_bound("third", 1)
    assert {pod["spec"]["nodeName"] for pod in now.pods_of("third")} == {name}


def test_node_with_hundreds_of_taints_takes_only_pods_that_tolerate_all(scene: Scene) -> None:
    names = sorted(name for name in scene.read().nodes if name.startswith(scene.prefix))
    taints = [{"key": f"example.com/taint-{i}", "effect": "NoSchedule"} for i in range(300)]
    for name in names[1:]:
        scene.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})
    scene.submit("plain", pods=2, gpus=8, required=scene.rack)
    scene.until_waiting("plain", "TopologyPlacementFailed")
    scene.submit("tolerant", pods=2, gpus=8, required=scene.rack, pod_spec={"tolerations": [{"operator": "Exists"}]})
    scene.until_bound("tolerant", 2)
    scene.delete_job("plain")


def test_pods_of_another_scheduler_take_room_as_soon_as_they_are_bound(scene: Scene) -> None:
    names = sorted(name for name in scene.read().nodes if name.startswith(scene.prefix))
    resources = {"requests": {GPU: "8"}, "limits": {GPU: "8"}}
    spec = {"schedulerName": "another", "containers": [{"name": "c", "image": "registry.example/worker:1", "resources": resources}]}
    pods = f"/api/v1/namespaces/{scene.namespace}/pods"
    for i, name in enumerate(names[:3]):
        scene.api.create(pods, {"metadata": {"name": f"other-{i}"}, "spec": spec})
        target = {"apiVersion": "v1", "kind": "Node", "name": name}
        scene.api.create(f"{pods}/other-{i}/binding", {"metadata": {"name": f"other-{i}"}, "target": target})
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    message = scene.until_waiting("train", "TopologyPlacementFailed")
    assert "1 out of 2" in message
    scene.api.delete(f"{pods}/other-2", grace_period_s=0)
    now = scene.until_bound("train", 2)
    assert {now.label_of(pod, HOSTNAME_LABEL) for pod in now.pods_of("train")} == set(names[2:])

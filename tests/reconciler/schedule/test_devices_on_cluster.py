"""Queued jobs that claim devices, on the real control plane: kube-scheduler allocates what topogate has counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import manifests
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.installed import Installed
from tests.podgroups.devices import TEMPLATE, build_claim_spec, build_device_class, build_resource_slice, build_template
from tests.reconciler.scenes import GPU, Scene

CLASS = "queued.gpu.example.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates"
CONFIG = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "resources": {"deviceClassMappings": [{"name": GPU, "deviceClassNames": [CLASS]}]},
    "featureGates": {"KueueDRADeviceFeasibility": True},
}


@pytest.fixture(scope="module")
def topogate(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Topogate:
    path: Path = tmp_path_factory.mktemp("devices") / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return installed.run(flags=["--config", str(path)])


class Hall(Scene):
    """Two racks of two nodes with devices of class CLASS, so many each."""

    def open_with(self, *devices: int) -> Hall:
        self.open()
        self.create(build_device_class(CLASS, f'device.driver == "{CLASS}"'))
        self.nodes = sorted(name for name in self.read().nodes if name.startswith(self.prefix))
        for node, count in zip(self.nodes, devices, strict=True):
            self.create(build_resource_slice(node, count, node=node, driver=CLASS, name=f"{node}-devices"))
        return self

    def create(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Without what only objects on paper have."""
        metadata = {name: value for name, value in obj["metadata"].items() if name not in ("uid", "resourceVersion")}
        return super().create({**obj, "metadata": metadata})

    def template(self, count: int) -> None:
        self.create(build_template(spec=build_claim_spec(count, deviceClassName=CLASS), namespace=self.namespace))

    def claim(self, name: str, pods: int) -> None:
        claims = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
        self.create(manifests.build_job(name, self.namespace, pods=pods, gpus=0, required=self.rack, pod_spec={"resourceClaims": claims}))

    def places(self, job: str) -> list[str]:
        """Nodes of its pods that are bound, without those that end."""
        pods = [pod for pod in self.api.list(f"/api/v1/namespaces/{self.namespace}/pods") if pod["metadata"]["labels"]["job-name"] == job]
        return sorted(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"])

    def close(self) -> None:
        for node in self.nodes:
            self.api.delete(f"/apis/resource.k8s.io/v1/resourceslices/{node}-devices")
        self.api.delete(f"/apis/resource.k8s.io/v1/deviceclasses/{CLASS}")
        super().close()


@pytest.fixture
def hall(cluster: Cluster, topogate: Topogate) -> Iterator[Hall]:
    scene = Hall(cluster).open_with(1, 3, 2, 3)
    yield scene
    scene.close()


def test_jobs_get_the_devices_that_were_counted_and_others_wait_for_them(hall: Hall):
    hall.claim("first", 5)
    hall.eventually(
        "the first job to wait for its template", lambda now: "there is no ResourceClaimTemplate one-gpu" in str(now.workload_of("first"))
    )
    hall.template(1)
    hall.eventually("the first job to run", lambda now: len(hall.places("first")) == 5)
    assert hall.places("first") == [hall.nodes[2]] * 2 + [hall.nodes[3]] * 3
    claims = hall.api.list(CLAIMS.format(hall.namespace))
    assert [bool((claim.get("status") or {}).get("allocation")) for claim in claims] == [True] * 5
    workload = hall.read().workload_of("first")
    assert workload is not None
    assert workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"][GPU] == "5"
    hall.claim("second", 5)
    hall.eventually("the second job to wait", lambda now: f"devices of class {CLASS}" in str(now.workload_of("second")))
    hall.delete_job("first")
    hall.eventually("the second job to run", lambda now: len(hall.places("second")) == 5)


def test_a_pod_made_from_a_changed_template_stays_gated_and_says_so(hall: Hall):
    hall.template(1)
    hall.claim("job", 2)
    hall.eventually("the job to run", lambda now: len(hall.places("job")) == 2)
    hall.api.delete(f"{TEMPLATES.format(hall.namespace)}/{TEMPLATE}")
    hall.template(2)
    pod = next(pod for pod in hall.api.list(f"/api/v1/namespaces/{hall.namespace}/pods") if pod["spec"].get("nodeName"))
    hall.api.delete(f"/api/v1/namespaces/{hall.namespace}/pods/{pod['metadata']['name']}", grace_period_s=0)
    text = f"the pod claims more than was admitted of a pod of main (devices of class {CLASS}: 1 more)"
    hall.eventually(
        "an event that names the template",
        lambda now: any(text in event["message"] for event in hall.api.list(f"/api/v1/namespaces/{hall.namespace}/events")),
    )
    assert len(hall.places("job")) == 1

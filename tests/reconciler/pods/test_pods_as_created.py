"""Jobs of which the API server changes the pods at creation: counted, placed and ungated as their pods are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL
from e2e import manifests
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.reconciler.kinds.pods import bound, build_template, list_live_pods, of_set, remove
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.cluster
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Two nodes with 32 CPUs in one rack."""
    made = Scene(cluster, racks=1).open()
    yield made
    made.close()


def limit(scene: Scene, **item: Any) -> None:
    body = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Container", **item}]}}
    scene.api.create(f"/api/v1/namespaces/{scene.namespace}/limitranges", body)


def build_job(scene: Scene, name: str, pods: int, cpu: str | None = None, **pod_spec: Any) -> dict[str, Any]:
    made = manifests.build_job(name, scene.namespace, pods=pods, gpus=0, required=scene.rack, pod_spec=pod_spec)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}} if cpu else {}
    return scene.create(made)


def get_usage(now: truth.Snapshot, name: str) -> dict[str, str]:
    workload = now.workload_of(name)
    assert workload is not None
    found: dict[str, str] = workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]
    return found


def test_job_under_limit_range_has_quota_and_nodes_for_the_defaults(scene: Scene) -> None:
    limit(scene, default={"cpu": "12"}, defaultRequest={"cpu": "12"})
    build_job(scene, "fits", pods=4)
    now = scene.until_bound("fits", 4)
    assert get_usage(now, "fits")["cpu"] == "48"
    assert sorted(Counter(pod["spec"]["nodeName"] for pod in now.pods_of("fits")).values()) == [2, 2]
    assert truth.as_assigned(now, "fits") == []
    build_job(scene, "waits", pods=1)
    scene.until_waiting("waits", "TopologyPlacementFailed")


def test_job_with_pods_that_a_limit_range_refuses_waits_with_the_reason(scene: Scene) -> None:
    limit(scene, min={"cpu": "2"}, max={"cpu": "16"})
    build_job(scene, "small", pods=1, cpu="1")
    assert "less than the minimum of 2 per Container of LimitRange" in scene.until_waiting("small", "Misconfigured")
    build_job(scene, "right", pods=1, cpu="2")
    scene.until_bound("right", 1)


def test_job_with_runtime_class_is_placed_with_its_overhead_on_its_nodes(scene: Scene) -> None:
    name = f"{scene.prefix}kata"
    node = next(name for name in scene.read().nodes if name.startswith(scene.prefix))
    taints = [{"key": name, "effect": "NoSchedule"}]
    scene.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"runtime": name}}, "spec": {"taints": taints}})
    scheduling = {"nodeSelector": {"runtime": name}, "tolerations": [{"key": name, "operator": "Exists"}]}
    made = {"metadata": {"name": name}, "handler": "kata", "overhead": {"podFixed": {"cpu": "15"}}, "scheduling": scheduling}
    scene.api.create(RUNTIME_CLASSES, made)
    try:
        build_job(scene, "fits", pods=2, cpu="1", runtimeClassName=name)
        now = scene.until_bound("fits", 2)
        assert get_usage(now, "fits")["cpu"] == "32"
        assert {now.label_of(pod, HOSTNAME_LABEL) for pod in now.pods_of("fits")} == {node}
        build_job(scene, "waits", pods=1, cpu="1", runtimeClassName=name)
        scene.until_waiting("waits", "TopologyPlacementFailed")
    finally:
        scene.api.delete(f"{RUNTIME_CLASSES}/{name}")


def test_stateful_set_under_limit_range_starts(scene: Scene) -> None:
    """Its pods were deleted for what the LimitRange had added, while its Workload held quota."""
    limit(scene, default={"cpu": "12"}, defaultRequest={"cpu": "12"})
    of_pods = build_template(1, required=scene.rack)
    of_pods["spec"]["containers"][0]["resources"]["requests"].pop("cpu")
    created = scene.create(of_set("StatefulSet", scene, "db", 2, of_pods))
    now = scene.eventually("all to be bound", lambda now: bound(list_live_pods(now, scene, app="db"), 2))
    assert get_usage(now, "db")["cpu"] == "24"
    remove(scene, created)
    scene.eventually("all to be gone", lambda now: not list_live_pods(now, scene))

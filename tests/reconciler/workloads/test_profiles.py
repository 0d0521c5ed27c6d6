"""Placement profiles and feature gates as users and administrators set them."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, PLACEMENT_PROFILE, PLACEMENT_PROFILES
from e2e import manifests
from e2e.api import ApiError, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.reconciler.scenes import GPU, WORKLOADS, Scene

pytestmark = pytest.mark.in_memory

FOUR, THREE = [1, 1, 2, 3], [1, 3, 3]  # pods on the nodes that are used


@pytest.fixture
def uneven(cluster: Cluster, topogate: Topogate) -> Scene:
    """One rack of four nodes that have 3, 3, 2 and 1 GPUs left: seven pods of kep take all four, of compact three."""
    scene = Scene(cluster, racks=1, nodes=4).open()
    for number, left in enumerate((3, 3, 2, 1), 1):
        amounts = {GPU: str(8 - left)}
        spec = {
            "nodeSelector": {HOSTNAME_LABEL: f"{scene.prefix}b1-r1-n{number}"},
            "containers": [{"name": "c", "image": "registry.example/c:1", "resources": {"requests": amounts, "limits": amounts}}],
        }
        metadata = {"name": f"other-{number}", "namespace": scene.namespace}
        scene.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    scene.eventually(
        "the others to be bound", lambda now: sum(bool(pod["spec"].get("nodeName")) for pod in now.pods_in(scene.namespace)) == 4
    )
    return scene


def place_seven(scene: Scene, name: str, profile: str | None = None) -> list[int]:
    """Pods per node of a job of seven, which is gone again afterwards."""
    job = manifests.build_job(name, scene.namespace, pods=7, gpus=1, unconstrained="true")
    if profile is not None:
        job["metadata"]["annotations"] = {PLACEMENT_PROFILE: profile}
    scene.create(job)
    now = scene.until_bound(name, 7)
    assert truth.as_assigned(now, name) == []
    nodes = [pod["spec"]["nodeName"] for pod in now.pods_of(name)]
    scene.delete_job(name)
    # Not left to the garbage collector, which takes its time.
    scene.api.request("DELETE", WORKLOADS.format(scene.namespace))
    scene.api.request("DELETE", f"/api/v1/namespaces/{scene.namespace}/pods?gracePeriodSeconds=0&labelSelector=job-name%3D{name}")
    scene.eventually(f"{name} to be gone", lambda now: now.workload_of(name) is None and not now.pods_of(name))
    return sorted(nodes.count(node) for node in set(nodes))


def name_profile(scene: Scene, plural: str, name: str, profile: str | None) -> None:
    path = f"/apis/kueue.x-k8s.io/v1beta2/{plural}/{scene.prefix}{name}"
    scene.api.patch(path, {"metadata": {"annotations": {PLACEMENT_PROFILE: profile}}})


def test_profile_of_job_queue_or_topology_is_used_and_an_unknown_one_is_refused(uneven: Scene) -> None:
    assert place_seven(uneven, "plain") == FOUR
    assert place_seven(uneven, "dense", "compact") == THREE
    name_profile(uneven, "topologies", "topology", "compact")
    assert place_seven(uneven, "by-topology") == THREE
    assert place_seven(uneven, "loose", "kep") == FOUR
    name_profile(uneven, "clusterqueues", "queue", "dense")

    def told() -> list[dict[str, Any]]:
        events = uneven.api.get("/api/v1/namespaces/default/events")["items"]
        return [event for event in events if event["involvedObject"]["name"] == f"{uneven.prefix}queue" and event["type"] == "Warning"]

    (event,) = wait_for("an event that names the profile", told)
    assert event["reason"] == "UnknownPlacementProfile"
    assert (
        event["message"]
        == f"there is no placement profile 'dense', so that {PLACEMENT_PROFILE} is ignored; there are {', '.join(PLACEMENT_PROFILES)}"
    )
    assert place_seven(uneven, "still") == THREE
    with pytest.raises(ApiError, match="one of kep, compact, best-fit, least-free, balanced is expected"):
        place_seven(uneven, "refused", "dense")
    uneven.close()


@pytest.mark.live("the log of a process")
def test_feature_gates_define_the_default_profile(uneven: Scene, topogate: Topogate) -> None:
    topogate.kill_reconciler()
    topogate.start_reconciler(options=["--feature-gates", "TASProfileBestFit=true,TASRespectNodeAffinityPreferred=true"])
    try:
        assert topogate.reconciler is not None
        assert "feature gate TASProfileBestFit is removed; do not rely on it" in topogate.reconciler.log.read_text()
        assert place_seven(uneven, "plain") == THREE
    finally:
        topogate.kill_reconciler()
        topogate.start_reconciler()
    assert place_seven(uneven, "again") == FOUR
    uneven.close()

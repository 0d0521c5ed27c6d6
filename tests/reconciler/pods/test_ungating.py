"""What the ungater does to pods, as scenes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.names import (
    DOMAIN_INDEX_ANNOTATION,
    DOMAIN_SIZE_ANNOTATION,
    HOSTNAME_LABEL,
    JOB_COMPLETION_INDEX_LABEL,
    LEVEL_PREFIX,
    RANK_ANNOTATION,
)
from e2e import manifests
from e2e.api import wait_for
from e2e.audit import truth
from e2e.proxies.writes_proxy import Cut, WritesProxy
from e2e.topogate import Topogate
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.in_memory
PODS = "/api/v1/namespaces/{}/pods"


def test_each_pod_reads_its_place_and_rank_from_its_own_labels(scene: Scene) -> None:
    forged = {f"{LEVEL_PREFIX}0": "forged", f"{LEVEL_PREFIX}9": "forged"}
    scene.submit(
        "train",
        pods=6,
        gpus=2,
        indexed=True,
        required=scene.rack,
        spec={"template": _build_template(scene, labels=forged, annotations={RANK_ANNOTATION: "99"})},
    )
    now = scene.until_bound("train", 6)
    levels = (scene.block, scene.rack, HOSTNAME_LABEL)
    hosts: dict[str, set[str]] = {}
    for pod in now.pods_of("train"):
        labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        assert [labels[f"{LEVEL_PREFIX}{i}"] for i in range(3)] == [now.label_of(pod, level) for level in levels]
        assert f"{LEVEL_PREFIX}9" not in labels
        assert annotations[RANK_ANNOTATION] == labels[JOB_COMPLETION_INDEX_LABEL]
        hosts.setdefault(annotations[DOMAIN_INDEX_ANNOTATION], set()).add(now.label_of(pod, HOSTNAME_LABEL))
        assert int(annotations[DOMAIN_SIZE_ANNOTATION]) in (2, 4)
    assert {index: len(found) for index, found in hosts.items()} == {"0": 1, "1": 1}


def _build_template(scene: Scene, *, labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    """As `Scene.submit` makes it, with labels and annotations of the user's own."""

    template = manifests.build_job("any", scene.namespace, pods=1, gpus=2, required=scene.rack)["spec"]["template"]
    template["metadata"] = {"labels": labels, "annotations": template["metadata"]["annotations"] | annotations}
    return dict(template)


def thief(scene: Scene, name: str) -> dict[str, Any]:
    """A pod of nobody's, as important as the job's, that wants all GPUs of a node of the scene."""
    container = {"name": "thief", "image": "registry.example/thief:1", "resources": {"limits": {GPU: "8"}, "requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": scene.namespace},
        "spec": {"nodeSelector": dict(scene.pool.labels), "containers": [container]},
    }


def test_a_nominated_slot_cannot_be_taken_before_its_pod_is_bound(
    scene: Scene, topogate: Topogate, proxy: WritesProxy, kubeconfig: Path
) -> None:
    """The reconciler dies before it has ungated the first of four pods, which fill all four nodes; some are nominated by then."""
    topogate.kill_reconciler()
    topogate.start_reconciler(kubeconfig=kubeconfig, options=["--nominate-nodes"])
    pods = PODS.format(scene.namespace)
    # Lasting: the four pods are nominated and ungated at once, each on its own connection.
    proxy.cut(Cut(1, False, topogate.kill_reconciler, only=rf"PATCH {pods}/[^/]+$", lasting=True))
    try:
        scene.submit("train", pods=4, gpus=8, required=scene.block)
        assert proxy.has_cut.wait(30), proxy.writes

        wait_for("what it had sent to be done", lambda: proxy.is_quiet)
        nominated = [pod for pod in scene.api.list(pods) if (pod.get("status") or {}).get("nominatedNodeName")]
        assert nominated
        assert all(pod["spec"].get("schedulingGates") for pod in nominated)
        names = [f"thief-{i}" for i in range(4)]
        for name in names:
            scene.api.create(pods, thief(scene, name))

        def judged() -> bool:
            thieves = [scene.api.get(f"{pods}/{name}") for name in names]
            refused = [pod for pod in thieves if truth.get_condition(pod, "PodScheduled").get("reason") == "Unschedulable"]
            return len(refused) == len(nominated)

        wait_for("kube-scheduler to turn the thieves away from nominated nodes", judged)
        taken = {scene.api.get(f"{pods}/{name}")["spec"].get("nodeName") for name in names}
        assert not taken & {pod["status"]["nominatedNodeName"] for pod in nominated}
        for name in names:
            scene.api.delete(f"{pods}/{name}", grace_period_s=0)
        proxy.cut(None)  # not before: what the reconciler had sent waits in the proxy's buffers when it is gone
        topogate.start_reconciler(kubeconfig=kubeconfig, options=["--nominate-nodes"])
        now = scene.until_bound("train", 4)
        assert truth.as_assigned(now, "train") == []
    finally:
        proxy.cut(None)
        if topogate.reconciler is not None:
            topogate.kill_reconciler()
        topogate.start_reconciler()


def test_a_pod_that_another_assignment_ungated_is_replaced_by_one_that_is_where_it_should_be(
    scene: Scene, topogate: Topogate, proxy: WritesProxy, kubeconfig: Path
) -> None:
    """Ungated by hand into a node that the assignment does not name and that has no room, while the reconciler is gone that would have
    ungated it."""
    scene.submit("filler", pods=2, gpus=8, required=scene.rack)
    filled = scene.until_bound("filler", 2)
    taken, name, pods = filled.label_of(filled.pods_of("filler")[0], HOSTNAME_LABEL), "train", PODS.format(scene.namespace)
    topogate.kill_reconciler()
    topogate.start_reconciler(kubeconfig=kubeconfig)
    proxy.cut(Cut(1, False, topogate.kill_reconciler, only=rf"PATCH {pods}/[^/]+$", lasting=True))
    try:
        scene.submit(name, pods=2, gpus=8, required=scene.rack)
        assert proxy.has_cut.wait(90), proxy.writes
        wait_for("its pods to be made", lambda: len(scene.read().pods_of(name)) == 2)
        victim = scene.read().pods_of(name)[0]["metadata"]["name"]
        scene.api.patch(f"{pods}/{victim}", {"spec": {"schedulingGates": None, "nodeSelector": {HOSTNAME_LABEL: taken}}})
    finally:
        proxy.cut(None)
        if topogate.reconciler is not None:
            topogate.kill_reconciler()
        topogate.start_reconciler()
    now = scene.until_bound(name, 2)
    assert victim not in [pod["metadata"]["name"] for pod in now.pods_of(name)]
    assert truth.as_assigned(now, name) == []
    # Whoever is first: the ungater deletes it, node health ends it as one that waits for a node that its workload does not have.
    told = [event for event in now.events if event["reason"] in ("PodOutsideAssignment", "PodTerminatedByKueue")]
    assert any(victim in event["message"] or event["involvedObject"]["name"] == victim for event in told)

"""blockAdmission: KEP-349's other two scenarios, and its Story 1."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL
from e2e import manifests
from e2e.audit import truth
from e2e.topogate import Topogate
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.in_memory

Json = dict[str, Any]
BLOCKING: Json = {"timeout": "5m", "blockAdmission": True}
NOBODY = {"schedulerName": "nobody"}  # pods that are admitted and never bound
Follow = Callable[[Json], None]


@pytest.fixture
def follow(topogate: Topogate, tmp_path: Path) -> Follow:
    """Has the reconciler killed, and another by these rules follow it."""

    def start(rules: Json) -> None:
        file = tmp_path / "config.json"
        configuration = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "waitForPodsReady": rules}
        file.write_text(json.dumps(configuration))
        topogate.kill_reconciler()
        topogate.start_reconciler(options=["--config", str(file)])

    return start


def is_admitted(now: truth.Snapshot, job: str) -> bool:
    return truth.is_true(now.workload_of(job), "Admitted")


def test_workload_is_not_admitted_while_pods_of_another_workload_are_not_ready(scene: Scene, follow: Follow) -> None:
    follow(BLOCKING)
    scene.submit("stuck", pods=1, gpus=1, required=scene.rack, pod_spec=NOBODY)
    scene.eventually("stuck to be admitted", lambda now: is_admitted(now, "stuck"))
    scene.submit("next", pods=1, gpus=1, required=scene.rack)
    message = scene.until_waiting("next", "WaitingForPodsReady")
    stuck = scene.read().workload_of("stuck")
    assert stuck is not None
    assert f"{scene.namespace}/{stuck['metadata']['name']}" in message
    assert scene.job("next")["spec"]["suspend"]
    scene.delete_job("stuck")
    scene.until_bound("next", 1)


def test_one_after_the_other_is_admitted_as_the_pods_get_ready(scene: Scene, follow: Follow) -> None:
    follow(BLOCKING)
    names = [f"train{i}" for i in range(3)]
    for name in names:
        scene.submit(name, pods=2, gpus=2, required=scene.rack)
    now = scene.eventually("all to run", lambda now: all(truth.check_all_bound(now, name, 2) == [] for name in names))
    times = []
    for name in names:
        workload = now.workload_of(name)
        ready, admitted = (truth.get_condition(workload, kind)["lastTransitionTime"] for kind in ("PodsReady", "Admitted"))
        times.append((admitted, ready))
    times.sort()
    assert all(ready <= admitted for (_, ready), (admitted, _) in pairwise(times))


# --- Story 1 ------------------------------------------------------------------------------------------------


@pytest.fixture
def quota_only(scene: Scene) -> Iterator[None]:
    """A queue for the same nodes that knows of quota alone: more than the nodes have."""
    name = f"{scene.prefix}quota"
    scene.create(manifests.build_flavor(name, scene.pool.labels, None))
    scene.create(manifests.build_cluster_queue(name, {name: {"cpu": 1000, GPU: 1000}}))
    scene.create(manifests.build_local_queue("quota", scene.namespace, name))
    yield
    scene.clear()
    for path in (f"apis/kueue.x-k8s.io/v1beta2/clusterqueues/{name}", f"apis/kueue.x-k8s.io/v1beta2/resourceflavors/{name}"):
        scene.api.delete(f"/{path}")


def keep_for_second(scene: Scene, names: list[str], *, kept: bool) -> None:
    taints = [{"key": "kept", "value": "for-two", "effect": "NoSchedule"}] if kept else None
    for name in names:
        scene.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})


def bound(now: truth.Snapshot, job: str) -> int:
    return sum(1 for pod in now.pods_of(job) if pod["spec"].get("nodeName"))


def both_start(scene: Scene) -> list[str]:
    """Two jobs of three pods, a node each, on four nodes: two of these, which are told, only the second job tolerates."""
    kept = sorted(name for name in scene.read().nodes if name.startswith(scene.prefix))[:2]
    keep_for_second(scene, kept, kept=True)
    scene.submit("one", pods=3, gpus=8, queue="quota")
    scene.eventually("two pods of the first to be bound", lambda now: bound(now, "one") == 2)
    scene.submit("two", pods=3, gpus=8, queue="quota", pod_spec={"tolerations": [{"key": "kept", "operator": "Exists"}]})
    return kept


@pytest.mark.usefixtures("quota_only")
def test_two_jobs_of_kep_349_story_1_without_blocking_deadlock(scene: Scene, follow: Follow) -> None:
    follow({"timeout": "5m"})
    kept = both_start(scene)
    scene.eventually("all nodes to be taken", lambda now: (bound(now, "one"), bound(now, "two")) == (2, 2))
    keep_for_second(scene, kept, kept=False)
    spec = {"nodeSelector": {HOSTNAME_LABEL: kept[-1]}, "containers": [{"name": "c", "image": "registry.example/c:1"}]}
    scene.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": scene.namespace}, "spec": spec})
    is_bound = {"name": "probe", "nodeName": kept[-1]}
    now = scene.eventually(
        "a pod to run where the taint was",
        lambda now: is_bound in [{"name": p["metadata"]["name"], "nodeName": p["spec"].get("nodeName")} for p in now.pods],
    )
    assert (bound(now, "one"), bound(now, "two")) == (2, 2), "neither can go on, nor will"
    assert is_admitted(now, "one")
    assert is_admitted(now, "two")


@pytest.mark.usefixtures("quota_only")
def test_two_jobs_of_kep_349_story_1_with_blocking_finish_in_sequence(scene: Scene, follow: Follow) -> None:
    follow(BLOCKING)
    kept = both_start(scene)
    scene.until_waiting("two", "WaitingForPodsReady")
    keep_for_second(scene, kept, kept=False)
    scene.eventually("the first to be complete", lambda now: bound(now, "one") == 3)
    scene.eventually("the second to be admitted then", lambda now: is_admitted(now, "two"))
    scene.delete_job("one")
    scene.eventually("the second to be complete", lambda now: bound(now, "two") == 3)

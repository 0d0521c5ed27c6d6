"""Fair sharing: what a cohort has is divided by weight, and whoever has more than its share gives some back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import manifests
from e2e.api import wait_for
from e2e.audit import truth
from e2e.topogate import Topogate
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.in_memory
GROUP_VERSION = "kueue.x-k8s.io/v1beta2"
ROOT = f"/apis/{GROUP_VERSION}"
RECLAIMS = {"reclaimWithinCohort": "Any"}
Json = dict[str, Any]


def build_cohort_quota(flavor: str, gpus: int) -> Json:
    amounts = [{"name": "cpu", "nominalQuota": "1000"}, {"name": GPU, "nominalQuota": str(gpus)}]
    return {"resourceGroups": [{"coveredResources": ["cpu", GPU], "flavors": [{"name": flavor, "resources": amounts}]}]}


@pytest.fixture
def shared(topogate: Topogate, scene: Scene, tmp_path: Path) -> Iterator[Scene]:
    """32 GPUs on 4 nodes are a cohort's; `main` has a weight of 1 in it, `other` of 3, and neither has anything of its own."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "fairSharing": {}}))
    topogate.kill_reconciler()
    topogate.start_reconciler(options=["--config", str(file)])
    cohort, flavor = f"{scene.prefix}cohort", f"{scene.prefix}flavor"
    body = {"apiVersion": GROUP_VERSION, "kind": "Cohort", "metadata": {"name": cohort}, "spec": build_cohort_quota(flavor, 32)}
    scene.api.create(f"{ROOT}/cohorts", body)
    nothing = {flavor: {"cpu": 0, GPU: 0}}
    for queue, weight in (("main", 1), ("other", 3)):
        name = f"{scene.prefix}{queue}"
        share: Json = {"fairSharing": {"weight": weight}, "preemption": RECLAIMS}
        scene.create(manifests.build_cluster_queue(name, nothing, cohortName=cohort, **share))
        scene.create(manifests.build_local_queue(f"fair-{queue}", scene.namespace, name))
    yield scene
    scene.clear()
    for path in (f"clusterqueues/{scene.prefix}main", f"clusterqueues/{scene.prefix}other", f"cohorts/{cohort}"):
        scene.api.delete(f"{ROOT}/{path}")


def submit(scene: Scene, queue: str, count: int) -> list[str]:
    names = [f"{queue}{i}" for i in range(count)]
    for name in names:
        scene.submit(name, pods=1, gpus=4, unconstrained="true", queue=f"fair-{queue}")
    return names


def bound(now: truth.Snapshot, names: list[str]) -> int:
    return sum(truth.check_all_bound(now, name, 1) == [] for name in names)


def wait_until_share(scene: Scene, path: str, share: int) -> None:
    """Until the status of a queue or cohort tells this weighted share."""

    def told() -> bool:
        status = scene.api.get(f"{ROOT}/{path}").get("status") or {}
        return bool((status.get("fairSharing") or {}).get("weightedShare") == share)

    wait_for(f"{path} to tell a share of {share}", told)


def wait_until_judged(scene: Scene, name: str) -> None:
    scene.eventually(f"{name} to wait", lambda now: truth.get_condition(now.workload_of(name), "QuotaReserved"))


def test_a_hog_is_cut_back_to_its_share(shared: Scene) -> None:
    hogs = submit(shared, "main", 8)
    shared.eventually("all GPUs to be the hog's", lambda now: bound(now, hogs) == 8)
    wait_until_share(shared, f"clusterqueues/{shared.prefix}main", 1000)
    others = submit(shared, "other", 8)
    now = shared.eventually("GPUs to be divided by weight", lambda now: (bound(now, hogs), bound(now, others)) == (2, 6))
    stopped = [name for name in hogs if truth.check_all_bound(now, name, 1)]
    for name in stopped:
        told = truth.get_condition(now.workload_of(name), "Preempted")
        assert (told["status"], told["reason"]) == ("True", "InCohortFairSharing")
        assert "due to fair sharing within the cohort; preemptor path: /" in told["message"]
    for queue in ("main", "other"):
        wait_until_share(shared, f"clusterqueues/{shared.prefix}{queue}", 250)
    wait_until_share(shared, f"cohorts/{shared.prefix}cohort", 0)


def test_fair_sharing_admits_workloads_by_share_instead_of_creation_order(shared: Scene) -> None:
    path, flavor = f"{ROOT}/cohorts/{shared.prefix}cohort", f"{shared.prefix}flavor"
    shared.api.patch(path, {"spec": build_cohort_quota(flavor, 0)})
    first = submit(shared, "main", 8)
    second = submit(shared, "other", 8)
    for name in (first[-1], second[-1]):
        wait_until_judged(shared, name)
    for queue in ("main", "other"):
        shared.api.patch(f"{ROOT}/clusterqueues/{shared.prefix}{queue}", {"spec": {"preemption": {"reclaimWithinCohort": "Never"}}})
    shared.api.patch(path, {"spec": build_cohort_quota(flavor, 32)})
    now = shared.eventually("the nodes to be full", lambda now: bound(now, first + second) == 8)
    assert (bound(now, first), bound(now, second)) == (2, 6)
    assert not any(truth.is_true(now.workload_of(name), "Evicted") for name in first + second)

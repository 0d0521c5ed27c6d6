"""Who is more important, or whose quota it is, gets room: others stop, queue up and come back."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import PRIORITY_CLASS_LABEL
from e2e import manifests
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.reconciler.scenes import GPU, QUEUES, Scene

pytestmark = pytest.mark.in_memory


def get_condition(scene: Scene, job: str, kind: str) -> dict[str, Any]:
    return dict(truth.get_condition(scene.read().workload_of(job), kind))


def test_a_whole_rack_is_made_free_for_a_higher_priority(scene: Scene, high: str) -> None:
    """Two racks hold two small jobs each; one rack is enough, and the other keeps running."""
    scene.allow_preemption()
    small = [f"small{i}" for i in range(4)]
    for name in small:
        scene.submit(name, pods=1, gpus=8, required=scene.rack)
        scene.until_bound(name, 1)
    scene.submit("large", pods=2, gpus=8, required=scene.rack, labels={PRIORITY_CLASS_LABEL: high})
    now = scene.until_bound("large", 2)
    assert truth.check_one_domain(now, "large", scene.rack) == []
    stopped = [name for name in small if truth.check_all_bound(now, name, 1)]
    assert len(stopped) == 2, "one rack is made free, not two"
    for name in stopped:
        message = scene.until_waiting(name, "TopologyPlacementFailed")
        assert "would fit" in message
        assert (scene.job(name)["spec"]["suspend"], scene.job(name)["status"].get("active", 0)) == (True, 0)
    told = get_condition(scene, stopped[0], "Preempted")
    assert (told["status"], told["reason"]) == ("True", "InClusterQueue")
    large = scene.read().workload_of("large")
    assert large is not None
    assert f"(UID: {large['metadata']['uid']}, JobUID: " in told["message"]
    assert f"preemptor path: /{scene.prefix}queue; preemptee path: /{scene.prefix}queue" in told["message"]
    assert get_condition(scene, stopped[0], "Evicted")["reason"] == "Preempted"
    scene.delete_job("large")
    for name in stopped:
        scene.until_bound(name, 1)
        assert get_condition(scene, name, "Preempted")["status"] == "False"


def test_lent_quota_is_reclaimed_by_its_owner(cluster: Cluster, topogate: Topogate) -> None:
    scene = Scene(cluster).open(quota=16)
    cohort, flavor, lender = f"{scene.prefix}cohort", f"{scene.prefix}flavor", f"{scene.prefix}lender"
    scene.api.patch(f"{QUEUES}/{scene.prefix}queue", {"spec": {"cohortName": cohort}})
    queue = manifests.build_cluster_queue(
        lender, {flavor: {"cpu": 1000, GPU: 16}}, cohortName=cohort, preemption={"reclaimWithinCohort": "Any"}
    )
    scene.create(queue)
    scene.create(manifests.build_local_queue("lender", scene.namespace, lender))
    scene.submit("own", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("own", 2)
    scene.submit("borrowed", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("borrowed", 2)
    scene.submit("owner", pods=2, gpus=8, required=scene.rack, queue="lender")
    now = scene.until_bound("owner", 2)
    assert truth.check_all_bound(now, "own", 2) == []
    message = scene.until_waiting("borrowed", "WaitingForQuota")
    assert f'cohort "{cohort}" has nothing to lend now' in message
    told = get_condition(scene, "borrowed", "Preempted")
    assert told["reason"] == "InCohortReclamation"
    assert f"preemptor path: /{cohort}/{lender}; preemptee path: /{cohort}/{scene.prefix}queue" in told["message"]
    scene.delete_job("owner")
    scene.until_bound("borrowed", 2)
    scene.close()
    scene.api.delete(f"{QUEUES}/{lender}")

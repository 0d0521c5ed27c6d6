"""What a user of one annotated Job sees, from apply to finish."""

from __future__ import annotations

import pytest

from core.names import TOPOLOGY_GATE, UNCONSTRAINED_TOPOLOGY, WORKLOAD_ANNOTATION
from e2e import manifests
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.nodes import build_node
from e2e.topogate import Topogate
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.in_memory


def test_a_required_rack_job_runs_in_one_rack_in_the_order_of_its_ranks(scene: Scene) -> None:
    scene.submit("train", pods=8, gpus=2, indexed=True, required=scene.rack)
    now = scene.until_bound("train", 8)
    assert truth.check_one_domain(now, "train", scene.rack) == []
    assert truth.as_assigned(now, "train") == []
    assert truth.check_rank_order(now, "train", ["kubernetes.io/hostname"]) == []
    scene.eventually("the condition on ranks", lambda now: truth.is_true(now.workload_of("train"), "topogate.dev/RankOrderKept"))


def test_manifest_of_a_running_job_with_false_unconstrained_is_applied_again_without_a_change(scene: Scene) -> None:
    manifest = manifests.build_job("plain", scene.namespace, pods=2)
    manifest["spec"]["template"]["metadata"] = {"annotations": {UNCONSTRAINED_TOPOLOGY: "false"}}
    scene.create(manifest)
    scene.until_bound("plain", 2)
    before = scene.job("plain")
    scene.patch_job("plain", {"spec": {"template": manifest["spec"]["template"]}})
    after = scene.job("plain")
    assert after["spec"] == before["spec"]
    assert after["spec"]["template"]["metadata"]["annotations"][UNCONSTRAINED_TOPOLOGY] == "true"


def test_two_jobs_that_want_the_last_rack_at_once_get_it_one_after_the_other(scene: Scene) -> None:
    scene.submit("filler", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("filler", 2)
    for name in ("one", "two"):
        scene.submit(name, pods=2, gpus=8, required=scene.rack)
    now = scene.eventually(
        "one of the two to be bound", lambda now: any(truth.check_all_bound(now, name, 2) == [] for name in ("one", "two"))
    )
    winner, loser = ("one", "two") if truth.check_all_bound(now, "one", 2) == [] else ("two", "one")
    message = scene.until_waiting(loser, "TopologyPlacementFailed")
    assert scene.rack in message
    assert f"It would fit if 8 {GPU} were freed on each of " in message
    assert truth.check_invariants(scene.read()) == []
    scene.delete_job(winner)
    scene.until_bound(loser, 2)


def test_a_job_that_cannot_fit_is_admitted_soon_after_a_node_that_helps_is_added(scene: Scene) -> None:
    scene.submit("big", pods=3, gpus=8, required=scene.rack)
    message = scene.until_waiting("big", "TopologyPlacementFailed")
    assert "2 out of 3 pod(s)" in message
    assert truth.check_waiting_reason(scene.read(), "big", GPU) == []
    scene.cluster.add_nodes([build_node(scene.pool, 1, 1, 3)])
    scene.until_bound("big", 3)


def test_finishing_gives_quota_and_place_back(cluster: Cluster, topogate: Topogate) -> None:
    scene = Scene(cluster).open(quota=16)
    scene.submit("first", pods=2, gpus=8, required=scene.rack, run_seconds=6)
    scene.eventually("first to be admitted", lambda now: truth.is_true(now.workload_of("first"), "Admitted"))
    scene.submit("second", pods=2, gpus=8, required=scene.rack)
    assert "needs " in scene.until_waiting("second", "WaitingForQuota")
    scene.until_bound("second", 2)
    now = scene.eventually("first to be finished", lambda now: truth.is_true(now.workload_of("first"), "Finished"))
    workload = now.workload_of("first")
    assert workload is not None
    assert truth.get_condition(workload, "Finished")["reason"] == "Succeeded"
    scene.eventually("its finalizer to go", lambda now: not (now.workload_of("first") or {})["metadata"].get("finalizers"))
    scene.close()


def test_suspending_a_running_job_by_hand_gives_its_place_back_and_unsuspending_asks_again(scene: Scene) -> None:
    original = scene.submit("held", pods=4, gpus=8, required=scene.block)["spec"]["template"]
    scene.until_bound("held", 4)
    scene.patch_job("held", {"spec": {"suspend": True}})
    scene.eventually(
        "quota to be given back", lambda now: truth.get_condition(now.workload_of("held"), "QuotaReserved").get("status") == "False"
    )
    restored = scene.job("held")["spec"]["template"]
    assert restored["spec"] == original["spec"]
    assert WORKLOAD_ANNOTATION not in restored["metadata"]["annotations"]
    scene.submit("next", pods=4, gpus=8, required=scene.block)
    scene.until_bound("next", 4)
    scene.patch_job("held", {"spec": {"suspend": False}})
    assert "allow to fit any" in scene.until_waiting("held", "TopologyPlacementFailed")
    scene.eventually("it to be suspended again", lambda now: scene.job("held")["spec"]["suspend"] is True)
    scene.delete_job("next")
    scene.until_bound("held", 4)


def test_deactivating_a_workload_stops_its_job_and_activating_starts_it_again(scene: Scene) -> None:
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("train", 2)
    scene.patch_workload("train", {"spec": {"active": False}})
    now = scene.eventually("the job to be stopped", lambda now: now.workload_of("train") and not now.pods_of("train"))
    assert truth.get_condition(now.workload_of("train"), "Evicted").get("reason") == "Deactivated"
    scene.eventually("admission to be gone", lambda now: "admission" not in (now.workload_of("train") or {}).get("status", {}))
    scene.patch_workload("train", {"spec": {"active": True}})
    scene.until_bound("train", 2)


def test_deleting_a_job_while_its_pods_are_gated_frees_its_place(scene: Scene, topogate: Topogate) -> None:
    scene.submit("gone", pods=4, gpus=8, required=scene.block)
    scene.eventually("its pods to be made", lambda now: len(now.pods_of("gone")) == 4)
    scene.delete_job("gone")
    scene.submit("next", pods=4, gpus=8, required=scene.block)
    scene.until_bound("next", 4)
    scene.eventually("the old workload to be gone", lambda now: now.workload_of("gone") is None)


def test_deleting_the_workload_of_a_running_job_stops_it_and_queues_it_anew(scene: Scene) -> None:
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    old = scene.until_bound("train", 2).workload_of("train")
    assert old is not None
    scene.api.delete(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{scene.namespace}/workloads/{old['metadata']['name']}")

    def is_new(now: truth.Snapshot) -> bool:
        workload = now.workload_of("train")
        return (
            workload is not None and workload["metadata"]["uid"] != old["metadata"]["uid"] and truth.check_all_bound(now, "train", 2) == []
        )

    scene.eventually("a new workload to be bound", is_new)


def test_a_job_unsuspended_by_hand_does_not_slip_past_placement(scene: Scene) -> None:
    scene.submit("filler", pods=4, gpus=8, required=scene.block)
    scene.until_bound("filler", 4)
    scene.submit("sly", pods=1, gpus=8, required=scene.rack)
    scene.until_waiting("sly", "TopologyPlacementFailed")
    scene.patch_job("sly", {"spec": {"suspend": False}})
    now = scene.eventually("it to be suspended again", lambda now: scene.job("sly")["spec"]["suspend"])
    assert not [pod for pod in now.pods_of("sly") if pod["spec"].get("nodeName")]


def test_pods_of_others_are_counted(scene: Scene) -> None:
    for number, node in enumerate(sorted(scene.read().nodes)):
        if node.startswith(scene.prefix):
            pod = manifests.build_job("x", scene.namespace, pods=1, gpus=1)["spec"]["template"]["spec"] | {"nodeName": node}
            metadata = {"name": f"other-{number}", "namespace": scene.namespace}
            scene.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})
    scene.submit("whole", pods=1, gpus=8, required=scene.rack)
    assert f'excluded: resource "{GPU}": 4' in scene.until_waiting("whole", "TopologyPlacementFailed")
    scene.submit("smaller", pods=4, gpus=7, required=scene.block)
    scene.until_bound("smaller", 4)
    scene.delete_job("smaller")
    for number in range(8):
        if scene.api.find(f"/api/v1/namespaces/{scene.namespace}/pods/other-{number}") is not None:
            scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/other-{number}", grace_period_s=0)
    scene.until_bound("whole", 1)


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_the_queueing_strategy_decides_whether_a_blocked_head_blocks_others(cluster: Cluster, topogate: Topogate, strategy: str) -> None:
    scene = Scene(cluster).open(strategy=strategy)
    scene.submit("head", pods=3, gpus=8, required=scene.rack)
    scene.until_waiting("head", "TopologyPlacementFailed")
    scene.submit("small", pods=1, gpus=1, required=scene.rack)
    if strategy == "StrictFIFO":
        assert "is before this one" in scene.until_waiting("small", "PendingEvaluation")
        scene.delete_job("head")
    scene.until_bound("small", 1)
    scene.close()


def test_a_plain_flavor_takes_the_gate_away_at_start(cluster: Cluster, topogate: Topogate) -> None:
    scene = Scene(cluster).open_without_queue()
    scene.create(manifests.build_flavor(f"{scene.prefix}flavor", scene.pool.labels, None))
    scene.create(manifests.build_cluster_queue(f"{scene.prefix}queue", {f"{scene.prefix}flavor": {"cpu": 100, GPU: 100}}))
    scene.create(manifests.build_local_queue("main", scene.namespace, f"{scene.prefix}queue"))
    scene.submit("plain", pods=2, gpus=1)
    now = scene.eventually("plain pods to be bound", lambda now: len([p for p in now.pods_of("plain") if p["spec"].get("nodeName")]) == 2)
    assert all(pod["spec"]["nodeName"].startswith(scene.prefix) for pod in now.pods_of("plain"))
    scene.submit("topological", pods=2, gpus=1, required=scene.rack)
    assert "does not support TopologyAwareScheduling" in scene.until_waiting("topological", "NoMatchingFlavor")
    gates = scene.job("topological")["spec"]["template"]["spec"]["schedulingGates"]
    assert gates == [{"name": TOPOLOGY_GATE}]
    scene.close()


def test_the_next_flavor_is_tried_where_topology_fails_on_the_first(cluster: Cluster, topogate: Topogate) -> None:
    scene = Scene(cluster, racks=1, nodes=2).open()
    other = Scene(cluster, racks=1, nodes=4)
    cluster.add_nodes(other.pool)
    scene.create(manifests.build_flavor(f"{other.prefix}flavor", other.pool.labels, f"{scene.prefix}topology"))
    quotas = {f"{p}flavor": {"cpu": 100, GPU: 100} for p in (scene.prefix, other.prefix)}
    scene.create(manifests.build_cluster_queue(f"{other.prefix}queue", quotas))
    scene.create(manifests.build_local_queue("both", scene.namespace, f"{other.prefix}queue"))
    scene.submit("second", pods=4, gpus=8, queue="both", required=scene.rack)
    now = scene.until_bound("second", 4)
    assert all(pod["spec"]["nodeName"].startswith(other.prefix) for pod in now.pods_of("second"))
    scene.submit("neither", pods=5, gpus=8, queue="both", required=scene.rack)
    message = scene.until_waiting("neither", "TopologyPlacementFailed")
    assert message.count("of 5 pods") >= 2
    scene.delete_job("second")
    scene.delete_job("neither")
    scene.eventually("the flavor to be free", lambda now: not now.workloads)
    scene.api.delete(f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{other.prefix}queue")
    scene.api.delete(f"/apis/kueue.x-k8s.io/v1beta2/resourceflavors/{other.prefix}flavor")
    scene.cluster.delete_nodes([name for name in now.nodes if name.startswith(other.prefix)])
    scene.close()


def test_a_job_that_wants_no_pods_yet_holds_nothing_and_runs_once_it_wants_some(scene: Scene) -> None:
    scene.submit("idle", pods=0, gpus=8, required=scene.rack, spec={"parallelism": 0, "completions": 2})
    scene.eventually("it to be started", lambda now: not scene.job("idle")["spec"]["suspend"])
    scene.submit("other", pods=4, gpus=8, required=scene.block)
    scene.until_bound("other", 4)
    scene.delete_job("other")
    scene.patch_job("idle", {"spec": {"parallelism": 2}})
    scene.until_bound("idle", 2)

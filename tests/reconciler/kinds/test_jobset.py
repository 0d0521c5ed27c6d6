"""JobSet, its controller by a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, QUEUE_NAME_LABEL
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.manifests import build_job
from e2e.standins.jobset import JobSetStandIn
from e2e.topogate import Topogate
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory


@pytest.fixture(scope="module")
def jobsets(cluster: Cluster, topogate: Topogate) -> Iterator[JobSetStandIn]:
    """The kind is installed while topogate runs."""
    with JobSetStandIn(cluster.api) as running:
        yield running
    running.uninstall()


def replicated(name: str, replicas: int, pods: int, **asked: Any) -> dict[str, Any]:
    spec = build_job(name, "any", pods=pods, gpus=4, **asked)["spec"]
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {key: spec[key] for key in ("parallelism", "completions", "template")}},
    }


def build_jobset(scene: Scene, name: str, *jobs: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}},
        "spec": {"replicatedJobs": list(jobs)},
    }


def test_each_job_of_a_jobset_is_in_one_rack_in_the_order_of_its_ranks(scene: Scene, jobsets: JobSetStandIn) -> None:
    created = scene.create(
        build_jobset(
            scene,
            "train",
            replicated("leader", 1, 1, required=scene.block),
            replicated("workers", 2, 3, required=scene.block, slice_topology=scene.rack),
        )
    )
    assert created["spec"]["suspend"] is True
    now = scene.until_bound("train", 7)
    racks: dict[str, set[str]] = {}
    for pod in now.pods_of("train"):
        labels = pod["metadata"]["labels"]
        key = f"{labels['jobset.sigs.k8s.io/replicatedjob-name']}-{labels['jobset.sigs.k8s.io/job-index']}"
        racks.setdefault(key, set()).add(now.label_of(pod, scene.rack))
    assert {key: len(found) for key, found in racks.items()} == {"leader-0": 1, "workers-0": 1, "workers-1": 1}
    by_rank = sorted(
        (
            int(labels["jobset.sigs.k8s.io/job-index"]),
            int(labels["batch.kubernetes.io/job-completion-index"]),
            now.label_of(pod, HOSTNAME_LABEL),
        )
        for pod in now.pods_of("train")
        if (labels := pod["metadata"]["labels"])["jobset.sigs.k8s.io/replicatedjob-name"] == "workers"
    )
    hosts = [host for *_, host in by_rank]
    assert hosts == sorted(hosts), "consecutive ranks share nodes"
    scene.eventually("the condition on ranks", lambda now: truth.is_true(now.workload_of("train"), "topogate.dev/RankOrderKept"))
    scene.api.delete(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{scene.namespace}/jobsets/train")

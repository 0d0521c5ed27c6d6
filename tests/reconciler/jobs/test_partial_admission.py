"""A Job that can do with fewer pods: it runs with what there is, and gets its own number back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from core.names import COMPLETIONS_EQUAL_PARALLELISM, JOB_COMPLETION_INDEX_LABEL, MIN_PARALLELISM
from e2e import manifests
from e2e.audit import truth
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.in_memory
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"


def submit(scene: Scene, name: str, least: int, *, has_equal_completions: bool = False, **asked: Any) -> None:
    job = manifests.build_job(name, scene.namespace, **asked)
    job["metadata"]["annotations"] = {
        MIN_PARALLELISM: str(least),
        **({COMPLETIONS_EQUAL_PARALLELISM: "true"} if has_equal_completions else {}),
    }
    scene.create(job)


def count_admitted(now: truth.Snapshot, job: str) -> int | None:
    workload = now.workload_of(job) or {}
    given = ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or []
    return int(given[0]["count"]) if given else None


def parallelism(scene: Scene, job: str) -> tuple[int, bool]:
    spec: dict[str, Any] = scene.job(job)["spec"]
    return spec["parallelism"], spec["suspend"]


def test_a_job_runs_with_as_many_pods_as_fit_and_is_restored_when_it_is_evicted(scene: Scene) -> None:
    """A rack has 16 GPUs: of six pods with four each, four fit in one."""
    submit(scene, "flexible", 2, pods=6, gpus=4, required=scene.rack)
    now = scene.until_bound("flexible", 4)
    assert truth.check_one_domain(now, "flexible", scene.rack) == []
    assert (count_admitted(now, "flexible"), parallelism(scene, "flexible")) == (4, (4, False))
    assert scene.job("flexible")["spec"]["completions"] == 6
    scene.patch_job("flexible", {"spec": {"parallelism": 6, "completions": 6}})
    assert parallelism(scene, "flexible") == (4, False), "its manifest applied again changes nothing"
    scene.api.patch(f"{QUEUES}/{scene.prefix}queue", {"spec": {"stopPolicy": "HoldAndDrain"}})
    scene.eventually("it to have stopped", lambda now: count_admitted(now, "flexible") is None)
    scene.eventually("its own number of pods", lambda _: parallelism(scene, "flexible") == (6, True))
    scene.api.patch(f"{QUEUES}/{scene.prefix}queue", {"spec": {"stopPolicy": "None"}})
    scene.until_bound("flexible", 4)


def test_quota_counts_the_pods_that_were_admitted(scene: Scene) -> None:
    flavor = f"{scene.prefix}flavor"
    quotas = [{"name": "cpu", "nominalQuota": "1000"}, {"name": GPU, "nominalQuota": "10"}]
    group = {"coveredResources": ["cpu", GPU], "flavors": [{"name": flavor, "resources": quotas}]}
    scene.api.patch(f"{QUEUES}/{scene.prefix}queue", {"spec": {"resourceGroups": [group]}})
    scene.submit("stiff", pods=6, gpus=2, unconstrained="true")
    assert "12" in scene.until_waiting("stiff", "ExceedsMaxQuota")
    submit(scene, "flexible", 5, pods=6, gpus=2, unconstrained="true")
    now = scene.until_bound("flexible", 5)
    (given,) = (now.workload_of("flexible") or {})["status"]["admission"]["podSetAssignments"]
    assert (given["count"], given["resourceUsage"][GPU]) == (5, "10")


def succeed(scene: Scene, job: str, indexes: Collection[int]) -> None:
    for pod in scene.read().pods_of(job):
        if int(pod["metadata"]["labels"][JOB_COMPLETION_INDEX_LABEL]) in indexes and not truth.is_terminal(pod):
            scene.end_pod(pod["metadata"]["name"], {"phase": "Succeeded"})
    scene.eventually("these to be counted", lambda _: (scene.job(job).get("status") or {}).get("succeeded", 0) > max(indexes))


@pytest.mark.long
def test_job_with_equal_completions_stopped_after_successes_runs_its_other_indexes(scene: Scene) -> None:
    submit(scene, "ranks", 1, has_equal_completions=True, pods=6, gpus=2, indexed=True, unconstrained="true")
    scene.until_bound("ranks", 6)
    succeed(scene, "ranks", range(4))
    scene.eventually("the workload to know", lambda now: (now.workload_of("ranks") or {})["status"].get("reclaimablePods"))
    scene.api.patch(f"{QUEUES}/{scene.prefix}queue", {"spec": {"stopPolicy": "HoldAndDrain"}})
    scene.eventually("it to have stopped", lambda now: count_admitted(now, "ranks") is None)
    scene.api.patch(f"{QUEUES}/{scene.prefix}queue", {"spec": {"stopPolicy": "None"}})
    scene.eventually("the others to run", lambda _: (scene.job("ranks").get("status") or {}).get("active") == 2)
    assert (parallelism(scene, "ranks"), scene.job("ranks")["spec"]["completions"]) == ((2, False), 6)
    scene.until_bound("ranks", 2)
    succeed(scene, "ranks", range(4, 6))
    scene.eventually("it to be complete", lambda _: is_complete(scene.job("ranks")))
    assert scene.job("ranks")["status"]["completedIndexes"] == "0-5"


def is_complete(job: Mapping[str, Any]) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Complete" and condition["status"] == "True" for condition in conditions)

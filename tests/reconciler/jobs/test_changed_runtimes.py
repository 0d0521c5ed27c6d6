"""TrainJobs with a runtime that their user changes while they run: no more pods run than were admitted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.names import QUEUE_NAME_LABEL
from e2e import manifests
from e2e.api import Api
from e2e.audit import truth
from e2e.audit.recount import recount
from e2e.cluster import Cluster
from e2e.standins.jobset import JobSetStandIn
from e2e.standins.trainjob import TrainJobStandIn
from e2e.topogate import Topogate
from tests.reconciler.kinds.scenarios import runtime
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.in_memory
TRAINER, JOBSETS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
GROUP_VERSION = "kueue.x-k8s.io/v1beta2"


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Quota for two pods of eight GPUs, on a flavor without a topology."""
    opened = Scene(cluster).open(quota=16)
    flavor = f"{opened.prefix}anywhere"
    opened.create(manifests.build_flavor(flavor, opened.pool.labels, None))
    opened.create(manifests.build_cluster_queue(f"{opened.prefix}open", {flavor: {"cpu": 1000, GPU: 16}}))
    opened.api.delete(f"/apis/{GROUP_VERSION}/namespaces/{opened.namespace}/localqueues/main")
    opened.create(manifests.build_local_queue("main", opened.namespace, f"{opened.prefix}open"))
    with TrainJobStandIn(cluster.api) as trainer, JobSetStandIn(cluster.api) as jobsets:
        yield opened
        opened.api.delete(f"{TRAINER.format(opened.namespace)}/trainjobs/train")
        opened.eventually("its pods to be gone", lambda now: not now.pods_in(opened.namespace))
    opened.close()
    for standin in (trainer, jobsets):
        standin.uninstall()
    for plural, name in (("clusterqueues", "open"), ("resourceflavors", "anywhere")):
        opened.api.delete(f"/apis/{GROUP_VERSION}/{plural}/{opened.prefix}{name}")


def run(scene: Scene) -> str:
    """The path of the runtime of a TrainJob that runs with one pod."""
    path = TRAINER.format(scene.namespace)
    made = runtime() | {"kind": "TrainingRuntime"}
    (node,) = made["spec"]["template"]["spec"]["replicatedJobs"]
    node["template"]["spec"]["template"]["spec"] = manifests.build_job("any", "any", pods=1, gpus=8)["spec"]["template"]["spec"]
    made["metadata"] |= {"namespace": scene.namespace}
    scene.api.create(f"{path}/trainingruntimes", made)
    name = made["metadata"]["name"]
    train = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}},
        "spec": {"runtimeRef": {"name": name, "kind": "TrainingRuntime"}},
    }
    scene.api.create(f"{path}/trainjobs", train)
    scene.eventually("its pod to be bound", lambda now: count_bound(now, scene) == 1)
    return f"{path}/trainingruntimes/{name}"


def count_bound(now: truth.Snapshot, scene: Scene) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in now.pods_in(scene.namespace))


def change(api: Api, path: str, **node: object) -> None:
    """What its runtime says of the pods that train."""
    replicated = api.get(path)["spec"]["template"]["spec"]["replicatedJobs"]
    replicated[0]["template"]["spec"] |= node
    api.patch(path, {"spec": {"template": {"spec": {"replicatedJobs": replicated}}}})


def test_train_job_with_jobset_made_again_by_larger_runtime_stops_and_waits_for_its_quota(scene: Scene) -> None:
    """Found by an attack: Trainer makes a JobSet that was deleted by the runtime as it is then, and more pods ran than were admitted."""
    path = run(scene)
    change(scene.api, path, parallelism=3, completions=3)
    scene.api.delete(f"{JOBSETS.format(scene.namespace)}/train")
    # The garbage collector would delete it, but learns of JobSets only some time after their definition came: over three minutes once.
    scene.api.delete(f"/apis/batch/v1/namespaces/{scene.namespace}/jobs/train-node-0?propagationPolicy=Background")
    scene.until_waiting("train", "ExceedsMaxQuota")
    scene.eventually("its pods to be gone", lambda now: count_bound(now, scene) == 0)
    assert recount(scene.api) == []

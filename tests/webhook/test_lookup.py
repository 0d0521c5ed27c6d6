"""What reviews look up: who an object is part of, and what it refers to."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.kinds import KINDS
from core.names import QUEUE_NAME_LABEL
from core.runtime.resource import Resource
from e2e.manifests import job
from tests.reconciler.kinds.scenarios import SCENARIOS, runtime
from tests.webhook.asking import MUTATE_JOB, Webhook, causes
from webhook.lookup import Lookup, LookupFailed
from webhook.review import Reviews

Json = dict[str, Any]


class Cluster:
    """Objects by kind and name; each lookup is counted."""

    def __init__(self, *objects: Json) -> None:
        self.objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
        self.lookups: list[str] = []

    async def find(self, resource: Resource, name: str, namespace: str) -> Json | None:
        self.lookups.append(f"{resource.kind} {name}")
        return self.objects.get((resource.kind, name))


def owned(kind: str, name: str, uid: str, owner: Json | None = None, queue: str | None = None) -> Json:
    metadata: Json = {"name": name, "uid": uid, "labels": {QUEUE_NAME_LABEL: queue} if queue else {}}
    if owner is not None:
        metadata["ownerReferences"] = [reference(owner)]
    version = {"JobSet": "jobset.x-k8s.io/v1alpha2", "TrainJob": "trainer.kubeflow.org/v1alpha1"}[kind]
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def reference(owner: Json, **changes: Any) -> Json:
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **owner["metadata"], "controller": True} | changes


TRAIN = owned("TrainJob", "t", "1", queue="main")
JOBSET = owned("JobSet", "s", "2", TRAIN)
LONE = owned("JobSet", "lone", "3")


def asking(cluster: Cluster) -> Webhook:
    webhook = Webhook(default_queue=True)

    async def has_default_queue(namespace: str) -> bool:
        return True

    webhook.reviews = Reviews(has_default_queue, find=cluster.find)
    return webhook


def child(*references: Json) -> Json:
    made = job("child", "team-a", pods=1, queue=None)
    made["metadata"]["ownerReferences"] = list(references)
    return made


@pytest.mark.parametrize(
    ("references", "part"),
    [
        ([reference(JOBSET)], True),
        ([reference(TRAIN)], True),
        ([reference(LONE)], False),
        ([reference(JOBSET, uid="9")], False),
        ([reference(JOBSET, controller=False)], False),
        ([reference(JOBSET, name="other")], False),
        ([reference(JOBSET, apiVersion="example.com/v1")], False),
        ([], False),
        ([{"controller": True}], False),
    ],
    ids=["of one above", "of its own", "owner is not queued", "another uid", "no controller", "no owner", "unknown kind", "none", "odd"],
)
def test_what_a_queued_objects_controller_makes_is_not_queued_itself(references: list[Json], part: bool):
    made = asking(Cluster(TRAIN, JOBSET, LONE)).mutate(child(*references))
    assert (QUEUE_NAME_LABEL in made["metadata"].get("labels", {})) == (not part)
    assert bool(made["spec"].get("suspend")) == (not part)


def test_who_has_no_owner_costs_no_lookup():
    cluster = Cluster()
    asking(cluster).mutate(child())
    assert cluster.lookups == []


def test_owners_in_a_circle_end():
    circle = owned("JobSet", "a", "1")
    circle["metadata"]["ownerReferences"] = [reference(circle)]
    cluster = Cluster(circle)
    asking(cluster).mutate(child(reference(circle)))
    assert len(cluster.lookups) < 10


def test_an_owner_that_cannot_be_looked_up_is_a_reason_to_try_again():
    webhook = asking(Cluster())

    async def fail(resource: Resource, name: str, namespace: str) -> Json | None:
        raise LookupFailed("503: etcd is slow")

    webhook.reviews = Reviews(webhook._has_default_queue, find=fail)
    response = webhook.ask(MUTATE_JOB, child(reference(JOBSET)))
    assert not response["allowed"]
    assert response["status"]["code"] == 503
    assert "the owner of the object could not be looked up" in response["status"]["message"]


def train_job(**trainer: Any) -> Json:
    scenario = next(scenario for scenario in SCENARIOS if scenario.kind == "TrainJob")
    spec = scenario.spec("cloud.provider.com/rack")
    annotations = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    annotations["metadata"]["annotations"] |= {
        "kueue.x-k8s.io/podset-slice-required-topology": "kubernetes.io/hostname",
        "kueue.x-k8s.io/podset-slice-size": "3",
    }
    metadata = {"name": "t", "namespace": "team-a", "labels": {QUEUE_NAME_LABEL: "main"}}
    return {"apiVersion": scenario.group_version, "kind": "TrainJob", "metadata": metadata, "spec": spec | {"trainer": trainer}}


def test_a_train_job_is_judged_with_its_runtime_and_let_pass_without():
    path = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
    refused = asking(Cluster(runtime())).ask(path, train_job(numNodes=4))
    assert causes(refused) == {
        "job[node].annotations[kueue.x-k8s.io/podset-slice-size]": '"3": slices must evenly divide the 4 pods: one of 1, 2, 4 is expected'
    }
    assert asking(Cluster(runtime())).ask(path, train_job(numNodes=6))["allowed"]
    assert asking(Cluster()).ask(path, train_job(numNodes=4))["allowed"], "judged again when its runtime is there"


async def test_a_runtime_that_cannot_be_looked_up_now_is_judged_afterwards():
    async def fail(resource: Resource, name: str, namespace: str) -> Json | None:
        raise LookupFailed("503")

    kind = next(kind for kind in KINDS if kind.kind == "TrainJob")
    made = train_job(numNodes=4)
    assert await Lookup(KINDS, fail).expanded(kind, made, "team-a") == made

"""What reviews look up: who an object is part of, and what it refers to."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.kinds.registry import KINDS
from core.jobs.pod_rules import MAX_TOLERATIONS
from core.names import ADMISSION_GATE, DOMAIN_INDEX_ANNOTATION, PODSET_LABEL, QUEUE_NAME_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from core.resource import Resource
from e2e.manifests import build_job
from tests.reconciler.kinds.scenarios import SCENARIOS, runtime
from tests.webhook.asking import MUTATE_JOB, Webhook, get_causes, hook
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


def build_owned(kind: str, name: str, uid: str, owner: Json | None = None, queue: str | None = None) -> Json:
    metadata: Json = {"name": name, "uid": uid, "labels": {QUEUE_NAME_LABEL: queue} if queue else {}}
    if owner is not None:
        metadata["ownerReferences"] = [build_reference(owner)]
    version = {"JobSet": "jobset.x-k8s.io/v1alpha2", "TrainJob": "trainer.kubeflow.org/v1alpha1"}[kind]
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def build_reference(owner: Json, **changes: Any) -> Json:
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **owner["metadata"], "controller": True} | changes


TRAIN = build_owned("TrainJob", "t", "1", queue="main")
JOBSET = build_owned("JobSet", "s", "2", TRAIN)
LONE = build_owned("JobSet", "lone", "3")


def build_webhook(cluster: Cluster) -> Webhook:
    webhook = Webhook(default_queue=True)

    async def has_default_queue(namespace: str) -> bool:
        return True

    webhook.reviews = Reviews(has_default_queue, find=cluster.find)
    return webhook


def build_child(*references: Json) -> Json:
    made = build_job("child", "team-a", pods=1, queue=None)
    made["metadata"]["ownerReferences"] = list(references)
    return made


@pytest.mark.parametrize(
    ("references", "part"),
    [
        ([build_reference(JOBSET)], True),
        ([build_reference(TRAIN)], True),
        ([build_reference(LONE)], False),
        ([build_reference(JOBSET, uid="9")], False),
        ([build_reference(JOBSET, controller=False)], False),
        ([build_reference(JOBSET, name="other")], False),
        ([build_reference(JOBSET, apiVersion="example.com/v1")], False),
        ([], False),
        ([{"controller": True}], False),
    ],
    ids=["of one above", "of its own", "owner is not queued", "another uid", "no controller", "no owner", "unknown kind", "none", "odd"],
)
def test_child_of_a_queued_object_is_not_queued_itself(references: list[Json], part: bool):
    made = build_webhook(Cluster(TRAIN, JOBSET, LONE)).mutate(build_child(*references))
    assert (QUEUE_NAME_LABEL in made["metadata"].get("labels", {})) == (not part)
    assert bool(made["spec"].get("suspend")) == (not part)


def test_object_without_an_owner_causes_no_lookup():
    cluster = Cluster()
    build_webhook(cluster).mutate(build_child())
    assert cluster.lookups == []


def test_owners_in_a_circle_end():
    circle = build_owned("JobSet", "a", "1")
    circle["metadata"]["ownerReferences"] = [build_reference(circle)]
    cluster = Cluster(circle)
    build_webhook(cluster).mutate(build_child(build_reference(circle)))
    assert len(cluster.lookups) < 10


def test_an_owner_that_cannot_be_looked_up_is_a_reason_to_try_again():
    webhook = build_webhook(Cluster())

    async def fail(resource: Resource, name: str, namespace: str) -> Json | None:
        raise LookupFailed("503: etcd is slow")

    webhook.reviews = Reviews(webhook._has_default_queue, find=fail)
    response = webhook.ask(MUTATE_JOB, build_child(build_reference(JOBSET)))
    assert not response["allowed"]
    assert response["status"]["code"] == 503
    assert "503: etcd is slow" in response["status"]["message"]


# --- pods, by way of what stands between them and what is queued for them -------------------------------------------


def above(kind: str, name: str, owner: Json | None = None, *, api: str = "apps/v1", queue: str | None = None, placed: bool = False) -> Json:
    metadata: Json = {"name": name, "uid": f"uid of {name}", "labels": {QUEUE_NAME_LABEL: queue} if queue else {}}
    metadata["annotations"] = {WORKLOAD_ANNOTATION: "w"} | ({DOMAIN_INDEX_ANNOTATION: "0"} if placed else {})
    metadata["ownerReferences"] = [build_reference(owner)] if owner else []
    return {"apiVersion": api, "kind": kind, "metadata": metadata}


def queued(name: str, kind: str, api: str, **spec: Any) -> Json:
    return {**above(kind, name, api=api, queue="main"), "spec": spec}


def scaled(replicas: int, obj: Json) -> Json:
    return {**obj, "spec": {"replicas": replicas}}


_ANY = {"apiVersion": "example.com/v1", "kind": "Any"}
_PODS = {"template": _ANY, "podSets": [{"path": "template.a", "replicas": 3}]}
WRAPPER = queued("wrapper", "AppWrapper", "workload.codeflare.dev/v1beta2", components=[_PODS])
SPARK = queued("spark", "SparkApplication", "sparkoperator.k8s.io/v1beta2", driver={}, executor={"instances": 2})
SET, DEPLOYMENT = scaled(3, above("StatefulSet", "set", WRAPPER)), scaled(3, above("Deployment", "deployment", WRAPPER))
REPLICAS = scaled(2, above("ReplicaSet", "replicas", DEPLOYMENT))
MORE = scaled(4, above("StatefulSet", "more", WRAPPER))
MANY = scaled(4, above("Deployment", "many", WRAPPER))
FEW = scaled(1, above("ReplicaSet", "few", MANY))
DRIVER, PLACED = above("Pod", "driver", SPARK, api="v1"), above("Pod", "placed", SPARK, api="v1", placed=True)
GROUPS = above("LeaderWorkerSet", "groups", WRAPPER, api="leaderworkerset.x-k8s.io/v1")
LEADERS = above("StatefulSet", "leaders", GROUPS)
LEADER = above("Pod", "leader", LEADERS, api="v1")
WORKERS = above("StatefulSet", "workers", LEADER)
PLAIN = above("ReplicaSet", "plain", above("Deployment", "plain"))
SERVING = above("StatefulSet", "serving", queue="main")
THERE = Cluster(
    WRAPPER, SPARK, SET, DEPLOYMENT, REPLICAS, DRIVER, PLACED, GROUPS, LEADERS, LEADER, WORKERS, PLAIN, SERVING, MORE, MANY, FEW
)


def build_pod(owner: Json | None, *, started: bool = True, queue: str | None = None, gated: bool = False) -> Json:
    made = above("Pod", "made", owner, api="v1", queue=queue)
    made["metadata"]["annotations"] = {WORKLOAD_ANNOTATION: "w"} if started else {}
    made["metadata"]["labels"] |= {PODSET_LABEL: "executor" if owner in (DRIVER, PLACED) else "wrapper-0"} if started else {}
    return {**made, "spec": {"containers": [{"name": "c"}], "schedulingGates": [{"name": TOPOLOGY_GATE}] if gated else []}}


def labelled(obj: Json, pod_set: str) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "labels": {PODSET_LABEL: pod_set}}}


def made_by(uid: str) -> Json:
    return {"userInfo": {"username": "someone", "extra": {"authentication.kubernetes.io/pod-uid": [uid]}}}


def is_queued_itself(cluster: Cluster, obj: Json, **changes: Any) -> bool:
    return ADMISSION_GATE in [gate["name"] for gate in build_webhook(cluster).mutate(obj, **changes)["spec"]["schedulingGates"]]


@pytest.mark.parametrize("owner", [SET, REPLICAS, LEADERS, WORKERS], ids=lambda owner: owner["metadata"]["name"])
def test_pod_of_an_object_in_an_app_wrapper_is_not_queued_itself(owner: Json):
    assert not is_queued_itself(THERE, build_pod(owner))


def test_an_executor_that_its_driver_makes_is_not_queued_a_second_time():
    assert not is_queued_itself(THERE, build_pod(DRIVER), **made_by(DRIVER["metadata"]["uid"]))
    assert not is_queued_itself(THERE, build_pod(PLACED, gated=True), **made_by(PLACED["metadata"]["uid"]))


@pytest.mark.parametrize(
    ("obj", "changes"),
    [
        (build_pod(DRIVER), {}),
        (build_pod(DRIVER), made_by(PLACED["metadata"]["uid"])),
        (build_pod(PLACED), made_by(PLACED["metadata"]["uid"])),
        (build_pod(LEADER), made_by(LEADER["metadata"]["uid"])),
        (build_pod(DRIVER, queue="main"), made_by(DRIVER["metadata"]["uid"])),
        (build_pod(SET, started=False), {}),
        (labelled(build_pod(SET), "another"), {}),
        (build_pod(MORE), {}),
        (build_pod(FEW), {}),
        (build_pod(PLAIN), {}),
        (build_pod(SERVING), {}),
        (build_pod(above("ReplicaSet", "gone", DEPLOYMENT)), {}),
        (build_pod({**SET, "metadata": {**SET["metadata"], "uid": "another"}}), {}),
        (build_pod(above("Workflow", "other", api="argoproj.io/v1")), {}),
        (build_pod(None), {}),
    ],
    ids=[
        "not made by the driver",
        "made by another pod",
        "past its place",
        "made by a leader that is no driver",
        "that names a queue",
        "no start put its marks on it",
        "of no pod set of it",
        "of a set scaled beyond what was admitted",
        "of a Deployment scaled beyond what was admitted",
        "of a Deployment alone",
        "of a StatefulSet whose pods are queued",
        "of what is gone",
        "of another uid",
        "of an unknown kind",
        "of nobody",
    ],
)
def test_pod_with_a_forged_part_label_is_queued_itself(obj: Json, changes: Json):
    assert is_queued_itself(THERE, obj, **changes)


def test_a_pod_that_no_start_has_marked_and_one_that_names_its_queue_cost_no_lookup():
    cluster = Cluster(*THERE.objects.values())
    for obj in (build_pod(SET, started=False), build_pod(REPLICAS, queue="main"), build_pod(None)):
        is_queued_itself(cluster, obj)
    assert cluster.lookups == []
    is_queued_itself(cluster, build_pod(REPLICAS))
    assert cluster.lookups == ["ReplicaSet replicas", "Deployment deployment", "AppWrapper wrapper"]


def test_pod_of_an_owner_that_cannot_be_looked_up_is_rejected_with_503():
    webhook = build_webhook(Cluster())

    async def fail(resource: Resource, name: str, namespace: str) -> Json | None:
        raise LookupFailed("503: etcd is slow")

    webhook.reviews = Reviews(webhook._has_default_queue, find=fail)
    response = webhook.ask(hook("mutate", "Pod"), build_pod(SET))
    assert (response["allowed"], response["status"]["code"]) == (False, 503)


def test_object_in_an_app_wrapper_gives_its_template_no_queue():
    for kind, queue_of in (("StatefulSet", WRAPPER), ("Deployment", WRAPPER)):
        template = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
        obj = {**above(kind, "made", queue_of), "spec": {"template": template}}
        assert build_webhook(THERE).mutate(obj) == obj


def build_train_job(**trainer: Any) -> Json:
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
    refused = build_webhook(Cluster(runtime())).ask(path, build_train_job(numNodes=4))
    ((field, message),) = get_causes(refused).items()
    assert field == "job[node].annotations[kueue.x-k8s.io/podset-slice-size]"
    assert message.startswith('"3": ')
    assert "4 pods" in message
    assert build_webhook(Cluster(runtime())).ask(path, build_train_job(numNodes=6))["allowed"]
    assert build_webhook(Cluster()).ask(path, build_train_job(numNodes=4))["allowed"], "judged again when its runtime is there"


async def test_a_runtime_that_cannot_be_looked_up_now_is_judged_afterwards():
    async def fail(resource: Resource, name: str, namespace: str) -> Json | None:
        raise LookupFailed("503")

    kind = next(kind for kind in KINDS if kind.kind == "TrainJob")
    made = build_train_job(numNodes=4)
    assert await Lookup(KINDS, fail).expand(kind, made, "team-a") == made


@pytest.mark.parametrize(("owner", "is_allowed"), [(JOBSET, True), (LONE, False), (None, False)])
def test_part_with_the_label_of_a_queue_may_exceed_limits(owner: Json | None, is_allowed: bool):
    """A RayCluster has the labels of its RayJob: with the tolerations that its start had added it was refused."""
    part = build_child(*([build_reference(owner)] if owner else []))
    part["metadata"]["labels"] = {QUEUE_NAME_LABEL: "main"}
    part["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}] * (MAX_TOLERATIONS + 1)
    webhook = build_webhook(Cluster(TRAIN, JOBSET, LONE))
    assert webhook.validate(part)["allowed"] is is_allowed
    part["spec"]["template"]["spec"]["nodeName"] = "n"
    assert (
        list(get_causes(webhook.validate(part)))
        == ["spec.template.spec.nodeName", "spec.template.spec.tolerations"][: 1 if is_allowed else 2]
    )

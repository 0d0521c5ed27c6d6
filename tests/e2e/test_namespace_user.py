"""What a user of a namespace (role `edit`) must not be able to do, each tried on the real API server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from core.names import (
    LWS_GROUP_INDEX_LABEL,
    LWS_NAME_LABEL,
    LWS_WORKER_INDEX_LABEL,
    MANAGED_NAMESPACE_LABEL,
    MEMBER_OF_LABEL,
    PODGROUP_GATE,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from e2e import manifests
from e2e.api import JSON_PATCH, Api, ApiError, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.standins.jobset import JobSetStandIn
from e2e.standins.ray import RayClusterStandIn, RayJobStandIn
from e2e.topogate import Topogate
from tests.e2e.users import assert_refused, create_user, may
from tests.installed import Installed
from tests.reconciler.kinds.pods import bound, list_live_pods, of_set
from tests.reconciler.kinds.pods import build_template as pod_template
from tests.reconciler.kinds.scenarios import build_template
from tests.reconciler.kinds.test_jobset import build_jobset, replicated
from tests.reconciler.scenes import GPU, JOBS, WORKLOADS, Scene

pytestmark = pytest.mark.cluster
PODS = "/api/v1/namespaces/{}/pods"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"


@pytest.fixture(scope="module")
def topogate(cluster: Cluster, installed: Installed, module_namespace: str) -> Iterator[Topogate]:
    with JobSetStandIn(cluster.api) as jobsets:
        running = installed.run()
        _await_policies(cluster.api, module_namespace)
        yield running
    jobsets.uninstall()


def _await_policies(api: Api, namespace: str) -> None:
    """The API server takes new policies up a moment after they are written."""
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "labels": {PODSET_LABEL: "a"}}}
    plain["spec"] = {"schedulingGates": [{"name": TOPOLOGY_GATE}], "containers": [{"name": "c", "image": "registry.example/c:1"}]}
    path = PODS.format(namespace)
    user = create_user(api, namespace)
    api.create(path, plain)

    def judged() -> bool:
        try:
            user.patch(f"{path}/probe", {"metadata": {"labels": {PODSET_LABEL: "b"}}})
        except ApiError as error:
            return "cannot be changed" in str(error)
        api.patch(f"{path}/probe", {"metadata": {"labels": {PODSET_LABEL: "a"}}})
        return False

    wait_for("the policies to hold", judged)
    api.delete(f"{path}/probe", grace_period_s=0)
    user.close()


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Quota for two pods of eight GPUs; the nodes have room for four."""
    opened = Scene(cluster).open(quota=16)
    yield opened
    opened.close()


@pytest.fixture
def user(scene: Scene) -> Iterator[Api]:
    """A service account with the role `edit`, and that of a user of JobSets and Ray, in the scene's namespace."""
    opened = create_user(scene.api, scene.namespace)
    yield opened
    opened.close()


def _get_operator(scene: Scene) -> Api:
    """An operator of Ray, which may write the status of RayJobs, as KubeRay may; it is no administrator."""
    operator = create_user(scene.api, scene.namespace, "operator")
    rules = [{"apiGroups": ["ray.io"], "resources": ["rayjobs/status"], "verbs": ["*"]}]
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{scene.namespace}"
    scene.api.create(f"{roles}/roles", {"metadata": {"name": "ray-status"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": scene.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ray-status"}
    scene.api.create(f"{roles}/rolebindings", {"metadata": {"name": "ray-status"}, "subjects": [subject], "roleRef": reference})
    wait_for("its right", lambda: may(operator, "update", "ray.io", "rayjobs/status", scene.namespace))
    return operator


# --- pods ---------------------------------------------------------------------------------------------------------


def list_started_gated_pods(scene: Scene, topogate: Topogate, name: str) -> list[dict[str, Any]]:
    """Gated pods of an admitted job, whose ungater is gone."""
    topogate.kill_reconciler()
    try:
        topogate.start_reconciler()
        scene.submit(name, pods=2, gpus=8, required=scene.rack)
        wait_for("the job to be started", lambda: not scene.job(name)["spec"].get("suspend"))
    finally:
        topogate.kill_reconciler()
    wait_for("its pods", lambda: len(scene.read().pods_of(name)) == 2)
    return [pod for pod in scene.read().pods_of(name) if pod["spec"].get("schedulingGates")]


def test_the_gate_of_a_group_cannot_be_taken_off(scene: Scene, user: Api, topogate: Topogate) -> None:
    """The reconciler is away: with its feature gate off it takes it off itself, and ends with that."""
    topogate.kill_reconciler()
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "member", "labels": {MEMBER_OF_LABEL: "g"}}}
    plain["spec"] = {"schedulingGates": [{"name": PODGROUP_GATE}], "containers": [{"name": "c", "image": "registry.example/c:1"}]}
    try:
        user.create(PODS.format(scene.namespace), plain)
        path = f"{PODS.format(scene.namespace)}/member"
        assert_refused(403, f"the scheduling gate {PODGROUP_GATE} is taken off by topogate", lambda: user.patch(path, NO_GATES))
        user.patch(path, {"metadata": {"labels": {MEMBER_OF_LABEL: "another"}}})  # into which group is their own business
    finally:
        topogate.start_reconciler()
    wait_for("it to be let go", lambda: not scene.api.get(path)["spec"].get("schedulingGates"))
    user.delete(path, grace_period_s=0)


def test_a_gate_cannot_be_taken_off(scene: Scene, user: Api, topogate: Topogate) -> None:
    try:
        for pod in list_started_gated_pods(scene, topogate, "train"):
            path = f"{PODS.format(scene.namespace)}/{pod['metadata']['name']}"
            assert_refused(
                403, f"the scheduling gate {TOPOLOGY_GATE} is taken off by topogate", lambda path=path: user.patch(path, NO_GATES)
            )
            assert_refused(
                403,
                "is taken off by topogate",
                lambda path=path: user.patch(path, [{"op": "remove", "path": "/spec/schedulingGates/0"}], JSON_PATCH),
            )
            user.patch(path, {"metadata": {"labels": {"mine": "still"}}})
    finally:
        topogate.start_reconciler()
    scene.until_bound("train", 2)


NO_GATES = {"spec": {"schedulingGates": None}}


def test_a_pod_cannot_be_given_to_another_workload(scene: Scene, user: Api) -> None:
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    pods = scene.until_bound("train", 2).pods_of("train")
    path = f"{PODS.format(scene.namespace)}/{pods[0]['metadata']['name']}"
    for metadata in (
        {"annotations": {WORKLOAD_ANNOTATION: "another"}},
        {"annotations": {WORKLOAD_ANNOTATION: None}},
        {"labels": {PODSET_LABEL: "another"}},
        {"labels": {PODSET_LABEL: None}},
    ):
        assert_refused(403, "names the owner of this pod", lambda metadata=metadata: user.patch(path, {"metadata": metadata}))


@pytest.mark.parametrize("label", [LWS_NAME_LABEL, LWS_GROUP_INDEX_LABEL, LWS_WORKER_INDEX_LABEL])
def test_a_pod_cannot_be_given_to_another_replica_of_its_leader_worker_set(label: str, scene: Scene, user: Api) -> None:
    labels = {LWS_NAME_LABEL: "lws", LWS_GROUP_INDEX_LABEL: "0", LWS_WORKER_INDEX_LABEL: "1"}
    spec = {"schedulingGates": [{"name": TOPOLOGY_GATE}], "containers": [{"name": "c", "image": "registry.example/c:1"}]}
    path = PODS.format(scene.namespace)
    scene.api.create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker", "labels": labels}, "spec": spec})
    for value in ("7", None):
        change = {"metadata": {"labels": {label: value}}}
        assert_refused(403, "says which workload this pod is of", lambda change=change: user.patch(f"{path}/worker", change))
    user.patch(f"{path}/worker", {"metadata": {"labels": {"mine": "still"}}})


def create_forged_pod(scene: Scene, victim: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A pod that says it is the victim's, and takes a whole node."""
    own = {key: victim["metadata"][key] for key in ("annotations", "labels")}
    container = {"name": "c", "image": "registry.example/c:1", "resources": {"limits": {GPU: "8"}}}
    spec = {"nodeSelector": dict(scene.pool.labels), "containers": [container], "schedulingGates": [{"name": TOPOLOGY_GATE}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "forged", **own, **metadata}, "spec": spec}


def test_a_forged_pod_of_anothers_job_is_refused_and_without_an_owner_stays_gated(scene: Scene, user: Api) -> None:
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    victim = scene.until_bound("train", 2).pods_of("train")[0]
    path = PODS.format(scene.namespace)
    owners = victim["metadata"]["ownerReferences"]
    assert_refused(
        403, "only the controller of Job may make", lambda: user.create(path, create_forged_pod(scene, victim, ownerReferences=owners))
    )
    user.create(path, create_forged_pod(scene, victim, labels={PODSET_LABEL: "main"}))  # the Job's own labels would have it adopted
    user.delete(f"{path}/{victim['metadata']['name']}", grace_period_s=0)
    scene.eventually("the job to be whole again", _two_of_the_job)
    forged = user.get(f"{path}/forged")
    assert forged["spec"].get("schedulingGates")
    assert not forged["spec"].get("nodeName")
    user.delete(f"{path}/forged", grace_period_s=0)


@pytest.mark.parametrize("is_other", [False, True], ids=["its namespace", "another namespace"])
def test_a_pod_that_names_a_pod_with_the_uid_of_a_job_as_its_controller_stops_no_job(is_other: bool, scene: Scene, user: Api) -> None:
    """Former defect: the job was evicted by each such pod, or its Workload deactivated for good."""
    scene.submit("train", pods=1, gpus=8, required=scene.rack)
    before = scene.until_bound("train", 1).pods_of("train")
    namespace = "default" if is_other else scene.namespace
    forger = create_user(scene.api, "default") if is_other else user
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "any", "uid": scene.job("train")["metadata"]["uid"], "controller": True}
    for labels in ({}, {PODSET_LABEL: "main"}):
        metadata = {"generateName": "forged-", "ownerReferences": [owner], "labels": labels}
        spec = {"schedulingGates": [{"name": TOPOLOGY_GATE}], "containers": [{"name": "c", "image": "registry.example/c:1"}]}
        forger.create(PODS.format(namespace), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    if is_other:
        forger.close()
    scene.submit("next", pods=1, gpus=8, required=scene.rack)
    now = scene.until_bound("next", 1)
    assert [pod["metadata"]["uid"] for pod in now.pods_of("train")] == [pod["metadata"]["uid"] for pod in before]
    assert not scene.job("train")["spec"].get("suspend")
    workload = now.workload_of("train")
    assert truth.get_condition(workload, "Admitted").get("status") == "True"
    assert truth.get_condition(workload, "Evicted").get("status") != "True"
    wait_for("the garbage collector to have deleted them", lambda: not _list_forged(scene.api, namespace))


def _list_forged(api: Api, namespace: str) -> list[dict[str, Any]]:
    return [pod for pod in api.list(PODS.format(namespace)) if pod["metadata"]["name"].startswith("forged-")]


def _two_of_the_job(now: truth.Snapshot) -> bool:
    pods = [pod for pod in now.pods_of("train") if pod["metadata"].get("ownerReferences")]
    return len(pods) == 2 and all(pod["spec"].get("nodeName") for pod in pods)


# --- jobs ---------------------------------------------------------------------------------------------------------


def test_a_job_unsuspended_by_hand_goes_past_no_quota_whatever_it_asks_for(scene: Scene, user: Api) -> None:
    """Without a topology annotation, too: its pods are gated from the start."""
    job = manifests.build_job("greedy", scene.namespace, pods=3, gpus=8)
    user.create(JOBS.format(scene.namespace), job)
    scene.until_waiting("greedy", "ExceedsMaxQuota")
    path = f"{JOBS.format(scene.namespace)}/greedy"
    user.patch(path, {"spec": {"suspend": False}})
    wait_for("it to be suspended again", lambda: user.get(path)["spec"].get("suspend"))
    pods = user.list(PODS.format(scene.namespace))
    assert [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")] == []


def test_a_gate_cannot_be_taken_off_the_template_to_get_past_the_queue(scene: Scene, user: Api) -> None:
    user.create(JOBS.format(scene.namespace), manifests.build_job("greedy", scene.namespace, pods=3, gpus=8))
    scene.until_waiting("greedy", "ExceedsMaxQuota")
    path = f"{JOBS.format(scene.namespace)}/greedy"
    ungated = {"spec": {"suspend": False, "template": {"spec": {"schedulingGates": None}}}}
    told = f"the scheduling gate {TOPOLOGY_GATE} of a queued Job is taken off by topogate"
    assert_refused(403, told, lambda: user.patch(path, ungated))
    assert_refused(403, told, lambda: user.patch(path, {"spec": {"template": {"spec": {"schedulingGates": None}}}}))


def test_a_jobset_cannot_be_unsuspended_by_hand(scene: Scene, user: Api) -> None:
    path = JOBSETS.format(scene.namespace)
    user.create(path, build_jobset(scene, "greedy", replicated("workers", 3, 2)))
    scene.until_waiting("greedy", "ExceedsMaxQuota")
    assert_refused(403, "a queued JobSet is started by topogate", lambda: user.patch(f"{path}/greedy", {"spec": {"suspend": False}}))
    user.delete(f"{path}/greedy")


def test_a_job_cannot_claim_to_be_part_of_a_queued_one(scene: Scene, user: Api) -> None:
    path = JOBSETS.format(scene.namespace)
    owner = user.create(path, build_jobset(scene, "honest", replicated("workers", 1, 1)))
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "honest", "uid": owner["metadata"]["uid"]}
    job = manifests.build_job("greedy", scene.namespace, pods=3, gpus=8)
    job["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    told = "only the controller of JobSet may make objects that a JobSet controls"
    assert_refused(403, told, lambda: user.create(JOBS.format(scene.namespace), job))
    job["metadata"]["ownerReferences"] = []
    user.create(JOBS.format(scene.namespace), job)
    claim = {"metadata": {"ownerReferences": [reference | {"controller": True}]}}
    assert_refused(403, told, lambda: user.patch(f"{JOBS.format(scene.namespace)}/greedy", claim))
    user.delete(f"{path}/honest")


def test_a_job_cannot_become_part_of_a_queued_one_in_two_steps(scene: Scene, user: Api) -> None:
    path = JOBSETS.format(scene.namespace)
    owner = user.create(path, build_jobset(scene, "honest", replicated("workers", 1, 1)))
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "honest", "uid": owner["metadata"]["uid"]}
    job = manifests.build_job("greedy", scene.namespace, pods=3, gpus=8)
    job["metadata"]["ownerReferences"] = [reference]
    user.create(JOBS.format(scene.namespace), job)
    claim = {"metadata": {"ownerReferences": [reference | {"controller": True}]}}
    told = "only the controller of JobSet may make objects that a JobSet controls"
    assert_refused(403, told, lambda: user.patch(f"{JOBS.format(scene.namespace)}/greedy", claim))
    user.delete(f"{path}/honest")


@pytest.mark.parametrize(
    ("kind", "plural"), [("Deployment", "deployments"), ("StatefulSet", "statefulsets"), ("ReplicaSet", "replicasets")]
)
def test_job_of_a_user_with_a_forged_owner_reference_is_refused(kind: str, plural: str, scene: Scene, user: Api) -> None:
    job = manifests.build_job("greedy", scene.namespace, pods=3, gpus=8)
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": "any", "uid": "11111111-2222-3333-4444-555555555555", "controller": True}
    job["metadata"]["ownerReferences"] = [reference]
    assert_refused(403, f"only the controller of {kind} may make", lambda: user.create(JOBS.format(scene.namespace), job))


def test_a_part_of_an_admitted_object_is_changed_by_its_controller_alone(scene: Scene, user: Api) -> None:
    path = JOBSETS.format(scene.namespace)
    user.create(path, build_jobset(scene, "honest", replicated("workers", 1, 1)))
    scene.until_bound("honest", 1)
    part = f"{JOBS.format(scene.namespace)}/honest-workers-0"
    assert_refused(403, "this object is a part of a JobSet", lambda: user.patch(part, {"spec": {"parallelism": 2}}))
    user.patch(part, {"metadata": {"labels": {"mine": "still"}}})
    user.delete(f"{path}/honest")


def test_a_part_that_is_no_job_is_changed_by_its_controller_alone_too(scene: Scene, user: Api) -> None:
    """The Ray cluster of a RayJob, whose pods were admitted with the RayJob."""
    with RayJobStandIn(scene.api) as jobs, RayClusterStandIn(scene.api) as clusters:
        ray = "/apis/ray.io/v1/namespaces/{}/{}"
        group = {"groupName": "workers", "replicas": 1, "template": build_template(scene.rack)}
        cluster = {"headGroupSpec": {"template": build_template(scene.rack)}, "workerGroupSpecs": [group]}
        metadata = {"name": "honest", "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}}
        spec = {"shutdownAfterJobFinishes": True, "submissionMode": "HTTPMode", "rayClusterSpec": cluster}
        job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": spec}
        user.create(ray.format(scene.namespace, "rayjobs"), job)
        scene.eventually("the cluster's pods to be bound", lambda now: bound(list_live_pods(now, scene), 2))
        path = ray.format(scene.namespace, "rayclusters")
        (part,) = user.list(path)
        part_path, told = f"{path}/{part['metadata']['name']}", "this object is a part of a RayJob"
        more = {"spec": {"workerGroupSpecs": [{**part["spec"]["workerGroupSpecs"][0], "replicas": 4}]}}
        assert_refused(403, told, lambda: user.patch(part_path, more))
        assert_refused(403, told, lambda: user.patch(part_path, {"metadata": {"ownerReferences": None}}))
        user.patch(part_path, {"metadata": {"labels": {"mine": "still"}}})
        # Former defect: KubeRay copies the queue label onto the clusters that it makes, and could not start them any more.
        operator = _get_operator(scene)
        scene.api.patch(part_path, {"metadata": {"labels": {QUEUE_NAME_LABEL: "main"}}, "spec": {"suspend": True}})
        with pytest.raises(ApiError) as by_hand:
            user.patch(part_path, {"spec": {"suspend": False}})
        assert by_hand.value.status == 403
        operator.patch(part_path, {"spec": {"suspend": False}})
        operator.close()
        user.create(path, {**part, "metadata": {"name": "free"}})
        user.patch(f"{path}/free", more)
        for obj in (f"{path}/free", f"{ray.format(scene.namespace, 'rayjobs')}/honest"):
            user.delete(obj)
    for standin in (jobs, clusters):
        standin.uninstall()


def test_replica_set_or_stateful_set_of_a_user_with_a_forged_controller_is_refused(scene: Scene, user: Api) -> None:
    """Else pods of a ReplicaSet or StatefulSet of a user's own would pass for those of an admitted AppWrapper."""
    path = "/apis/apps/v1/namespaces/{}/{}"
    anybody = {"name": "any", "uid": "11111111-2222-3333-4444-555555555555", "controller": True}
    replicas = of_set("ReplicaSet", scene, "forged", 1, pod_template(8))
    replicas["metadata"] |= {"labels": {}, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", **anybody}]}
    told = "only the controller of Deployment may make objects that a Deployment controls"
    assert_refused(403, told, lambda: user.create(path.format(scene.namespace, "replicasets"), replicas))

    owned = of_set("StatefulSet", scene, "forged", 0, pod_template(8))
    owned["metadata"] |= {"labels": {}, "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", **anybody}]}
    user.create(path.format(scene.namespace, "statefulsets"), owned)
    scene.api.patch(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": {MANAGED_NAMESPACE_LABEL: "true"}}})

    def is_refused() -> bool:
        """Once the API server has seen the namespace's label."""
        another = {**owned, "metadata": {**owned["metadata"], "name": "another"}}
        try:
            user.create(path.format(scene.namespace, "statefulsets"), another)
        except ApiError as error:
            return "a Pod may be an owner of this object, but not its controller" in str(error)
        scene.api.delete(f"{path.format(scene.namespace, 'statefulsets')}/another")
        return False

    wait_for("it to be refused", is_refused)


def test_a_running_job_keeps_its_queue_and_its_template(scene: Scene, user: Api) -> None:
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("train", 2)
    path = f"{JOBS.format(scene.namespace)}/train"
    assert_refused(422, "a running job keeps its queue", lambda: user.patch(path, {"metadata": {"labels": {QUEUE_NAME_LABEL: "other"}}}))
    assert_refused(422, "a running job keeps its queue", lambda: user.patch(path, {"metadata": {"labels": {QUEUE_NAME_LABEL: None}}}))
    assert_refused(
        422, "spec.template", lambda: user.patch(path, {"spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}}})
    )


def test_a_template_that_names_a_node_is_refused(scene: Scene, user: Api) -> None:
    job = manifests.build_job("greedy", scene.namespace, pods=1, pod_spec={"nodeName": f"{scene.prefix}b1-r1-n1"})
    assert_refused(422, "spec.template.spec.nodeName", lambda: user.create(JOBS.format(scene.namespace), job))
    metadata = {"name": "greedy", "labels": {QUEUE_NAME_LABEL: "main"}}
    spec = {"nodeName": f"{scene.prefix}b1-r1-n1", "containers": [{"name": "c", "image": "registry.example/c:1"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    assert_refused(422, "topogate chooses the nodes of a queued job", lambda: user.create(PODS.format(scene.namespace), pod))


def test_forged_marks_of_a_start_give_nothing(scene: Scene, user: Api) -> None:
    """A template that says it belongs to another's workload is that of the job's own once it starts."""
    scene.submit("train", pods=1, gpus=8, required=scene.rack)
    workload = scene.until_bound("train", 1).workload_of("train")
    assert workload is not None
    template = manifests.build_job("any", scene.namespace, pods=1, gpus=8, required=scene.rack)["spec"]["template"]
    template["metadata"]["annotations"][WORKLOAD_ANNOTATION] = workload["metadata"]["name"]
    template["metadata"]["labels"] = {PODSET_LABEL: "main"}
    user.create(JOBS.format(scene.namespace), manifests.build_job("forger", scene.namespace, pods=1, gpus=8, spec={"template": template}))
    now = scene.until_bound("forger", 1)
    own = now.workload_of("forger")
    assert own is not None
    assert own["metadata"]["name"] != workload["metadata"]["name"]
    assert truth.as_assigned(now, "forger") == []


# --- requests and workloads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "reason"), [("9000000000000000000", "ExceedsMaxQuota"), ("92233720368547758070", "ExceedsMaxQuota")])
def test_a_huge_request_waits_like_any_that_is_too_large(gpus: str, reason: str, scene: Scene, user: Api) -> None:
    container = {"name": "c", "image": "registry.example/c:1", "resources": {"limits": {GPU: gpus}}}
    job = manifests.build_job("huge", scene.namespace, pods=3, required=scene.rack, pod_spec={"containers": [container]})
    user.create(JOBS.format(scene.namespace), job)
    scene.until_waiting("huge", reason)
    scene.submit("small", pods=1, gpus=8, required=scene.rack)
    scene.until_bound("small", 1)


def test_negative_requests_lend_no_quota(scene: Scene, user: Api) -> None:
    """Refused by the API server in a Job; a custom resource may hold anything, but no Workload does."""
    container = {"name": "c", "image": "registry.example/c:1", "resources": {"requests": {GPU: "-8"}, "limits": {GPU: "-8"}}}
    job = manifests.build_job("negative", scene.namespace, pods=1, pod_spec={"containers": [container]})
    assert_refused(422, "must be greater than or equal to 0", lambda: user.create(JOBS.format(scene.namespace), job))
    wrong = replicated("workers", 1, 1)
    wrong["template"]["spec"]["template"]["spec"]["containers"] = [container]
    path = JOBSETS.format(scene.namespace)
    user.create(path, build_jobset(scene, "negative", wrong))
    now = scene.eventually("it to be told", lambda now: any(e["reason"] == "WorkloadRefused" for e in now.events))
    assert now.workload_of("negative") is None
    user.delete(f"{path}/negative")


def test_workloads_and_queues_are_not_a_users_to_write(scene: Scene, user: Api) -> None:
    """The API server's own RBAC: the role `edit` may read them alone."""
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    workload = scene.until_bound("train", 2).workload_of("train")
    assert workload is not None
    path = WORKLOADS.format(scene.namespace)
    own = {"apiVersion": workload["apiVersion"], "kind": "Workload", "metadata": {"name": "mine"}, "spec": workload["spec"]}
    assert_refused(403, "cannot create resource", lambda: user.create(path, own))
    name = workload["metadata"]["name"]
    assert_refused(403, "cannot patch resource", lambda: user.patch(f"{path}/{name}", {"spec": {"priority": 9}}))
    assert_refused(403, "cannot patch resource", lambda: user.patch(f"{path}/{name}/status", {"status": {"admission": None}}))
    queues = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{scene.namespace}/localqueues"
    assert_refused(403, "cannot patch resource", lambda: user.patch(f"{queues}/main", {"spec": {"clusterQueue": "other"}}))
    for each in (f"{path}/{name}", f"{queues}/main"):
        assert_refused(403, "cannot delete resource", partial(user.delete, each))


def test_in_a_managed_namespace_no_job_leaves_its_queue(scene: Scene, user: Api) -> None:
    scene.api.patch(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": {MANAGED_NAMESPACE_LABEL: "true"}}})
    user.create(JOBS.format(scene.namespace), manifests.build_job("greedy", scene.namespace, pods=3, gpus=8))
    scene.until_waiting("greedy", "ExceedsMaxQuota")
    path = f"{JOBS.format(scene.namespace)}/greedy"
    leaving = {"metadata": {"labels": {QUEUE_NAME_LABEL: None}}}

    def is_refused() -> bool:
        """Once the API server has seen the namespace's label."""
        try:
            user.patch(path, leaving)
        except ApiError as error:
            return "this namespace is managed by topogate" in str(error)
        scene.api.patch(path, {"metadata": {"labels": {QUEUE_NAME_LABEL: "main"}}})
        return False

    wait_for("it to be refused", is_refused)

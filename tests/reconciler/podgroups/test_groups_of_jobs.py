"""Jobs that ask for a PodGroup: placed together without a queue, the group theirs and gone with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from core.names import (
    JOBSET_ROLE_LABEL,
    LWS_GROUP_INDEX_LABEL,
    LWS_WORKER_INDEX_LABEL,
    MEMBER_OF_LABEL,
    PODGROUP_GATE,
    PODGROUP_PLACED_BY,
    PODGROUP_TOPOLOGY,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
)
from e2e import manifests
from e2e.api import ApiError, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.standins.base import StandIn
from e2e.standins.jobset import JobSetStandIn
from e2e.standins.leaderworkerset import LeaderWorkerSetStandIn
from e2e.standins.mpijob import MPIJobStandIn
from e2e.topogate import Topogate, build_managed_labels
from tests.installed import Installed
from tests.reconciler.kinds.pods import bound, build_template, list_domains, list_hosts_by, list_live_pods
from tests.reconciler.kinds.test_jobset import replicated
from tests.reconciler.podgroups.test_podgroups import GATE, GROUPS, get_condition
from tests.reconciler.scenes import JOBS, Scene

pytestmark = pytest.mark.in_memory
SHOWN = f"metadata.annotations[{PODGROUP_TOPOLOGY}]"
Obj = dict[str, Any]


@pytest.fixture(scope="module")
def topogate(cluster: Cluster, installed: Installed) -> Topogate:
    running = installed.run(flags=GATE)
    probe = build_job("probe", "default", 1, "one", queue="main")
    wait_for("the webhooks to be asked", partial(is_refused, cluster, probe))
    return running


def is_refused(cluster: Cluster, obj: Obj) -> bool:
    try:
        cluster.api.create(f"{manifests.get_path(obj)}?dryRun=All", obj)
    except ApiError as error:
        return error.status == 422
    return False


@pytest.fixture
def hall(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Two racks of two nodes with 8 GPUs each."""
    scene = Scene(cluster, racks=2, nodes=2).open()
    yield scene
    scene.close()


def asking(obj: Obj, text: str) -> Obj:
    """Without a queue, with the annotation."""
    metadata = {**obj["metadata"], "annotations": {**obj["metadata"].get("annotations", {}), PODGROUP_TOPOLOGY: text}}
    metadata["labels"] = {key: value for key, value in (metadata.get("labels") or {}).items() if key != QUEUE_NAME_LABEL}
    return {**obj, "metadata": metadata}


def build_job(name: str, namespace: str, pods: int, text: str, *, queue: str | None = None, **more: Any) -> Obj:
    made = asking(manifests.build_job(name, namespace, pods=pods, indexed=True, **more), text)
    return {**made, "metadata": {**made["metadata"], "labels": {QUEUE_NAME_LABEL: queue} if queue else {}}}


def list_groups(scene: Scene) -> list[Obj]:
    return scene.api.list(GROUPS.format(scene.namespace))


def list_reasons(scene: Scene) -> list[str | None]:
    return [get_condition(scene, group["metadata"]["name"]).get("reason") for group in list_groups(scene)]


def wait_until_bound(scene: Scene, count: int) -> list[Obj]:
    return list_live_pods(scene.eventually(f"{count} pods to be bound", lambda now: bound(list_live_pods(now, scene), count)), scene)


def racks(scene: Scene, pods: list[Obj]) -> int:
    return len(list_domains(scene.read(), pods, scene.rack))


@contextmanager
def installed(kind: StandIn) -> Iterator[None]:
    """A kind whose controller is stood in for, so long."""
    try:
        with kind:
            yield
    finally:
        kind.uninstall()


# --- Job ------------------------------------------------------------------------------------------------------------


def test_a_job_is_in_one_rack_and_its_group_is_its_own_and_goes_with_it(hall: Scene) -> None:
    stored = hall.create(build_job("train", hall.namespace, 4, f"{hall.block},{hall.rack}", gpus=4))
    assert "suspend" not in stored["spec"] or not stored["spec"]["suspend"]
    pods = wait_until_bound(hall, 4)
    assert racks(hall, pods) == 1
    (group,) = list_groups(hall)
    assert {pod["metadata"]["labels"][MEMBER_OF_LABEL] for pod in pods} == {group["metadata"]["name"]}
    assert group["metadata"]["name"].startswith("job-train-")
    (owner,) = group["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Job", "train", stored["metadata"]["uid"], True)
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
    assert [one["level"] for one in group["spec"]["schedulingConstraints"]["topologyConstraints"]] == [hall.block, hall.rack]
    hall.eventually("it to be told", lambda _: get_condition(hall, group["metadata"]["name"]).get("status") == "True")
    hall.delete_job("train")
    hall.eventually("the group to be gone", lambda _: list_groups(hall) == [])


def test_a_job_that_fits_in_no_rack_waits_whole_and_one_that_may_be_anywhere_does_not(hall: Scene) -> None:
    hall.create(build_job("large", hall.namespace, 3, hall.rack, gpus=8))
    hall.eventually("its group to be told", lambda _: list_reasons(hall) == ["Unschedulable"])
    pods = list_live_pods(hall.read(), hall)
    assert len(pods) == 3
    assert all(pod["spec"]["schedulingGates"] == [{"name": PODGROUP_GATE}] for pod in pods)
    hall.create(build_job("wide", hall.namespace, 3, f"{hall.rack}:Preferred", gpus=8))
    hall.eventually(
        "the other to be bound", lambda now: bound([p for p in list_live_pods(now, hall) if p["metadata"]["name"][:5] == "wide-"], 3)
    )


@pytest.mark.live("an API server that drops a field it does not know")
def test_where_kube_scheduler_has_no_groups_of_its_own_a_job_that_asks_for_it_is_refused(hall: Scene) -> None:
    asks = build_job("native", hall.namespace, 2, hall.rack)
    asks["metadata"]["annotations"][PODGROUP_PLACED_BY] = "kube-scheduler"
    with pytest.raises(ApiError, match="schedulingGroup: the API server drops it"):
        hall.create(asks)
    assert list_groups(hall) == []


def test_a_suspended_job_has_its_group_and_its_pods_their_places_once_it_is_resumed(hall: Scene) -> None:
    hall.create(build_job("later", hall.namespace, 2, hall.rack, gpus=8, spec={"suspend": True}))
    hall.eventually("its group", lambda _: len(list_groups(hall)) == 1)
    hall.patch_job("later", {"spec": {"suspend": False}})
    assert racks(hall, wait_until_bound(hall, 2)) == 1
    hall.patch_job("later", {"spec": {"suspend": True}})
    hall.eventually("its pods to be gone", lambda now: list_live_pods(now, hall) == [])
    hall.patch_job("later", {"spec": {"suspend": False}})
    assert racks(hall, wait_until_bound(hall, 2)) == 1
    assert len(list_groups(hall)) == 1


def test_a_job_that_is_resized_takes_its_group_along(hall: Scene) -> None:
    hall.create(build_job("grows", hall.namespace, 2, hall.rack, gpus=4))
    wait_until_bound(hall, 2)
    hall.patch_job("grows", {"spec": {"parallelism": 4, "completions": 4}})
    assert racks(hall, wait_until_bound(hall, 4)) == 1
    hall.eventually("its group to follow", lambda _: list_groups(hall)[0]["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}})


def test_pod_group_of_a_job_that_a_user_deletes_or_changes_is_restored(hall: Scene) -> None:
    hall.create(build_job("train", hall.namespace, 2, hall.rack, gpus=4))
    wait_until_bound(hall, 2)
    (group,) = list_groups(hall)
    path = f"{GROUPS.format(hall.namespace)}/{group['metadata']['name']}"
    hall.api.delete(path)
    hall.eventually("another", lambda _: [g["metadata"]["uid"] for g in list_groups(hall)] not in ([], [group["metadata"]["uid"]]))
    hall.api.patch(path, {"spec": {"schedulingPolicy": {"gang": {"minCount": 9}}}})
    hall.eventually("it to be mended", lambda _: list_groups(hall)[0]["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}})


@pytest.mark.live("rules of a CRD in CEL")
def test_of_a_group_its_numbers_may_change_and_nothing_else(hall: Scene) -> None:
    hall.create(build_job("train", hall.namespace, 1, hall.rack))
    hall.eventually("its group", lambda _: len(list_groups(hall)) == 1)
    path = f"{GROUPS.format(hall.namespace)}/{list_groups(hall)[0]['metadata']['name']}"
    for change, says in (
        ({"schedulingConstraints": {"topologyConstraints": [{"level": "other"}]}}, "schedulingConstraints cannot be changed"),
        ({"schedulingConstraints": None}, "schedulingConstraints cannot be changed"),
        ({"schedulingPolicy": {"gang": None, "basic": {}}}, "the kind of schedulingPolicy cannot be changed"),
    ):
        with pytest.raises(ApiError, match=says):
            hall.api.patch(path, {"spec": change})
    hall.api.patch(path, {"spec": {"replicas": 3}})


# --- refusals -----------------------------------------------------------------------------------------------------------


def test_beside_annotations_of_queued_jobs_or_a_queue_it_is_refused_and_leaves_nothing(hall: Scene) -> None:
    wrong = build_job("both", hall.namespace, 2, "rack of ours", queue="main", required=hall.rack)
    with pytest.raises(ApiError) as refused:
        hall.create(wrong)
    assert refused.value.status == 422
    fields = {cause["field"]: cause["message"] for cause in refused.value.causes}
    assert set(fields) == {SHOWN, f"metadata.labels[{QUEUE_NAME_LABEL}]", f"spec.template.metadata.annotations[{REQUIRED_TOPOLOGY}]"}
    says = f"may not stand beside {PODGROUP_TOPOLOGY}: this is for queued jobs, that for jobs without a queue; keep one of them"
    assert fields[f"spec.template.metadata.annotations[{REQUIRED_TOPOLOGY}]"] == says
    assert hall.api.find(f"{JOBS.format(hall.namespace)}/both") is None


def test_dry_run_of_a_job_returns_the_stored_object_and_creates_no_pod_group(hall: Scene) -> None:
    obj = build_job("dry", hall.namespace, 2, hall.rack)
    stored = hall.api.create(f"{manifests.get_path(obj)}?dryRun=All", obj)
    assert stored["spec"]["template"]["spec"]["schedulingGates"] == [{"name": PODGROUP_GATE}]
    assert stored["spec"]["template"]["metadata"]["labels"][MEMBER_OF_LABEL].startswith("job-dry-")
    hall.create(build_job("wet", hall.namespace, 1, hall.rack))
    hall.eventually("the group of a later one", lambda _: [g["metadata"]["name"][:8] for g in list_groups(hall)] == ["job-wet-"])


def test_pod_group_annotation_of_a_job_is_immutable_after_creation(hall: Scene) -> None:
    obj = build_job("train", hall.namespace, 2, hall.rack)
    hall.create(obj)
    for value in (None, hall.block):
        with pytest.raises(ApiError, match="is settled when the Job is created"):
            hall.patch_job("train", {"metadata": {"annotations": {PODGROUP_TOPOLOGY: value}}})
    plain = manifests.build_job("plain", hall.namespace, pods=1, queue=None)
    hall.create(plain)
    with pytest.raises(ApiError, match="it was made without"):
        hall.patch_job("plain", {"metadata": {"annotations": {PODGROUP_TOPOLOGY: hall.rack}}})
    with pytest.raises(ApiError, match=f"may not stand beside {PODGROUP_TOPOLOGY}"):
        hall.patch_job("train", {"metadata": {"labels": {QUEUE_NAME_LABEL: "main"}}})
    hall.patch_job("train", {"metadata": {"labels": {"mine": "still"}}})
    assert wait_until_bound(hall, 3)


def test_grouped_job_in_a_managed_namespace_with_a_default_queue_is_refused_with_the_reason(hall: Scene) -> None:
    name = f"{hall.prefix}managed"
    hall.cluster.create_namespace(name, build_managed_labels())
    try:
        hall.create(manifests.build_local_queue("default", name, "nowhere"))
        with pytest.raises(ApiError, match="where its namespace is managed by topogate"):
            hall.create(build_job("train", name, 2, hall.rack))
    finally:
        hall.cluster.delete_namespace(name)


# --- kinds whose controllers are stood in for ------------------------------------------------------------------------------


def test_all_jobs_of_a_job_set_are_in_one_rack(hall: Scene) -> None:
    with installed(JobSetStandIn(hall.api)):
        jobs = replicated("leader", 1, 1), replicated("workers", 2, 1)
        metadata = {"name": "train", "namespace": hall.namespace}
        spec = {"replicatedJobs": list(jobs)}
        hall.create(asking({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}, hall.rack))
        pods = wait_until_bound(hall, 3)
        assert racks(hall, pods) == 1
        assert sorted(pod["metadata"]["labels"][JOBSET_ROLE_LABEL] for pod in pods) == ["leader", "workers", "workers"]
        (group,) = list_groups(hall)
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        assert group["metadata"]["ownerReferences"][0]["kind"] == "JobSet"


def test_each_job_of_a_job_set_that_asks_itself_is_a_group(hall: Scene) -> None:
    with installed(JobSetStandIn(hall.api)):
        workers = replicated("workers", 2, 2)
        workers["template"]["metadata"] = {"annotations": {PODGROUP_TOPOLOGY: hall.rack}}
        metadata = {"name": "train", "namespace": hall.namespace}
        spec = {"replicatedJobs": [workers]}
        hall.create({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec})
        pods = wait_until_bound(hall, 4)
        found = list_groups(hall)
        assert sorted(group["metadata"]["ownerReferences"][0]["name"] for group in found) == ["train-workers-0", "train-workers-1"]
        for group in found:
            mine = [pod for pod in pods if pod["metadata"]["labels"][MEMBER_OF_LABEL] == group["metadata"]["name"]]
            assert (len(mine), racks(hall, mine)) == (2, 1)


def test_launcher_and_workers_of_an_mpi_job_are_in_one_rack(hall: Scene) -> None:
    with installed(MPIJobStandIn(hall.api)):
        replicas = {"Launcher": {"replicas": 1, "template": one(hall, 1)}, "Worker": {"replicas": 3, "template": one(hall, 4)}}
        metadata = {"name": "train", "namespace": hall.namespace}
        spec = {"slotsPerWorker": 1, "mpiReplicaSpecs": replicas}
        hall.create(asking({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata, "spec": spec}, hall.rack))
        pods = wait_until_bound(hall, 4)
        assert racks(hall, pods) == 1
        (group,) = list_groups(hall)
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}


def one(hall: Scene, gpus: int) -> Obj:
    made = build_template(gpus)
    return {**made, "spec": {**made["spec"], "restartPolicy": "Never"}}


@pytest.mark.long
def test_each_replica_of_a_leader_worker_set_is_in_a_rack_of_its_own_size_and_it_is_scaled(hall: Scene) -> None:
    with installed(LeaderWorkerSetStandIn(hall.api)):
        metadata = {"name": "serve", "namespace": hall.namespace}
        spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": build_template(8)}}
        hall.create(
            asking({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}, hall.rack)
        )
        wait_until_bound(hall, 2)
        pods = wait_until_labelled(hall)
        assert racks(hall, pods) == 1
        hosts = list_hosts_by(LWS_WORKER_INDEX_LABEL, hall.read(), pods)
        assert hosts == sorted(hosts)
        path = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{hall.namespace}/leaderworkersets/serve"
        hall.api.patch(path, {"spec": {"replicas": 2}})
        wait_until_bound(hall, 4)
        wait_until_labelled(hall)
        now = hall.read()
        found = [list_domains(now, list_live_pods(now, hall, **{LWS_GROUP_INDEX_LABEL: str(index)}), hall.rack) for index in (0, 1)]
        assert [len(each) for each in found] == [1, 1]
        assert found[0] != found[1]
        (group,) = list_groups(hall)
        assert (group["spec"]["replicas"], group["spec"]["schedulingPolicy"]) == (2, {"gang": {"minCount": 2}})
        name = group["metadata"]["name"]
        hall.eventually("both to be told", lambda _: get_condition(hall, name).get("message") == "2 replicas have their places")
        hall.api.patch(path, {"spec": {"replicas": 1}})
        hall.eventually("one to be gone", lambda now: all(leads_zero(pod) for pod in list_live_pods(now, hall)))
        hall.eventually("the other to be told of alone", lambda _: get_condition(hall, name).get("status") == "True")


def wait_until_labelled(hall: Scene) -> list[Obj]:
    """The stand-in labels pods a moment after they are made; the real one has a webhook for it."""
    return list_live_pods(
        hall.eventually("pods to be labelled", lambda now: all(is_labelled(pod) for pod in list_live_pods(now, hall))), hall
    )


def is_labelled(pod: Obj) -> bool:
    return all(label in pod["metadata"]["labels"] for label in (LWS_GROUP_INDEX_LABEL, LWS_WORKER_INDEX_LABEL))


def leads_zero(pod: Obj) -> bool:
    return truth.is_terminal(pod) or pod["metadata"]["labels"].get(LWS_GROUP_INDEX_LABEL) == "0"

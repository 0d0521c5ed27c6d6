"""Jobs whose users keep them from being stopped: others get the quota and the nodes all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from core.names import PRIORITY_CLASS_LABEL, REASON_ON_HOLD, WORKLOAD_ANNOTATION
from e2e import manifests
from e2e.api import Api, ApiError
from e2e.audit import truth
from e2e.audit.recount import recount
from e2e.clock import CLOCK
from e2e.cluster import Cluster
from e2e.standins.jobset import JobSetStandIn
from e2e.topogate import Topogate
from tests.e2e.users import assert_refused, create_user
from tests.long import mark_long
from tests.reconciler.kinds.pods import build_template, of_set
from tests.reconciler.kinds.test_jobset import build_jobset, replicated
from tests.reconciler.scenes import GPU, JOBS, LOWER_PRIORITY, Scene

pytestmark = pytest.mark.in_memory
GROUP_VERSION = "kueue.x-k8s.io/v1beta2"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
PODS = "/api/v1/namespaces/{}/pods"
BOTH = ("flavor with a topology", "flavor without a topology")
PLACED, ANYWHERE = BOTH


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Quota for two pods of eight GPUs, taken from those of lower priority."""
    opened = Scene(cluster).open(quota=16)
    opened.allow_preemption()
    if getattr(request, "param", PLACED) == ANYWHERE:
        flavor = f"{opened.prefix}anywhere"
        opened.create(manifests.build_flavor(flavor, opened.pool.labels, None))
        opened.create(manifests.build_cluster_queue(f"{opened.prefix}open", {flavor: {"cpu": 1000, GPU: 16}}, preemption=LOWER_PRIORITY))
        opened.api.delete(f"/apis/{GROUP_VERSION}/namespaces/{opened.namespace}/localqueues/main")
        opened.create(manifests.build_local_queue("main", opened.namespace, f"{opened.prefix}open"))
    yield opened
    opened.close()
    for plural, name in (("clusterqueues", "open"), ("resourceflavors", "anywhere")):
        opened.api.delete(f"/apis/{GROUP_VERSION}/{plural}/{opened.prefix}{name}")


@pytest.fixture
def user(scene: Scene) -> Iterator[Api]:
    opened = create_user(scene.api, scene.namespace)
    yield opened
    opened.close()


@contextmanager
def again_and_again(act: Callable[[], Any], threads: int) -> Iterator[None]:
    """Does something all the time, whatever the API server answers."""

    def turn() -> bool:
        with suppress(ApiError):
            act()
        return True

    with ExitStack() as stack:
        for number in range(threads):
            stack.callback(CLOCK.repeat(turn, 0.01, f"user {number}"))
        yield


def run_victim(scene: Scene, user: Api) -> str:
    """The path of a job of a user that runs on all of the quota."""
    user.create(JOBS.format(scene.namespace), manifests.build_job("victim", scene.namespace, pods=2, gpus=8))
    scene.until_bound("victim", 2)
    return f"{JOBS.format(scene.namespace)}/victim"


def preempt(scene: Scene, high: str) -> None:
    """Runs a job of higher priority in its place."""
    scene.submit("important", pods=2, gpus=8, labels={PRIORITY_CLASS_LABEL: high})
    scene.until_bound("important", 2)


@pytest.mark.parametrize("scene", mark_long(BOTH, but={0}), indirect=True)
def test_preempted_job_that_is_unsuspended_all_the_time_gives_its_quota_back(scene: Scene, user: Api, high: str) -> None:
    """Found by an attack: on a flavor without a topology its pods ran on, and its quota was never free."""
    path = run_victim(scene, user)
    with again_and_again(lambda: user.patch(path, {"spec": {"suspend": False}}), threads=8):
        preempt(scene, high)


@pytest.mark.parametrize("scene", mark_long(BOTH, but={0}), indirect=True)
def test_preempted_job_that_a_finalizer_keeps_from_being_deleted_gives_its_quota_back(scene: Scene, user: Api, high: str) -> None:
    """Found by an attack: the controller of a job that is being deleted does nothing any more, and topogate did nothing, either."""
    path = run_victim(scene, user)
    user.patch(path, {"metadata": {"finalizers": ["example.com/mine"]}})
    user.request("DELETE", f"{path}?propagationPolicy=Background")
    try:
        preempt(scene, high)
    finally:
        user.patch(path, {"metadata": {"finalizers": None}})


@pytest.fixture
def jobsets(cluster: Cluster, scene: Scene) -> Iterator[str]:
    """The path of the JobSets of a user."""
    with JobSetStandIn(cluster.api) as standin:
        yield JOBSETS.format(scene.namespace)
    standin.uninstall()


def run_victims(scene: Scene, user: Api, jobsets: str, *finalizers: str) -> str:
    """The path of a JobSet of a user that runs four Jobs on all of the quota, and whose Jobs make their pods again without end."""
    made = build_jobset(scene, "victim", replicated("workers", 4, 1))
    made["metadata"]["finalizers"] = list(finalizers)
    for each in made["spec"]["replicatedJobs"]:
        each["template"]["spec"]["backoffLimit"] = 1_000_000
    user.create(jobsets, made)
    scene.eventually("its pods to be bound", lambda now: len(bound(now, scene)) == 4)
    return f"{jobsets}/victim"


def bound(now: truth.Snapshot, scene: Scene) -> list[str]:
    """Names of the pods that run on a node and are not being deleted."""
    pods = (pod for pod in now.pods_in(scene.namespace) if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"))
    return [pod["metadata"]["name"] for pod in pods]


@pytest.mark.long
@pytest.mark.parametrize("scene", BOTH, indirect=True)
def test_preempted_jobset_that_a_finalizer_keeps_from_being_deleted_makes_no_more_pods(
    scene: Scene, user: Api, high: str, jobsets: str
) -> None:
    """Found by an attack: its controller stops nothing any more, and its Jobs made their pods again for ever."""
    path = run_victims(scene, user, jobsets, "example.com/mine")
    user.request("DELETE", f"{path}?propagationPolicy=Background")
    try:
        preempt(scene, high)
        until = CLOCK.monotonic() + 15
        while CLOCK.monotonic() < until:
            assert len(bound(scene.read(), scene)) <= 2
            CLOCK.sleep(0.2)
        assert recount(scene.api) == []
        (victim,) = (w for w in scene.read().workloads if w["metadata"]["name"].startswith("jobset-"))
        assert truth.get_condition(victim, "QuotaReserved")["reason"] == REASON_ON_HOLD
    finally:
        user.patch(path, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("scene", mark_long(BOTH, but={0}), indirect=True)
def test_preempted_jobset_with_jobs_that_a_finalizer_keeps_from_being_deleted_gives_its_quota_back(
    scene: Scene, user: Api, high: str, jobsets: str
) -> None:
    """Found by an attack: the controller of a Job that is being deleted ends no pods, whatever its JobSet asks for."""
    run_victims(scene, user, jobsets)
    parts = [f"{JOBS.format(scene.namespace)}/victim-workers-{index}" for index in range(4)]
    for path in parts:
        user.patch(path, {"metadata": {"finalizers": ["example.com/mine"]}})
        user.request("DELETE", f"{path}?propagationPolicy=Background")
    try:
        preempt(scene, high)
        assert len(bound(scene.read(), scene)) == 2
        assert recount(scene.api) == []
    finally:
        for path in parts:
            user.patch(path, {"metadata": {"finalizers": None}})


def test_preempted_stateful_set_that_a_finalizer_keeps_from_being_deleted_gives_its_quota_back(scene: Scene, user: Api, high: str) -> None:
    made = of_set("StatefulSet", scene, "victim", 2, build_template(8))
    made["metadata"]["finalizers"] = ["example.com/mine"]
    sets = f"/apis/apps/v1/namespaces/{scene.namespace}/statefulsets"
    user.create(sets, made)
    scene.eventually(
        "its pods to be bound", lambda now: sum(bool(pod["spec"].get("nodeName")) for pod in now.pods_in(scene.namespace)) == 2
    )
    user.request("DELETE", f"{sets}/victim?propagationPolicy=Background")
    try:
        preempt(scene, high)
    finally:
        user.patch(f"{sets}/victim", {"metadata": {"finalizers": None}})


@pytest.fixture
def slow_node(scene: Scene) -> Iterator[str]:
    """A node on which a deleted pod takes its time, unlike on those that kwok keeps."""
    name = f"{scene.prefix}slow"
    scene.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    yield name
    scene.api.delete(f"/api/v1/nodes/{name}")


@pytest.mark.live("an admission policy, and a Job that adopts a pod")
@pytest.mark.parametrize("scene", mark_long(BOTH, but={0}), indirect=True)
def test_preempted_job_that_adopts_pod_that_takes_years_to_end_gives_its_quota_back(
    scene: Scene, user: Api, high: str, slow_node: str
) -> None:
    """Found by an attack: a Job adopts a pod with its labels that nobody admitted, and its quota was not free before that was gone."""
    victim = user.get(run_victim(scene, user))
    workload = scene.read().workload_of("victim")
    assert workload is not None
    pods = PODS.format(scene.namespace)
    pod = manifests.build_job("clinging", scene.namespace, pods=1, gpus=0)["spec"]["template"]
    labels = victim["spec"]["template"]["metadata"]["labels"]
    pod |= {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "clinging", "namespace": scene.namespace, "labels": labels}}
    pod["spec"] |= {"nodeName": slow_node, "terminationGracePeriodSeconds": 100_000_000, "restartPolicy": "Never"}
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    pod["metadata"]["annotations"] = {WORKLOAD_ANNOTATION: workload["metadata"]["name"]}
    assert_refused(403, "a pod without a controller that names a workload", lambda: user.create(pods, pod))
    del pod["metadata"]["annotations"]
    user.create(pods, pod)
    try:
        preempt(scene, high)
        (clinging,) = (pod for pod in scene.read().pods if pod["metadata"]["name"] == "clinging")
        assert clinging["metadata"]["deletionTimestamp"], "nobody adopted it"
    finally:
        scene.api.delete(f"{pods}/clinging", grace_period_s=0)

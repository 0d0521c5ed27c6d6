"""What the chart's ClusterRoles for people let them read and write, each tried on the real API server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from core.names import BORROWED_SPARES, MADE_BY, SLICE_NAME, SLICE_REPLACES, SPARES
from e2e import manifests
from e2e.api import Api, wait_for
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.e2e.users import assert_refused, bound_everywhere, create_user, may
from tests.installed import Installed
from tests.reconciler.scenes import JOBS, WORKLOADS, Scene

pytestmark = pytest.mark.cluster
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def topogate(installed: Installed) -> Topogate:
    return installed.run()


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Quota for two pods of eight GPUs; the nodes have room for four."""
    opened = Scene(cluster).open(quota=16)
    yield opened
    opened.close()


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_why_a_job_waits_can_be_read_with_the_roles_that_users_have(role: str, scene: Scene) -> None:
    scene.submit("train", pods=9, gpus=8, required=scene.rack)
    scene.until_waiting("train", "ExceedsMaxQuota")
    reader = create_user(scene.api, scene.namespace, name=f"one-who-has-{role}", role=role)
    path, queues = WORKLOADS.format(scene.namespace), f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{scene.namespace}/localqueues"
    (workload,) = reader.list(path)
    assert any(condition["message"] for condition in workload["status"]["conditions"])
    assert [queue["metadata"]["name"] for queue in reader.list(queues)] == ["main"]
    assert_refused(
        403, "cannot patch resource", lambda: reader.patch(f"{path}/{workload['metadata']['name']}", {"spec": {"active": False}})
    )
    assert_refused(403, "cannot delete resource", lambda: reader.delete(f"{path}/{workload['metadata']['name']}"))
    # Cluster-scoped kinds are out of reach of a role in a namespace, whatever it says.
    assert_refused(403, "cannot list resource", lambda: reader.list("/apis/kueue.x-k8s.io/v1beta2/clusterqueues"))
    assert_refused(403, "cannot list resource", lambda: reader.list("/apis/kueue.x-k8s.io/v1beta2/topologies"))
    elsewhere = WORKLOADS.format("default")
    assert_refused(403, "cannot list resource", lambda: reader.list(elsewhere))
    reader.close()


@pytest.fixture
def user(scene: Scene) -> Iterator[Api]:
    """A service account with the role `edit` in the scene's namespace."""
    opened = create_user(scene.api, scene.namespace)
    yield opened
    opened.close()


def test_topology_viewer_role_permits_reading_topologies_only(scene: Scene, user: Api) -> None:
    with bound_everywhere(scene.api, scene.namespace, "topogate-topology-viewer"):
        wait_for("the binding to hold", lambda: may(user, "list", "kueue.x-k8s.io", "topologies"))
        assert user.list(f"{KUEUE}/topologies")
        assert_refused(403, "cannot create resource", lambda: user.create(f"{KUEUE}/topologies", {"metadata": {"name": "mine"}}))


def test_batch_user_role_creates_jobs_and_reads_their_workloads(scene: Scene) -> None:
    """The role by itself, for those who have neither view nor edit."""
    user = create_user(scene.api, scene.namespace, name="one-who-has-jobs", role="topogate-batch-user")
    jobs, workloads = JOBS.format(scene.namespace), WORKLOADS.format(scene.namespace)
    user.create(jobs, manifests.build_job("train", scene.namespace, pods=2, gpus=8, required=scene.rack))
    scene.until_bound("train", 2)
    (workload,) = user.list(workloads)
    assert len(user.list(f"/api/v1/namespaces/{scene.namespace}/pods")) == 2
    assert_refused(
        403, "cannot patch resource", lambda: user.patch(f"{workloads}/{workload['metadata']['name']}", {"spec": {"priority": 9}})
    )
    assert_refused(403, "cannot list resource", lambda: user.list(f"{KUEUE}/clusterqueues"))
    user.delete(f"{jobs}/train")
    user.close()


def test_a_batch_administrator_writes_queues_and_no_status(scene: Scene) -> None:
    """Who may write the status of Workloads is taken for topogate by the policies."""
    user = create_user(scene.api, scene.namespace, name="one-who-has-queues")
    queue = flavor = f"{scene.namespace}-more"
    with bound_everywhere(scene.api, scene.namespace, "topogate-batch-admin", name="one-who-has-queues"):
        wait_for("the binding to hold", lambda: may(user, "create", "kueue.x-k8s.io", "clusterqueues"))
        user.create(f"{KUEUE}/resourceflavors", manifests.build_flavor(flavor, {"node-group": "more"}, None))
        user.create(f"{KUEUE}/clusterqueues", manifests.build_cluster_queue(queue, {flavor: {"cpu": 1}}))
        scene.submit("train", pods=9, gpus=8, required=scene.rack)
        scene.until_waiting("train", "ExceedsMaxQuota")
        (workload,) = user.list(WORKLOADS.format(scene.namespace))
        path = f"{WORKLOADS.format(scene.namespace)}/{workload['metadata']['name']}"
        assert user.patch(path, {"spec": {"active": False}})["spec"]["active"] is False
        assert_refused(403, "cannot patch resource", lambda: user.patch(f"{path}/status", {"status": {"admission": None}}))
        assert user.patch(path, {"metadata": {"annotations": {"note": "mine"}}})["metadata"]["annotations"]["note"] == "mine"
        for name in (SLICE_NAME, SLICE_REPLACES, SPARES, BORROWED_SPARES, MADE_BY):
            forged = {"metadata": {"annotations": {name: workload["metadata"]["name"]}}}
            assert_refused(403, f"topogate alone writes these annotations of a Workload: {SLICE_NAME}", partial(user.patch, path, forged))
        another = {**workload, "metadata": {"name": "another", "annotations": {SLICE_REPLACES: workload["metadata"]["name"]}}}
        assert_refused(
            403, "topogate alone writes these annotations", lambda: user.create(WORKLOADS.format(scene.namespace), another | {"status": {}})
        )
        user.delete(f"{KUEUE}/clusterqueues/{queue}")
        user.delete(f"{KUEUE}/resourceflavors/{flavor}")
    user.close()


@pytest.mark.parametrize(("role", "writes"), [("view", False), ("edit", True), ("admin", True)])
def test_groups_of_pods_are_read_with_any_role_and_written_with_those_that_edit(role: str, writes: bool, scene: Scene) -> None:
    user = create_user(scene.api, scene.namespace, name=f"one-with-{role}", role=role)
    try:
        wait_for("rights on groups", lambda: may(user, "list", "topogate.dev", "podgroups", scene.namespace))
        assert may(user, "create", "topogate.dev", "podgroups", scene.namespace) is writes
        for verb in ("patch", "update"):
            assert not may(user, verb, "topogate.dev", "podgroups/status", scene.namespace)
        assert not may(user, "list", "topogate.dev", "nodetopologies")
    finally:
        user.close()

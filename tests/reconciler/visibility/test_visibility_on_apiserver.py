"""The visibility API behind a real kube-apiserver: registered, discovered, read with kubectl, and refused to users without rights."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from e2e.api import Api, wait_for
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from reconciler.visibility.api_documents import GROUP, GROUP_VERSION, ROOT
from tests.e2e.users import assert_refused, bound_everywhere, create_user, may
from tests.installed import Installed
from tests.reconciler.scenes import Scene
from tests.reconciler.visibility.registered import registered

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def topogate(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topogate]:
    """With the visibility API."""
    running = installed.run()
    with registered(running, tmp_path_factory.mktemp("certs")):
        yield running


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Quota for one pod of eight GPUs."""
    opened = Scene(cluster).open(quota=8)
    yield opened
    opened.close()


def test_pending_workloads_are_listed_by_kubectl_and_refused_without_rights(cluster: Cluster, scene: Scene):
    for name in ("first", "second"):
        scene.submit(name, pods=2, gpus=8)
        scene.until_waiting(name, "ExceedsMaxQuota")
    of_cluster = f"{ROOT}/clusterqueues/{scene.prefix}queue/pendingworkloads"
    of_local = f"{ROOT}/namespaces/{scene.namespace}/localqueues/main/pendingworkloads"

    def list_positions(path: str) -> list[tuple[str, int, int]]:
        items = json.loads(cluster.kubectl("get", "--raw", path))["items"]
        owners = [item["metadata"]["ownerReferences"][0]["name"] for item in items]
        return [(owner, item["positionInClusterQueue"], item["positionInLocalQueue"]) for owner, item in zip(owners, items, strict=True)]

    expected = [("first", 0, 0), ("second", 1, 1)]
    for path in (of_cluster, of_local):
        wait_for("both workloads to be listed", lambda path=path: list_positions(path) == expected)  # type: ignore[misc]
        assert list_positions(f"{path}?limit=1&offset=1") == expected[1:]
    assert_refused(404, "not found", lambda: scene.api.get(of_cluster.replace("queue/pending", "none/pending")))

    user = create_user(scene.api, scene.namespace, role="view")
    try:
        wait_for("the role of users to have the API", lambda: may(user, "get", GROUP, "localqueues/pendingworkloads", scene.namespace))
        assert len(user.get(of_local)["items"]) == 2
        assert_refused(403, "forbidden", lambda: user.get(of_cluster))
        assert_refused(403, "forbidden", lambda: user.get(f"{ROOT}/namespaces/default/localqueues/main/pendingworkloads"))
        with bound_everywhere(scene.api, scene.namespace, "topogate-pending-workloads-cq-viewer-role"):
            wait_for("the binding to hold", lambda: may(user, "get", GROUP, "clusterqueues/pendingworkloads"))
            # The first refusal is kept for some seconds.
            wait_for("the right to be known", lambda: is_readable(user, of_cluster))
    finally:
        user.close()


def is_readable(user: Api, path: str) -> bool:
    try:
        assert_refused(403, "forbidden", lambda: user.get(path))
    except BaseException:  # what pytest raises where nothing is refused
        return len(user.get(path)["items"]) == 2
    return False


def test_group_is_discovered_with_its_documents(cluster: Cluster, topogate: Topogate):
    assert json.loads(cluster.kubectl("get", "--raw", f"/apis/{GROUP}"))["preferredVersion"]["groupVersion"] == GROUP_VERSION
    wait_for("aggregated discovery to have the group", lambda: GROUP_VERSION in cluster.kubectl("api-versions"))
    wait_for("OpenAPI v3 to have the group", lambda: ROOT[1:] in cluster.api.get("/openapi/v3")["paths"])
    assert set(cluster.api.get(f"/openapi/v3{ROOT}")["paths"]) == {
        f"{ROOT}/clusterqueues/{{name}}/pendingworkloads",
        f"{ROOT}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads",
    }
    wait_for("OpenAPI v2 to have the group", lambda: any(path.startswith(ROOT) for path in cluster.api.get("/openapi/v2")["paths"]))

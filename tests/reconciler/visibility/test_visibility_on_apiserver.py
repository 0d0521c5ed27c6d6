"""The visibility API behind a real kube-apiserver: registered, discovered, read with kubectl, and refused to users without rights."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from certs import pki
from e2e.api import Api, wait_for
from e2e.cluster import Cluster
from e2e.process import find_free_ports
from e2e.topogate import SYSTEM_NAMESPACE, Topogate
from reconciler.visibility.api_documents import GROUP, GROUP_VERSION, ROOT
from tests.e2e.users import assert_refused, bound_everywhere, create_user, may
from tests.installed import Installed
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.cluster

NAME, SERVICE = f"v1beta2.{GROUP}", "topogate-visibility"
API_SERVICES, SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/services"


def is_available(api: Api) -> bool:
    conditions = (api.find(f"{API_SERVICES}/{NAME}") or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


@pytest.fixture(scope="module")
def topogate(installed: Installed, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topogate]:
    """The reconciler with the visibility API, which the API server reaches by a name: there is no network of Services."""
    running, folder, (port,) = installed.run(), tmp_path_factory.mktemp("certs"), find_free_ports(1)
    ca = pki.issue_ca("visibility", datetime.now(UTC))
    pair = pki.issue_serving(ca, [f"{SERVICE}.{SYSTEM_NAMESPACE}.svc"], datetime.now(UTC))
    files = write_pair(folder, pair)
    running.kill_reconciler()
    running.start_reconciler(options=["--visibility-port", str(port), *files])
    spec: dict[str, Any] = {"type": "ExternalName", "externalName": "localhost"}
    cluster.api.create(SERVICES, {"metadata": {"name": SERVICE}, "spec": spec})
    spec = {
        "group": GROUP,
        "version": "v1beta2",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "caBundle": base64.b64encode(ca.certificate).decode(),
        "service": {"namespace": SYSTEM_NAMESPACE, "name": SERVICE, "port": port},
    }
    cluster.api.create(API_SERVICES, {"metadata": {"name": NAME}, "spec": spec})
    try:
        wait_for("the visibility API to be available", lambda: is_available(cluster.api))
        yield running
    finally:
        # First, as an administrator does: namespaces are not deleted while a group is not served.
        cluster.api.delete(f"{API_SERVICES}/{NAME}")
        cluster.api.delete(f"{SERVICES}/{SERVICE}")
        wait_for("the group to be gone", lambda: cluster.api.find(f"/apis/{GROUP}") is None)


def write_pair(folder: Path, pair: pki.KeyPair) -> list[str]:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return ["--visibility-cert-file", str(folder / "tls.crt"), "--visibility-key-file", str(folder / "tls.key")]


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

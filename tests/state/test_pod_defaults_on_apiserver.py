"""Pods as topogate expects them are the pods that the real API server creates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from core.model.pod_resources import compute_pod_requests
from core.state.pod_defaults import LimitRange, PodDefaults, RuntimeClass
from e2e.api import Api, ApiError, wait_for
from e2e.cluster import Cluster

pytestmark = pytest.mark.cluster
Obj = dict[str, Any]
DEFAULTS = {"type": "Container", "default": {"cpu": "2", "memory": "2Gi"}, "defaultRequest": {"cpu": "500m", "memory": "1Gi"}}
BOUNDS = {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "4"}}
WHOLE = {"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "6"}}
RATIO = {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}
LIMITS: dict[str, list[Obj]] = {
    "none": [],
    "defaults": [DEFAULTS],
    "bounds": [BOUNDS],
    "whole": [WHOLE],
    "ratio": [RATIO],
    "defaults-and-whole": [DEFAULTS, WHOLE],
}
KATA: Obj = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata-of-defaults"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "128Mi"}},
    "scheduling": {"nodeSelector": {"runtime": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
}


def build_container(name: str = "c", **resources: Any) -> Obj:
    return {"name": name, "image": "registry.example/c:1", "resources": resources}


def cpu(text: str) -> Obj:
    return {"cpu": text}


SPECS: dict[str, Obj] = {
    "nothing": {"containers": [build_container()]},
    "request": {"containers": [build_container(requests=cpu("1"))]},
    "small request": {"containers": [build_container(requests=cpu("50m"))]},
    "limit": {"containers": [build_container(limits=cpu("3"))]},
    "large limit": {"containers": [build_container(requests=cpu("1"), limits=cpu("5"))]},
    "request above default limit": {"containers": [build_container(requests=cpu("3"))]},
    "two containers": {"containers": [build_container("a", limits=cpu("4")), build_container("b", limits=cpu("4"))]},
    "init container": {"containers": [build_container()], "initContainers": [build_container("i", requests=cpu("2"))]},
    "sidecar": {"containers": [build_container()], "initContainers": [build_container("i") | {"restartPolicy": "Always"}]},
    "sidecar that requests": {
        "containers": [build_container(requests=cpu("1"))],
        "initContainers": [build_container("s", requests=cpu("1")) | {"restartPolicy": "Always"}, build_container("i", limits=cpu("4"))],
    },
    "pod-level limit": {"containers": [build_container()], "resources": {"limits": cpu("4")}},
    "pod-level request": {"containers": [build_container()], "resources": {"requests": cpu("3"), "limits": cpu("4")}},
    "pod-level limit over requests": {"containers": [build_container(requests=cpu("1"))], "resources": {"limits": cpu("4")}},
    "pod-level request of 2 containers": {
        "containers": [build_container("a", requests=cpu("1")), build_container("b")],
        "resources": {"requests": cpu("2")},
    },
    "pod-level large limit": {"containers": [build_container()], "resources": {"requests": cpu("1"), "limits": cpu("8")}},
    "pod-level small limit": {"containers": [build_container()], "resources": {"limits": cpu("1")}},
    "pod-level memory": {"containers": [build_container()], "resources": {"requests": {"memory": "4Gi"}}},
    "pod-level limit of memory": {
        "containers": [build_container("a", requests=cpu("1")), build_container("b")],
        "resources": {"limits": {"memory": "4Gi"}},
    },
    "pod-level limit over 2 containers": {
        "containers": [build_container("a", requests=cpu("1")), build_container("b")],
        "resources": {"limits": cpu("4")},
    },
    "pod-level limit over a request of 0": {"containers": [build_container(requests=cpu("0"))], "resources": {"limits": cpu("4")}},
    "pod-level limit over a sidecar": {
        "containers": [build_container()],
        "initContainers": [build_container("s", requests=cpu("1")) | {"restartPolicy": "Always"}],
        "resources": {"limits": cpu("4")},
    },
    "pod-level request below containers": {"containers": [build_container(requests=cpu("2"))], "resources": {"requests": cpu("1")}},
    "pod-level limits of runtime class": {
        "containers": [build_container()],
        "resources": {"limits": cpu("2")},
        "runtimeClassName": "kata-of-defaults",
    },
    "runtime class": {"containers": [build_container(requests=cpu("1"))], "runtimeClassName": "kata-of-defaults"},
    "runtime class with place": {
        "containers": [build_container()],
        "runtimeClassName": "kata-of-defaults",
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "kata", "operator": "Exists"}],
    },
    "runtime class that conflicts": {
        "containers": [build_container()],
        "runtimeClassName": "kata-of-defaults",
        "nodeSelector": {"runtime": "runc"},
    },
    "runtime class that is gone": {"containers": [build_container()], "runtimeClassName": "gone-of-defaults"},
}


@pytest.fixture(scope="module")
def namespaces(cluster: Cluster) -> Iterator[dict[str, str]]:
    """A namespace for each LimitRange, by its name in `LIMITS`, and the RuntimeClass."""
    made = {name: f"limits-{name}" for name in LIMITS}
    cluster.api.create("/apis/node.k8s.io/v1/runtimeclasses", KATA)
    for name, namespace in made.items():
        cluster.create_namespace(namespace)
        if LIMITS[name]:
            path = f"/api/v1/namespaces/{namespace}/limitranges"
            cluster.api.create(path, {"metadata": {"name": "limits"}, "spec": {"limits": LIMITS[name]}})
    wait_for("the defaults to hold", lambda: compute_pod_requests(dry_run(cluster.api, made["defaults"], SPECS["nothing"])[0]))
    wait_for("the limits to hold", lambda: dry_run(cluster.api, made["bounds"], SPECS["small request"])[1])
    yield made
    for namespace in made.values():
        cluster.api.delete(f"/api/v1/namespaces/{namespace}")
    cluster.api.delete("/apis/node.k8s.io/v1/runtimeclasses/kata-of-defaults")


def dry_run(api: Api, namespace: str, spec: Obj) -> tuple[Obj, str]:
    """The spec of a pod as the API server would store it, and why it refuses the pod."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    try:
        return api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)["spec"], ""
    except ApiError as error:
        if error.status in (403, 422):
            return {}, str(error)
        raise


def read_defaults(api: Api, namespace: str) -> PodDefaults:
    defaults = PodDefaults()
    for obj in api.list(f"/api/v1/namespaces/{namespace}/limitranges"):
        found = LimitRange.read(obj)
        defaults.observe_limit_range(found.key, found)
    defaults.observe_runtime_class("kata-of-defaults", RuntimeClass.read(KATA))
    return defaults


def place_of(spec: Mapping[str, Any]) -> Obj:
    """Where a pod may go, without what the API server adds to every pod."""
    added = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    tolerations = [one for one in spec.get("tolerations") or () if one["key"] not in added]
    return {"nodeSelector": spec.get("nodeSelector") or {}, "tolerations": tolerations, "overhead": spec.get("overhead") or {}}


@pytest.mark.parametrize(("limits", "spec"), list(itertools.product(LIMITS, SPECS)))
def test_pod_expected_from_a_template_is_the_pod_that_the_api_server_creates(
    cluster: Cluster, namespaces: dict[str, str], limits: str, spec: str
) -> None:
    defaults = read_defaults(cluster.api, namespaces[limits])
    expected = defaults.adjust(SPECS[spec], namespaces[limits])
    problems = list(defaults.find_problems(SPECS[spec], namespaces[limits]))
    created, refused = dry_run(cluster.api, namespaces[limits], SPECS[spec])
    assert bool(problems) == bool(refused), (problems, refused)
    if not refused:
        assert compute_pod_requests(expected) == compute_pod_requests(created)
        assert place_of(expected) == place_of(created)

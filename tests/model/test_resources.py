"""What a pod takes from its node: containers, init containers, sidecars, overhead and pod-level resources."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.pod_resources import PODS, add, compute_pod_requests, list_resource_names
from core.model.quantity import InvalidQuantity


def build_container(
    cpu: str | None = None, *, memory: str | None = None, limit: str | None = None, sidecar: bool = False
) -> dict[str, Any]:
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text is not None}
    resources: dict[str, Any] = {"requests": requests} | ({"limits": {"cpu": limit}} if limit is not None else {})
    return {"resources": resources} | ({"restartPolicy": "Always"} if sidecar else {})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"containers": [{}]}, {}),
        ({"containers": [build_container("0")]}, {}),
        ({"containers": [build_container("1"), build_container("500m", memory="1Gi")]}, {"cpu": 1500, "memory": 2**30}),
        # A limit stands for a request that is not there, and only for that.
        ({"containers": [build_container(limit="2")]}, {"cpu": 2000}),
        ({"containers": [build_container("1", limit="2")]}, {"cpu": 1000}),
        # Init containers run one at a time, before the others.
        ({"containers": [build_container("1")], "initContainers": [build_container("3"), build_container("2")]}, {"cpu": 3000}),
        ({"containers": [build_container("4")], "initContainers": [build_container("3")]}, {"cpu": 4000}),
        # A sidecar runs beside all that come after it.
        ({"containers": [build_container("1")], "initContainers": [build_container("1", sidecar=True)]}, {"cpu": 2000}),
        (
            {"containers": [build_container("1")], "initContainers": [build_container("1", sidecar=True), build_container("3")]},
            {"cpu": 4000},
        ),
        (
            {"containers": [build_container("1")], "initContainers": [build_container("3"), build_container("1", sidecar=True)]},
            {"cpu": 3000},
        ),
        (
            {
                "containers": [build_container("1")],
                "initContainers": [build_container("2", sidecar=True), build_container("1", sidecar=True)],
            },
            {"cpu": 4000},
        ),
        ({"containers": [build_container("1")], "overhead": {"cpu": "250m", "memory": "1Ki"}}, {"cpu": 1250, "memory": 1024}),
        # Pod-level resources override what the containers sum up to, overhead still comes on top.
        ({"containers": [build_container("1")], "resources": {"requests": {"cpu": "3"}}}, {"cpu": 3000}),
        ({"containers": [build_container("1")], "resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "1"}}, {"cpu": 4000}),
        ({"containers": [build_container("1")], "resources": {"requests": {"memory": "1Gi"}}}, {"cpu": 1000, "memory": 2**30}),
        # A pod-level limit stands for a request only where no container names one (the API server's defaulting).
        ({"containers": [build_container()], "resources": {"limits": {"cpu": "4"}}}, {"cpu": 4000}),
        ({"containers": [build_container("1")], "resources": {"limits": {"cpu": "4"}}}, {"cpu": 1000}),
        ({"containers": [build_container("1")], "resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}}}, {"cpu": 2000}),
    ],
)
def test_pod_requests_equal_the_amounts_that_kubernetes_counts(spec: dict[str, Any], expected: dict[str, int]):
    assert compute_pod_requests(spec) == expected


def test_each_resource_has_its_own_peak():
    spec = {"containers": [build_container("1", memory="2Gi")], "initContainers": [build_container("3", memory="1Gi")]}
    assert compute_pod_requests(spec) == {"cpu": 3000, "memory": 2 * 2**30}


def test_a_request_that_is_no_quantity_is_refused():
    with pytest.raises(InvalidQuantity, match="'much'"):
        compute_pod_requests({"containers": [build_container("much")]})


def test_resources_are_read_and_left_as_they_are():
    spec = {"containers": [build_container("1")], "initContainers": [build_container("1", sidecar=True), build_container("3")]}
    before = repr(spec)
    compute_pod_requests(spec)
    assert repr(spec) == before


def test_adding_goes_both_ways():
    total = {"cpu": 1}
    add(total, {"cpu": 2, "gpu": 1}, 3)
    assert total == {"cpu": 7, "gpu": 3}
    add(total, {"cpu": 2, "gpu": 1}, -3)
    assert total == {"cpu": 1, "gpu": 0}


def test_pods_are_always_a_resource():
    assert list_resource_names() == [PODS]
    assert list_resource_names(["cpu"], ["gpu", "cpu"]) == ["cpu", "gpu", PODS]

"""Pods as the API server will make them: overhead and place of a RuntimeClass, defaults and limits of LimitRanges."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.pod_resources import compute_pod_requests
from core.state.pod_defaults import LimitRange, PodDefaults, RuntimeClass

KATA = {
    "metadata": {"name": "kata"},
    "overhead": {"podFixed": {"cpu": "250m", "memory": "128Mi"}},
    "scheduling": {"nodeSelector": {"runtime": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
}


def limit_range(name: str = "limits", namespace: str = "ns", **item: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"limits": [{"type": "Container", **item}]}}


def known(*limit_ranges: dict[str, Any], runtime_classes: tuple[dict[str, Any], ...] = (KATA,)) -> PodDefaults:
    defaults = PodDefaults()
    for obj in limit_ranges:
        found = LimitRange.read(obj)
        defaults.observe_limit_range(found.key, found)
    for obj in runtime_classes:
        defaults.observe_runtime_class(obj["metadata"]["name"], RuntimeClass.read(obj))
    return defaults


def spec(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}}], **more}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (spec(), {"cpu": 500, "memory": 2**30}),
        (spec({"cpu": "1"}), {"cpu": 1000, "memory": 2**30}),
        (spec(limits={"cpu": "2"}), {"cpu": 2000, "memory": 2**30}),
        (spec({"cpu": "1"}, {"cpu": "2", "memory": "3Gi"}), {"cpu": 1000, "memory": 3 * 2**30}),
        (spec(initContainers=[{"name": "i", "resources": {"requests": {"cpu": "3"}}}]), {"cpu": 3000, "memory": 2**30}),
        (spec(initContainers=[{"name": "i", "restartPolicy": "Always"}]), {"cpu": 1000, "memory": 2**31}),
    ],
)
def test_requests_of_a_pod_under_a_limit_range_are_those_that_it_will_have(given: dict[str, Any], expected: dict[str, int]):
    defaults = known(limit_range(default={"cpu": "1", "memory": "2Gi"}, defaultRequest={"cpu": "500m", "memory": "1Gi"}))
    assert compute_pod_requests(defaults.adjust(given, "ns")) == expected
    assert compute_pod_requests(defaults.adjust(given, "other")) == compute_pod_requests(given)
    assert defaults.adjust(defaults.adjust(given, "ns"), "ns") == defaults.adjust(given, "ns")


@pytest.mark.parametrize(
    ("requests", "limits", "problems"),
    [
        ({"cpu": "1"}, {"cpu": "2"}, 0),
        ({"cpu": "1"}, {"cpu": "2500m"}, 0),
        ({"cpu": "1"}, {"cpu": "2501m"}, 1),
        ({"cpu": "1"}, {}, 1),
        ({}, {}, 1),
    ],
)
@pytest.mark.parametrize("kind", ["Container", "Pod"])
def test_limit_of_more_than_ratio_of_limit_range_is_a_problem(kind: str, requests: dict[str, str], limits: dict[str, str], problems: int):
    """`maxLimitRequestRatio` was not read: the Workload was admitted, and the API server refused its pods."""
    defaults = known(limit_range(type=kind, maxLimitRequestRatio={"cpu": "2.5"}))
    found = list(defaults.find_problems(spec(requests, limits), "ns"))
    assert len(found) == problems
    assert all("maxLimitRequestRatio of 2.5" in problem for problem in found)


def test_a_runtime_class_adds_its_overhead_once_with_selector_and_tolerations():
    defaults = known()
    adjusted = defaults.adjust(spec({"cpu": "1"}, runtimeClassName="kata", nodeSelector={"zone": "a"}), "ns")
    assert compute_pod_requests(adjusted) == {"cpu": 1250, "memory": 128 * 2**20}
    assert adjusted["nodeSelector"] == {"zone": "a", "runtime": "kata"}
    assert adjusted["tolerations"] == [{"key": "kata", "operator": "Exists"}]
    assert defaults.adjust(adjusted, "ns") == adjusted


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (spec({"cpu": "1"}), ""),
        (spec({"cpu": "5"}, {"cpu": "5"}), "container c has 5 cpu, more than the maximum of 4 per Container of LimitRange ns/limits"),
        (spec({"cpu": "50m"}), "container c has 50m cpu, less than the minimum of 100m per Container of LimitRange ns/limits"),
        (spec({"cpu": "1"}, runtimeClassName="gone"), 'RuntimeClass "gone" does not exist'),
        (
            spec({"cpu": "1"}, runtimeClassName="kata", nodeSelector={"runtime": "runc"}),
            'nodeSelector runtime=runc conflicts with runtime=kata of RuntimeClass "kata"',
        ),
    ],
)
def test_pods_that_the_api_server_would_refuse_are_found(given: dict[str, Any], problem: str):
    defaults = known(limit_range(min={"cpu": "100m"}, max={"cpu": "4"}, default={"cpu": "4"}, defaultRequest={"cpu": "100m"}))
    assert "; ".join(defaults.find_problems(given, "ns")) == problem


def test_limits_of_whole_pods_count_all_containers():
    obj = {"metadata": {"name": "pods", "namespace": "ns"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "3"}}]}}
    two = {"containers": [{"name": c, "resources": {"limits": {"cpu": "2"}}} for c in "ab"]}
    (problem,) = known(obj).find_problems(two, "ns")
    assert all(part in problem for part in ("4 cpu", "maximum of 3", "LimitRange ns/pods"))


def test_a_workload_outside_all_of_it_is_left_as_it_is():
    workload = {"metadata": {"name": "w", "namespace": "ns"}, "spec": {"podSets": [{"name": "main", "template": {"spec": spec()}}]}}
    assert known(limit_range(namespace="other")).adjust_workload(workload) == (workload, "")
    assert known(limit_range(namespace="other")).adjust_workload(workload)[0] is workload


def test_a_request_above_a_default_limit_is_found():
    found = list(known(limit_range(default={"cpu": "500m"}, defaultRequest={"cpu": "100m"})).find_problems(spec({"cpu": "1"}), "ns"))
    (problem,) = found
    assert all(part in problem for part in ("container c", "1 cpu", "limit of 500m"))


@pytest.mark.parametrize(("bound", "which"), [("max", "limit"), ("min", "request")])
def test_a_pod_without_an_amount_that_is_bounded_per_pod_is_found(bound: str, which: str):
    obj = {"metadata": {"name": "pods", "namespace": "ns"}, "spec": {"limits": [{"type": "Pod", bound: {"memory": "1Gi"}}]}}
    found = list(known(obj).find_problems(spec(), "ns"))
    (problem,) = found
    assert all(part in problem for part in (f"no {which} of memory", "LimitRange ns/pods", f"{bound} 1Gi"))


@pytest.mark.parametrize(
    ("given", "expected", "problem"),
    [
        (spec(resources={"limits": {"cpu": "4"}}), 4000, ""),
        (spec(resources={"requests": {"cpu": "3"}}), 3000, ""),
        (spec({"cpu": "2"}, resources={"limits": {"cpu": "4"}}), 2000, ""),
        (spec(resources={"limits": {"memory": "4Gi"}}), 500, ""),
        (
            spec(resources={"requests": {"cpu": "100m"}}),
            100,
            "the containers request 500m cpu, more than the request of the pod of 100m",
        ),
    ],
)
def test_resources_of_a_whole_pod_stand_over_defaults_of_its_containers(given: dict[str, Any], expected: int, problem: str):
    """Former defect: a pod with a limit of 4 CPUs of its own was counted as what a LimitRange gives its containers."""
    defaults = known(limit_range(defaultRequest={"cpu": "500m"}))
    assert compute_pod_requests(defaults.adjust(given, "ns"))["cpu"] == expected
    assert compute_pod_requests(defaults.adjust(defaults.adjust(given, "ns"), "ns"))["cpu"] == expected
    assert "; ".join(defaults.find_problems(given, "ns")) == problem


def test_limits_of_a_limit_range_per_pod_count_resources_of_the_whole_pod():
    """Its Workload waited for ever, as if the pod had no request and no limit."""
    obj = {"metadata": {"name": "pods", "namespace": "ns"}, "spec": {"limits": [{"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "3"}}]}}
    assert list(known(obj).find_problems(spec(resources={"limits": {"cpu": "2"}}), "ns")) == []
    found = list(known(obj).find_problems(spec(resources={"limits": {"cpu": "4"}}), "ns"))
    (problem,) = found
    assert all(part in problem for part in ("4 cpu", "maximum of 3", "LimitRange ns/pods"))


@pytest.mark.parametrize(
    ("name", "owner", "problem"),
    [
        ("gone", "Job", 'pod set main: PriorityClass "gone" does not exist'),
        ("gone", "Pod", ""),  # it has its priority since it was created
        ("system-node-critical", "Job", ""),
    ],
)
def test_priority_class_that_does_not_exist_is_a_problem_of_pods_to_come(name: str, owner: str, problem: str):
    pod_set = {"name": "main", "template": {"spec": spec({"cpu": "1"}, priorityClassName=name)}}
    workload = {"metadata": {"name": "w", "namespace": "ns", "ownerReferences": [{"kind": owner}]}, "spec": {"podSets": [pod_set]}}
    assert PodDefaults().adjust_workload(workload)[1] == problem

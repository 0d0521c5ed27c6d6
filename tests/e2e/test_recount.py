"""The audit from objects alone finds what is wrong, and nothing where all is well."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import MANAGED_NAMESPACE_LABEL, PODSET_LABEL, WORKLOAD_ANNOTATION
from e2e.recount import Objects, find_broken

Obj = dict[str, Any]


def node(name: str = "n", cpu: str = "4") -> Obj:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}}


def pod(name: str, *, workload: str | None = "w", node: str = "n", cpu: str = "1", gated: bool = False, phase: str = "Running") -> Obj:
    metadata: Obj = {"name": name, "namespace": "ns", "labels": {PODSET_LABEL: "main"}}
    if workload is not None:
        metadata["annotations"] = {WORKLOAD_ANNOTATION: workload}
    spec: Obj = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    if gated:
        spec = {**spec, "nodeName": "", "schedulingGates": [{"name": "g"}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def workload(count: int = 2, name: str = "w", queue: str = "cq", flavors: Obj | None = None) -> Obj:
    given = [{"name": "main", "count": count, "flavors": {"cpu": "tas"} if flavors is None else flavors}]
    return {"metadata": {"name": name, "namespace": "ns"}, "status": {"admission": {"clusterQueue": queue, "podSetAssignments": given}}}


def queue(name: str = "cq", cpu: str = "2", cohort: str | None = None, **more: str) -> Obj:
    resources = [{"name": "cpu", "nominalQuota": cpu, **more}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "tas", "resources": resources}]}]
    return {"metadata": {"name": name}, "spec": {"resourceGroups": groups, **({"cohortName": cohort} if cohort else {})}}


PAIR = [pod("a"), pod("b")]


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        (Objects([node()], PAIR, [workload()], [queue()]), []),
        (Objects([node()], [*PAIR, pod("c", gated=True), pod("d", phase="Failed")], [workload()], [queue()]), []),
        (Objects([node(cpu="1")], PAIR, [workload()], [queue()]), ["node n has 1000 cpu, and its pods use 2000"]),
        (
            Objects([node()], [*PAIR, pod("c")], [workload()], [queue(cpu="3")]),
            ["workload ns/w was admitted 2 pods as main, and 3 run"],
        ),
        (Objects([node()], PAIR, [workload()], [queue(cpu="1")]), ["cq may use 1000 cpu of flavor tas, and pods use 2000"]),
        (
            Objects([node()], [pod("a")], [workload(flavors={})], [queue()]),
            ["pod ns/a uses 1000 cpu, and was admitted without"],
        ),
        (Objects([node()], PAIR, [workload()], [queue(cpu="1", cohort="x"), queue("other", "1", "x")]), []),
        (
            Objects([node()], PAIR, [workload()], [queue(cpu="1", cohort="x", borrowingLimit="0"), queue("other", "1", "x")]),
            ["cq may use 1000 cpu of flavor tas, and pods use 2000"],
        ),
        (
            Objects([node()], PAIR, [workload()], [queue(cpu="1", cohort="x")]),
            ["cohort x may use 1000 cpu of flavor tas, and pods use 2000"],
        ),
    ],
)
def test_an_excess_of_a_limit_is_found(objects: Objects, found: list[str]):
    assert list(find_broken(objects)) == found


@pytest.mark.parametrize(
    ("labels", "queues", "found"),
    [({}, True, 0), ({MANAGED_NAMESPACE_LABEL: "true"}, False, 0), ({MANAGED_NAMESPACE_LABEL: "true"}, True, 1)],
)
def test_a_pod_without_an_admitted_workload_is_found_in_a_managed_namespace(labels: dict[str, str], queues: bool, found: int):
    namespaces = [{"metadata": {"name": "ns", "labels": labels}}]
    local = [{"metadata": {"name": "default", "namespace": "ns"}}] if queues else []
    objects = Objects([node()], [pod("a", workload=None)], [], [], [], local, namespaces)
    assert len(list(find_broken(objects))) == found

"""Pods that have done their work and come no more: what a workload asks for when it waits again, and holds while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import POD_INDEX_OFFSET
from core.state.facts import WorkloadFacts
from tests.builders import RACK


def build_workload(done: int, *, admitted: bool, slice_size: int | None = None) -> dict[str, Any]:
    topology: dict[str, Any] = {"required": RACK}
    if slice_size is not None:
        topology |= {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": slice_size}
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 8, "flavors": {}, "resourceUsage": {}}]}
    return {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u"},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 8, "topologyRequest": topology, "template": {"spec": {}}}]},
        "status": {"reclaimablePods": [{"name": "main", "count": done}], **({"admission": admission} if admitted else {})},
    }


@pytest.mark.parametrize(("done", "asked"), [(0, 8), (2, 8), (4, 4), (7, 4), (8, 0)])
def test_waiting_workload_with_done_pods_requests_whole_slices(done: int, asked: int):
    (pod_set,) = WorkloadFacts.read(build_workload(done, admitted=False, slice_size=4)).pod_sets
    assert (pod_set.count, pod_set.count + pod_set.reclaimed) == (asked, 8)


def test_waiting_workload_without_slices_requests_its_remaining_pods():
    (pod_set,) = WorkloadFacts.read(build_workload(3, admitted=False)).pod_sets
    assert pod_set.count == 5


def test_running_workload_with_done_pods_holds_its_remaining_pods():
    (pod_set,) = WorkloadFacts.read(build_workload(3, admitted=True, slice_size=4)).pod_sets
    assert pod_set.count == 5


def test_waiting_workload_with_done_pods_and_slices_without_a_size_is_read():
    """Found by a reader: the Workload was set aside with a division by zero."""
    workload = build_workload(3, admitted=False, slice_size=4)
    del workload["spec"]["podSets"][0]["topologyRequest"]["podSetSliceSize"]
    (pod_set,) = WorkloadFacts.read(workload).pod_sets
    assert pod_set.count == 5


@pytest.mark.parametrize(("text", "offset"), [("3", 3), ("+3", 3), ("-3", None), ("x", None)])
def test_index_offset_is_read_as_go_reads_it(text: str, offset: int | None):
    workload = build_workload(0, admitted=False)
    workload["spec"]["podSets"][0]["template"]["metadata"] = {"annotations": {POD_INDEX_OFFSET: text}}
    (pod_set,) = WorkloadFacts.read(workload).pod_sets
    assert pod_set.index_offset == offset

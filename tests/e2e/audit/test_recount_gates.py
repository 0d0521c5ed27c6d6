"""What gates of Kueue 0.20 promise is judged from objects alone: slices by rank, and devices that pods claim."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL
from e2e.audit.recount import Objects, find_broken
from e2e.audit.recount_devices import add_claimed, add_offered
from e2e.audit.recount_places import find_split
from e2e.audit.recount_promises import find_overbooked
from tests.e2e.audit.test_recount_promises import RACK, build_admitted_workload, build_node, build_pod, build_workload

Json = dict[str, Any]
GPUS = "example.com/devices"
NODES = [build_node("n1"), build_node("n2", "r2")]


def build_sliced(count: int, size: int) -> Json:
    workload = build_admitted_workload("w", "n1")
    request = {"required": "block", "podSetSliceRequiredTopology": RACK, "podSetSliceSize": size}
    workload["spec"]["podSets"] = [{"name": "main", "count": count, "topologyRequest": request}]
    return workload


def build_ranked(*hosts: str) -> list[Json]:
    pods = [build_pod(f"w-{number}", "w", host) for number, host in enumerate(hosts)]
    for number, pod in enumerate(pods):
        pod["metadata"]["labels"][JOB_COMPLETION_INDEX_LABEL] = str(number)
        pod["metadata"]["ownerReferences"] = [{"uid": "job", "controller": True}]
    return pods


@pytest.mark.parametrize(
    ("hosts", "found"),
    [(("n1", "n1", "n2"), 0), (("n1", "n2", "n2"), 1), (("n2", "n2", "n2"), 0), (("n1", "n2", "n1", "n2"), 2)],
)
def test_slice_of_ranks_in_two_domains_is_found(hosts: tuple[str, ...], found: int):
    assert len(list(find_split([build_sliced(len(hosts), 2)], build_ranked(*hosts), NODES))) == found


def test_pods_without_a_rank_are_not_judged():
    """A Job with more completions than pods."""
    assert list(find_split([build_sliced(2, 2)], build_ranked("n1", "n2", "n1"), NODES)) == []


# --- devices ------------------------------------------------------------------------------------------

TEMPLATE = {
    "metadata": {"namespace": "team", "name": "two"},
    "spec": {"spec": {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "gpu", "count": 2}}]}}},
}
SLICE = {"spec": {"nodeName": "n1", "devices": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}}


def build_claiming(name: str) -> Json:
    pod = build_pod(name, "w", "n1")
    return {**pod, "spec": {**pod["spec"], "resourceClaims": [{"name": "d", "resourceClaimTemplateName": "two"}]}}


@pytest.mark.parametrize(("pods", "found"), [(1, 0), (2, 1)])
def test_devices_of_a_node_that_pods_claim_twice_are_found(pods: int, found: int):
    claimed = add_claimed([build_claiming(f"p{number}") for number in range(pods)], [TEMPLATE], {"gpu": GPUS})
    nodes = add_offered([build_node("n1")], [SLICE], GPUS)
    told = [each for each in find_broken(Objects(nodes=nodes, pods=claimed)) if each.startswith("node")]
    assert told == ["node n1 has 3 example.com/devices, and its pods use 4"][:found]


def test_devices_of_a_node_that_are_promised_twice_are_found():
    workload = build_workload("a", "n1")
    (given,) = workload["status"]["admission"]["podSetAssignments"]
    given["resourceUsage"] = {GPUS: "4"}
    assert "host n1 has 3 example.com/devices" in next(find_overbooked([workload], [], add_offered([build_node("n1")], [SLICE], GPUS)))
    assert list(find_overbooked([workload], [], [build_node("n1")])) == []


def test_pods_without_claims_are_left_as_they_are():
    pod = build_pod("p", "w", "n1")
    assert add_claimed([pod], [TEMPLATE], {"gpu": GPUS}) == [pod]
    assert add_claimed([build_claiming("p")], [TEMPLATE], {}) == [build_claiming("p")]
    assert add_offered([build_node("n2")], [SLICE], GPUS)[0]["metadata"]["labels"][HOSTNAME_LABEL] == "n2"

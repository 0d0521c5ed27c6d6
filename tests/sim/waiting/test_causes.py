"""A job for each cause to wait: the condition of its Workload names the cause and what would help, and an event of the job repeats it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.models.checks import CHECK
from sim.world import World
from tests.sim.waiting.causes import CAUSES, RACK, find_workload, get_name, list_events, open_world, read_condition

# What has to be in the message: the reason, what is at fault, and what would help.
EXPECTED: dict[str, tuple[str, ...]] = {
    "quota of the queue": ("WaitingForQuota: ", "needs 8 more nvidia.com/gpu", "8 of 8 in use"),
    "more than all quota": ("ExceedsMaxQuota: ", "requests 16 nvidia.com/gpu", "request less", "quota raised"),
    "quota of the cohort": ("WaitingForQuota: ", "needs 8 more nvidia.com/gpu", 'cohort "teams" has nothing to lend'),
    "lower priority runs": ("WaitingForQuota: ", "needs 8 more nvidia.com/gpu"),  # why it preempts none: `topogate explain`
    "no such queue": ("Misconfigured: ", "LocalQueue no-such-queu ", "has no-such-queue,", "name one that is there"),
    "stopped queue": ("Suspended: ", "ClusterQueue stopped-queue ", "stopPolicy is Hold", "until stopPolicy is None"),
    "no such flavor": ("Suspended: ", "ResourceFlavor(s): missing", "an administrator can make"),
    "level too small": ("TopologyPlacementFailed: ", f"Best {RACK} ", "4 of 5 pods", "It would fit with 4 pods"),
    "cordoned nodes": ("TopologyPlacementFailed: ", "unschedulable: 2", "c-b1-r1-n1 were uncordoned"),
    "node selector": ("TopologyPlacementFailed: ", "No node has zone=nowhere"),
    "admission check": ("UnsatisfiedAdmissionChecks: ", f"admission checks: {CHECK};", "status.admissionChecks"),
    "unknown level": ("Misconfigured: ", f"'{RACK}s'", f"the topology has cloud.provider.com/topology-block, {RACK}", "change the job"),
    "flavor without a topology": ("NoMatchingFlavor: ", 'Flavor "plain"', "leave out the annotations", "spec.topologyName"),
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    opened = open_world()
    yield opened
    opened.close()


def test_each_cause_has_its_expected_message():
    assert EXPECTED.keys() == CAUSES.keys()
    assert len(CAUSES) >= 10


@pytest.mark.parametrize("cause", CAUSES)
def test_condition_of_a_waiting_workload_names_the_cause_with_its_remedy(world: World, cause: str):
    found = read_condition(find_workload(world, cause), "Admitted" if cause == "admission check" else "QuotaReserved")
    assert [part for part in EXPECTED[cause] if part not in found] == [], found


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause != "admission check"])
def test_event_of_a_waiting_job_has_the_message_of_its_workload(world: World, cause: str):
    _, message = read_condition(find_workload(world, cause)).split(": ", 1)
    assert any(event.startswith("Warning ") and message in event for event in list_events(world, "Job", get_name(cause)))

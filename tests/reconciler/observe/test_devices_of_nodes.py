"""Devices of nodes for queued pods: what slices and classes offer, and what pods hold."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from core.plan.steps import pacing
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.resource import Obj
from tests.builders import (
    NAMESPACE,
    build_pod_json,
)
from tests.podgroups.devices import CLASS, build_claim, build_claim_spec, build_device_class, build_resource_slice, build_template
from tests.reconciler.observe.test_counted_devices import (
    CLAIMS,
    GPUS,
    ROW,
    admit,
    cluster,
    count,
    delete,
    judge,
    list_slices,
    make_for,
    put,
    read,
    submit,
)
from tests.reconciler.observe.test_volumes import versioned
from tests.reconciler.pods.test_pods_to_come import settle


async def test_a_job_goes_where_nodes_have_its_devices():
    found = cluster(build_template(spec=build_claim_spec(2)), *list_slices({"a0": 3, "a1": 1, "b0": 2, "b1": 4}))
    await count(found)
    submit(found, 3)
    outcome = judge(found)
    assert isinstance(outcome, Admissible)
    assert dict(outcome.placements[0][1].nodes) == {"b0": 1, "b1": 2}
    assert outcome.choices[0].unjudged == ()


async def test_a_job_without_nodes_for_its_devices_waits_and_names_the_class():
    found = cluster(build_template(spec=build_claim_spec(2)), *list_slices({"a0": 3, "a1": 1, "b0": 2}))
    await count(found)
    submit(found, 3)
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    assert f'resource "{ROW}"' in outcome.message
    put(found, build_resource_slice("b1", 4, node="b1"))
    await count(found)
    assert isinstance(judge(found), Admissible)


async def test_devices_in_use_are_not_free_and_count_once():
    found = cluster(build_template(), *list_slices({"a0": 4}))
    await count(found)
    pod = build_pod_json("p", node="a0", phase="Running")
    pod["spec"]["resourceClaims"] = CLAIMS
    found.pods.put(versioned(pod))
    claim = build_claim("c", [("a0", "a0-0"), ("a0", "a0-1")])
    put(found, make_for("p", claim))
    await count(found)
    submit(found, 3)
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    found.pods.drop_all()
    await count(found)
    assert isinstance(judge(found), Admissible)


async def test_a_pod_on_a_node_counts_its_reserved_devices_until_its_claim_is_seen():
    found = cluster(build_template(spec=build_claim_spec(2)), *list_slices({"a0": 8}))
    await count(found)
    admit(found, 1, 2)
    pod = build_pod_json("p", node="a0", workload="w", phase="Running")
    pod["spec"]["resourceClaims"] = CLAIMS
    found.pods.put(versioned(pod))
    facts = found.pod_facts[f"{NAMESPACE}/p"]
    assert facts.requests[ROW] == 2
    put(found, build_template(spec=build_claim_spec(2**62)), 2)
    await count(found)
    assert found.pod_facts[f"{NAMESPACE}/p"].requests[ROW] == 2


async def test_a_claim_that_is_not_allocated_takes_nothing_from_a_node():
    """Any user can make claims for a pod by hand, and pods past kube-scheduler."""
    found = cluster(build_template(spec=build_claim_spec(2**62)), *list_slices({"a0": 8}))
    await count(found)
    pod = build_pod_json("p", node="a0", phase="Pending")
    pod["spec"]["resourceClaims"] = CLAIMS
    found.pods.put(versioned(pod))
    claim = build_claim("c", spec=build_claim_spec(2**62))
    put(found, make_for("p", claim))
    await count(found)
    assert ROW not in found.pod_facts[f"{NAMESPACE}/p"].requests


async def test_slices_that_come_while_others_are_evaluated_are_counted_too():
    found = cluster(build_template(), *list_slices({"a0": 1}))
    assert found.counted is not None
    counting = asyncio.create_task(found.counted.run())
    await asyncio.sleep(0)
    put(found, build_resource_slice("a0", 6, node="a0"), 2)
    put(found, build_resource_slice("b0", 2, node="b0"))
    await settle(found)
    counting.cancel()
    await settle(found)
    offered = {name: node.state.allocatable.get(ROW, 0) for name, node in found.state.nodes.items()}
    assert offered == {"a0": 6, "a1": 0, "b0": 2, "b1": 0}


async def test_a_driver_that_writes_without_end_does_not_keep_a_replica_from_its_start(monkeypatch: pytest.MonkeyPatch):
    found, versions = cluster(build_template(), *list_slices({"a0": 1})), itertools.count(2)
    assert found.counted is not None
    assert found.devices is not None
    evaluate = found.devices.evaluate

    async def write_and_evaluate(*slices: Any) -> list[Any]:
        refused = await evaluate(*slices)
        put(found, build_resource_slice("a0", 1 + (version := next(versions)) % 2, node="a0"), version)
        assert version < 100
        return refused

    monkeypatch.setattr(found.devices, "evaluate", write_and_evaluate)
    await found.counted.settle()
    assert next(versions) == 3


async def test_a_class_that_cannot_be_evaluated_is_named_until_it_can():
    found = cluster(build_template(), *list_slices({"a0": 3}))
    put(found, build_device_class(CLASS, "device.nothing"), 2)
    submit(found)
    await count(found)
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    assert f"devices of DeviceClass {CLASS} cannot be counted: 'device.nothing' cannot be evaluated" in outcome.message
    put(found, build_device_class(), 3)
    await count(found)
    assert isinstance(judge(found), Admissible)


async def test_a_class_that_used_up_its_time_is_counted_when_it_has_some_again(monkeypatch: pytest.MonkeyPatch):
    found = cluster(build_template(), *list_slices({"a0": 3}))
    assert found.counted is not None
    monkeypatch.setattr(pacing, "DEVICES_CPU_S", -1.0)
    submit(found)
    await count(found)
    assert f"devices of DeviceClass {CLASS} cannot be counted: " in read(found).refused
    monkeypatch.undo()
    await found.counted._clock.sleep(pacing.DEVICES_BUDGET_S)
    found.counted._retry_refused()
    await count(found)
    assert read(found).refused == ""
    assert found.state.nodes["a0"].state.allocatable[ROW] == 3


@pytest.mark.parametrize(
    ("asked", "devices"),
    [
        ({"tolerations": [{"operator": "Exists"}]}, [{"name": "d", "taints": [{"key": "t", "effect": "NoSchedule"}]}]),
        ({}, [{"name": "d", "consumesCounters": [{"counterSet": "c"}]}]),
        ({}, [{"name": "d", "allowMultipleAllocations": True}]),
        ({}, [{"name": "d", "nodeName": "a0"}]),
    ],
    ids=["tolerations", "consumesCounters", "allowMultipleAllocations", "per device"],
)
async def test_a_job_for_devices_that_nodes_do_not_offer_is_not_judged_and_does_not_wait(asked: Obj, devices: list[Obj]):
    found = cluster(build_template(spec=build_claim_spec(1, **asked)), build_resource_slice("a0", devices, node="a0"))
    submit(found, 1)
    await count(found)
    outcome = judge(found)
    assert isinstance(outcome, Admissible)
    assert outcome.choices[0].unjudged == ("resourceClaims",)
    assert dict(outcome.admission.pod_sets[0].usage)[GPUS] == 1


@pytest.mark.parametrize("field", [{"consumesCounters": [{"counterSet": "c"}]}, {"allowMultipleAllocations": True}])
async def test_a_device_that_is_not_judged_leaves_the_other_nodes_bounded(field: Obj):
    """One driver's slice on one node must not let jobs onto all the others."""
    broken = build_resource_slice("b1", [{"name": "d", **field}], node="b1")
    found, full = (cluster(build_template(spec=build_claim_spec(2)), *list_slices({"a0": 3, "a1": 1}), broken) for _ in range(2))
    await count(found)
    submit(found, 8)
    outcome = judge(found)
    assert isinstance(outcome, Admissible)
    assert dict(outcome.placements[0][1].nodes) == {"b1": 8}
    assert outcome.choices[0].unjudged == ("resourceClaims",)
    await count(full)
    submit(full, 9)
    refused = judge(full)
    assert isinstance(refused, NotAdmissible)  # b1 has CPU for 8, and the others too few devices
    assert f'resource "{ROW}"' in refused.message


async def test_a_device_that_is_not_judged_is_judged_once_its_driver_describes_it():
    found = cluster(build_template(), build_resource_slice("a0", [{"name": "d", "allowMultipleAllocations": True}], node="a0"))
    await count(found)
    submit(found, 2)
    assert read(found).pod_sets[0].traits.unjudged == ("resourceClaims",)
    put(found, build_resource_slice("a0", [{"name": "d"}], node="a0"), 2)
    await count(found)
    assert isinstance(judge(found), NotAdmissible)
    assert read(found).pod_sets[0].traits.unjudged == ()


async def test_a_class_that_changes_counts_the_devices_of_all_nodes_anew():
    found = cluster(build_template(), *list_slices({"a0": 3}))
    await count(found)
    put(found, build_device_class(CLASS, 'device.driver == "another"'), 2)
    await count(found)
    assert ROW not in found.state.nodes["a0"].state.allocatable
    delete(found, "DeviceClass")
    put(found, build_device_class(), 3)
    await count(found)
    assert found.state.nodes["a0"].state.allocatable[ROW] == 3


async def test_the_ledger_has_no_drift_after_devices_have_changed():
    found = cluster(build_template(), *list_slices({"a0": 4, "b1": 2}))
    await count(found)
    admit(found, 2, 2)
    pod = build_pod_json("p", node="a0", workload="w", phase="Running")
    found.pods.put(versioned({**pod, "spec": {**pod["spec"], "resourceClaims": CLAIMS}}))
    claim = build_claim("c", [("a0", "a0-0")])
    put(found, make_for("p", claim))
    await count(found)
    put(found, build_resource_slice("a0", 1, node="a0"), 2)
    delete(found, "ResourceClaim")
    await count(found)
    assert found.state.ledger.find_drift() == {}

"""The reconciler of groups of pods with constraints on devices, as slices and claims come and go."""

from __future__ import annotations

from typing import Any

from core.podgroups.members import GroupKey
from core.resource import Obj
from sim.harness import NAMESPACE
from tests.podgroups.devices import TEMPLATE, build_claim, build_device_class, build_template, pool_of_nodes
from tests.reconciler.harness_groups import GroupsHarness
from tests.reconciler.podgroups.test_groups_in_memory import due

CONSTRAINTS = {"draConstraints": [{"resourceClaimTemplateName": TEMPLATE}]}
CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]


def hall(*pools: list[Obj]) -> GroupsHarness:
    """Four nodes of eight CPUs; a class, a template for one device, and these pools."""
    harness = GroupsHarness({"r1": (8, 8), "r2": (8, 8)})
    harness.devices(build_device_class(), build_template(namespace=NAMESPACE), *(one for pool in pools for one in pool))
    return harness


def gang(harness: GroupsHarness, count: int, name: str = "g") -> None:
    harness.gang(count, name=name, schedulingConstraints=CONSTRAINTS)
    for number in range(count):
        add(harness, f"{name}{number}", name)


def add(harness: GroupsHarness, pod: str, group: str = "g") -> None:
    harness.add(pod, group=group, resourceClaims=CLAIMS)


def allocate(harness: GroupsHarness, pod: str, pool: str, device: str) -> Obj:
    """As kube-controller-manager and kube-scheduler do: a claim is made for a pod, and gets a device. Returns it."""
    made = build_claim(f"{pod}-claim", [(pool, device)], namespace=NAMESPACE)
    made["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": pod}]
    harness.devices({**made, "status": {}})
    statuses = [{"name": "gpu", "resourceClaimName": f"{pod}-claim"}]
    harness.change(pod, status={**harness.pods[pod]["status"], "resourceClaimStatuses": statuses})
    due(harness)
    harness.devices(made)
    return made


LEFT = pool_of_nodes("left", {"r1-0": 1, "r1-1": 1})
RIGHT = pool_of_nodes("right", {"r2-0": 2, "r2-1": 1})


def test_a_gang_goes_to_the_pool_that_has_enough() -> None:
    harness = hall(LEFT, RIGHT)
    gang(harness, 3)
    harness.settle()
    assert sorted(harness.where().values()) == ["r2-0", "r2-0", "r2-1"]
    assert harness.says[:2] == ("True", "Scheduled")
    assert "3 pods" in harness.says[2]


def test_devices_of_pods_that_are_placed_are_taken_before_they_are_allocated_and_given_back_with_the_pods() -> None:
    harness = hall(RIGHT)
    gang(harness, 2, "g")
    gang(harness, 2, "h")
    harness.settle("g")
    harness.settle("h")
    assert set(harness.where()) == {"g0", "g1"}
    assert all(part in harness.says[2] for part in ("pool gpu.example.com/right 1 of 2", "1 device of claim template one-gpu"))
    harness.bind()
    allocated = [allocate(harness, f"g{number}", "right", f"{node}-0") for number, node in enumerate(("r2-0", "r2-1"))]
    harness.settle("h")
    assert set(harness.where()) == {"g0", "g1"}, "they are counted once"
    for number in (0, 1):
        harness.drop("Pod", f"g{number}")
    harness.settle("h")
    assert "h0" not in harness.where(), "kube-controller-manager has not given the devices back"
    due(harness)
    for one in allocated:
        harness.drop_device(one)
    assert GroupKey(NAMESPACE, "h") in due(harness)
    harness.settle("h")
    assert {"h0", "h1"} <= set(harness.where())


def test_a_group_that_waits_is_looked_at_when_devices_come() -> None:
    harness = hall(LEFT)
    gang(harness, 3)
    harness.settle()
    assert harness.says[1] == "Unschedulable"
    due(harness)
    harness.devices(*RIGHT)
    assert due(harness) == {GroupKey(NAMESPACE, "g")}
    harness.settle()
    assert len(harness.where()) == 3


def test_one_that_comes_later_goes_to_the_pool_of_the_others_once_they_have_devices() -> None:
    harness = hall(LEFT, pool_of_nodes("right", {"r2-0": 3}))
    gang(harness, 2)
    harness.settle()
    harness.bind()
    add(harness, "late")
    harness.settle()
    assert "late" not in harness.where()
    assert "not allocated" in harness.says[2]
    nodes = {name: harness.pods[name]["spec"]["nodeName"] for name in ("g0", "g1")}
    pool = "left" if nodes["g0"].startswith("r1") else "right"
    devices = [f"{nodes['g0']}-0", f"{nodes['g1']}-{int(nodes['g0'] == nodes['g1'])}"]
    due(harness)
    for name, device in zip(("g0", "g1"), devices, strict=True):
        allocate(harness, name, pool, device)
    assert GroupKey(NAMESPACE, "g") in due(harness)
    harness.settle()
    assert ("late" in harness.where()) == (pool == "right")


def test_devices_that_do_not_lie_together_are_told() -> None:
    harness = hall(LEFT, RIGHT)
    gang(harness, 2)
    harness.settle()
    harness.bind()
    allocate(harness, "g0", "left", "r1-0-0")
    due(harness)
    allocate(harness, "g1", "right", "r2-0-0")
    assert due(harness) == {GroupKey(NAMESPACE, "g")}
    harness.settle()
    assert harness.says[:2] == ("False", "DevicesApart")
    named = ("2 pods", "claim template one-gpu", "gpu.example.com/left (1), gpu.example.com/right (1)")
    assert all(part in harness.says[2] for part in named)


def test_new_reconciler_counts_devices_that_its_predecessor_assigned() -> None:
    before = hall(RIGHT)
    gang(before, 2)
    before.settle()
    after = hall(RIGHT)
    for pod in before.pods.values():
        after.put(pod)
    gang(after, 2, "h")
    after.settle("h")
    assert "h0" not in after.where()


def test_group_with_an_unsupported_device_request_is_invalid_and_its_pods_stay_gated() -> None:
    harness = hall(RIGHT)
    odd: dict[str, Any] = {"devices": {"requests": [{"name": "any", "firstAvailable": [{"name": "a"}]}]}}
    harness.devices(build_template(spec=odd, namespace=NAMESPACE))
    gang(harness, 2)
    harness.settle()
    assert harness.says[:2] == ("False", "Invalid")
    named = ("draConstraints: ", "ResourceClaimTemplate one-gpu: ", "spec.spec.devices.requests[any].firstAvailable")
    assert all(part in harness.says[2] for part in named)
    due(harness)
    harness.devices(build_template(namespace=NAMESPACE))
    assert due(harness) == {GroupKey(NAMESPACE, "g")}
    harness.settle()
    assert len(harness.where()) == 2


def test_events_of_devices_wake_only_groups_with_constraints_on_devices() -> None:
    """KEP-5732's EnqueueExtensions."""
    harness = hall(LEFT)
    gang(harness, 3)
    harness.gang(2, name="large")
    harness.add("large0", "large1", group="large", cpu=9)
    harness.settle()
    for name in ("g", "large"):
        harness.look(name)
    due(harness)
    harness.devices(*RIGHT)
    assert due(harness) == {GroupKey(NAMESPACE, "g")}
    harness.devices(build_claim("some", [("right", "r2-0-0")], namespace=NAMESPACE))
    assert due(harness) == {GroupKey(NAMESPACE, "g")}
    harness.node("r1-2", "r1", 9)
    assert due(harness) == {GroupKey(NAMESPACE, "g"), GroupKey(NAMESPACE, "large")}


def test_new_resource_claim_requeues_a_group_only_if_it_is_owned_by_no_pod() -> None:
    harness = hall(LEFT)
    gang(harness, 3)
    harness.settle()
    due(harness)
    made = build_claim("some", namespace=NAMESPACE)
    of_pod = {**made, "metadata": {**made["metadata"], "ownerReferences": [{"kind": "Pod", "name": "some"}]}}
    harness.devices(of_pod)
    harness.drop_device(of_pod)
    assert due(harness) == set()
    harness.devices(made)
    assert due(harness) == {GroupKey(NAMESPACE, "g")}
    harness.devices({**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}})
    assert due(harness) == set()
    harness.devices({**build_claim("some", [("left", "r1-0-0")], namespace=NAMESPACE)})
    assert due(harness) == {GroupKey(NAMESPACE, "g")}


def test_pods_that_share_a_claim_are_placed_once_it_is_there_and_later_ones_follow_it() -> None:
    harness = hall(pool_of_nodes("left", {"r1-0": 1}), pool_of_nodes("right", {"r2-0": 1}))
    harness.gang(2, schedulingConstraints=CONSTRAINTS)
    shared = [{"name": "gpu", "resourceClaimName": "ours"}]
    for name in ("a", "b"):
        harness.add(name, resourceClaims=shared)
    harness.settle()
    assert harness.says[1] == "Invalid"
    assert "names one that asks for the same" in harness.says[2]
    due(harness)
    harness.devices(build_claim("ours", namespace=NAMESPACE))
    assert due(harness) == {GroupKey(NAMESPACE, "g")}
    harness.settle()
    assert len(set(harness.where().values())) == 1
    harness.bind()
    there = set(harness.where().values())
    harness.add("late", resourceClaims=shared)
    harness.settle()
    assert "late" not in harness.where(), "nobody knows yet which devices it is"
    (node,) = there
    pool = "left" if node == "r1-0" else "right"
    on_it = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
    allocated = build_claim("ours", [(pool, f"{node}-0")], namespace=NAMESPACE, nodeSelector=on_it)
    allocated["status"]["reservedFor"] = [{"resource": "pods", "name": name} for name in ("a", "b")]
    due(harness)
    harness.devices(allocated)
    assert due(harness) == {GroupKey(NAMESPACE, "g")}
    harness.settle()
    assert harness.where()["late"] == node

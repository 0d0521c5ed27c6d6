"""The reconciler of groups of pods with constraints on devices, as slices and claims come and go."""

from __future__ import annotations

from typing import Any

from core.podgroups.members import GroupKey
from core.runtime.resource import Obj
from tests.podgroups.devices import TEMPLATE, claim, device_class, pool_of_nodes, template
from tests.reconciler.paper_groups import NAMESPACE, PaperGroups
from tests.reconciler.test_groups_on_paper import due

CONSTRAINTS = {"draConstraints": [{"resourceClaimTemplateName": TEMPLATE}]}
CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]


def hall(*pools: list[Obj]) -> PaperGroups:
    """Four nodes of eight CPUs; a class, a template for one device, and these pools."""
    paper = PaperGroups({"r1": (8, 8), "r2": (8, 8)})
    paper.devices(device_class(), template(namespace=NAMESPACE), *(one for pool in pools for one in pool))
    return paper


def gang(paper: PaperGroups, count: int, name: str = "g") -> None:
    paper.gang(count, name=name, schedulingConstraints=CONSTRAINTS)
    for number in range(count):
        add(paper, f"{name}{number}", name)


def add(paper: PaperGroups, pod: str, group: str = "g") -> None:
    paper.add(pod, group=group, resourceClaims=CLAIMS)


def allocate(paper: PaperGroups, pod: str, pool: str, device: str) -> Obj:
    """As kube-controller-manager and kube-scheduler do: a claim is made for a pod, and gets a device. Returns it."""
    made = claim(f"{pod}-claim", [(pool, device)], namespace=NAMESPACE)
    made["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": pod}]
    paper.devices({**made, "status": {}})
    statuses = [{"name": "gpu", "resourceClaimName": f"{pod}-claim"}]
    paper.change(pod, status={**paper.pods[pod]["status"], "resourceClaimStatuses": statuses})
    due(paper)
    paper.devices(made)
    return made


LEFT = pool_of_nodes("left", {"r1-0": 1, "r1-1": 1})
RIGHT = pool_of_nodes("right", {"r2-0": 2, "r2-1": 1})


def test_a_gang_goes_to_the_pool_that_has_enough() -> None:
    paper = hall(LEFT, RIGHT)
    gang(paper, 3)
    paper.settle()
    assert sorted(paper.where().values()) == ["r2-0", "r2-0", "r2-1"]
    assert paper.says == ("True", "Scheduled", "3 pods have their places")


def test_devices_of_pods_that_are_placed_are_taken_before_they_are_allocated_and_given_back_with_the_pods() -> None:
    paper = hall(RIGHT)
    gang(paper, 2, "g")
    gang(paper, 2, "h")
    paper.settle("g")
    paper.settle("h")
    assert set(paper.where()) == {"g0", "g1"}
    assert "pool gpu.example.com/right 1 of 2, short of 1 device(s) of claim template one-gpu" in paper.says[2]
    paper.bind()
    allocated = [allocate(paper, f"g{number}", "right", f"{node}-0") for number, node in enumerate(("r2-0", "r2-1"))]
    paper.settle("h")
    assert set(paper.where()) == {"g0", "g1"}, "they are counted once"
    for number in (0, 1):
        paper.drop(f"g{number}")
    paper.settle("h")
    assert "h0" not in paper.where(), "kube-controller-manager has not given the devices back"
    due(paper)
    for one in allocated:
        paper.drop_device(one)
    assert GroupKey(NAMESPACE, "h") in due(paper)
    paper.settle("h")
    assert {"h0", "h1"} <= set(paper.where())


def test_a_group_that_waits_is_looked_at_when_devices_come() -> None:
    paper = hall(LEFT)
    gang(paper, 3)
    paper.settle()
    assert paper.says[1] == "Unschedulable"
    due(paper)
    paper.devices(*RIGHT)
    assert due(paper) == {GroupKey(NAMESPACE, "g")}
    paper.settle()
    assert len(paper.where()) == 3


def test_one_that_comes_later_goes_to_the_pool_of_the_others_once_they_have_devices() -> None:
    paper = hall(LEFT, pool_of_nodes("right", {"r2-0": 3}))
    gang(paper, 2)
    paper.settle()
    paper.bind()
    add(paper, "late")
    paper.settle()
    assert "late" not in paper.where()
    assert "not allocated" in paper.says[2]
    nodes = {name: paper.pods[name]["spec"]["nodeName"] for name in ("g0", "g1")}
    pool = "left" if nodes["g0"].startswith("r1") else "right"
    devices = [f"{nodes['g0']}-0", f"{nodes['g1']}-{int(nodes['g0'] == nodes['g1'])}"]
    due(paper)
    for name, device in zip(("g0", "g1"), devices, strict=True):
        allocate(paper, name, pool, device)
    assert GroupKey(NAMESPACE, "g") in due(paper)
    paper.settle()
    assert ("late" in paper.where()) == (pool == "right")


def test_devices_that_do_not_lie_together_are_told() -> None:
    paper = hall(LEFT, RIGHT)
    gang(paper, 2)
    paper.settle()
    paper.bind()
    allocate(paper, "g0", "left", "r1-0-0")
    due(paper)
    allocate(paper, "g1", "right", "r2-0-0")
    assert due(paper) == {GroupKey(NAMESPACE, "g")}
    paper.settle()
    assert paper.says == (
        "False",
        "DevicesApart",
        "2 pods have their places; its devices of claim template one-gpu do not lie together, "
        "but in pools gpu.example.com/left (1), gpu.example.com/right (1)",
    )


def test_a_successor_counts_what_its_predecessor_decided() -> None:
    before = hall(RIGHT)
    gang(before, 2)
    before.settle()
    after = hall(RIGHT)
    for pod in before.pods.values():
        after.put(pod)
    gang(after, 2, "h")
    after.settle("h")
    assert "h0" not in after.where()


def test_what_cannot_be_served_is_told_and_nobody_is_let_go() -> None:
    paper = hall(RIGHT)
    odd: dict[str, Any] = {"devices": {"requests": [{"name": "any", "firstAvailable": [{"name": "a"}]}]}}
    paper.devices(template(spec=odd, namespace=NAMESPACE))
    gang(paper, 2)
    paper.settle()
    assert paper.says == (
        "False",
        "Invalid",
        "spec.schedulingConstraints.draConstraints: ResourceClaimTemplate one-gpu: "
        "spec.spec.devices.requests[any].firstAvailable is not served",
    )
    due(paper)
    paper.devices(template(namespace=NAMESPACE))
    assert due(paper) == {GroupKey(NAMESPACE, "g")}
    paper.settle()
    assert len(paper.where()) == 2


def test_events_of_devices_wake_only_groups_with_constraints_on_devices() -> None:
    """Found defect G10: KEP-5732's EnqueueExtensions."""
    paper = hall(LEFT)
    gang(paper, 3)
    paper.gang(2, name="large")
    paper.add("large0", "large1", group="large", cpu=9)
    paper.settle()
    for name in ("g", "large"):
        paper.look(name)
    due(paper)
    paper.devices(*RIGHT)
    assert due(paper) == {GroupKey(NAMESPACE, "g")}
    paper.devices(claim("some", [("right", "r2-0-0")], namespace=NAMESPACE))
    assert due(paper) == {GroupKey(NAMESPACE, "g")}
    paper.node("r1-2", "r1", 9)
    assert due(paper) == {GroupKey(NAMESPACE, "g"), GroupKey(NAMESPACE, "large")}


def test_a_claim_that_is_made_wakes_nobody_unless_it_may_be_for_all() -> None:
    paper = hall(LEFT)
    gang(paper, 3)
    paper.settle()
    due(paper)
    made = claim("some", namespace=NAMESPACE)
    of_pod = {**made, "metadata": {**made["metadata"], "ownerReferences": [{"kind": "Pod", "name": "some"}]}}
    paper.devices(of_pod)
    paper.drop_device(of_pod)
    assert due(paper) == set()
    paper.devices(made)
    assert due(paper) == {GroupKey(NAMESPACE, "g")}
    paper.devices({**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}})
    assert due(paper) == set()
    paper.devices({**claim("some", [("left", "r1-0-0")], namespace=NAMESPACE)})
    assert due(paper) == {GroupKey(NAMESPACE, "g")}


def test_pods_that_share_a_claim_are_placed_once_it_is_there_and_later_ones_follow_it() -> None:
    paper = hall(pool_of_nodes("left", {"r1-0": 1}), pool_of_nodes("right", {"r2-0": 1}))
    paper.gang(2, schedulingConstraints=CONSTRAINTS)
    shared = [{"name": "gpu", "resourceClaimName": "ours"}]
    for name in ("a", "b"):
        paper.add(name, resourceClaims=shared)
    paper.settle()
    assert paper.says[1] == "Invalid"
    assert "names one that asks for the same" in paper.says[2]
    due(paper)
    paper.devices(claim("ours", namespace=NAMESPACE))
    assert due(paper) == {GroupKey(NAMESPACE, "g")}
    paper.settle()
    assert len(set(paper.where().values())) == 1
    paper.bind()
    there = set(paper.where().values())
    paper.add("late", resourceClaims=shared)
    paper.settle()
    assert "late" not in paper.where(), "nobody knows yet which devices it is"
    (node,) = there
    pool = "left" if node == "r1-0" else "right"
    on_it = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
    allocated = claim("ours", [(pool, f"{node}-0")], namespace=NAMESPACE, nodeSelector=on_it)
    allocated["status"]["reservedFor"] = [{"resource": "pods", "name": name} for name in ("a", "b")]
    due(paper)
    paper.devices(allocated)
    assert due(paper) == {GroupKey(NAMESPACE, "g")}
    paper.settle()
    assert paper.where()["late"] == node

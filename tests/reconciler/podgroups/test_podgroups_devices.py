"""Groups of pods with constraints on devices, on the real control plane: kube-scheduler allocates, and what it allocates lies together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL, MEMBER_OF_LABEL, PODGROUP_GATE
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.installed import Installed
from tests.podgroups.devices import build_claim_spec, build_device_class, build_resource_slice, build_template
from tests.reconciler.kinds.pods import build_pod_spec
from tests.reconciler.podgroups.test_podgroups import DOCUMENT, GATE, GROUPS, get_condition, get_places
from tests.reconciler.scenes import Scene

TEMPLATE = "one-device"  # not the name in the documented example, whose pods must not get claims of a template seen before
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"


@pytest.fixture(scope="module")
def topogate(installed: Installed) -> Topogate:
    running = installed.run()
    running.kill_reconciler()
    running.start_reconciler(options=GATE)
    return running


class Hall(Scene):
    """Four nodes; devices of one driver in two pools, `left` of the first two nodes and `right` of the others."""

    def open_with(self, left: int, right: int) -> Hall:
        """So many devices on each node of a pool."""
        self.open()
        self.driver = f"{self.prefix}gpu.example.com"
        self.create(build_device_class(self.driver, f'device.driver == "{self.driver}"'))
        self.create(build_template(TEMPLATE, self.asking(1), self.namespace))
        nodes = sorted(name for name in self.read().nodes if name.startswith(self.prefix))
        assert len(nodes) == 4
        for pool, count, of_pool in (("left", left, nodes[:2]), ("right", right, nodes[2:])):
            for node in of_pool:
                made = build_resource_slice(f"{self.prefix}{pool}", count, node=node, slices=2, driver=self.driver, name=f"{node}-devices")
                self.create(made)
        return self

    def create(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Without what only objects on paper have."""
        metadata = {name: value for name, value in obj["metadata"].items() if name not in ("uid", "resourceVersion")}
        return super().create({**obj, "metadata": metadata})

    def asking(self, count: int, *expressions: str) -> dict[str, Any]:
        spec = build_claim_spec(count, *expressions)
        spec["devices"]["requests"][0]["exactly"]["deviceClassName"] = self.driver
        return spec

    def close(self) -> None:
        for node in sorted(name for name in self.read().nodes if name.startswith(self.prefix)):
            self.api.delete(f"/apis/resource.k8s.io/v1/resourceslices/{node}-devices")
        self.api.delete(f"/apis/resource.k8s.io/v1/deviceclasses/{self.driver}")
        super().close()

    def gang(self, name: str, count: int, claim: dict[str, str] | None = None, of_template: str = TEMPLATE, gpus: int = 0) -> None:
        """A gang of so many pods, each with a claim of its own, or with this one."""
        metadata = {"name": name, "namespace": self.namespace}
        constraints = {"draConstraints": [{"resourceClaimTemplateName": of_template}]}
        spec = {"schedulingPolicy": {"gang": {"minCount": count or 2}}, "schedulingConstraints": constraints}
        body = {"apiVersion": "topogate.dev/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
        self.api.create(GROUPS.format(self.namespace), body)
        for number in range(count):
            self.add(name, number, claim or {"resourceClaimTemplateName": of_template}, gpus)

    def add(self, name: str, number: int, claim: dict[str, str], gpus: int = 0, on: str = "") -> None:
        """One of them; with the gate, unless somebody says himself where it is to go."""
        labels = {MEMBER_OF_LABEL: name, JOB_COMPLETION_INDEX_LABEL: f"{number}"}
        metadata = {"name": f"{name}-{number}", "namespace": self.namespace, "labels": labels}
        spec = {**build_pod_spec(gpus, restart="Never"), "resourceClaims": [{"name": "gpu", **claim}]}
        spec |= {"nodeSelector": {HOSTNAME_LABEL: on}} if on else {"schedulingGates": [{"name": PODGROUP_GATE}]}
        spec["containers"][0].setdefault("resources", {})["claims"] = [{"name": "gpu"}]
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def drop(self, name: str, count: int) -> None:
        for number in range(count):
            self.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}-{number}", grace_period_s=0)

    def devices(self, name: str) -> list[tuple[str, str]]:
        """Pool and name of the devices of a group's pods, as kube-scheduler allocated them."""
        found = set()
        for claim in self.api.get(CLAIMS.format(self.namespace))["items"]:
            status = claim.get("status") or {}
            users = {user["name"].rpartition("-")[0] for user in status.get("reservedFor") or ()}
            for one in ((status.get("allocation") or {}).get("devices") or {}).get("results") or () if name in users else ():
                found.add((one["pool"].removeprefix(self.prefix), one["device"]))
        return sorted(found)

    def until_bound_whole(self, name: str, count: int) -> truth.Snapshot:
        return self.eventually(f"{name} to be bound", lambda now: len(get_places(now, name)) == count)


@pytest.fixture
def small(cluster: Cluster, topogate: Topogate) -> Iterator[Hall]:
    hall = Hall(cluster).open_with(left=1, right=2)
    yield hall
    hall.close()


def test_all_pods_have_devices_of_one_pool(small: Hall) -> None:
    """A smaller gang goes where it leaves the larger pool whole only by chance; a larger one has no choice."""
    small.gang("train", 4)
    small.until_bound_whole("train", 4)
    devices = small.devices("train")
    assert len(devices) == 4
    assert {pool for pool, _ in devices} == {"right"}
    small.eventually("it to be told", lambda _: get_condition(small, "train").get("status") == "True")
    assert get_condition(small, "train")["message"] == "4 pods have their places"


def test_a_group_waits_while_no_pool_has_enough_and_goes_once_devices_are_free(small: Hall) -> None:
    small.gang("first", 3)
    small.until_bound_whole("first", 3)
    small.gang("second", 3)
    small.eventually("it to be told", lambda _: get_condition(small, "second").get("reason") == "Unschedulable")
    message = get_condition(small, "second")["message"]
    pools = [f"{small.driver}/{small.prefix}{pool}" for pool in ("left", "right")]
    assert message == (
        f"none of 2 placements takes 3 pods, the best takes 2: pool {pools[0]} 2 of 3, short of 1 device of claim template one-device; "
        f"pool {pools[1]} 1 of 3, short of 2 devices of claim template one-device."
    )
    assert get_places(small.read(), "second") == {}
    small.drop("first", 3)
    small.until_bound_whole("second", 3)
    assert {pool for pool, _ in small.devices("second")} == {"right"}


def test_two_gangs_that_come_together_do_not_share_devices(small: Hall) -> None:
    """The second is decided on before kube-scheduler has allocated anything to the first."""
    for name in ("one", "other"):
        small.gang(name, 2)
    for name in ("one", "other"):
        small.until_bound_whole(name, 2)
        assert len(small.devices(name)) == 2
        assert len({pool for pool, _ in small.devices(name)}) == 1
    small.gang("third", 2)
    small.until_bound_whole("third", 2)
    assert len({*small.devices("one"), *small.devices("other"), *small.devices("third")}) == 6


def test_one_claim_for_all_pods_is_one_allocation(small: Hall) -> None:
    metadata = {"name": "ours", "namespace": small.namespace}
    small.create(build_template("pair", small.asking(2), small.namespace))
    small.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": small.asking(2)})
    small.gang("team", 3, {"resourceClaimName": "ours"}, "pair")
    now = small.until_bound_whole("team", 3)
    assert len(set(get_places(now, "team").values())) == 1, "no two nodes reach the same devices"
    assert len(small.devices("team")) == 2


@pytest.fixture
def fabric(cluster: Cluster, topogate: Topogate) -> Iterator[Hall]:
    """Devices that all nodes of a rack reach, two in one and four in the other, and none of single nodes."""
    hall = Hall(cluster).open_with(left=0, right=0)
    its_own = {name: node["metadata"]["labels"] for name, node in hall.read().nodes.items() if name.startswith(hall.prefix)}
    nodes = {labels[hall.rack]: name for name, labels in sorted(its_own.items())}
    for rack, count in zip(sorted(nodes), (2, 4), strict=True):
        term = {"matchExpressions": [{"key": hall.rack, "operator": "In", "values": [rack]}]}
        name = f"{nodes[rack]}-fabric"
        selector = {"nodeSelectorTerms": [term]}
        hall.create(build_resource_slice(f"{hall.prefix}{rack}", count, driver=hall.driver, name=name, nodeSelector=selector))
    yield hall
    for name in nodes.values():
        hall.api.delete(f"/apis/resource.k8s.io/v1/resourceslices/{name}-fabric")
    hall.close()


def test_devices_that_the_nodes_of_a_rack_share_are_shared(fabric: Hall) -> None:
    """Three devices of the one rack that has them, for pods of which a node takes two."""
    fabric.gang("train", 3, gpus=4)
    now = fabric.until_bound_whole("train", 3)
    assert len(set(get_places(now, "train").values())) == 2
    assert len({pool for pool, _ in fabric.devices("train")}) == 1
    assert len(fabric.devices("train")) == 3
    fabric.gang("next", 3)
    fabric.eventually("it to be told", lambda _: get_condition(fabric, "next").get("reason") == "Unschedulable")
    assert "the best takes 2" in get_condition(fabric, "next")["message"]


def test_pods_on_several_nodes_have_one_claim_where_all_these_reach_its_devices(fabric: Hall) -> None:
    metadata = {"name": "ours", "namespace": fabric.namespace}
    fabric.create(build_template("three", fabric.asking(3), fabric.namespace))
    fabric.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": fabric.asking(3)})
    fabric.gang("team", 2, {"resourceClaimName": "ours"}, "three", gpus=8)
    now = fabric.until_bound_whole("team", 2)
    assert len(set(get_places(now, "team").values())) == 2
    assert len(fabric.devices("team")) == 3
    fabric.eventually("it to be told", lambda _: get_condition(fabric, "team").get("status") == "True")


def test_devices_that_do_not_lie_together_are_told(small: Hall) -> None:
    """Pods that somebody sent past the gate, each to a pool of its own."""
    small.gang("apart", 0)
    nodes = sorted(name for name in small.read().nodes if name.startswith(small.prefix))
    for number, node in enumerate((nodes[0], nodes[3])):
        small.add("apart", number, {"resourceClaimTemplateName": TEMPLATE}, on=node)
    small.eventually("it to be told", lambda _: get_condition(small, "apart").get("reason") == "DevicesApart")
    pools = ", ".join(f"{small.driver}/{small.prefix}{pool} (1)" for pool in ("left", "right"))
    assert get_condition(small, "apart")["message"] == (
        f"2 pods have their places; its devices of claim template one-device do not lie together, but in pools {pools}"
    )
    assert get_condition(small, "apart")["status"] == "False"


def test_group_with_an_unsupported_allocation_mode_is_reported_invalid(small: Hall) -> None:
    spec = small.asking(1)
    spec["devices"]["requests"][0]["exactly"] = {"deviceClassName": small.driver, "allocationMode": "All"}
    small.create(build_template("all", spec, small.namespace))
    small.gang("odd", 1, of_template="all")
    small.eventually("it to be told", lambda _: get_condition(small, "odd").get("reason") == "Invalid")
    assert get_condition(small, "odd")["message"] == (
        "spec.schedulingConstraints.draConstraints: ResourceClaimTemplate all: "
        "spec.spec.devices.requests[gpus].exactly.allocationMode All is not served"
    )


def test_documented_device_constraint_example_is_placed(small: Hall) -> None:
    texts = re.findall(r"^```yaml\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    (text,) = (text for text in texts if "draConstraints" in text)
    driver, nodes = "gpu.example.com", sorted(name for name in small.read().nodes if name.startswith(small.prefix))
    small.create(build_device_class(driver))
    try:
        for memory, node in (("24Gi", nodes[0]), ("80Gi", nodes[1])):
            made = [{"name": f"gpu-{number}", "capacity": {"memory": {"value": memory}}} for number in (0, 1)]
            small.create(
                build_resource_slice(
                    f"{small.prefix}{memory.lower()}", made, node=node, driver=driver, name=f"{small.prefix}{memory.lower()}"
                )
            )
        for obj in yaml.safe_load_all(text):
            small.create({**obj, "metadata": {**obj["metadata"], "namespace": small.namespace}})
        now = small.until_bound_whole("ring", 2)
        assert set(get_places(now, "ring").values()) == {nodes[1]}
        assert small.devices("ring") == [("80gi", "gpu-0"), ("80gi", "gpu-1")]
    finally:
        for memory in ("24gi", "80gi"):
            small.api.delete(f"/apis/resource.k8s.io/v1/resourceslices/{small.prefix}{memory}")
        small.api.delete(f"/apis/resource.k8s.io/v1/deviceclasses/{driver}")

"""How many devices nodes offer and pods hold, compared with a count by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.claimed_devices import name_devices
from core.podgroups.devices.claims import PoolId, read_claim, read_class, read_slice
from core.podgroups.devices.inventory import Inventory
from core.podgroups.devices.node_devices import ALL_NODES, NodeDevices
from tests.podgroups.devices import DRIVER, build_claim, build_device_class, build_inventory, build_resource_slice

NODES = ("n0", "n1", "n2")
CLASSES = {"big": 'device.attributes["gpu.example.com"].size >= 2', "all": "true", "gone": None}
Json = dict[str, Any]


def build_devices(sizes: list[int], first: int = 0, taints: frozenset[int] = frozenset()) -> list[Json]:
    return [
        {
            "name": f"d{first + at}",
            "attributes": {"size": {"int": size}},
            **({"taints": [{"key": "broken", "effect": "NoSchedule"}]} if at in taints else {}),
        }
        for at, size in enumerate(sizes)
    ]


def build_counted(inventory: Inventory) -> NodeDevices:
    for name, expression in CLASSES.items():
        if expression is not None:
            inventory.observe_class(name, read_class(build_device_class(name, expression)))
    found = NodeDevices(inventory, CLASSES)
    found.read_classes()
    return found


def select(*nodes: str) -> Json:
    values = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [values]}]}}


def read_offered(found: NodeDevices) -> dict[str, dict[str, int]]:
    return {node: dict(found.count_offered(node, {"kubernetes.io/hostname": node})) for node in NODES}


@st.composite
def draw_slices(draw: st.DrawFn) -> dict[str, Json | None]:
    """Slices by key, in a few pools, some of them incomplete; None: the slice is deleted."""
    found: dict[str, Json | None] = {}
    for key in draw(st.lists(st.sampled_from("abcdef"), max_size=6, unique=True)):
        reach = draw(st.sampled_from([{"node": "n0"}, {"node": "n1"}, {}, select("n1", "n2"), select("n9")]))
        taints = draw(st.frozensets(st.integers(0, 3), max_size=2))
        devices = build_devices(draw(st.lists(st.integers(1, 3), max_size=4)), first=10 * ord(key), taints=taints)
        pool, generation = draw(st.sampled_from("pq")), draw(st.integers(1, 2))
        made = build_resource_slice(pool, devices, name=key, generation=generation, slices=draw(st.integers(1, 2)), **reach)
        found[key] = draw(st.sampled_from([made, made, made, None]))
    return found


def count_by_hand(slices: dict[str, Json]) -> dict[str, dict[str, int]]:
    """Of each pool the newest generation, if all its slices are there."""
    offered: dict[str, Counter[str]] = {node: Counter() for node in NODES}
    for pool in "pq":
        of_pool = [one["spec"] for one in slices.values() if one["spec"]["pool"]["name"] == pool]
        newest = max((one["pool"]["generation"] for one in of_pool), default=0)
        there = [one for one in of_pool if one["pool"]["generation"] == newest]
        first = [slices[key]["spec"] for key in sorted(slices) if slices[key]["spec"] in there][:1]
        if not first or len(there) != first[0]["pool"]["resourceSliceCount"]:
            continue
        for one in there:
            terms = (one.get("nodeSelector") or {}).get("nodeSelectorTerms")
            named = terms[0]["matchExpressions"][0]["values"] if terms else [one["nodeName"]] if "nodeName" in one else NODES
            for device in one["devices"]:
                classes = ["all", *(["big"] if device["attributes"]["size"]["int"] >= 2 else [])] if "taints" not in device else []
                for node in set(named) & set(NODES):
                    offered[node].update(map(name_devices, classes))
    return {node: dict(counts) for node, counts in offered.items()}


@given(st.lists(draw_slices(), min_size=1, max_size=4))
def test_offered_devices_equal_a_count_by_hand_after_any_changes(rounds: list[dict[str, Json | None]]):
    inventory = Inventory()
    found, there = build_counted(inventory), dict[str, Json]()
    for changes in rounds:
        before, dirty = read_offered(found), set[PoolId]()
        for key, one in changes.items():
            dirty |= {PoolId(DRIVER, old["spec"]["pool"]["name"]) for old in (there.get(key), one) if old is not None}
            inventory.observe_slice(key, read_slice(one) if one is not None else None)
            there = {name: value for name, value in {**there, key: one}.items() if value is not None}
        changed = set[str]().union(*(found.count_pool(pool) for pool in sorted(dirty)))
        now = read_offered(found)
        assert now == count_by_hand(there)
        assert list(inventory.pools.items()) == list(build_inventory(*there.values()).pools.items())
        assert ALL_NODES in changed or {node for node in NODES if before[node] != now[node]} <= changed


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.data())
def test_held_devices_equal_a_count_by_hand(sizes: list[int], data: st.DataObject):
    inventory = Inventory()
    found = build_counted(inventory)
    inventory.observe_slice("s", read_slice(build_resource_slice("p", build_devices(sizes), node="n0")))
    found.count_pool(PoolId(DRIVER, "p"))
    held = data.draw(st.lists(st.integers(0, len(sizes) - 1), unique=True))
    claim = read_claim(build_claim("c", [("p", f"d{at}") for at in held]))
    counts = {name_devices("all"): len(held), name_devices("big"): sum(sizes[at] >= 2 for at in held)}
    assert dict(found.count_held([claim])) == {name: number for name, number in counts.items() if number}


def test_devices_of_unknown_pools_are_held_by_the_class_that_the_claim_names():
    found = build_counted(Inventory())
    spec = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "big", "count": 2**62}}]}}
    claim = read_claim(build_claim("c", [("p", "d0"), ("p", "d1")], spec=spec))
    assert dict(found.count_held([claim])) == {name_devices("big"): 2}


def test_tainted_devices_are_not_offered_and_not_held():
    inventory = Inventory()
    found = build_counted(inventory)
    inventory.observe_slice("s", read_slice(build_resource_slice("p", build_devices([1, 1], taints=frozenset({0})), node="n0")))
    found.count_pool(PoolId(DRIVER, "p"))
    assert read_offered(found)["n0"] == {name_devices("all"): 1}
    assert dict(found.count_held([read_claim(build_claim("c", [("p", "d0")]))])) == {}


@pytest.mark.parametrize("field", [{"consumesCounters": [{"counterSet": "c"}]}, {"allowMultipleAllocations": True}])
def test_tainted_devices_with_fields_that_are_not_understood_are_not_offered_either(field: Json):
    """A node with broken partitions alone would take any number of pods."""
    inventory = Inventory()
    found = build_counted(inventory)
    devices = [device | field for device in build_devices([1, 1], taints=frozenset({0, 1}))] + build_devices([1], first=2)
    inventory.observe_slice("s", read_slice(build_resource_slice("p", devices, node="n0")))
    found.count_pool(PoolId(DRIVER, "p"))
    assert read_offered(found)["n0"] == {name_devices("all"): 1}
    assert found.is_judged("all")


def test_a_class_that_cannot_be_evaluated_has_no_devices():
    inventory = Inventory()
    inventory.observe_class("big", read_class(build_device_class("big", "device.unknown_function()")))
    inventory.observe_class("all", read_class(build_device_class("all", "true")))
    found = NodeDevices(inventory, CLASSES)
    found.read_classes()
    inventory.observe_slice("s", read_slice(build_resource_slice("p", 3, node="n0")))
    assert found.count_pool(PoolId(DRIVER, "p")) == {"n0"}
    assert read_offered(found)["n0"] == {name_devices("all"): 3}


@pytest.mark.parametrize("number", [0, 5])
def test_a_pool_that_is_gone_leaves_nothing_behind(number: int):
    inventory = Inventory()
    found, pool = build_counted(inventory), PoolId(DRIVER, "p")
    inventory.observe_slice("s", read_slice(build_resource_slice("p", number, node="n0")))
    inventory.observe_slice("t", read_slice(build_resource_slice("p", number, name="t")))
    found.count_pool(pool)
    inventory.observe_slice("s", None)
    inventory.observe_slice("t", None)
    found.count_pool(pool)
    assert (found._own, found._shared, found._nodes, found._taken_by) == ({}, {}, {}, {})

"""The catalogue of sentences, PodGroups: why a group waits, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL
from core.podgroups.devices.claims import PodClaim
from core.podgroups.group_explanation import explain
from tests.builders import BLOCK, RACK, build_view
from tests.podgroups import test_devices as of_devices
from tests.podgroups.builders import build_node, group, list_nodes
from tests.podgroups.devices import TEMPLATE, build_claim, build_inventory, build_resource_slice, pool_of_nodes
from tests.podgroups.test_acting import Paper
from tests.podgroups.test_explain import explain_group
from tests.podgroups.test_native import build_pod as build_native_pod
from tests.podgroups.test_native import step as step_natively

Cases = dict[str, tuple[Callable[[], str], str]]


def settle(racks: dict[str, Sequence[int]], pods: int, **options: Any) -> str:
    """The message of a group after everything that can be done is done."""
    paper = Paper(racks, **options)
    paper.add(*range(pods))
    return paper.settle().message


def wait_for_desired() -> str:
    paper = Paper({"r1": [2], "r2": [5]}, desired=4)
    paper.add(0, 1)
    return paper.step(waited_s=1.0).message


def outgrow() -> str:
    paper = Paper({"r2": [3]}, min_count=1)
    paper.add(0, 1)
    paper.settle()
    paper.bind()
    paper.add(2, 3)
    return paper.settle().message


def refuse_binding() -> str:
    paper = Paper({"r1": [2]}, min_count=2)
    paper.add(0, 1)
    paper.settle()
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: a thief"}
    paper.pods["p1"]["status"]["conditions"] = [refused]
    return paper.settle().message


def make_no_placement(*, is_labelled: bool) -> str:
    nodes = list_nodes({"r1": [2]}) if is_labelled else [build_node("a", "b", None)]
    return str(explain(build_view([HOSTNAME_LABEL], nodes), group((1, 1)), ()))


def ask_for_devices(there: Any, count: int, **options: Any) -> str:
    return of_devices.get_message(of_devices.build_nodes_view(), there, of_devices.build_group(count), **options)


def lie_apart() -> str:
    there = build_inventory(
        *pool_of_nodes("p", {"a": 2, "b": 2}),
        *pool_of_nodes("q", {"c": 8}),
        build_claim("mine", [("p", "a-0")]),
        build_claim("apart", [("q", "c-0")]),
    )
    running = tuple((PodClaim(TEMPLATE, name),) for name in ("mine", "apart"))
    return of_devices.get_message(of_devices.build_nodes_view(), there, of_devices.build_group(2, running={"a": 1}), running=running)


def build_slice(name: str, devices: Any, **options: Any) -> Any:
    return build_inventory(build_resource_slice(name, devices, **options))


CONDITIONS: Cases = {
    "placed": (lambda: settle({"r1": [2, 2]}, 4, min_count=4), "4 pods have their places"),
    "too few pods": (lambda: settle({"r1": [8]}, 2, min_count=3), "2 of at least 3 pods are there"),
    "too few desired pods": (wait_for_desired, "2 of 4 desired pods are there; more are waited for, up to 5 s after the last"),
    "no placement": (
        lambda: settle({"r1": [2], "r2": [3]}, 4, min_count=4),
        "none of 2 placements takes 4 pods, the best takes 3: cloud/rack r2 3 of 4, short of 1 cpu; cloud/rack r1 2 of 4, short of 2 cpu.",
    ),
    "no placement of the minimum": (
        lambda: str(explain_group(list_nodes({"r1": [2]}), group((4, 1), min_count=3))),
        "none of 1 placement takes 3 of 4 pods, the best takes 2: cloud/rack r1 2 of 4, short of 2 cpu.",
    ),
    "no placement, and excluded nodes": (
        lambda: str(explain_group([build_node("a", "b", "r1", 8, ready=False), build_node("c", "b", "r1", 1)], group((2, 1)))),
        "none of 1 placement takes 2 pods, the best takes 1: cloud/rack r1 1 of 2, short of 1 cpu. Total nodes: 2; excluded: "
        "NotReady: 1 (a).",
    ),
    "placements that plugins make": (
        lambda: make_no_placement(is_labelled=True),
        "there is no placement: the plugins make none of the nodes with the label cloud/rack.",
    ),
    "no node with the label": (lambda: make_no_placement(is_labelled=False), "there is no placement: no node has the label cloud/rack."),
    "pods in two racks": (
        lambda: str(explain_group(list_nodes({"r1": [4], "r2": [4]}), group((1, 1), by=[BLOCK, RACK], running={"r1-0": 1, "r2-0": 1}))),
        "its 2 running pods are in no one cloud/rack, so that there is none for the others.",
    ),
    "more pods than have room": (
        outgrow,
        "3 pods have their places; 1 pod more wait: none of 1 placement takes 1 pod, the best takes 0. Total nodes: 1; "
        'excluded: resource "cpu": 1.',
    ),
    "a pod that is not bound": (
        refuse_binding,
        "kube-scheduler does not bind pod ns/p1 to node r1-0, where its place is: 0/1 nodes are available: a thief",
    ),
    "bound by kube-scheduler": (
        lambda: step_natively({"r1": [2, 2]}, *(build_native_pod(i, f"r1-{i % 2}") for i in range(3))).message,
        "kube-scheduler has bound 3 pods in r1",
    ),
    "scattered by kube-scheduler": (
        lambda: (
            step_natively(
                {"r1": [2], "r2": [2]}, build_native_pod(0, "r1-0"), build_native_pod(1, "r2-0"), build_native_pod(2, "r1-0")
            ).message
        ),
        "kube-scheduler has bound 3 pods in no one cloud/rack: r1 2, r2 1",
    ),
    "waits for kube-scheduler": (
        lambda: step_natively({"r1": [4]}, build_native_pod(0), build_native_pod(1), build_native_pod(2, said="no volume")).message,
        "kube-scheduler has bound 0 of 3 pods, though placement r1 has room for the rest; it says: no volume",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), CONDITIONS.values(), ids=CONDITIONS)
def test_podgroup_condition_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence


DEVICES: Cases = {
    "too few devices": (
        lambda: ask_for_devices(build_inventory(*pool_of_nodes("p", {"a": 1, "b": 1}), *pool_of_nodes("q", {"c": 2, "d": 1})), 4),
        "none of 2 placements takes 4 pods, the best takes 3: pool gpu.example.com/q 3 of 4, short of 1 device of claim "
        "template one-gpu; pool gpu.example.com/p 2 of 4, short of 2 devices of claim template one-gpu.",
    ),
    "devices in two pools": (
        lie_apart,
        "its devices of claim template one-gpu do not lie together, but in pools gpu.example.com/p (1), gpu.example.com/q (1), "
        "so that there is none for the others.",
    ),
    "a pool that is not complete": (
        lambda: ask_for_devices(build_slice("p", 2, node="a", slices=2), 2),
        "no pool has all devices that a claim made from ResourceClaimTemplate one-gpu asks for; left out, since topogate does "
        "not serve it or kube-scheduler would not allocate it: pool gpu.example.com/p is not complete: 1 of 2 ResourceSlices "
        "are there (1).",
    ),
    "devices that are not served": (
        lambda: ask_for_devices(build_slice("p", [{"name": "x", "allowMultipleAllocations": True}, {"name": "y"}]), 2),
        "none of 1 placement takes 2 pods, the best takes 1: pool gpu.example.com/p 1 of 2, short of 1 device of claim "
        "template one-gpu. left out, since topogate does not serve it or kube-scheduler would not allocate it: "
        "allowMultipleAllocations of devices in pool gpu.example.com/p (1).",
    ),
    "devices out of reach": (
        lambda: ask_for_devices(build_slice("p", 4, node="elsewhere"), 1),
        "no node that it may use is in reach of devices that claim template one-gpu asks for.",
    ),
    "no devices": (
        lambda: ask_for_devices(build_inventory(), 1),
        "no pool has all devices that a claim made from ResourceClaimTemplate one-gpu asks for.",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), DEVICES.values(), ids=DEVICES)
def test_podgroup_without_devices_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence

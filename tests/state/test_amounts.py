"""Amounts on their way from the text of an object to the free matrix: however large, none overflows or lends room to others."""

from __future__ import annotations

from collections import Counter
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.quantity import LARGEST, InvalidQuantity, parse_exact_quantity
from core.names import HOSTNAME_LABEL
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.tree import NodeLabels, TopologyTree
from core.runtime.http.client import Client
from core.state.daemonsets import WINDOW_S
from core.state.facts import NodeFacts, PodFacts
from core.state.usage import UsageTable
from reconciler.observe.observed import Observed
from tests.builders import NAMESPACE, RACK, Node, build_node_json, build_pod_json, build_pod_set_json, build_workload_json
from tests.queueing.scene import Scene, get_refusals, list_admitted
from tests.runtime.fakes import ManualClock
from tests.state.test_daemonsets import build_daemon_pod, build_daemon_set_json, see

GPU = "nvidia.com/gpu"
RESOURCES = ("cpu", "memory", GPU)
TEXTS = ("9E", "8Ei", "9223372036854775807", "1e30", "4611686018427387903", "500m", "0.5", "1", "3", "0", "1n", "2Pi")
TEXT_LISTS = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from(TEXTS), max_size=3)
BLOCKS = st.fixed_dictionaries({}, optional={"requests": TEXT_LISTS, "limits": TEXT_LISTS})
CONTAINERS = st.lists(st.builds(lambda block: {"name": "c", "resources": block}, BLOCKS), max_size=2)
SIDECAR = st.sampled_from(({}, {"restartPolicy": "Always"}))
INIT_CONTAINERS = st.lists(st.builds(lambda block, sidecar: {"name": "i", "resources": block, **sidecar}, BLOCKS, SIDECAR), max_size=2)
SPECS = st.fixed_dictionaries(
    {"containers": CONTAINERS}, optional={"initContainers": INIT_CONTAINERS, "overhead": TEXT_LISTS, "resources": BLOCKS}
)
NODES = ("n0", "n1", "no-such-node")


def count_exactly(spec: dict[str, Any], resource: str) -> int:
    """What a pod takes of a resource by Kubernetes' rules, written down again and without any limit."""

    def of(block: dict[str, Any]) -> int:
        text = {**(block.get("limits") or {}), **(block.get("requests") or {})}.get(resource, "0")
        return ceil(parse_exact_quantity(text) * (1000 if resource == "cpu" else 1))

    total = sum(min(of(each["resources"]), LARGEST) for each in spec["containers"])
    sidecars = peak = 0
    for each in spec.get("initContainers", ()):
        own = min(of(each["resources"]), LARGEST)
        if "restartPolicy" in each:
            sidecars += own
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + own)
    total = max(total + sidecars, peak)
    whole = spec.get("resources", {})
    named = any(
        resource in (each["resources"].get(kind) or {})
        for each in (*spec["containers"], *spec.get("initContainers", ()))
        for kind in ("requests", "limits")
    )
    if resource in (whole.get("requests") or {}) or (not named and resource in (whole.get("limits") or {})):
        total = min(of(whole), LARGEST)
    return min(total + min(of({"requests": spec.get("overhead", {})}), LARGEST), LARGEST)


def build_pod(name: str, spec: dict[str, Any], node: str) -> dict[str, Any]:
    return {**build_pod_json(name), "spec": {**spec, "nodeName": node}}


@given(st.lists(st.tuples(SPECS, st.sampled_from(NODES)), max_size=6), st.randoms())
def test_free_amounts_of_nodes_with_any_pods_are_exact_or_cut(pods: list[tuple[dict[str, Any], str]], chance: Any):
    """Former defect: sums of requests wrapped, and a crash ended the process."""
    has = {"cpu": 4000, "memory": 2**40, GPU: 8, "pods": 110}
    scene = Scene()
    state = scene.state
    for name in NODES[:2]:
        scene.node(Node(name, {RACK: "r", "kubernetes.io/hostname": name}, has))
    state.refresh()
    capacity = state.whole.capacity
    used: dict[str, Counter[str]] = {name: Counter() for name in NODES}
    for i, (spec, node) in enumerate(pods):
        scene.pod(build_pod(f"p{i}", spec, node))
        used[node].update({resource: count_exactly(spec, resource) for resource in RESOURCES})
    for name in NODES[:2]:
        for resource in RESOURCES:
            free = int(capacity.free[capacity.axis[resource], capacity.tree.index[name]])
            assert free == has[resource] - min(used[name][resource], LARGEST), (name, resource)
    assert state.ledger.find_drift() == {}
    order = list(range(len(pods)))
    chance.shuffle(order)
    for i in order:
        state.observe_pod(f"{NAMESPACE}/p{i}", None)
    assert (capacity.free == capacity.allocatable).all()
    assert state.ledger.find_drift() == {}


def test_pods_of_the_largest_amounts_on_a_node_that_does_not_exist_stop_nothing():
    """Former defect: two containers of 9E bytes each ended the reconciler."""
    scene = Scene()
    scene.rack("r", 1)
    for i in range(3):
        spec = {"containers": [{"name": c, "resources": {"requests": {"memory": "9E"}}} for c in "ab"]}
        scene.pod(build_pod(f"p{i}", spec, "no-such-node"))
    scene.submit("w")
    assert list_admitted(scene.run()) == {"w"}
    assert scene.state.ledger.usage["no-such-node"]["memory"] == 3 * LARGEST


def test_a_node_that_joins_after_its_pods_counts_them():
    scene = Scene()
    for i in range(2):
        spec = {"containers": [{"name": "c", "resources": {"requests": {GPU: "9E"}}}]}
        scene.pod(build_pod(f"p{i}", spec, "late"))
    scene.node(Node("late", {RACK: "r", "kubernetes.io/hostname": "late"}, {"cpu": 4000, "pods": 10, GPU: 8}))
    capacity = scene.state.whole.capacity
    assert int(capacity.free[capacity.axis[GPU], 0]) == 8 - LARGEST


def test_daemon_sets_of_the_largest_amounts_lend_no_room():
    """Former defect: two DaemonSets of 9E GPUs left an 8-GPU node with 446,744,073,709,550,724 free ones."""
    scene = Scene()
    see(scene.state, build_daemon_set_json("one", cpu="9E"))
    see(scene.state, build_daemon_set_json("two", cpu="9E"))
    scene.rack("r", 1)
    scene.submit("large", 1, cpu="900")
    scene.submit("small", 1, cpu="4")
    assert list_admitted(scene.run()) == {"small"}


def test_a_daemon_pod_larger_than_a_node_reserves_nothing_there():
    """Former defect: a DaemonSet that asks for 9 GPUs blocked all nodes of 8, for as long as it existed."""
    scene = Scene()
    see(scene.state, build_daemon_set_json("huge", cpu="5"))
    scene.rack("r", 1)
    scene.submit("w", 1, cpu="4")
    assert list_admitted(scene.run()) == {"w"}


def test_a_daemon_set_share_without_pods_ends_with_its_window():
    """Former defect: with a ResourceQuota of no pods a DaemonSet blocked every node that it selects."""
    scene = Scene()
    scene.state.observe_time(1000.0)
    scene.rack("r", 1)
    see(scene.state, build_daemon_set_json("never", cpu="4"))
    scene.submit("w", 1, cpu="4")
    assert list_admitted(scene.run()) == set()
    before = scene.state.changes
    scene.state.observe_time(1000.0 + WINDOW_S)
    assert scene.state.changes > before
    assert list_admitted(scene.run()) == {"w"}
    assert scene.state.ledger.find_drift() == {}


def test_a_new_daemon_set_reserves_nothing_on_nodes_that_joined_long_ago():
    """A DaemonSet that is made anew every minute must not keep nodes empty."""
    scene = Scene()
    scene.state.observe_time(0.0)
    scene.rack("old", 1)
    scene.state.observe_time(WINDOW_S)
    see(scene.state, build_daemon_set_json("late", cpu="4"))
    assert scene.state.ledger.daemons.shares == {}
    scene.rack("young", 1)
    assert set(scene.state.ledger.daemons.shares) == {"young-n0"}


def test_a_daemon_set_of_too_many_rules_gets_no_share():
    rules = [{"key": f"k{i}", "operator": "Exists"} for i in range(300)]
    scene = Scene()
    see(scene.state, build_daemon_set_json("odd", tolerations=rules))
    scene.rack("r", 1)
    assert scene.state.ledger.daemons.shares == {}


def test_resources_that_no_node_has_take_no_row():
    """Former defect: each of 4,000 names of a DaemonSet became a row of every node, for ever."""
    scene = Scene()
    scene.rack("r", 2)
    capacity = scene.state.whole.capacity
    rows = len(capacity.axis)
    requests = {f"example.com/r{i}": "1" for i in range(4000)}
    daemon_set = build_daemon_set_json("odd")
    daemon_set["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = requests
    see(scene.state, daemon_set)
    scene.pod(build_pod("p", {"containers": [{"name": "c", "resources": {"requests": requests}}]}, "r-n0"))
    assert len(capacity.axis) == rows == capacity.free.shape[0]
    table = scene.state.ledger._table
    assert table._amounts.shape[0] <= rows
    assert len(table._rare) == 4000
    scene.state.observe_pod(f"{NAMESPACE}/p", None)
    assert scene.state.ledger.usage == {}
    assert table._rare == {}


def test_a_resource_that_a_node_gets_later_counts_the_pods_that_use_it_already():
    scene = Scene()
    labels = {RACK: "r", "kubernetes.io/hostname": "n0"}
    scene.node(Node("n0", labels, {"cpu": 4000, "pods": 10}))
    capacity = scene.state.whole.capacity
    scene.pod(build_pod("p", {"containers": [{"name": "c", "resources": {"requests": {GPU: "3"}}}]}, "n0"))
    scene.node(Node("n0", labels, {"cpu": 4000, "pods": 10, GPU: 8}))
    assert int(capacity.free[capacity.axis[GPU], 0]) == 5
    assert scene.state.ledger.find_drift() == {}


def test_slots_of_nodes_that_are_gone_are_used_again():
    """Former defect: each node of an autoscaler that ever joined kept a slot."""
    table = UsageTable()
    for i in range(500):
        slot = table.get_slot(f"n{i}")
        table.use_slot(slot, {"cpu": 1}, 1)
        table.use_slot(slot, {"cpu": 1}, -1)
    assert max(table.get_slot(f"n{i}") for i in range(495, 500)) < 64


def test_new_nodes_where_few_slots_are_free_make_few_searches():
    """A search that found one free slot was made again for each new node: 5,000 nodes x 5,000 slots."""
    searches = list[int]()

    def count() -> tuple[()]:
        searches.append(1)
        return ()

    table = UsageTable(count)
    for i in range(2000):
        table.use_slot(table.get_slot(f"n{i}"), {"memory": 1}, 1)
        if i >= 1000:  # one goes for each that comes
            table.use_slot(table.get_slot(f"n{i - 1000}"), {"memory": 1}, -1)
    assert len(searches) < 20


def test_slots_that_are_referred_to_are_not_used_again():
    held: list[np.ndarray] = []
    table = UsageTable(lambda: held)
    held.append(table.get_slots([("kept", 1)]))
    assert held[0][0] not in {table.get_slot(f"n{i}") for i in range(50)}
    assert table.get_slot("kept") == held[0][0]


PLACES = ("container", "limits", "init", "sidecar", "overhead", "pod", "pod limits", "default", "default request")
ANY_TEXT = st.sampled_from((*TEXTS, "-1", "-9E", "-500m", "-1n", "1.5", "0.001", "9E9", "1e40", "E", "", "NaN"))


def observe_amount(place: str, text: str) -> tuple[Observed, bool]:
    """A Workload of 3 pods that request an amount of GPUs at a place, on a cluster with one node; whether it was read."""
    observed = Observed(Client.make_offline(), ManualClock())
    node = build_node_json(Node("n0", {RACK: "r", "kubernetes.io/hostname": "n0"}, {"cpu": 4000, "pods": 110, GPU: 8}))
    observed.nodes.put({**node, "metadata": {**node["metadata"], "uid": "n0", "resourceVersion": "1"}})
    container: dict[str, Any] = {"name": "c"}
    spec: dict[str, Any] = {"containers": [container]}
    amounts = {GPU: text}
    match place:
        case "container":
            container["resources"] = {"requests": amounts}
        case "limits":
            container["resources"] = {"limits": amounts}
        case "init" | "sidecar":
            more = {"restartPolicy": "Always"} if place == "sidecar" else {}
            spec["initContainers"] = [{"name": "i", "resources": {"requests": amounts}, **more}]
        case "overhead":
            spec["overhead"] = amounts
        case "pod" | "pod limits":
            spec["resources"] = {"requests" if place == "pod" else "limits": amounts}
        case _:
            item = {"type": "Container", "default" if place == "default" else "defaultRequest": amounts}
            metadata = {"name": "limits", "namespace": NAMESPACE, "uid": "l", "resourceVersion": "1"}
            # The API server makes a default limit the default request where that has none.
            item |= {"defaultRequest": amounts}
            observed.limit_ranges.put({"metadata": metadata, "spec": {"limits": [item]}})
    workload = build_workload_json("w", [build_pod_set_json(count=3, cpu="0")])
    workload["spec"]["podSets"][0]["template"]["spec"] = spec
    observed.workloads.put(workload)
    bound = build_pod_json("p", node="n0")
    bound["metadata"] |= {"resourceVersion": "1", "namespace": NAMESPACE}
    observed.pods.put({**bound, "spec": {**spec, "nodeName": "n0"}})
    return observed, len(observed.set_aside) == 0


@given(st.sampled_from(PLACES), ANY_TEXT)
def test_amount_at_any_place_is_exact_or_cut_or_sets_its_object_aside(place: str, text: str):
    """From the text of an object to the free matrix."""
    try:
        exact = ceil(parse_exact_quantity(text))
    except InvalidQuantity:
        exact = -1
    observed, is_read = observe_amount(place, text)
    assert is_read == (exact >= 0)
    observed.state.refresh()
    capacity = observed.state.whole.capacity
    free = int(capacity.free[capacity.axis[GPU], 0])
    assert -LARGEST <= free <= 8
    if not is_read:
        return
    (facts,) = observed.state.workloads.facts.values()
    assert facts.pod_sets[0].requests.get(GPU, 0) == min(exact, LARGEST)
    assert free == 8 - (0 if place.startswith("default") else min(exact, LARGEST)), "a pod that exists has its defaults"


@pytest.mark.parametrize("text", ["-1", "-9E", "-500m"])
def test_a_negative_request_is_refused(text: str):
    with pytest.raises(InvalidQuantity, match=text):
        PodFacts.read(build_pod_json("p", cpu=text))


def test_sums_over_nodes_of_the_largest_amounts_do_not_wrap():
    scene = Scene(quota="9E")
    for i in range(5):
        name = f"n{i}"
        node = {
            "metadata": {"name": name, "labels": {RACK: "r", "kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "9E", "pods": "9E"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        scene.state.observe_node(name, NodeFacts.read(node))
    scene.submit("w", 4)
    scene.submit("large", 6, cpu="5P")
    verdicts = scene.run()
    assert list_admitted(verdicts) == {"w"}


def test_a_workload_of_the_largest_amounts_is_refused_with_a_reason():
    scene = Scene(quota="9E")
    scene.rack("r", 2)
    scene.submit("w", 2**31 - 1, cpu="9E")
    assert get_refusals(scene.run())["w"].reason == "ExceedsMaxQuota"


def test_a_small_daemon_pod_that_goes_reserves_nothing_for_a_large_one():
    """Deleting small pods of a DaemonSet with a large template must not keep nodes empty, again and again."""
    scene = Scene()
    scene.state.observe_time(0.0)
    scene.rack("r", 1)
    see(scene.state, build_daemon_set_json("agent", cpu="1m"))
    scene.pod(build_daemon_pod("agent", "agent", "r-n0", cpu="1m", phase="Running"))
    scene.state.observe_time(2 * WINDOW_S)
    see(scene.state, build_daemon_set_json("agent", cpu="4"))
    scene.state.observe_pod(f"{NAMESPACE}/agent-r-n0", None)
    assert scene.state.ledger.daemons.shares == {}
    see(scene.state, build_daemon_set_json("agent", cpu="1m"))
    scene.pod(build_daemon_pod("agent", "agent", "r-n0", cpu="1m", phase="Running"))
    scene.state.observe_pod(f"{NAMESPACE}/agent-r-n0", None)
    assert scene.state.ledger.daemons.shares["r-n0"]["cpu"] == 1


def test_a_pod_of_the_largest_amounts_leaves_bookings_on_other_nodes_exact():
    held: list[np.ndarray] = []
    table = UsageTable(lambda: held)
    held.append(slots := table.get_slots([(f"n{i}", 1) for i in range(4)]))
    table.use_slot(table.get_slot("odd"), {"memory": LARGEST}, 3)
    table.use_slots(slots, {"memory": 5}, np.array([1, 2, 3, 4]))
    assert table.read() == {"odd": {"memory": 3 * LARGEST}, **{f"n{i}": {"memory": 5 * (i + 1)} for i in range(4)}}
    table.use_slot(table.get_slot("odd"), {"memory": LARGEST}, -3)
    table.use_slots(slots, {"memory": 5}, np.array([-1, -2, -3, -4]))
    assert table.read() == {}


AMOUNTS = st.integers(0, 9) | st.sampled_from([LARGEST // 3, LARGEST // 2, LARGEST])
BOOKINGS = st.tuples(
    st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "of-no-node"]), AMOUNTS), st.lists(st.integers(-3, 3), min_size=3, max_size=3)
)


@given(st.lists(BOOKINGS, max_size=6))
def test_nodes_are_booked_at_once_as_they_are_one_by_one(bookings: list[tuple[dict[str, int], list[int]]]):
    names, tables, slots, views = ["n0", "n1", "elsewhere"], list[UsageTable](), list[np.ndarray](), list[FreeCapacity]()
    for _ in range(2):
        held = list[np.ndarray]()
        tables.append(table := UsageTable(partial(list, held)))
        tree = TopologyTree((HOSTNAME_LABEL,), [NodeLabels(name, {HOSTNAME_LABEL: name}) for name in names[:2]])
        views.append(FreeCapacity(tree, {name: NodeState({"cpu": 100, "memory": LARGEST, "pods": 10}) for name in names[:2]}))
        table.attach(views[-1])
        held.append(table.get_slots([(name, 1) for name in names]))
        slots.append(held[0])
    for amounts, times in bookings:
        tables[0].use_slots(slots[0], amounts, np.array(times))
        for slot, count in zip(slots[1].tolist(), times, strict=True):
            tables[1].use_slot(slot, amounts, count)
        assert tables[0].read() == tables[1].read()
        assert (views[0].free == views[1].free).all()

"""Room kept for pods that DaemonSets have not put on their nodes yet."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.names import HOSTNAME_LABEL
from core.queueing.flavors.outcome import NotAdmissible
from core.state.cluster import ClusterState
from core.state.daemonsets import WINDOW_S, DaemonSetFacts
from core.state.facts import NodeFacts, PodFacts, build_object_key
from reconciler.observe.slim import slim_daemon_set, slim_node, slim_pod
from tests.builders import NAMESPACE, RACK, Node, build_node_json, build_pod_json, build_workload_json
from tests.placement.reference import can_tolerate, is_match
from tests.queueing.scene import Scene, get_refusals, list_admitted, list_refusals
from tests.strategies import TAINTS, TOLERATIONS


def build_daemon_set_json(name: str, *, cpu: str = "1", uid: str | None = None, ports: tuple[int, ...] = (), **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}, "ports": [{"containerPort": p, "hostPort": p} for p in ports]}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]} | spec}
    return {"metadata": {"name": name, "namespace": NAMESPACE, "uid": uid or f"uid-{name}"}, "spec": {"template": template}}


def see(state: ClusterState, daemon_set: dict[str, Any]) -> None:
    state.observe_daemon_set(build_object_key(daemon_set), DaemonSetFacts.read(slim_daemon_set(daemon_set)))


def build_daemon_pod(name: str, of: str, node: str, **options: Any) -> dict[str, Any]:
    pod = build_pod_json(f"{name}-{node}", node=node, owner=f"uid-{of}", **options)
    pod["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    return slim_pod(pod)


def build_host(name: str, rack: str = "r", *, cpu: int = 4, **labels: str) -> Node:
    return Node(name, {RACK: rack, HOSTNAME_LABEL: name, **labels}, {"cpu": cpu * 1000, "pods": 10})


def get_usage(state: ClusterState) -> dict[str, int]:
    state.refresh()
    assert state.ledger.find_drift() == {}
    return {node: amounts["cpu"] for node, amounts in sorted(state.ledger.usage.items())}


@pytest.mark.parametrize("is_first", [True, False], ids=["time observed after the nodes", "time observed before the nodes"])
def test_node_created_long_before_start_has_no_share_reserved(is_first: bool):
    """At each start all nodes counted as new for two minutes."""
    state, now = ClusterState(), 10_000_000.0
    see(state, build_daemon_set_json("agent"))
    if not is_first:
        state.observe_time(5.0, now)
    for name, age in (("old", 3600), ("new", 30)):
        created = datetime.fromtimestamp(now - age, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        node = build_node_json(build_host(name))
        node["metadata"]["creationTimestamp"] = created
        state.observe_node(name, NodeFacts.read(slim_node(node)))
    state.observe_time(6.0, now + 1)
    assert set(state.ledger.daemons.shares) == {"new"}
    state.observe_time(6.0 + WINDOW_S - 30, now + 1 + WINDOW_S - 30)
    assert not state.ledger.daemons.shares


def test_a_workload_that_would_take_a_daemon_sets_share_of_a_new_node_waits():
    scene = Scene()
    see(scene.state, build_daemon_set_json("agent", cpu="500m"))
    scene.submit("w", 1, cpu="4")
    assert isinstance(scene.run()["w"], NotAdmissible)  # there is no node at all
    scene.node(build_host("n0"))
    waiting = get_refusals(scene.run())["w"]
    (refusal,) = list_refusals(waiting)
    assert refusal.explanation is not None
    assert [(each.reason, each.count) for each in refusal.explanation.exclusions] == [("DaemonSet share", 1)]
    scene.submit("small", 1, cpu="3500m")
    assert list_admitted(scene.run()) == {"small"}


def test_the_share_is_the_pods_own_once_it_is_bound_and_comes_back_when_it_ends():
    scene = Scene()
    see(scene.state, build_daemon_set_json("agent", cpu="500m"))
    scene.node(build_host("n0"))
    assert get_usage(scene.state) == {"n0": 500}
    pod = build_daemon_pod("agent", "agent", "n0", cpu="500m", phase="Running")
    scene.pod(pod)
    assert get_usage(scene.state) == {"n0": 500}
    scene.pod(pod | {"status": {"phase": "Failed"}})
    assert get_usage(scene.state) == {"n0": 500}
    assert scene.state.ledger.daemons.shares == {"n0": {"cpu": 500, "pods": 1}}


def test_a_larger_template_takes_more_and_a_deleted_daemon_set_nothing():
    scene = Scene()
    scene.node(build_host("n0"))
    see(scene.state, build_daemon_set_json("agent", cpu="1"))
    see(scene.state, build_daemon_set_json("agent", cpu="2"))
    assert get_usage(scene.state) == {"n0": 2000}
    scene.submit("w", 1, cpu="4")
    assert "w" in get_refusals(scene.run())
    scene.state.observe_daemon_set(f"{NAMESPACE}/agent", None)
    assert get_usage(scene.state) == {}
    assert list_admitted(scene.run()) == {"w"}


def test_it_can_be_switched_off():
    state = ClusterState(reserve_daemon_sets=False)
    see(state, build_daemon_set_json("agent"))
    state.observe_node("n0", NodeFacts.read(build_node_json(build_host("n0"))))
    assert get_usage(state) == {}


def test_a_daemon_set_to_come_has_its_host_port_already():
    scene = Scene()
    scene.node(build_host("n0"))
    see(scene.state, build_daemon_set_json("agent", cpu="1", ports=(9100,)))
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 9100, "hostPort": 9100}]}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    pod_sets = [{"name": "main", "count": 1, "template": template, "topologyRequest": {"required": RACK}}]
    scene.workload(build_workload_json("w", pod_sets))
    assert "host port 9100/TCP: 1" in get_refusals(scene.run())["w"].message


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, True),
        ({"nodeSelector": {"pool": "a"}}, True),
        ({"nodeSelector": {"pool": "b"}}, False),
        ({"nodeName": "n0"}, True),
        ({"nodeName": "n1"}, False),
        ({"tolerations": []}, True),
    ],
)
def test_it_is_wanted_where_its_controller_would_make_a_pod(spec: dict[str, Any], wanted: bool):
    facts = DaemonSetFacts.read(slim_daemon_set(build_daemon_set_json("agent", **spec)))
    assert facts.is_wanted(NodeFacts.read(build_node_json(build_host("n0", pool="a")))) is wanted


def test_a_node_with_pressure_or_not_ready_or_cordoned_is_wanted_all_the_same():
    facts = DaemonSetFacts.read(slim_daemon_set(build_daemon_set_json("agent")))
    for key, effect in (("not-ready", "NoExecute"), ("memory-pressure", "NoSchedule"), ("unschedulable", "NoSchedule")):
        node = Node("n0", {}, taints=((f"node.kubernetes.io/{key}", "", effect),), unschedulable=True, ready=False)
        assert facts.is_wanted(NodeFacts.read(build_node_json(node)))
    network = Node("n0", {}, taints=(("node.kubernetes.io/network-unavailable", "", "NoSchedule"),))
    assert not facts.is_wanted(NodeFacts.read(build_node_json(network)))
    on_host = DaemonSetFacts.read(slim_daemon_set(build_daemon_set_json("agent", hostNetwork=True)))
    assert on_host.is_wanted(NodeFacts.read(build_node_json(network)))


EVENTS = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(["n0", "n1"]), st.sampled_from("ab"), st.lists(st.sampled_from(TAINTS), max_size=1)),
    st.tuples(st.just("node gone"), st.sampled_from(["n0", "n1"])),
    st.tuples(
        st.just("set"),
        st.sampled_from(["d0", "d1"]),
        st.sampled_from(["1", "2"]),
        st.sampled_from([{}, {"pool": "a"}]),
        st.lists(st.sampled_from(TOLERATIONS), max_size=1),
        st.sampled_from([(), (80,)]),
    ),
    st.tuples(st.just("set gone"), st.sampled_from(["d0", "d1"])),
    st.tuples(st.just("pod"), st.sampled_from(["d0", "d1"]), st.sampled_from(["n0", "n1"]), st.sampled_from(["Running", "Failed", "gone"])),
)


@given(st.lists(EVENTS, min_size=3, max_size=15))
def test_after_any_events_each_wanted_pod_counts_once(events: list[Any]):
    state = ClusterState()
    nodes, sets, pods = dict[str, Node](), dict[str, dict[str, Any]](), dict[tuple[str, str], str]()
    for kind, *details in events:
        if kind == "node":
            name, pool, taints = details
            nodes[name] = Node(name, {"pool": pool}, taints=tuple(taints))
            state.observe_node(name, NodeFacts.read(build_node_json(nodes[name])))
        elif kind == "node gone":
            nodes.pop(details[0], None)
            state.observe_node(details[0], None)
        elif kind == "set":
            name, cpu, selector, tolerations, ports = details
            sets[name] = build_daemon_set_json(name, cpu=cpu, nodeSelector=selector, tolerations=tolerations, ports=ports)
            see(state, sets[name])
        elif kind == "set gone":
            sets.pop(details[0], None)
            state.observe_daemon_set(f"{NAMESPACE}/{details[0]}", None)
        else:
            of, node, phase = details
            pods.pop((of, node), None)
            pod = build_daemon_pod(of, of, node, phase=phase)
            if phase != "gone":
                pods[of, node] = phase
            state.observe_pod(build_object_key(pod), PodFacts.read(pod) if phase != "gone" else None)
        assert get_usage(state) == _expected(nodes, sets, pods)


def _expected(nodes: dict[str, Node], sets: dict[str, dict[str, Any]], pods: dict[tuple[str, str], str]) -> dict[str, int]:
    usage: dict[str, int] = {}
    running = {key for key, phase in pods.items() if phase == "Running"}
    for _, name in running:
        usage[name] = usage.get(name, 0) + 1000
    for name, daemon_set in sets.items():
        spec = daemon_set["spec"]["template"]["spec"]
        for node in nodes.values():
            if (name, node.name) not in running and is_match(node, spec["nodeSelector"], None) and can_tolerate(node, spec["tolerations"]):
                usage[node.name] = usage.get(node.name, 0) + int(spec["containers"][0]["resources"]["requests"]["cpu"]) * 1000
    return dict(sorted(usage.items()))

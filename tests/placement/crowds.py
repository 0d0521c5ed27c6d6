"""Hypothesis strategies: clusters with pods that mind each other, and pod sets that do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from core.model.podset import PodSetRequest
from core.names import HOSTNAME_LABEL, PODSET_LABEL
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, NodeFacts, PodFacts, PodSetFacts, TopologyFacts, build_object_key
from tests.builders import RACK, Node, build_flavor_json, build_node_json, build_pod_json, build_pod_set_json, build_topology_json
from tests.placement.one_by_one import REQUIRED, World

ZONE = "zone"
LEVELS = [RACK, HOSTNAME_LABEL]
NAMESPACES = {"ns": {"team": "a"}, "other": {"team": "b"}}
HOME = "ns"


@dataclass(frozen=True)
class Crowd:
    """A cluster and the pods bound on it; the last node belongs to another flavor."""

    nodes: Sequence[Node]
    bound: Sequence[tuple[str, Mapping[str, Any]]]

    def state(self) -> ClusterState:
        state = ClusterState()
        state.observe_topology("t", TopologyFacts.read(build_topology_json("t", LEVELS)))
        state.observe_flavor("tas", FlavorFacts.read(build_flavor_json("tas", "t", nodeLabels={"pool": "tas"})))
        for name, labels in NAMESPACES.items():
            state.observe_namespace(name, labels)
        for node in self.nodes:
            state.observe_node(node.name, NodeFacts.read(build_node_json(node)))
        for node_name, pod in self.bound:
            spec = {**pod["spec"], "nodeName": node_name}
            state.observe_pod(build_object_key(pod), PodFacts.read({**pod, "spec": spec}))
        return state

    def world(self) -> World:
        return World({node.name: node.labels for node in self.nodes}, NAMESPACES, list(self.bound))


SELECTORS = st.one_of(
    st.sampled_from([{"matchLabels": {"app": "x"}}, {"matchLabels": {"app": "y"}}, {}]),
    st.builds(
        lambda operator, values: {
            "matchExpressions": [{"key": "app", "operator": operator} | ({"values": values} if "In" in operator else {})]
        },
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=2, unique=True),
    ),
)


@st.composite
def terms(draw: st.DrawFn, keys: Sequence[str] = (RACK, ZONE, HOSTNAME_LABEL)) -> dict[str, Any]:
    term: dict[str, Any] = {"topologyKey": draw(st.sampled_from(keys)), "labelSelector": draw(SELECTORS)}
    if draw(st.integers(0, 4)) == 0:
        del term["labelSelector"]
    kind = draw(st.integers(0, 9))
    if kind == 0:
        term["namespaces"] = ["other"]
    elif kind == 1:
        term["namespaceSelector"] = draw(st.sampled_from([{}, {"matchLabels": {"team": "b"}}]))
    elif kind == 2:
        term["matchLabelKeys"] = ["app"]
    elif kind == 3:
        term["mismatchLabelKeys"] = ["app"]
    return term


PORTS = st.sampled_from(
    [
        {"containerPort": 80, "hostPort": 80},
        {"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"},
        {"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.2"},
        {"containerPort": 80, "hostPort": 80, "protocol": "UDP"},
        {"containerPort": 80},
    ]
)


@st.composite
def pod_specs(
    draw: st.DrawFn, *, apart: int = 2, near: int = 4, ports: int = 2, keys: Sequence[str] = (RACK, ZONE, HOSTNAME_LABEL)
) -> dict[str, Any]:
    """Of so many pods one has anti-affinity, affinity, ports; 0 is none at all."""
    spec: dict[str, Any] = {}
    affinity: dict[str, Any] = {}
    for kind, chance in (("podAntiAffinity", apart), ("podAffinity", near)):
        if chance and draw(st.integers(1, chance)) == 1:
            required = draw(st.lists(terms(keys), min_size=1, max_size=2))
            affinity[kind] = {REQUIRED: required}
    if affinity:
        spec["affinity"] = affinity
    if ports and draw(st.integers(1, ports)) == 1:
        spec["hostNetwork"] = draw(st.booleans())
        container = {"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [draw(PORTS)]}
        spec["containers"] = [container]
        if draw(st.integers(0, 5)) == 0:
            spec["initContainers"] = [{"name": "i", "restartPolicy": draw(st.sampled_from(["Always", "Never"])), "ports": [draw(PORTS)]}]
    return spec


LABELS = st.sampled_from([{}, {"app": "x"}, {"app": "y"}])


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    nodes = []
    for i in range(draw(st.integers(2, 6))):
        labels = {HOSTNAME_LABEL: f"n{i}", RACK: draw(st.sampled_from("ab")), "pool": "tas"}
        zone = draw(st.sampled_from(["1", "2", "3", None]))
        nodes.append(Node(f"n{i}", labels | ({ZONE: zone} if zone else {}), {"cpu": draw(st.integers(1, 3)) * 1000, "pods": 10}))
    nodes[-1] = replace(nodes[-1], labels={**nodes[-1].labels, "pool": "another"})
    bound = []
    for i in range(draw(st.integers(0, 3))):
        pod = build_pod_json(f"p{i}", cpu="100m", labels=draw(LABELS), phase="Running")
        pod["metadata"]["namespace"] = draw(st.sampled_from(sorted(NAMESPACES)))
        pod["spec"] |= draw(pod_specs(near=0))
        for term in (pod["spec"].get("affinity") or {}).get("podAntiAffinity", {}).get(REQUIRED, ()):
            term.pop("matchLabelKeys", None)  # the API server merges them into the selector
            term.pop("mismatchLabelKeys", None)
        bound.append((draw(st.sampled_from(nodes)).name, pod))
    return Crowd(nodes, bound)


def build_template_json(labels: Mapping[str, str], spec: Mapping[str, Any]) -> dict[str, Any]:
    template: dict[str, Any] = build_pod_set_json(**spec)["template"]
    return {**template, "metadata": {"labels": dict(labels)}}


def request_of(
    state: ClusterState, name: str, count: int, template: Mapping[str, Any], topology: Mapping[str, Any] | None
) -> PodSetRequest:
    """As the reconciler would ask for it."""
    pod_set = {"name": name, "count": count, "template": template} | ({"topologyRequest": dict(topology)} if topology else {})
    return state.request_for(PodSetFacts.read(pod_set, HOME), state.flavors["tas"])


def list_pods(name: str, template: Mapping[str, Any], nodes: Sequence[tuple[str, int]]) -> list[tuple[str, Mapping[str, Any]]]:
    """The pods of a pod set, each with the node it was given."""
    labels = {**template["metadata"]["labels"], PODSET_LABEL: name}
    return [
        (node, {"metadata": {"namespace": HOME, "name": f"{name}-{node}-{i}", "labels": labels}, "spec": template["spec"]})
        for node, count in nodes
        for i in range(count)
    ]

"""The worst cases of pods that keep apart from their own kind: how many more a domain may have is asked anew after each step."""

from __future__ import annotations

from dataclasses import replace

from core.model.pod_traits import read_template_traits
from core.model.podset import Mode, PodSetRequest, TopologyRequest
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED
from core.placement.replace.replacement import replace_failed
from core.placement.replace.resized_pod_sets import resize
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.placed_pods import PlacedPodSet
from core.placement.topology.tree import NodeLabels, TopologyTree
from tests.bench.parts.steps import NODES, Steps, case, once

PORT = {"spec": {"containers": [{"name": "c", "ports": [{"hostPort": 80, "containerPort": 80}]}]}}


def build() -> tuple[FreeCapacity, PodSetRequest, TopologyAssignment]:
    """A pod with a host port on every other node; each node is a rack of its own."""
    labels = [NodeLabels(f"n{i:05}", {"rack": f"r{i:05}", HOSTNAME_LABEL: f"n{i:05}"}) for i in range(NODES)]
    state = NodeState({"cpu": 192_000, "pods": 110})
    view = FreeCapacity(TopologyTree(("rack", HOSTNAME_LABEL), labels), {node.name: state for node in labels})
    held = [node.name for node in labels[::2]]
    topology = TopologyRequest(Mode.PREFERRED, "rack")
    asked = PodSetRequest("main", len(held), {"cpu": 1_000}, topology, traits=read_template_traits(PORT, "team"))
    return view, asked, TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((name,), 1) for name in held))


@case()
def replacement_of_1_250_pods_with_a_host_port() -> Steps:
    view, asked, assignment = build()
    lost = [domain.values[0] for domain in assignment.domains[::2]]
    assert replace_failed(view, [PlacedPodSet(asked, assignment)], lost, MIXED).refusal is None
    return once(lambda: replace_failed(view, [PlacedPodSet(asked, assignment)], lost, MIXED))


@case()
def growth_by_2_500_pods_with_a_host_port() -> Steps:
    view, asked, assignment = build()
    grown = replace(asked, count=NODES)
    assert resize(view, [grown], {"main": assignment}, MIXED, outside={}).refusal is None
    return once(lambda: resize(view, [grown], {"main": assignment}, MIXED, outside={}))

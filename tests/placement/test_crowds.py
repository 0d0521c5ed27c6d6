"""Placement among pods that mind each other, against kube-scheduler's filters applied to one pod after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from core.model.podset import PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.engine import place
from core.placement.profile import MIXED
from tests.builders import RACK
from tests.placement.crowds import HOME, LABELS, ZONE, Crowd, crowds, pod_specs, pods_of, request_of, template_json
from tests.placement.one_by_one import World
from tests.placement.reference import _spreads

TOPOLOGIES: list[dict[str, Any] | None] = [
    {"required": RACK},
    {"preferred": RACK},
    {"preferred": HOSTNAME_LABEL},
    {"unconstrained": True},
    None,
]


@st.composite
def templates(draw: st.DrawFn, /, **chances: Any) -> dict[str, Any]:
    return template_json(draw(LABELS), draw(pod_specs(**chances)))


@given(crowds(), st.data())
def test_whatever_is_placed_can_be_scheduled_pod_by_pod(crowd: Crowd, data: st.DataObject):
    state = crowd.state()
    view = state.view("tas")
    assert view is not None
    group = data.draw(st.sampled_from([None, "g"]))
    asked, made = [], {}
    for i in range(data.draw(st.integers(1, 3))):
        name = f"ps{i}"
        topology = data.draw(st.sampled_from(TOPOLOGIES)) if not group else TOPOLOGIES[data.draw(st.integers(0, 1))]
        made[name] = data.draw(templates())
        count = 1 if group and i else data.draw(st.integers(1, 4))
        request = request_of(state, name, count, made[name], topology)
        if group and request.topology is not None:
            request = replace(request, topology=replace(request.topology, group=group))
        asked.append(request)
    decision = place(view.capacity, asked, MIXED)
    event("fits" if decision.refusal is None else "refused")
    if decision.refusal is not None:
        return
    pods = [pod for placement in decision.placements for pod in pods_of(placement.pod_set, made[placement.pod_set], placement.nodes)]
    assert crowd.world().schedule(pods) == []


@given(crowds(), st.data())
def test_a_pod_set_fits_where_some_spread_can_be_scheduled(crowd: Crowd, data: st.DataObject):
    state = crowd.state()
    view = state.view("tas")
    assert view is not None
    topology = data.draw(st.sampled_from(TOPOLOGIES))
    template = data.draw(templates(apart=2, near=3))
    count = data.draw(st.integers(1, 4))
    request = request_of(state, "main", count, template, topology)
    decision = place(view.capacity, [request], MIXED)
    possible = _can_be_scheduled(crowd, count, template, RACK if topology == {"required": RACK} else None)
    event(f"fits {decision.refusal is None} possible {possible}")
    if decision.refusal is None or not _is_exact(request):
        assert (decision.refusal is None) <= possible
    else:
        assert not possible
    if decision.refusal is not None and decision.refusal.explanation is not None:
        fewer = decision.refusal.explanation.largest_fit
        assert fewer < count
        if fewer:
            assert place(view.capacity, [replace(request, count=fewer)], MIXED).refusal is None


def _is_exact(request: PodSetRequest) -> bool:
    """Two keys that pods of a set must all differ in, and neither finer than the other, make a puzzle that is not solved."""
    return {term.key for term in request.traits.anti_affinity} != {RACK, ZONE}


def _can_be_scheduled(crowd: Crowd, count: int, template: Mapping[str, Any], level: str | None) -> bool:
    nodes = [node for node in crowd.nodes if node.labels["pool"] == "tas"]
    rooms = [(int(node.allocatable["cpu"]) - _used(crowd, node.name)) // 1000 for node in nodes]
    for spread in _spreads([max(0, room) for room in rooms], count):
        where = [(node.name, here) for node, here in zip(nodes, spread, strict=True) if here]
        if level is not None and len({node.labels[level] for node, here in zip(nodes, spread, strict=True) if here}) > 1:
            continue
        if crowd.world().schedule(pods_of("main", template, where)) == []:
            return True
    return False


def _used(crowd: Crowd, name: str) -> int:
    used = 0
    for node, pod in crowd.bound:
        if node == name:
            request = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            used += 100 if request == "100m" else 1000
    return used


def test_the_oracle_keeps_a_second_pod_of_a_port_away():
    template = template_json({}, {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]})
    world = World({"n": {}}, {HOME: {}})
    assert len(world.schedule(pods_of("main", template, [("n", 2)]))) == 1

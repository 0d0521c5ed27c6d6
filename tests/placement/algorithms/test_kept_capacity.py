"""What was counted for a request shape and mended by events since is what counting anew would give."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import Mode, TopologyRequest
from core.placement.algorithms import domain_capacity
from core.placement.algorithms.domain_capacity import fits_on_nodes
from core.placement.algorithms.podset_groups import fits_of_group
from core.placement.algorithms.profile import MIXED
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.engine import place
from core.placement.topology import free_capacity
from core.placement.topology.free_capacity import FreeCapacity
from tests.builders import THREE_LEVELS, Node, build_grid, build_view, request
from tests.strategies import TAINTS, Cluster, clusters, requests

MEND_ALWAYS = patch.object(domain_capacity, "_FEW_NODES", -(10**6))


class Twin:
    """A view that lives on, and what happened to it, so that a fresh one can be made at any time."""

    def __init__(self, cluster: Cluster) -> None:
        self.levels = cluster.levels
        self.nodes = {node.name: node for node in cluster.nodes}
        self.taken = list(cluster.used)
        self.view = cluster.view()

    def take(self, name: str, cpu: int, times: int) -> None:
        self.taken.append((name, {"cpu": cpu, "pods": 1}, times))
        self.view.use_node(*self.taken[-1])

    def take_on_all(self, cpu: int) -> None:
        amounts, nodes = {"cpu": cpu, "gpu": 1}, np.arange(len(self.view.tree))
        self.view.use_nodes(nodes, amounts, nodes + 1)
        self.taken += [(name, amounts, i + 1) for i, name in enumerate(self.view.tree.names)]

    def change(self, node: Node) -> None:
        self.nodes[node.name] = node
        if not node.state.allocatable.keys() <= self.view.axis.keys():  # what is used of the new resource the ledger counts, not the view
            self.view = self.fresh()
        else:
            self.view.observe_node(node.name, node.state)

    def fresh(self) -> FreeCapacity:
        return Cluster(self.levels, tuple(self.nodes.values()), tuple(self.taken)).view()


@given(clusters(), st.data())
def test_placing_after_any_events_is_placing_on_a_fresh_view(cluster: Cluster, data: st.DataObject):
    twin = Twin(cluster)
    wanted = [[data.draw(requests(cluster.levels, name=f"ps{i}"))] for i in range(2)]
    together = TopologyRequest(Mode.REQUIRED, cluster.levels[0], group="g")
    wanted.append([request(1, name="leader", cpu=500), request(3, name="workers")])
    wanted[-1] = [replace(asked, topology=together) for asked in wanted[-1]]
    names = sorted(node.name for node in cluster.nodes)
    with MEND_ALWAYS if data.draw(st.booleans()) else nullcontext():  # of so few nodes all are counted anew
        for _ in range(data.draw(st.integers(1, 5))):
            name, kind = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(["take", "all", "change"]))
            if kind == "take":
                twin.take(name, data.draw(st.sampled_from([500, 1000])), data.draw(st.sampled_from([-1, 1, 2])))
            elif kind == "all":
                twin.take_on_all(data.draw(st.sampled_from([-500, 500])))
            else:
                node = twin.nodes[name]
                amounts = {**node.allocatable, "cpu": data.draw(st.integers(0, 6)) * 1000, "gpu": data.draw(st.integers(0, 2))}
                taints = tuple(data.draw(st.lists(st.sampled_from(TAINTS), max_size=1)))
                twin.change(replace(node, allocatable=amounts, taints=taints, ready=data.draw(st.booleans())))
            for asked in wanted:
                assert place(twin.view, asked, MIXED) == place(twin.fresh(), asked, MIXED)


def test_a_change_on_one_node_does_not_count_the_others_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(domain_capacity, "_FEW_NODES", 0)
    view = build_view(THREE_LEVELS, build_grid(2, 4, 8))
    asked = request(4)
    first = fits_on_nodes(view, asked)
    shape = find_shape(view.tree, asked)
    assert isinstance(shape, Shape)
    sums = first.sum_up(view.tree, shape)
    view.use_node("b1-r2-n3", {"cpu": 3000, "pods": 1})
    again = fits_on_nodes(view, asked)
    assert again is first
    assert again.sum_up(view.tree, shape) is sums
    node = view.tree.index["b1-r2-n3"]
    assert again.per_node.tolist() == [4] * node + [1] + [4] * (63 - node)
    assert [level.tolist() for level in sums.pods[:2]] == [[128, 125], [32] * 6 + [29, 32]]


def test_kept_counts_of_rarely_requested_shapes_are_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(free_capacity, "_KEPT", 16)
    view = build_view(THREE_LEVELS, build_grid(1, 1, 2))
    often = fits_on_nodes(view, request(1, cpu=1))
    for cpu in range(2, 40):
        fits_on_nodes(view, request(1, cpu=cpu))
        assert fits_on_nodes(view, request(1, cpu=1)) is often
    assert len(view.kept) == 16


def test_kept_counts_are_rebuilt_after_the_change_log_overflows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(domain_capacity, "_FEW_NODES", -(10**6))
    view = build_view(THREE_LEVELS, build_grid(1, 1, 2))
    asked = request(1)
    before = fits_on_nodes(view, asked)
    position = view.position
    for i in range(3000):
        view.use_node("b0-r0-n0", {"cpu": 1})
        assert view.position == position + i + 1
    assert view.find_changed_since(position) is None
    after = fits_on_nodes(view, asked)
    assert after is not before
    assert after.per_node.tolist() == [1, 4]


def test_change_log_lists_nodes_changed_since_a_position():
    view = build_view(THREE_LEVELS, build_grid(1, 1, 9))
    position = view.position
    for node in (7, 3, 5, 3, 8, 1):
        view.use_node(f"b0-r0-n{node}", {"cpu": 1})
    changed = view.find_changed_since(position)
    assert changed is not None
    assert changed.tolist() == [1, 3, 5, 7, 8]


def test_kept_counts_of_leader_and_workers_are_updated_after_a_change():
    view = build_view(THREE_LEVELS, build_grid(1, 1, 2))
    workers, leader = request(4, name="workers"), request(1, name="leader", cpu=2000)
    kept = fits_of_group(view, workers, leader)
    view.use_node("b0-r0-n0", {"cpu": 3000})
    with MEND_ALWAYS:
        assert fits_of_group(view, workers, leader) is kept
    assert kept.takes_leader.tolist() == [False, True]

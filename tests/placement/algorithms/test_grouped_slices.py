"""Groups with slices (gate TASGroupedPodSetSlicing): only the workers are cut into slices, and the leader goes where it costs them the
fewest; it is judged by its own taints, selector and affinity (TASLeaderPodSetFeasibility)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED
from core.placement.engine import Decision, place
from core.placement.refusals import NotFit, RefusalKind
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view
from tests.placement.algorithms.test_joint_search import generate_spreads, is_together
from tests.placement.algorithms.test_partial_slices import PROFILES, build_racks, can_lead, check_group, is_partial_last
from tests.placement.promises import find_broken_promises
from tests.placement.reference import compute_free_amounts, is_usable
from tests.strategies import Cluster, clusters, requests

HOST = HOSTNAME_LABEL
ML = ("dedicated", "ml", "NoSchedule")


def build_group(
    workers: int, size: int, *, level: str = BLOCK, at: str = RACK, cpus: tuple[int, int] = (1, 1), partial: bool = False, **leader: Any
) -> list[PodSetRequest]:
    """A leader and so many workers that require one domain of a level, the workers in slices; `cpus` are of the leader and of a worker."""
    shared = TopologyRequest(Mode.REQUIRED, level, group="g", partial=partial)
    asked = PodSetRequest("leader", 1, {"cpu": cpus[0] * 1000}, shared, **leader)
    return [asked, PodSetRequest("workers", workers, {"cpu": cpus[1] * 1000}, replace(shared, slices=(SliceLayer(at, size),)))]


def lead(nodes: Sequence[Node], group: Sequence[PodSetRequest]) -> Decision:
    return place(build_view(THREE_LEVELS, nodes), group, MIXED)


def list_places(decision: Decision) -> list[dict[str, int]]:
    """Pods by node, of each pod set."""
    assert decision.refusal is None, decision.refusal
    return [dict(placement.nodes) for placement in decision.placements]


def get_refusal(decision: Decision) -> NotFit:
    assert decision.refusal is not None
    return decision.refusal


# --- worked examples ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "is_placed"), [(2, True), (3, False)])
def test_node_of_five_cpus_holds_two_workers_of_two_beside_a_leader_of_one(workers: int, is_placed: bool):
    nodes = build_grid(1, 1, 1, cpu=5)
    decision = lead(nodes, build_group(workers, workers, at=HOST, cpus=(1, 2)))
    assert (decision.refusal is None) == is_placed
    assert is_placed or get_refusal(decision).fit == 0


def test_leader_is_charged_where_it_costs_no_slice():
    """Racks with room for 8 and 5 pods: beside the leader the first holds one slice of four, the second one, as without it."""
    leader, workers = list_places(lead(build_racks([8], [5]), build_group(12, 4)))
    assert leader == {"r1-n0": 1}
    assert workers == {"r0-n0": 8, "r1-n0": 4}


def test_leader_on_each_rack_costs_a_slice_where_all_are_full():
    refusal = get_refusal(lead(build_racks([8], [4]), build_group(12, 4)))
    assert (refusal.fit, refusal.wanted, refusal.unit, refusal.group) == (2, 3, "slice", ("workers", "leader"))


def test_slices_in_layers_are_kept_below_the_leader():
    """A slice of four in a rack, of two parts of two on a node each: beside the leader a node of three CPUs has one part."""
    group = build_group(4, 4)
    assert group[1].topology is not None
    layered = replace(group[1], topology=replace(group[1].topology, slices=(SliceLayer(RACK, 4), SliceLayer(HOST, 2))))
    leader, workers = list_places(lead(build_racks([2, 3]), [group[0], layered]))
    assert (leader, workers) == ({"r0-n1": 1}, {"r0-n0": 2, "r0-n1": 2})
    assert lead(build_racks([2, 2]), [group[0], layered]).refusal is not None


# --- the leader's own nodes ---------------------------------------------------------------------------


def pin(*racks: str) -> dict[str, Any]:
    """A leader that runs in some racks alone, by its affinity."""
    term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": list(racks)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}


@pytest.mark.parametrize(
    "leader",
    [
        pytest.param({"node_selector": {RACK: "b0-r1"}}, id="selector"),
        pytest.param(pin("b0-r1"), id="affinity"),
        pytest.param({}, id="taints of all other racks"),
    ],
)
def test_group_goes_to_the_rack_where_the_leader_can_run(leader: dict[str, Any]):
    nodes = build_grid(1, 3, 2, cpu=2)
    if not leader:  # the workers tolerate the taint that the leader does not
        nodes = [replace(node, taints=() if "r1" in node.name else (ML,)) for node in nodes]
    one, other = build_group(2, 2, level=RACK, at=RACK, **leader)
    found = lead(nodes, [one, replace(other, tolerations=({"operator": "Exists"},))])
    assert {name[:5] for places in list_places(found) for name in places} == {"b0-r1"}


def test_node_that_only_the_leader_may_use_takes_no_worker():
    """The leader tolerates a taint that the workers do not: it leaves them all of the other nodes."""
    nodes = [replace(node, taints=(ML,) if node.name.endswith("n2") else ()) for node in build_grid(1, 1, 3, cpu=2)]
    group = build_group(4, 4, tolerations=({"key": "dedicated", "operator": "Exists"},))
    leader, workers = list_places(lead(nodes, group))
    assert (leader, workers) == ({"b0-r0-n2": 1}, {"b0-r0-n0": 2, "b0-r0-n1": 2})
    assert lead(nodes, build_group(6, 6, tolerations=({"operator": "Exists"},))).refusal is not None, "a worker on the leader's node"
    assert lead(nodes, build_group(4, 4)).refusal is not None, "a leader that may not run there"


def test_refusal_without_a_node_for_the_leader_gives_the_reasons():
    nodes = [replace(node, taints=(ML,)) for node in build_grid(1, 1, 2)]
    one, other = build_group(4, 4)
    refusal = get_refusal(lead(nodes, [one, replace(other, tolerations=({"operator": "Exists"},))]))
    assert refusal.explanation is not None
    assert any(note.startswith("No node can take the leader; excluded for it: taint ") for note in refusal.explanation.notes)


@pytest.mark.parametrize(
    ("leader", "cpus", "note"),
    [
        pytest.param({}, 2, "Without the leader 1 slice would fit in cloud/rack b0/b0-r0", id="no room"),
        pytest.param(
            {"node_selector": {RACK: "b0-r1"}},
            4,
            "Without the leader 1 slice would fit in cloud/rack b0/b0-r0, where no node can take it",
            id="no node of its own",
        ),
    ],
)
def test_refusal_for_the_sake_of_the_leader_names_the_rack_that_holds_the_workers(leader: dict[str, Any], cpus: int, note: str):
    nodes = [*build_grid(1, 1, 2, cpu=cpus), *build_grid(1, 2, 1, cpu=1)[1:]]
    refusal = get_refusal(lead(nodes, build_group(4, 4, level=RACK, at=RACK, **leader)))
    assert refusal.explanation is not None
    assert note in refusal.explanation.notes


# --- properties ---------------------------------------------------------------------------------------


@st.composite
def groups(draw: st.DrawFn, cluster: Cluster, *, plain: bool = False) -> list[PodSetRequest]:
    """Workers with one layer of slices, whole or not, or with two, and a leader with selectors and tolerations of its own."""
    workers = draw(requests(cluster.levels, plain=plain, partial=draw(st.booleans()), max_count=6, name="workers"))
    assume(workers.topology is not None and workers.topology.level is not None)
    assert workers.topology is not None
    assert workers.topology.level is not None
    topology = workers.topology
    start = cluster.levels.index(topology.level) if topology.level is not None else 0
    if start < len(cluster.levels) - 1 and draw(st.booleans()):
        outer, inner = sorted(draw(st.lists(st.sampled_from(range(start, len(cluster.levels))), min_size=2, max_size=2, unique=True)))
        topology = replace(topology, slices=(SliceLayer(cluster.levels[outer], 4), SliceLayer(cluster.levels[inner], 2)), partial=False)
        workers = replace(workers, count=4)
    assume(topology.slices)
    asked = draw(requests(cluster.levels, plain=plain, name="leader"))
    shared = replace(topology, group="g")
    return [replace(workers, topology=shared), replace(asked, count=1, topology=replace(shared, slices=()))]


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(clusters(max_nodes=5, cpus=3), st.data(), st.sampled_from(PROFILES))
def test_group_with_slices_fits_if_and_only_if_some_spread_does(cluster: Cluster, data: st.DataObject, profile):
    workers, leader = data.draw(groups(cluster))
    decision = place(cluster.view(), data.draw(st.permutations([workers, leader])), profile)
    assert (decision.refusal is None) == can_lead(cluster, workers, leader)
    if decision.refusal is None:
        ordered = sorted(decision.placements, key=lambda placement: placement.pod_set == "leader")
        check_group(cluster, [workers, leader], replace(decision, placements=tuple(ordered)))
        nodes = {node.name: node for node in cluster.nodes}
        for request, placement in zip((workers, leader), ordered, strict=True):
            assert all(is_usable(nodes[name], request) for name, _ in placement.nodes)
        if workers.topology is not None and len(workers.topology.slices) == 1:
            assert is_partial_last(cluster, workers, ordered[0])


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(clusters(plain=True, max_nodes=5, cpus=3), st.data(), st.sampled_from(PROFILES))
def test_largest_fit_that_a_refusal_of_a_group_names_fits_beside_the_leader(cluster: Cluster, data: st.DataObject, profile):
    workers, leader = data.draw(groups(cluster, plain=True))
    assert workers.topology is not None
    refusal = place(cluster.view(), [workers, leader], profile).refusal
    if refusal is None or refusal.kind is not RefusalKind.NOT_FIT:
        return
    assert refusal.explanation is not None
    largest, size = refusal.explanation.largest_fit, workers.topology.slices[0].size
    assert largest < workers.count
    if largest:
        assert place(cluster.view(), [replace(workers, count=largest), leader], profile).refusal is None
    if not workers.count % size:
        assert place(cluster.view(), [replace(workers, count=largest + size), leader], profile).refusal is not None


@given(clusters(max_nodes=4, cpus=3), st.data())
def test_group_of_three_with_slices_is_in_one_domain_if_and_only_if_one_holds_it(cluster: Cluster, data: st.DataObject):
    """Each of more than two pod sets has slices of its own (rule g of docs/decisions/0004)."""
    level = data.draw(st.sampled_from(range(len(cluster.levels))))
    members = []
    for i in range(3):
        member, size = data.draw(requests(cluster.levels, max_count=2, name=f"ps{i}")), data.draw(st.integers(1, 2))
        slices = (SliceLayer(data.draw(st.sampled_from(cluster.levels[level:])), size),)
        topology = TopologyRequest(Mode.REQUIRED, cluster.levels[level], slices, group="g")
        members.append(replace(member, count=max(1, member.count // size) * size, topology=topology))
    free = compute_free_amounts(cluster)
    ways = generate_spreads(cluster, members, free)
    decision = place(cluster.view(), members, MIXED)
    assert (decision.refusal is None) == any(is_together(cluster, way, cluster.levels[level]) for way in ways)
    if decision.refusal is None:
        assert find_broken_promises(cluster, members, decision, {}, free) == []

"""What a refusal says would make it fit does: applied it fits, and no part of it can be left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import ALWAYS_BEST_FIT, MIXED
from core.placement.changes import SuggestedChange
from core.placement.engine import place
from core.placement.refusals import MAX_MESSAGE, Explanation, RefusalKind, format_refusal
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view, request
from tests.strategies import TAINTS, TOLERATIONS, Cluster, clusters, requests

SEED = 5
CORDON_TAINT = ("node.kubernetes.io/unschedulable", "", "NoSchedule")


def refused(cluster: Cluster, asked: PodSetRequest) -> Explanation | None:
    """The explanation of a refusal that is about what is free; None where it fits or can have no place whatever is free."""
    refusal = place(cluster.view(), [asked], MIXED).refusal
    if refusal is None or refusal.kind not in (RefusalKind.NOT_FIT, RefusalKind.NO_DOMAINS):
        return None
    sentence = format_refusal("t", refusal)
    assert len(sentence) <= MAX_MESSAGE
    assert sentence.endswith((".", "…"))
    assert refusal.explanation is not None
    return refusal.explanation


def compute_usage(cluster: Cluster) -> dict[str, Counter[str]]:
    used: dict[str, Counter[str]] = {node.name: Counter() for node in cluster.nodes}
    for name, amounts, times in cluster.used:
        used[name].update({resource: amount * times for resource, amount in amounts.items()})
    return used


def apply(cluster: Cluster, asked: PodSetRequest, change: SuggestedChange) -> tuple[Cluster, PodSetRequest]:
    """The cluster and the request after a change."""
    topology = asked.topology
    assert topology is not None
    if change.level is not None:
        topology = replace(topology, level=change.level)
    if change.preferred:
        topology = replace(topology, mode=Mode.PREFERRED)
    if change.slices is not None:
        topology = replace(topology, slices=(replace(topology.slices[0], level=change.slices),))
    nodes, used = {node.name: node for node in cluster.nodes}, list(cluster.used)
    for fix in change.nodes:
        node = nodes[fix.node]
        left = tuple(taint for taint in node.taints if taint not in fix.taints and not (fix.uncordon and taint == CORDON_TAINT))
        nodes[fix.node] = replace(node, ready=node.ready or fix.ready, unschedulable=node.unschedulable and not fix.uncordon, taints=left)
        used.append((fix.node, {amount.resource: amount.amount for amount in fix.free}, -1))
    after = Cluster(cluster.levels, tuple(nodes[node.name] for node in cluster.nodes), tuple(used))
    for name, amounts in compute_usage(after).items():
        assert all(amount >= 0 for amount in amounts.values()), f"more is to be freed on {name} than is in use"
    return after, replace(asked, count=change.pods or asked.count, topology=topology)


def lesser(change: SuggestedChange) -> Iterator[SuggestedChange]:
    """The same change without one of its parts, or with a little less of one."""
    if change.level is not None:
        yield replace(change, level=None)
    if change.preferred:
        yield replace(change, preferred=False)
    if change.slices is not None:
        yield replace(change, slices=None)
    if change.pods is not None:
        yield replace(change, pods=None)
    for i, fix in enumerate(change.nodes):
        others = [replace(fix, ready=False)] if fix.ready else []
        others += [replace(fix, uncordon=False)] if fix.uncordon else []
        others += [replace(fix, taints=tuple(t for t in fix.taints if t != taint)) for taint in fix.taints]
        for amount in fix.free:
            rest = tuple(other for other in fix.free if other is not amount)
            others += [replace(fix, free=rest), replace(fix, free=(*rest, replace(amount, amount=amount.amount - 1)))]
        assert others, "a node is named and nothing is to be done on it"
        for other in others:
            yield replace(change, nodes=(*change.nodes[:i], other, *change.nodes[i + 1 :]))


def fits(cluster: Cluster, asked: PodSetRequest) -> bool:
    decisions = {place(cluster.view(), [asked], profile).refusal is None for profile in (MIXED, ALWAYS_BEST_FIT)}
    assert len(decisions) == 1
    return decisions.pop()


def build_emptied_cluster(cluster: Cluster) -> Cluster:
    """Everything that others use is gone, every node is ready, uncordoned and without taints."""
    nodes = (replace(node, ready=True, unschedulable=False, taints=()) for node in cluster.nodes)
    return replace(cluster, nodes=tuple(nodes), used=())


def check(cluster: Cluster, asked: PodSetRequest, explanation: Explanation) -> None:
    for change in explanation.changes:
        assert fits(*apply(cluster, asked, change)), change
        for less in lesser(change):
            assert not fits(*apply(cluster, asked, less)), (change, less)
    sizes = [change.size for change in explanation.changes]
    assert sizes == sorted(sizes)
    assert asked.topology is not None
    anywhere = replace(asked, topology=replace(asked.topology, mode=Mode.PREFERRED, level=asked.topology.level or cluster.levels[-1]))
    if asked.topology.mode is not Mode.REQUIRED:
        anywhere = asked
    could = fits(build_emptied_cluster(cluster), anywhere)
    assert any(change.slices is None for change in explanation.changes) == (could or explanation.largest_fit > 0)
    assert bool(explanation.changes) == (explanation.never is None)


@st.composite
def full(draw: st.DrawFn) -> tuple[Cluster, PodSetRequest]:
    """A cluster that is mostly in use, and a request."""
    cluster = draw(clusters())
    names = [node.name for node in cluster.nodes]
    pods = st.tuples(
        st.sampled_from(names), st.sampled_from([{"cpu": 1000, "pods": 1}, {"cpu": 500, "pods": 1, "gpu": 1}]), st.integers(1, 3)
    )
    return replace(cluster, used=tuple(draw(st.lists(pods, max_size=12)))), draw(requests(cluster.levels))


@given(full())
def test_a_change_applied_makes_it_fit_and_no_part_of_it_can_be_left_out(scene: tuple[Cluster, PodSetRequest]):
    explanation = refused(*scene)
    if explanation is not None:
        check(*scene, explanation)


def random_scene(random: Random) -> tuple[Cluster, PodSetRequest]:
    """Up to 24 nodes under up to three levels, most of them in use, and a request with up to two layers of slices."""
    upper = random.randint(1, 3)
    levels = (*(f"level-{i}" for i in range(upper)), *([HOSTNAME_LABEL] if random.random() < 0.7 else []))
    nodes, used = [], []
    for i in range(random.choice([3, 12, 24])):
        labels = {level: random.choice("ab") for level in levels} | {HOSTNAME_LABEL: f"h{i}", "pool": random.choice("123")}
        cpu = random.randint(1, 8)
        taints = [random.choice(TAINTS)] if random.random() < 0.2 else []
        cordoned = random.random() < 0.15
        taints += [CORDON_TAINT] if cordoned and random.random() < 0.5 else []
        ready = random.random() < 0.9
        nodes.append(Node(f"n{i}", labels, {"cpu": cpu * 1000, "pods": 8, "gpu": random.choice([0, 4])}, tuple(taints), ready, cordoned))
        if random.random() < 0.8:
            used.append((f"n{i}", {"cpu": random.randint(1, cpu) * 1000, "pods": random.randint(1, 8)}, 1))
    mode = random.choice([Mode.REQUIRED, Mode.REQUIRED, *Mode])
    level = random.choice(levels) if mode in (Mode.REQUIRED, Mode.PREFERRED) else None
    count = random.choice([random.randint(1, 8), random.randint(8, 40)])
    slices: tuple[SliceLayer, ...] = ()
    if mode is not Mode.IMPLIED and random.random() < 0.5:
        below = levels[levels.index(level) if level else 0 :]
        outer = random.randrange(len(below))
        inner = random.randrange(outer + 1, len(below)) if outer + 1 < len(below) and random.random() < 0.5 else None
        size = random.choice([2, 4])
        slices = (SliceLayer(below[outer], size), *([SliceLayer(below[inner], 2)] if inner is not None else []))
        count = max(1, count // size) * size
    asked = {"cpu": random.choice([1000, 2000])} | ({"gpu": 1} if random.random() < 0.2 else {})
    tolerations = tuple(random.sample(TOLERATIONS, random.randint(0, 1)))
    selector = {"pool": random.choice("1234")} if random.random() < 0.2 else {}
    return Cluster(levels, tuple(nodes), tuple(used)), PodSetRequest(
        "main", count, asked, TopologyRequest(mode, level, slices), selector, None, tolerations
    )


@pytest.mark.slow
def test_a_thousand_refusals():
    random, count, kinds = Random(SEED), 0, Counter[str]()
    while count < 1000:
        scene = random_scene(random)
        explanation = refused(*scene)
        if explanation is not None:
            check(*scene, explanation)
            count += 1
            kinds.update(
                ["never"]
                if explanation.never
                else [name for c in explanation.changes for name in ("level", "pods", "nodes") if getattr(c, name)]
            )
    assert min(kinds[name] for name in ("level", "pods", "nodes", "never")) > 10, kinds


def test_of_nodes_that_would_do_the_one_with_the_least_to_free_is_named():
    """Two nodes of the second rack hold no pod; three CPUs of the one are in use, and one of the other. No other rack could."""
    nodes = [
        Node(name, {BLOCK: "b", RACK: rack, HOSTNAME_LABEL: name}, {"cpu": cpu, "pods": 9})
        for name, rack, cpu in (("small", "r0", 1000), ("a", "r1", 4000), ("b", "r1", 4000))
    ]
    for much, little in (("a", "b"), ("b", "a")):
        cluster = Cluster(THREE_LEVELS, tuple(nodes), ((much, {"cpu": 3000}, 1), (little, {"cpu": 1000}, 1)))
        explanation = refused(cluster, request(1, Mode.REQUIRED, RACK, cpu=4000))
        assert explanation is not None
        (change,) = explanation.changes
        assert [(fix.node, [str(amount) for amount in fix.free]) for fix in change.nodes] == [(little, ["1 cpu"])]


def test_to_prefer_a_level_instead_is_one_level_more_than_the_highest():
    """Two levels up from the rack, so one pod less is the smaller change."""
    refusal = place(build_view(THREE_LEVELS, build_grid(2, 1, 1)), [request(5, Mode.REQUIRED, RACK)], MIXED).refusal
    assert refusal is not None
    assert refusal.explanation is not None
    assert refusal.explanation.changes == (SuggestedChange(1, pods=4), SuggestedChange(2, preferred=True))


def test_the_domain_that_needs_the_fewest_nodes_is_named_though_another_looked_as_good():
    """Both racks might do with two nodes, by the most that one node of each gains; the first one needs three."""
    cpus = {0: (4, 1, 1), 1: (3, 3, 1)}
    nodes = [
        replace(node, allocatable={"cpu": cpus[rack][i] * 1000, "pods": 9}, unschedulable=True)
        for rack in cpus
        for i, node in enumerate(build_grid(1, 2, 3)[rack * 3 : rack * 3 + 3])
    ]
    refusal = place(build_view(THREE_LEVELS, [*nodes, *build_grid(2, 1, 1, cpu=1)[1:]]), [request(6, Mode.REQUIRED, RACK)], MIXED).refusal
    assert refusal is not None
    assert refusal.explanation is not None
    (change,) = [change for change in refusal.explanation.changes if change.nodes and change.level is None]
    assert [fix.node for fix in change.nodes] == ["b0-r1-n0", "b0-r1-n1"]


def test_of_domains_that_need_as_many_nodes_one_where_nothing_has_to_be_freed_is_named():
    """All nodes have a taint and the first rack is full: to free it as well was advised."""
    taint = ("team", "x", "NoSchedule")
    nodes = tuple(replace(node, taints=(taint,)) for node in build_grid(1, 2, 2, cpu=4))
    cluster = Cluster(THREE_LEVELS, nodes, tuple((node.name, {"cpu": 4000}, 1) for node in nodes[:2]))
    explanation = refused(cluster, request(2, Mode.REQUIRED, RACK, cpu=4000))
    assert explanation is not None
    (change,) = [change for change in explanation.changes if change.nodes]
    assert [(fix.node, fix.taints, list(fix.free)) for fix in change.nodes] == [(node.name, (taint,), []) for node in nodes[2:]]

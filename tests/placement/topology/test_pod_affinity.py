"""Pods of one workload that must be near to or apart from each other: examples of each filter and of each way to decide."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.model.pod_traits import HostPort, Labels, PodTerm, PodTraits, Requirement
from core.model.podset import Mode, PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.decision import Decision
from core.placement.algorithms.profile import MIXED
from core.placement.engine import place
from core.placement.refusals import RefusalKind
from core.placement.topology.free_capacity import FreeCapacity
from core.placement.topology.pod_affinity import AffinityVerdicts, NoNeighbours
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view, request

HOST = HOSTNAME_LABEL
PORT = HostPort(80)


def build_term(app: str, key: str) -> PodTerm:
    """Pods of one app, in the namespace of the tests, near by a label of nodes."""
    return PodTerm(key, frozenset(["ns"]), None, (Requirement("app", "In", frozenset([app])),))


def build_pod_set(
    name: str, count: int, mode: Mode = Mode.UNCONSTRAINED, level: str | None = None, *, group: str | None = None, **traits: Any
) -> PodSetRequest:
    """A pod set whose pods have the label app=NAME."""
    asked = request(count, mode, level, name=name, traits=PodTraits("ns", {"app": name}, **traits))
    assert asked.topology is not None
    return replace(asked, topology=replace(asked.topology, group=group))


def place_pod_sets(view: FreeCapacity, *asked: PodSetRequest) -> dict[str, dict[str, int]]:
    decision = place(view, asked, MIXED)
    assert decision.refusal is None, decision.refusal
    assert [each.pod_set for each in decision.placements] == [each.name for each in asked]
    return {each.pod_set: dict(each.nodes) for each in decision.placements}


def list_notes(decision: Decision) -> tuple[str, ...]:
    assert decision.refusal is not None
    assert decision.refusal.explanation is not None
    return decision.refusal.explanation.notes


def get_excluded(decision: Decision) -> dict[str, int]:
    assert decision.refusal is not None
    assert decision.refusal.explanation is not None
    return {exclusion.reason: exclusion.count for exclusion in decision.refusal.explanation.exclusions}


class Bound(NoNeighbours):
    """Pods of given traits on given nodes, which need not be nodes of the tree."""

    def __init__(self, pods: Sequence[tuple[PodTraits, str]], nodes: Mapping[str, Labels] | None = None) -> None:
        self.pods, self.nodes = pods, nodes or {}

    def find_port_users(self, port: HostPort) -> Collection[str]:
        return [node for traits, node in self.pods if any(port.is_conflicting(other) for other in traits.host_ports)]

    def find_matching(self, terms: Sequence[PodTerm], *, awaits: bool = False) -> Collection[str]:
        return [node for traits, node in self.pods if all(term.is_match(traits.namespace, traits.labels, lambda _: None) for term in terms)]

    def is_repelled(self, traits: PodTraits) -> bool:
        return any(True for _ in self.find_repelling(traits))

    def find_repelling(self, traits: PodTraits) -> Iterable[tuple[PodTerm, Collection[str]]]:
        for other, node in self.pods:
            for each in other.anti_affinity:
                if each.is_match(traits.namespace, traits.labels, lambda _: None):
                    yield each, [node]

    def get_node_labels(self, node: str) -> Labels:
        return self.nodes[node]


# --- what is there already -------------------------------------------------------------------------------


def test_empty_neighbours_repel_no_pod():
    nobody, traits = NoNeighbours(), PodTraits("ns", {"app": "x"})
    assert not nobody.find_port_users(PORT)
    assert not nobody.find_matching([build_term("x", RACK)])
    assert not nobody.is_repelled(traits)
    assert not list(nobody.find_repelling(traits))
    assert nobody.get_node_labels("n") == {}
    assert nobody.get_namespace_labels("ns") is None


def test_each_filter_keeps_its_own_nodes():
    view = build_view(THREE_LEVELS, build_grid(1, 2, 2))
    names = view.tree.names
    there = [
        (PodTraits("ns", {"app": "db"}, (PORT,)), "b0-r0-n0"),
        (PodTraits("ns", {"app": "loud"}, anti_affinity=(build_term("x", HOST),)), "b0-r1-n1"),
    ]
    view.neighbours = Bound(there)

    def out(flags: Any) -> list[str]:
        return [name for name, flag in zip(names, flags, strict=True) if flag]

    def judge(**traits: Any) -> AffinityVerdicts:
        return view.around.judge(PodTraits("ns", {"app": "x"}, **traits))

    verdicts = judge(host_ports=(PORT,), affinity=(build_term("db", RACK),), anti_affinity=(build_term("loud", HOST),))
    assert out(verdicts.ports) == ["b0-r0-n0"]
    assert out(verdicts.far) == ["b0-r1-n0", "b0-r1-n1"]
    assert out(verdicts.apart) == ["b0-r1-n1"]
    assert out(verdicts.repelled) == ["b0-r1-n1"]
    assert not verdicts.first
    assert out(verdicts.find_allowed()) == ["b0-r0-n1"]


def test_pod_with_affinity_to_its_own_labels_may_be_first_only_on_labeled_nodes_without_a_match():
    nodes = [*build_grid(1, 1, 2), Node("bare", {BLOCK: "b0", RACK: "b0-r1", HOST: "bare", "zone": "1"})]
    view = build_view(THREE_LEVELS, nodes)
    own = PodTraits("ns", {"app": "x"}, affinity=(build_term("x", "zone"),))
    verdicts = view.around.judge(own)
    assert verdicts.first
    assert dict(zip(view.tree.names, verdicts.far.tolist(), strict=True)) == {"b0-r0-n0": True, "b0-r0-n1": True, "bare": False}
    other = view.around.judge(replace(own, labels={"app": "y"}))
    assert not other.first
    assert other.far.all()
    view.neighbours = Bound([(PodTraits("ns", {"app": "x"}), "far-away")], {"far-away": {"zone": "2"}})
    third = view.around.judge(own)
    assert not third.first  # there is one, but in a zone without any of our nodes
    assert third.far.all()


def test_company_counts_for_every_filter():
    tree_view = build_view(THREE_LEVELS, build_grid(1, 2, 2))
    company = PodTraits("ns", {"app": "db"}, (PORT,), anti_affinity=(build_term("x", RACK),))
    view = tree_view.copy_with_pods((company, [("b0-r0-n0", 1)]))
    verdicts = view.around.judge(
        PodTraits("ns", {"app": "x"}, (PORT,), affinity=(build_term("db", RACK),), anti_affinity=(build_term("db", HOST),)),
    )
    index = view.tree.index
    assert verdicts.ports.nonzero()[0].tolist() == [index["b0-r0-n0"]]
    assert verdicts.far.nonzero()[0].tolist() == sorted([index["b0-r1-n0"], index["b0-r1-n1"]])
    assert verdicts.apart.nonzero()[0].tolist() == [index["b0-r0-n0"]]
    assert verdicts.repelled.nonzero()[0].tolist() == sorted([index["b0-r0-n0"], index["b0-r0-n1"]])
    assert not tree_view.around.judge(PodTraits("ns", {"app": "x"}, (PORT,))).ports.any()
    assert view.is_particular(PodTraits())
    assert not tree_view.is_particular(PodTraits())


# --- pod sets that mind each other -----------------------------------------------------------------------


def test_pods_with_a_host_port_go_one_to_a_node_and_not_beside_another_pod_set_with_it():
    view = build_view(THREE_LEVELS, build_grid(1, 2, 2))
    where = place_pod_sets(
        view, build_pod_set("x", 2, host_ports=(PORT,)), build_pod_set("y", 2, host_ports=(HostPort(80, "TCP", "10.0.0.1"),))
    )
    assert sorted([*where["x"], *where["y"]]) == sorted(view.tree.names)
    assert {*where["x"].values(), *where["y"].values()} == {1}
    (note,) = list_notes(place(view, [build_pod_set("x", 5, host_ports=(PORT,))], MIXED))
    assert "host port 80/TCP" in note


def test_pod_set_with_affinity_to_a_later_pod_set_is_placed_after_it():
    view = build_view(THREE_LEVELS, [*build_grid(1, 1, 2, cpu=2), *(node for node in build_grid(1, 2, 2, cpu=8) if "r1" in node.name)])
    where = place_pod_sets(
        view, build_pod_set("follower", 2, affinity=(build_term("leader", RACK),)), build_pod_set("leader", 8, Mode.REQUIRED, RACK)
    )
    assert {name.rsplit("-", 1)[0] for name in [*where["follower"], *where["leader"]]} == {"b0-r1"}
    alone = place(view, [build_pod_set("follower", 2, affinity=(build_term("leader", RACK),))], MIXED)
    assert get_excluded(alone) == {"inter-pod affinity": 4}


def test_two_pod_sets_that_follow_each_other_have_no_beginning():
    view = build_view(THREE_LEVELS, build_grid(1, 2, 2))
    circle = [build_pod_set("x", 1, affinity=(build_term("y", RACK),)), build_pod_set("y", 1, affinity=(build_term("x", RACK),))]
    assert get_excluded(place(view, circle, MIXED)) == {"inter-pod affinity": 4}


def test_pods_near_to_their_own_kind_all_go_to_the_tightest_domain_that_holds_them():
    nodes = [*build_grid(1, 1, 3, cpu=2), *(node for node in build_grid(1, 2, 2, cpu=4) if "r1" in node.name)]
    view = build_view(THREE_LEVELS, nodes)
    own: dict[str, Any] = {"affinity": (build_term("x", RACK),)}
    assert sum(place_pod_sets(view, build_pod_set("x", 6, **own))["x"].values()) == 6
    assert {name[:5] for name in place_pod_sets(view, build_pod_set("x", 6, **own))["x"]} == {"b0-r0"}
    assert {name[:5] for name in place_pod_sets(view, build_pod_set("x", 7, **own))["x"]} == {"b0-r1"}
    refused = place(view, [build_pod_set("x", 9, **own)], MIXED)
    assert refused.refusal is not None
    assert refused.refusal.fit == 8
    (note,) = list_notes(refused)
    assert "affinity to their own kind" in note


def test_pods_near_to_their_own_kind_by_zone_still_share_the_rack_that_they_must_share():
    nodes = [replace(node, labels={**node.labels, "zone": "1" if node.name[:2] == "b0" else "2"}) for node in build_grid(2, 2, 1, cpu=2)]
    nodes += [Node("b1-r2-n0", {BLOCK: "b1", RACK: "b1-r2", HOST: "b1-r2-n0", "zone": "2"}, {"cpu": 3000, "pods": 110})]
    own: dict[str, Any] = {"affinity": (build_term("x", "zone"),)}
    assert place_pod_sets(build_view(THREE_LEVELS, nodes), build_pod_set("x", 3, Mode.REQUIRED, RACK, **own)) == {"x": {"b1-r2-n0": 3}}
    assert {name[:2] for name in place_pod_sets(build_view(THREE_LEVELS, nodes), build_pod_set("x", 4, **own))["x"]} == {"b0"}


def test_pods_apart_from_their_own_kind_go_one_to_each_domain():
    view = build_view(THREE_LEVELS, build_grid(2, 2, 2))
    apart: dict[str, Any] = {"anti_affinity": (build_term("x", RACK),)}
    where = place_pod_sets(view, build_pod_set("x", 4, **apart))["x"]
    assert sorted(name.rsplit("-", 1)[0] for name in where) == ["b0-r0", "b0-r1", "b1-r0", "b1-r1"]
    (note,) = list_notes(place(view, [build_pod_set("x", 5, **apart)], MIXED))
    assert f"one to each {RACK}" in note


def test_pods_apart_by_a_label_that_no_node_has_are_not_kept_apart():
    assert place_pod_sets(
        build_view(THREE_LEVELS, build_grid(1, 1, 1)), build_pod_set("x", 3, anti_affinity=(build_term("x", "zone"),))
    ) == {"x": {"b0-r0-n0": 3}}


def test_pods_apart_that_prefer_a_level_stay_in_one_domain_of_it_if_one_lends_enough_nodes():
    zones = {"b0-r0-n0": "1", "b0-r0-n1": "1", "b0-r1-n0": "1", "b0-r1-n1": "2"}
    nodes = [replace(node, labels={**node.labels, "zone": zones[node.name]}) for node in build_grid(1, 2, 2)]
    apart: dict[str, Any] = {"anti_affinity": (build_term("x", "zone"),)}
    view = build_view(THREE_LEVELS, nodes)
    assert place_pod_sets(view, build_pod_set("x", 2, Mode.PREFERRED, RACK, **apart)) == {"x": {"b0-r1-n0": 1, "b0-r1-n1": 1}}
    assert place_pod_sets(view, build_pod_set("x", 2, Mode.REQUIRED, RACK, **apart)) == {"x": {"b0-r1-n0": 1, "b0-r1-n1": 1}}


def test_where_no_domain_of_the_preferred_level_lends_enough_the_next_one_up_does():
    zones = {"b0-r0-n0": "1", "b0-r0-n1": "1", "b0-r1-n0": "2", "b0-r1-n1": "2"}
    nodes = [replace(node, labels={**node.labels, "zone": zones[node.name]}) for node in build_grid(1, 2, 2)]
    where = place_pod_sets(
        build_view(THREE_LEVELS, nodes), build_pod_set("x", 2, Mode.PREFERRED, RACK, anti_affinity=(build_term("x", "zone"),))
    )["x"]
    assert sorted(zones[name] for name in where) == ["1", "2"]


# --- groups, whose members are placed at once ------------------------------------------------------------


def test_members_of_a_group_that_share_a_host_port_are_on_different_nodes():
    view = build_view(THREE_LEVELS, build_grid(1, 1, 3))
    leader, *workers = (
        build_pod_set(name, count, Mode.REQUIRED, RACK, group="g", host_ports=(PORT,)) for name, count in (("l", 1), ("w", 2), ("w", 3))
    )
    where = place_pod_sets(view, leader, workers[0])
    assert sorted([*where["l"], *where["w"]]) == sorted(view.tree.names)
    refusal = place(view, [leader, workers[1]], MIXED).refusal
    assert refusal is not None
    assert (refusal.fit, refusal.wanted) == (2, 3)


def test_group_of_members_with_anti_affinity_to_each_other_is_refused_with_the_domain():
    view = build_view(THREE_LEVELS, build_grid(1, 1, 2))
    worker = build_pod_set("worker", 1, Mode.REQUIRED, RACK, group="g", anti_affinity=(build_term("leader", RACK),))
    (note,) = list_notes(place(view, [build_pod_set("leader", 1, Mode.REQUIRED, RACK, group="g"), worker], MIXED))
    assert all(part in note for part in ("leader and worker", f"anti-affinity by {RACK}"))


def test_a_group_with_ports_of_their_own_is_placed_together():
    view = build_view(THREE_LEVELS, build_grid(1, 2, 1))
    leader = build_pod_set("leader", 1, Mode.REQUIRED, RACK, group="g", host_ports=(PORT,))
    worker = build_pod_set("worker", 1, Mode.REQUIRED, RACK, group="g", host_ports=(HostPort(81),))
    where = place_pod_sets(view, leader, worker)
    assert {*where["leader"]} == {*where["worker"]}


def test_an_invalid_selector_is_reported_also_where_pods_mind_each_other():
    bad = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [BAD]}]}}}
    asked = replace(build_pod_set("x", 1, affinity=(build_term("x", RACK),)), affinity=bad)
    refusal = place(build_view(THREE_LEVELS, build_grid(1, 1, 1)), [asked], MIXED).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.INVALID_SELECTOR
    assert "'Near'" in refusal.detail


BAD = {"key": "a", "operator": "Near"}

"""Topology spreading (gate TASTopologySpreading): the worked examples, counting, order, and refusals with what opens a domain."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core.model.admission import decode_admission
from core.names import (
    ADMITTED,
    HOSTNAME_LABEL,
    JOB_UID_LABEL,
    REASON_NO_MATCHING_FLAVOR,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    SLICE_NAME,
    SLICE_REPLACES,
)
from core.placement.refusals import RefusalKind
from core.queueing.cycle.decisions import Decisions
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.ordering.standing_refusals import StandingRefusal, read_marks
from core.state.facts import WorkloadFacts
from core.state.gated_facts import MOST_LABELS
from core.state.spreading_counts import SpreadQuery
from tests.builders import NAMESPACE, build_condition_json, build_pod_set_json, build_workload_json
from tests.queueing.scene import get_refusals, list_refusals
from tests.queueing.spreading import RACK, ZONE, SpreadScene, annotate, build_text, rule

BY_ZONE = build_text(rule(ZONE, "0.34"))


def make_scene(zones: str = "abc", **options: Any) -> SpreadScene:
    scene = SpreadScene(**options)
    for name in zones:
        scene.zone(name, racks=2, nodes=2, cpu=8)
    return scene


# --- the worked examples ------------------------------------------------------------------------------------------


def test_three_zones_with_a_share_of_a_third_are_used_in_turn():
    scene = make_scene()
    assert [scene.place(f"w{i}", BY_ZONE) for i in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_share_of_a_rack_is_of_its_own_zone():
    scene, text = make_scene("ab"), build_text(rule(ZONE, "0.5"), rule(RACK, "0.5"))
    placed = []
    for i in range(6):
        key = scene.ask(f"w{i}", text, required=RACK)
        scene.decide()
        placed.append((scene.find(key), scene.find(key, RACK)))
    # 2nd: a is over, 1/1. 3rd: a0 has 1/1 of its zone, so a1, though a0 has but a third of all. 4th: a is over, 2/3.
    assert placed == [("a", "a0"), ("b", "b0"), ("a", "a1"), ("b", "b1"), ("a", "a0"), ("b", "b0")]


@pytest.mark.parametrize("share", ["0.5", "0.34", "0.25", "0.201", "0.9", "340m"])
def test_share_opens_its_reciprocal_of_domains_before_one_is_used_again(share: str):
    scene = SpreadScene()
    for name in "abcdefg":
        scene.zone(name)
    value = float(share[:-1]) / 1000 if share.endswith("m") else float(share)
    opened = math.ceil(1 / value)
    placed = [scene.place(f"w{i}", build_text(rule(ZONE, share))) for i in range(opened + 1)]
    assert placed[:opened] == list("abcdefg")[:opened]
    assert placed[opened] == "a"


def test_workload_waits_where_each_open_zone_is_full_and_comes_in_when_the_share_allows():
    scene = make_scene("ab")
    assert scene.place("w0", BY_ZONE) == "a"
    assert scene.place("w1", BY_ZONE) == "b"
    scene.ask("w2", BY_ZONE)
    [refused] = get_refusals(scene.decide()).values()
    [refusal] = list_refusals(refused)
    assert refused.reason == REASON_TOPOLOGY_PLACEMENT_FAILED
    assert refusal.kind is RefusalKind.SPREADING
    assert refusal.explanation is not None
    assert refusal.explanation.never is None
    scene.zone("c")
    scene.decide()
    assert scene.find(f"{NAMESPACE}/w2") == "c"


def test_refused_workload_is_decided_on_again_after_an_admission_that_opens_a_domain():
    scene, text = make_scene("ab"), build_text(rule(ZONE, "0.5"))
    scene.zone("c", cpu=1)
    assert scene.place("w0", text, count=2) == "a"
    assert scene.place("other", None, count=32, job="another") == "b"  # which is full
    scene.ask("w1", text, count=2)
    assert isinstance(scene.decide()["w1"], NotAdmissible)  # a has 1 of 1
    before = scene.state.changes
    assert scene.place("small", None) == "c"
    assert scene.state.changes == before  # nothing was released
    scene.decide()
    assert scene.find(f"{NAMESPACE}/w1") == "a"  # 1 of 2


def test_refused_workload_is_decided_on_again_once_a_counted_one_has_another_label():
    scene, text = make_scene("ab"), build_text(rule(ZONE, "0.4"), selector=("team", ["x"]))
    assert [scene.place(f"w{i}", text, team="x") for i in range(2)] == ["a", "b"]
    scene.ask("w2", text, team="x")
    assert isinstance(scene.decide()["w2"], NotAdmissible)  # a and b have 1 of 2
    other = scene.objects["w0"]
    scene.workload({**other, "metadata": {**other["metadata"], "labels": {"team": "y"}}})
    scene.decide()
    assert scene.find(f"{NAMESPACE}/w2") == "a"


def test_refusal_decided_in_pieces_stands_until_a_counted_workload_comes():
    """It never stood: each cycle searched again, in pieces, though nothing had changed."""
    scene, text = make_scene("ab"), build_text(rule(ZONE, "0.5"))
    scene.zone("c", cpu=1)
    assert scene.place("w0", text, count=2) == "a"
    assert scene.place("other", None, count=32, job="another") == "b"
    key = scene.ask("w1", text, count=2)
    outcome = scene.decide()["w1"]
    assert isinstance(outcome, NotAdmissible)
    state, facts = scene.state, scene.state.workloads.facts[key]
    queue = state.cluster_queues["cq"]
    refusal = StandingRefusal.note(state, facts, queue, outcome, 1, at=read_marks(state, facts, queue))
    assert refusal.is_valid(state, facts, queue, 2)
    assert scene.place("small", None) == "c"
    assert not refusal.is_valid(state, facts, queue, 2)


def test_refused_workload_is_not_decided_on_again_after_an_admission_of_another_job():
    scene, text = make_scene("a"), build_text(rule(ZONE, "0.5"))
    assert scene.place("w0", text) == "a"
    scene.ask("w1", text)
    assert isinstance(scene.decide()["w1"], NotAdmissible)
    decided = scene.cycle.latest.has_decided
    assert decided
    scene.ask("other", None, job="another")
    assert set(scene.decide()) == {"other"}
    scene.decide()
    assert not scene.cycle.latest.has_decided


# --- what counts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        ({"job": "job"}, True),
        ({"job": "another"}, False),
        ({"job": None}, False),
    ],
)
def test_default_selector_counts_workloads_of_the_same_job(other: dict[str, Any], counts: bool):
    scene = make_scene()
    assert scene.place("w0", None, **other) == "a"
    assert scene.place("w1", BY_ZONE) == ("b" if counts else "a")


def test_workload_without_a_job_is_not_spread_by_the_default_selector():
    scene = make_scene()
    assert [scene.place(f"w{i}", BY_ZONE, job=None) for i in range(3)] == ["a", "a", "a"]


@pytest.mark.parametrize(("team", "counts"), [("x", True), ("y", True), ("z", False), (None, False)])
def test_selector_counts_workloads_with_one_of_its_values(team: str | None, counts: bool):
    scene, text = make_scene(), build_text(rule(ZONE, "0.34"), selector=("team", ["x", "y"]))
    assert scene.place("w0", None, **({"team": team} if team else {})) == "a"
    assert scene.place("w1", text) == ("b" if counts else "a")


def test_workload_with_very_many_labels_is_counted_by_the_first_of_them_and_its_job():
    """Each label of each admitted Workload is a row of an index: in one object there is room for some hundred thousand."""
    scene = make_scene()
    key = scene.ask_for("w0", [build_pod_set_json(topology={"required": ZONE})], **{f"l{i:04}": "x" for i in range(1000)})
    scene.decide()
    labels = scene.state.workloads.facts[key].labels
    assert labels is not None
    assert list(labels) == [JOB_UID_LABEL, *(f"l{i:04}" for i in range(MOST_LABELS - 1))]
    assert len(scene.state.workloads.spreading._by_label) == MOST_LABELS


def test_workload_of_another_queue_or_namespace_does_not_count():
    scene = make_scene()
    scene.queue("cq2", {"tas": "100"})
    scene.local_queue("lq2", "cq2")
    pod_set = build_pod_set_json(topology={"required": ZONE})
    key = scene.ask_for("w0", [pod_set], queue="lq2")
    scene.decide()
    assert scene.find(key) == "a"
    assert scene.place("w1", BY_ZONE) == "a"


def test_pod_set_of_another_name_does_not_count_but_one_of_the_same_does():
    scene = make_scene()
    scene.ask_for("w0", [build_pod_set_json("other", topology={"required": ZONE})])
    scene.decide()
    assert scene.place("w1", BY_ZONE) == "a"
    assert scene.place("w2", BY_ZONE) == "b"


def test_workload_that_ends_or_is_relabelled_does_not_count_any_more():
    scene = make_scene()
    assert scene.place("w0", BY_ZONE) == "a"
    assert scene.place("w1", BY_ZONE) == "b"
    scene.delete("w0")
    assert scene.place("w2", BY_ZONE) == "a"
    relabelled = scene.objects["w1"]
    relabelled["metadata"]["labels"] = {}
    scene.workload(relabelled)
    assert scene.place("w3", BY_ZONE) == "b"


def test_workload_on_several_hosts_of_a_rack_counts_once():
    scene, text = make_scene("ab"), build_text(rule(RACK, "0.5"))
    assert scene.place("w0", text, RACK, required=RACK, count=16) == "a0"  # both nodes
    index = scene.state.workloads.spreading
    scene.ask("w1", text, required=RACK)
    scene.decide()
    [table] = index._tables.values()
    assert table.levels[1].tolist() == [1, 1, 0, 0]
    assert table.levels[0].tolist() == [2, 0]


def test_members_of_a_group_are_counted_by_the_group():
    scene = make_scene()
    for i, zone in enumerate(["a", "b", "c"]):
        topology = {"required": ZONE, "podSetGroupName": "g"}
        pod_sets = [annotate(build_pod_set_json(name, count, topology=topology), BY_ZONE) for name, count in (("leader", 1), ("worker", 2))]
        key = scene.ask_for(f"w{i}", pod_sets)
        scene.decide()
        assert scene.find(key) == zone


def test_node_that_comes_keeps_the_counts():
    scene = make_scene()
    assert scene.place("w0", BY_ZONE) == "a"
    scene.zone("0")  # before all others in the order of level values
    assert scene.place("w1", BY_ZONE) == "0"  # the tightest of those that are open
    assert scene.place("w2", BY_ZONE) in ("b", "c")


# --- rules --------------------------------------------------------------------------------------------------------


def test_preferred_rule_takes_used_domains_then_unused_ones_then_the_fewest():
    scene, text = make_scene("ab"), build_text(rule(ZONE, "0.6", "Preferred"))
    # 1st: all unused. 2nd: a is over, so b. 3rd: both are used and have half. 4th: a has 2/3 and is over. 5th: half each.
    assert [scene.place(f"w{i}", text) for i in range(5)] == ["a", "b", "a", "b", "a"]


def test_preferred_rule_takes_a_domain_further_back_where_the_first_does_not_fit():
    scene, text = make_scene("a"), build_text(rule(ZONE, "0.6", "Preferred"))
    scene.zone("b", cpu=1)
    assert scene.place("w0", text, count=4) == "a"
    assert scene.place("w1", text, count=4) == "a"  # over, and b has no room
    assert scene.place("w2", text) == "b"


def test_preferred_tier_comes_before_the_tightest_fit():
    scene = make_scene("ab")
    scene.zone("c", cpu=2)
    text = build_text(rule(ZONE, "0.6", "Preferred"))
    assert scene.place("w0", text, count=2) == "c"
    assert scene.place("w1", text, count=2) == "a"
    scene.delete("w0")
    assert scene.place("w2", text, count=2) == "c"  # a is over
    assert scene.place("w3", text, count=2, cpu="500m") == "a"  # used and not over; b, as tight, is unused


@pytest.mark.parametrize(("mode", "served"), [("Required", False), ("Preferred", True)])
def test_key_that_the_topology_lacks_skips_the_flavor_only_for_a_required_rule(mode: str, served: bool):
    scene = make_scene()
    scene.ask("w0", build_text(rule("cloud/region", "0.5", mode)))
    outcome = scene.decide()["w0"]
    assert isinstance(outcome, Admissible) is served
    if isinstance(outcome, NotAdmissible):
        assert outcome.reason == REASON_NO_MATCHING_FLAVOR
        assert "cloud/region" in outcome.message


def test_flavor_with_the_key_serves_where_the_first_lacks_it():
    scene = make_scene()
    scene.state.observe_topology("bare", scene.state.topologies["t"].__class__("bare", (RACK, HOSTNAME_LABEL)))
    scene.flavor("bare", "bare")
    scene.queue("cq", {"bare": "100", "tas": "100"})
    scene.ask("w0", BY_ZONE, required=RACK)
    outcome = scene.decide()["w0"]
    assert isinstance(outcome, Admissible)
    assert dict(outcome.admission.pod_sets[0].flavors) == {"cpu": "tas"}


def test_rule_below_the_required_level_is_refused_with_both_levels():
    scene = make_scene()
    scene.ask("w0", build_text(rule(RACK, "0.5")))
    [refused] = get_refusals(scene.decide()).values()
    [refusal] = list_refusals(refused)
    assert refusal.kind is RefusalKind.SPREADING_BELOW_PODSET_LEVEL
    assert RACK in refusal.detail
    assert ZONE in refusal.detail


@pytest.mark.parametrize("text", ["{", "{}", build_text(rule(ZONE, "1"))])
def test_rules_that_cannot_be_read_leave_the_workload_waiting(text: str):
    scene = make_scene()
    scene.ask("w0", text)
    [refused] = get_refusals(scene.decide()).values()
    assert refused.reason == REASON_NO_MATCHING_FLAVOR


def test_level_that_is_left_to_topogate_is_not_above_a_rule():
    scene, text = make_scene("ab"), build_text(rule(RACK, "0.5"))
    assert scene.place("w0", text, RACK, required="auto", count=16) == "a0"
    assert scene.place("w1", text, RACK, required="auto", count=16) == "a1"
    scene.ask("w2", text, required="auto", count=17)  # a zone has room, no rack has
    assert isinstance(scene.decide()["w2"], NotAdmissible)


def test_gate_that_is_off_leaves_the_annotation_without_effect():
    scene = make_scene(is_on=False)
    assert [scene.place(f"w{i}", BY_ZONE) for i in range(3)] == ["a", "a", "a"]
    scene.ask("w4", "{")
    assert isinstance(scene.decide()["w4"], Admissible)
    index = scene.state.workloads.spreading
    assert (index._members, index._by_label, index._tables) == ({}, {}, {})


def test_second_workload_of_one_cycle_sees_the_first():
    scene = make_scene()
    keys = [scene.ask(f"w{i}", BY_ZONE) for i in range(4)]
    scene.decide()
    assert [scene.find(key) for key in keys] == ["a", "b", "c", "a"]


def test_choice_names_rule_domain_count_share_and_closed_domains():
    scene = make_scene()
    scene.place("w0", BY_ZONE)
    scene.ask("w1", BY_ZONE)
    outcome = scene.decide()["w1"]
    assert isinstance(outcome, Admissible)
    [choice] = outcome.choices
    assert choice.able == 2
    for part in (ZONE, "b has 0 of 1 Workload", "0.34", "1 of 3 closed"):
        assert part in choice.spreading


def test_workload_that_preempts_is_not_closed_out_by_its_victims():
    scene = make_scene("a")
    scene.queue("cq", {"tas": "16"}, preemption={"withinClusterQueue": "LowerPriority"})
    assert scene.place("low", BY_ZONE, count=16) == "a"
    pod_set = annotate(build_pod_set_json(count=16, topology={"required": ZONE}), BY_ZONE)

    workload = build_workload_json("high", [pod_set], priority=10)
    workload["metadata"]["labels"] = scene.objects["low"]["metadata"]["labels"]
    scene.workload(workload)
    outcome = scene.decide()["high"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.preempting is not None
    assert [victim.workload.key for victim in outcome.preempting.victims] == [f"{NAMESPACE}/low"]


def test_refusal_stands_while_a_preemptor_that_is_counted_waits_for_its_victims(monkeypatch: pytest.MonkeyPatch):
    """In each cycle its place is counted until the end of the cycle; that decided on all again that count it."""
    scene, decided = make_scene("ab"), list[str]()
    scene.queue("cq", {"tas": "100"}, preemption={"withinClusterQueue": "LowerPriority"})
    assert [scene.place(f"low{i}", None, count=32, job=f"low{i}") for i in range(2)] == ["a", "b"]
    workload = build_workload_json("high", [build_pod_set_json(count=32, topology={"required": ZONE})], priority=10)
    workload["metadata"]["labels"] = {JOB_UID_LABEL: "job"}
    scene.workload(workload)
    outcome = scene.decide()["high"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.preempting is not None
    scene.ask("behind", BY_ZONE)
    assert isinstance(scene.decide()["behind"], NotAdmissible)
    decide = Decisions.decide

    def record(self: Decisions, workload: WorkloadFacts, *rest: Any) -> Admissible | NotAdmissible | None:
        decided.append(workload.key)
        return decide(self, workload, *rest)

    monkeypatch.setattr(Decisions, "decide", record)
    for _ in range(3):
        scene.decide()
    assert decided == []


# --- only at admission --------------------------------------------------------------------------------------------


def test_workload_that_grows_stays_in_its_domain_whatever_its_rules():
    scene = make_scene("ab")

    def build_slice(name: str, count: int, share: str, **notes: str) -> dict[str, Any]:
        pod_set = annotate(build_pod_set_json(count=count, topology={"required": ZONE}), build_text(rule(ZONE, share)))
        workload = build_workload_json(name, [pod_set], owner="job")
        workload["metadata"] |= {"labels": {JOB_UID_LABEL: "job"}, "annotations": {SLICE_NAME: "w0", **notes}}
        return workload

    scene.workload(build_slice("w0", 1, "0.5"))
    scene.decide()
    assert scene.find(f"{NAMESPACE}/w0") == "a"
    scene.ask("w1", None)  # of the same job, in the same zone: that has more than its share
    scene.decide()
    scene.workload(build_slice("w2", 3, "0.4", **{SLICE_REPLACES: f"{NAMESPACE}/w0"}))
    assert isinstance(scene.decide()["w2"], Admissible)
    assert scene.find(f"{NAMESPACE}/w2") == "a"


def test_pods_of_a_lost_node_are_replaced_in_a_domain_that_is_closed():
    scene = make_scene("ab")
    assert scene.place("w0", BY_ZONE) == "a"
    for name in ("w1", "w2"):
        assert scene.place(name, None) == "a"
    view, index = scene.state.get_view("tas"), scene.state.workloads.spreading
    assert view is not None
    counts = index.count(SpreadQuery("cq", NAMESPACE, "tas", "main", JOB_UID_LABEL, ("job",)), view, 0, {f"{NAMESPACE}/w0"})
    assert counts is not None
    assert (counts.levels[0].tolist(), counts.total) == ([2, 0], 2)  # to a new workload with these rules it is closed
    lost = scene.objects["w0"]
    host = decode_admission(lost["status"]["admission"]).pod_sets[0].assignment.domains[0].values[-1]  # type: ignore[union-attr]
    scene.state.observe_node(host, None)
    lost["status"] |= {"unhealthyNodes": [{"name": host}]}
    lost["status"]["conditions"].append(build_condition_json(ADMITTED))
    scene.workload(lost)
    assert isinstance(scene.decide()["w0"], Admissible)
    assert scene.find(f"{NAMESPACE}/w0") == "a"

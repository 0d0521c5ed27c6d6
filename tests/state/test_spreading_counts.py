"""Counts of Workloads by domain, kept up to date: equal to a recount from what is held, and without a scan in each decision."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.admission import Admission, PodSetAdmission, encode_admission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL, JOB_UID_LABEL, QUOTA_RESERVED
from core.queueing.flavors.outcome import Admissible
from core.state import spreading_counts
from core.state.spreading_counts import SpreadQuery
from tests.builders import NAMESPACE, Node, build_condition_json, build_pod_set_json, build_workload_json
from tests.queueing.spreading import LEVELS, RACK, ZONE, SpreadScene, annotate, build_text, rule


def recount(scene: SpreadScene, query: SpreadQuery, without: frozenset[str]) -> tuple[list[Counter[str]], int]:
    """Workloads by the path of each domain, level by level, and in all, from the admissions and the nodes' labels alone."""
    levels, total = [Counter[str]() for _ in LEVELS], 0
    for key, facts in scene.state.workloads.facts.items():
        held = scene.state.workloads.find_holding(key)
        matches = key.startswith(f"{query.namespace}/") and (facts.labels or {}).get(query.label) in query.values
        if held is None or held.cluster_queue != query.cluster_queue or key in without or not matches:
            continue
        hosts, counts = set[str](), False
        for pod_set, given_to in zip(facts.pod_sets, held.pod_sets, strict=True):
            unit = pod_set.group or pod_set.name
            if unit == query.unit and query.flavor in given_to.flavors.values() and given_to.assignment is not None:
                counts = True
                hosts |= {domain.values[-1] for domain in given_to.assignment.domains}
        total += counts
        paths = [[scene.state.nodes[host].labels[label] for label in LEVELS] for host in hosts if host in scene.state.nodes]
        for level in range(len(LEVELS)):
            levels[level].update({"/".join(path[: level + 1]) for path in paths})
    return levels, total


def check(scene: SpreadScene, query: SpreadQuery, without: frozenset[str] = frozenset()) -> None:
    view = scene.state.get_view("tas")
    assert view is not None
    found = scene.state.workloads.spreading.count(query, view, len(LEVELS) - 1, without)
    levels, total = recount(scene, query, without)
    if found is None:
        assert total == 0
        return
    tree = view.capacity.tree
    assert found.total == total
    for level, counts in enumerate(found.levels):
        shown = {"/".join(tree.get_values(level, domain)): int(count) for domain, count in enumerate(counts.tolist()) if count}
        assert shown == dict(levels[level])


@given(st.integers(0, 10_000))
def test_counts_are_those_of_a_recount_whatever_happens(seed: int):
    chance, scene = random.Random(seed), SpreadScene()
    for name in "ab":
        scene.zone(name, racks=2, nodes=2, cpu=6)
    queries = [
        SpreadQuery("cq", NAMESPACE, "tas", unit, label, values)
        for unit in ("main", "g")
        for label, values in ((JOB_UID_LABEL, ("j0",)), (JOB_UID_LABEL, ("j0", "j1")), ("team", ("x", "z")))
    ]
    names = [f"w{i}" for i in range(6)]
    for step in range(20):
        name, text = chance.choice(names), build_text(rule(ZONE, "0.6", chance.choice(["Required", "Preferred"])))
        what = chance.random()
        if what < 0.15:
            scene.delete(name)
        elif what < 0.25 and name in scene.objects and f"{NAMESPACE}/{name}" in scene.state.workloads.facts:
            labels = {JOB_UID_LABEL: chance.choice(["j0", "j1"]), "team": chance.choice("xyz")}
            scene.workload({**scene.objects[name], "metadata": {**scene.objects[name]["metadata"], "labels": labels}})
        elif what < 0.35:
            scene.zone(f"n{step}", nodes=chance.choice([1, 2]))
        elif what < 0.42:
            scene.state.observe_node(chance.choice(list(scene.state.nodes)), None)
        elif f"{NAMESPACE}/{name}" not in scene.state.workloads.facts:
            grouped = chance.random() < 0.4
            topology = {"required": chance.choice([ZONE, RACK]), **({"podSetGroupName": "g"} if grouped else {})}
            pod_sets = [build_pod_set_json(count=chance.choice([1, 3]), topology=topology)]
            pod_sets += [build_pod_set_json("leader", topology=topology)] if grouped else []
            asked = text if topology["required"] == ZONE and chance.random() < 0.7 else None
            scene.ask_for(
                name, [annotate(pod_set, asked) for pod_set in pod_sets], job=chance.choice(["j0", "j1"]), team=chance.choice("xyz")
            )
            outcome = scene.run().get(name)
            if isinstance(outcome, Admissible):
                check(scene, chance.choice(queries))  # what is assumed counts
                scene.write(name, outcome)
        for query in chance.sample(queries, 3):
            check(scene, query)
            check(scene, query, frozenset(f"{NAMESPACE}/{left}" for left in chance.sample(names, 2)))


def build_crowd(workloads: int) -> SpreadScene:
    scene = SpreadScene(quota="100000")
    for name in "abcd":
        scene.zone(name, racks=2, nodes=2, cpu=1000)
    for i in range(workloads):
        scene.ask(f"w{i}", None, cpu="10m", team="x")
    scene.decide()
    return scene


def test_admitted_workloads_are_read_once_not_in_each_decision(monkeypatch: pytest.MonkeyPatch):
    scene, read = build_crowd(200), list[int]()
    add = spreading_counts._add

    def record(table: spreading_counts._Table, members: Sequence[spreading_counts._Member], sign: int) -> None:
        read.append(len(members))
        add(table, members, sign)

    monkeypatch.setattr(spreading_counts, "_add", record)
    text = build_text(rule(ZONE, "0.3", "Preferred"), selector=("team", ["x"]))
    for i in range(20):
        scene.ask(f"s{i}", text, cpu="10m", team="x")
        scene.decide()
    assert read[0] == 200
    assert sum(read[1:]) <= 2 * 20  # each admission once, and at most once more where it is seen otherwise


def test_tables_are_limited_in_number_while_counts_stay_right():
    scene = build_crowd(3)
    index, view = scene.state.workloads.spreading, scene.state.get_view("tas")
    assert view is not None
    for i in range(spreading_counts._MOST_TABLES + 20):
        query = SpreadQuery("cq", NAMESPACE, "tas", "main", "team", tuple(sorted({"x", f"v{i}"})))
        found = index.count(query, view, 0)
        assert found is not None
        assert found.total == 3
    assert len(index._tables) == spreading_counts._MOST_TABLES
    assert len(index._asking) <= spreading_counts._MOST_TABLES + 1
    wide = SpreadQuery("cq", NAMESPACE, "tas", "main", "team", ("x", *(f"v{i}" for i in range(5_000))))
    assert index.count(wide, view, 0) is not None
    assert wide not in index._tables
    for i in range(3):
        scene.delete(f"w{i}")
    assert (index._members, index._by_label, index._versions, index._marks, index._version) == ({}, {}, {}, {}, 0)


def test_version_changes_with_each_admission_that_a_query_counts():
    scene = build_crowd(1)
    index = scene.state.workloads.spreading
    ours, others = (SpreadQuery("cq", NAMESPACE, "", "", "team", (value,)) for value in "xy")
    wide = SpreadQuery("cq", NAMESPACE, "", "", "team", tuple(f"v{i}" for i in range(100)))
    before = index.read_version(ours), index.read_version(wide)
    assert index.read_version(others) == 0
    scene.ask("w9", None, team="x")
    scene.decide()
    assert index.read_version(ours) != before[0]
    assert index.read_version(wide) != before[1]
    assert index.read_version(others) == 0


def test_tables_of_a_former_tree_are_dropped_once_one_of_the_new_tree_is_made():
    """Each kept its tree, and all that was free on it, in memory: one for every node that came."""
    scene = build_crowd(2)
    index = scene.state.workloads.spreading
    for i in range(10):
        scene.zone(f"n{i}")
        view = scene.state.get_view("tas")
        assert view is not None
        for unit in ("main", f"u{i}"):
            assert index.count(SpreadQuery("cq", NAMESPACE, "tas", unit, "team", ("x",)), view, 0) is not None
        assert {id(table.tree) for table in index._tables.values()} == {id(view.capacity.tree)}
        assert [list(queries) for queries in index._asking.values()] == [list(index._tables)]


def test_tables_are_limited_in_their_domains_in_all(monkeypatch: pytest.MonkeyPatch):
    scene = build_crowd(2)
    index, view = scene.state.workloads.spreading, scene.state.get_view("tas")
    assert view is not None
    monkeypatch.setattr(spreading_counts, "_MOST_CELLS", 3 * (4 + 8 + 16))
    for i in range(10):
        found = index.count(SpreadQuery("cq", NAMESPACE, "tas", f"u{i}", "team", ("x",)), view, len(LEVELS) - 1)
        assert found is not None
        assert len(index._tables) == min(i + 1, 3)
    monkeypatch.setattr(spreading_counts, "_MOST_CELLS", 1)
    assert index.count(SpreadQuery("cq", NAMESPACE, "tas", "main", "team", ("x",)), view, len(LEVELS) - 1) is not None
    assert len(index._tables) == 1


def test_version_changes_where_a_label_is_taken_away_from_one_of_several_workloads():
    scene = build_crowd(2)
    index = scene.state.workloads.spreading
    query = SpreadQuery("cq", NAMESPACE, "", "", "team", ("x", "y"))
    seen = [index.read_version(query)]
    for name, team in (("w0", "z"), ("w1", "y"), ("w1", "z"), ("w0", "x")):
        workload = scene.objects[name]
        scene.workload({**workload, "metadata": {**workload["metadata"], "labels": {"team": team}}})
        seen.append(index.read_version(query))
    assert seen[1] == seen[2]  # by another label, but counted as before
    assert len(set(seen)) == 4


def test_assignment_by_former_levels_is_subtracted_as_it_was_added():
    """Where nodes share a hostname an assignment names all levels, and is found by those that the topology had when it was written."""
    scene = SpreadScene()
    for i in range(2):
        labels = {ZONE: f"z{i}", RACK: f"r{i}", HOSTNAME_LABEL: "same"}
        scene.node(Node(f"n{i}", labels, {"cpu": 4000, "pods": 10}))
    scene.ask("w0", None, team="x")
    scene.decide()
    index, view = scene.state.workloads.spreading, scene.state.get_view("tas")
    query = SpreadQuery("cq", NAMESPACE, "tas", "main", "team", ("x",))
    assert view is not None
    assert index.count(query, view, 0) is not None  # the table is there
    given = TopologyAssignment((RACK, HOSTNAME_LABEL), (DomainCount(("r1", "same"), 1),))
    admission = Admission("cq", (PodSetAdmission("main", {"cpu": "tas"}, {"cpu": 1000}, 1, given),))
    workload = build_workload_json("former", [build_pod_set_json(cpu="1", topology={"required": ZONE})])
    workload["metadata"]["labels"] = {"team": "x"}
    workload["status"] = {"admission": encode_admission(admission), "conditions": [build_condition_json(QUOTA_RESERVED)]}
    scene.workload(workload)
    found = index.count(query, view, 0)
    assert found is not None
    assert found.levels[0].tolist() == [1, 1]
    scene.delete("former")
    found = index.count(query, view, 0)
    assert found is not None
    assert found.levels[0].tolist() == [1, 0]

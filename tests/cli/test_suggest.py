"""`topogate topology suggest`: what it writes is a tree of the nodes, valid as it is, and what is odd is told."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.level_names import NETWORKS, find_levels
from cli.suggest import Names, suggest
from core.api.schema import KINDS
from core.jobs.objects import OBJECTS
from core.placement.topology.tree import NodeLabels, TopologyTree
from core.state.facts import NodeFacts
from tests.cli.commands import BLOCK, HOST, RACK, Commands, Obj, build_job, build_node, build_nodes, build_queues

RULES = {rules.kind: rules for rules in OBJECTS}
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
OWN = ("example.com/row", "example.com/rack", "hall", "colour", "team")


def list_levels(ran_out: str) -> list[str]:
    return [level["nodeLabel"] for level in next(yaml.safe_load_all(ran_out))["spec"]["levels"]]


def judge(documents: list[Any]) -> None:
    """As the API server and the webhook would: by the models of the CRDs and by the rules."""
    assert [document["kind"] for document in documents] == ["Topology", "ResourceFlavor", "ClusterQueue", "LocalQueue"]
    for document in documents:
        KINDS[document["kind"]][0].model.model_validate(document)
        if document["kind"] in RULES:
            assert RULES[document["kind"]].validate(document, None).errors == ()


def test_objects_that_are_there_as_suggested_are_not_remarked_on(topogate: Commands):
    file = topogate.write("nodes.yaml", *build_nodes())
    suggested = list(yaml.safe_load_all(topogate.run("topology", "suggest", "--nodes", file).out))
    ran = topogate.run("topology", "suggest", "--nodes", file, "--nodes", topogate.write("there.yaml", *suggested))
    assert (ran.code, ran.err) == (0, "")


def test_topology_suggest_reports_an_existing_local_queue_of_another_cluster_queue(topogate: Commands):
    file = topogate.write("nodes.yaml", *build_nodes())
    suggested = list(yaml.safe_load_all(topogate.run("topology", "suggest", "--nodes", file).out))
    suggested[3]["spec"]["clusterQueue"] = "other"
    ran = topogate.run("topology", "suggest", "--nodes", file, "--nodes", topogate.write("there.yaml", suggested[3]))
    assert (ran.err.count("\n"), "LocalQueue main" in ran.err, "spec.clusterQueue" in ran.err) == (1, True, True)


def test_topology_suggest_reports_an_existing_cluster_queue_of_the_same_name(topogate: Commands):
    file, there = topogate.write("nodes.yaml", *build_nodes()), topogate.write("there.yaml", *build_queues())
    named = [there_already["metadata"]["name"] for there_already in build_queues() if there_already["kind"] == "ClusterQueue"]
    ran = topogate.run("topology", "suggest", "--nodes", file, "--nodes", there, "--cluster-queue", named[0])
    assert ran.code == 0
    assert f"ClusterQueue {named[0]} " in ran.err
    assert "spec.resourceGroups" in ran.err
    assert "ResourceFlavor default" not in ran.err


def test_known_labels_become_levels_and_everything_can_be_applied_and_planned_with(topogate: Commands):
    file = topogate.write("nodes.yaml", *build_nodes())
    ran = topogate.run("topology", "suggest", "--nodes", file)
    assert (ran.code, ran.err) == (0, "")
    documents = list(yaml.safe_load_all(ran.out))
    judge(documents)
    assert list_levels(ran.out) == [BLOCK, RACK, HOST]
    assert documents[1]["spec"]["nodeLabels"] == {"node-group": "gpu"}
    amounts = documents[2]["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert {amount["name"]: amount["nominalQuota"] for amount in amounts} == {"cpu": "1024", "memory": "8Ti", "nvidia.com/gpu": "128"}
    wanted = topogate.write("job.yaml", build_job("a", 4, required=RACK))
    assert topogate.run("plan", "-f", wanted, "--nodes", file, "--nodes", topogate.write("objects.yaml", *documents)).code == 0


@pytest.mark.parametrize("family", NETWORKS, ids=lambda family: family[-1])
def test_each_known_network_is_put_in_its_order(family: tuple[str, ...]):
    cluster = {
        f"n{i}": {HOST: f"n{i}", **{label: f"{depth}-{i // (2 ** (len(family) - depth))}" for depth, label in enumerate(family)}}
        for i in range(2 ** (len(family) + 1))
    }
    found = find_levels(cluster)
    assert found.levels == (*family, HOST)
    assert found.remarks == ()


def test_regions_and_zones_go_above_a_network_only_where_there_are_several():
    cluster = {f"n{i}": {HOST: f"n{i}", REGION: "r", ZONE: f"z{i // 4}", BLOCK: f"b{i // 4}", RACK: f"r{i // 2}"} for i in range(8)}
    assert find_levels(cluster).levels == (ZONE, BLOCK, RACK, HOST)
    single = {name: {**labels, ZONE: "z"} for name, labels in cluster.items()}
    assert find_levels(single).levels == (BLOCK, RACK, HOST)


def test_topology_suggest_uses_the_known_network_of_most_nodes_without_rare_or_equal_labels():
    google, amazon = NETWORKS[1], NETWORKS[2]
    cluster = {f"n{i}": {HOST: f"n{i}", google[0]: f"b{i // 4}", google[1]: f"s{i // 4}", google[2]: f"h{i // 2}"} for i in range(8)}
    cluster["n0"] |= {amazon[0]: "a"}
    found = find_levels(cluster)
    assert found.levels == (google[0], google[2], HOST)
    assert [remark.partition(" is ")[0] for remark in found.remarks] == [f"label {google[1]}", f"label {amazon[0]}"]
    for i in range(6):
        cluster[f"n{i}"] |= {amazon[0]: "a"}
    found = find_levels(cluster)
    assert found.levels == (google[0], google[2], HOST)
    assert found.remarks[-1].startswith(f"label {amazon[0]} ")
    for labels in list(cluster.values())[:5]:
        del labels[google[2]]
    assert find_levels(cluster).levels == (google[0], HOST)


def test_an_interconnect_is_put_where_its_domains_lie():
    clique = "nvidia.com/gpu.clique"
    cluster = {f"n{i}": {HOST: f"n{i}", BLOCK: f"b{i // 8}", RACK: f"r{i // 2}", clique: f"c{i // 4}"} for i in range(16)}
    assert find_levels(cluster).levels == (BLOCK, clique, RACK, HOST)
    alone = {name: {HOST: labels[HOST], clique: labels[clique]} for name, labels in cluster.items()}
    assert find_levels(alone).levels == (clique, HOST)


def test_topology_suggest_finds_unknown_labels_by_their_values(topogate: Commands):
    cluster = [
        build_node(
            f"n{i:02}", {"example.com/hall": f"h{i // 6}", "example.com/row-number": f"{i // 3}", "team": f"t{i % 2}", HOST: f"n{i:02}"}
        )
        for i in range(12)
    ]
    ran = topogate.run("topology", "suggest", "--nodes", topogate.write("nodes.yaml", *cluster))
    assert list_levels(ran.out) == ["example.com/hall", "example.com/row-number", HOST]


def test_topology_suggest_reports_odd_labels(topogate: Commands):
    cluster = build_nodes(blocks=2, racks=2, hosts=2)
    for each in cluster:
        each["metadata"]["labels"][RACK] = each["metadata"]["labels"][RACK].removeprefix("b0-").removeprefix("b1-")
    cluster.append(build_node("lost", {BLOCK: "b0"}))
    cluster.append(build_node("alone", {BLOCK: "b0", RACK: "r9"}))
    ran = topogate.run("topology", "suggest", "--nodes", topogate.write("nodes.yaml", *cluster))
    assert ran.code == 0
    named = ("r0", "b0, b1"), ("lost", RACK), (RACK, "b0/r9"), ("node-group=gpu", "1 other node")
    remarks = ran.err.splitlines()
    assert [all(name in remark for name in names) for names, remark in zip(named, remarks, strict=True)] == [True] * 4


def test_only_nodes_with_accelerators_are_looked_at_where_there_are_some_and_their_common_taint_is_tolerated(topogate: Commands):
    cluster = build_nodes(blocks=1)
    for each in cluster:
        each["spec"] = {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}
    plain: Obj = build_node("web", {"node-group": "web"})
    del plain["status"]["allocatable"]["nvidia.com/gpu"]
    ran = topogate.run("topology", "suggest", "--nodes", topogate.write("nodes.yaml", *cluster, plain))
    flavor = list(yaml.safe_load_all(ran.out))[1]
    assert flavor["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}]
    assert "8 of 9 nodes" in ran.err
    assert "nvidia.com/gpu=present:NoSchedule" in ran.err


@pytest.mark.parametrize(
    ("cluster", "code"), [([], 2), ([{**build_node("n"), "metadata": {"name": "n", "labels": {"a": "b"}}}], 1)], ids=["no node", "no label"]
)
def test_suggestion_without_a_node_or_a_label_fails_with_one_line(topogate: Commands, cluster: list[Obj], code: int):
    other: Obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
    ran = topogate.run("topology", "suggest", "--nodes", topogate.write("nodes.yaml", *cluster, other))
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)


values = st.sampled_from(["1", "2", "3", "x"])


@given(
    st.lists(
        st.fixed_dictionaries({}, optional=dict.fromkeys((BLOCK, RACK, ZONE, "nvidia.com/gpu.clique", *OWN), values)),
        min_size=1,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_whatever_the_labels_the_levels_are_a_tree_of_the_nodes_and_do_not_depend_on_any_order(drawn: list[dict[str, str]], random: Any):
    cluster = {f"n{i}": {"pool": "p", HOST: f"n{i}", **labels} for i, labels in enumerate(drawn)}
    found = find_levels(cluster)
    assert found.levels[-1] == HOST
    tree = TopologyTree(found.levels, [NodeLabels(name, labels) for name, labels in cluster.items()])
    whole = [name for name, labels in cluster.items() if all(label in labels for label in found.levels)]
    assert sorted(tree.names) == sorted(whole)
    # Labels that only their values speak for nest strictly; those of known networks, too, or it is told.
    for upper, lower in pairwise(found.levels[:-1]):
        below: dict[str, set[str]] = {}
        for name in whole:
            below.setdefault(cluster[name][lower], set()).add(cluster[name][upper])
        crossing = [value for value, above in below.items() if len(above) > 1]
        assert not crossing or any(f"label {lower} does not nest in {upper}" in remark for remark in found.remarks)
        assert not crossing or lower in (RACK, BLOCK, "nvidia.com/gpu.clique")
    shuffled = list(cluster.items())
    random.shuffle(shuffled)
    again = {name: dict(random.sample(list(labels.items()), len(labels))) for name, labels in shuffled}
    assert find_levels(again) == found


@given(st.lists(st.fixed_dictionaries({BLOCK: values, RACK: values}), min_size=1, max_size=12), st.integers(1, 9))
def test_suggested_topology_objects_are_valid(drawn: list[dict[str, str]], gpus: int):
    cluster = [NodeFacts.read(build_node(f"n{i}", labels, **{"nvidia.com/gpu": str(gpus)})) for i, labels in enumerate(drawn)]
    suggestion = suggest(cluster, Names())
    documents = list(yaml.safe_load_all(suggestion.to_yaml()))
    judge(documents)
    quota = documents[2]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][-1]
    assert quota == {"name": "nvidia.com/gpu", "nominalQuota": str(gpus * len(drawn))}
    assert suggest(cluster[::-1], Names()) == suggestion


def test_flavor_that_selects_the_same_nodes_is_reported(topogate: Commands):
    """Applied beside it, the quota was there twice."""
    flavor = next(document for document in build_queues() if document["kind"] == "ResourceFlavor")
    other = {**flavor, "metadata": {"name": "cpu-only"}, "spec": {"nodeLabels": {"node-group": "cpu"}}}
    ran = topogate.run("topology", "suggest", "--nodes", topogate.write("nodes.yaml", *build_nodes(), flavor, other))
    assert ran.code == 0
    assert ran.err.count("\n") == 1
    assert "ResourceFlavor gpu " in ran.err
    named = topogate.run("topology", "suggest", "--name", "gpu", "--nodes", topogate.write("nodes.yaml", *build_nodes(), flavor))
    assert "16 of" not in named.err

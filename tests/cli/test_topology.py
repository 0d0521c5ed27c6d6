"""`topogate topology` on clusters that files describe: the numbers are the nodes', and the picture shows who sits where."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.commands import BLOCK, HOST, RACK, Commands, Obj, build_job, build_node, build_nodes, build_queues
from tests.cli.lives import build_queued_job, decide_documents

GPU = "nvidia.com/gpu"


def build_pod(name: str, on: str, gpus: int) -> Obj:
    containers = [{"name": "c", "resources": {"requests": {GPU: str(gpus)}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": on, "containers": containers},
        "status": {"phase": "Running"},
    }


def test_counts_of_every_domain_are_those_of_its_nodes(topogate: Commands):
    cluster = build_nodes(blocks=2, racks=3, hosts=2)
    cluster[0]["spec"] = {"unschedulable": True}
    file = topogate.write("cluster.yaml", *cluster, *build_queues(), build_pod("p", "n-0-1-0", 3))
    told = topogate.run("topology", "default", "--nodes", file, "-o", "json").data
    (topology,) = told["topologies"]
    (flavor,) = topology["flavors"]
    assert [(level["label"], level["domains"]) for level in flavor["levels"]] == [(BLOCK, 2), (RACK, 6), (HOST, 12)]
    for block in flavor["domains"]:
        assert (block["nodes"], block["capacity"][GPU]) == (6, "48")
        for rack in block["domains"]:
            inside = [n for n in cluster if n["metadata"]["labels"][RACK] == rack["values"][-1]]
            assert [host["values"][-1] for host in rack["domains"]] == [n["metadata"]["name"] for n in inside]
            assert (rack["nodes"], rack["capacity"][GPU]) == (len(inside), str(8 * len(inside)))
    racks = {rack["values"][-1]: rack for block in flavor["domains"] for rack in block["domains"]}
    assert (racks["b0-r0"]["usable"], racks["b0-r0"]["free"][GPU], racks["b0-r0"]["fits"]) == (1, "8", 8)
    assert (racks["b0-r1"]["used"][GPU], racks["b0-r1"]["free"][GPU], racks["b0-r1"]["fits"]) == ("3", "13", 13)


def test_amount_beyond_the_largest_is_shown_as_more_than_that(topogate: Commands):
    file = topogate.write("cluster.yaml", *build_nodes(blocks=1, racks=1, hosts=2, **{GPU: "10e399"}), *build_queues())
    line = next(line for line in topogate.run("topology", "--nodes", file).out.splitlines() if "b0-r0 " in line)
    assert f"{GPU} 0/more than " in line
    assert "-" not in line.partition(GPU)[2]


def test_nodes_that_take_nothing_are_named_with_why(topogate: Commands):
    cluster = build_nodes(blocks=1, racks=2, hosts=2)
    repair = {"key": "repair", "value": "gpu", "effect": "NoSchedule"}
    cluster[0]["spec"] = {"unschedulable": True, "taints": [repair]}
    cluster[1]["spec"] = {"taints": [repair]}
    cluster[2]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    file = topogate.write("cluster.yaml", *cluster, *build_queues())
    ran = topogate.run("topology", "--nodes", file)
    assert "out of use: 1 node (n-0-0-0), unschedulable" in ran.out
    assert 'out of use: 1 node (n-0-0-1), taint "repair=gpu:NoSchedule"' in ran.out
    assert "out of use: 1 node (n-0-1-0), NotReady" in ran.out
    (topology,) = topogate.run("topology", "--nodes", file, "-o", "json").data["topologies"]
    assert sum(len(names) for names in topology["flavors"][0]["outOfUse"].values()) == 3


def test_the_largest_fit_is_of_the_pod_that_is_asked_for(topogate: Commands):
    file = topogate.write(
        "cluster.yaml",
        *build_nodes(blocks=2, racks=2, hosts=2),
        *build_queues(),
        build_pod("p", "n-0-1-0", 1),
        build_pod("q", "n-0-0-1", 1),
    )
    for wanted, fits in ((f"{GPU}=8", [("b1", 4), ("b1/b1-r0", 2), ("b0/b0-r0/n-0-0-0", 1)]), (f"{GPU}=2,cpu=60", [("b0", 4)])):
        told = topogate.run("topology", "--pod", wanted, "--nodes", file, "-o", "json").data
        levels = told["topologies"][0]["flavors"][0]["levels"]
        found = [("/".join(level["largestFit"]["values"]), level["largestFit"]["pods"]) for level in levels]
        assert found[: len(fits)] == fits


def test_topology_command_shows_the_tree_and_with_hosts_its_nodes(topogate: Commands):
    file = topogate.write("cluster.yaml", *build_nodes(blocks=1, racks=2, hosts=2), *build_queues(), build_node("lost"))
    ran = topogate.run("topology", "--nodes", file)
    assert (ran.code, ran.err) == (0, "")
    assert "b0-r1  2 nodes" in ran.out
    assert "n-0-0-0  1 node" not in ran.out
    assert f"left out: 1 node (lost) without the label {RACK}" in ran.out
    assert "n-0-0-0  1 node" in topogate.run("topology", "--hosts", "--nodes", file).out


def test_the_picture_has_a_seat_for_each_gpu_with_the_job_that_has_it(topogate: Commands, tmp_path: Path):
    documents = decide_documents(
        [*build_nodes(blocks=1, racks=2, hosts=2), *build_queues(), *build_queued_job(build_job("ours", 2, required=RACK))]
    )
    file, svg = topogate.write("cluster.yaml", *documents, build_pod("p", "n-0-1-0", 3)), tmp_path / "picture.svg"
    ran = topogate.run("topology", "--seats", "--svg", svg, "--nodes", file)
    assert ran.code == 0
    assert "b0-r0 aaaaaaaa aaaaaaaa" in ran.out
    assert "b0-r1 ###····· ········" in ran.out
    titles = [element.text for element in ElementTree.parse(svg).iter() if element.tag.endswith("title")]
    assert len(titles) == 32
    assert titles.count("n-0-0-1: ours") == 8
    assert titles.count("n-0-1-0: others") == 3
    assert titles.count("n-0-1-0: free") == 5


def test_seats_of_a_cordoned_node_are_not_drawn_as_free(topogate: Commands, tmp_path: Path):
    cluster = build_nodes(blocks=1, racks=1, hosts=2)
    cluster[1]["spec"] = {"unschedulable": True}
    file, svg = topogate.write("cluster.yaml", *cluster, *build_queues(), build_pod("p", "n-0-0-1", 3)), tmp_path / "picture.svg"
    ran = topogate.run("topology", "--seats", "--svg", svg, "--nodes", file)
    assert "b0-r0 ········ ###xxxxx" in ran.out
    assert "x on nodes that take no pods" in ran.out
    titles = [element.text for element in ElementTree.parse(svg).iter() if element.tag.endswith("title")]
    assert titles.count("n-0-0-1: on nodes that take no pods") == 5


def test_tainted_node_is_out_in_the_tree_as_in_the_picture(topogate: Commands):
    """The picture drew its seats as taken out, and the tree counted it as usable, or the other way round."""
    cluster = build_nodes(blocks=1, racks=1, hosts=3)
    cluster[1]["spec"] = {"taints": [{"key": "repair", "effect": "NoSchedule"}]}
    cluster[2]["spec"] = {"unschedulable": True}
    file = topogate.write("cluster.yaml", *cluster, *build_queues())
    ran = topogate.run("topology", "--seats", "--nodes", file)
    assert "b0-r0 ········ xxxxxxxx xxxxxxxx" in ran.out
    assert "b0-r0  3 nodes, 2 of them out" in ran.out
    (topology,) = topogate.run("topology", "--nodes", file, "-o", "json").data["topologies"]
    (rack,) = topology["flavors"][0]["domains"][0]["domains"]
    assert (rack["usable"], rack["free"][GPU]) == (1, "8")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_legend_of_the_picture_does_not_break_between_a_letter_and_its_name(
    topogate: Commands, monkeypatch: pytest.MonkeyPatch, width: int
):
    names = [f"job-number-{number}" for number in range(9)]
    jobs = [document for name in names for document in build_queued_job(build_job(name, 1))]
    documents = decide_documents([*build_nodes(), *build_queues(), *jobs])
    monkeypatch.setenv("COLUMNS", str(width))
    shown = topogate.run("topology", "--seats", "--nodes", topogate.write("cluster.yaml", *documents)).out
    legend = [line for line in shown.splitlines() if "job-number-" in line]
    assert all(len(line) <= width for line in legend)
    entries = [entry.strip() for line in legend for entry in line.split("   ") if "job-number-" in entry]
    assert entries == [f"{letter} {name}" for letter, name in zip("abcdefghi", names, strict=True)]


def test_help_of_the_word_names_the_options_of_the_tree(topogate: Commands):
    shown = " ".join(topogate.run("topology", "--help").out.split())
    assert all(part in shown for part in ("--seats", "topology show --help"))


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["none"], 1, ""),
        (["--pod", "gpu"], 2, "--pod gpu: 'gpu' "),
        (["--pod", "cpu=0"], 2, "--pod cpu=0: 'cpu=0' "),
        (["--pod", "cpu=4,cpu=8"], 2, "--pod cpu=4,cpu=8: cpu "),
        (["--pod", "gpu=8"], 2, "--pod gpu=8: "),
        (["--pod", "example.com/license=1"], 2, "--pod example.com/license=1: "),
    ],
)
def test_topology_command_with_invalid_arguments_fails_with_one_line(topogate: Commands, arguments: list[str], code: int, named: str):
    ran = topogate.run("topology", *arguments, "--nodes", topogate.write("cluster.yaml", *build_nodes(), *build_queues()))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith(f"topogate: {named}")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--seats", "--resource", "memory"], 2, "--resource memory: "),
        (["--svg", "/no/such/folder/x.svg"], 1, "--svg /no/such/folder/x.svg: "),
    ],
)
def test_picture_that_cannot_be_drawn_is_reported_after_the_numbers(topogate: Commands, arguments: list[str], code: int, named: str):
    ran = topogate.run("topology", *arguments, "--nodes", topogate.write("cluster.yaml", *build_nodes(), *build_queues()))
    assert (ran.code, ran.err.count("\n")) == (code, 1)
    assert ran.out.startswith("Topology default")
    assert ran.err.startswith(f"topogate: {named}")

"""The stream bench does what it times: answers hold, usage counts while a workload is there and not after."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from core.model.pod_resources import parse_resources
from core.names import HOSTNAME_LABEL
from tests.bench import stream
from tests.bench.parts.streams import GPU, RACK, build_stream

NODES, REQUESTS = 96, 60


def live(lines: list[dict[str, Any]]) -> tuple[stream.Runner, dict[str, Any]]:
    runner = stream.Runner(lines[0])
    return runner, {answer["id"]: answer["answer"] for answer in runner.run(lines[1:])}


def place(name: str, count: int, gpus: int, topology: dict[str, Any], **more: Any) -> dict[str, Any]:
    pod_set = {"name": "main", "count": count, "single_pod_requests": {GPU: gpus}, "topology_request": topology}
    return {"op": "place", "id": name, "pod_sets": [pod_set | more]}


def rack_of(gpus: int, nodes: int = 2) -> dict[str, Any]:
    """A stream's first line: one rack of equal nodes n0, n1, ..."""
    return {
        "levels": [RACK, HOSTNAME_LABEL],
        "nodes": [
            {
                "name": f"n{i}",
                "labels": {RACK: "r", HOSTNAME_LABEL: f"n{i}"},
                "allocatable": {"cpu": "8", GPU: str(gpus), "pods": "10"},
            }
            for i in range(nodes)
        ],
    }


def domains(answer: dict[str, Any]) -> dict[str, int]:
    return {domain["values"][-1]: domain["count"] for domain in answer["pod_sets"][0]["assignment"]["domains"]}


@pytest.mark.parametrize("seed", [1, 2])
def test_no_answer_takes_more_than_there_is_or_a_node_that_is_not_eligible(seed: int) -> None:
    lines = list(build_stream(NODES, REQUESTS, seed))
    _, answers = live(lines)
    nodes = {node["name"]: dict(node) for node in lines[0]["nodes"]}
    free = {name: Counter(parse_resources(node["allocatable"])) for name, node in nodes.items()}
    taken: dict[str, list[tuple[str, Counter[str]]]] = {}
    outcomes = Counter(answer["ok"] for answer in answers.values())
    assert min(outcomes[True], outcomes[False]) > 5
    for line in lines[1:]:
        key = line["op"] + line.get("id", line.get("name", ""))
        if line["op"] == "node":
            nodes[line["name"]].update(line)
        elif line["op"] == "release" or line.get("phase") == "Succeeded":
            for node, amounts in taken.pop(key.replace("release", "place"), []):
                free[node].update(amounts)
        elif line["op"] == "pod":
            taken[key] = [(line["node"], Counter({**parse_resources(line["requests"]), "pods": 1}))]
            free[line["node"]].subtract(taken[key][0][1])
        elif answers[line["id"]]["ok"]:
            pod_set = line["pod_sets"][0]
            placed = domains(answers[line["id"]])
            assert sum(placed.values()) == pod_set["count"]
            for name, count in placed.items():
                amounts = Counter({r: amount * count for r, amount in {**pod_set["single_pod_requests"], "pods": 1}.items()})
                free[name].subtract(amounts)
                assert all(free[name][resource] >= 0 for resource in amounts), (line["id"], name)
                assert nodes[name].get("ready", True)
                assert not nodes[name].get("unschedulable")
                assert not nodes[name].get("taints") or pod_set.get("tolerations")
                taken.setdefault(key, []).append((name, amounts))


def test_a_life_that_ends_leaves_nothing_in_use() -> None:
    lines = list(build_stream(NODES, REQUESTS, 3))
    gone = {line["name"] for line in lines[1:] if line.get("phase") == "Succeeded"}
    ends = [{"op": "release", "id": line["id"]} for line in lines[1:] if line["op"] == "place"]
    ends += [
        {"op": "pod", "name": line["name"], "phase": "Succeeded"}
        for line in lines[1:]
        if line.get("phase") == "Running" and line["name"] not in gone
    ]
    runner, _ = live(lines)
    assert runner.life.state.ledger.usage
    assert runner.life.state.ledger.find_drift() == {}
    list(runner.run(ends))
    assert runner.life.state.ledger.usage == {}
    assert (runner.life.capacity.free == runner.life.capacity.allocatable).all()


def test_usage_counts_until_it_is_released() -> None:
    asked = place("second", 2, 8, {"required": RACK})
    _, answers = live([rack_of(8), place("first", 1, 8, {"unconstrained": True}), asked])
    assert not answers["second"]["ok"]
    message = answers["second"]["pod_sets"][0]["failure"]["message"]
    assert "only 1 out of 2" in message
    released = [place("first", 1, 8, {"unconstrained": True}), {"op": "release", "id": "first"}, asked]
    _, answers = live([rack_of(8), *released])
    assert domains(answers["second"]) == {"n0": 1, "n1": 1}


@pytest.mark.parametrize(
    "event",
    [
        {"op": "node", "name": "n0", "ready": False},
        {"op": "node", "name": "n0", "unschedulable": True},
        {"op": "node", "name": "n0", "taints": [{"key": "k", "effect": "NoSchedule"}]},
        {"op": "pod", "name": "p", "node": "n0", "phase": "Running", "requests": {GPU: "1"}},
    ],
)
def test_events_count_and_can_be_undone(event: dict[str, Any]) -> None:
    back = {"node": {"op": "node", "name": "n0", "ready": True, "unschedulable": False, "taints": []}}
    back["pod"] = {"op": "pod", "name": "p", "phase": "Succeeded"}
    asked = [place(name, 2, 8, {"required": RACK}) for name in ("before", "after")]
    _, answers = live([rack_of(8), event, asked[0], back[event["op"]], asked[1]])
    assert [answers[name]["ok"] for name in ("before", "after")] == [False, True]


def test_stream_release_of_a_refused_workload_changes_nothing() -> None:
    refused, release = place("big", 3, 8, {"required": RACK}), {"op": "release", "id": "big"}
    runner, answers = live([rack_of(8), refused, release, place("small", 2, 8, {"required": RACK})])
    assert [answer["ok"] for answer in answers.values()] == [False, True]
    assert stream.summarize(runner)["events"] == 0


def test_figures_and_answers_of_a_stream_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, answers = tmp_path / "stream.jsonl", tmp_path / "answers.jsonl"
    source.write_text("\n".join(json.dumps(line) for line in build_stream(NODES, 20, 4)))
    assert stream.main([str(source), "--answers", str(answers), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["requests"] == 20 == figures["fit"] + figures["not_fit"]
    assert {"mean_ms", "p50_ms", "p99_ms", "event_us", "rss_mb"} <= figures.keys()
    assert [json.loads(line)["id"] for line in answers.read_text().splitlines()] == [f"job-{i}" for i in range(20)]

"""Files of tests are given to processes so that each of them is played once, and some processes start no control plane."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import workers

FAST, ON_CLUSTER = [f"tests/fast_{i}.py" for i in range(5)], [f"tests/scene_{i}.py" for i in range(5)]


class Node:
    """A process, as the scheduler sees it: it plays what it is sent until it is told to end."""

    def __init__(self, number: int) -> None:
        self.gateway, self.workerinput = SimpleNamespace(id=f"gw{number}"), {"testrunuid": "run"}
        self.shutting_down, self.sent = False, list[int]()

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def deal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, files: list[str]) -> dict[str, list[str]]:
    """Which files each of some processes played; all play equally fast."""
    monkeypatch.setattr(workers, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("xdist.scheduler.loadscope.parse_tx_spec_config", lambda config: ["popen"] * count)
    config: Any = SimpleNamespace(option=SimpleNamespace(loadscopereorder=False), workerinput={"workerid": "gw0", "testrunuid": "run"})
    workers.write_files(config, set(ON_CLUSTER))
    scheduler = workers.Files(config)
    nodes, tests = [Node(number) for number in range(count)], [f"{file}::test_{i}" for file in files for i in range(3)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    assert list(tmp_path.iterdir()) == []
    done = dict.fromkeys((node.gateway.id for node in nodes), 0)
    while any(len(node.sent) > done[node.gateway.id] for node in nodes):
        for node in nodes:
            if len(node.sent) > done[node.gateway.id]:
                scheduler.mark_test_complete(node, node.sent[done[node.gateway.id]])
                done[node.gateway.id] += 1
    assert all(node.shutting_down for node in nodes)
    assert scheduler.tests_finished
    played = {node.gateway.id: [tests[index] for index in node.sent] for node in nodes}
    assert sorted(test for each in played.values() for test in each) == sorted(tests), "each test is played once"
    return {worker: list(dict.fromkeys(test.split("::")[0] for test in each)) for worker, each in played.items()}


def test_every_third_process_starts_no_control_plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    played = deal(tmp_path, monkeypatch, 3, FAST + ON_CLUSTER)
    assert set(played["gw2"]) <= set(FAST)
    assert {file for worker in ("gw0", "gw1") for file in played[worker][:2]} <= set(ON_CLUSTER), "others begin with what needs one"


@pytest.mark.parametrize("files", [FAST, ON_CLUSTER])
@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_all_files_are_played_where_all_are_of_one_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], count: int):
    played = deal(tmp_path, monkeypatch, count, files)
    assert sum(map(len, played.values())) == len(files)


def test_tests_of_a_file_that_is_played_apart_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "APART", ("tests/fast_0.py",))
    played = deal(tmp_path, monkeypatch, 2, FAST[:1])
    assert played == {"gw0": FAST[:1], "gw1": FAST[:1]}


def test_two_processes_share_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    played = deal(tmp_path, monkeypatch, 2, FAST + ON_CLUSTER)
    assert all(set(ON_CLUSTER) & set(files) and set(FAST) & set(files) for files in played.values())


def test_files_named_as_long_exist():
    assert [name for name in (*workers.LONG, *workers.APART) if not Path(__file__).parents[1].joinpath(name).exists()] == []

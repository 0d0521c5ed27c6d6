"""The small parts of the e2e harness, without a cluster."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.api import ApiError, wait_for
from e2e.guard import watch_over
from e2e.nodes import HOSTNAME_LABEL, NodePool, build_node, build_nodes, is_schedulable
from e2e.process import Process, StartFailed, find_free_ports, is_alive
from e2e.progress import CommandFailed, Progress, run_with_progress
from e2e.standing import STATE_FILE, Standing, find_standing, main, stop_standing


def test_a_pool_is_blocks_of_racks_of_nodes_with_a_label_per_level():
    pool = NodePool(blocks=2, racks=2, nodes=1, prefix="p-", labels={"zone": "z"}, taints=[{"key": "k", "effect": "NoSchedule"}])
    nodes = build_nodes(pool)
    assert [node["metadata"]["name"] for node in nodes] == ["p-b1-r1-n1", "p-b1-r2-n1", "p-b2-r1-n1", "p-b2-r2-n1"]
    assert nodes == build_nodes(pool)
    last = nodes[-1]
    assert [last["metadata"]["labels"][level] for level in pool.levels] == ["p-b2", "p-b2-r2", "p-b2-r2-n1"]
    assert last["metadata"]["labels"]["zone"] == "z"
    assert last["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]
    assert last["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_one_more_node_can_be_described_later():
    pool = NodePool(blocks=1, racks=1, nodes=1, block_label="a/block", rack_label="a/rack")
    node = build_node(pool, 1, 1, 2)
    assert node["metadata"]["labels"] | {} == {"a/block": "b1", "a/rack": "b1-r1", HOSTNAME_LABEL: "b1-r1-n2", "type": "kwok"}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "spec": {"taints": [{"key": "mine"}]}}, True),
        (
            {
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
                "spec": {"taints": [{"key": "node.kubernetes.io/not-ready"}]},
            },
            False,
        ),
    ],
)
def test_a_node_takes_pods_when_it_is_ready_and_its_first_taint_is_gone(node, expected):
    assert is_schedulable(node) is expected


def test_process_guard_lists_remaining_processes_and_folders_of_its_owner():
    assert watch_over(io.StringIO("+1\n+2\n=/a folder\n-1\n+3\n")) == ({2, 3}, {"/a folder"})


def test_free_ports_are_distinct():
    assert len(set(find_free_ports(50))) == 50


def test_free_ports_of_one_process_are_given_to_no_other_until_it_ends(monkeypatch: pytest.MonkeyPatch):
    """A part that was started anew after two minutes found its port in use: another cluster had been given it meanwhile."""
    among = range(29_000, 29_100)
    monkeypatch.setattr("e2e.process.PORTS", among)
    program = f"import sys; from e2e import process as p; p.PORTS = {among}; print(*p.find_free_ports(60), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        others = {int(port) for port in other.stdout.readline().split()}
        assert len(others) == 60
        mine = set(find_free_ports(20))
        assert not others & mine
        other.stdin.close()
    more = set(find_free_ports(50))  # of which at most 20 were nobody's
    assert len(others & more) >= 30
    assert not mine & more


def test_a_process_that_ends_while_starting_is_reported_with_its_log(tmp_path):
    process = Process("part", [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], tmp_path / "log", guard=None)
    with pytest.raises(StartFailed, match=r"(?s)part ended with code 3 while starting.*the reason"):
        process.wait_healthy("http://127.0.0.1:1/")
    process.stop(grace_s=0)


def test_a_process_that_never_gets_healthy_is_reported_and_can_be_stopped(tmp_path):
    process = Process("part", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log", guard=None)
    with pytest.raises(StartFailed, match="part was not healthy within 0 s"):
        process.wait_healthy("http://127.0.0.1:1/", timeout_s=0.2)
    assert is_alive(process.pid, "time.sleep")
    process.stop(grace_s=5)
    assert not process.is_running
    assert not is_alive(process.pid, "time.sleep")


def test_a_process_deaf_to_polite_words_is_killed(tmp_path):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    process = Process("part", [sys.executable, "-c", code], tmp_path / "log", guard=None)
    wait_for("it to be deaf", lambda: "deaf" in process.log.read_text())
    process.stop(grace_s=0.2)
    assert not process.is_running


def test_an_id_that_belongs_to_another_process_by_now_is_not_taken_for_ours():
    assert not is_alive(1, "no such folder")
    assert not is_alive(2**22 + 1, "")


def test_wait_timeout_error_names_its_purpose_and_the_last_answer():
    with pytest.raises(TimeoutError, match=r"waited 0 s for the sun; the last answer was \[\]"):
        wait_for("the sun", list, timeout_s=0.0)
    answers = iter([None, 0, "yes"])
    assert wait_for("an answer", lambda: next(answers), poll_s=0.0) == "yes"


def test_an_api_error_carries_the_causes():
    error = ApiError(422, "bad", {"details": {"causes": [{"field": "spec.a"}]}})
    assert str(error) == "422: bad"
    assert error.causes == [{"field": "spec.a"}]
    assert ApiError(500, "bad", {}).causes == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_rewrites_one_line_on_a_terminal_and_is_sparse_in_a_log():
    terminal, log = Terminal(), io.StringIO()
    for out in (terminal, log):
        progress = Progress("building", out)
        progress.update("one")
        progress.update("two")
        progress.finish("done")
    assert terminal.getvalue() == "\r\x1b[K==> building: 0 s one\r\x1b[K==> building: done after 0 s\n"
    assert log.getvalue() == "==> building: 0 s one\n==> building: done after 0 s\n"


def test_failed_command_error_contains_its_last_lines(capsys):
    with pytest.raises(CommandFailed, match=r"(?s)trying failed with code 4.*line 29"):
        run_with_progress("trying", [sys.executable, "-c", "print('\\n'.join(f'line {i}' for i in range(30))); raise SystemExit(4)"])
    assert "trying: failed" in capsys.readouterr().err


def test_a_standing_cluster_that_is_gone_is_forgotten(tmp_path):
    state = tmp_path / "state.json"
    assert find_standing(state) is None
    state.write_text("not JSON")
    assert find_standing(state) is None
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    gone = Standing(str(tmp_path / "root"), "k", "k", "s", {"kube-apiserver": ended.pid})
    state.write_text(json.dumps(gone.__dict__))
    assert find_standing(state) is None
    assert not stop_standing(state)
    assert not state.exists()


def test_status_of_a_standing_cluster_with_a_lost_part_names_the_part_and_the_remedy(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TOPOGATE_CACHE", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    command = [sys.executable, "-c", "input(print('up', flush=True))", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alive:
        assert alive.stdout is not None
        alive.stdout.readline()  # until then its arguments may not be its own yet
        standing = Standing(str(tmp_path), "k", "k", "s", {"kube-apiserver": alive.pid, "reconciler": ended.pid})
        (tmp_path / "topogate").mkdir()
        (tmp_path / "topogate" / STATE_FILE).write_text(json.dumps(standing.__dict__))
        assert main(["status"]) == 1
        alive.communicate(b"\n")
    assert "not all of it: reconciler ended. Start anew: make cluster-stop" in capsys.readouterr().err


def test_a_standing_cluster_stays_is_found_again_and_is_stopped(cluster, tmp_path):
    environ = {
        "TOPOGATE_CACHE": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "KUBEBUILDER_ASSETS": str(link_all(cluster.binaries, tmp_path / "bin")),
    }

    def say(*arguments: str) -> str:
        command = [sys.executable, "-m", "e2e.cluster", *arguments]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, check=True, timeout=90, cwd=Path(__file__).parents[2]
        ).stdout

    first = say()
    assert say() == first == say("status")
    kubeconfig = first.splitlines()[0].removeprefix("export KUBECONFIG=")
    nodes = cluster.kubectl("get", "nodes", "-o", "name", kubeconfig=Path(kubeconfig)).split()
    assert len(nodes) == 48
    assert "Topology" in cluster.kubectl("api-resources", "--api-group=kueue.x-k8s.io", kubeconfig=Path(kubeconfig))
    assert say("stop") == "stopped\n"
    assert not Path(kubeconfig).exists()
    assert say("stop") == "no cluster was running\n"


def link_all(binaries: dict[str, Path], folder: Path) -> Path:
    folder.mkdir()
    for name, path in binaries.items():
        (folder / name).symlink_to(path)
    return folder


@pytest.mark.parametrize(("command", "status", "reason"), [("fail", "False", "E2EFailed"), ("repair", "True", "E2EReady")])
def test_node_of_a_standing_cluster_fails_or_is_repaired_by_a_patch_that_kwok_leaves_alone(
    tmp_path, monkeypatch: pytest.MonkeyPatch, command: str, status: str, reason: str
):
    """A patch of the status with another reason was undone at once."""
    said = tmp_path / "said"
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {said}\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("TOPOGATE_CACHE", str(tmp_path))
    running = [sys.executable, "-c", "input(print('up', flush=True))", str(tmp_path)]
    with subprocess.Popen(running, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alive:
        assert alive.stdout is not None
        alive.stdout.readline()  # until then its arguments may not be its own yet
        standing = Standing(str(tmp_path), "config", str(kubectl), "s", {"kube-apiserver": alive.pid})
        (tmp_path / "topogate").mkdir()
        (tmp_path / "topogate" / STATE_FILE).write_text(json.dumps(standing.__dict__))
        assert main([command, "b1-r1-n1"]) == 0
        with pytest.raises(SystemExit):
            main([command])
        alive.communicate(b"\n")
    words = said.read_text().splitlines()
    assert words[:-1] == ["--kubeconfig", "config", "patch", "node", "b1-r1-n1", "--subresource=status", "-p"]
    (condition,) = json.loads(words[-1])["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == (status, reason)
    assert reason in (Path(__file__).parents[2] / "e2e" / "stages" / "node.yaml").read_text()

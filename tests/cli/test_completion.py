"""Completion of names from the cluster, as bash and kubectl ask for it: each question is a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli import cluster_names
from core.plan.steps import api_resources as r
from tests.cli.commands import ROOT, Commands, build_job, build_nodes, build_queues
from tests.cli.lives import build_queued_job, decide_documents
from tests.cli.test_api_answers import Answer, build_status, complete_all, get_plural, serve_answers, write_kubeconfig

FOR_KUBECTL = "import sys; from cli.program import complete_for_kubectl; sys.exit(complete_for_kubectl())"
MOST_S = 15.0  # a loaded machine imports slowly; the process itself gives up after 1.6 s, and what it waits for needs a minute


def complete(config: Path, *words: str) -> tuple[list[str], str]:
    """What bash is offered for the last of the words, and what is on stderr."""
    line = " ".join(("topogate", *words))
    environment = {"_TOPOGATE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words)), "KUBECONFIG": str(config)}
    command = [sys.executable, "-m", "cli"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    return done.stdout.split(), done.stderr


def complete_in_kubectl(config: Path, *words: str) -> list[str]:
    command = [sys.executable, "-c", FOR_KUBECTL, *words]
    environment = {**os.environ, "KUBECONFIG": str(config)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def serve() -> Callable[[str], Answer]:
    namespace = {"kind": "Namespace", "metadata": {"name": "default"}}
    documents = [
        complete_all(d) for d in decide_documents([*build_nodes(1, 1, 2), *build_queues(), *build_queued_job(build_job("train", 1))])
    ]

    documents.append(complete_all(namespace))

    def answer(path: str) -> Answer:
        plural = path.partition("?")[0].rpartition("/")[2]
        return 200, {"items": [d for d in documents if get_plural(d) == plural], "metadata": {"resourceVersion": "1"}}

    return answer


@pytest.mark.parametrize(
    ("ask", "given", "incomplete", "expected"),
    [
        (cluster_names.complete_explained, ["job"], "tr", ["train"]),
        (cluster_names.complete_explained, ["jobs"], "x", []),
        (cluster_names.complete_explained, ["node"], "n", ["n-0-0-0", "n-0-0-1"]),
        (cluster_names.complete_explained, [], "cq/", ["cq/research"]),
        (cluster_names.complete_explained, [], "train", ["train", "trainjob"]),
        (cluster_names.complete_explained, ["job", "train"], "", []),
        (cluster_names.complete_explained, ["nothing"], "", []),
        (cluster_names.complete_queue, [], "m", ["main"]),
        (cluster_names.complete_queue, [], "res", ["research"]),
        (cluster_names.complete_queue, [], "lq/", ["lq/main"]),
        (cluster_names.complete_topology, [], "d", ["default"]),
        (cluster_names.complete_namespace, [], "", ["default"]),
    ],
)
def test_names_are_those_of_the_cluster(
    topogate: Commands, monkeypatch: pytest.MonkeyPatch, ask: Any, given: list[str], incomplete: str, expected: list[str]
):
    monkeypatch.setattr(cluster_names, "_LISTED_S", 30.0)
    with serve_answers(serve()) as url:
        options = {"kubeconfig": str(write_kubeconfig(topogate, url)), "context": None, "namespace": None, "what": tuple(given)}
        assert ask(SimpleNamespace(params=options), incomplete) == expected


def test_kinds_are_completed_without_a_cluster(tmp_path: Path):
    assert complete(tmp_path / "none", "explain", "clus") == (["clusterqueue"], "")


def test_kubectl_gets_completions_and_whether_files_may_follow(tmp_path: Path):
    assert complete_in_kubectl(tmp_path / "none", "explain", "job", "tr") == [":4"]
    assert complete_in_kubectl(tmp_path / "none", "expl") == ["explain", ":4"]
    assert complete_in_kubectl(tmp_path / "none", "plan", "-f", "") == [":0"]


@pytest.mark.parametrize("broken", ["none", "closed", "refused"])
def test_completion_without_an_answer_is_silent(topogate: Commands, tmp_path: Path, broken: str):
    with serve_answers(lambda path: build_status(403, "Forbidden", "no")) as url:
        address = {"closed": "http://127.0.0.1:9", "refused": url}.get(broken)
        config = write_kubeconfig(topogate, address) if address is not None else tmp_path / "none"
        assert complete(config, "explain", "job", "tr") == ([], "")


@pytest.mark.slow
def test_completion_of_a_server_that_does_not_answer_ends_in_time(topogate: Commands):
    """The socket takes the connection, and nothing comes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = write_kubeconfig(topogate, f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        assert complete(config, "explain", "job", "tr") == ([], "")
        assert time.monotonic() - began < MOST_S


@pytest.mark.slow
def test_completion_with_a_plugin_for_credentials_that_hangs_ends_in_time(topogate: Commands, tmp_path: Path):
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep", "args": ["60"], "interactiveMode": "Never"}
    config = write_kubeconfig(topogate, "http://127.0.0.1:9")
    config.write_text(config.read_text().replace("user: {}", f"user: {{exec: {plugin!r}}}".replace("'", '"')))
    began = time.monotonic()
    assert complete(config, "explain", "job", "tr") == ([], "")
    assert time.monotonic() - began < MOST_S


def test_bash_offers_files_only_for_options_with_a_file(topogate: Commands):
    script = topogate.run("completion", "bash").out
    assert "complete -F _topogate_completion topogate" in script
    (case,) = [line for line in script.splitlines() if "compopt -o default" in line]
    assert all(option in case for option in ("--nodes", "--filename", "-f", "--kubeconfig", "--config", "--svg"))
    assert "--namespace" not in case


def test_every_kind_that_is_explained_can_be_completed():
    called = cluster_names._index_kinds()
    assert {"job", "jobs", "job.batch", "po", "deploy", "cq", "no", "cj", "wl", "podgroup"} <= called.keys()
    assert called["wl"] == [r.WORKLOADS]

"""What an API server refuses, or lacks, is one line and exit code 1: never a traceback."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import EXAMPLES, Commands, job

Answer = tuple[int, dict[str, Any]]
EMPTY: Answer = (200, {"items": [], "metadata": {"resourceVersion": "1"}})


def status(code: int, reason: str, message: str) -> Answer:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}


@contextmanager
def answering(answer: Callable[[str], Answer]) -> Iterator[str]:
    """An HTTP server that answers each path so, for as long as it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, value = answer(self.path)
            body = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kubeconfig(topogate: Commands, url: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
    }
    return topogate.write("config", config)


WORDS: list[list[str]] = [["plan"], ["explain", "job", "a"], ["topology"]]
NO_RIGHT = 'nodes is forbidden: User "someone" cannot list resource "nodes" in API group "" at the cluster scope'


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.parametrize(
    ("part", "answer", "says"),
    [
        (
            "kueue.x-k8s.io",
            status(404, "NotFound", "the server could not find the requested resource"),
            "cannot list workloadpriorityclasses.kueue.x-k8s.io: "
            "the API server has no workloadpriorityclasses.kueue.x-k8s.io in version v1beta2; "
            "install topogate's CustomResourceDefinitions (charts/topogate) first",
        ),
        ("/nodes", status(403, "Forbidden", NO_RIGHT), f"cannot list nodes: no permission: {NO_RIGHT}"),
        (
            "",
            status(401, "Unauthorized", "Unauthorized"),
            "cannot list customresourcedefinitions.apiextensions.k8s.io: "
            "the API server does not accept the credentials of the kubeconfig: Unauthorized",
        ),
        ("/pods", status(500, "InternalError", "etcd\nis away"), "cannot list pods: etcd is away"),
    ],
)
def test_an_answer_that_is_no_list_is_told_in_a_line(topogate: Commands, words: list[str], part: str, answer: Answer, says: str):
    files: list[str | Path] = ["-f", topogate.write("job.yaml", job("a", 1))] if words == ["plan"] else []
    with answering(lambda path: answer if part in path else EMPTY) as url:
        ran = topogate.run(*words, *files, "--kubeconfig", kubeconfig(topogate, url))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"topogate: {says}\n"


def test_suggestions_need_nothing_but_the_nodes(topogate: Commands):
    asked: list[str] = []

    def answer(path: str) -> Answer:
        asked.append(path.partition("?")[0])
        return EMPTY

    with answering(answer) as url:
        ran = topogate.run("topology", "suggest", "--kubeconfig", kubeconfig(topogate, url))
    assert (ran.code, ran.err) == (2, "topogate: there is no node\n")
    assert asked == ["/api/v1/nodes"]


def test_what_a_job_refers_to_may_stand_in_the_same_file(topogate: Commands):
    """As `kubectl apply -f` would make both."""
    with answering(lambda _: EMPTY) as url:
        ran = topogate.run("plan", "-f", EXAMPLES / "kinds" / "trainjob.yaml", "--kubeconfig", kubeconfig(topogate, url))
    assert (ran.code, ran.err) == (3, "")
    assert ran.out.startswith("TrainJob default/fine-tune: would wait: ")
    assert "TrainingRuntime" not in ran.out, "it does exist"
    assert "LocalQueue" in ran.out


def test_job_without_workload_is_reported_with_its_last_warning(topogate: Commands):
    """The command asked whether the reconciler runs, although an event of the job had the reason."""
    made = job("a", 1)
    made["metadata"] |= {"namespace": "default", "uid": "u", "resourceVersion": "1"}
    warning = {"type": "Warning", "reason": "WorkloadRefused", "message": 'WorkloadPriorityClass "x" does not exist'}
    event = {**warning, "metadata": {"name": "e", "namespace": "default", "uid": "e", "resourceVersion": "1"}}

    def answer(path: str) -> Answer:
        found = [made] if path.startswith("/apis/batch/v1/jobs") else [event] if "/events" in path else []
        return 200, {"items": found, "metadata": {"resourceVersion": "1"}}

    with answering(answer) as url:
        ran = topogate.run("explain", "job", "a", "--kubeconfig", str(kubeconfig(topogate, url)))
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert 'its last warning: WorkloadRefused: WorkloadPriorityClass "x" does not exist' in ran.err

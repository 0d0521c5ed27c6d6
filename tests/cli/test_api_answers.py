"""What an API server refuses, or lacks, is one line and exit code 1: never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.answers import serve_bodies
from tests.cli.commands import EXAMPLES, RACK, Commands, build_job, build_nodes, build_queues
from tests.cli.lives import build_queued_job, decide_documents

Answer = tuple[int, dict[str, Any]]
EMPTY: Answer = (200, {"items": [], "metadata": {"resourceVersion": "1"}})


def build_status(code: int, reason: str, message: str) -> Answer:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}


@contextmanager
def serve_answers(answer: Callable[[str], Answer]) -> Iterator[str]:
    """An HTTP server that answers each path so, for as long as it is asked."""

    def encode(path: str) -> tuple[int, bytes]:
        code, value = answer(path)
        return code, json.dumps(value).encode()

    with serve_bodies(encode) as url:
        yield url


def write_kubeconfig(topogate: Commands, url: str) -> Path:
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


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.parametrize(
    ("part", "answer", "named"),
    [
        (
            "kueue.x-k8s.io",
            build_status(404, "NotFound", "the server could not find it"),
            "cannot list workloadpriorityclasses.kueue.x-k8s.io: ",
        ),
        ("/nodes", build_status(403, "Forbidden", "may not"), "cannot list nodes: "),
        ("", build_status(401, "Unauthorized", "Unauthorized"), "cannot list customresourcedefinitions.apiextensions.k8s.io: "),
        ("/pods", build_status(500, "InternalError", "etcd\nis away"), "cannot list pods: etcd is away\n"),
    ],
)
def test_api_answer_that_is_no_list_is_reported_in_one_line(topogate: Commands, words: list[str], part: str, answer: Answer, named: str):
    if words[0] == "explain" and answer[0] == 403:
        named = "Job a "  # it needs no more than rights in one namespace
    files: list[str | Path] = ["-f", topogate.write("job.yaml", build_job("a", 1))] if words == ["plan"] else []
    with serve_answers(lambda path: answer if part in path else EMPTY) as url:
        ran = topogate.run(*words, *files, "--kubeconfig", write_kubeconfig(topogate, url))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"topogate: {named}")
    assert ran.err.count("\n") == 1


def test_suggestions_need_nothing_but_the_nodes(topogate: Commands):
    asked: list[str] = []

    def answer(path: str) -> Answer:
        asked.append(path.partition("?")[0])
        return EMPTY

    with serve_answers(answer) as url:
        ran = topogate.run("topology", "suggest", "--kubeconfig", write_kubeconfig(topogate, url))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert asked == ["/api/v1/nodes"]


def test_plan_of_a_train_job_finds_its_runtime_in_the_same_file(topogate: Commands):
    """As `kubectl apply -f` would make both."""
    with serve_answers(lambda _: EMPTY) as url:
        ran = topogate.run("plan", "-f", EXAMPLES / "kinds" / "trainjob.yaml", "--kubeconfig", write_kubeconfig(topogate, url))
    assert (ran.code, ran.err) == (3, "")
    assert ran.out.startswith("TrainJob default/fine-tune: would wait: ")
    assert "TrainingRuntime" not in ran.out, "it does exist"
    assert "LocalQueue" in ran.out


def test_job_without_workload_is_reported_with_its_last_warning(topogate: Commands):
    """The command asked whether the reconciler runs, although an event of the job had the reason."""
    made = build_job("a", 1)
    made["metadata"] |= {"namespace": "default", "uid": "u", "resourceVersion": "1"}
    warning = {"type": "Warning", "reason": "WorkloadRefused", "message": 'WorkloadPriorityClass "x" does not exist'}
    event = {**warning, "metadata": {"name": "e", "namespace": "default", "uid": "e", "resourceVersion": "1"}}

    def answer(path: str) -> Answer:
        found = [made] if path.startswith("/apis/batch/v1/jobs") else [event] if "/events" in path else []
        return 200, {"items": found, "metadata": {"resourceVersion": "1"}}

    with serve_answers(answer) as url:
        ran = topogate.run("explain", "job", "a", "--kubeconfig", str(write_kubeconfig(topogate, url)))
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert 'its last warning: WorkloadRefused: WorkloadPriorityClass "x" does not exist' in ran.err


def build_server_answers(documents: list[Any]) -> Callable[[str], Answer]:
    """An API server that lists these documents, and events by whether they are of the type or the object that is selected."""

    def answer(path: str) -> Answer:
        address, _, query = path.partition("?")
        asked = parse_qs(query).get("fieldSelector", [""])[0]
        found = [document for document in documents if get_plural(document) == address.rpartition("/")[2]]
        if asked == "type=Warning":
            found = [event for event in found if event["type"] == "Warning"]
        elif asked:
            found = [event for event in found if asked == f"involvedObject.uid={event['involvedObject']['uid']}"]
        return 200, {"items": found, "metadata": {"resourceVersion": "1"}}

    return answer


def complete_all(document: Any) -> Any:
    """With what an API server has added."""
    metadata = {"uid": document["metadata"]["name"], "resourceVersion": "1", **document["metadata"]}
    metadata |= {"namespace": "default"} if document["kind"] in ("Job", "LocalQueue") else {}
    return {**document, "metadata": metadata}


def get_plural(document: Any) -> str:
    kind = document["kind"].lower()
    return f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"


def build_warning(kind: str, uid: str, reason: str, message: str, second: int, **more: str) -> Any:
    metadata = {"name": f"{uid}-{second}", "namespace": "default", "uid": f"{uid}-{second}", "resourceVersion": "1"}
    about = {"kind": kind, "name": uid, "uid": uid}
    time = f"2026-02-03T04:06:{second:02}Z"
    return {"kind": "Event", "metadata": metadata, "involvedObject": about, "type": "Warning", "lastTimestamp": time} | {
        "reason": reason,
        "message": message,
        **more,
    }


def test_explain_of_missing_pods_prints_the_last_warning_since_the_admission(topogate: Commands):
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 2, required=RACK))])
    namespace = {"kind": "Namespace", "metadata": {"name": "default", "uid": "default", "resourceVersion": "1"}}
    documents = [complete_all(document) for document in [*documents, namespace]]
    made = next(document for document in documents if document["kind"] == "Job")
    uid = made["metadata"]["uid"]
    events = [
        build_warning("Job", uid, "FailedCreate", "pods are forbidden:\nexceeded quota", 1),
        build_warning("Job", uid, "SuccessfulCreate", "Created pod", 3, type="Normal"),
        build_warning("Pod", "another", "PodStaysGated", "of another job", 5),
    ]
    old = build_warning("Job", uid, "TopologyPlacementFailed", "it waited then", 0, lastTimestamp="2026-01-01T00:00:00Z")
    with serve_answers(build_server_answers([*documents, old, *events])) as url:
        config = str(write_kubeconfig(topogate, url))
        ran = topogate.run("explain", "job", "a", "--kubeconfig", config)
        told = topogate.run("explain", "job", "a", "--kubeconfig", config, "-o", "json").data
    assert f"last warning about its pods: FailedCreate of Job {uid}: pods are forbidden: exceeded quota\n" in ran.out
    assert told["podWarning"] == {"kind": "Job", "name": uid, "reason": "FailedCreate", "message": "pods are forbidden: exceeded quota"}
    with serve_answers(build_server_answers([*documents, old])) as url:
        assert "last warning" not in topogate.run("explain", "job", "a", "--kubeconfig", str(write_kubeconfig(topogate, url))).out
    rest = build_server_answers(documents)
    with serve_answers(lambda path: build_status(403, "Forbidden", "no") if "/events" in path else rest(path)) as url:
        ran = topogate.run("explain", "job", "a", "--kubeconfig", str(write_kubeconfig(topogate, url)))
    assert "you may not list events; " in ran.out
    assert "kubectl get events -n default --field-selector type=Warning" in ran.out

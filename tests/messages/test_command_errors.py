"""The catalogue of sentences, commands that fail: mistakes of command lines and files, what is not there, and what may not be read."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from core.jobs.contract import Defaults
from core.jobs.kinds.job import Job
from core.names import MIN_PARALLELISM, POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT, PODGROUP_TOPOLOGY, QUEUE_NAME_LABEL
from tests.cli import test_groups as of_groups
from tests.cli.commands import RACK, Commands, Obj, Ran, build_job, build_node, build_nodes, build_queues
from tests.cli.lives import build_queued_job
from tests.cli.test_api_answers import EMPTY, Answer, build_status, serve_answers, write_kubeconfig
from tests.cli.test_explain import replace_owner
from tests.cli.test_queue import build_cluster

Arguments = tuple[str | list[Obj], ...]
Cases = dict[str, tuple[Callable[[], Arguments], int, str]]


def run(topogate: Commands, *arguments: str | list[Obj]) -> Ran:
    """Lists of objects are written into files."""
    files = (each if isinstance(each, str) else topogate.write(f"{number}.yaml", *each) for number, each in enumerate(arguments))
    return topogate.run(*files)


def give(*arguments: str | list[Obj]) -> Callable[[], Arguments]:
    return lambda: arguments


# --- the command line -------------------------------------------------------------------------------------

COMMAND_LINE: Cases = {
    "unknown word": (give("plann"), 2, "?"),
    "missing option": (give("plan"), 2, "?"),
    "unknown option": (give("plan", "-f", "x", "--speed", "9"), 2, "?"),
    "missing file": (give("plan", "-f", "there-is-no-such-file"), 2, "?"),
    "unknown form": (give("plan", "-f", "x", "-o", "xml"), 2, "?"),
    "unknown thing to pause": (give("pause", "admisions"), 2, "?"),
    "reason without a pause": (give("pause", "status", "--reason", "x"), 2, "?"),
    "files and a cluster": (give("plan", "-f", "x", "--nodes", "y", "--context", "z"), 2, "?"),
    "watched files": (give("queue", "--watch", "--nodes", "y"), 2, "?"),
    "unknown profile": (give("plan", "-f", "x", "--placement-profile", "tidy"), 2, "?"),
    "unknown gate": (give("plan", "-f", "x", "--feature-gates", "Nonsense=true"), 2, "?"),
    "missing kubeconfig": (give("plan", "-f", [build_job("a", 1)], "--kubeconfig", "none"), 2, "?"),
    "no words to explain": (give("explain", "job", "a", "b"), 2, "?"),
    "no kind of queue": (give("queue", "job/main", "--nodes", build_nodes()), 2, "?"),
}

# --- objects that are not there ---------------------------------------------------------------------------


def explain(*words: str) -> Callable[[], Arguments]:
    """Of a cluster with a job `a` in a queue and a job `idle` in none."""
    jobs = [*build_queued_job(build_job("a", 1)), build_job("idle", 1, queue=None)]
    return lambda: ("explain", *words, "--nodes", [*build_nodes(), *build_queues(), *jobs])


def explain_queued(*words: str) -> Callable[[], Arguments]:
    return lambda: ("explain", *words, "--nodes", build_cluster())


def explain_name_of_two() -> Arguments:
    return "explain", "main", "--nodes", [*build_nodes(), *build_queues(), *build_queued_job(build_job("main", 1))]


def build_leader_workers() -> list[Obj]:
    _, workload = build_queued_job(build_job("a", 1))
    parent: Any = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "lws"}}
    parent["spec"] = {"replicas": 2, "leaderWorkerTemplate": {"size": 1, "workerTemplate": {"spec": {"containers": []}}}}
    replicas = [replace_owner(workload, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", index) for index in range(2)]
    return [*build_nodes(), *build_queues(), parent, *replicas]


def make_job(name: str, **labels: str) -> Obj:
    """As the webhook leaves it."""
    made = Job().default(build_job(name, 1), Defaults(None, None))
    return {**made, "metadata": {**made["metadata"], "labels": {**made["metadata"]["labels"], **labels}}}


def build_grouped_job(*groups: str) -> list[Obj]:
    """A job that asks for a PodGroup, and pods of it that name these."""
    made = build_job("run", 2, queue=None)
    made["metadata"] |= {"annotations": {PODGROUP_TOPOLOGY: RACK}, "uid": "u"}
    owned = [of_groups.build_pod(f"{name}-0", name) for name in groups]
    for one in owned:
        one["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": "u", "controller": True}]
    return [*build_nodes(), made, *owned]


def name_both_queues() -> Arguments:
    documents = build_cluster()
    next(d for d in documents if d["kind"] == "LocalQueue")["metadata"]["name"] = "research"
    return "queue", "research", "--nodes", documents


def show_topology(*words: str) -> Callable[[], Arguments]:
    return lambda: ("topology", *words, "--nodes", [*build_nodes(), *build_queues()])


MISSING: Cases = {
    "job of another name": (explain("job", "b"), 1, "?"),
    "job of another namespace": (explain("job", "a", "-n", "other"), 1, "?"),
    "job in no queue": (explain("job", "idle"), 1, "?"),
    "job without a Workload": (lambda: ("explain", "job", "n", "--nodes", [*build_nodes(), *build_queues(), make_job("n")]), 1, "?"),
    "name of nothing": (explain_queued("nothing-like-it"), 1, "?"),
    "name that is near": (explain_queued("j11"), 1, "?"),
    "name of two objects": (explain_name_of_two, 2, "?"),
    "node": (explain_queued("node", "n-0-0-9"), 1, "?"),
    "ClusterQueue": (explain_queued("clusterqueue", "reserch"), 1, "?"),
    "LocalQueue": (explain_queued("localqueue", "x", "-n", "other"), 1, "?"),
    "CronJob": (explain_queued("cronjob", "x"), 1, "?"),
    "object of another kind": (lambda: ("explain", "job", "lws", "--nodes", build_leader_workers()), 1, "?"),
    "object of several Workloads": (lambda: ("explain", "leaderworkerset", "lws", "--nodes", build_leader_workers()), 1, "?"),
    "PodGroup": (explain("podgroup", "none"), 1, "?"),
    "PodGroup of a pod": (lambda: ("explain", "pod/a-0", "--nodes", [*build_nodes(), of_groups.build_pod("a-0", "a")]), 1, "?"),
    "PodGroup of a job": (lambda: ("explain", "job/run", "--nodes", build_grouped_job()), 1, "?"),
    "one PodGroup of a job": (lambda: ("explain", "job/run", "--nodes", build_grouped_job("a", "b")), 1, "?"),
    "queue": (lambda: ("queue", "reserch", "--nodes", build_cluster()), 1, "?"),
    "LocalQueue to show": (lambda: ("queue", "lq/main", "-n", "x", "--nodes", build_cluster()), 1, "?"),
    "queue of two kinds": (name_both_queues, 2, "?"),
    "Topology": (show_topology("none"), 1, "?"),
    "any Topology": (lambda: ("topology", "--nodes", build_nodes()), 1, "?"),
    "any Topology of a name": (lambda: ("topology", "x", "--nodes", build_nodes()), 1, "?"),
    "amount of a pod": (show_topology("--pod", "gpu"), 2, "?"),
    "pods of nothing": (show_topology("--pod", "cpu=0"), 2, "?"),
    "resource that is given twice": (show_topology("--pod", "cpu=4,cpu=8"), 2, "?"),
    "resource of a near name": (show_topology("--pod", "gpu=8"), 2, "?"),
    "resource that no node has": (show_topology("--pod", "example.com/license=1"), 2, "?"),
    "resource of too many pieces": (show_topology("--seats", "--resource", "memory"), 2, "?"),
    "folder of a picture": (show_topology("--svg", "/no/such/folder/x.svg"), 1, "?"),
    "node to suggest for": (
        give("topology", "suggest", "--nodes", [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}]),
        2,
        "?",
    ),
    "label to suggest by": (
        give("topology", "suggest", "--nodes", [{**build_node("n"), "metadata": {"name": "n", "labels": {"a": "b"}}}]),
        1,
        "?",
    ),
}

# --- files ------------------------------------------------------------------------------------------------


def plan(*documents: Obj) -> Callable[[], Arguments]:
    """Into a cluster without mistakes."""
    return lambda: ("plan", "-f", list(documents), "--nodes", [*build_nodes(), *build_queues()])


def describe_cluster(*documents: Obj) -> Callable[[], Arguments]:
    """A cluster with mistakes."""
    return lambda: ("plan", "-f", [build_job("a", 1)], "--nodes", [*build_nodes(), *documents])


def offer(**amounts: Any) -> Obj:
    node = build_node("n1")
    node["status"]["allocatable"] |= amounts
    return node


def change_queue(**spec: Any) -> Obj:
    queue = deepcopy(build_queues()[2])
    queue["spec"] |= spec
    return queue


def build_wrong_pod(name: str, **spec: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c"}], **spec}}


def build_grouped_pod(name: str, total: str) -> Obj:
    pod = build_wrong_pod(name)
    pod["metadata"] |= {
        "labels": {QUEUE_NAME_LABEL: "main", POD_GROUP_NAME: "pair"},
        "annotations": {POD_GROUP_TOTAL_COUNT: total},
    }
    return pod


def leave_out_queue() -> Arguments:
    return "plan", "-f", [build_job("a", 1, queue=None)], "--nodes", [*build_nodes(), *build_queues()]


FLAVOR, TOPOLOGY = deepcopy(build_queues()[1]), deepcopy(build_queues()[0])
FLAVOR["spec"]["topologyNam"] = "default"
TOPOLOGY["spec"]["levels"] = []
FILES: Cases = {
    "no node": (lambda: ("plan", "-f", [build_job("a", 1)], "--nodes", build_queues()), 2, "?"),
    "no name": (plan({**build_job("a", 1), "metadata": {"labels": {}}}), 2, "?"),
    "no queue": (leave_out_queue, 2, "?"),
    "another namespace": (lambda: (*plan(build_job("a", 1))(), "-n", "nowhere"), 2, "?"),
    "no object": (plan({"a": "b", "metadata": {}, "kind": "Job"}), 2, "?"),
    "no text": (describe_cluster(build_node("n1", {RACK: 7})), 2, "?"),  # type: ignore[dict-item]
    "no quantity": (describe_cluster(offer(cpu="lots")), 2, "?"),
    "a fraction of a device": (describe_cluster(offer(**{"example.com/gpu": "2500m"})), 2, "?"),
    "a negative amount": (describe_cluster(offer(memory=-5)), 2, "?"),
    "a fraction of a pod": (describe_cluster(offer(pods=1.5)), 2, "?"),
    "nothing to offer": (describe_cluster({**build_node("n1"), "status": {}}), 2, "?"),
    "a pod that cannot be read": (describe_cluster(build_wrong_pod("q", containers=[{"name": "c", "ports": [7]}])), 2, "?"),
    "an empty list": (describe_cluster(TOPOLOGY), 2, "?"),
    "an unknown key": (describe_cluster(FLAVOR), 2, "?"),
    "an unknown value": (describe_cluster(change_queue(queueingStrategy="Random")), 2, "?"),
    "an object twice": (describe_cluster(build_node("n2"), build_node("n2")), 2, "?"),
    "a pod group that contradicts itself": (
        plan(*(build_grouped_pod(name, total) for name, total in (("a", "2"), ("b", "3")))),
        2,
        "?",
    ),
    "a job without pods": (
        plan(
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": {"name": "none", "annotations": {PODGROUP_TOPOLOGY: "rack"}},
                "spec": {"replicatedJobs": []},
            }
        ),
        2,
        "?",
    ),
    "a prebuilt Workload": (plan(make_job("a", **{"kueue.x-k8s.io/prebuilt-workload-name": "w"})), 2, "?"),
    "a minimum without sense": (
        plan({**build_job("a", 1), "metadata": {**build_job("a", 1)["metadata"], "annotations": {MIN_PARALLELISM: "x"}}}),
        2,
        "?",
    ),
}


@pytest.mark.parametrize(
    ("build", "code", "sentence"),
    [pytest.param(*case, id=name) for cases in (COMMAND_LINE, MISSING, FILES) for name, case in cases.items()],
)
def test_command_that_fails_has_its_sentence(
    build: Callable[[], Arguments], code: int, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    ran = run(Commands(capsys, tmp_path), *build())
    assert (ran.code, ran.out, ran.err.replace(f"{tmp_path}/", "")) == (code, "", f"topogate: {sentence}\n")


# --- the API server ---------------------------------------------------------------------------------------

NO_RIGHT = 'nodes is forbidden: User "u" cannot list resource "nodes" in API group "" at the cluster scope'
ANSWERS: dict[str, tuple[tuple[str, ...], str, Answer, str]] = {
    "no definitions": (("topology",), "kueue.x-k8s.io", build_status(404, "NotFound", "not found"), "?"),
    "no right to list": (("topology",), "/nodes", build_status(403, "Forbidden", NO_RIGHT), "?"),
    "no right in the namespace": (("explain", "job", "a"), "/apis/kueue", build_status(403, "Forbidden", "no"), "?"),
    "no credentials": (("topology",), "", build_status(401, "Unauthorized", "Unauthorized"), "?"),
    "an error": (("topology",), "/pods", build_status(500, "InternalError", "etcd\nis away"), "?"),
    "no right to pause": (("pause", "status"), "/configmaps", build_status(403, "Forbidden", "you may not"), "?"),
}


@pytest.mark.parametrize(("words", "part", "answer", "sentence"), ANSWERS.values(), ids=ANSWERS)
def test_answer_of_the_api_server_has_its_sentence(
    words: tuple[str, ...], part: str, answer: Answer, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    topogate = Commands(capsys, tmp_path)
    with serve_answers(lambda path: answer if part in path else EMPTY) as url:
        ran = topogate.run(*words, "--kubeconfig", write_kubeconfig(topogate, url))
    assert (ran.code, ran.out, ran.err) == (1, "", f"topogate: {sentence}\n")

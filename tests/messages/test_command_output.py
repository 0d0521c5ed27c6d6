"""The catalogue of sentences, commands: what `plan`, `explain`, `queue`, `topology`, `pause` and their warnings print."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cli.failures import Failure
from cli.given import run as execute
from cli.level_names import NETWORKS, find_levels
from cli.stopping import list_status_lines, set_stops
from core.model.pause_state import Stop
from core.names import LEND_SPARES, MIN_PARALLELISM, QUEUE_NAME_LABEL, SPARE_NODES
from tests.builders import build_condition_json
from tests.cli import test_explain as of_explain
from tests.cli import test_explained_kinds as of_kinds
from tests.cli import test_groups as of_groups
from tests.cli import test_pause as of_pause
from tests.cli.commands import BLOCK, HOST, RACK, Commands, Obj, build_job, build_node, build_nodes, build_queues
from tests.cli.lives import build_queued_job, decide_documents
from tests.messages.test_command_errors import Arguments, run

Cases = dict[str, tuple[Callable[[], Arguments], str, str]]  # the command, how the line begins, and the line


def build_cluster(*jobs: Obj, **changes: Any) -> list[Obj]:
    """Jobs that have been decided on."""
    return decide_documents([*build_nodes(), *build_queues(**changes), *(document for job in jobs for document in build_queued_job(job))])


def annotate(job: Obj, **notes: str) -> Obj:
    return {**job, "metadata": {**job["metadata"], "annotations": notes}}


def plan(*documents: Obj, **changes: Any) -> Callable[[], Arguments]:
    return lambda: ("plan", "-f", list(documents), "--nodes", [*build_nodes(), *build_queues(**changes)])


def explain(build: Callable[[], list[Obj]], *words: str) -> Callable[[], Arguments]:
    return lambda: ("explain", *words, "--nodes", build())


def lend_spares() -> list[Obj]:
    holder, borrower = build_job("a", 3, required=RACK), build_job("b", 1, unconstrained="true")
    holder["spec"]["template"]["metadata"]["annotations"] |= {SPARE_NODES: "1", LEND_SPARES: "true"}
    there = [node for node in build_nodes() if node["metadata"]["labels"][RACK] == "b0-r0"]
    documents = [*there, *build_queues(), *build_queued_job(holder), *build_queued_job(borrower)]
    of_explain.get_workload(documents, "a")["spec"]["priority"] = 5
    return decide_documents(documents)


def fill_rack() -> list[Obj]:
    """A workload on the only rack of one that waits."""
    small, large = (build_queued_job(build_job(name, pods, required=RACK)) for name, pods in (("small", 2), ("large", 4)))
    return decide_documents([*decide_documents([*build_nodes(blocks=1, racks=1), *build_queues(), *small]), *large])


def wait_for_rack() -> list[Obj]:
    return build_cluster(build_job("a", 5, required=RACK))


def run_in_rack() -> list[Obj]:
    return build_cluster(build_job("a", 3, required=RACK))


def lose_nodes(*names: str) -> list[Obj]:
    return [one for one in run_in_rack() if not (one["kind"] == "Node" and one["metadata"]["name"] in names)]


def break_nodes() -> list[Obj]:
    nodes = build_nodes(blocks=1, racks=1, hosts=3)
    nodes[0]["spec"] = {"unschedulable": True}
    nodes[1]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    nodes[2]["spec"] = {"taints": [{"key": "repair", "effect": "NoSchedule"}]}
    return [*nodes, build_node("lost"), build_node("foreign", {"node-group": "cpu"}), *build_queues()]


def build_group() -> list[Obj]:
    levels = [{"level": BLOCK}, {"level": RACK, "mode": "Preferred"}]
    return [*build_nodes(), of_groups.group(levels=levels), *of_groups.build_pods(2)]


def cron_job(own: dict[str, str], of_jobs: dict[str, str], **spec: Any) -> Callable[[], Arguments]:
    return explain(lambda: [*build_nodes(), *build_queues(), of_kinds.build_cron_job(own, of_jobs, **spec)], "cronjob", "nightly")


def deployment(*labels: dict[str, str], replicas: int = 2) -> Callable[[], Arguments]:
    made = of_kinds.build_deployment(*labels, replicas=replicas)
    return explain(lambda: [*build_nodes(), *build_queues(), made], "deployment", "web")


def without(kind: str) -> list[Obj]:
    return [*build_nodes(), *of_kinds.without(build_queues(), kind)]


PLANS: Cases = {
    "admitted": (plan(build_job("a", 4, required=RACK)), "Job default/a", "?"),
    "why there": (plan(build_job("a", 4, required=RACK)), "why there", "?"),
    "waits": (plan(build_job("a", 5, required=RACK)), "Job default/a", "?"),
    "a level that lacks room": (plan(build_job("a", 5, required=RACK)), f"best {RACK}", "?"),
    "would fit": (plan(build_job("a", 5, required=RACK)), "would fit", "?"),
    "will never fit": (plan(build_job("a", 2, gpus=9, required=RACK)), "will never fit", "?"),
    "fewer pods": (plan(annotate(build_job("a", 6, required=RACK), **{MIN_PARALLELISM: "3"})), "pod set", "?"),
    "why fewer pods": (plan(annotate(build_job("a", 6, required=RACK), **{MIN_PARALLELISM: "3"})), "why fewer pods", "?"),
    "a minimum": (plan(annotate(build_job("a", 7, required=RACK), **{MIN_PARALLELISM: "6"})), "pod set main with", "?"),
    "a PodGroup that waits": (
        lambda: ("plan", "-f", [of_groups.group(policy={"gang": {"minCount": 5}}), *of_groups.build_pods(5)], "--nodes", build_nodes()),
        "b0/b0-r0",
        "?",
    ),
}

OBJECTS: Cases = {
    "no decision yet": (
        explain(lambda: [*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 1))], "job", "a"),
        "no decision",
        "?",
    ),
    "would be admitted now": (
        explain(lambda: [*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 1))], "job", "a"),
        "now:",
        "?",
    ),
    "queue and priority": (explain(wait_for_rack, "job", "a"), "queue:", "?"),
    "position": (explain(of_explain.build_full_queue, "job", "last"), "position", "?"),
    "before it": (explain(of_explain.build_full_queue, "job", "last"), "before it", "?"),
    "needs quota": (explain(of_explain.build_full_queue, "job", "last"), "needs quota", "?"),
    "no preemption": (explain(fill_rack, "job", "large"), "no preemption", "?"),
    "on a rack": (explain(fill_rack, "job", "large"), f"on {RACK}", "?"),
    "would help with quota": (
        explain(lambda: build_cluster(build_job("a", 2), gpus=8), "job", "a"),
        "would help",
        "?",
    ),
    "no workload holds it": (explain(lambda: build_cluster(build_job("a", 2), gpus=8), "job", "a"), "no workload", "?"),
    "pods": (explain(run_in_rack, "job", "a"), "pods:", "?"),
    "why there now": (explain(run_in_rack, "job", "a"), "why there, as things are now", "?"),
    "less room": (
        explain(lambda: lose_nodes("n-0-0-0", "n-0-0-3"), "job", "a"),
        "why there, as things are now",
        "?",
    ),
    "spare nodes lent": (explain(lend_spares, "job", "b"), "spare nodes lent", "?"),
    "PodGroup asks for": (explain(build_group, "podgroup", "train"), "asks for", "?"),
    "PodGroup not decided on": (explain(build_group, "podgroup", "train"), "no decision", "?"),
    "PodGroup now": (explain(build_group, "podgroup", "train"), "now:", "?"),
    "PodGroup's pods": (explain(build_group, "podgroup", "train"), "pods:", "?"),
    "PodGroup without pods": (explain(lambda: [*build_nodes(), of_groups.group()], "podgroup", "train"), "no pod", "?"),
    "ClusterQueue that is stopped": (
        explain(lambda: [*build_nodes(), *build_queues(stopPolicy="Hold")], "clusterqueue", "research"),
        "would help",
        "?",
    ),
    "ClusterQueue without its flavor": (explain(lambda: without("ResourceFlavor"), "clusterqueue", "research"), "would help", "?"),
    "ClusterQueue without its topology": (explain(lambda: without("Topology"), "clusterqueue", "research"), "would help", "?"),
    "ClusterQueue without a LocalQueue": (explain(lambda: without("LocalQueue"), "clusterqueue", "research"), "would help", "?"),
    "ClusterQueue with nodes out of use": (explain(break_nodes, "clusterqueue", "research"), "flavor gpu", "?"),
    "node that is cordoned": (explain(break_nodes, "node", "n-0-0-0"), "would help", "?"),
    "node that is not Ready": (explain(break_nodes, "node", "n-0-0-1"), "would help", "?"),
    "node with a taint": (explain(break_nodes, "node", "n-0-0-2"), "would help", "?"),
    "node without a label": (explain(break_nodes, "node", "lost"), "would help", "?"),
    "node of no flavor": (explain(break_nodes, "node", "foreign"), "would help", "?"),
    "node that a flavor does not select": (explain(break_nodes, "node", "foreign"), "flavor gpu", "?"),
    "CronJob without a queue": (cron_job({}, {}), "would help", "?"),
    "CronJob with its label elsewhere": (cron_job({QUEUE_NAME_LABEL: "main"}, {}), "would help", "?"),
    "CronJob that is suspended": (cron_job({}, {QUEUE_NAME_LABEL: "main"}, suspend=True), "would help", "?"),
    "Deployment without a queue": (deployment({}), "would help", "?"),
    "Deployment without replicas": (deployment({QUEUE_NAME_LABEL: "main"}, replicas=0), "would help", "?"),
    "Deployment without pods": (deployment({QUEUE_NAME_LABEL: "main"}), "would help", "?"),
}

VIEWS: Cases = {
    "no LocalQueue": (lambda: ("queue", "-n", "empty", "--nodes", build_cluster()), "there is", "?"),
    "workloads of others": (lambda: ("queue", "-n", "empty", "cq/research", "--nodes", wait_for_rack()), "waiting", "?"),
    "what others ask for": (lambda: ("queue", "-n", "empty", "cq/research", "--nodes", wait_for_rack()), "the others ask", "?"),
    "what others hold": (lambda: ("queue", "-n", "empty", "cq/research", "--nodes", run_in_rack()), "the others hold", "?"),
    "largest fit": (lambda: ("topology", "--nodes", break_nodes()), f"{RACK}: ", "?"),
    "left out": (lambda: ("topology", "--nodes", break_nodes()), f"left out: 1 node (lost) without the label {RACK}", "?"),
    "out of use": (lambda: ("topology", "--nodes", break_nodes()), "out of use: 1 node (n-0-0-2)", "?"),
    "rack with nodes out of use": (lambda: ("topology", "--nodes", break_nodes()), "└── b0-r0", "?"),
    "no flavor": (lambda: ("topology", "--nodes", without("ResourceFlavor")), "no ResourceFlavor", "?"),
}


@pytest.mark.parametrize(
    ("build", "begin", "sentence"),
    [pytest.param(*case, id=name) for cases in (PLANS, OBJECTS, VIEWS) for name, case in cases.items()],
)
def test_output_of_a_command_has_its_sentence(
    build: Callable[[], Arguments], begin: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    ran = run(Commands(capsys, tmp_path), *build())
    assert ran.err == ""
    assert next(line for line in map(str.strip, ran.out.splitlines()) if line.startswith(begin)) == sentence


# --- warnings ---------------------------------------------------------------------------------------------


def suggest(*more: Obj, build: Callable[[], list[Obj]] = build_nodes, words: Arguments = ()) -> Callable[[], Arguments]:
    return lambda: ("topology", "suggest", *words, "--nodes", [*build(), *more])


def repeat_rack_names() -> list[Obj]:
    cluster = build_nodes(blocks=2, racks=2, hosts=2)
    for each in cluster:
        each["metadata"]["labels"][RACK] = each["metadata"]["labels"][RACK].partition("-")[2]
    return cluster


def taint_all() -> list[Obj]:
    cluster = build_nodes(blocks=1)
    for each in cluster:
        each["spec"] = {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}
    return cluster


def build_plain_node() -> Obj:
    plain = build_node("web", {"node-group": "web"})
    del plain["status"]["allocatable"]["nvidia.com/gpu"]
    return plain


def warn_of_present_job() -> Arguments:
    job = build_job("a", 4, required=RACK)
    return "plan", "-f", [job], "--nodes", [*build_nodes(), *build_queues(), job]


def warn_of_ungated_pod() -> Arguments:
    pods = [*of_groups.build_pods(2), of_groups.build_pod("free", schedulingGates=[])]
    return "plan", "-f", [of_groups.group(), *pods], "--nodes", build_nodes()


def warn_of_unused_document() -> Arguments:
    return "topology", "--nodes", [*build_nodes(), *build_queues(), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}]


SERVICE_QUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "main", "namespace": "default"}}
WARNINGS: dict[str, tuple[Callable[[], Arguments], str]] = {
    "a job that is there": (warn_of_present_job, "?"),
    "a pod without its gate": (warn_of_ungated_pod, "?"),
    "a document that is not used": (warn_of_unused_document, "?"),
    "a LocalQueue that is there": (suggest({**SERVICE_QUEUE, "spec": {"clusterQueue": "other"}}), "?"),
    "a ClusterQueue that is there": (suggest(build_queues()[2], words=("--cluster-queue", "research")), "?"),
    "a flavor of the same nodes": (suggest(build_queues()[1]), "?"),
    "names that are used twice": (suggest(build=repeat_rack_names), "?"),
    "a node without a label": (suggest(build_node("lost", {BLOCK: "b0"})), "?"),
    "a rack of one node": (suggest(build_node("alone", {BLOCK: "b0", RACK: "r9"})), "?"),
    "a common taint": (suggest(build=taint_all), "?"),
    "nodes without accelerators": (suggest(build_plain_node()), "?"),
    "no groups of nodes": (suggest(build=lambda: [build_node("a"), build_node("b")]), "?"),
}


@pytest.mark.parametrize(("build", "sentence"), WARNINGS.values(), ids=WARNINGS)
def test_warning_of_a_command_has_its_sentence(
    build: Callable[[], Arguments], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    ran = run(Commands(capsys, tmp_path), *build())
    assert ran.code == 0
    assert ran.err.replace(f"{tmp_path}/", "").splitlines()[0] == f"topogate: {sentence}"


GOOGLE, AMAZON = NETWORKS[1], NETWORKS[2]


def find_remark(at: int, *others: str) -> str:
    """On labels of two networks: `others` are nodes that have one of the second."""
    cluster = {f"n{i}": {HOST: f"n{i}", GOOGLE[0]: f"b{i // 4}", GOOGLE[1]: f"s{i // 4}", GOOGLE[2]: f"h{i // 2}"} for i in range(8)}
    for name in others:
        cluster[name] |= {AMAZON[0]: "a"}
    return find_levels(cluster).remarks[at]


# --- pauses -----------------------------------------------------------------------------------------------


def ask(
    work: Callable[[of_pause.Server], Coroutine[Any, Any, list[str]]], *queues: Obj, before: Stop | None = None, others_write: int = 0
) -> str:
    """The last line that is printed, of an error, too."""

    async def do_work() -> str:
        server = of_pause.Server()
        for queue in queues:
            server.put(queue)
        if before is not None:
            await set_stops(server.client, of_pause.NAMESPACE, {before.what: before})
        server.before_write = [lambda: server.store({})] * others_write
        try:
            return (await work(server))[-1]
        except Failure as error:
            return error.lines[-1]

    return execute(do_work())


def pause(*queues: Obj) -> str:
    return ask(lambda server: of_pause.pause(server, wait=True), *queues)


def read_status(namespace: str) -> str:
    return ask(lambda server: list_status_lines(server.client, namespace))


def build_active_queue(name: str, active: bool) -> Obj:
    conditions = [build_condition_json("Active", active, reason="Ready" if active else "AdmissionsPaused")]
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "status": {"conditions": conditions}}


BY_BOB = Stop("admissions", "2026-01-01T00:00:00Z", "bob", "earlier")
LINES: dict[str, tuple[Callable[[], str], str]] = {
    "paused": (lambda: ask(of_pause.pause), "?"),
    "paused before": (lambda: ask(of_pause.pause, before=BY_BOB), "?"),
    "in force": (lambda: pause(build_active_queue("a", False)), "?"),
    "in force, without queues": (pause, "?"),
    "not in force": (lambda: pause(build_active_queue("a", False), build_active_queue("b", True)), "?"),
    "not paused before": (lambda: ask(of_pause.resume), "?"),
    "goes on": (lambda: ask(of_pause.resume, before=BY_BOB), "?"),
    "not paused": (lambda: read_status(of_pause.NAMESPACE), "?"),
    "no namespace": (lambda: read_status("wrong"), "?"),
    "others write, too": (lambda: ask(of_pause.pause, others_write=100), "?"),
    "a label with the domains of another": (lambda: find_remark(0), "?"),
    "a label of few nodes": (lambda: find_remark(1, "n0"), "?"),
    "a label of another network": (lambda: find_remark(1, *(f"n{i}" for i in range(6))), "?"),
}


@pytest.mark.parametrize(("build", "sentence"), LINES.values(), ids=LINES)
def test_line_of_a_command_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence

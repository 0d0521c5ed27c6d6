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


def deployment(labels: dict[str, str], of_pods: dict[str, str] | None = None, *, replicas: int = 2) -> Callable[[], Arguments]:
    made = of_kinds.build_deployment(labels, of_pods, replicas)
    return explain(lambda: [*build_nodes(), *build_queues(), made], "deployment", "web")


def without(kind: str) -> list[Obj]:
    return [*build_nodes(), *of_kinds.without(build_queues(), kind)]


PLANS: Cases = {
    "admitted": (plan(build_job("a", 4, required=RACK)), "Job default/a", "Job default/a: would be admitted by ClusterQueue research"),
    "why there": (
        plan(build_job("a", 4, required=RACK)),
        "why there",
        (
            "why there: pod set main: cloud.provider.com/topology-rack b0/b0-r0 with room for 4, the tightest of "
            "4 that hold all 4 pods; next b0/b0-r1 with room for 4"
        ),
    ),
    "waits": (plan(build_job("a", 5, required=RACK)), "Job default/a", "Job default/a: would wait: TopologyPlacementFailed"),
    "a level that lacks room": (
        plan(build_job("a", 5, required=RACK)),
        f"best {RACK}",
        "best cloud.provider.com/topology-rack b0/b0-r0: 4 of 5 pods, short of 8 nvidia.com/gpu (4 domains)",
    ),
    "would fit": (plan(build_job("a", 5, required=RACK)), "would fit", "would fit: in one cloud.provider.com/topology-block"),
    "will never fit": (
        plan(build_job("a", 2, gpus=9, required=RACK)),
        "will never fit",
        "will never fit: One pod is larger than any eligible node: n-0-0-0 comes nearest and lacks 1 nvidia.com/gpu",
    ),
    "fewer pods": (
        plan(annotate(build_job("a", 6, required=RACK), **{MIN_PARALLELISM: "3"})),
        "pod set",
        "pod set main: 4 of the 6 pods that it asked for (kueue.x-k8s.io/job-min-parallelism accepts 3 or more), flavor gpu",
    ),
    "why fewer pods": (
        plan(annotate(build_job("a", 6, required=RACK), **{MIN_PARALLELISM: "3"})),
        "why fewer pods",
        (
            'why fewer pods: couldn\'t assign flavors to pod set main: topology "default" allows to fit only 4 '
            "out of 6 pod(s). It would fit in one cloud.provider.com/topology-block, or with 4 pods. Best "
            "cloud.provider.com/topology-rack b0/b0-r0: 4 of 6 pods, short of 16 nvidia.com/gpu; best "
            "cloud.provider.com/topology-block b0: all 6 pods."
        ),
    ),
    "a minimum": (
        plan(annotate(build_job("a", 7, required=RACK), **{MIN_PARALLELISM: "6"})),
        "pod set main with",
        "pod set main with 6 pods, flavor gpu: TopologyPlacementFailed",
    ),
    "a PodGroup that waits": (
        lambda: ("plan", "-f", [of_groups.group(policy={"gang": {"minCount": 5}}), *of_groups.build_pods(5)], "--nodes", build_nodes()),
        "b0-r0:",
        "b0-r0: 4 of at least 5 pods, short of 8 nvidia.com/gpu (4 nodes)",
    ),
}

OBJECTS: Cases = {
    "no decision yet": (
        explain(lambda: [*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 1))], "job", "a"),
        "no decision",
        "no decision yet; is the reconciler running?",
    ),
    "would be admitted now": (
        explain(lambda: [*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 1))], "job", "a"),
        "now:",
        "now: it would be admitted by ClusterQueue research",
    ),
    "queue and priority": (explain(wait_for_rack, "job", "a"), "queue:", "queue: LocalQueue main, ClusterQueue research, priority 0"),
    "position": (
        explain(of_explain.build_full_queue, "job", "last"),
        "position",
        "position: 2 of 2 in the ClusterQueue, 2 of 2 in the LocalQueue",
    ),
    "before it": (explain(of_explain.build_full_queue, "job", "last"), "before it", "before it: default/job/high (priority 1000)"),
    "needs quota": (
        explain(of_explain.build_full_queue, "job", "last"),
        "needs quota",
        "needs quota: 8 nvidia.com/gpu of flavor gpu, of which 0 are available",
    ),
    "no preemption": (
        explain(fill_rack, "job", "large"),
        "no preemption",
        "no preemption: no workload that holds quota of ClusterQueue research has a priority below 0: the lowest is 0 "
        "(default/job-small-b7a01); withinClusterQueue of ClusterQueue research is Never",
    ),
    "on a rack": (
        explain(fill_rack, "job", "large"),
        f"on {RACK}",
        "on cloud.provider.com/topology-rack b0/b0-r0: default/job/small 16 nvidia.com/gpu (priority 0)",
    ),
    "would help with quota": (
        explain(lambda: build_cluster(build_job("a", 2), gpus=8), "job", "a"),
        "would help",
        "would help: 8 nvidia.com/gpu more as nominalQuota of ClusterQueue research in flavor gpu",
    ),
    "no workload holds it": (explain(lambda: build_cluster(build_job("a", 2), gpus=8), "job", "a"), "no workload", "no workload holds it"),
    "pods": (explain(run_in_rack, "job", "a"), "pods:", "pods: 0 live, 0 on nodes, 0 gated"),
    "why there now": (
        explain(run_in_rack, "job", "a"),
        "why there, as things are now",
        (
            "why there, as things are now: pod set main: cloud.provider.com/topology-rack b0/b0-r0 with room for "
            "4, the tightest of 4 that hold all 3 pods; next b0/b0-r1 with room for 4"
        ),
    ),
    "less room": (
        explain(lambda: lose_nodes("n-0-0-0", "n-0-0-3"), "job", "a"),
        "why there, as things are now",
        (
            "why there, as things are now: pod set main: cloud.provider.com/topology-rack b0/b0-r0 with room for "
            "2 of 3 pods now; b0/b0-r1 with room for 4 would hold all 3"
        ),
    ),
    "spare nodes lent": (
        explain(lend_spares, "job", "b"),
        "spare nodes lent",
        "spare nodes lent to it: n-0-0-3 of default/job-a-4c2d5, until that needs them",
    ),
    "PodGroup asks for": (
        explain(build_group, "podgroup", "train"),
        "asks for",
        (
            "asks for: at least 2 pods at once, in one cloud.provider.com/topology-block, if possible in one "
            "cloud.provider.com/topology-rack"
        ),
    ),
    "PodGroup not decided on": (
        explain(build_group, "podgroup", "train"),
        "no decision",
        "no decision yet; does the reconciler run with --feature-gates TopologyAwareWorkloadScheduling=true?",
    ),
    "PodGroup now": (explain(build_group, "podgroup", "train"), "now:", "now: placement b0/b0-r0 has places for 2 of 2 pods"),
    "PodGroup's pods": (explain(build_group, "podgroup", "train"), "pods:", "pods: 2 live, 0 on nodes, 0 with a place, 2 without"),
    "PodGroup without pods": (explain(lambda: [*build_nodes(), of_groups.group()], "podgroup", "train"), "no pod", "no pod names it"),
    "ClusterQueue that is stopped": (
        explain(lambda: [*build_nodes(), *build_queues(stopPolicy="Hold")], "clusterqueue", "research"),
        "would help",
        "would help: set spec.stopPolicy of the ClusterQueue to None",
    ),
    "ClusterQueue without its flavor": (
        explain(lambda: without("ResourceFlavor"), "clusterqueue", "research"),
        "would help",
        "would help: create the ResourceFlavor, or remove it from spec.resourceGroups",
    ),
    "ClusterQueue without its topology": (
        explain(lambda: without("Topology"), "clusterqueue", "research"),
        "would help",
        "would help: create the Topology; `topogate topology suggest` writes one from the labels of the nodes",
    ),
    "ClusterQueue without a LocalQueue": (
        explain(lambda: without("LocalQueue"), "clusterqueue", "research"),
        "would help",
        "would help: create a LocalQueue with spec.clusterQueue research: no job can be queued in it without one",
    ),
    "ClusterQueue with nodes out of use": (
        explain(break_nodes, "clusterqueue", "research"),
        "flavor gpu",
        (
            "flavor gpu: topology default, 4 nodes, 0 of them take pods (1 NotReady, 1 unschedulable, 1 taint "
            '"repair:NoSchedule", 1 without a place in the topology)'
        ),
    ),
    "node that is cordoned": (explain(break_nodes, "node", "n-0-0-0"), "would help", "would help: `kubectl uncordon n-0-0-0`"),
    "node that is not Ready": (
        explain(break_nodes, "node", "n-0-0-1"),
        "would help",
        "would help: let its kubelet report Ready again; `kubectl describe node n-0-0-1` has the reason",
    ),
    "node with a taint": (
        explain(break_nodes, "node", "n-0-0-2"),
        "would help",
        'would help: remove its taint "repair:NoSchedule", or add a toleration of it to spec.tolerations of ResourceFlavor gpu',
    ),
    "node without a label": (
        explain(break_nodes, "node", "lost"),
        "would help",
        (
            "would help: `kubectl label node lost cloud.provider.com/topology-block=VALUE "
            "cloud.provider.com/topology-rack=VALUE`, with the values of its place"
        ),
    ),
    "node of no flavor": (
        explain(break_nodes, "node", "foreign"),
        "would help",
        "would help: `kubectl label node foreign node-group=gpu` puts it into ResourceFlavor gpu",
    ),
    "node that a flavor does not select": (
        explain(break_nodes, "node", "foreign"),
        "flavor gpu",
        "flavor gpu: does not select it: the node has no label node-group=gpu",
    ),
    "CronJob without a queue": (
        cron_job({}, {}),
        "would help",
        "would help: set the label kueue.x-k8s.io/queue-name in spec.jobTemplate.metadata.labels: each Job gets its labels from there",
    ),
    "CronJob with its label elsewhere": (
        cron_job({QUEUE_NAME_LABEL: "main"}, {}),
        "would help",
        (
            "would help: set the label kueue.x-k8s.io/queue-name in spec.jobTemplate.metadata.labels: each Job "
            "gets its labels from there; in metadata.labels of the CronJob it does nothing (main)"
        ),
    ),
    "CronJob that is suspended": (
        cron_job({}, {QUEUE_NAME_LABEL: "main"}, suspend=True),
        "would help",
        "would help: set spec.suspend to false: it creates no Job while it is suspended",
    ),
    "Deployment without a queue": (
        deployment({}),
        "would help",
        "would help: set the label kueue.x-k8s.io/queue-name in metadata.labels of the Deployment: its pods get it from there",
    ),
    "Deployment without replicas": (
        deployment({QUEUE_NAME_LABEL: "main"}, replicas=0),
        "would help",
        "would help: raise spec.replicas: each of its pods gets a Workload, and spec.replicas is 0",
    ),
    "Deployment without pods": (
        deployment({QUEUE_NAME_LABEL: "main"}),
        "would help",
        "would help: look at the events of its ReplicaSets (`kubectl describe replicaset`): it has no pods, and each gets a Workload",
    ),
}

VIEWS: Cases = {
    "no LocalQueue": (
        lambda: ("queue", "-n", "empty", "--nodes", build_cluster()),
        "there is",
        "there is no LocalQueue in namespace empty",
    ),
    "workloads of others": (
        lambda: ("queue", "-n", "empty", "cq/research", "--nodes", wait_for_rack()),
        "waiting",
        "waiting: 1 workload, 1 of them not shown by name",
    ),
    "what others ask for": (
        lambda: ("queue", "-n", "empty", "cq/research", "--nodes", wait_for_rack()),
        "the others ask",
        "the others ask for 40 nvidia.com/gpu, 5 cpu",
    ),
    "what others hold": (
        lambda: ("queue", "-n", "empty", "cq/research", "--nodes", run_in_rack()),
        "the others hold",
        "the others hold 24 nvidia.com/gpu, 3 cpu of gpu",
    ),
    "largest fit": (
        lambda: ("topology", "--nodes", break_nodes()),
        f"{RACK}: ",
        "cloud.provider.com/topology-rack: 1 domain, the largest fit is 0 pods of nvidia.com/gpu=1 in b0/b0-r0",
    ),
    "left out": (
        lambda: ("topology", "--nodes", break_nodes()),
        f"left out: 1 node (lost) without the label {RACK}",
        "left out: 1 node (lost) without the label cloud.provider.com/topology-rack",
    ),
    "out of use": (
        lambda: ("topology", "--nodes", break_nodes()),
        "out of use: 1 node (n-0-0-2)",
        'out of use: 1 node (n-0-0-2), taint "repair:NoSchedule"',
    ),
    "no flavor": (
        lambda: ("topology", "--nodes", without("ResourceFlavor")),
        "no ResourceFlavor",
        "no ResourceFlavor names it in topologyName: nothing is placed by it",
    ),
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
    "a job that is there": (
        warn_of_present_job,
        "warning: Job default/a: it exists already: `topogate explain job a` describes it; this is what one more like it would get",
    ),
    "a pod without its gate": (
        warn_of_ungated_pod,
        (
            "warning: PodGroup default/train: pod default/free has no scheduling gate topogate.dev/podgroup: "
            "kube-scheduler places it wherever it fits"
        ),
    ),
    "a document that is not used": (warn_of_unused_document, "warning: 2.yaml: document 21: Secret s (v1) is not looked at"),
    "a LocalQueue that is there": (
        suggest({**SERVICE_QUEUE, "spec": {"clusterQueue": "other"}}),
        (
            "there is a LocalQueue main already, and applying this would change its spec.clusterQueue, and the "
            "API server refuses that; --local-queue names another"
        ),
    ),
    "a ClusterQueue that is there": (
        suggest(build_queues()[2], words=("--cluster-queue", "research")),
        "there is a ClusterQueue research already, and applying this would change its spec.resourceGroups; --cluster-queue names another",
    ),
    "a flavor of the same nodes": (
        suggest(build_queues()[1]),
        (
            "there is a ResourceFlavor gpu already that selects 16 of the 16 nodes: quota of both counts these "
            "twice; give the quota to one of them, or apply this with --name gpu"
        ),
    ),
    "names that are used twice": (
        suggest(build=repeat_rack_names),
        (
            "label cloud.provider.com/topology-rack does not nest in cloud.provider.com/topology-block: r0 lies "
            "in b0, b1, and 1 more value like it; they are taken for different domains"
        ),
    ),
    "a node without a label": (
        suggest(build_node("lost", {BLOCK: "b0"})),
        "1 node (lost) without the label cloud.provider.com/topology-rack: left out",
    ),
    "a rack of one node": (
        suggest(build_node("alone", {BLOCK: "b0", RACK: "r9"})),
        "level cloud.provider.com/topology-rack: 1 of 5 domains of one node: b0/r9",
    ),
    "a common taint": (
        suggest(build=taint_all),
        "all nodes have the taint nvidia.com/gpu=present:NoSchedule: the flavor lets its pods tolerate it",
    ),
    "nodes without accelerators": (suggest(build_plain_node()), "16 of 17 nodes are looked at: those with accelerators"),
    "no groups of nodes": (
        suggest(build=lambda: [build_node("a"), build_node("b")]),
        "no label groups the nodes: the only level is the node itself; label them with their rack and block",
    ),
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
    "paused": (lambda: ask(of_pause.pause), "admissions are paused"),
    "paused before": (
        lambda: ask(of_pause.pause, before=BY_BOB),
        "admissions were paused before, by bob since 2026-01-01T00:00:00Z: earlier; that stands",
    ),
    "in force": (lambda: pause(build_active_queue("a", False)), "in force: reported by 1 ClusterQueue after 0.0 s"),
    "in force, without queues": (pause, "whether it is in force is not known: that would be read from ClusterQueues, and there is none"),
    "not in force": (
        lambda: pause(build_active_queue("a", False), build_active_queue("b", True)),
        (
            "it is written, but after 10 s 1 of 2 ClusterQueues, b for one, do not say that admissions are "
            "paused; is a reconciler running, and with --namespace=topogate-system?"
        ),
    ),
    "not paused before": (lambda: ask(of_pause.resume), "admissions were not paused"),
    "goes on": (
        lambda: ask(of_pause.resume, before=BY_BOB),
        "admissions go on; they were paused by bob since 2026-01-01T00:00:00Z: earlier",
    ),
    "not paused": (lambda: read_status(of_pause.NAMESPACE), "evictions are not paused"),
    "no namespace": (lambda: read_status("wrong"), "there is no namespace wrong; --namespace names the one in which the reconciler is"),
    "others write, too": (
        lambda: ask(of_pause.pause, others_write=100),
        "ConfigMap topogate-system/topogate-pause was changed by others 10 times while it was to be written; try again",
    ),
    "a label with the domains of another": (
        lambda: find_remark(0),
        "label cloud.google.com/gce-topology-subblock is not used: its domains are those of cloud.google.com/gce-topology-block",
    ),
    "a label of few nodes": (
        lambda: find_remark(1, "n0"),
        ("label topology.k8s.aws/network-node-layer-1 is not used: 1 of 8 nodes have it"),
    ),
    "a label of another network": (
        lambda: find_remark(1, *(f"n{i}" for i in range(6))),
        (
            "label topology.k8s.aws/network-node-layer-1 is not used: cloud.google.com/gce-topology-block "
            "describes the network of more nodes"
        ),
    ),
}


@pytest.mark.parametrize(("build", "sentence"), LINES.values(), ids=LINES)
def test_line_of_a_command_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence

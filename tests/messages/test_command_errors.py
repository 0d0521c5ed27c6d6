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
    "unknown word": (give("plann"), 2, "No such command 'plann'. Did you mean 'plan', 'explain'?; --help lists what is accepted"),
    "missing option": (give("plan"), 2, "Missing option '--filename' / '-f'; --help lists what is accepted"),
    "unknown option": (give("plan", "-f", "x", "--speed", "9"), 2, "No such option: --speed; --help lists what is accepted"),
    "missing file": (give("plan", "-f", "there-is-no-such-file"), 2, "there-is-no-such-file: No such file or directory"),
    "unknown form": (
        give("plan", "-f", "x", "-o", "xml"),
        2,
        "Invalid value for '--output' / '-o': 'xml' is not one of 'json', 'yaml'; --help lists what is accepted",
    ),
    "unknown thing to pause": (
        give("pause", "admisions"),
        2,
        "Invalid value for 'what': 'admisions' is not one of 'admissions', 'evictions', 'all', 'status'; --help lists what is accepted",
    ),
    "reason without a pause": (give("pause", "status", "--reason", "x"), 2, "--reason is for pausing; leave it out to see the status"),
    "files and a cluster": (
        give("plan", "-f", "x", "--nodes", "y", "--context", "z"),
        2,
        "--nodes reads files instead of a cluster: leave out --kubeconfig and --context, or leave out --nodes",
    ),
    "watched files": (
        give("queue", "--watch", "--nodes", "y"),
        2,
        ("--watch needs a live cluster: leave out --nodes, or leave out --watch"),
    ),
    "unknown profile": (
        give("plan", "-f", "x", "--placement-profile", "tidy"),
        2,
        (
            "argument --placement-profile: 'tidy' is not accepted; use kep, compact, best-fit, least-free or "
            "balanced; --help lists all flags"
        ),
    ),
    "unknown gate": (
        give("plan", "-f", "x", "--feature-gates", "Nonsense=true"),
        2,
        (
            "argument --feature-gates: unknown feature gate 'Nonsense'; known are ElasticJobsViaWorkloadSlices, "
            "ElasticJobsViaWorkloadSlicesWithTAS, KueueDRADeviceFeasibility, KueueDRAIntegration, "
            "LocalQueueMetrics, PartialAdmission, ReclaimablePods, TASAssignmentsEncodingByHostnamePrefix, "
            "TASBalancedPlacement, TASCacheNodeMatchResults, TASCacheTopologyTree, TASCachingRemainingResources, "
            "TASFailedNodeReplacement, TASFailedNodeReplacementFailFast, TASGroupedPodSetSlicing, "
            "TASHandleOverlappingFlavors, TASLeaderPodSetFeasibility, TASMultiLayerTopology, "
            "TASNodeFeasibilityForAllLevels, TASPartialSlices, TASProfileBestFit, TASProfileLeastFreeCapacity, "
            "TASProfileMixed, TASProfileMostFreeCapacity, TASRecomputeAssignmentWithinSchedulingCycle, "
            "TASRejectFalseUnconstrainedTopology, TASReplaceMultipleFailedNodes, "
            "TASReplaceNodeDueToNotReadyOverFixedTime, TASReplaceNodeOnNodeTaints, "
            "TASReplaceNodeOnPodTermination, TASRespectNodeAffinityPreferred, TASTopologySpreading, "
            "TASValidateWorkloadSliceSize, TopologyAwareScheduling, TopologyAwareWorkloadScheduling, "
            "WaitForPodsReadyMaxNotReady, WorkloadBasicPolicyDesiredCount, WorkloadLevelWaitForPodsReady; --help "
            "lists all flags"
        ),
    ),
    "missing kubeconfig": (give("plan", "-f", [build_job("a", 1)], "--kubeconfig", "none"), 2, "kubeconfig none: there is no such file"),
    "no words to explain": (
        give("explain", "job", "a", "b"),
        2,
        "'job a b' is not accepted; KIND NAME or KIND/NAME is expected, such as workload NAME or job NAME",
    ),
    "no kind of queue": (
        give("queue", "job/main", "--nodes", build_nodes()),
        2,
        "'job/main' is not accepted; NAME, clusterqueue/NAME or localqueue/NAME is expected",
    ),
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
    "job of another name": (explain("job", "b"), 1, "Job b is not in namespace default; there are a, idle"),
    "job of another namespace": (
        explain("job", "a", "-n", "other"),
        1,
        "Job a is not in namespace other; there is one in namespace default (-n)",
    ),
    "job in no queue": (
        explain("job", "idle"),
        1,
        "job default/idle has no Workload: it has no label kueue.x-k8s.io/queue-name, so topogate leaves it alone",
    ),
    "job without a Workload": (
        lambda: ("explain", "job", "n", "--nodes", [*build_nodes(), *build_queues(), make_job("n")]),
        1,
        (
            "job default/n has no Workload yet: the reconciler makes one within seconds if it runs; else an "
            "event of the job reports the reason"
        ),
    ),
    "name of nothing": (
        explain_queued("nothing-like-it"),
        1,
        (
            "there is no Workload, job, pod or queue nothing-like-it in namespace default, and no such node; "
            "`explain KIND NAME` names the kind, -n the namespace"
        ),
    ),
    "name that is near": (
        explain_queued("j11"),
        1,
        "there is no Workload, job, pod or queue j11 in namespace default, and no such node; did you mean job j1?",
    ),
    "name of two objects": (
        explain_name_of_two,
        2,
        ("there are 2 objects main; give the kind: explain job main or explain localqueue main"),
    ),
    "node": (explain_queued("node", "n-0-0-9"), 1, "there is no node n-0-0-9; there are n-0-0-3, n-0-0-2, n-0-0-1"),
    "ClusterQueue": (explain_queued("clusterqueue", "reserch"), 1, "there is no ClusterQueue reserch; there are research"),
    "LocalQueue": (explain_queued("localqueue", "x", "-n", "other"), 1, "there is no LocalQueue x in namespace other; there is none"),
    "CronJob": (explain_queued("cronjob", "x"), 1, "CronJob x is not in namespace default"),
    "object of another kind": (
        lambda: ("explain", "job", "lws", "--nodes", build_leader_workers()),
        1,
        "Job lws is not in namespace default; there is LeaderWorkerSet lws (explain leaderworkerset lws)",
    ),
    "object of several Workloads": (
        lambda: ("explain", "leaderworkerset", "lws", "--nodes", build_leader_workers()),
        1,
        "leaderworkerset default/lws has 2 Workloads: lws-0, lws-1; explain one of these: workload NAME",
    ),
    "PodGroup": (
        explain("podgroup", "none"),
        1,
        "there is no PodGroup none in namespace default, and no group of queued pods of that name",
    ),
    "PodGroup of a pod": (
        lambda: ("explain", "pod/a-0", "--nodes", [*build_nodes(), of_groups.build_pod("a-0", "a")]),
        1,
        "pod default/a-0 waits for PodGroup a, which is not there",
    ),
    "PodGroup of a job": (
        lambda: ("explain", "job/run", "--nodes", build_grouped_job()),
        1,
        "job default/run asks for a PodGroup by topogate.dev/podgroup-topology, and has no pods yet that name it",
    ),
    "one PodGroup of a job": (
        lambda: ("explain", "job/run", "--nodes", build_grouped_job("a", "b")),
        1,
        "the pods of job default/run are of 2 PodGroups: a, b; explain one of these",
    ),
    "queue": (
        lambda: ("queue", "reserch", "--nodes", build_cluster()),
        1,
        "there is no ClusterQueue reserch, and no LocalQueue of that name in namespace default; there are research",
    ),
    "LocalQueue to show": (
        lambda: ("queue", "lq/main", "-n", "x", "--nodes", build_cluster()),
        1,
        "there is no LocalQueue main in namespace x; there is none",
    ),
    "queue of two kinds": (
        name_both_queues,
        2,
        "there are a ClusterQueue and a LocalQueue research; give clusterqueue/research or localqueue/research",
    ),
    "Topology": (show_topology("none"), 1, "there is no Topology none; there is default"),
    "any Topology": (
        lambda: ("topology", "--nodes", build_nodes()),
        1,
        "there is no Topology; `topogate topology suggest` writes one from the labels of the nodes",
    ),
    "any Topology of a name": (
        lambda: ("topology", "x", "--nodes", build_nodes()),
        1,
        "there is no Topology x; there is none at all: `topogate topology suggest` writes one",
    ),
    "amount of a pod": (
        show_topology("--pod", "gpu"),
        2,
        (
            "--pod gpu: 'gpu' is not accepted; RESOURCE=QUANTITY is expected: '' is no quantity; a number with "
            "an optional suffix such as 500m, 4, 1.5Gi is expected"
        ),
    ),
    "pods of nothing": (
        show_topology("--pod", "cpu=0"),
        2,
        "--pod cpu=0: 'cpu=0' is not accepted; RESOURCE=QUANTITY is expected, such as nvidia.com/gpu=8",
    ),
    "resource that is given twice": (show_topology("--pod", "cpu=4,cpu=8"), 2, "--pod cpu=4,cpu=8: cpu is given twice; leave one out"),
    "resource of a near name": (
        show_topology("--pod", "gpu=8"),
        2,
        "--pod gpu=8: no node offers gpu; did you mean nvidia.com/gpu? nodes offer cpu, memory, nvidia.com/gpu, pods",
    ),
    "resource that no node has": (
        show_topology("--pod", "example.com/license=1"),
        2,
        "--pod example.com/license=1: no node offers example.com/license; nodes offer cpu, memory, nvidia.com/gpu, pods",
    ),
    "node to suggest for": (
        give("topology", "suggest", "--nodes", [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}]),
        2,
        "there is no node",
    ),
    "label to suggest by": (
        give("topology", "suggest", "--nodes", [{**build_node("n"), "metadata": {"name": "n", "labels": {"a": "b"}}}]),
        1,
        "no label of the 1 node says where they stand, not even kubernetes.io/hostname: there is nothing to suggest",
    ),
}

# --- files ------------------------------------------------------------------------------------------------


def plan(*documents: Obj) -> Callable[[], Arguments]:
    """Into a cluster without mistakes."""
    return lambda: ("plan", "-f", list(documents), "--nodes", [*build_nodes(), *build_queues()])


NUMBERED: Any = {RACK: 7}


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
    "no node": (
        lambda: ("plan", "-f", [build_job("a", 1)], "--nodes", build_queues()),
        2,
        "there is no node in the files of --nodes; `kubectl get nodes -o yaml` writes such a file",
    ),
    "no name": (
        plan({**build_job("a", 1), "metadata": {"labels": {}}}),
        2,
        "2.yaml: document 1: Job without a name: metadata.name: it is missing; it has to be given",
    ),
    "no queue": (
        leave_out_queue,
        2,
        (
            "2.yaml: document 1: Job a: metadata.labels: the label kueue.x-k8s.io/queue-name is missing: "
            "topogate leaves alone what names no LocalQueue"
        ),
    ),
    "another namespace": (
        lambda: (*plan(build_job("a", 1))(), "-n", "nowhere"),
        2,
        (
            "2.yaml: document 1: Job a: metadata.namespace: 'default' is not accepted; 'nowhere' is expected, as "
            "--namespace says; leave out one of both"
        ),
    ),
    "no object": (plan({"a": "b", "metadata": {}, "kind": "Job"}), 2, "2.yaml: document 1: apiVersion: it is missing; it has to be given"),
    "no text": (
        describe_cluster(build_node("n1", NUMBERED)),
        2,
        "4.yaml: document 17: metadata.labels[cloud.provider.com/topology-rack]: 7 is not accepted; text is expected, put it into quotes",
    ),
    "no quantity": (
        describe_cluster(offer(cpu="lots")),
        2,
        (
            "4.yaml: document 17: Node n1: status.allocatable.cpu: 'lots' is no quantity; a number with an "
            "optional suffix such as 500m, 4, 1.5Gi is expected"
        ),
    ),
    "a fraction of a device": (
        describe_cluster(offer(**{"example.com/gpu": "2500m"})),
        2,
        "4.yaml: document 17: Node n1: status.allocatable[example.com/gpu]: '2500m' is a fraction; a whole number is expected",
    ),
    "a negative amount": (
        describe_cluster(offer(memory=-5)),
        2,
        "4.yaml: document 17: Node n1: status.allocatable.memory: -5 is negative; 0 or more is expected",
    ),
    "a fraction of a pod": (
        describe_cluster(offer(pods=1.5)),
        2,
        "4.yaml: document 17: Node n1: status.allocatable.pods: 1.5 is a fraction; a whole number is expected",
    ),
    "nothing to offer": (
        describe_cluster({**build_node("n1"), "status": {}}),
        2,
        (
            "4.yaml: document 17: Node n1: status.allocatable: it is missing; what the node offers has to be "
            "given, such as cpu, memory, pods"
        ),
    ),
    "a pod that cannot be read": (
        describe_cluster(build_wrong_pod("q", containers=[{"name": "c", "ports": [7]}])),
        2,
        "4.yaml: document 17: Pod q: it cannot be read: a field of it has another type than in Kubernetes",
    ),
    "an empty list": (
        describe_cluster(TOPOLOGY),
        2,
        "4.yaml: document 17: Topology default: spec.levels: an empty list is not accepted; at least 1 item is expected",
    ),
    "an unknown key": (
        describe_cluster(FLAVOR),
        2,
        "4.yaml: document 17: ResourceFlavor gpu: spec.topologyNam: unknown key; did you mean topologyName?",
    ),
    "an unknown value": (
        describe_cluster(change_queue(queueingStrategy="Random")),
        2,
        '4.yaml: document 17: ClusterQueue research: spec.queueingStrategy: "Random" is not accepted; use StrictFIFO or BestEffortFIFO',
    ),
    "an object twice": (
        describe_cluster(build_node("n2"), build_node("n2")),
        2,
        "4.yaml: document 18: Node n2: metadata.name: it is given twice, in 4.yaml: document 17: Node n2, too; leave one out",
    ),
    "a pod group that contradicts itself": (
        plan(*(build_grouped_pod(name, total) for name, total in (("a", "2"), ("b", "3")))),
        2,
        "2.yaml: document 1: Pod a: pods of group pair differ in their total count: 2 (pod a), 3 (pod b); delete those that are wrong",
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
        "2.yaml: no JobSet in it makes any pods",
    ),
    "a prebuilt Workload": (
        plan(make_job("a", **{"kueue.x-k8s.io/prebuilt-workload-name": "w"})),
        2,
        "2.yaml: document 1: Job a: it takes a Workload that was made beforehand: `topogate explain workload` describes it",
    ),
    "a minimum without sense": (
        plan({**build_job("a", 1), "metadata": {**build_job("a", 1)["metadata"], "annotations": {MIN_PARALLELISM: "x"}}}),
        2,
        (
            '2.yaml: document 1: Job a: metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: "x": a whole '
            "number from 1 to 1 is expected, which is how many pods the job runs at once"
        ),
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
    "no definitions": (
        ("topology",),
        "kueue.x-k8s.io",
        build_status(404, "NotFound", "not found"),
        (
            "cannot list workloadpriorityclasses.kueue.x-k8s.io: the API server has no "
            "workloadpriorityclasses.kueue.x-k8s.io in version v1beta2; install topogate's "
            "CustomResourceDefinitions (charts/topogate) first"
        ),
    ),
    "no right to list": (
        ("topology",),
        "/nodes",
        build_status(403, "Forbidden", NO_RIGHT),
        (
            'cannot list nodes: no permission: nodes is forbidden: User "u" cannot list resource "nodes" in API '
            'group "" at the cluster scope; the ClusterRole topogate-observer of the chart permits it: an '
            "administrator binds it to you with a ClusterRoleBinding"
        ),
    ),
    "no right in the namespace": (
        ("explain", "job", "a"),
        "/apis/kueue",
        build_status(403, "Forbidden", "no"),
        (
            "you may not list workloads.kueue.x-k8s.io in namespace default; the ClusterRole topogate-viewer of "
            "the chart, which Kubernetes' roles view, edit and admin include, permits it: an administrator binds "
            "it to you with a RoleBinding in namespace default"
        ),
    ),
    "no credentials": (
        ("topology",),
        "",
        build_status(401, "Unauthorized", "Unauthorized"),
        (
            "cannot list customresourcedefinitions.apiextensions.k8s.io: the API server does not accept the "
            "credentials of the kubeconfig: Unauthorized"
        ),
    ),
    "an error": (("topology",), "/pods", build_status(500, "InternalError", "etcd\nis away"), "cannot list pods: etcd is away"),
    "no right to pause": (
        ("pause", "status"),
        "/configmaps",
        build_status(403, "Forbidden", "you may not"),
        "cannot read and write ConfigMap topogate-pause: no permission: you may not",
    ),
}


@pytest.mark.parametrize(("words", "part", "answer", "sentence"), ANSWERS.values(), ids=ANSWERS)
def test_answer_of_the_api_server_has_its_sentence(
    words: tuple[str, ...], part: str, answer: Answer, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    topogate = Commands(capsys, tmp_path)
    with serve_answers(lambda path: answer if part in path else EMPTY) as url:
        ran = topogate.run(*words, "--kubeconfig", write_kubeconfig(topogate, url))
    assert (ran.code, ran.out, ran.err) == (1, "", f"topogate: {sentence}\n")

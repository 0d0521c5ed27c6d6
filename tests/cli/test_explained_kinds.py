"""`topogate explain` of queues, nodes, CronJobs and Deployments, on clusters that files describe."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from core.names import QUEUE_NAME_LABEL
from tests.cli.commands import BLOCK, HOST, RACK, Commands, Obj, build_job, build_node, build_nodes, build_queues
from tests.cli.lives import build_queued_job, decide_documents
from tests.cli.test_queue import build_cluster
from tests.podgroups.devices import CLASS, build_device_class, build_resource_slice

GPU = "nvidia.com/gpu"
MAIN = {QUEUE_NAME_LABEL: "main"}


def explain(topogate: Commands, documents: list[Obj], *words: str) -> Any:
    ran = topogate.run("explain", *words, "-o", "json", "--nodes", topogate.write("cluster.yaml", *documents))
    assert (ran.code, ran.err) == (0, "")
    return ran.data


def show(topogate: Commands, documents: list[Obj], *words: str) -> str:
    ran = topogate.run("explain", *words, "--nodes", topogate.write("cluster.yaml", *documents))
    assert (ran.code, ran.err) == (0, "")
    return ran.out


# --- queues -------------------------------------------------------------------------------------------


def test_active_cluster_queue_is_explained_with_its_workloads_flavors_and_local_queues(topogate: Commands):
    report = explain(topogate, build_cluster(), "clusterqueue", "research")
    assert (report["kind"], report["name"], report["state"], report["localQueues"]) == (
        "ClusterQueue",
        "research",
        "active",
        ["default/main"],
    )
    assert report["flavors"] == [{"name": "gpu", "isMissing": False, "topology": "default", "nodes": 16, "usable": 16, "outOfUse": {}}]
    assert [row["job"]["name"] for row in report["queue"]["waiting"]["workloads"]] == ["j5", "j3", "j1"]
    assert [row["job"]["name"] for row in report["queue"]["holding"]["workloads"]] == ["j0", "j2", "j4"]
    assert report["wouldHelp"] == []
    shown = show(topogate, build_cluster(), "cq/research")
    assert shown.startswith("ClusterQueue research\n  state: active\n  LocalQueues: default/main\n")
    assert "  waiting: 3 workloads\n" in shown


def without(documents: list[Obj], kind: str) -> list[Obj]:
    return [document for document in documents if document["kind"] != kind]


@pytest.mark.parametrize(
    ("documents", "reason", "helps"),
    [
        ([*build_nodes(), *build_queues(stopPolicy="Hold")], "Stopped", "spec.stopPolicy of the ClusterQueue"),
        ([*build_nodes(), *without(build_queues(), "ResourceFlavor")], "FlavorNotFound", "create the ResourceFlavor"),
        ([*build_nodes(), *without(build_queues(), "Topology")], "TopologyNotFound", "`topogate topology suggest`"),
        (
            [*build_nodes(), *build_queues(admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]})],
            "AdmissionCheckNotFound",
            "create the AdmissionCheck",
        ),
    ],
)
def test_inactive_cluster_queue_is_explained_with_the_change_that_helps(topogate: Commands, documents: list[Obj], reason: str, helps: str):
    report = explain(topogate, documents, "clusterqueue", "research")
    assert (report["state"], report["inactive"]["reason"]) == ("inactive", reason)
    assert helps in report["wouldHelp"][0]
    local = explain(topogate, documents, "localqueue", "main")
    assert (local["state"], local["clusterQueue"]) == ("inactive", "research")
    assert report["wouldHelp"][0] in local["wouldHelp"]
    assert f"would help: {report['wouldHelp'][0]}\n" in show(topogate, documents, "localqueue", "main")


def test_queue_with_a_flavor_without_a_usable_node_reports_it(topogate: Commands):
    nodes = build_nodes(blocks=1, racks=1, hosts=3)
    nodes[0]["spec"] = {"unschedulable": True}
    nodes[1]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    nodes[2]["spec"] = {"taints": [{"key": "repair", "effect": "NoSchedule"}]}
    report = explain(topogate, [*nodes, *build_queues()], "clusterqueue", "research")
    (flavor,) = report["flavors"]
    assert (flavor["nodes"], flavor["usable"]) == (3, 0)
    assert flavor["outOfUse"] == {"NotReady": 1, "unschedulable": 1, 'taint "repair:NoSchedule"': 1}
    assert any("ResourceFlavor gpu" in remedy for remedy in report["wouldHelp"])
    foreign = [build_node("x", {"node-group": "cpu"}), *build_queues()]
    report = explain(topogate, foreign, "clusterqueue", "research")
    assert report["flavors"][0]["nodes"] == 0
    assert any("spec.nodeLabels" in remedy for remedy in report["wouldHelp"])


def test_cluster_queue_without_a_local_queue_reports_it(topogate: Commands):
    report = explain(topogate, [*build_nodes(), *without(build_queues(), "LocalQueue")], "clusterqueue", "research")
    assert report["localQueues"] == []
    assert "create a LocalQueue" in report["wouldHelp"][0]


def test_stopped_local_queue_and_one_without_a_cluster_queue_are_explained(topogate: Commands):
    documents = build_cluster()
    local = next(document for document in documents if document["kind"] == "LocalQueue")
    local["spec"]["stopPolicy"] = "Hold"
    report = explain(topogate, documents, "lq", "main")
    assert report["state"] == "inactive"
    assert "spec.stopPolicy of the LocalQueue" in report["wouldHelp"][0]
    assert [row["job"]["name"] for row in report["queue"]["waiting"]["workloads"]] == ["j5", "j3", "j1"]
    local["spec"] = {"clusterQueue": "gone"}
    report = explain(topogate, documents, "localqueue/main")
    assert (report["state"], report["inactive"]["reason"]) == ("inactive", "Misconfigured")
    assert "create ClusterQueue gone" in report["wouldHelp"][0]


def test_namespace_that_the_selector_leaves_out_is_named_with_the_change(topogate: Commands):
    documents = [*build_nodes(), *build_queues(namespaceSelector={"matchLabels": {"team": "a"}})]
    report = explain(topogate, documents, "localqueue", "main")
    assert report["state"] == "inactive"
    assert any("spec.namespaceSelector" in remedy for remedy in report["wouldHelp"])


# --- nodes --------------------------------------------------------------------------------------------


def test_node_is_explained_with_its_place_its_use_and_the_workloads_on_it(topogate: Commands):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n-0-0-0", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
        "status": {"phase": "Running"},
    }
    documents = decide_documents([*build_nodes(blocks=1, racks=1, hosts=1), *build_queues(), *build_queued_job(build_job("a", 1, 4))])
    report = explain(topogate, [*documents, pod], "node", "n-0-0-0")
    assert (report["kind"], report["name"], report["state"]) == ("Node", "n-0-0-0", "usable")
    (flavor,) = report["flavors"]
    assert (flavor["levels"], flavor["values"], flavor["outOfUse"]) == ([BLOCK, RACK, HOST], ["b0", "b0-r0", "n-0-0-0"], [])
    (holder,) = report["heldBy"]
    assert (holder["of"], holder["places"], holder["amounts"][GPU]) == ("default/job/a", 1, "4")
    assert [(other["pod"], other["amounts"]["cpu"]) for other in report["otherPods"]] == [("default/p", "2")]
    gpus = next(entry for entry in report["resources"] if entry["resource"] == GPU)
    assert (gpus["allocatable"], gpus["used"], gpus["free"]) == ("8", "4", "4")
    shown = show(topogate, [*documents, pod], "no/n-0-0-0")
    assert "flavor gpu: topology default, b0/b0-r0/n-0-0-0\n" in shown
    assert "held by: default/job/a, 1 pod, priority 0: " in shown


def test_node_with_a_device_that_is_not_judged_shows_no_number_of_them(topogate: Commands):
    slices = build_resource_slice("a", 3, node="n-0-0-0"), build_resource_slice("b", [{"name": "d", "bindsToNode": True}], node="n-0-0-1")
    documents = [*build_nodes(blocks=1, racks=1, hosts=2), *build_queues(), build_device_class(), *slices]
    mapping = {"resources": {"deviceClassMappings": [{"name": "gpus", "deviceClassNames": [CLASS]}]}}
    config = topogate.write("config.yaml", {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **mapping})
    settings = "--config", str(config), "--feature-gates", "KueueDRADeviceFeasibility=true"
    assert f"devices of class {CLASS}: 0 of 3 in use, 3 free" in show(topogate, documents, "node", "n-0-0-0", *settings)
    assert f"devices of class {CLASS}: not judged" in show(topogate, documents, "node", "n-0-0-1", *settings)


def test_node_out_of_use_is_explained_with_all_reasons_and_their_remedies(topogate: Commands):
    nodes = build_nodes(blocks=1, racks=1, hosts=2)
    nodes[0]["spec"] = {"unschedulable": True, "taints": [{"key": "repair", "effect": "NoSchedule"}]}
    nodes[0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    report = explain(topogate, [*nodes, *build_queues()], "node", "n-0-0-0")
    assert (report["state"], report["flavors"][0]["outOfUse"]) == (
        "out of use",
        ["NotReady", "unschedulable", 'taint "repair:NoSchedule"'],
    )
    assert ["kubectl describe node" in each or "kubectl uncordon" in each or "taint" in each for each in report["wouldHelp"]] == [True] * 3


def test_node_without_a_level_label_or_of_no_flavor_is_explained_with_the_label(topogate: Commands):
    lost, foreign = build_node("lost"), build_node("foreign", {"node-group": "cpu"})
    documents = [*build_nodes(blocks=1, racks=1, hosts=1), lost, foreign, *build_queues()]
    report = explain(topogate, documents, "node", "lost")
    assert report["state"] == "out of use"
    assert f"kubectl label node lost {BLOCK}=VALUE {RACK}=VALUE" in report["wouldHelp"][0]
    report = explain(topogate, documents, "node", "foreign")
    assert (report["state"], report["flavors"][0]["mismatch"]) == ("in no flavor", {"node-group": "gpu"})
    assert "kubectl label node foreign node-group=gpu" in report["wouldHelp"][0]


# --- CronJobs and Deployments --------------------------------------------------------------------------


def build_cron_job(own: dict[str, str], of_jobs: dict[str, str], **spec: Any) -> Obj:
    template = {"metadata": {"labels": of_jobs}, "spec": {"template": {"spec": {"containers": []}}}}
    metadata = {"name": "nightly", "namespace": "default", "labels": own}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata,
        "spec": {"schedule": "0 3 * * *", "jobTemplate": template, **spec},
    }


def add_owner(document: Obj, kind: str, name: str) -> Obj:
    owner = {"apiVersion": "x/v1", "kind": kind, "name": name, "uid": f"{kind}/default/{name}", "controller": True}
    changed = deepcopy(document)
    changed["metadata"]["ownerReferences"] = [owner]
    return changed


def test_cron_job_is_explained_with_the_report_of_each_workload(topogate: Commands):
    jobs = [d for name, pods in (("nightly-1", 2), ("nightly-2", 5)) for d in build_queued_job(build_job(name, pods, required=RACK))]
    documents = decide_documents([*build_nodes(), *build_queues(), *jobs])
    documents = [add_owner(each, "CronJob", "nightly") if each["kind"] == "Job" else each for each in documents]
    documents.append(build_cron_job({}, MAIN))
    report = explain(topogate, documents, "cronjob", "nightly")
    assert (report["state"], report["queue"], report["isSuspended"]) == ("queued", "main", False)
    assert {(row["name"], row["state"], row["reason"]) for row in report["jobs"]} == {
        ("nightly-1", "admitted", "Admitted"),
        ("nightly-2", "waiting", "TopologyPlacementFailed"),
    }
    assert report["states"] == {"admitted": 1, "waiting": 1}
    shown = show(topogate, documents, "cj/nightly")
    assert "jobs: 2 (" in shown
    assert "nightly-2: waiting  TopologyPlacementFailed: " in shown
    assert show(topogate, documents, "nightly") == shown, "a name alone is enough"


@pytest.mark.parametrize(
    ("own", "of_jobs", "suspend", "state", "helps"),
    [
        (MAIN, {}, False, "not queued", ["spec.jobTemplate.metadata.labels"]),
        ({}, {}, False, "not queued", ["spec.jobTemplate.metadata.labels"]),
        ({}, MAIN, True, "suspended", ["spec.suspend"]),
        (MAIN, MAIN, False, "queued", []),
    ],
)
def test_cron_job_is_explained_with_the_place_of_its_queue_label(
    topogate: Commands, own: dict[str, str], of_jobs: dict[str, str], suspend: bool, state: str, helps: list[str]
):
    documents = [*build_nodes(), *build_queues(), build_cron_job(own, of_jobs, suspend=suspend)]
    report = explain(topogate, documents, "cronjob", "nightly")
    assert report["state"] == state
    assert [any(part in remedy for remedy in report["wouldHelp"]) for part in helps] == [True] * len(report["wouldHelp"])
    assert any("does nothing" in remedy for remedy in report["wouldHelp"]) is (own == MAIN and not of_jobs)


def build_deployment(labels: dict[str, str], of_pods: dict[str, str] | None = None, replicas: int = 2) -> Obj:
    spec: Any = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}}
    spec["template"] = {"metadata": {"labels": {"app": "web", **(of_pods or {})}}, "spec": {"containers": []}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    ("deployment", "state", "helps"),
    [
        (build_deployment(MAIN, replicas=0), "queued", "spec.replicas is 0"),
        (build_deployment(MAIN), "queued", "events of its ReplicaSets"),
        (build_deployment({}), "not queued", "metadata.labels of the Deployment"),
        (build_deployment({}, MAIN), "queued", "events of its ReplicaSets"),
    ],
)
def test_deployment_without_pods_is_explained_with_the_remedy(topogate: Commands, deployment: Obj, state: str, helps: str):
    """It read that a Deployment with the label of a queue had none."""
    report = explain(topogate, [*build_nodes(), *build_queues(), deployment], "deployment", "web")
    assert (report["state"], report["pods"]) == (state, [])
    assert helps in report["wouldHelp"][0]


def test_deployment_is_explained_with_the_report_of_each_workload(topogate: Commands):
    waiting = build_queued_job(build_job("w", 5, required=RACK))[1]
    waiting["metadata"] |= {"name": "pod-web-1", "uid": "pod-web-1", "ownerReferences": [build_pod_reference("web-1")]}
    documents = decide_documents([*build_nodes(), *build_queues(), waiting])
    replica_set = add_owner(
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-x", "namespace": "default"}}, "Deployment", "web"
    )
    labels = {"kueue.x-k8s.io/managed": "true", **MAIN}
    pods = [
        add_owner(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "labels": labels},
                "spec": {"containers": []},
            },
            "ReplicaSet",
            "web-x",
        )
        for name in ("web-1", "web-2")
    ]
    for each in (replica_set, *pods):
        each["metadata"]["ownerReferences"][0]["apiVersion"] = "apps/v1"
    report = explain(topogate, [*documents, build_deployment(MAIN), replica_set, *pods], "deployment", "web")
    rows = {row["name"]: row for row in report["pods"]}
    assert (rows["web-1"]["workload"], rows["web-1"]["state"], rows["web-1"]["reason"]) == (
        "pod-web-1",
        "waiting",
        "TopologyPlacementFailed",
    )
    assert rows["web-2"]["state"] == "without a Workload"
    assert report["replicas"] == 2
    assert "pods: 2 of 2 (" in show(topogate, [*documents, build_deployment(MAIN), replica_set, *pods], "deploy/web")


def build_pod_reference(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"Pod/default/{name}", "controller": True}


# --- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("j1", "Workload default/job-j1-"),
        ("main", "LocalQueue default/main\n"),
        ("research", "ClusterQueue research\n"),
        ("n-0-0-0", "Node n-0-0-0\n"),
    ],
)
def test_name_without_a_kind_is_found(topogate: Commands, name: str, begin: str):
    assert show(topogate, build_cluster(), name).startswith(begin)


def test_name_of_several_objects_is_refused_with_each_of_them(topogate: Commands):
    documents = [*build_nodes(), *build_queues(), *build_queued_job(build_job("main", 1))]
    ran = topogate.run("explain", "main", "--nodes", topogate.write("cluster.yaml", *documents))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nothing-like-it"], "nothing-like-it"),
        (["j11"], "job j1"),
        (["node", "n-0-0-9"], "node n-0-0-9"),
        (["clusterqueue", "reserch"], "research"),
        (["localqueue", "x", "-n", "other"], "LocalQueue x"),
        (["cronjob", "x"], "CronJob x"),
        (["deployment", "x"], "Deployment x"),
    ],
)
def test_missing_object_of_any_kind_is_named_in_one_line(topogate: Commands, words: list[str], named: str):
    ran = topogate.run("explain", *words, "--nodes", topogate.write("cluster.yaml", *build_cluster()))
    assert (ran.code, ran.out) == (1, "")
    assert named in ran.err
    assert ran.err.count("\n") == 1

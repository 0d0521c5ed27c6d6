"""`topogate plan` offline: what it says is what the engine decides, and bad input is told whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.reporting.report import report_refusal
from core.model.admission import Admission
from core.model.pod_resources import parse_resources
from core.model.podset import Mode, PodSetRequest, TopologyRequest
from core.names import MIN_PARALLELISM, PODSET_GROUP_NAME, REQUIRED_TOPOLOGY, SLICE_REQUIRED_TOPOLOGY, SLICE_SIZE
from core.placement.algorithms.profile import STANDARD
from core.placement.engine import place
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.tree import NodeLabels, TopologyTree
from core.queueing.flavors.outcome import Admissible, NotAdmissible, Preempting
from tests.cli.commands import BLOCK, EXAMPLES, HOST, RACK, Commands, build_job, build_node, build_nodes, build_queues
from tests.cli.lives import NOW, build_queued_job, decide_documents
from tests.podgroups.devices import build_device_class, build_resource_slice, build_template


def place_by_engine(cluster: list[Any], request: PodSetRequest) -> dict[str, int]:
    """Pods per node as the engine itself places them."""
    labels = [NodeLabels(each["metadata"]["name"], each["metadata"]["labels"]) for each in cluster]
    states = {each["metadata"]["name"]: NodeState(parse_resources(each["status"]["allocatable"])) for each in cluster}
    decision = place(FreeCapacity(TopologyTree((BLOCK, RACK, HOST), labels), states), [request], STANDARD.default)
    (placement,) = decision.placements
    return {domain.values[-1]: domain.count for domain in placement.assignment.domains}


@pytest.mark.parametrize(
    ("mode", "level", "pods", "gpus"), [("required", RACK, 4, 8), ("required", BLOCK, 7, 8), ("preferred", RACK, 13, 4)]
)
def test_a_job_that_fits_is_placed_as_the_engine_places_it(topogate: Commands, mode: str, level: str, pods: int, gpus: int):
    cluster = build_nodes()
    file = topogate.write("nodes.yaml", *cluster, *build_queues())
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", build_job("a", pods, gpus, **{mode: level})), "--nodes", file, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    (told,) = ran.data["jobs"]
    assert (told["outcome"], told["clusterQueue"]) == ("admitted", "research")
    (pod_set,) = told["podSets"]
    request = PodSetRequest("main", pods, {"cpu": 1000, "nvidia.com/gpu": gpus}, TopologyRequest(Mode(mode), level))
    assert {domain["values"][-1]: domain["count"] for domain in pod_set["domains"]} == place_by_engine(cluster, request)
    assert [len(domain["values"]) for domain in pod_set["domains"]] == [3] * len(pod_set["domains"])


def test_plan_of_a_ray_job_counts_the_pod_that_submits_it(topogate: Commands):
    """KubeRay's CRD fills in the mode by which there is one, and no file has it."""
    file = topogate.write("nodes.yaml", *build_nodes(), *build_queues())
    (planned,) = topogate.run("plan", "-f", EXAMPLES / "kinds" / "rayjob.yaml", "--nodes", file, "-o", "json").data["jobs"]
    assert [(pod_set["name"], pod_set["count"]) for pod_set in planned["podSets"]] == [("head", 1), ("workers", 8), ("submitter", 1)]


def test_plan_of_a_job_with_unjudged_fields_names_them(topogate: Commands):
    spread = build_job("a", 4, required=RACK)
    constraint = {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
    spread["spec"]["template"]["spec"]["topologySpreadConstraints"] = [constraint]
    file = topogate.write("nodes.yaml", *build_nodes(), *build_queues())
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", spread), "--nodes", file, "-o", "json")
    assert ran.code == 0
    (planned,) = ran.data["jobs"]
    assert planned["why"][-1].endswith("; not judged: topologySpreadConstraints")


def test_plan_counts_pods_as_the_api_server_creates_them(topogate: Commands):
    """Former defect: overhead and place of a RuntimeClass and defaults of a LimitRange were left out."""
    cluster = build_nodes(blocks=1, racks=1, cpu="8")
    cluster[0]["metadata"]["labels"]["runtime"] = "kata"
    kata = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"}
    kata |= {"overhead": {"podFixed": {"cpu": "3"}}, "scheduling": {"nodeSelector": {"runtime": "kata"}}}
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits", "namespace": "default"}}
    limits |= {"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]}}
    asked = [build_job(name, pods, 1, required=RACK) for name, pods in (("fits", 2), ("waits", 1))]
    for each in asked:
        each["metadata"]["namespace"] = "default"
        each["spec"]["template"]["spec"]["runtimeClassName"] = "kata"
        del each["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    file = topogate.write("nodes.yaml", *cluster, *build_queues(), kata, limits)
    ran = topogate.run("plan", "-f", topogate.write("jobs.yaml", *asked), "--nodes", file, "-o", "json")
    fits, waits = ran.data["jobs"]
    assert (fits["outcome"], waits["outcome"]) == ("admitted", "waits")
    (pod_set,) = fits["podSets"]
    assert [(each["values"][-1], each["count"]) for each in pod_set["domains"]] == [("n-0-0-0", 2)]


def test_plan_of_a_job_that_fits_nowhere_suggests_a_change(topogate: Commands):
    file = topogate.write("nodes.yaml", *build_nodes(), *build_queues())
    ran = topogate.run("plan", "-f", EXAMPLES / "job-one-rack.yaml", "--nodes", file)
    assert ran.code == 3
    assert "would wait: TopologyPlacementFailed" in ran.out
    assert f"best {RACK} b0/b0-r0: 8 of 16 pods, short of 32 nvidia.com/gpu" in ran.out
    assert f"would fit: in one {BLOCK}" in ran.out


def test_plan_of_two_jobs_counts_quota_of_the_first_for_the_second(topogate: Commands):
    file = topogate.write("nodes.yaml", *build_nodes(), *build_queues(gpus=40))
    jobs = topogate.write("jobs.yaml", build_job("first", 4, required=RACK), build_job("second", 4, required=RACK))
    ran = topogate.run("plan", "-f", jobs, "--nodes", file, "-o", "json")
    assert ran.code == 3
    first, second = ran.data["jobs"]
    assert first["outcome"] == "admitted"
    assert (second["outcome"], second["reason"]) == ("waits", "WaitingForQuota")


def test_nodes_that_take_no_pods_are_counted_out_with_the_reason(topogate: Commands):
    cluster = build_nodes(blocks=1, racks=1)
    cluster[0]["spec"] = {"unschedulable": True}
    cluster[1]["status"]["conditions"][0]["status"] = "False"
    file = topogate.write("nodes.yaml", *cluster, *build_queues())
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", build_job("a", 4, required=RACK)), "--nodes", file, "-o", "json")
    (attempt,) = ran.data["jobs"][0]["attempts"]
    assert {(one["reason"], one["count"], one["example"]) for one in attempt["excluded"]} == {
        ("unschedulable", 1, "n-0-0-0"),
        ("NotReady", 1, "n-0-0-1"),
    }


def test_plan_counts_usage_of_running_pods(topogate: Commands):
    cluster = build_nodes(blocks=1, racks=1)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other", "namespace": "default"},
        "spec": {"nodeName": "n-0-0-0", "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Running"},
    }
    file, wanted = (
        topogate.write("nodes.yaml", *cluster, *build_queues(), pod),
        topogate.write("job.yaml", build_job("a", 4, required=RACK)),
    )
    ran = topogate.run("plan", "-f", wanted, "--nodes", file)
    assert ran.code == 3
    assert "3 of 4 pods" in ran.out


def test_a_job_that_is_there_already_is_planned_as_one_more_and_that_is_said(topogate: Commands):
    asked = build_job("a", 4, required=RACK)
    file, wanted = (
        topogate.write("nodes.yaml", *build_nodes(), *build_queues(), asked),
        topogate.write("job.yaml", asked, build_job("b", 4, required=RACK)),
    )
    ran = topogate.run("plan", "-f", wanted, "--nodes", file)
    assert ran.code == 0
    (warning,) = ran.err.splitlines()
    assert warning.startswith("topogate: warning: Job default/a: ")


def test_plan_of_a_job_that_the_webhook_refuses_reports_each_field(topogate: Commands):
    file = topogate.write("nodes.yaml", *build_nodes(), *build_queues())
    ran = topogate.run("plan", "-f", EXAMPLES / "job-three-mistakes.yaml", "--nodes", file)
    assert ran.code == 2
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert len(lines) == 3
    assert all("job-three-mistakes.yaml: document 1: Job " in line and "spec.template.metadata.annotations" in line for line in lines)


def test_a_job_without_a_queue_is_left_alone_unless_its_namespace_is_managed(topogate: Commands):
    file, wanted = topogate.write("nodes.yaml", *build_nodes(), *build_queues()), topogate.write("job.yaml", build_job("a", 1, queue=None))
    ran = topogate.run("plan", "-f", wanted, "--nodes", file)
    assert ran.code == 2
    assert "kueue.x-k8s.io/queue-name is missing" in ran.err
    documents = build_queues()
    documents[-1]["metadata"]["name"] = "default"
    managed = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"topogate.dev/managed": "true"}}}
    ran = topogate.run("plan", "-f", wanted, "--nodes", topogate.write("managed.yaml", *build_nodes(), *documents, managed))
    assert ran.code == 0, ran.err


def test_plan_reports_all_mistakes_of_all_files_with_file_document_and_field(topogate: Commands):
    first, second = build_node("n1", {RACK: 7}), build_node("n2", cpu="many")  # type: ignore[dict-item]
    broken = build_queues()
    broken[1]["spec"]["topologyNam"] = "default"
    broken[2]["spec"]["queueingStrategy"] = "Random"
    one, other = topogate.write("nodes.yaml", first), topogate.write("rest.yaml", second, *broken, build_node("n2"))
    ran = topogate.run("plan", "-f", EXAMPLES / "job-three-mistakes.yaml", "--nodes", one, "--nodes", other)
    assert (ran.code, ran.out) == (2, "")
    lines = ran.err.splitlines()
    assert len(lines) == 8
    assert lines[0].startswith(f"topogate: {one}: document 1: metadata.labels[{RACK}]: 7 ")
    assert f"{other}: document 1: Node n2: status.allocatable.cpu: 'many' " in lines[1]
    assert f"{other}: document 3: ResourceFlavor gpu: spec.topologyNam: " in lines[2]
    assert f"{other}: document 4: ClusterQueue research: spec.queueingStrategy: " in lines[3]
    assert "document 6: Node n2: metadata.name: " in lines[4]
    assert all("job-three-mistakes.yaml" in line for line in lines[5:])


def test_each_wrong_amount_of_an_object_is_named_with_its_field(topogate: Commands):
    """A Node with three read of one, and a Pod of an exception in Python."""
    wrong: Any = build_node("n1")
    wrong["status"]["allocatable"] |= {"cpu": "lots", "memory": -5, "pods": 1.5, "example.com/gpu": "2500m"}
    container = {"name": "c", "resources": {"requests": {"cpu": "-1"}, "limits": {"memory": "much"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container], "overhead": {"cpu": "x"}}}
    odd = {**pod, "metadata": {"name": "q"}, "spec": {"containers": [{"name": "c", "ports": [7]}]}}
    documents: Any = build_queues()
    documents[2]["spec"] |= {"queueingStrategy": "Random", "stopPolicy": "Never"}
    documents[2]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "x"
    documents[0]["spec"]["levels"] = []
    file = topogate.write("wrong.yaml", wrong, pod, odd, *documents)
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", build_job("a", 1)), "--nodes", file)
    assert ran.code == 2
    lines = [line.partition(": document ")[2].partition(": ")[2] for line in ran.err.splitlines()]
    expected = [
        "Node n1: status.allocatable.cpu: 'lots' ",
        "Node n1: status.allocatable[example.com/gpu]: '2500m' ",
        "Node n1: status.allocatable.memory: -5 ",
        "Node n1: status.allocatable.pods: 1.5 ",
        "Pod p: spec.containers[0].resources.requests.cpu: '-1' ",
        "Pod p: spec.containers[0].resources.limits.memory: 'much' ",
        "Pod p: spec.overhead.cpu: 'x' ",
        "Pod q: ",
        "Topology default: spec.levels: ",
        'ClusterQueue research: spec.queueingStrategy: "Random" ',
        "ClusterQueue research: spec.stopPolicy: ",
        "ClusterQueue research: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
    ]
    assert len(lines) == len(expected), ran.err
    assert [line[: len(start)] for line, start in zip(lines, expected, strict=True)] == expected
    assert "Error" not in ran.err
    assert "InvalidQuantity" not in ran.err


def test_a_list_stands_for_its_items(topogate: Commands):
    items: list[Any] = [*build_nodes(), *build_queues()]
    file = topogate.write("list.yaml", {"apiVersion": "v1", "kind": "List", "items": items})
    assert topogate.run("plan", "-f", topogate.write("job.yaml", build_job("a", 4, required=RACK)), "--nodes", file).code == 0
    items[3]["status"]["allocatable"]["cpu"] = "x"
    file = topogate.write("list.yaml", {"apiVersion": "v1", "kind": "List", "items": items})
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", build_job("a", 4)), "--nodes", file)
    assert f"{file}: document 1, item 4: Node n-0-0-3: status.allocatable.cpu" in ran.err


OFFLINE = (EXAMPLES / "offline" / "nodes.yaml", EXAMPLES / "queues.yaml")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("jobset", [("JobSet", "driver-and-workers", None, [("driver", 1), ("workers", 16)])]),
        ("statefulset", [("StatefulSet", "serving", None, [("main", 4)])]),
        ("deployment", [("Deployment", "notebooks", replica, [("main", 1)]) for replica in range(3)]),
        ("pod-group", [("PodGroup", "pair", None, [("ce9a01f0", 2)])]),
    ],
)
def test_every_kind_of_the_examples_is_planned_workload_by_workload(topogate: Commands, name: str, found: list[Any]):
    ran = topogate.run("plan", "-f", EXAMPLES / f"{name}.yaml", "--nodes", OFFLINE[0], "--nodes", OFFLINE[1], "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    told = ran.data["jobs"]
    assert [(each["kind"], each["name"], each.get("replica"), [(p["name"], p["count"]) for p in each["podSets"]]) for each in told] == found
    for pod_set in (pod_set for each in told for pod_set in each["podSets"]):
        assert sum(domain["count"] for domain in pod_set["domains"]) == pod_set["count"]


def test_each_replica_of_a_leaderworkerset_is_a_workload(topogate: Commands):
    template = build_job("x", 1, 8, required=RACK)["spec"]["template"]
    spec = {"replicas": 5, "leaderWorkerTemplate": {"size": 4, "workerTemplate": template}}
    metadata = {"name": "serve", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    wanted = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}
    ran = topogate.run("plan", "-f", topogate.write("lws.yaml", wanted), "--nodes", OFFLINE[0], "--nodes", OFFLINE[1], "-o", "json")
    assert ran.code == 3
    assert [(each["replica"], each["outcome"]) for each in ran.data["jobs"]] == [(i, "admitted" if i < 4 else "waits") for i in range(5)]
    racks = [each["podSets"][0]["domains"][0]["values"][1] for each in ran.data["jobs"][:4]]
    assert sorted(racks) == ["a1", "a2", "b1", "b2"]


def test_a_pod_group_that_is_not_whole_waits_and_one_that_contradicts_itself_is_bad_input(topogate: Commands):
    first, second = yaml.safe_load_all((EXAMPLES / "pod-group.yaml").read_text())
    ran = topogate.run("plan", "-f", topogate.write("pods.yaml", first), "--nodes", OFFLINE[0], "--nodes", OFFLINE[1])
    assert ran.code == 3
    assert "group pair waits for 1 more pod; it is queued when all are there" in ran.out
    second["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "3"
    ran = topogate.run("plan", "-f", topogate.write("pods.yaml", first, second), "--nodes", OFFLINE[0], "--nodes", OFFLINE[1])
    assert ran.code == 2
    assert "pods of group pair differ in their total count" in ran.err


def test_report_of_a_refusal_names_those_that_are_preempted_once_observed():
    waits = Preempting(Admissible(Admission("q", ()), (), ()), (), ("ns/gone",), unseen=("ns/new",))
    told = report_refusal(NotAdmissible("WaitingForPreemptedWorkloads", "waits", (), preempting=waits))
    assert told["preempting"] == {"victims": [], "leaving": ["ns/gone"], "admittedJustNow": ["ns/new"]}


def test_plan_of_a_preempting_job_names_its_victims(topogate: Commands):
    documents = decide_documents(
        [
            *build_nodes(blocks=1),
            *build_queues(preemption={"withinClusterQueue": "LowerPriority"}),
            *build_queued_job(build_job("low", 5, required=BLOCK)),
        ]
    )
    high = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}
    wanted = build_job("urgent", 8, required=BLOCK)
    wanted["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
    files: list[str | Path] = ["-f", topogate.write("job.yaml", wanted), "--nodes", topogate.write("cluster.yaml", *documents, high)]
    ran = topogate.run("plan", *files)
    assert ran.code == 3
    assert "would wait: WaitingForPreemptedWorkloads" in ran.out
    assert "to be preempted: default/job-low-" in ran.out
    (told,) = topogate.run("plan", *files, "-o", "json").data["jobs"]
    assert [victim["why"] for victim in told["preempting"]["victims"]] == ["prioritization in the ClusterQueue"]
    wanted["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "hihg"
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", wanted), *files[2:])
    assert ran.code == 3
    assert 'would wait: NotQueued\n  WorkloadPriorityClass "hihg" does not exist; there are high' in ran.out


def test_with_admission_checks_it_would_get_quota_and_wait(topogate: Commands):
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": NOW}
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "budget"},
        "spec": {"controllerName": "example.com/budget"},
        "status": {"conditions": [active]},
    }
    cluster = [*build_nodes(), *build_queues(admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]}), check]
    wanted = topogate.write("job.yaml", build_job("a", 2, required=RACK))
    ran = topogate.run("plan", "-f", wanted, "--nodes", topogate.write("cluster.yaml", *cluster))
    assert ran.code == 3
    assert "would wait: QuotaReserved\n  it would get its quota, and then wait for admission checks: budget" in ran.out


def test_the_reconcilers_own_settings_decide_here_too(topogate: Commands):
    wanted, cluster = (
        topogate.write("job.yaml", build_job("a", 12, preferred=RACK)),
        topogate.write("cluster.yaml", *build_nodes(), *build_queues()),
    )
    ours = {"topogate": {"placementProfile": "compact"}}
    config = topogate.write("config.yaml", {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **ours})
    for settings in (["--placement-profile", "compact"], ["--config", str(config)]):
        assert "no answer is more compact" in topogate.run("plan", "-f", wanted, "--nodes", cluster, *settings).out
    assert "more compact" not in topogate.run("plan", "-f", wanted, "--nodes", cluster).out
    broken = topogate.write("broken.yaml", {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "topogat": {}})
    ran = topogate.run("plan", "-f", wanted, "--nodes", cluster, "--config", broken)
    assert ran.code == 2
    assert "topogat: unknown key; did you mean topogate?" in ran.err


def test_slices_in_a_group_are_planned_where_the_configuration_has_the_gate(topogate: Commands):
    shared = {PODSET_GROUP_NAME: "g", REQUIRED_TOPOLOGY: BLOCK}
    template = build_job("a", 1, 8)["spec"]["template"]
    roles = {
        role: {"replicas": count, "template": {**template, "metadata": {"annotations": {**shared, **notes}}}}
        for role, count, notes in (("Master", 1, {}), ("Worker", 4, {SLICE_REQUIRED_TOPOLOGY: RACK, SLICE_SIZE: "2"}))
    }
    metadata = build_job("a", 1)["metadata"]
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": roles}}
    wanted, cluster = topogate.write("job.yaml", job), topogate.write("cluster.yaml", *build_nodes(), *build_queues())
    refused = topogate.run("plan", "-f", wanted, "--nodes", cluster)
    assert refused.code == 2
    assert "with feature gate TASGroupedPodSetSlicing a group may have slices" in refused.err
    gates = {"featureGates": {"TASGroupedPodSetSlicing": True}}
    config = topogate.write("config.yaml", {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **gates})
    planned = topogate.run("plan", "-f", wanted, "--nodes", cluster, "--config", config, "-o", "json")
    assert (planned.code, planned.data["jobs"][0]["outcome"]) == (0, "admitted")


def test_claims_of_devices_are_planned_where_the_configuration_maps_their_class(topogate: Commands):
    job = build_job("a", 4, 0, required=RACK)
    job["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    slices = [build_resource_slice(name, 2, node=name) for name in ("n-0-0-0", "n-0-0-1", "n-0-0-2", "n-1-1-0", "n-1-1-1")]
    there = *build_nodes(), *build_queues(), build_device_class(), *slices, build_template(namespace="default")
    wanted, cluster = topogate.write("job.yaml", job), topogate.write("cluster.yaml", *there)
    refused = topogate.run("plan", "-f", wanted, "--nodes", cluster)
    assert (refused.code, "resources.deviceClassMappings" in refused.err) == (2, True)
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    mapping = {"resources": {"deviceClassMappings": [{"name": "nvidia.com/gpu", "deviceClassNames": ["gpu.example.com"]}]}}
    config = topogate.write("config.yaml", {**head, **mapping})
    run = "plan", "-f", wanted, "--nodes", cluster, "--config", config
    planned = topogate.run(*run, "-o", "json", "--feature-gates", "KueueDRADeviceFeasibility=true")
    assert (planned.code, planned.data["jobs"][0]["outcome"]) == (0, "admitted")
    assert "n-1-1-0" in str(planned.data)
    wide = {**job, "metadata": {**job["metadata"], "name": "b"}, "spec": {**job["spec"], "parallelism": 7, "completions": 7}}
    waiting = topogate.run("plan", "-f", topogate.write("wide.yaml", wide), *run[3:], "--feature-gates", "KueueDRADeviceFeasibility=true")
    assert waiting.code == 3
    assert "devices of class gpu.example.com" in waiting.out
    assert "nvidia.com/gpu" in topogate.run(*run, "-o", "json").out


def test_files_may_be_json(topogate: Commands, tmp_path: Path):
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": build_nodes()}))
    (tmp_path / "flow.yaml").write_text("{apiVersion: v1, kind: Namespace, metadata: {name: default}}")
    files: list[str | Path] = [
        "--nodes",
        tmp_path / "nodes.json",
        "--nodes",
        tmp_path / "flow.yaml",
        "--nodes",
        topogate.write("queues.yaml", *build_queues()),
    ]
    assert topogate.run("plan", "-f", topogate.write("job.yaml", build_job("a", 2)), *files).code == 0
    (tmp_path / "nodes.json").write_text('{"apiVersion": "v1",\n "kind": ]')
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", build_job("a", 2)), *files)
    assert ran.code == 2
    assert f"{tmp_path / 'nodes.json'}: YAML syntax error: " in ran.err
    assert "in line 2" in ran.err
    (tmp_path / "nodes.json").write_text('{"a":' * 5000)
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", build_job("a", 2)), *files)
    assert (ran.code, "this is a bug" in ran.err) == (2, False), ran.err


def least(asked: dict[str, Any], fewest: int) -> dict[str, Any]:
    """A job that accepts fewer pods."""
    asked["metadata"]["annotations"] = {**asked["metadata"].get("annotations", {}), MIN_PARALLELISM: str(fewest)}
    return asked


def test_plan_of_a_job_with_fewer_pods_reports_the_asked_count_with_the_reason(topogate: Commands):
    file = topogate.write("nodes.yaml", *build_nodes(blocks=1, racks=1), *build_queues())
    asked = topogate.write("job.yaml", least(build_job("a", 12, required=RACK), 3))
    ran = topogate.run("plan", "-f", asked, "--nodes", file)
    assert ran.code == 0
    assert f"pod set main: 4 of the 12 pods that it asked for ({MIN_PARALLELISM} accepts 3 or more), flavor gpu" in ran.out
    assert "why fewer pods: couldn't assign flavors to pod set main: " in ran.out
    (planned,) = topogate.run("plan", "-f", asked, "--nodes", file, "-o", "json").data["jobs"]
    assert [(each["count"], each["asked"], each["minimum"]) for each in planned["podSets"]] == [(4, 12, 3)]
    assert "allows to fit only 4 out of 12 pod(s)" in planned["fewerSince"]


def test_plan_of_a_job_with_a_minimum_that_does_not_fit_has_two_headings(topogate: Commands):
    file = topogate.write("nodes.yaml", *build_nodes(blocks=1, racks=1), *build_queues())
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", least(build_job("a", 12, required=RACK), 10)), "--nodes", file)
    assert ran.code == 3
    assert f"; the minimum of {MIN_PARALLELISM} (10 of 12 pods of pod set main) does not fit either\n" in ran.out
    assert "\n  pod set main, flavor gpu: " in ran.out
    assert "\n  pod set main with 10 pods, flavor gpu: " in ran.out
    assert ".;" not in ran.out


def test_plan_of_a_resource_without_quota_has_no_empty_name_of_a_flavor(topogate: Commands):
    asked = build_job("a", 1)
    asked["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["example.com/license"] = "1"
    file = topogate.write("nodes.yaml", *build_nodes(blocks=1), *build_queues())
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", asked), "--nodes", file)
    assert "\n  pod set main: NoMatchingFlavor\n" in ran.out


def test_job_of_another_namespace_than_the_given_one_is_refused(topogate: Commands):
    """As kubectl does; it was planned in the namespace of the file."""
    files: list[str | Path] = [
        "-f",
        topogate.write("job.yaml", build_job("a", 1)),
        "--nodes",
        topogate.write("cluster.yaml", *build_nodes(), *build_queues()),
    ]
    ran = topogate.run("plan", *files, "-n", "nowhere")
    assert (ran.code, ran.out) == (2, "")
    assert "metadata.namespace: 'default' is not accepted; 'nowhere' is expected" in ran.err
    assert topogate.run("plan", *files, "-n", "default").code == 0
    assert topogate.run("plan", *files).code == 0

"""The command beside a running topogate: what it says is what the conditions say, what then happens, and what the nodes have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from core.model.quantity import show_count
from core.names import QUEUE_NAME_LABEL, REASON_TOPOLOGY_PLACEMENT_FAILED, REASON_WAITING_FOR_QUOTA
from core.plan.workloads.admission_status import PLACED
from e2e import manifests
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.cli.commands import EXAMPLES, Commands, Ran
from tests.e2e.users import RBAC, bound_everywhere
from tests.installed import Installed
from tests.reconciler.scenes import GPU, Scene


@pytest.fixture(scope="module")
def running(installed: Installed) -> Topogate:
    return installed.run()


@pytest.fixture
def scene(cluster: Cluster, running: Topogate) -> Iterator[Scene]:
    """One block of two racks of two nodes with eight GPUs each, and a queue with quota for 30 of the 32."""
    opened = Scene(cluster).open(quota=30)
    yield opened
    opened.close()


def build_live_arguments(scene: Scene, *arguments: str) -> list[str]:
    return [*arguments, "--kubeconfig", str(scene.cluster.kubeconfig), "-n", scene.namespace]


def run_plan(topogate: Commands, scene: Scene, job: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    file = topogate.write("job.yaml", job)
    ran = topogate.run(*build_live_arguments(scene, "plan", "-f", str(file), "-o", "json"))
    assert ran.err == ""
    (told,) = ran.data["jobs"]
    return ran.code, told


def count_pods_per_node(scene: Scene, now: truth.Snapshot, name: str) -> Counter[str]:
    return Counter(str(pod["spec"]["nodeName"]) for pod in now.pods_of(name))


def list_admission_messages(now: truth.Snapshot, job: str) -> list[str]:
    """What the events of a job's admission say of its place."""
    events = [event for event in now.events if event["involvedObject"]["name"].startswith(f"job-{job}-")]
    return [event["message"].partition(PLACED)[2] for event in events if event["reason"] == "Admitted"]


def test_pod_group_on_a_used_cluster_is_planned_and_explained(topogate: Commands, scene: Scene):
    scene.submit("neighbour", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("neighbour", 2)
    documents = list(yaml.safe_load_all((EXAMPLES / "offline" / "podgroup.yaml").read_text()))
    for document in documents:
        document["metadata"]["namespace"] = scene.namespace
    documents[0]["spec"]["schedulingConstraints"]["topologyConstraints"] = [{"level": scene.rack}]
    documents[1]["spec"]["template"]["spec"]["nodeSelector"] = dict(scene.pool.labels)  # a group has no queue that keeps it to them
    file = topogate.write("group.yaml", *documents)
    ran = topogate.run(*build_live_arguments(scene, "plan", "-f", str(file), "-o", "json"))
    (told,) = ran.data["jobs"]
    fits = {one["name"]: one["fit"] for one in told["placements"] if scene.prefix in one["name"]}
    assert (ran.code, sorted(fits.values())) == (3, [0, 2]), fits
    scene.api.create(f"/apis/topogate.dev/v1alpha1/namespaces/{scene.namespace}/podgroups", documents[0])
    explained = topogate.run(*build_live_arguments(scene, "explain", "podgroup", "one-rack"))
    assert "asks for: at least 4 pods at once" in explained.out
    assert "no pod names it" in explained.out


def test_explain_of_a_waiting_job_shows_exactly_its_condition_message(topogate: Commands, scene: Scene):
    scene.submit("large", pods=3, gpus=8, required=scene.rack)
    sentence = scene.until_waiting("large", REASON_TOPOLOGY_PLACEMENT_FAILED)
    ran = topogate.run(*build_live_arguments(scene, "explain", "job", "large"))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count(sentence) == 1
    assert "now:" not in ran.out
    told = topogate.run(*build_live_arguments(scene, "explain", "job/large", "-o", "yaml"))
    report = yaml.safe_load(told.out)
    assert report["condition"]["message"] == report["now"]["message"] == sentence
    (attempt,) = report["now"]["attempts"]
    assert [(level["level"], level["fit"], level["wanted"]) for level in attempt["levels"]] == [(scene.rack, 2, 3), (scene.block, 4, 3)]


def test_plan_of_a_job_agrees_with_its_later_placement(topogate: Commands, scene: Scene):
    scene.submit("first", pods=3, gpus=4, required=scene.rack)
    scene.until_bound("first", 3)
    asked = manifests.build_job("second", scene.namespace, pods=4, gpus=4, preferred=scene.rack)
    code, told = run_plan(topogate, scene, asked)
    assert (code, told["outcome"], told["clusterQueue"]) == (0, "admitted", f"{scene.prefix}queue")
    scene.create(asked)
    now = scene.until_bound("second", 4)
    assert {domain["values"][-1]: domain["count"] for domain in told["podSets"][0]["domains"]} == count_pods_per_node(scene, now, "second")

    said = scene.eventually("the event of the admission", lambda now: list_admission_messages(now, "second"))
    ran = topogate.run(*build_live_arguments(scene, "explain", "job", "second"))
    assert "state: admitted" in ran.out
    (then,) = list_admission_messages(said, "second")
    assert f"why there, when it was admitted: {then}\n" in ran.out
    assert "pods: 4 live, 4 on nodes, 0 gated" in ran.out
    assert all(f"/{node}  {show_count(count, 'pod')}\n" in ran.out for node, count in count_pods_per_node(scene, now, "second").items())
    assert f"why there, as things are now: pod set main: {scene.rack} " in ran.out


def test_plan_of_a_job_that_will_wait_agrees_with_its_later_condition(topogate: Commands, scene: Scene):
    scene.submit("first", pods=3, gpus=8)
    scene.until_bound("first", 3)
    asked = manifests.build_job("second", scene.namespace, pods=2, gpus=4, required=scene.rack)
    code, told = run_plan(topogate, scene, asked)
    assert (code, told["outcome"], told["reason"]) == (3, "waits", REASON_WAITING_FOR_QUOTA)
    scene.create(asked)
    assert scene.until_waiting("second", REASON_WAITING_FOR_QUOTA) == told["message"]


def test_plan_of_a_stateful_set_agrees_with_its_later_placement(topogate: Commands, scene: Scene):
    template = manifests.build_job("x", scene.namespace, pods=1, gpus=4, required=scene.rack)["spec"]["template"]
    template["metadata"]["labels"] = {"app": "web"}
    del template["spec"]["restartPolicy"]
    asked = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web", "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}},
        "spec": {
            "replicas": 3,
            "serviceName": "web",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
        },
    }
    code, told = run_plan(topogate, scene, asked)
    assert (code, told["kind"], told["outcome"]) == (0, "StatefulSet", "admitted")
    scene.create(asked)
    try:
        now = scene.eventually(
            "pods on nodes", lambda now: len([p for p in now.pods_in(scene.namespace) if p["spec"].get("nodeName")]) == 3
        )
        bound = Counter(str(pod["spec"]["nodeName"]) for pod in now.pods_in(scene.namespace))
        assert {domain["values"][-1]: domain["count"] for domain in told["podSets"][0]["domains"]} == bound
        for words in (["statefulset", "web"], ["pod/web-0"]):
            ran = topogate.run(*build_live_arguments(scene, "explain", *words))
            assert "(for StatefulSet web)" in ran.out
            assert "state: admitted" in ran.out
    finally:
        scene.api.delete(f"/apis/apps/v1/namespaces/{scene.namespace}/statefulsets/web")


def test_deployment_is_explained_with_the_workload_of_each_pod(topogate: Commands, scene: Scene):
    template = manifests.build_job("x", scene.namespace, pods=1, gpus=4, required=scene.rack)["spec"]["template"]
    template["metadata"]["labels"] = {"app": "web"}
    del template["spec"]["restartPolicy"]
    metadata = {"name": "web", "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    scene.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    try:
        now = scene.eventually("pods on nodes", lambda now: sum(bool(p["spec"].get("nodeName")) for p in now.pods_in(scene.namespace)) == 2)
        names = sorted(pod["metadata"]["name"] for pod in now.pods_in(scene.namespace))
        ran = topogate.run(*build_live_arguments(scene, "explain", "deploy", "web", "-o", "json"))
        assert (ran.code, ran.err) == (0, "")
        assert (ran.data["queue"], ran.data["states"]) == ("main", {"admitted": 2})
        assert sorted(row["name"] for row in ran.data["pods"]) == names
        assert all(row["workload"].startswith(f"pod-{row['name']}-") for row in ran.data["pods"])
    finally:
        scene.api.delete(f"/apis/apps/v1/namespaces/{scene.namespace}/deployments/web")


def test_the_counts_of_a_topology_agree_with_its_nodes(topogate: Commands, scene: Scene):
    scene.submit("first", pods=3, gpus=4, required=scene.rack)
    now = scene.until_bound("first", 3)
    used = count_pods_per_node(scene, now, "first")
    ran = topogate.run("topology", f"{scene.prefix}topology", "-o", "json", "--kubeconfig", str(scene.cluster.kubeconfig))
    assert (ran.code, ran.err) == (0, "")
    (flavor,) = json.loads(ran.out)["topologies"][0]["flavors"]
    hosts = [host for block in flavor["domains"] for rack in block["domains"] for host in rack["domains"]]
    mine = {name: node for name, node in now.nodes.items() if name.startswith(scene.prefix)}
    assert {host["values"][-1]: host["capacity"][GPU] for host in hosts} == {
        name: node["status"]["allocatable"][GPU] for name, node in mine.items()
    }
    assert {host["values"][-1]: int(host["used"][GPU]) for host in hosts} == {name: 4 * used[name] for name in mine}
    racks = [rack for block in flavor["domains"] for rack in block["domains"]]
    assert all(int(rack["used"][GPU]) == sum(int(host["used"][GPU]) for host in rack["domains"]) for rack in racks)
    assert [(rack["nodes"], rack["usable"], rack["capacity"][GPU]) for rack in racks] == [(2, 2, "16")] * 2
    assert sorted(rack["fits"] for rack in racks) == [4, 16]

    drawn = topogate.run("topology", f"{scene.prefix}topology", "--seats", "--kubeconfig", str(scene.cluster.kubeconfig))
    assert drawn.out.count("a") > 12
    assert "aaaaaaaa aaaa····" in drawn.out


def test_the_role_of_observers_is_enough_for_every_word(topogate: Commands, scene: Scene):
    scene.submit("first", pods=2, gpus=4, required=scene.rack)
    scene.eventually("the event of the admission", lambda now: list_admission_messages(now, "first"))
    file = topogate.write("job.yaml", manifests.build_job("second", scene.namespace, pods=1))
    words = (["explain", "job", "first", "-n", scene.namespace], ["plan", "-f", file], ["queue"], ["topology"], ["topology", "suggest"])
    config = scene.cluster.kubeconfig_for_service_account(scene.namespace, "default")
    with bound_everywhere(scene.api, scene.namespace, "topogate-observer", name="default"):
        scene.eventually("the binding to hold", lambda _: topogate.run("topology", "--kubeconfig", config).code == 0)
        told = [topogate.run(*each, "--kubeconfig", config) for each in words]
    assert [(ran.code, ran.err) for ran in told[:4]] == [(0, "")] * 4
    assert told[4].code == 0, told[4].err
    assert "why there, when it was admitted: " in told[0].out, "the role reads events"


def test_queue_is_shown_to_its_administrator_and_to_a_user_with_rights_in_one_namespace(topogate: Commands, scene: Scene):
    scene.submit("first", pods=3, gpus=8)
    scene.until_bound("first", 3)
    scene.submit("large", pods=3, gpus=8, required=scene.rack)
    scene.until_waiting("large", REASON_WAITING_FOR_QUOTA)
    (queue,) = topogate.run(*build_live_arguments(scene, "queue", "main", "-o", "json")).data["queues"]
    assert [(row["job"]["name"], row["position"], row["reason"]) for row in queue["waiting"]["workloads"]] == [
        ("large", 1, REASON_WAITING_FOR_QUOTA)
    ]
    (gpus,) = (use for use in queue["quota"] if use["resource"] == GPU)
    assert (gpus["used"], gpus["heldBy"]) == ("24", [{"localQueue": f"{scene.namespace}/main", "amount": "24"}])
    listed = scene.cluster.kubectl("get", "workloads", "-n", scene.namespace)
    assert "REASON" in listed.splitlines()[0]
    assert REASON_WAITING_FOR_QUOTA in listed

    subject = {"kind": "ServiceAccount", "name": "default", "namespace": scene.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "topogate-viewer"}
    scene.api.create(
        f"{RBAC.format(scene.namespace)}/rolebindings", {"metadata": {"name": "queue"}, "subjects": [subject], "roleRef": reference}
    )
    config = scene.cluster.kubeconfig_for_service_account(scene.namespace, "default")
    arguments = ["queue", "-n", scene.namespace, "-o", "json", "--kubeconfig", str(config)]
    scene.eventually("the binding to hold", lambda _: topogate.run(*arguments).code == 0)
    (mine,) = topogate.run(*arguments).data["queues"]
    assert [(row["job"]["name"], row["position"], row["localPosition"]) for row in mine["waiting"]["workloads"]] == [("large", None, 1)]
    assert [row["job"]["name"] for row in mine["holding"]["workloads"]] == ["first"]
    assert mine["waiting"]["others"] == {"count": None, "asks": None}
    assert any(f"ClusterQueue {scene.prefix}queue may not be read" in note for note in mine["notRead"])


def test_job_queue_and_node_are_explained_by_the_rights_of_the_user(topogate: Commands, scene: Scene):
    scene.submit("large", pods=3, gpus=8, required=scene.rack)
    sentence = scene.until_waiting("large", REASON_TOPOLOGY_PLACEMENT_FAILED)
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": scene.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "topogate-batch-user"}
    scene.api.create(
        f"{RBAC.format(scene.namespace)}/rolebindings", {"metadata": {"name": "explain"}, "subjects": [subject], "roleRef": reference}
    )
    config = str(scene.cluster.kubeconfig_for_service_account(scene.namespace, "default"))
    node = scene.prefix + "b1-r1-n1"

    def explain(*words: str) -> Ran:
        return topogate.run("explain", *words, "-n", scene.namespace, "--kubeconfig", config)

    scene.eventually("the binding to hold", lambda _: explain("job", "large").code == 0)
    ran = explain("job", "large")
    assert sentence in ran.out
    assert "topogate-observer" in ran.out
    assert explain("localqueue", "main").code == 0
    refused = explain("node", node)
    assert (refused.code, refused.out) == (1, "")
    assert "topogate-observer" in refused.err
    report = topogate.run(*build_live_arguments(scene, "explain", "node", node, "-o", "json")).data
    assert report["state"] == "usable"
    report = topogate.run(*build_live_arguments(scene, "explain", "clusterqueue", f"{scene.prefix}queue", "-o", "json")).data
    assert (report["state"], report["localQueues"]) == ("active", [f"{scene.namespace}/main"])


def test_command_without_rights_names_the_missing_right_and_the_cluster_role(topogate: Commands, scene: Scene):
    ran = topogate.run("topology", "--kubeconfig", str(scene.cluster.kubeconfig_for_service_account(scene.namespace, "default")))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("topogate: cannot list customresourcedefinitions.apiextensions.k8s.io: no permission: ")
    assert f"system:serviceaccount:{scene.namespace}:default" in ran.err
    assert "the ClusterRole topogate-observer of the chart permits it" in ran.err
    assert ran.err.count("\n") == 1

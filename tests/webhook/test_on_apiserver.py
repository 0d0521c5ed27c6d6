"""The webhook as users meet it: through the real API server, with kubectl, and when it is not there."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from core.names import (
    PODGROUP_TOPOLOGY,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    TOPOLOGY_GATE,
    UNCONSTRAINED_TOPOLOGY,
)
from e2e import manifests
from e2e.api import ApiError, wait_for
from e2e.audit.otlp import Receiver
from e2e.cluster import Cluster
from e2e.nodes import RACK_LABEL
from e2e.topogate import REGISTRATIONS, Topogate, build_managed_labels
from tests.installed import Installed
from tests.webhook.asking import MUTATE_JOB, VALIDATE_JOB
from webhook.registration import build_configurations

pytestmark = pytest.mark.usefixtures("topogate")
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def topogate(installed: Installed, receiver: Receiver) -> Topogate:
    return installed.run(otlp_endpoint=receiver.endpoint)


@pytest.fixture
def managed_namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace in which every job is topogate's, still without a LocalQueue."""
    name = f"managed-{next(_numbers)}"
    cluster.create_namespace(name, build_managed_labels())
    yield name
    cluster.delete_namespace(name)


def create(cluster: Cluster, obj: dict[str, Any], query: str = "") -> dict[str, Any]:
    return cluster.api.create(manifests.get_path(obj) + query, obj)


def kubectl_create(cluster: Cluster, obj: dict[str, Any], *more: str) -> tuple[bool, str]:
    """Whether kubectl could create it, and what it wrote to stderr."""
    options = ["--cache-dir", str(cluster.log_dir.parent / "kubectl-cache"), "--kubeconfig", str(cluster.kubeconfig)]
    command = [str(cluster.binaries["kubectl"]), *options, "create", "-f", "-", *more]
    done = subprocess.run(command, input=json.dumps(obj), capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr


def list_gates(job: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in job["spec"]["template"]["spec"].get("schedulingGates") or []]


def count_reviews(receiver: Receiver, name: str) -> Counter[str]:
    """How often each path of the webhook was asked about an object of this name."""
    spans = (span for span in receiver.list_spans() if span.name == "admission.review")
    return Counter(span.attributes["topogate.admission.path"] for span in spans if span.attributes.get("topogate.object.name") == name)


def test_the_api_server_takes_every_entry_as_it_is_registered(cluster: Cluster):
    for wanted in build_configurations("", {"url": "https://127.0.0.1"}):
        plural = wanted["kind"].lower() + "s"
        stored = cluster.api.get(f"{REGISTRATIONS}/{plural}/{wanted['metadata']['name']}")
        assert len(stored["webhooks"]) == len(wanted["webhooks"])
        for had, asked in zip(stored["webhooks"], wanted["webhooks"], strict=True):
            del asked["clientConfig"]
            assert {key: had.get(key) for key in asked} == asked


def test_a_job_with_three_mistakes_is_refused_with_three_messages_that_kubectl_shows(cluster: Cluster, namespace: str):
    mistakes = {UNCONSTRAINED_TOPOLOGY: "perhaps", SLICE_REQUIRED_TOPOLOGY: "not a label", SLICE_SIZE: "3"}
    created, shown = kubectl_create(cluster, manifests.build_job("wrong", namespace, pods=8, annotations=mistakes))
    assert not created
    path = "spec.template.metadata.annotations"
    for field, value, accepted in (
        (UNCONSTRAINED_TOPOLOGY, '"perhaps"', '"true" or "false" is expected'),
        (SLICE_REQUIRED_TOPOLOGY, '"not a label"', "a node label name such as cloud.provider.com/topology-rack is expected"),
        (SLICE_SIZE, '"3"', "one of 1, 2, 4, 8 is expected"),
    ):
        (line,) = [line for line in shown.splitlines() if f"{path}[{field}]" in line]
        assert value in line
        assert accepted in line
    assert shown.count(f"* {path}[") == 3, "as kubectl lists the mistakes that the API server itself finds"
    assert cluster.api.find(f"/apis/batch/v1/namespaces/{namespace}/jobs/wrong") is None


def test_programs_get_the_mistakes_as_causes(cluster: Cluster, namespace: str):
    wrong = manifests.build_job("wrong", namespace, pods=8, required="not a label", unconstrained="perhaps")
    with pytest.raises(ApiError) as refused:
        create(cluster, wrong)
    assert refused.value.status == 422
    assert len(refused.value.causes) == 3
    assert {cause["reason"] for cause in refused.value.causes} == {"FieldValueInvalid"}


def test_a_good_job_is_stored_suspended_with_the_gate(cluster: Cluster, namespace: str):
    stored = create(cluster, manifests.build_job("good", namespace, pods=2, required=RACK_LABEL))
    assert stored["spec"]["suspend"] is True
    assert list_gates(stored) == [TOPOLOGY_GATE]
    plain = create(cluster, manifests.build_job("plain", namespace, pods=2))
    assert plain["spec"]["suspend"] is True
    assert list_gates(plain) == [TOPOLOGY_GATE], "whatever it asks for: unsuspended by hand it must not slip past its queue"


def test_dry_run_of_a_job_returns_the_gated_job_and_stores_nothing(cluster: Cluster, namespace: str):
    job = manifests.build_job("dry", namespace, pods=2, required=RACK_LABEL)
    assert list_gates(create(cluster, job, "?dryRun=All")) == [TOPOLOGY_GATE]
    assert cluster.api.find(f"/apis/batch/v1/namespaces/{namespace}/jobs/dry") is None


def test_job_without_a_queue_is_not_changed_and_not_reviewed(cluster: Cluster, namespace: str, receiver: Receiver):
    stored = create(cluster, manifests.build_job("not-ours", namespace, pods=1, queue=None, required=RACK_LABEL))
    assert stored["spec"]["suspend"] is False
    assert list_gates(stored) == []
    assert "annotations" not in stored["metadata"]
    create(cluster, manifests.build_job("ours", namespace, pods=1))
    # Spans come in the order of their ends: those of the later job are here, so an earlier one would be, too.
    wait_for("the later job's spans", lambda: set(count_reviews(receiver, "ours")) == {MUTATE_JOB, VALIDATE_JOB})
    assert not count_reviews(receiver, "not-ours")


def test_in_a_managed_namespace_a_job_gets_the_default_queue(cluster: Cluster, managed_namespace: str, receiver: Receiver):
    create(cluster, manifests.build_local_queue("default", managed_namespace, "nowhere"))
    stored = create(cluster, manifests.build_job("defaulted", managed_namespace, pods=2, queue=None, preferred=RACK_LABEL))
    assert stored["metadata"]["labels"][QUEUE_NAME_LABEL] == "default"
    assert stored["spec"]["suspend"] is True
    assert list_gates(stored) == [TOPOLOGY_GATE]
    labelled = create(cluster, manifests.build_job("labelled", managed_namespace, pods=2, queue="main", preferred=RACK_LABEL))
    assert labelled["metadata"]["labels"][QUEUE_NAME_LABEL] == "main"
    once_per_phase = {MUTATE_JOB: 1, VALIDATE_JOB: 1}
    wait_for(
        "the spans of both", lambda: count_reviews(receiver, "labelled").total() >= 2 and count_reviews(receiver, "defaulted").total() >= 2
    )
    assert count_reviews(receiver, "defaulted") == once_per_phase, "the entries are disjoint"
    assert count_reviews(receiver, "labelled") == once_per_phase


def test_without_a_default_queue_it_is_stored_as_it_is_and_kubectl_prints_a_warning(cluster: Cluster, managed_namespace: str):
    created, shown = kubectl_create(cluster, manifests.build_job("unqueued", managed_namespace, pods=1, queue=None, required=RACK_LABEL))
    assert created
    assert shown.startswith(f"Warning: namespace {managed_namespace} ")
    assert "LocalQueue 'default'" in shown
    stored = cluster.api.get(f"/apis/batch/v1/namespaces/{managed_namespace}/jobs/unqueued")
    assert stored["spec"]["suspend"] is False
    assert QUEUE_NAME_LABEL not in stored["metadata"].get("labels", {})


def test_pod_annotation_on_the_job_itself_gets_a_kubectl_warning(cluster: Cluster, namespace: str):
    made = manifests.build_job("misplaced", namespace, pods=1)
    made["metadata"]["annotations"] = {REQUIRED_TOPOLOGY: RACK_LABEL}
    created, shown = kubectl_create(cluster, made)
    assert created
    of_annotation, *_of_queue = shown.splitlines()  # the namespace has no LocalQueue
    assert of_annotation.startswith(f"Warning: metadata.annotations[{REQUIRED_TOPOLOGY}]: ")
    assert "(spec.template.metadata.annotations)" in of_annotation
    assert all(QUEUE_NAME_LABEL in line for line in _of_queue)


# --- our own objects ------------------------------------------------------------------------------------


def test_a_wrong_cluster_queue_is_refused_with_every_mistake_at_once(cluster: Cluster):
    wrong = manifests.build_cluster_queue("wrong", {"a": {"cpu": "-1", "memory": "1Gi"}, "b": {"cpu": "1", "memory": "-2Gi"}})
    wrong["spec"]["resourceGroups"].append(manifests.build_cluster_queue("", {"a": {"cpu": "-3"}})["spec"]["resourceGroups"][0])
    created, shown = kubectl_create(cluster, wrong)
    assert not created
    path = "spec.resourceGroups"
    for field in (
        f"{path}[0].flavors[0].resources[0].nominalQuota[cpu]",
        f"{path}[0].flavors[1].resources[1].nominalQuota[memory]",
        f"{path}[1].coveredResources",
        f"{path}[1].flavors[0].name",
        f"{path}[1].flavors[0].resources[0].nominalQuota[cpu]",
    ):
        assert f"{field}: " in shown


def test_cluster_queue_gets_warnings_only_for_unsupported_fields_that_were_set(cluster: Cluster):
    """The API server has filled in preemption and flavorFungibility by the time we are asked."""
    assert kubectl_create(cluster, manifests.build_cluster_queue("plain", {"a": {"cpu": "1"}})) == (True, "")
    scope = {"admissionMode": "NoAdmissionFairSharing"}
    served: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}, "fairSharing": {"weight": 2}}
    made = manifests.build_cluster_queue("more", {"a": {"cpu": "1"}}, admissionScope=scope, **served)
    created, shown = kubectl_create(cluster, made)
    assert created
    fields = ("admissionScope",)
    assert [line.partition(" is ")[0] for line in shown.splitlines()] == [f"Warning: spec.{field}" for field in fields]
    for name in ("plain", "more"):
        cluster.api.delete(f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{name}")


def test_a_wrong_flavor_is_refused_with_every_mistake_at_once(cluster: Cluster):
    wrong = manifests.build_flavor("wrong", {"pool": "a/b", "no label": "x"}, None)
    created, shown = kubectl_create(cluster, wrong)
    assert not created
    assert 'spec.nodeLabels[pool]: "a/b"' in shown
    assert 'spec.nodeLabels: "no label"' in shown


def test_a_misshapen_object_gets_the_answer_of_its_schema_and_no_failure_of_ours(cluster: Cluster, namespace: str):
    workload = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w", "namespace": namespace}}
    for spec in ({"podSets": "x"}, {"podSets": [3]}, {"podSets": [{"template": {"spec": {"containers": [None]}}, "count": "y"}]}, 3):
        with pytest.raises(ApiError) as refused:
            create(cluster, {**workload, "spec": spec})
        assert refused.value.status in (400, 422), refused.value
        assert "failed calling webhook" not in str(refused.value)


# --- when the webhook is not there ------------------------------------------------------------------------


def unconcerned(namespace: str) -> list[dict[str, Any]]:
    """What has nothing to do with topogate."""
    pod_spec = {"containers": [{"name": "c", "image": "registry.example/c:1"}]}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec}
    return [
        manifests.build_job("unlabelled", namespace, pods=1, queue=None, required=RACK_LABEL),
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": pod_spec},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "namespace": namespace},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template},
        },
        manifests.build_job(f"system-{namespace}", "kube-system", pods=1, queue="main"),
        manifests.build_local_queue("main", namespace, "nowhere"),
    ]


def test_stopped_webhook_blocks_only_objects_that_use_topogate(
    cluster: Cluster, namespace: str, managed_namespace: str, topogate: Topogate
):
    create(cluster, manifests.build_job("before", namespace, pods=1))
    concerned = {
        "labelled": manifests.build_job("labelled", namespace, pods=1),
        "managed": manifests.build_job("managed", managed_namespace, pods=1, queue=None),
        "labelled in managed": manifests.build_job("both", managed_namespace, pods=1),
        "asking for a group": manifests.build_job("group", namespace, pods=1, queue=None),
    }
    concerned["asking for a group"]["metadata"]["annotations"] = {PODGROUP_TOPOLOGY: RACK_LABEL}
    topogate.kill_webhook()
    try:
        for what, job in concerned.items():
            with pytest.raises(ApiError, match="failed calling webhook") as refused:
                create(cluster, job)
            assert refused.value.status == 500, what
        for obj in unconcerned(namespace):
            create(cluster, obj)
        wait_for("a pod of the deployment", lambda: len(cluster.api.list(f"/api/v1/namespaces/{namespace}/pods")) >= 2)
        # Foreground deletion ends by an update that takes a finalizer off.
        before = f"/apis/batch/v1/namespaces/{namespace}/jobs/before"
        cluster.api.request("DELETE", f"{before}?propagationPolicy=Foreground")
        wait_for("the labelled job to be gone", lambda: cluster.api.find(before) is None)
    finally:
        topogate.start_webhook()
        cluster.api.delete(f"/apis/batch/v1/namespaces/kube-system/jobs/system-{namespace}?propagationPolicy=Background")
    for job in concerned.values():
        create(cluster, job)


def draws_warning(cluster: Cluster, obj: dict[str, Any], text: str) -> bool:
    return text in kubectl_create(cluster, obj, "--dry-run=server")[1]


def test_misspelt_queue_or_level_draws_a_warning_that_kubectl_shows(cluster: Cluster, namespace: str):
    made = [
        manifests.build_topology(f"{namespace}-levels", [RACK_LABEL]),
        manifests.build_flavor(f"{namespace}-flavor", {"pool": namespace}, f"{namespace}-levels"),
        manifests.build_cluster_queue(f"{namespace}-queue", {f"{namespace}-flavor": {"cpu": "1"}}),
        manifests.build_local_queue("research", namespace, f"{namespace}-queue"),
    ]
    for obj in made:
        create(cluster, obj)
    misspelt = f"{RACK_LABEL}s"
    for job, near in (
        (manifests.build_job("a", namespace, pods=1, queue="reserch"), "did you mean research?"),
        (manifests.build_job("b", namespace, pods=1, queue="research", required=misspelt), f"did you mean {RACK_LABEL}?"),
    ):
        wait_for("the webhook to know the names", partial(draws_warning, cluster, job, near))
    right = manifests.build_job("c", namespace, pods=1, queue="research", required=RACK_LABEL)
    assert kubectl_create(cluster, right) == (True, "")

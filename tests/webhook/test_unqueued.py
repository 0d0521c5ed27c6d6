"""Objects that the webhook is never asked about, since they name no queue, although somebody meant them to: kubectl warns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from core.names import PLACEMENT_PROFILE, PODGROUP_TOPOLOGY, QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY, WORKLOAD_REQUIRED_TOPOLOGY
from e2e import manifests
from e2e.api import wait_for
from e2e.cluster import Cluster
from e2e.nodes import RACK_LABEL
from e2e.standins.jobset import JobSetStandIn
from e2e.topogate import REGISTRATIONS, Topogate, build_managed_labels
from tests.webhook.test_on_apiserver import create, kubectl_create

ASKS = {"annotations": {REQUIRED_TOPOLOGY: RACK_LABEL}}
NAMED = {"labels": {QUEUE_NAME_LABEL: "main"}}
POD_SPEC = {"containers": [{"name": "c", "image": "registry.example/c:1"}]}
SO = f"without the label {QUEUE_NAME_LABEL} this object is neither queued nor placed"
OF_TEMPLATE = f"annotations of its pod template say how to place its pods, but {SO}"


@pytest.fixture(scope="module")
def warning(cluster: Cluster, topogate: Topogate, module_namespace: str) -> Iterator[None]:
    """The API server takes new policies up a moment after they are written, and knows a new CRD a moment after that is."""
    jobsets = JobSetStandIn(cluster.api)
    jobsets.install()  # its CRD alone: nobody has to make Jobs of them
    try:
        for kind in ("Job", "JobSet"):
            probe = build_object(kind, module_namespace, ASKS)
            wait_for(f"warnings about a {kind}", partial(_is_warned_of, cluster, probe))
        yield
    finally:
        jobsets.uninstall()


def _is_warned_of(cluster: Cluster, made: dict[str, Any]) -> bool:
    return "topogate-unqueued" in kubectl_create(cluster, made)[1]


pytestmark = [pytest.mark.usefixtures("warning")]


def build_object(kind: str, namespace: str, template: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """An object without a queue; `template` is the metadata of its pod template."""
    selected = {"labels": {"app": "a", **(template or {}).get("labels", {})}, "annotations": (template or {}).get("annotations", {})}
    pod: dict[str, Any] = {"metadata": selected, "spec": {**POD_SPEC, **({"restartPolicy": "Never"} if kind in ("Job", "JobSet") else {})}}
    spec: dict[str, Any]
    match kind:
        case "Pod":
            version, spec = "v1", POD_SPEC
        case "Job":
            version, spec = "batch/v1", {"suspend": True, "template": pod}
        case "JobSet":
            templates = [{"spec": POD_SPEC}, pod]
            replicated = [{"name": name, "template": {"spec": {"template": made}}} for name, made in zip("ab", templates, strict=True)]
            version, spec = "jobset.x-k8s.io/v1alpha2", {"suspend": True, "replicatedJobs": replicated}
        case _:
            more = {"serviceName": "a"} if kind == "StatefulSet" else {}
            version, spec = "apps/v1", {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": pod, **more}
    return {"apiVersion": version, "kind": kind, "metadata": {"generateName": "x-", "namespace": namespace, **metadata}, "spec": spec}


def list_messages(cluster: Cluster, made: dict[str, Any]) -> list[str]:
    created, shown = kubectl_create(cluster, made)
    assert created, shown
    lines = shown.splitlines()
    assert all(line.startswith("Warning: Validation failed for ValidatingAdmissionPolicy 'topogate-unqueued'") for line in lines), shown
    return [line.partition("with binding 'topogate-unqueued': ")[2] for line in lines]


@pytest.mark.parametrize("kind", ["Job", "JobSet", "StatefulSet", "Deployment"])
def test_annotations_of_pods_without_a_queue(cluster: Cluster, namespace: str, kind: str):
    assert list_messages(cluster, build_object(kind, namespace, ASKS)) == [OF_TEMPLATE]
    assert list_messages(cluster, build_object(kind, namespace)) == []
    assert "topogate-unqueued" not in kubectl_create(cluster, build_object(kind, namespace, ASKS, **NAMED))[1], "here the webhook is asked"


@pytest.mark.parametrize(("kind", "name"), [("Pod", REQUIRED_TOPOLOGY), ("Job", WORKLOAD_REQUIRED_TOPOLOGY), ("Job", REQUIRED_TOPOLOGY)])
def test_annotations_of_the_object_itself_without_a_queue(cluster: Cluster, namespace: str, kind: str, name: str):
    shown = [f"it has annotations that say how to place its pods, but {SO}"]
    assert list_messages(cluster, build_object(kind, namespace, annotations={name: RACK_LABEL})) == shown
    assert list_messages(cluster, build_object(kind, namespace, annotations={"example.com/podset-x": "1", PLACEMENT_PROFILE: "kep"})) == []


@pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet", "StatefulSet", "Deployment"])
def test_a_queue_named_in_an_annotation_or_in_a_misspelt_label(cluster: Cluster, namespace: str, kind: str):
    place = "this is a label and does nothing as an annotation: set it in metadata.labels"
    assert list_messages(cluster, build_object(kind, namespace, annotations={QUEUE_NAME_LABEL: "main"})) == [
        f"metadata.annotations[{QUEUE_NAME_LABEL}]: {place}"
    ]
    for name in ("kueue.x-k8s.io/queue-nam", "kueue.x-k8s.io/queueName", "topogate.dev/queue-name"):
        shown = f"metadata.labels[{name}]: this label is not known and does nothing; did you mean {QUEUE_NAME_LABEL}?"
        assert list_messages(cluster, build_object(kind, namespace, labels={name: "main"})) == [shown]
    assert (
        list_messages(cluster, build_object(kind, namespace, labels={"kueue.x-k8s.io/queue-something-else": "x", "queue-nam": "x"})) == []
    )


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_the_annotation_of_a_group_misspelt(cluster: Cluster, namespace: str, kind: str):
    for name in ("topogate.dev/podgroup-topologi", "topogate.dev/podgroup-toplogy", "topogate.dev/podgroupTopology"):
        shown = f"metadata.annotations[{name}]: this annotation is not known and does nothing; did you mean {PODGROUP_TOPOLOGY}?"
        assert list_messages(cluster, build_object(kind, namespace, annotations={name: RACK_LABEL})) == [shown]
    assert list_messages(cluster, build_object(kind, namespace, annotations={"topogate.dev/podgroup-of-mine": "x"})) == []


READ_BY = "Job, JobSet, MPIJob and LeaderWorkerSet read it"


@pytest.mark.parametrize("kind", ["Pod", "StatefulSet", "Deployment"])
def test_pod_group_annotation_on_a_kind_that_ignores_it_gets_a_warning(cluster: Cluster, namespace: str, kind: str):
    shown = f"metadata.annotations[{PODGROUP_TOPOLOGY}]: this annotation does nothing here; {READ_BY}"
    assert list_messages(cluster, build_object(kind, namespace, annotations={PODGROUP_TOPOLOGY: RACK_LABEL})) == [shown]


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_the_annotation_of_a_group_on_a_pod_template(cluster: Cluster, namespace: str, kind: str):
    template = {"annotations": {PODGROUP_TOPOLOGY: RACK_LABEL}}
    shown = f"the annotation {PODGROUP_TOPOLOGY} does nothing on a pod template: set it in metadata.annotations of the {kind} itself"
    assert list_messages(cluster, build_object(kind, namespace, template)) == [shown]


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_with_the_feature_gate_off_the_annotation_of_a_group_is_warned_of_and_changes_nothing(cluster: Cluster, namespace: str, kind: str):
    made = build_object(kind, namespace, annotations={PODGROUP_TOPOLOGY: RACK_LABEL})
    created, shown = kubectl_create(cluster, made)
    assert created
    assert "TopologyAwareWorkloadScheduling" in shown
    assert shown.count("Warning") == 1
    stored = create(cluster, made)
    assert "topogate.dev/podgroup" not in str(stored["spec"])


def test_a_queue_named_on_the_pod_template(cluster: Cluster, namespace: str):
    """The API server itself copies them to a Job that has no labels at all."""
    shown = "the label kueue.x-k8s.io/queue-name does nothing on a pod template: set it in metadata.labels of the Job itself"
    assert list_messages(cluster, build_object("Job", namespace, NAMED, labels={"app": "a"})) == [shown]
    created, warnings = kubectl_create(cluster, build_object("Job", namespace, NAMED))  # it is queued, in a queue that is not there
    assert created
    assert shown not in warnings
    assert list_messages(cluster, build_object("Deployment", namespace, {**NAMED, **ASKS})) == [], "its pods are queued themselves"


def test_object_of_a_controller_or_in_kube_system_gets_no_warning(cluster: Cluster, namespace: str):
    owner = create(cluster, build_object("Job", namespace))
    named = {part: owner["metadata"][part] for part in ("name", "uid")}
    reference = {"apiVersion": "batch/v1", "kind": "Job", **named, "controller": True}
    annotations = ASKS["annotations"]
    assert list_messages(cluster, build_object("Pod", namespace, annotations=annotations, ownerReferences=[reference])) == []
    assert (
        list_messages(
            cluster, build_object("Pod", namespace, annotations=annotations, ownerReferences=[{**reference, "controller": False}])
        )
        != []
    )
    system = build_object("Job", "kube-system", ASKS, name=f"system-{namespace}")
    try:
        assert list_messages(cluster, system) == []
    finally:
        cluster.api.delete(f"/apis/batch/v1/namespaces/kube-system/jobs/system-{namespace}?propagationPolicy=Background")


def test_in_a_managed_namespace_the_webhook_is_asked_instead(cluster: Cluster, namespace: str):
    name = f"managed-{namespace}"
    cluster.create_namespace(name, build_managed_labels())
    try:
        create(cluster, manifests.build_local_queue("default", name, "nowhere"))
        created, shown = kubectl_create(cluster, build_object("Job", name, ASKS))
        assert created, shown
        assert "topogate-unqueued" not in shown
    finally:
        cluster.delete_namespace(name)


def test_the_api_server_finds_nothing_wrong_with_the_policy(cluster: Cluster):
    stored = cluster.api.get(f"{REGISTRATIONS}/validatingadmissionpolicies/topogate-unqueued")
    assert not (stored.get("status") or {}).get("typeChecking", {}).get("expressionWarnings")


@pytest.mark.parametrize(
    ("own", "of_jobs", "of_pods", "warnings"),
    [
        (True, False, False, ["metadata.labels"]),
        (False, False, True, ["spec.jobTemplate.spec.template.metadata.labels"]),
        (True, True, True, []),
        (False, False, False, []),
    ],
)
def test_cron_job_with_a_queue_label_that_its_jobs_do_not_get_is_warned_of(
    cluster: Cluster, namespace: str, own: bool, of_jobs: bool, of_pods: bool, warnings: list[str]
):
    """Its Jobs ran without a queue, and no warning said so."""
    pods = {"metadata": NAMED if of_pods else {}, "spec": {**POD_SPEC, "restartPolicy": "Never"}}
    template = {"metadata": NAMED if of_jobs else {}, "spec": {"template": pods}}
    made = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"generateName": "x-", "namespace": namespace, **(NAMED if own else {})},
        "spec": {"schedule": "0 3 * * *", "suspend": True, "jobTemplate": template},
    }
    wait_for("the policy of CronJobs", partial(cluster.api.find, f"{REGISTRATIONS}/validatingadmissionpolicies/topogate-cronjobs"))
    created, shown = kubectl_create(cluster, made)
    assert created, shown
    lines = [line for line in shown.splitlines() if "topogate-cronjobs" in line]
    assert [line.partition("with binding 'topogate-cronjobs': ")[2].partition("[")[0] for line in lines] == warnings

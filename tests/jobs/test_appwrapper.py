"""What an AppWrapper declares of its components' pods: believed only of kinds that nobody else can count."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.kinds.appwrapper import AppWrapper
from core.jobs.kinds.registry import KINDS
from core.jobs.kinds.sparkapplication import SparkApplication
from core.model.pod_resources import compute_pod_requests
from core.names import QUEUE_NAME_LABEL
from tests.reconciler.kinds.scenarios import SCENARIOS
from tests.webhook.asking import Webhook, get_causes

Json = dict[str, Any]
KIND = next(kind for kind in KINDS if isinstance(kind, AppWrapper))
TEMPLATE = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}


def build_component(kind: str, api: str, spec: Json, *declared: tuple[str, int | None]) -> Json:
    template = {"apiVersion": api, "kind": kind, "metadata": {"name": "inner"}, "spec": spec}
    pod_sets = [{"path": path} | ({} if replicas is None else {"replicas": replicas}) for path, replicas in declared]
    return {"template": template} | ({"podSets": pod_sets} if declared else {})


def build_wrapper(*components: Json, **spec: Any) -> Json:
    metadata = {"name": "w", "namespace": "team-a", "labels": {QUEUE_NAME_LABEL: "main"}}
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": metadata,
        "spec": {"suspend": True, "components": list(components), **spec},
    }


JOB = {"parallelism": 8, "template": TEMPLATE}
TORCH = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": TEMPLATE}, "Worker": {"replicas": 3, "template": TEMPLATE}}}
GROUPS = {"replicas": 4, "leaderWorkerTemplate": {"size": 3, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}}
JOBS = {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 4, "template": TEMPLATE}}}]}
RAY = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "numOfHosts": 2, "template": TEMPLATE}],
}
LEADER, WORKERS = (f"template.spec.leaderWorkerTemplate.{role}Template" for role in ("leader", "worker"))
HONEST = {
    "Job": build_component("Job", "batch/v1", JOB, ("template.spec.template", 8)),
    "PyTorchJob": build_component(
        "PyTorchJob",
        "kubeflow.org/v1",
        TORCH,
        ("template.spec.pytorchReplicaSpecs.Worker.template", 3),
        ("template.spec.pytorchReplicaSpecs.Master.template", None),
    ),
    "JobSet": build_component("JobSet", "jobset.x-k8s.io/v1alpha2", JOBS, ("template.spec.replicatedJobs[0].template.spec.template", 8)),
    "RayCluster": build_component(
        "RayCluster",
        "ray.io/v1",
        RAY,
        ("template.spec.headGroupSpec.template", 1),
        ("template.spec.workerGroupSpecs[0].template", 4),
    ),
    "LeaderWorkerSet": build_component("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", GROUPS, (LEADER, 4), (WORKERS, 8)),
    "Deployment": build_component("Deployment", "apps/v1", {"replicas": 5, "template": TEMPLATE}, ("template.spec.template", 5)),
    "StatefulSet": build_component("StatefulSet", "apps/v1", {"template": TEMPLATE}, ("template.spec.template", 1)),
    "Pod": build_component("Pod", "v1", TEMPLATE["spec"], ("template", 1)),
}


def get_refusals(job: Json) -> dict[str, str]:
    return {error.field: f"{error.value}: {error.accepted}" for error in KIND.validate_create(job).errors}


@pytest.mark.parametrize("kind", HONEST)
def test_declared_pod_sets_of_an_app_wrapper_that_agree_with_the_kind_are_accepted(kind: str):
    declared = HONEST[kind]
    assert get_refusals(build_wrapper(declared)) == {}
    bare = {"template": declared["template"]}
    assert sum(p.count for p in KIND.list_pod_sets(build_wrapper(declared))) == sum(
        p.count for p in KIND.list_pod_sets(build_wrapper(bare))
    )


@pytest.mark.parametrize("kind", HONEST)
def test_fewer_or_more_than_the_kind_makes_are_refused_with_the_field_and_both_counts(kind: str):
    honest = HONEST[kind]
    for difference in (-1, 1, -1000):
        lying = {**honest, "podSets": [dict(pod_set) for pod_set in honest["podSets"]]}
        counted = lying["podSets"][0]["replicas"]
        lying["podSets"][0]["replicas"] = counted + difference
        ((field, message),) = get_refusals(build_wrapper(honest, lying)).items()
        assert field == "spec.components[1].podSets[0].replicas"
        assert message.startswith(f"{counted + difference}: {counted} is expected")
        assert kind in message


def test_a_template_that_is_not_declared_or_declared_twice_or_elsewhere_is_refused_with_the_templates_of_the_kind():
    torch = HONEST["PyTorchJob"]
    worker, master = torch["podSets"]
    templates = "template.spec.pytorchReplicaSpecs.Master.template, template.spec.pytorchReplicaSpecs.Worker.template"
    once = f"each pod template of this PyTorchJob is expected once: {templates}"
    for pod_sets, field, value in (
        ([worker], "podSets", None),
        ([worker, master, worker], "podSets[2].path", worker["path"]),
        ([master, {**master, "replicas": 3}], "podSets[1].path", master["path"]),
        ([{"path": "template.spec.elsewhere", "replicas": 4}], "podSets[0].path", "template.spec.elsewhere"),
        ([{"replicas": 4}], "podSets[0].path", ""),
    ):
        assert get_refusals(build_wrapper({**torch, "podSets": pod_sets})) == {f"spec.components[0].{field}": f"{value}: {once}"}


@pytest.mark.parametrize("kind", ["PyTorchJob", "Unheard"])
def test_a_path_without_end_is_refused_and_not_followed(kind: str):
    """Former defect: a path of 1.3 MB in a component of an unknown kind took half a second of each look at the AppWrapper."""
    deep: Any = TEMPLATE
    for _ in range(300):
        deep = {"a": deep}
    component = {**HONEST["PyTorchJob"], "podSets": [{"path": "template" + ".a" * count} for count in (650_000, 300, 252)]}
    component["template"] = {**component["template"], **deep, "kind": kind}
    accepted = "a path of at most 512 characters is accepted"
    lengths = {f"spec.components[0].podSets[{i}].path": f"{length} characters: {accepted}" for i, length in enumerate((1300008, 608))}
    assert get_refusals(build_wrapper(component)) == lengths
    assert [pod_set.template for pod_set in KIND.list_pod_sets(build_wrapper(component))] == [{"metadata": {}}] * 3


def test_a_declared_template_has_the_requests_of_the_template_of_its_kind():
    big = {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}
    spec = {"pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}, "Worker": {"replicas": 4, "template": big}}}
    declared = tuple((pod_set["path"], count) for pod_set, count in zip(HONEST["PyTorchJob"]["podSets"], (4, 1), strict=True))
    job = build_wrapper(build_component("PyTorchJob", "kubeflow.org/v1", spec, *declared))
    assert get_refusals(job) == {}
    assert [(p.count, compute_pod_requests(p.template["spec"])) for p in KIND.list_pod_sets(job)] == [(4, {"nvidia.com/gpu": 8}), (1, {})]


def test_another_kind_is_believed():
    unknown = build_component("Anything", "example.com/v1", {"a": TEMPLATE}, ("template.spec.a", 7))
    assert get_refusals(build_wrapper(unknown)) == {}
    assert [pod_set.count for pod_set in KIND.list_pod_sets(build_wrapper(unknown))] == [7]


def test_a_component_that_cannot_be_counted_though_its_kind_is_known_is_refused_with_the_place():
    broken = build_component("Job", "batch/v1", {**JOB, "parallelism": "8"}, ("template.spec.template", 1))
    ((field, message),) = get_refusals(build_wrapper(broken)).items()
    assert field == "spec.components[0].template.spec.parallelism"
    assert message.startswith("8: ")


def test_a_spark_application_declares_the_templates_beside_its_fields_and_is_counted_by_the_fields():
    spec = next(scenario for scenario in SCENARIOS if scenario.kind == "SparkApplication").spec("rack")
    path = "template.spec.{}.template"
    spark = build_component(
        "SparkApplication", "sparkoperator.k8s.io/v1beta2", spec, (path.format("driver"), 1), (path.format("executor"), 3)
    )
    assert get_refusals(build_wrapper(spark)) == {}
    requests = [compute_pod_requests(pod_set.template["spec"]) for pod_set in KIND.list_pod_sets(build_wrapper(spark))]
    assert requests == [compute_pod_requests(pod_set.template["spec"]) for pod_set in SparkApplication().list_pod_sets({"spec": spec})]
    spark["podSets"][1]["replicas"] = 1
    assert list(get_refusals(build_wrapper(spark))) == ["spec.components[0].podSets[1].replicas"]


@pytest.mark.parametrize("suspended", [True, False])
def test_a_component_cannot_grow_later_either(suspended: bool):
    old = build_wrapper(HONEST["Job"], suspend=suspended)
    grown = {**HONEST["Job"], "template": {**HONEST["Job"]["template"], "spec": {**JOB, "parallelism": 80}}}
    response = Webhook().validate(build_wrapper(grown, suspend=suspended), old)
    ((field, message),) = get_causes(response).items()
    assert field == "spec.components[0].podSets[0].replicas"
    assert message.startswith("8: 80 is expected")
    assert Webhook().validate(build_wrapper(HONEST["Job"], suspend=not suspended), old)["allowed"]


def test_app_wrapper_with_an_old_pod_set_mistake_accepts_other_changes():
    lying = {**HONEST["Job"], "podSets": [{"path": "template.spec.template", "replicas": 1}]}
    for suspended in (True, False):
        assert Webhook().validate(build_wrapper(lying, suspend=False), build_wrapper(lying, suspend=suspended))["allowed"]


def test_rayjob_without_submitter_template_declares_the_other_templates():
    """KubeRay makes one, at no path of the component."""
    spec = {"rayClusterSpec": RAY, "submissionMode": "K8sJobMode", "shutdownAfterJobFinishes": True}
    paths = (("template.spec.rayClusterSpec.headGroupSpec.template", 1), ("template.spec.rayClusterSpec.workerGroupSpecs[0].template", 4))
    assert get_refusals(build_wrapper(build_component("RayJob", "ray.io/v1", spec, *paths))) == {}
    assert get_refusals(build_wrapper(build_component("RayJob", "ray.io/v1", spec, paths[0]))) != {}


def test_wrapped_pod_becomes_a_pod_set_of_metadata_and_spec_alone():
    """Else the job and its Workload differ for ever, and it is admitted and evicted again and again."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "inner"}, "spec": TEMPLATE["spec"]}
    [pod_set] = KIND.list_pod_sets(build_wrapper({"template": pod}))
    assert pod_set.template == {"metadata": {}, "spec": TEMPLATE["spec"]}

"""Every kind whose objects hold pod templates: a start and its undoing are each other's inverse, defaults are written once."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.api.kinds.meta import DNS_LABEL
from core.jobs.contract import Defaults, ErrorType, PodSetStart, Referring
from core.jobs.kinds.mpijob import MPIJob
from core.jobs.kinds.rayjob import RayJob
from core.jobs.kinds.registry import INTEGRATIONS, KINDS, UnusableIntegration, with_integrations
from core.jobs.kinds.sparkapplication import SparkApplication
from core.jobs.schema_check import Fields, find_misshapen
from core.jobs.templated import TemplatedKind, put
from core.model.pod_resources import compute_pod_requests
from core.names import (
    POD_INDEX_OFFSET,
    PODSET_GROUP_NAME,
    PODSET_LABEL,
    PREFERRED_TOPOLOGY,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from core.plan.steps.merge import merge_patch
from core.plan.workloads.desired_workload import build_workload, has_other_pod_sets
from tests.jobs.test_job import merge, strip_empty
from tests.reconciler.kinds.scenarios import SCENARIOS, Scenario, runtime
from tests.strategies import scale_examples
from tests.webhook.asking import Webhook, hook, patch_of
from tests.webhook.reviews.test_misshapen import JSON, places, replaced
from webhook.jsonpatch import apply
from webhook.registration import build_hook_path

RACK = "cloud.provider.com/topology-rack"
TOLERATION = {"key": "gpu", "operator": "Exists"}
BY_NAME: dict[str, Any] = {kind.kind: kind for kind in KINDS}


@pytest.fixture(params=SCENARIOS, ids=lambda scenario: scenario.kind)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    found: Scenario = request.param
    return found


def get_kind(scenario: Scenario) -> TemplatedKind:
    found: TemplatedKind = BY_NAME[scenario.kind]
    return found


def make(scenario: Scenario) -> dict[str, Any]:
    """An object as its user wrote it, and what it refers to."""
    name = "wrapper" if scenario.kind == "AppWrapper" else "j"
    metadata = {"name": name, "namespace": "ns", "uid": "u", "labels": {QUEUE_NAME_LABEL: "lq"}}
    job = {"apiVersion": scenario.group_version, "kind": scenario.kind, "metadata": metadata, "spec": scenario.spec(RACK)}
    kind = get_kind(scenario)
    return kind.expand(job, runtime()) if isinstance(kind, Referring) else job


def start_of(kind: TemplatedKind, job: dict[str, Any], *, gated: bool) -> list[PodSetStart]:
    return [
        PodSetStart(pod_set.name, gated, {"pool": "a"}, (TOLERATION,), {PODSET_LABEL: pod_set.name}, {WORKLOAD_ANNOTATION: "w"})
        for pod_set in kind.list_pod_sets(job)
    ]


def test_it_has_the_pods_that_its_controller_will_make(scenario: Scenario):
    kind, job = get_kind(scenario), make(scenario)
    assert find_misshapen(kind.spec_shape, job) == ()
    assert kind.validate_create(job).errors == ()
    assert {pod_set.name: pod_set.count for pod_set in kind.list_pod_sets(job)} == scenario.pods
    workload = build_workload(kind, job, priority=0, priority_class=None)
    assert not has_other_pod_sets(kind.list_pod_sets(job), workload)


def test_defaulting_twice_is_defaulting_once(scenario: Scenario):
    kind, job = get_kind(scenario), make(scenario)
    before = deepcopy(job)
    once = kind.default(job, Defaults())
    assert job == before
    assert kind.default(once, Defaults()) == once
    assert kind.is_suspended(once)
    assert kind.has_gate(once) == kind.gates_at_creation


@pytest.mark.parametrize("gated", [True, False])
def test_restoring_undoes_a_start(scenario: Scenario, gated: bool):
    kind = get_kind(scenario)
    job = kind.default(make(scenario), Defaults())
    workload = build_workload(kind, job, priority=0, priority_class=None)
    running = kind.start(job, start_of(kind, job, gated=gated))
    assert not kind.is_suspended(running)
    assert kind.is_started(running)
    assert kind.has_gate(running) == gated
    for pod_set in kind.list_pod_sets(running):
        metadata, spec = pod_set.template["metadata"], pod_set.template["spec"]
        assert metadata["labels"][PODSET_LABEL] == pod_set.name
        assert metadata["annotations"] | {WORKLOAD_ANNOTATION: "w"} == metadata["annotations"]
        assert spec["nodeSelector"] == {"pool": "a"}
        assert TOLERATION in spec["tolerations"]
        assert ({"name": TOPOLOGY_GATE} in spec.get("schedulingGates", [])) == gated
    stopped = kind.suspend(kind.restore(running, workload["spec"]["podSets"]))
    assert not kind.is_started(stopped)
    assert not has_other_pod_sets(kind.list_pod_sets(stopped), workload)
    assert strip_empty(stopped) == strip_empty(job)
    assert merge(running, merge_patch(running, stopped)) == stopped


def test_started_job_can_be_restored_without_a_workload(scenario: Scenario):
    kind = get_kind(scenario)
    job = kind.default(make(scenario), Defaults())
    running = kind.start(job, start_of(kind, job, gated=True))
    assert not kind.is_started(kind.restore(running, None))
    assert not kind.has_gate(kind.ungate(running))


def test_broken_template_rule_is_reported_with_the_field_path_of_the_kind(scenario: Scenario):
    kind, job = get_kind(scenario), make(scenario)

    def contradicting(value: Any) -> Any:
        if isinstance(value, list):
            return [contradicting(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        made = {key: contradicting(entry) for key, entry in value.items()}
        return made | ({PREFERRED_TOPOLOGY: RACK} if REQUIRED_TOPOLOGY in value else {})

    fields = {error.field for error in kind.validate_create(contradicting(job)).errors}
    assert scenario.broken in fields


def test_a_template_may_not_change_while_its_job_runs(scenario: Scenario):
    kind = get_kind(scenario)
    job = kind.default(make(scenario), Defaults())
    running = kind.start(job, start_of(kind, job, gated=True))
    changed = kind.start(running, [PodSetStart(s.name, True, {"other": "b"}) for s in start_of(kind, job, gated=True)])
    assert {error.type.value for error in kind.validate_update(running, changed).errors} == {"FieldValueForbidden"}
    assert kind.validate_update(job, running).errors == ()
    assert kind.validate_update(running, kind.suspend(running)).errors == ()


@settings(max_examples=scale_examples(1.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_json_in_place_of_any_part_is_answered(scenario: Scenario, data: st.DataObject):
    """Custom resources reach a mutating webhook before their schema was judged."""
    kind, broken = get_kind(scenario), make(scenario)
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from([path for path in places(broken) if path and path[0] in ("metadata", "spec", "status")]))
        broken = replaced(broken, path, data.draw(JSON))
    for action in ("mutate", "validate"):
        answer = Webhook().ask(build_hook_path(action, kind.group, kind.version, kind.kind), broken)
        assert answer["allowed"] in (True, False)


# --- single kinds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launcher_is_worker", "group", "offset"),
    [(True, False, "1"), (True, True, None), (False, False, None), (False, True, "0")],
    ids=["worker", "worker in group", "alone", "group"],
)
def test_workers_of_an_mpijob_begin_at_the_index_that_its_operator_gives_them(launcher_is_worker: bool, group: bool, offset: str | None):
    job = make(next(scenario for scenario in SCENARIOS if scenario.kind == "MPIJob"))
    job["spec"]["runLauncherAsWorker"] = launcher_is_worker
    for replica in job["spec"]["mpiReplicaSpecs"].values() if group else ():
        replica["template"]["metadata"]["annotations"][PODSET_GROUP_NAME] = "g"
    once = MPIJob().default(job, Defaults())
    annotations = once["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]
    assert annotations.get("kueue.x-k8s.io/pod-index-offset") == offset
    assert MPIJob().default(once, Defaults()) == once
    assert [error for error in MPIJob().validate_create(once).errors if POD_INDEX_OFFSET in error.field] == []


def make_mpijob(offset: str | None, *, group: bool = False) -> dict[str, Any]:
    job = make(next(scenario for scenario in SCENARIOS if scenario.kind == "MPIJob"))
    job["spec"]["runLauncherAsWorker"] = False
    for replica in job["spec"]["mpiReplicaSpecs"].values() if group else ():
        replica["template"]["metadata"]["annotations"][PODSET_GROUP_NAME] = "g"
    notes = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]
    notes |= {POD_INDEX_OFFSET: offset} if offset is not None else {}
    return job


@pytest.mark.parametrize(("before", "after", "refused"), [("2", "2", False), ("2", "3", True), ("2", None, True), (None, "2", False)])
def test_offset_of_an_mpijob_that_is_changed_or_removed_is_refused(before: str | None, after: str | None, refused: bool):
    errors = MPIJob().validate_update(make_mpijob(before), make_mpijob(after)).errors
    shown = [
        (error.type, error.field.endswith(f"mpiReplicaSpecs[Worker].template.metadata.annotations[{POD_INDEX_OFFSET}]")) for error in errors
    ]
    assert shown == ([(ErrorType.INVALID, True)] if refused else [])


def test_offset_of_an_mpijob_may_follow_whether_its_launcher_is_a_worker():
    old, new = make_mpijob("2"), make_mpijob("1")
    new["spec"]["runLauncherAsWorker"] = True
    assert MPIJob().validate_update(old, new).errors == ()


def test_offset_given_in_a_group_of_an_mpijob_is_refused_as_it_was_given():
    job = MPIJob().default(make_mpijob("5", group=True), Defaults())
    refused = [error for error in MPIJob().validate_create(job).errors if POD_INDEX_OFFSET in error.field]
    assert [error.type for error in refused] == [ErrorType.FORBIDDEN]


@pytest.mark.parametrize(
    ("driver", "spec", "memory"),
    [
        ({"memory": "512m"}, {}, (512 + 384) << 20),
        ({"memory": "10g"}, {}, (10 << 30) + (1 << 30)),
        ({"memory": "10g"}, {"type": "Python"}, (10 << 30) + (4 << 30)),
        ({"memory": "10g"}, {"memoryOverheadFactor": "0.5"}, (10 << 30) + (5 << 30)),
        ({"memory": "1g", "memoryOverhead": "1g"}, {}, 2 << 30),
        ({}, {}, (1024 + 384) << 20),
    ],
)
def test_spark_pod_requests_equal_those_of_spark(driver: dict[str, Any], spec: dict[str, Any], memory: int):
    job = {"metadata": {"name": "s"}, "spec": {"driver": {"coreRequest": "100m", **driver}, "executor": {}} | spec}
    container = SparkApplication().list_pod_sets(job)[0].template["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "100m", "memory": str(memory)}


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_sidecars_and_init_containers_of_a_spark_pod_count(role: str):
    def container(**more: Any) -> dict[str, Any]:
        return {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}, **more}

    pod = {"sidecars": [container()], "initContainers": [container(restartPolicy="Always")], "template": {"spec": {"initContainers": [{}]}}}
    job = {"metadata": {"name": "s"}, "spec": {"driver": {}, "executor": {}, role: pod}}
    requests = {pod_set.name: compute_pod_requests(pod_set.template["spec"]) for pod_set in SparkApplication().list_pod_sets(job)}
    assert {name: amounts.get("nvidia.com/gpu") for name, amounts in requests.items()} == {"driver": None, "executor": None, role: 4}


@pytest.mark.parametrize(
    "key",
    [
        "spark.dynamicAllocation.enabled",
        "spark.executor.instances",
        "spark.executor.resource.gpu.amount",
        "spark.driver.resource.gpu.vendor",
        "spark.executor.cores",
        "spark.executor.memory",
        "spark.driver.memoryOverhead",
        "spark.driver.minMemoryOverhead",
        "spark.executor.memoryOverheadFactor",
        "spark.executor.pyspark.memory",
        "spark.memory.offHeap.size",
        "spark.kubernetes.executor.request.cores",
        "spark.kubernetes.memoryOverheadFactor",
        "spark.kubernetes.executor.podTemplateFile",
        "spark.kubernetes.driver.podTemplateContainerName",
        "spark.kubernetes.executor.pod.featureSteps",
        "spark.kubernetes.allocation.pods.allocator",
        "spark.kubernetes.namespace",
        "spark.kubernetes.scheduler.name",
        "spark.kubernetes.executor.scheduler.name",
        "spark.kubernetes.executor.label.kueue.x-k8s.io/podset",
        "spark.kubernetes.driver.annotation.kueue.x-k8s.io/workload",
        "spark.executor.instances=5",
    ],
)
def test_spark_property_of_pods_is_refused_also_within_an_appwrapper(key: str):
    labels = {QUEUE_NAME_LABEL: "main"}
    spark = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": "s", "labels": labels}}
    spark["spec"] = {"driver": {}, "executor": {}, "sparkConf": {key: "true"}}
    wrapper = {"metadata": {"name": "w", "labels": labels}, "spec": {"components": [{"template": spark}]}}
    wrapping = next(kind for kind in KINDS if kind.kind == "AppWrapper")
    [error] = SparkApplication().validate_create(spark).errors
    assert (error.type, error.field) == (ErrorType.FORBIDDEN, f"spec.sparkConf[{key}]")
    assert [found.field for found in wrapping.validate_create(wrapper).errors] == [f"spec.components[0].template.{error.field}"]


def test_spark_property_with_another_value_in_its_key_is_refused_though_it_ends_as_one_that_is_off():
    """Found by a reader: Spark takes what follows the first equals sign for the value."""
    key = "spark.kubernetes.executor.podTemplateFile=/x/dynamicAllocation.enabled"
    spec = {"driver": {}, "executor": {}, "sparkConf": {key: "false"}}
    [error] = SparkApplication().validate_create({"metadata": {"name": "s"}, "spec": spec}).errors
    assert error.field == f"spec.sparkConf[{key}]"


def test_a_spark_property_that_changes_no_pods_is_accepted():
    harmless = {
        "spark.dynamicAllocation.enabled": "false",
        "spark.memory.offHeap.enabled": "False",
        "spark.sql.shuffle.partitions": "8",
        "spark.executor.heartbeatInterval": "5s",
        "spark.kubernetes.executor.limit.cores": "2",
        "spark.kubernetes.executor.label.team": "a",
        "spark.eventLog.enabled": "true",
    }
    spec = {"driver": {}, "executor": {}, "sparkConf": harmless, "hadoopConf": {"fs.s3a.path.style.access": "true"}}
    assert not SparkApplication().validate_create({"metadata": {"name": "s"}, "spec": spec}).errors


def test_a_memory_overhead_factor_that_cannot_be_counted_is_refused():
    spec = {"driver": {}, "executor": {}, "memoryOverheadFactor": "5e1"}
    [error] = SparkApplication().validate_create({"metadata": {"name": "s"}, "spec": spec}).errors
    assert (error.field, error.value) == ("spec.memoryOverheadFactor", "5e1")


@pytest.mark.parametrize(
    ("group", "pods"),
    [
        ({"replicas": 3}, 3),
        ({"replicas": 0, "minReplicas": 100}, 100),
        ({"replicas": 7, "maxReplicas": 5}, 5),
        ({"replicas": 7, "minReplicas": 9, "maxReplicas": 5}, 5),
        ({"minReplicas": 2}, 2),
        ({"replicas": -5}, 0),
        ({"replicas": 3, "minReplicas": 2, "suspend": True}, 0),
        ({"replicas": 1, "minReplicas": 4, "numOfHosts": 2}, 8),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
def test_ray_worker_group_counts_pods_as_kuberay_makes_them(kind: str, group: dict[str, Any], pods: int):
    """Former defect: `replicas` alone was counted (KubeRay: GetWorkerGroupDesiredReplicas)."""
    cluster = {"headGroupSpec": {"template": {}}, "workerGroupSpecs": [{"groupName": "g", "template": {}, **group}]}
    spec = {"RayCluster": cluster, "RayJob": {"rayClusterSpec": cluster}, "RayService": {"rayClusterConfig": cluster}}[kind]
    described = next(each for each in KINDS if each.kind == kind)
    assert {made.name: made.count for made in described.list_pod_sets({"kind": kind, "metadata": {"name": "r"}, "spec": spec})} == {
        "head": 1,
        "g": pods,
    }


def test_more_pod_templates_than_a_workload_holds_are_refused():
    kind, job = BY_NAME["JobSet"], make(SCENARIOS[0])
    replicated = job["spec"]["replicatedJobs"][1]
    job["spec"]["replicatedJobs"] = [{**replicated, "name": f"r{i}"} for i in range(19)]
    assert [error.type.value for error in kind.validate_create(job).errors] == ["FieldValueTooMany"]
    job["spec"]["replicatedJobs"] = [replicated, replicated]
    assert [error.type.value for error in kind.validate_create(job).errors] == ["FieldValueDuplicate"]


def run_of(scenario: Scenario) -> dict[str, Any]:
    kind = get_kind(scenario)
    job = kind.default(make(scenario), Defaults())
    return kind.start(job, start_of(kind, job, gated=True))


def apply_again(scenario: Scenario, running: dict[str, Any], **labels: str) -> dict[str, Any]:
    """What is stored of the unchanged manifest once it replaces a running object."""
    manifest = get_kind(scenario).start(make(scenario), [])
    manifest["metadata"]["labels"] |= labels
    webhook = Webhook()
    response = webhook.ask(hook("mutate", scenario.kind), manifest, running)
    stored = apply(manifest, patch_of(response))
    assert webhook.validate(stored, running)["allowed"]
    return stored


def test_unchanged_manifest_applied_while_job_runs_keeps_started_templates(scenario: Scenario):
    """Former defect: it was refused, so that a GitOps controller failed for ever."""
    running = run_of(scenario)
    assert apply_again(scenario, running)["spec"] == running["spec"]
    assert apply_again(scenario, running, team="a")["metadata"]["labels"]["team"] == "a"


def test_unchanged_manifest_applied_while_job_waits_keeps_gates_without_a_warning(scenario: Scenario):
    """A RayCluster lost the gate that its creation had added: the templates of its workers are a list, which kubectl replaces."""
    kind = get_kind(scenario)
    waiting = kind.default(make(scenario), Defaults())
    applied = merge(waiting, make(scenario))  # as kubectl does
    response = Webhook().ask(hook("mutate", scenario.kind), applied, waiting)
    assert apply(applied, patch_of(response)) == waiting
    assert "warnings" not in response


def test_change_that_gets_started_templates_back_draws_a_warning(scenario: Scenario):
    """A dropped toleration was put back and nothing said so."""
    running = run_of(scenario)
    manifest = get_kind(scenario).start(make(scenario), [])
    response = Webhook().ask(hook("mutate", scenario.kind), manifest, running)
    warnings = response.get("warnings", [])
    assert bool(warnings) == bool(patch_of(response))
    assert all("suspend it" in warning and "Put back: /spec" in warning for warning in warnings)


@pytest.mark.parametrize("part", ["gate", "node selector", "labels"])
def test_started_template_of_running_job_cannot_lose_its_place_by_being_applied(scenario: Scenario, part: str):
    """What is put back is the whole template as it runs; a template that differs otherwise is refused."""
    kind, running = get_kind(scenario), run_of(scenario)
    changed = deepcopy(running)
    for role in kind.list_roles(running):
        template = deepcopy(dict(role.template))
        if part == "gate":
            template["spec"].pop("schedulingGates")
        elif part == "node selector":
            template["spec"].pop("nodeSelector")
        else:
            template["metadata"]["labels"] = {"app": "another"}
            template["metadata"].pop("annotations", None)
        kind.put_template(changed, role, template)
    stored = kind.default_change(running, changed)
    assert stored == running or kind.validate_update(running, stored).errors


@pytest.mark.parametrize("own", [None, {"spec": {"containers": [{"name": "spark-kubernetes-driver"}], "hostNetwork": True}}])
def test_pod_template_of_started_spark_application_has_a_list_of_containers(own: dict[str, Any] | None):
    """Spark operator 2.5.2 with Spark 4.0.1: spark-submit ended with a NullPointerException at a template with gates alone."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.kind == "SparkApplication")
    kind, job = get_kind(scenario), make(scenario)
    if own is not None:
        put(job, ("spec", "driver", "template"), own)
    workload = build_workload(kind, job, priority=0, priority_class=None)
    running = kind.start(job, start_of(kind, job, gated=True))
    for role in ("driver", "executor"):
        spec = running["spec"][role]["template"]["spec"]
        assert spec["schedulingGates"]
        assert spec["containers"] == (own["spec"]["containers"] if own is not None and role == "driver" else [])
    stopped = kind.restore(running, workload["spec"]["podSets"])
    assert [stopped["spec"][role].get("template") for role in ("driver", "executor")] == [own, None]


@pytest.mark.parametrize("with_workload", [True, False])
def test_submitter_of_restored_rayjob_follows_a_new_image_of_the_head(with_workload: bool):
    """Former defect: the template that a start had written for the submitter stayed, with the image of then."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.kind == "RayJob")
    kind, job = get_kind(scenario), make(scenario)
    del job["spec"]["submitterPodTemplate"]
    workload = build_workload(kind, job, priority=0, priority_class=None)
    running = kind.start(job, start_of(kind, job, gated=True))
    if with_workload:  # the user suspends the job and gives it the image in one change
        put(running, ("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers", 0, "image"), "new")
    stopped = kind.restore(running, workload["spec"]["podSets"] if with_workload else None)
    put(stopped, ("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers", 0, "image"), "new")
    submitter = next(pod_set for pod_set in kind.list_pod_sets(stopped) if pod_set.name == "submitter")
    assert submitter.template["spec"]["containers"][0]["image"] == "new"


def test_own_submitter_template_of_rayjob_stays_when_it_is_restored():
    scenario = next(scenario for scenario in SCENARIOS if scenario.kind == "RayJob")
    kind, job = get_kind(scenario), make(scenario)
    own = {"metadata": {"labels": {"app": "submit"}}, "spec": {"containers": [{"name": "own", "image": "i"}], "restartPolicy": "Never"}}
    job["spec"]["submitterPodTemplate"] = deepcopy(own)
    workload = build_workload(kind, job, priority=0, priority_class=None)
    restored = kind.restore(kind.start(job, start_of(kind, job, gated=True)), workload["spec"]["podSets"])
    assert restored["spec"]["submitterPodTemplate"] == own


@pytest.mark.parametrize("name", ["AppWrapper", "TrainJob"])
def test_topology_gate_of_a_user_is_refused_where_no_start_takes_it_off(name: str):
    """Former defect: the gate survived a start without topology, and the pods stayed gated."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.kind == name)
    kind, job = get_kind(scenario), make(scenario)
    assert kind.validate_update(kind.default(job, Defaults()), run_of(scenario)).errors == ()

    def gated(value: Any) -> Any:
        if isinstance(value, list):
            return [gated(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        made = {key: gated(entry) for key, entry in value.items()}
        return made | ({"schedulingGates": [{"name": TOPOLOGY_GATE}]} if "containers" in value else {})

    errors = kind.validate_create(gated(job)).errors
    assert errors
    assert {error.value for error in errors} == {TOPOLOGY_GATE}
    assert all(error.field.endswith(".spec.schedulingGates") for error in errors)


# --- kinds of other packages --------------------------------------------------------------------------------


class Other(MPIJob):
    kind, group = "OtherJob", "example.com"


def test_kinds_of_other_packages_come_after_ours():
    assert with_integrations([Other()])[:-1] == KINDS
    assert with_integrations([]) == KINDS
    assert INTEGRATIONS == "topogate.integrations"


class Undecided:
    """All that a kind has but whether its defaults are renewed."""

    def __getattr__(self, name: str) -> object:
        if name == "defaults_updates":
            raise AttributeError(name)
        return getattr(Other(), name)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (MPIJob(), "is described twice"),
        (object(), "it has no always_gated, are_pods_ready, build_status_reset, count_active_pods, "),
        (Undecided(), "it has no defaults_updates$"),
    ],
)
def test_integration_that_is_no_kind_or_is_duplicate_is_refused(found: object, says: str):
    with pytest.raises(UnusableIntegration, match=says):
        with_integrations([found])


def test_a_kind_with_a_method_of_another_signature_is_refused_when_it_is_loaded():
    """Former defect: a kind written by the document raised TypeError when its job was stopped, and its quota was never given back."""

    class Odd(TemplatedKind):
        kind, group, version, plural = "Odd", "odd.example", "v1", "odds"
        spec_shape = Fields()

        def list_roles(self, job: Any) -> list[Any]:
            return []

        def count_active_pods(self, job: Any) -> int:  # type: ignore[override]
            return 0

        def find_finish(self, job: Any) -> None:
            return None

    with pytest.raises(UnusableIntegration, match=r"count_active_pods\(job.*dropped"):
        with_integrations([Odd()])


def test_the_submitter_of_a_ray_job_in_sidecar_mode_counts_in_the_head():
    """Former defect: quota and place were too small by the container that KubeRay adds."""
    template = {"spec": {"containers": [{"name": "head", "resources": {"requests": {"cpu": "1"}}}]}}
    job: dict[str, Any] = {
        "metadata": {"name": "j"},
        "spec": {"submissionMode": "SidecarMode", "rayClusterSpec": {"headGroupSpec": {"template": template}}},
    }
    [head] = RayJob().list_pod_sets(job)
    assert compute_pod_requests(head.to_wire()["template"]["spec"]) == {"cpu": 1500, "memory": 200 * 2**20}
    assert len(job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]) == 1


@pytest.mark.parametrize("name", ["gpu_group", "a.b", "-a", "g" * 64])
@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
def test_ray_group_name_that_no_pod_set_can_have_is_refused_at_creation(kind: str, name: str):
    """Former defect: the job was admitted by the webhook, no Workload could be created, and it stayed suspended."""
    job = make(next(scenario for scenario in SCENARIOS if scenario.kind == kind))
    path = {"RayCluster": ("spec",), "RayJob": ("spec", "rayClusterSpec"), "RayService": ("spec", "rayClusterConfig")}[kind]
    put(job, (*path, "workerGroupSpecs", 0, "groupName"), name)
    errors = BY_NAME[kind].validate_create(job).errors
    assert [(error.field, error.value) for error in errors] == [(f"{'.'.join(path)}.workerGroupSpecs[0].groupName", name)]


def test_replicated_job_name_that_no_pod_set_can_have_is_refused_at_creation():
    """The rule holds for each kind whose pod set names are made from names of a user."""
    job = make(SCENARIOS[0])
    job["spec"]["replicatedJobs"][1]["name"] = "a.b"
    assert [error.value for error in BY_NAME["JobSet"].validate_create(job).errors] == ["a.b"]


@pytest.mark.parametrize("name", ["my.app", "a" * 54 + ".b", None, "9"])
def test_appwrapper_of_any_name_has_pod_set_names_that_fit(name: str | None):
    """`my.app` is a name that an AppWrapper may have, and its pod set may not."""
    job = make(next(scenario for scenario in SCENARIOS if scenario.kind == "AppWrapper"))
    job["metadata"]["name"] = name
    kind = BY_NAME["AppWrapper"]
    names = [pod_set.name for pod_set in kind.list_pod_sets(job)]
    assert kind.validate_create(job).errors == ()
    assert len(set(names)) == len(names) > 0
    assert all(len(each) <= 63 and re.fullmatch(DNS_LABEL, each) for each in names)

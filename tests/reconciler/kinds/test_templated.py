"""Every kind whose objects hold pod templates, its controllers by stand-ins: from create to pods on
nodes, suspended and resumed, deleted while its pods are gated, refused where it says what it must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core.names import PREFERRED_TOPOLOGY, QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY, TOPOLOGY_GATE
from e2e import manifests
from e2e.api import ApiError, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.standins.pods import MADE_FOR
from e2e.standins.training import PyTorchJobStandIn
from e2e.topogate import Topogate, build_managed_labels
from tests.long import mark_long
from tests.reconciler.kinds.lives import suspended_and_resumed
from tests.reconciler.kinds.scenarios import RUNTIME, SCENARIOS, Scenario, build_template, runtime
from tests.reconciler.kinds.stage import Stage, check_places, name_of
from tests.reconciler.scenes import WORKLOADS, Scene

pytestmark = pytest.mark.in_memory
NAMES = [scenario.kind for scenario in SCENARIOS]


@pytest.fixture(scope="module")
def stage(cluster: Cluster, topogate: Topogate) -> Iterator[Stage]:
    """Two racks of eight nodes; the kinds are installed while topogate runs."""
    made = Stage(Scene(cluster, racks=2, nodes=8).open())
    made.install()
    yield made
    try:
        made.scene.close()
    finally:
        made.uninstall()


@pytest.fixture(autouse=True)
def tidied(stage: Stage) -> Iterator[None]:
    """Tests share the nodes: what one that failed leaves must not fail the next."""
    yield
    if stage.scene.read().workloads:
        stage.clear()


@pytest.fixture(params=mark_long(SCENARIOS, but=[NAMES.index(kind) for kind in ("JobSet", "MPIJob", "RayJob", "AppWrapper")]), ids=NAMES)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    found: Scenario = request.param
    return found


def test_life_of_a_kind_with_a_stand_in_is_suspended_and_resumed(stage: Stage, topogate: Topogate, scenario: Scenario) -> None:
    """The same is played with the real operators: a stand-in that behaves otherwise shows there (tests/operators)."""
    suspended_and_resumed(stage, scenario, topogate)


@pytest.mark.parametrize("stopped", [False, True], ids=["", "deactivated"])
def test_a_finished_job_holds_its_quota_until_its_pods_have_ended(stage: Stage, stopped: bool) -> None:
    """`cleanPodPolicy: None`, the training operator's default: the master ends the job, and the workers run on."""
    scene, scenario = stage.scene, get_scenario("PyTorchJob")
    name = name_of(scenario)
    stage.create(scenario, name)
    with stage.acting(scenario):
        now = scene.until_bound(name, scenario.total)
    done = {"type": "Succeeded", "status": "True", "reason": "MasterDone", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    scene.api.patch(f"{stage.path(scenario)}/{name}/status", {"status": {"conditions": [done]}})
    scene.eventually("it to be told", lambda now: any(event["reason"] == "PodsLeft" for event in now.events))
    assert not truth.is_true(scene.read().workload_of(name), "Finished")
    if stopped:
        scene.patch_workload(name, {"spec": {"active": False}})
        scene.eventually("its pods to be ended", lambda now: not now.pods_of(name))
    else:
        for pod in now.pods_of(name):
            scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/{pod['metadata']['name']}")
    scene.eventually("it to be over", lambda now: truth.is_true(now.workload_of(name), "Finished"))
    stage.delete(scenario, name)
    stage.until_gone(name)


@pytest.mark.parametrize("kind", ["JobSet", "RayJob", "TrainJob"])
def test_child_object_of_a_queued_object_is_not_queued_itself_in_a_managed_namespace(stage: Stage, kind: str) -> None:
    """There whatever has no queue gets the default one, and is suspended; RayClusters of RayJobs and Jobs of JobSets must not be."""
    scene = stage.scene
    scenario = get_scenario(kind)
    namespace = f"/api/v1/namespaces/{scene.namespace}"
    scene.create(manifests.build_local_queue("default", scene.namespace, f"{scene.prefix}queue"))
    scene.api.patch(namespace, {"metadata": {"labels": build_managed_labels()}})
    try:
        made = stage.make(scenario, "managed")
        del made["metadata"]["labels"]
        dry = f"{stage.path(scenario)}?dryRun=All"
        wait_for("the API server to see that the namespace is managed", lambda: scene.api.create(dry, made)["metadata"].get("labels"))
        created = scene.api.create(stage.path(scenario), made)
        assert created["metadata"]["labels"] == {QUEUE_NAME_LABEL: "default"}
        with stage.acting(scenario):
            now = scene.until_bound("managed", scenario.total)
            assert len(now.workloads) == 1
            stage.delete(scenario, "managed")
            stage.until_gone("managed")
    finally:
        scene.api.patch(namespace, {"metadata": {"labels": dict.fromkeys(build_managed_labels())}})
        scene.api.delete(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{scene.namespace}/localqueues/default")


def get_scenario(kind: str) -> Scenario:
    return next(each for each in SCENARIOS if each.kind == kind)


def test_train_job_with_a_missing_runtime_waits_and_an_event_names_the_runtime(stage: Stage) -> None:
    scene, scenario = stage.scene, get_scenario("TrainJob")
    path = f"/apis/{scenario.group_version}/clustertrainingruntimes/{RUNTIME}"
    described = scene.api.get(path)
    scene.api.delete(path)
    stage.create(scenario, "early")

    def told(now: truth.Snapshot) -> bool:
        return any(f"ClusterTrainingRuntime {RUNTIME} does not exist" in event["message"] for event in now.events)

    scene.eventually("its user to be told", told)
    scene.create({key: described[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": RUNTIME}})
    with stage.acting(scenario):
        scene.until_bound("early", scenario.total)
        stage.delete(scenario, "early")
        stage.until_gone("early")


@pytest.mark.parametrize("nodes", [4, None], ids=["nodes by the job", "nodes by the runtime"])
def test_a_runtime_that_is_edited_while_a_job_runs_is_for_jobs_that_do_not(stage: Stage, nodes: int | None) -> None:
    """Pods of a running job stay as they were admitted, whatever an administrator makes of its runtime; stopped, it takes the new one."""
    scene, scenario = stage.scene, get_scenario("TrainJob")
    path = f"/apis/{scenario.group_version}/clustertrainingruntimes/{RUNTIME}"
    steady, later = stage.make(scenario, "steady"), stage.make(scenario, "later")
    for made in (steady, later):
        made["spec"]["trainer"] = {} if nodes is None else {"numNodes": nodes}
    before = nodes or 1
    after = (nodes or 2) + 1
    edited = runtime()["spec"]
    (node,) = edited["template"]["spec"]["replicatedJobs"]
    node["template"]["spec"] |= {"parallelism": 2, "completions": 2}
    pods = {"parallelism": 1, "completions": 1, "template": {"spec": build_template("any", gpus=1)["spec"]}}
    edited["template"]["spec"]["replicatedJobs"].append({"name": "evaluator", "replicas": 1, "template": {"spec": pods}})
    try:
        with stage.acting(scenario):
            scene.api.create(stage.path(scenario), steady)
            now = scene.until_bound("steady", before)
            ran = [pod["metadata"]["uid"] for pod in now.pods_of("steady")]
            scene.api.patch(path, {"spec": edited})
            scene.api.create(stage.path(scenario), later)
            now = scene.until_bound("later", after)
            assert [pod["metadata"]["uid"] for pod in now.pods_of("steady")] == ran
            assert not truth.get_condition(now.workload_of("steady"), "Evicted")

            stage.suspend(scenario, "steady", True)
            asked = {"node": after - 1, "evaluator": 1}

            def asks_anew(now: truth.Snapshot) -> bool:
                workload = now.workload_of("steady")
                return workload is not None and {p["name"]: p["count"] for p in workload["spec"]["podSets"]} == asked

            scene.eventually("it to ask for what its runtime says by now", asks_anew)
            for name in ("steady", "later"):
                stage.delete(scenario, name)
            stage.until_gone("steady")
            stage.until_gone("later")
    finally:
        scene.api.patch(path, {"spec": runtime()["spec"]})


def test_started_job_with_pods_made_while_suspended_is_started_again_without_these_pods(stage: Stage) -> None:
    """As a controller does that has not yet seen that the job was suspended again: such pods would be gated for ever."""
    scene, scenario = stage.scene, get_scenario("PyTorchJob")
    created = stage.create(scenario, "early")
    with stage.acting(scenario):
        scene.until_bound("early", scenario.total)
        made = stage.standins[PyTorchJobStandIn].pod(
            created, "early-stray", build_template(scene.rack), {MADE_FOR: created["metadata"]["uid"]}
        )
        made["spec"]["schedulingGates"] = [{"name": TOPOLOGY_GATE}]
        path = f"/api/v1/namespaces/{scene.namespace}/pods"
        scene.api.create(path, made)
        wait_for("the stray to be gone", lambda: scene.api.find(f"{path}/early-stray") is None)
        now = scene.until_bound("early", scenario.total)
        check_places(stage, scenario, "early", now)
        stage.delete(scenario, "early")
        stage.until_gone("early")


@pytest.mark.parametrize("some", [SCENARIOS[:5], SCENARIOS[5:9], SCENARIOS[9:]], ids=lambda some: "-".join(each.kind for each in some))
def test_deleted_while_gated_everything_is_given_back(stage: Stage, topogate: Topogate, some: tuple[Scenario, ...]) -> None:
    """As many kinds at once as there is room for: their pods are made while nobody is there to take their gates off."""
    scene = stage.scene
    for scenario in some:
        stage.create(scenario, name_of(scenario))
    for scenario in some:
        stage.until_started(scenario, name_of(scenario))
    topogate.kill_reconciler()
    with stage.acting(*some):
        # Executors are made by a driver that runs.
        total = sum(scenario.total if scenario.kind != "SparkApplication" else 1 for scenario in some)

        def all_gated(now: truth.Snapshot) -> bool:
            pods = [pod for pod in now.pods if pod["metadata"]["namespace"] == scene.namespace]
            return len(pods) == total and all(truth.has_gate(pod) for pod in pods)

        scene.eventually("all pods to be there, and gated", all_gated)
        for scenario in some:
            stage.delete(scenario, name_of(scenario))
    topogate.start_reconciler()
    for scenario in some:
        stage.until_gone(name_of(scenario))
    assert scene.api.list(WORKLOADS.format(scene.namespace)) == []


def test_an_object_that_breaks_a_rule_is_refused_with_the_field(stage: Stage, scenario: Scenario) -> None:
    broken = _replaced(stage.make(scenario, "broken"), stage.scene.rack)
    with pytest.raises(ApiError) as refused:
        stage.scene.api.create(stage.path(scenario), broken)
    assert refused.value.status in (400, 403, 422)
    assert scenario.broken in str(refused.value)


def _replaced(obj: Any, rack: str) -> Any:
    """The object with two annotations that exclude each other wherever it has one of them."""
    if isinstance(obj, list):
        return [_replaced(entry, rack) for entry in obj]
    if not isinstance(obj, dict):
        return obj
    made = {key: _replaced(value, rack) for key, value in obj.items()}
    return made | ({PREFERRED_TOPOLOGY: rack} if REQUIRED_TOPOLOGY in obj else {})

"""kube-scheduler's own scenarios of topology-aware PodGroups, on one control plane: once by kube-scheduler with its feature gates on,
and by each of topogate's two ways. All must end as the scenario says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from core.names import MEMBER_OF_LABEL, PODGROUP_PLACED_BY, PODGROUP_TOPOLOGY
from e2e import manifests
from e2e.binaries import find_kubernetes_minor
from e2e.cluster import Cluster
from e2e.scenarios.play import GATES, SERVED, ByScheduler, ByTopogate, ByTopogateNatively, Play, Way
from e2e.scenarios.podgroups import SCENARIOS
from e2e.topogate import Topogate
from tests.reconciler.kinds.pods import bound, list_domains, list_live_pods
from tests.reconciler.podgroups.test_podgroups import GATE, get_condition
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.cluster
needs_own_podgroups = pytest.mark.since_kubernetes("1.36", "PodGroup of kube-scheduler's own with a topology")
AT_ONCE = 5  # control planes on two cores have no more to give


@pytest.fixture(scope="module")
def stage() -> Iterator[Cluster]:
    is_older = find_kubernetes_minor() in ("1.34", "1.35")  # which know neither the gates nor the version of the API
    gates, served = ({}, {}) if is_older else (GATES, SERVED)
    with Cluster(feature_gates=gates, apiserver_flags=served) as cluster, Topogate(cluster, leader_election=False, flags=GATE):
        yield cluster


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(ByScheduler(), id="kube-scheduler", marks=needs_own_podgroups),
        pytest.param(ByTopogate(), id="topogate", marks=pytest.mark.long),
        pytest.param(ByTopogateNatively(), id="natively", marks=needs_own_podgroups),
    ],
)
def test_all_scenarios_end_as_they_should(way: Way, stage: Cluster) -> None:
    prefix = {ByScheduler: "k", ByTopogate: "t", ByTopogateNatively: "n"}[type(way)]
    plays = [Play(stage, scenario, way, f"{prefix}{number}") for number, scenario in enumerate(SCENARIOS)]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        ended = list(threads.map(Play.play, plays))
    assert {scenario.name: problems for scenario, problems in zip(SCENARIOS, ended, strict=True) if problems} == {}


@needs_own_podgroups
def test_job_with_placed_by_kube_scheduler_is_bound_by_it_and_reported(stage: Cluster) -> None:
    scene = Scene(stage, racks=2, nodes=2).open()
    try:
        asks = {PODGROUP_TOPOLOGY: scene.rack, PODGROUP_PLACED_BY: "kube-scheduler"}
        made = manifests.build_job("train", scene.namespace, pods=4, indexed=True, gpus=4)
        made["metadata"] = {**made["metadata"], "annotations": asks, "labels": {}}
        scene.create(made)
        now = scene.eventually("all pods to be bound", lambda now: bound(list_live_pods(now, scene), 4))
        pods = list_live_pods(now, scene)
        assert len(list_domains(scene.read(), pods, scene.rack)) == 1
        (name,) = {pod["metadata"]["labels"][MEMBER_OF_LABEL] for pod in pods}
        assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods} == {name}
        native = scene.api.get(f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{scene.namespace}/podgroups/{name}")
        assert native["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
        scene.eventually("it to be told", lambda _: get_condition(scene, name).get("status") == "True")
        assert get_condition(scene, name)["message"].startswith("kube-scheduler has bound 4 pods in ")
    finally:
        scene.close()

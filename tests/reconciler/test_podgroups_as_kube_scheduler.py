"""kube-scheduler's own scenarios of topology-aware PodGroups, on one control plane: once by kube-scheduler with its feature gates on,
and by each of topogate's two ways. All must end as the scenario says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.cluster import Cluster
from e2e.scenarios.play import GATES, SERVED, ByScheduler, ByTopogate, ByTopogateNatively, Play, Way
from e2e.scenarios.podgroups import SCENARIOS
from e2e.topogate import Topogate

AT_ONCE = 5  # control planes on two cores have no more to give


@pytest.fixture(scope="module")
def stage() -> Iterator[Cluster]:
    with Cluster(feature_gates=GATES, apiserver_flags=SERVED) as cluster, Topogate(cluster, leader_election=False) as topogate:
        topogate.kill_reconciler()
        topogate.start_reconciler(options=["--feature-gates=TopologyAwareWorkloadScheduling=true"])
        yield cluster


@pytest.mark.parametrize("way", [ByScheduler(), ByTopogate(), ByTopogateNatively()], ids=["kube-scheduler", "topogate", "natively"])
def test_all_scenarios_end_as_they_should(way: Way, stage: Cluster) -> None:
    prefix = {ByScheduler: "k", ByTopogate: "t", ByTopogateNatively: "n"}[type(way)]
    plays = [Play(stage, scenario, way, f"{prefix}{number}") for number, scenario in enumerate(SCENARIOS)]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        ended = list(threads.map(Play.play, plays))
    assert {scenario.name: problems for scenario, problems in zip(SCENARIOS, ended, strict=True) if problems} == {}

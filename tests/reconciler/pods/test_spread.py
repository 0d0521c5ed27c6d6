"""Hard topology spread constraints on the real control plane."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import HOSTNAME_LABEL
from e2e import manifests
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.reconciler.scenes import Scene

RACK = "cloud.provider.com/topology-rack"


@pytest.mark.parametrize(("pods", "sizes"), [(4, [1, 1, 1, 1]), (12, [4, 8])], ids=["met", "not met"])
def test_pods_with_hard_spread_are_bound_where_they_are_placed(cluster: Cluster, topogate: Topogate, pods: int, sizes: list[int]) -> None:
    """Four nodes with 8 GPUs. kube-scheduler binds pods that do not meet the constraint, since their node selectors leave one host."""
    scene = Scene(cluster, racks=1, nodes=4).open()
    selector = {"matchLabels": {"app": "a"}}
    constraint: dict[str, Any] = {"maxSkew": 1, "topologyKey": HOSTNAME_LABEL, "whenUnsatisfiable": "DoNotSchedule"}
    job = manifests.build_job("spread", scene.namespace, pods=pods, gpus=1, required=RACK)
    template = job["spec"]["template"]
    template["metadata"].setdefault("labels", {})["app"] = "a"
    template["spec"]["topologySpreadConstraints"] = [constraint | {"labelSelector": selector}]
    scene.create(job)
    now = scene.until_bound("spread", pods)
    assert truth.as_assigned(now, "spread") == []
    nodes = [pod["spec"]["nodeName"] for pod in now.pods_of("spread")]
    assert sorted(nodes.count(node) for node in set(nodes)) == sizes
    scene.close()

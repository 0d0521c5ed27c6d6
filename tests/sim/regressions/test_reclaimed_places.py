"""Places that pods of a job have left for good, while others of its pods are still to come."""

from __future__ import annotations

from e2e import manifests
from e2e.nodes import NodePool
from sim.models.base import POD
from sim.models.kubelets import FAILING_INDEX, INDEX, RUN_SECONDS
from tests.sim.one_queue import make_world

POOL = NodePool(blocks=1, racks=1, nodes=2, labels={"pool": "a"})


def test_index_made_again_after_its_place_was_given_up_runs_where_one_is_kept() -> None:
    """Seed 2993: index 4 of five ran at the place of index 1, which had failed. That was given up when it ended, and another job had it."""
    world = make_world(POOL, gpus=16)
    world.start_reconciler()
    world.run_for(5)
    completions = {"completions": 5, "backoffLimitPerIndex": 20}
    notes = {RUN_SECONDS: "5", FAILING_INDEX: "1"}
    world.apply(manifests.build_job("j", "ns", pods=4, gpus=4, indexed=True, unconstrained="true", spec=completions, annotations=notes))
    world.run_for(5)
    world.apply(manifests.build_job("other", "ns", pods=1, gpus=8, unconstrained="true"))
    world.run_for(12)
    [running] = [pod for pod in world.objects(*POD) if pod["status"]["phase"] == "Running"]
    assert running["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "other"
    world.run_for(60)
    again = [pod for pod in world.objects(*POD) if pod["metadata"].get("annotations", {}).get(INDEX) == "1"]
    assert len(again) > 1
    assert {pod["spec"].get("nodeName") for pod in again[1:]} == {"b1-r1-n1", "b1-r1-n2"} - {running["spec"]["nodeName"]}
    world.close()

"""blockAdmission: who waits for whose pods, in which scope (KEP-349)."""

from __future__ import annotations

import pytest

from core.model.pods_ready_rules import PodsReadyRules, RequeueTime, Scope
from core.names import REASON_PODS_READY_TIMEOUT, REASON_WAITING_FOR_PODS_READY
from core.placement.algorithms.profile import STANDARD
from core.queueing.cycle.cycle import Cycle
from tests.builders import build_condition_json
from tests.queueing.scene import get_refusals, list_in_queue_order
from tests.queueing.shared import Shared


def build_scene(rules: PodsReadyRules | None) -> Shared:
    scene = Shared()
    scene.rack("r1", 4)
    for name, cohort in (("a", "c"), ("b", "c"), ("alone", None)):
        scene.pool(name, "8", cohort)
    scene.cycle = Cycle(scene.state, STANDARD, rules)
    scene.submit("first", queue="a", created="2025-01-01T00:00:00Z")
    for queue in ("a", "b", "alone"):
        scene.submit(f"then-{queue}", queue=queue)
    return scene


@pytest.mark.parametrize(
    ("rules", "start"),
    [
        (None, {"first", "then-a", "then-b", "then-alone"}),
        (PodsReadyRules(), {"first", "then-a", "then-b", "then-alone"}),
        (PodsReadyRules(blocks=Scope.CLUSTER), {"first"}),
        (PodsReadyRules(blocks=Scope.COHORT), {"first", "then-alone"}),
        (PodsReadyRules(blocks=Scope.CLUSTER_QUEUE), {"first", "then-b", "then-alone"}),
    ],
)
def test_one_of_each_scope_starts_at_a_time(rules: PodsReadyRules | None, start: set[str]):
    scene = build_scene(rules)
    waiting = get_refusals(scene.run())
    assert scene.running() == start
    for name, outcome in waiting.items():
        assert outcome.reason == REASON_WAITING_FOR_PODS_READY, name
        assert "ns/first" in outcome.message


def test_the_next_starts_as_soon_as_the_pods_are_ready():
    scene = build_scene(PodsReadyRules(blocks=Scope.CLUSTER))
    order = ["first", "then-a", "then-b", "then-alone"]
    for i, name in enumerate(order):
        scene.run()
        assert scene.running() == set(order[: i + 1])
        scene.run()
        assert scene.running() == set(order[: i + 1]), "nobody before its pods are ready"
        scene._write(name, build_condition_json("PodsReady", time=scene.now))


def test_evicted_or_finished_workload_does_not_block_admission():
    for how in ("Evicted", "Finished"):
        scene = build_scene(PodsReadyRules(blocks=Scope.CLUSTER))
        scene.run()
        scene._write("first", build_condition_json(how, time=scene.now))
        scene.run()
        assert "then-a" in scene.running()


@pytest.mark.parametrize(("time", "order"), [(RequeueTime.EVICTION, ["b", "a"]), (RequeueTime.CREATION, ["a", "b"])])
def test_a_timeout_costs_the_place_in_the_queue_or_not(time: RequeueTime, order: list[str]):
    scene = Shared()
    scene.pool("q", "8")
    scene.submit("a", queue="q")
    scene.submit("b", queue="q")
    scene._write("a", build_condition_json("Evicted", reason=REASON_PODS_READY_TIMEOUT, time="2026-01-02T00:00:00Z"))
    queued = list_in_queue_order(scene.state, PodsReadyRules(requeue_time=time))
    assert [workload.key.partition("/")[2] for workload in queued] == order
    scene._write("a", build_condition_json("Evicted", reason="Preempted", time="2026-01-02T00:00:00Z"))
    queued = list_in_queue_order(scene.state, PodsReadyRules(requeue_time=time))
    assert [workload.key.partition("/")[2] for workload in queued] == ["b", "a"]

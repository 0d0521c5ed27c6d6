"""Whatever makes the pods: a workload holds quota while it waits for an admission check, nothing is written, and what changes asks anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core.names import POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY
from e2e import manifests
from e2e.audit.recount_places import read_domains
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim.models.base import JOB, NODE, POD
from sim.models.checks import CHECK, LONGEST_S, CheckController, make_check
from sim.world import WORKLOADS, World
from tests.sim.one_queue import make_world

Json = dict[str, Any]
POOL = NodePool(blocks=1, racks=1, nodes=4, labels={"pool": "a"})
NOTES = {REQUIRED_TOPOLOGY: POOL.rack_label}
TEMPLATE = {"containers": [{"name": "c", "image": "c:1", "resources": {"requests": {"cpu": "1"}}}]}
STATEFUL_SET = "apps", "statefulsets"


@pytest.fixture
def world() -> Iterator[World]:
    """A rack, and a queue with an admission check that nobody answers yet."""
    made = make_world(POOL, gpus=32, admissionChecksStrategy={"admissionChecks": [{"name": CHECK}]})
    made.apply(make_check(made.time()))
    made.apply({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 10})
    _answer(made, is_asked=False)
    made.start_reconciler()
    made.run_for(10)
    yield made
    made.close()


def _answer(world: World, *, is_asked: bool = True) -> None:
    """The check is answered from now on, or is not."""
    [controller] = [model for model in world.models if isinstance(model, CheckController)]
    controller.is_stopped, controller.retries = not is_asked, False
    for workload in world.objects(*WORKLOADS) if is_asked else ():
        controller.add(WORKLOADS, (workload["metadata"]["namespace"], workload["metadata"]["name"]))


def _metadata(name: str, **given: Json) -> Json:
    return {"name": name, "namespace": "ns", **given, "labels": {QUEUE_NAME_LABEL: "main", **given.get("labels", {})}}


def make_pod(name: str, **given: Json) -> Json:
    notes = {"annotations": {**NOTES, **given.pop("annotations", {})}}
    spec = {"restartPolicy": "Never", **TEMPLATE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(name, **given, **notes), "spec": spec}


def _of_apps(kind: str) -> Json:
    template = {"metadata": {"labels": {"app": "x"}, "annotations": NOTES}, "spec": TEMPLATE}
    spec: Json = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = "x"
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": _metadata("x"), "spec": spec}


def make(kind: str) -> list[Json]:
    """Objects that ask for two pods; one that is alone for itself."""
    if kind == "Job":
        return [manifests.build_job("j", "ns", pods=2, required=POOL.rack_label)]
    if kind == "Pod":
        return [make_pod("p")]
    if kind == "group":
        given = {"labels": {POD_GROUP_NAME: "g"}, "annotations": {POD_GROUP_TOTAL_COUNT: "2"}}
        return [make_pod(f"p{number}", **{name: dict(value) for name, value in given.items()}) for number in (0, 1)]
    return [_of_apps(kind)]


def count_running(world: World) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in world.objects(*POD))


@pytest.mark.parametrize("kind", ["Job", "Pod", "group", "StatefulSet", "Deployment"])
def test_quota_is_kept_and_nothing_is_written_until_the_check_is_answered(world: World, kind: str) -> None:
    for obj in make(kind):
        world.apply(obj)
    world.run_for(20)
    workloads = world.objects(*WORKLOADS)
    assert workloads
    assert all(has_condition(workload, "QuotaReserved") and not has_condition(workload, "Admitted") for workload in workloads)
    version = world.version
    world.run_for(60)
    assert world.version == version
    assert count_running(world) == 0
    _answer(world)
    world.run_for(3 * LONGEST_S)
    assert count_running(world) == (1 if kind == "Pod" else 2)


@pytest.mark.parametrize("kind", ["Job", "Pod", "group", "StatefulSet", "Deployment"])
def test_node_that_is_gone_while_a_check_is_waited_for_is_replaced_at_admission(world: World, kind: str) -> None:
    for obj in make(kind):
        world.apply(obj)
    world.run_for(20)
    places = [place for workload in world.objects(*WORKLOADS) for place in list_hosts(workload)]
    gone = [node for node in world.objects(*NODE) if node["metadata"]["name"] in places]
    for node in gone:
        world.delete(node)
    world.run_for(60)
    assert places == [place for workload in world.objects(*WORKLOADS) for place in list_hosts(workload)]
    _answer(world)
    world.run_for(3 * LONGEST_S)
    assert count_running(world) == (1 if kind == "Pod" else 2)
    assert not any(
        condition["type"] == "Evicted" for workload in world.objects(*WORKLOADS) for condition in workload["status"]["conditions"]
    )


def list_hosts(workload: Json) -> list[str]:
    """The hostnames that a workload is assigned to, which are names of nodes here."""
    given = workload["status"]["admission"]["podSetAssignments"]
    return [values[-1] for each in given for values, _ in read_domains(each["topologyAssignment"])]


def scale(kind: str) -> Callable[[World], None]:
    resource, numbers = (JOB, ("parallelism", "completions")) if kind == "Job" else (STATEFUL_SET, ("replicas",))

    def act(world: World) -> None:
        [found] = world.objects(*resource)
        world.patch(*resource, found, {"spec": dict.fromkeys(numbers, 3)})

    return act


def give_class(world: World) -> None:
    [job] = world.objects(*JOB)
    world.patch(*JOB, job, {"metadata": {"labels": {PRIORITY_CLASS_LABEL: "high"}}})


@pytest.mark.parametrize(
    ("kind", "change", "pods"),
    [("Job", scale("Job"), 3), ("StatefulSet", scale("StatefulSet"), 3), ("Job", give_class, 2)],
    ids=["Job is scaled", "StatefulSet is scaled", "Job gets a priority class"],
)
def test_job_that_changes_while_it_has_quota_asks_anew(world: World, kind: str, change: Callable[[World], None], pods: int) -> None:
    for obj in make(kind):
        world.apply(obj)
    world.run_for(20)
    change(world)
    world.run_for(30)
    [workload] = world.objects(*WORKLOADS)
    assert workload["spec"]["active"] is True
    assert workload["spec"]["podSets"][0]["count"] == pods
    assert has_condition(workload, "QuotaReserved")
    [evicted] = [condition for condition in workload["status"]["conditions"] if condition["type"] == "Evicted"]
    assert "admission checks or its place" in evicted["message"]
    _answer(world)
    world.run_for(3 * LONGEST_S)
    assert count_running(world) == pods

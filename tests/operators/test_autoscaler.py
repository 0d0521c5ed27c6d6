"""ProvisioningRequests with the real cluster autoscaler, whose kwok provider makes simulated nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from core.names import API_VERSION
from e2e import manifests
from e2e.api import wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.nodes import build_node
from e2e.operators.catalogue import AUTOSCALED
from e2e.operators.running import start_operators
from e2e.topogate import Topogate
from tests.installed import Installed
from tests.reconciler.provisioning import AT_ONCE, Checked, get_eviction_messages, has_quota, is_evicted
from tests.reconciler.scenes import JOBS, QUEUES, WORKLOADS, Scene

pytestmark = [pytest.mark.cluster, pytest.mark.long]
CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"
SCALE_UP = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
FOUND = "Capacity is found in the cluster"
NOT_FOUND = "Capacity is not found, CA will try to find it later."
TIMEOUT_S = 6
STILL_S = 3.0  # the autoscaler looks every second
Json = dict[str, Any]
Make = Callable[..., Checked]


@pytest.fixture(scope="module")
def topogate(cluster: Cluster, installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topogate]:
    """Beside the autoscaler."""
    file = tmp_path_factory.mktemp("autoscaler") / "config.json"
    second_pass = {"baseDelay": "1s", "timeout": f"{TIMEOUT_S}s"}
    kind = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    file.write_text(json.dumps(kind | {"topogate": {"secondPass": second_pass}}))
    running = installed.run()
    running.kill_reconciler()
    running.start_reconciler(options=["--config", str(file)])
    (autoscaler,) = start_operators(cluster, ["cluster-autoscaler"])
    yield running
    autoscaler.stop()
    autoscaler.uninstall()


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Two racks of two nodes of a block, which are there already, and none to come."""
    opened = Scene(cluster).open()
    yield opened
    opened.close()


@pytest.fixture
def empty(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """No nodes but those that the autoscaler makes: up to three in each of two racks of two blocks."""
    opened = Scene(cluster)
    opened.pool = replace(AUTOSCALED, nodes=0)
    opened.open()
    yield opened
    opened.close()
    wait_for("the autoscaler to take its nodes away", lambda: not list_made_nodes(opened))


@pytest.fixture(scope="module")
def high(cluster: Cluster, topogate: Topogate) -> Iterator[str]:
    """The name of a WorkloadPriorityClass, above workloads that name none."""
    priority = {"apiVersion": API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100, "description": ""}
    path = manifests.get_path(priority)
    cluster.api.create(path, priority)
    yield "high"
    cluster.api.delete(f"{path}/high")


@pytest.fixture
def make() -> Iterator[Make]:
    """Gives a scene's queue a provisioning check of a class."""
    checks: list[Checked] = []

    def build(scene: Scene, class_name: str, retry: Json = AT_ONCE, **spec: Any) -> Checked:
        checks.append(Checked(scene, class_name, retry, **spec))
        return checks[-1]

    yield build
    for check in checks:
        check.close()


def list_made_nodes(scene: Scene) -> list[Json]:
    """The autoscaler's nodes."""
    return [node for node in scene.api.list("/api/v1/nodes") if node["metadata"]["labels"].get("pool") == AUTOSCALED.labels["pool"]]


def build_another_node(scene: Scene, rack: int, number: int) -> Json:
    return build_node(scene.pool, 1, rack, number)


def get_version(obj: Json | None) -> str:
    assert obj is not None
    return str(obj["metadata"]["resourceVersion"])


def is_granted(check: Checked, now: truth.Snapshot, job: str = "train") -> bool:
    return check.state(now, job).get("state") == "Ready"


def wait_until_placed(check: Checked, pods: int, level: str, job: str = "train") -> truth.Snapshot:
    """Waits for pods on nodes of one domain, by a request that is the autoscaler's word, and until nothing is written any more."""
    now = check.scene.until_bound(job, pods)
    assert truth.check_one_domain(now, job, level) == []
    assert is_granted(check, now, job)
    (name,) = check.consumed(now, job)
    (request,) = (each for each in check.requests() if each["metadata"]["name"] == name)
    assert truth.is_true(request, "Provisioned")
    workload = now.workload_of(job)
    assert workload is not None
    assert workload["status"]["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] == "Ready"
    wait_until_still(check)
    return now


def wait_until_still(check: Checked) -> None:
    """Waits until neither topogate nor the autoscaler writes anything in the namespace or to the check."""
    scene, seen = check.scene, dict[str, str]()
    pods = f"/api/v1/namespaces/{scene.namespace}/pods"

    def is_still() -> bool:
        nonlocal seen
        before = seen
        listed = [scene.api.list(path.format(scene.namespace)) for path in (JOBS, WORKLOADS, pods)]
        objects = [obj for found in (*listed, check.requests(), check.templates()) for obj in found]
        objects += [scene.api.get(check.queue_path), scene.api.get(check.path)]
        seen = {obj["metadata"]["uid"]: get_version(obj) for obj in objects}
        return seen == before

    wait_for("all objects to stand still", is_still, poll_s=STILL_S)


# --- capacity that is there, or not ----------------------------------------------------------------------


def test_capacity_that_is_there_is_provisioned_and_the_second_pass_places_in_one_rack(scene: Scene, make: Make) -> None:
    check = make(scene, CHECK_CAPACITY)
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    now = wait_until_placed(check, 2, scene.rack)
    assert check.state(now)["message"] == FOUND
    (template,) = check.templates()
    assert template["template"]["spec"]["nodeSelector"] == scene.pool.labels


def test_capacity_that_is_not_there_is_waited_for_with_its_quota_until_a_node_comes(scene: Scene, make: Make) -> None:
    check = make(scene, CHECK_CAPACITY)
    scene.submit("train", pods=5, gpus=8, required=scene.block)
    now = scene.eventually("the autoscaler's words", lambda now: check.state(now).get("message") == NOT_FOUND)
    assert check.state(now)["state"] == "Pending"
    assert has_quota(now)
    scene.cluster.add_nodes([build_another_node(scene, 1, 3)])
    now = wait_until_placed(check, 5, scene.block)
    assert "retryCount" not in check.state(now)


def test_request_that_may_not_wait_fails_and_is_retried_until_a_node_comes(scene: Scene, make: Make) -> None:
    check = make(scene, CHECK_CAPACITY, {**AT_ONCE, "backoffLimitCount": 100}, parameters={"noRetry": "true"})
    scene.submit("train", pods=5, gpus=8, required=scene.block)
    scene.eventually("its quota to be given back", lambda now: "CA could not find requested capacity" in get_eviction_messages(now))
    scene.cluster.add_nodes([build_another_node(scene, 1, 3)])
    now = wait_until_placed(check, 5, scene.block)
    assert check.state(now)["retryCount"] >= 1
    assert len(check.requests()) == 1, "those of earlier attempts are gone"


def test_request_that_never_succeeds_is_given_up(scene: Scene, make: Make) -> None:
    check = make(scene, CHECK_CAPACITY, {**AT_ONCE, "backoffLimitCount": 1}, parameters={"noRetry": "true"})
    scene.submit("train", pods=5, gpus=8, required=scene.block)
    now = scene.eventually("it to be deactivated", lambda now: is_evicted(now, "DeactivatedDueToAdmissionCheckRejected"))
    assert "given up after 2 attempts" in truth.get_condition(now.workload_of("train"), "Evicted")["message"]
    wait_until_still(check)


def test_capacity_that_is_scattered_over_racks_is_asked_for_again_until_one_rack_has_it(scene: Scene, make: Make) -> None:
    """The autoscaler knows nothing of racks."""
    check = make(scene, CHECK_CAPACITY, {**AT_ONCE, "backoffLimitCount": 100})
    scene.submit("train", pods=3, gpus=8, required=scene.rack)
    scene.eventually("its quota to be given back", lambda now: f"within {TIMEOUT_S} s" in get_eviction_messages(now))
    scene.cluster.add_nodes([build_another_node(scene, 1, 3)])
    wait_until_placed(check, 3, scene.rack)


def test_two_jobs_that_share_the_room_run_one_after_the_other(scene: Scene, make: Make) -> None:
    """A job that has ended keeps its Workload, and what was booked for it."""
    check = make(scene, CHECK_CAPACITY)
    scene.submit("first", pods=4, gpus=8, required=scene.block)
    wait_until_placed(check, 4, scene.block, "first")
    scene.submit("second", pods=4, gpus=8, required=scene.block)
    scene.eventually("the autoscaler's words", lambda now: check.state(now, "second").get("message") == NOT_FOUND)
    finish(scene, "first", 4)
    wait_until_placed(check, 4, scene.block, "second")


def test_job_that_preempts_takes_the_room_that_was_booked_for_the_other(scene: Scene, make: Make, high: str) -> None:
    scene.allow_preemption()
    check = make(scene, CHECK_CAPACITY)
    scene.submit("low", pods=4, gpus=8, required=scene.block)
    wait_until_placed(check, 4, scene.block, "low")
    scene.api.patch(check.queue_path, {"spec": {"resourceGroups": [build_quota(scene, 32)]}})
    scene.submit("high", pods=4, gpus=8, required=scene.block, labels={"kueue.x-k8s.io/priority-class": high})
    wait_until_placed(check, 4, scene.block, "high")
    scene.delete_job("high")
    wait_until_placed(check, 4, scene.block, "low")


def test_job_that_is_to_be_retried_later_leaves_its_room_to_another(scene: Scene, make: Make) -> None:
    """For the first one, room was found that is scattered over two racks."""
    check = make(scene, CHECK_CAPACITY, {"backoffLimitCount": 3, "backoffBaseSeconds": 3600, "backoffMaxSeconds": 3600})
    scene.submit("first", pods=3, gpus=8, required=scene.rack)
    scene.eventually("its quota to be given back", lambda now: f"within {TIMEOUT_S} s" in get_eviction_messages(now, "first"))
    scene.submit("second", pods=4, gpus=8, required=scene.block)
    wait_until_placed(check, 4, scene.block, "second")


def build_quota(scene: Scene, gpus: int) -> Json:
    """The queue's quota, with so many GPUs."""
    (group,) = scene.api.get(f"{QUEUES}/{scene.prefix}queue")["spec"]["resourceGroups"]
    group["flavors"][0]["resources"][1]["nominalQuota"] = gpus
    return dict(group)


def finish(scene: Scene, job: str, pods: int) -> None:
    """Its pods succeed."""
    for pod in scene.read().pods_of(job):
        path = f"/api/v1/namespaces/{scene.namespace}/pods/{pod['metadata']['name']}/status"
        scene.api.patch(path, {"status": {"phase": "Succeeded"}})
    scene.eventually(f"{job} to be finished", lambda now: truth.is_true(now.workload_of(job), "Finished"))


# --- nodes that are made ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("pods", "level"), [(3, "rack"), (2, "block")])
def test_nodes_are_made_and_the_second_pass_places_all_pods_in_one_domain(empty: Scene, make: Make, pods: int, level: str) -> None:
    check = make(empty, SCALE_UP)
    assert not list_made_nodes(empty)
    empty.submit("train", pods=pods, gpus=8, required=getattr(empty, level))
    now = wait_until_placed(check, pods, getattr(empty, level))
    nodes = {node["metadata"]["name"] for node in list_made_nodes(empty)}
    assert {pod["spec"]["nodeName"] for pod in now.pods_of("train")} == nodes, "as many as were asked for, and no more"
    assert len(nodes) == pods


def test_job_that_spans_two_groups_of_nodes_waits_since_the_autoscaler_makes_one_whole(empty: Scene, make: Make) -> None:
    check = make(empty, SCALE_UP)
    empty.submit("train", pods=4, gpus=8, required=empty.block)
    now = empty.eventually("the autoscaler's words", lambda now: check.state(now).get("message") == NOT_FOUND)
    assert has_quota(now)
    tries: set[str] = set()

    def is_tried_again() -> bool:
        tries.update(get_version(request) for request in check.requests())
        return len(tries) > 2

    wait_for("it to be tried twice more", is_tried_again)
    assert get_version(empty.read().workload_of("train")) == get_version(now.workload_of("train")), "nothing new, nothing written"
    assert not list_made_nodes(empty)


def test_nodes_of_a_job_that_has_ended_are_taken_away_and_the_next_job_gets_others(empty: Scene, make: Make) -> None:
    check = make(empty, SCALE_UP)
    empty.submit("first", pods=2, gpus=8, required=empty.rack)
    before = {pod["spec"]["nodeName"] for pod in wait_until_placed(check, 2, empty.rack, "first").pods_of("first")}
    finish(empty, "first", 2)
    wait_for("its nodes to be taken away", lambda: not list_made_nodes(empty))
    empty.submit("second", pods=3, gpus=8, required=empty.rack)
    now = wait_until_placed(check, 3, empty.rack, "second")
    assert before.isdisjoint(pod["spec"]["nodeName"] for pod in now.pods_of("second"))


def test_pods_beside_a_check_are_not_made_nodes_for_twice(empty: Scene, make: Make) -> None:
    """Two jobs at once: each has nodes of its own, and none is made for pods that a request has paid for."""
    check = make(empty, SCALE_UP)
    for name in ("first", "second"):
        empty.submit(name, pods=3, gpus=8, required=empty.rack)
    for name in ("first", "second"):
        wait_until_placed(check, 3, empty.rack, name)
    assert len(list_made_nodes(empty)) == 6


# --- jobs that leave while they wait ----------------------------------------------------------------------


def delete(scene: Scene) -> None:
    scene.delete_job("train")


def deactivate(scene: Scene) -> None:
    scene.patch_workload("train", {"spec": {"active": False}})


@pytest.mark.parametrize("leave", [delete, deactivate])
def test_job_that_leaves_while_it_waits_takes_its_request_along(leave: Callable[[Scene], None], empty: Scene, make: Make) -> None:
    check = make(empty, SCALE_UP)
    empty.submit("train", pods=4, gpus=8, required=empty.rack)
    empty.eventually("the autoscaler's words", lambda now: check.state(now).get("message") == NOT_FOUND)
    leave(empty)
    empty.eventually("what was asked with to be gone", lambda _: not check.requests() and not check.templates())
    wait_until_still(check)
    assert not list_made_nodes(empty)


def suspend(scene: Scene) -> None:
    scene.patch_job("train", {"spec": {"suspend": True}})


@pytest.mark.parametrize("leave", [delete, deactivate, suspend])
def test_nodes_of_a_job_that_leaves_while_it_runs_are_taken_away(leave: Callable[[Scene], None], empty: Scene, make: Make) -> None:
    check = make(empty, SCALE_UP)
    empty.submit("train", pods=3, gpus=8, required=empty.rack)
    wait_until_placed(check, 3, empty.rack)
    leave(empty)
    wait_for("its nodes to be taken away", lambda: not list_made_nodes(empty))

"""Jobs that lose their nodes again, what their next admission tells, and a pod that is stuck beside another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from core.names import EVICTED, FORGOTTEN_FAILURES, PODS_SCHEDULABLE, QUOTA_RESERVED, REQUEUED
from e2e.audit import truth
from e2e.audit.history import History
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.reconciler.nodes.test_failed_nodes import fail, get_places, get_workload, list_live_pods, list_racks_of
from tests.reconciler.nodes.test_failing_racks import find_touched_pods, list_evictions, recover
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.in_memory

# Long enough to be seen, short enough to be waited for.
RULES = {"unschedulableDelay": "2s", "requeue": {"base": "8s", "limit": "30s"}}
PATIENT = {"backoffLimit": 1000}
# The Job controller keeps the last failed pod of an index until it has made another, and of a suspended job it makes none.
BY_INDEX = {"backoffLimitPerIndex": 1000}


@pytest.fixture(scope="module")
def configured(topogate: Topogate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reconciler by these rules."""
    file = tmp_path_factory.mktemp("rules") / "config.json"
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    file.write_text(json.dumps({**head, "topogate": {"nodeReplacement": RULES}}))
    topogate.kill_reconciler()
    topogate.start_reconciler(options=["--config", str(file)])
    return file


@pytest.fixture
def open_scene(cluster: Cluster, configured: Path) -> Iterator[Callable[..., Scene]]:
    scenes: list[Scene] = []

    def opened(**size: int) -> Scene:
        scenes.append(Scene(cluster, **size).open())
        return scenes[-1]

    yield opened
    for scene in scenes:
        recover(scene, scene.read().nodes)
        scene.close()


def get_condition(now: truth.Snapshot, job: str, kind: str) -> dict[str, Any]:
    return truth.get_condition(get_workload(now, job), kind)


def lose_and_recover(scene: Scene, job: str) -> truth.Snapshot:
    """A node of two in the only rack is lost, and is well again as soon as the job has been evicted and has stopped."""
    now = scene.until_bound(job, 2)
    node = min(get_places(now, job).values())
    fail(scene, job, node)
    scene.eventually("its eviction", lambda now: get_condition(now, job, EVICTED).get("reason") == "NodeFailures")
    now = scene.eventually("it to have stopped", lambda now: get_condition(now, job, QUOTA_RESERVED).get("status") == "False")
    recover(scene, [node])
    return now


def activate_anew(scene: Scene, job: str) -> None:
    """Its user has it stopped, and queued again."""
    scene.patch_workload(job, {"spec": {"active": False}})
    scene.eventually("it to have stopped", lambda now: get_condition(now, job, QUOTA_RESERVED).get("status") == "False")
    scene.eventually("it to be marked", lambda now: get_condition(now, job, REQUEUED).get("reason", "").startswith("Deactivated"))
    scene.patch_workload(job, {"spec": {"active": True}})


@pytest.mark.long
def test_job_that_loses_its_nodes_again_waits_for_its_requeue_time_also_after_a_restart(
    open_scene: Callable[..., Scene], topogate: Topogate, configured: Path
) -> None:
    tight = open_scene(racks=1, nodes=2)
    tight.submit("train", pods=2, gpus=8, required=tight.rack, indexed=True, spec=PATIENT)
    now = lose_and_recover(tight, "train")
    assert "requeueAt" not in get_workload(now, "train")["status"].get("requeueState", {}), "the first time others may have room at once"
    now = lose_and_recover(tight, "train")
    topogate.kill_reconciler()
    until = get_workload(now, "train")["status"]["requeueState"]["requeueAt"]
    for kind in (EVICTED, REQUEUED):
        assert all(part in get_condition(now, "train", kind)["message"] for part in (until, "2 times"))
    assert until in get_condition(now, "train", QUOTA_RESERVED)["message"]
    topogate.start_reconciler(options=["--config", str(configured)])
    now = tight.until_bound("train", 2)
    waited = datetime.fromisoformat(get_condition(now, "train", "Admitted")["lastTransitionTime"]) - datetime.fromisoformat(until)
    assert waited.total_seconds() >= 0, "not before its time"
    status = get_workload(now, "train")["status"]
    assert status["schedulingStats"]["evictions"] == [{"reason": "NodeFailures", "underlyingCause": "", "count": 2}]
    assert "requeueState" not in status
    assert truth.is_true(get_workload(now, "train"), REQUEUED)
    activate_anew(tight, "train")
    now = tight.eventually(
        "it to begin anew", lambda now: FORGOTTEN_FAILURES in get_workload(now, "train")["metadata"].get("annotations", {})
    )
    assert get_workload(now, "train")["metadata"]["annotations"][FORGOTTEN_FAILURES] == "2"
    tight.until_bound("train", 2)


@pytest.mark.long
def test_pods_that_were_deleted_by_force_do_not_keep_their_own_job_from_the_only_node_that_it_has(open_scene: Callable[..., Scene]) -> None:
    tight = open_scene(racks=1, nodes=2)
    tight.submit("train", pods=2, gpus=8, required=tight.rack, indexed=True, spec=BY_INDEX)
    now = lose_and_recover(tight, "train")
    was = {pod["metadata"]["uid"] for pod in now.pods_of("train")}
    now = tight.until_bound("train", 2)
    assert not was & get_places(now, "train").keys(), "others, in the place of those"
    assert truth.as_assigned(now, "train") == []


def test_node_that_rejected_pods_of_a_job_is_not_assigned_to_the_job_again(open_scene: Callable[..., Scene]) -> None:
    """As a kubelet writes it whose devices have gone while the node says that they are there."""
    hall = open_scene(racks=1, nodes=3)
    hall.submit("train", pods=2, gpus=8, required=hall.rack, indexed=True, spec=PATIENT)
    before = get_places(hall.until_bound("train", 2), "train")
    rejected, node = min(before.items(), key=lambda place: place[1])
    (name,) = (pod["metadata"]["name"] for pod in list_live_pods(hall.read(), "train") if pod["metadata"]["uid"] == rejected)
    refusal = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices present"}
    hall.end_pod(name, refusal)
    others = {name for name in hall.read().nodes if name.startswith(hall.prefix)} - {node}
    hall.eventually("another node", lambda now: set(get_places(now, "train").values()) == others)
    activate_anew(hall, "train")
    now = hall.until_bound("train", 2)
    assert set(get_places(now, "train").values()) == others, "it was stopped, and begins anew"


@pytest.mark.long
def test_admitted_event_after_a_node_failure_names_former_and_new_place(open_scene: Callable[..., Scene]) -> None:
    wide = open_scene(racks=2, nodes=2)
    wide.submit("train", pods=2, gpus=8, required=wide.rack, indexed=True, spec=PATIENT)
    now = wide.until_bound("train", 2)
    before, (was,) = get_places(now, "train"), list_racks_of(wide, now, "train")
    fail(wide, "train", min(before.values()))
    now = wide.eventually("another rack", lambda now: len(get_places(now, "train")) == 2 and was not in list_racks_of(wide, now, "train"))
    after, (is_now,) = get_places(now, "train"), list_racks_of(wide, now, "train")

    def told(place: str, nodes: dict[str, str]) -> str:
        block = now.nodes[min(nodes.values())]["metadata"]["labels"][wide.block]
        return f"{wide.rack} {block}/{place} (nodes {', '.join(sorted(nodes.values()))})"

    expected = f". It was on {told(was, before)}. Placed again on {told(is_now, after)}"
    evicted = get_condition(now, "train", EVICTED)
    assert (evicted["status"], evicted["message"].endswith(expected)) == ("False", True), evicted["message"]
    assert f"unhealthy node(s): {min(before.values())}" in evicted["message"]

    def is_told(now: truth.Snapshot) -> bool:
        return any(event["reason"] == "Admitted" and event["message"].endswith(expected) for event in now.events)

    wide.eventually("the event", is_told)


@pytest.mark.long
def test_a_pod_that_does_not_fit_beside_another_of_its_job_moves_alone(open_scene: Callable[..., Scene]) -> None:
    """Somebody binds a pod by hand where one of two has just ended: what comes after it finds no room."""
    hall = open_scene(racks=1, nodes=3)
    hall.submit("train", pods=2, gpus=4, required=hall.rack, indexed=True, spec=PATIENT)
    before = get_places(hall.until_bound("train", 2), "train")
    (node,) = set(before.values())
    gone, stays = sorted(before)
    with History(hall.cluster, hall.namespace) as history:
        thief = {"name": "c", "image": "none", "resources": {"requests": {GPU: "4"}, "limits": {GPU: "4"}}}
        spec = {"nodeName": node, "containers": [thief], "tolerations": [{"operator": "Exists"}]}
        hall.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief", "namespace": hall.namespace}, "spec": spec})
        (name,) = (pod["metadata"]["name"] for pod in list_live_pods(hall.read(), "train") if pod["metadata"]["uid"] == gone)
        hall.api.delete(f"/api/v1/namespaces/{hall.namespace}/pods/{name}", grace_period_s=0)
        hall.eventually("the reason to be told", lambda now: get_condition(now, "train", PODS_SCHEDULABLE).get("status") == "False")
        now = hall.eventually("it to be whole", lambda now: len(get_places(now, "train")) == 2)
        assert get_places(now, "train")[stays] == node
        assert set(get_places(now, "train").values()) > {node}
        now = hall.eventually("all to be well", lambda now: truth.is_true(get_workload(now, "train"), PODS_SCHEDULABLE))
        facts = history.facts()
    assert find_touched_pods(facts, [stays]) == []
    assert list_evictions(facts) == set()
    assert truth.as_assigned(now, "train") == []
    assert not [event for event in now.events if event["reason"] == "NodeUnhealthy"]
    (event,) = (event for event in now.events if event["reason"] == "Unschedulable")
    assert f"on node {node}" in event["message"]

"""Jobs that have nodes kept free for them lose nodes: a spare takes the pods in one write, whoever waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from core.model.admission import decode_admission
from core.names import SPARE_NODES, SPARES, SPARES_HELD
from e2e.api import ApiError, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.reconciler.nodes.test_failed_nodes import NODES, end_pods, fail, get_places, get_workload, wait_until_whole
from tests.reconciler.nodes.test_failing_racks import recover
from tests.reconciler.scenes import WORKLOADS, Scene
from tests.scraped import Scraped

pytestmark = pytest.mark.in_memory

ONE_SPARE = {SPARE_NODES: "1"}


@pytest.fixture
def wide(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Two racks of four nodes, which are well again at the end."""
    opened = Scene(cluster, nodes=4).open()
    yield opened
    recover(opened, [name for name in opened.read().nodes if name.startswith(opened.prefix)])
    opened.close()


def list_spares(now: truth.Snapshot, job: str) -> list[str]:
    text = (get_workload(now, job)["metadata"].get("annotations") or {}).get(SPARES)
    return list(json.loads(text)["main"]) if text else []


def told(now: truth.Snapshot, job: str) -> tuple[str, str]:
    condition = truth.get_condition(get_workload(now, job), SPARES_HELD)
    return str(condition.get("status", "")), str(condition.get("message", ""))


def with_a_spare(scene: Scene, job: str, pods: int = 2) -> tuple[dict[str, str], str]:
    """Submits a job whose pods fill their nodes: where they run, by uid, and the node that is kept free."""
    scene.submit(job, pods=pods, gpus=8, required=scene.rack, indexed=True, annotations=ONE_SPARE)
    scene.until_bound(job, pods)
    now = scene.eventually("its spare to be told of", lambda now: told(now, job)[0] == "True")
    (spare,) = list_spares(now, job)
    assert spare in told(now, job)[1]
    return get_places(now, job), spare


def count(running: Topogate, queue: str, state: str) -> float:
    return Scraped(running.read_metrics()).sum("topogate_spare_nodes", cluster_queue=queue, state=state)


def fill(scene: Scene, job: str) -> None:
    """Takes all nodes that are left, one pod each, and lets another wait for more."""
    scene.submit(f"{job}-0", pods=4, gpus=8, required=scene.rack)
    scene.until_bound(f"{job}-0", 4)
    scene.submit(f"{job}-1", pods=1, gpus=8, unconstrained="true")
    scene.until_bound(f"{job}-1", 1)
    scene.submit("waits", pods=1, gpus=8, unconstrained="true")
    scene.until_waiting("waits", "TopologyPlacementFailed")


@contextmanager
def followed(scene: Scene) -> Iterator[list[dict[str, Any]]]:
    """All that the workloads of a scene are, version by version."""
    versions: list[dict[str, Any]] = []
    follower = scene.cluster.follow(WORKLOADS.format(scene.namespace), lambda _, obj: versions.append(obj))
    try:
        yield versions
    finally:
        follower.stop()


def list_hosts(obj: dict[str, Any]) -> list[str]:
    admission = decode_admission(obj["status"].get("admission"))
    assignments = [given.assignment for given in admission.pod_sets] if admission is not None else []
    return sorted(domain.values[-1] for assignment in assignments if assignment is not None for domain in assignment.domains)


@pytest.mark.long
def test_the_spare_takes_the_pods_of_a_lost_node_in_one_write_while_another_job_waits_for_just_that_room(wide: Scene) -> None:
    before, spare = with_a_spare(wide, "train")
    fill(wide, "filler")
    gone, stays = sorted(before.values())
    with followed(wide) as versions:
        fail(wide, "train", gone)
        now = wait_until_whole(wide, "train", 2, {gone})
    assert set(get_places(now, "train").values()) == {stays, spare}
    assert {uid: node for uid, node in before.items() if node == stays}.items() <= get_places(now, "train").items()
    mine = [each for each in versions if each["metadata"]["name"] == get_workload(now, "train")["metadata"]["name"]]
    moved = next(each for each in mine if list_hosts(each) != sorted(before.values()))
    assert list_hosts(moved) == sorted([stays, spare])
    assert "unhealthyNodes" not in moved["status"]
    assert json.loads(moved["metadata"]["annotations"][SPARES]) == {"main": [spare]}, "no other write came before"
    assert not get_places(now, "waits")
    now = wide.eventually("what is missing to be told", lambda now: told(now, "train")[0] == "False")
    assert "0 of 1 spare node" in told(now, "train")[1]
    assert list_spares(now, "train") == []


@pytest.mark.long
def test_restarted_reconciler_holds_the_same_spare_nodes(wide: Scene, topogate: Topogate) -> None:
    _, spare = with_a_spare(wide, "train")
    topogate.kill_reconciler()
    topogate.start_reconciler()
    fill(wide, "filler")
    now = wide.read()
    assert list_spares(now, "train") == [spare]
    assert spare not in {pod["spec"].get("nodeName") for pod in now.pods}
    queue = f"{wide.prefix}queue"
    wait_for("the metric to count it", lambda: count(topogate, queue, "held") == 1)
    assert count(topogate, queue, "missing") == 0


def test_a_spare_that_is_deleted_is_exchanged_and_one_that_is_cordoned_too(wide: Scene) -> None:
    before, spare = with_a_spare(wide, "train")
    wide.cluster.delete_nodes([spare])
    now = wide.eventually("another spare", lambda now: list_spares(now, "train") not in ([], [spare]))
    (other,) = list_spares(now, "train")
    assert now.nodes[other]["metadata"]["labels"][wide.rack] == now.nodes[next(iter(before.values()))]["metadata"]["labels"][wide.rack]
    wide.eventually("it to be told of", lambda now: other in told(now, "train")[1])
    wide.api.patch(f"{NODES}/{other}", {"spec": {"unschedulable": True}})
    now = wide.eventually("what lacks to be told", lambda now: told(now, "train")[0] == "False")
    assert f"{other} does not serve now: unschedulable" in told(now, "train")[1]
    wide.api.patch(f"{NODES}/{other}", {"spec": {"unschedulable": None}})
    wide.eventually("it to serve again", lambda now: told(now, "train")[0] == "True")
    assert get_places(wide.read(), "train") == before, "nobody was moved for it"


def test_job_without_room_for_its_spares_waits_and_reports_the_number_that_fits(wide: Scene) -> None:
    wide.submit("train", pods=3, gpus=8, required=wide.rack, annotations={SPARE_NODES: "2"})
    message = wide.until_waiting("train", "TopologyPlacementFailed")
    assert all(part in message for part in ("pod set main", "3 pods", "1 of the 2 spare nodes"))


def test_spare_nodes_annotation_that_is_no_number_is_rejected_with_its_field(wide: Scene) -> None:
    with pytest.raises(ApiError, match=r"spec\.template\.metadata\.annotations\[topogate\.dev/spare-nodes\].*a whole number of nodes"):
        wide.submit("train", pods=1, required=wide.rack, annotations={SPARE_NODES: "two"})


def test_a_node_that_is_deleted_is_replaced_by_the_spare(wide: Scene) -> None:
    before, spare = with_a_spare(wide, "train")
    gone = min(before.values())
    wide.cluster.delete_nodes([gone])
    end_pods(wide, "train", gone)  # as the pod garbage collector does in a minute
    now = wait_until_whole(wide, "train", 2, {gone})
    assert spare in get_places(now, "train").values()
    now = wide.eventually("another to be kept free", lambda now: told(now, "train")[0] == "True" and spare not in list_spares(now, "train"))
    assert not {*list_spares(now, "train")} & {*get_places(now, "train").values()}

"""A job that lends the node which is kept free for it: another runs there until the first loses a node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from core.names import BORROWED_SPARES, LEND_SPARES, PRIORITY_CLASS_LABEL, SPARE_NODES
from e2e.api import ApiError, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.reconciler.nodes.test_failed_nodes import fail, get_places, get_workload, wait_until_whole
from tests.reconciler.nodes.test_failing_racks import recover
from tests.reconciler.nodes.test_failing_with_spares import count, followed, list_spares, told
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory
LENDS = {SPARE_NODES: "1", LEND_SPARES: "true"}


@pytest.fixture
def wide(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Two racks of four nodes, which are well again at the end."""
    opened = Scene(cluster, nodes=4).open()
    yield opened
    recover(opened, [name for name in opened.read().nodes if name.startswith(opened.prefix)])
    opened.close()


def get_condition(now: truth.Snapshot, job: str, kind: str) -> tuple[str, str, str]:
    found: dict[str, Any] = dict(truth.get_condition(get_workload(now, job), kind))
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def lent(scene: Scene, high: str) -> tuple[dict[str, str], str]:
    """`train`, which holds a spare, and `low`, which runs there since all else is full: where the first runs, and its spare."""
    scene.submit("train", pods=2, gpus=8, required=scene.rack, indexed=True, annotations=LENDS, labels={PRIORITY_CLASS_LABEL: high})
    scene.until_bound("train", 2)
    scene.submit("filler-0", pods=4, gpus=8, required=scene.rack)
    scene.until_bound("filler-0", 4)
    scene.submit("filler-1", pods=1, gpus=8, unconstrained="true")
    scene.until_bound("filler-1", 1)
    scene.submit("low", pods=1, gpus=8, unconstrained="true")
    now = scene.until_bound("low", 1)
    (spare,) = list_spares(now, "train")
    assert set(get_places(now, "low").values()) == {spare}
    return get_places(now, "train"), spare


@pytest.mark.long
def test_borrower_leaves_the_lent_spare_when_a_node_of_the_holder_fails_also_after_a_restart(
    wide: Scene, topogate: Topogate, high: str
) -> None:
    before, spare = lent(wide, high)
    borrower = get_workload(wide.read(), "low")
    assert json.loads(borrower["metadata"]["annotations"][BORROWED_SPARES]) == {"main": [spare]}
    name = get_workload(wide.read(), "train")["metadata"]["name"]
    words = f"on spare nodes lent to it, which it has to leave when they are needed: {spare} of {wide.namespace}/{name}"
    wide.eventually("the borrower to be told", lambda now: any(words in (event.get("message") or "") for event in now.events))
    key = f"{wide.namespace}/{borrower['metadata']['name']}"
    wide.eventually("the holder to be told", lambda now: f"1 of these lent: {spare} to {key}" in told(now, "train")[1])
    wait_for("the metric to count it", lambda: count(topogate, f"{wide.prefix}queue", "lent") == 1)
    assert count(topogate, f"{wide.prefix}queue", "held") == 1
    topogate.kill_reconciler()
    topogate.start_reconciler()
    gone, stays = sorted(before.values())
    with followed(wide) as versions:
        fail(wide, "train", gone)
        now = wait_until_whole(wide, "train", 2, {gone})
    assert set(get_places(now, "train").values()) == {stays, spare}
    assert {uid: node for uid, node in before.items() if node == stays}.items() <= get_places(now, "train").items()
    mine = [each for each in versions if each["metadata"]["name"] == name]
    assert not any(truth.is_true(each, "Evicted") for each in mine), "it waited in its place"
    status, reason, message = get_condition(now, "low", "Preempted")
    assert (status, reason) == ("True", "SparesTakenBack")
    assert "due to spare nodes that were lent to it and are taken back" in message
    assert get_condition(now, "low", "Evicted")[1] == "Preempted"
    assert "would fit" in wide.until_waiting("low", "TopologyPlacementFailed")
    assert f"(node {spare})" in get_condition(wide.read(), "low", "Evicted")[2]
    assert not get_places(wide.read(), "low")
    wide.delete_job("filler-1")
    now = wide.until_bound("low", 1)  # by itself, or on the same node lent once more, if that was kept free first
    (node,) = get_places(now, "low").values()
    borrowed = get_workload(now, "low")["metadata"].get("annotations", {}).get(BORROWED_SPARES)
    assert borrowed == (json.dumps({"main": [node]}, separators=(",", ":")) if list_spares(now, "train") == [node] else None)


@pytest.mark.parametrize("instead", [None, "{}"])
def test_borrowed_spares_annotation_that_a_user_changed_is_written_again(wide: Scene, high: str, instead: str | None) -> None:
    _, spare = lent(wide, high)
    name = get_workload(wide.read(), "low")["metadata"]["name"]
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{wide.namespace}/workloads/{name}"
    changed = wide.cluster.api.patch(path, {"metadata": {"annotations": {BORROWED_SPARES: instead}}})
    assert changed["metadata"].get("annotations", {}).get(BORROWED_SPARES) == instead

    def says(now: truth.Snapshot) -> bool:
        notes: dict[str, str] = get_workload(now, "low")["metadata"].get("annotations") or {}
        return notes.get(BORROWED_SPARES) == json.dumps({"main": [spare]}, separators=(",", ":"))

    wide.eventually("it to be written again", says)
    wide.eventually("the holder to know it", lambda now: f"1 of these lent: {spare} to {wide.namespace}/{name}" in told(now, "train")[1])


def test_lend_spares_annotation_that_is_not_boolean_is_rejected_with_its_field(wide: Scene) -> None:
    with pytest.raises(
        ApiError, match=r"spec\.template\.metadata\.annotations\[topogate\.dev/lend-spares\].*\"true\" or \"false\" is expected"
    ):
        wide.submit("train", pods=1, required=wide.rack, annotations={SPARE_NODES: "1", LEND_SPARES: "maybe"})

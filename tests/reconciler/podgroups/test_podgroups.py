"""Groups of pods: placed together by gate and pin, or told why not; bound by kube-scheduler alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.names import JOB_COMPLETION_INDEX_LABEL, MEMBER_OF_LABEL, PODGROUP_GATE
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.proxies.writes_proxy import Cut, WritesProxy
from e2e.topogate import Topogate
from tests.installed import Installed
from tests.long import mark_long
from tests.reconciler.kinds.pods import build_pod_spec
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory

GATE = ("--feature-gates=TopologyAwareWorkloadScheduling=true",)
DOCUMENT = Path(__file__).parents[3] / "docs" / "podgroups.md"
GROUPS = "/apis/topogate.dev/v1alpha1/namespaces/{}/podgroups"


@pytest.fixture(scope="module")
def topogate(installed: Installed) -> Topogate:
    running = installed.run()
    running.kill_reconciler()
    running.start_reconciler(options=GATE)
    return running


@pytest.fixture
def hall(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Two racks of two nodes with 8 GPUs each."""
    scene = Scene(cluster, racks=2, nodes=2).open()
    yield scene
    scene.close()


def group(scene: Scene, name: str, level: str, policy: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": scene.namespace}
    constraints = {"topologyConstraints": [{"level": level}]}
    spec = {"schedulingPolicy": dict(policy), "schedulingConstraints": constraints}
    return scene.api.create(
        GROUPS.format(scene.namespace), {"apiVersion": "topogate.dev/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    )


def gang(scene: Scene, name: str, count: int) -> dict[str, Any]:
    return group(scene, name, scene.rack, {"gang": {"minCount": count}})


def add(scene: Scene, name: str, *numbers: int, gpus: int = 4) -> None:
    for number in numbers:
        labels = {MEMBER_OF_LABEL: name, JOB_COMPLETION_INDEX_LABEL: f"{number}"}
        metadata = {"name": f"{name}-{number}", "namespace": scene.namespace, "labels": labels}
        spec = {**build_pod_spec(gpus, restart="Never"), "schedulingGates": [{"name": PODGROUP_GATE}]}
        scene.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def get_places(now: truth.Snapshot, name: str) -> dict[str, str]:
    """Node by pod, of those that are bound."""
    mine = [pod for pod in now.pods if (pod["metadata"].get("labels") or {}).get(MEMBER_OF_LABEL) == name]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in mine if pod["spec"].get("nodeName")}


def list_racks(scene: Scene, now: truth.Snapshot, name: str) -> set[str]:
    return {now.nodes[node]["metadata"]["labels"][scene.rack] for node in get_places(now, name).values()}


def get_condition(scene: Scene, name: str) -> dict[str, Any]:
    status = scene.api.get(f"{GROUPS.format(scene.namespace)}/{name}").get("status") or {}
    return next((c for c in status.get("conditions") or () if c["type"] == "PodGroupScheduled"), {})


def test_a_gang_is_bound_in_one_rack_ranks_together(hall: Scene) -> None:
    gang(hall, "train", 4)
    add(hall, "train", 0, 1, 2, 3)
    now = hall.eventually("all to be bound", lambda now: len(get_places(now, "train")) == 4)
    assert len(list_racks(hall, now, "train")) == 1
    where = get_places(now, "train")
    assert where["train-0"] == where["train-1"] != where["train-2"] == where["train-3"]
    hall.eventually("it to be told", lambda _: get_condition(hall, "train").get("status") == "True")
    assert get_condition(hall, "train")["message"] == "4 pods have their places"


def test_gang_that_fits_no_rack_stays_gated_with_a_message_until_one_fits(hall: Scene) -> None:
    gang(hall, "small", 1)
    add(hall, "small", 0, gpus=4)
    hall.eventually("it to be bound", lambda now: len(get_places(now, "small")) == 1)
    gang(hall, "large", 4)
    add(hall, "large", 0, 1, 2, 3, gpus=8)
    hall.eventually("it to be told", lambda _: get_condition(hall, "large").get("reason") == "Unschedulable")
    message = get_condition(hall, "large")["message"]
    assert message.startswith("none of 2 placements takes 4 pods, the best takes 2: "), message
    hall.api.delete(f"{GROUPS.format(hall.namespace)}/large")
    gang(hall, "fits", 2)
    add(hall, "fits", 0, 1, gpus=8)
    now = hall.eventually("the other to be bound", lambda now: len(get_places(now, "fits")) == 2)
    assert list_racks(hall, now, "fits") != list_racks(hall, now, "small")
    assert get_places(now, "large") == {}


def test_two_gangs_that_want_the_same_rack_share_it_or_one_waits(hall: Scene) -> None:
    for name in ("one", "other", "third"):
        gang(hall, name, 2)
    for number in (0, 1):
        for name in ("one", "other", "third"):
            add(hall, name, number, gpus=8)

    def settled(now: truth.Snapshot) -> bool:
        whole = [name for name in ("one", "other", "third") if len(get_places(now, name)) == 2]
        return (
            len(whole) == 2 and sum(get_condition(hall, name).get("reason") == "Unschedulable" for name in ("one", "other", "third")) == 1
        )

    now = hall.eventually("two to be bound and one to be told", settled)
    whole = [name for name in ("one", "other", "third") if len(get_places(now, name)) == 2]
    assert sum(len(get_places(now, name)) for name in ("one", "other", "third")) == 4
    assert [len(list_racks(hall, now, name)) for name in whole] == [1, 1]
    waiting = ({"one", "other", "third"} - set(whole)).pop()
    for number in (0, 1):
        hall.api.delete(f"/api/v1/namespaces/{hall.namespace}/pods/{whole[0]}-{number}", grace_period_s=0)
    hall.eventually("the third to be bound", lambda now: len(get_places(now, waiting)) == 2)


def test_a_group_without_a_constraint_is_kube_schedulers(hall: Scene) -> None:
    metadata = {"name": "free", "namespace": hall.namespace}
    spec: dict[str, Any] = {"schedulingPolicy": {"basic": {}}}
    hall.api.create(
        GROUPS.format(hall.namespace), {"apiVersion": "topogate.dev/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    )
    add(hall, "free", 0, 1)
    hall.eventually("both to be bound", lambda now: len(get_places(now, "free")) == 2)
    hall.eventually(
        "its condition", lambda _: get_condition(hall, "free").get("reason") == "NoConstraint"
    )  # written after the pods are let go


def test_documented_pod_group_example_is_placed_in_one_rack(hall: Scene) -> None:
    """Its level, under the name that a NodeTopology gives it there, too."""
    texts = re.findall(r"^```yaml\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    for obj in yaml.safe_load_all(texts[0]):
        hall.create({**obj, "metadata": {**obj["metadata"], "namespace": hall.namespace}})
    (names,) = yaml.safe_load_all(texts[1])
    hall.api.create("/apis/topogate.dev/v1alpha1/nodetopologies", names)
    hall.api.delete("/apis/topogate.dev/v1alpha1/nodetopologies/ours")
    now = hall.eventually("both to be bound", lambda now: len(get_places(now, "train")) == 2)
    assert len(list_racks(hall, now, "train")) == 1


def test_group_with_an_unknown_level_is_invalid_until_a_node_topology_names_the_level(hall: Scene) -> None:
    group(hall, "odd", "rack-of-ours", {"basic": {}})
    add(hall, "odd", 0)
    hall.eventually("it to be told", lambda _: get_condition(hall, "odd").get("reason") == "Invalid")
    assert get_condition(hall, "odd")["message"].startswith("rack-of-ours: no NodeTopology has such a level; none has any; ")
    topology = {"apiVersion": "topogate.dev/v1alpha1", "kind": "NodeTopology", "metadata": {"name": f"{hall.prefix}names"}}
    levels = [{"name": "rack-of-ours", "nodeLabel": hall.rack}]
    hall.api.create("/apis/topogate.dev/v1alpha1/nodetopologies", {**topology, "spec": {"levels": levels}})
    try:
        hall.eventually("it to be bound", lambda now: len(get_places(now, "odd")) == 1)
    finally:
        hall.api.delete(f"/apis/topogate.dev/v1alpha1/nodetopologies/{hall.prefix}names")


def test_pods_of_equal_priority_that_come_meanwhile_take_no_place_of_a_group(hall: Scene) -> None:
    """They want just what the group gets, and are there before its pods are let go."""
    gang(hall, "train", 2)
    for number in range(8):
        metadata = {"name": f"thief-{number}", "namespace": hall.namespace, "labels": {"app": "thief"}}
        hall.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": build_pod_spec(4, restart="Never")})
        if number == 3:
            add(hall, "train", 0, 1, gpus=8)

    def settled(now: truth.Snapshot) -> bool:
        return len(get_places(now, "train")) == 2 or get_condition(hall, "train").get("reason") == "Unschedulable"

    now = hall.eventually("the group to be whole or told", settled)
    assert len(get_places(now, "train")) in (0, 2)
    for number in range(8):
        hall.api.delete(f"/api/v1/namespaces/{hall.namespace}/pods/thief-{number}", grace_period_s=0)
    now = hall.eventually("the group to be whole", lambda now: len(get_places(now, "train")) == 2)
    assert len(list_racks(hall, now, "train")) == 1


@pytest.fixture
def cut_hall(hall: Scene, topogate: Topogate, proxy: WritesProxy, kubeconfig: Path) -> Iterator[Scene]:
    """The same, with a reconciler whose writes can be cut off."""
    topogate.kill_reconciler()
    topogate.start_reconciler(kubeconfig=kubeconfig, options=GATE)
    yield hall
    proxy.cut(None)
    if topogate.reconciler is not None:
        topogate.kill_reconciler()
    topogate.start_reconciler(options=GATE)


@pytest.mark.parametrize(("at", "after"), mark_long([(at, at % 2 == 0) for at in range(1, 9)], but={1, 4, 6}))
def test_killed_between_the_writes_of_a_gang_it_is_whole_with_the_next_process(
    at: int, after: bool, cut_hall: Scene, topogate: Topogate, proxy: WritesProxy, kubeconfig: Path
) -> None:
    """Four places are kept, four pods let go; `after`: the server did the write, and nobody heard of it."""
    gang(cut_hall, "train", 4)
    proxy.cut(Cut(at, after, topogate.kill_reconciler))
    add(cut_hall, "train", 0, 1, 2, 3)
    assert proxy.has_cut.wait(30), f"there were {len(proxy.writes)} writes only: {proxy.writes}"
    proxy.cut(None)
    now = cut_hall.read()
    let_go = [
        pod for pod in now.pods if MEMBER_OF_LABEL in (pod["metadata"].get("labels") or {}) and not pod["spec"].get("schedulingGates")
    ]
    if let_go:
        assert len([pod for pod in now.pods if (pod.get("status") or {}).get("nominatedNodeName") or pod in let_go]) == 4
    topogate.start_reconciler(kubeconfig=kubeconfig, options=GATE)
    now = cut_hall.eventually("all to be bound", lambda now: len(get_places(now, "train")) == 4)
    assert len(list_racks(cut_hall, now, "train")) == 1


@pytest.mark.parametrize("at", mark_long([1, 3, 4, 6], but={1, 3}))
def test_pod_group_write_with_a_lost_answer_is_resolved_and_both_gangs_are_bound(at: int, cut_hall: Scene, proxy: WritesProxy) -> None:
    proxy.cut(Cut(at, True, lambda: None))
    for name in ("one", "other"):
        gang(cut_hall, name, 2)
        add(cut_hall, name, 0, 1, gpus=8)
    assert proxy.has_cut.wait(30)
    now = cut_hall.eventually("both to be bound", lambda now: [len(get_places(now, name)) for name in ("one", "other")] == [2, 2])
    assert list_racks(cut_hall, now, "one") != list_racks(cut_hall, now, "other")

"""Nodes, several at once and whole racks of them, fail under running jobs; judged by all that happened meanwhile.

What ran on healthy nodes is followed by uid through everything that the API server told of it, and the whole is gone through moment by
moment for nodes over capacity and domains that were left (`e2e.audit.audit`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from e2e.api import ApiError
from e2e.audit import truth
from e2e.audit.audit import audit
from e2e.audit.history import Fact, History, PodFact, WorkloadFact
from e2e.cluster import Cluster
from e2e.nodes import is_schedulable
from e2e.topogate import Topogate
from tests.reconciler.kinds.pods import build_template, of_set
from tests.reconciler.nodes.test_failed_nodes import (
    NODES,
    end_pods,
    fail,
    get_places,
    get_workload,
    list_live_pods,
    list_racks_of,
    wait_until_whole,
)
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory

# Indexes count their failures one by one: the Job controller would pause for minutes after a dozen pods that failed at once.
PATIENT = {"backoffLimitPerIndex": 100}


@pytest.fixture
def open_scene(cluster: Cluster, topogate: Topogate) -> Iterator[Callable[..., Scene]]:
    """Scenes of any size, whose nodes are well again when they close."""
    with contextlib.ExitStack() as stack:

        def opened(**size: int) -> Scene:
            scene = Scene(cluster, **size).open()
            stack.callback(scene.close)
            stack.callback(lambda: recover(scene, scene.read().nodes))
            return scene

        yield opened


def recover(scene: Scene, nodes: Collection[str]) -> None:
    """Ready again, and once Kubernetes has taken its taints off: until then nothing is placed there."""
    there = scene.read().nodes
    mine = {name for name in nodes if name.startswith(scene.prefix)}
    for name in mine:
        if not truth.is_true(there[name], "Ready"):
            scene.cluster.set_node_ready(name, ready=True)
    scene.eventually("the nodes to take pods again", lambda now: all(is_schedulable(now.nodes[name]) for name in mine))


def list_nodes(scene: Scene, now: truth.Snapshot, rack: str) -> set[str]:
    return {name for name, node in now.nodes.items() if node["metadata"]["labels"].get(scene.rack) == rack}


def all_nodes(scene: Scene) -> dict[str, dict[str, Any]]:
    return {name: node for name, node in scene.read().nodes.items() if name.startswith(scene.prefix)}


def wait_until_whole_without(scene: Scene, job: str, pods: int, lost: set[str]) -> truth.Snapshot:
    """Whole again, and nothing is left of those that went: the last one is gone a moment after its follower runs."""
    wait_until_whole(scene, job, pods, lost)
    return scene.eventually("those that went to be gone", lambda now: len(now.pods_of(job)) == len(get_places(now, job)) == pods)


def find_touched_pods(facts: Collection[Fact], uids: Collection[str]) -> list[str]:
    """Which of these pods, that all ran, have ended, gone or moved."""
    where: dict[str, str] = {}
    bound = (fact for fact in facts if isinstance(fact, PodFact) and fact.uid in uids and fact.node)
    return [
        f"pod {fact.name} on {fact.node}" for fact in bound if fact.ended or fact.gone or where.setdefault(fact.uid, fact.node) != fact.node
    ]


def list_evictions(facts: Collection[Fact]) -> set[tuple[str, str]]:
    return {(fact.job, fact.evicted) for fact in facts if isinstance(fact, WorkloadFact) and fact.evicted}


def find_broken_rules(scene: Scene, facts: Collection[Fact], required: Mapping[str, str]) -> list[str]:
    queue = scene.api.get(f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{scene.prefix}queue")
    return audit(facts, all_nodes(scene).values(), [queue], required)


@pytest.mark.long
def test_job_of_64_pods_that_loses_a_node_then_three_then_a_rack_moves_only_the_affected_pods(open_scene: Callable[..., Scene]) -> None:
    """Two slices of 32 pods, each in a rack of their one block; slices stay whole, so a lost rack's goes to the third rack."""
    hall = open_scene(blocks=2, racks=3, nodes=6)
    with History(hall.cluster, hall.namespace) as history:
        asked = {"required": hall.block, "slice_topology": hall.rack, "slice_size": 32}
        hall.submit("train", pods=64, gpus=1, indexed=True, spec=PATIENT, **asked)
        now = hall.until_bound("train", 64)
        for accident in ("a node", "three nodes", "a rack"):
            before = get_places(now, "train")
            here, there = sorted(list_racks_of(hall, now, "train"))
            of_here, of_there = (sorted(list_nodes(hall, now, rack) & set(before.values())) for rack in (here, there))
            lost = {"a node": set(of_here[:1]), "three nodes": {*of_here[:2], of_there[0]}, "a rack": list_nodes(hall, now, here)}[accident]
            fail(hall, "train", *lost)
            now = wait_until_whole_without(hall, "train", 64, lost)
            stayed = {uid: node for uid, node in before.items() if node not in lost}
            assert stayed.items() <= get_places(now, "train").items(), accident
            assert find_touched_pods(history.facts(), stayed) == [], accident
            assert truth.check_slices(now, "train", hall.rack, 32) == [], accident
            assert truth.as_assigned(now, "train") == [], accident
            assert (here in list_racks_of(hall, now, "train")) == (accident != "a rack")
            recover(hall, lost)
        facts = history.facts()
    assert find_broken_rules(hall, facts, {"train": hall.block}) == []
    assert list_evictions(facts) == set()


@pytest.mark.long
def test_flapping_nodes_change_no_placement_of_running_or_pending_pods(open_scene: Callable[..., Scene]) -> None:
    wide = open_scene(nodes=4)
    wide.submit("runs", pods=2, gpus=8, required=wide.rack)
    wide.until_bound("runs", 2)
    wide.submit("waits", pods=2, gpus=8, required=wide.rack, pod_spec={"schedulerName": "nobody"})

    def pinned(now: truth.Snapshot) -> set[str]:
        hosts = (pod["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname") for pod in list_live_pods(now, "waits"))
        return {host for host in hosts if host}

    before = wide.eventually("its pods to be ungated", lambda now: len(pinned(now)) == 2)
    with History(wide.cluster, wide.namespace) as history:
        for round_ in range(2):
            nodes = {*get_places(before, "runs").values(), *pinned(before)}
            for node in nodes:
                wide.cluster.set_node_ready(node, ready=False)
            wide.submit(f"other-{round_}", pods=1, gpus=8, required=wide.rack)
            wide.until_bound(f"other-{round_}", 1)  # by then the nodes' state has long been seen
            recover(wide, nodes)
        now = wide.eventually("the nodes to be seen well", lambda now: all(truth.is_true(now.nodes[node], "Ready") for node in nodes))
        facts = history.facts()
    for job in ("runs", "waits"):
        assert [pod["metadata"]["uid"] for pod in list_live_pods(now, job)] == [
            pod["metadata"]["uid"] for pod in list_live_pods(before, job)
        ]
        assert get_workload(now, job)["status"]["admission"] == get_workload(before, job)["status"]["admission"]
    assert not [event for event in now.events if event["reason"] in ("NodeUnhealthy", "PodTerminatedByKueue")]
    assert list_evictions(facts) == set()


@pytest.mark.long
def test_of_two_jobs_that_lose_a_node_and_want_the_same_spare_one_gets_it_and_the_other_is_told(open_scene: Callable[..., Scene]) -> None:
    """Each has two pods of a node and a half's worth; what is left over is half a node."""
    tight = open_scene(racks=1, nodes=4)
    names = ("one", "other")
    with History(tight.cluster, tight.namespace) as history:
        for name in names:
            tight.submit(name, pods=3, gpus=4, required=tight.rack, indexed=True, spec=PATIENT)
            tight.until_bound(name, 3)
        tight.submit("filler", pods=1, gpus=4, required=tight.rack)
        now = tight.until_bound("filler", 1)
        shared = set(get_places(now, "one").values()) & set(get_places(now, "other").values())
        assert len(shared) == 1, "the test's own arrangement: a node that both have"
        for node in shared:
            tight.cluster.set_node_ready(node, ready=False)
        for name in names:
            end_pods(tight, name, *shared)

        def settled(now: truth.Snapshot) -> bool:
            whole = [name for name in names if len(get_places(now, name)) == 3 and not shared & set(get_places(now, name).values())]
            told = [name for name in names if truth.get_condition(get_workload(now, name), "Evicted").get("reason") == "NodeFailures"]
            return len(whole) == len(told) == 1 and whole != told and not list_live_pods(now, told[0])

        now = tight.eventually("one to be whole and the other to be told", settled)
        (gone,) = (name for name in names if not list_live_pods(now, name))
        (stays,) = set(names) - {gone}
        message = truth.get_condition(get_workload(now, gone), "Evicted")["message"]
        (node,) = shared
        assert f": {node}; " in message
        tight.until_waiting(gone, "TopologyPlacementFailed")
        there = get_places(tight.read(), stays)
        recover(tight, shared)
        now = tight.eventually("the other to be whole when the node is back", lambda now: len(get_places(now, gone)) == 3)
        facts = history.facts()
    assert get_places(now, stays) == there
    assert list_evictions(facts) == {(gone, "NodeFailures")}
    assert find_touched_pods(facts, there) == []
    assert find_broken_rules(tight, facts, dict.fromkeys(names, tight.rack)) == []


@pytest.mark.live("what the API server does without the webhook")
def test_nodes_lost_while_webhook_is_down_are_replaced_and_jobs_are_stopped(open_scene: Callable[..., Scene], topogate: Topogate) -> None:
    """It is not asked about pods of a Job, nor about stopping one; a Deployment's pods are not made without it, so that none can run past
    its gate."""
    wide = open_scene(nodes=5)
    with History(wide.cluster, wide.namespace) as history:
        wide.submit("train", pods=3, gpus=8, required=wide.rack, indexed=True, spec=PATIENT)
        wide.until_bound("train", 3)
        wide.create(of_set("Deployment", wide, "serve", 1, build_template(8, required=wide.rack)))
        served = wide.eventually("its pod to run", lambda now: len(serving(now)) == 1)
        wide.submit("whole", pods=5, gpus=8, required=wide.rack, indexed=True, spec=PATIENT)
        (first,), before = serving(served), get_places(wide.until_bound("whole", 5), "train")
        whole = get_places(wide.read(), "whole")
        lost = {min(before.values()), min(whole.values()), first["spec"]["nodeName"]}
        stayed = {uid for uid, node in {**before, **whole}.items() if node not in lost}
        topogate.kill_webhook()
        try:
            with pytest.raises(ApiError, match="failed calling webhook"):
                wide.submit("late", pods=1, gpus=1, required=wide.rack)
            fail(wide, "train", *lost)
            end_pods(wide, "whole", *lost)
            wide.api.delete(f"/api/v1/namespaces/{wide.namespace}/pods/{first['metadata']['name']}", grace_period_s=0)
            wait_until_whole_without(wide, "train", 3, lost)
            wide.eventually(
                "its eviction", lambda now: truth.get_condition(get_workload(now, "whole"), "Evicted").get("reason") == "NodeFailures"
            )
            refused = wide.eventually("its pod to be refused", lambda now: any(event["reason"] == "FailedCreate" for event in now.events))
            assert serving(refused) == []
            wide.until_waiting("whole", "TopologyPlacementFailed")
            assert find_touched_pods(history.facts(), stayed & before.keys()) == []
        finally:
            topogate.start_webhook()
        # Its controller pauses longer after every refusal.
        again = wide.eventually("another pod to run elsewhere", lambda now: len(serving(now)) == 1)
        facts = history.facts()
    assert {pod["spec"]["nodeName"] for pod in serving(again)}.isdisjoint(lost)
    assert truth.as_assigned(again, "train") == []
    assert find_touched_pods(facts, stayed & before.keys()) == []
    assert find_broken_rules(wide, facts, {"train": wide.rack, "whole": wide.rack}) == []
    assert list_evictions(facts) == {("whole", "NodeFailures")}
    assert ungated_before_admission(facts) == []


def serving(now: truth.Snapshot) -> list[dict[str, Any]]:
    """Pods of the Deployment that are on a node and not on their way out."""
    mine = [pod for pod in now.pods if (pod["metadata"].get("labels") or {}).get("app") == "serve"]
    return [pod for pod in mine if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")]


def ungated_before_admission(facts: Collection[Fact]) -> list[str]:
    """Pods that were free to be bound though their workload was not, or not any more, admitted."""
    admitted: dict[str, bool] = {}
    seen: set[str] = set()
    found = []
    for fact in facts:
        if isinstance(fact, WorkloadFact):
            admitted[fact.name] = fact.admission is not None
        elif isinstance(fact, PodFact) and fact.uid not in seen and not fact.gated and not fact.gone:
            seen.add(fact.uid)
            if not admitted.get(fact.workload):
                found.append(f"pod {fact.name} of {fact.workload or 'no workload'}")
    return found


def test_most_of_the_nodes_not_ready_while_their_pods_run_and_nothing_is_done(open_scene: Callable[..., Scene]) -> None:
    """Sixty of a hundred of every rack; for how long is judged in virtual time (`test_node_health`)."""
    wide = open_scene(nodes=5)
    for name in ("one", "other"):
        wide.submit(name, pods=4, gpus=8, required=wide.rack)
        wide.until_bound(name, 4)
    before = wide.read()
    used = {name: set(get_places(before, name).values()) for name in ("one", "other")}
    away = {node for nodes in used.values() for node in sorted(nodes)[:3]}
    topology = f"/apis/kueue.x-k8s.io/v1beta2/topologies/{wide.prefix}topology"

    def reachable() -> str:
        conditions = (wide.api.get(topology).get("status") or {}).get("conditions") or ()
        return next((c["status"] for c in conditions if c["type"] == "topogate.dev/NodesReachable"), "")

    with History(wide.cluster, wide.namespace) as history:
        for node in away:
            wide.cluster.set_node_ready(node, ready=False)
        wide.eventually("the storm to be told", lambda now: reachable() == "False")
        tainted = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"
        wide.eventually(
            "their taints",
            lambda now: all(any(taint["key"] in tainted for taint in now.nodes[node]["spec"].get("taints", ())) for node in away),
        )
        wide.submit("more", pods=1, gpus=8, required=wide.rack)
        wide.until_bound("more", 1)
        recover(wide, away)
        now = wide.eventually("calm", lambda now: reachable() == "True")
        facts = history.facts()
    uids = {uid for name in used for uid in get_places(before, name)}
    assert find_touched_pods(facts, uids) == []
    assert list_evictions(facts) == set()
    for name in used:
        assert get_places(now, name) == get_places(before, name)
        assert get_workload(now, name)["status"]["admission"] == get_workload(before, name)["status"]["admission"]
        assert "unhealthyNodes" not in get_workload(now, name)["status"]
    assert not [event for event in now.events if event["reason"] in ("NodeUnhealthy", "PodTerminatedByKueue")]


def cordon(scene: Scene, node: str) -> None:
    scene.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}})


def drain(scene: Scene, node: str) -> None:
    """As `kubectl drain` does: cordoned, then every pod evicted."""
    cordon(scene, node)
    for pod in scene.read().pods_in(scene.namespace):
        if pod["spec"].get("nodeName") == node and not truth.is_terminal(pod) and not pod["metadata"].get("deletionTimestamp"):
            name = pod["metadata"]["name"]
            evicts = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": scene.namespace}}
            scene.api.create(f"/api/v1/namespaces/{scene.namespace}/pods/{name}/eviction", evicts)


def uncordon(scene: Scene, node: str) -> None:
    scene.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": None}})


@pytest.mark.long
def test_a_rack_that_is_drained_gives_its_pods_to_the_others_of_its_block(open_scene: Callable[..., Scene]) -> None:
    """Node by node, as `kubectl drain` takes several: all cordoned first, each emptied before the next."""
    hall = open_scene(racks=3, nodes=2)
    with History(hall.cluster, hall.namespace) as history:
        hall.submit("train", pods=4, gpus=8, indexed=True, spec=PATIENT, required=hall.block)
        now = hall.until_bound("train", 4)
        before, rack = get_places(now, "train"), min(list_racks_of(hall, now, "train"))
        drained = sorted(list_nodes(hall, now, rack))
        for node in drained:
            cordon(hall, node)
        for number, node in enumerate(drained, 1):
            drain(hall, node)
            now = wait_until_whole_without(hall, "train", 4, set(drained[:number]))
        facts = history.facts()
    stayed = {uid for uid, node in before.items() if node not in drained}
    assert len(stayed) == 2
    assert find_touched_pods(facts, stayed) == []
    assert list_evictions(facts) == set()
    assert find_broken_rules(hall, facts, {"train": hall.block}) == []
    for node in drained:
        uncordon(hall, node)


@pytest.mark.long
def test_slice_in_a_rack_drained_node_by_node_is_whole_in_another_rack(open_scene: Callable[..., Scene]) -> None:
    """Half a slice has no other place while its other half runs. The job is evicted with that reason and starts anew, unless the
    drain was faster than topogate: then only the slice has moved."""
    hall = open_scene(racks=3, nodes=2)
    with History(hall.cluster, hall.namespace) as history:
        asked = {"required": hall.block, "slice_topology": hall.rack, "slice_size": 2}
        hall.submit("train", pods=4, gpus=8, indexed=True, spec=PATIENT, **asked)
        now = hall.until_bound("train", 4)
        before, rack = get_places(now, "train"), min(list_racks_of(hall, now, "train"))
        drained = list_nodes(hall, now, rack)
        for node in sorted(drained):
            drain(hall, node)
        now = wait_until_whole_without(hall, "train", 4, drained)
        facts = history.facts()
    stayed = {uid for uid, node in before.items() if node not in drained}
    assert len(stayed) == 2
    assert list_evictions(facts) <= {("train", "NodeFailures")}
    assert list_evictions(facts) or find_touched_pods(facts, stayed) == []
    assert truth.check_slices(now, "train", hall.rack, 2) == []
    assert find_broken_rules(hall, facts, {"train": hall.block}) == []
    for node in drained:
        uncordon(hall, node)


@pytest.mark.long
def test_all_nodes_are_upgraded_one_after_the_other_and_the_set_is_never_evicted(open_scene: Callable[..., Scene]) -> None:
    """A StatefulSet, whose controller makes no pauses. Each node is cordoned, emptied, and comes back when the set is whole."""
    wide = open_scene(nodes=3)
    with History(wide.cluster, wide.namespace) as history:
        asked = of_set("StatefulSet", wide, "db", 2, build_template(8, required=wide.rack))
        asked["spec"]["podManagementPolicy"] = "Parallel"
        wide.create(asked)
        now = wide.eventually("the set to run", lambda now: len(get_places(now, "db")) == 2)
        for node in sorted(all_nodes(wide)):
            before = get_places(now, "db")
            drain(wide, node)
            now = wait_until_whole_without(wide, "db", 2, {node})
            stayed = {uid: name for uid, name in before.items() if name != node}
            assert stayed.items() <= get_places(now, "db").items(), node
            assert len(list_racks_of(wide, now, "db")) == 1
            assert find_touched_pods(history.facts(), stayed) == [], node
            uncordon(wide, node)
        facts = history.facts()
    assert list_evictions(facts) == set()
    assert ungated_before_admission(facts) == []
    assert find_broken_rules(wide, facts, {"db": wide.rack}) == []

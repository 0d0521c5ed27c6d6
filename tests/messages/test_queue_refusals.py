"""The catalogue of sentences, queues: why a workload is not admitted, must leave, or keeps its place without a better one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.model.pause_state import Pause, Stop
from core.model.pods_ready_rules import PodsReadyRules, Scope
from core.names import WORKLOAD_REQUIRED_TOPOLOGY
from core.queueing.cycle.second_pass import REPLACES, NodeReplacement
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.facts import WorkloadFacts
from core.state.queue_facts import LocalQueueFacts
from tests.builders import NAMESPACE, RACK, build_pod_json, build_pod_set_json, build_workload_json
from tests.queueing.cycle.test_block_admission import build_scene as build_blocked_scene
from tests.queueing.cycle.test_growth import Grown
from tests.queueing.cycle.test_lost_nodes import observe_stuck
from tests.queueing.cycle.test_rest import CIRCLE, build_small_cohort
from tests.queueing.cycle.test_rest import submit as submit_circle
from tests.queueing.cycle.test_spares import build_counting_scene
from tests.queueing.flavors.test_flavors import build_pod_set, build_two_flavors
from tests.queueing.flavors.test_lending import build_scene_with_one_lent_spare
from tests.queueing.flavors.test_together import judge_tied
from tests.queueing.ordering.test_partial_admission import build_pod_set as build_partial_pod_set
from tests.queueing.ordering.test_partial_admission import build_scene as build_partial_scene
from tests.queueing.ordering.test_partial_admission import submit as submit_partial
from tests.queueing.preemption.test_fair_preemption import build_scene as build_fair_scene
from tests.queueing.preemption.test_fair_preemption import hog
from tests.queueing.preemption.test_preemption import ANYWHERE, build_one_queue, build_two_queues
from tests.queueing.running import KEEPS, build_running_scene
from tests.queueing.scene import Scene
from tests.queueing.shared import ALL_MAY, Shared

ADMISSIONS = Stop("admissions", "2026-11-22T10:00:00Z", "alice", "rewiring")
EVICTIONS = replace(ADMISSIONS, what="evictions")
Outcome = Admissible | NotAdmissible


def build_scene(*racks: int, **options: Any) -> Scene:
    """Racks of so many nodes with 4 CPUs each."""
    scene = Scene(**options)
    for number, nodes in enumerate(racks):
        scene.rack(f"r{number}", nodes)
    return scene


def judge(scene: Scene, *pod_sets: dict[str, Any], **options: Any) -> Outcome:
    """The outcome of one workload, by default of 1 pod with 1 CPU in one rack."""
    scene.workload(build_workload_json("w", pod_sets or (build_pod_set(1),), **options))
    return scene.run()["w"]


# --- its queue --------------------------------------------------------------------------------------------


def lose_queue(*queues: str) -> Outcome:
    scene = build_scene(1)
    scene.state.observe_local_queue(f"{NAMESPACE}/lq", None)
    for name in queues:
        scene.local_queue(name, "cq")
    return judge(scene)


def end_namespace() -> Outcome:
    scene = build_scene(1)
    scene.state.observe_namespace(NAMESPACE, {}, is_ending=True)
    return judge(scene)


def stop_queue(*, local: bool) -> Outcome:
    scene = build_scene(1)
    if local:
        scene.state.observe_local_queue(f"{NAMESPACE}/lq", LocalQueueFacts(f"{NAMESPACE}/lq", "cq", "Hold"))
    else:
        scene.queue("cq", {"tas": "1"}, stopPolicy="Hold")
    return judge(scene)


def leave_out_namespace() -> Outcome:
    scene = build_scene(1)
    scene.queue("cq", {"tas": "1"}, namespaceSelector={"matchLabels": {"team": "a"}})
    return judge(scene)


def name_missing_cluster_queue() -> Outcome:
    scene = build_scene(1)
    scene.local_queue("lq", "gone")
    return judge(scene)


def pause(which: Pause) -> Outcome:
    scene = build_scene(1)
    scene.state.observe_pause(which)
    return judge(scene)


def block_admission(rules: PodsReadyRules) -> Outcome:
    outcomes = build_blocked_scene(rules).run().values()
    return next(outcome for outcome in outcomes if isinstance(outcome, NotAdmissible))


# --- flavors and quota ------------------------------------------------------------------------------------


def judge_plain_flavor(**flavor: Any) -> Outcome:
    scene = build_scene(1)
    scene.flavor("plain", **flavor)
    scene.queue("cq", {"plain": "9"})
    return judge(scene)


def judge_flavor(pod_set: dict[str, Any], **flavor: Any) -> Outcome:
    scene = build_scene(1)
    scene.flavor("tas", "t", **flavor)
    return judge(scene, pod_set)


def ask_uncovered_resource() -> Outcome:
    pod_set = build_pod_set(1)
    pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]["example.com/fpga"] = "1"
    return judge(build_scene(1), pod_set)


def need_borrowed_quota(**theirs: Any) -> Outcome:
    """Two queues of 4 CPUs each in a cohort, and workloads of both."""
    scene = build_two_queues(reclaimWithinCohort="LowerPriority")
    scene.submit("theirs", theirs["theirs"], queue="theirs", priority=1)
    scene.run()
    scene.submit("mine", theirs["mine"], queue="mine", priority=1)
    return scene.run()["mine"]


def reach_borrowing_limit(*pods: int) -> Outcome:
    scene = Shared()
    scene.rack("r1", 20)
    scene.pool("limited", "4", "c", borrowingLimit="2")
    scene.pool("lender", "10", "c")
    for number, count in enumerate(pods):
        scene.submit(f"w{number}", count, queue="limited")
        outcome = scene.run()[f"w{number}"]
    return outcome


def exceed_cohort() -> Outcome:
    scene = Shared()
    scene.rack("r1", 20)
    scene.cohort("left", "root")
    scene.cohort("right", "root", nominal="3")
    scene.pool("a", "4", "left")
    scene.pool("b", "4", "right")
    scene.submit("w", 12, queue="a")
    return scene.run()["w"]


def count_spares() -> Outcome:
    scene = build_counting_scene(quota="11")
    scene.ask("w", 2, 1)
    return scene.run()["w"]


def tie_to_plain_flavor() -> Outcome:
    scene = build_scene(1)
    scene.flavor("plain")
    scene.queue("cq", {"plain": "9"})
    return judge_tied(scene, WORKLOAD_REQUIRED_TOPOLOGY, RACK, build_pod_set_json(count=1))


def admit_fewer() -> Outcome:
    scene = build_partial_scene("1")
    submit_partial(scene, "w", build_partial_pod_set(8, 2))
    return scene.run()["w"]


def grow() -> Outcome:
    scene = Grown(4)
    return scene.write("w2", scene.ask("w2", 13, replaces="w1"))


# --- rules ------------------------------------------------------------------------------------------------


def break_rule(*topologies: dict[str, Any], annotations: dict[str, str] | None = None) -> Outcome:
    scene = build_scene(2)
    pod_sets = [build_pod_set_json(f"p{number}", 2, topology=topology) for number, topology in enumerate(topologies)]
    workload = build_workload_json("w", pod_sets)
    workload["metadata"]["annotations"] = annotations or {}
    scene.workload(workload)
    return scene.run()["w"]


# --- preemption -------------------------------------------------------------------------------------------


def preempt(*, is_paused: bool = False) -> Outcome:
    scene = build_one_queue()
    scene.submit("low", 8, queue="q", priority=0)
    scene.run()
    if is_paused:
        scene.state.observe_pause(Pause(evictions=EVICTIONS))
    scene.submit("high", 8, queue="q", priority=1)
    return scene.run()["high"]


def preempt_many() -> Outcome:
    scene = build_one_queue()
    for number in range(8):
        scene.submit(f"low{number}", 1, queue="q")
    scene.run()
    scene.submit("high", 8, queue="q", priority=1)
    return scene.run()["high"]


def preempt_elsewhere() -> Outcome:
    """One of its own namespace and two of another."""
    scene = build_one_queue()
    names = ("low0", "low1", "low2")
    for name in names:
        scene.submit(name, 2, queue="q")
    scene.run()
    for name in names[1:]:
        moved = scene.objects[name] | {"metadata": scene.objects[name]["metadata"] | {"namespace": "other"}}
        scene.delete(name)
        scene.state.observe_workload(f"other/{name}", WorkloadFacts.read(moved))
    scene.submit("high", 8, queue="q", priority=1)
    return scene.run()["high"]


def reclaim(*, borrows: bool = False) -> Outcome:
    scene = build_two_queues(**(ALL_MAY | {"borrowWithinCohort": {"policy": "LowerPriority"}} if borrows else {}))
    scene.submit("theirs", 8, queue="theirs")
    scene.run()
    scene.submit("mine", 5 if borrows else 4, queue="mine", priority=1)
    return scene.run()["mine"]


def share_fairly() -> Outcome:
    scene = build_fair_scene(a="1", b="1")
    hog(scene, "a", 12)
    scene.submit("wanting", 4, queue="b", topology=ANYWHERE)
    return scene.run()["wanting"]


def spare_evictors() -> Outcome:
    scene = build_small_cohort(("a", "3", {"borrowingLimit": "3"}), ("b", "2", {"lendingLimit": "2"}), racks=(1, 2, 2))
    submit_circle(scene, *CIRCLE[:-1])
    return scene.run()["w0"]


# --- second pass ------------------------------------------------------------------------------------------


def lose_node(replacement: NodeReplacement = REPLACES, *, stuck: bool = False, paused: Pause | None = None) -> Outcome:
    """A workload with a pod on each of 3 nodes has lost one, or a pod is stuck there."""
    scene = build_running_scene(replacement, nodes=3)
    scene.submit("w", 3, cpu="4")
    scene.run()
    if paused is not None:
        scene.state.observe_pause(paused)
    if stuck:
        observe_stuck(scene, ("r0-n1", 1))
    else:
        scene.lose("w", "r0-n1")
    return scene.run()["w"]


def lose_topology() -> Outcome:
    scene = build_running_scene(KEEPS)
    scene.submit("w", 1)
    scene.run()
    scene.state.observe_topology("t", None)
    scene.lose("w", "r0-n0")
    return scene.run()["w"]


def reclaim_spare(paused: Pause | None = None, *, is_gone: bool = False) -> Outcome:
    scene = build_scene_with_one_lent_spare()
    if paused is not None:
        scene.state.observe_pause(paused)
    if is_gone:
        scene.pod(build_pod_json("low-0", node="r0-n2", workload="low", cpu="4", terminating=True))
        scene.delete("low")
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    return scene.run()["w"]


TAINTED = {"nodeTaints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}
REFUSALS: dict[str, tuple[Callable[[], Outcome], str]] = {
    "namespace ends": (end_namespace, "namespace ns is being deleted, and no pod can be made in it"),
    "no LocalQueue": (lose_queue, "LocalQueue lq doesn't exist; namespace ns has none yet"),
    "another LocalQueue": (
        lambda: lose_queue(*(f"q{number}" for number in range(7))),
        "LocalQueue lq doesn't exist; namespace ns has q0, q1, q2, q3, q4 and 2 more: name one that is there, or have it made",
    ),
    "no ClusterQueue": (
        name_missing_cluster_queue,
        "ClusterQueue gone doesn't exist; LocalQueue lq names it, and an administrator can make it",
    ),
    "LocalQueue stopped": (
        lambda: stop_queue(local=True),
        "LocalQueue lq is inactive: its stopPolicy is Hold, it admits no workload until stopPolicy is None",
    ),
    "ClusterQueue stopped": (
        lambda: stop_queue(local=False),
        "ClusterQueue cq is inactive: its stopPolicy is Hold, it admits no workload until stopPolicy is None",
    ),
    "namespace selector": (leave_out_namespace, "namespace ns doesn't match the selector of ClusterQueue cq"),
    "admissions paused": (
        lambda: pause(Pause(admissions=ADMISSIONS)),
        "admissions are paused by alice since 2026-11-22T10:00:00Z: rewiring; `topogate resume admissions` ends that",
    ),
    "block admission": (
        lambda: block_admission(PodsReadyRules(blocks=Scope.CLUSTER)),
        "waits until the pods of workload ns/first are ready: one workload in the cluster starts at a time (blockAdmission)",
    ),
    "block admission in a cohort": (
        lambda: block_admission(PodsReadyRules(blocks=Scope.COHORT)),
        "waits until the pods of workload ns/first are ready: one workload in the cohort starts at a time (blockAdmission)",
    ),
    "block admission in a queue": (
        lambda: block_admission(PodsReadyRules(blocks=Scope.CLUSTER_QUEUE)),
        "waits until the pods of workload ns/first are ready: one workload in the ClusterQueue starts at a time (blockAdmission)",
    ),
    "place and quota": (
        lambda: judge(build_two_flavors(second="4"), build_pod_set(8)),
        'couldn\'t assign flavors to pod set main: topology "t" allows to fit only 4 out of 8 pod(s). It would fit with 4 pods. '
        'Best cloud/rack ra: 4 of 8 pods, short of 4 cpu.; flavor "b": requests 8 cpu, more than its whole nominal quota of 4; '
        "request less, or have the quota raised",
    ),
    "quota in use": (
        lambda: judge(build_scene(4, quota="5"), build_pod_set(3, "first"), build_pod_set(3, "second")),
        'couldn\'t assign flavors to pod set second: flavor "tas": needs 1 more cpu; 3 of 5 in use',
    ),
    "quota beyond all amounts": (
        lambda: judge(build_scene(1, quota="10"), build_pod_set(10, cpu="99999999999999999999999999E")),
        'couldn\'t assign flavors to pod set main: flavor "tas": requests more than 4611686018427387 cpu, more than its whole '
        "nominal quota of 10; request less, or have the quota raised",
    ),
    "quota with spares": (
        count_spares,
        'couldn\'t assign flavors to pod set main: flavor "tas": requests 12 cpu, more than its whole nominal quota of 11, '
        "spare nodes counted; request less, or have the quota raised",
    ),
    "nothing to lend": (
        lambda: need_borrowed_quota(theirs=4, mine=5),
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 1 more cpu; 0 of 4 in use, and cohort "c" has nothing to lend now',
    ),
    "something to lend": (
        lambda: need_borrowed_quota(theirs=2, mine=7),
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 1 more cpu; 0 of 4 in use, and cohort "c" has 2 to lend now',
    ),
    "own quota lent": (
        lambda: need_borrowed_quota(theirs=8, mine=3),
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 3 more cpu; 0 of 4 in use, and others of cohort "c" have '
        "borrowed 4 of its own",
    ),
    "borrowing limit": (
        lambda: reach_borrowing_limit(6, 1),
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 1 more cpu; 6 of 4 in use, and its borrowingLimit of 2 '
        "leaves 0 to be borrowed, whatever others lend",
    ),
    "never within the borrowing limit": (
        lambda: reach_borrowing_limit(7),
        'couldn\'t assign flavors to pod set main: flavor "tas": requests 7 cpu, more than the 6 it could ever have, with its '
        "borrowingLimit of 2; request less, or have the quota raised",
    ),
    "never within the cohort": (
        exceed_cohort,
        'couldn\'t assign flavors to pod set main: flavor "tas": requests 12 cpu, more than the 11 it could ever have, with all '
        'that cohort "left" lends; request less, or have the quota raised',
    ),
    "no quota for a resource": (
        ask_uncovered_resource,
        'couldn\'t assign flavors to pod set main: ClusterQueue "cq" has no quota for example.com/fpga',
    ),
    "flavor without topology": (
        judge_plain_flavor,
        'couldn\'t assign flavors to pod set main: Flavor "plain" does not support TopologyAwareScheduling: it has no '
        "topology; leave out the annotations that ask for one, or name a Topology in its spec.topologyName",
    ),
    "flavor without topology for a workload topology": (
        tie_to_plain_flavor,
        'couldn\'t assign flavors to pod set main: flavor "plain" has no topology, and annotation '
        "topogate.dev/workload-required-topology asks for one cloud/rack",
    ),
    "flavor with other labels": (
        lambda: judge_flavor(build_pod_set(1, nodeSelector={"gen": "8"}), nodeLabels={"gen": "7"}),
        "couldn't assign flavors to pod set main: the pod set's node selector or affinity does not match the node labels of flavor \"tas\""
        ": nodeSelector gen=8, where the flavor has gen=7",
    ),
    "flavor with a taint": (
        lambda: judge_flavor(build_pod_set(1), **TAINTED),
        'couldn\'t assign flavors to pod set main: taint team=a:NoSchedule of flavor "tas" is not tolerated',
    ),
    "fewer pods do not fit either": (
        admit_fewer,
        'couldn\'t assign flavors to pod set main: flavor "tas": requests 8 cpu, more than its whole nominal quota of 1; request less, '
        "or have the quota raised; the minimum of kueue.x-k8s.io/job-min-parallelism (2 of 8 pods of pod set main) does not fit either",
    ),
    "growth": (
        grow,
        'the job runs on with 4 of 13 pods; for those to come: couldn\'t assign flavors to pod set main: topology "t" allows to '
        'fit only 8 out of 9 pod(s). Total nodes: 6; excluded: resource "cpu": 1. The other pods of the workload keep it in '
        "cloud/rack r1. Can never fit: all its nodes together, usable and empty, hold 8 of 9 pods. Best cloud/rack r1: 8 of 9 "
        "pods, short of 1 cpu.",
    ),
    "unknown level": (
        lambda: break_rule({"required": "zone"}),
        "topology \"t\": pod set p0: no topology level 'zone'; the topology has cloud/rack, kubernetes.io/hostname; the workload "
        "is deactivated; change the job, or the topology: the workload is activated again once the topology allows it",
    ),
    "unknown level of a workload": (
        lambda: break_rule({}, annotations={WORKLOAD_REQUIRED_TOPOLOGY: "zone"}),
        "topology \"t\": no topology level 'zone' (annotation topogate.dev/workload-required-topology); the topology has "
        "cloud/rack, kubernetes.io/hostname; the workload is deactivated; change the job, or the topology: the workload is "
        "activated again once the topology allows it",
    ),
    "preempts": (
        preempt,
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 8 more cpu; 8 of 8 in use; preempts 1 workload by '
        "prioritization in the ClusterQueue: ns/low",
    ),
    "preempts many": (
        preempt_many,
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 8 more cpu; 8 of 8 in use; preempts 8 workloads by '
        "prioritization in the ClusterQueue: ns/low0, ns/low1, ns/low2, ns/low3, ns/low4 and 3 more",
    ),
    "preempts in other namespaces": (
        preempt_elsewhere,
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 6 more cpu; 6 of 8 in use; preempts 3 workloads by '
        "prioritization in the ClusterQueue: ns/low0 and 2 of other namespaces",
    ),
    "reclaims": (
        reclaim,
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 4 more cpu; 0 of 4 in use, and others of cohort "c" have '
        "borrowed 4 of its own; preempts 1 workload by reclamation within the cohort: ns/theirs",
    ),
    "reclaims while borrowing": (
        lambda: reclaim(borrows=True),
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 5 more cpu; 0 of 4 in use, and others of cohort "c" have '
        "borrowed 4 of its own; preempts 1 workload by reclamation within the cohort while borrowing: ns/theirs",
    ),
    "shares fairly": (
        share_fairly,
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 4 more cpu; 0 of 0 in use, and cohort "cohort" has '
        "nothing to lend now; preempts 1 workload by fair sharing within the cohort: ns/a0",
    ),
    "evictions paused": (
        lambda: preempt(is_paused=True),
        "it could preempt 1 workload, but evictions are paused by alice since 2026-11-22T10:00:00Z: rewiring; `topogate resume "
        'evictions` ends that; couldn\'t assign flavors to pod set main: flavor "tas": needs 8 more cpu; 8 of 8 in use',
    ),
    "spares those that evict it": (
        spare_evictors,
        'couldn\'t assign flavors to pod set main: flavor "tas": needs 4 more cpu; 0 of 2 in use, and others of cohort "cohort" '
        "have borrowed 2 of its own; until one of them ends it does not preempt workloads for which it was evicted itself, "
        "directly or through others: ns/w1",
    ),
    "no replacement": (
        lambda: lose_node(KEEPS),
        'there is no replacement for unhealthy node(s): r0-n1; topology "t" doesn\'t allow to fit any of 1 pod(s). Total nodes: '
        '3; excluded: resource "cpu": 3. The other pods of the workload keep it in cloud/rack r0. No eligible node could hold '
        "one more pod beside those of it that stay: r0-n0 comes nearest and lacks 4 cpu. No cloud/rack holds any pod.",
    ),
    "no replacement and an eviction": (
        lose_node,
        'Workload was evicted as there was no replacement for unhealthy node(s): r0-n1; topology "t" doesn\'t allow to fit any '
        'of 1 pod(s). Total nodes: 3; excluded: resource "cpu": 3. The other pods of the workload keep it in cloud/rack r0. No '
        "eligible node could hold one more pod beside those of it that stay: r0-n0 comes nearest and lacks 4 cpu. No "
        "cloud/rack holds any pod.",
    ),
    "no replacement while evictions are paused": (
        lambda: lose_node(paused=Pause(evictions=EVICTIONS)),
        "it would be evicted, but evictions are paused by alice since 2026-11-22T10:00:00Z: rewiring; `topogate resume "
        'evictions` ends that; there is no replacement for unhealthy node(s): r0-n1; topology "t" doesn\'t allow to fit any of '
        '1 pod(s). Total nodes: 3; excluded: resource "cpu": 3. The other pods of the workload keep it in cloud/rack r0. No '
        "eligible node could hold one more pod beside those of it that stay: r0-n0 comes nearest and lacks 4 cpu. No "
        "cloud/rack holds any pod.",
    ),
    "no replacement while admissions are paused": (
        lambda: lose_node(paused=Pause(admissions=ADMISSIONS)),
        "no place is looked for: admissions are paused by alice since 2026-11-22T10:00:00Z: rewiring; `topogate resume "
        "admissions` ends that",
    ),
    "no replacement without topology": (
        lose_topology,
        'there is no replacement for unhealthy node(s): r0-n0; flavor "tas" or its topology is not there',
    ),
    "no other place for a stuck pod": (
        lambda: lose_node(stuck=True),
        'there is no other place for pods that cannot be scheduled on r0-n1; topology "t" doesn\'t allow to fit any of 1 '
        'pod(s). Total nodes: 3; excluded: resource "cpu": 3. The other pods of the workload keep it in cloud/rack r0. No '
        "eligible node could hold one more pod beside those of it that stay: r0-n0 comes nearest and lacks 4 cpu. No "
        "cloud/rack holds any pod.",
    ),
    "takes back a lent spare": (
        reclaim_spare,
        "its pods of r0-n1 go to spare nodes that it had lent: r0-n2; it preempts 1 workload by spare nodes that were lent to "
        "it and are taken back: ns/low",
    ),
    "takes back a lent spare while evictions are paused": (
        lambda: reclaim_spare(Pause(evictions=EVICTIONS)),
        "it would take back the spare nodes that it lent, but evictions are paused by alice since 2026-11-22T10:00:00Z: "
        "rewiring; `topogate resume evictions` ends that; its pods of r0-n1 go to spare nodes that it had lent: r0-n2; it "
        "preempts 1 workload by spare nodes that were lent to it and are taken back: ns/low",
    ),
    "takes back a lent spare of pods that end": (
        lambda: reclaim_spare(is_gone=True),
        "its pods of r0-n1 go to spare nodes that it had lent: r0-n2; it waits until pods that end there are gone",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_queue_refusal_has_its_sentence(build: Callable[[], Outcome], sentence: str):
    outcome = build()
    assert isinstance(outcome, NotAdmissible), outcome
    assert outcome.message == sentence

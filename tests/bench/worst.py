"""The worst inputs known for each search, at 5,000 nodes and 50,000 pods: no synchronous step may take longer than its limit.

    python -m tests.bench.worst [CASE ...]

A case is a function here or in another `tests.bench.worst_*`, with the decorator `case`: it builds its
input and returns the steps to measure. The figure is the processor time of the longest single step in its thread, and of all steps.
Exit code 1 if any step is over its limit, or if its answer is wrong.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from core.model.configuration import FairSharing
from core.model.pod_traits import PodTerm, PodTraits, Requirement, read_template_traits
from core.model.podset import MOST_SPARES, Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.model.step_budget import StepBudget
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL, LEND_SPARES, MEMBER_OF_LABEL, SPARE_NODES
from core.placement.algorithms.profile import COMPACT, MIXED, Profile, read_profile
from core.placement.algorithms.ranks import RankedPod, assign_pods
from core.placement.engine import place
from core.placement.replace.replacement import replace_failed
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.placed_pods import PlacedPodSet
from core.placement.topology.tree import NodeLabels, TopologyTree
from core.plan.steps import pacing
from core.podgroups.acting import plan_step
from core.podgroups.algorithm import default_plugins
from core.podgroups.devices.node_limits import Rations, SharedCell
from core.podgroups.group import TopologyConstraint
from core.podgroups.members import GroupKey, read_member
from core.podgroups.podgroup_facts import PodGroupFacts
from core.queueing.cycle.kept_spares import list_kept_spares
from core.runtime.garbage import exclude_live_objects, exclude_survivors_of_long_collections
from core.state.cluster import ClusterState
from core.state.cluster_affinity import ClusterNeighbours
from core.state.daemonsets import DaemonSetFacts
from core.state.facts import NodeFacts, TopologyFacts
from core.state.promises import find_missing
from tests.bench.cases import worst_apart, worst_evictions, worst_turns, worst_waiting
from tests.bench.cases.worst_waiting import in_pieces
from tests.bench.parts.shapes import LEVELS, build_labels, build_view
from tests.bench.parts.steps import CASES, NODES, PREEMPTION_MS, STEP_MS, Case, Steps, case, once
from tests.bench.preemption import GPUS, build, submit
from tests.builders import NAMESPACE, RACK, Node, build_node_json, build_pod_set_json, build_topology_json, build_workload_json
from tests.queueing.flavors.test_lending import Lending
from tests.queueing.scene import Scene
from tests.queueing.shared import Shared

BALANCED = read_profile({"TASBalancedPlacement": True})

# --- preemption ---------------------------------------------------------------------------------------

OTHERS = (worst_apart, worst_evictions, worst_turns, worst_waiting)  # their cases are added when they are imported


def preemption(count: int, *, mine: int = 1, level: str = "", **cluster: Any) -> Steps:
    """A full cluster of 4,900 running workloads of one pod each, every `mine`-th in the preemptor's own queue; `count` pods preempt,
    in one domain of the level if one is given."""
    scene, running = build(NODES, **cluster), NODES - 100
    for i in range(running):
        queue = "mine" if i % mine == 0 else "theirs"
        submit(scene, f"running-{i:05}", 1, GPUS, queue=queue, priority=i % 3, required=False)
        if i % 500 == 499:
            scene.run()
    scene.run()
    submit(scene, "blockers", 100, GPUS, queue="mine", priority=9, required=False)
    scene.run()
    assert len(scene.running()) == running + 1
    submit(scene, "preemptor", count, GPUS, queue="mine", priority=5, required=bool(level), level=level or RACK)
    return in_pieces(scene.cycle)


@case(PREEMPTION_MS)
def preemption_of_one_rack() -> Steps:
    return preemption(16, level=RACK)


@case(PREEMPTION_MS)
def preemption_of_one_host() -> Steps:
    return preemption(1, level=HOSTNAME_LABEL)


@case(PREEMPTION_MS)
def preemption_of_half_the_cluster() -> Steps:
    return preemption(2_450)


@case(PREEMPTION_MS)
def preemption_of_all() -> Steps:
    return preemption(4_900)


@case(PREEMPTION_MS)
def preemption_in_two_queues() -> Steps:
    return preemption(1_000, mine=3)


@case(PREEMPTION_MS)
def preemption_of_nodes_without_a_shortage_of_quota() -> Steps:
    return preemption(4_900, times=3)


@case(PREEMPTION_MS)
def preemption_among_20_000() -> Steps:
    """Four pods a node: more candidates than are looked at."""
    scene = build(NODES)
    for i in range(20_000):
        submit(scene, f"running-{i:05}", 1, 2, queue="theirs", priority=i % 3, required=False)
        if i % 500 == 499:
            scene.run()
    submit(scene, "preemptor", 16, GPUS, queue="mine", priority=5, level=RACK)
    return in_pieces(scene.cycle)


@case(PREEMPTION_MS)
def preemption_by_fair_sharing() -> Steps:
    """All is borrowed from a third queue: the preemptor's may have half of what the other one uses."""
    return preemption(2_000, mine=5_000, sharing=FairSharing(), owner="third")


# --- several pod sets ---------------------------------------------------------------------------------


def gpu_pods(name: str, count: int, gpus: int, topology: TopologyRequest, **other: Any) -> PodSetRequest:
    """A pod set of pods with some GPUs each."""
    return PodSetRequest(name, count, {"cpu": 8_000 * gpus, "nvidia.com/gpu": gpus}, topology, **other)


def empty_view(nodes: int, gpus: int = 8) -> FreeCapacity:
    """Nodes that are not used."""
    labels, state = build_labels(nodes), NodeState({"cpu": 192_000, "nvidia.com/gpu": gpus, "pods": 110})
    return FreeCapacity(TopologyTree(LEVELS, labels), {node.name: state for node in labels})


def three_sets(nodes: int, count: int, gpus: int, topology: TopologyRequest) -> Steps:
    view = empty_view(nodes)
    sets = [gpu_pods(f"set-{i}", count, gpus, topology) for i in range(3)]
    return once(lambda: place(view, sets, MIXED))


@case()
def three_pod_sets_too_large_for_a_rack() -> Steps:
    return three_sets(NODES, 400, 8, TopologyRequest(Mode.REQUIRED, "rack"))


@case()
def three_pod_sets_too_large_for_a_rack_of_240_nodes() -> Steps:
    return three_sets(240, 80, 8, TopologyRequest(Mode.REQUIRED, "rack"))


@case()
def three_pod_sets_that_fit_alone_on_240_nodes() -> Steps:
    """By the sum of GPUs they fit, too: the joint search decides. A node takes two pods."""
    return three_sets(240, 170, 3, TopologyRequest(Mode.UNCONSTRAINED))


@case()
def three_pod_sets_that_fit_alone_on_2_000_nodes() -> Steps:
    return three_sets(2_000, 1_400, 3, TopologyRequest(Mode.PREFERRED, "rack"))


def eight_tied_pod_sets(key: str, mode: Mode, gpus: int) -> Steps:
    """With affinity to their own kind by `key`."""
    labels = [NodeLabels(node.name, {**node.labels, "block": f"b{i * 64 // NODES:03}"}) for i, node in enumerate(build_labels(NODES))]
    state = NodeState({"cpu": 192_000, "nvidia.com/gpu": 8, "pods": 110})
    view = FreeCapacity(TopologyTree(LEVELS, labels), {node.name: state for node in labels})
    term = PodTerm(key, frozenset({"ns"}), None, (Requirement("app", "In", frozenset({"train"})),))
    traits = PodTraits("ns", {"app": "train"}, affinity=(term,))
    tied = TopologyRequest(mode, "block", group="tied")
    sets = [gpu_pods(f"set-{i}", 2 if i < 7 else 72, gpus, tied, traits=traits) for i in range(8)]
    return once(lambda: place(view, sets, MIXED))


@case()
def eight_tied_pod_sets_with_affinity_by_block() -> Steps:
    return eight_tied_pod_sets("block", Mode.REQUIRED, 8)


@case()
def eight_tied_pod_sets_with_affinity_by_rack() -> Steps:
    return eight_tied_pod_sets("rack", Mode.PREFERRED, 8)


def one_pod_set(request: PodSetRequest, profile: Profile = MIXED) -> Steps:
    """On nodes each of which has another number of GPUs free."""
    view, random = empty_view(NODES, 64), np.random.default_rng(1)
    view.use_nodes(np.arange(NODES), {"nvidia.com/gpu": 1}, random.integers(0, 65, NODES))
    return once(lambda: place(view, [request], profile))


@case()
def compact_pod_set() -> Steps:
    return one_pod_set(gpu_pods("main", 20_000, 3, TopologyRequest(Mode.UNCONSTRAINED)), COMPACT)


@case()
def compact_pod_set_in_a_block() -> Steps:
    return one_pod_set(gpu_pods("main", 6_000, 3, TopologyRequest(Mode.REQUIRED, "block")), COMPACT)


@case()
def balanced_pod_set_by_rack() -> Steps:
    return one_pod_set(gpu_pods("main", 400, 1, TopologyRequest(Mode.PREFERRED, "rack")), BALANCED)


@case()
def balanced_pod_set_by_block() -> Steps:
    return one_pod_set(gpu_pods("main", 15_000, 1, TopologyRequest(Mode.PREFERRED, "block")), BALANCED)


@case()
def refused_pod_set() -> Steps:
    return one_pod_set(gpu_pods("main", 50_000, 7, TopologyRequest(Mode.REQUIRED, "block")))


@case()
def refused_pod_set_with_slices() -> Steps:
    slices = (SliceLayer("rack", 24), SliceLayer(HOSTNAME_LABEL, 3))
    return one_pod_set(gpu_pods("main", 48_000, 7, TopologyRequest(Mode.UNCONSTRAINED, None, slices)))


@case()
def refused_pod_set_with_slices_where_half_the_nodes_are_out() -> Steps:
    """What would help is looked for in every block."""
    labels, random = build_labels(NODES), np.random.default_rng(1)
    labels = [NodeLabels(node.name, {**node.labels, "block": f"b{i // 128:03}"}) for i, node in enumerate(labels)]
    states = {}
    for i, node in enumerate(labels):
        states[node.name] = NodeState({"cpu": 192_000, "nvidia.com/gpu": int(random.integers(1, 33)), "pods": 110}, ready=i % 2 == 0)
    view = FreeCapacity(TopologyTree(LEVELS, labels), states)
    slices = (SliceLayer("rack", 24), SliceLayer(HOSTNAME_LABEL, 3))
    asked = gpu_pods("main", 24 * 60, 1, TopologyRequest(Mode.REQUIRED, "block", slices))
    return once(lambda: place(view, [asked], MIXED))


@case()
def pod_set_with_spares() -> Steps:
    return one_pod_set(gpu_pods("main", 100, 3, TopologyRequest(Mode.PREFERRED, "rack"), spares=8))


@case()
def pod_set_with_spares_and_slices() -> Steps:
    slices = (SliceLayer(HOSTNAME_LABEL, 4),)
    return one_pod_set(gpu_pods("main", 160, 3, TopologyRequest(Mode.PREFERRED, "rack", slices), spares=8))


@case()
def replacement_of_2_500_nodes_of_slices() -> Steps:
    """In each rack a slice that stands partly."""
    view, nodes = empty_view(NODES), [node.name for node in build_labels(NODES)]
    asked = gpu_pods("main", NODES, 1, TopologyRequest(Mode.UNCONSTRAINED, None, (SliceLayer("rack", 8), SliceLayer(HOSTNAME_LABEL, 1))))
    assignment = TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((name,), 1) for name in nodes))
    return once(lambda: replace_failed(view, [PlacedPodSet(asked, assignment)], nodes[::2], MIXED))


def replacement_by_slices(nodes_per_rack: int, per_node: int, out: slice, layers: tuple[SliceLayer, ...]) -> Steps:
    """So many pods on each of 5,000 nodes in small racks, some of which are out."""
    labels = [NodeLabels(node.name, {**node.labels, "rack": f"r{i // nodes_per_rack:05}"}) for i, node in enumerate(build_labels(NODES))]
    state = NodeState({"cpu": 192_000, "nvidia.com/gpu": 8, "pods": 110})
    view = FreeCapacity(TopologyTree(LEVELS, labels), {node.name: state for node in labels})
    asked = gpu_pods("main", NODES * per_node, 1, TopologyRequest(Mode.UNCONSTRAINED, None, layers))
    names = [node.name for node in labels]
    assignment = TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((name,), per_node) for name in names))
    decision = replace_failed(view, [PlacedPodSet(asked, assignment)], names[out], MIXED)
    assert decision.refusal is None
    return once(lambda: replace_failed(view, [PlacedPodSet(asked, assignment)], names[out], MIXED))


@case()
def replacement_that_completes_2_500_slices() -> Steps:
    """Racks of two nodes, one of which is out."""
    return replacement_by_slices(2, 2, slice(0, None, 2), (SliceLayer("rack", 4), SliceLayer(HOSTNAME_LABEL, 2)))


@case()
def replacement_that_returns_slices_to_1_250_racks() -> Steps:
    """Racks of four nodes, two of which are out: whole slices go back to the rack that they were in."""
    return replacement_by_slices(4, 2, slice(0, None, 2), (SliceLayer("rack", 2),))


# --- spares -------------------------------------------------------------------------------------------


@case()
def spares_on_which_2_048_borrowers_stand() -> Steps:
    """One workload keeps 512 nodes free and lends them; four workloads of one pod stand on each."""
    scene, sets, per_node = Lending(quota="1000000"), 8, 4
    for number in range(NODES):
        scene.node(Node(f"n{number:04}", {RACK: "r", HOSTNAME_LABEL: f"n{number:04}"}, {"cpu": 8_000, "pods": 110}))
    pod_sets = [build_pod_set_json(f"s{number}", cpu="8", topology={"required": RACK}) for number in range(sets)]
    for pod_set in pod_sets:
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: str(MOST_SPARES), LEND_SPARES: "true"}}
    scene.workload(build_workload_json("w", pod_sets, owner="owner-w", priority=10))
    scene.run()
    lent = sets * MOST_SPARES
    scene.submit("others", NODES - sets - lent, cpu="8", priority=20)
    scene.run()
    for number in range(lent * per_node):
        scene.submit(f"low{number}", cpu="2", topology={"unconstrained": True})
        if number % 500 == 499:
            scene.run()
    scene.run()
    assert len(scene.lent()) == lent
    return once(lambda: list_kept_spares(scene.state, scene.facts("w")))


# --- selectors and tolerations ------------------------------------------------------------------------


@case()
def affinity_of_60_000_hostnames() -> Steps:
    view = build_view(NODES)
    values = [[f"other-{term}-{i:06}" for i in range(20_000)] for term in range(3)]
    terms = [{"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": each}]} for each in values]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    asked = gpu_pods("main", 400, 8, TopologyRequest(Mode.REQUIRED, "rack"), affinity=affinity)
    return once(lambda: place(view, [asked], MIXED))


@case()
def affinity_of_2_000_expressions() -> Steps:
    view = build_view(NODES)
    terms = [{"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "NotIn", "values": [f"node-{i:06}"]}]} for i in range(2_000)]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    asked = gpu_pods("main", 400, 8, TopologyRequest(Mode.REQUIRED, "rack"), affinity=affinity)
    return once(lambda: place(view, [asked], MIXED))


@case()
def tolerations_5_000_of_640_taints() -> Steps:
    labels = build_labels(NODES)
    amounts = {"cpu": 192_000, "nvidia.com/gpu": 8, "pods": 110}
    states = {node.name: NodeState(amounts, ((f"taint-{i % 640}", "", "NoSchedule"),)) for i, node in enumerate(labels)}
    view = FreeCapacity(TopologyTree(LEVELS, labels), states)
    tolerations = tuple({"key": f"other-{i}", "operator": "Exists", "effect": "NoSchedule"} for i in range(5_000))
    asked = gpu_pods("main", 400, 8, TopologyRequest(Mode.REQUIRED, "rack"), tolerations=tolerations)
    return once(lambda: place(view, [asked], MIXED))


# --- groups of pods -----------------------------------------------------------------------------------


def build_terms(count: int, value: str) -> list[dict[str, Any]]:
    """Terms of required pod anti-affinity by hostname that match all pods of the cluster."""
    rules = [{"matchExpressions": [{"key": f"k{i}", "operator": "NotIn", "values": [value]}]} for i in range(count)]
    return [{"labelSelector": rule, "topologyKey": HOSTNAME_LABEL} for rule in rules]


def group_step(pods: int, level: str, *, unlike: bool, cpu: int = 8_000, terms: int = 0) -> Steps:
    """A PodGroup of pods that differ in the labels of their Jobs, or in what they request, too; `terms`: of anti-affinity of each pod."""
    view = build_view(NODES)
    members = []
    for i in range(pods):
        labels = {MEMBER_OF_LABEL: "g", JOB_COMPLETION_INDEX_LABEL: str(i), "job-name": f"job-{i}", "controller-uid": f"uid-{i}"}
        requests = {"cpu": f"{cpu + (i if unlike else 0)}m", "nvidia.com/gpu": "1"}
        spec = {
            "schedulingGates": [{"name": "topogate.dev/podgroup"}],
            "containers": [{"name": "main", "image": "x", "resources": {"requests": requests}}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": build_terms(terms, f"v{i}")}},
        }
        members.append(read_member({"metadata": {"name": f"p{i:04}", "namespace": "ns", "uid": f"u{i}", "labels": labels}, "spec": spec}))
    found = [replace(member, gated=True) for member in members if member is not None]
    constraints = (TopologyConstraint(level),)
    facts = PodGroupFacts("ns", "g", "uid", constraints, pods)
    return once(lambda: plan_step(facts, constraints, GroupKey("ns", "g"), found, view, default_plugins(), 0.0))


@case()
def group_of_400_equal_pods() -> Steps:
    return group_step(400, "rack", unlike=False)


@case()
def group_of_200_unlike_pods_refused() -> Steps:
    return group_step(200, "rack", unlike=True)


@case()
def group_of_20_000_equal_pods() -> Steps:
    return group_step(20_000, "block", unlike=False)


@case()
def group_of_256_unlike_pods() -> Steps:
    return group_step(256, "block", unlike=True)


@case()
def group_of_18_unlike_pods_that_repel_each_other_by_16_terms() -> Steps:
    return group_step(18, "block", unlike=True, terms=16)


@case()
def workload_of_18_pod_sets_that_repel_each_other_by_16_terms() -> Steps:
    view = build_view(NODES)
    asked = []
    for i in range(18):
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": build_terms(16, f"v{i}")}}
        traits = read_template_traits({"metadata": {"labels": {"s": f"{i}"}}, "spec": {"affinity": affinity, "containers": []}}, "ns")
        asked.append(PodSetRequest(f"s{i}", 4, {"nvidia.com/gpu": 8}, TopologyRequest(Mode.REQUIRED, "block"), traits=traits))
    return once(lambda: place(view, asked, MIXED))


@case()
def workload_of_18_pod_sets_beside_pods_that_repel_it_by_4_000_terms() -> Steps:
    view = build_view(NODES)
    labels = dict(zip(view.tree.names, view.tree.labels, strict=True))
    neighbours = ClusterNeighbours({}, lambda name: labels.get(name, {}), lambda name: {})
    for i in range(250):
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": build_terms(16, f"v{i}")}}
        for one in affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]:
            one["namespaceSelector"] = {}
        spec = {"affinity": affinity, "containers": []}
        neighbours.count(read_template_traits({"metadata": {"labels": {}}, "spec": spec}, "other"), view.tree.names[i], 1)
    view.neighbours = neighbours
    topology = TopologyRequest(Mode.REQUIRED, "rack")
    asked = [PodSetRequest(f"s{i}", 2 if i < 17 else 9_999, {"nvidia.com/gpu": 8}, topology) for i in range(18)]
    return once(lambda: place(view, asked, MIXED))


@case()
def group_of_100_unlike_pods_by_hostname() -> Steps:
    return group_step(100, HOSTNAME_LABEL, unlike=True)


@case()
def shared_devices_of_5_000_nodes() -> Steps:
    random = np.random.default_rng(1)
    cells = tuple(SharedCell(1 + i % 31, 20_000, random.random(NODES) < 0.5) for i in range(5))
    own = random.integers(0, 4, (32, NODES))
    rations = Rations(((1, 1, 1, 1, 1),), own, cells, np.zeros((5, NODES), dtype=np.int64), StepBudget())
    return once(lambda: rations.limit_pods(0, np.full(NODES, 110)))


# --- ranks, the tree, DaemonSets ----------------------------------------------------------------------


@case()
def ranks_around_1_600_pods_of_a_rack() -> Steps:
    count = 1_600
    assignment = TopologyAssignment(("rack",), (DomainCount(("r0",), count), DomainCount(("r1",), count)))
    label = JOB_COMPLETION_INDEX_LABEL
    pods = [RankedPod(f"p{i}", {label: str(i)}, ("r1",) if i % 2 and i < count else None) for i in range(2 * count)]
    asked = TopologyRequest(Mode.REQUIRED, "rack", pod_index_label=label)
    return once(lambda: assign_pods(assignment, pods, asked))


@case()
def tree_of_duplicate_hostnames() -> Steps:
    labels = [NodeLabels(node.name, {**node.labels, HOSTNAME_LABEL: f"h{i // 2}"}) for i, node in enumerate(build_labels(NODES))]
    return once(lambda: TopologyTree(LEVELS, labels))


@case()
def daemon_set_of_4_000_resources() -> Steps:
    state = ClusterState()
    for node in build_labels(NODES):
        allocatable = {"cpu": 192_000, "pods": 110}
        state.observe_node(
            node.name, NodeFacts.read(build_node_json(Node(node.name, {**node.labels, HOSTNAME_LABEL: node.name}, allocatable)))
        )
    requests = {f"example.com/resource-{i:04}": "1" for i in range(4_000)}
    spec = {"containers": [{"name": "main", "image": "x", "resources": {"requests": requests}}]}
    wire = {"metadata": {"name": "d", "namespace": NAMESPACE, "uid": "d"}, "spec": {"template": {"metadata": {}, "spec": spec}}}
    return once(lambda: state.observe_daemon_set(f"{NAMESPACE}/d", DaemonSetFacts.read(wire)))


# --- nodes that come and go, audits -------------------------------------------------------------------


@case()
def node_that_joins_where_20_000_workloads_run() -> Steps:
    scene = build(NODES)
    for i in range(20_000):
        submit(scene, f"running-{i:05}", 1, 2, queue="theirs", required=False)
        if i % 500 == 499:
            scene.run()
    node_that_joins(scene, "first")  # what the engine counted is listed by name then
    scene.state.refresh()
    node_that_joins(scene, "second")
    return once(scene.state.refresh)


def node_that_joins(scene: Shared, name: str) -> None:
    labels = {RACK: "rack-00000", HOSTNAME_LABEL: name}
    scene.node(Node(name, labels, {"cpu": 96_000, "memory": 768 << 30, "nvidia.com/gpu": GPUS, "pods": 110}))


@case()
def audit_of_workloads_in_one_domain_of_5_000_nodes() -> Steps:
    scene = Scene(quota="1000000")
    scene.state.observe_topology("t", TopologyFacts.read(build_topology_json("t", [RACK])))
    scene.rack("r0", NODES)
    for i in range(2_000):
        scene.submit(f"running-{i:05}")
    scene.run()
    steps = find_missing(scene.state)
    return (taken for taken in iter(lambda: list(islice(steps, pacing.RECOUNTED_AT_ONCE)), []))


# --- measuring ----------------------------------------------------------------------------------------


def measure(one: Case) -> tuple[float, float]:
    """Milliseconds of processor time of the longest step, and of all steps."""
    steps, longest, whole = one.make(), 0.0, 0.0
    exclude_live_objects()  # as the reconciler does once it has listed the cluster
    kept = inspect.getgeneratorlocals(steps)  # taking down what was built is not a step
    while True:
        began = time.thread_time()
        done = next(steps, steps) is steps
        took = time.thread_time() - began
        longest, whole = max(longest, took), whole + took
        if done:
            del kept
            return longest * 1000, whole * 1000


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.worst", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"some of {', '.join(each.name for each in CASES)}; all without")
    options = parser.parse_args(arguments)
    unknown = set(options.cases) - {each.name for each in CASES}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(each.name for each in CASES)}")
    over = 0
    exclude_survivors_of_long_collections()  # as the reconciler does
    for each in CASES:
        if options.cases and each.name not in options.cases:
            continue
        longest, whole = measure(each)
        is_over = longest > STEP_MS or whole > each.whole_ms
        over += is_over
        figures = f"{longest:8.1f} ms of {STEP_MS}  in all {whole:8.1f} ms of {each.whole_ms:5}"
        print(f"{each.name:58} {figures}  {'over' if is_over else 'ok'}", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())

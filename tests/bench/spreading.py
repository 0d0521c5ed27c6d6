"""Time of a decision with two rules of topology spreading beside the same decision without, with thousands of admitted Workloads.

    python -m tests.bench.spreading [--nodes 10240] [--workloads 10000] [--rounds 30]

Both are measured in turn in one process. `first_ms` is the decision that counts all Workloads, `end_ms` the end of one of these.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from core.model.admission import Admission, PodSetAdmission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL, JOB_UID_LABEL, TOPOLOGY_SPREADING
from core.placement.algorithms.profile import STANDARD
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, NodeFacts, TopologyFacts, WorkloadFacts
from core.state.gated_facts import with_spreading
from core.state.queue_facts import ClusterQueueFacts, LocalQueueFacts
from tests.builders import (
    NAMESPACE,
    Node,
    build_cluster_queue_json,
    build_flavor_json,
    build_local_queue_json,
    build_node_json,
    build_pod_set_json,
    build_topology_json,
    build_workload_json,
)

ZONE, RACK = "zone", "rack"
LEVELS = (ZONE, RACK, HOSTNAME_LABEL)
PER_RACK, RACKS_PER_ZONE = 16, 40
MOST_RATIO = 1.5
RULES = [{"topologyKey": ZONE, "maxShareAllowingPlacement": "0.5"}, {"topologyKey": RACK, "maxShareAllowingPlacement": "0.5"}]


def build_state(nodes: int, workloads: int) -> ClusterState:
    """Zones of 40 racks of 16 nodes with 64 CPUs; each Workload of one job has one pod on a node, in an order that leaves all open."""
    state = ClusterState()
    state.observe_namespace(NAMESPACE, {})
    state.observe_topology("t", TopologyFacts.read(build_topology_json("t", LEVELS)))
    state.observe_flavor("tas", FlavorFacts.read(build_flavor_json("tas", "t")))
    state.observe_cluster_queue("cq", ClusterQueueFacts.read(build_cluster_queue_json("cq", {"tas": "10000000"})))
    state.observe_local_queue(f"{NAMESPACE}/lq", LocalQueueFacts.read(build_local_queue_json("lq", "cq")))
    for i in range(nodes):
        rack, name = i // PER_RACK, f"n{i:06d}"
        labels = {ZONE: f"z{rack // RACKS_PER_ZONE:03d}", RACK: f"r{rack:05d}", HOSTNAME_LABEL: name}
        state.observe_node(name, NodeFacts.read(build_node_json(Node(name, labels, {"cpu": 64_000, "pods": 110}))))
    state.refresh()
    for i in range(workloads):
        key = observe(state, f"w{i}", 1, is_spread=False)
        state.assume(key, build_admission(f"n{i * 7919 % nodes:06d}"), {})
    return state


def build_admission(host: str) -> Admission:
    assignment = TopologyAssignment((HOSTNAME_LABEL,), (DomainCount((host,), 1),))
    return Admission("cq", (PodSetAdmission("main", {"cpu": "tas"}, {"cpu": 1000}, 1, assignment),))


def observe(state: ClusterState, name: str, pods: int, *, is_spread: bool) -> str:
    pod_set: dict[str, Any] = build_pod_set_json(count=pods, cpu="1", topology={"required": RACK})
    if is_spread:
        pod_set["template"]["metadata"] = {"annotations": {TOPOLOGY_SPREADING: json.dumps({"rules": RULES})}}
    workload = build_workload_json(name, [pod_set])
    workload["metadata"]["labels"] = {JOB_UID_LABEL: "job"}
    key = f"{NAMESPACE}/{name}"
    state.observe_workload(key, with_spreading(WorkloadFacts.read(workload), workload))
    return key


def time_ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def measure(nodes: int, workloads: int, rounds: int) -> dict[str, float]:
    """Milliseconds, medians but for `first_ms`."""
    state = build_state(nodes, workloads)
    facts = {is_spread: state.workloads.facts[observe(state, f"asks-{is_spread}", 64, is_spread=is_spread)] for is_spread in (False, True)}
    queue = state.cluster_queues["cq"]

    def decide(is_spread: bool) -> None:
        outcome = find_admission(state, facts[is_spread], queue, STANDARD)
        assert isinstance(outcome, Admissible), outcome

    decide(False)
    first = time_ms(lambda: decide(True))
    times: dict[bool, list[float]] = {False: [], True: []}
    counting: list[float] = []
    for number in range(rounds):
        for is_spread in (number % 2 == 0, number % 2 == 1):
            times[is_spread].append(time_ms(lambda: decide(is_spread)))  # noqa: B023 - called at once
        key = f"{NAMESPACE}/w{number}"
        held = state.workloads.find_holding(key)
        assert held is not None
        standing = state.workloads.facts[key]
        counting.append(time_ms(lambda: state.observe_workload(key, None)))  # noqa: B023
        state.observe_workload(key, standing)
        state.assume(key, held, {})
    without, with_rules = (statistics.median(times[is_spread]) for is_spread in (False, True))
    return {
        "without_ms": round(without, 3),
        "with_ms": round(with_rules, 3),
        "ratio": round(with_rules / without, 2),
        "first_ms": round(first, 1),
        "end_ms": round(statistics.median(counting), 3),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spreading", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_240)
    parser.add_argument("--workloads", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args(arguments)
    row = measure(options.nodes, options.workloads, options.rounds)
    print("  ".join(f"{name} {value}" for name, value in row.items()))
    if row["ratio"] > MOST_RATIO:
        print(f"with two rules it may take at most {MOST_RATIO} times as long")
    return 0


if __name__ == "__main__":
    sys.exit(main())

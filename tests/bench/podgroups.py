"""`python -m tests.bench.podgroups`: groups of pods decided on by the engine alone, at the size of the issue: 5,000 nodes in 50 racks.

Groups of 4 pods (750, 1,500, 2,250 of them) and of 1,000 (3, 6, 9), each in one rack; pods decided a second, and how long a blocked group
takes to be explained.
"""

from __future__ import annotations

import time

from core.model.podset import PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.topology.free_capacity import FreeCapacity, NodeState, with_pod
from core.placement.topology.tree import NodeLabels, TopologyTree
from core.podgroups.algorithm import decide, default_plugins
from core.podgroups.framework import Plugins
from core.podgroups.group import PodGroupInfo, TopologyConstraint
from core.podgroups.group_explanation import explain

RACK = "cloud/rack"
RACKS, NODES_PER_RACK = 50, 100
LOADS = ((4, 750), (4, 1500), (4, 2250), (1000, 3), (1000, 6), (1000, 9))


def cluster() -> FreeCapacity:
    """Nodes of 4 CPUs and 32 GiB."""
    names = {f"r{rack:02}-n{node:03}": f"r{rack:02}" for rack in range(RACKS) for node in range(NODES_PER_RACK)}
    tree = TopologyTree([HOSTNAME_LABEL], [NodeLabels(name, {HOSTNAME_LABEL: name, RACK: rack}) for name, rack in names.items()])
    state = NodeState({"cpu": 4000, "memory": 32 * 2**30, "pods": 110})
    return FreeCapacity(tree, dict.fromkeys(names, state))


def group_of(pods: int, number: int, cpu: int = 100) -> PodGroupInfo:
    request = PodSetRequest("main", pods, {"cpu": cpu, "memory": 100 * 2**20})
    return PodGroupInfo("default", f"group-{number}", (request,), (TopologyConstraint(RACK),), min_count=pods)


def place_group(view: FreeCapacity, group: PodGroupInfo, plugins: Plugins) -> bool:
    """Whether a group finds a place, which those after it find taken."""
    chosen = decide(view, group, plugins).chosen
    if chosen is not None:
        for pods, of_set in zip(group.pod_sets, chosen.assignment.nodes, strict=True):
            view.use_nodes(of_set.at, with_pod(pods.requests), of_set.counts)
    return chosen is not None


def main() -> None:
    for pods, count in LOADS:
        view, plugins = cluster(), default_plugins()
        groups = [group_of(pods, number) for number in range(count)]
        started = time.perf_counter()
        placed = sum(place_group(view, group, plugins) for group in groups)
        took = time.perf_counter() - started
        speed = f"{pods * placed / took:,.0f} pods/s, {took / count * 1e3:.2f} ms each"
        print(f"{count} groups of {pods}: {placed} placed, {took:.3f} s, {speed}")
    view = cluster()
    blocked = group_of(1000, 0, cpu=3000)
    started = time.perf_counter()
    outcome = decide(view, blocked, default_plugins())
    decided = time.perf_counter()
    assert outcome.chosen is None
    told = str(explain(view, blocked, outcome.tried))
    times = f"decided in {(decided - started) * 1e3:.1f} ms, explained in {(time.perf_counter() - decided) * 1e3:.1f} ms"
    print(f"a group that no rack holds: {times}: {told}")


if __name__ == "__main__":
    main()

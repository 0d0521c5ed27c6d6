"""Time to decide whom to preempt, and to find the one workload that fits among many that wait.

    python -m tests.bench.preemption [--nodes 2000] [--victims 700] [--pending 10000] [--json]

A rack has 16 nodes of 8 GPUs. Running workloads have 1 to 16 pods of a whole node or of half of one and fill the cluster;
the preemptor needs a whole rack. The figure is a cycle of the reconciler's own loop, from waking to the verdict.
`pending`: so many wait in a BestEffortFIFO queue, of all kinds of shapes; room is made for the one in the middle alone.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from typing import Any

from core.model.configuration import FairSharing
from core.names import HOSTNAME_LABEL
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from tests.bench.parts.shapes import per_gpu
from tests.builders import RACK, Node, build_pod_set_json, build_workload_json
from tests.queueing.shared import Shared

RACK_NODES, GPUS = 16, 8
LOWER = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def build(nodes: int, *, times: int = 1, owner: str = "mine", sharing: FairSharing | None = None, **queue: Any) -> Shared:
    """A cluster with queues in a cohort; the owner owns everything, or so many times that."""
    scene = Shared(sharing=sharing)
    for i in range(nodes):
        rack = f"rack-{i // RACK_NODES:05}"
        amounts = {"cpu": 96_000, "memory": 768 << 30, "nvidia.com/gpu": GPUS, "pods": 110}
        scene.node(Node(f"node-{i:06}", {RACK: rack, HOSTNAME_LABEL: f"node-{i:06}"}, amounts))
    for name, nominal in {"mine": 0, "theirs": 0, owner: nodes * GPUS * times}.items():
        quotas = [{"name": resource, "nominalQuota": amount} for resource, amount in _quota(nominal).items()]
        group = {"coveredResources": list(_quota(nominal)), "flavors": [{"name": "tas", "resources": quotas}]}
        scene.queue(name, {}, resourceGroups=[group], cohortName="cohort", preemption=LOWER, **queue)
        scene.local_queue(name, name)
    return scene


def _quota(gpus: int) -> dict[str, Any]:
    return {"cpu": gpus * 12, "memory": f"{gpus * 96}Gi", "nvidia.com/gpu": gpus}


def submit(
    scene: Shared, name: str, count: int, gpus: int, *, queue: str, priority: int = 0, required: bool = True, level: str = RACK
) -> None:
    """A workload of pods with some GPUs each."""
    amounts = {resource: f"{n}m" if resource == "cpu" else str(n) for resource, n in per_gpu(gpus).items()}
    pod_set = build_pod_set_json(count=count, topology={"required": level} if required else {"unconstrained": True})
    pod_set["template"]["spec"]["containers"][0]["resources"]["requests"] = amounts
    scene.clock += 1
    scene.workload(build_workload_json(name, [pod_set], queue=queue, priority=priority, created=scene.now))


def fill(scene: Shared, nodes: int, victims: int, seed: int) -> None:
    """Running workloads that leave no GPU free."""
    draw, free = random.Random(seed), nodes * GPUS
    for i in range(victims):
        left = victims - i
        gpus = draw.choice((4, 8))
        count = max(1, min(draw.randint(1, max(1, 2 * free // (gpus * left))), free // gpus, 16 * GPUS // gpus))
        if free < gpus:
            break
        queue = draw.choice(("mine", "theirs"))
        submit(scene, f"running-{i:05}", count, gpus, queue=queue, priority=draw.randrange(3), required=False)
        free -= count * gpus
        if i % 50 == 49:
            scene.run()
    scene.run()


def measure_preemption(nodes: int, victims: int, seed: int) -> dict[str, Any]:
    """One preemptor that needs a rack, in a full cluster."""
    scene = build(nodes)
    fill(scene, nodes, victims, seed)
    running = len(scene.running())
    submit(scene, "rack", RACK_NODES, GPUS, queue="mine", priority=5)
    began = time.perf_counter()
    (verdict,) = scene.verdicts()
    elapsed = time.perf_counter() - began
    assert isinstance(verdict.outcome, NotAdmissible)
    gone = verdict.outcome.preempting
    chosen = len(gone.victims) if gone is not None else 0
    return {"nodes": nodes, "running": running, "victims": chosen, "ms": round(elapsed * 1000, 1)}


def measure_pending(nodes: int, pending: int, seed: int) -> dict[str, Any]:
    """Of all that wait only the one in the middle fits once a node is free."""
    scene, draw = build(nodes), random.Random(seed)
    for i in range(nodes):
        submit(scene, f"running-{i:05}", 1, GPUS, queue="mine", required=False)
    scene.run()
    for i in range(pending):
        gpus = draw.choice((1, 2, 4, 8))
        shape = (1, GPUS) if i == pending // 2 else (draw.randint(GPUS // gpus + 1, 16), gpus)  # none but that fits on one node
        submit(scene, f"waiting-{i:05}", *shape, queue="mine")
    began = time.perf_counter()
    first = len(scene.verdicts())
    first_s = time.perf_counter() - began
    scene.finish("running-00000")
    began = time.perf_counter()
    admitted_s = None
    for verdict in scene.cycle.run():
        if isinstance(verdict.outcome, Admissible):
            admitted_s = time.perf_counter() - began
            admitted = verdict.workload.key
    all_s = time.perf_counter() - began
    assert admitted_s is not None
    assert admitted.endswith(f"waiting-{pending // 2:05}"), admitted
    row = {"pending": pending, "nodes": nodes, "first_cycle_s": round(first_s, 3), "refusals": first}
    return row | {"admitted_after_s": round(admitted_s, 3), "cycle_s": round(all_s, 3)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.preemption", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--victims", type=int, default=700)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = [
        measure_preemption(options.nodes, options.victims, options.seed),
        measure_pending(options.nodes, options.pending, options.seed),
    ]
    if options.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print("  ".join(f"{name} {value}" for name, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

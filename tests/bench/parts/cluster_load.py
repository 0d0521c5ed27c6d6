"""What users ask a GPU cluster for: jobs of 1 to 128 pods, some of whole racks, coming at a rate that keeps most GPUs asked for.

The pace is set by what the API server beside everything else on two cores bears, in pods a second; the run times then follow
from the share of the GPUs that is to be asked for. So occupancy comes from jobs that run, as in life, and not from a server
that cannot keep up.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from e2e import manifests
from e2e.nodes import BLOCK_LABEL, RACK_LABEL, NodePool

Obj = dict[str, Any]
SEED = 2560
NAMESPACE, NAME = "bench", "bench"
QUEUES = tuple(f"team-{letter}" for letter in "abcd")
GPU, GPUS_A_NODE, NODES_A_RACK, RACKS_A_BLOCK = "nvidia.com/gpu", 8, 16, 10
KEPT_S = 60  # of a job that is complete; then it is deleted with its pods, as users have it
# Pods a job, and how many of a hundred jobs are like that: seven pods a job in the mean.
_SIZES = {1: 48, 2: 13, 4: 12, 8: 11, 16: 9, 32: 4, 64: 2, 128: 1}


@dataclass(frozen=True)
class Planned:
    """One job: `at_s` after the first it is applied."""

    name: str
    queue: str
    pods: int
    gpus: int
    run_s: int
    at_s: float
    topology: Mapping[str, str | int]

    @property
    def in_all(self) -> int:
        """GPUs."""
        return self.pods * self.gpus

    def manifest(self) -> Obj:
        made = manifests.build_job(
            self.name,
            NAMESPACE,
            pods=self.pods,
            gpus=self.gpus,
            queue=self.queue,
            run_seconds=self.run_s,
            spec={"ttlSecondsAfterFinished": KEPT_S},
            **self.topology,  # type: ignore[arg-type]
        )
        made["spec"]["completionMode"] = "Indexed"
        return made


@dataclass(frozen=True)
class Load:
    """`asked` is the share of the GPUs that running and waiting jobs together ask for, in the mean."""

    nodes: int = 2560
    jobs: int = 2000
    asked: float = 0.9
    pods_per_s: float = 16.0

    @property
    def pool(self) -> NodePool:
        racks = max(1, self.nodes // NODES_A_RACK)
        blocks = max(1, racks // RACKS_A_BLOCK)
        return NodePool(blocks, racks // blocks, NODES_A_RACK, labels={"pool": NAME})

    @property
    def gpus(self) -> int:
        pool = self.pool
        return pool.blocks * pool.racks * pool.nodes * GPUS_A_NODE

    def plan(self) -> list[Planned]:
        """The jobs in the order in which they come, evenly by their pods; the same for the same load."""
        chance = random.Random(SEED)
        sizes = {pods: weight for pods, weight in _SIZES.items() if pods <= max(NODES_A_RACK, self.nodes // 8)}
        drawn = [_draw(chance, pods) for pods in chance.choices(list(sizes), list(sizes.values()), k=self.jobs)]
        stretches = [2 ** chance.uniform(-1, 1) for _ in drawn]
        lasts_s = sum(pods for pods, _, _ in drawn) / self.pods_per_s
        per_stretch = self.asked * self.gpus * lasts_s / sum(p * g * s for (p, g, _), s in zip(drawn, stretches, strict=True))
        planned, come = [], 0
        for number, ((pods, gpus, topology), stretch) in enumerate(zip(drawn, stretches, strict=True)):
            run_s = max(1, round(stretch * per_stretch))
            planned.append(Planned(f"job-{number:04}", chance.choice(QUEUES), pods, gpus, run_s, come / self.pods_per_s, topology))
            come += pods
        return planned

    def configuration(self) -> Iterator[Obj]:
        """Topology, flavor, and queues of one cohort with equal quotas, which all of them may borrow."""
        yield manifests.build_topology(NAME, self.pool.levels)
        yield manifests.build_flavor(NAME, self.pool.labels, NAME)
        for queue in QUEUES:
            quotas: dict[str, str | int] = {"cpu": 10 * self.gpus, GPU: self.gpus // len(QUEUES)}
            yield manifests.build_cluster_queue(queue, {NAME: quotas}, cohortName=NAME)
            yield manifests.build_local_queue(queue, NAMESPACE, queue)


def _draw(chance: random.Random, pods: int) -> tuple[int, int, Mapping[str, str | int]]:
    """Pods, GPUs of each, and where they have to be."""
    if pods == 1:
        return pods, chance.choice([1, 1, 2, 4, 8]), {"unconstrained": "true"}
    if pods < NODES_A_RACK:
        topology = chance.choice(
            [{"preferred": RACK_LABEL}, {"preferred": RACK_LABEL}, {"required": RACK_LABEL}, {"unconstrained": "true"}]
        )
        return pods, chance.choice([4, 8, 8]), topology
    if pods == NODES_A_RACK:
        return pods, GPUS_A_NODE, {"required": RACK_LABEL}
    return pods, GPUS_A_NODE, {"preferred": BLOCK_LABEL, "slice_topology": RACK_LABEL, "slice_size": NODES_A_RACK}

"""Streams of our own for `tests.bench.stream`: a mixed cluster, different requests, an event between each two; seeded.

python -m tests.bench.parts.streams NODES REQUESTS SEED > stream.jsonl
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

from core.names import HOSTNAME_LABEL

BLOCK, RACK = "topology.example.com/block", "topology.example.com/rack"
PER_RACK, RACKS_PER_BLOCK = 16, 40
GIB = 2**30
GPU = "nvidia.com/gpu"
LOAD = 0.9  # of all GPUs, asked for at any time

# Kind of node: cpu, GiB, GPUs; the weight of each among the racks.
KINDS = {"dense": (192, 2048, 8, 5), "wide": (128, 1024, 8, 3), "small": (64, 256, 4, 2), "cpu": (96, 384, 0, 1)}
RESERVED = {"key": "reserved-for", "value": "research", "effect": "NoSchedule"}
DRAINING = {"key": "draining", "effect": "NoExecute"}
TOLERATIONS: tuple[dict[str, Any], ...] = ({"key": "reserved-for", "operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute"})
GPUS_OF_A_POD = (0, 1, 1, 2, 4, 8, 8, 8)


class _Stream:
    def __init__(self, nodes: int, requests: int, seed: int) -> None:
        self._chance = random.Random(f"life-{nodes}-{requests}-{seed}")
        self._requests = requests
        self._nodes = [self._node(i) for i in range(nodes)]
        self._gpus = sum(int(node["allocatable"][GPU]) for node in self._nodes)
        self._held: dict[str, int] = {}  # workload -> GPUs asked for
        self._pods: list[str] = []

    def lines(self) -> Iterator[dict[str, Any]]:
        yield {"levels": [BLOCK, RACK, HOSTNAME_LABEL], "flavor": {}, "nodes": self._nodes}
        for i in range(self._requests):
            pod_set = self._pod_set()
            yield {"op": "place", "id": f"job-{i}", "pod_sets": [pod_set]}
            self._held[f"job-{i}"] = pod_set["count"] * pod_set["single_pod_requests"].get(GPU, 0)
            if self._chance.random() < 0.1:
                yield from self._release(self._chance.choice([*self._held]))
            while sum(self._held.values()) > LOAD * self._gpus:
                oldest = [*self._held][:16]
                yield from self._release(self._chance.choice(oldest))
            yield self._event(i)

    def _node(self, number: int) -> dict[str, Any]:
        rack = number // PER_RACK
        weights = [kind[-1] for kind in KINDS.values()]
        name = random.Random(f"rack-{rack}").choices([*KINDS], weights)[0]
        cpu, memory, gpus, _ = KINDS[name]
        host = f"{name}-{self._chance.getrandbits(32):08x}-{number}"
        node: dict[str, Any] = {
            "name": host,
            "labels": {
                BLOCK: f"block-{rack // RACKS_PER_BLOCK}",
                RACK: f"rack-{rack}",
                HOSTNAME_LABEL: host,
                "kind": name,
                "hall": "north" if rack // RACKS_PER_BLOCK % 3 else "south",
                "year": str(2022 + rack % 5),
            },
            "allocatable": {"cpu": str(cpu), "memory": f"{memory}Gi", GPU: str(gpus), "pods": "110"},
        }
        if self._chance.random() < 0.06:
            node["taints"] = [RESERVED]
        return node

    def _pod_set(self) -> dict[str, Any]:
        gpus = self._chance.choice(GPUS_OF_A_POD)
        most = max(1, self._gpus // 40 // max(gpus, 1))
        count = min(most, round(2 ** self._chance.uniform(0, 10.5)))
        requests = {"cpu": self._chance.randint(500, 20_000) * max(gpus, 1), "memory": self._chance.randint(2, 150) * GIB * max(gpus, 1)}
        if gpus:
            requests[GPU] = gpus
        topology: dict[str, Any] = self._chance.choice(
            [{"unconstrained": True}] * 3
            + [{"required": RACK}, {"required": BLOCK}, {"preferred": RACK}, {"preferred": BLOCK}, {"preferred": HOSTNAME_LABEL}]
        )
        if topology.get("required") == RACK:
            count = min(count, self._chance.choice([16, 32, 128]))
        elif count >= 16 and HOSTNAME_LABEL not in topology.values() and self._chance.random() < 0.3:
            size = self._chance.choice([2, 4, 8])
            count = count // size * size
            topology = {**topology, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": size}
        pod_set: dict[str, Any] = {"name": "main", "count": count, "single_pod_requests": requests, "topology_request": topology}
        return pod_set | self._narrowing()

    def _narrowing(self) -> dict[str, Any]:
        def among(*expressions: dict[str, Any]) -> dict[str, Any]:
            terms = [{"matchExpressions": [expression]} for expression in expressions]
            return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}

        kinds = self._chance.sample([*KINDS], 2)
        found: dict[str, Any] = self._chance.choice(
            [
                {},
                {},
                {"node_selector": {"kind": kinds[0]}},
                {"node_selector": {"hall": self._chance.choice(["north", "south"])}},
                among({"key": "kind", "operator": "In", "values": kinds}),
                among({"key": "kind", "operator": "NotIn", "values": kinds[:1]}),
                among({"key": "year", "operator": "Gt", "values": ["2023"]}, {"key": "hall", "operator": "In", "values": ["south"]}),
            ]
        )
        return found | {"tolerations": self._chance.sample(TOLERATIONS, 1)} if self._chance.random() < 0.3 else found

    def _release(self, name: str) -> Iterator[dict[str, Any]]:
        del self._held[name]
        yield {"op": "release", "id": name}

    def _event(self, number: int) -> dict[str, Any]:
        node, what = self._chance.choice(self._nodes)["name"], self._chance.random()
        if what < 0.5:
            self._pods.append(f"pod-{number}")
            requests = {"cpu": f"{self._chance.randint(20, 3000)}m", "memory": f"{self._chance.randint(32, 4096)}Mi"}
            return {"op": "pod", "name": f"pod-{number}", "node": node, "phase": "Running", "requests": requests}
        if what < 0.7 and self._pods:
            return {"op": "pod", "name": self._pods.pop(self._chance.randrange(len(self._pods))), "phase": "Succeeded"}
        ready, cordoned, taints = self._chance.choice(
            [(True, False, [])] * 3 + [(False, False, []), (True, True, []), (True, False, [RESERVED]), (True, False, [DRAINING])]
        )
        return {"op": "node", "name": node, "ready": ready, "unschedulable": cordoned, "taints": taints}


def build_stream(nodes: int, requests: int, seed: int) -> Iterator[dict[str, Any]]:
    """The lines of a stream (vectors/README.md, Stream)."""
    return _Stream(nodes, requests, seed).lines()


if __name__ == "__main__":
    for line in build_stream(*map(int, sys.argv[1:4])):
        print(json.dumps(line, separators=(",", ":")))

"""What each user story promises, checked from where its pods are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL, PODSET_LABEL, RANK_ANNOTATION
from e2e import manifests
from e2e.audit import truth
from e2e.nodes import NodePool, build_nodes

HERE = Path(__file__).parent
CLOUD = "cloud.provider.com"
NAMESPACE, QUEUE = "tas-example-job", "user-queue"
BLOCK, RACK, HOST = f"{CLOUD}/topology-block", f"{CLOUD}/topology-rack", f"{CLOUD}/topology-host"
LAYERS = (f"{CLOUD}/datacenter", f"{CLOUD}/aizone", f"{CLOUD}/block", f"{CLOUD}/rack", HOSTNAME_LABEL)
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
GROUP_INDEX, WORKER_INDEX = "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/worker-index"
MPI_ROLE, MPI_INDEX = "training.kubeflow.org/job-role", "training.kubeflow.org/replica-index"

Pod = dict[str, Any]
Check = Callable[["Placed"], list[str]]


@dataclass(frozen=True)
class Placed:
    """The pods of a story, all bound, and the nodes they are on."""

    now: truth.Snapshot
    pods: Sequence[Pod]

    def domains(self, level: str, pods: Iterable[Pod] | None = None) -> list[str]:
        return sorted({self.now.label_of(pod, level) for pod in (self.pods if pods is None else pods)})

    def by(self, *labels: str) -> dict[tuple[str, ...], list[Pod]]:
        """Pods by the values of some of their labels."""
        found: dict[tuple[str, ...], list[Pod]] = {}
        for pod in self.pods:
            found.setdefault(tuple(pod["metadata"]["labels"].get(label, "") for label in labels), []).append(pod)
        return found

    def one(self, level: str, pods: Iterable[Pod] | None = None, what: str = "its pods") -> list[str]:
        """All in one domain of a level."""
        found = self.domains(level, pods)
        return [] if len(found) == 1 else [f"{what} are in {level} {', '.join(found)}"]

    def multiples(self, level: str, size: int) -> list[str]:
        """In multiples of a size in every domain of a level."""
        counts: dict[str, int] = {}
        for pod in self.pods:
            domain = self.now.label_of(pod, level)
            counts[domain] = counts.get(domain, 0) + 1
        return [f"{count} pods are in {level} {domain}, no multiple of {size}" for domain, count in counts.items() if count % size]

    def in_order(self, label: str, level: str, pods: Iterable[Pod] | None = None) -> list[str]:
        """Consecutive indexes share a domain for as long as they can."""
        chosen = sorted(self.pods if pods is None else pods, key=lambda pod: int(pod["metadata"]["labels"][label]))
        seen = [self.now.label_of(pod, level) for pod in chosen]
        changes = [domain for domain, before in zip(seen, ["", *seen], strict=False) if domain != before]
        return [] if len(changes) == len(set(changes)) else [f"in the order of {label} pods are in {level} {', '.join(changes)}"]


@dataclass(frozen=True)
class Story:
    """A file, its topology's levels, how many pods it makes, what must hold, and whose stand-in makes them, if not Kubernetes."""

    file: str
    levels: Sequence[str]
    pods: int
    check: Check
    stand_in: str | None = None

    @property
    def name(self) -> str:
        return self.file.removesuffix(".yaml")

    def load(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load((HERE / self.file).read_text())
        return loaded


def nodes() -> list[dict[str, Any]]:
    """A data center of two zones of two blocks of two racks of two nodes, each with 32 CPUs and room for 8 pods.

    Each node carries the labels of all examples.
    """
    made = []
    for zone in range(1, 3):
        room = {"cpu": "32", "memory": "64Gi", "pods": "8"}
        pool = NodePool(2, 2, 2, prefix=f"story-z{zone}-", labels={"pool": "stories"}, allocatable=room)
        for node in build_nodes(pool):
            labels = node["metadata"]["labels"]
            values = ("story-dc", f"story-z{zone}", labels[BLOCK], labels[RACK])
            labels |= {HOST: node["metadata"]["name"], **dict(zip(LAYERS, values, strict=False))}
            made.append(node)
    return made


def build_queues(levels: Sequence[str]) -> list[dict[str, Any]]:
    """A topology of some levels over these nodes, and a queue."""
    return [
        manifests.build_topology("stories", levels),
        manifests.build_flavor("stories", {"pool": "stories"}, "stories"),
        manifests.build_cluster_queue("stories", {"stories": {"cpu": 10_000}}),
        manifests.build_local_queue(QUEUE, NAMESPACE, "stories"),
    ]


def _check_slices(placed: Placed, of: Mapping[tuple[str, ...], list[Pod]], level: str) -> list[str]:
    return [problem for key, pods in of.items() for problem in placed.one(level, pods, f"pods of {'/'.join(key)}")]


def _check_story_1b(placed: Placed) -> list[str]:
    racks = placed.domains(RACK)
    return placed.one(BLOCK) + ([] if len(racks) == 2 else [f"20 pods need two racks of 16; they are in {', '.join(racks)}"])


def _check_story_3(placed: Placed) -> list[str]:
    return placed.one(BLOCK, what="all pods") + _check_slices(placed, placed.by(PODSET_LABEL), RACK)


def _check_story_4(placed: Placed) -> list[str]:
    return [
        *placed.one(BLOCK),
        *placed.in_order(JOB_COMPLETION_INDEX_LABEL, RACK),
        *placed.in_order(JOB_COMPLETION_INDEX_LABEL, HOSTNAME_LABEL),
    ]


def _check_jobs_on_hosts(placed: Placed) -> list[str]:
    workers = {key: pods for key, pods in placed.by(REPLICATED_JOB, JOB_INDEX).items() if key[0] == "workers"}
    return _check_slices(placed, workers, HOST) + ([] if len(workers) == 2 else [f"there are Jobs {sorted(workers)}"])


def _check_story_5(placed: Placed) -> list[str]:
    workers = placed.by(REPLICATED_JOB)["workers",]
    return _check_jobs_on_hosts(placed) + placed.one(BLOCK, workers, "all workers")


def _check_story_6(placed: Placed) -> list[str]:
    groups = placed.by(GROUP_INDEX)
    return _check_slices(placed, groups, HOST) + ([] if len(groups) == 2 else [f"there are groups {sorted(groups)}"])


def _check_story_7(placed: Placed) -> list[str]:
    workers = placed.by(MPI_ROLE)["worker",]
    return placed.one(RACK, workers) + placed.in_order(MPI_INDEX, HOSTNAME_LABEL, workers) + _check_ranks(workers, MPI_INDEX)


def _check_story_8(placed: Placed) -> list[str]:
    problems = []
    for (group,), pods in placed.by(GROUP_INDEX).items():
        workers = [pod for pod in pods if pod["metadata"]["labels"][WORKER_INDEX] != "0"]
        problems += placed.one(RACK, workers, f"workers of group {group}")
        problems += placed.in_order(WORKER_INDEX, HOSTNAME_LABEL, workers) + _check_ranks(workers, WORKER_INDEX)
    return problems


def _check_ranks(pods: Iterable[Pod], label: str) -> list[str]:
    """Each was placed by its index."""
    return [
        f"pod {pod['metadata']['name']} of index {index} has rank {rank}"
        for pod in pods
        if (rank := pod["metadata"]["annotations"].get(RANK_ANNOTATION)) != (index := pod["metadata"]["labels"][label])
    ]


def _check_story_9(placed: Placed) -> list[str]:
    center, zone, block, rack, _ = LAYERS
    return [*placed.one(center), *placed.multiples(zone, 64), *placed.multiples(block, 32), *placed.multiples(rack, 16)]


_BLOCKS = (BLOCK, RACK, HOSTNAME_LABEL)
_HOSTS = (BLOCK, RACK, HOST)
STORIES = (
    Story("story-1a-job-in-one-rack.yaml", _BLOCKS, 10, lambda placed: placed.one(RACK)),
    Story("story-1b-job-in-one-rack-if-possible.yaml", _BLOCKS, 20, _check_story_1b),
    Story("story-2-each-job-of-a-jobset-on-one-host.yaml", _HOSTS, 9, _check_jobs_on_hosts, "JobSet"),
    Story("story-3-workers-in-a-rack-all-in-a-block.yaml", _BLOCKS, 17, _check_story_3, "JobSet"),
    Story("story-4-consecutive-ranks-together.yaml", _BLOCKS, 24, _check_story_4),
    Story("story-5-jobs-in-a-block-each-on-one-host.yaml", _HOSTS, 9, _check_story_5, "JobSet"),
    Story("story-6-leader-with-its-workers.yaml", _HOSTS, 6, _check_story_6, "LeaderWorkerSet"),
    Story("story-7-launcher-as-worker.yaml", _BLOCKS, 3, _check_story_7, "MPIJob"),
    Story("story-8-workers-in-the-order-of-their-indexes.yaml", _BLOCKS, 6, _check_story_8, "LeaderWorkerSet"),
    Story("story-9-layers-of-slices.yaml", LAYERS, 128, _check_story_9),
)

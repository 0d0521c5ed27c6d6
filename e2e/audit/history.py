"""All that happened to the pods, workloads and jobs of a namespace, in the one order in which it happened.

Each change is kept as a small fact with its resource version, which is the same clock for all three (they share an etcd), so
that the whole can be gone through again, moment by moment (`e2e.audit.audit`), and not only what a look now and then would catch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from core.model.admission import Admission, decode_admission
from core.model.pod_resources import PODS, compute_pod_requests
from core.names import EVICTED, FINISHED, PODSET_LABEL, PREEMPTED, WORKLOAD_ANNOTATION
from e2e.audit.truth import get_condition, has_gate, is_terminal, is_true
from e2e.clock import CLOCK
from e2e.cluster import Cluster

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodFact:
    """A pod as it was from `version` on; `at` is when it was heard of (monotonic)."""

    version: int
    at: float
    uid: str
    name: str
    workload: str
    pod_set: str
    node: str
    gated: bool
    ended: bool
    gone: bool
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class WorkloadFact:
    """A workload as it was from `version` on. Not admitted: `admission` is None."""

    version: int
    at: float
    name: str
    job: str
    admission: Admission | None
    given_back: Mapping[str, int]  # pods by pod set that need their quota no more
    finished: bool
    evicted: str  # the reason, as the next
    preempted: str
    gone: bool


@dataclass(frozen=True, slots=True)
class JobFact:
    version: int
    at: float
    name: str
    suspended: bool
    succeeded: int
    complete: bool
    failed: bool
    gone: bool


Fact = PodFact | WorkloadFact | JobFact
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"


class History:
    """Written down while the `with` block runs."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._lock = threading.Lock()
        self._facts: list[Fact] = []
        self._requests: dict[str, Mapping[str, int]] = {}  # by pod: they never change, and there are many facts of a pod
        self.complete: set[str] = set()  # names of jobs
        self.changed_at = CLOCK.monotonic()  # when something got on: an admission, a pod bound or at its end, a job complete

    def __enter__(self) -> History:
        paths = {
            f"/api/v1/namespaces/{self._namespace}/pods": self._on_pod,
            WORKLOADS.format(self._namespace): self._on_workload,
            f"/apis/batch/v1/namespaces/{self._namespace}/jobs": self._on_job,
        }
        self._followers = [self._cluster.follow(path, tell) for path, tell in paths.items()]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for follower in self._followers:
            follower.stop()

    def facts(self) -> list[Fact]:
        """In the order in which they came true; of each kind those that have been heard of."""
        with self._lock:
            return sorted(self._facts, key=lambda fact: fact.version)

    def _add(self, fact: Fact, *, gets_on: bool) -> None:
        with self._lock:
            self._facts.append(fact)
        if gets_on:
            self.changed_at = fact.at

    def _on_pod(self, kind: str, pod: Obj) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        uid = str(metadata["uid"])
        if uid not in self._requests:
            self._requests[uid] = {**compute_pod_requests(spec), PODS: 1}
        fact = PodFact(
            int(metadata["resourceVersion"]),
            CLOCK.monotonic(),
            uid,
            metadata["name"],
            (metadata.get("annotations") or {}).get(WORKLOAD_ANNOTATION, ""),
            (metadata.get("labels") or {}).get(PODSET_LABEL, ""),
            spec.get("nodeName") or "",
            has_gate(pod),
            is_terminal(pod),
            kind == "DELETED",
            self._requests[uid],
        )
        self._add(fact, gets_on=bool(fact.node))

    def _on_workload(self, kind: str, workload: Obj) -> None:
        status = workload.get("status") or {}
        fact = WorkloadFact(
            int(workload["metadata"]["resourceVersion"]),
            CLOCK.monotonic(),
            workload["metadata"]["name"],
            next((owner["name"] for owner in workload["metadata"].get("ownerReferences") or ()), ""),
            decode_admission(status.get("admission")),
            {entry["name"]: int(entry["count"]) for entry in status.get("reclaimablePods") or ()},
            is_true(workload, FINISHED),
            _get_reason(workload, EVICTED),
            _get_reason(workload, PREEMPTED),
            kind == "DELETED",
        )
        self._add(fact, gets_on=fact.admission is not None or fact.finished)

    def _on_job(self, kind: str, job: Obj) -> None:
        status, metadata = job.get("status") or {}, job["metadata"]
        complete = is_true(job, "Complete")
        fact = JobFact(
            int(metadata["resourceVersion"]),
            CLOCK.monotonic(),
            metadata["name"],
            bool(job["spec"].get("suspend")),
            int(status.get("succeeded") or 0),
            complete,
            is_true(job, "Failed"),
            kind == "DELETED",
        )
        if complete:
            self.complete.add(fact.name)
        self._add(fact, gets_on=complete)


def _get_reason(workload: Obj, kind: str) -> str:
    """Of a condition that is true."""
    return str(get_condition(workload, kind).get("reason", "")) if is_true(workload, kind) else ""

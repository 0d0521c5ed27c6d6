"""What topogate promises, checked from the API server's state alone.

Each check takes a snapshot and returns sentences about what is broken; none means the promise is
kept. The demo ends non-zero on any, and tests run `check_invariants` after every scenario.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from core.model.admission import decode_admission
from core.model.pod_resources import PODS, compute_pod_requests, parse_resources
from core.names import (
    EVICTED,
    FINISHED,
    HOSTNAME_LABEL,
    JOB_COMPLETION_INDEX_LABEL,
    PODSET_LABEL,
    QUOTA_RESERVED,
    SLICE_NAME,
    SLICE_REPLACES,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from e2e.api import Api

Obj = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """What the API server had at one moment. All but the pods is read when it is first asked for, as it was then: most looks at a cluster
    that is waited for need no nodes, and it has thousands of events."""

    pods: list[Obj]
    read_nodes: Callable[[], list[Obj]]
    read_jobs: Callable[[], list[Obj]]
    read_workloads: Callable[[], list[Obj]]
    read_events: Callable[[], list[Obj]] = list

    @cached_property
    def nodes(self) -> Mapping[str, Obj]:
        """By name."""
        return {node["metadata"]["name"]: node for node in self.read_nodes()}

    @cached_property
    def jobs(self) -> list[Obj]:
        return self.read_jobs()

    @cached_property
    def workloads(self) -> list[Obj]:
        return self.read_workloads()

    @cached_property
    def events(self) -> list[Obj]:
        return self.read_events()

    def workload_of(self, job: str) -> Obj | None:
        """The workload of a job by the job's name."""
        mine = [w for w in self.workloads if any(o["name"] == job for o in w["metadata"].get("ownerReferences") or ())]
        # Of an elastic job that by which its pods run.
        return min(mine, key=lambda w: (is_true(w, FINISHED), not is_true(w, "Admitted")), default=None)

    def pods_of(self, job: str) -> list[Obj]:
        """Live pods that belong to a job's workload, by name."""
        workload = self.workload_of(job)
        if workload is None:
            return []
        name, namespace = get_name_in_pods(workload), workload["metadata"]["namespace"]
        return [
            pod
            for pod in self.pods
            if pod["metadata"]["namespace"] == namespace and get_workload_name(pod) == name and not is_terminal(pod)
        ]

    def pods_in(self, namespace: str) -> list[Obj]:
        return [pod for pod in self.pods if pod["metadata"]["namespace"] == namespace]

    def label_of(self, pod: Obj, label: str) -> str:
        """A label of the node that a pod is on."""
        node = self.nodes.get(pod["spec"].get("nodeName") or "")
        return str((node or {"metadata": {}})["metadata"].get("labels", {}).get(label, ""))


def read(api: Api, namespaces: Iterable[str] | None = None) -> Snapshot:
    """Everything as it was at one moment, which is known for five minutes; with `namespaces`, jobs and workloads of these only (pods
    always of all: capacity is shared)."""
    pods = api.get("/api/v1/pods")
    then = f"?resourceVersion={pods['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    within = [""] if namespaces is None else [f"/namespaces/{namespace}" for namespace in dict.fromkeys(namespaces)]

    def list_mine(group_version: str, plural: str) -> list[Obj]:
        return [obj for each in within for obj in api.list(f"{group_version}{each}/{plural}{then}")]

    return Snapshot(
        sorted(pods["items"], key=lambda pod: pod["metadata"]["name"]),
        partial(api.list, "/api/v1/nodes" + then),
        partial(list_mine, "/apis/batch/v1", "jobs"),
        partial(list_mine, "/apis/kueue.x-k8s.io/v1beta2", "workloads"),
        partial(list_mine, "/api/v1", "events"),
    )


def is_terminal(pod: Obj) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def get_condition(obj: Obj | None, kind: str) -> Obj:
    """A condition, empty where it is not set."""
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})


def is_true(obj: Obj | None, kind: str) -> bool:
    return get_condition(obj, kind).get("status") == "True"


def get_workload_name(pod: Obj) -> str:
    """The workload that a pod names; of an elastic job the first one."""
    notes = pod["metadata"].get("annotations") or {}
    return str(notes.get(SLICE_NAME) or notes.get(WORKLOAD_ANNOTATION) or "")


def get_name_in_pods(workload: Obj) -> str:
    """What the pods of a workload name."""
    metadata = workload["metadata"]
    return str((metadata.get("annotations") or {}).get(SLICE_NAME) or metadata["name"])


# --- always -------------------------------------------------------------------------------------------


def check_invariants(snapshot: Snapshot) -> list[str]:
    """What must hold at any moment, whatever was killed: no node over capacity, no slot promised twice, no half admission."""
    return check_node_capacity(snapshot) + check_admissions(snapshot)


def check_node_capacity(snapshot: Snapshot) -> list[str]:
    """Pods on a node, and pods promised to it that are not there yet, within what it has."""
    used: dict[str, Counter[str]] = {name: Counter() for name in snapshot.nodes}
    there: Counter[tuple[str, str, str]] = Counter()  # workload, pod set, node -> pods bound
    for pod in snapshot.pods:
        node = pod["spec"].get("nodeName")
        if node in used and not is_terminal(pod):
            used[node].update(compute_pod_requests(pod["spec"]))
            used[node][PODS] += 1
            there[(*_get_pod_set(pod), node)] += 1
    for node, requests, missing in _list_expected_pods(snapshot, there):
        for resource, amount in requests.items():
            used[node][resource] += amount * missing
    broken = []
    for name, amounts in used.items():
        allocatable = parse_resources(snapshot.nodes[name]["status"].get("allocatable"))
        broken += [
            f"node {name} is over capacity: {amount} of {allocatable.get(resource, 0)} {resource} are used or promised"
            for resource, amount in amounts.items()
            if amount > allocatable.get(resource, 0)
        ]
    return broken


def _list_expected_pods(snapshot: Snapshot, there: Counter[tuple[str, str, str]]) -> Iterable[tuple[str, Mapping[str, int], int]]:
    """Pods per node that are promised, not there, and that somebody still makes: where pods are reclaimable, those that have
    succeeded are not made again."""
    succeeded = Counter((_get_pod_set(p), p["spec"].get("nodeName")) for p in snapshot.pods if p["status"].get("phase") == "Succeeded")
    reclaimable = {
        (f"{w['metadata']['namespace']}/{get_name_in_pods(w)}", entry["name"]): entry["count"]
        for w in snapshot.workloads
        for entry in (w.get("status") or {}).get("reclaimablePods") or ()
    }
    for key, node, requests, count in _list_promised_pods(snapshot):
        missing = max(0, count - there[(*key, node)])
        over = min(missing, succeeded[key, node], reclaimable.get(key, 0))
        if over:
            reclaimable[key] -= over
        yield node, requests, missing - over


def _list_promised_pods(snapshot: Snapshot) -> Iterable[tuple[tuple[str, str], str, Mapping[str, int], int]]:
    """Pods per node that assignments of host topologies name: (workload, pod set), node, requests, count."""
    by_hostname = {node["metadata"]["labels"].get(HOSTNAME_LABEL): name for name, node in snapshot.nodes.items()}
    admitted = [w for w in snapshot.workloads if is_true(w, QUOTA_RESERVED)]
    replaced = {(w["metadata"].get("annotations") or {}).get(SLICE_REPLACES) for w in admitted}
    for workload in snapshot.workloads:
        admission = decode_admission((workload.get("status") or {}).get("admission"))
        own = f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
        if admission is None or is_true(workload, FINISHED) or own in replaced:
            continue
        key = f"{workload['metadata']['namespace']}/{get_name_in_pods(workload)}"
        for pod_set, given in zip(workload["spec"]["podSets"], admission.pod_sets, strict=True):
            if given.assignment is None or given.assignment.levels != (HOSTNAME_LABEL,):
                continue
            requests = {**compute_pod_requests(pod_set["template"]["spec"]), PODS: 1}
            for domain in given.assignment.domains:
                node = by_hostname.get(domain.values[-1])
                if node is not None:
                    yield (key, given.name), node, requests, domain.count


def _get_pod_set(pod: Obj) -> tuple[str, str]:
    metadata = pod["metadata"]
    workload = get_workload_name(pod)
    return f"{metadata['namespace']}/{workload}", (metadata.get("labels") or {}).get(PODSET_LABEL, "")


def check_admissions(snapshot: Snapshot) -> list[str]:
    """Admission and its conditions stand or fall together, and assignments hold all pods, of who can do with fewer all admitted."""
    broken = []
    for workload in snapshot.workloads:
        name = workload["metadata"]["name"]
        admission = decode_admission((workload.get("status") or {}).get("admission"))
        if (admission is not None) != is_true(workload, QUOTA_RESERVED):
            broken.append(f"workload {name} is half admitted: admission and the condition {QUOTA_RESERVED} disagree")
        for pod_set, given in zip(workload["spec"]["podSets"], admission.pod_sets if admission else (), strict=False):
            done = {entry["name"]: entry["count"] for entry in workload["status"].get("reclaimablePods") or ()}.get(given.name, 0)
            if given.assignment is not None and not given.count - done <= given.assignment.count <= given.count:
                broken.append(f"workload {name}: {given.assignment.count} of {given.count} pods of {given.name} are assigned")
            if not pod_set.get("minCount", pod_set["count"]) - done <= given.count <= pod_set["count"]:
                broken.append(f"workload {name}: {given.count} of {pod_set['count']} pods of {given.name} are admitted")
    return broken


# --- of one job -----------------------------------------------------------------------------------------


def check_all_bound(snapshot: Snapshot, job: str, count: int) -> list[str]:
    """Every pod of a job is there, without a gate, and on a node."""
    pods = snapshot.pods_of(job)
    broken = [f"pod {pod['metadata']['name']} still has the gate {TOPOLOGY_GATE}" for pod in pods if has_gate(pod)]
    broken += [f"pod {p['metadata']['name']} is on no node" for p in pods if not has_gate(p) and not p["spec"].get("nodeName")]
    if len(pods) != count:
        broken.append(f"job {job} has {len(pods)} pods, not {count}")
    return broken


def has_gate(pod: Obj) -> bool:
    return any(gate["name"] == TOPOLOGY_GATE for gate in pod["spec"].get("schedulingGates") or ())


def check_one_domain(snapshot: Snapshot, job: str, level: str) -> list[str]:
    """All pods of a job are in one domain of a level."""
    found = Counter(snapshot.label_of(pod, level) for pod in snapshot.pods_of(job) if pod["spec"].get("nodeName"))
    return [] if len(found) == 1 else [f"job {job} is in {len(found)} domains of {level}, not in one: {dict(found)}"]


def check_slices(snapshot: Snapshot, job: str, level: str, size: int) -> list[str]:
    """Every domain of a level holds whole slices of a job."""
    found = Counter(snapshot.label_of(pod, level) for pod in snapshot.pods_of(job) if pod["spec"].get("nodeName"))
    return [f"job {job} has {count} pods in {level} {name}, no whole slices of {size}" for name, count in found.items() if count % size]


def as_assigned(snapshot: Snapshot, job: str) -> list[str]:
    """The pods of a job are where its workload's assignment says, in the numbers it says."""
    workload = snapshot.workload_of(job)
    admission = decode_admission(((workload or {}).get("status") or {}).get("admission"))
    if admission is None:
        return [f"job {job} is not admitted"]
    broken = []
    for given in admission.pod_sets:
        if given.assignment is None:
            continue
        pods = [pod for pod in snapshot.pods_of(job) if (pod["metadata"].get("labels") or {}).get(PODSET_LABEL) == given.name]
        found = Counter(tuple(snapshot.label_of(pod, level) for level in given.assignment.levels) for pod in pods)
        wanted = Counter({domain.values: domain.count for domain in given.assignment.domains})
        if found != wanted:
            broken.append(f"job {job}: pods are at {dict(found)}, the assignment says {dict(wanted)}")
    return broken


def check_rank_order(snapshot: Snapshot, job: str, levels: Iterable[str]) -> list[str]:
    """Consecutive ranks share a domain: going through the ranks, no domain is left and entered again."""

    def rank_of(pod: Obj) -> int:
        return int((pod["metadata"].get("labels") or {}).get(JOB_COMPLETION_INDEX_LABEL, -1))

    broken = []
    ranked = sorted(snapshot.pods_of(job), key=rank_of)
    for level in levels:
        seen: list[str] = []
        for pod in ranked:
            domain = snapshot.label_of(pod, level)
            if seen and seen[-1] != domain and domain in seen:
                broken.append(f"job {job}: rank {rank_of(pod)} is in {level} {domain} again, after {seen[-1]}; ranks are out of order")
                break
            if not seen or seen[-1] != domain:
                seen.append(domain)
    return broken


def check_waiting_reason(snapshot: Snapshot, job: str, *facts: str) -> list[str]:
    """A job that is not admitted says why: condition and event name the facts."""
    workload = snapshot.workload_of(job)
    why = get_condition(workload, QUOTA_RESERVED)
    if workload is None or why.get("status") != "False" or not why.get("message"):
        return [f"job {job} waits without an explanation"]
    broken = [f"the explanation of job {job} does not name {fact!r}: {why['message']}" for fact in facts if fact not in why["message"]]
    name = workload["metadata"]["name"]
    if not any(e["involvedObject"].get("name") == name and e["reason"] == why["reason"] for e in snapshot.events):
        broken.append(f"no event tells why job {job} waits")
    return broken


def check_never_stuck(snapshot: Snapshot) -> list[str]:
    """No pod of a workload that is admitted and not evicted is left gated."""
    admitted = {
        f"{w['metadata']['namespace']}/{w['metadata']['name']}"
        for w in snapshot.workloads
        if is_true(w, "Admitted") and not is_true(w, EVICTED)
    }
    return [
        f"pod {pod['metadata']['name']} is left gated"
        for pod in snapshot.pods
        if has_gate(pod) and not is_terminal(pod) and _get_pod_set(pod)[0] in admitted
    ]

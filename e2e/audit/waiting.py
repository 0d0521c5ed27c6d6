"""A picture of what is not finished and why: unfinished jobs by where they stand, with an example and its own words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from core.model.pod_resources import compute_pod_requests
from core.names import EVICTED, QUOTA_RESERVED
from e2e.audit.truth import Snapshot, get_condition, has_gate, is_terminal, is_true

Obj = dict[str, Any]
Standing = tuple[str, str]  # in short, and the words of the example


def describe_waiting(snapshot: Snapshot, resource: str = "nvidia.com/gpu") -> str:
    """Some lines; the largest group first."""
    pods: dict[str, list[Obj]] = defaultdict(list)
    for pod in snapshot.pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            pods[owner["uid"]].append(pod)
    workloads = {owner["uid"]: w for w in snapshot.workloads for owner in w["metadata"].get("ownerReferences") or ()}
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    open_jobs = [job for job in snapshot.jobs if not is_true(job, "Complete")]
    for job in open_jobs:
        uid = job["metadata"]["uid"]
        short, words = _get_standing(job, workloads.get(uid), pods[uid])
        groups[short].append((job["metadata"]["name"], words))
    lines = [f"{len(open_jobs)} of {len(snapshot.jobs)} jobs are not complete; {_use(snapshot, resource)}"]
    for short, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        name, words = members[0]
        lines.append(f"  {len(members):4d} {short}; for one, {name}: {words}")
    return "\n".join(lines)


def _get_standing(job: Obj, workload: Obj | None, pods: Iterable[Obj]) -> Standing:
    live = [pod for pod in pods if not is_terminal(pod)]
    if is_true(job, "Failed"):
        return "failed", str(get_condition(job, "Failed").get("message"))
    if workload is None:
        return "have no workload", f"suspended: {job['spec'].get('suspend')}"
    reserved = get_condition(workload, QUOTA_RESERVED)
    if reserved.get("status") != "True":
        queue = workload["spec"].get("queueName")
        return f"wait in {queue} ({reserved.get('reason', 'not looked at yet')})", str(reserved.get("message", ""))
    if is_true(workload, EVICTED):
        evicted = get_condition(workload, EVICTED)
        return f"are being stopped, {evicted['reason']}", f"{len(live)} pods left; suspended: {job['spec'].get('suspend')}"
    if job["spec"].get("suspend"):
        return "are admitted and not started", str(reserved.get("message", ""))
    return _get_standing_of_started(job, live)


def _get_standing_of_started(job: Obj, live: list[Obj]) -> Standing:
    gated = [pod for pod in live if has_gate(pod)]
    unbound = [pod for pod in live if not has_gate(pod) and not pod["spec"].get("nodeName")]
    words = f"{len(live)} pods of {job['spec']['completions']}, {len(gated)} gated, {len(unbound)} on no node"
    succeeded = int((job.get("status") or {}).get("succeeded") or 0)
    if gated:
        return "run with pods left gated", words
    if unbound:
        return "have pods on no node", f"{words}: {get_condition(unbound[0], 'PodScheduled').get('message', '')}"
    if len(live) + succeeded < int(job["spec"]["completions"]):
        return "have too few pods", f"{words}, {succeeded} succeeded"
    return "run", words


def _use(snapshot: Snapshot, resource: str) -> str:
    used: Counter[str] = Counter()
    for pod in snapshot.pods:
        if pod["spec"].get("nodeName") in snapshot.nodes and not is_terminal(pod):
            used.update(compute_pod_requests(pod["spec"]))
    has = sum(int(node["status"]["allocatable"].get(resource, 0)) for node in snapshot.nodes.values())
    return f"{used[resource]} of {has} {resource} in use"

"""What a control plane looks like at the moment a test fails: which part ended, which node takes no pods, which pod waits for one.

A failed wait says what did not come; who reads it in CI has nothing else of the machine it ran on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from e2e.api import ApiError
from e2e.cluster import Cluster
from e2e.nodes import is_schedulable

Json = Mapping[str, Any]
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/workloads"
MOST = 8  # nodes and pods told of each kind
NEWEST, LOG_LINES = 2, 6


def describe_cluster(cluster: Cluster) -> str:
    """The state of the machine, the parts, the nodes and the pods, and the end of each log."""
    one, five, _ = os.getloadavg()
    lines = [f"load {one:.1f} now, {five:.1f} over five minutes, on {os.cpu_count()} processors"]
    lines += [f"waiting for {what}: {said}" for what in ("cpu", "io", "memory") if (said := _read_pressure(what))]
    ended = sorted(cluster.ended)
    lines.append(f"ended: {', '.join(ended)}" if ended else "every part runs")
    try:
        lines += _format_findings(
            "nodes that take no pods", map(_describe_unready_node, _find_unschedulable_nodes(cluster.api.list("/api/v1/nodes")))
        )
        lines += _format_findings("pods without a node", map(_describe_unbound_pod, _find_unbound_pods(cluster.api.list("/api/v1/pods"))))
        workloads = (cluster.api.find(WORKLOADS) or {"items": []})["items"]
        lines += _format_findings("workloads whose pods are not ready", filter(None, map(_describe_unready, workloads)))
    except (ApiError, OSError) as error:
        lines.append(f"the API server does not answer: {error}")
    for log in _list_logs(cluster.log_dir):
        lines += [f"the end of {log.name}:", *(f"  {line[:240]}" for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:])]
    return "\n".join(lines)


def _read_pressure(what: str) -> str:
    """The kernel's account of how much of the last minutes somebody waited for this; empty where it keeps none."""
    try:
        return Path("/proc/pressure", what).read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""


def _list_logs(folder: Path) -> list[Path]:
    """Of the control plane's parts each, of topogate's processes, which have one for each start, the newest."""
    logs = sorted(folder.glob("*.log"), key=lambda log: log.stat().st_mtime)
    ours = [log for log in logs if log.name.startswith("topogate-")]
    return [log for log in logs if log not in ours[:-NEWEST]]


def _find_unschedulable_nodes(nodes: list[dict[str, Any]]) -> Iterator[Json]:
    return (node for node in nodes if not is_schedulable(node) or node["spec"].get("taints") or node["spec"].get("unschedulable"))


def _describe_unready_node(node: Json) -> str:
    ready: Json = next((c for c in node["status"].get("conditions") or () if c["type"] == "Ready"), {})
    taints = [f"{taint['key']}:{taint['effect']}" for taint in node["spec"].get("taints") or ()]
    return f"{node['metadata']['name']}: Ready {ready.get('status')} ({ready.get('reason')}), taints {taints}"


def _find_unbound_pods(pods: list[dict[str, Any]]) -> Iterator[Json]:
    return (pod for pod in pods if not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates"))


def _describe_unbound_pod(pod: Json) -> str:
    scheduled: Json = next((c for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"), {})
    metadata = pod["metadata"]
    why = scheduled.get("message", "nothing said of why")
    return f"{metadata['namespace']}/{metadata['name']}, made {metadata['creationTimestamp']}: {why}"


def _describe_unready(workload: Json) -> str:
    """A workload that waits or whose pods are not ready, with the last reason in its conditions; empty for others."""
    conditions = {c["type"]: c for c in (workload.get("status") or {}).get("conditions") or ()}
    if any(conditions.get(kind, {}).get("status") == "True" for kind in ("Finished", "PodsReady")):
        return ""
    metadata = workload["metadata"]
    last: Json = max(conditions.values(), key=lambda c: str(c["lastTransitionTime"]), default={})
    why = f"{last.get('type', 'no condition')} {last.get('status', '')}: {last.get('message', '')}"
    return f"{metadata['namespace']}/{metadata['name']}, made {metadata['creationTimestamp']}: {why}"


def _format_findings(what: str, each: Iterable[str]) -> list[str]:
    told = list(each)
    more = [f"  and {len(told) - MOST} more"] if len(told) > MOST else []
    return [f"{len(told)} {what}", *(f"  {line}" for line in told[:MOST]), *more]

"""Pods on paper: made as the webhook leaves them, admitted as the scheduler would."""

from __future__ import annotations

from typing import Any

from core.jobs.contract import Defaults
from core.jobs.pod_kinds import pod_kinds
from core.names import ADMISSION_GATE, POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT, QUEUE_NAME_LABEL
from tests.reconciler.paper import Paper

KINDS = {kind.kind: kind for kind in pod_kinds()}
Json = dict[str, Any]


def pod(name: str, *, group: str | None = "g", total: int = 2, cpu: str = "1", notes: Json | None = None, **metadata: Any) -> Json:
    labels = {QUEUE_NAME_LABEL: "main"} | ({POD_GROUP_NAME: group} if group else {})
    annotations = ({POD_GROUP_TOTAL_COUNT: str(total)} if group else {}) | (notes or {})
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    written = {"kind": "Pod", "metadata": {"name": name, "labels": labels, "annotations": annotations, **metadata}, "spec": spec}
    return KINDS["Pod"].default(written, Defaults())


def admit(paper: Paper, name: str) -> None:
    """As the scheduler would, in a flavor without a topology."""
    workload = paper.get("Workload", name)
    paper.put({"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}})
    given = [
        {"name": p["name"], "count": p["count"], "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(p["count"])}}
        for p in workload["spec"]["podSets"]
    ]
    conditions = [{"type": kind, "status": "True", "reason": kind, "message": ""} for kind in ("QuotaReserved", "Admitted")]
    paper.put({**workload, "status": {"admission": {"clusterQueue": "q", "podSetAssignments": given}, "conditions": conditions}})


def started(paper: Paper) -> set[str]:
    return {
        p["metadata"]["name"] for p in paper.all("Pod") if ADMISSION_GATE not in [g["name"] for g in p["spec"].get("schedulingGates") or ()]
    }


def names(paper: Paper) -> set[str]:
    return {p["metadata"]["name"] for p in paper.all("Pod") if not p["metadata"].get("deletionTimestamp")}


def end(paper: Paper, name: str, phase: str) -> None:
    paper.put({**paper.get("Pod", name), "status": {"phase": phase}})

"""What waits is told in few lines: by where it stands, the largest group first, with an example's own words."""

from __future__ import annotations

from typing import Any

from core.names import TOPOLOGY_GATE
from e2e.audit.truth import Snapshot
from e2e.audit.waiting import describe_waiting

Obj = dict[str, Any]


def build_job(name: str, *, suspend: bool = True, **conditions: str) -> Obj:
    told = [{"type": kind, "status": status} for kind, status in conditions.items()]
    return {"metadata": {"name": name, "uid": name}, "spec": {"suspend": suspend, "completions": 2}, "status": {"conditions": told}}


def build_workload(of: str, *conditions: tuple[str, str, str]) -> Obj:
    told = [{"type": kind, "status": status, "reason": reason, "message": f"{of} {reason}"} for kind, status, reason in conditions]
    return {"metadata": {"ownerReferences": [{"uid": of}]}, "spec": {"queueName": "main"}, "status": {"conditions": told}}


def build_pod(of: str, *, gated: bool = False, node: str = "") -> Obj:
    gates = [{"name": TOPOLOGY_GATE}] if gated else []
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "3"}}}
    spec = {"schedulingGates": gates, "containers": [container], "nodeName": node}
    return {"metadata": {"ownerReferences": [{"uid": of}]}, "spec": spec, "status": {"phase": "Pending"}}


def test_the_picture() -> None:
    reserved = ("QuotaReserved", "True", "QuotaReserved")
    stopped, started = ("a", "b", "new"), ("half", "lost")
    jobs = [
        build_job("done", Complete="True"),
        *map(build_job, stopped),
        *(build_job(name, suspend=False) for name in started),
        build_job("gone"),
    ]
    workloads = [
        *(build_workload(name, ("QuotaReserved", "False", "WaitingForQuota")) for name in ("a", "b")),
        *(build_workload(name, reserved) for name in ("half", "lost")),
        build_workload("gone", reserved, ("Evicted", "True", "Preempted")),
    ]
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    now = Snapshot(
        [build_pod("half", gated=True), build_pod("half", node="n"), build_pod("lost")], lambda: [node], lambda: jobs, lambda: workloads
    )
    assert describe_waiting(now).splitlines() == [
        "6 of 7 jobs are not complete; 3 of 8 nvidia.com/gpu in use",
        "     2 wait in main (WaitingForQuota); for one, a: a WaitingForQuota",
        "     1 have no workload; for one, new: suspended: True",
        "     1 run with pods left gated; for one, half: 2 pods of 2, 1 gated, 0 on no node",
        "     1 have pods on no node; for one, lost: 1 pods of 2, 0 gated, 1 on no node: ",
        "     1 are being stopped, Preempted; for one, gone: 0 pods left; suspended: True",
    ]

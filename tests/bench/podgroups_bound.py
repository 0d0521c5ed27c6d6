"""Groups of pods, created to all bound, on a real control plane: by topogate, and by kube-scheduler alone in the same run.

    python -m tests.bench.podgroups_bound [--racks 50] [--share 1.0] [--whole] [--json]

5,000 nodes of 4 CPUs and 32 GiB in 50 racks, pods of 100m and 100Mi; groups of 4 and of 1,000, each in one rack. The clock runs from the
first pod's creation until the last one is bound. kube-scheduler gets the first load of each size only, since it takes minutes
(`--whole`: all). kube-scheduler binds either way: what topogate places comes to it one pod and one node at a time.

What has no part in it does not run: with kwok, whose nodes renew some 180 leases a second, topogate bound half as many pods (29 to 33 a
second where it were 60 to 70). So no pod starts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from core.names import JOB_COMPLETION_INDEX_LABEL
from e2e import manifests
from e2e.api import Api, wait_for
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.nodes import RACK_LABEL, NodePool
from e2e.scenarios.play import GATES, SERVED, ByScheduler, ByTopogate, Way
from e2e.topogate import Topogate
from tests.bench.parts.meter import Meter

LOADS = ((4, 750), (4, 1500), (4, 2250), (1000, 3), (1000, 6), (1000, 9))
FIRST = (LOADS[0], LOADS[3])
PARTS = ("kube-apiserver", "kube-scheduler")
_AT_ONCE = 16
_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class Row:
    """One load, by one of the two; memory is the most since the process began."""

    way: str
    pods_of_a_group: int
    groups: int
    created_s: float
    bound_s: float
    pods_per_second: float
    cpu_s: dict[str, float]
    peak_mb: dict[str, int]


def measure(racks: int, share: float, *, whole: bool) -> list[Row]:
    """Plays all loads by topogate, then those of kube-scheduler, on one control plane."""
    pool = NodePool(1, racks, 100, allocatable={"cpu": "4", "memory": "32Gi", "pods": "110"})
    rows = []
    with Cluster(feature_gates=GATES, apiserver_flags=SERVED) as cluster:
        cluster.add_nodes(pool, timeout_s=900)
        with Topogate(cluster, leader_election=False) as topogate:
            loads = LOADS if whole else FIRST
            played = (("topogate", LOADS), ("kube-scheduler", loads))
            for namespace in {_namespace(name, of, _some(count, share)) for name, of_way in played for of, count in of_way}:
                cluster.create_namespace(namespace)
            for part in ("kwok", "kube-controller-manager"):
                cluster.stop_part(part)
            topogate.kill_reconciler()
            topogate.start_reconciler(options=["--feature-gates=TopologyAwareWorkloadScheduling=true"])
            assert topogate.reconciler is not None
            pids = {name: pid for name, pid in cluster.pids.items() if name in PARTS} | {"reconciler": topogate.reconciler.pid}
            rows += [_told(_play(cluster, "topogate", ByTopogate(), pids, of, _some(count, share))) for of, count in LOADS]
        pids.pop("reconciler")
        rows += [_told(_play(cluster, "kube-scheduler", ByScheduler(), pids, of, _some(count, share))) for of, count in loads]
    return rows


def _some(count: int, share: float) -> int:
    return max(1, round(count * share))


def _namespace(name: str, of: int, groups: int) -> str:
    return f"{name}-{of}-{groups}"


def _play(cluster: Cluster, name: str, way: Way, pids: dict[str, int], of: int, groups: int) -> Row:
    namespace = _namespace(name, of, groups)
    api, path = cluster.api, f"/api/v1/namespaces/{namespace}/pods"
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(lambda group: api.create(manifests.get_path(group), group), _groups(way, namespace, of, groups)))
        meter, began = Meter.of(pids), time.monotonic()
        list(threads.map(lambda pod: api.create(path, pod), _pods(way, namespace, of, groups)))
        created = time.monotonic() - began
        wait_for("all pods to be bound", lambda: not _unbound(api, path), _TIMEOUT_S, 0.5)
        bound = time.monotonic() - began
    _check(api, path, of * groups)
    used = meter.read()
    api.request("DELETE", f"{path}?gracePeriodSeconds=0")
    wait_for("the pods to be gone", lambda: not api.list(path), 600, 1.0)
    cpu, peak = ({part: getattr(each, what) for part, each in used.items()} for what in ("cpu_s", "peak_mb"))
    return Row(name, of, groups, round(created, 1), round(bound, 1), round(of * groups / bound, 1), cpu, peak)


def _groups(way: Way, namespace: str, of: int, groups: int) -> list[dict[str, Any]]:
    return [way.group(f"g{number}", namespace, RACK_LABEL, of) for number in range(groups)]


def _pods(way: Way, namespace: str, of: int, groups: int) -> list[dict[str, Any]]:
    return [way.join(_pod(namespace, f"g{group}-{index}", index), f"g{group}") for group in range(groups) for index in range(of)]


def _pod(namespace: str, name: str, index: int) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "100Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {JOB_COMPLETION_INDEX_LABEL: f"{index}"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example.com/c:1", "resources": {"requests": requests}}]},
    }


def _unbound(api: Api, path: str) -> int:
    return len(api.list(f"{path}?fieldSelector=spec.nodeName%3D&resourceVersion=0"))


def _check(api: Api, path: str, count: int) -> None:
    """What is fast and wrong is not measured: every group is whole, and in one rack."""
    racks: dict[str, set[str]] = {}
    pods = api.list(path)
    for pod in pods:
        racks.setdefault(pod["metadata"]["name"].partition("-")[0], set()).add(pod["spec"]["nodeName"].rpartition("-")[0])
    assert len(pods) == count, f"{len(pods)} of {count} pods are there"
    split = {group: sorted(found) for group, found in racks.items() if len(found) > 1}
    assert not split, f"groups in several racks: {split}"


def _told(row: Row) -> Row:
    used = ", ".join(f"{part} {row.cpu_s[part]:.0f} CPU s and {row.peak_mb[part]} MB" for part in row.cpu_s)
    speed = f"{row.pods_per_second:.0f} pods/s, all bound after {row.bound_s:.1f} s (created in {row.created_s:.1f} s)"
    print(f"{row.way}: {row.groups} groups of {row.pods_of_a_group}: {speed}; {used}", file=sys.stderr, flush=True)
    return row


def ratios(rows: list[Row]) -> dict[str, float]:
    """How many times as many pods a second topogate has bound, by load, where both were measured."""
    theirs = {(row.pods_of_a_group, row.groups): row.pods_per_second for row in rows if row.way == "kube-scheduler"}
    ours = {(row.pods_of_a_group, row.groups): row.pods_per_second for row in rows if row.way == "topogate"}
    return {f"{groups} groups of {of}": round(ours[of, groups] / speed, 1) for (of, groups), speed in theirs.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.podgroups_bound", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--racks", type=int, default=50, help="of 100 nodes each")
    parser.add_argument("--share", type=float, default=1.0, help="of the groups")
    parser.add_argument("--whole", action="store_true", help="kube-scheduler gets all loads, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    ensure_binaries()
    rows = measure(options.racks, options.share, whole=options.whole)
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        print("topogate binds so many times as many pods a second: " + ", ".join(f"{load} {times}" for load, times in ratios(rows).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`e2e/perf-rig` as the peer's performance rig uses it (reference/performance-rig.md F.1, F.2): arguments, evictions, counters, SIGINT.

The rig itself is Go and not here. What it does to the API server is done by hand: no webhook, no controllers, CRDs from their files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.names import MANAGER_ADMISSION, MANAGER_JOB_CONTROLLER
from core.plan.steps.conditions import Condition, set_conditions
from core.plan.steps.managed_status import read_managed_status
from e2e import manifests
from e2e.api import APPLY_PATCH, wait_for
from e2e.audit.follow import Follower
from e2e.audit.history import WORKLOADS
from e2e.audit.truth import get_condition, is_true
from e2e.cluster import Cluster
from e2e.crds import install_crds
from e2e.perf_load import CLASSES, NAMESPACE, Load, build_workload
from e2e.process import find_free_ports

pytestmark = pytest.mark.cluster
Obj = dict[str, Any]
RIG = Path(__file__).parents[2] / "e2e" / "perf-rig"
PATH = WORKLOADS.format(NAMESPACE)
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
LOAD = Load(cohorts=1, queues=1, racks=1, nodes=4, unique_hostnames=True)
QUEUE = LOAD.queue_names()[0][1]
SMALL, _, LARGE = CLASSES  # of a queue of 20 CPUs the large one takes all: 8 pods of 2.5


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """An API server with etcd and CRDs, as envtest starts it, and the nodes and queues that the rig makes."""
    with Cluster() as running:
        running.add_nodes(LOAD.node_objects())
        for part in ("kwok", "kube-scheduler", "kube-controller-manager"):
            running.stop_part(part)
        install_crds(running.api)
        running.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for obj in LOAD.configuration():
            running.api.create(manifests.get_path(obj), obj)
        yield running


@pytest.fixture
def metrics_port() -> int:
    return find_free_ports(1)[0]


@pytest.fixture
def rig(server: Cluster, metrics_port: int, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["--kubeconfig", str(server.kubeconfig), "--zap-log-level=2", "--metricsPort", str(metrics_port), "--enableTAS"]
    arguments += ["--cpuprofile", str(tmp_path / "cpu.prof"), "--memprofile", str(tmp_path / "mem.prof")]
    with (tmp_path / "rig.log").open("wb") as log:
        environ = {**os.environ, "TOPOGATE_PYTHON": sys.executable}
        process = subprocess.Popen([RIG, *arguments], stdout=log, stderr=log, env=environ)
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


def apply(server: Cluster, seen: Obj, status: Obj, manager: str, *, strict: bool) -> None:
    path = f"{PATH}/{seen['metadata']['name']}/status?fieldManager={manager}&force=true"
    guard = {name: seen["metadata"][name] for name in ("name", "namespace", "uid", *(("resourceVersion",) if strict else ()))}
    body = {"apiVersion": seen["apiVersion"], "kind": "Workload", "metadata": guard, "status": status}
    server.api.patch(path, body, APPLY_PATCH)


def told(conditions: list[Obj], *new: Condition) -> list[Obj]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return set_conditions(conditions, list(new), now=now, generation=1)


def release(server: Cluster, seen: Obj) -> None:
    """F.2.4: as the manager that wrote the admission, on the object as it was seen."""
    status = read_managed_status(seen)
    status.pop("admission", None)
    released = Condition("QuotaReserved", False, "Pending", "Evicted by the test runner"), Condition("Admitted", False, "NoReservation", "")
    status["conditions"] = told(status["conditions"], *released)
    apply(server, seen, status, MANAGER_ADMISSION, strict=True)


def finish(server: Cluster, name: str) -> None:
    """F.2.3."""
    seen = server.api.get(f"{PATH}/{name}")
    apply(server, seen, {"conditions": told([], Condition("Finished", True, "ByTest", ""))}, MANAGER_JOB_CONTROLLER, strict=False)


def wait_until(server: Cluster, name: str, *kinds: str) -> Obj:
    """The workload once all of these conditions are true."""

    def look() -> Obj | None:
        found = server.api.get(f"{PATH}/{name}")
        return found if all(is_true(found, kind) for kind in kinds) else None

    return wait_for(f"{name} to be {' and '.join(kinds)}", look)


def get_counters(server: Cluster) -> tuple[int, int, int, str] | None:
    """Of the ClusterQueue: pending, reserving, admitted, and CPUs used; None as long as the LocalQueue, which is written by itself, says
    something else."""
    queue = server.api.get(f"{QUEUES}/{QUEUE}")["status"]
    local = server.api.get(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/localqueues/{QUEUE}")["status"]
    names = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
    pending, reserving, admitted = (queue.get(name, 0) for name in names)
    if [local.get(name, 0) for name in names] != [pending, reserving, admitted]:
        return None
    return pending, reserving, admitted, str(queue["flavorsUsage"][0]["resources"][0]["total"])


def test_a_run_of_the_rig(server: Cluster, rig: subprocess.Popen[bytes], metrics_port: int) -> None:
    states: list[Obj] = []
    follower = Follower(server.server, server.ca_file, server.token, PATH, lambda _, obj: states.append(obj)).start()
    wait_for("the queue to be active", lambda: is_true(server.api.get(f"{QUEUES}/{QUEUE}"), "Active"))
    small, large = build_workload(SMALL, QUEUE, "required", 1), build_workload(LARGE, QUEUE, "preferred", 2)
    low, high = small["metadata"]["name"], large["metadata"]["name"]
    server.api.create(PATH, small)
    admitted = wait_until(server, low, "Admitted")
    assert get_condition(admitted, "Admitted")["lastTransitionTime"] >= admitted["metadata"]["creationTimestamp"]
    server.api.create(PATH, large)
    evicted = wait_until(server, low, "Evicted")

    def find_first() -> Obj | None:
        return next((state for state in states if state["metadata"]["name"] == low and is_true(state, "Evicted")), None)

    first = wait_for("the watch to report the eviction", find_first)
    assert is_true(first, "Admitted"), "the rig is told only of objects that are admitted"
    assert first["metadata"]["resourceVersion"] == evicted["metadata"]["resourceVersion"], "a strict release must not meet another write"
    release(server, evicted)
    wait_until(server, high, "Admitted")
    wait_for("one to run and one to wait", lambda: get_counters(server) == (1, 1, 1, "20"))
    finish(server, high)
    wait_until(server, low, "Admitted")
    finish(server, low)
    wait_for("the counters to be zero", lambda: get_counters(server) == (0, 0, 0, "0"))
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=120) as reply:
        assert b"process_cpu_seconds_total" in reply.read()
    rig.send_signal(signal.SIGINT)
    assert rig.wait(timeout=120) == 0
    follower.stop()

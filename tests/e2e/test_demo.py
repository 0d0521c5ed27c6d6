"""`make demo` tells the truth: each thing it promises, broken on purpose, makes it end non-zero.

The breakages are made in the cluster itself, with the reconciler killed first so that it cannot mend them.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from core.names import JOB_COMPLETION_INDEX_LABEL, PODSET_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from e2e import demo
from e2e.audit import truth
from e2e.audit.cluster_picture import GPU
from e2e.audit.otlp import Receiver
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.installed import Installed
from tests.long import mark_long

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def topogate(installed: Installed, receiver: Receiver) -> Topogate:
    return installed.run(otlp_endpoint=receiver.endpoint)


@pytest.fixture
def run(cluster: Cluster, topogate: Topogate, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The demo's scenes with something meddling, on the session's cluster; cleaned up after."""
    monkeypatch.setattr(demo, "OUT", tmp_path)
    scenes: list[demo.Demo] = []

    def run_with(meddle: demo.Meddle | None) -> tuple[int, str]:
        out = io.StringIO()
        console = Console(width=200, file=out)
        scenes.append(demo.Demo(cluster, topogate, receiver, console, meddle, prefix=f"demo{next(_numbers)}-"))
        return demo.run_scenes(scenes[-1]), out.getvalue()

    yield run_with
    if topogate.reconciler is None:
        topogate.start_reconciler()
    for scene in scenes:
        path = f"/namespaces/{scene.namespace}"
        cluster.api.request("DELETE", f"/apis/batch/v1{path}/jobs?propagationPolicy=Background")
        cluster.api.request("DELETE", f"/api/v1{path}/pods?gracePeriodSeconds=0")
        cluster.api.delete(f"/api/v1{path}")
        cluster.delete_nodes([name for name in truth.read(cluster.api, []).nodes if name.startswith(scene.prefix)])


def test_unbroken_it_keeps_all_promises_and_leaves_a_picture(run: Any, tmp_path: Path) -> None:
    code, said = run(None)
    assert code == 0, said
    assert "checks passed" in said
    assert (tmp_path / "demo.svg").read_text().startswith("<svg")


def _create_extra_pod(scene: demo.Demo, job: str, spec: dict[str, Any], *, foreign: bool = False) -> None:
    """A pod that names a job's workload (unless `foreign`), made past every controller."""
    workload = scene.read().workload_of(job)
    assert workload is not None
    metadata: dict[str, Any] = {"name": f"meddler-{job}", "namespace": scene.namespace}
    if not foreign:
        metadata |= {"annotations": {WORKLOAD_ANNOTATION: workload["metadata"]["name"]}, "labels": {PODSET_LABEL: "main"}}
    container = {"name": "c", "image": "registry.example/x:1"} | spec.pop("container", {})
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}
    scene.cluster.api.create(f"/api/v1/namespaces/{scene.namespace}/pods", body)


def _wrong_rack(scene: demo.Demo) -> None:
    now = scene.read()
    here = now.label_of(now.pods_of("one-rack")[0], scene.pool.rack_label)
    elsewhere = next(
        name
        for name, node in now.nodes.items()
        if name.startswith(scene.prefix) and node["metadata"]["labels"][scene.pool.rack_label] != here
    )
    _create_extra_pod(scene, "one-rack", {"nodeName": elsewhere})


def _gate_left_on(scene: demo.Demo) -> None:
    _create_extra_pod(scene, "anywhere", {"schedulingGates": [{"name": TOPOLOGY_GATE}]})


def _rank_out_of_order(scene: demo.Demo) -> None:
    pods = sorted(scene.read().pods_of("ranked"), key=lambda pod: int(pod["metadata"]["labels"][JOB_COMPLETION_INDEX_LABEL]))
    for pod, rank in ((pods[0], len(pods) - 1), (pods[-1], 0)):
        path = f"/api/v1/namespaces/{scene.namespace}/pods/{pod['metadata']['name']}"
        scene.cluster.api.patch(path, {"metadata": {"labels": {JOB_COMPLETION_INDEX_LABEL: str(rank)}}})


def _node_over_capacity(scene: demo.Demo) -> None:
    full = scene.read().pods_of("one-rack")[0]["spec"]["nodeName"]
    greedy = {"resources": {"requests": {GPU: "4"}, "limits": {GPU: "4"}}}
    _create_extra_pod(scene, "one-rack", {"nodeName": full, "container": greedy}, foreign=True)


def _missing_explanation(scene: demo.Demo) -> None:
    workload = scene.read().workload_of("waits")
    assert workload is not None
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{scene.namespace}/workloads/{workload['metadata']['name']}/status"
    scene.cluster.api.patch(path, {"status": {"conditions": []}})


def _another_sentence(scene: demo.Demo) -> None:
    workload = scene.read().workload_of("waits")
    assert workload is not None
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{scene.namespace}/workloads/{workload['metadata']['name']}/status"
    condition = {**truth.get_condition(workload, "QuotaReserved"), "message": "because"}
    scene.cluster.api.patch(path, {"status": {"conditions": [condition]}})


BREAKAGES: dict[str, tuple[str, Callable[[demo.Demo], None], str]] = {
    "a pod in the wrong rack": ("placed", _wrong_rack, "job one-rack is in 2 domains"),
    "a gate left on": ("placed", _gate_left_on, "still has the gate"),
    "a rank out of order": ("placed", _rank_out_of_order, "out of order"),
    "a node over capacity": ("placed", _node_over_capacity, "over capacity"),
    "a missing explanation": ("waiting", _missing_explanation, "waits without an explanation"),
    "a trace that says otherwise": ("waiting", _another_sentence, "does not say: because"),
}


@pytest.mark.not_recounted("a pod runs where it may not, on purpose")
@pytest.mark.parametrize("breakage", mark_long(BREAKAGES, but={0}))
def test_a_broken_promise_makes_it_end_non_zero(run: Any, topogate: Topogate, breakage: str) -> None:
    when, break_it, told = BREAKAGES[breakage]

    def meddle(step: str, scene: demo.Demo) -> None:
        if step == when:
            topogate.kill_reconciler()
            break_it(scene)

    code, said = run(meddle)
    assert code != 0
    assert told in said

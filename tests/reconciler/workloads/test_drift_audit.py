"""The audit of drift on an API server in memory."""

from __future__ import annotations

from core.names import HOSTNAME_LABEL, PLACEMENT_KEPT, WORKLOAD_ANNOTATION
from core.state.facts import find_condition
from reconciler.workloads.drift import DriftAudit
from sim.apiserver.server import Request
from tests.builders import Node, build_node_json
from tests.reconciler.pods.test_ungater import Ungated, build_pod, build_workload


def test_workload_with_a_report_that_raises_is_set_aside_and_holds_up_no_other():
    """Former defect: an error of ours in one report ended the process."""
    harness = Ungated()
    for name in ("n0", "n1", "elsewhere"):
        harness.put({"kind": "Node", **build_node_json(Node(name, {HOSTNAME_LABEL: name}, {"cpu": 1}))})
    for index, name in enumerate(("v", "w")):
        workload, pod = build_workload(), build_pod(index)
        harness.put({**workload, "metadata": {**workload["metadata"], "name": name}})
        metadata = {**pod["metadata"], "annotations": {WORKLOAD_ANNOTATION: name}}
        harness.put({**pod, "metadata": metadata, "spec": {"nodeName": "elsewhere"}})

    def break_off(request: Request) -> None:
        if request.name == "v":
            raise RuntimeError("odd")

    harness.on_write = break_off
    audit = DriftAudit(harness.observed, harness.executor, harness.clock)
    harness.wait_for(audit.audit())
    assert sum(audit.counts.values()) == 2
    assert [aside.obj["metadata"]["name"] for aside in harness.observed.set_aside.objects] == ["v"]
    assert (find_condition(harness.get("Workload", "w"), PLACEMENT_KEPT) or {}).get("status") == "False"

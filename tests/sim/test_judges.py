"""What a process must not send, and errors that the product reports, are found; defects that are put back leave the product as it was."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from sim.apiserver.kinds import Kind
from sim.apiserver.server import Request
from sim.defects import put_back
from sim.past_defects import DEFECTS, LISTED
from sim.reports import Reports
from sim.sent import find_wrong_delete, find_wrong_ungating

Json = dict[str, Any]
PODS = Kind("", "v1", "pods", "Pod")
WORKLOAD = {"metadata": {}, "spec": {}, "status": {"conditions": [{"type": "Admitted", "status": "True"}]}}


class Nodes(dict[str, Json]):
    def list_by_index(self, _: str, host: str) -> list[Json]:
        return [node for node in self.values() if node["host"] == host]


def observe(*, ready: str, workload: Json | None = None) -> Any:
    nodes = Nodes(n1={"host": "h1", "metadata": {}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    return SimpleNamespace(
        nodes=SimpleNamespace(store=nodes), workloads=SimpleNamespace(store={"team/w": WORKLOAD if workload is None else workload})
    )


def build_pod(**more: Any) -> Json:
    owner = {"kind": "Job", "controller": True}
    metadata = {"name": "p", "namespace": "team", "annotations": {WORKLOAD_ANNOTATION: "w"}, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"nodeSelector": {HOSTNAME_LABEL: "h1"}, **more}}


def send(verb: str, body: Any = None) -> Request:
    return Request(verb, PODS, "team", "p", "", {}, body)


def test_delete_of_a_pod_that_waits_for_a_lost_host_is_found():
    assert find_wrong_delete(observe(ready="False"), send("delete"), build_pod()) == "deletes pod p, which waits for host h1, which is lost"
    assert not find_wrong_delete(observe(ready="True"), send("delete"), build_pod())


@pytest.mark.parametrize("more", [{"nodeName": "n1"}, {"schedulingGates": [{"name": TOPOLOGY_GATE}]}])
def test_delete_of_a_pod_that_is_bound_or_gated_is_right(more: Json):
    assert not find_wrong_delete(observe(ready="False"), send("delete"), build_pod(**more))


def test_delete_of_a_pod_of_an_evicted_workload_is_right():
    evicted = {**WORKLOAD, "status": {"conditions": [*WORKLOAD["status"]["conditions"], {"type": "Evicted", "status": "True"}]}}
    assert not find_wrong_delete(observe(ready="False", workload=evicted), send("delete"), build_pod())


def test_ungating_onto_a_host_that_is_not_ready_is_found():
    gates = [{"$patch": "delete", "name": TOPOLOGY_GATE}]
    request = send("patch", {"spec": {"schedulingGates": gates, "nodeSelector": {HOSTNAME_LABEL: "h1"}}})
    assert find_wrong_ungating(observe(ready="False"), request) == ("h1", "ungates pod p onto host h1, which is not ready")
    assert find_wrong_ungating(observe(ready="True"), request) == ("", "")


def test_error_with_a_traceback_is_reported_and_a_message_is_not():
    reports, logger = Reports(), logging.getLogger("reconciler.test")
    reports.begin()
    try:
        logger.warning("only a message")
        logger.error("it failed", exc_info=OverflowError("too large"))
    finally:
        reports.end()
    logger.error("after the end", exc_info=OverflowError("again"))
    assert reports.problems == ["reconciler.test reports an unexpected error (it failed): OverflowError: too large"]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_defect_replaces_methods_that_exist_for_its_time_only(defect: Any):
    before = [part.owner.__dict__[part.attribute] for part in defect.parts]
    with put_back(defect) as calls:
        assert set(calls) == {part.attribute for part in defect.parts}
        assert all(part.owner.__dict__[part.attribute] is not old for part, old in zip(defect.parts, before, strict=True))
    assert [part.owner.__dict__[part.attribute] for part in defect.parts] == before


def test_twenty_listed_defects_are_put_back_with_the_first_nine_of_group_d():
    names = {defect.name for defect in LISTED}
    assert len(names) == len(LISTED) >= 20
    assert {f"D{number}" for number in range(1, 10)} <= names

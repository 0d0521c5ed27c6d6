"""Which unit a workload or a pod is of, whatever its labels and annotations say."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import (
    COMPONENT_WORKLOAD_INDEX,
    IS_GROUP_WORKLOAD,
    JOB_UID_LABEL,
    MANAGED,
    POD_INDEX_OFFSET,
    QUEUE_NAME_LABEL,
    SUSPENDING_PARENT,
)
from core.plan.pods.pod_units import GROUP, UNKNOWN, Unit, find_pod_unit, find_workload_unit
from core.state.facts import PodSetFacts

OWNER = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "lws", "uid": "u", "controller": True}


def build_workload(owner: dict[str, Any] | None, notes: dict[str, str], **labels: str) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns", "annotations": notes, "labels": labels}
    return {"metadata": metadata | {"ownerReferences": [owner] if owner is not None else []}}


@pytest.mark.parametrize(("text", "index"), [("3", 3), ("", None), ("-1", None), ("٣", None), ("9" * 5000, None)])
def test_an_index_that_is_none_is_not_read(text: str, index: int | None):
    """Python raises where it is to read more than 4300 digits, and handlers of informers must not."""
    assert find_workload_unit(build_workload(OWNER, {COMPONENT_WORKLOAD_INDEX: text})) == Unit("LeaderWorkerSet", "ns", "lws", index)
    template = {"metadata": {"annotations": {POD_INDEX_OFFSET: text}}}
    assert PodSetFacts.read({"name": "main", "template": template}).index_offset == index


def test_the_workload_of_an_orphaned_parent_is_no_group_of_its_name():
    assert find_workload_unit(build_workload(None, {IS_GROUP_WORKLOAD: "true"})) == Unit(GROUP, "ns", "w")
    assert find_workload_unit(build_workload(None, {IS_GROUP_WORKLOAD: "true"}, **{JOB_UID_LABEL: "u"})) is None


def test_a_pod_of_a_stateful_set_that_let_go_of_it_is_not_queued_alone():
    notes = {SUSPENDING_PARENT: "statefulset"}
    pod = {"metadata": {"name": "db-0", "namespace": "ns", "labels": {MANAGED: "true", QUEUE_NAME_LABEL: "main"}, "annotations": notes}}
    assert find_pod_unit(pod) == Unit(UNKNOWN, "ns", "db-0")

"""The wire models: they read what the API server writes, ignore what they do not know, and write only what was set."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from core.api.kinds.assignment_fields import TopologyAssignmentFields
from core.api.kinds.meta import ConditionFields, ObjectMeta, find_condition
from core.api.kinds.quota_fields import ResourceQuota
from core.api.kinds.topology_kind import Topology, TopologyLevel
from core.api.kinds.workload_kind import PodSetTopologyRequest, Workload

WORKLOAD: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z", "managedFields": []},
    "spec": {
        "podSets": [
            {"name": "main", "count": 2, "template": {"spec": {"containers": []}, "future": 1}, "topologyRequest": {"required": "r"}}
        ],
        "queueName": "q",
        "unknown": {"deep": True},
    },
    "status": {
        "conditions": [{"type": "Admitted", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]
    },
}


def test_an_object_with_fields_of_a_newer_version_is_read():
    workload = Workload.from_wire(WORKLOAD)
    assert workload.metadata.creation_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert workload.spec.pod_sets[0].topology_request == PodSetTopologyRequest(required="r")
    assert workload.spec.active
    assert workload.status.admission is None


def test_wire_model_writes_only_fields_that_were_set():
    written = Workload.from_wire(WORKLOAD).to_wire()
    assert "active" not in written["spec"]
    assert "unknown" not in written["spec"]
    assert written["status"] == WORKLOAD["status"]
    assert written["spec"]["podSets"] == WORKLOAD["spec"]["podSets"]


def test_models_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        TopologyLevel(node_label="a").node_label = "b"  # type: ignore[misc]


def test_either_spelling_is_taken_in_python():
    assert TopologyLevel(node_label="a") == TopologyLevel.from_wire({"nodeLabel": "a"})


def test_the_one_lower_case_name_of_the_contract_is_kept():
    request = PodSetTopologyRequest.from_wire({"podsetSliceRequiredTopologyConstraints": [{"topology": "b", "size": 4}]})
    assert request.podset_slice_required_topology_constraints[0].size == 4
    assert request.to_wire() == {"podsetSliceRequiredTopologyConstraints": [{"topology": "b", "size": 4}]}


@pytest.mark.parametrize(("given_", "read"), [(3, "3"), ("1500m", "1500m"), ("8Gi", "8Gi")])
def test_a_quantity_is_read_as_text_however_it_was_written(given_, read):
    assert ResourceQuota.from_wire({"name": "cpu", "nominalQuota": given_}).nominal_quota == read


@pytest.mark.parametrize("wrong", [True, 1.5, None, []])
def test_a_quantity_is_nothing_else(wrong):
    with pytest.raises(ValidationError):
        ResourceQuota.from_wire({"name": "cpu", "nominalQuota": wrong})


def test_invalid_topology_error_names_the_field():
    with pytest.raises(ValidationError, match=r"spec\.levels\.0\.nodeLabel"):
        Topology.from_wire({"spec": {"levels": [{"nodeLabel": "no label"}]}})


def test_a_time_is_written_in_whole_seconds_of_utc():
    at = datetime.fromisoformat("2026-05-06T07:08:09.123456+02:00")
    condition = ConditionFields(type="Ready", status="True", last_transition_time=at, reason="R", message="")
    assert condition.to_wire()["lastTransitionTime"] == "2026-05-06T05:08:09Z"


def test_a_condition_is_found_by_type():
    conditions = Workload.from_wire(WORKLOAD).status.conditions
    assert find_condition(conditions, "Admitted") == conditions[0]
    assert find_condition(conditions, "Evicted") is None


def test_the_controller_is_the_owner_marked_so():
    owners = [
        {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"},
        {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "2", "controller": True},
    ]
    controller = ObjectMeta.from_wire({"ownerReferences": owners}).controller
    assert controller is not None
    assert controller.name == "b"
    assert ObjectMeta().controller is None


counts = st.integers(min_value=1, max_value=2**31 - 1)
values = st.text("abc019-.", max_size=63)


@st.composite
def slices(draw: st.DrawFn):
    size = draw(st.integers(min_value=1, max_value=4))
    many = st.fixed_dictionaries(
        {"roots": st.lists(values, min_size=size, max_size=size)}, optional={"prefix": values, "suffix": values}
    ).map(lambda individual: {"individual": individual})
    column = st.one_of(values.map(lambda value: {"universal": value}), many)
    pods = st.one_of(
        counts.map(lambda n: {"universal": n}), st.lists(counts, min_size=size, max_size=size).map(lambda n: {"individual": n})
    )
    return {"domainCount": size, "valuesPerLevel": [draw(column)], "podCounts": draw(pods)}


@given(st.lists(slices(), max_size=3))
def test_an_assignment_survives_reading_and_writing(some):
    wire = {"levels": ["kubernetes.io/hostname"], "slices": some}
    assert TopologyAssignmentFields.from_wire(wire).to_wire() == wire

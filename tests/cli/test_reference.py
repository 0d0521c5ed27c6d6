"""docs/reference.md is what the code says, and no name is missing in it."""

from __future__ import annotations

from cli import reference
from core import names
from core.jobs.annotation_catalog import ANNOTATIONS, LABELS
from core.model.gates import GATES
from core.runtime import generated

KNOWN = {entry.name for entry in (*reference.WRITTEN_BY_USERS, *reference.WRITTEN_BY_TOPOGATE, *reference.READ_FROM_OTHERS)}
# Of other objects than jobs, pods and Workloads: controllers, gates, finalizers, conditions.
ELSEWHERE = {
    names.TOPOLOGY_GATE,
    names.ADMISSION_GATE,
    names.RESOURCE_IN_USE_FINALIZER,
    names.RANK_ORDER_KEPT,
    names.NODES_PLACED,
    names.NODES_REACHABLE,
    names.PLACEMENT_KEPT,
    names.POD_GROUP_VERIFIED,
    names.PODS_SCHEDULABLE,
    names.SPARES_HELD,
    names.EVICTIONS_PAUSED,
    names.PROVISIONING_CONTROLLER,
    names.MULTIKUEUE_CONTROLLER,
}


def test_reference_page_equals_the_generated_page():
    assert generated.find_drift(reference.FOLDER, {"reference.md": reference.render()}) == ""


def test_reference_lists_each_annotation_and_label_of_users():
    assert {*ANNOTATIONS, *LABELS} <= {entry.name for entry in reference.WRITTEN_BY_USERS}


def test_every_name_of_ours_is_there():
    ours = {
        value
        for constant, value in vars(names).items()
        if constant.isupper() and isinstance(value, str) and value.startswith((f"{names.GROUP}/", "topogate.dev/"))
    }
    missing = {name for name in ours - ELSEWHERE if not any(known.startswith(name) for known in KNOWN)}
    assert missing - {names.API_VERSION, names.OLD_API_VERSION} == set()


def test_flags_and_gates_are_there():
    page = reference.render()
    assert all(f"`{gate}`" in page for gate in GATES)
    assert "`--cert-mode files\\|own`" in page
    assert "`--feature-gates NAME=BOOL,...`" in page
    assert "%(" not in page

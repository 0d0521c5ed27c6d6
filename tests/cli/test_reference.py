"""docs/reference.md is what the code says, and no name is missing in it."""

from __future__ import annotations

import json
from pathlib import Path

from cli import gate_table, reference
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


def test_table_of_gates_names_tests_that_are_there_for_each_gate():
    assert gate_table.TESTS.keys() == GATES.keys()
    missing = {file for file in gate_table.TESTS.values() if not (Path(__file__).parents[1] / file).is_file()}
    assert not missing


def test_table_of_gates_has_the_default_of_kueue_as_it_was_measured():
    peer = json.loads((Path(__file__).parents[1] / "vectors/gates/gate_defaults.json").read_text())
    shown = {row[0].strip("`"): row[2] for row in gate_table.list_rows()}
    assert {name: text for name, text in shown.items() if name in peer} == {n: str(peer[n]).lower() for n in shown if n in peer}


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

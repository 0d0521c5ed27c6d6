"""What a workload says of the nodes that it has borrowed, when somebody else changes it."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.admission import Admission, PodSetAdmission, encode_admission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import BORROWED_SPARES, HOSTNAME_LABEL, QUOTA_RESERVED
from core.runtime.watch.store import Change
from reconciler.nodes.spares import find_unsaid
from tests.builders import build_condition_json, build_pod_set_json, build_workload_json

SAID = '{"main":["n1"]}'


def borrower(said: str | None, *hosts: str) -> dict[str, Any]:
    """One that has a place, unless no hosts are named."""
    assignment = TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((host,), 1) for host in hosts))
    admission = Admission("cq", (PodSetAdmission("main", {"cpu": "tas"}, {"cpu": 1000 * len(hosts)}, len(hosts), assignment),))
    held = encode_admission(admission) if hosts else None
    conditions = [build_condition_json(QUOTA_RESERVED)] if hosts else []
    wire = build_workload_json("low", [build_pod_set_json(count=2)], admission=held, conditions=conditions)
    wire["metadata"]["annotations"] = {BORROWED_SPARES: said} if said is not None else {}
    return wire


@pytest.mark.parametrize("says", [None, "", "{}", '{"main":["n2"]}', "no JSON"])
def test_borrower_with_a_shorter_annotation_on_the_same_nodes_is_unsaid(says: str | None) -> None:
    assert find_unsaid(Change(borrower(SAID, "n1", "n2"), borrower(says, "n1", "n2"))) == SAID


@pytest.mark.parametrize(
    "change",
    [
        Change(None, borrower(SAID, "n1")),
        Change(borrower(SAID, "n1"), None),
        Change(borrower(SAID, "n1"), borrower(SAID, "n1")),
        Change(borrower(None, "n1"), borrower(SAID, "n1")),
        Change(borrower(SAID, "n1"), borrower('{"main": ["n1"]}', "n1")),  # the same
        Change(borrower('{"main":["n9"]}', "n1"), borrower(None, "n1")),  # of a place that it had before
        Change(borrower(SAID, "n1"), borrower(None)),
        Change(borrower(SAID), borrower(None)),  # it is about to be admitted elsewhere
        Change(borrower(SAID, "n1"), borrower(None, "n2")),
    ],
)
def test_borrower_with_a_right_annotation_is_not_unsaid(change: Change) -> None:
    assert find_unsaid(change) is None

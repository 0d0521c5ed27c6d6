"""Pods whose nodes have failed: where they are counted, and while a decision takes them elsewhere."""

from __future__ import annotations

import pytest

from core.model.admission import Admission, PodSetAdmission, encode_admission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL
from core.state.cluster import ClusterState
from core.state.facts import PodFacts, WorkloadFacts
from tests.builders import NAMESPACE, RACK, build_condition_json, build_pod_json, build_pod_set_json, build_workload_json
from tests.state.test_cluster import OWNER, cluster, see_pod, see_workload

KEY = f"{NAMESPACE}/w"
MAIN = (KEY, "main", OWNER)


def on_hosts(**counts: int) -> Admission:
    domains = tuple(DomainCount((host,), count) for host, count in counts.items())
    assignment = TopologyAssignment((HOSTNAME_LABEL,), domains)
    return Admission("cq", (PodSetAdmission("main", {"cpu": "tas"}, {"cpu": 2000}, sum(counts.values()), assignment),))


def cpu(state: ClusterState) -> dict[str, int]:
    return {node: amounts["cpu"] for node, amounts in state.ledger.usage.items() if amounts.get("cpu")}


def moving() -> ClusterState:
    """A workload on n0 and n1, whose pod on n0 is to go to n2."""
    state = cluster([HOSTNAME_LABEL], cpus=(4, 4, 4))
    state.refresh()
    see_workload(state, on_hosts(n0=1, n1=1), count=2)
    state.assume(KEY, on_hosts(n1=1, n2=1), {}, {"main": (("n0", 1),)})
    assert cpu(state) == {"n0": 1000, "n1": 1000, "n2": 1000}, "its write may fail"
    assert state.ledger.find_drift() == {}
    return state


def test_pod_move_with_a_written_decision_is_counted_on_the_new_node() -> None:
    state = moving()
    changes = state.changes
    state.confirm(KEY, 2)
    assert cpu(state) == {"n1": 1000, "n2": 1000}
    assert state.changes > changes, "room has come free"


def test_pod_move_without_a_written_decision_is_counted_on_the_old_node() -> None:
    state = moving()
    state.drop_assumed(KEY)
    assert cpu(state) == {"n0": 1000, "n1": 1000}


def test_deleted_workload_with_moving_pods_is_not_counted() -> None:
    state = moving()
    state.observe_workload(KEY, None)
    assert cpu(state) == {}
    assert state.ledger.find_drift() == {}


def ending(name: str = "p", node: str = "n0", *, of: str | None = "w", terminating: bool = True, phase: str = "Running") -> PodFacts:
    return PodFacts.read(build_pod_json(name, node=node, cpu="2", workload=of, owner=OWNER, terminating=terminating, phase=phase))


def test_terminating_amount_of_a_node_includes_pods_of_workloads_without_admission() -> None:
    state = cluster([HOSTNAME_LABEL], cpus=(4, 4))
    ledger = state.ledger
    state.observe_pod("p", ending(terminating=False))
    assert ledger.compute_ending_usage("n0") == {}
    state.observe_pod("p", ending())
    state.observe_pod("q", ending("q"))
    state.observe_pod("elsewhere", ending("elsewhere", "n1"))
    state.observe_pod("stranger", ending("stranger", of=None))
    assert ledger.compute_ending_usage("n0") == {"cpu": 4000, "pods": 2}
    see_workload(state, on_hosts(n1=1), count=1)
    assert ledger.compute_ending_usage("n0") == {}, "they count as those of their workload"
    state.observe_workload(KEY, None)
    state.observe_pod("q", None)
    assert ledger.compute_ending_usage("n0") == {"cpu": 2000, "pods": 1}
    state.observe_pod("p", ending(phase="Failed"))
    assert ledger.compute_ending_usage("n0") == {}
    assert ledger.compute_ending_usage("n1") == {"cpu": 2000, "pods": 1}
    assert state.ledger.find_drift() == {}


def test_terminating_amount_of_a_node_is_read_without_a_scan_of_all_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    state = cluster([HOSTNAME_LABEL], cpus=(4, 4))
    for i in range(100):
        state.observe_pod(f"p{i}", ending(f"p{i}", "n1", terminating=bool(i % 2)))
    state.observe_pod("p", ending())
    monkeypatch.setattr(state.ledger, "_pods", {})
    assert state.ledger.compute_ending_usage("n0") == {"cpu": 2000, "pods": 1}


def test_an_older_event_changes_nothing() -> None:
    state = moving()
    see_workload(state, on_hosts(n0=1, n1=1), count=2)
    assert cpu(state) == {"n0": 1000, "n1": 1000, "n2": 1000}


def test_pods_are_where_they_are_bound_else_where_they_are_expected() -> None:
    state = cluster([RACK], cpus=(2, 2, 2))
    state.refresh()
    assert state.ledger.list_counted_nodes(MAIN) == []
    assignment = TopologyAssignment((RACK,), (DomainCount(("r",), 3),))
    given = Admission("cq", (PodSetAdmission("main", {"cpu": "tas"}, {"cpu": 3000}, 3, assignment),))
    see_workload(state, given, count=3)
    assert dict(state.ledger.list_counted_nodes(MAIN)) == {"n0": 2, "n1": 1}
    see_pod(state, "p0", node="n2", workload="w", owner=OWNER)
    found = dict(state.ledger.list_counted_nodes(MAIN))
    assert found["n2"] == 1
    assert sum(found.values()) == 3
    for i in range(1, 4):  # one that ends, and the one in its place
        see_pod(state, f"p{i}", node="n2", workload="w", owner=OWNER, terminating=i == 1)
    assert sum(count for _, count in state.ledger.list_counted_nodes(MAIN)) == 3


def test_only_those_are_unhealthy_that_hold_something_and_stay() -> None:
    state = cluster([HOSTNAME_LABEL])

    def unhealthy(*conditions: str, active: bool = True, holds: bool = True, named: bool = True) -> bool:
        wire = build_workload_json(
            "w", [build_pod_set_json(count=1)], conditions=[build_condition_json(kind) for kind in conditions], active=active
        )
        wire["status"] |= {"admission": encode_admission(on_hosts(n0=1))} if holds else {}
        wire["status"] |= {"unhealthyNodes": [{"name": "n0"}]} if named else {}
        state.observe_workload(KEY, WorkloadFacts.read(wire))
        return [facts.key for facts in state.workloads.list_unhealthy()] == [KEY]

    assert unhealthy("QuotaReserved", "Admitted")
    assert not unhealthy("QuotaReserved", "Admitted", named=False)
    assert not unhealthy("QuotaReserved", "Admitted", "Evicted")
    assert not unhealthy("QuotaReserved", "Admitted", "Finished")
    assert not unhealthy("QuotaReserved", "Admitted", active=False)
    assert not unhealthy(holds=False)
    assert unhealthy("QuotaReserved", "Admitted")
    state.assume(KEY, on_hosts(n1=1), {})
    assert state.workloads.list_unhealthy() == [], "a decision is on its way"

"""The cluster's state by example: what counts as a change, wide domains, flavors and topologies that come and go."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.admission import Admission, PodSetAdmission, encode_admission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, NodeFacts, PodFacts, TopologyFacts, WorkloadFacts
from tests.builders import (
    BLOCK,
    NAMESPACE,
    RACK,
    Node,
    build_condition_json,
    build_flavor_json,
    build_node_json,
    build_pod_json,
    build_pod_set_json,
    build_topology_json,
    build_workload_json,
)

OWNER = "owner-w"


def cluster(levels: list[str] | None = None, *, cpus: tuple[int, ...] = (4, 4)) -> ClusterState:
    """One rack of nodes n0, n1, ... and the flavor `tas` over it; by default racks are the lowest level."""
    state = ClusterState()
    state.observe_topology("t", TopologyFacts.read(build_topology_json("t", levels or [RACK])))
    state.observe_flavor("tas", FlavorFacts.read(build_flavor_json("tas", "t")))
    for i, cpu in enumerate(cpus):
        see_node(state, Node(f"n{i}", {BLOCK: "b", RACK: "r", HOSTNAME_LABEL: f"n{i}"}, {"cpu": cpu * 1000, "pods": 20}))
    return state


def see_node(state: ClusterState, node: Node) -> None:
    state.observe_node(node.name, NodeFacts.read(build_node_json(node)))


def see_pod(state: ClusterState, name: str, **options: Any) -> None:
    state.observe_pod(f"{NAMESPACE}/{name}", PodFacts.read(build_pod_json(name, **options)))


def build_admission(count: int, *, values: tuple[str, ...] = ("r",), levels: tuple[str, ...] = (RACK,), flavor: str = "tas") -> Admission:
    assignment = TopologyAssignment(levels, (DomainCount(values, count),))
    return Admission("cq", (PodSetAdmission("main", {"cpu": flavor}, {"cpu": count * 1000}, count, assignment),))


def see_workload(state: ClusterState, given: Admission | None = None, *, count: int = 4, cpu: str = "1", **options: Any) -> None:
    wire = encode_admission(given) if given is not None else None
    workload = build_workload_json("w", [build_pod_set_json(count=count, cpu=cpu)], owner=OWNER, admission=wire, **options)
    state.observe_workload(f"{NAMESPACE}/w", WorkloadFacts.read(workload))


def get_usage(state: ClusterState) -> dict[str, int]:
    """Milli-CPU in use per node."""
    state.refresh()
    assert state.ledger.find_drift() == {}
    return {node: amounts.get("cpu", 0) for node, amounts in sorted(state.ledger.usage.items())}


# --- the audit ------------------------------------------------------------------------------------------


def test_an_audit_speaks_of_the_moment_in_which_it_began():
    state = cluster()
    for number in range(3):
        see_pod(state, f"p{number}", node="n0", phase="Running")
    state.ledger._table.use_slot(state.ledger._table.get_slot("n1"), {"cpu": 7}, 1)  # as if a fault of ours had done it
    told = []
    for number, found in enumerate(state.ledger.audit()):
        told.append(found)
        see_pod(state, f"later{number}", node="n1", phase="Running")
        state.observe_pod(f"{NAMESPACE}/p{number}", None)
    assert told == [None] * (2 + 3) + [{"n1": ({"cpu": 7}, {})}], "a step for each node and pod"


# --- what counts as a change --------------------------------------------------------------------------


def test_state_changes_without_effect_do_not_count():
    state = cluster()
    see_pod(state, "p", node="n0", phase="Running")
    see_workload(state)
    state.refresh()
    before = state.changes
    see_node(state, Node("n0", {BLOCK: "b", RACK: "r", HOSTNAME_LABEL: "n0"}, {"cpu": 4000, "pods": 20}))
    see_pod(state, "p", node="n0", phase="Running", labels={"new": "label"})
    see_pod(state, "q", node="n1", phase="Running")
    see_workload(state, version=2)
    state.observe_topology("t", TopologyFacts.read(build_topology_json("t", [RACK])))
    state.observe_flavor("tas", FlavorFacts.read(build_flavor_json("tas", "t")))
    state.observe_node("never-seen", None)
    assert state.changes == before


def test_a_heartbeat_keeps_the_view_and_a_new_capacity_changes_it_in_place():
    state = cluster()
    view = state.get_view("tas")
    assert view is not None
    see_node(state, Node("n0", {BLOCK: "b", RACK: "r", HOSTNAME_LABEL: "n0"}, {"cpu": 9000, "pods": 20}, ready=False))
    assert state.get_view("tas") is view
    column = view.capacity.tree.index["n0"]
    assert view.capacity.free[view.capacity.axis["cpu"], column] == 9000
    assert not view.capacity.ready[column]
    see_node(state, Node("n0", {BLOCK: "b", RACK: "r2", HOSTNAME_LABEL: "n0"}))
    assert state.get_view("tas") is not view


def test_a_node_of_no_flavor_keeps_the_views():
    state = cluster()
    state.observe_flavor("tas", FlavorFacts.read(build_flavor_json("tas", "t", nodeLabels={BLOCK: "b"})))
    view = state.get_view("tas")
    see_node(state, Node("stranger", {BLOCK: "other", RACK: "r", HOSTNAME_LABEL: "stranger"}))
    assert state.get_view("tas") is view


def test_a_node_without_its_label_is_in_no_domain_and_named():
    state = cluster()
    see_node(state, Node("lost", {BLOCK: "b", HOSTNAME_LABEL: "lost"}))
    view = state.get_view("tas")
    assert view is not None
    assert view.list_domain_nodes(("r",)) == ("n0", "n1")
    assert view.list_domain_nodes(("nowhere",)) == ()
    assert view.capacity.tree.left_out.missing_label == {RACK: ("lost",)}


# --- domains of several nodes -------------------------------------------------------------------------


def test_pods_of_a_wide_domain_are_counted_where_the_engine_planned_them():
    state = cluster()
    see_workload(state)
    state.assume(f"{NAMESPACE}/w", build_admission(4), {"main": (("n0", 1), ("n1", 3))})
    assert get_usage(state) == {"n0": 1000, "n1": 3000}
    # kube-scheduler chose otherwise: each pod leaves its place in the plan for where it is.
    for i in range(3):
        see_pod(state, f"p{i}", node="n0", workload="w", owner=OWNER, phase="Running")
    assert get_usage(state) == {"n0": 3000, "n1": 1000}
    see_pod(state, "p3", node="n1", workload="w", owner=OWNER)
    assert get_usage(state) == {"n0": 3000, "n1": 1000}


@pytest.mark.parametrize(
    ("cpus", "expected"), [((4, 4), {"n0": 4000}), ((3, 4), {"n0": 3000, "n1": 1000}), ((1, 2), {"n0": 1000, "n1": 3000})]
)
def test_after_a_restart_a_wide_domain_still_counts_all_its_pods(cpus: tuple[int, ...], expected: dict[str, int]):
    """Also where they fit no more: what does not is counted on the last node."""
    state = cluster(cpus=cpus)
    see_workload(state, build_admission(4))
    assert get_usage(state) == expected


def test_pods_of_another_owner_do_not_fill_a_reservation():
    """A pod of the job's former life, or of someone who copied the annotation."""
    state = cluster([RACK, HOSTNAME_LABEL])
    see_workload(state, build_admission(2, values=("n0",), levels=(HOSTNAME_LABEL,)), count=2)
    see_pod(state, "stranger", node="n0", workload="w", owner="somebody-else", phase="Running")
    assert get_usage(state) == {"n0": 3000}


# --- facts that change under a reservation --------------------------------------------------------------


def test_a_reservation_follows_its_workloads_requests():
    state = cluster([RACK, HOSTNAME_LABEL])
    given = build_admission(2, values=("n0",), levels=(HOSTNAME_LABEL,))
    see_workload(state, given, count=2, cpu="1")
    assert get_usage(state) == {"n0": 2000}
    see_workload(state, given, count=2, cpu="2", uid="another", version=2)
    assert get_usage(state) == {"n0": 4000}


def test_a_finished_workload_holds_nothing_but_its_pods_do():
    state = cluster([RACK, HOSTNAME_LABEL])
    given = build_admission(3, values=("n0",), levels=(HOSTNAME_LABEL,))
    see_workload(state, given, count=3)
    see_pod(state, "p0", node="n0", workload="w", owner=OWNER, phase="Running")
    see_workload(state, given, count=3, conditions=[build_condition_json("Finished")], version=2)
    assert get_usage(state) == {"n0": 1000}
    before = state.changes
    see_pod(state, "p0", node="n0", workload="w", owner=OWNER, phase="Succeeded")
    assert get_usage(state) == {}
    assert state.changes == before + 1


def change(state: ClusterState, what: str) -> None:
    if what == "flavor gone":
        state.observe_flavor("tas", None)
    elif what == "topology gone":
        state.observe_topology("t", None)
    elif what == "flavor without topology":
        state.observe_flavor("tas", FlavorFacts.read(build_flavor_json("tas")))
    elif what == "flavor for other nodes":
        state.observe_flavor("tas", FlavorFacts.read(build_flavor_json("tas", "t", nodeLabels={"pool": "none"})))
    elif what == "other levels":
        state.observe_topology("t", TopologyFacts.read(build_topology_json("t", [BLOCK])))
    else:
        state.observe_node("n0", None)


@pytest.mark.parametrize(
    "what", ["flavor gone", "topology gone", "flavor without topology", "flavor for other nodes", "other levels", "node gone"]
)
def test_counted_usage_does_not_depend_on_earlier_objects(what: str):
    """State is a fold: as if the process had started just now. And all is as it was once the change is undone."""
    given = build_admission(2, values=("n0",), levels=(HOSTNAME_LABEL,))
    state = cluster([RACK, HOSTNAME_LABEL])
    see_workload(state, given, count=2)
    before = get_usage(state)
    change(state, what)
    fresh = cluster([RACK, HOSTNAME_LABEL])
    change(fresh, what)
    see_workload(fresh, given, count=2)
    assert get_usage(state) == get_usage(fresh) == {}
    state.observe_topology("t", TopologyFacts.read(build_topology_json("t", [RACK, HOSTNAME_LABEL])))
    state.observe_flavor("tas", FlavorFacts.read(build_flavor_json("tas", "t")))
    see_node(state, Node("n0", {BLOCK: "b", RACK: "r", HOSTNAME_LABEL: "n0"}, {"cpu": 4000, "pods": 20}))
    assert get_usage(state) == before


def test_a_decision_is_used_until_its_own_write_is_seen():
    state = cluster([RACK, HOSTNAME_LABEL])
    given, key = build_admission(2, values=("n0",), levels=(HOSTNAME_LABEL,)), f"{NAMESPACE}/w"
    see_workload(state, count=2, version=1)
    state.assume(key, given, {})
    assert get_usage(state) == {"n0": 2000}
    see_workload(state, count=2, version=2)  # an older write of ours comes back, without the admission
    assert get_usage(state) == {"n0": 2000}
    state.confirm(key, 3)
    assert get_usage(state) == {"n0": 2000}
    see_workload(state, given, count=2, version=3)
    assert get_usage(state) == {"n0": 2000}
    assert not state.workloads.is_assumed(key)
    see_workload(state, count=2, version=4)
    assert get_usage(state) == {}


def test_two_flavors_over_one_node_see_each_others_pods():
    state = cluster([RACK, HOSTNAME_LABEL])
    state.observe_flavor("twin", FlavorFacts.read(build_flavor_json("twin", "t")))
    see_workload(state, build_admission(3, values=("n0",), levels=(HOSTNAME_LABEL,), flavor="twin"), count=3)
    for name in ("tas", "twin"):
        view = state.get_view(name)
        assert view is not None
        assert view.capacity.free[view.capacity.axis["cpu"], view.capacity.tree.index["n0"]] == 1000


def test_nodes_are_found_by_the_hostname_label_that_they_have_now():
    state = cluster(cpus=(4, 4, 4))
    assert [node.name for node in state.find_named("n1")] == ["n1"]
    see_node(state, Node("n2", {BLOCK: "b", RACK: "r", HOSTNAME_LABEL: "n1"}, {"cpu": 4000, "pods": 20}))
    assert [node.name for node in state.find_named("n1")] == ["n1", "n2"]
    assert state.find_named("n2") == []
    state.observe_node("n1", None)
    see_node(state, Node("n0", {BLOCK: "b", RACK: "r"}, {"cpu": 4000, "pods": 20}))
    assert [node.name for node in state.find_named("n1")] == ["n2"]
    assert state.find_named("n0") == []

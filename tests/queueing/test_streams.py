"""Random streams of workloads: quota and nodes are never exceeded, and nobody who fits is left waiting."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.placement.algorithms.profile import STANDARD
from core.queueing.cycle.cycle import Cycle
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible
from tests.builders import RACK
from tests.queueing.scene import Scene

QUOTAS = {"cq-0": ("a", "b"), "cq-1": ("b",)}
POOLS = {"a": 2, "b": 3}  # nodes of 4 CPUs in each flavor's pool


def build_scene(quota: int, strict: bool) -> Scene:
    made = Scene()
    for pool, nodes in POOLS.items():
        made.rack(f"rack-{pool}", nodes, pool=pool)
        made.flavor(pool, "t", nodeLabels={"pool": pool})
    for name, flavors in QUOTAS.items():
        made.queue(name, {flavor: str(quota) for flavor in flavors}, strict=strict)
        made.local_queue(f"l{name}", name)
    return made


def check_limits(made: Scene, quota: int) -> None:
    """Counted from the admissions themselves, not from what the ledger says."""
    nodes: Counter[str] = Counter()
    queues: Counter[tuple[str, str]] = Counter()
    for key in made.state.workloads.facts:
        admission = made.state.workloads.find_holding(key)
        for pod_set in admission.pod_sets if admission is not None else ():
            assert admission is not None
            assert pod_set.assignment is not None
            assert pod_set.assignment.count == pod_set.count
            queues[admission.cluster_queue, pod_set.flavors["cpu"]] += pod_set.usage["cpu"]
            each = pod_set.usage["cpu"] // pod_set.count
            for domain in pod_set.assignment.domains:
                assert f"rack-{pod_set.flavors['cpu']}" in domain.values[-1]
                nodes[domain.values[-1]] += domain.count * each
    assert all(used <= quota * 1000 for used in queues.values())
    assert all(used <= 4000 for used in nodes.values())
    assert made.state.ledger.find_drift() == {}


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 1), st.integers(1, 9), st.integers(1, 3), st.integers(0, 2)),
        st.tuples(st.just("delete"), st.integers(0, 20)),
        st.tuples(st.just("cycle")),
    ),
    min_size=3,
    max_size=20,
)


@given(EVENTS, st.integers(2, 14), st.booleans())
def test_random_stream_never_exceeds_quota_or_nodes_and_leaves_no_fitting_workload_waiting(
    events: list[tuple[Any, ...]], quota: int, strict: bool
):
    made, submitted = build_scene(quota, strict), 0
    for event in events:
        if event[0] == "submit":
            _, queue, count, cpu, priority = event
            made.submit(
                f"w{submitted}",
                count,
                cpu=str(cpu),
                priority=priority,
                queue=f"lcq-{queue}",
                created=f"2026-01-01T00:00:{submitted:02}Z",
                topology={"required": RACK} if count % 2 else {"unconstrained": True},
            )
            submitted += 1
        elif event[0] == "delete":
            made.delete(f"w{event[1]}")
        else:
            made.run()
            check_limits(made, quota)
    while any(isinstance(outcome, Admissible) for outcome in made.run().values()):
        check_limits(made, quota)
    assert made.run() == {}, "a cycle at rest says nothing new"
    heads: dict[str, int] = {}
    for workload in sorted(made.state.workloads.list_pending(), key=lambda facts: (-facts.priority, facts.created)):
        queue = made.state.find_cluster_queue(workload)
        assert queue is not None
        heads[queue.name] = heads.get(queue.name, 0) + 1
        if not strict or heads[queue.name] == 1:
            assert not isinstance(find_admission(made.state, workload, queue, STANDARD), Admissible), f"{workload.key} fits and waits"


@given(EVENTS, st.integers(2, 14))
def test_a_scheduler_that_starts_anew_decides_nothing_else(events: list[tuple[Any, ...]], quota: int):
    """What a cycle remembers spares work; it never changes who gets in."""
    made, submitted = build_scene(quota, False), 0
    for event in events:
        if event[0] == "submit":
            made.submit(f"w{submitted}", event[2], cpu=str(event[3]), queue=f"lcq-{event[1]}", created=f"2026-01-01T00:00:{submitted:02}Z")
            submitted += 1
        elif event[0] == "delete":
            made.delete(f"w{event[1]}")
        else:
            made.run()
    made.run()
    made.run()
    anew = Cycle(made.state, STANDARD)
    assert [verdict for verdict in anew.run() if isinstance(verdict.outcome, Admissible)] == []

"""Random scenes of queues in a cohort that share, and random lives in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st

from core.model.configuration import FairSharing
from core.placement.algorithms.profile import STANDARD
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible
from tests.builders import NAMESPACE, RACK
from tests.queueing.shared import Shared

QUEUES = ("a", "b", "c")
TOPOLOGIES = ({"required": RACK}, {"preferred": RACK}, {"unconstrained": True})


def build_policies() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            "reclaimWithinCohort": st.sampled_from(["LowerPriority", "Any"]),
            "borrowWithinCohort": st.sampled_from([{"policy": "Never"}, {"policy": "LowerPriority"}]),
        }
    )


@dataclass
class Job:
    queue: str
    count: int
    cpu: int
    priority: int
    topology: int

    def submit(self, scene: Shared, name: str) -> None:
        topology = TOPOLOGIES[self.topology]
        scene.submit(name, self.count, cpu=str(self.cpu), queue=self.queue, priority=self.priority, topology=topology)


jobs = st.builds(Job, st.sampled_from(QUEUES), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(0, len(TOPOLOGIES) - 1))


@st.composite
def scenes(draw: st.DrawFn, sharing: FairSharing | None = None) -> Shared:
    """Queues in one cohort; with fair sharing by weight, and often in cohorts of it."""
    policies = build_policies()
    scene = Shared(sharing=sharing)
    weights = st.sampled_from(["0", "1", "1", "3"] if sharing is not None else ["1"])
    cohorts = ["cohort", "cohort", "left", "right"] if sharing is not None else ["cohort"]
    for name in cohorts[2:]:
        scene.cohort(name, "cohort", weight=draw(weights))
    for i in range(draw(st.integers(1, 3))):
        scene.rack(f"r{i}", draw(st.integers(1, 2)))
    for name in QUEUES:
        limits = draw(st.sampled_from([{}, {"borrowingLimit": "2"}, {"lendingLimit": "1"}]))
        nominal, cohort = str(draw(st.integers(0, 8))), draw(st.sampled_from(cohorts))
        scene.pool(name, nominal, cohort, preemption=draw(policies), fairSharing={"weight": draw(weights)}, **limits)
    return scene


@st.composite
def busy_scenes(draw: st.DrawFn, sharing: FairSharing | None = None) -> Shared:
    """Some run already."""
    scene = draw(scenes(sharing))
    for i, job in enumerate(draw(st.lists(jobs, min_size=1, max_size=6))):
        job.submit(scene, f"w{i}")
        name = f"w{i}"
        # As if nobody minded: a running workload may be one that others would have preempted for.
        facts = scene.state.workloads.facts[f"{NAMESPACE}/{name}"]
        queue = scene.state.cluster_queues[job.queue]
        if isinstance(find_admission(scene.state, facts, queue, STANDARD), Admissible):
            scene.cycle.run()
            scene.run()
        if name not in scene.running():
            scene.delete(name)
    return scene


def rebuilt_without(scene: Shared, gone: set[str]) -> Shared:
    """The same cluster, had the others never been there: no what-if, no overlay."""
    fresh = Shared()
    fresh.state.observe_cluster_queue("cq", None)
    for node in scene.state.nodes.values():
        fresh.state.observe_node(node.name, node)
    for queue in scene.state.cluster_queues.values():
        fresh.state.observe_cluster_queue(queue.name, queue)
    for name, cohort in scene.state.cohorts.items():
        fresh.state.observe_cohort(name, cohort)
    for local in scene.state.local_queues.values():
        fresh.state.observe_local_queue(local.key, local)
    for facts in scene.state.workloads.facts.values():
        if facts.key not in gone:
            fresh.state.observe_workload(facts.key, facts)
    fresh.state.refresh()
    return fresh


def check(scene: Shared) -> None:
    """What holds at any moment, whoever is on the way out."""
    tree, name = scene.state.quota, ("tas", "cpu")
    nominal = {queue: tree.get_nominal(queue, name) for queue in QUEUES}
    assert sum(scene.used(queue) for queue in QUEUES) <= sum(nominal.values())
    for queue in QUEUES:
        limit = scene.state.cluster_queues[queue].quota[name].borrowing_limit
        assert limit is None or scene.used(queue) <= nominal[queue] + limit
    assert scene.state.ledger.find_drift() == {}
    view = scene.state.get_view("tas")
    assert view is not None
    assert (view.capacity.free >= 0).all()


def live(scene: Shared, coming: list[Job], data: st.DataObject) -> None:
    """They come, run, are evicted and finish: who was promised room gets it, evictions end, and nobody is lost."""
    submitted: list[str] = []
    for i, job in enumerate(coming):
        job.submit(scene, f"w{i}")
        submitted.append(f"w{i}")
        for _ in range(3):
            scene.run()
            check(scene)
        done = data.draw(st.sampled_from(["", *sorted(scene.running())]), label="who finishes")
        if done:
            scene.finish(done)
    for _ in range(40):
        leaving = sorted(scene.evicted())
        for name in leaving:
            scene.leave(name)
        verdicts = scene.run()
        check(scene)
        if not leaving and not verdicts and not scene.evicted():
            break
    else:
        pytest.fail("evictions never end")
    # Who is left waits for those who run, or could never run.
    for _ in range(len(submitted) + 1):
        for name in sorted(scene.running()):
            scene.finish(name)
        for _ in range(3):
            scene.run()
            for name in sorted(scene.evicted()):
                scene.leave(name)
    assert scene.running() == set()
    waiting = {w.key.partition("/")[2] for w in scene.state.workloads.list_pending()}
    alone = {name for name in waiting if fits_alone(scene, name)}
    assert alone == set()


def fits_alone(scene: Shared, name: str) -> bool:
    facts = scene.state.workloads.facts[f"{NAMESPACE}/{name}"]
    others = {key for key in scene.state.workloads.facts if key != facts.key}
    world = rebuilt_without(scene, others)
    queue = world.state.cluster_queues[facts.queue.partition("/")[2]]
    return isinstance(find_admission(world.state, facts, queue, STANDARD), Admissible)

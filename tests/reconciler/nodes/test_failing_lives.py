"""Any sequence of failures, recoveries, taints and drains on clusters of any shape: what holds after each is in `failing_nodes`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, PODSET_GROUP_NAME, SPARE_NODES
from e2e.manifests import ANNOTATIONS
from sim.models.pod_garbage import PERIOD_S, QUARANTINE_S
from sim.world import Broken
from tests.builders import BLOCK, RACK
from tests.long import mark_long
from tests.reconciler.failing_nodes import REST_S, FailingNodes, is_admitted, list_assigned

Json = dict[str, Any]
LEVELS = (BLOCK, RACK)
MANY_SEEDS, AT_ONCE = 500, 5  # of `make test-all`, of one test
FEW = range(20, 26)  # tests of `make test`: seeds 100 to 129 fail with each defect that was put into the product to try them
DEEDS = (
    "fails",
    "is lost",
    "hangs",
    "comes back",
    "is deleted",
    "is cordoned",
    "is drained",
    "NoSchedule",
    "NoExecute",
    "loses a pod",
    "ends a pod",
)


def make_pod_set(name: str = "main", count: int = 2, cpu: str = "2", **asked: Any) -> Json:
    notes = {ANNOTATIONS.get(key, PODSET_GROUP_NAME): str(value).lower() for key, value in asked.items()}
    return {"name": name, "count": count, "cpu": cpu, "annotations": notes}


def choose_request(chance: random.Random, count: int) -> Json:
    mode, level = chance.choice(["required", "required", "preferred", "unconstrained"]), chance.choice(LEVELS)
    asked: Json = {mode: True if mode == "unconstrained" else level}
    size = chance.choice([size for size in (1, 2, 3) if count % size == 0])
    if size > 1:
        below = [RACK, HOSTNAME_LABEL] if level == RACK and mode != "unconstrained" else [BLOCK, RACK, HOSTNAME_LABEL]
        asked |= {"slice_topology": chance.choice(below), "slice_size": size}
    return asked


def choose_pod_sets(chance: random.Random) -> list[Json]:
    """One, two of any kind, or a group of a leader and its workers."""
    kind, cpu, count = chance.choice(["one", "one", "two", "group"]), str(chance.randint(1, 2)), chance.randint(1, 6)
    if kind == "group":
        asked = {chance.choice(["required", "preferred"]): chance.choice(LEVELS), "group": "g"}
        return [make_pod_set("leader", 1, "1", **asked), make_pod_set("workers", count, cpu, **asked)]
    made = [make_pod_set(count=count, cpu=cpu, **choose_request(chance, count))]
    return made if kind == "one" else [*made, make_pod_set("other", 2, "1", **choose_request(chance, 2))]


def fill(chance: random.Random, nodes: FailingNodes, spares: int) -> None:
    """Adds nodes and jobs; `spares` is the most nodes that a pod set asks to be kept free for it."""
    for block in range(chance.randint(1, 2)):
        for rack in range(chance.randint(1, 3)):
            for node in range(chance.randint(1, 3)):
                name = f"b{block}-r{rack}-n{node}"
                nodes.add_node(name, {BLOCK: f"b{block}", RACK: f"b{block}-r{rack}"}, chance.randint(2, 5))
    for i in range(chance.randint(1, 4)):
        asked = choose_pod_sets(chance)
        for pod_set in asked if spares else ():
            pod_set["annotations"][SPARE_NODES] = str(chance.randint(0, spares))
        nodes.submit(f"w{i}", asked)


@contextmanager
def opened(**options: Any) -> Iterator[FailingNodes]:
    nodes = FailingNodes(**options)
    try:
        yield nodes
    finally:
        nodes.world.close()


@pytest.mark.slow
@pytest.mark.parametrize("first", mark_long(range(0, MANY_SEEDS, AT_ONCE), but=FEW))
def test_failing_nodes_lose_no_pod_move_none_without_need_and_use_no_spare_of_others(first: int):
    for seed in range(first, first + AT_ONCE):
        try:
            live_through(seed)
        except (AssertionError, Broken) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("first", mark_long(range(0, MANY_SEEDS, AT_ONCE), but=range(2)))
def test_failing_nodes_that_lose_labels_as_well_lose_no_pod(first: int):
    for seed in range(first, first + AT_ONCE):
        try:
            live_through(seed, (*DEEDS, *["loses its label", "comes back"] * 3), most_spares=0)
        except (AssertionError, Broken) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def live_through(seed: int, deeds: Sequence[str] = DEEDS, *, most_spares: int = 2) -> None:
    """Plays what happens to the nodes of a cluster, and looks at each second of it."""
    chance = random.Random(seed)
    fails_fast, spares = chance.random() < 0.5, chance.choice([0, most_spares])
    with opened(fails_fast=fails_fast) as nodes:
        fill(chance, nodes, spares)
        nodes.settle()
        names = sorted(nodes.known)
        for _ in range(chance.randint(1, 5)):
            for _ in range(chance.randint(1, 4)):
                nodes.happen(chance.choice(names), chance.choice(deeds))
            nodes.settle(chance.choice([0, REST_S]))
        assert fails_fast or not nodes.evicted
        run_all_to_their_end(nodes)


def run_all_to_their_end(nodes: FailingNodes) -> None:
    """Once all nodes are well again, jobs that are admitted are whole, and those that ever had a place get one when others have ended."""
    for name in sorted(nodes.known):
        nodes.happen(name, "comes back")
    nodes.settle(REST_S, until_jobs_make_pods=True)
    waiting = set(nodes.placed)
    for _ in range(len(nodes.workloads) + 1):
        admitted = {job: workload for job, workload in nodes.workloads.items() if is_admitted(workload)}
        for job, workload in admitted.items():
            assert "unhealthyNodes" not in workload["status"], job
            wanted = sum(count for _, count, _ in list_assigned(workload))
            assert sum(name.startswith(f"{job}-") for name in nodes.list_bound()) == wanted, f"{job} is not whole"
            nodes.finish(job)
        waiting -= admitted.keys()
        nodes.settle()
    assert not waiting, f"{waiting} had a place, and do not come back"


@contextmanager
def running(count: int, cpu: int, required: str = RACK) -> Iterator[FailingNodes]:
    """So many nodes of a rack, and a job of two pods there, which must share a domain."""
    with opened() as nodes:
        for i in range(count):
            nodes.add_node(f"n{i}", {BLOCK: "b", RACK: "r"}, cpu)
        nodes.submit("w", [make_pod_set(required=required)])
        nodes.settle()
        yield nodes


def test_job_with_many_failed_pods_is_whole_once_its_controller_makes_pods_again():
    """The Job controller waits for 320 s once six pods have failed."""
    with opened() as nodes:
        nodes.add_node("n0", {BLOCK: "b", RACK: "r"}, 6)
        nodes.submit("w", [make_pod_set(count=6, cpu="1", required=RACK)])
        nodes.settle()
        nodes.happen("n0", "is lost")
        nodes.happen("n0", "comes back")
        nodes.settle(REST_S)
        assert not nodes.list_bound()
        run_all_to_their_end(nodes)


@pytest.mark.parametrize("deed", ["fails", "comes back"])
def test_node_that_is_only_away_moves_no_pod(deed: str):
    with running(3, cpu=2) as nodes:
        before = nodes.list_bound()
        assert sorted(before.values()) == ["n0", "n1"]
        nodes.happen("n0", deed)
        nodes.settle(REST_S)
        assert nodes.list_bound() == before


def test_pod_that_its_cordoned_node_does_not_take_again_moves_and_the_one_beside_it_stays():
    with running(2, cpu=4) as nodes:
        before = nodes.list_bound()
        assert [*before.values()] == ["n0", "n0"]
        nodes.happen("n0", "is cordoned")
        nodes.happen("n0", "loses a pod")
        nodes.settle(REST_S)
        assert sorted(nodes.list_bound().values()) == ["n0", "n1"]
        assert nodes.list_bound("n0").items() <= before.items()
        assert [*list_assigned(nodes.workloads["w"])] == [("main", 2, {"n0": 1, "n1": 1})]
        assert not nodes.evicted


def test_pod_of_a_node_without_its_label_moves_when_made_anew_beside_one_that_stays():
    with running(2, cpu=4, required=BLOCK) as nodes:
        before = nodes.list_bound()
        nodes.happen("n0", "loses its label")
        nodes.settle(REST_S)
        assert nodes.list_bound() == before
        nodes.happen("n0", "loses a pod")
        nodes.settle(REST_S)
        assert [*list_assigned(nodes.workloads["w"])] == [("main", 2, {"n0": 1, "n1": 1})]
        assert sorted(nodes.list_bound().values()) == ["n0", "n1"]
        assert nodes.list_bound("n0").items() <= before.items()
        assert not nodes.evicted


def test_pod_that_must_be_in_the_rack_of_a_node_without_its_label_waits_until_the_label_is_back():
    """In which rack the pod runs that stays is not known."""
    with running(2, cpu=4) as nodes:
        nodes.happen("n0", "loses its label")
        nodes.happen("n0", "loses a pod")
        nodes.settle(REST_S)
        assert [*nodes.list_bound().values()] == ["n0"]
        conditions = {each["type"]: each for each in nodes.workloads["w"]["status"]["conditions"]}
        assert f"it has no label {RACK}" in conditions["topogate.dev/PodsSchedulable"]["message"]
        nodes.happen("n0", "comes back")
        nodes.settle(REST_S)
        assert [*nodes.list_bound().values()] == ["n0", "n0"]
        assert not nodes.evicted


def test_pod_that_waits_for_a_node_that_has_come_back_is_not_ended_for_an_earlier_refusal():
    """In the same moment the pod beside it goes, by which the node was known to serve."""
    with running(1, cpu=4) as nodes:
        nodes.happen("n0", "fails")
        nodes.happen("n0", "loses a pod")
        nodes.settle()
        [waits] = {pod["metadata"]["name"] for pod in nodes.pods} - nodes.list_bound().keys()
        nodes.settle(REST_S)
        nodes.happen("n0", "comes back")
        nodes.happen("n0", "loses a pod")
        nodes.settle()
        assert [*nodes.list_bound().values()] == ["n0", "n0"]
        assert waits in nodes.list_bound()


@pytest.mark.parametrize("deed", ["is lost", "hangs", "is deleted", "is drained", "NoExecute"])
def test_node_that_has_lost_its_pods_is_replaced_and_the_other_pod_stays(deed: str):
    with running(3, cpu=2) as nodes:
        before = nodes.list_bound("n1")
        nodes.happen("n0", deed)
        nodes.settle(3 * PERIOD_S + QUARANTINE_S)  # the garbage collector of pods deletes what was on a node that is gone
        assert nodes.list_bound("n1") == before
        assert sorted(nodes.list_bound().values()) == ["n1", "n2"]

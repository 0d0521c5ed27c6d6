"""Workloads that spare the same others are judged once for all of them, and each by itself where they spare others."""

from collections import Counter

import pytest

from core.model.configuration import FairSharing
from core.names import MADE_BY
from core.queueing.flavors.outcome import NotAdmissible
from core.queueing.ordering import pending as pending_module
from core.queueing.ordering.pending import Pending
from tests.builders import NAMESPACE, build_pod_set_json, build_workload_json
from tests.queueing.scene import Scene
from tests.queueing.shared import Shared

MANY = 40


def evicted_by_one(count: int) -> Shared:
    """Half of `count` equal workloads of queue "a" wait since one workload of queue "b" got its share of their cohort."""
    scene = Shared(sharing=FairSharing())
    for i in range(count // 4):
        scene.rack(f"r{i}", 1, cpu=4)
    scene.cohort("cohort", nominal=str(count))
    for queue in "ab":
        scene.pool(queue, "0", "cohort", preemption={"reclaimWithinCohort": "Any"})
    for i in range(count):
        scene.submit(f"small-{i}", queue="a", topology={"unconstrained": True})
    decide(scene)
    scene.submit("large", count // 2, queue="b", topology={"unconstrained": True})
    decide(scene)
    for name in sorted(scene.evicted()):
        scene.leave(name)
    decide(scene)
    assert "large" in scene.running()
    return scene


def decide(scene: Shared) -> dict[str, str]:
    """Cycles until none says anything; the last message to each workload that waits."""
    told: dict[str, str] = {}
    while (verdicts := scene.run()) or scene.cycle.is_cut:
        told |= {name: outcome.message for name, outcome in verdicts.items() if isinstance(outcome, NotAdmissible)}
    return told


def test_workloads_evicted_for_the_same_one_are_judged_once(judged: Counter[str]):
    scene = evicted_by_one(MANY)
    judged.clear()
    scene.submit("late", queue="a", topology={"unconstrained": True})
    scene.finish(min(scene.running() - {"large"}))
    decide(scene)
    assert judged.total() <= 6, "one takes the room, one is refused for all that spare the same, one for all that spare nobody"


def test_workload_that_spares_no_others_is_not_refused_with_those_that_do():
    """The others wait for their preemptor to end; a new workload of the same queue that asks for the same need not."""
    scene = evicted_by_one(MANY)
    told = decide(scene)
    assert not told
    scene.submit("late", queue="a", topology={"unconstrained": True})
    assert "does not preempt" not in decide(scene).get("late", "")


def test_workloads_that_spared_one_that_ended_are_judged_anew(judged: Counter[str]):
    scene = evicted_by_one(MANY)
    scene.finish("large")
    decide(scene)
    assert len(scene.running()) == MANY
    judged.clear()
    scene.submit("late", queue="a", topology={"unconstrained": True})
    scene.submit("later", queue="a", topology={"unconstrained": True})
    decide(scene)
    assert judged.total() <= 2, "both ask for the same and spare nobody"


def test_workloads_are_moved_to_the_group_of_their_trait_some_at_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pending_module, "MOST_ADDED", 2)
    scene, traits = Scene(), Counter[str]()
    for name in "abcde":
        scene.submit(name)
    pending = Pending(scene.state.workloads, trait=lambda workload: traits[workload.uid])
    pending.sync()
    while pending.is_behind:
        pending.sync()
    everybody = [workload.uid for workload in pending]
    assert [len(group.members) for group in pending.list_classes()] == [5]
    traits.update(everybody[1:])
    pending.move_changed([*everybody, "uid-of-nobody"])
    assert pending.is_behind
    moves = 1
    while pending.is_behind:
        pending.sync()
        pending.move_changed([])
        moves += 1
    assert moves == 3, "two are looked at each time"
    assert sorted(len(group.members) for group in pending.list_classes()) == [1, 4]
    assert [workload.uid for workload in pending] == everybody, "the order stays"
    assert pending.group_of(everybody[0]) is not pending.group_of(everybody[1])
    scene.state.observe_workload(f"{NAMESPACE}/a", None)
    pending.sync()
    assert [len(group.members) for group in pending.list_classes()] == [4], "a group that is empty is gone"


def test_workloads_of_pods_that_one_controller_makes_anew_are_moved_together():
    scene, traits = Scene(), Counter[str]()
    for name in ("a", "b", "c"):
        made = build_workload_json(name, [build_pod_set_json()])
        made["metadata"]["annotations"] = {MADE_BY: "replicas"} if name != "c" else {}
        scene.workload(made)
    pending = Pending(scene.state.workloads, trait=lambda workload: traits[workload.party])
    pending.sync()
    one, other, alone = pending
    assert one.party == other.party != alone.party
    traits[one.party] = 1
    pending.move_changed([one.party])
    assert pending.group_of(one.uid) is pending.group_of(other.uid) is not pending.group_of(alone.uid)
    scene.delete("a")
    pending.sync()
    traits[one.party] = 2
    pending.move_changed([one.party])
    assert len(pending.list_classes()) == 2

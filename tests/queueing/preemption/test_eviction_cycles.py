"""What is remembered of evictions, and for how long."""

from dataclasses import replace
from typing import Any

import pytest

from core.names import MADE_BY
from core.queueing.preemption import eviction_cycles
from core.queueing.preemption.eviction_cycles import Circles
from core.state.facts import WorkloadFacts
from tests.builders import NAMESPACE, build_pod_set_json, build_workload_json

FACTS = {name: WorkloadFacts.read(build_workload_json(name, [build_pod_set_json("main")], uid=name)) for name in ("a", "b", "c", "d")}
SEEN = {f"{NAMESPACE}/{name}": facts for name, facts in FACTS.items()}


def evicted(*pairs: tuple[str, str]) -> Circles:
    """Of each pair the first is evicted for the second."""
    remembered = Circles()
    remembered.begin(SEEN, 0)
    for victim, preemptor in pairs:
        remembered.note(FACTS[preemptor], [FACTS[victim]])
    return remembered


def spared(remembered: Circles, name: str) -> set[str]:
    uids = remembered.find_spared(FACTS[name].uid)
    return {name for name, facts in FACTS.items() if facts.uid in uids}


def test_preemptor_is_spared_by_victims_of_its_victims():
    remembered = evicted(("a", "b"), ("b", "c"), ("d", "c"))
    assert [spared(remembered, name) for name in "abcd"] == [{"b", "c"}, {"c"}, set(), {"c"}]


def test_a_circle_that_was_gone_round_spares_all_but_oneself():
    remembered = evicted(("a", "b"), ("b", "c"), ("c", "a"))
    assert [spared(remembered, name) for name in "abc"] == [{"b", "c"}, {"a", "c"}, {"a", "b"}]


@pytest.mark.parametrize("change", [{"finished": True}, {"uid": "another"}, None])
def test_workload_that_ended_is_forgotten(change: dict[str, Any] | None):
    remembered = evicted(("a", "b"), ("b", "c"))
    now = dict(SEEN)
    del now[f"{NAMESPACE}/b"]
    if change is not None:
        now[f"{NAMESPACE}/b"] = replace(FACTS["b"], **change)
    assert remembered.begin(now, 0)
    assert [spared(remembered, name) for name in "ab"] == [set(), set()]
    assert not remembered.begin(now, 0)


@pytest.mark.parametrize("change", [{"priority": 7}, {"queue": f"{NAMESPACE}/another"}])
def test_eviction_is_forgotten_when_priority_or_queue_changes(change: dict[str, Any]):
    remembered = evicted(("a", "b"), ("b", "c"))
    assert remembered.begin(SEEN | {f"{NAMESPACE}/a": replace(FACTS["a"], **change)}, 0)
    assert [spared(remembered, name) for name in "ab"] == [set(), {"c"}]


def test_change_of_rules_forgets_all():
    remembered = evicted(("a", "b"))
    assert not remembered.begin(SEEN, 0)
    assert remembered.begin(SEEN, 1)
    assert spared(remembered, "a") == set()


def test_victim_that_could_not_be_evicted_spares_no_workload():
    remembered = evicted(("a", "b"), ("a", "c"))
    remembered.withdraw([(FACTS["a"].uid, FACTS["b"].uid), (FACTS["d"].uid, FACTS["b"].uid)])
    assert spared(remembered, "a") == {"c"}


def test_withdrawn_eviction_is_reported_when_the_next_cycle_begins():
    remembered = evicted(("a", "b"))
    remembered.withdraw([(FACTS["a"].uid, FACTS["b"].uid)])
    assert remembered.begin(SEEN, 0)
    assert not remembered.begin(SEEN, 0)


def test_of_too_many_evictions_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(eviction_cycles, "MOST", 2)
    assert spared(evicted(("a", "b"), ("a", "c"), ("a", "d")), "a") == {"c", "d"}
    assert spared(evicted(("a", "b"), ("a", "c"), ("a", "b"), ("a", "d")), "a") == {"b", "d"}


def read_made_anew(name: str, **options: Any) -> WorkloadFacts:
    """The workload of a pod that a controller makes anew."""
    workload = build_workload_json(name, [build_pod_set_json("main")], **options)
    workload["metadata"]["annotations"] = {MADE_BY: "replicas"}
    return WorkloadFacts.read(workload)


def test_pod_that_is_made_anew_spares_those_for_which_it_was_evicted_before():
    """Seed 951: a Deployment's pod and a RayService were evicted for each other without end, as each new pod had a new Workload."""
    remembered = Circles()
    remembered.begin(SEEN, 0)
    remembered.note(FACTS["a"], [read_made_anew("before")])
    assert not remembered.begin(SEEN, 0), "the other pod may not be there yet"
    again = read_made_anew("after")
    assert again.uid != read_made_anew("before").uid
    assert remembered.find_spared(again.party) == {"a"}
    for other in (read_made_anew("x", priority=7), read_made_anew("x", queue="another")):
        assert remembered.find_spared(other.party) == frozenset()


def test_pod_that_is_made_anew_is_spared_by_those_that_were_evicted_for_it():
    remembered = Circles()
    remembered.begin(SEEN, 0)
    remembered.note(read_made_anew("before"), [FACTS["a"]])
    remembered.begin(SEEN, 0)
    assert read_made_anew("after").party in remembered.find_spared(FACTS["a"].party)
    assert remembered.begin({}, 0), "the other one has ended"
    assert remembered.find_spared(FACTS["a"].party) == frozenset()


def test_two_pods_of_one_controller_that_could_not_be_evicted_are_withdrawn_at_once():
    """Seed 1074: the same pair twice raised KeyError."""
    remembered = Circles()
    remembered.begin(SEEN, 0)
    victims = [read_made_anew("one"), read_made_anew("two")]
    remembered.note(FACTS["a"], victims)
    remembered.withdraw((victim.party, FACTS["a"].party) for victim in victims)
    assert remembered.find_spared(victims[0].party) == frozenset()


def test_workload_that_was_evicted_for_nothing_again_and_again_is_spared_until_its_preemptor_is_admitted():
    """Seed 1692: two workloads ahead of the preemptor took the room, and lost it to one that was evicted when the victim came back."""
    remembered = evicted(*[("a", "b")] * (eviction_cycles.MOST_FUTILE - 1), ("c", "b"))
    assert spared(remembered, "b") == set()
    remembered.collect_changed()
    before = remembered.find_trait("b")
    remembered.note(FACTS["b"], [FACTS["a"]])
    assert spared(remembered, "b") == {"a"}
    assert remembered.collect_changed() == {"a", "b"}
    assert remembered.find_trait("b") != before
    remembered.note_admitted(FACTS["b"])
    assert remembered.collect_changed() == {"b"}
    assert spared(remembered, "b") == set()
    remembered.note_admitted(FACTS["b"])
    assert remembered.collect_changed() == set()
    remembered.note(FACTS["b"], [FACTS["a"]])
    assert spared(remembered, "b") == set(), "none more than once since then"


def test_futile_evictions_are_forgotten_with_their_victim():
    remembered = evicted(*[("a", "b")] * eviction_cycles.MOST_FUTILE)
    assert remembered.begin(SEEN | {f"{NAMESPACE}/a": replace(FACTS["a"], finished=True)}, 0)
    assert spared(remembered, "b") == set()
    assert remembered.collect_changed() >= {"b"}
    assert remembered.find_trait("b") == remembered.find_trait("d")

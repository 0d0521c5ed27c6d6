"""Workloads that replace each other in a circle, or themselves, as only users write: they replace none, and nobody else notices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.admission import encode_admission
from core.names import ADMITTED, FINISHED, QUOTA_RESERVED, SLICE_NAME, SLICE_REPLACES
from core.queueing.flavors.outcome import Admissible
from core.state.facts import WorkloadFacts
from tests.builders import NAMESPACE, RACK, build_condition_json, build_pod_set_json, build_workload_json
from tests.queueing.scene import Scene

NAMES = "abcde"


def ask(name: str, replaces: str | None, pods: int = 1) -> dict[str, Any]:
    wire = build_workload_json(name, [build_pod_set_json(count=pods, topology={"required": RACK})], owner="job")
    notes = {SLICE_NAME: "a"}  # the first workload of the job, which the pods of all name
    wire["metadata"]["annotations"] = {**notes, SLICE_REPLACES: f"{NAMESPACE}/{replaces}"} if replaces is not None else notes
    return wire


class Crowd(Scene):
    """Up to five workloads of one owner, which are admitted, finish, go, and replace others as their user writes it."""

    def __init__(self) -> None:
        super().__init__(quota="100")
        self.rack("r", 10)
        self.wires: dict[str, dict[str, Any]] = {}

    def see(self, name: str, **metadata: Any) -> None:
        self.version += 1
        self.wires[name]["metadata"] |= {"resourceVersion": str(self.version), **metadata}
        self.workload(self.wires[name])

    def put(self, name: str, replaces: str | None) -> None:
        if name not in self.wires:
            self.wires[name] = ask(name, None)
        self.see(name, annotations=ask(name, replaces)["metadata"]["annotations"])

    def admit(self, *names: str) -> None:
        """All that a cycle admits, and of them `names` are written."""
        for name, outcome in self.run().items():
            key = f"{NAMESPACE}/{name}"
            if isinstance(outcome, Admissible) and name in names:
                conditions = [build_condition_json(QUOTA_RESERVED), build_condition_json(ADMITTED)]
                self.wires[name]["status"] = {"conditions": conditions, "admission": encode_admission(outcome.admission)}
                self.state.confirm(key, self.version + 1)
                self.see(name)
            elif isinstance(outcome, Admissible):
                self.state.drop_assumed(key)

    def finish(self, name: str) -> None:
        if name in self.wires:
            self.wires[name]["status"] = {**self.wires[name].get("status", {}), "conditions": [build_condition_json(FINISHED)]}
            self.see(name)

    def drop(self, name: str) -> None:
        if self.wires.pop(name, None) is not None:
            self.state.observe_workload(f"{NAMESPACE}/{name}", None)

    def used(self) -> int:
        return self.state.workloads.get_usage("cq").get(("tas", "cpu"), 0)

    def holding(self) -> set[str]:
        return {name for name in NAMES if self.state.workloads.find_holding(f"{NAMESPACE}/{name}") is not None}


@pytest.mark.parametrize("circle", ["a", "ab", "abc"])
def test_workloads_that_replace_each_other_in_a_circle_are_each_admitted_and_counted(circle: str):
    crowd = Crowd()
    for name, replaced in zip(circle, circle[1:] + circle[0], strict=True):
        crowd.put(name, replaced)
    crowd.put("e", None)
    crowd.admit(*circle, "e")
    assert crowd.holding() == {*circle, "e"}
    assert crowd.used() == 1000 * (len(circle) + 1)


def test_circle_that_one_leaves_is_a_row_of_workloads_that_replace_each_other():
    crowd = Crowd()
    for name, replaced in ("ab", "bc", "ca"):
        crowd.put(name, replaced)
    crowd.admit(*"abc")
    crowd.put("a", None)
    assert crowd.holding() == {"a", "b"}  # b replaces c, which so replaces nothing that holds
    assert sum(amounts["pods"] for amounts in crowd.state.ledger.usage.values()) == 1, "pods of one job are counted once"
    for name in "cab":
        crowd.drop(name)
    assert crowd.state.ledger.usage == {}


def test_workload_of_other_pods_takes_nothing_over_and_leaves_nothing_counted():
    """One of a user that named another as replaced, and other pods than that, left its place counted for ever."""
    crowd = Crowd()
    for name, replaced in (("a", None), ("b", "a")):
        crowd.put(name, replaced)
        crowd.wires[name]["metadata"]["annotations"][SLICE_NAME] = name
        crowd.see(name)
        crowd.admit(name)
    assert crowd.holding() == {"a", "b"}
    for name in "ab":
        crowd.finish(name)
        crowd.drop(name)
    assert crowd.state.ledger.usage == {}


def test_long_row_of_workloads_that_replace_the_next_is_followed_without_recursion():
    crowd = Crowd()
    crowd.put("a", None)
    [outcome] = crowd.run().values()
    assert isinstance(outcome, Admissible)
    for number in range(1500):
        wire = ask(f"w{number}", f"w{number - 1}" if number else None)
        crowd.state.workloads.observe(f"{NAMESPACE}/w{number}", WorkloadFacts.read(wire))
    for number in (*range(1498, -1, -1), 1499):  # the last one changes what each other holds
        crowd.state.workloads.assume(f"{NAMESPACE}/w{number}", outcome.admission)
    assert crowd.state.workloads.find_holding(f"{NAMESPACE}/w1499") is not None
    assert crowd.state.workloads.find_holding(f"{NAMESPACE}/w1498") is None


STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.none() | st.sampled_from(NAMES)),
    st.tuples(st.just("admit"), st.sets(st.sampled_from(NAMES)).map(sorted).map(tuple)),
    st.tuples(st.sampled_from(["finish", "drop"]), st.sampled_from(NAMES)),
)


@given(st.lists(STEPS, max_size=12), st.permutations(NAMES))
def test_held_workloads_follow_from_the_objects_whatever_came_first(steps: list[tuple[Any, ...]], order: list[str]):
    crowd, fresh = Crowd(), Crowd()
    for what, *given_with in steps:
        getattr(crowd, what)(*(given_with[0] if what == "admit" else given_with))
    for name in order:
        if name in crowd.wires:
            fresh.wires[name] = crowd.wires[name]
            fresh.workload(crowd.wires[name])
    assert crowd.holding() == fresh.holding()
    assert crowd.used() == fresh.used()

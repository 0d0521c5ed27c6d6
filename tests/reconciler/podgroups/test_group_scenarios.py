"""The scenarios of kube-scheduler's own suite for topology-aware PodGroups: the reconciler of groups, and pods that are bound as
they are let go."""

from __future__ import annotations

from collections import Counter

import pytest

from e2e.scenarios.podgroups import CPUS_A_NODE, RACK, SCENARIOS, ZONE, Ask, Expect, Free, Scenario
from tests.reconciler.harness_groups import GroupsHarness


class Play:
    """One scenario; groups are looked at in the order in which they came."""

    def __init__(self, scenario: Scenario) -> None:
        self.harness, self.scenario = GroupsHarness({}), scenario
        self.levels: dict[str, str] = {}  # by group
        self.domains: dict[str, dict[str, str]] = {}
        for rack, (zone, nodes) in scenario.racks.items():
            for number in range(nodes):
                name = f"{rack}-{number}"
                self.domains[name] = {RACK: rack, ZONE: zone}
                self.harness.node(name, rack, CPUS_A_NODE, **self.domains[name])
        for node, cpus in scenario.taken.items():
            self.harness.add(f"on-{node}", group="", cpu=cpus, nodeName=node, schedulingGates=[])

    def play(self) -> None:
        for step in self.scenario.steps:
            match step:
                case Ask():
                    self.ask(step)
                case Free(node):
                    self.harness.drop("Pod", f"on-{node}")
                case Expect():
                    self.settle()
                    self.check(step)

    def ask(self, step: Ask) -> None:
        if step.group not in self.levels:
            self.levels[step.group] = step.level
            policy = {"basic": {}} if step.minimum is None else {"gang": {"minCount": step.minimum}}
            self.harness.group(policy, name=step.group, schedulingConstraints={"topologyConstraints": [{"level": step.level}]})
        for cpus in step.cpus:
            self.harness.add(f"{step.group}-{len(self.harness.pods)}", group=step.group, cpu=cpus)

    def settle(self) -> None:
        for group in self.levels:
            self.harness.settle(group)
            self.harness.bind()

    def check(self, expected: Expect) -> None:
        level = self.levels[expected.group]
        nodes = [pod["spec"].get("nodeName") for name, pod in self.harness.pods.items() if name.startswith(f"{expected.group}-")]
        where = Counter(self.domains[node][level] for node in nodes if node)
        assert where.total() == expected.bound, dict(where)
        assert len(where) <= 1
        assert not expected.within or not where or set(where) == {expected.within}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_a_scenario_ends_as_with_kube_scheduler(scenario: Scenario) -> None:
    Play(scenario).play()


def test_there_are_as_many_as_in_its_suite() -> None:
    assert len(SCENARIOS) == len({one.name for one in SCENARIOS}) == 25

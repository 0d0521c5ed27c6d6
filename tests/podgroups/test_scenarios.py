"""The scenarios of kube-scheduler's own suite, on paper: groups step by step, pods bound as they are let go."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL, MEMBER_OF_LABEL, PODGROUP_GATE
from core.podgroups.acting import plan_step
from core.podgroups.algorithm import default_plugins
from core.podgroups.facts import PodGroupFacts
from core.podgroups.group import TopologyConstraint
from core.podgroups.members import GroupKey, Member, read_member
from core.state.cluster import ClusterState
from core.state.facts import NodeFacts, PodFacts
from e2e.scenarios.podgroups import CPUS_A_NODE, RACK, SCENARIOS, ZONE, Ask, Expect, Free, Scenario
from tests.builders import NAMESPACE, Node, node_json, pod_json


class Play:
    """One scenario: what is asked is placed at once, group after group in the order in which they came."""

    def __init__(self, scenario: Scenario) -> None:
        self.state, self.scenario = ClusterState(), scenario
        self.groups: dict[str, PodGroupFacts] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.labels: dict[str, dict[str, str]] = {}
        for rack, (zone, nodes) in scenario.racks.items():
            for number in range(nodes):
                name = f"{rack}-{number}"
                self.labels[name] = {HOSTNAME_LABEL: name, RACK: rack, ZONE: zone}
                node = Node(name, self.labels[name], {"cpu": CPUS_A_NODE * 1000, "pods": 110})
                self.state.observe_node(name, NodeFacts.read(node_json(node)))
        for node_name, cpus in scenario.taken.items():
            other = pod_json(f"on-{node_name}", node=node_name, cpu=f"{cpus}", phase="Running")
            self.state.observe_pod(f"{NAMESPACE}/on-{node_name}", PodFacts.read(other))

    def play(self) -> None:
        for step in self.scenario.steps:
            match step:
                case Ask():
                    self.ask(step)
                case Free(node):
                    self.state.observe_pod(f"{NAMESPACE}/on-{node}", None)
                case Expect():
                    self.settle()
                    self.check(step)

    def ask(self, step: Ask) -> None:
        level = TopologyConstraint(step.level)
        self.groups.setdefault(step.group, PodGroupFacts(NAMESPACE, step.group, step.group, (level,), step.minimum))
        for cpus in step.cpus:
            name = f"{step.group}-{sum(pod['metadata']['labels'][MEMBER_OF_LABEL] == step.group for pod in self.pods.values())}"
            labels = {MEMBER_OF_LABEL: step.group, JOB_COMPLETION_INDEX_LABEL: name.rpartition("-")[2]}
            containers = [{"name": "c", "resources": {"requests": {"cpu": f"{cpus}"}}}]
            self.pods[name] = {
                "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "labels": labels},
                "spec": {"containers": containers, "schedulingGates": [{"name": PODGROUP_GATE}]},
                "status": {},
            }

    def members(self, group: str) -> list[Member]:
        found = (read_member(pod) for pod in self.pods.values() if pod["metadata"]["labels"][MEMBER_OF_LABEL] == group)
        return [member for member in found if member is not None]

    def settle(self) -> None:
        for name, facts in self.groups.items():
            for _ in range(8):
                key = GroupKey(NAMESPACE, name)
                step = plan_step(facts, facts.levels, key, self.members(name), self.state.whole.capacity, default_plugins(), 100.0)
                for member, node in step.keep:
                    self.pods[member.uid]["status"]["nominatedNodeName"] = node
                    self.state.whole.keep(str(key), member.uid, node, member.request.requests)
                for member, node in step.let_go:
                    pod = self.pods[member.uid]
                    pod["spec"] |= {"schedulingGates": [], "nodeName": node}
                    self.state.whole.keep(str(key), member.uid, None, {})
                    self.state.observe_pod(member.key, PodFacts.read(pod))

    def check(self, expected: Expect) -> None:
        level = self.groups[expected.group].levels[0].level
        where = Counter(self.labels[member.node][level] for member in self.members(expected.group) if member.node)
        assert where.total() == expected.bound, dict(where)
        assert len(where) <= 1
        assert not expected.within or not where or set(where) == {expected.within}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_a_scenario_ends_as_with_kube_scheduler(scenario: Scenario) -> None:
    Play(scenario).play()


def test_there_are_as_many_as_in_its_suite() -> None:
    assert len(SCENARIOS) == len({one.name for one in SCENARIOS}) == 25

"""Plays scenarios of groups on a control plane, side by side: each has nodes and labels of its own, so that none meets another.

There are three ways to have a group placed: by topogate (`ByTopogate`), by kube-scheduler to which topogate hands it over
(`ByTopogateNatively`), or by kube-scheduler itself (`ByScheduler`), whose feature gates must be on then.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from core.names import JOB_COMPLETION_INDEX_LABEL, MEMBER_OF_LABEL, PODGROUP_GATE
from e2e import manifests
from e2e.api import Api, wait_for
from e2e.cluster import Cluster
from e2e.nodes import HOSTNAME_LABEL, KWOK_ANNOTATION, is_schedulable
from e2e.scenarios.podgroups import CPUS_A_NODE, RACK, ZONE, Ask, Expect, Free, Scenario

GATES = {"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True}
SERVED = {"runtime-config": "scheduling.k8s.io/v1alpha2=true"}
Json = dict[str, Any]


class Way(Protocol):
    """Who places groups."""

    def group(self, name: str, namespace: str, level: str, minimum: int | None) -> Json:
        """The object that describes a group."""

    def join(self, pod: Json, group: str) -> Json:
        """A pod as a member of it."""

    def is_told(self, api: Api, namespace: str, group: str, pods: list[Json]) -> bool:
        """Whether it is said of the pods that are not bound that they have no place."""


class ByTopogate:
    """By gate and pin."""

    def group(self, name: str, namespace: str, level: str, minimum: int | None) -> Json:
        constraints = {"topologyConstraints": [{"level": level}]}
        return _group("topogate.dev/v1alpha1", name, namespace, minimum, constraints)

    def join(self, pod: Json, group: str) -> Json:
        labels = {**pod["metadata"].get("labels", {}), MEMBER_OF_LABEL: group}
        spec = {**pod["spec"], "schedulingGates": [{"name": PODGROUP_GATE}]}
        return {**pod, "metadata": {**pod["metadata"], "labels": labels}, "spec": spec}

    def is_told(self, api: Api, namespace: str, group: str, pods: list[Json]) -> bool:
        status = api.get(f"/apis/topogate.dev/v1alpha1/namespaces/{namespace}/podgroups/{group}").get("status") or {}
        messages = [c["message"] for c in status.get("conditions") or () if c["type"] == "PodGroupScheduled"]
        return any("none of " in message and " takes " in message for message in messages)


class ByTopogateNatively(ByTopogate):
    """By a PodGroup of topogate that is handed over to kube-scheduler: its pods say so, and topogate explains and verifies."""

    def join(self, pod: Json, group: str) -> Json:
        labels = {**pod["metadata"].get("labels", {}), MEMBER_OF_LABEL: group}
        spec = {**pod["spec"], "schedulingGroup": {"podGroupName": group}}
        return {**pod, "metadata": {**pod["metadata"], "labels": labels}, "spec": spec}


class ByScheduler:
    """By kube-scheduler's own topology-aware scheduling of PodGroups."""

    def group(self, name: str, namespace: str, level: str, minimum: int | None) -> Json:
        return _group("scheduling.k8s.io/v1alpha2", name, namespace, minimum, {"topology": [{"key": level}]})

    def join(self, pod: Json, group: str) -> Json:
        return {**pod, "spec": {**pod["spec"], "schedulingGroup": {"podGroupName": group}}}

    def is_told(self, api: Api, namespace: str, group: str, pods: list[Json]) -> bool:
        conditions = [c for pod in pods for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"]
        return len([c for c in conditions if c.get("reason") == "Unschedulable"]) == len(pods)


def _group(version: str, name: str, namespace: str, minimum: int | None, constraints: Json) -> Json:
    policy: Json = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    spec = {"schedulingPolicy": policy, "schedulingConstraints": constraints}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


class Play:
    """One scenario. `name` is the namespace, and stands before whatever else it makes."""

    def __init__(self, cluster: Cluster, scenario: Scenario, way: Way, name: str) -> None:
        self._cluster, self._api, self._scenario, self._way, self._name = cluster, cluster.api, scenario, way, name
        self._levels: dict[str, str] = {}  # by group
        self._pods: dict[str, list[str]] = {}
        self._nodes = {
            f"{rack}-{number}": {RACK: rack, ZONE: zone} for rack, (zone, nodes) in scenario.racks.items() for number in range(nodes)
        }

    def play(self) -> list[str]:
        """What was not as it should be, and at which step; the first such step is the last."""
        self._open()
        try:
            for number, step in enumerate(self._scenario.steps, 1):
                match step:
                    case Ask():
                        self._ask(step)
                    case Free(node):
                        self._api.delete(self._path(f"on-{node}"), grace_period_s=0)
                    case Expect():
                        try:
                            self._expect(step)
                        except (AssertionError, TimeoutError) as error:
                            return [f"step {number}, {step}: {error}"]
            return []
        finally:
            self._close()

    def _label(self, level: str) -> str:
        return f"{level}-of-{self._name}"

    def _path(self, pod: str = "") -> str:
        return f"/api/v1/namespaces/{self._name}/pods{f'/{pod}' if pod else ''}"

    def _open(self) -> None:
        self._cluster.create_namespace(self._name)
        for node, domains in self._nodes.items():
            name = f"{self._name}-{node}"
            labels = {HOSTNAME_LABEL: name, "type": "kwok", **{self._label(level): value for level, value in domains.items()}}
            metadata = {"name": name, "labels": labels, "annotations": dict(KWOK_ANNOTATION)}
            amounts = {"cpu": f"{CPUS_A_NODE}", "pods": "110"}
            self._api.create(
                "/api/v1/nodes",
                {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": amounts, "capacity": amounts}},
            )
        for node in self._nodes:
            wait_for(f"node {node} to be ready", partial(self._is_ready, node))
        for node, cpus in self._scenario.taken.items():
            other = self._pod(f"on-{node}", cpus)
            self._api.create(self._path(), {**other, "spec": {**other["spec"], "nodeName": f"{self._name}-{node}"}})

    def _is_ready(self, node: str) -> bool:
        return is_schedulable(self._api.get(f"/api/v1/nodes/{self._name}-{node}"))

    def _close(self) -> None:
        self._api.delete(f"/api/v1/namespaces/{self._name}")
        for node in self._nodes:
            self._api.delete(f"/api/v1/nodes/{self._name}-{node}")

    def _pod(self, name: str, cpus: int, index: int = 0) -> Json:
        metadata = {"name": name, "namespace": self._name, "labels": {JOB_COMPLETION_INDEX_LABEL: f"{index}"}}
        container = {"name": "main", "image": "registry.example.com/nothing:1", "resources": {"requests": {"cpu": f"{cpus}"}}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0},
        }

    def _ask(self, step: Ask) -> None:
        if step.group not in self._levels:
            self._levels[step.group] = step.level
            group = self._way.group(step.group, self._name, self._label(step.level), step.minimum)
            self._api.create(manifests.get_path(group), group)
        mine = self._pods.setdefault(step.group, [])
        for cpus in step.cpus:
            pod = self._pod(f"{step.group}-{len(mine)}", cpus, len(mine))
            mine.append(pod["metadata"]["name"])
            self._api.create(self._path(), self._way.join(pod, step.group))

    def _expect(self, expected: Expect) -> None:
        """Raises TimeoutError where it does not come to that, and AssertionError where it is another place."""
        seen: dict[str, list[Json]] = {}

        def is_so() -> bool:
            pods = [self._api.get(self._path(name)) for name in self._pods[expected.group]]
            seen["bound"] = [pod for pod in pods if pod["spec"].get("nodeName")]
            others = [pod for pod in pods if not pod["spec"].get("nodeName")]
            told = not others or self._way.is_told(self._api, self._name, expected.group, others)
            return len(seen["bound"]) == expected.bound and told

        wait_for(f"{expected.bound} pods of {expected.group} to be bound, and others to be told", is_so)
        level = self._levels[expected.group]
        where = {self._nodes[pod["spec"]["nodeName"].removeprefix(f"{self._name}-")][level] for pod in seen["bound"]}
        assert len(where) <= 1, f"bound in {sorted(where)}"
        assert not expected.within or not where or where == {expected.within}, f"bound in {sorted(where)}"

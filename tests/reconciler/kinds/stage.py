"""Where the scenes of kinds are played: nodes, queues and a namespace for several objects, and the controllers that make their pods."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from core.names import HOSTNAME_LABEL, PODSET_LABEL, QUEUE_NAME_LABEL
from e2e import manifests
from e2e.api import wait_for
from e2e.audit import truth
from e2e.standins.base import StandIn
from tests.reconciler.kinds.scenarios import SCENARIOS, Scenario, runtime
from tests.reconciler.scenes import GPU, Scene


class Stage:
    """A namespace with room for several objects; stand-ins act while they are called in."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.standins: dict[type[StandIn], StandIn] = {}

    def install(self) -> None:
        for standin in dict.fromkeys(standin for scenario in SCENARIOS for standin in scenario.standins):
            made = standin(self.scene.api)
            made.install()
            self.standins[standin] = made
        self.scene.create(runtime())
        # Spark's pods ask for memory, which the scene's queue has none of.
        prefix = self.scene.prefix
        queue = manifests.build_cluster_queue(f"{prefix}queue", {f"{prefix}flavor": {"cpu": 1000, GPU: 1000, "memory": "1000Gi"}})
        self.scene.api.patch(f"{manifests.get_path(queue)}/{prefix}queue", {"spec": {"resourceGroups": queue["spec"]["resourceGroups"]}})

    def uninstall(self) -> None:
        for standin in self.standins.values():
            standin.uninstall()

    def acting(self, *scenarios: Scenario) -> ExitStack:
        """Controllers of some kinds, while the stack is open."""
        stack = ExitStack()
        for standin in dict.fromkeys(standin for scenario in scenarios for standin in scenario.standins):
            stack.enter_context(standin(self.scene.api))
        return stack

    # --- one object ---------------------------------------------------------------------------------------

    def path(self, scenario: Scenario) -> str:
        return f"/apis/{scenario.group_version}/namespaces/{self.scene.namespace}/{scenario.plural}"

    def make(self, scenario: Scenario, name: str, *, level: str | None = None) -> dict[str, Any]:
        return {
            "apiVersion": scenario.group_version,
            "kind": scenario.kind,
            "metadata": {"name": name, "namespace": self.scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}},
            "spec": scenario.spec(level or self.scene.rack),
        }

    def create(self, scenario: Scenario, name: str) -> dict[str, Any]:
        return self.scene.api.create(self.path(scenario), self.make(scenario, name))

    def suspend(self, scenario: Scenario, name: str, suspended: bool) -> None:
        body: Any = suspended
        for key in reversed(scenario.suspend_path):
            body = {key: body}
        self.scene.api.patch(f"{self.path(scenario)}/{name}", body)

    def resume(self, scenario: Scenario, name: str) -> None:
        """Queues it again. Whoever acts here is taken for topogate, whom the policies let unsuspend an object before it is admitted; its
        pods are gated at least, but for an AppWrapper, whose controller could make some of them without: it goes the way that users have.
        """
        if scenario.kind != "AppWrapper":
            self.suspend(scenario, name, False)
            return
        path = f"{self.path(scenario)}/{name}"
        self.scene.api.patch(path, {"metadata": {"labels": {QUEUE_NAME_LABEL: None}}})
        self.scene.eventually(f"{name} to be out of the queue", lambda now: now.workload_of(name) is None)
        self.scene.api.patch(path, {"metadata": {"labels": {QUEUE_NAME_LABEL: "main"}}})

    def until_started(self, scenario: Scenario, name: str) -> None:
        path = f"{self.path(scenario)}/{name}"
        wait_for(f"{path} to be started", lambda: not at(self.scene.api.get(path), scenario.suspend_path))

    def delete(self, scenario: Scenario, name: str) -> None:
        self.scene.api.request("DELETE", f"{self.path(scenario)}/{name}?propagationPolicy=Background")

    def clear(self) -> None:
        for path in {self.path(scenario) for scenario in SCENARIOS}:
            self.scene.api.request("DELETE", f"{path}?propagationPolicy=Background")
        self.scene.clear()
        self.scene.eventually("all to be gone", lambda now: not now.workloads and not now.pods_in(self.scene.namespace))

    def until_gone(self, name: str) -> None:
        def gone(now: truth.Snapshot) -> bool:
            return now.workload_of(name) is None and not [p for p in now.pods if p["metadata"]["namespace"] == self.scene.namespace]

        self.scene.eventually(f"{name} and all that is its to be gone", gone)


def name_of(scenario: Scenario) -> str:
    """Of its object; an AppWrapper's pod sets are named by it."""
    return "wrapper" if scenario.kind == "AppWrapper" else scenario.kind.lower()


def at(obj: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = obj
    for key in path:
        found = found[key]
    return found


def group_by_pod_set(now: truth.Snapshot, name: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for pod in now.pods_of(name):
        found.setdefault(pod["metadata"]["labels"][PODSET_LABEL], []).append(pod)
    return found


def check_places(stage: Stage, scenario: Scenario, name: str, now: truth.Snapshot) -> None:
    """Each pod set in one rack and where its assignment says; consecutive ranks share nodes."""
    pods = group_by_pod_set(now, name)
    assert {pod_set: len(found) for pod_set, found in pods.items()} == scenario.pods
    for found in pods.values():
        assert len({now.label_of(pod, stage.scene.rack) for pod in found}) == 1
    assert truth.as_assigned(now, name) == []
    assert truth.check_invariants(now) == []
    for pod_set in scenario.ranked:
        ranked = sorted(pods[pod_set], key=lambda pod: [int(pod["metadata"]["labels"][label]) for label in scenario.rank_labels])
        hosts = [now.label_of(pod, HOSTNAME_LABEL) for pod in ranked]
        assert hosts == sorted(hosts)
        assert len(set(hosts)) == -(-len(hosts) // 2)
    if scenario.ranked:
        # Written once the pods are ungated, and kube-scheduler is fast.
        stage.scene.eventually("the condition on ranks", lambda now: truth.is_true(now.workload_of(name), "topogate.dev/RankOrderKept"))

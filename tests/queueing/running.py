"""A scene whose verdicts take effect: workloads run, lose nodes, and wait for their checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from core.model.admission import decode_admission
from core.placement.algorithms.profile import STANDARD
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.run import Verdict
from core.queueing.cycle.second_pass import REPLACES, NodeReplacement
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.facts import NodeFacts, WorkloadFacts
from tests.builders import NAMESPACE, Node, build_node_json
from tests.queueing.scene import Scene
from tests.queueing.statuses import build_verdict_status

NOW = "2026-01-01T01:00:00Z"
Outcome = Admissible | NotAdmissible
KEEPS = NodeReplacement(fails_fast=False)


class Running(Scene):
    """A scene whose verdicts are written as the reconciler writes them, and seen at once."""

    def __init__(self, replacement: NodeReplacement = REPLACES, **options: Any) -> None:
        super().__init__(**options)
        self.cycle = Cycle(self.state, STANDARD, replacement=replacement)
        self.objects: dict[str, dict[str, Any]] = {}

    def workload(self, workload: Mapping[str, Any]) -> str:
        self.objects[workload["metadata"]["name"]] = dict(workload)
        return super().workload(workload)

    def run(self) -> dict[str, Outcome]:
        verdicts = self.verdicts()
        for verdict in verdicts:
            self.write(verdict)
        return {verdict.workload.key.partition("/")[2]: verdict.outcome for verdict in verdicts}

    def write(self, verdict: Verdict) -> None:
        name = verdict.workload.key.partition("/")[2]
        status = build_verdict_status(self.objects[name], verdict, NOW, self.state.resource_rules)
        if status is not None:
            self.set_status(name, status)

    def set_status(self, name: str, status: Mapping[str, Any]) -> None:
        wire = self.objects[name]
        version = str(int(wire["metadata"]["resourceVersion"]) + 1)
        changed = {**wire, "metadata": {**wire["metadata"], "resourceVersion": version}, "status": dict(status)}
        self.objects[name] = changed
        self.state.confirm(f"{NAMESPACE}/{name}", int(version))
        self.state.observe_workload(f"{NAMESPACE}/{name}", WorkloadFacts.read(changed))

    def lose(self, name: str, *nodes: str) -> None:
        """The workload is told that these nodes of its have failed."""
        self.set_status(name, {**self.objects[name]["status"], "unhealthyNodes": [{"name": node} for node in nodes]})

    def break_down(self, node: str) -> None:
        facts = self.state.nodes[node]
        allocatable = dict(facts.state.allocatable)
        self.state.observe_node(node, NodeFacts.read(build_node_json(Node(node, facts.labels, allocatable, ready=False))))

    def say(self, name: str, *, ready: bool = True, **more: Any) -> None:
        """What the controller of check `check` says."""
        check = {"name": "check", "state": "Ready" if ready else "Pending", "lastTransitionTime": NOW, **more}
        self.set_status(name, {**self.objects[name]["status"], "admissionChecks": [check]})

    def where(self, name: str) -> Counter[str]:
        """Pods per host, all pod sets together."""
        admission = decode_admission(self.objects[name]["status"].get("admission"))
        counts: Counter[str] = Counter()
        for given_ in admission.pod_sets if admission is not None else ():
            for domain in given_.assignment.domains if given_.assignment is not None else ():
                counts[domain.values[-1]] += domain.count
        return counts

    def conditions(self, name: str) -> dict[str, tuple[str, str]]:
        return {c["type"]: (c["status"], c["reason"]) for c in self.objects[name]["status"]["conditions"]}


def get_refusal(outcome: Outcome) -> NotAdmissible:
    assert isinstance(outcome, NotAdmissible), outcome
    return outcome


def build_running_scene(
    replacement: NodeReplacement = REPLACES, *, racks: int = 1, nodes: int = 4, cpu: int = 4, **options: Any
) -> Running:
    scene = Running(replacement, **options)
    for i in range(racks):
        scene.rack(f"r{i}", nodes, cpu=cpu)
    return scene

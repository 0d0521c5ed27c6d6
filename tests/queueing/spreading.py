"""A scene of zones, racks and hosts with workloads that are spread, and what counts them anew."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.model.admission import encode_admission
from core.names import HOSTNAME_LABEL, JOB_UID_LABEL, QUOTA_RESERVED, TOPOLOGY_SPREADING
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.facts import TopologyFacts, WorkloadFacts, build_object_key
from core.state.gated_facts import with_spreading
from tests.builders import (
    Node,
    build_condition_json,
    build_pod_set_json,
    build_topology_json,
    build_workload_json,
)
from tests.queueing.scene import Scene

ZONE, RACK = "cloud/zone", "cloud/rack"
LEVELS = (ZONE, RACK, HOSTNAME_LABEL)


def rule(key: str, share: object, mode: str | None = None) -> dict[str, Any]:
    return {"topologyKey": key, "maxShareAllowingPlacement": share} | ({"enforcementMode": mode} if mode else {})


def build_text(*rules: Mapping[str, Any], selector: tuple[str, Sequence[str]] | None = None) -> str:
    """The value of the annotation."""
    selectors = [{"key": selector[0], "operator": "In", "values": list(selector[1])}] if selector else []
    return json.dumps({"rules": list(rules)} | ({"workloadLabelSelectors": selectors} if selectors else {}))


def annotate(pod_set: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    """A pod set (JSON) with the annotation on its template."""
    notes = {} if text is None else {TOPOLOGY_SPREADING: text}
    return {**pod_set, "template": {**pod_set["template"], "metadata": {"annotations": notes}}}


class SpreadScene(Scene):
    """Flavor `tas` by zone, rack and host; with `is_on` False as if the gate were off."""

    def __init__(self, *, is_on: bool = True, levels: Sequence[str] = LEVELS, **options: Any) -> None:
        super().__init__(**options)
        self.is_on = is_on
        self.objects: dict[str, dict[str, Any]] = {}
        self.state.observe_topology("t", TopologyFacts.read(build_topology_json("t", levels)))

    def zone(self, name: str, racks: int = 1, nodes: int = 1, *, cpu: int = 4) -> None:
        for i in range(racks):
            for j in range(nodes):
                host = f"{name}{i}-{j}"
                labels = {ZONE: name, RACK: f"{name}{i}", HOSTNAME_LABEL: host}
                self.node(Node(host, labels, {"cpu": cpu * 1000, "pods": 100}))

    def workload(self, workload: Mapping[str, Any]) -> str:
        facts, key = WorkloadFacts.read(workload), build_object_key(workload)
        self.state.observe_workload(key, with_spreading(facts, workload) if self.is_on else facts)
        self.objects[key.partition("/")[2]] = dict(workload)
        return key

    def ask(
        self, name: str, text: str | None, *, required: str = ZONE, count: int = 1, cpu: str = "1", job: str | None = "job", **labels: str
    ) -> str:
        """A workload of one pod set in one domain of a level."""
        pod_set = annotate(build_pod_set_json(count=count, cpu=cpu, topology={"required": required}), text)
        return self.ask_for(name, [pod_set], job=job, **labels)

    def ask_for(
        self, name: str, pod_sets: Sequence[Mapping[str, Any]], *, job: str | None = "job", queue: str = "lq", **labels: str
    ) -> str:
        workload = build_workload_json(name, pod_sets, queue=queue)
        workload["metadata"]["labels"] = ({JOB_UID_LABEL: job} if job else {}) | labels
        return self.workload(workload)

    def decide(self) -> dict[str, Admissible | NotAdmissible]:
        """One cycle; what was admitted is written at once and seen."""
        outcomes = self.run()
        for name, outcome in outcomes.items():
            if isinstance(outcome, Admissible):
                self.write(name, outcome)
        return outcomes

    def write(self, name: str, outcome: Admissible) -> None:
        self.version += 1
        workload = self.objects[name]
        metadata = {**workload["metadata"], "resourceVersion": str(self.version)}
        status = {"admission": encode_admission(outcome.admission), "conditions": [build_condition_json(QUOTA_RESERVED)]}
        self.state.confirm(f"{metadata['namespace']}/{name}", self.version)
        self.workload({**workload, "metadata": metadata, "status": status})

    def place(self, name: str, text: str | None, level: str = ZONE, **options: Any) -> str:
        """Asks, decides, and returns the domain of a level in which the workload is; raises KeyError where it waits."""
        key = self.ask(name, text, **options)
        self.decide()
        return self.find(key, level)

    def find(self, key: str, level: str = ZONE) -> str:
        admission = self.state.workloads.find_holding(key)
        if admission is None:
            raise KeyError(key)
        places = {
            self.state.nodes[domain.values[-1]].labels[level]
            for given in admission.pod_sets
            for domain in (given.assignment.domains if given.assignment is not None else ())
        }
        [place] = places
        return place

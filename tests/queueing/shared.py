"""A scene of queues in cohorts where verdicts are written at once, and those evicted leave when the test says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.model.admission import encode_admission
from core.model.configuration import FairSharing
from core.model.pieces import run_whole
from core.model.quota_tree import FlavorResource
from core.queueing.flavors.outcome import Admissible, NotAdmissible, Preempting
from core.queueing.preemption.victim_search import search_preemption
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts, CohortFacts
from tests.builders import NAMESPACE, build_condition_json
from tests.queueing.scene import Scene

ALL_MAY = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def find_preemption(*asked: Any, **options: Any) -> Preempting | None:
    """What `search_preemption` finds, without an interruption."""
    return run_whole(search_preemption(*asked, **options))


class Shared(Scene):
    """One flavor `tas`, resource cpu; queue `q` has a LocalQueue of the same name."""

    def __init__(self, *, sharing: FairSharing | None = None) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        super().__init__(sharing=sharing)
        self.clock = 0

    def pool(self, name: str, nominal: str, cohort: str | None = None, **spec: Any) -> None:
        """A ClusterQueue and its LocalQueue; `borrowingLimit` and `lendingLimit` are of its only quota."""
        limits: dict[str, str] = {limit: spec.pop(limit) for limit in ("borrowingLimit", "lendingLimit") if limit in spec}
        quota = {"name": "cpu", "nominalQuota": nominal, **limits}
        group = {"coveredResources": ["cpu"], "flavors": [{"name": "tas", "resources": [quota]}]}
        wire = {"metadata": {"name": name}, "spec": {"namespaceSelector": {}, "resourceGroups": [group], "cohortName": cohort, **spec}}
        self.state.observe_cluster_queue(name, ClusterQueueFacts.read(wire))
        self.local_queue(name, name)

    def cohort(self, name: str, parent: str | None = None, nominal: str | None = None, weight: str = "1") -> None:
        groups = []
        if nominal is not None:
            quota = {"name": "cpu", "nominalQuota": nominal}
            groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "tas", "resources": [quota]}]}]
        wire = {"metadata": {"name": name}, "spec": {"parentName": parent, "resourceGroups": groups, "fairSharing": {"weight": weight}}}
        self.state.observe_cohort(name, CohortFacts.read(wire))

    def workload(self, workload: Mapping[str, Any]) -> str:
        self.objects[workload["metadata"]["name"]] = dict(workload)
        return super().workload(workload)

    def submit(self, name: str, count: int = 1, **options: Any) -> str:
        self.clock += 1
        options.setdefault("created", self.now)
        return super().submit(name, count, **options)

    @property
    def now(self) -> str:
        return f"2026-01-01T{self.clock // 3600:02}:{self.clock // 60 % 60:02}:{self.clock % 60:02}Z"

    def run(self) -> dict[str, Admissible | NotAdmissible]:
        """One cycle; what it decides is written, and seen, before the next."""
        self.clock += 1
        verdicts = super().run()
        self.write(verdicts)
        return verdicts

    def write(self, verdicts: Mapping[str, Admissible | NotAdmissible]) -> None:
        """Verdicts arrive at the API server, and are seen."""
        for name, outcome in verdicts.items():
            if isinstance(outcome, Admissible):
                stand = {"QuotaReserved": True, "Admitted": True, "Evicted": False, "Preempted": False}
                conditions = [build_condition_json(kind, status, time=self.now) for kind, status in stand.items()]
                self._write(name, *conditions, admission=encode_admission(outcome.admission))
            elif outcome.preempting is not None:
                for victim in outcome.preempting.victims:
                    self._write(
                        victim.workload.key.partition("/")[2],
                        build_condition_json("Evicted", time=self.now),
                        build_condition_json("Preempted", time=self.now, reason=victim.reason),
                    )

    def _write(self, name: str, *conditions: Mapping[str, Any], admission: Mapping[str, Any] | None = None) -> None:
        wire = self.objects[name]
        kept = {condition["type"]: condition for condition in wire["status"]["conditions"]}
        status = {**wire["status"], "conditions": list((kept | {condition["type"]: condition for condition in conditions}).values())}
        if admission is not None:
            status["admission"] = admission
        version = str(int(wire["metadata"]["resourceVersion"]) + 1)
        changed = {**wire, "metadata": {**wire["metadata"], "resourceVersion": version}, "status": status}
        key = f"{NAMESPACE}/{name}"
        self.objects[name] = changed
        if self.state.workloads.is_assumed(key):
            self.state.confirm(key, int(version))
        self.state.observe_workload(key, WorkloadFacts.read(changed))

    def rewrite(self, name: str) -> None:
        """What a test has changed of an object is seen."""
        self._write(name)

    def leave(self, name: str) -> None:
        """An evicted workload has stopped, and gives back what it held."""
        self.objects[name]["status"].pop("admission")
        self._write(
            name, build_condition_json("QuotaReserved", False, time=self.now), build_condition_json("Admitted", False, time=self.now)
        )

    def finish(self, name: str) -> None:
        self._write(name, build_condition_json("Finished", time=self.now))

    def running(self) -> set[str]:
        """Names of those admitted and not evicted."""
        facts = self.state.workloads.facts.values()
        return {w.key.partition("/")[2] for w in facts if w.admitted and not w.evicted and not w.finished}

    def evicted(self) -> set[str]:
        """Names of those who are to leave."""
        facts = self.state.workloads.facts.values()
        return {w.key.partition("/")[2] for w in facts if w.evicted and w.admission is not None}

    def used(self, queue: str) -> int:
        """Milli-cpu that a queue uses."""
        name: FlavorResource = ("tas", "cpu")
        return self.state.quota.get_usage(queue).get(name, 0)


def get_victims(outcome: Admissible | NotAdmissible) -> dict[str, str]:
    """Who must go for a workload, by name, and by which right."""
    assert isinstance(outcome, NotAdmissible), outcome
    assert outcome.preempting is not None, outcome.message
    return {victim.workload.key.partition("/")[2]: victim.reason for victim in outcome.preempting.victims}

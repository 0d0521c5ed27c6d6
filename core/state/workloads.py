"""Workloads with what was decided for them but not yet observed, and the quota they hold."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from core.model.admission import Admission
from core.state.facts import WorkloadFacts

FlavorResource = tuple[str, str]  # flavor, resource


@dataclass(slots=True)
class _Assumed:
    admission: Admission
    written_at: int | None = None  # resourceVersion that the write returned


class Workloads:
    """Facts per workload; an assumed decision stands in until an event at least as new as its write is seen."""

    def __init__(self) -> None:
        self.facts: dict[str, WorkloadFacts] = {}
        self._assumed: dict[str, _Assumed] = {}

    def observe(self, key: str, facts: WorkloadFacts | None) -> None:
        """Folds a workload's present facts (None: gone)."""
        if facts is None:
            self.facts.pop(key, None)
            self._assumed.pop(key, None)
            return
        known = self.facts.get(key)
        if known is not None and known.uid != facts.uid:
            self._assumed.pop(key, None)
        self.facts[key] = facts
        self._settle(key)

    def assume(self, key: str, admission: Admission) -> None:
        """Notes a decision before its write is sent."""
        self._assumed[key] = _Assumed(admission)

    def confirm(self, key: str, resource_version: int) -> None:
        """Notes the version that the write of an assumed decision returned."""
        assumed = self._assumed.get(key)
        if assumed is not None:
            assumed.written_at = resource_version
            self._settle(key)

    def forget(self, key: str) -> None:
        """Drops an assumed decision whose write failed."""
        self._assumed.pop(key, None)

    def _settle(self, key: str) -> None:
        assumed, facts = self._assumed.get(key), self.facts.get(key)
        if assumed is not None and facts is not None and assumed.written_at is not None and facts.resource_version >= assumed.written_at:
            del self._assumed[key]

    def is_assumed(self, key: str) -> bool:
        """Whether a decision on the workload is still on its way."""
        return key in self._assumed

    def holding(self, key: str) -> Admission | None:
        """The admission by which a workload holds quota and domains now: assumed, or observed and not finished."""
        assumed = self._assumed.get(key)
        if assumed is not None:
            return assumed.admission
        facts = self.facts.get(key)
        return None if facts is None or facts.finished else facts.admission

    def pending(self) -> Iterator[WorkloadFacts]:
        """Workloads that wait for a decision."""
        for key, facts in self.facts.items():
            if facts.active and not facts.finished and not facts.deleting and self.holding(key) is None:
                yield facts

    def usage(self, cluster_queue: str) -> Mapping[FlavorResource, int]:
        """Quota of a ClusterQueue that is held, per flavor and resource."""
        total: dict[FlavorResource, int] = {}
        for key in self.facts:
            admission = self.holding(key)
            if admission is not None and admission.cluster_queue == cluster_queue:
                add_usage(total, admission)
        return total


def add_usage(total: dict[FlavorResource, int], admission: Admission) -> None:
    """Adds what an admission holds, per flavor and resource."""
    for pod_set in admission.pod_sets:
        for resource, flavor in pod_set.flavors.items():
            total[flavor, resource] = total.get((flavor, resource), 0) + pod_set.usage.get(resource, 0)

"""Decisions that the API server would not take, since the object would be too large."""

from core.queueing.flavors.outcome import NotAdmissible
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts


class Unwritable:
    """Why what was decided for workloads cannot be written. It stands until their pod sets, their places or the configuration change."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._by_uid: dict[str, tuple[WorkloadFacts, int, NotAdmissible]] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self._by_uid

    def begin(self) -> None:
        """Begins a cycle: drops the entries of workloads that are gone, or were made anew under the same name."""
        facts = self._state.workloads.facts
        self._by_uid = {uid: kept for uid, kept in self._by_uid.items() if kept[0].key in facts and facts[kept[0].key].uid == uid}

    def add(self, workload: WorkloadFacts, why: NotAdmissible) -> None:
        """Records why what was decided for a workload, as its facts and the configuration are now, cannot be written; it replaces what was
        recorded for its uid."""
        self._by_uid[workload.uid] = workload, self._state.config_changes, why

    def find(self, workload: WorkloadFacts) -> NotAdmissible | None:
        """Returns why a decision on this workload, as it is now, cannot be written; None if nothing is known against it. Drops an entry for
        other pod sets, another admission, other failed nodes or checks, or an earlier configuration."""
        kept, at, why = self._by_uid.get(workload.uid, (None, -1, None))
        if kept is not None and _read_request(kept) == _read_request(workload) and at == self._state.config_changes:
            return why
        self._by_uid.pop(workload.uid, None)
        return None


def _read_request(workload: WorkloadFacts) -> tuple[object, ...]:
    return workload.pod_sets, workload.admission, workload.unhealthy_nodes, workload.checks

"""Workloads that ask for the same: within a cycle, in which room only gets less, what one was refused all others are refused, too."""

from collections.abc import Hashable

from core.queueing.outcome import NotFound
from core.state.cluster import ClusterState
from core.state.facts import PodSetFacts, WorkloadFacts


class Alike:
    """Refusals of one cycle by what was asked for."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._asked: dict[str, tuple[WorkloadFacts, Hashable]] = {}  # by uid, kept over cycles
        self._refused: dict[Hashable, NotFound] = {}

    def begin(self, uids: set[str]) -> None:
        """A cycle begins in which these wait."""
        self._refused.clear()
        if len(self._asked) > 2 * len(uids) + 64:
            self._asked = {uid: asked for uid, asked in self._asked.items() if uid in uids}

    def refusal_of(self, workload: WorkloadFacts) -> NotFound | None:
        """What somebody before it was refused who asked for the same."""
        return self._refused.get(self._key(workload)) if self._refused else None

    def note(self, workload: WorkloadFacts, refused: NotFound) -> None:
        """A refusal that is not about the workload alone. Who waits for others to go is none: the next one may need others."""
        if refused.preempting is None and not self._is_particular(workload):
            self._refused[self._key(workload)] = refused

    def _key(self, workload: WorkloadFacts) -> Hashable:
        known = self._asked.get(workload.uid)
        if known is None or known[0] is not workload:
            known = self._asked[workload.uid] = workload, _key_of(workload)
        return known[1]

    def _is_particular(self, workload: WorkloadFacts) -> bool:
        """Whether it matters which pods are there, and so how the workload's own are labelled."""
        repels = self._state.ledger.neighbours.repels
        return any(pod_set.traits.is_particular or repels(pod_set.traits) for pod_set in workload.pod_sets)


def _key_of(workload: WorkloadFacts) -> Hashable:
    asked = workload.queue, workload.priority, workload.together, workload.profile, workload.replaces
    return asked, tuple(map(_pod_set_key, workload.pod_sets))


def _pod_set_key(pod_set: PodSetFacts) -> Hashable:
    """All but the labels of its pods, which name their job."""
    traits = pod_set.traits
    return (
        pod_set.name,
        pod_set.count,
        frozenset(pod_set.requests.items()),
        pod_set.topology,
        frozenset(pod_set.node_selector.items()),
        repr(pod_set.affinity),
        repr(pod_set.tolerations),
        pod_set.group,
        pod_set.none_of,
        traits.is_particular,
        traits.unjudged,
    )

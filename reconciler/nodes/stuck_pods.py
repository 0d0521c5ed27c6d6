"""Pods that their node rejects although it serves others of their workload: reported on the Workload, and handed to the
second pass. They are deleted before another place is written for them.

Nothing but the condition is stored: a restarted process finds them again by the pods, after the same delay.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from core.model.admission import Admission
from core.plan.steps.ungate import find_strays
from core.plan.steps.writes import find_pod
from core.resource import Obj
from core.state.facts import PodFacts, WorkloadFacts
from reconciler.observe.observed import Observed


def find_moved(observed: Observed, facts: WorkloadFacts, admission: Admission) -> list[Obj]:
    """Returns the waiting pods of a workload, as observed, to which `admission` gives no place, though the workload's own admission does.
    The caller deletes them, so that others are made. Only pod sets with a topology assignment count."""
    pods = [pod for pod in observed.list_pods(facts.pods_key) if pod.owner_uid == facts.owner_uid is not None]
    before = {pod.key for pod in _find_strays(pods, facts.admission)}
    moved = [pod for pod in _find_strays(pods, admission) if pod.key not in before]
    return [seen for pod in moved if (seen := find_pod(observed.pods.store.objects, pod)) is not None]


def _find_strays(pods: Sequence[PodFacts], admission: Admission | None) -> Iterator[PodFacts]:
    """Pods that an admission gives no place."""
    for given in admission.pod_sets if admission is not None else ():
        if given.assignment is not None:
            yield from find_strays(given.assignment, [pod for pod in pods if pod.pod_set == given.name and not pod.terminal])


class StuckPods:
    """Notes them for one workload after the other; `on_change` is called when another place is to be found."""

    def __init__(self, observed: Observed) -> None:
        self._state = observed.state
        self.on_change: list[Callable[[], None]] = []

    def note(self, key: str, stuck: Mapping[str, tuple[tuple[str, int], ...]]) -> None:
        """Records the pods of a workload that their node rejects though it serves others, by pod set as (node, pods), in place of those
        before. Calls `on_change` where there are some, and others than before."""
        is_changed = self._state.stuck.get(key) != (stuck or None)
        self._state.observe_stuck(key, stuck or None)
        if stuck and is_changed:
            for notify in self.on_change:
                notify()

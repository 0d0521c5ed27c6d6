"""Pods that their node rejects although it serves others of their workload: reported on the Workload, and handed to the
second pass. They are deleted before another place is written for them.

Nothing but the condition is stored: a restarted process finds them again by the pods, after the same delay.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from core.model.admission import Admission
from core.plan.pods.node_health import NodeShare, NodeVerdict, count_stuck
from core.plan.steps import pacing
from core.plan.steps.steps import make_plan
from core.plan.steps.ungate import find_strays
from core.plan.workloads.reports import report_stuck
from core.resource import Obj
from core.state.facts import PodFacts, WorkloadFacts
from reconciler.execute.executor import Executor
from reconciler.observe.observed import Observed


def find_moved(observed: Observed, facts: WorkloadFacts, admission: Admission) -> list[Obj]:
    """Returns the waiting pods of a workload, as observed, to which `admission` gives no place, though the workload's own admission does.
    The caller deletes them, so that others are made. Only pod sets with a topology assignment count."""
    pods = [pod for pod in observed.list_pods(facts.pods_key) if pod.owner_uid == facts.owner_uid is not None]
    before = {pod.key for pod in _find_strays(pods, facts.admission)}
    moved = [pod for pod in _find_strays(pods, admission) if pod.key not in before]
    return [seen for pod in moved if (seen := observed.find_pod(pod)) is not None]


def _find_strays(pods: Sequence[PodFacts], admission: Admission | None) -> Iterator[PodFacts]:
    """Pods that an admission gives no place."""
    for given in admission.pod_sets if admission is not None else ():
        if given.assignment is not None:
            yield from find_strays(given.assignment, [pod for pod in pods if pod.pod_set == given.name and not pod.terminal])


class StuckPods:
    """Notes them for one workload after the other; `on_change` is called when another place is to be found."""

    def __init__(self, observed: Observed, executor: Executor) -> None:
        self._observed, self._executor = observed, executor
        self.on_change: list[Callable[[], None]] = []

    async def note(self, workload: Obj, facts: WorkloadFacts, judged: Mapping[str, tuple[NodeShare, NodeVerdict]]) -> list[float]:
        """Records the pods of a workload that their node rejects though it serves others, in place of those before, and reports them in its
        condition. Calls `on_change` where there are some, and others than before. `judged` has the share and the verdict of each node, by
        name. Pods that no controller makes again (`WorkloadFacts.remade`) do not count.

        Returns the seconds after which to look again: one value, or none where no pod is stuck. Raises KubeError where the condition is not
        written."""
        places: dict[str, list[tuple[str, int]]] = {}
        reported: list[tuple[str, PodFacts]] = []
        for node in sorted(judged):
            share, verdict = judged[node]
            counts = count_stuck(share, verdict.stuck) if verdict.stuck and facts.remade else {}
            for pod_set, count in counts.items():
                places.setdefault(pod_set, []).append((node, count))
            reported += [(node, pod) for pod in verdict.stuck if counts]
        stuck = {pod_set: tuple(found) for pod_set, found in places.items()}
        state = self._observed.state
        is_news = state.stuck.get(facts.key) != (stuck or None)
        state.observe_stuck(facts.key, stuck or None)
        if stuck and is_news:
            for notify in self.on_change:
                notify()
        await self._executor.execute(make_plan(report_stuck(workload, reported, self._executor.format_now())))
        return [pacing.STUCK_LOOK_S] if stuck else []

    async def drop(self, workload: Obj | None, key: str) -> None:
        """Removes the rejected pods that are remembered of a workload that does not run or is gone (`workload` None), and ends its
        condition about them. Raises KubeError where that is not written."""
        self._observed.state.observe_stuck(key, None)
        if workload is not None:
            await self._executor.execute(make_plan(report_stuck(workload, (), self._executor.format_now(), runs=False)))

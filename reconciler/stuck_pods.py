"""Pods that their node does not take though it serves others of their workload: reported on the Workload, and handed to the second pass.
Before another place is written for them they are deleted.

Nothing of it is kept but the condition: who starts anew finds them again by the pods, after the same delay.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from core.model.admission import Admission
from core.names import PODS_SCHEDULABLE
from core.plan import resources as r
from core.plan.conditions import Condition
from core.plan.node_health import Share, Verdict, count_stuck
from core.plan.ungate import find_strays
from core.resource import Obj
from core.state.facts import PodFacts, WorkloadFacts
from reconciler.conditions import report_condition
from reconciler.execute import Executor
from reconciler.observed import Observed

logger = logging.getLogger(__name__)
MANAGER = "topogate-node-health"
LOOK_S = 10.0  # while there are any: a decision whose write has failed is made again
_NAMED = 3
_WELL = "All pods are scheduled, or wait for no longer than usual"


def find_moved(observed: Observed, facts: WorkloadFacts, admission: Admission) -> list[Obj]:
    """Pods of a workload that wait where another admission gives them no place any more, so that others are made for that."""
    pods = [pod for pod in observed.pods_of(facts.pods_key) if pod.owner_uid == facts.owner_uid is not None]
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

    async def note(self, workload: Obj, facts: WorkloadFacts, judged: Mapping[str, tuple[Share, Verdict]]) -> list[float]:
        """By what was judged of its nodes, by name; in how many seconds to look again."""
        places: dict[str, list[tuple[str, int]]] = {}
        told: list[tuple[str, PodFacts]] = []
        for node in sorted(judged):
            share, verdict = judged[node]
            counts = count_stuck(share, verdict.stuck) if verdict.stuck and facts.remade else {}
            for pod_set, count in counts.items():
                places.setdefault(pod_set, []).append((node, count))
            told += [(node, pod) for pod in verdict.stuck if counts]
        stuck = {pod_set: tuple(found) for pod_set, found in places.items()}
        state = self._observed.state
        is_news = state.stuck.get(facts.key) != (stuck or None)
        state.observe_stuck(facts.key, stuck or None)
        if stuck and is_news:
            for tell in self.on_change:
                tell()
        await self._tell(workload, told, _WELL)
        return [LOOK_S] if stuck else []

    async def forget(self, workload: Obj | None, key: str) -> None:
        """Of one that does not run, or is gone."""
        self._observed.state.observe_stuck(key, None)
        if workload is not None:
            await self._tell(workload, (), "The workload does not run")

    async def _tell(self, workload: Obj, told: Sequence[tuple[str, PodFacts]], well: str) -> None:
        before = [c for c in (workload.get("status") or {}).get("conditions") or () if c.get("type") == PODS_SCHEDULABLE]
        if not told and not before:
            return  # of most there is nothing to say
        condition = Condition(PODS_SCHEDULABLE, True, "Scheduled", well)
        if told:
            texts = [
                f"pod {pod.key.partition('/')[2]} cannot be scheduled on node {node}, where others of its workload run: "
                f"{pod.unschedulable or 'Unschedulable'}"
                for node, pod in told[:_NAMED]
            ]
            more = f" and {len(told) - _NAMED} more pods" if len(told) > _NAMED else ""
            condition = Condition(PODS_SCHEDULABLE, False, "Unschedulable", f"{'; '.join(texts)}{more}. Another place is looked for")
        if await report_condition(self._executor, workload, condition, MANAGER) and not condition.status:
            logger.warning("pods cannot be scheduled", extra={"workload": workload["metadata"]["name"], "why": condition.message})
            self._executor.reporter.event(r.WORKLOADS, workload, condition.reason, condition.message, warning=True)

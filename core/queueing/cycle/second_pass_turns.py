"""The turns of second passes: workloads that have quota already come before all that have none yet.

Where they take longer than a cycle may, the next cycle is for the other turns, and the one after it continues them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from core.names import REASON_ADMISSIONS_PAUSED, REASON_MISCONFIGURED
from core.placement.algorithms.profile import Profiles
from core.placement.refusals import truncate
from core.queueing.cycle.run import Run, Verdict
from core.queueing.cycle.second_pass import NodeReplacement, find_second_pass, has_stuck_pods, list_due_for_second_pass, refuse_unwritable
from core.queueing.cycle.unwritable import Unwritable
from core.queueing.flavors.outcome import Admissible, NotAdmissible, Outcome
from core.queueing.preemption.reservations import Claims
from core.state.cluster import ClusterState
from core.state.facts import CheckState, WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts


@dataclass(slots=True)
class SecondPassTurns:
    """Judges workloads again; remembers at which state each failed last."""

    _state: ClusterState
    _profiles: Profiles
    _replacement: NodeReplacement
    _claims: Claims
    _unwritable: Unwritable
    _is_in_storm: Callable[[WorkloadFacts], bool]
    are_cut: bool = False  # whether there are some that have had no turn
    _passed: set[str] = field(default_factory=set)  # uids of workloads that have had their turn since all had one
    failed_at: dict[str, tuple[int, tuple[CheckState, ...], frozenset[str]]] = field(default_factory=dict)  # by uid, at which state

    def judge(self, run: Run) -> Iterator[Verdict]:
        """Yields the verdicts of second passes until all that are due have had their turn, or `run.may_go_on` returns False after the first
        (`are_cut`). Each place is assumed in the state before it is yielded."""
        due, is_again = list_due_for_second_pass(self._state, self._replacement), False
        self._passed.intersection_update(w.uid for w in due)
        self.failed_at = {w.uid: self.failed_at[w.uid] for w in due if w.uid in self.failed_at}
        for workload in due:
            queue = self._state.cluster_queues[workload.admission.cluster_queue] if workload.admission is not None else None
            now = self._state.changes, workload.checks, workload.unhealthy_nodes
            if queue is None or self.failed_at.get(workload.uid) == now or run.is_held_back(workload.uid) or run.is_busy(workload.uid):
                continue
            if (workload.unhealthy_nodes or has_stuck_pods(self._state, workload)) and self._is_in_storm(workload):
                continue
            if workload.uid in self._passed:
                is_again = True
                continue
            if run.has_decided and not run.may_go_on():
                self.are_cut = True
                return
            self._passed.add(workload.uid)
            run.current, run.has_decided = workload, True
            self._state.release_beside(workload.key)
            outcome = self._judge_again(workload, queue)
            if isinstance(outcome, Admissible):
                plan = {placement.pod_set: placement.nodes for _, placement in outcome.placements}
                self._state.assume(workload.key, outcome.admission, plan, dict(outcome.leaves))
                self._state.observe_stuck(workload.key, None)  # a pod that is stuck from now on is so on its new nodes
            else:
                self.failed_at[workload.uid] = now
                if outcome.preempting is not None or not (outcome.reason == REASON_ADMISSIONS_PAUSED or self._claims.is_awaiting(workload)):
                    self._claims.reserve_replacement(workload, outcome.preempting)
                else:
                    self._claims.reserve_rest(workload)
            run.current = None
            yield Verdict(workload, outcome, is_second_pass=True)
        self._passed.clear()
        self.are_cut = is_again or (run.has_decided and not run.may_go_on())

    def _judge_again(self, workload: WorkloadFacts, queue: ClusterQueueFacts) -> Outcome:
        """Returns the outcome of a second pass. A workload without a place would be evicted. It keeps what it has while evictions are
        paused, and while workloads that were evicted for it have not left: a node may become ready again meanwhile."""
        pause = self._state.pause
        if pause.admissions is not None:
            return NotAdmissible(REASON_ADMISSIONS_PAUSED, f"no place is looked for: {pause.admissions.sentence}", ())
        keeps = replace(self._replacement, fails_fast=False)
        outcome = self._judge_second_pass(workload, queue, keeps if self._claims.is_awaiting(workload) else self._replacement)
        if pause.evictions is None or isinstance(outcome, Admissible):
            return outcome
        if outcome.preempting is not None:
            if not outcome.preempting.victims:
                return outcome
            why = f"it would take back the spare nodes that it lent, but {pause.evictions.sentence}; {outcome.message}"
            return replace(outcome, message=truncate(why), preempting=None)
        if not outcome.evicts:
            return outcome
        outcome = self._judge_second_pass(workload, queue, keeps)
        assert isinstance(outcome, NotAdmissible)
        return replace(outcome, message=truncate(f"it would be evicted, but {pause.evictions.sentence}; {outcome.message}"))

    def _judge_second_pass(self, workload: WorkloadFacts, queue: ClusterQueueFacts, replacement: NodeReplacement) -> Outcome:
        if (unwritable := self._unwritable.find(workload)) is not None:
            return refuse_unwritable(workload, unwritable, replacement)
        try:
            return find_second_pass(self._state, workload, queue, self._profiles, replacement, self._claims.list_leaving())
        except Exception as error:
            return NotAdmissible(REASON_MISCONFIGURED, truncate(f"the workload cannot be placed: {error!r}"), ())

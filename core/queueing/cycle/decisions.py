"""Decisions in pieces: interrupted where they take longer than a step of the event loop may, and confirmed before they are applied.

See docs/decisions/0001-no-object-stops-or-cheats-it.md.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from core.model.pieces import Pieces, run_piece, run_whole
from core.queueing.cycle.judge import Judge
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.ordering.standing_refusals import Marks, read_marks
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts

# Decisions in pieces that do not hold in the end. The next is made in one piece with so few steps that this takes at most 100 ms.
MOST_THROWN_AWAY, ONE_PIECE_STEPS = 2, 20_000


@dataclass(slots=True)
class _Decision:
    """A decision that takes longer than one step of the loop may; `marks` are of the state in which it began."""

    workload: WorkloadFacts
    queue: ClusterQueueFacts
    judge: Judge
    pieces: Pieces[Admissible | NotAdmissible]
    marks: Marks
    outcome: Admissible | NotAdmissible | None = None
    is_interrupted: bool = False

    def is_about(self, workload: WorkloadFacts, queue: ClusterQueueFacts) -> bool:
        """Whether the workload and its queue are unchanged, apart from what else was written on the workload."""
        return replace(self.workload, resource_version=workload.resource_version) == workload and self.queue == queue


class Decisions:
    """Decides on workloads; `run_piece` continues interrupted decisions."""

    def __init__(self, state: ClusterState, make_judge: Callable[[], Judge]) -> None:
        self._state = state
        self._make_judge = make_judge
        self._by_uid: dict[str, _Decision] = {}  # those that were interrupted and not applied yet
        self._unfinished: _Decision | None = None  # the one of them that `run_piece` continues
        self._thrown_away: dict[str, int] = {}  # by uid: how many decisions in pieces did not hold in the end
        self.noted_at: Marks | None = None  # when the last refusal began, if it was decided in pieces

    @property
    def unfinished(self) -> WorkloadFacts | None:
        """Returns the workload of the interrupted decision that `run_piece` continues; None if there is no such decision."""
        return self._unfinished.workload if self._unfinished is not None else None

    def has_begun(self, workload: WorkloadFacts, queue: ClusterQueueFacts) -> bool:
        """Whether a decision on a workload was interrupted, and `decide` has not applied it yet. False where the workload or its queue
        differ from then in more than the resource version."""
        decision = self._by_uid.get(workload.uid)
        return decision is not None and decision.is_about(workload, queue)

    def begin(self, pending: Container[str]) -> None:
        """Begins a cycle: drops decisions on workloads with a uid that is not in `pending`. The others are kept until `decide` is called
        for them; none is `unfinished` now."""
        self._by_uid = {uid: decision for uid, decision in self._by_uid.items() if uid in pending}
        self._thrown_away = {uid: count for uid, count in self._thrown_away.items() if uid in pending}
        self._unfinished = None

    def remove(self, uid: str | None) -> None:
        """Removes the decision on the workload with this uid, unless it is None. In any case no decision is `unfinished` then, and
        `noted_at` is None."""
        if uid is not None:
            self._by_uid.pop(uid, None)
        self._unfinished, self.noted_at = None, None

    def run_piece(self, may_go_on: Callable[[], bool]) -> None:
        """Continues the unfinished decision, if there is one: one piece, and more as long as `may_go_on` returns True after each. The
        outcome is kept for `decide`."""
        if self._unfinished is not None:
            self._run(self._unfinished, may_go_on)

    def decide(self, workload: WorkloadFacts, queue: ClusterQueueFacts, may_go_on: Callable[[], bool]) -> Admissible | NotAdmissible | None:
        """Returns the decision on a workload; None where it takes longer: it is `unfinished` then, and a later call continues it. One that
        was interrupted is confirmed first, and made anew where it does not hold: the third time in one piece with fewer steps. Sets
        `noted_at` to the marks of an interrupted refusal's begin, else to None."""
        self.noted_at, uid, decision = None, workload.uid, self._by_uid.pop(workload.uid, None)
        if decision is not None and not decision.is_about(workload, queue):
            self._drop(uid)
            decision = None
        if decision is None:
            judge = self._make_judge()
            if self._thrown_away.get(uid, 0) >= MOST_THROWN_AWAY:
                del self._thrown_away[uid]
                return run_whole(judge.judge(workload, queue, ONE_PIECE_STEPS))
            decision = _Decision(workload, queue, judge, judge.judge(workload, queue), read_marks(self._state, workload, queue))
        if decision.outcome is None:
            self._run(decision, may_go_on)
        if decision.outcome is None:
            self._by_uid[uid] = decision
            return None
        outcome: Admissible | NotAdmissible | None = decision.outcome
        if decision.is_interrupted:
            outcome = decision.judge.confirm(decision.outcome, workload, queue)
            if isinstance(outcome, NotAdmissible) and outcome.preempting is None:
                self.noted_at = decision.marks
        if outcome is None:
            self._drop(uid)
            return self.decide(workload, queue, may_go_on)
        self._thrown_away.pop(uid, None)
        return outcome

    def _run(self, decision: _Decision, may_go_on: Callable[[], bool]) -> None:
        done = run_piece(decision.pieces, lambda: not may_go_on())
        decision.outcome = done[0] if done is not None else None
        decision.is_interrupted |= done is None
        self._unfinished = decision if done is None else None

    def _drop(self, uid: str) -> None:
        """After some decisions in pieces that did not hold the next is made at once, with fewer steps."""
        self._thrown_away[uid] = self._thrown_away.get(uid, 0) + 1
        self._unfinished = None

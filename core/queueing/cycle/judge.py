"""The decision on one workload when its turn has come: it is admitted, it waits, or it waits until preempted workloads
are gone."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from core.model.configuration import FairSharing
from core.model.pieces import Pieces, run_whole
from core.model.quantity import show_count
from core.model.step_budget import DECISION_STEPS, PLACEMENT_STEPS, StepBudget
from core.names import (
    MIN_PARALLELISM,
    REASON_MISCONFIGURED,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    REASON_WAITING_FOR_PREEMPTED,
    REASON_WAITING_FOR_QUOTA,
)
from core.placement.algorithms.profile import Profiles
from core.placement.refusals import truncate
from core.queueing.cycle.growth import find_growth
from core.queueing.cycle.rules import find_violation
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import CURABLE, Admissible, NotAdmissible, Preempting, name_workloads
from core.queueing.flavors.spare_lending import Offer, list_offers, note_loans
from core.queueing.flavors.what_if_view import World
from core.queueing.ordering.partial_admission import can_shrink, find_largest, show_minimum
from core.queueing.ordering.standing_refusals import can_be_given, compute_asked
from core.queueing.preemption.preemption_policy import Memory, list_unseen
from core.queueing.preemption.reservations import Claims, show
from core.queueing.preemption.victim_search import search_preemption
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import STOP, TRY_NEXT, ClusterQueueFacts

PREEMPTION_STEPS = 300_000  # of a decision's
CONFIRM_STEPS = 30_000  # of confirming a decision that was made in pieces
_CUT = "the search for workloads to preempt stopped at its limit of steps"
_CIRCLE = "until one of them ends it does not preempt workloads for which it was evicted itself, directly or through others: {}"


@dataclass(frozen=True, slots=True)
class PreemptionQuestion:
    """The question by which a decision came to a preemption: for which pods, with which flavors, and whether quota may
    be borrowed.

    `is_rather`: the workload would fit without; `tried`: the message why nothing else was chosen.
    """

    workload: WorkloadFacts
    queue: ClusterQueueFacts
    tried: str = ""
    may_borrow: bool = True
    is_rather: bool = False


class Judge:
    """Decides on workloads by the present state and the reservations of other workloads. `shrinks`: workloads may be
    admitted with fewer pods (gate PartialAdmission)."""

    def __init__(
        self, state: ClusterState, profiles: Profiles, claims: Claims, sharing: FairSharing | None = None, *, shrinks: bool = True
    ) -> None:
        self._state, self._profiles, self._claims, self._sharing, self._shrinks = state, profiles, claims, sharing, shrinks
        self._budget = StepBudget(DECISION_STEPS)  # of the workload that is being judged
        self._asked: PreemptionQuestion | None = None
        self._memory = Memory()
        self._is_cut = False  # whether a search for workloads to preempt has stopped for want of steps

    def judge(self, workload: WorkloadFacts, queue: ClusterQueueFacts, steps: int = DECISION_STEPS) -> Pieces[Admissible | NotAdmissible]:
        """Yields None wherever it may be interrupted, and returns the decision on a workload. An error in it is a refusal
        (REASON_MISCONFIGURED), so that one workload does not keep the others from being judged. `steps` limit its searches.

        Where this is interrupted, and the state changes meanwhile, what it returns is to be confirmed.
        """
        if workload.refused:
            return NotAdmissible(REASON_MISCONFIGURED, truncate(f"its pods cannot start: {workload.refused}"), ())
        self._budget, self._is_cut, self._asked = StepBudget(steps), False, None
        try:
            if workload.replaces is not None:
                return find_growth(self._state, workload, queue, self._profiles)
            outcome = self._find_admission(workload, queue)
            # What is for one pod set alone keeps it from fitting; a tie of all could be broken and fit all the same.
            suspicious = isinstance(outcome, NotAdmissible) or workload.together is not None
            broken = find_violation(self._state, workload, queue) if suspicious else None
            if broken is not None:
                return NotAdmissible(REASON_MISCONFIGURED, broken, outcome.attempts, breaks_rule=True)
            if isinstance(outcome, NotAdmissible) and outcome.reason == REASON_TOPOLOGY_PLACEMENT_FAILED:
                borrowing = self._with_borrowed_spares(workload, queue)
                if borrowing is not None:
                    return borrowing
            outcome = yield from self._judge_with_preemption(workload, queue, outcome)
            if isinstance(outcome, NotAdmissible) and outcome.preempting is None and self._shrinks and can_shrink(workload):
                outcome = yield from self._with_fewer_pods(workload, queue, outcome)
            if isinstance(outcome, Admissible) and outcome.borrows and self._has_reclaimed(workload):
                own = yield from self._find_without_borrowing(workload, queue)
                outcome = outcome if own is None else replace(own, fewer_since=outcome.fewer_since)
            if isinstance(outcome, NotAdmissible) and outcome.preempting is None and self._memory.spared:
                return replace(outcome, spares=True)  # also where they were spared with fewer pods
            return outcome
        except Exception as error:
            return NotAdmissible(REASON_MISCONFIGURED, truncate(f"the workload cannot be judged: {error!r}"), ())

    def confirm(
        self, outcome: Admissible | NotAdmissible, workload: WorkloadFacts, queue: ClusterQueueFacts
    ) -> Admissible | NotAdmissible | None:
        """Returns what this judge decided in pieces, as it holds in the state now; None if it does not hold any more. An admission may have
        other nodes or flavors by then, but borrows only if it did; a preemption has no victims but those before. While evictions are paused
        no preemption with victims holds. Unlike in `judge` an error is raised.

        A refusal without preemption is returned as it is: the caller records at which state it was made.
        """
        self._budget, asked = StepBudget(CONFIRM_STEPS), self._asked
        if isinstance(outcome, NotAdmissible) and (outcome.preempting is None or asked is None):
            return outcome
        if isinstance(outcome, Admissible):
            whole = _with_counts(workload, outcome)
            again = self._find_admission(whole, queue)
            if isinstance(again, Admissible) and again.borrows and not outcome.borrows:
                again = self._find_admission(whole, _build_without_borrowing(queue))
            is_kept = isinstance(again, Admissible) and (outcome.borrows or not again.borrows)
            return replace(again, fewer_since=outcome.fewer_since) if isinstance(again, Admissible) and is_kept else None
        assert asked is not None
        assert outcome.preempting is not None
        if outcome.preempting.victims and self._state.pause.evictions is not None:
            return None
        world = World(self._state, explains=False, budget=self._budget.split_off(PLACEMENT_STEPS))
        if not asked.is_rather and isinstance(find_admission(self._state, asked.workload, queue, self._profiles, world), Admissible):
            return None
        before, keys = outcome.preempting, frozenset(victim.workload.key for victim in outcome.preempting.victims)
        now = run_whole(self._preempt(asked.workload, asked.queue, may_borrow=asked.may_borrow, among=keys))
        if now is None:
            return None
        by_key = {victim.workload.key: victim for victim in now.victims}
        victims = tuple(by_key[key] for key in (victim.workload.key for victim in before.victims) if key in by_key)
        now = replace(now, victims=victims, is_cut=before.is_cut or (now.is_cut and len(now.victims) != len(before.victims)))
        return replace(outcome, message=truncate(f"{asked.tried}; {show(now, asked.workload)}"), preempting=now)

    def _find_admission(
        self, workload: WorkloadFacts, queue: ClusterQueueFacts, offers: Sequence[Offer] = ()
    ) -> Admissible | NotAdmissible:
        """A way to be admitted as things are, spares that are offered to it counted."""
        world = World(self._state, offers=offers, budget=self._budget.split_off(PLACEMENT_STEPS))
        return find_admission(self._state, workload, queue, self._profiles, world)

    def _has_reclaimed(self, workload: WorkloadFacts) -> bool:
        """Whether others were evicted for a workload, and what it was to get for that need not be borrowed."""
        claim = self._claims.find_preempting(workload.uid)
        return claim is not None and not claim.found.borrows and self._claims.is_preemptor(workload.uid)

    def _find_without_borrowing(self, workload: WorkloadFacts, queue: ClusterQueueFacts) -> Pieces[Admissible | None]:
        """The most pods that can be admitted without borrowing; None if there are none.

        For a workload that got back quota of its own queue: if it took more than that, it would be evicted for that in its turn.
        """
        queue = _build_without_borrowing(queue)

        def judge(smaller: WorkloadFacts) -> Pieces[Admissible | NotAdmissible]:
            yield
            outcome = self._find_admission(smaller, queue)
            borrows = isinstance(outcome, Admissible) and outcome.borrows
            return NotAdmissible(REASON_WAITING_FOR_QUOTA, "it would have to borrow quota", ()) if borrows else outcome

        outcome: Admissible | NotAdmissible | None = yield from judge(workload)
        if not isinstance(outcome, Admissible) and self._shrinks and can_shrink(workload):
            outcome = yield from find_largest(workload, judge)
        return outcome if isinstance(outcome, Admissible) else None

    def _with_borrowed_spares(self, workload: WorkloadFacts, queue: ClusterQueueFacts) -> Admissible | None:
        """Returns an admission on spare nodes that workloads of higher priority lend, for a workload that has no other
        place. None: there is none.

        A workload that waits for its victims to leave gets no lent nodes. A workload that asks for spare nodes gets
        none either: a spare node is not reserved on the spare node of another workload.
        """
        if self._claims.find_preempting(workload.uid) is not None or any(pod_set.spares for pod_set in workload.pod_sets):
            return None
        offers = list_offers(self._state, workload.priority)
        if not offers:
            return None
        found = self._find_admission(workload, queue, offers)
        return note_loans(self._state, workload, found, offers) if isinstance(found, Admissible) else None

    def _judge_with_preemption(
        self, workload: WorkloadFacts, queue: ClusterQueueFacts, outcome: Admissible | NotAdmissible
    ) -> Pieces[Admissible | NotAdmissible]:
        if isinstance(outcome, Admissible):
            return (yield from self._prefer_preemption(workload, queue, outcome))
        return (yield from self._with_preemption(workload, queue, outcome))

    def _with_fewer_pods(
        self, workload: WorkloadFacts, queue: ClusterQueueFacts, refused: NotAdmissible
    ) -> Pieces[Admissible | NotAdmissible]:
        """Admits the largest number of pods that fits, with preemption if need be, where not even preemption makes the
        whole workload fit (as Kueue does)."""
        attempts = list(refused.attempts)  # what would help the fewest pods is worth another look at all

        def judge(smaller: WorkloadFacts) -> Pieces[Admissible | NotAdmissible]:
            yield
            outcome = yield from self._judge_with_preemption(smaller, queue, self._find_admission(smaller, queue))
            pods = {pod_set.name: pod_set.count for pod_set in smaller.pod_sets if pod_set.min_count is not None}
            attempts.extend(replace(attempt, pods=pods.get(attempt.pod_set)) for attempt in outcome.attempts)
            return outcome

        outcome = yield from find_largest(workload, judge)
        if isinstance(outcome, Admissible):
            return replace(outcome, fewer_since=refused.message)
        if outcome is not None:
            return outcome
        minimum = f"the minimum of {MIN_PARALLELISM} ({show_minimum(workload)})"
        message = truncate(f"{refused.message.removesuffix('.')}; {minimum} does not fit either")
        return replace(refused, message=message, attempts=tuple(attempts))

    def _with_preemption(self, workload: WorkloadFacts, queue: ClusterQueueFacts, refused: NotAdmissible) -> Pieces[NotAdmissible]:
        """A refusal that becomes a wait, if it helps that others go."""
        if refused.reason not in CURABLE or not (queue.preemption.is_possible or self._claims.list_leaving()):
            return refused
        asked = compute_asked(self._state, workload, queue)
        by_share, unseen = self._sharing is not None, self._claims.list_unseen()
        has_claim = self._claims.find_preempting(workload.uid) is not None  # then the victims that it waits for are already chosen
        if not has_claim and not can_be_given(self._state, workload, queue, asked, by_share=by_share, unseen=unseen):
            return refused
        preempting = yield from self._preempt(workload, queue)
        if preempting is None:
            notes, spared = [_CUT] if self._is_cut else [], sorted(self._memory.spared)
            if spared and (yield from self._preempt(workload, queue, spares=False)) is not None:
                notes.append(_CIRCLE.format(name_workloads(spared, workload)))
            message = truncate("; ".join([refused.message, *notes]))
            return replace(refused, message=message) if notes else refused
        stop = self._state.pause.evictions
        if preempting.victims and stop is not None:  # decided as if preemption were impossible; only the message differs
            message = truncate(
                f"it could preempt {show_count(len(preempting.victims), 'workload')}, but {stop.sentence}; {refused.message}"
            )
            return replace(refused, message=message)
        self._asked = PreemptionQuestion(workload, queue, refused.message)
        message = truncate(f"{refused.message}; {show(preempting, workload)}")
        return NotAdmissible(REASON_WAITING_FOR_PREEMPTED, message, refused.attempts, preempting=preempting)

    def _prefer_preemption(
        self, workload: WorkloadFacts, queue: ClusterQueueFacts, found: Admissible
    ) -> Pieces[Admissible | NotAdmissible]:
        """Returns the admission, or a preemption where the queue prefers one to the next flavor or to borrowing.

        A workload for which others were evicted evicts no more of them once it fits: other workloads would take what it
        has freed in one flavor while it frees room in the next.
        """
        policy = queue.fungibility
        passed_over = [attempt.flavor for attempt in found.attempts if attempt.reason in CURABLE]
        preempting, asked = None, PreemptionQuestion(workload, queue, is_rather=True)
        if policy.when_can_preempt == STOP and passed_over and queue.preemption.is_possible:
            asked = replace(asked, queue=queue.copy_up_to(passed_over[0]), may_borrow=policy.when_can_borrow == STOP)
            preempting = yield from self._preempt(workload, asked.queue, may_borrow=asked.may_borrow)
        if preempting is None and policy.prefers_preemption and found.borrows and queue.preemption.is_possible:
            asked = replace(asked, queue=queue, may_borrow=False)
            preempting = yield from self._preempt(workload, queue, may_borrow=False)
        if preempting is None or (preempting.victims and self._state.pause.evictions is not None):
            return found
        if preempting.victims and self._claims.is_preemptor(workload.uid):
            return found
        tried = "; ".join(dict.fromkeys(attempt.sentence for attempt in found.attempts)) or "it would have to borrow quota"
        self._asked = replace(asked, tried=tried)
        return NotAdmissible(
            REASON_WAITING_FOR_PREEMPTED, truncate(f"{tried}; {show(preempting, workload)}"), found.attempts, preempting=preempting
        )

    def _preempt(
        self,
        workload: WorkloadFacts,
        queue: ClusterQueueFacts,
        *,
        may_borrow: bool = True,
        among: Collection[str] | None = None,
        spares: bool = True,
    ) -> Pieces[Preempting | None]:
        """The workloads to preempt, if that helps. One that leaves a queue of another root cohort gives no quota: it is waited for only if
        those of this cohort do not help, and then for one that it may preempt as soon as its admission is observed: if it had no room
        reserved until then, others of lower priority could be admitted again and again. `spares`: those with which evictions would go in a
        circle do not go."""
        leaving, workloads = self._claims.list_leaving(), self._state.workloads
        spared = self._claims.circles.find_spared(workload.party) if spares else ()
        near = {queue.name, *self._state.quota.list_relatives(queue.name)}
        of_near = {key for key in leaving if (held := workloads.find_holding(key)) is not None and held.cluster_queue in near}
        may_evict = self._state.pause.evictions is None
        unseen = list_unseen(self._state, workload, queue, spared) if may_evict else set[str]()
        ways = [of_near] + ([leaving] if of_near != leaving else []) + ([leaving | unseen] if unseen else [])
        for gone in ways:
            budget = (
                self._budget.split_off(PREEMPTION_STEPS) if spares else StepBudget(CONFIRM_STEPS)
            )  # that search is for a sentence alone
            found = yield from search_preemption(
                self._state,
                workload,
                queue,
                self._profiles,
                gone,
                may_borrow=may_borrow,
                sharing=self._sharing,
                budget=budget,
                among=among,
                memory=self._memory,
                spared=spared,
            )
            self._is_cut |= spares and budget.ran_out
            if found is not None:
                return replace(found, leaving=tuple(sorted(gone & leaving)), unseen=tuple(sorted(gone - leaving)))
        return None


def _build_without_borrowing(queue: ClusterQueueFacts) -> ClusterQueueFacts:
    """The queue as one that tries the next flavor before it borrows."""
    return replace(queue, fungibility=replace(queue.fungibility, when_can_borrow=TRY_NEXT))


def _with_counts(workload: WorkloadFacts, found: Admissible) -> WorkloadFacts:
    """The workload with as many pods as were found a place for."""
    counts = {given.name: given.count for given in found.admission.pod_sets}
    return replace(workload, pod_sets=tuple(replace(pod_set, count=counts[pod_set.name]) for pod_set in workload.pod_sets))

"""One decision cycle over a batch of workloads; each is decided on with the usage of those before it.

A decision counts as usage in the state at once (decision 7 of docs/decisions/0004), so two workloads cannot both get the same rack in
one cycle. A refused workload is decided on again only after something that could help has changed; a refusal holds for all workloads that
ask its queue for the same. A workload that would have to borrow has its turn after all that need not, and with it those behind it in its
queue: otherwise one of higher priority would borrow what is reclaimed. What evicted workloads release for a preemptor is reserved for it:
workloads behind it in the queue see it as used, those before it do not. So a preemption leads to the admission it was made for.
"""

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from itertools import islice

from core.model.configuration import FairSharing
from core.model.pods_ready_rules import PodsReadyRules
from core.names import REASON_PENDING_EVALUATION
from core.placement.algorithms.profile import Profiles
from core.queueing.cycle.block_admission import find_obstacle
from core.queueing.cycle.decisions import Decisions
from core.queueing.cycle.judge import Judge
from core.queueing.cycle.queue_resolution import resolve_queue
from core.queueing.cycle.run import Run, Verdict
from core.queueing.cycle.second_pass import REPLACES, NodeReplacement
from core.queueing.cycle.second_pass_turns import SecondPassTurns
from core.queueing.cycle.unwritable import Unwritable
from core.queueing.flavors.leftover_pods import Past
from core.queueing.flavors.outcome import PASSING, Admissible, NotAdmissible
from core.queueing.ordering.fair_order import FairTurns
from core.queueing.ordering.iteration_order import MOST_SORTED, PriorityTurns, Turn, Turns
from core.queueing.ordering.pending import EquivalenceClass, Order, Pending, find_heads
from core.queueing.ordering.portions import DecisionRequest, Portions
from core.queueing.ordering.precedence import Precedence
from core.queueing.ordering.standing_refusals import StandingRefusal, is_particular
from core.queueing.preemption.reservations import Claims
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts

MOST_LOOKED_AT = 2_000  # groups that one cycle looks at again, in some 10 ms
REPEATED_FOR_S = 2.0  # of a round, from its begin


class Cycle:
    """Decides on pending workloads; remembers at which state each was refused last."""

    def __init__(
        self,
        state: ClusterState,
        profiles: Profiles,
        pods_ready: PodsReadyRules | None = None,
        replacement: NodeReplacement = REPLACES,
        sharing: FairSharing | None = None,
        *,
        shrinks: bool = True,
        is_in_storm: Callable[[WorkloadFacts], bool] = lambda workload: False,
        timer: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._state = state
        self._pods_ready = pods_ready
        self._claims = Claims(state)
        self._pending = Pending(state.workloads, pods_ready, self._find_trait)
        self._decisions = Decisions(state, partial(Judge, state, profiles, self._claims, sharing, shrinks=shrinks))
        self._sharing = sharing
        self._own: dict[str, StandingRefusal] = {}  # of workloads that the refusal of their class does not hold for, by uid
        self._reported: dict[str, tuple[str, str]] = {}  # reason and message, by uid
        self._walk: Iterator[tuple[EquivalenceClass, WorkloadFacts]] = iter(())  # over workloads that may need another reason
        self._is_stale = self._is_walking = self._is_reporting = False  # there are such; the walk goes on; the cycle left some out
        self._round, self._is_cut = 0, False  # a round goes on over cycles until one is not cut off
        self._timer, self._began_at = timer, 0.0  # of the round
        self._portions, self._is_short = Portions(timer), False  # whether the last round left workloads to the next
        self._turns: Turns | None = None  # of the round
        self._turns_by, self._unsorted = 0, list[EquivalenceClass]()  # `config_changes` when they began; classes not among them yet
        self._round_began = (0, 0, 0)
        self._to_look_at, self._looked_by = list[EquivalenceClass](), 0  # see `_reset_turns`; `all_changes` of quota when that began
        self.wants_more = False  # whether another cycle may come to something else, though nothing happens
        self._was_refreshed = False  # whether the last cycle came to no decision, since the nodes took all its time
        self._is_for_passes = True  # whether the next cycle begins with second passes
        self._resolved: dict[str, tuple[ClusterQueueFacts | None, NotAdmissible | None]] = {}  # from a LocalQueue to its ClusterQueue
        self._resolved_by = 0  # the `config_changes` by which they were
        self._blocked: dict[str, str] = {}  # StrictFIFO queues with a head that waits, and the uid of the head
        self._skipped: set[str] = set()  # of these queues those with a head that has had no decision in the round
        self._heads: dict[str, str] = {}  # by StrictFIFO queue: uid of the first that waited in it when the round began
        self._reserved: set[str] = set()  # uids of workloads that had their turn in the round, and wait for others to go
        self._borrowing: set[str] = set()  # queues that have to borrow: put off until all others had a turn
        self._precedence = Precedence(state, profiles, self._portions.measure)
        self.unwritable = Unwritable(state)
        self._passes = SecondPassTurns(state, profiles, replacement, self._claims, self.unwritable, is_in_storm)
        self.latest = Run(lambda uid: False, lambda uid: False, lambda: True)  # the present run, or the last one
        self._aside: dict[str, WorkloadFacts] = {}  # by uid: decisions on them failed, and they have not changed since

    def run(
        self,
        may_go_on: Callable[[], bool] = lambda: True,
        is_held_back: Callable[[str], bool] = lambda uid: False,
        is_busy: Callable[[str], bool] = lambda uid: False,
    ) -> Iterator[Verdict]:
        """Yields verdicts until nothing is left to decide or the caller's budget is spent; the next cycle then continues behind. As a rule
        second passes come first, then workloads for which others were evicted, then queue order. A refusal is yielded only if it was not
        the last one reported; one with the same reason may come by `update_next_reason` alone. Workloads with a uid that `is_held_back` are
        passed over. Those with a uid that `is_busy` have a verdict that is still being written: none is decided on, and all keep their
        places, as heads of StrictFIFO queues do. Where a decision takes longer than `may_go_on` allows, the cycle ends and `run_piece`
        continues it: the next cycle applies its result if that still holds. Each admission is assumed in the state before it is yielded; if
        the write fails, the caller must call `state.drop_assumed`."""
        self.latest = Run(lambda uid: uid in self._aside or is_held_back(uid), is_busy, may_go_on)
        self._aside = {uid: facts for uid, facts in self._aside.items() if self._state.workloads.facts.get(facts.key) is facts}
        self.unwritable.begin()
        try:
            yield from self._run(self.latest)
        finally:
            self._state.drop_claims()

    def set_aside(self) -> WorkloadFacts | None:
        """Leaves out the workload that was being decided on when a run or a piece raised an error, until it changes. The round continues.
        Returns the workload; None where the run raised between two of them: another round begins. Its unfinished decision is dropped."""
        current = self.latest.current
        if current is not None:
            self._is_cut = self._turns is not None  # if the turns of this round have begun
            self._aside[current.uid] = current
        else:
            self._end_round()
        self._decisions.remove(current.uid if current is not None else None)
        return current

    def _end_round(self) -> None:
        self._is_cut, self._turns, self._round = False, None, self._round + 1
        self._is_short = self._portions.end_round()

    def run_piece(self, may_go_on: Callable[[], bool] = lambda: False) -> bool:
        """Continues the decision for which the last cycle ended; the next `run` applies it. Returns False once it is made, or without
        any."""
        if (unfinished := self._decisions.unfinished) is not None:
            self.latest.current = unfinished
            with self._portions.measure():
                self._decisions.run_piece(may_go_on)
        return self.is_deciding

    def _may_decide(self, workload: WorkloadFacts, queue: ClusterQueueFacts, *, is_promised: bool) -> bool:
        """Whether a workload without a standing refusal gets a decision in this round."""
        asked = self._build_request(workload, queue, is_promised=is_promised)
        if may := self._decisions.has_begun(workload, queue) or self._portions.may_decide(asked):
            self._portions.begin_decision(asked)
        return may

    def _build_request(self, workload: WorkloadFacts, queue: ClusterQueueFacts, *, is_promised: bool = False) -> DecisionRequest:
        order, number = self._pending.order_of(workload.uid), self._pending.number_of(workload.uid)
        return DecisionRequest((queue.name, is_promised), order, number, queue.strict)

    def _decide(self, workload: WorkloadFacts, queue: ClusterQueueFacts, run: Run) -> Admissible | NotAdmissible | None:
        """Returns the decision on a workload; None where it is not made before the end of this cycle."""
        run.has_decided = True
        if (unwritable := self.unwritable.find(workload)) is not None:
            self._decisions.remove(workload.uid)
            return unwritable
        with self._portions.measure():
            return self._decisions.decide(workload, queue, run.may_go_on)

    def _prepare(self, run: Run) -> bool:
        """Takes in what has changed since the last cycle. Returns False where that has taken all the time, or is not at its end."""
        if self._state.refresh() and not self._was_refreshed and not run.may_go_on():
            self._was_refreshed = True  # the next cycle decides, however long that takes
            return False
        self._was_refreshed = False
        others = self._pending.sync()
        self._claims.withdraw(others)
        for uid in others:
            self._own.pop(uid, None)
            if uid not in self._pending:
                self._reported.pop(uid, None)
        self._decisions.begin(self._pending)
        if self._pending.is_behind:  # the order of all that wait is not known yet
            return False
        if self._claims.begin(self._pending):
            self._own = {uid: refusal for uid, refusal in self._own.items() if not refusal.outcome.spares}
            for group in self._pending.list_classes():
                if group.refusal is not None and group.refusal.outcome.spares:
                    group.refusal = None
        self._pending.move_changed(self._claims.circles.collect_changed())
        return not self._pending.is_behind

    def _run(self, run: Run) -> Iterator[Verdict]:
        if not self._prepare(run):
            return
        if self._resolved_by != self._state.config_changes:
            self._resolved, self._resolved_by = {}, self._state.config_changes
        if not self._is_cut:
            self._blocked, self._skipped, self._borrowing, self._reserved = {}, set(), set(), set()
            self._precedence.begin_round()
        if self._is_for_passes:
            yield from self._passes.judge(run)
            if self._passes.are_cut:
                self._is_for_passes = False
                return
        self._is_for_passes, self.wants_more = True, False
        if not self._is_cut:
            self._round_began = self._read_moment()
            self._portions.begin_round(self._pending.last_number)
            self._to_look_at, self._looked_by, self._began_at = [], self._state.quota.all_changes, self._timer()
        yield from self._judge_promised(run)
        self._reserve_again()
        turns, is_first, self._is_reporting = self._begin_turns(), True, False
        run.current = None
        while turns is not None and not (self.is_deciding or self._is_reporting) and (following := turns.get_next()) is not None:
            if not (run.may_go_on() or is_first):
                self._is_cut = True
                return
            yield from self._judge_turn(*following, turns, run)
            run.current, is_first = None, False
        if turns is None or self.is_deciding or self._is_reporting:  # the next cycle sorts more, or goes on with the turn
            self._is_cut = True
            return
        # A workload that was refused early in a round of several cycles was not judged again, whatever changed since.
        self.wants_more = self._is_cut and self._read_moment() != self._round_began
        self._end_round()

    def _read_moment(self) -> tuple[int, int, int]:
        return self._state.changes, self._state.config_changes, self._state.quota.all_changes

    # --- promises -----------------------------------------------------------------------------------

    def _judge_promised(self, run: Run) -> Iterator[Verdict]:
        """Decides first on the workloads for which other workloads were evicted.

        Such a workload gets what its victims release before any other workload has a turn. Otherwise one earlier in the order could
        take it, and evictions would never end: each would take what another's victims left, and be preempted by that one as soon as
        it runs. In a StrictFIFO queue this holds for the head alone: no other workload may be served before it.
        """
        promised = sorted(self._claims.list_preemptors(), key=self._pending.order_of)
        if not self._is_cut:
            is_strict = any(self._find_strict(workload) for workload in map(self._pending.find, promised) if workload is not None)
            self._heads = find_heads(self._pending.list_classes(), self._find_strict, run.is_held_back) if is_strict else {}
        for uid in promised:
            workload, group = self._pending.find(uid), self._pending.group_of(uid)
            assert workload is not None
            assert group is not None
            queue, problem = self._find_queue(workload.queue)
            if queue is None or problem is not None or (queue.strict and self._heads.get(queue.name) != uid) or run.is_held_back(uid):
                continue
            run.served.add(uid)
            run.current = workload
            refusal = self._own.get(uid)
            hindered = find_obstacle(self._state, queue, self._pods_ready) is not None or run.is_busy(uid)
            # Quota may have been released in this round; to look at nodes again in each cycle would take too long.
            in_round = None if refusal is not None and refusal.is_of_quota else self._round
            stands = refusal is not None and refusal.is_valid(self._state, workload, queue, in_round)
            if not hindered and not stands and self._may_decide(workload, queue, is_promised=True):
                outcome = self._decide(workload, queue, run)
                if outcome is None:
                    return
                if isinstance(outcome, Admissible):
                    self._admit(group, workload, outcome)
                    run.admitted.add(uid)
                    yield Verdict(workload, outcome)
                    continue
                self._record_refusal(group, workload, queue, outcome)
                if self._record_report(group, workload, outcome):
                    yield Verdict(workload, outcome)
            self._claims.reserve(workload)

    def _find_strict(self, workload: WorkloadFacts) -> str | None:
        """Returns the name of the ClusterQueue in which a workload waits, if that is StrictFIFO."""
        queue, _ = self._find_queue(workload.queue)
        return queue.name if queue is not None and queue.strict else None

    def _reserve(self, workload: WorkloadFacts) -> None:
        """Takes what a workload waits for out of what the others see, until the end of the round."""
        if self._claims.find_preempting(workload.uid) is not None:
            self._reserved.add(workload.uid)
            self._claims.reserve(workload)

    def _reserve_again(self) -> None:
        """After a cycle that was cut off: what was taken out of what the others see in its turns is so in this one from the start."""
        for workload in filter(None, map(self._pending.find, self._reserved)):
            self._claims.reserve(workload)

    # --- turns --------------------------------------------------------------------------------------

    def _begin_turns(self) -> Turns | None:
        """Returns the turns of the round: over its cycles only what has changed is sorted again, or all if queues have
        changed. None: the next cycle sorts the rest."""
        changed, config, most = self._pending.collect_changed(), self._state.config_changes, MOST_SORTED
        if self._turns is None or config != self._turns_by:
            changed = self._pending.list_classes()
            most = len(changed) if self._unsorted else MOST_SORTED  # queues that change all the time let the round begin all the same
            self._turns_by, self._unsorted = config, []
            self._turns = PriorityTurns(self._round) if self._sharing is None else FairTurns(self._state, self._round)
        else:
            changed = list(dict.fromkeys(changed + self._reset_turns()))
        promised = map(self._find_promise, self._claims.list_uids() if self._sharing is not None else ())
        portion, self._unsorted = (self._unsorted + changed)[:most], (self._unsorted + changed)[most:]
        self._turns.begin(portion, ((queue.name, order) for queue, order in promised if queue is not None))
        return self._turns if not self._unsorted else None

    def _reset_turns(self) -> list[EquivalenceClass]:
        """Returns groups that had their turn in this round, and have another one: what was released since is enough for them. Otherwise it
        would go to workloads behind them, with turns that are still to come, and the next round would preempt these.

        It looks at `MOST_LOOKED_AT` groups, and continues there in the next cycle. After `REPEATED_FOR_S` there are none: the round might
        never end, and those that were put off would never have their turn.
        """
        if self._timer() - self._began_at > REPEATED_FOR_S:
            return []
        if self._looked_by != self._state.quota.all_changes and not self._to_look_at:
            self._looked_by, self._to_look_at = self._state.quota.all_changes, self._pending.list_classes()
        portion, self._to_look_at = self._to_look_at[:MOST_LOOKED_AT], self._to_look_at[MOST_LOOKED_AT:]
        repeated = [group for group in portion if group.members and self._has_quota_now(group)]
        for group in repeated:
            group.refusal = None
            group.reset(self._round)
        return repeated

    def _has_quota_now(self, group: EquivalenceClass) -> bool:
        """Whether a group had its turn in this round, was refused for want of quota then or before, and has enough now."""
        workload, refusal = group.members[0][1], group.refusal
        if refusal is None or refusal.outcome.preempting is not None or not group.find_next(self._round):
            return False
        queue, problem = self._find_queue(workload.queue)
        return queue is not None and problem is None and refusal.has_quota(self._state, queue)

    def _find_promise(self, uid: str) -> tuple[ClusterQueueFacts | None, Order]:
        workload = self._pending.find(uid)
        assert workload is not None  # only a workload that is pending has a reservation
        return self._state.find_cluster_queue(workload), self._pending.order_of(uid)

    def _judge_turn(self, turn: Turn, may_borrow: bool, turns: Turns, run: Run) -> Iterator[Verdict]:
        workload = turn.workload
        if run.is_held_back(workload.uid) or workload.uid in run.admitted:
            turns.add_follower(turn)
            return
        run.current = workload
        queue, problem = self._find_queue(workload.queue)
        is_blocked = queue is not None and queue.name in self._blocked
        turn.group.is_held_up = False
        obstacle = problem
        if queue is not None and problem is None and not is_blocked:
            obstacle = find_obstacle(self._state, queue, self._pods_ready)
        if queue is not None and is_blocked:
            self._drop_refusals(turn, self._blocked[queue.name])
            if queue.name in self._skipped:  # it may be admitted in the next round
                turns.end(turn)
                return
            why = f'ClusterQueue "{queue.name}" is StrictFIFO and a workload that is before this one cannot be admitted yet'
            yield from self._report_outcome(turn, NotAdmissible(REASON_PENDING_EVALUATION, why, ()), turns, run)
        elif obstacle is not None:
            turn.group.is_held_up = True
            if problem is None:  # a queue that admits none leaves the room to others
                self._reserve(workload)
            yield from self._report_outcome(turn, obstacle, turns, run)
        elif queue is not None:
            if queue.name in self._borrowing and (not may_borrow or self._precedence.is_behind(turn, queue, turns)):
                self._precedence.note(turn, queue, self._round)
                turns.put_off(turn)
            else:
                yield from self._serve(turn, queue, may_borrow, turns, run)

    def _drop_refusals(self, turn: Turn, head: str) -> None:
        """Drops the refusals of workloads that were at the head of a StrictFIFO queue and are behind another workload now: they wait for
        that one, also where others were evicted for them. `head` is the uid of the workload at the head."""
        group = turn.group
        if len(self._own) < len(group.members) - turn.at:  # tens of thousands may wait behind the head
            uids = [uid for uid in self._own if self._pending.group_of(uid) is group and self._pending.order_of(uid) >= turn.order]
        else:
            uids = [workload.uid for _, workload in group.members[turn.at :] if workload.uid in self._own]
        for uid in uids:
            if uid != head and uid not in self.unwritable:
                del self._own[uid]
                group.unreported[uid] = None

    def _serve(self, turn: Turn, queue: ClusterQueueFacts, may_borrow: bool, turns: Turns, run: Run) -> Iterator[Verdict]:
        group, workload, uid = turn.group, turn.workload, turn.workload.uid
        refusal, is_busy = self._own.get(uid) or group.refusal, run.is_busy(uid)
        outcome: Admissible | NotAdmissible | None = None
        if not is_busy and uid not in run.served and (refusal is None or not refusal.is_valid(self._state, workload, queue, self._round)):
            if not self._may_decide(workload, queue, is_promised=False):
                self._reserve(workload)
                if queue.strict:
                    self._blocked.setdefault(queue.name, uid)
                    self._skipped.add(queue.name)
                (turns.add_follower if uid in self._own else turns.end)(turn)
                return
            outcome = self._decide(workload, queue, run)
            if outcome is None:
                return
        claim = self._claims.find_preempting(uid) if outcome is None else outcome.preempting if isinstance(outcome, NotAdmissible) else None
        found = outcome if isinstance(outcome, Admissible) else claim.found if claim is not None else None
        if found is not None and found.borrows and (not may_borrow or self._precedence.should_wait(turn, found, turns, self._round)):
            self._borrowing.add(queue.name)
            self._portions.put_off(self._build_request(workload, queue))
            turns.put_off(turn)
            return
        if isinstance(outcome, Admissible):
            self._admit(group, workload, outcome)
            turns.add_follower(turn)
            yield Verdict(workload, outcome)
            return
        if outcome is not None:
            self._record_refusal(group, workload, queue, outcome)
        self._reserve(workload)
        if queue.strict:
            self._blocked.setdefault(queue.name, uid)
        if is_busy or uid in self._own or group.refusal is None:  # what comes next in the group may fare otherwise, or has yet to be judged
            turns.add_follower(turn)
            if not is_busy and uid in self._own and self._record_report(group, workload, self._own[uid].outcome):
                yield Verdict(workload, self._own[uid].outcome if outcome is not None else self._own[uid].outcome.drop_victims())
        else:
            yield from self._report_outcome(turn, group.refusal.outcome, turns, run)

    def _admit(self, group: EquivalenceClass, workload: WorkloadFacts, found: Admissible) -> None:
        self._own.pop(workload.uid, None)
        self._reported.pop(workload.uid, None)
        group.unreported.pop(workload.uid, None)
        self._claims.record_admission(workload)
        plan = {placement.pod_set: placement.nodes for _, placement in found.placements}
        self._state.assume(workload.key, found.admission, plan)

    def _record_refusal(self, group: EquivalenceClass, workload: WorkloadFacts, queue: ClusterQueueFacts, outcome: NotAdmissible) -> None:
        """Records a refusal for the whole group; for the workload alone where others are to be evicted for it, or were, since
        workloads alike may need other victims, and where the labels of its pods matter. In a StrictFIFO queue others wait for it."""
        self._claims.note(workload, outcome.preempting)
        refusal = StandingRefusal.note(
            self._state, workload, queue, outcome, self._round, by_share=self._sharing is not None, at=self._decisions.noted_at
        )
        is_own = queue.strict or is_particular(self._state, workload)
        if is_own or self._claims.is_preemptor(workload.uid) or workload.uid in self.unwritable:
            self._own[workload.uid] = refusal
        else:
            self._own.pop(workload.uid, None)
            group.refusal = refusal

    def _find_trait(self, workload: WorkloadFacts) -> Hashable:
        """What else than its request decides on a workload: the pods that it has left behind, and the workloads that it spares."""
        return workload.uid if Past.read_past(self._state, workload).leftovers else "", self._claims.circles.find_trait(workload.party)

    def _find_queue(self, local_queue: str) -> tuple[ClusterQueueFacts | None, NotAdmissible | None]:
        if local_queue not in self._state.local_queues:  # there may be any number of names that mean none
            return resolve_queue(self._state, local_queue)
        if local_queue not in self._resolved:
            self._resolved[local_queue] = resolve_queue(self._state, local_queue)
        return self._resolved[local_queue]

    # --- reporting ----------------------------------------------------------------------------------

    def _report_outcome(self, turn: Turn, outcome: NotAdmissible, turns: Turns, run: Run) -> Iterator[Verdict]:
        """Yields verdicts for a group that keeps waiting: for its first workload, for those to which nothing is reported yet, and for
        all if the reason does not change with each workload that starts or ends. Where that takes too long the group has another turn
        in the next cycle."""
        group, before = turn.group, turn.group.shared_outcome
        group.shared_outcome = outcome
        if before is not None and (before.reason == outcome.reason or {before.reason, outcome.reason} <= PASSING):
            self._is_stale |= (before.reason, before.message) != (outcome.reason, outcome.message)
        else:
            own = self._own if not group.is_held_up else {}
            group.unreported.update((workload.uid, None) for _, workload in group.members[turn.at :] if workload.uid not in own)
        has_reported = False
        for uid in dict.fromkeys([turn.workload.uid, *group.unreported]):
            workload = self._pending.find(uid)
            if workload is None or uid in run.admitted or (uid in self._own and not group.is_held_up):
                continue
            if run.is_held_back(uid) or run.is_busy(uid):
                self._is_stale = True
            elif has_reported and not run.may_go_on():
                self._is_reporting = True
                return
            elif self._record_report(group, workload, outcome):
                has_reported = True
                yield Verdict(workload, outcome)
        turns.end(turn)

    def _record_report(self, group: EquivalenceClass, workload: WorkloadFacts, outcome: NotAdmissible) -> bool:
        """Records that a workload gets this reason and message now; returns whether the last ones reported were others."""
        now, before = (outcome.reason, outcome.message), self._reported.get(workload.uid)
        self._reported[workload.uid] = now
        group.unreported.pop(workload.uid, None)
        return before != now

    def update_next_reason(self, is_busy: Callable[[str], bool] = lambda uid: False, steps: int = 500) -> Verdict | None:
        """Returns a verdict, without victims, for the next pending workload with a reason or message that is not the last one reported, and
        counts it as reported. None: none among the next `steps`; another call continues there. Workloads that are busy come later."""
        for _ in range(steps):
            group, workload = next(self._walk, (None, None))
            if group is None or workload is None:
                self._is_walking, self._is_stale = self._is_stale, False
                if not self._is_walking:
                    return None
                self._walk = iter([(group, workload) for group in self._pending.list_classes() for _, workload in group.members])
                continue
            uid = workload.uid
            own = self._own.get(uid) if not group.is_held_up else None
            outcome = own.outcome if own is not None else group.shared_outcome
            if outcome is None or uid not in self._reported or self._reported[uid] == (outcome.reason, outcome.message):
                continue
            if is_busy(uid) or self._state.workloads.find_pending(workload.key) is not workload:
                self._is_stale = True
            elif self._record_report(group, workload, outcome):
                return Verdict(workload, outcome.drop_victims())
        return None

    @property
    def round(self) -> int:
        """Returns the number, from 0, of the present round of cycles; after the end of one that of the next."""
        return self._round

    def drop_refusals(self, before: int, most: int) -> int:
        """Drops at most `most` refusals of rounds with a number below `before`, so that reasons get current amounts; equal workloads may
        share one. Those with a reservation, or that cannot be written, stay. Returns how many were dropped."""
        own = (uid for uid, refusal in self._own.items() if refusal.round < before and uid not in self.unwritable)
        old = [uid for uid in own if self._claims.find_preempting(uid) is None][:most]
        for uid in old:
            del self._own[uid]
        groups = (group for group in self._pending.list_classes() if group.refusal is not None and group.refusal.round < before)
        for group in (stale := list(islice(groups, most - len(old)))):
            group.refusal = None
        return len(old) + len(stale)

    def count_by_class(self, is_held_back: Callable[[str], bool]) -> Iterator[tuple[str, int, int]]:
        """Yields, for each group of workloads that ask for the same, its LocalQueue (namespace/name), how many there are, and how many of
        these were refused or have a uid that `is_held_back`, and wait for a change. In a StrictFIFO queue that is none, unless the queue is
        inactive or blockAdmission holds it up."""
        for group in self._pending.list_classes():
            _, first = group.members[0]
            queue, refused = self._state.find_cluster_queue(first), 0
            is_strict = queue is not None and queue.strict
            if group.is_held_up or (group.refusal is not None and not is_strict):
                refused = len(group.members)
            elif not is_strict:
                refused = sum(workload.uid in self._own or is_held_back(workload.uid) for _, workload in group.members)
            yield first.queue, len(group.members), refused

    @property
    def is_cut(self) -> bool:
        """Whether the last cycle or round left workloads to the next, or came to no decision for want of time."""
        return self._is_cut or self._is_short or self._passes.are_cut or self._was_refreshed or self._pending.is_behind

    @property
    def is_deciding(self) -> bool:
        """Whether there is an interrupted decision for `run_piece` to continue."""
        return self._decisions.unfinished is not None

    @property
    def is_stale(self) -> bool:
        """Whether `update_next_reason` has to go on, or to begin again: since it began a reason has changed, or a workload was busy."""
        return self._is_stale or self._is_walking

    @property
    def makes_room(self) -> bool:
        """Whether a workload waits until others, evicted for it, are gone. No other workload may take what they hold before it is decided
        on."""
        return self._claims.has_any()

    def exclude_victim(self, key: str) -> None:
        """Records that the victim `key` could not be evicted. The workloads that wait for it are decided on again."""
        for uid in self._claims.exclude_victim(key):
            self._remove_verdict(uid)

    def _remove_verdict(self, uid: str) -> None:
        for known in (self._own, self._reported, self._passes.failed_at):
            known.pop(uid, None)

    def requeue_workload(self, uid: str) -> None:
        """Drops the verdict on a workload that could not be written, its reservation, and the refusal of all that ask for the same: the
        next cycle decides on it again, whatever changed."""
        self._remove_verdict(uid)
        self._claims.withdraw([uid])
        if (group := self._pending.group_of(uid)) is not None:
            group.refusal = None
            group.unreported[uid] = None

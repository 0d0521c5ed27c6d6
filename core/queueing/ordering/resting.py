"""Classes of waiting workloads that need no turn in a round, since nothing has changed since their last one.

The turn of a class that stays refused reports nothing and takes nothing, so that no decision differs without it. With
thousands of workloads that wait in many queues most turns are such. Only refusals for want of quota rest: nodes change
with nearly every event.
"""

from collections.abc import Iterable

from core.model.pods_ready_rules import PodsReadyRules
from core.queueing.ordering.iteration_order import Turn, Turns
from core.queueing.ordering.pending import EquivalenceClass, Order
from core.state.cluster import ClusterState
from core.state.queue_facts import ClusterQueueFacts


class Resting:
    """The classes without a turn in the present round.

    With `is_fair` none rests, since the turns of some change the order of others; nor where `pods_ready` blocks
    admissions.
    """

    def __init__(self, state: ClusterState, pods_ready: PodsReadyRules | None, *, is_fair: bool) -> None:
        self._state = state
        self._is_on = not is_fair and (pods_ready is None or pods_ready.blocks is None)
        self._classes: list[EquivalenceClass] = []
        self._reached: Order | None = None  # all before it have had their first turns
        self._moment = self._state.read_moment()

    def note_refused(self, turn: Turn, queue: ClusterQueueFacts) -> None:
        """Records that a turn has ended with the refusal of its class, for all members and reported to them. The class rests from the next
        round on, as long as the refusal stands (`begin_round`). One in a StrictFIFO queue, or that waits for others to go, does not."""
        refusal = turn.group.refusal
        if self._is_on and turn.at == 0 and refusal is not None and not queue.strict and refusal.outcome.preempting is None:
            turn.group.rest = (refusal, turn.order) if refusal.is_of_quota else None

    def begin_round(self, classes: Iterable[EquivalenceClass], in_round: int) -> list[EquivalenceClass]:
        """Returns those of the classes that need a turn. The others rest until `get_next` finds that something has changed."""
        self._classes, self._reached, self._moment = [], None, self._state.read_moment()
        need = list[EquivalenceClass]()
        for group in classes:
            (self._classes if self._may_rest(group, in_round) else need).append(group)
        return need

    def _may_rest(self, group: EquivalenceClass, in_round: int) -> bool:
        if group.rest is None or group.unheard:
            return False
        refusal, first = group.rest
        order, workload = group.members[0]
        if group.refusal is not refusal or order != first or refusal.config_changes != self._state.config_changes:
            return False
        queue = self._state.find_cluster_queue(workload)
        return queue is not None and refusal.is_valid(self._state, workload, queue, in_round)

    def get_next(self, turns: Turns) -> tuple[Turn, bool] | None:
        """Returns the next turn, as `Turns.get_next` does. Where something has changed since the round began, classes that rest get turns
        before: those that would still have had their first one, or all where first turns are over."""
        if self._classes and self._moment != self._state.read_moment():
            reached = self._reached
            turns.begin(group for group in self._classes if group.members and (reached is None or group.members[0][0] > reached))
            self._classes = []
        following = turns.get_next()
        if following is not None:
            turn, may_borrow = following
            self._reached = turn.order if not may_borrow else None
        return following

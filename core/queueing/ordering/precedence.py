"""A workload that would have to borrow comes after those of other queues that would reclaim that quota at once.

Such a workload has its turn after all that need not borrow, and those behind it in its queue have theirs with it. A
workload of another queue that has a higher priority and borrows would come before those. They would reclaim what it got
as soon as they have their turn: each time that a place becomes free it would be admitted, and evicted again. So it has
its turn after them. Of the workloads behind it in its own queue only those that need not borrow come before it, and in
a StrictFIFO queue none.
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager

from core.model.step_budget import StepBudget
from core.placement.algorithms.profile import Profiles
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible
from core.queueing.flavors.what_if_view import World
from core.queueing.ordering.iteration_order import Turn, Turns, is_due
from core.state.cluster import ClusterState
from core.state.queue_facts import ANY, NEVER, ClusterQueueFacts

MOST_NOTED = 8  # of one queue
STEPS = 40_000  # of all searches for a place in a round
_SEARCH_STEPS = 20  # of one search, beside those of looking for a place


class Precedence:
    """Of one round the workloads that were put off for another one of their queue."""

    def __init__(self, state: ClusterState, profiles: Profiles, measure: Callable[[], AbstractContextManager[None]]) -> None:
        self._state, self._profiles, self._measure = state, profiles, measure
        self.begin_round()

    def begin_round(self) -> None:
        """Begins a round: drops all that were recorded, and gives all its steps back."""
        self._noted: defaultdict[str, list[Turn]] = defaultdict(list)  # by queue
        self._gave_way: set[str] = set()  # queues
        self._budget = StepBudget(STEPS)

    def note(self, turn: Turn, queue: ClusterQueueFacts, in_round: int) -> None:
        """Records a workload that is put off and has no valid refusal of its group, `MOST_NOTED` of a queue at most. `queue` is that of the
        workload, `in_round` the number of the round.

        It is not recorded where it is refused as it is or replaces another one, and in a queue that reclaims nothing or is StrictFIFO:
        there it gets nothing before the one that is before it.
        """
        if queue.strict or queue.preemption.reclaim == NEVER or len(self._noted[queue.name]) >= MOST_NOTED:
            return
        if turn.workload.refused or turn.workload.replaces is not None:
            return
        refusal = turn.group.refusal
        if refusal is None or not refusal.is_valid(self._state, turn.workload, queue, in_round):
            self._noted[queue.name].append(turn)

    def is_behind(self, turn: Turn, queue: ClusterQueueFacts, turns: Turns) -> bool:
        """Whether a turn is in a StrictFIFO queue in which another workload has given way in this round (`should_wait`), and may be put off
        once more."""
        return queue.strict and queue.name in self._gave_way and turns.may_put_off_again(turn)

    def should_wait(self, turn: Turn, found: Admissible, turns: Turns, in_round: int) -> bool:
        """Whether a workload that would be admitted as `found`, and borrow, is to come after all others that were put off: a recorded
        workload of another queue would lose its own quota by that. Once True, it holds for its queue for the round. False for a turn that
        may not be put off again, and for a workload that replaces another. Spends steps of the round; without any left none has to wait."""
        name = found.admission.cluster_queue
        if not turns.may_put_off_again(turn) or turn.workload.replaces is not None:
            return False
        if name not in self._gave_way and not self._state.workloads.is_assumed(turn.workload.key):  # else it has been promised that room
            with self._measure():
                if self._has_rival(turn, found, name, in_round):
                    self._gave_way.add(name)
        return name in self._gave_way

    def _list_rivals(self, turn: Turn, name: str, in_round: int) -> list[tuple[Turn, ClusterQueueFacts]]:
        """Turns that are still to come, of workloads that may reclaim what one of this queue borrows, and their queues."""
        relatives = self._state.quota.list_relatives(name)
        self._budget.charge(len(relatives))
        queues = [self._state.cluster_queues[other] for other in relatives if other in self._noted]
        rivals = [(rival, queue) for queue in queues for rival in self._noted[queue.name] if is_due(rival, in_round)]
        priority = turn.workload.priority
        return [(rival, queue) for rival, queue in rivals if queue.preemption.reclaim == ANY or rival.workload.priority > priority]

    def _has_rival(self, turn: Turn, found: Admissible, name: str, in_round: int) -> bool:
        """Whether there is a workload that fits now into quota of its queue's own, and would not beside this one of queue `name`."""
        if not (self._noted and self._budget.has_left()):
            return False
        half = self._budget.split_off(self._budget.left // 2)  # the other half is for looking once more at those that fit
        fitting = [rival for rival in self._list_rivals(turn, name, in_round) if self._has_own_room(*rival, half)]
        if not fitting:
            return False
        key, plan = turn.workload.key, {placement.pod_set: placement.nodes for _, placement in found.placements}
        self._state.assume(key, found.admission, plan)
        try:
            return any(not self._has_own_room(*rival, self._budget) and self._budget.has_left() for rival in fitting)
        finally:
            self._state.drop_assumed(key, helps=False)

    def _has_own_room(self, turn: Turn, queue: ClusterQueueFacts, budget: StepBudget) -> bool:
        if not budget.spend(_SEARCH_STEPS):
            return False
        world = World(self._state, explains=False, budget=budget)
        try:
            found = find_admission(self._state, turn.workload, queue, self._profiles, world)
        except Exception:  # it is reported when it has its turn
            return False
        return isinstance(found, Admissible) and not found.borrows

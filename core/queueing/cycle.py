"""One decision cycle: a batch of workloads, each seeing what those before it were given.

A decision becomes assumed usage in the state at once (DESIGN decision 7), so two workloads that want
the same rack in one cycle cannot both get it. A workload that was refused is looked at again only
after something that could help has changed.

Who would have to borrow has its turn after all who need not, and with it those behind it in its queue: else what is
reclaimed would be borrowed again by whoever is of higher priority.

Who waits for others to be gone keeps their room for itself: those behind it in the queue see it as taken, those before it
do not (so that a preemption leads to the admission that it was made for, and nobody is preempted twice for one room).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from core.model.pods_ready import PodsReadyRules
from core.names import (
    MULTIKUEUE_CONTROLLER,
    REASON_CHECK_INACTIVE,
    REASON_CHECK_NOT_FOUND,
    REASON_COHORT_CYCLE,
    REASON_FLAVOR_NOT_FOUND,
    REASON_MISCONFIGURED,
    REASON_MULTIKUEUE_WITH_TOPOLOGY,
    REASON_PENDING_EVALUATION,
    REASON_STOPPED,
    REASON_SUSPENDED,
    REASON_TERMINATING,
    REASON_TOPOLOGY_NOT_FOUND,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    REASON_WAITING_FOR_PODS_READY,
    REASON_WAITING_FOR_PREEMPTED,
    REASON_WAITING_FOR_QUOTA,
)
from core.placement.explain import truncate
from core.placement.profile import Profiles
from core.queueing.alike import Alike
from core.queueing.claims import Claims, show
from core.queueing.flavors import find_admission
from core.queueing.growth import find_growth
from core.queueing.one_at_a_time import find_obstacle
from core.queueing.order import in_queue_order
from core.queueing.outcome import Found, NotFound
from core.queueing.preemption import find_preemption
from core.queueing.rules import find_violation
from core.queueing.second_pass import REPLACES, NodeReplacement, due_for_second_pass, find_second_pass
from core.state.cluster import ClusterState
from core.state.facts import CheckState, WorkloadFacts
from core.state.queue_facts import STOP, ClusterQueueFacts
from core.state.selectors import labels_match

_CURABLE = (REASON_TOPOLOGY_PLACEMENT_FAILED, REASON_WAITING_FOR_QUOTA)  # by others going
_SHOWN = 5  # queues that a message names
_LATER = NotFound("", "", ())  # who would borrow is asked again after all who need not
_NOT_JUDGED = -1  # who never got as far as the search is looked at in every cycle


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a cycle decided on one workload: admitted as found, or why it goes on waiting."""

    workload: WorkloadFacts
    outcome: Found | NotFound
    is_second_pass: bool = False  # the workload has its quota, and keeps it


class Cycle:
    """Decides on pending workloads; remembers at which state each was refused last."""

    def __init__(
        self,
        state: ClusterState,
        profiles: Profiles,
        pods_ready: PodsReadyRules | None = None,
        replacement: NodeReplacement = REPLACES,
    ) -> None:
        self._state = state
        self._pods_ready = pods_ready
        self._profiles = profiles
        self._replacement = replacement
        self._refused_at: dict[str, tuple[str, int, WorkloadFacts]] = {}
        self._failed_at: dict[str, tuple[int, tuple[CheckState, ...], frozenset[str]]] = {}  # second passes, at which state
        self._claims = Claims(state)
        self._alike = Alike(state)
        self._ways: dict[str, tuple[ClusterQueueFacts | None, NotFound | None]] = {}  # from a LocalQueue to its ClusterQueue
        self._blocked: set[str] = set()  # StrictFIFO queues whose head waits
        self._borrowing: set[str] = set()  # queues whose turn is over until all have been asked who need not borrow

    def run(
        self,
        may_go_on: Callable[[], bool] = lambda: True,
        is_held_back: Callable[[str], bool] = lambda uid: False,
        is_busy: Callable[[str], bool] = lambda uid: False,
    ) -> Iterator[Verdict]:
        """Verdicts in queue order until nothing is left to decide or the caller's budget is spent.

        Workloads whose uid `is_held_back` are passed over. Of those that are busy, since a verdict on them is still to be
        written, none is judged, and all keep their places: nobody overtakes a StrictFIFO head, or takes the room it waits for.

        Each admission is assumed in the state before it is yielded; a caller whose write fails must
        call `state.forget`.
        """
        try:
            yield from self._run(may_go_on, is_held_back, is_busy)
        finally:
            self._state.drop_claims()

    def _run(self, may_go_on: Callable[[], bool], is_held_back: Callable[[str], bool], is_busy: Callable[[str], bool]) -> Iterator[Verdict]:
        self._state.refresh()
        pending = in_queue_order(self._state.workloads, self._pods_ready)
        self._refused_at = {workload.uid: self._refused_at[workload.uid] for workload in pending if workload.uid in self._refused_at}
        self._claims.begin(pending)
        self._alike.begin({workload.uid for workload in pending})
        self._blocked, self._borrowing, self._ways = set(), set(), {}
        yield from self._second_passes(lambda uid: is_held_back(uid) or is_busy(uid))
        later: list[WorkloadFacts] = []
        for workloads, may_borrow in ((pending, False), (later, True)):
            for workload in workloads:
                if not may_go_on():
                    return
                if is_held_back(workload.uid):
                    continue
                queue, problem = self._find_queue(workload)
                busy = is_busy(workload.uid)
                served = queue is not None and problem is None
                outcome = self._turn(workload, queue, may_borrow=may_borrow, busy=busy) if served and queue is not None else problem
                if outcome is _LATER:
                    later.append(workload)
                elif outcome is not None and not busy and self._is_news(workload, outcome, None if problem is not None else queue):
                    yield Verdict(workload, outcome)

    def _second_passes(self, is_held_back: Callable[[str], bool]) -> Iterator[Verdict]:
        """Who has quota already, and its nodes, comes before all who have nothing yet."""
        due = due_for_second_pass(self._state, self._replacement)
        self._failed_at = {w.uid: self._failed_at[w.uid] for w in due if w.uid in self._failed_at}
        for workload in due:
            queue = self._state.cluster_queues[workload.admission.cluster_queue] if workload.admission is not None else None
            now = self._state.changes, workload.checks, workload.unhealthy_nodes
            if queue is None or is_held_back(workload.uid) or self._failed_at.get(workload.uid) == now:
                continue
            outcome = self._second_pass(workload, queue)
            if isinstance(outcome, Found):
                plan = {placement.pod_set: placement.nodes for _, placement in outcome.placements}
                self._state.assume(workload.key, outcome.admission, plan, dict(outcome.leaves))
            else:
                self._failed_at[workload.uid] = now
            yield Verdict(workload, outcome, is_second_pass=True)

    def _second_pass(self, workload: WorkloadFacts, queue: ClusterQueueFacts) -> Found | NotFound:
        try:
            return find_second_pass(self._state, workload, queue, self._profiles, self._replacement)
        except Exception as error:
            return NotFound(REASON_MISCONFIGURED, truncate(f"the workload cannot be placed: {error!r}"), ())

    def _turn(self, workload: WorkloadFacts, queue: ClusterQueueFacts, *, may_borrow: bool, busy: bool) -> Found | NotFound | None:
        """What becomes of a workload whose turn it is; None: still what it was told last. A busy one is not judged."""
        if queue.name in self._blocked:
            why = f'ClusterQueue "{queue.name}" is StrictFIFO and a workload that is before this one cannot be admitted yet'
            return NotFound(REASON_PENDING_EVALUATION, why, ())
        if queue.name in self._borrowing and not may_borrow:
            return _LATER
        obstacle = find_obstacle(self._state, queue, self._pods_ready)
        if obstacle is not None:
            return obstacle
        last, claim = self._refused_at.get(workload.uid), self._claims.of(workload.uid)
        outcome: Found | NotFound | None = None
        if not busy and (last is None or last[1] != self._state.changes or not _same_request(last[2], workload)):
            outcome = self._alike.refusal_of(workload)
            if outcome is None:
                outcome = self._judge(workload, queue)
                if isinstance(outcome, NotFound):
                    self._alike.note(workload, outcome)
            claim = outcome.preempting if isinstance(outcome, NotFound) else None
        found = outcome if isinstance(outcome, Found) else claim.found if claim is not None else None
        if found is not None and found.borrows and not may_borrow:
            self._borrowing.add(queue.name)
            return _LATER
        if outcome is not None:
            self._claims.note(workload, claim)
        if isinstance(outcome, Found):
            plan = {placement.pod_set: placement.nodes for _, placement in outcome.placements}
            self._state.assume(workload.key, outcome.admission, plan)
            return outcome
        self._claims.place(workload)
        if queue.strict:
            self._blocked.add(queue.name)
        return outcome

    def _is_news(self, workload: WorkloadFacts, outcome: Found | NotFound, queue: ClusterQueueFacts | None) -> bool:
        """Notes an outcome; `queue` is the one it was judged for, if it got so far."""
        before = self._refused_at.pop(workload.uid, None)
        if isinstance(outcome, Found):
            return True
        judged = queue is not None and outcome.reason not in (REASON_PENDING_EVALUATION, REASON_WAITING_FOR_PODS_READY)
        self._refused_at[workload.uid] = (outcome.message, self._now(queue) if judged and queue is not None else _NOT_JUDGED, workload)
        return before is None or before[0] != outcome.message

    def _judge(self, workload: WorkloadFacts, queue: ClusterQueueFacts) -> Found | NotFound:
        """A workload written past all checks must not keep the others from being judged."""
        try:
            if workload.replaces is not None:
                return find_growth(self._state, workload, queue, self._profiles)
            outcome = find_admission(self._state, workload, queue, self._profiles)
            # What is for one pod set alone keeps it from fitting; a tie of all could be broken and fit all the same.
            suspicious = isinstance(outcome, NotFound) or workload.together is not None
            broken = find_violation(self._state, workload, queue) if suspicious else None
            if broken is not None:
                return NotFound(REASON_MISCONFIGURED, broken, outcome.attempts, breaks_rule=True)
            if isinstance(outcome, Found):
                return self._rather_preempting(workload, queue, outcome)
            return self._with_preemption(workload, queue, outcome)
        except Exception as error:
            return NotFound(REASON_MISCONFIGURED, truncate(f"the workload cannot be judged: {error!r}"), ())

    def _with_preemption(self, workload: WorkloadFacts, queue: ClusterQueueFacts, refused: NotFound) -> NotFound:
        """A refusal that becomes a wait, if it helps that others go."""
        if refused.reason not in _CURABLE:
            return refused
        preempting = find_preemption(self._state, workload, queue, self._profiles, self._claims.leaving())
        if preempting is None:
            return refused
        message = truncate(f"{refused.message}; {show(preempting)}")
        return NotFound(REASON_WAITING_FOR_PREEMPTED, message, refused.attempts, preempting=preempting)

    def _rather_preempting(self, workload: WorkloadFacts, queue: ClusterQueueFacts, found: Found) -> Found | NotFound:
        """A way to be admitted, or a preemption where the queue prefers one to the next flavor or to borrowing."""
        policy = queue.fungibility
        passed_over = [attempt.flavor for attempt in found.attempts if attempt.reason in _CURABLE]
        preempting = None
        if policy.when_can_preempt == STOP and passed_over and queue.preemption.is_possible:
            preempting = find_preemption(self._state, workload, queue.up_to(passed_over[0]), self._profiles, self._claims.leaving())
        if preempting is None and policy.prefers_preemption and found.borrows and queue.preemption.is_possible:
            leaving = self._claims.leaving()
            preempting = find_preemption(self._state, workload, queue, self._profiles, leaving, may_borrow=False)
        if preempting is None:
            return found
        tried = "; ".join(dict.fromkeys(attempt.sentence for attempt in found.attempts)) or "it would have to borrow quota"
        return NotFound(REASON_WAITING_FOR_PREEMPTED, truncate(f"{tried}; {show(preempting)}"), found.attempts, preempting=preempting)

    def _now(self, queue: ClusterQueueFacts) -> int:
        """The state at which a refusal is good until it changes; none, while there are some who may be preempted once they are seen."""
        state = self._state
        if not queue.preemption.is_possible or not state.decides_on({queue.name, *state.quota.relatives(queue.name)}):
            return state.changes
        return _NOT_JUDGED

    def spare(self, key: str) -> None:
        """A victim that could not be evicted: who wanted it to go is judged anew."""
        for uid in self._claims.spare(key):
            self._refused_at.pop(uid, None)

    def reconsider(self, uid: str) -> None:
        """Makes the next cycle look at a workload again, whatever changed (its verdict could not be written)."""
        self._refused_at.pop(uid, None)
        self._failed_at.pop(uid, None)

    def _find_queue(self, workload: WorkloadFacts) -> tuple[ClusterQueueFacts | None, NotFound | None]:
        """The ClusterQueue that serves a workload, or what is wrong with the way there."""
        if workload.queue not in self._ways:
            self._ways[workload.queue] = self._way(workload)
        return self._ways[workload.queue]

    def _way(self, workload: WorkloadFacts) -> tuple[ClusterQueueFacts | None, NotFound | None]:
        state = self._state
        namespace, _, name = workload.queue.partition("/")
        local = state.local_queues.get(workload.queue)
        if local is None:
            return None, NotFound(REASON_MISCONFIGURED, f"LocalQueue {name} doesn't exist; {_queues_of(state, namespace)}", ())
        queue = state.cluster_queues.get(local.cluster_queue)
        if queue is None:
            why = f"ClusterQueue {local.cluster_queue} doesn't exist; LocalQueue {name} names it, and an administrator can make it"
            return None, NotFound(REASON_MISCONFIGURED, why, ())
        if local.stopped:
            return None, NotFound(REASON_SUSPENDED, f"LocalQueue {name} is inactive", ())
        if queue.deleting or inactive_reason(state, queue) is not None:
            return None, NotFound(REASON_SUSPENDED, f"ClusterQueue {queue.name} is inactive", ())
        if not labels_match(queue.namespace_selector, state.namespaces.get(namespace)):
            return None, NotFound(
                REASON_MISCONFIGURED, f"namespace {namespace} doesn't match the selector of ClusterQueue {queue.name}", ()
            )
        return queue, None


def _queues_of(state: ClusterState, namespace: str) -> str:
    """What a job of a namespace could name instead."""
    names = sorted(key.partition("/")[2] for key in state.local_queues if key.partition("/")[0] == namespace)
    if not names:
        return f"namespace {namespace} has none yet"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"namespace {namespace} has {', '.join(names[:_SHOWN])}{more}"


def inactive_reason(state: ClusterState, queue: ClusterQueueFacts) -> tuple[str, str] | None:
    """Reason and message if a ClusterQueue can admit nothing, else None (wire contract A.1)."""
    if queue.deleting:
        return REASON_TERMINATING, "Can't admit new workloads; the ClusterQueue is being deleted"
    if queue.stopped:
        return REASON_STOPPED, "Can't admit new workloads: its stopPolicy is not None"
    missing = [name for name in queue.flavors if name not in state.flavors]
    if missing:
        return REASON_FLAVOR_NOT_FOUND, f"Can't admit new workloads: references missing ResourceFlavor(s): {', '.join(missing)}"
    unknown = [name for name, _ in queue.checks if name not in state.checks]
    if unknown:
        return REASON_CHECK_NOT_FOUND, f"Can't admit new workloads: references missing AdmissionCheck(s): {', '.join(unknown)}"
    inactive = [name for name, _ in queue.checks if not state.checks[name].active]
    if inactive:
        return REASON_CHECK_INACTIVE, f"Can't admit new workloads: references inactive AdmissionCheck(s): {', '.join(inactive)}"
    remote = [name for name, _ in queue.checks if state.checks[name].controller == MULTIKUEUE_CONTROLLER]
    topological = [name for name in queue.flavors if state.flavors[name].topology]
    if remote and topological:
        why = f"AdmissionCheck {remote[0]} sends workloads to other clusters, whose topology flavor {topological[0]} does not know"
        return REASON_MULTIKUEUE_WITH_TOPOLOGY, f"Can't admit new workloads: {why}"
    if queue.cohort in state.quota.circular:
        return REASON_COHORT_CYCLE, f'Can\'t admit new workloads: going up from cohort "{queue.cohort}" ends in a circle of cohorts'
    lost = sorted({flavor.topology for name in queue.flavors if (flavor := state.flavors[name]).topology} - state.topologies.keys())
    if lost:
        return REASON_TOPOLOGY_NOT_FOUND, f"Can't admit new workloads: there is no Topology {', '.join(map(repr, lost))}"
    return None


def _same_request(old: WorkloadFacts, new: WorkloadFacts) -> bool:
    was, now = ((w.queue, w.priority, w.pod_sets, w.together, w.profile) for w in (old, new))
    return was == now

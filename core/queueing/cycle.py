"""One decision cycle: a batch of workloads, each seeing what those before it were given.

A decision becomes assumed usage in the state at once (DESIGN decision 7), so two workloads that want
the same rack in one cycle cannot both get it. A workload that was refused is looked at again only
after something that could help has changed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from core.names import (
    REASON_COHORT_CYCLE,
    REASON_FLAVOR_NOT_FOUND,
    REASON_MISCONFIGURED,
    REASON_PENDING_EVALUATION,
    REASON_STOPPED,
    REASON_SUSPENDED,
    REASON_TERMINATING,
    REASON_TOPOLOGY_NOT_FOUND,
)
from core.placement.explain import truncate
from core.placement.profile import Profiles
from core.queueing.flavors import Found, NotFound, find_admission
from core.queueing.order import in_queue_order
from core.queueing.rules import find_violation
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts
from core.state.selectors import labels_match

_NOT_JUDGED = -1  # who never got as far as the search is looked at in every cycle


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a cycle decided on one workload: admitted as found, or why it goes on waiting."""

    workload: WorkloadFacts
    outcome: Found | NotFound


class Cycle:
    """Decides on pending workloads; remembers at which state each was refused last."""

    def __init__(self, state: ClusterState, profiles: Profiles) -> None:
        self._state = state
        self._profiles = profiles
        self._refused_at: dict[str, tuple[str, int, WorkloadFacts]] = {}

    def run(
        self, may_go_on: Callable[[], bool] = lambda: True, is_held_back: Callable[[str], bool] = lambda uid: False
    ) -> Iterator[Verdict]:
        """Verdicts in queue order until nothing is left to decide or the caller's budget is spent.

        Workloads whose uid `is_held_back` are passed over: a write of theirs failed a moment ago.

        Each admission is assumed in the state before it is yielded; a caller whose write fails must
        call `state.forget`.
        """
        state = self._state
        state.refresh()
        pending = in_queue_order(state.workloads)
        self._refused_at = {workload.uid: self._refused_at[workload.uid] for workload in pending if workload.uid in self._refused_at}
        blocked: dict[str, WorkloadFacts] = {}  # StrictFIFO queues whose head waits
        for workload in pending:
            if not may_go_on():
                return
            if is_held_back(workload.uid):
                continue
            queue, problem = self._find_queue(workload)
            if queue is not None and queue.name in blocked:
                problem = NotFound(
                    REASON_PENDING_EVALUATION,
                    f'ClusterQueue "{queue.name}" is StrictFIFO and a workload that is before this one cannot be admitted yet',
                    (),
                )
            judged_at = _NOT_JUDGED
            if queue is not None and problem is None:
                last = self._refused_at.get(workload.uid)
                if last is not None and last[1] == state.changes and _same_request(last[2], workload):
                    if queue.strict:
                        blocked[queue.name] = workload
                    continue
                outcome = self._judge(workload, queue)
                if isinstance(outcome, Found):
                    plan = {placement.pod_set: placement.nodes for _, placement in outcome.placements}
                    state.assume(workload.key, outcome.admission, plan)
                    self._refused_at.pop(workload.uid, None)
                    yield Verdict(workload, outcome)
                    continue
                problem, judged_at = outcome, state.changes
                if queue.strict:
                    blocked[queue.name] = workload
            assert problem is not None
            before = self._refused_at.get(workload.uid)
            self._refused_at[workload.uid] = (problem.message, judged_at, workload)
            if before is None or before[0] != problem.message:
                yield Verdict(workload, problem)

    def _judge(self, workload: WorkloadFacts, queue: ClusterQueueFacts) -> Found | NotFound:
        """A workload written past all checks must not keep the others from being judged."""
        try:
            outcome = find_admission(self._state, workload, queue, self._profiles)
            # What is for one pod set alone keeps it from fitting; a tie of all could be broken and fit all the same.
            suspicious = isinstance(outcome, NotFound) or workload.together is not None
            broken = find_violation(self._state, workload, queue) if suspicious else None
            if broken is not None:
                return NotFound(REASON_MISCONFIGURED, broken, outcome.attempts, breaks_rule=True)
            return outcome
        except Exception as error:
            return NotFound(REASON_MISCONFIGURED, truncate(f"the workload cannot be judged: {error!r}"), ())

    def reconsider(self, uid: str) -> None:
        """Makes the next cycle look at a workload again, whatever changed (its verdict could not be written)."""
        self._refused_at.pop(uid, None)

    def _find_queue(self, workload: WorkloadFacts) -> tuple[ClusterQueueFacts | None, NotFound | None]:
        """The ClusterQueue that serves a workload, or what is wrong with the way there."""
        state = self._state
        namespace, _, name = workload.queue.partition("/")
        local = state.local_queues.get(workload.queue)
        if local is None:
            return None, NotFound(REASON_MISCONFIGURED, f"LocalQueue {name} doesn't exist", ())
        queue = state.cluster_queues.get(local.cluster_queue)
        if queue is None:
            return None, NotFound(REASON_MISCONFIGURED, f"ClusterQueue {local.cluster_queue} doesn't exist", ())
        if local.stopped:
            return None, NotFound(REASON_SUSPENDED, f"LocalQueue {name} is inactive", ())
        if queue.deleting or inactive_reason(state, queue) is not None:
            return None, NotFound(REASON_SUSPENDED, f"ClusterQueue {queue.name} is inactive", ())
        if not labels_match(queue.namespace_selector, state.namespaces.get(namespace)):
            return None, NotFound(
                REASON_MISCONFIGURED, f"namespace {namespace} doesn't match the selector of ClusterQueue {queue.name}", ()
            )
        return queue, None


def inactive_reason(state: ClusterState, queue: ClusterQueueFacts) -> tuple[str, str] | None:
    """Reason and message if a ClusterQueue can admit nothing, else None (wire contract A.1)."""
    if queue.deleting:
        return REASON_TERMINATING, "Can't admit new workloads; the ClusterQueue is being deleted"
    if queue.stopped:
        return REASON_STOPPED, "Can't admit new workloads: its stopPolicy is not None"
    missing = [name for name in queue.flavors if name not in state.flavors]
    if missing:
        return REASON_FLAVOR_NOT_FOUND, f"Can't admit new workloads: references missing ResourceFlavor(s): {', '.join(missing)}"
    if queue.cohort in state.quota.circular:
        return REASON_COHORT_CYCLE, f'Can\'t admit new workloads: going up from cohort "{queue.cohort}" ends in a circle of cohorts'
    lost = sorted({flavor.topology for name in queue.flavors if (flavor := state.flavors[name]).topology} - state.topologies.keys())
    if lost:
        return REASON_TOPOLOGY_NOT_FOUND, f"Can't admit new workloads: there is no Topology {', '.join(map(repr, lost))}"
    return None


def _same_request(old: WorkloadFacts, new: WorkloadFacts) -> bool:
    was, now = ((w.queue, w.priority, w.pod_sets, w.together, w.profile) for w in (old, new))
    return was == now

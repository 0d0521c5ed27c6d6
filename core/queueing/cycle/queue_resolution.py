"""From a LocalQueue to the ClusterQueue that serves it, and what can be wrong on the way."""

from collections.abc import Callable
from functools import cache
from itertools import takewhile

from core.names import (
    MULTIKUEUE_CONTROLLER,
    REASON_ADMISSIONS_PAUSED,
    REASON_CHECK_INACTIVE,
    REASON_CHECK_NOT_FOUND,
    REASON_COHORT_CYCLE,
    REASON_FLAVOR_NOT_FOUND,
    REASON_MISCONFIGURED,
    REASON_MULTIKUEUE_WITH_TOPOLOGY,
    REASON_STOPPED,
    REASON_SUSPENDED,
    REASON_TERMINATING,
    REASON_TOPOLOGY_NOT_FOUND,
)
from core.queueing.flavors.outcome import NotAdmissible
from core.state.cluster import ClusterState
from core.state.queue_facts import ClusterQueueFacts
from core.state.selectors import is_label_match

_SHOWN = 5  # queues that a message names
_CANNOT = "Can't admit new workloads"  # how Kueue begins a message about a queue that cannot admit


def resolve_queue(state: ClusterState, local_queue: str) -> tuple[ClusterQueueFacts | None, NotAdmissible | None]:
    """Returns the ClusterQueue that serves a LocalQueue, given by its key (namespace/name), and None. Where it admits none it returns None
    and the first problem, looked for in this order: the namespace is being deleted, the LocalQueue or the ClusterQueue is missing, either
    is inactive, the namespace selector does not match, admissions are paused."""
    namespace, _, name = local_queue.partition("/")
    if namespace in state.ending_namespaces:
        return None, NotAdmissible(REASON_SUSPENDED, f"namespace {namespace} is being deleted, and no pod can be made in it", ())
    local = state.local_queues.get(local_queue)
    if local is None:
        return None, NotAdmissible(REASON_MISCONFIGURED, f"LocalQueue {name} doesn't exist; {_list_queues(state, namespace, name)}", ())
    queue = state.cluster_queues.get(local.cluster_queue)
    if queue is None:
        why = f"ClusterQueue {local.cluster_queue} doesn't exist; LocalQueue {name} names it, and an administrator can make it"
        return None, NotAdmissible(REASON_MISCONFIGURED, why, ())
    if local.stopped:
        return None, NotAdmissible(REASON_SUSPENDED, f"LocalQueue {name} is inactive: {_describe_stop(local.stop_policy)}", ())
    problem = _find_problem(state, queue)
    if problem is not None:
        why = problem[1].removeprefix(_CANNOT).lstrip(":; ")
        return None, NotAdmissible(REASON_SUSPENDED, f"ClusterQueue {queue.name} is inactive: {why}", ())
    if not is_label_match(queue.namespace_selector, state.namespaces.get(namespace)):
        return None, NotAdmissible(
            REASON_MISCONFIGURED, f"namespace {namespace} doesn't match the selector of ClusterQueue {queue.name}", ()
        )
    if state.pause.admissions is not None:  # reported last: other problems can be removed meanwhile
        return None, NotAdmissible(REASON_ADMISSIONS_PAUSED, state.pause.admissions.sentence, ())
    return queue, None


def make_stop_check(state: ClusterState) -> Callable[[str], bool]:
    """Returns a function that says whether a LocalQueue, given by its key, admits none now (`resolve_queue`). It looks once for each, so
    that it is good for as long as the state does not change."""
    return cache(lambda local_queue: resolve_queue(state, local_queue)[1] is not None)


def _describe_stop(policy: str) -> str:
    return f"its stopPolicy is {policy}, it admits no workload until stopPolicy is None"


def _list_queues(state: ClusterState, namespace: str, missing: str) -> str:
    """What a job of a namespace could name instead; those that begin most as the missing one come first."""
    names = [key.partition("/")[2] for key in state.local_queues if key.partition("/")[0] == namespace]
    if not names:
        return f"namespace {namespace} has none yet"
    names.sort(key=lambda name: (-sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, missing, strict=False))), name))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"namespace {namespace} has {', '.join(names[:_SHOWN])}{more}: name one that is there, or have it made"


def find_inactive_reason(state: ClusterState, queue: ClusterQueueFacts) -> tuple[str, str] | None:
    """Returns reason and message if a ClusterQueue can admit nothing, else None (Kueue API, ClusterQueue condition Active; a pause stops
    all). It is the first of: being deleted, stopped, a missing flavor or check, MultiKueue with a topology, an inactive check, a cycle of
    cohorts, a missing Topology, a pause."""
    problem, stop = _find_problem(state, queue), state.pause.admissions
    if problem is not None or stop is None:
        return problem
    return REASON_ADMISSIONS_PAUSED, f"{_CANNOT}: {stop.sentence}"


def _find_problem(state: ClusterState, queue: ClusterQueueFacts) -> tuple[str, str] | None:
    """What is wrong with a ClusterQueue itself."""
    if queue.deleting:
        return REASON_TERMINATING, f"{_CANNOT}; the ClusterQueue is being deleted"
    if queue.stopped:
        return REASON_STOPPED, f"{_CANNOT}: {_describe_stop(queue.stop_policy)}"
    missing = [name for name in queue.flavors if name not in state.flavors]
    if missing:
        why = f"references missing ResourceFlavor(s): {', '.join(missing)}; an administrator can make them"
        return REASON_FLAVOR_NOT_FOUND, f"{_CANNOT}: {why}"
    unknown = [name for name, _ in queue.checks if name not in state.checks]
    if unknown:
        why = f"references missing AdmissionCheck(s): {', '.join(unknown)}; an administrator can make them"
        return REASON_CHECK_NOT_FOUND, f"{_CANNOT}: {why}"
    remote = [name for name, _ in queue.checks if state.checks[name].controller == MULTIKUEUE_CONTROLLER]
    topological = [name for name in queue.flavors if state.flavors[name].topology]
    if remote and topological:
        why = f"AdmissionCheck {remote[0]} sends workloads to other clusters, and flavor {topological[0]} does not know their topology"
        return REASON_MULTIKUEUE_WITH_TOPOLOGY, f"{_CANNOT}: {why}"
    inactive = [name for name, _ in queue.checks if not state.checks[name].active]
    if inactive:
        controllers = ", ".join(dict.fromkeys(state.checks[name].controller for name in inactive))
        why = f"references inactive AdmissionCheck(s): {', '.join(inactive)}; {controllers} has to set the condition Active"
        return REASON_CHECK_INACTIVE, f"{_CANNOT}: {why}"
    cycle = state.quota.find_cycle(queue.cohort)
    if cycle:
        return REASON_COHORT_CYCLE, f'{_CANNOT}: cohort "{queue.cohort}" is part of a cycle ({" -> ".join(cycle)})'
    lost = sorted({flavor.topology for name in queue.flavors if (flavor := state.flavors[name]).topology} - state.topologies.keys())
    if lost:
        return REASON_TOPOLOGY_NOT_FOUND, f"{_CANNOT}: there is no Topology {', '.join(map(repr, lost))}"
    return None

"""Rules that a workload can break only together with a topology: judged after its creation (KEP-2724, Validation).

What the object alone shows is refused when it is created. What is left: levels that the topology does not have, slices
above their pod set, layers out of the topology's order; and groups with pod sets that ask for different levels, which only a Workload
that is written by hand can have. No change of the cluster helps then, so the workload is
deactivated instead of waiting for ever (rule h of docs/decisions/0004).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from core.model.podset import Mode, PodSetRequest
from core.names import AUTO_LEVEL, REASON_MISCONFIGURED
from core.placement.algorithms.podset_groups import find_mixed
from core.placement.algorithms.slices import find_shape
from core.placement.algorithms.tied_pod_sets import OneDomain
from core.placement.refusals import NotFit, truncate
from core.placement.topology.tree import TopologyTree
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts

REMEDY = "the workload is deactivated; change the job, or the topology: the workload is activated again once the topology allows it"


def find_violation(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts) -> str | None:
    """Returns the rule that is broken with every topology that the queue's flavors have, as a message that ends with `REMEDY`. None if one
    of them serves, there is none, or the workload asks for no topology."""
    views = [view for name in queue.flavors if (view := state.get_view(name)) is not None]
    if not views or not _has_level(workload):
        return None
    broken: dict[str, str] = {}
    for view in views:
        requests = [state.request_for(pod_set, view.flavor) for pod_set in workload.pod_sets]
        problem = next(_list_problems(view.capacity.tree, requests, workload.together), None)
        if problem is None:
            return None
        broken.setdefault(view.topology.name, problem)
    text = "; ".join(f'topology "{name}": {problem}' for name, problem in broken.items())
    return f"{truncate(text, 800)}; {REMEDY}"


def can_be_activated(state: ClusterState, workload: WorkloadFacts, condition: Mapping[str, Any]) -> bool:
    """Whether an inactive workload was deactivated for a broken rule, as its `QuotaReserved` (`condition`) says, and breaks none any more.
    False while its ClusterQueue, or each topology of that, is missing."""
    queue = state.find_cluster_queue(workload) if has_broken_rule(condition) and not workload.active else None
    if queue is None or not any(state.get_view(name) is not None for name in queue.flavors):
        return False
    return find_violation(state, workload, queue) is None


def has_broken_rule(condition: Mapping[str, Any]) -> bool:
    """Whether a condition `QuotaReserved` is that of a workload which topogate has deactivated for a broken rule."""
    return condition.get("reason") == REASON_MISCONFIGURED and str(condition.get("message") or "").endswith(REMEDY)


def _has_level(workload: WorkloadFacts) -> bool:
    """Whether a pod set asks for a topology, or the workload for all of them: their pod sets need not ask for anything then."""
    if workload.together is not None:
        return True
    return any(pod_set.topology is not None and pod_set.topology.mode is not Mode.IMPLIED for pod_set in workload.pod_sets)


def _list_problems(tree: TopologyTree, requests: list[PodSetRequest], together: OneDomain | None) -> Iterator[str]:
    known = ", ".join(tree.declared)
    tie = None
    if together is not None:
        tie = tree.find_level(together.level)
        if tie is None:
            yield f"no topology level {together.level!r} ({together.why}); the topology has {known}"
    groups: dict[str, list[PodSetRequest]] = {}
    for request in requests:
        topology = request.topology
        if topology is not None and topology.group:
            groups.setdefault(topology.group, []).append(request)
        if topology is None or topology.mode is Mode.IMPLIED:
            continue
        if len(topology.slices) > len(tree.declared):
            yield f"pod set {request.name}: {len(topology.slices)} slice layers are more than the topology's levels: {known}"
        shape = find_shape(tree, request)
        if isinstance(shape, NotFit):
            yield shape.detail
        elif tie is not None and topology.level not in (None, AUTO_LEVEL) and shape.start < tie:
            assert together is not None
            yield f"pod set {request.name}: level {topology.level} is above {together.level} ({together.why})"
    yield from (mixed.detail for members in groups.values() if (mixed := find_mixed(members)) is not None)

"""A workload of an elastic job that replaces another workload, takes over its pods and requests more (workload slices).

What the replaced workload holds counts as held by the new one: quota is needed for the difference only, and running
pods stay on their nodes. Added pods are placed next to them, inside the required domain
(core.placement.replace.resized_pod_sets), on the same flavors. No workload is preempted for it: the job continues with
the pods that it has.
"""

from dataclasses import replace

from core.model.spare_nodes import with_borrowed
from core.names import REASON_MISCONFIGURED
from core.placement.algorithms.profile import Profiles
from core.placement.refusals import truncate
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.flavors.spare_lending import list_loans, list_offers, select_offers
from core.queueing.flavors.what_if_view import World
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts


def _is_alike(elder: WorkloadFacts, workload: WorkloadFacts) -> bool:
    """Whether both ask for the same but for how many pods there are. Rules of topology spreading have no effect on what grows."""
    bare = [[replace(pod_set, count=0, reclaimed=0, spreading=None) for pod_set in each.pod_sets] for each in (elder, workload)]
    return bare[0] == bare[1]


def find_growth(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts, profiles: Profiles) -> Admissible | NotAdmissible:
    """Returns how a workload is admitted in place of the one that it replaces, or why not. It is decided on by itself where that one is
    gone, holds nothing in this queue, or is of another owner or other pods. The refusal is REASON_MISCONFIGURED where their pods differ in
    more than their number."""
    replaced = state.workloads.find_replaced(workload.key)
    elder = state.workloads.facts.get(replaced) if replaced is not None else None
    held = state.workloads.find_holding(elder.key) if elder is not None and workload.may_take_over(elder) else None
    if elder is None or held is None or held.cluster_queue != queue.name:
        return find_admission(state, workload, queue, profiles)
    if not _is_alike(elder, workload):
        return NotAdmissible(REASON_MISCONFIGURED, f"its pods are not those of workload {elder.key}, which it is to replace", ())
    # On the spare nodes of another workload it may have more of these nodes, but of no others.
    borrowed = {given.name: given.borrowed for given in held.pod_sets if given.borrowed}
    lent = {node for nodes in borrowed.values() for node in nodes}
    world = World(state, offers=select_offers(list_offers(state, workload.priority), lent) if lent else (), loans=list_loans(state, elder))
    world.remove(elder.key)
    try:
        outcome = find_admission(state, workload, queue, profiles, world, held)
    finally:
        world.restore_all()
    if isinstance(outcome, Admissible):
        return replace(outcome, admission=with_borrowed(outcome.admission, borrowed))
    runs = sum(given.count for given in held.pod_sets)
    asked = sum(pod_set.count for pod_set in workload.pod_sets)
    message = truncate(f"the job runs on with {runs} of {asked} pods; for those to come: {outcome.message}")
    return replace(outcome, message=message)

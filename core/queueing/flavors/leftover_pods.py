"""Earlier pods of a workload that affect its next place.

Pods that were deleted by force still use their nodes as long as a controller keeps the pod objects, although no
component waits for them to end. The Job controller keeps the last pod of an index until it has created another one, and
creates none for a suspended Job. Where such a pod has the only place that the workload could have, each would wait for
the other. So the workload may use the room of such pods where it has no other place.

Pods that a kubelet rejected although the node has room show, as long as they exist, that the kubelet may reject pods
again. The workload gets such a node only where it has no other place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.model.pod_resources import Resources
from core.model.podset import PodSetRequest
from core.placement.algorithms.decision import Decision
from core.placement.algorithms.profile import Profile
from core.placement.algorithms.spare_placement import build_flags
from core.placement.engine import OneDomain, place
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.queueing.flavors.what_if_view import copy_without_nodes
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts

Leftovers = Sequence[tuple[Resources, Sequence[tuple[str, int]]]]  # requests of one pod, pods per node


@dataclass(frozen=True, slots=True)
class Past:
    """The requests of pods that were deleted by force, of pod sets without a place, and the nodes where the kubelet has
    rejected pods of the workload."""

    leftovers: Leftovers = ()
    rejecting: frozenset[str] = frozenset()

    @classmethod
    def read_past(cls, state: ClusterState, workload: WorkloadFacts) -> "Past":
        """Returns the past of a workload: the requests and node of each pod that was deleted by force and still counts, in the order of its
        pod sets. Also the names of nodes where the kubelet has rejected pods of it. Both are empty for a workload without such pods."""
        if not state.ledger.has_odd_pods:
            return cls()
        keys = [(workload.pods_key, pod_set.name, workload.owner_uid) for pod_set in workload.pod_sets]
        leftovers = [(pod.requests, [(pod.node, 1)]) for key in keys for pod in state.ledger.list_left_behind(key)]
        return cls(leftovers, frozenset(pod.node for key in keys for pod in state.ledger.list_rejected(key)))

    def place_around(
        self,
        view: FreeCapacity,
        requests: Sequence[PodSetRequest],
        profile: Profile,
        together: OneDomain | None,
        free: Matrix | None,
        vacated: Callable[[], Matrix | None],
    ) -> tuple[Decision, Matrix | None]:
        """Returns the decision, and the free amounts with which it was made (None: the view's own). The pods are placed on nodes that have
        rejected none of them, if that can be: then the amounts are a copy with nothing free on the others. Else they are placed on all
        nodes, with `free` itself. If even that fails, and there are leftovers, they are placed in what `vacated` returns: what is free once
        these are gone. If that fails, too, the refusal and `free` are those before."""

        def place_again(free: Matrix | None) -> tuple[Decision, Matrix | None]:
            return place(view, requests, profile, free=free, together=together), free

        if any(name in view.tree.index for name in self.rejecting):
            elsewhere = place_again(copy_without_nodes(view.free if free is None else free, build_flags(view.tree, self.rejecting)))
            if elsewhere[0].refusal is None:
                return elsewhere
        anywhere = place_again(free)
        if anywhere[0].refusal is None or not self.leftovers:
            return anywhere
        instead = place_again(vacated())
        return instead if instead[0].refusal is None else anywhere

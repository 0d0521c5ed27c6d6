"""Rules of topology spreading of a workload, with the Workloads that they count in the world in which a place is searched."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.model.podset import PodSetRequest
from core.model.topology_spreading import CountedRule, Spreading
from core.names import TOPOLOGY_SPREADING
from core.placement.topology.tree import TopologyTree
from core.queueing.flavors.what_if_view import World
from core.state.cluster import ClusterState
from core.state.facts import PodSetFacts, WorkloadFacts
from core.state.flavor_view import FlavorView
from core.state.spreading_counts import SpreadCounts, build_query, get_unit

_STEPS = 20  # of the budget, for one pod set
_KEYS_A_STEP = 4  # Workloads that are left out, and values of a label


@dataclass(frozen=True, slots=True)
class SpreadAsker:
    """The workload that is to be placed, by its key, and the ClusterQueue that would admit it; it is never counted itself."""

    key: str
    cluster_queue: str

    @classmethod
    def build(cls, workload: WorkloadFacts, cluster_queue: str) -> "SpreadAsker | None":
        """Returns None for a workload without rules of topology spreading."""
        return cls(workload.key, cluster_queue) if any(pod_set.spreading for pod_set in workload.pod_sets) else None

    def add_rules(
        self, world: World, view: FlavorView, pod_sets: Sequence[PodSetFacts], requests: Sequence[PodSetRequest]
    ) -> list[PodSetRequest] | str:
        """Returns copies of requests, one for each pod set, with the rules that hold on a flavor's nodes; or why the flavor does not serve:
        it has not the level of a required rule, or the rules cannot be kept anywhere. A preferred rule without its level is left out."""
        without, found = world.gone | {self.key}, list[PodSetRequest]()
        for pod_set, request in zip(pod_sets, requests, strict=True):
            asked = pod_set.spreading
            if isinstance(asked, str):
                return f"pod set {pod_set.name}: {TOPOLOGY_SPREADING}: {asked}"
            if asked is None:
                found.append(request)
                continue
            levels = {rule: view.capacity.tree.find_level(rule.key) for rule in asked.rules}
            missing = next((rule.key for rule, level in levels.items() if level is None and rule.required), None)
            if missing is not None:
                known = ", ".join(view.capacity.tree.declared)
                return f'topology "{view.topology.name}" has no level {missing} of required topology spreading; it has {known}'
            deepest = max((level for level in levels.values() if level is not None), default=0)
            world.budget.charge(_STEPS + (len(without) + len(asked.values)) // _KEYS_A_STEP)
            query = build_query(asked, self.cluster_queue, self.key.partition("/")[0], view.flavor.name, get_unit(pod_set))
            counts = world.state.workloads.spreading.count(query, view, deepest, without)
            found.append(replace(request, spreading=_count_rules(view.capacity.tree, asked, counts)))
        return found


def _count_rules(tree: TopologyTree, asked: Spreading, counts: SpreadCounts | None) -> tuple[CountedRule, ...]:
    """The rules with a level that the tree has, coarse to fine."""
    rules = []
    for rule in asked.rules:
        level = tree.find_level(rule.key)
        if level is None:
            continue
        here = tree.levels[level]
        if counts is None:
            own = wholes = np.zeros(here.count, dtype=np.int64)
        elif level:
            own, wholes = counts.levels[level], counts.levels[level - 1][here.parents]
        else:
            own, wholes = counts.levels[level], np.full(here.count, counts.total, dtype=np.int64)
        rules.append(CountedRule(rule, level, own, wholes))
    return tuple(sorted(rules, key=lambda each: each.level))


def read_spread_version(state: ClusterState, workload: WorkloadFacts, cluster_queue: str) -> int:
    """Returns another number where the rules of a workload count other Workloads, or these in other places (`SpreadingIndex.read_version`);
    0 without rules."""
    if workload.labels is None:
        return 0
    namespace, version = workload.key.partition("/")[0], 0
    for pod_set in workload.pod_sets:
        if isinstance(pod_set.spreading, Spreading):  # of whichever flavor and unit: labels decide
            query = build_query(pod_set.spreading, cluster_queue, namespace, "", "")
            version += state.workloads.spreading.read_version(query)
    return version

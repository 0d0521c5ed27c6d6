"""What one workload has on which node, read from what is observed."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from core.model.admission import PodSetAdmission
from core.model.node_health_rules import HealthRules
from core.names import ADMITTED, HOSTNAME_LABEL
from core.plan.pods.node_health import NodeShare, Outside, Place, explain_outside, find_placed, is_pinned
from core.resource import Obj
from core.runtime.apart import run_apart
from core.runtime.clock import Clock
from core.state.facts import PodFacts, WorkloadFacts, find_condition
from reconciler.nodes.node_memory import Domain, Names, NodeMemory, NodeUsers, count_by_domain, is_well, show_missing
from reconciler.observe.observed import Observed


class NodesOfWorkload:
    """Reads them for one workload after the other."""

    def __init__(self, observed: Observed, clock: Clock, rules: HealthRules, memory: NodeMemory, users: NodeUsers) -> None:
        self._observed, self._clock, self._rules, self._memory, self._users = observed, clock, rules, memory, users

    async def name_nodes(self, facts: WorkloadFacts, pods: Sequence[PodFacts]) -> Names:
        """Returns, and remembers, the node's name for each domain that a workload's assignment names (pod set, level values), also of one
        that is gone. It is the only node with these labels in the pod set's flavor. Where there is none or several, it is the node of the
        workload's pods that were sent there, or else the last known one. That holds even if another node has had the labels meanwhile.
        Where that is another domain's node, a text of `show_missing` stands for it. `pods` are all that name the workload. Only assignments
        down to the hostname count."""
        before, now, unclear = self._users.placed.get(facts.key, {}), dict[Domain, str](), list[Domain]()
        for given in facts.admission.pod_sets if facts.admission is not None else ():
            places = self._observed.state.find_places([given])
            for values, _ in count_by_domain(given):
                nodes, domain = places.list_domain_nodes(given, values), (given.name, values)
                if len(nodes) == 1:
                    now[domain] = nodes[0]
                else:
                    unclear.append(domain)
        bound = await run_apart(len(pods), partial(self._find_bound, facts, pods, unclear)) if unclear else {}
        now |= {domain: node for domain in unclear if (node := bound.get(domain) or before.get(domain))}
        others = set(now.values())
        for name, values in unclear:
            if (name, values) not in now:
                node = self._memory.find_node(values[-1])
                now[name, values] = node if node not in others else show_missing(values[-1])
        if facts.key in self._users.hosts:
            self._users.placed[facts.key] = now
        return now

    def _find_bound(self, facts: WorkloadFacts, pods: Sequence[PodFacts], wanted: Collection[Domain]) -> Names:
        """Returns the nodes to which pods of a workload are bound that were sent to some domains; of several one that is there."""
        found, hosts, store = dict[Domain, str](), {values[-1] for _, values in wanted}, self._observed.nodes.store
        given = facts.admission.pod_sets if facts.admission is not None else ()
        levels = {each.name: each.assignment.levels for each in given if each.assignment is not None}
        for pod in pods:
            is_own = pod.owner_uid == facts.owner_uid is not None and pod.holds
            if not is_own or pod.node_selector.get(HOSTNAME_LABEL) not in hosts:
                continue
            name = pod.pod_set or ""
            domain = name, tuple(pod.node_selector.get(level, "") for level in levels.get(name, ()))
            other = found.setdefault(domain, pod.node)
            if other != pod.node:
                found[domain] = min(other, pod.node, key=lambda node: (store.get(node) is None, node))
        return found

    def find_outside(self, facts: WorkloadFacts, names: Names) -> Mapping[tuple[str, str], Outside]:
        """Returns existing nodes that are not where the workload's assignment has them, by pod set and their hostname in it. Only
        assignments down to the hostname count. Each node has the reason, the time since when, and whether it is reported as lost. Remembers
        that time. `names` are from `name_nodes`."""
        state, found, now = self._observed.state, dict[tuple[str, str], Outside](), self._clock.now()
        before = self._users.outside.get(facts.key, {})
        for given in facts.admission.pod_sets if facts.admission is not None else ():
            flavor = state.find_topology_flavor(given.flavors.values())
            view = state.get_view(flavor) if flavor is not None and any(count_by_domain(given)) else None
            if view is None or given.assignment is None or not view.capacity.tree.is_hostname:
                continue
            for domain in given.assignment.domains:
                host, name = domain.values[-1], names[given.name, domain.values]
                if view.find_domain(domain.values) is not None or (node := self._observed.nodes.store.get(name)) is None:
                    continue
                is_reported = host in facts.unhealthy_nodes  # it has been waited for, be it by another process
                since = before.get((given.name, host)) or (now - timedelta(seconds=self._rules.not_ready_delay_s) if is_reported else now)
                why = explain_outside(node["metadata"].get("labels") or {}, host, view.flavor, view.topology)
                found[given.name, host] = Outside(why, since, is_reported)
        if found:
            self._users.outside[facts.key] = {left: outside.since for left, outside in found.items()}
        else:
            self._users.outside.pop(facts.key, None)
        return found

    def read_shares(
        self,
        workload: Obj,
        facts: WorkloadFacts,
        all_pods: Sequence[PodFacts],
        outside: Mapping[tuple[str, str], Outside],
        names: Names,
    ) -> tuple[Mapping[Place, NodeShare], int]:
        """Returns what a workload has on each node that is to be judged, by place, and the number of places that it is assigned to. To be
        judged are nodes that are not well, are reported or not at their place, and those with odd pods: rejected, unschedulable, or waiting
        where the workload is not assigned to. `all_pods` are those that name it; `outside` and `names` come from `find_outside` and
        `name_nodes`. It may run in a thread."""
        given = _read_assigned(facts, outside, names, self._list_tolerations)
        pods, awaited = self._sort_pods(workload, facts, all_pods, outside, names, given)
        placed, used = find_placed(facts), self._users.used.get(facts.key, ())
        unassigned = {place for place, there in pods.items() if place not in given.pods and any(is_pinned(pod, placed) for pod in there)}
        shares = {
            place: NodeShare(
                given.pods[place],
                pods.get(place, ()),
                given.tolerations.get(place, ()),
                place[0] in used,
                given.by_pod_set.get(place, {}),
                placed,
                given.whys.get(place),
                place in awaited,
            )
            for place in given.pods.keys() | unassigned
            if place in unassigned or self._is_to_be_judged(place, facts, pods.get(place, ()), placed)
        }
        return shares, len(given.pods)

    def _is_to_be_judged(self, place: Place, facts: WorkloadFacts, pods: Sequence[PodFacts], placed: Collection[str]) -> bool:
        name, host = place
        is_odd = any(pod.rejected or (is_pinned(pod, placed) and pod.unschedulable_since) for pod in pods)
        return bool(host) or name in facts.unhealthy_nodes or not is_well(self._observed.nodes.store.get(name)) or is_odd

    def _sort_pods(
        self,
        workload: Obj,
        facts: WorkloadFacts,
        all_pods: Sequence[PodFacts],
        outside: Mapping[tuple[str, str], Outside],
        names: Names,
        given: "_Assigned",
    ) -> tuple[Mapping[Place, list[PodFacts]], set[Place]]:
        """Pods by place, and the places without which gated pods have not enough. Gated pods are at places that their nodes have left."""
        pods: dict[Place, list[PodFacts]] = defaultdict(list)
        gated: dict[str, list[PodFacts]] = defaultdict(list)
        taken, done = Counter[tuple[Place, str]](), Counter[tuple[Place, str]]()
        for pod in self.list_own(workload, facts, all_pods, names):
            host = pod.node_selector.get(HOSTNAME_LABEL, "")
            if pod.node or host:
                place = pod.node or self._find_node_of(pod, facts, names), host if (pod.pod_set or "", host) in outside else ""
                pods[place].append(pod)
                taken[place, pod.pod_set or ""] += not pod.terminal and not pod.terminating
                done[place, pod.pod_set or ""] += pod.succeeded
            elif pod.gated and not pod.terminal and not pod.terminating:
                gated[pod.pod_set or ""].append(pod)
        awaited = _find_awaited(given.by_pod_set, taken, done, {name: len(waiting) for name, waiting in gated.items()})
        for place in [place for place in sorted(given.pods) if place[1]]:
            for pod_set_name, count in given.by_pod_set[place].items():
                is_over = place not in awaited
                there = sum(pod.pod_set == pod_set_name and (not pod.terminal or (is_over and pod.succeeded)) for pod in pods[place])
                pods[place] += gated[pod_set_name][: max(0, count - there)]
                del gated[pod_set_name][: max(0, count - there)]
        return pods, awaited

    def list_own(self, workload: Obj, facts: WorkloadFacts, all_pods: Iterable[PodFacts], names: Names) -> Iterable[PodFacts]:
        """Yields the pods of `all_pods` that have the workload's owner, in their order; those refused by kube-scheduler as
        `NodeMemory.adjust_pod` returns them. Of those that a kubelet rejected only those created since its admission: earlier ones have no
        meaning for the present. Nothing for a workload without an owner."""
        since = (find_condition(workload, ADMITTED) or {}).get("lastTransitionTime") or ""
        for pod in all_pods:
            if pod.owner_uid != facts.owner_uid or facts.owner_uid is None:
                continue
            if pod.rejected:
                obj = self._observed.pods.store.get(pod.key)
                if (obj["metadata"].get("creationTimestamp") or "" if obj is not None else "") < since:
                    continue
            yield self._memory.adjust_pod(pod, self._find_node_of(pod, facts, names)) if pod.unschedulable_since else pod

    def _find_node_of(self, pod: PodFacts, facts: WorkloadFacts, names: Names) -> str:
        """The node for which a pod waits: in its workload's assignment, or else that of its hostname."""
        given = facts.admission.pod_sets if facts.admission is not None else ()
        for levels in {each.assignment.levels for each in given if each.name == pod.pod_set and each.assignment is not None}:
            domain = pod.pod_set or "", tuple(pod.node_selector.get(level, "") for level in levels)
            if domain in names:
                return names[domain]
        return self._memory.find_node(pod.node_selector.get(HOSTNAME_LABEL, ""))

    def _list_tolerations(self, facts: WorkloadFacts, pod_set: str, given: PodSetAdmission) -> tuple[Mapping[str, Any], ...]:
        """As its pods have them: their own, the flavor's, and what admission checks add."""
        own = next(each.tolerations for each in facts.pod_sets if each.name == pod_set)
        known = self._observed.state.flavors
        flavors = [known[name] for name in dict.fromkeys(given.flavors.values()) if name in known]
        updates = (update for check in facts.checks for update in check.updates if update.get("name") == pod_set)
        return (*own, *(t for flavor in flavors for t in flavor.tolerations), *(t for u in updates for t in u.get("tolerations") or ()))


class _Assigned:
    """What a workload is assigned to, by place."""

    def __init__(self) -> None:
        self.pods, self.whys = Counter[Place](), dict[Place, Outside]()
        self.by_pod_set: dict[Place, dict[str, int]] = defaultdict(dict)
        self.tolerations: dict[Place, list[tuple[Mapping[str, Any], ...]]] = defaultdict(list)


def _read_assigned(facts: WorkloadFacts, outside: Mapping[tuple[str, str], Outside], names: Names, list_tolerations: Any) -> _Assigned:
    assert facts.admission is not None
    found = _Assigned()
    for pod_set, given in zip(facts.pod_sets, facts.admission.pod_sets, strict=False):
        tolerated = list_tolerations(facts, pod_set.name, given)
        for values, count in count_by_domain(given):
            why = outside.get((pod_set.name, values[-1]))
            place = names[pod_set.name, values], values[-1] if why is not None else ""
            found.whys |= {place: why} if why is not None else {}
            found.pods[place] += count
            found.by_pod_set[place][pod_set.name] = found.by_pod_set[place].get(pod_set.name, 0) + count
            found.tolerations[place].append(tolerated)
    return found


def _find_awaited(
    assigned: Mapping[Place, Mapping[str, int]],
    taken: Mapping[tuple[Place, str], int],
    done: Mapping[tuple[Place, str], int],
    gated: Mapping[str, int],
) -> set[Place]:
    """Returns the places that gated pods need: without them there are not enough. Such pods replace pods that have succeeded. Places that
    their nodes have left are looked at together, against the others. Of places of pods that are `done` those beyond what gated pods need
    are given up, in the order of the domains, as by `give_up`."""
    if not gated:
        return set()
    free = {
        (place, name): max(0, count - taken.get((place, name), 0))
        for place, counts in assigned.items()
        for name, count in counts.items()
        if gated.get(name)
    }
    in_all, here = Counter[str](), Counter[str]()
    for (_, name), count in free.items():
        in_all[name] += count
    surplus, kept = {name: max(0, in_all[name] - gated[name]) for name in in_all}, dict(free)
    for (place, name), count in free.items():
        given_up = min(surplus[name], count, done.get((place, name), 0))
        surplus[name] -= given_up
        kept[place, name] -= given_up
        here[name] += kept[place, name] if not place[1] else 0
    return {
        place
        for (place, name), count in free.items()
        if count and (gated[name] > in_all[name] - count or (place[1] and kept[place, name] and gated[name] > here[name]))
    }

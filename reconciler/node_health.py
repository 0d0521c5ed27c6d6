"""Says which nodes are lost for which workloads (`status.unhealthyNodes`), and clears pods away that wait for a node which takes none.

Level-triggered, a workload at a time, so that all the nodes it has lost are named in one write and replaced in one solve by the second pass
(`core.queueing.second_pass`). What is judged is in `core.plan.node_health`; a storm holds it all back (`reconciler.storms`).
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from core.model.admission import Admission, PodSetAdmission
from core.model.node_health import HealthRules
from core.names import (
    ADMITTED,
    EVENT_NODE_UNHEALTHY,
    EVENT_POD_TERMINATED,
    HOSTNAME_LABEL,
)
from core.plan import resources as r
from core.plan import writes as w
from core.plan.admission import managed_status
from core.plan.node_health import Outside, Share, Verdict, explain_outside, find_placed, is_pinned, judge_node, may_move
from core.plan.requeue import plan_eviction
from core.plan.steps import Event, Log, Step, make_plan
from core.plan.workload_steps import plan_action
from core.resource import Obj
from core.runtime.apart import FEW, run_apart
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.errors import Conflict, KubeError, NotFound
from core.runtime.store import Change, object_key
from core.runtime.workqueue import Item
from core.state.facts import PodFacts, WorkloadFacts, family_of, find_condition
from reconciler.controllers import build_controller
from reconciler.execute import Executor
from reconciler.indexes import hostname_of, workloads_of_pod
from reconciler.observed import Observed
from reconciler.stuck_pods import StuckPods
from reconciler.waiting_pods import REFUSALS, change_waiting

logger = logging.getLogger(__name__)
BATCH_S = 0.5  # nodes of a rack fail one by one, and so do pods of a node
GONE_S = 5.0  # a node may be deleted and made anew: its pods run on, and must not have another place by then
MOST_NAMED = 1000  # what the API takes (rule j of docs/decisions/0004)
STORM_LOOK_S = 10.0
REPORT_AGAIN_S = 30.0  # between two reports of the same lost nodes of a workload that has the same place
_Domain = tuple[str, tuple[str, ...]]  # a pod set and what its assignment calls one of its domains
_Names = Mapping[_Domain, str]  # nodes by domain
_Place = tuple[str, str]  # a node's name and, where it is not at its place any more, the hostname by which assignments name it


class NodeHealth:
    """Reconciles one workload at a time by namespace/name. `is_held` says of one whether it is in a storm."""

    def __init__(
        self,
        observed: Observed,
        executor: Executor,
        clock: Clock,
        rules: HealthRules,
        is_held: Callable[[WorkloadFacts], bool] = lambda workload: False,
    ) -> None:
        self._observed, self._executor, self._clock, self._rules = observed, executor, clock, rules
        self._is_held = is_held
        self._assigned: dict[str, set[str]] = defaultdict(set)  # by hostname, as assignments name it: workloads
        self._hosts: dict[str, frozenset[str]] = {}  # the other way round
        self._used: dict[str, set[str]] = {}  # by workload: nodes on which pods of it have been
        self._named: dict[str, str] = {}  # nodes by hostname, those that are gone included while somebody is assigned to them
        self._gone_at: dict[str, float] = {}  # nodes that are gone, and when that was seen
        self._refused: dict[str, str] = {}  # pods that kube-scheduler finds no node for, and when it was first seen
        self._well_since: dict[str, str] = {}  # by node: an earlier refusal of a pod that waits for it says nothing of it
        # By node, key and value: when a NoExecute taint without a time, or with a time to come, was first seen.
        self._tainted: dict[str, dict[tuple[str, str], str]] = {}
        self._unready: dict[str, str] = {}  # nodes that are not ready, and when that was seen if their clock is not to be believed
        # By workload, pod set and hostname: since when a node is not at its place.
        self._outside: dict[str, dict[tuple[str, str], datetime]] = {}
        self._reported: dict[str, tuple[Admission, Collection[str], float]] = {}  # by workload: the last report of lost nodes, and when
        self._placed: dict[str, dict[_Domain, str]] = {}  # by workload and domain: its node, when that was last there
        self.stuck = StuckPods(observed, executor)
        self.controller = build_controller("node health", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.pods.add_handler(self._on_pod)
        observed.nodes.add_handler(self._on_node)
        observed.flavors.add_handler(self._on_definition)
        observed.topologies.add_handler(self._on_definition)

    # --- who is to be looked at ---------------------------------------------------------------------------------

    def _on_workload(self, change: Change) -> None:
        key = object_key(change.obj)
        facts = self._observed.state.workloads.facts.get(key) if change.new is not None else None
        hosts = _hosts_of(facts)
        before = self._hosts.get(key, frozenset())
        for host in before - hosts:
            self._assigned[host].discard(key)
            if not self._assigned[host]:
                del self._assigned[host]
                node = self._observed.nodes.store.get(self._named.get(host, host))
                if node is None or hostname_of(node) != host:
                    self._named.pop(host, None)
        for host in hosts - before:
            self._assigned[host].add(key)
        if hosts:
            self._hosts[key] = hosts
        else:
            self._hosts.pop(key, None)
            self._used.pop(key, None)
            self._outside.pop(key, None)
            self._reported.pop(key, None)
            self._placed.pop(key, None)
        if hosts and (hosts != before or (facts is not None and facts.unhealthy_nodes)):
            self._queue.add_after(key, BATCH_S, "workload changed")

    def _on_node(self, change: Change) -> None:
        if change.old is not None and change.new is not None and _get_state_and_labels(change.old) == _get_state_and_labels(change.new):
            return
        name = change.obj["metadata"]["name"]
        hosts = {name, *(hostname_of(each) for each in _both(change))}
        for host in hosts:
            if change.new is not None and host == hostname_of(change.new):
                self._named[host] = name
            elif host not in self._assigned and self._named.get(host) == name:
                del self._named[host]
            for key in self._assigned.get(host, ()):
                if any(host == left for _, left in self._outside.get(key, ())):  # it may be back: no pod moves before that is known
                    self._observed.state.observe_stuck(key, None)
                self._queue.add_after(key, BATCH_S if change.new is not None else GONE_S, f"node {name} changed")
        if change.new is None and hosts & self._assigned.keys():
            self._gone_at = {gone: at for gone, at in self._gone_at.items() if self._clock.monotonic() - at < GONE_S}
            self._gone_at[name] = self._clock.monotonic()
        else:
            self._gone_at.pop(name, None)
        before, now = self._tainted.pop(name, {}), self._executor.now()
        if not _is_well(change.new):
            self._well_since.pop(name, None)
        elif not _is_well(change.old):
            self._well_since[name] = now
        taints = ((change.new or {}).get("spec") or {}).get("taints") or ()
        added = [(taint, taint.get("timeAdded") or "") for taint in taints if taint.get("effect") == "NoExecute"]
        undated = [_name_of(taint) for taint, at in added if not at or at > now]  # the clock of its process may be ahead
        if undated:
            self._tainted[name] = {each: before.get(each, now) for each in undated}
        since = _find_unready(change.new)
        if since is None:
            self._unready.pop(name, None)
        elif since > now or (change.old is not None and _find_unready(change.old) is None):
            self._unready.setdefault(name, now)

    def _on_definition(self, change: Change) -> None:
        """A flavor or a topology: other nodes may belong to it now."""
        if change.old is not None and (change.new is None or change.old.get("spec") != change.new.get("spec")):
            for key in self._hosts:
                self._queue.add_after(key, BATCH_S, f"{change.obj['metadata']['name']} changed")

    def _on_pod(self, change: Change) -> None:
        key = object_key(change.obj)
        facts = self._observed.pod_facts.get(key) if change.new is not None else None
        if facts is None or facts.node or not facts.unschedulable_since:
            self._refused.pop(key, None)
        else:
            self._refused.setdefault(key, self._executor.now())  # the API keeps the time since which it was not scheduled for any reason
        if facts is not None and facts.gated:
            for workload in self._observed.present_of_pod(change.obj) if self._outside and workloads_of_pod(change.obj) else ():
                if workload in self._outside:
                    self._queue.add_after(workload, BATCH_S, "pod waits")
            return
        runs = facts is not None and bool(facts.node) and not facts.terminal and not facts.terminating
        for workload in self._observed.present_of_pod(change.obj) if workloads_of_pod(change.obj) else ():
            if facts is not None and facts.node:
                self._used.setdefault(workload, set()).add(facts.node)
            if not runs and (workload in self._hosts or (facts is not None and is_pinned(facts, (facts.pod_set or "",)))):
                self._queue.add_after(workload, BATCH_S, "pod changed")

    # --- one workload -------------------------------------------------------------------------------------------

    async def _reconcile(self, item: Item) -> Result:
        return await self.look(str(item.key))

    async def look(self, key: str) -> Result:
        """Judges all nodes of a workload, and says what has changed. Raises what the API server refuses."""
        workload = self._observed.workloads.store.get(key)
        facts = self._observed.state.workloads.facts.get(key)
        if workload is None or facts is None or not facts.runs:
            await self.stuck.forget(workload, key)
        if workload is None or facts is None or facts.finished:
            return Done()
        if facts.admission is None:
            await self._clear_all(workload, facts)
            return Done()
        if not facts.admitted or facts.evicted:
            return Done()
        if self._observed.state.workloads.is_assumed(key):
            return RequeueAfter(BATCH_S)  # its nodes are being replaced
        pods = self._observed.pods_of(family_of(workload))
        names = self._name_nodes(facts, pods)
        outside = self._find_outside(facts, names)
        shares, nodes = await run_apart(len(pods), partial(self._shares, workload, facts, pods, outside, names))
        if self._observed.workloads.store.get(key) is not workload or self._observed.state.workloads.is_assumed(key):
            return RequeueAfter(BATCH_S)
        if len(pods) > FEW and self._find_outside(facts, names) != outside:
            return RequeueAfter(BATCH_S)
        now = self._clock.now()
        verdicts = {place: self._judge(place[0], share, now) for place, share in shares.items()}
        is_movable = may_move(facts, self._pods(workload, facts, pods, names))
        found = {place: verdict.lost for place, verdict in verdicts.items() if verdict.lost and is_movable}
        hosts = {values[-1] for _, values in names}
        hosts_by_node = {
            node: values[-1]
            for (_, values), node in names.items()
            if self._observed.nodes.store.get(node) is None or (node in hosts and node != values[-1])
        }
        # By its hostname one that is gone, or with a name that is the hostname of another.
        lost = {host or hosts_by_node.get(name, name): why for (name, host), why in found.items()}
        if lost.keys() - facts.unhealthy_nodes and self._is_held(facts):
            return RequeueAfter(STORM_LOOK_S)
        refused: list[KubeError] = []
        are_as_seen = [await self._clear(name, verdict, refused) or not verdict.lost for (name, _), verdict in verdicts.items()]
        if not all(are_as_seen):
            return RequeueAfter(BATCH_S)  # a pod is bound to a node that seemed to be lost
        rest_s = self._find_rest(facts, lost.keys()) if lost.keys() != facts.unhealthy_nodes else 0.0
        if lost.keys() != facts.unhealthy_nodes and rest_s <= 0:
            try:
                await self._say(workload, facts, lost, nodes)
            except Conflict:  # what showed that a node is lost may have ended with its pods
                await self._say(await self._read_again(workload), facts, lost, nodes)
            if key in self._hosts:  # it may be gone by now
                self._reported[key] = facts.admission, lost.keys(), self._clock.monotonic()
        for error in refused:
            raise error
        waits = [verdict.look_again_s for verdict in verdicts.values() if verdict.look_again_s is not None]
        waits += [rest_s] if rest_s > 0 else []
        if any(verdict.stuck for verdict in verdicts.values()) and self._is_held(facts):
            return RequeueAfter(STORM_LOOK_S)
        named = {host or name: (shares[name, host], verdict) for (name, host), verdict in verdicts.items()}
        waits += await self.stuck.note(workload, facts, {} if lost else named)
        return RequeueAfter(min(waits)) if waits else Done()

    def _find_rest(self, facts: WorkloadFacts, lost: Collection[str]) -> float:
        """Returns for how many seconds lost nodes are not reported, since they have just been, and the same place was found again: where
        this controller and what finds places disagree on what a node is neither would ever rest."""
        admission, reported, at = self._reported.get(facts.key, (None, (), 0.0))
        is_again = bool(lost) and reported == lost and admission == facts.admission
        return at + REPORT_AGAIN_S - self._clock.monotonic() if is_again else 0.0

    def _judge(self, name: str, share: Share, now: datetime) -> Verdict:
        """One node; one that cannot be judged is set aside, and the workload's other nodes are judged all the same."""
        node = self._node(name)
        rest_s = self._gone_at.get(name, -GONE_S) + GONE_S - self._clock.monotonic()
        if node is None and rest_s > 0:
            return Verdict(look_again_s=rest_s)
        try:
            return judge_node(node, share, self._rules, now)
        except Exception as error:
            if node is None:
                raise
            self._observed.set_aside.add(self._observed.nodes.resource, name, node, error)
            return Verdict()

    def _shares(
        self,
        workload: Obj,
        facts: WorkloadFacts,
        all_pods: Sequence[PodFacts],
        outside: Mapping[tuple[str, str], Outside],
        names: _Names,
    ) -> tuple[Mapping[_Place, Share], int]:
        """What it has on which node, of the nodes that are not simply well; and how many nodes it is assigned to. `all_pods` name it.
        `names`: see `_name_nodes`."""
        assert facts.admission is not None
        assigned, whys = Counter[_Place](), dict[_Place, Outside]()
        by_pod_set: dict[_Place, dict[str, int]] = defaultdict(dict)
        tolerations: dict[_Place, list[tuple[Mapping[str, Any], ...]]] = defaultdict(list)
        for pod_set, given in zip(facts.pod_sets, facts.admission.pod_sets, strict=False):
            tolerated = self._tolerations(facts, pod_set.name, given)
            for values, count in _counts(given):
                why = outside.get((pod_set.name, values[-1]))
                place = names[pod_set.name, values], values[-1] if why is not None else ""
                whys |= {place: why} if why is not None else {}
                assigned[place] += count
                by_pod_set[place][pod_set.name] = by_pod_set[place].get(pod_set.name, 0) + count
                tolerations[place].append(tolerated)
        pods: dict[_Place, list[PodFacts]] = defaultdict(list)
        gated: dict[str, list[PodFacts]] = defaultdict(list)
        taken = Counter[tuple[_Place, str]]()
        for pod in self._pods(workload, facts, all_pods, names):
            host = pod.node_selector.get(HOSTNAME_LABEL, "")
            if pod.node or host:
                place = pod.node or self._node_of(pod, facts, names), host if (pod.pod_set or "", host) in outside else ""
                pods[place].append(pod)
                taken[place, pod.pod_set or ""] += not pod.terminal and not pod.terminating
            elif pod.gated and not pod.terminal and not pod.terminating:
                gated[pod.pod_set or ""].append(pod)
        awaited = _find_awaited(by_pod_set, taken, {name: len(waiting) for name, waiting in gated.items()})
        for place in [place for place in sorted(assigned) if place[1]]:
            for pod_set_name, count in by_pod_set[place].items():
                is_over = place not in awaited
                there = sum(pod.pod_set == pod_set_name and (not pod.terminal or (is_over and pod.succeeded)) for pod in pods[place])
                pods[place] += gated[pod_set_name][: max(0, count - there)]
                del gated[pod_set_name][: max(0, count - there)]
        placed = find_placed(facts)
        strangers = {place for place, there in pods.items() if place not in assigned and any(is_pinned(pod, placed) for pod in there)}
        used = self._used.get(facts.key, ())
        shares = {
            (name, host): Share(
                assigned[name, host],
                pods.get((name, host), ()),
                tolerations.get((name, host), ()),
                name in used,
                by_pod_set.get((name, host), {}),
                placed,
                whys.get((name, host)),
                (name, host) in awaited,
            )
            for name, host in assigned.keys() | strangers
            if (name, host) in strangers
            or host
            or name in facts.unhealthy_nodes
            or not _is_well(self._observed.nodes.store.get(name))
            or _is_odd(pods.get((name, host), ()), placed)
        }
        return shares, len(assigned)

    def _find_outside(self, facts: WorkloadFacts, names: _Names) -> Mapping[tuple[str, str], Outside]:
        """Returns nodes that are there and not where the workload's assignment says, by pod set and their hostname in it; notes since
        when."""
        state, found, now = self._observed.state, dict[tuple[str, str], Outside](), self._clock.now()
        before = self._outside.get(facts.key, {})
        for given in facts.admission.pod_sets if facts.admission is not None else ():
            flavor = state.topology_flavor(given.flavors.values())
            view = state.view(flavor) if flavor is not None and any(_counts(given)) else None
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
            self._outside[facts.key] = {left: outside.since for left, outside in found.items()}
        else:
            self._outside.pop(facts.key, None)
        return found

    def _pods(
        self, workload: Obj, facts: WorkloadFacts, all_pods: Iterable[PodFacts], names: _Names = MappingProxyType({})
    ) -> Iterable[PodFacts]:
        """Its own; of those that a kubelet rejected only those since its admission: earlier ones say nothing of today."""
        since = (find_condition(workload, ADMITTED) or {}).get("lastTransitionTime") or ""
        for pod in all_pods:
            if pod.owner_uid != facts.owner_uid or facts.owner_uid is None:
                continue
            if pod.rejected:
                obj = self._observed.pods.store.get(pod.key)
                if (obj["metadata"].get("creationTimestamp") or "" if obj is not None else "") < since:
                    continue
            refused = self._refused.get(pod.key)
            if refused is None:
                yield pod
                continue
            well = self._well_since.get(self._node_of(pod, facts, names), "")
            yield replace(pod, unschedulable_since=max(refused, well))

    def _name_nodes(self, facts: WorkloadFacts, pods: Iterable[PodFacts]) -> _Names:
        """Returns the node of each domain that a workload's assignment names, be it gone. One that is the node of a domain of another pod
        set, of another flavor, is not meant. `pods` name the workload.

        Where labels do not say it any more it is the node of the pods that were sent there, also for a process that begins anew, and though
        another node has had the labels meanwhile; and where there are none the last one that is known."""
        before, now, unclear = self._placed.get(facts.key, {}), dict[_Domain, str](), list[_Domain]()
        for given in facts.admission.pod_sets if facts.admission is not None else ():
            places = self._observed.state.find_places([given])
            for values, _ in _counts(given):
                nodes, domain = places.domain_nodes(given, values), (given.name, values)
                if len(nodes) == 1:
                    now[domain] = nodes[0]
                else:
                    unclear.append(domain)
        bound = self._find_bound(facts, pods, unclear) if unclear else {}
        now |= {domain: node for domain in unclear if (node := bound.get(domain) or before.get(domain))}
        others = set(now.values())
        for name, values in unclear:
            if (name, values) not in now:
                node = self._find_node(values[-1])
                now[name, values] = node if node not in others else _show_missing(values[-1])
        if facts.key in self._hosts:
            self._placed[facts.key] = now
        return now

    def _find_bound(self, facts: WorkloadFacts, pods: Iterable[PodFacts], wanted: Collection[_Domain]) -> _Names:
        """Returns the nodes to which pods of a workload are bound that were sent to some domains; of several one that is there."""
        found, hosts, store = dict[_Domain, str](), {values[-1] for _, values in wanted}, self._observed.nodes.store
        given = facts.admission.pod_sets if facts.admission is not None else ()
        levels = {each.name: each.assignment.levels for each in given if each.assignment is not None}
        for pod in pods:
            is_own = pod.owner_uid == facts.owner_uid is not None and pod.holds
            if not is_own or pod.node_selector.get(HOSTNAME_LABEL) not in hosts:
                continue
            name = pod.pod_set or ""
            domain = name, tuple(pod.node_selector.get(level, "") for level in levels.get(name, ()))
            found[domain] = min(found.get(domain, pod.node), pod.node, key=lambda node: (store.get(node) is None, node))
        return found

    def _node_of(self, pod: PodFacts, facts: WorkloadFacts, names: _Names) -> str:
        """The node for which a pod waits: in its workload's assignment, or else that of its hostname."""
        given = facts.admission.pod_sets if facts.admission is not None else ()
        for levels in {each.assignment.levels for each in given if each.name == pod.pod_set and each.assignment is not None}:
            domain = pod.pod_set or "", tuple(pod.node_selector.get(level, "") for level in levels)
            if domain in names:
                return names[domain]
        return self._find_node(pod.node_selector.get(HOSTNAME_LABEL, ""))

    def _find_node(self, host: str) -> str:
        """The node with a hostname, be it gone. Another one that has the hostname as its name is not meant."""
        node = self._observed.nodes.store.get(host)
        if node is not None and hostname_of(node) == host:
            return host
        return self._named.get(host, host if node is None else _show_missing(host))

    def _node(self, name: str) -> Obj | None:
        """As the API has it, with the time at which each of its taints was first seen, where it does not say or says one to come; and since
        when it is not ready, where its clock is ahead or behind."""
        node = self._observed.nodes.store.get(name)
        seen = self._tainted.get(name)
        if node is not None and name in self._unready:
            conditions = [
                {**each, "lastTransitionTime": self._unready[name]} if each.get("type") == "Ready" else each
                for each in node["status"]["conditions"]
            ]
            node = {**node, "status": {**node["status"], "conditions": conditions}}
        if node is None or seen is None:
            return node
        taints = [{**taint, "timeAdded": seen.get(_name_of(taint)) or taint.get("timeAdded")} for taint in node["spec"]["taints"]]
        return {**node, "spec": {**node["spec"], "taints": taints}}

    def _tolerations(self, facts: WorkloadFacts, pod_set: str, given: PodSetAdmission) -> tuple[Mapping[str, Any], ...]:
        """As its pods have them: their own, the flavor's, and what admission checks add."""
        own = next(each.tolerations for each in facts.pod_sets if each.name == pod_set)
        known = self._observed.state.flavors
        flavors = [known[name] for name in dict.fromkeys(given.flavors.values()) if name in known]
        updates = (update for check in facts.checks for update in check.updates if update.get("name") == pod_set)
        return (*own, *(t for flavor in flavors for t in flavor.tolerations), *(t for u in updates for t in u.get("tolerations") or ()))

    async def _say(self, workload: Obj, facts: WorkloadFacts, lost: Mapping[str, str], nodes: int) -> None:
        limit = self._rules.is_too_much(len(lost), nodes) or (f"more than {MOST_NAMED} cannot be named" if len(lost) > MOST_NAMED else "")
        if limit:
            text = ", ".join(f"{name} ({why})" for name, why in sorted(lost.items())[:8])
            more = f" and {len(lost) - 8} more" if len(lost) > 8 else ""
            message = (
                f"Workload eviction triggered due to multiple TAS assigned node failures: {len(lost)} of {nodes}, {limit}: {text}{more}"
            )
            evict = plan_eviction(workload, message, self._rules.requeue, self._clock.now())
            await self._executor.execute(plan_action(workload, evict, self._executor.now()))
            return
        status = managed_status(workload)
        status.pop("unhealthyNodes", None)
        if lost:
            status["unhealthyNodes"] = [{"name": name} for name in sorted(lost)]
        new = sorted(lost.keys() - facts.unhealthy_nodes)
        events = tuple(Event(r.WORKLOADS, workload, EVENT_NODE_UNHEALTHY, f"node {name}: {lost[name]}", True) for name in new)
        log = Log("nodes lost", {"workload": facts.key, "nodes": dict(sorted(lost.items()))})
        await self._executor.execute(make_plan(Step("report lost nodes", w.apply_admission(workload, status), events, log)))

    async def _read_again(self, workload: Obj) -> Obj:
        """A workload as it is now. Raises Conflict where something has changed by which its nodes are judged."""
        metadata = workload["metadata"]
        found = await self._executor.read(r.WORKLOADS, metadata["namespace"], metadata["name"])
        is_alike = all(found["metadata"].get(part) == metadata.get(part) for part in ("uid", "generation", "deletionTimestamp"))
        if not is_alike or managed_status(found) != managed_status(workload):
            raise Conflict(409, "Conflict", f"workload {metadata['name']} has changed since its nodes were judged")
        return found

    async def _clear_all(self, workload: Obj, facts: WorkloadFacts) -> None:
        """Pods that have a place from an admission that is over."""
        placed, pods, refused = find_placed(facts), self._observed.pods_of(family_of(workload)), list[KubeError]()
        for pod in [pod for pod in self._pods(workload, facts, pods) if is_pinned(pod, placed)]:
            verdict = Verdict("of which its workload has nothing", in_the_way=(pod,))
            await self._clear(pod.node_selector[HOSTNAME_LABEL], verdict, refused)
        for error in refused:
            raise error

    async def _clear(self, node: str, verdict: Verdict, refused: list[KubeError]) -> bool:
        """Ends pods that wait for a node which will not take them, so that others are made, which get another place. Returns whether all
        still waited: the watch of pods may be behind, and one that has been bound meanwhile runs on. Adds to `refused` what keeps a pod
        from being ended."""
        is_as_seen = True
        for pod in verdict.in_the_way:
            message = f"Pod terminated by topogate: it waits for node {node}, {verdict.lost or 'which does not take it'}"
            try:
                end = partial(w.terminate_pod, message=message, now=self._executor.now())
                obj = await change_waiting(self._observed, self._executor, pod, end)
            except NotFound:
                continue
            except Conflict:
                is_as_seen = False
                continue
            except REFUSALS as error:
                refused.append(error)
                continue
            self._executor.reporter.event(r.PODS, obj, EVENT_POD_TERMINATED, message)
            logger.info("pod terminated", extra={"pod": pod.key, "node": node})
        return is_as_seen


def _name_of(taint: Mapping[str, Any]) -> tuple[str, str]:
    return taint["key"], taint.get("value") or ""


def _find_unready(node: Obj | None) -> str | None:
    """Returns since when a node is not ready, as it says itself; None where it is."""
    ready = find_condition(node or {}, "Ready") or {}
    return ready.get("lastTransitionTime") or "" if ready.get("status", "True") != "True" else None


def _show_missing(host: str) -> str:
    """Returns the name of a node that is not there, of which only the hostname is known: no node has such a name."""
    return f"with hostname {host}"


def _both(change: Change) -> list[Obj]:
    return [obj for obj in (change.old, change.new) if obj is not None]


def _hosts_of(facts: WorkloadFacts | None) -> frozenset[str]:
    if facts is None or facts.admission is None or not facts.runs:
        return frozenset()
    return frozenset(values[-1] for given in facts.admission.pod_sets for values, _ in _counts(given))


def _counts(given: PodSetAdmission) -> Iterable[tuple[tuple[str, ...], int]]:
    """Pods per domain, of an assignment that goes down to the hostname."""
    assignment = given.assignment
    if assignment is None or assignment.levels[-1] != HOSTNAME_LABEL:
        return ()
    return ((domain.values, domain.count) for domain in assignment.domains)


def state_of(node: Obj) -> tuple[Any, ...]:
    """What of a node may change whether it serves."""
    spec, conditions = node.get("spec") or {}, (node.get("status") or {}).get("conditions") or ()
    ready = [(c.get("status"), c.get("lastTransitionTime")) for c in conditions if c.get("type") == "Ready"]
    return spec.get("taints"), spec.get("unschedulable"), ready, node["metadata"].get("deletionTimestamp")


def _get_state_and_labels(node: Obj) -> tuple[Any, ...]:
    """What of a node may change whether it serves a workload that is assigned to it: its labels, too."""
    return state_of(node), node["metadata"].get("labels")


def place_of(node: Obj) -> tuple[Any, ...]:
    """What of a node may change who has a place there, and where that is: whether it serves, its labels and what it has."""
    return state_of(node), node["metadata"].get("labels"), (node.get("status") or {}).get("allocatable")


def _find_awaited(
    assigned: Mapping[_Place, Mapping[str, int]], taken: Mapping[tuple[_Place, str], int], gated: Mapping[str, int]
) -> set[_Place]:
    """Returns the places without which gated pods have not enough: others come in the stead of pods that have succeeded."""
    if not gated:
        return set()
    free = {
        (place, name): max(0, count - taken.get((place, name), 0))
        for place, counts in assigned.items()
        for name, count in counts.items()
        if gated.get(name)
    }
    in_all = Counter[str]()
    for (_, name), count in free.items():
        in_all[name] += count
    return {place for (place, name), count in free.items() if count and gated[name] > in_all[name] - count}


def _is_well(node: Obj | None) -> bool:
    """Whether nobody can have lost a node."""
    if node is None:
        return False
    taints, unschedulable, ready, deleted = state_of(node)
    return not taints and not unschedulable and not deleted and all(status == "True" for status, _ in ready)


def _is_odd(pods: Iterable[PodFacts], placed: Collection[str]) -> bool:
    return any(pod.rejected or (is_pinned(pod, placed) and pod.unschedulable_since) for pod in pods)

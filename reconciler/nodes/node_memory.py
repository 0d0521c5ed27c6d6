"""What is stored about nodes beside their objects: times that the objects do not have, nodes that are gone, and which
workloads use them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from core.model.admission import Admission, PodSetAdmission
from core.names import HOSTNAME_LABEL
from core.plan.steps import pacing
from core.plan.steps.actions import from_time
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.watch.store import Change
from core.state.facts import PodFacts, WorkloadFacts, find_condition
from reconciler.observe.indexes import get_hostname
from reconciler.observe.observed import Observed

Domain = tuple[str, tuple[str, ...]]  # a pod set and the values by which its assignment names one of its domains
Names = Mapping[Domain, str]  # nodes by domain


class NodeUsers:
    """Workloads by the hosts that they are assigned to, and what is remembered of each while it has its place."""

    def __init__(self) -> None:
        self.by_host: dict[str, set[str]] = defaultdict(set)  # by hostname, as assignments name it: workloads
        self.hosts: dict[str, frozenset[str]] = {}  # the other way round
        self.used: dict[str, set[str]] = {}  # by workload: nodes on which pods of it have been
        # By workload, pod set and hostname: since when a node is not at its place.
        self.outside: dict[str, dict[tuple[str, str], datetime]] = {}
        self.reported: dict[str, tuple[Admission, Collection[str], float]] = {}  # by workload: the last report of lost nodes, and when
        self.placed: dict[str, dict[Domain, str]] = {}  # by workload and domain: its node, when that was last there

    def put(self, key: str, facts: WorkloadFacts | None) -> tuple[frozenset[str], frozenset[str]]:
        """Stores the present hosts of a workload, as `list_hosts` returns them (`facts` None: it is gone). Returns two sets: the hostnames
        from before, and the present ones. Drops all that is remembered of a workload without hosts."""
        before, hosts = self.hosts.get(key, frozenset()), list_hosts(facts)
        for host in before - hosts:
            self.by_host[host].discard(key)
            if not self.by_host[host]:
                del self.by_host[host]
        for host in hosts - before:
            self.by_host[host].add(key)
        if hosts:
            self.hosts[key] = hosts
        else:
            for remembered in (self.hosts, self.used, self.outside, self.reported, self.placed):
                remembered.pop(key, None)
        return before, hosts


class NodeMemory:
    """Names and times of nodes, and of pods that kube-scheduler finds no node for."""

    def __init__(self, observed: Observed, clock: Clock, users: NodeUsers) -> None:
        self._observed, self._clock, self._users = observed, clock, users
        self._named: dict[str, str] = {}  # nodes by hostname, those that are gone included while a workload is assigned to them
        self._gone_at: dict[str, float] = {}  # nodes that are gone, and when that was seen
        self._refused: dict[str, str] = {}  # pods that kube-scheduler finds no node for, and when it was first seen
        self._well_since: dict[str, str] = {}  # by node: an earlier refusal of a waiting pod has no meaning for it
        # By node, key and value: when a NoExecute taint without a time, or with a future one, was first seen.
        self._tainted: dict[str, dict[tuple[str, str], str]] = {}
        self._unready: dict[str, str] = {}  # nodes that are not ready, and when that was seen if their clock is not to be believed

    def remove_host(self, host: str) -> None:
        """Removes the remembered name of the node with a hostname, unless that node has the hostname now. The caller ensures that no
        workload is assigned to it."""
        node = self._observed.nodes.store.get(self._named.get(host, host))
        if node is None or get_hostname(node) != host:
            self._named.pop(host, None)

    def note_node(self, change: Change, hosts: Collection[str]) -> None:
        """Records of a node that came, changed or went: its hostname, since when it is well, tainted or not ready, and when it went.
        `hosts`: its name, and its hostnames before and now. That it went is recorded only where a workload is assigned to one of them."""
        name, assigned = change.obj["metadata"]["name"], self._users.by_host
        for host in hosts:
            if change.new is not None and host == get_hostname(change.new):
                self._named[host] = name
            elif host not in assigned and self._named.get(host) == name:
                del self._named[host]
        if change.new is None and set(hosts) & assigned.keys():
            self._gone_at = {gone: at for gone, at in self._gone_at.items() if self._clock.monotonic() - at < pacing.NODE_GONE_S}
            self._gone_at[name] = self._clock.monotonic()
        else:
            self._gone_at.pop(name, None)
        self._note_times(name, change)

    def _note_times(self, name: str, change: Change) -> None:
        now = self._format_now()
        if not is_well(change.new):
            self._well_since.pop(name, None)
        elif not is_well(change.old):
            self._well_since[name] = now
        before, undated = self._tainted.pop(name, {}), _list_undated_taints(change.new, now)
        if undated:
            self._tainted[name] = {each: before.get(each, now) for each in undated}
        since = _find_unready(change.new)
        if since is None:
            self._unready.pop(name, None)
        elif since > now or (change.old is not None and _find_unready(change.old) is None):
            self._unready.setdefault(name, now)

    def note_pod(self, key: str, facts: PodFacts | None) -> None:
        """Records since when kube-scheduler finds no node for the pod with a key: when this process first saw it. The record goes when the
        pod has a node, is not refused any more, or is gone (`facts` None). The API keeps the time since which a pod was not scheduled for
        any reason."""
        if facts is None or facts.node or not facts.unschedulable_since:
            self._refused.pop(key, None)
        else:
            self._refused.setdefault(key, self._format_now())

    def adjust_pod(self, pod: PodFacts, node: str) -> PodFacts:
        """Returns a copy of a pod that kube-scheduler refuses and that waits for the node of a name, with `unschedulable_since` as seen
        here: when it was first refused or, if that is later, since when the node is well. A pod without a record (`note_pod`) is unchanged.
        """
        refused = self._refused.get(pod.key)
        return pod if refused is None else replace(pod, unschedulable_since=max(refused, self._well_since.get(node, "")))

    def find_rest(self, name: str) -> float:
        """Returns the seconds for which the node of a name, which is gone, is not yet judged as lost. 0 or less once `pacing.NODE_GONE_S`
        are over, and for a node that was not seen to go."""
        return self._gone_at.get(name, -pacing.NODE_GONE_S) + pacing.NODE_GONE_S - self._clock.monotonic()

    def find_node(self, host: str) -> str:
        """Returns the name of the node with a hostname, also of one that is gone; a hostname that is not known comes back as it is. Where
        another node has the hostname as its name, and the node is not known, returns a text of `show_missing`."""
        node = self._observed.nodes.store.get(host)
        if node is not None and get_hostname(node) == host:
            return host
        return self._named.get(host, host if node is None else show_missing(host))

    def read_node(self, name: str) -> Obj | None:
        """Returns the node of a name, a copy where times differ from the API's; None where it is gone. NoExecute taints without a time, or
        with a future one, get the time at which they were first seen. Its condition Ready gets the time at which this process saw that
        change, where that is known."""
        node, seen = self._observed.nodes.store.get(name), self._tainted.get(name)
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

    def _format_now(self) -> str:
        return from_time(self._clock.now())


def list_hosts(facts: WorkloadFacts | None) -> frozenset[str]:
    """Returns the hostnames that a running workload is assigned to; empty where it does not run, is gone, or is assigned to wider
    domains.
    """
    if facts is None or facts.admission is None or not facts.runs:
        return frozenset()
    return frozenset(values[-1] for given in facts.admission.pod_sets for values, _ in count_by_domain(given))


def count_by_domain(given: PodSetAdmission) -> Iterable[tuple[tuple[str, ...], int]]:
    """Returns the values of each domain (level by level) and its number of pods, in the order of the assignment. Empty where there is no
    topology assignment, or its lowest level is not the hostname."""
    assignment = given.assignment
    if assignment is None or assignment.levels[-1] != HOSTNAME_LABEL:
        return ()
    return ((domain.values, domain.count) for domain in assignment.domains)


def show_missing(host: str) -> str:
    """Returns the text that stands for the name of a missing node with a known hostname; no node has such a name."""
    return f"with hostname {host}"


def read_state(node: Obj) -> tuple[Any, ...]:
    """Returns what of a node may change whether it serves, to be compared: its taints, `unschedulable`, status and time of Ready, and its
    time of deletion.
    """
    spec, conditions = node.get("spec") or {}, (node.get("status") or {}).get("conditions") or ()
    ready = [(c.get("status"), c.get("lastTransitionTime")) for c in conditions if c.get("type") == "Ready"]
    return spec.get("taints"), spec.get("unschedulable"), ready, node["metadata"].get("deletionTimestamp")


def read_state_and_labels(node: Obj) -> tuple[Any, ...]:
    """Returns what of a node may change whether it serves a workload that is assigned to it, to be compared: `read_state` and its
    labels.
    """
    return read_state(node), node["metadata"].get("labels")


def place_of(node: Obj) -> tuple[Any, ...]:
    """Returns what of a node may change which workloads have a place there, to be compared: `read_state`, its labels and its allocatable
    amounts.
    """
    return read_state(node), node["metadata"].get("labels"), (node.get("status") or {}).get("allocatable")


def is_well(node: Obj | None) -> bool:
    """Whether a node serves in every respect, so that no workload can have lost it: without taints, not cordoned, not being deleted, and
    ready or without a condition Ready. False for None."""
    if node is None:
        return False
    taints, unschedulable, ready, deleted = read_state(node)
    return not taints and not unschedulable and not deleted and all(status == "True" for status, _ in ready)


def _list_undated_taints(node: Obj | None, now: str) -> list[tuple[str, str]]:
    """Returns NoExecute taints without a time, or with a future one: the clock of the process that added them may be ahead."""
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    added = [(taint, taint.get("timeAdded") or "") for taint in taints if taint.get("effect") == "NoExecute"]
    return [_name_of(taint) for taint, at in added if not at or at > now]


def _name_of(taint: Mapping[str, Any]) -> tuple[str, str]:
    return taint["key"], taint.get("value") or ""


def _find_unready(node: Obj | None) -> str | None:
    """Returns since when a node is not ready, by its own condition; None where it is ready."""
    ready = find_condition(node or {}, "Ready") or {}
    return ready.get("lastTransitionTime") or "" if ready.get("status", "True") != "True" else None

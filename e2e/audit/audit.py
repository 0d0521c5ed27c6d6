"""Goes through a history moment by moment: was a node ever over capacity, a quota exceeded, a required domain left?

Stricter than `truth.always`, which looks at one moment, and usable where much happens at once: three lists read one after the
other tell of three moments, a history of one after the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from core.model.pod_resources import PODS, parse_resources
from core.names import HOSTNAME_LABEL
from e2e.audit.history import Fact, PodFact, WorkloadFact

Obj = dict[str, Any]
Place = tuple[str, str, str]  # workload, pod set, node


def audit(facts: Iterable[Fact], nodes: Iterable[Obj], queues: Iterable[Obj], required: Mapping[str, str]) -> list[str]:
    """Sentences about what was broken, in order, each once. `required` maps jobs to the label of which they need one domain."""
    nodes = list(nodes)
    capacity, quotas, domains = _Capacity(nodes), _Quotas(queues), _Domains(nodes, required)
    broken: dict[str, None] = {}
    for fact in facts:
        if isinstance(fact, PodFact):
            found = [*capacity.on_pod(fact), *domains.on_pod(fact)]
        elif isinstance(fact, WorkloadFact):
            domains.on_workload(fact)
            found = [*capacity.on_workload(fact), *quotas.on_workload(fact)]
        else:
            continue
        broken |= dict.fromkeys(found)
    return list(broken)


class _Capacity:
    """Pods on a node, and pods promised to it that have not come yet, are within what it has."""

    def __init__(self, nodes: Iterable[Obj]) -> None:
        self._has = {node["metadata"]["name"]: parse_resources(node["status"]["allocatable"]) for node in nodes}
        self._by_hostname = {node["metadata"]["labels"].get(HOSTNAME_LABEL): node["metadata"]["name"] for node in nodes}
        self._takes: dict[str, Counter[str]] = {name: Counter() for name in self._has}
        self._pods: dict[str, PodFact] = {}
        # Pods that came, those among them that have ended too: an ended pod has used up what was promised to it.
        self._came: Counter[Place] = Counter()
        self._promised: dict[Place, tuple[Mapping[str, int], int]] = {}
        self._places: dict[str, set[Place]] = defaultdict(set)

    def on_pod(self, pod: PodFact) -> list[str]:
        before = self._pods.pop(pod.uid, None)
        if not pod.gone:
            self._pods[pod.uid] = pod
        for fact, sign in ((before, -1), (None if pod.gone else pod, 1)):
            if fact is not None and fact.node in self._takes:
                if not fact.ended:
                    self._take(fact.node, fact.requests, sign)
                place = (fact.workload, fact.pod_set, fact.node)
                self._keep(place, -1)
                self._came[place] += sign
                self._keep(place, 1)
        return self._over([pod.node])

    def on_workload(self, workload: WorkloadFact) -> list[str]:
        for place in self._places.pop(workload.name, ()):
            self._keep(place, -1)
            del self._promised[place]
        if workload.admission is None or workload.finished or workload.gone:
            return []
        for pod_set in workload.admission.pod_sets:
            if pod_set.assignment is None or pod_set.assignment.levels[-1] != HOSTNAME_LABEL:
                continue
            requests = {name: amount // pod_set.count for name, amount in pod_set.usage.items()} | {PODS: 1}
            for domain in pod_set.assignment.domains:
                place = (workload.name, pod_set.name, self._by_hostname[domain.values[-1]])
                self._promised[place] = (requests, domain.count)
                self._places[workload.name].add(place)
                self._keep(place, 1)
        return self._over(place[2] for place in self._places[workload.name])

    def _keep(self, place: Place, sign: int) -> None:
        """Counts, or counts no more, what a place still waits for."""
        requests, count = self._promised.get(place, ({}, 0))
        missing = count - self._came[place]
        if missing > 0:
            self._take(place[2], requests, sign * missing)

    def _take(self, node: str, requests: Mapping[str, int], times: int) -> None:
        for name, amount in requests.items():
            self._takes[node][name] += amount * times

    def _over(self, nodes: Iterable[str]) -> list[str]:
        return [
            f"node {node} was over capacity: {amount} of {self._has[node].get(name, 0)} {name} used or promised: {self._who(node, name)}"
            for node in nodes
            if node in self._has
            for name, amount in self._takes[node].items()
            if amount > self._has[node].get(name, 0)
        ]

    def _who(self, node: str, resource: str) -> str:
        pods = [f"{pod.requests.get(resource, 0)} by pod {pod.name}" for pod in self._pods.values() if pod.node == node and not pod.ended]
        waits = [
            f"{count} x {requests.get(resource, 0)} promised to {place[0]}/{place[1]}, of which {self._came[place]} came"
            for place, (requests, count) in self._promised.items()
            if place[2] == node and count > self._came[place]
        ]
        return ", ".join(pods + waits)


class _Quotas:
    """No queue takes more than its own and what it may borrow, no cohort more than its queues have. Lending limits are not judged."""

    def __init__(self, queues: Iterable[Obj]) -> None:
        self._cohort: dict[str, str] = {}
        self._most: dict[tuple[str, str, str], int | None] = {}  # queue, flavor, resource
        self._shared: Counter[tuple[str, str, str]] = Counter()  # cohort, flavor, resource
        self._used: Counter[tuple[str, str, str]] = Counter()  # by queue, and by cohort
        self._held: dict[str, list[tuple[tuple[str, str, str], int]]] = {}
        for queue in queues:
            self._read(queue["metadata"]["name"], queue["spec"])

    def _read(self, name: str, spec: Obj) -> None:
        cohort = spec.get("cohortName")
        self._cohort[name] = f"cohort {cohort}" if cohort else f"cohort of {name} alone"
        for group in spec["resourceGroups"]:
            for flavor in group["flavors"]:
                for entry in flavor["resources"]:
                    resource = entry["name"]
                    own = parse_resources({resource: entry["nominalQuota"]})[resource]
                    self._shared[self._cohort[name], flavor["name"], resource] += own
                    most: int | None = own
                    if cohort:
                        limit = entry.get("borrowingLimit")
                        most = None if limit is None else own + parse_resources({resource: limit})[resource]
                    self._most[name, flavor["name"], resource] = most

    def on_workload(self, workload: WorkloadFact) -> list[str]:
        for key, amount in self._held.pop(workload.name, ()):
            self._used[key] -= amount
        if workload.admission is None or workload.finished or workload.gone:
            return []
        queue = workload.admission.cluster_queue
        held = self._held[workload.name] = []
        for pod_set in workload.admission.pod_sets:
            left = pod_set.count - workload.given_back.get(pod_set.name, 0)
            for resource, flavor in pod_set.flavors.items():
                amount = pod_set.usage.get(resource, 0) * left // max(1, pod_set.count)
                held += [((owner, flavor, resource), amount) for owner in (queue, self._cohort[queue])]
        for key, amount in held:
            self._used[key] += amount
        limits = {key: self._most.get(key, self._shared.get(key, 0)) for key, _ in held}
        return [
            f"{key[0]} used {self._used[key]} of {limit} {key[2]} in {key[1]} when {workload.name} was admitted"
            for key, limit in limits.items()
            if limit is not None and self._used[key] > limit
        ]


class _Domains:
    """Running pods of a job that needs one domain of a level are in one."""

    def __init__(self, nodes: Iterable[Obj], required: Mapping[str, str]) -> None:
        self._labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
        self._required = required
        self._level: dict[str, str] = {}  # by workload
        self._runs: dict[str, tuple[str, str]] = {}  # pod -> workload, domain
        self._in: dict[str, Counter[str]] = defaultdict(Counter)

    def on_workload(self, workload: WorkloadFact) -> None:
        if workload.job in self._required:
            self._level[workload.name] = self._required[workload.job]

    def on_pod(self, pod: PodFact) -> list[str]:
        if pod.uid in self._runs:
            workload, domain = self._runs.pop(pod.uid)
            self._in[workload][domain] -= 1
        level = self._level.get(pod.workload)
        if level is None or pod.gone or pod.ended or pod.node not in self._labels:
            return []
        domain = self._labels[pod.node].get(level, "")
        self._runs[pod.uid] = (pod.workload, domain)
        self._in[pod.workload][domain] += 1
        found = sorted(+self._in[pod.workload])
        return [f"workload {pod.workload} needs one {level} and had pods in {', '.join(found)}"] if len(found) > 1 else []

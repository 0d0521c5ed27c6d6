"""A whole cluster on paper whose nodes fail: the health of nodes, the scheduler's cycle and the plan of ungating as they run.

Beside them what a cluster does by itself, at once: a Job controller that makes pods anew, a kube-scheduler that binds what is free and
fits, and nodes on which pods end. What must hold at any moment is looked at after every step, by the objects alone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from core.model.admission import admission_from_wire
from core.model.node_health import HealthRules
from core.model.spares import fullest, must_be_named, show_held_spares
from core.names import (
    ADMITTED,
    EVICTED,
    HOSTNAME_LABEL,
    JOB_COMPLETION_INDEX_LABEL,
    LEAVING_TAINTS,
    PODS_SCHEDULABLE,
    PODSET_LABEL,
    QUOTA_RESERVED,
    SPARES,
    SPARES_HELD,
    TOPOLOGY_GATE,
    UNCONSTRAINED_TOPOLOGY,
    WORKLOAD_ANNOTATION,
)
from core.placement.profile import STANDARD
from core.plan.ungate import plan_ungating
from core.plan.verdicts import verdict_status
from core.queueing.cycle import Cycle
from core.queueing.outcome import Found
from core.queueing.second_pass import NodeReplacement
from core.runtime.client import Client
from core.runtime.informer import Informer
from core.runtime.resource import Obj
from core.runtime.watch_step import Deleted
from core.state.facts import condition_is_true
from reconciler.apply import Writer
from reconciler.node_health import GONE_S, NodeHealth
from reconciler.observed import Observed
from reconciler.spares import Spares
from tests.builders import NAMESPACE, THREE_LEVELS, cluster_queue_json, flavor_json, local_queue_json, topology_json, workload_json
from tests.runtime.fakes import ManualClock

_AWAY = ("NoSchedule", "NoExecute")
_MOST_ROUNDS = 40


class PaperLives:
    """Objects by name; whatever is written is observed at once."""

    def __init__(self, replacement: NodeReplacement) -> None:
        self.clock = ManualClock(0)
        self.observed = Observed(cast("Client", None), self.clock)
        self.state = self.observed.state
        self.health = NodeHealth(self.observed, cast("Writer", self), self.clock, HealthRules())
        self.cycle = Cycle(self.state, STANDARD, replacement=replacement)
        self.spares = Spares(self.observed, cast("Writer", self), self.clock, LEAVING_TAINTS, makes_room=lambda: self.cycle.makes_room)
        self.workloads: dict[str, Obj] = {}
        self.pods: dict[str, Obj] = {}
        self.nodes: dict[str, Obj] = {}
        self.known: dict[str, Obj] = {}  # nodes that are gone, too, as they were
        self.evicted: Counter[str] = Counter()
        self.placed: set[str] = set()  # workloads that ever had a place
        self._ending: set[str] = set()  # pods that were on their way out when the last round began
        self._numbers = itertools.count(1)
        self._put(self.observed.namespaces, {"metadata": {"name": NAMESPACE}})
        self._put(self.observed.topologies, topology_json("t", THREE_LEVELS))
        self._put(self.observed.flavors, flavor_json("tas", "t"))
        self._put(self.observed.cluster_queues, cluster_queue_json("cq", {"tas": "1000"}))
        self._put(self.observed.local_queues, local_queue_json("lq", "cq"))

    # --- what is there --------------------------------------------------------------------------------------

    def node(self, name: str, labels: Mapping[str, str], cpu: int, *, ready: bool = True, **spec: Any) -> None:
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": self.now()}
        if not ready:
            spec["taints"] = [{"key": "node.kubernetes.io/not-ready", "effect": each, "timeAdded": self.now()} for each in _AWAY]
        status = {"conditions": [condition], "allocatable": {"cpu": str(cpu), "pods": "20"}}
        made = {"metadata": {"name": name, "labels": dict(labels)}, "spec": spec, "status": status}
        self.nodes[name] = self.known[name] = self._put(self.observed.nodes, made)

    def change(self, name: str, *, ready: bool = True, **spec: Any) -> None:
        """The node as it was first, and whatever else is said."""
        known = self.known[name]
        self.node(name, known["metadata"]["labels"], int(known["status"]["allocatable"]["cpu"]), ready=ready, **spec)

    def drop_node(self, name: str) -> None:
        if name in self.nodes:
            self._drop(self.observed.nodes, self.nodes.pop(name))
            self.clock.time += GONE_S
        self.end(name)

    def submit(self, name: str, pod_sets: Sequence[Mapping[str, Any]]) -> None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"owner-{name}", "controller": True}
        wire = workload_json(name, pod_sets)
        wire["metadata"]["ownerReferences"] = [owner]
        self._write(wire)

    def end(self, node: str, most: int | None = None, *, lingers: bool = False) -> None:
        """Pods on a node are gone, or some of them; those that linger are being deleted, and nobody is there to say that they are gone."""
        there = [pod for pod in self.live() if pod["spec"].get("nodeName") == node]
        for pod in there[:most]:
            if lingers:
                self._pod({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": self.now()}})
            else:
                self._gone(pod)

    def finish(self, name: str) -> None:
        """All its pods have succeeded, and its job is deleted."""
        for pod in self.pods_of(name):
            self._gone(pod)
        self._drop(self.observed.workloads, self.workloads.pop(name))

    def live(self) -> list[Obj]:
        return [p for p in self.pods.values() if p["status"]["phase"] != "Failed" and not p["metadata"].get("deletionTimestamp")]

    def pods_of(self, workload: str, pod_set: str | None = None) -> list[Obj]:
        """Those that are there, on their way out or not."""
        mine = (pod for pod in self.pods.values() if pod["metadata"]["annotations"][WORKLOAD_ANNOTATION] == workload)
        return [pod for pod in mine if pod_set in (None, pod["metadata"]["labels"][PODSET_LABEL])]

    def is_admitted(self, name: str) -> bool:
        return condition_is_true(self.workloads[name], ADMITTED) and not condition_is_true(self.workloads[name], EVICTED)

    def assigned(self, name: str) -> dict[str, Counter[str]]:
        """Pods per node, by pod set."""
        admission = admission_from_wire(self.workloads[name]["status"].get("admission"))
        found: dict[str, Counter[str]] = {}
        for given in admission.pod_sets if admission is not None else ():
            assert given.assignment is not None
            found[given.name] = Counter({domain.values[-1]: domain.count for domain in given.assignment.domains})
        return found

    def spare(self, name: str) -> dict[str, tuple[tuple[str, ...], int]]:
        """Nodes that are kept free, by pod set, and how many pods each has room for."""
        admission = self.state.workloads.holding(f"{NAMESPACE}/{name}")
        return {given.name: (given.spares, fullest(given)) for given in admission.pod_sets} if admission is not None else {}

    # --- what goes on ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Until nothing changes any more; what must hold is looked at after each round."""
        for _ in range(_MOST_ROUNDS):
            before = self._stand()
            self._run_once()
            self.check()
            if self._stand() == before:
                return
        raise AssertionError("it never comes to rest")

    def _run_once(self) -> None:
        ending = {name for name, pod in self.pods.items() if pod["metadata"].get("deletionTimestamp")}
        for pod in [self.pods[name] for name in ending & self._ending]:
            if pod["spec"]["nodeName"] not in self.nodes or self._is_up(pod["spec"]["nodeName"]):
                self._gone(pod)
        self._ending = ending
        for name in sorted(self.workloads):
            _wait(self.health.look(f"{NAMESPACE}/{name}"))
        for verdict in list(self.cycle.run()):
            name = verdict.workload.key.partition("/")[2]
            said = (self.workloads[name]["metadata"].get("annotations") or {}).get(SPARES)
            asked = {pod_set.name: pod_set.spares for pod_set in verdict.workload.pod_sets}
            replaces = bool(verdict.workload.unhealthy_nodes)
            if isinstance(verdict.outcome, Found) and must_be_named(verdict.outcome.admission, said, asked, replaces=replaces):
                self._name_spares(name, show_held_spares(verdict.outcome.admission))
            status = verdict_status(self.workloads[name], verdict, self.now(), self.state.resource_rules)
            if status is not None:
                self._set_status(name, status)
        for name in sorted(self.workloads):
            if condition_is_true(self.workloads[name], EVICTED) and self.workloads[name]["status"].get("admission"):
                self._leave(name)
            elif self.is_admitted(name):
                self.placed.add(name)
                self._make_pods(name)
                self._ungate(name)
        for name in sorted(self.workloads):
            _wait(self.spares.look(f"{NAMESPACE}/{name}"))
        self._bind()

    def _leave(self, name: str) -> None:
        """Evicted, its job is suspended: its pods are gone, and it gives back what it held."""
        self.evicted[name] += 1
        for pod in self.pods_of(name):
            self._gone(pod)
        status = dict(self.workloads[name]["status"])
        del status["admission"]
        status.pop("unhealthyNodes", None)
        over = {
            kind: {"type": kind, "status": "False", "reason": "Pending", "lastTransitionTime": self.now()}
            for kind in (QUOTA_RESERVED, ADMITTED)
        }
        status["conditions"] = [over.get(condition["type"], condition) for condition in status["conditions"]]
        self._set_status(name, status)

    def _make_pods(self, name: str) -> None:
        workload = self.workloads[name]
        for pod_set in workload["spec"]["podSets"]:
            there = [p for p in self.live() if p in self.pods_of(name, pod_set["name"])]
            indexes = {int(pod["metadata"]["labels"][JOB_COMPLETION_INDEX_LABEL]) for pod in there}
            for index in sorted(set(range(pod_set["count"])) - indexes):
                made = f"{name}-{pod_set['name']}-{index}-{next(self._numbers)}"
                metadata = {
                    "name": made,
                    "namespace": NAMESPACE,
                    "labels": {PODSET_LABEL: pod_set["name"], JOB_COMPLETION_INDEX_LABEL: str(index)},
                    "annotations": {WORKLOAD_ANNOTATION: name, UNCONSTRAINED_TOPOLOGY: "true"},
                    "ownerReferences": workload["metadata"]["ownerReferences"],
                    "creationTimestamp": self.now(),
                }
                spec = {**pod_set["template"]["spec"], "schedulingGates": [{"name": TOPOLOGY_GATE}]}
                self._pod({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def _ungate(self, name: str) -> None:
        facts = self.state.workloads.facts[f"{NAMESPACE}/{name}"]
        assert facts.admission is not None
        pods = self.observed.pods_of(facts.key)
        plan = plan_ungating(facts, facts.admission, pods, self.state.find_places(facts.admission.pod_sets).level_values, self._is_up)
        for stray in plan.strays:  # one that was stuck, and has its place elsewhere by now: the ungater ends it
            assert not stray.node, "whose place had been taken from under it"
            self._gone(self.pods[stray.key.partition("/")[2]])
        for action in plan.actions:
            pod = self.pods[action.pod.key.partition("/")[2]]
            assert action.node_selector[HOSTNAME_LABEL] not in facts.unhealthy_nodes
            stamp = action.coordinates
            labels = {key: value for key, value in {**pod["metadata"]["labels"], **stamp.labels}.items() if value is not None}
            notes = {key: value for key, value in {**pod["metadata"]["annotations"], **stamp.annotations}.items() if value is not None}
            spec = {**pod["spec"], "schedulingGates": [], "nodeSelector": {**pod["spec"].get("nodeSelector", {}), **action.node_selector}}
            self._pod({**pod, "metadata": {**pod["metadata"], "labels": labels, "annotations": notes}, "spec": spec})

    def _bind(self) -> None:
        used: Counter[str] = Counter()
        for pod in self.pods.values():
            if pod["spec"].get("nodeName") and pod["status"]["phase"] != "Failed":
                used[pod["spec"]["nodeName"]] += _cpu(pod)
        for pod in self.live():
            if pod["spec"]["schedulingGates"] or pod["spec"].get("nodeName"):
                continue
            name = pod["spec"]["nodeSelector"][HOSTNAME_LABEL]
            node = self.nodes.get(name)
            if node is not None and takes(node) and used[name] + _cpu(pod) <= int(node["status"]["allocatable"]["cpu"]):
                used[name] += _cpu(pod)
                self._pod({**pod, "spec": {**pod["spec"], "nodeName": name}, "status": {"phase": "Running"}})
            elif "conditions" not in pod["status"]:
                refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": self.now()}
                self._pod({**pod, "status": {"phase": "Pending", "conditions": [refused]}})

    def _is_up(self, node: str) -> bool:
        return node in self.nodes and condition_is_true(self.nodes[node], "Ready")

    # --- what holds at any moment ---------------------------------------------------------------------------

    def check(self) -> None:
        takes_: Counter[str] = Counter()
        for name, workload in self.workloads.items():
            assigned = self.assigned(name)
            for pod_set in workload["spec"]["podSets"]:
                cpu = int(pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
                given = assigned.get(pod_set["name"], Counter())
                pods = [p for p in self.pods_of(name, pod_set["name"]) if p["status"]["phase"] != "Failed"]
                bound = [p for p in pods if p["spec"].get("nodeName")]
                for node, count in (Counter(p["spec"]["nodeName"] for p in bound) | given).items():
                    takes_[node] += count * cpu
                spares, each = self.spare(name).get(pod_set["name"], ((), 0))
                assert not given.keys() & set(spares), f"{name}: {spares} are spare and in use by {given}"
                for node in spares:
                    takes_[node] += each * cpu if node in self.nodes else 0
                if spares and pod_set["topologyRequest"].get("required"):
                    assert len(self._domains(pod_set["topologyRequest"]["required"], [*given, *spares])) == 1, (
                        f"{name}: {spares} are elsewhere"
                    )
                if self.is_admitted(name):
                    runs = Counter(p["spec"]["nodeName"] for p in bound if p in self.live())
                    assert given.total() == pod_set["count"], f"{name}: {given} is not all of {pod_set['name']}"
                    assert not runs - given, f"{name}: {runs - given} run where they have no place any more"
                    self._check_followers(name, pod_set["count"], pods, given)
                    self._check_shape(name, pod_set, given)
            self._check_groups(name)
        for node, amount in takes_.items():
            assert amount <= int(self.known[node]["status"]["allocatable"]["cpu"]), f"{amount} on {node}"
        assert self.state.ledger.drift() == {}

    def _check_followers(self, name: str, most: int, pods: Sequence[Obj], given: Counter[str]) -> None:
        """None is sent elsewhere before the one that it follows is gone, where that ends on a node that is up."""
        leave = [p for p in pods if p["metadata"].get("deletionTimestamp") and not given[p["spec"]["nodeName"]]]
        sent = [p for p in pods if not p["metadata"].get("deletionTimestamp") and not p["spec"]["schedulingGates"]]
        assert len(sent) + sum(self._is_up(p["spec"]["nodeName"]) for p in leave) <= most, (
            f"{name}: pods follow others that are still there"
        )

    def _check_shape(self, name: str, pod_set: Mapping[str, Any], given: Counter[str]) -> None:
        asked = pod_set["topologyRequest"]
        if asked.get("required"):
            assert len(self._domains(asked["required"], given)) == 1, f"{name}: {given} is in several domains of {asked['required']}"
        if asked.get("podSetSliceSize"):
            per_domain: Counter[tuple[str, ...]] = Counter()
            for node, count in given.items():
                per_domain[self._domain(asked["podSetSliceRequiredTopology"], node)] += count
            assert not any(count % asked["podSetSliceSize"] for count in per_domain.values()), f"{name}: broken slices: {per_domain}"

    def _check_groups(self, name: str) -> None:
        members = [each for each in self.workloads[name]["spec"]["podSets"] if each["topologyRequest"].get("podSetGroupName")]
        level = members[0]["topologyRequest"].get("required") if members else None
        if level and self.is_admitted(name):
            together = [node for each in members for node in self.assigned(name)[each["name"]]]
            assert len(self._domains(level, together)) == 1, f"{name}: its group is apart"

    def _domains(self, level: str, nodes: Iterable[str]) -> set[tuple[str, ...]]:
        return {self._domain(level, node) for node in nodes}

    def _domain(self, level: str, node: str) -> tuple[str, ...]:
        labels = self.known[node]["metadata"]["labels"]
        return tuple(labels[each] for each in THREE_LEVELS[: THREE_LEVELS.index(level) + 1])

    # --- the writer of NodeHealth ---------------------------------------------------------------------------

    def now(self) -> str:
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def apply_admission(self, workload: Obj, status: Mapping[str, Any], *, strict: bool) -> Obj:
        name = workload["metadata"]["name"]
        for node in (each["name"] for each in status.get("unhealthyNodes") or ()):
            running = [p for p in self.pods_of(name) if p in self.live() and p["spec"].get("nodeName") == node]
            assert not running or node not in self.nodes, f"{node} is called lost while pods of {name} run there"
        self._set_status(name, status)
        return self.workloads[name]

    async def terminate_pod(self, pod: Obj, message: str) -> Obj:
        found = self.pods[pod["metadata"]["name"]]
        assert not found["spec"].get("nodeName"), "what runs is not ended"
        name, host = found["metadata"]["annotations"][WORKLOAD_ANNOTATION], found["spec"]["nodeSelector"][HOSTNAME_LABEL]
        node = self.nodes.get(host)
        given = self.assigned(name).get(found["metadata"]["labels"][PODSET_LABEL], Counter())
        assert node is None or not takes(node) or not given[host], f"it could have run on {host}: {message}"
        self._gone(found)
        return found

    async def event(self, *_: object, **__: object) -> None:
        return None

    # --- and of Spares ----------------------------------------------------------------------------------------

    async def patch_workload(self, workload: Obj, body: Mapping[str, Any]) -> Obj:
        return self._name_spares(workload["metadata"]["name"], body["metadata"]["annotations"][SPARES])

    async def apply_workload_condition(self, workload: Obj, condition: Mapping[str, Any], manager: str = "") -> Obj:
        assert condition["type"] in (PODS_SCHEDULABLE, SPARES_HELD)
        name = workload["metadata"]["name"]
        status = self.workloads[name]["status"]
        others = [c for c in status["conditions"] if c["type"] != condition["type"]]
        self._set_status(name, {**status, "conditions": [*others, dict(condition)]})
        return self.workloads[name]

    def _name_spares(self, name: str, text: str | None) -> Obj:
        wire = self.workloads[name]
        metadata = {**wire["metadata"], "annotations": {SPARES: text} if text else {}, "resourceVersion": str(self._version())}
        self._write({**wire, "metadata": metadata})
        return self.workloads[name]

    # --- inside ---------------------------------------------------------------------------------------------

    def _set_status(self, name: str, status: Mapping[str, Any]) -> None:
        key, workload = f"{NAMESPACE}/{name}", self.workloads[name]
        wire = {**workload, "status": dict(status)}
        wire["metadata"] = {**workload["metadata"], "resourceVersion": str(self._version())}
        if self.state.workloads.is_assumed(key):
            self.state.confirm(key, int(wire["metadata"]["resourceVersion"]))
        self._write(wire)

    def _write(self, workload: Obj) -> None:
        self.workloads[workload["metadata"]["name"]] = self._put(self.observed.workloads, workload)

    def _pod(self, pod: Obj) -> None:
        self.pods[pod["metadata"]["name"]] = self._put(self.observed.pods, pod)

    def _gone(self, pod: Obj) -> None:
        self._drop(self.observed.pods, self.pods.pop(pod["metadata"]["name"]))

    def _put(self, informer: Informer, obj: Obj) -> Obj:
        metadata = {"uid": f"uid-{obj['metadata']['name']}", **obj["metadata"]}
        metadata["resourceVersion"] = metadata.get("resourceVersion", "") if informer is self.observed.workloads else str(self._version())
        stored = {**obj, "metadata": metadata}
        informer.put(stored)
        return stored

    def _drop(self, informer: Informer, obj: Obj) -> None:
        informer._fold(Deleted(obj))

    def _version(self) -> int:
        return next(self._numbers)

    def _stand(self) -> tuple[Any, ...]:
        workloads = [(name, w["status"].get("admission"), w["status"].get("unhealthyNodes")) for name, w in sorted(self.workloads.items())]
        pods = [(name, pod["spec"].get("nodeName"), pod["spec"]["schedulingGates"]) for name, pod in sorted(self.pods.items())]
        spares = [(name, self.spare(name)) for name in sorted(self.workloads)]
        return workloads, pods, sorted(self._ending), spares


def takes(node: Obj) -> bool:
    """Whether a node takes pods that tolerate nothing."""
    spec = node["spec"]
    tainted = any(taint["effect"] in _AWAY for taint in spec.get("taints") or ())
    return condition_is_true(node, "Ready") and not tainted and not spec.get("unschedulable")


def _cpu(pod: Obj) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def _wait(work: Any) -> None:
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()

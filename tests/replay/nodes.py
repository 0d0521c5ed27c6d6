"""The nodes family: which nodes are lost for which workloads and which pods are ended, through `reconciler.nodes.node_health` as it runs,
on
an API server in memory; and what of nodes and pods counts, by the facts that the state is folded from."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from core.jobs.templates import has_topology_annotation
from core.model.admission import decode_admission
from core.model.gates import read_gates
from core.model.node_health_rules import HealthRules
from core.names import DOMAIN_SIZE_ANNOTATION, EVENT_NODE_UNHEALTHY, EVICTED, HOSTNAME_LABEL
from core.resource import Obj
from core.runtime.controller import RequeueAfter
from core.state.facts import NodeFacts, PodFacts
from reconciler.nodes.node_health import NodeHealth
from reconciler.nodes.node_memory import read_state
from sim.harness import Harness
from tests.runtime.fakes import ManualClock

Json = Mapping[str, Any]
_ORDER = ("Topology", "ResourceFlavor", "Node", "Pod", "Workload")
_OWNER = "made-by-the-job"


class NodesOfCase(Harness):
    """What NodeHealth sees and writes."""

    def __init__(self, objects: list[Obj], gates: Mapping[str, bool], judged: Collection[str]) -> None:
        """Nodes that are not `judged` are well: a case leaves them out."""
        super().__init__(ManualClock(0))  # which is the `now` of every case
        there = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "Node"}
        others = {host for obj in objects if obj["kind"] == "Workload" for host in _hosts(obj)} - there - set(judged)
        objects = [*objects, *({"kind": "Node", "metadata": {"name": host}, "status": {"conditions": [_READY]}} for host in others)]
        chosen = read_gates([f"{name}={str(value).lower()}" for name, value in gates.items()])
        self.health = NodeHealth(self.observed, self.executor, self.clock, HealthRules().with_gates(chosen))
        for obj in sorted(objects, key=lambda obj: _ORDER.index(obj["kind"])):
            self.put(_prepared(obj))

    def run(self) -> float | None:
        """Looks at every workload once; when it is to look again."""
        results = [self.wait_for(self.health.reconcile(_key(workload))) for workload in self.all("Workload")]
        waits = [result.seconds for result in results if isinstance(result, RequeueAfter)]
        return min(waits, default=None)


_READY = {"type": "Ready", "status": "True"}


def _hosts(workload: Obj) -> set[str]:
    admission = decode_admission((workload.get("status") or {}).get("admission"))
    given = [each.assignment for each in admission.pod_sets if each.assignment is not None] if admission is not None else []
    return {domain.values[-1] for assignment in given if assignment.levels[-1] == HOSTNAME_LABEL for domain in assignment.domains}


def _key(obj: Obj) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def _prepared(obj: Obj) -> Obj:
    """With what an API server adds; the cases leave out whose workload and pods are."""
    made: Obj = deepcopy(obj)
    metadata = made["metadata"]
    metadata |= {"uid": f"uid-of-{metadata['name']}", "resourceVersion": "1"}
    if made["kind"] in ("Workload", "Pod"):
        metadata.setdefault("namespace", "default")
        metadata["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": _OWNER, "controller": True}]
    if made["kind"] == "Pod" and HOSTNAME_LABEL in (made["spec"].get("nodeSelector") or {}) and has_topology_annotation(made):
        metadata["annotations"] = {**metadata["annotations"], DOMAIN_SIZE_ANNOTATION: "1"}  # as the ungater that pinned it would have
    if made["kind"] == "Node":
        made.setdefault("status", {})
    return made


def answer(case: Json) -> dict[str, Any]:
    """By kind: what `reconcile` leaves behind; `{health, pods_to_terminate}`; or `{result}`, whether an event changes what counts."""
    if case["kind"] == "reconcile":
        return _reconciled(case)
    if case["kind"] == "workload_health_on_node":
        objects = [*case["objects"], *(() if any(o["kind"] == "Node" for o in case["objects"]) else (case["node"],))]
        replayed = NodesOfCase(objects, case["gates"], [case["node_name"]])
        replayed.run()
        lost = any(_unhealthy(workload) for workload in replayed.all("Workload"))
        ended = sorted(_key(pod).partition("/")[2] for pod in replayed.all("Pod") if _has_ended(pod))
        return {"health": "Unhealthy" if lost else "Healthy", "pods_to_terminate": ended}
    if case["kind"] == "node_update_class":
        return {"result": _matters(case["node"]) != _matters(case["old_node"])}
    if case["kind"] == "counts_as_non_tas_usage":
        return {"result": bool(_usage(case.get("pod")))}
    return {"result": _usage(case.get("old_pod")) != _usage(None if case["event"] == "delete" else case["pod"]) or _is_gone(case)}


def _matters(node: Json) -> tuple[Any, ...]:
    """What topogate looks at of a node."""
    seen = _prepared(dict(node))
    return NodeFacts.read(seen), read_state(seen)


def _is_gone(case: Json) -> bool:
    return case["event"] == "delete" and bool(_usage(case["pod"]))


def _usage(pod: Json | None) -> tuple[Any, ...]:
    """What a pod takes, and where."""
    facts = PodFacts.read(_prepared(dict(pod))) if pod is not None else None
    return (facts.node, sorted(facts.requests.items())) if facts is not None and facts.holds else ()


def _reconciled(case: Json) -> dict[str, Any]:
    replayed = NodesOfCase(case["objects"], case["gates"], case["requests"])
    wait = replayed.run()
    return {
        "results": [{"requeue_after_seconds": wait or 0}],
        "workloads_after": [
            {"name": _key(workload), "unhealthy_nodes": _unhealthy(workload), "evicted": _evicted(workload)}
            for workload in replayed.all("Workload")
        ],
        "pods_after": sorted(_key(pod) for pod in replayed.all("Pod") if _has_ended(pod)),
        "events": [
            {"object": event.key, "reason": event.reason, "type": event.type}
            for event in replayed.events
            if event.reason != EVENT_NODE_UNHEALTHY  # ours: why a node is lost
        ],
    }


def _unhealthy(workload: Obj) -> list[str]:
    return sorted(node["name"] for node in (workload.get("status") or {}).get("unhealthyNodes") or ())


def _evicted(workload: Obj) -> str:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return next((c["reason"] for c in conditions if c["type"] == EVICTED and c["status"] == "True"), "")


def _has_ended(pod: Obj) -> bool:
    return any(c["type"] == "TerminatedByKueue" for c in (pod.get("status") or {}).get("conditions") or ())


def differences(case: Json, got: Json) -> list[str]:
    """What of an answer is not the peer's."""
    if rule(case) is not None:
        return []
    wanted = _wanted(case)
    return [f"{name}: {got[name]}, not {value}" for name, value in wanted.items() if got[name] != value]


def _wanted(case: Json) -> dict[str, Any]:
    if case["kind"] == "reconcile":
        waits = [result["requeue_after_seconds"] for result in case["results"] if result["requeue_after_seconds"]]
        return {
            "results": [{"requeue_after_seconds": min(waits, default=0)}],
            "workloads_after": [
                {
                    "name": workload["name"],
                    "unhealthy_nodes": sorted(workload["unhealthy_nodes"]),
                    "evicted": _evicted({"status": {"conditions": workload["conditions"]}}),
                }
                for workload in case["workloads_after"]
            ],
            "pods_after": sorted(f"default/{pod['name']}" for pod in case["pods_after"] if _has_ended({"status": pod})),
            "events": case["events"],
        }
    if case["kind"] == "workload_health_on_node":
        return {"health": case["health"], "pods_to_terminate": case["pods_to_terminate"]}
    return {"result": bool(case["result"])}


def rule(case: Json) -> str | None:
    """The deliberate difference that touches a case."""
    return next((each.sentence for each in RULES if each.touches(case)), None)


@dataclass(frozen=True)
class Rule:
    """A difference from the peer, with its reason, and which cases it touches by their input alone."""

    sentence: str
    touches: Callable[[Json], bool]


def _tolerates_for_a_time(case: Json) -> bool:
    text = json.dumps([o for o in case.get("objects", ()) if o["kind"] == "Workload"])
    runs = any(o["kind"] == "Pod" and not o["metadata"].get("deletionTimestamp") for o in case.get("objects", ()))
    return "tolerationSeconds" in text and runs


def _keeps_what_runs(case: Json) -> bool:
    taints = [t for o in case.get("objects", ()) if o["kind"] == "Node" for t in (o.get("spec") or {}).get("taints") or ()]
    off = case["gates"].get("TASReplaceNodeOnPodTermination") is False
    return off and any(taint["effect"] == "NoSchedule" for taint in taints)


def _nothing_ran(case: Json) -> bool:
    away = [o for o in case.get("objects", ()) if o["kind"] == "Node" and not any(c["status"] == "True" for c in _conditions(o))]
    pods = [o for o in case.get("objects", ()) if o["kind"] == "Pod"]
    assigned = {host for o in case.get("objects", ()) if o["kind"] == "Workload" for host in _hosts(o)}
    return any(o["metadata"]["name"] in assigned and _conditions(o) for o in away) and not any(o["spec"].get("nodeName") for o in pods)


def _conditions(node: Json) -> list[dict[str, Any]]:
    return [c for c in (node.get("status") or {}).get("conditions") or () if c["type"] == "Ready"]


def _was_just_ready(case: Json) -> bool:
    by_time = case["gates"].get("TASReplaceNodeDueToNotReadyOverFixedTime") is True
    return case["kind"] == "workload_health_on_node" and by_time


def _waits_for_nobody(case: Json) -> bool:
    nodes = {o["metadata"]["name"] for o in case.get("objects", ()) if o["kind"] == "Node"}
    pinned = {
        (o["spec"].get("nodeSelector") or {}).get(HOSTNAME_LABEL) for o in case.get("objects", ()) if o["kind"] == "Pod" and "spec" in o
    }
    return case["kind"] == "reconcile" and bool(pinned - nodes - {None}) and not nodes


def _is_own_usage(case: Json) -> bool:
    if case["kind"] not in ("usage_event", "counts_as_non_tas_usage"):
        return False
    pods = [pod for pod in (case.get("pod"), case.get("old_pod")) if pod is not None]
    asks = {has_topology_annotation(pod) for pod in pods}
    gone = case.get("event") == "delete" and (case["pod"].get("status") or {}).get("phase") == "Succeeded"
    return asks == {True, False} or (case["kind"] == "counts_as_non_tas_usage" and asks == {True}) or gone


def _is_unread(case: Json) -> bool:
    if case["kind"] != "node_update_class":
        return False
    now, old = case["node"], case["old_node"]
    aged = any("timeAdded" in taint for taint in (now.get("spec") or {}).get("taints") or ())  # no two of which the peer takes for one
    return _matters(now) == _matters(old) and (aged or _unread(now) != _unread(old))


def _unread(node: Json) -> tuple[Any, ...]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return node["metadata"].get("annotations"), sorted((c["type"], c["status"]) for c in conditions)


RULES = (
    Rule("any number of nodes is replaced at once (rule j of docs/decisions/0004)", lambda case: len(case.get("requests", ())) > 1),
    Rule("tolerationSeconds are waited for, and looked at again when they are over (issue 9, part 1)", _tolerates_for_a_time),
    Rule("a NoSchedule taint never moves what runs, whichever gate is off (KEP-2724, Tainted nodes)", _keeps_what_runs),
    Rule("a pod that waits for a node which is gone is ended, too: nothing else would ever end it", _waits_for_nobody),
    Rule("the delay of a node that is not ready counts from when it was not", _was_just_ready),
    Rule("a flap before anything ran on a node changes nothing (issue 9, part 1)", _nothing_ran),
    Rule("each pod is counted once, by what it takes (decision 7 of docs/decisions/0004)", _is_own_usage),
    Rule("of a node only what placement and health go by is read (decision 6 of docs/decisions/0004)", _is_unread),
)

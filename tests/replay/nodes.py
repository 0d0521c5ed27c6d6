"""The nodes family: which nodes are lost for which workloads and which pods are ended, through `reconciler.node_health` as it runs, with a
writer that writes down; and what of nodes and pods counts, by the facts that the state is folded from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from core.jobs.templates import asks_for_topology
from core.model.admission import admission_from_wire
from core.model.gates import read_gates
from core.model.node_health import HealthRules
from core.names import DOMAIN_SIZE_ANNOTATION, EVENT_NODE_UNHEALTHY, EVICTED, HOSTNAME_LABEL
from core.runtime.client import Client
from core.runtime.controller import RequeueAfter
from core.runtime.resource import Obj
from core.state.facts import NodeFacts, PodFacts
from reconciler.apply import Writer
from reconciler.node_health import NodeHealth, state_of
from reconciler.observed import Observed
from tests.runtime.fakes import ManualClock

Json = Mapping[str, Any]
_INFORMERS = {"Node": "nodes", "Pod": "pods", "Workload": "workloads", "ResourceFlavor": "flavors", "Topology": "topologies"}
_OWNER = "made-by-the-job"


class Paper:
    """What NodeHealth sees and writes."""

    def __init__(self, objects: list[Obj], gates: Mapping[str, bool], judged: Collection[str]) -> None:
        """Nodes that are not `judged` are well: a case leaves them out."""
        there = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "Node"}
        others = {host for obj in objects if obj["kind"] == "Workload" for host in _hosts(obj)} - there - set(judged)
        objects = [*objects, *({"kind": "Node", "metadata": {"name": host}, "status": {"conditions": [_READY]}} for host in others)]
        self.clock = ManualClock(0)  # which is the `now` of every case
        self.observed = Observed(cast("Client", None), self.clock)
        chosen = read_gates([f"{name}={str(value).lower()}" for name, value in gates.items()])
        self.health = NodeHealth(self.observed, cast("Writer", self), self.clock, HealthRules().with_gates(chosen))
        self.workloads: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, str]] = []
        by_resource: dict[str, list[Obj]] = {}
        for obj in objects:
            by_resource.setdefault(_INFORMERS[obj["kind"]], []).append(_prepared(obj))
        for name in ("topologies", "flavors", "nodes", "pods", "workloads"):
            getattr(self.observed, name).fill(by_resource.get(name, ()))
        for obj in by_resource.get("workloads", ()):
            self.workloads[_key(obj)] = obj
        for obj in by_resource.get("pods", ()):
            self.pods[_key(obj)] = obj

    def run(self) -> float | None:
        """Looks at every workload once; when it is to look again."""
        loop = asyncio.new_event_loop()
        try:
            results = [loop.run_until_complete(self.health.look(key)) for key in sorted(self.workloads)]
        finally:
            loop.close()
        waits = [result.seconds for result in results if isinstance(result, RequeueAfter)]
        return min(waits, default=None)

    # --- the writer ---------------------------------------------------------------------------------------------

    def now(self) -> str:
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def apply_admission(self, workload: Obj, status: Json, *, strict: bool) -> Obj:
        assert strict
        self.workloads[_key(workload)] = {**workload, "status": dict(status)}
        return self.workloads[_key(workload)]

    async def terminate_pod(self, pod: Obj, message: str) -> Obj:
        assert message
        condition = {"type": "TerminatedByKueue", "status": "True", "reason": "UnschedulableOnAssignedNode"}
        found = self.pods[_key(pod)]
        self.pods[_key(pod)] = {**found, "status": {"phase": "Failed", "conditions": [condition]}}
        return self.pods[_key(pod)]

    async def event(self, resource: object, obj: Obj, reason: str, message: str, *, warning: bool = False, is_minor: bool = False) -> None:
        self.events.append({"object": _key(obj), "reason": reason, "type": "Warning" if warning else "Normal"})


_READY = {"type": "Ready", "status": "True"}


def _hosts(workload: Obj) -> set[str]:
    admission = admission_from_wire((workload.get("status") or {}).get("admission"))
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
    if made["kind"] == "Pod" and HOSTNAME_LABEL in (made["spec"].get("nodeSelector") or {}) and asks_for_topology(made):
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
        paper = Paper(objects, case["gates"], [case["node_name"]])
        paper.run()
        lost = any(_unhealthy(workload) for workload in paper.workloads.values())
        ended = sorted(_key(pod).partition("/")[2] for pod in paper.pods.values() if _has_ended(pod))
        return {"health": "Unhealthy" if lost else "Healthy", "pods_to_terminate": ended}
    if case["kind"] == "node_update_class":
        return {"result": _matters(case["node"]) != _matters(case["old_node"])}
    if case["kind"] == "counts_as_non_tas_usage":
        return {"result": bool(_usage(case.get("pod")))}
    return {"result": _usage(case.get("old_pod")) != _usage(None if case["event"] == "delete" else case["pod"]) or _is_gone(case)}


def _matters(node: Json) -> tuple[Any, ...]:
    """What topogate looks at of a node."""
    seen = _prepared(dict(node))
    return NodeFacts.read(seen), state_of(seen)


def _is_gone(case: Json) -> bool:
    return case["event"] == "delete" and bool(_usage(case["pod"]))


def _usage(pod: Json | None) -> tuple[Any, ...]:
    """What a pod takes, and where."""
    facts = PodFacts.read(_prepared(dict(pod))) if pod is not None else None
    return (facts.node, sorted(facts.requests.items())) if facts is not None and facts.holds else ()


def _reconciled(case: Json) -> dict[str, Any]:
    paper = Paper(case["objects"], case["gates"], case["requests"])
    wait = paper.run()
    return {
        "results": [{"requeue_after_seconds": wait or 0}],
        "workloads_after": [
            {"name": name, "unhealthy_nodes": _unhealthy(workload), "evicted": _evicted(workload)}
            for name, workload in sorted(paper.workloads.items())
        ],
        "pods_after": sorted(name for name, pod in paper.pods.items() if _has_ended(pod)),
        "events": [event for event in paper.events if event["reason"] != EVENT_NODE_UNHEALTHY],  # ours: why a node is lost
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
    asks = {asks_for_topology(pod) for pod in pods}
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
    Rule("any number of nodes is replaced at once (DESIGN rule j)", lambda case: len(case.get("requests", ())) > 1),
    Rule("tolerationSeconds are waited for, and looked at again when they are over (issue 9, part 1)", _tolerates_for_a_time),
    Rule("a NoSchedule taint never moves what runs, whichever gate is off (KEP-2724, Tainted nodes)", _keeps_what_runs),
    Rule("a pod that waits for a node which is gone is ended, too: nothing else would ever end it", _waits_for_nobody),
    Rule("the delay of a node that is not ready counts from when it was not", _was_just_ready),
    Rule("a flap before anything ran on a node changes nothing (issue 9, part 1)", _nothing_ran),
    Rule("each pod is counted once, by what it takes (DESIGN decision 7)", _is_own_usage),
    Rule("of a node only what placement and health go by is read (DESIGN decision 6)", _is_unread),
)

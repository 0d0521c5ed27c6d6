"""Writes to the API server, as values: what is to be written, and for which state of an object.

Plans consist of them, and `reconciler.execute.executor` executes them. Nothing here waits or asks: a write to an object
that another program has changed meanwhile fails when it is executed, by its guard.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from core.jobs.contract import JobKind, PodSetStart
from core.names import (
    ADMISSION_GATE,
    FIELD_MANAGER,
    MANAGED,
    MANAGER_ADMISSION,
    MANAGER_JOB_CONTROLLER,
    MANAGER_RECLAIMABLE_PODS,
    MANAGER_WORKLOAD_CONTROLLER,
    PODGROUP_GATE,
    REASON_UNSCHEDULABLE_ON_NODE,
    TERMINATED_BY,
    TOPOLOGY_GATE,
    TRACEPARENT_ANNOTATION,
)
from core.plan.steps import api_resources as r
from core.plan.steps.merge import merge_patch
from core.plan.steps.ungate import Ungate
from core.podgroups.members import Member, build_pin
from core.resource import Obj, PatchKind, Resource
from core.state.facts import PodFacts

Json = Mapping[str, Any]
MOST_OF_MESSAGE = 1024  # characters, of a condition of a pod


class Guard(Enum):
    """Which object a write may change."""

    AS_SEEN = "the one that was seen, if nothing of it has changed since"
    AS_JUDGED = "the Workload that was seen, if neither what is asked for nor what decisions own of its status has changed since"
    SAME = "the one that was seen, whatever else of it has changed since"
    ANY = "whichever has its name"
    WAITING = "the pod that was seen, as it is now, if it is bound to no node"


@dataclass(frozen=True, slots=True)
class Create:
    """A new object. It fails where there is one of its name."""

    resource: Resource
    seen: Obj  # as it is to be
    manager: str = FIELD_MANAGER


@dataclass(frozen=True, slots=True)
class Patch:
    """A change of an observed object. `body` has none of the metadata by which it is found and guarded.

    `evicts_for`: the reason for which it begins to evict a Workload that has quota; empty where it evicts nothing.
    """

    resource: Resource
    seen: Obj
    body: Json
    kind: PatchKind = PatchKind.MERGE
    guard: Guard = Guard.AS_SEEN
    subresource: str | None = None
    evicts_for: str = ""


@dataclass(frozen=True, slots=True)
class Apply:
    """All fields of an object that a field manager owns from now on; those that it owned and that `body` lacks are taken away.

    `yields`: it is of less use just now than other writes, where turns are short (`core.runtime.http.rate_limiter`).
    """

    resource: Resource
    seen: Obj
    body: Json
    manager: str
    guard: Guard = Guard.AS_SEEN
    subresource: str | None = "status"
    yields: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """The deletion of an object that was seen."""

    resource: Resource
    seen: Obj
    guard: Guard = Guard.SAME


Write = Create | Patch | Apply | Delete


# --- Workloads ----------------------------------------------------------------------------------------------------


def create_workload(workload: Obj) -> Create:
    """Returns the creation of a Workload, which fails where there is one of its name."""
    return Create(r.WORKLOADS, workload)


def patch_workload(workload: Obj, body: Json) -> Patch:
    """Returns a merge patch of a Workload, which fails if anything of the Workload has changed since it was seen (`Guard.AS_SEEN`)."""
    return Patch(r.WORKLOADS, workload, body)


def set_active(workload: Obj) -> Patch:
    """Returns a merge patch that sets `spec.active` of a Workload to true; it fails if the Workload has changed since it was seen."""
    return patch_workload(workload, {"spec": {"active": True}})


def deactivate(workload: Obj, reason: str) -> Patch:
    """Returns a merge patch that sets `spec.active` of a Workload to false; it fails if the Workload has changed since. `reason`: that of
    the eviction which begins by this."""
    return Patch(r.WORKLOADS, workload, {"spec": {"active": False}}, evicts_for=reason)


def delete_workload(workload: Obj, guard: Guard = Guard.SAME) -> Delete:
    """Returns the deletion of a Workload, by default of that very one, whatever has changed of it. It stays while it has finalizers."""
    return Delete(r.WORKLOADS, workload, guard)


def apply_admission(workload: Obj, status: Json) -> Apply:
    """Returns an apply of the whole status that decisions own (field manager `kueue-admission`): what it lacks is removed. Every admission
    and every eviction is written by this. It fails if the Workload has changed since it was seen."""
    return Apply(r.WORKLOADS, workload, {"status": dict(status)}, MANAGER_ADMISSION)


def apply_workload_condition(workload: Obj, condition: Json, manager: str = MANAGER_JOB_CONTROLLER) -> Apply:
    """Returns an apply of one condition (JSON) by another field manager than the admission's, to that very Workload, whatever has changed
    of it. The manager loses other conditions that it owned."""
    return Apply(r.WORKLOADS, workload, {"status": {"conditions": [dict(condition)]}}, manager, Guard.SAME)


def apply_reclaimable(workload: Obj, entries: Sequence[Json]) -> Apply:
    """Returns an apply of the numbers of pods per pod set that release their quota (`status.reclaimablePods`).

    It is guarded by the whole Workload, since no number may go down while it runs.
    """
    return Apply(r.WORKLOADS, workload, {"status": {"reclaimablePods": [dict(entry) for entry in entries]}}, MANAGER_RECLAIMABLE_PODS)


# --- jobs ---------------------------------------------------------------------------------------------------------


def change_job(kind: JobKind, job: Obj, changed: Json) -> Patch:
    """Returns a merge patch that turns a job into `changed`; it fails if the job has changed since it was seen."""
    return Patch(r.get_resource(kind), job, merge_patch(job, changed))


def patch_job_status(kind: JobKind, job: Obj, status: Json) -> Patch:
    """Returns a merge patch of the status of a job; it fails if the job has changed since it was seen."""
    return Patch(r.get_resource(kind), job, {"status": status}, subresource="status")


# --- pods ---------------------------------------------------------------------------------------------------------


def name_pod(pod: PodFacts | Member) -> Obj:
    """Returns an object with the metadata by which a pod is found and guarded: namespace, name and uid, and nothing else."""
    namespace, _, name = pod.key.partition("/")
    return {"metadata": {"namespace": namespace, "name": name, "uid": pod.uid}}


def find_pod(pods: Mapping[str, Obj], pod: PodFacts) -> Obj | None:
    """Returns the object of a pod among objects by key, with its uid; None where it is gone."""
    found = pods.get(pod.key)
    return found if found is not None and found["metadata"]["uid"] == pod.uid else None


def _patch_pod(pod: Obj, body: Json, guard: Guard = Guard.SAME, subresource: str | None = None) -> Patch:
    return Patch(r.PODS, pod, body, PatchKind.STRATEGIC, guard, subresource)


def ungate(action: Ungate) -> Patch:
    """Returns a strategic merge patch of that very pod, whatever has changed of it. It removes the topology gate, sets the node selector,
    and sets or removes the labels and annotations that describe where the pod is."""
    stamp, gates = action.coordinates, [{"$patch": "delete", "name": TOPOLOGY_GATE}]
    metadata = {"labels": dict(stamp.labels), "annotations": dict(stamp.annotations)}
    spec = {"schedulingGates": gates, "nodeSelector": action.node_selector}
    return _patch_pod(name_pod(action.pod), {"metadata": metadata, "spec": spec})


def start_pod(pod: Obj, start: PodSetStart) -> Patch:
    """Returns a strategic merge patch of that very pod that removes the admission gate and adds labels, annotations, node selector and
    tolerations of a start. These replace values of the pod's own under the same keys; a toleration that it has is not added twice. The
    topology gate is removed, too, only where `start.gated` is False: the pod needs no domain."""
    spec = pod["spec"]
    gates = (ADMISSION_GATE,) if start.gated else (ADMISSION_GATE, TOPOLOGY_GATE)
    there = {gate["name"] for gate in spec.get("schedulingGates") or ()}
    tolerations = list(spec.get("tolerations") or ())
    added = [toleration for toleration in start.tolerations if toleration not in tolerations]
    changed: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": gate} for gate in gates if gate in there]}
    if start.node_selector:
        changed["nodeSelector"] = dict(start.node_selector)
    if added:
        changed["tolerations"] = tolerations + added
    return _patch_pod(pod, {"metadata": {"labels": dict(start.labels), "annotations": dict(start.annotations)}, "spec": changed})


def release_pod(pod: Obj) -> Patch:
    """Returns a strategic merge patch that removes topogate's finalizer from that very pod, whatever has changed of it."""
    return _patch_pod(pod, {"metadata": {"$deleteFromPrimitiveList/finalizers": [MANAGED]}})


def nominate_node(pod: PodFacts | Member, node: str) -> Patch:
    """Returns a merge patch that sets `status.nominatedNodeName` of that very pod, whatever has changed of it. So a node keeps the place of
    a gated pod against pods of no higher priority (kube-scheduler 1.34). An empty `node` removes it."""
    return Patch(r.PODS, name_pod(pod), {"status": {"nominatedNodeName": node or None}}, guard=Guard.SAME, subresource="status")


def ungate_to_node(pod: Obj, node: str, traceparent: str | None = None) -> Patch:
    """Returns a patch that removes the gate of a pod of a PodGroup and requires its node by affinity; with an empty `node` it may go to
    any. It fails if the pod has changed since. `traceparent`: the pod's annotation for that, None: none is set."""
    spec: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": PODGROUP_GATE}]}
    if node:
        spec["affinity"] = {"nodeAffinity": build_pin(pod["spec"], node)}
    named = {"metadata": {"annotations": {TRACEPARENT_ANNOTATION: traceparent}}} if traceparent is not None else {}
    return _patch_pod(pod, {**named, "spec": spec}, Guard.AS_SEEN)


def fail_pod(pod: Obj, message: str, now: str) -> Patch:
    """Returns a patch that sets phase Failed and a condition with the message, cut to 1024 characters; it succeeds only while the pod is
    bound to no node. What controls the pod makes another one. `now` is a time as the API writes it."""
    condition = {
        "type": TERMINATED_BY,
        "status": "True",
        "reason": REASON_UNSCHEDULABLE_ON_NODE,
        "message": message[:MOST_OF_MESSAGE],
        "lastTransitionTime": now,
    }
    return _patch_pod(pod, {"status": {"phase": "Failed", "conditions": [condition]}}, Guard.WAITING, "status")


def delete_pod(pod: Obj, guard: Guard = Guard.SAME) -> Delete:
    """Returns the deletion of a pod, by default of that very one, whatever has changed of it."""
    return Delete(r.PODS, pod, guard)


# --- others -------------------------------------------------------------------------------------------------------


def apply_pod_group(group: Obj, present: Obj | None) -> Apply:
    """Returns an apply of the whole PodGroup of a job. Where one is `present`, only that very one is written; else
    whichever has its name."""
    seen = {"metadata": {**group["metadata"], **({} if present is None else {"uid": present["metadata"]["uid"]})}}
    guard = Guard.ANY if present is None else Guard.SAME
    return Apply(r.POD_GROUPS, seen, group, FIELD_MANAGER, guard, subresource=None)


def patch_status(resource: Resource, obj: Obj, status: Json, *, yields: bool = False) -> Apply:
    """Returns an apply of the whole status of an object that only topogate reports on. If another object of that name has come
    instead, that one gets it: it is reported on again when it is observed."""
    return Apply(resource, obj, {"status": dict(status)}, MANAGER_WORKLOAD_CONTROLLER, Guard.ANY, yields=yields)


def set_annotations(resource: Resource, obj: Obj, annotations: Mapping[str, str | None]) -> Patch:
    """Returns a merge patch that sets annotations of an object; those that are None are removed, others stay. It fails if anything of the
    object has changed since it was seen."""
    return Patch(resource, obj, {"metadata": {"annotations": dict(annotations)}})


def set_finalizers(resource: Resource, obj: Obj, finalizers: Sequence[str]) -> Patch:
    """Returns a merge patch that replaces all finalizers of an object; it fails if the object has changed since it was seen."""
    return Patch(resource, obj, {"metadata": {"finalizers": list(finalizers)}})

"""The only place that writes. Every write says why, in a span and in the log; errors are the caller's to judge."""

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.jobs.contract import JobKind, PodSetStart
from core.model.pause import Pause
from core.names import (
    ADMISSION_GATE,
    FIELD_MANAGER,
    MANAGED,
    MANAGER_ADMISSION,
    MANAGER_JOB_CONTROLLER,
    MANAGER_RECLAIMABLE_PODS,
    MANAGER_WORKLOAD_CONTROLLER,
    PODGROUP_GATE,
    PROVISIONING_CONTENT,
    REASON_UNSCHEDULABLE_ON_NODE,
    TERMINATED_BY,
    TOPOLOGY_GATE,
    TRACEPARENT_ANNOTATION,
)
from core.plan import resources as r
from core.plan.admission import apply_body
from core.plan.merge import merge_patch
from core.plan.pausing import Stopped, find_held_eviction, find_stopped, runs_or_holds
from core.plan.ungate import Ungate
from core.podgroups.members import Member, pin
from core.resource import Obj, PatchKind, Resource
from core.runtime.client import Client
from core.runtime.clock import Clock
from core.runtime.controller import Deferred
from core.runtime.errors import AlreadyExists, Conflict, KubeError, NotFound
from core.state.facts import PodFacts
from reconciler.allowance import Allowance
from reconciler.metrics import UNRECORDED, Recorder

logger = logging.getLogger(__name__)
APPLY_ATTEMPTS = 4  # at a status that others write at the same time
_EVENT_QUIET_S = 120.0  # the same event on the same object is not told twice within two minutes
_EVENTS_REMEMBERED = 4096
_EVENTS_PER_S, _EVENTS_AT_ONCE = 50, 1000  # of normal ones and of warnings each


class Paused(Deferred):
    """An administrator has paused what this write begins."""


class Writer:
    """Writes through one client, but for what `paused` says to be paused."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        component: str = "topogate-reconciler",
        *,
        paused: Callable[[], Pause] = Pause,
        recorder: Recorder = UNRECORDED,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._component = component
        self._paused = paused
        self._told: OrderedDict[int, float] = OrderedDict()  # when, by the hash of what: texts of thousands of events are megabytes
        self._events = {is_warning: Allowance(_EVENTS_PER_S, _EVENTS_AT_ONCE) for is_warning in (False, True)}

    def now(self) -> str:
        """The wall clock as the API writes it."""
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    # --- workloads ----------------------------------------------------------------------------------

    async def create_workload(self, workload: Obj) -> Obj:
        """Creates a Workload. Raises AlreadyExists where an earlier attempt did."""
        return await self._client.create(r.WORKLOADS, workload, field_manager=FIELD_MANAGER)

    async def read_workload(self, namespace: str, name: str) -> Obj:
        """A Workload as the API server has it now, where what was observed is not enough."""
        return await self._client.get(r.WORKLOADS, name, namespace)

    async def patch_workload(self, workload: Obj, body: Mapping[str, Any]) -> Obj:
        """Merge patch of a Workload as it was seen."""
        return await self._patch_seen(r.WORKLOADS, workload, body)

    async def deactivate(self, workload: Obj, reason: str) -> Obj:
        """`spec.active` of a Workload as it was seen is false from now on. Raises Paused where that would begin to evict it."""
        if runs_or_holds(workload):
            await self._let_pass(workload, lambda: find_held_eviction(self._paused(), reason, ""))
        return await self.patch_workload(workload, {"spec": {"active": False}})

    async def delete_workload(self, workload: Obj, *, as_seen: bool = False) -> None:
        """Deletes the very Workload that was seen; `as_seen` raises Conflict if it has changed since."""
        metadata = workload["metadata"]
        version = metadata["resourceVersion"] if as_seen else None
        await self._client.delete(r.WORKLOADS, metadata["name"], metadata["namespace"], uid=metadata["uid"], resource_version=version)

    async def apply_admission(self, workload: Obj, status: Mapping[str, Any], *, strict: bool) -> Obj:
        """The status that decisions own; `strict` fails with Conflict if the Workload has changed since it was seen.

        Every admission and every eviction is written here. Raises Paused where these are paused.
        """
        await self._let_pass(workload, lambda: find_stopped(self._paused(), workload, status))
        body = apply_body(workload, status, strict=strict)
        metadata = workload["metadata"]
        return await self._client.apply(
            r.WORKLOADS, metadata["name"], metadata["namespace"], body, field_manager=MANAGER_ADMISSION, subresource="status"
        )

    async def _let_pass(self, workload: Obj, find: Callable[[], Stopped | None]) -> None:
        stopped = find()
        if stopped is None:
            return
        await self.event(r.WORKLOADS, workload, stopped.reason, stopped.message, warning=True)
        if find() is not None:  # as of now: once it has ended nobody would come back for what is put aside
            raise Paused(stopped.stop.sentence)

    async def apply_workload_condition(self, workload: Obj, condition: Mapping[str, Any], manager: str = MANAGER_JOB_CONTROLLER) -> Obj:
        """One condition, owned by another field manager than the admission, on the very Workload that was seen, whatever else of it has
        changed since. Raises NotFound where that is gone, and Conflict where others write to it again and again.

        Of an apply to the status the API server looks at the version, not at the uid: a group may have been made anew under its name.
        """
        seen, now = workload["metadata"], workload["metadata"]
        for attempt in range(APPLY_ATTEMPTS):
            if attempt:
                now = (await self.read_workload(seen["namespace"], seen["name"]))["metadata"]
            if now["uid"] != seen["uid"]:
                raise NotFound(404, "NotFound", f"Workload {seen['name']} is another one by now")
            body = {"metadata": {"resourceVersion": now["resourceVersion"]}, "status": {"conditions": [dict(condition)]}}
            try:
                return await self._client.apply(
                    r.WORKLOADS, seen["name"], seen["namespace"], body, field_manager=manager, subresource="status"
                )
            except Conflict as error:
                conflict = error
        raise conflict

    async def apply_reclaimable(self, workload: Obj, entries: Sequence[Mapping[str, Any]]) -> Obj:
        """Pods per pod set that need their quota no more; on the Workload as it was seen, since no number may go down while it runs."""
        metadata = workload["metadata"]
        body = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {"reclaimablePods": [dict(entry) for entry in entries]},
        }
        return await self._client.apply(
            r.WORKLOADS, metadata["name"], metadata["namespace"], body, field_manager=MANAGER_RECLAIMABLE_PODS, subresource="status"
        )

    # --- jobs ---------------------------------------------------------------------------------------

    async def change_job(self, kind: JobKind, job: Obj, changed: Mapping[str, Any]) -> Obj:
        """Makes a job what it should be, if it still is as it was seen."""
        return await self._patch_seen(r.resource_of(kind), job, merge_patch(job, changed))

    async def patch_job_status(self, kind: JobKind, job: Obj, status: Mapping[str, Any]) -> Obj:
        """Merge patch of the status of a job as it was seen."""
        return await self._patch_seen(r.resource_of(kind), job, {"status": status}, subresource="status")

    # --- pods ---------------------------------------------------------------------------------------

    async def ungate(self, namespace: str, name: str, action: Ungate) -> Obj:
        """Takes the gate off, adds the node selector and says where the pod is, in one write, on the very pod that was seen."""
        stamp = action.coordinates
        body = {
            "metadata": {"uid": action.pod.uid, "labels": dict(stamp.labels), "annotations": dict(stamp.annotations)},
            "spec": {
                "schedulingGates": [{"$patch": "delete", "name": TOPOLOGY_GATE}],
                "nodeSelector": action.node_selector,
            },
        }
        return await self._client.patch(r.PODS, name, namespace, body, kind=PatchKind.STRATEGIC, field_manager=FIELD_MANAGER)

    async def start_pod(self, pod: Obj, start: PodSetStart) -> Obj:
        """Takes the admission gate off and adds what a start adds, in one write, on the very pod that was seen. The topology gate
        stays until it has its domain, or goes, too, where it needs none."""
        metadata, spec = pod["metadata"], pod["spec"]
        gates = (ADMISSION_GATE,) if start.gated else (ADMISSION_GATE, TOPOLOGY_GATE)
        there = {gate["name"] for gate in spec.get("schedulingGates") or ()}
        tolerations = list(spec.get("tolerations") or ())
        added = [toleration for toleration in start.tolerations if toleration not in tolerations]
        changed: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": gate} for gate in gates if gate in there]}
        if start.node_selector:
            changed["nodeSelector"] = dict(start.node_selector)
        if added:
            changed["tolerations"] = tolerations + added
        body = {
            "metadata": {"uid": metadata["uid"], "labels": dict(start.labels), "annotations": dict(start.annotations)},
            "spec": changed,
        }
        return await self._client.patch(
            r.PODS, metadata["name"], metadata["namespace"], body, kind=PatchKind.STRATEGIC, field_manager=FIELD_MANAGER
        )

    async def read_pod(self, namespace: str, name: str) -> Obj:
        """A pod as the API server has it now: all of it, of which less is kept here, and as it may not have been seen yet."""
        return await self._client.get(r.PODS, name, namespace)

    async def release_pod(self, pod: Obj) -> Obj:
        """Takes our finalizer off the very pod that was seen, whatever else has changed since."""
        metadata = pod["metadata"]
        body = {"metadata": {"uid": metadata["uid"], "$deleteFromPrimitiveList/finalizers": [MANAGED]}}
        return await self._client.patch(
            r.PODS, metadata["name"], metadata["namespace"], body, kind=PatchKind.STRATEGIC, field_manager=FIELD_MANAGER
        )

    async def remove_pod(self, pod: Obj) -> None:
        """Deletes the very pod that was seen."""
        metadata = pod["metadata"]
        await self._client.delete(r.PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])

    async def nominate(self, pod: PodFacts | Member, node: str) -> Obj:
        """Keeps the place of a gated pod on a node against pods of no higher priority (kube-scheduler 1.34); an empty `node` gives it
        back."""
        namespace, _, name = pod.key.partition("/")
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node or None}}
        return await self._client.patch(
            r.PODS, name, namespace, body, kind=PatchKind.MERGE, subresource="status", field_manager=FIELD_MANAGER
        )

    async def let_go(self, pod: Obj, node: str, story: str | None = None) -> Obj:
        """Takes the gate off a pod of a group that was seen and sends it to its node alone, in one write; with an empty `node` to any.
        `story`: the traceparent that the pod is to name."""
        metadata = pod["metadata"]
        spec: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": PODGROUP_GATE}]}
        if node:
            spec["affinity"] = {"nodeAffinity": pin(pod["spec"], node)}
        told = {"annotations": {TRACEPARENT_ANNOTATION: story}} if story is not None else {}
        body = {"metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], **told}, "spec": spec}
        return await self._client.patch(
            r.PODS, metadata["name"], metadata["namespace"], body, kind=PatchKind.STRATEGIC, field_manager=FIELD_MANAGER
        )

    async def apply_pod_group(self, group: Obj, present: Obj | None) -> Obj:
        """The PodGroup of a job; where one is there already, that very one."""
        metadata = group["metadata"]
        uid = {} if present is None else {"uid": present["metadata"]["uid"]}
        body = {**group, "metadata": {**metadata, **uid}}
        return await self._client.apply(r.POD_GROUPS, metadata["name"], metadata["namespace"], body, field_manager=FIELD_MANAGER)

    async def hand_over(self, group: Obj) -> None:
        """Makes a PodGroup of kube-scheduler's own, unless it is there."""
        with contextlib.suppress(AlreadyExists):
            await self._client.create(r.NATIVE_POD_GROUPS, group, field_manager=FIELD_MANAGER)

    async def terminate_pod(self, pod: Obj, message: str) -> Obj:
        """Says of a pod that it has failed, and why, if it still is as it was seen: it may have been bound meanwhile. What controls it
        makes another one."""
        metadata = pod["metadata"]
        condition = {
            "type": TERMINATED_BY,
            "status": "True",
            "reason": REASON_UNSCHEDULABLE_ON_NODE,
            "message": message[:1024],
            "lastTransitionTime": self.now(),
        }
        body = {
            "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "status": {"phase": "Failed", "conditions": [condition]},
        }
        return await self._client.patch(
            r.PODS,
            metadata["name"],
            metadata["namespace"],
            body,
            kind=PatchKind.STRATEGIC,
            subresource="status",
            field_manager=FIELD_MANAGER,
        )

    async def delete_pod(self, pod: PodFacts) -> None:
        """Deletes the very pod that was seen."""
        namespace, _, name = pod.key.partition("/")
        await self._client.delete(r.PODS, name, namespace, uid=pod.uid)

    async def delete_seen_pod(self, pod: Obj) -> None:
        """Deletes a pod if it still is as it was seen."""
        metadata = pod["metadata"]
        await self._client.delete(
            r.PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], resource_version=metadata["resourceVersion"]
        )

    # --- provisioning requests ------------------------------------------------------------------------

    async def create_provisioning_request(self, request: Obj) -> Obj:
        """Asks for nodes. Raises AlreadyExists where an earlier attempt did."""
        return await self._client.create(r.PROVISIONING_REQUESTS, request, field_manager=FIELD_MANAGER)

    async def ensure_pod_template(self, template: Obj) -> bool:
        """Makes a PodTemplate, if it is not there. False where another was in its place, which is gone then."""
        metadata = template["metadata"]
        try:
            await self._client.create(r.POD_TEMPLATES, template, field_manager=FIELD_MANAGER)
        except AlreadyExists:
            found = (await self._client.get(r.POD_TEMPLATES, metadata["name"], metadata["namespace"]))["metadata"]
            if _owner_and_content(found) == _owner_and_content(metadata):
                return True
            await self._client.delete(r.POD_TEMPLATES, found["name"], found["namespace"], uid=found["uid"])
            return False
        return True

    async def delete_provisioning(self, request: Mapping[str, Any]) -> None:
        """Deletes the very request that was seen, after the PodTemplates that were made for it."""
        metadata = request["metadata"]
        for pod_set in request["spec"].get("podSets") or ():
            try:
                found = (await self._client.get(r.POD_TEMPLATES, pod_set["podTemplateRef"]["name"], metadata["namespace"]))["metadata"]
                if _owner_and_content(found) == _owner_and_content(metadata):  # whoever may write requests must not delete by us
                    await self._client.delete(r.POD_TEMPLATES, found["name"], found["namespace"], uid=found["uid"])
            except NotFound:
                continue
        try:
            await self._client.delete(r.PROVISIONING_REQUESTS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        except NotFound:
            return

    # --- queues, flavors, topologies ------------------------------------------------------------------

    async def patch_status(self, resource: Resource, obj: Obj, status: Mapping[str, Any]) -> Obj:
        """The whole status of an object that only topogate reports on; of another of its name, where that has come instead: it is
        reported on anew when it is seen."""
        metadata = obj["metadata"]
        return await self._client.apply(
            resource,
            metadata["name"],
            metadata.get("namespace"),
            {"status": dict(status)},
            field_manager=MANAGER_WORKLOAD_CONTROLLER,
            subresource="status",
        )

    async def annotate(self, resource: Resource, obj: Obj, annotations: Mapping[str, str]) -> Obj:
        """Adds annotations to an object as it was seen."""
        return await self._patch_seen(resource, obj, {"metadata": {"annotations": dict(annotations)}})

    async def set_finalizers(self, resource: Resource, obj: Obj, finalizers: Sequence[str]) -> Obj:
        """The finalizers of an object as it was seen."""
        return await self._patch_seen(resource, obj, {"metadata": {"finalizers": list(finalizers)}})

    async def _patch_seen(self, resource: Resource, obj: Obj, body: Mapping[str, Any], *, subresource: str | None = None) -> Obj:
        metadata = obj["metadata"]
        guarded = {
            **body,
            "metadata": {**(body.get("metadata") or {}), "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        }
        return await self._client.patch(
            resource,
            metadata["name"],
            metadata.get("namespace"),
            guarded,
            kind=PatchKind.MERGE,
            subresource=subresource,
            field_manager=FIELD_MANAGER,
        )

    # --- events -------------------------------------------------------------------------------------

    async def event(
        self, resource: Resource, obj: Obj, reason: str, message: str, *, warning: bool = False, is_minor: bool = False
    ) -> None:
        """Tells users of something that happened to an object. A lost event is not worth failing for.

        Where more happens than anybody reads, events would take the API server's time from what they tell of: then only so many
        are written a second, and of minor ones none. Conditions say it all in any case.
        """
        metadata = obj["metadata"]
        key, now = hash((metadata["uid"], reason, message)), self._clock.monotonic()
        while self._told and next(iter(self._told.values())) + _EVENT_QUIET_S <= now:
            self._told.popitem(last=False)
        if key in self._told:
            return
        if not self._events[warning].take(now, leaves=0.5 if is_minor else 0):
            logger.debug("event left out", extra={"reason": reason, "object": metadata["name"]})
            self._recorder.event_dropped()
            return
        self._told[key] = now
        while len(self._told) > _EVENTS_REMEMBERED:
            self._told.popitem(last=False)
        namespace = metadata.get("namespace") or "default"
        time = self.now()
        body = {
            "metadata": {"generateName": f"{metadata['name'][:200]}.", "namespace": namespace},
            "involvedObject": {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "name": metadata["name"],
                "namespace": metadata.get("namespace"),
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion"),
            },
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": self._component},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }
        try:
            await self._client.create(r.EVENTS, body, namespace)
        except KubeError as error:
            logger.warning("event could not be written", extra={"reason": reason, "object": metadata["name"], "error": str(error)})


def _owner_and_content(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """For whom something was made to ask for nodes, and what it says."""
    uid = next((owner["uid"] for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)
    return uid, (metadata.get("annotations") or {}).get(PROVISIONING_CONTENT)

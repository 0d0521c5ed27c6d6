"""The reconciler of pods on paper: real informers and state, fed by hand, and a writer that writes into them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Mapping
from typing import Any, cast

from core.names import MANAGED
from core.plan.pod_units import Unit, unit_of_pod, unit_of_workload
from core.runtime.client import Client
from core.runtime.errors import AlreadyExists, NotFound
from core.runtime.informer import Informer
from core.runtime.resource import Obj, Resource
from core.runtime.watch_step import Applied, Deleted
from core.runtime.workqueue import Item
from reconciler.apply import Writer
from reconciler.observed import Observed
from reconciler.orphans import Orphans
from reconciler.pods import Pods
from reconciler.unit_steps import PARENTS_BY_KIND
from tests.runtime.fakes import ManualClock

__all__ = ["Paper"]


class Paper:
    """Objects by kind and key; whatever is written is observed at once."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        nothing = cast("Client", None)  # no informer runs
        self.observed = Observed(nothing, self.clock)
        self.pods = Pods(self.observed, cast("Writer", self), self.clock)
        self.orphans = Orphans(self.observed, cast("Writer", self), self.clock)
        self.events: list[tuple[str, str, str]] = []  # object, reason, type
        self.messages: list[str] = []
        self._versions = itertools.count(1)
        self._whole: dict[tuple[str, str], Obj] = {}
        self._informers: dict[str, Informer] = {
            "Pod": self.observed.pods,
            "Workload": self.observed.workloads,
            "ResourceFlavor": self.observed.flavors,
            **self.observed.parents,
        }

    # --- the cluster ------------------------------------------------------------------------------------

    def put(self, obj: Mapping[str, Any]) -> Obj:
        metadata = {
            "namespace": "ns",
            "uid": f"uid-{obj['metadata'].get('name')}",
            **obj["metadata"],
            "resourceVersion": str(next(self._versions)),
        }
        stored = {**obj, "metadata": metadata}
        kind = str(obj["kind"])
        if kind == "ResourceFlavor":
            del metadata["namespace"]
        self._whole[kind, _key(stored)] = stored
        if kind in self._informers:
            self._informers[kind]._fold(Applied(stored))
        return stored

    def drop(self, kind: str, name: str) -> None:
        stored = self._whole.pop((kind, f"ns/{name}"))
        self._informers[kind]._fold(Deleted(stored))

    def delete(self, kind: str, name: str) -> None:
        self._delete(kind, self.get(kind, name))

    def get(self, kind: str, name: str, namespace: str = "ns") -> Obj:
        return self._whole[kind, f"{namespace}/{name}"]

    def all(self, kind: str) -> list[Obj]:
        return [obj for (found, _), obj in sorted(self._whole.items()) if found == kind]

    def units(self) -> list[Unit]:
        found = {unit_of_pod(pod) for pod in self.all("Pod")} | {unit_of_workload(workload) for workload in self.all("Workload")}
        for parent in PARENTS_BY_KIND.values():
            for obj in self.all(parent.kind):
                found |= self.pods._units_of(parent, obj)
        return sorted((unit for unit in found if unit is not None), key=str)

    def run(self, rounds: int = 8, gone: Unit | None = None) -> None:
        """Every unit reconciled, again and again, and one of which nothing is left."""

        async def reconcile() -> None:
            for _ in range(rounds):
                for unit in [*self.units(), *([gone] if gone is not None else [])]:
                    await self.pods._reconcile(Item(unit, frozenset(), 0.0))
                for workload in self.all("Workload"):
                    await self.orphans._reconcile(Item(_key(workload), frozenset(), 0.0))

        self.wait_for(reconcile())

    @staticmethod
    def wait_for(work: Coroutine[Any, Any, Any]) -> None:
        """What a controller does, done to its end."""
        loop = asyncio.new_event_loop()  # beside the one that pytest keeps for asynchronous tests
        try:
            loop.run_until_complete(work)
        finally:
            loop.close()

    # --- the writer ---------------------------------------------------------------------------------------

    def now(self) -> str:
        return "2026-01-01T00:00:00Z"

    async def create_workload(self, workload: Obj) -> Obj:
        if ("Workload", _key(workload)) in self._whole:
            raise AlreadyExists(409, "AlreadyExists", "it is there")
        return self.put({**workload, "metadata": {**workload["metadata"], "uid": f"uid-of-{workload['metadata']['name']}"}})

    async def patch_workload(self, workload: Obj, body: Mapping[str, Any]) -> Obj:
        notes = {**(workload["metadata"].get("annotations") or {}), **(body.get("metadata") or {}).get("annotations", {})}
        metadata = {**workload["metadata"], "annotations": {name: value for name, value in notes.items() if value is not None}}
        return self.put({**workload, "metadata": metadata, "spec": {**workload["spec"], **body.get("spec", {})}})

    async def deactivate(self, workload: Obj, reason: str) -> Obj:
        return await self.patch_workload(workload, {"spec": {"active": False}})

    async def delete_workload(self, workload: Obj) -> None:
        self._delete("Workload", workload)

    async def apply_admission(self, workload: Obj, status: Mapping[str, Any], *, strict: bool) -> Obj:
        return self.put({**self.get("Workload", *_key(workload).split("/")[::-1]), "status": dict(status)})

    async def apply_workload_condition(self, workload: Obj, condition: Mapping[str, Any], manager: str = "") -> Obj:
        status = workload.get("status") or {}
        others = [c for c in status.get("conditions") or () if c["type"] != condition["type"]]
        return self.put({**workload, "status": {**status, "conditions": [*others, dict(condition)]}})

    async def read_pod(self, namespace: str, name: str) -> Obj:
        try:
            return self.get("Pod", name, namespace)
        except KeyError:
            raise NotFound(404, "NotFound", "no such pod") from None

    async def start_pod(self, pod: Obj, start: Any) -> Obj:
        whole = self._whole["Pod", _key(pod)]
        gates = ["kueue.x-k8s.io/admission"] + ([] if start.gated else ["kueue.x-k8s.io/topology"])
        left = [gate for gate in whole["spec"].get("schedulingGates") or () if gate["name"] not in gates]
        metadata = {
            **whole["metadata"],
            "labels": {**whole["metadata"]["labels"], **start.labels},
            "annotations": {**(whole["metadata"].get("annotations") or {}), **start.annotations},
        }
        return self.put({**whole, "metadata": metadata, "spec": {**whole["spec"], "schedulingGates": left}})

    async def release_pod(self, pod: Obj) -> Obj:
        finalizers = self._whole["Pod", _key(pod)]["metadata"].get("finalizers") or []
        return await self.set_finalizers(self.observed.pods.resource, pod, [name for name in finalizers if name != MANAGED])

    async def remove_pod(self, pod: Obj) -> None:
        self._delete("Pod", pod)

    async def set_finalizers(self, resource: Resource, obj: Obj, finalizers: list[str]) -> Obj:
        whole = self._whole[resource.kind, _key(obj)]
        changed = {**whole, "metadata": {**whole["metadata"], "finalizers": list(finalizers)}}
        if whole["metadata"].get("deletionTimestamp") and not finalizers:
            self._whole.pop((resource.kind, _key(obj)))
            self._informers[resource.kind]._fold(Deleted(whole))
            return changed
        return self.put(changed)

    async def event(
        self, resource: Resource, obj: Obj, reason: str, message: str, *, warning: bool = False, is_minor: bool = False
    ) -> None:
        told = (_key(obj), reason, "Warning" if warning else "Normal")
        if told not in self.events:
            self.events.append(told)
        self.messages.append(message)

    def _delete(self, kind: str, obj: Obj) -> None:
        whole = self._whole[kind, _key(obj)]
        if whole["metadata"].get("finalizers"):
            self.put({**whole, "metadata": {**whole["metadata"], "deletionTimestamp": self.now()}})
        else:
            self._whole.pop((kind, _key(obj)))
            self._informers[kind]._fold(Deleted(whole))


def _key(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata'].get('namespace')}/{obj['metadata']['name']}"

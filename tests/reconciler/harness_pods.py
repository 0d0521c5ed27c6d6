"""The reconciler of pods on an API server in memory; pods made as the webhook leaves them, admitted as the scheduler would."""

from __future__ import annotations

from typing import Any

from core.jobs.contract import Defaults
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.names import ADMISSION_GATE, POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT, QUEUE_NAME_LABEL
from core.plan.pods.pod_units import Unit, find_pod_unit, find_workload_unit
from core.plan.pods.units import PARENTS_BY_KIND
from core.runtime.watch.store import build_object_key
from core.runtime.workqueue import Item
from reconciler.pods.orphans import Orphans
from reconciler.pods.pods import Pods
from sim.harness import Harness
from tests.runtime.fakes import ManualClock

KINDS = {kind.kind: kind for kind in list_pod_kinds()}
Json = dict[str, Any]


class PodsHarness(Harness):
    """Pods, and the Workloads that are made for them."""

    clock: ManualClock

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.pods = Pods(self.observed, self.executor, self.clock)
        self.orphans = Orphans(self.observed, self.executor, self.clock)

    def units(self) -> list[Unit]:
        found = {find_pod_unit(pod) for pod in self.all("Pod")} | {find_workload_unit(workload) for workload in self.all("Workload")}
        for parent in PARENTS_BY_KIND.values():
            for obj in self.all(parent.kind):
                found |= self.pods._list_units(parent, obj)
        return sorted((unit for unit in found if unit is not None), key=str)

    def run(self, rounds: int = 8, gone: Unit | None = None) -> None:
        """Every unit reconciled, again and again, and one of which nothing is left."""

        async def reconcile() -> None:
            for _ in range(rounds):
                for unit in [*self.units(), *([gone] if gone is not None else [])]:
                    await self.pods._reconcile(Item(unit, frozenset(), 0.0))
                for workload in self.all("Workload"):
                    await self.orphans._reconcile(Item(build_object_key(workload), frozenset(), 0.0))

        self.wait_for(reconcile())


def build_pod(name: str, *, group: str | None = "g", total: int = 2, cpu: str = "1", notes: Json | None = None, **metadata: Any) -> Json:
    labels = {QUEUE_NAME_LABEL: "main"} | ({POD_GROUP_NAME: group} if group else {})
    annotations = ({POD_GROUP_TOTAL_COUNT: str(total)} if group else {}) | (notes or {})
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    written = {"kind": "Pod", "metadata": {"name": name, "labels": labels, "annotations": annotations, **metadata}, "spec": spec}
    return KINDS["Pod"].default(written, Defaults())


def admitted(workload: Json) -> Json:
    """The status of a Workload that the scheduler has admitted in a flavor without a topology."""
    given = [
        {"name": p["name"], "count": p["count"], "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(p["count"])}}
        for p in workload["spec"]["podSets"]
    ]
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    return {"admission": {"clusterQueue": "q", "podSetAssignments": given}, "conditions": conditions}


def admit(harness: Harness, name: str) -> None:
    workload = harness.get("Workload", name)
    harness.put({"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}})
    harness.put({**workload, "status": admitted(workload)})


def list_started(harness: Harness) -> set[str]:
    gates = {p["metadata"]["name"]: {gate["name"] for gate in p["spec"].get("schedulingGates") or ()} for p in harness.all("Pod")}
    return {name for name, found in gates.items() if ADMISSION_GATE not in found}


def bind(harness: Harness, *pods: str) -> None:
    """As kube-scheduler and a kubelet do with pods that have started."""
    for name in pods:
        bound = harness.get("Pod", name)
        harness.put({**bound, "spec": {**bound["spec"], "nodeName": "n0"}, "status": {"phase": "Running"}})


def run_group(harness: PodsHarness) -> PodsHarness:
    """A group of two pods, `a` and `b`, that are admitted, bound and run."""
    for name in ("a", "b"):
        harness.put(build_pod(name))
    harness.run()
    admit(harness, "g")
    harness.run()
    assert list_started(harness) == {"a", "b"}
    bind(harness, "a", "b")
    return harness


def list_names(harness: Harness) -> set[str]:
    return {p["metadata"]["name"] for p in harness.all("Pod") if not p["metadata"].get("deletionTimestamp")}


def end(harness: Harness, phase: str, *pods: str) -> None:
    """As a kubelet does with pods whose containers have ended; those that are being deleted are gone then but for their finalizers."""
    for name in pods:
        ended = harness.put({**harness.get("Pod", name), "status": {"phase": phase}})
        if ended["metadata"].get("deletionTimestamp"):
            harness.delete("Pod", name, gracePeriodSeconds=0)

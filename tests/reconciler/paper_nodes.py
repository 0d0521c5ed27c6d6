"""The reconciler of nodes' health on paper: real informers and state, fed by hand, and a writer that writes down."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, cast

from core.model.node_health import HealthRules, StormRules
from core.names import HOSTNAME_LABEL, PODSET_LABEL, RANK_ANNOTATION, WORKLOAD_ANNOTATION
from core.runtime.client import Client
from core.runtime.controller import Result
from core.runtime.resource import Obj
from reconciler.apply import Writer
from reconciler.node_health import NodeHealth
from reconciler.observed import Observed
from reconciler.storms import Storms
from tests.builders import RACK
from tests.runtime.fakes import ManualClock

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": True}
KEY = "ns/w"
_versions = itertools.count(1)


class PaperNodes:
    """Nodes in racks of a topology, and one workload with a pod on each of some of them."""

    def __init__(self, rules: HealthRules | None = None, *, owner: Mapping[str, Any] = OWNER) -> None:
        self.clock = ManualClock(0)
        self.observed = Observed(cast("Client", None), self.clock)
        rules = rules or HealthRules()
        self.storms = Storms(self.observed, self.clock, rules.storm)
        self.health = NodeHealth(self.observed, cast("Writer", self), self.clock, rules, self.storms.holds)
        self._owner = owner
        self.statuses: list[Mapping[str, Any]] = []
        self.conditions: list[Mapping[str, Any]] = []
        self.ended: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.observed.topologies.fill([made("Topology", "t", spec={"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME_LABEL}]})])
        self.observed.flavors.fill([made("ResourceFlavor", "f", spec={"nodeLabels": {}, "topologyName": "t"})])

    def node(self, name: str, *, ready: bool = True, rack: str = "r0", host: str | None = None, **spec: Any) -> None:
        labels = {RACK: rack, HOSTNAME_LABEL: host or name}
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": self.now()}
        status = {"conditions": [condition], "allocatable": {"cpu": "8", "pods": "9"}}
        self.observed.nodes.put(made("Node", name, labels=labels, spec=spec, status=status))

    def workload(self, *hosts: str, unhealthy: Sequence[str] = (), is_admitted: bool = True, host_in_template: str = "") -> None:
        values = [{"domainCount": 1, "podCounts": {"universal": 1}, "valuesPerLevel": [{"universal": host}]} for host in hosts]
        given = {"name": "main", "count": len(hosts), "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(len(hosts))}}
        given["topologyAssignment"] = {"levels": [HOSTNAME_LABEL], "slices": values}
        true = {"status": "True", "reason": "R", "lastTransitionTime": self.now()}
        conditions = [{"type": kind, **true} for kind in ("QuotaReserved", "Admitted")]
        status: dict[str, Any] = {"admission": {"clusterQueue": "q", "podSetAssignments": [given]}, "conditions": conditions}
        status |= {"unhealthyNodes": [{"name": name} for name in unhealthy]} if unhealthy else {}
        template: dict[str, Any] = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
        if host_in_template:
            template["spec"]["nodeSelector"] = {HOSTNAME_LABEL: host_in_template}
        status = status if is_admitted else {}
        spec = {"queueName": "main", "podSets": [{"name": "main", "count": len(hosts), "template": template}]}
        self.observed.workloads.put(made("Workload", "w", "ns", spec=spec, status=status, ownerReferences=[self._owner]))

    def pod(
        self,
        name: str,
        node: str = "",
        *,
        pinned: str = "",
        by_us: bool = True,
        ending: bool = False,
        phase: str = "Running",
        **status: Any,
    ) -> None:
        """Bound, or pinned to a node; `by_us`: the ungater has said where it is."""
        spec: dict[str, Any] = {"containers": []} | ({"nodeName": node} if node else {})
        spec |= {"nodeSelector": {HOSTNAME_LABEL: pinned or node}}
        stamped = {RANK_ANNOTATION: "0"} if by_us else {}
        more = {"labels": {PODSET_LABEL: "main"}, "annotations": {WORKLOAD_ANNOTATION: "w", **stamped}, "ownerReferences": [self._owner]}
        more |= {"deletionTimestamp": self.now()} if ending else {}
        self.observed.pods.put(made("Pod", name, "ns", spec=spec, status={"phase": phase, **status}, creationTimestamp=self.now(), **more))

    def drop_node(self, name: str) -> None:
        self.observed.nodes.fill([node for node in self.observed.nodes.store.list() if node["metadata"]["name"] != name])

    def drop_pod(self, name: str) -> None:
        self.observed.pods.fill([pod for pod in self.observed.pods.store.list() if pod["metadata"]["name"] != name])

    def look(self) -> Result:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(self.health.look(KEY))
        finally:
            loop.close()

    @property
    def unhealthy(self) -> list[str] | None:
        """As the last write says; None where there was none."""
        return [node["name"] for node in self.statuses[-1].get("unhealthyNodes") or ()] if self.statuses else None

    # --- the writer ---------------------------------------------------------------------------------------------

    def now(self) -> str:
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def apply_admission(self, workload: Obj, status: Mapping[str, Any], *, strict: bool) -> Obj:
        assert strict
        self.statuses.append(status)
        return workload

    async def terminate_pod(self, pod: Obj, message: str) -> Obj:
        self.ended.append(pod["metadata"]["name"])
        return pod

    async def apply_workload_condition(self, workload: Obj, condition: Mapping[str, Any], manager: str) -> Obj:
        self.conditions.append(condition)
        others = [c for c in workload["status"].get("conditions") or () if c["type"] != condition["type"]]
        changed = {**workload, "status": {**workload["status"], "conditions": [*others, dict(condition)]}}
        self.observed.workloads.put({**changed, "metadata": {**workload["metadata"], "resourceVersion": str(next(_versions))}})
        return changed

    async def event(self, resource: object, obj: Obj, reason: str, message: str, *, warning: bool = False, is_minor: bool = False) -> None:
        self.events.append((reason, message))


def made(kind: str, name: str, namespace: str | None = None, *, spec: Any = None, status: Any = None, **metadata: Any) -> Obj:
    base: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(next(_versions)), **metadata}
    base |= {"namespace": namespace} if namespace else {}
    return {"apiVersion": "v1", "kind": kind, "metadata": base, "spec": spec or {}, "status": status or {}}


STRICT_STORMS = StormRules(min_nodes=3)

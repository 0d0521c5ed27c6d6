"""The reconciler of nodes' health on an API server in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.model.node_health_rules import HealthRules, StormRules
from core.names import HOSTNAME_LABEL, MANAGER_ADMISSION, PODSET_LABEL, RANK_ANNOTATION, WORKLOAD_ANNOTATION
from core.plan.steps import pacing
from core.runtime.controller import Result
from reconciler.nodes.mass_not_ready import Storms
from reconciler.nodes.node_health import NodeHealth
from sim.harness import Harness
from tests.builders import RACK, build_flavor_json, build_topology_json
from tests.runtime.fakes import ManualClock

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": True}
KEY = "ns/w"


class NodesHarness(Harness):
    """Nodes in racks of a topology, and one workload with a pod on each of some of them."""

    clock: ManualClock

    def __init__(self, rules: HealthRules | None = None, *, owner: Mapping[str, Any] = OWNER) -> None:
        super().__init__(ManualClock(0))
        rules = rules or HealthRules()
        self.storms = Storms(self.observed, self.clock, rules.storm)
        self.health = NodeHealth(self.observed, self.executor, self.clock, rules, self.storms.is_affected)
        self._owner = owner
        self.put({"kind": "Topology", **build_topology_json("t", (RACK, HOSTNAME_LABEL))})
        self.put({"kind": "ResourceFlavor", **build_flavor_json("f", "t")})

    def node(self, name: str, *, ready: bool = True, rack: str = "r0", host: str | None = None, since: str = "", **spec: Any) -> None:
        labels = {HOSTNAME_LABEL: host or name} | ({RACK: rack} if rack else {})
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since or self.now()}
        status = {"conditions": [condition], "allocatable": {"cpu": "8", "pods": "9"}}
        self.put({"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec, "status": status})

    def workload(
        self,
        *hosts: str,
        unhealthy: Sequence[str] = (),
        is_admitted: bool = True,
        host_in_template: str = "",
        rack: str = "",
        racks: Sequence[str] = (),
    ) -> None:
        """One pod on each host. With `rack`, of all, or `racks` the assignment names both levels, as where nodes share a hostname."""
        racks = racks or [rack] * len(hosts)
        named = [(above, host) if above else (host,) for above, host in zip(racks, hosts, strict=True)]
        paths = [[{"universal": value} for value in path] for path in named]
        values = [{"domainCount": 1, "podCounts": {"universal": 1}, "valuesPerLevel": path} for path in paths]
        given = {"name": "main", "count": len(hosts), "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(len(hosts))}}
        given["topologyAssignment"] = {"levels": [RACK, HOSTNAME_LABEL] if any(racks) else [HOSTNAME_LABEL], "slices": values}
        conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
        status: dict[str, Any] = {"admission": {"clusterQueue": "q", "podSetAssignments": [given]}, "conditions": conditions}
        status |= {"unhealthyNodes": [{"name": name} for name in unhealthy]} if unhealthy else {}
        template: dict[str, Any] = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
        if host_in_template:
            template["spec"]["nodeSelector"] = {HOSTNAME_LABEL: host_in_template}
        status = status if is_admitted else {}
        spec = {"queueName": "main", "podSets": [{"name": "main", "count": len(hosts), "template": template}]}
        self.put({"kind": "Workload", "metadata": {"name": "w", "ownerReferences": [self._owner]}, "spec": spec, "status": status})

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
        metadata = {"name": name, "creationTimestamp": self.now(), "labels": {PODSET_LABEL: "main"}, "ownerReferences": [self._owner]}
        metadata |= {"annotations": {WORKLOAD_ANNOTATION: "w", **stamped}} | ({"deletionTimestamp": self.now()} if ending else {})
        self.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase, **status}})

    def lose(self, name: str) -> None:
        """A node is deleted, and is not made anew in the time that it is given."""
        self.drop("Node", name)
        self.clock.time += pacing.NODE_GONE_S

    def look(self) -> Result:
        return self.wait_for(self.health.reconcile(KEY))

    @property
    def statuses(self) -> list[Mapping[str, Any]]:
        """Of the workload, as health decided them."""
        return [request.body["status"] for request in self.writes if request.params.get("fieldManager") == MANAGER_ADMISSION]

    @property
    def unhealthy(self) -> list[str] | None:
        """As the last of these says; None where there was none."""
        return [node["name"] for node in self.statuses[-1].get("unhealthyNodes") or ()] if self.statuses else None

    @property
    def ended(self) -> list[str]:
        """Pods that were made to fail."""
        return [request.name for request in self.writes if request.kind.kind == "Pod"]

    @property
    def told(self) -> list[tuple[str, str]]:
        """Reason and message of each event."""
        return [(event.reason, event.message) for event in self.events]


STRICT_STORMS = StormRules(min_nodes=3)

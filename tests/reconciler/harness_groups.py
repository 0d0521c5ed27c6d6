"""The reconciler of groups of pods on an API server in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from core.metric_names import GROUP_PLACEMENT, GROUP_REFUSALS
from core.model.configuration import PodGroupRules
from core.model.plugin_choice import GroupPluginRules
from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL, MEMBER_OF_LABEL, PODGROUP_GATE, REPLICA_LABEL
from core.podgroups.members import GroupKey, find_pinned_node
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Result
from core.runtime.http.errors import KubeError
from core.runtime.report.metrics import Instrument
from reconciler.execute.recorder import Recorder
from reconciler.podgroups.group_plugins import GroupPlugins
from reconciler.podgroups.podgroups import PodGroups
from sim.apiserver.server import Request
from sim.harness import NAMESPACE, Harness
from tests.builders import RACK, Node, build_node_json
from tests.runtime.fakes import ManualClock

Hook = Callable[[str, str], None]  # what is to be done to a pod, and its name; raises what the API server answers


class GroupMetrics:
    """A sink of the two metrics of groups that are recorded."""

    def __init__(self) -> None:
        self.placements: list[float] = []  # seconds
        self.refusals: list[str] = []  # reasons

    def add(self, instrument: Instrument, *values: str, by: float = 1) -> None:
        assert instrument is GROUP_REFUSALS
        self.refusals += values

    def record(self, instrument: Instrument, value: float, *values: str, traceparent: str | None = None) -> None:
        assert instrument is GROUP_PLACEMENT
        self.placements.append(value)


class GroupsHarness(Harness):
    """Nodes in racks, groups of pods, and the reconciler that places them."""

    clock: ManualClock

    def __init__(
        self,
        racks: Mapping[str, tuple[int, ...]],
        plugins: Callable[[Clock], GroupPlugins] | None = None,
        rules: PodGroupRules = PodGroupRules(),  # noqa: B008  # frozen
    ) -> None:
        super().__init__(ManualClock(), places_groups=True)
        for built_in in self.observed.built_in:
            for informer in built_in.informers:
                informer.fill(())
        self.plugins = plugins(self.clock) if plugins is not None else GroupPlugins(GroupPluginRules(), self.clock)
        self.measured = GroupMetrics()
        self.groups = PodGroups(self.observed, self.executor, self.clock, self.plugins, rules, Recorder(self.measured))
        self.steps: list[tuple[str, str]] = []  # that were tried: what is done to a pod, and its name
        self.on_step: Hook = lambda what, name: None
        self.on_write = self._note_step
        self._numbers = itertools.count(1)
        for rack, sizes in racks.items():
            for number, cpu in enumerate(sizes):
                self.node(f"{rack}-{number}", rack, cpu)

    # --- the cluster ----------------------------------------------------------------------------------------------

    def node(self, name: str, rack: str, cpu: int, **labels: str) -> None:
        node = Node(name, {RACK: rack, HOSTNAME_LABEL: name, **labels}, {"cpu": cpu * 1000, "pods": 110})
        self.put({"kind": "Node", **build_node_json(node)})

    def group(self, policy: Mapping[str, Any] | None = None, *, name: str = "g", **spec: Any) -> Obj:
        constraints = {"topologyConstraints": [{"level": RACK}]}
        spec = {"schedulingPolicy": dict(policy or {"basic": {}}), "schedulingConstraints": constraints, **spec}
        return self.put({"kind": "PodGroup", "metadata": {"name": name}, "spec": spec})

    def gang(self, count: int, **more: Any) -> Obj:
        return self.group({"gang": {"minCount": count}}, **more)

    def devices(self, *objects: Obj) -> None:
        """Slices, claims, templates and classes are there, or change."""
        for obj in objects:
            self.put(obj)

    def drop_device(self, obj: Obj) -> None:
        self.drop(obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace", NAMESPACE))

    def add(self, *names: str, group: str = "g", cpu: int = 1, replica: str | None = None, **spec: Any) -> None:
        for name in names:
            labels = {MEMBER_OF_LABEL: group, JOB_COMPLETION_INDEX_LABEL: str(len(self.pods))}
            labels |= {REPLICA_LABEL: replica} if replica is not None else {}
            metadata = {"name": name, "uid": f"uid-{name}-{next(self._numbers)}", "labels": labels}
            containers = [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}"}}}]
            spec = {"containers": containers, "schedulingGates": [{"name": PODGROUP_GATE}], **spec}
            self.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def change(self, name: str, **parts: Any) -> None:
        """Something else of a pod changes: `labels`, `annotations`, `spec` or `status`."""
        pod = self.get("Pod", name)
        metadata = {part: value for part, value in parts.items() if part not in ("spec", "status")}
        self.put({**pod, **parts, "metadata": {**pod["metadata"], **metadata}})

    def bind(self) -> None:
        """As kube-scheduler does: what has no gate is on its node."""
        for name, pod in self.pods.items():
            if not pod["spec"].get("schedulingGates") and find_pinned_node(pod["spec"]):
                self.change(name, spec={**pod["spec"], "nodeName": find_pinned_node(pod["spec"])}, status={"phase": "Running"})

    # --- what the reconciler does ---------------------------------------------------------------------------------

    def look(self, name: str = "g", replica: int = 0) -> Result | KubeError:
        try:
            return self.wait_for(self.groups.reconcile(GroupKey(NAMESPACE, name, replica)))
        except KubeError as error:
            return error

    def settle(self, name: str = "g", replica: int = 0) -> Result | KubeError:
        """Until it writes nothing more."""
        for _ in range(10):
            before = len(self.steps)
            result = self.look(name, replica)
            if len(self.steps) == before:
                return result
        raise AssertionError("it does not come to rest")

    @property
    def pods(self) -> dict[str, Obj]:
        """Pods by name."""
        return {pod["metadata"]["name"]: pod for pod in self.all("Pod")}

    def held(self) -> dict[str, str]:
        """Nodes on which places are kept, by uid of pods without what comes after the name."""
        return {pod.removeprefix("uid-").rpartition("-")[0]: node for (_, pod, _), node in self.observed.state.whole.kept.items()}

    def where(self) -> dict[str, str]:
        """Nodes of pods that were let go."""
        return {name: find_pinned_node(pod["spec"]) for name, pod in self.pods.items() if not pod["spec"].get("schedulingGates")}

    @property
    def conditions(self) -> list[list[Obj]]:
        """Of groups, as often as they were written."""
        written = (request for request in self.writes if (request.kind.kind, request.subresource) == ("PodGroup", "status"))
        return [request.body["status"]["conditions"] for request in written]

    @property
    def told(self) -> list[tuple[str, str, str]]:
        """Status, reason and message of the first of each."""
        return [(first["status"], first["reason"], first["message"]) for first, *_ in self.conditions]

    @property
    def says(self) -> tuple[str, str, str]:
        """The last of these."""
        return self.told[-1]

    def _note_step(self, request: Request) -> None:
        if request.kind.kind == "Pod" and request.verb == "patch":
            keeps = (request.body.get("status") or {}).get("nominatedNodeName")
            what = "keep" if keeps else "give back" if request.subresource else "let go"
            self.steps.append((what, request.name))
            self.on_step(what, request.name)

"""The reconciler of groups of pods on paper: real informers and state, fed by hand; what is written is observed at once, or later."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable, Mapping
from typing import Any, cast

from core.metric_names import GROUP_PLACEMENT, GROUP_REFUSALS
from core.model.configuration import PodGroupRules
from core.model.group_plugins import GroupPluginRules
from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL, MEMBER_OF_LABEL, PODGROUP_GATE, REPLICA_LABEL, TRACEPARENT_ANNOTATION
from core.podgroups.members import GroupKey, pin, pinned_node
from core.runtime.client import Client
from core.runtime.clock import Clock
from core.runtime.controller import Result
from core.runtime.errors import KubeError, NotFound
from core.runtime.metrics import Instrument
from core.runtime.resource import Obj
from core.runtime.watch_step import Applied, Deleted
from reconciler import resources as r
from reconciler.apply import Writer
from reconciler.group_plugins import GroupPlugins
from reconciler.metrics import Recorder
from reconciler.observed import Observed
from reconciler.podgroups import PodGroups
from tests.builders import RACK, Node, node_json
from tests.runtime.fakes import ManualClock

NAMESPACE = "ns"
Hook = Callable[[str, str], None]  # what is written, and the name of the pod; raises what the API server answers


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


class PaperGroups:
    """Pods by name, as the API server has them."""

    def __init__(
        self,
        racks: Mapping[str, tuple[int, ...]],
        plugins: Callable[[Clock], GroupPlugins] | None = None,
        rules: PodGroupRules = PodGroupRules(),  # noqa: B008  # frozen
    ) -> None:
        self.clock = ManualClock()
        self.observed = Observed(cast("Client", None), self.clock, places_groups=True)
        for built_in in self.observed.built_in:
            for informer in built_in.informers:
                informer.fill(())
        self.plugins = plugins(self.clock) if plugins is not None else GroupPlugins(GroupPluginRules(), self.clock)
        self.measured = GroupMetrics()
        self.groups = PodGroups(self.observed, cast("Writer", self), self.clock, self.plugins, rules, Recorder(self.measured))
        self.pods: dict[str, Obj] = {}
        self.told: list[tuple[str, str, str]] = []  # status, reason and message, as often as they were written
        self.kinds: list[list[str]] = []  # of the conditions that were written
        self.writes: list[tuple[str, str]] = []
        self.on_write: Hook = lambda what, name: None
        self.is_late = False  # whether nobody sees what is written
        self._versions = itertools.count(1)
        for rack, sizes in racks.items():
            for number, cpu in enumerate(sizes):
                self.node(f"{rack}-{number}", rack, cpu)

    # --- the cluster ----------------------------------------------------------------------------------------------

    def node(self, name: str, rack: str, cpu: int, **labels: str) -> None:
        node = node_json(Node(name, {RACK: rack, HOSTNAME_LABEL: name, **labels}, {"cpu": cpu * 1000, "pods": 110}))
        node["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": str(next(self._versions))}
        self.observed.nodes.put(node)

    def group(self, policy: Mapping[str, Any] | None = None, *, name: str = "g", **spec: Any) -> Obj:
        constraints = {"topologyConstraints": [{"level": RACK}]}
        spec = {"schedulingPolicy": dict(policy or {"basic": {}}), "schedulingConstraints": constraints, **spec}
        metadata = {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": str(next(self._versions)),
        }
        group = {"apiVersion": "topogate.dev/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
        self.observed.pod_groups.put(group)
        return group

    def gang(self, count: int, **more: Any) -> Obj:
        return self.group({"gang": {"minCount": count}}, **more)

    def devices(self, *objects: Obj) -> None:
        """Slices, claims, templates and classes are there, or change."""
        devices = self.observed.devices
        assert devices is not None
        for obj in objects:
            (informer,) = (one for one in devices.informers if one.resource.kind == obj["kind"])
            informer.put({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(self._versions))}})

    def drop_device(self, obj: Obj) -> None:
        devices = self.observed.devices
        assert devices is not None
        (informer,) = (one for one in devices.informers if one.resource.kind == obj["kind"])
        informer._fold(Deleted(obj))

    def drop_group(self, name: str = "g") -> None:
        group = self.observed.pod_groups.store.get(f"{NAMESPACE}/{name}")
        assert group is not None
        self.observed.pod_groups._fold(Deleted(group))

    def add(self, *names: str, group: str = "g", cpu: int = 1, replica: str | None = None, **spec: Any) -> None:
        for name in names:
            labels = {MEMBER_OF_LABEL: group, JOB_COMPLETION_INDEX_LABEL: str(len(self.pods))}
            labels |= {REPLICA_LABEL: replica} if replica is not None else {}
            metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}-{next(self._versions)}", "labels": labels}
            containers = [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}"}}}]
            spec = {"containers": containers, "schedulingGates": [{"name": PODGROUP_GATE}], **spec}
            self.put({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def put(self, pod: Obj) -> None:
        """It changes, and that is seen."""
        self._store(pod)
        self.see(pod["metadata"]["name"])

    def _store(self, pod: Obj) -> Obj:
        pod["metadata"]["resourceVersion"] = str(next(self._versions))
        self.pods[pod["metadata"]["name"]] = pod
        return pod

    def see(self, name: str) -> None:
        self.observed.pods._fold(Applied(copy.deepcopy(self.pods[name])))

    def drop(self, name: str) -> None:
        self.observed.pods._fold(Deleted(self.pods.pop(name)))

    def change(self, name: str, **parts: Any) -> None:
        """Something else of a pod changes: `labels`, `annotations` or `status`."""
        pod = copy.deepcopy(self.pods[name])
        for part, value in parts.items():
            (pod if part == "status" else pod["metadata"])[part] = value
        self.put(pod)

    def bind(self) -> None:
        """As kube-scheduler does: what has no gate is on its node."""
        for pod in list(self.pods.values()):
            if not pod["spec"]["schedulingGates"] and pinned_node(pod["spec"]):
                pod["spec"]["nodeName"], pod["status"] = pinned_node(pod["spec"]), {"phase": "Running"}
                self.put(pod)

    # --- what the reconciler does ---------------------------------------------------------------------------------

    def look(self, name: str = "g", replica: int = 0) -> Result | KubeError:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(self.groups.look(GroupKey(NAMESPACE, name, replica)))
        except KubeError as error:
            return error
        finally:
            loop.close()

    def settle(self, name: str = "g", replica: int = 0) -> Result | KubeError:
        """Until it writes nothing more."""
        for _ in range(10):
            before = len(self.writes)
            result = self.look(name, replica)
            if len(self.writes) == before:
                return result
        raise AssertionError("it does not come to rest")

    def held(self) -> dict[str, str]:
        """Nodes on which places are kept, by uid of pods without what comes after the name."""
        return {pod.removeprefix("uid-").rpartition("-")[0]: node for (_, pod, _), node in self.observed.state.whole.kept.items()}

    def where(self) -> dict[str, str]:
        """Nodes of pods that were let go."""
        return {name: pinned_node(pod["spec"]) for name, pod in self.pods.items() if not pod["spec"]["schedulingGates"]}

    @property
    def says(self) -> tuple[str, str, str]:
        """The last that was told of a group."""
        return self.told[-1]

    # --- the writer -----------------------------------------------------------------------------------------------

    def now(self) -> str:
        return "2026-01-01T00:00:00Z"

    async def nominate(self, member: Any, node: str) -> Obj:
        return self._write("keep" if node else "give back", member.key, lambda pod: pod["status"].__setitem__("nominatedNodeName", node))

    async def annotate(self, resource: Any, group: Obj, annotations: Mapping[str, str]) -> Obj:
        metadata = {**group["metadata"], "annotations": dict(annotations), "resourceVersion": str(next(self._versions))}
        changed = {**group, "metadata": metadata}
        self.observed.pod_groups.put(changed)
        return changed

    async def let_go(self, pod: Obj, node: str, story: str | None = None) -> Obj:
        def change(stored: Obj) -> None:
            stored["spec"]["schedulingGates"] = []
            if story is not None:
                stored["metadata"]["annotations"] = {TRACEPARENT_ANNOTATION: story}
            if node:
                stored["spec"]["affinity"] = {"nodeAffinity": pin(stored["spec"], node)}

        return self._write("let go", f"{NAMESPACE}/{pod['metadata']['name']}", change)

    def _write(self, what: str, key: str, change: Callable[[Obj], None]) -> Obj:
        name = key.partition("/")[2]
        self.writes.append((what, name))
        self.on_write(what, name)
        if name not in self.pods:
            raise NotFound(404, "NotFound", "gone")
        pod = copy.deepcopy(self.pods[name])
        change(pod)
        self._store(pod)
        if not self.is_late:
            self.see(name)
        return pod

    async def read_pod(self, namespace: str, name: str) -> Obj:
        if name not in self.pods:
            raise NotFound(404, "NotFound", "gone")
        return self.pods[name]

    async def patch_status(self, resource: Any, group: Obj, status: Mapping[str, Any]) -> Obj:
        condition = status["conditions"][0]
        self.kinds.append([one["type"] for one in status["conditions"]])
        self.told.append((condition["status"], condition["reason"], condition["message"]))
        metadata = {**group["metadata"], "resourceVersion": str(next(self._versions))}
        changed = {**group, "metadata": metadata, "status": dict(status)}
        if resource == r.POD_GROUPS:
            self.observed.pod_groups.put(changed)
        return changed

    async def event(self, *_: Any, **__: Any) -> None:
        """Said in the condition, too."""

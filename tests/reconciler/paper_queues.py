"""The scheduler and the reconciler of queues on paper: a small cluster with one queue, jobs and pods that wait in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from core.names import HOSTNAME_LABEL
from core.placement.profile import STANDARD
from core.runtime.errors import NotFound
from core.runtime.resource import Obj, Resource
from core.runtime.watch_step import Applied, Deleted
from core.runtime.workqueue import Item
from reconciler.apply import Writer
from reconciler.metrics import UNRECORDED, Recorder
from reconciler.queues import Queues
from reconciler.scheduler import Scheduler
from tests.builders import RACK, Node, cluster_queue_json, flavor_json, node_json, pod_set_json, topology_json
from tests.reconciler.paper import Paper

CLUSTER_SCOPED = ("Node", "Namespace", "Topology", "ResourceFlavor", "ClusterQueue", "AdmissionCheck")


class QueuesPaper(Paper):
    """Two racks of one node each, quota for ten CPUs, LocalQueue `main` in namespace `ns`."""

    def __init__(self, recorder: Recorder = UNRECORDED) -> None:
        super().__init__()
        writer = cast("Writer", self)
        self.scheduler = Scheduler(self.observed, writer, self.clock, STANDARD, recorder=recorder)
        self.queues = Queues(self.observed, writer, self.clock)
        self.stories: list[tuple[str, str, str, str]] = []  # kind, name, reason and message of every event
        self._informers |= {
            "Job": self.observed.jobs["Job.batch"],
            "Node": self.observed.nodes,
            "Namespace": self.observed.namespaces,
            "Topology": self.observed.topologies,
            "ClusterQueue": self.observed.cluster_queues,
            "LocalQueue": self.observed.local_queues,
        }
        self.put({"kind": "Namespace", "metadata": {"name": "ns"}})
        self.put({"kind": "Topology", **topology_json("t", [RACK, HOSTNAME_LABEL])})
        self.put({"kind": "ResourceFlavor", **flavor_json("gpu", "t")})
        self.put({"kind": "ClusterQueue", **cluster_queue_json("cq", {"gpu": "10"})})
        self.put({"kind": "LocalQueue", "metadata": {"name": "main"}, "spec": {"clusterQueue": "cq"}})
        for rack in ("r1", "r2"):
            self.node(f"{rack}-n", rack)

    def node(self, name: str, rack: str, *, cpu: int = 4000) -> None:
        node = Node(name, {RACK: rack, HOSTNAME_LABEL: name}, {"cpu": cpu, "pods": 110})
        self.put({"kind": "Node", **node_json(node)})

    def put(self, obj: Mapping[str, Any]) -> Obj:
        if obj["kind"] not in CLUSTER_SCOPED:
            return super().put(obj)
        metadata = {"uid": f"uid-{obj['metadata']['name']}", **obj["metadata"], "resourceVersion": str(next(self._versions))}
        stored = {**obj, "metadata": metadata}
        self._whole[obj["kind"], f"None/{metadata['name']}"] = stored
        self._informers[obj["kind"]]._fold(Applied(stored))
        return stored

    def delete(self, kind: str, name: str) -> None:
        self._delete(kind, self.get(kind, name, "None"))

    def drop(self, kind: str, name: str) -> None:
        if kind not in CLUSTER_SCOPED:
            super().drop(kind, name)
        else:
            self._informers[kind]._fold(Deleted(self._whole.pop((kind, f"None/{name}"))))

    def workload(
        self,
        name: str,
        *,
        count: int,
        owner: tuple[str, str, str] | None,
        topology: Mapping[str, Any] | None = None,
        queue: str = "main",
    ) -> Obj:
        """A Workload that waits; `owner` is apiVersion, kind and name."""
        owners = []
        if owner is not None:
            version, kind, called = owner
            owners = [{"apiVersion": version, "kind": kind, "name": called, "uid": f"uid-{called}", "controller": True}]
        spec = {"queueName": queue, "podSets": [pod_set_json("main", count, topology=topology)]}
        return self.put({"kind": "Workload", "metadata": {"name": name, "ownerReferences": owners}, "spec": spec})

    def decide(self) -> None:
        """One cycle, with its writes."""

        async def decide() -> None:
            await self.scheduler.run_cycle()
            await self.scheduler.settle()

        self.wait_for(decide())

    def reconcile(self, plural: str, name: str) -> None:
        """One run on one queue, flavor or topology."""
        with suppress(NotFound):  # a status that was to be written on what had just lost its last finalizer
            self.wait_for(self.queues._reconcile(Item((plural, name), frozenset(), 0.0)))

    def told(self, name: str) -> list[tuple[str, str]]:
        """Reason and message of the events on one object of any kind."""
        return [(reason, message) for _, on, reason, message in self.stories if on == name]

    def condition(self, kind: str, name: str) -> Obj:
        """The only condition of an object without a namespace."""
        condition: Obj = self.get(kind, name, "None")["status"]["conditions"][0]
        return condition

    # --- the writer ---------------------------------------------------------------------------------------

    async def patch_status(self, resource: Resource, obj: Obj, status: Mapping[str, Any]) -> Obj:
        metadata = obj["metadata"]
        try:
            whole = self.get(resource.kind, metadata["name"], str(metadata.get("namespace")))
        except KeyError:
            raise NotFound(404, "NotFound", "it is gone") from None
        return self.put({**whole, "status": dict(status)})

    async def event(
        self, resource: Resource, obj: Obj, reason: str, message: str, *, warning: bool = False, is_minor: bool = False
    ) -> None:
        story = resource.kind, obj["metadata"]["name"], reason, message
        if story not in self.stories:  # as the real writer, for a while
            self.stories.append(story)

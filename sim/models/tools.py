"""A tool that writes Workloads and pods of its own, without a job (docs/pods.md)."""

from collections.abc import Iterator

from core.names import WORKLOAD_ANNOTATION
from e2e.standins.pods import has_condition
from sim.apiserver.server import Change
from sim.models.base import POD, Json, Key, Model, get_key

WORKLOADS = "kueue.x-k8s.io", "workloads"
OF_TOOL = "sim.topogate.dev/of-tool"  # annotation of a Workload


class Tool(Model):
    """Gives up a Workload that is evicted: deletes it and the pods that name it."""

    user = "system:serviceaccount:default:tool"
    resources = (WORKLOADS,)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if change.new is not None and OF_TOOL in (change.new["metadata"].get("annotations") or {}):
            yield WORKLOADS, get_key(change.new)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        workload = self.find(WORKLOADS, key)
        if workload is None or not (has_condition(workload, "Evicted") or workload["spec"].get("active") is False):
            return
        for pod in self._find_pods(key):
            if not pod["metadata"].get("deletionTimestamp"):
                self.delete(POD, pod)
        if not workload["metadata"].get("deletionTimestamp"):
            self.delete(WORKLOADS, workload)

    def _find_pods(self, key: Key) -> list[Json]:
        found = (stored.obj for (namespace, _), stored in sorted(self.server.objects[POD].items()) if namespace == key[0])
        return [pod for pod in found if (pod["metadata"].get("annotations") or {}).get(WORKLOAD_ANNOTATION) == key[1]]

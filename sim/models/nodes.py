"""The node lifecycle controller: taints that say what a node's conditions say, and the eviction of pods that do not tolerate them."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from sim.models.base import NODE, POD, Json, Key, Model, is_over, key_of, key_of_node, set_pod_condition
from sim.server import Change, Server

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
_OURS = tuple(f"node.kubernetes.io/{name}" for name in ("not-ready", "unreachable", "unschedulable"))


class NodeLifecycle(Model):
    """Pods of a node that is not ready are not ready, and are deleted when their toleration ends."""

    user = "system:serviceaccount:kube-system:node-controller"
    resources = (NODE, POD)

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        super().__init__(server, loop, now)
        self._tainted: dict[str, float] = {}  # nodes with a taint that evicts, and since when

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if change.resource == POD:
            if change.new is not None and change.new["spec"].get("nodeName") in self._tainted:
                yield POD, key_of(change.new)
        else:
            yield NODE, key_of(change.last)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        if resource == NODE:
            self._look_at_node(key)
            return
        pod = self.find(POD, key)
        node = self.find(NODE, key_of_node(pod["spec"].get("nodeName") or "")) if pod is not None else None
        if pod is not None and node is not None and not pod["metadata"].get("deletionTimestamp"):
            self._evict(pod, node)

    def _look_at_node(self, key: Key) -> None:
        node = self.find(NODE, key)
        if node is None:
            self._tainted.pop(key[1], None)
            return
        taints = (node.get("spec") or {}).get("taints") or []
        wanted = list(_find_taints(node))
        kept = [taint for taint in taints if taint["key"] not in _OURS or (taint["key"], taint["effect"]) in wanted]
        known = {(taint["key"], taint["effect"]) for taint in kept}
        new = [{"key": name, "effect": effect, "timeAdded": self.time()} for name, effect in wanted if (name, effect) not in known]
        if new or len(kept) < len(taints):
            self.patch(NODE, key, {"spec": {"taints": [*kept, *new] or None}})
        if any(taint["effect"] == NO_EXECUTE for taint in (*kept, *new)):
            self._tainted.setdefault(key[1], self.loop.time())
        else:
            self._tainted.pop(key[1], None)
        for at, stored in sorted(self.server.objects[POD].items()):
            if stored.obj["spec"].get("nodeName") == key[1]:
                conditions = set_pod_condition(stored.obj, "Ready", "False", self.time())
                if conditions and any(effect == NO_EXECUTE for _, effect in wanted):
                    self.patch(POD, at, {"status": {"conditions": conditions}}, "status")
                self.add(POD, at)

    def _evict(self, pod: Json, node: Json) -> None:
        taints = [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["effect"] == NO_EXECUTE]
        if not taints or is_over(pod):
            return
        lasting = [_find_toleration_s(pod, taint) for taint in taints]
        left = min(lasting) - (self.loop.time() - self._tainted[node["metadata"]["name"]])
        if left <= 0:
            conditions = set_pod_condition(pod, "DisruptionTarget", "True", self.time(), "DeletionByTaintManager")
            self.patch(POD, key_of(pod), {"status": {"conditions": conditions}}, "status")
            self.delete(POD, pod)
        elif left < float("inf"):
            self.add(POD, key_of(pod), left)


def _find_taints(node: Json) -> Iterator[tuple[str, str]]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((condition["status"] for condition in conditions if condition["type"] == "Ready"), "False")
    if ready != "True":
        name = _OURS[ready == "Unknown"]
        yield from ((name, NO_SCHEDULE), (name, NO_EXECUTE))
    if (node.get("spec") or {}).get("unschedulable"):
        yield _OURS[2], NO_SCHEDULE


def _find_toleration_s(pod: Mapping[str, Any], taint: Mapping[str, Any]) -> float:
    """How long a pod tolerates a taint, in seconds: 0 where it does not, infinity where it does for ever."""
    found = [each for each in pod["spec"].get("tolerations") or () if tolerates(each, taint)]
    return min((float(each.get("tolerationSeconds", "inf")) for each in found), default=0.0)


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether a toleration is for a taint."""
    is_equal = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
    return is_equal and toleration.get("key") in (taint["key"], None) and toleration.get("effect") in (taint["effect"], None, "")

"""The taint eviction controller: a pod is deleted when it does not tolerate the NoExecute taints of its node, or no longer."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sim.apiserver.server import Change, Refused, Server
from sim.models.base import NODE, POD, Json, Key, Model, get_key, set_pod_condition
from sim.models.nodes import NO_EXECUTE


class _Eviction(NamedTuple):
    since: float
    timer: asyncio.TimerHandle


class TaintEviction(Model):
    """Each pod has a time of its own, from when it was first seen with a taint. Another taint later that it tolerates, though shorter, does
    not change that time. What has ended is deleted as well."""

    user = "system:serviceaccount:kube-system:node-controller"
    resources = (NODE, POD)

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        super().__init__(server, loop, now)
        self._tainted: dict[str, list[Json]] = {}  # NoExecute taints by node
        self._planned: dict[Key, _Eviction] = {}

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        read = _read_taints if change.resource == NODE else _read_placing
        if change.old is None or change.new is None or read(change.old) != read(change.new):
            yield change.resource, get_key(change.last)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        if resource == NODE:
            self._look_at_node(key)
            return
        pod = self.find(POD, key)
        if pod is None:
            self._cancel(key)
            return
        taints = self._tainted.get(pod["spec"].get("nodeName") or "")
        if taints:
            self._judge(pod, taints)

    def _look_at_node(self, key: Key) -> None:
        node = self.find(NODE, key)
        if node is None:
            self._tainted.pop(key[1], None)
            return
        taints = _read_taints(node)
        self._tainted[key[1]] = taints
        if not taints:
            del self._tainted[key[1]]
        for at, stored in sorted(self.server.objects[POD].items()):
            if stored.obj["spec"].get("nodeName") != key[1]:
                continue
            if taints:
                self._judge(stored.obj, taints)
            else:
                self._cancel(at)

    def _judge(self, pod: Json, taints: Sequence[Json]) -> None:
        key, now = get_key(pod), self.loop.time()
        times = [_find_toleration_s(pod, taint) for taint in taints]
        if None in times:
            self._cancel(key)
            self._evict(key)
            return
        left = min(time for time in times if time is not None)
        known = self._planned.get(key)
        if left == float("inf"):
            self._cancel(key)
        elif known is None or known.since >= now:
            self._cancel(key)
            self._planned[key] = _Eviction(now, self.loop.call_later(left, self._evict, key))

    def _cancel(self, key: Key) -> None:
        planned = self._planned.pop(key, None)
        if planned is not None:
            planned.timer.cancel()

    def _evict(self, key: Key) -> None:
        self._planned.pop(key, None)
        pod = self.find(POD, key)
        if pod is None or self.is_stopped:
            return
        try:
            conditions = set_pod_condition(pod, "DisruptionTarget", "True", self.time(), "DeletionByTaintManager")
            if conditions:
                self.patch(POD, key, {"status": {"conditions": conditions}}, "status")
            self.delete(POD, pod)
        except Refused as refused:
            if refused.code != 404:
                self._planned[key] = _Eviction(self.loop.time(), self.loop.call_later(1.0, self._evict, key))


def _read_taints(node: Json) -> list[Json]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["effect"] == NO_EXECUTE]


def _read_placing(pod: Json) -> list[Any]:
    return [pod["spec"].get("nodeName"), pod["spec"].get("tolerations") or []]


def _find_toleration_s(pod: Mapping[str, Any], taint: Mapping[str, Any]) -> float | None:
    """How long a pod tolerates a taint, in seconds, by its first toleration of it: infinity where it does for ever, None without one."""
    first = next((each for each in pod["spec"].get("tolerations") or () if can_tolerate(each, taint)), None)
    return None if first is None else max(0.0, float(first.get("tolerationSeconds", "inf")))


def can_tolerate(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether a toleration is for a taint."""
    is_equal = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
    return is_equal and toleration.get("key") in (taint["key"], None, "") and toleration.get("effect") in (taint["effect"], None, "")

"""The garbage collector of pods."""

import asyncio
import math
from collections.abc import Callable
from datetime import datetime

from sim.apiserver.server import Change, Refused, Server
from sim.models.base import NODE, POD, Json, Model, get_key, get_node_key, is_over, set_pod_condition

PERIOD_S, QUARANTINE_S = 20.0, 40.0
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class PodGarbageCollector(Model):
    """Looks every 20 s and deletes, whatever their phase, pods of nodes that have been gone since it looked 40 s ago. Pods that end without
    a node have failed, and those that end on a node that is out of service. Nothing is planned while there is no such pod."""

    user = "system:serviceaccount:kube-system:pod-garbage-collector"
    resources = (NODE, POD)

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        super().__init__(server, loop, now)
        self._quarantined: dict[str, float] = {}  # nodes that were gone, and until when nothing is done about their pods
        self._is_planned = False

    def _observe(self, change: Change) -> None:
        if self._is_planned:
            return
        if change.resource == NODE or (change.new is not None and (self._is_left(change.new) or _is_ending(change.new))):
            self._is_planned = True
            self.loop.call_at(PERIOD_S * math.floor(self.loop.time() / PERIOD_S + 1), self._collect)

    def _is_left(self, pod: Json) -> bool:
        return bool(pod["spec"].get("nodeName")) and get_node_key(pod["spec"]["nodeName"]) not in self.server.objects[NODE]

    def _collect(self) -> None:
        self._is_planned = False
        if self.is_stopped:
            return
        now, pods = self.loop.time(), [stored.obj for _, stored in sorted(self.server.objects[POD].items())]
        left = [pod for pod in pods if self._is_left(pod)]
        for pod in left:
            self._quarantined.setdefault(pod["spec"]["nodeName"], now + QUARANTINE_S)
        due = {name for name, until in self._quarantined.items() if until <= now}
        self._quarantined = {name: until for name, until in self._quarantined.items() if name not in due}
        ending = [pod for pod in pods if _is_ending(pod)]
        for pod in ending:
            if self._is_out_of_service(pod):
                self._end(pod, "")
        for pod in left:
            if pod["spec"]["nodeName"] in due:
                self._end(pod, "DeletionByPodGC")
        for pod in ending:
            if not pod["spec"].get("nodeName"):
                self._end(pod, "")
        if not self._is_planned and (left or ending or self._quarantined):
            self._is_planned = True
            self.loop.call_at(now + PERIOD_S, self._collect)

    def _is_out_of_service(self, pod: Json) -> bool:
        node = self.find(NODE, get_node_key(pod["spec"].get("nodeName") or "")) or {}
        conditions = (node.get("status") or {}).get("conditions") or ()
        is_ready = any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
        return not is_ready and any(taint["key"] == _OUT_OF_SERVICE for taint in (node.get("spec") or {}).get("taints") or ())

    def _end(self, pod: Json, reason: str) -> None:
        try:
            if not is_over(pod):
                conditions = set_pod_condition(pod, "DisruptionTarget", "True", self.time(), reason) if reason else []
                status = {"phase": "Failed", **({"conditions": conditions} if conditions else {})}
                self.patch(POD, get_key(pod), {"status": status}, "status")
            self.delete(POD, pod, gracePeriodSeconds=0)
        except Refused:  # the next look is soon enough
            return


def _is_ending(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))

"""The controller of an admission check, as one that asks somebody else: it answers a while after a workload has quota."""

import asyncio
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

from e2e.standins.pods import has_condition
from sim.apiserver.server import Change, Server
from sim.models.base import Json, Key, Model, get_key
from sim.models.job_failures import read_time
from sim.models.tools import WORKLOADS

CHECK, CONTROLLER = "sim-check", "sim.topogate.dev/check"
LONGEST_S = 40
RETRIES = 5  # one of so many answers is to try again later


class CheckController(Model):
    """Says `Ready`, now and then `Retry`. Which, and when, depends on the workload, on when it was asked, and on how often it has answered:
    the time is that of the process that asks, whose clock may be late."""

    user = "system:serviceaccount:default:checks"
    resources = (WORKLOADS,)
    retries = True

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        super().__init__(server, loop, now)
        self._answers: Counter[str] = Counter()  # by uid

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if change.new is not None and _is_asked(change.new):
            yield WORKLOADS, get_key(change.new)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        workload = self.find(WORKLOADS, key)
        if workload is None or not _is_asked(workload):
            return
        checks = workload["status"]["admissionChecks"]
        [since] = [each["lastTransitionTime"] for each in checks if each["name"] == CHECK]
        uid = workload["metadata"]["uid"]
        chance = zlib.crc32(f"{uid} {since} {self._answers[uid]}".encode())
        left = 1 + chance % LONGEST_S - (self.now() - read_time(since)).total_seconds()
        if left > 0:
            self.add(WORKLOADS, key, left)
            return
        state = "Retry" if self.retries and chance // LONGEST_S % RETRIES == 0 else "Ready"
        answer = {"state": state, "lastTransitionTime": self.time(), "message": "as it is"}
        self._answers[uid] += 1
        checks = [{**each, **answer} if each["name"] == CHECK else each for each in checks]
        self.patch(WORKLOADS, key, {"status": {"admissionChecks": checks}}, "status")


def make_check(time: str) -> Json:
    """The check, active since a time."""
    condition = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": time}
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": CHECK}}
    return {**head, "spec": {"controllerName": CONTROLLER}, "status": {"conditions": [condition]}}


def _is_asked(workload: Json) -> bool:
    if not has_condition(workload, "QuotaReserved") or has_condition(workload, "Finished"):
        return False
    return any(each["name"] == CHECK and each["state"] == "Pending" for each in workload["status"].get("admissionChecks") or ())

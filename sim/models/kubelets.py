"""Kubelets, whose containers end after the time that a pod says."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from e2e.standins.pods import has_condition
from sim.apiserver.server import Change, Server
from sim.models.base import NODE, POD, Json, Key, Model, get_key, get_node_key, get_phase, is_over, set_pod_condition

RUN_SECONDS = "sim.topogate.dev/run-seconds"  # annotation of a pod: its containers end well after so long
STAGGER_SECONDS = "sim.topogate.dev/stagger-seconds"  # annotation: and so much longer for each index below its own
ENDS_BADLY = "sim.topogate.dev/fails"
FAILING_INDEX = "sim.topogate.dev/failing-index"  # annotation: the pod fails if that is its index
NEVER_READY = "sim.topogate.dev/never-ready"  # annotation of a pod: its containers run, and are never ready
INDEX = "batch.kubernetes.io/job-completion-index"
# Annotations by which tests on a real control plane say the same to kwok (e2e/stages/pod.yaml).
COMPLETES, FAILS, COMPLETES_AFTER, ENDS_SLOWLY = (f"e2e.topogate.dev/{name}" for name in ("complete", "fail", "run-seconds", "ends-slowly"))


class Kubelets(Model):
    """All kubelets: pods that are bound run, end after their time, and go when they are deleted. A node that is `down` does nothing. A pod
    that ran on through an outage of its node is ready again soon after the node is."""

    user = "system:node"
    resources = (POD, NODE)

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        super().__init__(server, loop, now)
        self.down: set[str] = set()
        self.ends_after_s = 0.0  # after a pod was deleted
        self._since: dict[str, float] = {}
        self._ending_since: dict[str, float] = {}

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if change.resource == POD:
            yield POD, get_key(change.last)
        elif change.old is not None and not has_condition(change.old, "Ready") and has_condition(change.last, "Ready"):
            yield from ((POD, key) for key in self._list_bound(change.last["metadata"]["name"]))

    def look_at_node(self, node: str) -> None:
        """The kubelet of a node is back."""
        for key in self._list_bound(node):
            self.add(POD, key)

    def _list_bound(self, node: str) -> list[Key]:
        return [key for key, stored in sorted(self.server.objects[POD].items()) if stored.obj["spec"].get("nodeName") == node]

    def look(self, resource: tuple[str, str], key: Key) -> None:
        pod = self.find(POD, key)
        node = pod["spec"].get("nodeName") if pod is not None else None
        if pod is None or not node or node in self.down or (get_node_key(node) not in self.server.objects[NODE]):
            return
        uid = pod["metadata"]["uid"]
        notes = pod["metadata"].get("annotations") or {}
        if pod["metadata"].get("deletionTimestamp"):
            if ENDS_SLOWLY in notes and get_phase(pod) == "Running":
                return
            left = self.ends_after_s - (self.loop.time() - self._ending_since.setdefault(uid, self.loop.time()))
            if left > 0:
                self.add(POD, key, left)
                return
            self.end_containers(pod)
            found = self.find(POD, key)
            if found is not None and found["metadata"].get("deletionGracePeriodSeconds"):
                self.delete(POD, found, gracePeriodSeconds=0)
            return
        if is_over(pod):
            return
        if get_phase(pod) != "Running":
            self._since[uid] = self.loop.time()
            status = {"phase": "Running", "startTime": self.time(), "conditions": _begin(pod, self.time())}
            self.patch(POD, key, {"status": status}, "status")
        elif (
            not has_condition(pod, "Ready")
            and not _is_never_ready(pod)
            and has_condition(self.server.objects[NODE][get_node_key(node)].obj, "Ready")
        ):
            self.patch(POD, key, {"status": {"conditions": set_pod_condition(pod, "Ready", "True", self.time())}}, "status")
        seconds = _read_run_seconds(notes)
        if seconds is not None:
            left = seconds - (self.loop.time() - self._since.setdefault(uid, self.loop.time()))
            if left > 0:
                self.add(POD, key, left)
                return
            is_failing = (
                notes.get(ENDS_BADLY) or notes.get(FAILS) == "true" or (INDEX in notes and notes[INDEX] == notes.get(FAILING_INDEX))
            )
            phase = "Failed" if is_failing else "Succeeded"
            self.patch(POD, key, {"status": {"phase": phase, "conditions": _end(pod, phase, self.time())}}, "status")

    def end_containers(self, pod: Json) -> None:
        """Says of a pod that is deleted that its containers have ended."""
        if not is_over(pod):
            self.patch(POD, get_key(pod), {"status": {"phase": "Failed", "conditions": _end(pod, "Failed", self.time())}}, "status")


def _read_run_seconds(notes: Mapping[str, str]) -> float | None:
    """After how many seconds the containers of a pod end by themselves, None if they do not."""
    if RUN_SECONDS in notes:
        return float(notes[RUN_SECONDS]) + float(notes.get(STAGGER_SECONDS, 0)) * int(notes.get(INDEX, 0))
    if notes.get(FAILS) == "true":
        return 0.0
    return float(notes.get(COMPLETES_AFTER, "0s").removesuffix("s")) if notes.get(COMPLETES) == "true" else None


def _is_failing(notes: Mapping[str, str]) -> bool:
    is_chosen = INDEX in notes and notes[INDEX] == notes.get(FAILING_INDEX)
    return is_chosen or bool(notes.get(ENDS_BADLY)) or notes.get(FAILS) == "true"


def _is_never_ready(pod: Json) -> bool:
    return NEVER_READY in (pod["metadata"].get("annotations") or {})


def _begin(pod: Json, time: str) -> list[Json]:
    """The conditions of a pod whose containers run."""
    kinds = ("Initialized",) if _is_never_ready(pod) else ("Initialized", "ContainersReady", "Ready")
    return _set_conditions(pod, kinds, {"status": "True", "lastTransitionTime": time})


def _end(pod: Json, phase: str, time: str) -> list[Json]:
    """The conditions of a pod whose containers have ended."""
    reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    return _set_conditions(pod, ("ContainersReady", "Ready"), {"status": "False", "reason": reason, "lastTransitionTime": time})


def _set_conditions(pod: Json, kinds: tuple[str, ...], value: Json) -> list[Json]:
    kept = [condition for condition in (pod.get("status") or {}).get("conditions") or () if condition["type"] not in kinds]
    return [*kept, *({"type": kind, "lastProbeTime": None, **value} for kind in kinds)]

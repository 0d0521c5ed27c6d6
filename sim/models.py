"""Small models of what else writes in a cluster: the Job controller, kube-scheduler, kubelets, and the garbage collectors.

Each looks at what has changed a moment later, and writes through the API server as its real one does. What they do is what topogate can see
of the real ones, no more: a scheduler that binds where there is room, kubelets whose containers end after the time that a pod says.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from sim.kinds import Kind
from sim.server import FOREGROUND, MERGE, Change, Refused, Request, Server

Json = dict[str, Any]
Key = tuple[str, str]
POD, JOB, NODE = ("", "pods"), ("batch", "jobs"), ("", "nodes")
RUN_SECONDS = "sim.topogate.dev/run-seconds"  # annotation of a pod: its containers end well after so long
ENDS_BADLY = "sim.topogate.dev/fails"
INDEX = "batch.kubernetes.io/job-completion-index"
TRACKED = "batch.kubernetes.io/job-tracking"
MOST_AT_ONCE = 500


class Model:
    """Looks at objects of some resources a moment after they have changed."""

    user = "system:kube-controller-manager"
    resources: tuple[tuple[str, str], ...] = ()
    after_s = 0.05

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        self.server, self.loop, self.now = server, loop, now
        self._due: dict[tuple[tuple[str, str], Key], None] = {}
        self._is_waiting = False
        self.is_stopped = False
        server.on_change.append(self._observe)

    def _observe(self, change: Change) -> None:
        if change.resource not in self.resources:
            return
        for resource, key in self.find_due(change):
            self.add(resource, key)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        """What is to be looked at after a change."""
        yield change.resource, key_of(change.last)

    def add(self, resource: tuple[str, str], key: Key, after_s: float | None = None) -> None:
        """Looks at an object a moment later."""
        if after_s is not None:
            self.loop.call_later(after_s, self.add, resource, key)
            return
        self._due[resource, key] = None
        if not self._is_waiting:
            self._is_waiting = True
            self.loop.call_later(self.after_s, self._run)

    def _run(self) -> None:
        self._is_waiting = False
        due, self._due = self._due, {}
        if self.is_stopped:
            return
        for resource, key in due:
            try:
                self.look(resource, key)
            except Refused as refused:
                if refused.code not in (404, 409):
                    self.loop.call_later(1.0, self.add, resource, key)
                elif refused.code == 409:
                    self.add(resource, key)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        """Does what is to be done with one object. Raises Refused."""
        raise NotImplementedError

    # --- writing ------------------------------------------------------------------------------------

    def find(self, resource: tuple[str, str], key: Key) -> Json | None:
        """An object as it is now."""
        stored = self.server.objects[resource].get(key)
        return stored.obj if stored is not None else None

    def kind(self, resource: tuple[str, str]) -> Kind:
        """The kind of a resource, at the version in which it is served."""
        return self.server.kind_of[resource]

    def request(self, verb: str, resource: tuple[str, str], key: Key, body: Any = None, subresource: str = "") -> Request:
        """A request of this component."""
        return Request(verb, self.kind(resource), *key, subresource, {}, body, MERGE, self.user)

    def patch(self, resource: tuple[str, str], key: Key, body: Json, subresource: str = "") -> Json:
        """Merge patch."""
        return self.server.patch(self.request("patch", resource, key, body, subresource))

    def delete(self, resource: tuple[str, str], obj: Json, **options: Any) -> None:
        """Deletes the very object."""
        body = {"preconditions": {"uid": obj["metadata"]["uid"]}, **options}
        self.server.delete(self.request("delete", resource, key_of(obj), body))

    def time(self) -> str:
        """Now, as the API has it."""
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of(obj: Mapping[str, Any]) -> Key:
    """Namespace and name."""
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def controller_of(obj: Mapping[str, Any]) -> Json | None:
    """The owner that controls an object."""
    return next((owner for owner in obj["metadata"].get("ownerReferences") or () if owner.get("controller")), None)


def phase_of(pod: Mapping[str, Any]) -> str:
    """The phase of a pod."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_over(pod: Mapping[str, Any]) -> bool:
    """Whether the containers of a pod have ended for good."""
    return phase_of(pod) in ("Succeeded", "Failed")


class GarbageCollector(Model):
    """Deletes what has lost its owners, and what waits for it: `blockOwnerDeletion` is taken as given."""

    user = "system:serviceaccount:kube-system:generic-garbage-collector"

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        self.resources = tuple(server.objects)
        super().__init__(server, loop, now)
        self._of_owner: dict[str, set[tuple[tuple[str, str], Key]]] = {}

    def _observe(self, change: Change) -> None:
        at = change.resource, key_of(change.last)
        for obj, is_there in ((change.old, False), (change.new, True)):
            for owner in (obj or {"metadata": {}})["metadata"].get("ownerReferences") or ():
                found = self._of_owner.setdefault(owner["uid"], set())
                (found.add if is_there else found.discard)(at)
        super()._observe(change)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        uid = change.last["metadata"]["uid"]
        if change.new is None:
            yield from sorted(self._of_owner.pop(uid, ()))
            for owner in change.last["metadata"].get("ownerReferences") or ():
                yield from self._find_owner(owner, change.last)
        elif change.new["metadata"].get("deletionTimestamp") or change.old is None:
            yield change.resource, key_of(change.new)

    def _find_owner(self, owner: Json, obj: Json) -> Iterator[tuple[tuple[str, str], Key]]:
        group, _, _ = owner["apiVersion"].rpartition("/")
        for kind in self.server.kinds.values():
            if (kind.group, kind.kind) == (group, owner["kind"]):
                yield kind.resource, (obj["metadata"].get("namespace") or "" if kind.namespaced else "", owner["name"])
                return

    def look(self, resource: tuple[str, str], key: Key) -> None:
        obj = self.find(resource, key)
        if obj is None:
            return
        metadata = obj["metadata"]
        finalizers = metadata.get("finalizers") or []
        below = [(r, k) for r, k in sorted(self._of_owner.get(metadata["uid"], ())) if self.find(r, k) is not None]
        if metadata.get("deletionTimestamp") and "orphan" in finalizers:
            for r, k in below:
                child = self.find(r, k)
                left = [owner for owner in (child or obj)["metadata"].get("ownerReferences") or () if owner["uid"] != metadata["uid"]]
                self.patch(r, k, {"metadata": {"ownerReferences": left or None}})
            self.patch(resource, key, {"metadata": {"finalizers": [name for name in finalizers if name != "orphan"]}})
            return
        if metadata.get("deletionTimestamp") and FOREGROUND in finalizers:
            for r, k in below:
                child = self.find(r, k)
                if child is not None and not child["metadata"].get("deletionTimestamp"):
                    self.delete(r, child, propagationPolicy="Foreground")
            if not [1 for r, k in below if self.find(r, k) is not None]:
                self.patch(resource, key, {"metadata": {"finalizers": [name for name in finalizers if name != FOREGROUND]}})
            return
        owners = metadata.get("ownerReferences") or ()
        if owners and not metadata.get("deletionTimestamp") and not any(self._exists(owner, obj) for owner in owners):
            self.delete(resource, obj, propagationPolicy="Background")

    def _exists(self, owner: Json, obj: Json) -> bool:
        for resource, key in self._find_owner(owner, obj):
            found = self.find(resource, key)
            return found is not None and found["metadata"]["uid"] == owner["uid"]
        return True  # of a kind that is not served nobody knows


class JobController(Model):
    """Jobs of batch/v1: pods as the spec says, counted as they end."""

    resources = (JOB, POD)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if change.resource == JOB:
            yield JOB, key_of(change.last)
            return
        owner = controller_of(change.last)
        if owner is not None and owner["kind"] == "Job":
            yield JOB, (change.last["metadata"]["namespace"], owner["name"])

    def look(self, resource: tuple[str, str], key: Key) -> None:
        job = self.find(JOB, key)
        pods = self._pods_of(key, job)
        if job is None or job["metadata"].get("deletionTimestamp"):
            for pod in pods:
                self._untrack(pod)
            return
        if any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in (job.get("status") or {}).get("conditions") or ()):
            for pod in pods:
                self._untrack(pod)
            return
        spec, status = job["spec"], job.get("status") or {}
        ended = [pod for pod in pods if is_over(pod) and TRACKED in (pod["metadata"].get("finalizers") or ())]
        succeeded = status.get("succeeded", 0) + sum(phase_of(pod) == "Succeeded" for pod in ended)
        # What is deleted before it has ended, as on suspension, is not taken for a failure.
        failed = status.get("failed", 0) + sum(phase_of(pod) == "Failed" and "deletionTimestamp" not in pod["metadata"] for pod in ended)
        done = self._indexes_done(status) | {self._index_of(pod) for pod in ended if phase_of(pod) == "Succeeded"}
        live = [pod for pod in pods if not is_over(pod)]
        active = [pod for pod in live if not pod["metadata"].get("deletionTimestamp")]
        completions, parallelism = spec.get("completions"), spec.get("parallelism", 1)
        conditions = [dict(condition) for condition in status.get("conditions") or ()]
        new: Json = {**status, "succeeded": succeeded, "failed": failed, "ready": sum(phase_of(pod) == "Running" for pod in active)}
        is_complete = succeeded >= completions if completions is not None else bool(succeeded) and not live
        is_failed = failed > spec.get("backoffLimit", 6)
        wanted = 0
        if is_complete or is_failed:
            kind, reason = ("Complete", "CompletionsReached") if is_complete else ("Failed", "BackoffLimitExceeded")
            if not live:
                set_condition(conditions, kind, "True", reason, self.time())
                new |= {"completionTime": self.time()} if is_complete else {}
        elif spec.get("suspend"):
            set_condition(conditions, "Suspended", "True", "JobSuspended", self.time())
            new.pop("startTime", None)
        else:
            if any(condition["type"] == "Suspended" for condition in conditions):
                set_condition(conditions, "Suspended", "False", "JobResumed", self.time())
            new.setdefault("startTime", self.time())
            wanted = parallelism if completions is None else min(parallelism, completions - succeeded)
        self._end_or_make(key, job, active, live, wanted, done)
        now_live = [pod for pod in self._pods_of(key, job) if not is_over(pod) and not pod["metadata"].get("deletionTimestamp")]
        new |= {"active": len(now_live), "conditions": conditions}
        if spec.get("completionMode") == "Indexed" and done:
            new["completedIndexes"] = ",".join(map(str, sorted(done)))
        new = {name: value for name, value in new.items() if value not in (0, [], None)}
        if new != status:
            removed = {name: None for name in status if name not in new}
            self.patch(JOB, key, {"status": {**new, **removed}}, "status")
        for pod in (*ended, *(pod for pod in live if pod["metadata"].get("deletionTimestamp"))):  # those that end are replaced
            self._untrack(pod)

    def _end_or_make(self, key: Key, job: Json, active: list[Json], live: list[Json], wanted: int, done: set[int]) -> None:
        over = len(active) - wanted
        for pod in sorted(active, key=lambda pod: (phase_of(pod) == "Running", bool(pod["spec"].get("nodeName"))))[: max(0, over)]:
            self.delete(POD, pod)
        missing = (
            max(0, wanted - len(active)) if not (job["spec"].get("podReplacementPolicy") == "Failed" and len(live) > len(active)) else 0
        )
        is_indexed = job["spec"].get("completionMode") == "Indexed"
        used = {self._index_of(pod) for pod in live} | done
        free = [i for i in range(job["spec"].get("completions") or 0) if i not in used] if is_indexed else []
        for number in range(min(missing, MOST_AT_ONCE)):
            if is_indexed and number >= len(free):
                return
            self._make(key, job, free[number] if is_indexed else None)

    def _make(self, key: Key, job: Json, index: int | None) -> None:
        template, metadata = job["spec"]["template"], job["metadata"]
        given = template.get("metadata") or {}
        uid, name = metadata["uid"], metadata["name"]
        labels = {**(given.get("labels") or {}), "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
        labels |= {"controller-uid": uid, "job-name": name}
        notes = dict(given.get("annotations") or {})
        spec = dict(template.get("spec") or {})
        if index is not None:
            labels[INDEX] = notes[INDEX] = str(index)
            spec["hostname"] = f"{name}-{index}"
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True, "blockOwnerDeletion": True}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{name}-" if index is None else f"{name}-{index}-",
                "labels": labels,
                "annotations": notes,
                "finalizers": [TRACKED],
                "ownerReferences": [owner],
            },
            "spec": spec,
        }
        user = "system:serviceaccount:kube-system:job-controller"
        self.server.create(Request("create", self.kind(POD), key[0], "", "", {}, body, user=user))

    def _untrack(self, pod: Json) -> None:
        left = [name for name in pod["metadata"].get("finalizers") or () if name != TRACKED]
        if len(left) < len(pod["metadata"].get("finalizers") or ()):
            self.patch(POD, key_of(pod), {"metadata": {"finalizers": left}})

    def _pods_of(self, key: Key, job: Json | None) -> list[Json]:
        found = []
        for (namespace, _), stored in sorted(self.server.objects[POD].items()):
            owner = controller_of(stored.obj) if namespace == key[0] else None
            if (
                owner is not None
                and owner["kind"] == "Job"
                and owner["name"] == key[1]
                and (job is None or owner["uid"] == job["metadata"]["uid"])
            ):
                found.append(stored.obj)
        return found

    @staticmethod
    def _index_of(pod: Json) -> int:
        return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))

    @staticmethod
    def _indexes_done(status: Json) -> set[int]:
        return {int(part) for part in (status.get("completedIndexes") or "").split(",") if part}


def set_condition(conditions: list[Json], kind: str, status: str, reason: str, time: str) -> None:
    """Sets a condition of a Job."""
    old = next((condition for condition in conditions if condition["type"] == kind), None)
    if old is not None and old["status"] == status:
        return
    new = {"type": kind, "status": status, "reason": reason, "message": reason, "lastProbeTime": time, "lastTransitionTime": time}
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new


class Scheduler(Model):
    """kube-scheduler: binds pods without gates to nodes that take them."""

    user = "system:kube-scheduler"
    resources = (POD, NODE)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if change.resource == POD and change.new is not None:
            yield POD, key_of(change.new)
        else:  # room may have come
            for key, stored in sorted(self.server.objects[POD].items()):
                if not stored.obj["spec"].get("nodeName"):
                    yield POD, key

    def look(self, resource: tuple[str, str], key: Key) -> None:
        pod = self.find(POD, key)
        if pod is None or pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates") or pod["metadata"].get("deletionTimestamp"):
            return
        used = self._count_used()
        for (_, name), stored in sorted(self.server.objects[NODE].items()):
            if self._takes(stored.obj, pod, used.get(name, {})):
                self.patch(POD, key, {"spec": {"nodeName": name}})
                self.patch(POD, key, {"status": {"conditions": [*_other_conditions(pod), _scheduled(self.time())]}}, "status")
                return

    def _count_used(self) -> dict[str, dict[str, int]]:
        used: dict[str, dict[str, int]] = {}
        for stored in self.server.objects[POD].values():
            node = stored.obj["spec"].get("nodeName")
            if node and not is_over(stored.obj):
                on_node = used.setdefault(node, {})
                for name, amount in requests_of(stored.obj).items():
                    on_node[name] = on_node.get(name, 0) + amount
        return used

    @staticmethod
    def _takes(node: Json, pod: Json, used: Mapping[str, int]) -> bool:
        labels = node["metadata"].get("labels") or {}
        if any(labels.get(name) != value for name, value in (pod["spec"].get("nodeSelector") or {}).items()):
            return False
        spec, status = node.get("spec") or {}, node.get("status") or {}
        if spec.get("unschedulable") or not all(_tolerates(pod, taint) for taint in spec.get("taints") or ()):
            return False
        room = {name: read_amount(name, text) for name, text in (status.get("allocatable") or {}).items()}
        return all(used.get(name, 0) + amount <= room.get(name, 0) for name, amount in requests_of(pod).items())


def _tolerates(pod: Json, taint: Json) -> bool:
    if taint["effect"] == "PreferNoSchedule":
        return True
    return any(
        toleration.get("key") in (taint["key"], None)
        and toleration.get("effect") in (taint["effect"], None, "")
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
        for toleration in pod["spec"].get("tolerations") or ()
    )


def _other_conditions(pod: Json) -> list[Json]:
    return [condition for condition in (pod.get("status") or {}).get("conditions") or () if condition["type"] != "PodScheduled"]


def _scheduled(time: str) -> Json:
    return {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": time}


def requests_of(pod: Mapping[str, Any]) -> dict[str, int]:
    """What a pod requests of a node, in thousandths of a core or whole units; a pod counts as one."""
    asked = {"pods": 1}
    for container in pod["spec"].get("containers") or ():
        for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
            asked[name] = asked.get(name, 0) + read_amount(name, text)
    return asked


def read_amount(name: str, text: Any) -> int:
    """A quantity of a scenario: whole numbers, with `m`, or with a binary suffix."""
    value, scale = str(text), 1000 if name == "cpu" else 1
    if value.endswith("m"):
        return int(value[:-1]) * scale // 1000
    for suffix, factor in (("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40)):
        if value.endswith(suffix):
            return int(value[: -len(suffix)]) * factor * scale
    return int(value) * scale


class Kubelets(Model):
    """All kubelets: pods that are bound run, end after their time, and go when they are deleted. A node that is `down` does nothing."""

    user = "system:node"
    resources = (POD,)

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        super().__init__(server, loop, now)
        self.down: set[str] = set()
        self._since: dict[str, float] = {}

    def look_at_node(self, node: str) -> None:
        """The kubelet of a node is back."""
        for key, stored in sorted(self.server.objects[POD].items()):
            if stored.obj["spec"].get("nodeName") == node:
                self.add(POD, key)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        pod = self.find(POD, key)
        node = pod["spec"].get("nodeName") if pod is not None else None
        if pod is None or not node or node in self.down or (key_of_node(node) not in self.server.objects[NODE]):
            return
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            if not is_over(pod):
                self.patch(POD, key, {"status": {"phase": "Failed", "conditions": _readiness(pod, "False", self.time())}}, "status")
            found = self.find(POD, key)
            if found is not None and found["metadata"].get("deletionGracePeriodSeconds"):
                self.delete(POD, found, gracePeriodSeconds=0)
            return
        if is_over(pod):
            return
        if phase_of(pod) != "Running":
            self._since[uid] = self.loop.time()
            status = {"phase": "Running", "startTime": self.time(), "conditions": _readiness(pod, "True", self.time())}
            self.patch(POD, key, {"status": status}, "status")
        notes = pod["metadata"].get("annotations") or {}
        if RUN_SECONDS in notes:
            left = float(notes[RUN_SECONDS]) - (self.loop.time() - self._since.setdefault(uid, self.loop.time()))
            if left > 0:
                self.add(POD, key, left)
                return
            phase = "Failed" if notes.get(ENDS_BADLY) else "Succeeded"
            self.patch(POD, key, {"status": {"phase": phase, "conditions": _readiness(pod, "False", self.time())}}, "status")


def key_of_node(name: str) -> Key:
    """The key of a node."""
    return "", name


def _readiness(pod: Json, status: str, time: str) -> list[Json]:
    kept = [c for c in (pod.get("status") or {}).get("conditions") or () if c["type"] not in ("Ready", "ContainersReady", "Initialized")]
    ready = {"status": status, "lastProbeTime": None, "lastTransitionTime": time}
    return [*kept, *({"type": kind, **ready} for kind in ("Initialized", "ContainersReady", "Ready"))]


class PodGarbageCollector(Model):
    """Pods on nodes that are gone."""

    resources = (NODE, POD)
    after_s = 2.0

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if change.resource == NODE and change.new is None:
            for key, stored in sorted(self.server.objects[POD].items()):
                if stored.obj["spec"].get("nodeName") == change.last["metadata"]["name"]:
                    yield POD, key
        elif change.resource == POD and change.new is not None:
            yield POD, key_of(change.new)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        pod = self.find(POD, key)
        node = pod["spec"].get("nodeName") if pod is not None else None
        if pod is None or not node or key_of_node(node) in self.server.objects[NODE]:
            return
        if not is_over(pod):
            self.patch(POD, key, {"status": {"phase": "Failed"}}, "status")
        self.delete(POD, pod, gracePeriodSeconds=0)


MODELS: tuple[type[Model], ...] = (GarbageCollector, JobController, Scheduler, Kubelets, PodGarbageCollector)

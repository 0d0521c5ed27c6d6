"""The Job controller."""

from collections.abc import Iterator

from sim.models.base import JOB, POD, Json, Key, OwnerModel, controller_of, is_over, key_of, make_pod, owner_of, phase_of
from sim.server import Change

INDEX = "batch.kubernetes.io/job-completion-index"
TRACKED = "batch.kubernetes.io/job-tracking"
MOST_AT_ONCE = 500


class JobController(OwnerModel):
    """Jobs of batch/v1: pods as the spec says, counted as they end."""

    user = "system:serviceaccount:kube-system:job-controller"
    resource, owner_kind = JOB, "Job"
    resources = (JOB, POD)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        yield from super().find_due(change)
        if change.resource == POD and change.new is not None and controller_of(change.new) is None:
            yield POD, key_of(change.new)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        if resource == POD:
            orphan = self.find(POD, key)
            if orphan is not None:
                self._untrack(orphan)
            return
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
        ending = sum(not is_over(pod) and bool(pod["metadata"].get("deletionTimestamp")) for pod in self._pods_of(key, job))
        new |= {"active": len(now_live), "terminating": ending, "conditions": conditions}
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
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        labels = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name, "controller-uid": uid, "job-name": name}
        numbered = {INDEX: str(index)} if index is not None else {}
        pod = make_pod(owner_of(job, "batch/v1", "Job"), job["spec"]["template"], labels | numbered, numbered)
        pod["metadata"] |= {"generateName": f"{name}-" if index is None else f"{name}-{index}-", "finalizers": [TRACKED]}
        if index is not None:
            pod["spec"]["hostname"] = f"{name}-{index}"
        self.create(POD, key[0], pod)

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

"""The Job controller."""

from collections.abc import Iterator

from e2e.standins.pods import has_condition
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
        if job is not None:
            for pod in self._pods_of(key, None):
                if pod not in pods:  # of another job of this name, which is gone
                    self._untrack(pod)
        if job is None or job["metadata"].get("deletionTimestamp") or has_condition(job, "Complete") or has_condition(job, "Failed"):
            for pod in pods:
                self._untrack(pod)
            return
        spec, status = job["spec"], job.get("status") or {}
        ended = [pod for pod in pods if _is_counted(job, pod)]
        succeeded = status.get("succeeded", 0) + sum(phase_of(pod) == "Succeeded" for pod in ended)
        failed = status.get("failed", 0) + sum(phase_of(pod) != "Succeeded" for pod in ended)
        done = self._indexes_done(status) | {self._index_of(pod) for pod in ended if phase_of(pod) == "Succeeded"}
        live = [pod for pod in pods if not is_over(pod)]
        active = [pod for pod in live if not pod["metadata"].get("deletionTimestamp")]
        completions, parallelism = spec.get("completions"), spec["parallelism"]
        conditions = [dict(condition) for condition in status.get("conditions") or ()]
        new: Json = {**status, "succeeded": succeeded, "failed": failed}
        is_complete = succeeded >= completions if completions is not None else bool(succeeded) and not live
        is_failed = failed > spec["backoffLimit"]
        wanted = 0
        if is_complete or is_failed:
            early, kind, reason, message = _ENDS[is_complete]
            set_condition(conditions, early, "True", reason, message, self.time())
            if not live:
                set_condition(conditions, kind, "True", reason, message, self.time())
                new |= {"completionTime": self.time()} if is_complete else {}
        elif spec.get("suspend"):
            set_condition(conditions, "Suspended", "True", "JobSuspended", "Job suspended", self.time())
            new.pop("startTime", None)
        else:
            if any(condition["type"] == "Suspended" for condition in conditions):
                set_condition(conditions, "Suspended", "False", "JobResumed", "Job resumed", self.time())
            new.setdefault("startTime", self.time())
            wanted = parallelism if completions is None else min(parallelism, completions - succeeded)
        self._end_or_make(key, job, active, live, wanted, done)
        new |= self._count_live(key, job) | {"conditions": conditions}
        if spec.get("completionMode") == "Indexed":
            new["completedIndexes"] = _show_indexes(done)
        kept = ("ready", "terminating", "uncountedTerminatedPods")  # of these the Job controller writes also what is none
        new = {name: value for name, value in new.items() if value not in (0, [], None, "") or name in kept}
        if new != status:
            removed = {name: None for name in status if name not in new}
            self.patch(JOB, key, {"status": {**new, **removed}}, "status")
        for pod in ended:
            self._untrack(pod)

    def _count_live(self, key: Key, job: Json) -> Json:
        live = [pod for pod in self._pods_of(key, job) if not is_over(pod)]
        staying = [pod for pod in live if not pod["metadata"].get("deletionTimestamp")]
        ready = sum(has_condition(pod, "Ready") for pod in staying)
        return {"active": len(staying), "ready": ready, "terminating": len(live) - len(staying), "uncountedTerminatedPods": {}}

    def _end_or_make(self, key: Key, job: Json, active: list[Json], live: list[Json], wanted: int, done: set[int]) -> None:
        over = len(active) - wanted
        for pod in sorted(active, key=lambda pod: (phase_of(pod) == "Running", bool(pod["spec"].get("nodeName"))))[: max(0, over)]:
            self._untrack(pod)  # so that it is no failure
            self.delete(POD, pod)
        waits_for_ends = job["spec"].get("podReplacementPolicy") == "Failed"
        missing = max(0, wanted - len(active)) if not (waits_for_ends and len(live) > len(active)) else 0
        is_indexed = job["spec"].get("completionMode") == "Indexed"
        used = {self._index_of(pod) for pod in (live if waits_for_ends else active)} | done
        free = [i for i in range(job["spec"].get("completions") or 0) if i not in used] if is_indexed else []
        for number in range(min(missing, MOST_AT_ONCE)):
            if is_indexed and number >= len(free):
                return
            self._make(key, job, free[number] if is_indexed else None)

    def _make(self, key: Key, job: Json, index: int | None) -> None:
        name = job["metadata"]["name"]
        numbered = {INDEX: str(index)} if index is not None else {}
        pod = make_pod(owner_of(job, "batch/v1", "Job"), job["spec"]["template"], numbered, numbered)
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
        done = set[int]()
        for part in filter(None, (status.get("completedIndexes") or "").split(",")):
            first, _, last = part.partition("-")
            done |= set(range(int(first), int(last or first) + 1))
        return done


# By whether it is complete: the condition that comes first, that at the end, their reason and message.
_ENDS = {
    True: ("SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods"),
    False: ("FailureTarget", "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
}


def _is_counted(job: Json, pod: Json) -> bool:
    """Whether a pod has ended and is still to be counted. One that is deleted counts as failed, where the policy does not say to wait."""
    if TRACKED not in (pod["metadata"].get("finalizers") or ()):
        return False
    is_lost = bool(pod["metadata"].get("deletionTimestamp")) and job["spec"]["podReplacementPolicy"] != "Failed"
    return is_over(pod) or is_lost


def _show_indexes(done: set[int]) -> str:
    """`0,2-5,7`, as in `status.completedIndexes`."""
    parts = list[list[int]]()
    for index in sorted(done):
        if parts and parts[-1][-1] == index - 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}{',' if len(part) == 2 else '-'}{part[-1]}" for part in parts)


def set_condition(conditions: list[Json], kind: str, status: str, reason: str, message: str, time: str) -> None:
    """Sets a condition of a Job."""
    old = next((condition for condition in conditions if condition["type"] == kind), None)
    if old is not None and old["status"] == status:
        return
    new = {"type": kind, "status": status, "reason": reason, "message": message, "lastProbeTime": time, "lastTransitionTime": time}
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new

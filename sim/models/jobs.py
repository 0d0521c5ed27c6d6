"""The Job controller."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from e2e.standins.pods import has_condition
from sim.apiserver.server import Change, Server
from sim.models import job_failures as failures
from sim.models.base import JOB, POD, Json, Key, OwnerModel, build_owner_reference, get_controller, get_key, get_phase, is_over, make_pod
from sim.models.job_failures import INDEX, index_of

TRACKED = "batch.kubernetes.io/job-tracking"
MOST_AT_ONCE = 500


@dataclass(frozen=True)
class _End:
    """How a Job ends: the condition that comes first, that at the end, their reason and message."""

    early: str
    kind: str
    reason: str
    message: str

    @property
    def is_failure(self) -> bool:
        return self.kind == "Failed"


_COMPLETE = _End("SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods")


def _fail(reason: str, message: str) -> _End:
    return _End("FailureTarget", "Failed", reason, message)


@dataclass
class _Count:
    """What a Job and its pods come to."""

    pods: list[Json]
    succeeded: int
    failed: int
    done: set[int]
    failed_indexes: set[int]
    kept: dict[int, Json]  # by index: failed pods that are counted when another is made

    @property
    def live(self) -> list[Json]:
        return [pod for pod in self.pods if not is_over(pod)]

    @property
    def active(self) -> list[Json]:
        return [pod for pod in self.live if not pod["metadata"].get("deletionTimestamp")]


class JobController(OwnerModel):
    """Jobs of batch/v1: pods as the spec says, counted as they end. After a failure no pod is made for 10 s, 20 s after the second."""

    user = "system:serviceaccount:kube-system:job-controller"
    resource, owner_kind = JOB, "Job"
    resources = (JOB, POD)

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        super().__init__(server, loop, now)
        self._failures: dict[Key, tuple[int, datetime]] = {}  # after the last success, and when the last was

    def is_backing_off(self, key: Key) -> bool:
        """Whether no pod of a Job is made for a while, since others have failed."""
        number, last = self._failures.get(key, (0, self.now()))
        return failures.find_wait_s(number, (self.now() - last).total_seconds()) > 0

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        yield from super().find_due(change)
        if change.resource == POD and change.new is not None and get_controller(change.new) is None:
            yield POD, get_key(change.new)

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
            self._failures.pop(key, None)
            for pod in pods:
                self._untrack(pod)
            return
        self._sync(key, job, self._count(job, pods))

    # --- what has ended -----------------------------------------------------------------------------

    def _count(self, job: Json, pods: list[Json]) -> _Count:
        spec, status = job["spec"], job.get("status") or {}
        is_indexed, completions = _is_indexed(job), spec.get("completions") or 0
        tracked = [pod for pod in pods if TRACKED in (pod["metadata"].get("finalizers") or ())]
        counted = [pod for pod in tracked if not is_indexed or 0 <= index_of(pod) < completions]
        succeeded = [pod for pod in counted if get_phase(pod) == "Succeeded"]
        failed = [pod for pod in counted if failures.has_failed(job, pod)]
        done = {*failures.read_indexes(status.get("completedIndexes")), *(map(index_of, succeeded) if is_indexed else ())}
        done = {index for index in done if index < completions}
        count = _Count(pods, len(done) if is_indexed else status.get("succeeded", 0) + len(succeeded), 0, done, set(), {})
        if "backoffLimitPerIndex" in spec:
            count.failed_indexes = failures.read_indexes(status.get("failedIndexes"))
            count.failed_indexes |= {index_of(pod) for pod in failed if failures.is_index_failed(job, pod)}
            settled = done | count.failed_indexes | {index_of(pod) for pod in count.active}
            count.kept = failures.find_last_failed(job, failed, settled)
        else:
            self._note_failures(get_key(job), succeeded, failed)
        count.failed = status.get("failed", 0) + sum(failures.find_action(job, pod)[0] != "Ignore" for pod in failed)
        return count

    def _note_failures(self, key: Key, succeeded: Sequence[Json], failed: Sequence[Json]) -> None:
        number = self._failures[key][0] if key in self._failures and not succeeded else 0
        last = max(map(failures.find_end, succeeded), default=None)
        ends = [end for end in map(failures.find_end, failed) if last is None or end > last]
        if ends:
            self._failures[key] = number + len(ends), max(ends)
        elif succeeded:
            self._failures.pop(key, None)

    def _find_end(self, key: Key, job: Json, count: _Count) -> _End | None:
        """How a Job ends by what has been counted, None if it goes on."""
        spec, status = job["spec"], job.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition["type"] == "FailureTarget" and condition["status"] == "True":
                return _fail(condition["reason"], condition["message"])
            if condition["type"] == "SuccessCriteriaMet" and condition["status"] == "True":
                return _COMPLETE
        for pod in count.pods:
            action, message = failures.find_action(job, pod) if failures.has_failed(job, pod) else ("", "")
            if action == "FailJob":
                return _fail("PodFailurePolicy", message)
        if count.failed > spec["backoffLimit"]:
            return _fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if spec.get("activeDeadlineSeconds") and status.get("startTime") and not spec.get("suspend"):
            left = spec["activeDeadlineSeconds"] - (self.now() - failures.read_time(status["startTime"])).total_seconds()
            if left <= 0:
                return _fail("DeadlineExceeded", "Job was active longer than specified deadline")
            self.add(JOB, key, left)
        failed = len(count.failed_indexes)
        if failed > spec.get("maxFailedIndexes", failed):
            return _fail("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes")
        if failed and failed + len(count.done) >= spec["completions"]:
            return _fail("FailedIndexes", "Job has failed indexes")
        return None

    # --- what is done -------------------------------------------------------------------------------

    def _sync(self, key: Key, job: Json, count: _Count) -> None:
        spec, status = job["spec"], job.get("status") or {}
        conditions = [dict(condition) for condition in status.get("conditions") or ()]
        new: Json = dict(status)
        if not spec.get("suspend"):
            new.setdefault("startTime", self.time())
        end = self._find_end(key, job, count)
        removed = list[Json]()
        if end is not None:
            removed = count.active
            for pod in removed:
                self.delete(POD, pod)
        else:
            left = self._manage(key, job, count)
            completions = spec.get("completions")
            is_enough = count.succeeded > 0 if completions is None else count.succeeded >= completions
            if is_enough and not left:
                end = _COMPLETE
            elif spec.get("suspend"):
                if set_condition(conditions, "Suspended", "True", "JobSuspended", "Job suspended", self.time()):
                    new.pop("startTime", None)
            elif any(condition["type"] == "Suspended" for condition in conditions) and set_condition(
                conditions, "Suspended", "False", "JobResumed", "Job resumed", self.time()
            ):
                new["startTime"] = self.time()
        ended = self._find_counted(job, count, end)
        failed = [pod for pod in ended if get_phase(pod) != "Succeeded" and failures.find_action(job, pod)[0] != "Ignore"]
        if end is not None and not end.is_failure:
            failed = [pod for pod in failed if failures.has_failed(job, pod)]
        new |= {"succeeded": count.succeeded, "failed": status.get("failed", 0) + len(failed)}
        new |= self._count_live(key, job)
        if end is not None:
            set_condition(conditions, end.early, "True", end.reason, end.message, self.time())
            if not new["terminating"] and not new["active"]:
                set_condition(conditions, end.kind, "True", end.reason, end.message, self.time())
                new |= {"completionTime": self.time()} if not end.is_failure else {}
        new["conditions"] = conditions
        if _is_indexed(job):
            new["completedIndexes"] = failures.show_indexes(count.done)
        kept = ("ready", "terminating", "uncountedTerminatedPods", "failedIndexes")  # of these the Job controller writes also what is none
        new = {name: value for name, value in new.items() if value not in (0, [], None, "") or name in kept}
        if "backoffLimitPerIndex" in spec:
            new["failedIndexes"] = failures.show_indexes(count.failed_indexes)
        if new != status:
            gone = {name: None for name in status if name not in new}
            self.patch(JOB, key, {"status": {**new, **gone}}, "status")
        for pod in ended:
            self._untrack(pod)

    def _find_counted(self, job: Json, count: _Count, end: _End | None) -> list[Json]:
        """Pods that are counted now. Where a Job ends these are all."""
        kept = {pod["metadata"]["uid"] for pod in count.kept.values()}
        return [
            pod
            for pod in count.pods
            if TRACKED in (pod["metadata"].get("finalizers") or ())
            and (end is not None or get_phase(pod) == "Succeeded" or (failures.has_failed(job, pod) and pod["metadata"]["uid"] not in kept))
        ]

    def _count_live(self, key: Key, job: Json) -> Json:
        live = [pod for pod in self._pods_of(key, job) if not is_over(pod)]
        staying = [pod for pod in live if not pod["metadata"].get("deletionTimestamp")]
        ready = sum(has_condition(pod, "Ready") for pod in staying)
        return {"active": len(staying), "ready": ready, "terminating": len(live) - len(staying), "uncountedTerminatedPods": {}}

    def _manage(self, key: Key, job: Json, count: _Count) -> int:
        """Deletes or makes pods; returns how many are active then."""
        spec, active = job["spec"], count.active
        wanted = int(spec["parallelism"])
        if spec.get("suspend"):
            wanted = 0
        elif spec.get("completions") is not None:
            wanted = max(0, min(wanted, int(spec["completions"]) - count.succeeded))
        elif count.succeeded:
            wanted = len(active)
        over = len(active) - wanted
        if over > 0:
            for pod in sorted(active, key=_rank_to_delete)[:over]:
                self._untrack(pod)  # so that it is no failure
                self.delete(POD, pod)
            return wanted
        terminating = [pod for pod in count.live if pod not in active] if failures.should_wait_for_end(job) else []
        missing = min(wanted - len(active) - len(terminating), MOST_AT_ONCE)
        if missing <= 0 or ("backoffLimitPerIndex" not in spec and self._waits(key, *self._failures.get(key, (0, self.now())))):
            return len(active)
        if not _is_indexed(job):
            for _ in range(missing):
                self._make(key, job, None, {})
            return len(active) + missing
        used = {index_of(pod) for pod in (*active, *terminating)} | count.done | count.failed_indexes
        free = [index for index in range(spec["completions"]) if index not in used][:missing]
        if "backoffLimitPerIndex" not in spec:
            for index in free:
                self._make(key, job, index, {})
            return len(active) + len(free)
        made = 0
        for index in free:
            replaced = count.kept.get(index)
            number = 0 if replaced is None else 1 + sum(failures.count_failures(replaced))
            if replaced is None or not self._waits(key, number, failures.find_end(replaced)):
                self._make(key, job, index, failures.count_anew(job, replaced))
                made += 1
        return len(active) + made

    def _waits(self, key: Key, number: int, last: datetime) -> bool:
        """Whether no other pod is made yet after so many failures; the job is looked at again then."""
        left = failures.find_wait_s(number, (self.now() - last).total_seconds())
        if left > 0:
            self.add(JOB, key, left)
        return left > 0

    def _make(self, key: Key, job: Json, index: int | None, notes: dict[str, str]) -> None:
        name = job["metadata"]["name"]
        numbered = {INDEX: str(index)} if index is not None else {}
        pod = make_pod(build_owner_reference(job, "batch/v1", "Job"), job["spec"]["template"], numbered, {**numbered, **notes})
        pod["metadata"] |= {"generateName": f"{name}-" if index is None else f"{name}-{index}-", "finalizers": [TRACKED]}
        if index is not None:
            pod["spec"]["hostname"] = f"{name}-{index}"
        self.create(POD, key[0], pod)

    def _untrack(self, pod: Json) -> None:
        found = self.find(POD, get_key(pod))
        known = (found or pod)["metadata"].get("finalizers") or ()
        left = [name for name in known if name != TRACKED]
        if found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"] and len(left) < len(known):
            self.patch(POD, get_key(pod), {"metadata": {"finalizers": left}})

    def _pods_of(self, key: Key, job: Json | None) -> list[Json]:
        found = []
        for (namespace, _), stored in sorted(self.server.objects[POD].items()):
            owner = get_controller(stored.obj) if namespace == key[0] else None
            if (
                owner is not None
                and owner["kind"] == "Job"
                and owner["name"] == key[1]
                and (job is None or owner["uid"] == job["metadata"]["uid"])
            ):
                found.append(stored.obj)
        return found


def _rank_to_delete(pod: Json) -> tuple[bool, bool, bool, float, float, int]:
    """Unbound ones first, then those that do not run, that are not ready, that are ready since a later second, the youngest, by index."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    since = next((each["lastTransitionTime"] for each in conditions if (each["type"], each["status"]) == ("Ready", "True")), "")
    ready_at = failures.read_time(since).timestamp() if since else 0.0
    age = -failures.read_time(pod["metadata"]["creationTimestamp"]).timestamp()
    return bool(pod["spec"].get("nodeName")), get_phase(pod) == "Running", bool(since), -ready_at, age, index_of(pod)


def _is_indexed(job: Json) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def set_condition(conditions: list[Json], kind: str, status: str, reason: str, message: str, time: str) -> bool:
    """Sets a condition of a Job; returns whether it has changed."""
    old = next((condition for condition in conditions if condition["type"] == kind), None)
    if old is not None and old["status"] == status:
        return False
    new = {"type": kind, "status": status, "reason": reason, "message": message, "lastProbeTime": time, "lastTransitionTime": time}
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new
    return True

"""What happens to Jobs and Workloads in a scenario: what the objects alone do not show at the end."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from core.names import COMPLETIONS_EQUAL_PARALLELISM, MIN_PARALLELISM
from e2e.standins.pods import has_condition
from sim.apiserver.server import Change, Server
from sim.models.base import JOB

Json = dict[str, Any]
WORKLOADS = "kueue.x-k8s.io", "workloads"
_WRITES, _WRITES_PER_STEP = 50, 2  # of one object, at most
_EVICTIONS, _EVICTIONS_PER_STEP = 5, 0.25  # of one workload, at most


class Records:
    """Writes of each Job and Workload, evictions, and how many pods of a Job must succeed. An eviction leaves the places as they are."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._writes, self._evictions = Counter[str](), Counter[str]()  # by uid
        self._shown: dict[str, str] = {}  # by uid: kind and name
        self._completions: dict[str, int] = {}  # by uid of a Job
        self.problems: list[str] = []  # sentences about evictions that have given a workload other places than it had
        server.on_change_of[JOB].append(self._note_job)
        server.on_change_of[WORKLOADS].append(self._note_workload)

    def _note(self, kind: str, change: Change) -> None:
        metadata = change.last["metadata"]
        self._shown[metadata["uid"]] = f"{kind} {metadata['name']}"
        self._writes[metadata["uid"]] += 1

    def _note_job(self, change: Change) -> None:
        self._note("Job", change)
        if change.new is None:
            return
        uid, spec, status = change.new["metadata"]["uid"], change.new["spec"], change.new.get("status") or {}
        notes = change.new["metadata"].get("annotations") or {}
        is_equal = notes.get(COMPLETIONS_EQUAL_PARALLELISM) == "true"
        if not is_equal and change.old is None:
            self._completions[uid] = spec.get("completions") or 1
        elif is_equal and status.get("succeeded") and not spec.get("suspend"):
            # It runs with as many as were admitted; once a pod has succeeded all that it runs with are ranks of one run.
            self._completions[uid] = max(self._completions.get(uid, int(notes.get(MIN_PARALLELISM) or 1)), spec["completions"])

    def _note_workload(self, change: Change) -> None:
        if not _is_other_message(change):  # figures in messages change with nodes and with other workloads
            self._note("Workload", change)
        if change.new is not None and has_condition(change.new, "Evicted") and not has_condition(change.old or {}, "Evicted"):
            self._evictions[change.new["metadata"]["uid"]] += 1
            given = _list_given(change.new)
            if given and given != _list_given(change.old):
                name = f"{change.new['metadata']['namespace']}/{change.new['metadata']['name']}"
                self.problems.append(f"workload {name} is evicted, and has other places by that")

    def find_incomplete(self) -> Iterator[str]:
        """Sentences about Jobs that are complete with fewer succeeded pods than were asked for."""
        for stored in self._server.objects[JOB].values():
            job = stored.obj
            succeeded, wanted = (job.get("status") or {}).get("succeeded", 0), self._completions.get(job["metadata"]["uid"], 1)
            if has_condition(job, "Complete") and succeeded < wanted:
                yield f"Job {job['metadata']['name']} is complete with {succeeded} succeeded pods of {wanted}"

    def find_excess(self, steps: int) -> Iterator[str]:
        """Sentences about objects that were written, and workloads that were evicted, more often than so many steps explain."""
        for counted, most, shown in (
            (self._writes, _WRITES + _WRITES_PER_STEP * steps, "written"),
            (self._evictions, _EVICTIONS + int(_EVICTIONS_PER_STEP * steps), "evicted"),
        ):
            for uid, times in counted.items():
                if times > most:
                    yield f"{self._shown[uid]} was {shown} {times} times, at most {most} are expected"


def _list_given(workload: Json | None) -> list[Json]:
    found: list[Json] = (((workload or {}).get("status") or {}).get("admission") or {}).get("podSetAssignments") or []
    return found


def _is_other_message(change: Change) -> bool:
    """Whether a change of a workload is one of messages of its conditions alone."""
    return change.old is not None and change.new is not None and _strip_messages(change.old) == _strip_messages(change.new)


def _strip_messages(workload: Json) -> tuple[Any, ...]:
    status = workload.get("status") or {}
    states = [(each["type"], each["status"]) for each in status.get("conditions") or ()]
    metadata = {name: value for name, value in workload["metadata"].items() if name not in ("resourceVersion", "managedFields")}
    return metadata, workload["spec"], states, {name: value for name, value in status.items() if name != "conditions"}

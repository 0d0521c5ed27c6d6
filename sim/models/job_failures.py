"""What the Job controller makes of a pod that has failed: the failure policy, indexes that have failed, and how long it waits."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sim.apiserver.server import Json
from sim.models.base import get_phase

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 10.0, 600.0  # DefaultJobPodFailureBackOff, MaxJobPodFailureBackOff


def should_wait_for_end(job: Mapping[str, Any]) -> bool:
    """Whether a pod that is deleted is replaced, and has failed, only when it has ended."""
    return job["spec"].get("podReplacementPolicy") == "Failed" or bool(job["spec"].get("podFailurePolicy"))


def has_failed(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a pod has failed. One that is deleted has, where the job does not wait for its end."""
    if get_phase(pod) == "Failed":
        return True
    return bool(pod["metadata"].get("deletionTimestamp")) and get_phase(pod) != "Succeeded" and not should_wait_for_end(job)


def find_action(job: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[str, str]:
    """What the first rule of the failure policy that matches a pod does, and the message of a job that fails by it; `Count` without one."""
    for number, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
        matched = _match_exit_code(pod, rule["onExitCodes"]) if rule.get("onExitCodes") else _match_condition(pod, rule)
        if matched:
            metadata = pod["metadata"]
            subject = f"Container {matched} for pod" if rule.get("onExitCodes") else "Pod"
            return rule["action"], f"{subject} {metadata['namespace']}/{metadata['name']} matching {rule['action']} rule at index {number}"
    return "Count", ""


def _match_exit_code(pod: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    status = pod.get("status") or {}
    for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        code = ((container.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
        if code and asked.get("containerName") in (None, container["name"]) and (code in asked["values"]) == (asked["operator"] == "In"):
            return str(container["name"])
    return ""


def _match_condition(pod: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    known = {(each["type"], each["status"]) for each in (pod.get("status") or {}).get("conditions") or ()}
    patterns = rule.get("onPodConditions") or ()
    return next((str(each["type"]) for each in patterns if (each["type"], each.get("status", "True")) in known), "")


def index_of(pod: Mapping[str, Any]) -> int:
    """The completion index of a pod, -1 if it has none."""
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def count_failures(pod: Mapping[str, Any]) -> tuple[int, int]:
    """How many pods of the index of a pod failed before it: those that are counted, and those that the policy ignores."""
    notes = pod["metadata"].get("annotations") or {}
    return int(notes.get(FAILURES, 0)), int(notes.get(IGNORED_FAILURES, 0))


def is_index_failed(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether the index of a pod has failed with it."""
    if not has_failed(job, pod):
        return False
    action, _ = find_action(job, pod)
    return action == "FailIndex" or (action != "Ignore" and count_failures(pod)[0] >= job["spec"]["backoffLimitPerIndex"])


def find_last_failed(job: Mapping[str, Any], failed: Iterable[Json], settled: set[int]) -> dict[int, Json]:
    """The latest failed pod of each index that has neither settled nor another pod yet: it is kept until that is made."""
    last = dict[int, Json]()
    for pod in failed:
        index = index_of(pod)
        if index not in settled and (index not in last or sum(count_failures(last[index])) <= sum(count_failures(pod))):
            last[index] = pod
    return last


def count_anew(job: Mapping[str, Any], replaced: Mapping[str, Any] | None) -> dict[str, str]:
    """The annotations of another pod of an index that count the failures before it."""
    counted, ignored = (0, 0) if replaced is None else count_failures(replaced)
    if replaced is not None:
        is_ignored = find_action(job, replaced)[0] == "Ignore"
        counted, ignored = counted + (not is_ignored), ignored + is_ignored
    return {FAILURES: str(counted), **({IGNORED_FAILURES: str(ignored)} if ignored else {})}


def find_wait_s(failures: int, since_s: float) -> float:
    """How long no other pod is made after so many failures, the last of which was so long ago: 10 s, 20 s, 40 s and so on."""
    return max(0.0, min(_FIRST_WAIT_S * 2 ** min(failures - 1, 10), _LONGEST_WAIT_S) - since_s) if failures else 0.0


def find_end(pod: Mapping[str, Any]) -> datetime:
    """When a pod ended: when it was not ready any more, or was deleted, else when it was made."""
    metadata, conditions = pod["metadata"], (pod.get("status") or {}).get("conditions") or ()
    ready: Json = next((each for each in conditions if each["type"] == "Ready" and each["status"] == "False"), {})
    if ready.get("lastTransitionTime"):
        return read_time(ready["lastTransitionTime"])
    if metadata.get("deletionTimestamp"):
        return read_time(metadata["deletionTimestamp"]) - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return read_time(metadata["creationTimestamp"])


def read_time(text: str) -> datetime:
    """A time of the API."""
    return datetime.fromisoformat(text)


def read_indexes(text: str | None) -> set[int]:
    """`0,2-5,7`, as in `status.completedIndexes`."""
    found = set[int]()
    for part in filter(None, (text or "").split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def show_indexes(indexes: Iterable[int]) -> str:
    """The opposite of `read_indexes`."""
    parts = list[list[int]]()
    for index in sorted(indexes):
        if parts and parts[-1][-1] == index - 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(map(_show_part, parts))


def _show_part(part: Sequence[int]) -> str:
    return str(part[0]) if len(part) == 1 else f"{part[0]}{',' if len(part) == 2 else '-'}{part[-1]}"

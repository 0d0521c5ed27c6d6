"""Finished pods of a running job that are not replaced: their numbers are written, so that other workloads get their
quota (KEP-78)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from core.names import ADMITTED, EVICTED, FINISHED, PODSET_LABEL, QUOTA_RESERVED, REASON_JOB_CHANGED
from core.plan.steps import writes as w
from core.plan.steps.steps import NOTHING, Log, Plan, Step, make_plan
from core.plan.workloads.workload_steps import plan_eviction_of
from core.resource import Obj
from core.state.facts import build_object_key, is_condition_true, read_reclaimed_pods

Json = Mapping[str, Any]
_NONE: Mapping[str, int] = {}


def plan_finished_pods(workload: Obj, done: Mapping[str, int], running: Mapping[str, int], now: str, *, has_job: bool) -> Plan:
    """Returns the plan for a workload with finished pods (`done`, `running`: as of `plan_reclaimable`). Their numbers are written. It is
    evicted where it runs, has a job, and creates pods again of which the quota was released. `now`: as the API writes it."""
    runs = is_condition_true(workload, ADMITTED) and not is_condition_true(workload, EVICTED)
    if runs and has_job and _are_made_again(workload, done):
        message = "finished pods are created again, and their quota was released; the workload is queued again for all of its pods"
        return make_plan(plan_eviction_of(workload, REASON_JOB_CHANGED, message, now))
    entries = plan_reclaimable(workload, done, running)
    if entries is None:
        return NOTHING
    fields = {"workload": build_object_key(workload), "pods": {entry["name"]: entry["count"] for entry in entries}}
    log = Log("released quota of finished pods", fields)
    return make_plan(Step("report reclaimable pods", w.apply_reclaimable(workload, entries), log=log))


def plan_reclaimable(workload: Json, done: Mapping[str, int], running: Mapping[str, int] = _NONE) -> list[dict[str, Any]] | None:
    """Returns `status.reclaimablePods` (JSON, without zeros) as it should be by the finished pods per pod set (`done`). None where it is so
    already, or the Workload is finished or being deleted. Of a pod set no more are reclaimable than its count less its `running` pods: a
    Job counts whatever pods its user lets it adopt. While the workload holds quota no number goes down: what was released may be in use by
    another workload. A pod set that either map lacks counts as 0 there; other names in them are ignored."""
    if is_condition_true(workload, FINISHED) or workload["metadata"].get("deletionTimestamp"):
        return None
    before, holds = read_reclaimed_pods(workload), is_condition_true(workload, QUOTA_RESERVED)
    counts = {pod_set["name"]: int(pod_set["count"]) for pod_set in workload["spec"]["podSets"]}
    free = {name: min(done.get(name, 0), count - running.get(name, 0)) for name, count in counts.items()}
    wanted = {name: min(count, max(0, free[name], before.get(name, 0) if holds else 0)) for name, count in counts.items()}
    if wanted == {name: before.get(name, 0) for name in counts}:
        return None
    return [{"name": name, "count": count} for name, count in wanted.items() if count]


def _are_made_again(workload: Json, done: Mapping[str, int]) -> bool:
    """Whether fewer pods of some pod set are `done` than the status has as reclaimable, as when a JobSet restarts."""
    return any(done.get(name, 0) < count for name, count in read_reclaimed_pods(workload).items())


def count_succeeded(pods: Iterable[Json]) -> dict[str, int]:
    """Returns the number of pods that have succeeded per pod set, by their label; pods without it are counted under an empty name."""
    succeeded = (pod for pod in pods if (pod.get("status") or {}).get("phase") == "Succeeded")
    return dict(Counter((pod["metadata"].get("labels") or {}).get(PODSET_LABEL, "") for pod in succeeded))

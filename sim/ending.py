"""How a scenario may end: what is read off the objects when time has passed in peace."""

from typing import Any

from sim.models.base import is_over
from sim.world import World

Json = dict[str, Any]


def judge_job(world: World, job: Json, workload: Json | None) -> list[str]:
    name, status = job["metadata"]["name"], job.get("status") or {}
    if any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in status.get("conditions") or ()):
        is_said = workload is not None and _has(workload, "Finished")
        return [] if is_said or workload is None else [f"{name} is over, and its workload does not say so"]
    if workload is None:
        return [f"{name} has no workload"]
    if _has(workload, "Admitted"):
        bound = [pod for pod in _pods_of(world, job) if pod["spec"].get("nodeName") and not is_over(pod)]
        wanted = min(job["spec"]["parallelism"], job["spec"]["completions"] - status.get("succeeded", 0))
        return [] if len(bound) == wanted else [f"{name} is admitted, and {len(bound)} of {wanted} pods run"]
    reserved = next((c for c in (workload.get("status") or {}).get("conditions") or () if c["type"] == "QuotaReserved"), None)
    if reserved is None or not reserved["message"]:
        return [f"{name} waits without a reason"]
    return [] if job["spec"].get("suspend") else [f"{name} waits and is not suspended"]


def _pods_of(world: World, job: Json) -> list[Json]:
    uid = job["metadata"]["uid"]
    return [pod for pod in world.objects("", "pods") if any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences") or ())]


def _has(workload: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in (workload.get("status") or {}).get("conditions") or ())

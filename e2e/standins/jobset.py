"""A stand-in for the JobSet controller (jobset.x-k8s.io/v1alpha2)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from e2e.standins.base import StandIn
from e2e.standins.pods import has_condition

JOBS = "/apis/batch/v1/namespaces/{}/jobs"
GATES, SELECTOR, TOLERATIONS = "schedulingGates", "nodeSelector", "tolerations"


class JobSetStandIn(StandIn):
    """Makes a Job per replica of each replicated job, suspended ones too; on resume it merges gates, node selectors and
    tolerations of the templates into them and takes none away (jobset#1294). One Job that fails fails it; then the others are deleted."""

    group, version, kind, plural = "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"

    def reconcile(self, obj: dict[str, Any]) -> None:
        path = JOBS.format(obj["metadata"]["namespace"])
        suspended = bool(obj["spec"].get("suspend"))
        jobs = self.children(path, obj)
        if obj["metadata"].get("deletionTimestamp"):
            return
        if has_condition(obj, "Completed") or has_condition(obj, "Failed"):
            for name in [name for name, job in jobs.items() if not (has_condition(job, "Complete") or has_condition(job, "Failed"))]:
                self.api.delete(f"{path}/{name}")
            return
        statuses, done = [], []
        for replicated in obj["spec"]["replicatedJobs"]:
            active = 0
            for index in range(replicated.get("replicas", 1)):
                name = f"{obj['metadata']['name']}-{replicated['name']}-{index}"
                job = jobs.get(name)
                if job is None:
                    self.api.create(path, self._job(obj, replicated, index, name))
                    done.append(False)
                    continue
                if bool(job["spec"].get("suspend")) != suspended:
                    self._resume_or_suspend(path, job, replicated["template"]["spec"]["template"], suspended)
                active += int((job.get("status") or {}).get("active") or 0)
                done.append(has_condition(job, "Complete"))
            statuses.append({"name": replicated["name"], "active": active})
        status: dict[str, Any] = {"replicatedJobsStatus": statuses}
        if any(has_condition(job, "Failed") for job in jobs.values()):
            status["conditions"] = [{"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed"}]
        elif done and all(done):
            status["conditions"] = [{"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "jobset completed"}]
        self.set_status(obj, status)

    def _job(self, obj: dict[str, Any], replicated: dict[str, Any], index: int, name: str) -> dict[str, Any]:
        labels = {
            "jobset.sigs.k8s.io/jobset-name": obj["metadata"]["name"],
            "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"],
            "jobset.sigs.k8s.io/job-index": str(index),
        }
        template = deepcopy(replicated["template"])
        spec = template["spec"] | {"suspend": bool(obj["spec"].get("suspend")), "completionMode": "Indexed"}
        spec["template"]["spec"].setdefault("restartPolicy", "OnFailure")
        pod = spec["template"].setdefault("metadata", {})
        pod["labels"] = {**(pod.get("labels") or {}), **labels}
        own = template.get("metadata") or {}
        metadata = {
            "name": name,
            "namespace": obj["metadata"]["namespace"],
            "labels": {**(own.get("labels") or {}), **labels},
            "annotations": own.get("annotations") or {},
            "ownerReferences": [self.owner_of(obj)],
        }
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def _resume_or_suspend(self, path: str, job: dict[str, Any], template: dict[str, Any], suspended: bool) -> None:
        name = job["metadata"]["name"]
        version = {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}}
        if suspended:
            self.api.patch(f"{path}/{name}", version | {"spec": {"suspend": True}})
            return
        if (job.get("status") or {}).get("startTime"):
            self.api.patch(f"{path}/{name}/status", {"status": {"startTime": None}})
            return
        now, wanted = job["spec"]["template"], template["spec"]
        spec = {
            GATES: _merge_entries(now["spec"].get(GATES), wanted.get(GATES)),
            TOLERATIONS: _merge_entries(now["spec"].get(TOLERATIONS), wanted.get(TOLERATIONS)),
            SELECTOR: {**(now["spec"].get(SELECTOR) or {}), **(wanted.get(SELECTOR) or {})},
        }
        metadata = {
            part: {**(now["metadata"].get(part) or {}), **((template.get("metadata") or {}).get(part) or {})}
            for part in ("labels", "annotations")
        }
        self.api.patch(f"{path}/{name}", version | {"spec": {"suspend": False, "template": {"metadata": metadata, "spec": spec}}})


def _merge_entries(now: list[Any] | None, wanted: list[Any] | None) -> list[Any]:
    kept = list(now or ())
    return kept + [entry for entry in wanted or () if entry not in kept]

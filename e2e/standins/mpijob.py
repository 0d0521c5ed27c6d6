"""A stand-in for the MPI operator (kubeflow.org/v2beta1), as it is since mpi-operator#772: a launcher that is resumed gets
the template of its MPIJob."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy

from e2e.standins.pods import Obj, PodStandIn, Wanted, build_condition, compute_phase, has_condition

JOBS = "/apis/batch/v1/namespaces/{}/jobs"
JOB_NAME, ROLE, INDEX = (f"training.kubeflow.org/{name}" for name in ("job-name", "job-role", "replica-index"))


class MPIJobStandIn(PodStandIn):
    """Workers are pods, the launcher is a Job, suspended with the MPIJob. Where the launcher is a worker, too, it has index 0."""

    group, version, kind, plural = "kubeflow.org", "v2beta1", "MPIJob", "mpijobs"
    suspend_path = ("spec", "runPolicy", "suspend")

    def reconcile(self, obj: Obj) -> None:
        if not obj["metadata"].get("deletionTimestamp") and obj["spec"]["mpiReplicaSpecs"].get("Launcher"):
            self._reconcile_launcher(obj)
        super().reconcile(obj)

    def wanted(self, obj: Obj, pods: Mapping[str, Obj]) -> Iterable[Wanted]:
        worker = obj["spec"]["mpiReplicaSpecs"].get("Worker") or {"replicas": 0}
        first = 1 if obj["spec"].get("runLauncherAsWorker") else 0
        for i in range(worker.get("replicas", 1)):
            name = obj["metadata"]["name"]
            labels = {JOB_NAME: name, ROLE: "worker", INDEX: str(first + i)}
            yield Wanted(f"{name}-worker-{i}", worker["template"], labels, "Worker")

    def status(self, obj: Obj, wanted: Iterable[Wanted], pods: Mapping[str, Obj]) -> Obj:
        workers = sum(compute_phase([pod]) == "Running" for pod in pods.values())
        launcher = self.children(self._jobs(obj), obj).get(f"{obj['metadata']['name']}-launcher") or {}
        active = (launcher.get("status") or {}).get("active") or 0
        status: Obj = {"replicaStatuses": {"Launcher": {"active": active}, "Worker": {"active": workers}}}
        for theirs, ours in (("Complete", "Succeeded"), ("Failed", "Failed")):
            if has_condition(launcher, theirs):
                status["conditions"] = [build_condition(ours, f"the launcher has {ours.lower()}")]
        return status

    def _jobs(self, obj: Obj) -> str:
        return JOBS.format(obj["metadata"]["namespace"])

    def _reconcile_launcher(self, obj: Obj) -> None:
        path, name, suspended = self._jobs(obj), f"{obj['metadata']['name']}-launcher", self.is_suspended(obj)
        launcher = self.children(path, obj).get(name)
        template = deepcopy(obj["spec"]["mpiReplicaSpecs"]["Launcher"]["template"])
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), JOB_NAME: obj["metadata"]["name"], ROLE: "launcher"}
        if obj["spec"].get("runLauncherAsWorker"):
            metadata["labels"][INDEX] = "0"
        template["spec"].setdefault("restartPolicy", "Never")
        if launcher is None:
            body = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": obj["metadata"]["namespace"], "ownerReferences": [self.owner_of(obj)]},
                "spec": {"suspend": suspended, "template": template},
            }
            self.api.create(path, body)
        elif bool(launcher["spec"].get("suspend")) != suspended:
            self._resume_or_suspend(f"{path}/{name}", launcher, template, suspended)

    def _resume_or_suspend(self, path: str, launcher: Obj, template: Obj, suspended: bool) -> None:
        """Whole, as the operator writes it, which may not patch Jobs."""
        changed = deepcopy(launcher)
        if not suspended and (launcher.get("status") or {}).get("startTime"):
            del changed["status"]["startTime"]
            self.api.replace(f"{path}/status", changed)
            return
        changed["spec"]["suspend"] = suspended
        if not suspended:
            of_launcher, metadata = changed["spec"]["template"]["spec"], changed["spec"]["template"]["metadata"]
            for key in ("nodeSelector", "tolerations", "schedulingGates"):
                of_launcher.pop(key, None)
                of_launcher |= {key: template["spec"][key]} if key in template["spec"] else {}
            metadata["labels"] = {**metadata["labels"], **template["metadata"]["labels"]}
            metadata["annotations"] = template["metadata"].get("annotations") or {}
        self.api.replace(path, changed)

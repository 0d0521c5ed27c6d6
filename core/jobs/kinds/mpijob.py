"""kubeflow.org/v2beta1 MPIJob."""

from typing import Any

from core.jobs.contract import Gang, Json
from core.jobs.kinds.replica_types import ReplicatedKind, build_replica_spec_shape
from core.jobs.schema_check import BOOLEAN
from core.jobs.templated import get
from core.names import POD_INDEX_OFFSET, PODSET_GROUP_NAME


class MPIJob(ReplicatedKind):
    """Pod sets `launcher` and `worker`. The condition of the operator follows the launcher; when that succeeds the job
    has succeeded.

    Slots are processes per pod, so they change neither counts nor ranks of pods.
    """

    kind, group, version, plural = "MPIJob", "kubeflow.org", "v2beta1", "mpijobs"
    field, types = "mpiReplicaSpecs", ("Launcher", "Worker")
    spec_shape = build_replica_spec_shape(field, types, runLauncherAsWorker=BOOLEAN)

    def find_gang(self, job: Json) -> Gang:
        """Returns one gang of launcher and workers, without a launcher that is made only once the workers run."""
        comes_later = get(job, ("spec", "launcherCreationPolicy")) == "WaitForWorkersReady"
        return Gang(sum(role.count for role in self.list_roles(job) if not (comes_later and role.pod_set == "launcher")))

    def default_more(self, job: dict[str, Any]) -> dict[str, Any]:
        """Sets, in the job itself, POD_INDEX_OFFSET on the workers' template in the two cases below, and returns the job. A job without
        launcher or workers stays as it is.

        It is 1 if the launcher is a worker, too, and has index 0, and neither template names a pod set group. It is 0 in a group with a
        launcher that is no worker. In other cases nothing is set: the indexes are continuous by themselves (KEP-2724).
        """
        roles = {role.pod_set: role for role in self.list_roles(job)}
        launcher, worker = roles.get("launcher"), roles.get("worker")
        if launcher is None or worker is None:
            return job
        is_worker = bool(job["spec"].get("runLauncherAsWorker"))
        if is_worker == any(PODSET_GROUP_NAME in role.annotations for role in (launcher, worker)):
            return job
        template = worker.template
        metadata = template.get("metadata") or {}
        annotations = {**(metadata.get("annotations") or {}), POD_INDEX_OFFSET: "1" if is_worker else "0"}
        self.put_template(job, worker, {**template, "metadata": {**metadata, "annotations": annotations}})
        return job

"""kubeflow.org/v2beta1 MPIJob."""

from collections.abc import Iterator
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Gang, Json
from core.jobs.kinds.replica_types import ReplicatedKind, build_replica_spec_shape
from core.jobs.schema_check import BOOLEAN
from core.jobs.templated import Role, get
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

    def find_index_offset(self, job: Json, role: Role) -> str | None:
        """Returns "1" for the workers if the launcher is a worker, too, and has index 0, and neither template names a pod set group. It is
        "0" in a group with a launcher that is no worker. In other cases it is None: the indexes are continuous by themselves (KEP-2724)."""
        roles = {one.pod_set: one for one in self.list_roles(job)}
        launcher, worker = roles.get("launcher"), roles.get("worker")
        if role.pod_set != "worker" or launcher is None or worker is None:
            return None
        is_worker = bool(job["spec"].get("runLauncherAsWorker"))
        if is_worker == any(PODSET_GROUP_NAME in one.annotations for one in (launcher, worker)):
            return None
        return "1" if is_worker else "0"

    def default_more(self, job: dict[str, Any]) -> dict[str, Any]:
        """Sets, in the job itself, POD_INDEX_OFFSET on the workers' template as `find_index_offset` says, and returns the job. In a group a
        value that is there already stays, to be judged."""
        for role in self.list_roles(job):
            offset = self.find_index_offset(job, role)
            if offset is None or (PODSET_GROUP_NAME in role.annotations and POD_INDEX_OFFSET in role.annotations):
                continue
            metadata = role.template.get("metadata") or {}
            annotations = {**role.annotations, POD_INDEX_OFFSET: offset}
            self.put_template(job, role, {**role.template, "metadata": {**metadata, "annotations": annotations}})
        return job

    def validate_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        """Yields an error where POD_INDEX_OFFSET of a template is changed or removed, but to what the defaults would write now."""
        before = {role.pod_set: role.annotations.get(POD_INDEX_OFFSET) for role in self.list_roles(old)}
        for role in self.list_roles(new):
            was, now = before.get(role.pod_set), role.annotations.get(POD_INDEX_OFFSET)
            if was is not None and now != was and now != (self.find_index_offset(new, role) or was):
                accepted = f"an MPIJob keeps it: {was!r} is expected"
                yield FieldError(ErrorType.INVALID, f"{role.annotations_shown}[{POD_INDEX_OFFSET}]", now, accepted)

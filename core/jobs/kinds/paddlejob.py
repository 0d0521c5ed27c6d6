"""kubeflow.org/v1 PaddleJob."""

from core.jobs.kinds.replica_types import ReplicatedKind, build_replica_spec_shape


class PaddleJob(ReplicatedKind):
    """Pod sets `master` and `worker`."""

    kind, group, version, plural = "PaddleJob", "kubeflow.org", "v1", "paddlejobs"
    field, types = "paddleReplicaSpecs", ("Master", "Worker")
    spec_shape = build_replica_spec_shape(field, types)

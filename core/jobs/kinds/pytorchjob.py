"""kubeflow.org/v1 PyTorchJob."""

from core.jobs.kinds.replica_types import ReplicatedKind, build_replica_spec_shape


class PyTorchJob(ReplicatedKind):
    """Pod sets `master` and `worker`."""

    kind, group, version, plural = "PyTorchJob", "kubeflow.org", "v1", "pytorchjobs"
    field, types = "pytorchReplicaSpecs", ("Master", "Worker")
    spec_shape = build_replica_spec_shape(field, types)

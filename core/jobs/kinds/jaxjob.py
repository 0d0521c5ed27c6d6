"""kubeflow.org/v1 JAXJob."""

from core.jobs.kinds.replica_types import ReplicatedKind, build_replica_spec_shape


class JAXJob(ReplicatedKind):
    """One pod set, `worker`."""

    kind, group, version, plural = "JAXJob", "kubeflow.org", "v1", "jaxjobs"
    field, types = "jaxReplicaSpecs", ("Worker",)
    spec_shape = build_replica_spec_shape(field, types)

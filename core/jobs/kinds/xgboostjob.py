"""kubeflow.org/v1 XGBoostJob."""

from core.jobs.kinds.replica_types import ReplicatedKind, build_replica_spec_shape


class XGBoostJob(ReplicatedKind):
    """Pod sets `master` and `worker`."""

    kind, group, version, plural = "XGBoostJob", "kubeflow.org", "v1", "xgboostjobs"
    field, types = "xgbReplicaSpecs", ("Master", "Worker")
    spec_shape = build_replica_spec_shape(field, types)

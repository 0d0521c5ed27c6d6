"""kubeflow.org/v1 TFJob."""

from core.jobs.kinds.replica_types import ReplicatedKind, build_replica_spec_shape


class TFJob(ReplicatedKind):
    """Pod sets `chief` (or `master`), `ps`, `worker` and `evaluator`."""

    kind, group, version, plural = "TFJob", "kubeflow.org", "v1", "tfjobs"
    field, types = "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator")
    spec_shape = build_replica_spec_shape(field, types)

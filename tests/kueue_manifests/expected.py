"""For each manifest of this folder: the warnings that its creation draws, and what becomes of its objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from core.api.v1beta1 import DEPRECATION

FOLDER = Path(__file__).parent
NAMESPACE = "kueue-manifests"
POLICED = "kueue-manifests-policies"  # where jobs must name a queue
BLOCK, RACK, HOST = "example.com/km-block", "example.com/km-rack", "kubernetes.io/hostname"
STORED = "is stored but has no effect in this version of topogate"


@dataclass(frozen=True)
class Expected:
    """What the creation of the objects of a file answers, and what follows.

    `warnings` are fragments, one for each warning in their order. `runs` has the number of pods that run by what their names begin with;
    `domains` the number of domains of a level that they are in. `waits` has the reason of the workload's `QuotaReserved`, `queues` that
    of the `Active` condition of ClusterQueues. `refused` is a fragment of the refusal, `unserved` names kinds that there are no CRDs of.
    """

    warnings: tuple[str, ...] = ()
    runs: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    unserved: tuple[str, ...] = ()

    @property
    def has_jobs(self) -> bool:
        return bool(self.runs or self.waits)


def load(name: str) -> list[dict[str, Any]]:
    """The objects of a manifest, named by version and file."""
    return [obj for obj in yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()) if obj is not None]


_NOTHING = Expected()
_OF_V1BETA2 = {
    "admission-check": _NOTHING,
    "appwrapper-deployment": Expected(runs={"wrapped-deployment": 2}),
    "appwrapper-leaderworkerset": Expected(runs={"wrapped-lws": 6}),
    "appwrapper-pytorch": Expected(runs={"wrapped-pytorch": 2}),
    "cronjob": Expected(runs={"nightly-by-hand": 1}),
    "deployment": Expected(runs={"deployed": 3}),
    "dra-extended-resource-job": Expected(runs={"extended": 2}),
    "dra-job": Expected(refused="no quota counts the devices of ResourceClaims"),
    "dra-queues": Expected(queues={"km-dra": "Ready"}),
    "flavor-taints": Expected(queues={"km-taints": "Ready"}),
    "flavor-tolerations": Expected(queues={"km-tolerations": "Ready"}),
    "hami-deployment": Expected(runs={"hami": 2}),
    "jaxjob": Expected(runs={"jax": 2}),
    "job": Expected(runs={"quick-1": 1}, waits={"quick-2": "ExceedsMaxQuota"}),
    "job-admission-fair-sharing": Expected(runs={"of-fair-a": 2, "of-fair-b": 2}),
    "job-cohort": Expected(runs={"borrowing": 3}),
    "job-concurrent-admission": Expected(runs={"concurrent": 4}),
    "job-elastic": Expected(runs={"elastic": 2}),
    "job-flavor-taints": Expected(runs={"tolerant": 1, "tolerated": 1}, waits={"intolerant": "NoMatchingFlavor"}),
    "job-max-exec-time": Expected(runs={"limited": 1}),
    "job-partial-admission": Expected(runs={"partial": 4}),
    "job-shared-quota": Expected(runs={"shared": 3}),
    "job-tas-preferred": Expected(runs={"tas-preferred": 2}, domains={"tas-preferred": (BLOCK, 1)}),
    "job-tas-required": Expected(runs={"tas-required": 4}, domains={"tas-required": (RACK, 1)}),
    "job-tas-too-large": Expected(waits={"tas-too-large": "TopologyPlacementFailed"}),
    "job-tas-unconstrained": Expected(runs={"tas-unconstrained": 2}),
    "jobset": Expected(runs={"jobset-leader": 1, "jobset-workers": 4}),
    "jobset-tas-combined": Expected(runs={"jobset-combined": 4}, domains={"jobset-combined": (BLOCK, 1)}),
    "jobset-tas-required": Expected(runs={"jobset-required": 4}, domains={"jobset-required": (BLOCK, 1)}),
    "jobset-tas-sliced": Expected(runs={"jobset-sliced": 4}),
    "leaderworkerset": Expected(runs={"lws-0": 3, "lws-1": 3}),
    "leaderworkerset-tas": Expected(runs={"lws-tas-0": 3, "lws-tas-1": 3}, domains={"lws-tas-0": (RACK, 1), "lws-tas-1": (RACK, 1)}),
    "mpijob": Expected(runs={"mpi": 3}),
    "multikueue-clusters": Expected(unserved=("MultiKueueConfig", "MultiKueueCluster")),
    "multikueue-job": Expected(warnings=("spec.managedBy",), waits={"remote": "Suspended", "remote-tas": "Suspended"}),
    "multikueue-setup": Expected(warnings=("spec.controllerName",), queues={"km-multikueue": "AdmissionCheckInactive"}),
    "multikueue-tas-setup": Expected(queues={"km-multikueue-tas": "MultiKueueWithTopology"}),
    "paddlejob": Expected(runs={"paddle": 2}),
    "pod": Expected(runs={"lone-pod": 1}),
    "pod-group": Expected(runs={"group": 2}),
    "pods-of-others": Expected(runs={"workflow-step": 1, "tekton-task": 1, "sandbox": 1}),
    "policy-queue-name": _NOTHING,
    "policy-requests": _NOTHING,
    "priority-classes": Expected(runs={"urgent": 1}),
    "provisioning-job": Expected(runs={"provisioned": 3}),
    "provisioning-setup": Expected(queues={"km-provisioning": "Ready"}),
    "pytorchjob": Expected(runs={"pytorch": 2}),
    "queues-admission-fair-sharing": Expected(
        warnings=(f"spec.admissionScope {STORED}", f"spec.fairSharing {STORED}", f"spec.fairSharing {STORED}"), queues={"km-fair": "Ready"}
    ),
    "queues-all-kinds": Expected(queues={"km-plain": "Ready"}),
    "queues-cohort": Expected(queues={"km-team-a": "Ready", "km-team-b": "Ready"}),
    "queues-concurrent-admission": Expected(warnings=(f"spec.concurrentAdmissionPolicy {STORED}",), queues={"km-concurrent": "Ready"}),
    "queues-minimal": Expected(queues={"km-minimal": "AdmissionCheckNotFound"}),
    "queues-quick-start": Expected(queues={"km-quick": "Ready"}),
    "queues-shared-quota": Expected(queues={"km-shared": "Ready"}),
    "raycluster": Expected(runs={"raycluster": 3}),
    "rayjob": Expected(runs={"rayjob": 3}),
    "rayjob-autoscaling": Expected(runs={"autoscaling": 2}),
    "rayjob-elastic": Expected(runs={"rayelastic": 2}),
    "rayservice": Expected(runs={"rayservice": 2}),
    "sparkapplication": Expected(runs={"spark": 3}),
    "statefulset": Expected(runs={"stateful": 3}),
    "tas-gpu-queues": Expected(queues={"km-gpu": "Ready"}),
    "tas-queues": Expected(queues={"km-tas": "Ready"}),
    "tfjob": Expected(runs={"tensorflow": 2}),
    "trainjob": Expected(runs={"trainjob": 2}),
    "visibility-roles": _NOTHING,
    "xgboostjob": Expected(runs={"xgboost": 3}),
}


def _old(objects: int, *warnings: str, runs: Mapping[str, int] | None = None) -> Expected:
    return Expected(warnings=(*warnings, *[DEPRECATION] * objects), runs=runs or {})


_OF_V1BETA1 = {
    "admission-check": _old(2, "spec.retryDelayMinutes"),
    "flavor-taints": _old(1),
    "multikueue-setup": _old(1, "spec.controllerName"),
    "priority-class": _old(1),
    "queues-admission-fair-sharing": _old(2, f"spec.admissionScope {STORED}", f"spec.fairSharing {STORED}"),
    "queues-checks-by-flavor": _old(1),
    "queues-cohort": _old(3, runs={"old-borrowing": 3}),
    "queues-minimal": _old(1),
    "queues-quick-start": _old(3, runs={"old-quick": 2}),
    "tas-queues": _old(4, runs={"old-tas": 2}),
}
EXPECTED = {f"v1beta2/{name}": each for name, each in _OF_V1BETA2.items()} | {f"v1beta1/{name}": each for name, each in _OF_V1BETA1.items()}

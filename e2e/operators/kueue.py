"""Kueue's own manager, to be measured beside topogate, on a control plane of its own: both have the same kinds.

It is not one of `OPERATORS`, which run beside topogate on one cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from e2e.operators.catalogue import HOST, Change, Operator, Place, read_configuration_file

Obj = dict[str, Any]
# As published (config/components/manager/controller_manager_config.yaml).
CONCURRENCY = {
    "Job.batch": 5,
    "Pod": 5,
    "Workload.kueue.x-k8s.io": 10,
    "LocalQueue.kueue.x-k8s.io": 5,
    "Cohort.kueue.x-k8s.io": 1,
    "ClusterQueue.kueue.x-k8s.io": 5,
    "ResourceFlavor.kueue.x-k8s.io": 1,
}
REQUESTS = {"qps": 300, "burst": 500}


def _build_configuration(place: Place) -> Obj:
    """The published one, with ports of this machine, certificates of ours, no election, and no server of pending workloads, whose
    port and certificates are compiled in."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{HOST}:{place.health}"},
        "metrics": {"bindAddress": f"{HOST}:{place.metrics}"},
        "webhook": {"host": HOST, "port": place.webhook, "certDir": str(place.certificates)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "controller": {"groupKindConcurrency": CONCURRENCY},
        "clientConnection": REQUESTS,
        "integrations": {"frameworks": ["batch/job"]},  # the kinds of the others are not installed
        "featureGates": {"TopologyAwareScheduling": True, "VisibilityOnDemand": False},
    }


def _point_to_certificates(place: Place) -> Mapping[str, str]:
    return {"METRICS_CERTIFICATES": str(place.certificates)}


KUEUE = Operator(
    "kueue",
    "sigs.k8s.io/kueue",
    "v0.19.2",
    "h1:mPNzr37u0nwI7ikST5QQl5gg6EgtYOAvC9ZbTgywdN8=",
    "./cmd/kueue",
    ("config/default",),
    "kueue-system",
    "kueue-controller-manager",
    (),
    arguments=read_configuration_file,
    environment=_point_to_certificates,
    configuration=_build_configuration,
    changes=(
        Change(
            "cmd/kueue/main.go", 'metricsCertPath := "/etc/kueue/metrics/certs"', 'metricsCertPath := os.Getenv("METRICS_CERTIFICATES")'
        ),
    ),
)

KUEUECTL = Operator("kueuectl", KUEUE.module, KUEUE.version, KUEUE.checksum, "./cmd/kueuectl", (), "", "", ())
"""Kueue's command, which is only built and never runs as a process."""

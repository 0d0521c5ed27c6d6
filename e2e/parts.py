"""The command lines of the control plane's parts: what each is told, and why, in one place."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.pki import FRONT_PROXY_NAME, Files

STAGES = Path(__file__).parent / "stages"
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 8 << 30  # what a long session's etcd may come to, and as much again for whoever else is there
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    etcd_client: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int


@dataclass(frozen=True)
class Layout:
    """The folder of one cluster and the ports of its parts: all that a command line needs to know."""

    root: Path
    ports: Ports
    pki: Files
    data: Path  # etcd's

    @property
    def server(self) -> str:
        return f"https://{HOST}:{self.ports.apiserver}"

    @property
    def tokens(self) -> Path:
        return self.root / "tokens.csv"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def kubeconfig(self, user: str) -> Path:
        return self.root / f"{user}.kubeconfig"


def create_data_in_memory() -> Path | None:
    """A new folder in memory, where there is plenty: on a disk that others keep busy an etcd stands still for seconds, unsynced or not."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < MEMORY_NEEDED:
        return None
    return Path(tempfile.mkdtemp(prefix="topogate-etcd-", dir=MEMORY))


def to_flags(flags: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]


def to_gates(gates: Mapping[str, bool]) -> dict[str, str]:
    """The `feature-gates` flag, left out if no gate is set."""
    return {"feature-gates": ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())} if gates else {}


def build_etcd_flags(layout: Layout) -> list[str]:
    client, peer = (f"http://{HOST}:{port}" for port in (layout.ports.etcd_client, layout.ports.etcd_peer))
    flags = {
        "data-dir": str(layout.data),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "log-level": "warn",
    }
    # The data dies with the cluster; waiting for the disk would be most of a test's time.
    return [*to_flags(flags), "--unsafe-no-fsync"]


def build_apiserver_flags(layout: Layout, gates: Mapping[str, bool], extra: Mapping[str, str]) -> list[str]:
    flags = {
        "etcd-servers": f"http://{HOST}:{layout.ports.etcd_client}",
        "bind-address": HOST,
        "secure-port": str(layout.ports.apiserver),
        "tls-cert-file": str(layout.pki.server_cert),
        "tls-private-key-file": str(layout.pki.server_key),
        "cert-dir": str(layout.root / "apiserver"),
        "token-auth-file": str(layout.tokens),
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": str(layout.pki.service_account_public_key),
        "service-account-signing-key-file": str(layout.pki.service_account_key),
        "service-cluster-ip-range": "10.96.0.0/16",
        # A loopback address may not be published as the endpoints of the `kubernetes` service, and nobody here needs it.
        "endpoint-reconciler-type": "none",
        # Aggregated APIs know by these that a request comes from this server, and of which user.
        "requestheader-client-ca-file": str(layout.pki.front_proxy_ca),
        "requestheader-allowed-names": FRONT_PROXY_NAME,
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": str(layout.pki.front_proxy_cert),
        "proxy-client-key-file": str(layout.pki.front_proxy_key),
        "allow-privileged": "true",
        # Hundreds of scenarios share one server: its fairness must not be what a test measures.
        "max-requests-inflight": "3000",
        "max-mutating-requests-inflight": "1500",
        **to_gates(gates),
    }
    return to_flags({**flags, **extra})


def build_controller_manager_flags(layout: Layout, gates: Mapping[str, bool], extra: Mapping[str, str]) -> list[str]:
    flags = {
        "kubeconfig": str(layout.kubeconfig("controller-manager")),
        "leader-elect": "false",
        "bind-address": HOST,
        "secure-port": str(layout.ports.controller_manager),
        "cert-dir": str(layout.root / "controller-manager"),
        "service-account-private-key-file": str(layout.pki.service_account_key),
        "root-ca-file": str(layout.pki.ca),
        "kube-api-qps": "500",
        "kube-api-burst": "1000",
        "concurrent-job-syncs": "20",
        "concurrent-serviceaccount-token-syncs": "10",
        # A node made NotReady shows as a taint within a second, so that node failure tests need not wait for the default 5.
        "node-monitor-period": "1s",
        # kwok renews every 10 s; where others have the processors it comes later than the default 50 s, and nodes would count as lost.
        "node-monitor-grace-period": "300s",
        **to_gates(gates),
    }
    return to_flags({**flags, **extra})


def build_scheduler_flags(layout: Layout, gates: Mapping[str, bool], extra: Mapping[str, str]) -> list[str]:
    flags = {
        "config": str(layout.root / "scheduler.yaml"),
        "bind-address": HOST,
        "secure-port": str(layout.ports.scheduler),
        "cert-dir": str(layout.root / "scheduler"),
        **to_gates(gates),
    }
    return to_flags({**flags, **extra})


def write_scheduler_config(layout: Layout) -> None:
    """As a file, because the client's rate and the backoff of unschedulable pods cannot be given as flags."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(layout.kubeconfig("scheduler")), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
    }
    (layout.root / "scheduler.yaml").write_text(json.dumps(config))


def build_kwok_flags(layout: Layout, extra: Mapping[str, str]) -> list[str]:
    flags = {
        "kubeconfig": str(layout.kubeconfig("kwok")),
        "config": str(layout.root / "stages.yaml"),
        "manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake",
        "node-lease-duration-seconds": "40",  # kwok renews the leases: nodes stay Ready without a heartbeat of their status
        "server-address": f"{HOST}:{layout.ports.kwok}",
        "node-ip": HOST,
        "cidr": "10.128.0.1/9",
    }
    return to_flags({**flags, **extra})


KWOK_PARALLELISM = 16  # kwok's own default of 4 makes thousands of nodes wait for each other's round trips


def write_stages(layout: Layout) -> None:
    """kwok's options and all stages of `e2e/stages` in one file; parsed, so that a typo fails here and by name."""
    parallel = ("podPlayStageParallelism", "nodePlayStageParallelism", "nodeLeaseParallelism", "podsOnNodeSyncParallelism")
    options = dict.fromkeys(parallel, KWOK_PARALLELISM)
    documents: list[Any] = [{"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options}]
    for path in sorted(STAGES.glob("*.yaml")):
        documents += [document for document in yaml.safe_load_all(path.read_text()) if document]
    (layout.root / "stages.yaml").write_text(yaml.safe_dump_all(documents))

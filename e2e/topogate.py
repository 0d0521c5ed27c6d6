"""topogate's two processes beside a control plane, each by a service account that has the chart's rights."""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import sys
import time
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from certs import pki
from core.jobs.kinds.registry import KINDS
from core.names import MANAGED_NAMESPACE_LABEL, OLD_API_VERSION
from e2e.accounts import PARTS, delete_accounts, install_accounts, write_kubeconfig_of
from e2e.api import APPLY_PATCH, ApiError, wait_for
from e2e.cluster import Cluster
from e2e.crds import install_crds, register_conversion
from e2e.manifests import get_path as path_of
from e2e.process import Guard, Process, StartFailed, find_free_ports
from e2e.warm import Copy
from webhook.policies import list_policies
from webhook.registration import MUTATING_NAME, VALIDATING_NAME, build_configurations, build_conversion

SYSTEM_NAMESPACE = "topogate-system"
ROOT = Path(__file__).parent.parent
GRACE_S = 10.0
START_TIMEOUT_S = 600.0
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ROLE_DIR = ROOT / "charts" / "topogate" / "files" / "roles"
REGISTERED = (("mutatingwebhookconfigurations", MUTATING_NAME), ("validatingwebhookconfigurations", VALIDATING_NAME))
_starts = itertools.count(1)  # every process has a log of its own, whoever shares the cluster
READY_MARK = '"message": "deciding"'


class Topogate:
    """Webhook and reconciler on one cluster. Each can be killed and started again on its own.

    `leader_election` off lets a killed reconciler be followed at once by another, without waiting for its lease to run out.
    `flags` are for both. `address` is one of this machine's that the API server reaches: another than loopback where it runs in
    a container. `are_copies`: guarded processes that start faster, as copies of one that has imported their modules (e2e/warm.py).
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        otlp_endpoint: str | None = None,
        leader_election: bool = True,
        guarded: bool = True,
        address: str = "127.0.0.1",
        flags: Sequence[str] = (),
        are_copies: bool = False,
    ) -> None:
        self.cluster = cluster
        self.are_copies = are_copies
        self._address = address
        self._stack = contextlib.ExitStack()
        self._port, self._webhook_metrics, self._metrics, self._health = find_free_ports(4)
        self._dir = cluster.log_dir.parent / "topogate"
        self._set_options(otlp_endpoint, leader_election, flags)
        self._guarded = guarded
        self._guard: Guard | None = None
        self._kubeconfigs: dict[str, Path] = {}
        self.webhook: Process | None = None
        self.reconciler: Process | None = None
        self._reconcilers: list[Process] = []  # all that were started
        self._is_plain = True  # whether the reconciler that was started last has no options of its own

    def _set_options(self, otlp_endpoint: str | None, leader_election: bool, flags: Sequence[str]) -> None:
        self._options = [*(["--otlp-endpoint", otlp_endpoint] if otlp_endpoint else []), *flags]
        self._leader_options = [] if leader_election else ["--no-leader-election"]

    def start(self, *, converts_only: bool = False) -> Topogate:
        """With `converts_only` there is the webhook alone, which converts objects and judges none."""
        install_crds(self.cluster.api)
        if self.cluster.api.find(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}") is None:
            self.cluster.create_namespace(SYSTEM_NAMESPACE)
        self._dir.mkdir(exist_ok=True)
        install_accounts(self.cluster.api, SYSTEM_NAMESPACE)
        self._kubeconfigs = {part: self._write_kubeconfig(part) for part in PARTS}
        self._guard = self._stack.enter_context(Guard()) if self._guarded else None
        try:
            self._issue_certificate()
            self.start_webhook()
            self.register_conversion()
            if not converts_only:
                self.register()
                self.start_reconciler()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends both processes, which get time to end in good order, and takes the registration back: it holds for the whole cluster."""
        try:
            register_conversion(self.cluster.api, None)
            for policy in reversed(list_policies(KINDS)):
                self.cluster.api.delete(f"{path_of(policy)}/{policy['metadata']['name']}")
            for plural, name in REGISTERED:
                if self.cluster.api.find(f"{REGISTRATIONS}/{plural}/{name}") is not None:
                    self.cluster.api.delete(f"{REGISTRATIONS}/{plural}/{name}")
            for role in load_roles():
                self.cluster.api.delete(f"{ROLES}/{role['metadata']['name']}")
        finally:
            self._stop_processes()
            self._stack.close()
        delete_accounts(self.cluster.api, SYSTEM_NAMESPACE)

    def _stop_processes(self) -> None:
        self._stop_reconcilers()
        if self.webhook is not None:
            self.webhook.stop(GRACE_S)
        self.webhook = None

    def _stop_reconcilers(self) -> None:
        for process in self._reconcilers:
            process.stop(GRACE_S)
        self.reconciler = None
        self._reconcilers = []

    @property
    def is_as_started(self) -> bool:
        """Whether the webhook and one reconciler run with the options of the start."""
        running = [process for process in self._reconcilers if process.is_running]
        return self._is_plain and running == [self.reconciler] and self.webhook is not None and self.webhook.is_running

    def restart(
        self, *, otlp_endpoint: str | None = None, leader_election: bool = True, flags: Sequence[str] = (), keeps_webhook: bool = False
    ) -> None:
        """Ends all processes and starts the two again with these options. What is installed stays, and with `keeps_webhook` the webhook
        that runs, if it has them."""
        before = self._options
        self._set_options(otlp_endpoint, leader_election, flags)
        is_kept = keeps_webhook and self._options == before and self.webhook is not None and self.webhook.is_running
        if is_kept:
            self._stop_reconcilers()
        else:
            self._stop_processes()
            self.start_webhook()
        self.start_reconciler()

    def __enter__(self) -> Topogate:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def abandon(self) -> dict[str, int]:
        """Lets unguarded processes run on after this one; their ids by part."""
        if self._guarded:
            raise ValueError("guarded processes end with this one")
        running = {f"topogate-{p.name}": p for p in (self.webhook, self.reconciler) if p is not None}
        for process in running.values():
            process.abandon()
        return {name: process.pid for name, process in running.items()}

    # --- webhook ----------------------------------------------------------------------------------------------------

    def _issue_certificate(self) -> None:
        now = datetime.now(UTC)
        ca = pki.issue_ca("topogate e2e", now)
        serving = pki.issue_serving(ca, [*dict.fromkeys([self._address, "127.0.0.1"]), "localhost"], now)
        self.ca_bundle = ca.certificate
        (self._dir / "tls.crt").write_bytes(serving.certificate)
        (self._dir / "tls.key").write_bytes(serving.key)

    @property
    def webhook_url(self) -> str:
        return f"https://{self._address}:{self._port}"

    @property
    def webhook_metrics_url(self) -> str:
        return f"http://{self._address}:{self._webhook_metrics}/metrics"

    @property
    def metrics_url(self) -> str:
        """Of the reconciler that was started last."""
        return f"http://127.0.0.1:{self._metrics}/metrics"

    def read_metrics(self) -> str:
        """What a scraper gets of the reconciler that was started last."""
        with urllib.request.urlopen(self.metrics_url, timeout=120) as reply:
            return str(reply.read().decode())

    @property
    def health_url(self) -> str:
        """Of its probes."""
        return f"http://127.0.0.1:{self._health}"

    def start_webhook(self) -> None:
        files = ["--cert-file", str(self._dir / "tls.crt"), "--key-file", str(self._dir / "tls.key")]
        ports = ["--port", str(self._port), "--metrics-port", str(self._webhook_metrics)]
        self.webhook = self._spawn("webhook", ["--host", self._address, *ports, *files])
        self.webhook.wait_healthy(f"{self.webhook_url}/readyz")

    def register(self) -> None:
        """Tells the API server to ask the webhook, and what users may read."""
        bundle = base64.b64encode(self.ca_bundle).decode()
        for configuration in [*build_configurations(bundle, {"url": self.webhook_url}), *list_policies(KINDS)]:
            path = f"{path_of(configuration)}/{configuration['metadata']['name']}?fieldManager=e2e&force=true"
            self.cluster.api.patch(path, configuration, APPLY_PATCH)
        for role in load_roles():
            self.cluster.api.patch(f"{ROLES}/{role['metadata']['name']}?fieldManager=e2e&force=true", role, APPLY_PATCH)

    def register_conversion(self) -> None:
        """Makes the API server have objects converted by the webhook. Returns when it does so, a moment after it has taken the CRDs."""
        bundle = base64.b64encode(self.ca_bundle).decode()
        register_conversion(self.cluster.api, build_conversion(bundle, {"url": self.webhook_url}))
        wait_for("objects of v1beta1 to be converted", self._converts)

    def _converts(self) -> bool:
        """Whether a Workload of v1beta1 is taken, for trial only. Its CRD is the last of those with a webhook, and the API server acts on
        them in order."""
        containers = [{"name": "c", "image": "registry.example/c:1"}]
        spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}]}
        trial = {"apiVersion": OLD_API_VERSION, "kind": "Workload", "metadata": {"name": "trial"}, "spec": spec}
        path = f"/apis/{OLD_API_VERSION}/namespaces/{SYSTEM_NAMESPACE}/workloads?dryRun=All"
        try:
            self.cluster.api.create(path, trial)
        except ApiError as error:
            # Of the service that the CRD named before; or "apiserver is shutting down": the kind's store is made anew for its CRD.
            if error.status not in (500, 503):
                raise
            return False
        return True

    def kill_webhook(self) -> None:
        """SIGKILL, as a crash is."""
        assert self.webhook is not None
        self.webhook.stop(grace_s=0)
        self.webhook = None

    # --- reconciler -------------------------------------------------------------------------------------------------

    def start_reconciler(
        self, *, wait: bool = True, kubeconfig: Path | None = None, options: Sequence[str] = (), packages: Path | None = None
    ) -> None:
        """`kubeconfig` leads it past the API server's own address, to something that watches or cuts its connections; `packages` is a
        folder of others' packages."""
        # Another one may still run.
        self._metrics, self._health = find_free_ports(2)
        ports = ["--health-address", "127.0.0.1", "--metrics-port", str(self._metrics), "--health-port", str(self._health)]
        arguments = ["--namespace", SYSTEM_NAMESPACE, *ports, *self._leader_options, *options]
        self.reconciler = self._spawn("reconciler", arguments, kubeconfig, packages)
        self._reconcilers.append(self.reconciler)
        self._is_plain = kubeconfig is None and packages is None and not options
        deadline = time.monotonic() + START_TIMEOUT_S
        while wait and READY_MARK not in self.reconciler.log.read_text():
            if not self.reconciler.is_running or time.monotonic() > deadline:
                raise StartFailed(f"the reconciler did not come up; {self.reconciler.describe_log()}")
            time.sleep(0.02)

    def kill_reconciler(self) -> None:
        """SIGKILL, as a crash is."""
        assert self.reconciler is not None
        self.reconciler.stop(grace_s=0)
        self.reconciler = None

    def _spawn(self, part: str, arguments: list[str], kubeconfig: Path | None = None, packages: Path | None = None) -> Process:
        arguments = ["--kubeconfig", str(kubeconfig or self._kubeconfigs[part]), *arguments, *self._options]
        path = [str(ROOT), *([str(packages)] if packages is not None else [])]
        log, env = self.cluster.log_dir / f"topogate-{part}-{next(_starts)}.log", {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        copy = Copy(part, arguments, log, env) if self.are_copies and packages is None else None
        return Process(part, [sys.executable, "-m", part, *arguments], log, self._guard, env, copy)

    def _write_kubeconfig(self, part: str) -> Path:
        cluster = self.cluster
        return write_kubeconfig_of(part, cluster.api, SYSTEM_NAMESPACE, self._dir / f"{part}.kubeconfig", cluster.server, cluster.ca_file)


def load_roles() -> list[dict[str, Any]]:
    """The ClusterRoles for users, as they are shipped."""
    return [yaml.safe_load(path.read_text()) for path in sorted(ROLE_DIR.glob("*.yaml"))]


def build_managed_labels(labels: dict[str, str] | None = None) -> dict[str, str]:
    """Labels of a namespace in which every job is topogate's."""
    return {**(labels or {}), MANAGED_NAMESPACE_LABEL: "true"}

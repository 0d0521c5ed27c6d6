"""A real control plane for tests, demo and benchmarks: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok.

    with Cluster() as cluster:
        cluster.add_nodes(NodePool(blocks=2, racks=3, nodes=8))
        cluster.kubectl("apply", "-f", "-", input=manifest)

It starts in seconds on free ports of 127.0.0.1, in a temporary folder, with its own CA and tokens, and leaves nothing
behind. If a part dies at start the exception has the end of its log; if the `with` block fails the logs are kept.
`python -m e2e.cluster` leaves one running (see `e2e.standing`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from e2e import parts
from e2e.api import PATIENCE_S, STRATEGIC_PATCH, Api, wait_for
from e2e.audit.follow import Follower, Tell
from e2e.binaries import ensure_binaries
from e2e.nodes import NodePool, build_nodes, build_ready_condition, is_schedulable
from e2e.pki import write_kubeconfig, write_pki, write_tokens
from e2e.process import Guard, Process, find_free_ports

ADMIN = "admin"
MASTERS = "system:masters"
# Users the parts run as. Masters all: what is tested is topogate's rights, not those of Kubernetes' own parts.
PART_USERS = ("controller-manager", "scheduler", "kwok")
STOP_ORDER = ("kwok", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
GRACE_S = 5.0


class Cluster:
    """A sync context manager; starting blocks for a few seconds, which is fine in a fixture of an asyncio test too."""

    def __init__(
        self,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        users: Mapping[str, Sequence[str]] | None = None,
        apiserver_flags: Mapping[str, str] | None = None,
        controller_manager_flags: Mapping[str, str] | None = None,
        scheduler_flags: Mapping[str, str] | None = None,
        kwok_flags: Mapping[str, str] | None = None,
        guarded: bool = True,
        root: Path | None = None,
    ) -> None:
        """`users` maps further user names to their groups; their tokens are in `tokens`, kubeconfigs from `kubeconfig_for`.

        `guarded` ends the processes when this one ends in whatever way; only a cluster meant to outlive us goes without.
        """
        self._gates = dict(feature_gates or {})
        self._apiserver_extra = dict(apiserver_flags or {})
        self._controller_manager_extra = dict(controller_manager_flags or {})
        self._scheduler_extra = dict(scheduler_flags or {})
        self._kwok_extra = dict(kwok_flags or {})
        self._groups = {ADMIN: [MASTERS], **{user: [MASTERS] for user in PART_USERS}, **{u: list(g) for u, g in (users or {}).items()}}
        self.tokens = {user: secrets.token_hex(16) for user in self._groups}
        self._guarded = guarded
        self._given_root = root
        self._stack = contextlib.ExitStack()
        self._processes: dict[str, Process] = {}
        self._nodes: set[str] = set()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Cluster:
        self.binaries = ensure_binaries()
        root = self._given_root or Path(tempfile.mkdtemp(prefix="topogate-e2e-"))
        ports = parts.Ports(*find_free_ports(6))
        # Only what is guarded may have its data in memory: nobody takes that away after a cluster that outlives us.
        in_memory = parts.create_data_in_memory() if self._guarded else None
        self._layout = parts.Layout(root, ports, write_pki(root / "pki"), in_memory or root / "etcd")
        self._layout.logs.mkdir()
        self.api = Api(self.server, self.ca_file, self.token)
        write_tokens(self._layout.tokens, self.tokens, self._groups)
        for user in self.tokens:
            self.kubeconfig_for(user)
        parts.write_scheduler_config(self._layout)
        parts.write_stages(self._layout)
        self._guard = self._stack.enter_context(Guard()) if self._guarded else None
        if self._guard is not None:
            self._guard.remove_in_the_end(self._layout.data)
        try:
            self._spawn("etcd", parts.build_etcd_flags(self._layout)).wait_healthy(f"http://{parts.HOST}:{ports.etcd_client}/health")
            self.start_apiserver()
            self._spawn(
                "kube-controller-manager", parts.build_controller_manager_flags(self._layout, self._gates, self._controller_manager_extra)
            )
            self._spawn("kube-scheduler", parts.build_scheduler_flags(self._layout, self._gates, self._scheduler_extra))
            # Its home is the cluster's folder: a configuration of kwok's that the user has must not play a part here.
            self._spawn("kwok", parts.build_kwok_flags(self._layout, self._kwok_extra), env={**os.environ, "HOME": str(root)})
            self._processes["kube-controller-manager"].wait_healthy(f"https://{parts.HOST}:{ports.controller_manager}/healthz")
            self._processes["kube-scheduler"].wait_healthy(f"https://{parts.HOST}:{ports.scheduler}/readyz")
            self._processes["kwok"].wait_healthy(f"http://{parts.HOST}:{ports.kwok}/healthz")
            self.wait_for_namespace("default")
        except BaseException as error:
            self.stop(keep_logs=isinstance(error, Exception))
            raise
        return self

    def stop(self, *, keep_logs: bool = False) -> None:
        """End every process by its id and remove the folder; with `keep_logs` keep it and say where. Idempotent."""
        self.api.close()
        for name in STOP_ORDER:
            process = self._processes.pop(name, None)
            if process is not None:
                process.stop(grace_s=0)  # nothing is kept, so there is nothing to end gently
        self._stack.close()
        shutil.rmtree(self._layout.data, ignore_errors=True)
        if keep_logs:
            for path in self._layout.root.iterdir():
                if path != self.log_dir:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            print(f"the logs of the control plane are in {self.log_dir}", file=sys.stderr)
        else:
            shutil.rmtree(self._layout.root, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(keep_logs=kind is not None and not issubclass(kind, KeyboardInterrupt))

    def abandon(self) -> dict[str, int]:
        """Let an unguarded cluster run on after this process; its process ids by part."""
        if self._guarded:
            raise ValueError("a guarded cluster ends with this process")
        for process in self._processes.values():
            process.abandon()
        return self.pids

    # --- what clients need --------------------------------------------------------------------------------------------

    @property
    def server(self) -> str:
        return self._layout.server

    @property
    def ca_file(self) -> Path:
        return self._layout.pki.ca

    @property
    def token(self) -> str:
        """The admin's."""
        return self.tokens[ADMIN]

    @property
    def kubeconfig(self) -> Path:
        """The admin's."""
        return self._layout.kubeconfig(ADMIN)

    @property
    def log_dir(self) -> Path:
        return self._layout.logs

    @property
    def data_dir(self) -> Path:
        """etcd's: in memory where there is room for it."""
        return self._layout.data

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    @property
    def ended(self) -> list[str]:
        """The parts that were started and ended by themselves."""
        return [name for name, process in self._processes.items() if not process.is_running]

    def kubeconfig_for(self, user: str) -> Path:
        """The kubeconfig of one of `tokens`."""
        return write_kubeconfig(self._layout.kubeconfig(user), self.server, self.ca_file, self.tokens[user])

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a token of that service account, valid for the life of a test run: to run under real RBAC."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 24 * 3600}}
        token = str(self.api.create(path, body)["status"]["token"])
        return write_kubeconfig(self._layout.kubeconfig(f"sa-{namespace}-{name}"), self.server, self.ca_file, token)

    def add_user(self, user: str, groups: Sequence[str]) -> Path:
        """A further static user, and its kubeconfig. Restarts the API server, which reads its tokens only at start."""
        self._groups[user] = list(groups)
        self.tokens[user] = secrets.token_hex(16)
        write_tokens(self._layout.tokens, self.tokens, self._groups)
        self.restart_apiserver()
        return self.kubeconfig_for(user)

    def kubectl(self, *args: str, input: str | None = None, kubeconfig: Path | None = None, timeout_s: float = PATIENCE_S) -> str:
        """What kubectl printed, as the admin unless another `kubeconfig` is given; raises with its complaint if it failed."""
        # Its discovery cache goes with the cluster, and is not left in somebody's home.
        options: list[str | Path] = ["--cache-dir", self._layout.root / "kubectl-cache", "--kubeconfig", kubeconfig or self.kubeconfig]
        command: list[str | Path] = [self.binaries["kubectl"], *options, *args]
        done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(args)} failed with code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    # --- the API server under test ------------------------------------------------------------------------------------

    def start_apiserver(self, **extra: str) -> None:
        """Start it on its old port and data; `extra` flags (`watch_cache="false"`) hold until the next start."""
        flags = {**self._apiserver_extra, **{name.replace("_", "-"): value for name, value in extra.items()}}
        process = self._spawn("kube-apiserver", parts.build_apiserver_flags(self._layout, self._gates, flags))
        process.wait_healthy(f"{self.server}/readyz", headers={"Authorization": f"Bearer {self.token}"})

    def stop_apiserver(self, *, gracefully: bool = False) -> None:
        """Stop it, as a crash does or (gracefully, which open watches make last `GRACE_S`) as a roll-out does."""
        self._processes.pop("kube-apiserver").stop(grace_s=GRACE_S if gracefully else 0)

    def restart_apiserver(self, *, gracefully: bool = False, **extra: str) -> None:
        self.stop_apiserver(gracefully=gracefully)
        self.start_apiserver(**extra)

    def stop_part(self, name: str) -> None:
        """End one of the other processes for good, as `kube-scheduler`."""
        self._processes.pop(name).stop(grace_s=0)

    # --- nodes, namespaces --------------------------------------------------------------------------------------------

    def add_nodes(self, nodes: NodePool | Sequence[dict[str, Any]], timeout_s: float = PATIENCE_S) -> list[str]:
        """Create simulated nodes and wait until pods can be bound to each; their names in order."""
        objects = build_nodes(nodes) if isinstance(nodes, NodePool) else list(nodes)
        names = [node["metadata"]["name"] for node in objects]
        self._in_parallel("POST", (("/api/v1/nodes", node) for node in objects))
        self._nodes.update(names)

        def all_schedulable() -> bool:
            schedulable = {node["metadata"]["name"] for node in self.api.list("/api/v1/nodes") if is_schedulable(node)}
            return schedulable.issuperset(names)

        # Listing thousands of nodes costs the API server more than making them ready does.
        wait_for(f"{len(names)} nodes to be ready", all_schedulable, timeout_s, poll_s=max(0.05, len(names) / 1000))
        return names

    def delete_nodes(self, names: Iterable[str] | None = None) -> None:
        """Delete these nodes, or all that `add_nodes` made; pods on them are left to the garbage collector."""
        chosen = sorted(self._nodes if names is None else names)
        self._in_parallel("DELETE", ((f"/api/v1/nodes/{name}", None) for name in chosen))
        self._nodes.difference_update(chosen)

    def set_node_ready(self, name: str, ready: bool) -> None:
        """Make a node's Ready condition say so until this is called again: kwok leaves it alone, the controllers believe it."""
        status = {"conditions": [build_ready_condition(ready=ready)]}
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC_PATCH)

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """A namespace in which pods can be created: pods need the default service account, which a controller makes."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}})
        self.wait_for_namespace(name)

    def wait_for_namespace(self, name: str) -> None:
        wait_for(f"namespace {name}", lambda: self.api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"), poll_s=0.05)

    def delete_namespace(self, name: str, *, wait: bool = False) -> None:
        self.api.delete(f"/api/v1/namespaces/{name}")
        if wait:
            wait_for(f"namespace {name} to be gone", lambda: self.api.find(f"/api/v1/namespaces/{name}") is None)

    def follow(self, path: str, tell: Tell) -> Follower:
        """One that follows a collection, and has told of all that is there by now."""
        return Follower(self.server, self.ca_file, self.token, path, tell).start()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _spawn(self, name: str, flags: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        # A fifth of the API server's time was garbage collection, and 1600 takes 7 % less time than 400. It once had 4.6 GB then.
        environment = {"GOGC": "1600", "GOMEMLIMIT": "1536MiB", **(env or os.environ)}
        process = Process(name, [self.binaries[name], *flags], self.log_dir / f"{name}.log", self._guard, environment)
        self._processes[name] = process
        return process

    def _in_parallel(self, method: str, requests: Iterable[tuple[str, Any]]) -> None:
        def send(request: tuple[str, Any]) -> None:
            path, body = request
            if method == "DELETE":
                self.api.delete(path)
            else:
                self.api.request(method, path, body)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(send, requests))


if __name__ == "__main__":
    from e2e.standing import main

    sys.exit(main())

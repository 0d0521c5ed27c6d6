"""Operators that run: installed on a cluster by their own manifests, and started as local processes with the rights of these.

    with RunningOperator(cluster, built):
        cluster.api.create(...)

Webhooks are registered by the address of the process in place of a service. What a run has installed is taken away by `uninstall`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from certs.pki import issue_ca, issue_serving
from e2e.accounts import issue_token
from e2e.api import APPLY_PATCH, Api, wait_for
from e2e.cluster import Cluster
from e2e.crds import is_established, remove_crds
from e2e.manifests import get_path as path_of
from e2e.operators.build import Built, ensure_operators
from e2e.operators.catalogue import HOST, Operator, Place
from e2e.pki import write_kubeconfig
from e2e.process import Guard, Process, find_free_ports

Obj = dict[str, Any]
GRACE_S = 5.0
ROOT = Path(__file__).parents[2]
NAMESPACED = ("ServiceAccount", "Role", "RoleBinding", "ConfigMap")


class RunningOperator:
    """One operator beside a control plane. `is_guarded`: its process ends with this one in whatever way."""

    def __init__(self, cluster: Cluster, built: Built, *, is_guarded: bool = True) -> None:
        self.cluster, self.operator, self._built = cluster, built.operator, built
        folder = cluster.log_dir.parent / f"operator-{self.operator.name}"
        self._place = Place(folder, cluster.server, *find_free_ports(3))
        self._is_guarded = is_guarded
        self._stack = contextlib.ExitStack()
        self.process: Process | None = None
        self._companion: Process | None = None
        self.installed: list[Obj] = []

    def start(self) -> RunningOperator:
        """Returns once it is ready. Raises StartFailed."""
        place, operator = self._place, self.operator
        bundle = self._issue_certificate()
        prepared = prepare(self._built.read_manifests(), operator, f"https://{HOST}:{place.webhook}", bundle)
        self.installed = [*prepared, *operator.objects(place)]
        install(self.cluster.api, self.installed)
        if operator.configuration is not None:
            (place.folder / "config.json").write_text(json.dumps(operator.configuration(place)))
        self._write_kubeconfig(place.kubeconfig.name, operator.account)
        guard = self._stack.enter_context(Guard()) if self._is_guarded else None
        environment = {**os.environ, "TMPDIR": str(place.folder), **operator.environment(place)}
        if operator.companion:
            self._companion = self._start_companion(guard)
        log = self.cluster.log_dir / f"operator-{operator.name}.log"
        kubeconfig = f"--{operator.kubeconfig_flag}={place.kubeconfig}"  # also a mark by which the process is known as one of this cluster
        command: list[str | Path] = [self._built.program, kubeconfig, *operator.arguments(place)]
        self.process = Process(operator.name, command, log, guard, environment)
        try:
            self.process.wait_healthy(f"http://{HOST}:{place.health}/{operator.probe}")
        except BaseException:
            self.stop()
            raise
        return self

    def _start_companion(self, guard: Guard | None) -> Process:
        place, name = self._place, f"{self.operator.name}-companion"
        kubeconfig = self._write_kubeconfig("companion-kubeconfig", self.operator.companion_account or self.operator.account)
        command = [sys.executable, "-m", self.operator.companion, f"--kubeconfig={kubeconfig}", f"--port={place.webhook}"]
        process = Process(name, command, self.cluster.log_dir / f"{name}.log", guard, {**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            process.wait_healthy(f"http://{HOST}:{place.webhook}/healthz")
        except BaseException:
            process.stop(GRACE_S)
            raise
        return process

    def stop(self) -> None:
        """Ends its processes. What was installed stays, and its webhooks refuse all until it runs again."""
        for process in filter(None, (self.process, self._companion)):
            process.stop(GRACE_S)
        self.process = self._companion = None
        self._stack.close()

    def uninstall(self) -> None:
        """Takes its kinds with all of their objects away, its webhooks, rights and namespace."""
        api = self.cluster.api
        hooks = [obj for obj in self.installed if obj["kind"].endswith("WebhookConfiguration")]
        for obj in (*hooks, *(obj for obj in reversed(self.installed) if obj not in hooks)):
            if obj["kind"] != "CustomResourceDefinition":
                api.delete(f"{path_of(obj)}/{obj['metadata']['name']}")
        remove_crds(api, [obj["metadata"]["name"] for obj in self.installed if obj["kind"] == "CustomResourceDefinition"])

    def abandon(self) -> dict[str, int]:
        """Lets an unguarded process run on after this one; its id by name."""
        running = [process for process in (self.process, self._companion) if process is not None]
        for process in running:
            process.abandon()
        return {process.name: process.pid for process in running}

    def __enter__(self) -> RunningOperator:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _issue_certificate(self) -> str:
        """Writes the certificate of its webhooks; returns the bundle by which the API server knows it."""
        now = datetime.now(UTC)
        ca = issue_ca(f"{self.operator.name} e2e", now)
        serving = issue_serving(ca, [HOST, "localhost", f"*.{self.operator.namespace}.svc"], now)
        folder = self._place.certificates
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tls.crt").write_bytes(serving.certificate)
        (folder / "tls.key").write_bytes(serving.key)
        return base64.b64encode(ca.certificate).decode()

    def _write_kubeconfig(self, name: str, account: str) -> Path:
        """Writes a kubeconfig with a new token of a service account in the operator's namespace."""
        token = issue_token(self.cluster.api, self.operator.namespace, account)
        return write_kubeconfig(self._place.folder / name, self.cluster.server, self.cluster.ca_file, token)


def start_operators(cluster: Cluster, names: Iterable[str], *, is_guarded: bool = True, but: Collection[str] = ()) -> list[RunningOperator]:
    """Starts operators by name and those that they need, `but` for some that run; builds them where that is to be done. If one does not
    start, all are stopped."""
    started: list[RunningOperator] = []
    try:
        for built in ensure_operators(names):
            if built.operator.name not in but:
                started.append(RunningOperator(cluster, built, is_guarded=is_guarded).start())
    except BaseException:
        for running in reversed(started):
            running.stop()
        raise
    return started


def prepare(manifests: Sequence[Obj], operator: Operator, url: str, bundle: str) -> list[Obj]:
    """What is installed of an operator: all in its namespace, its webhooks at an address of this machine, no conversion by webhook."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": operator.namespace}}
    return [namespace, *(_prepare(obj, operator, url, bundle) for obj in manifests if obj["kind"] != "Namespace")]


def _prepare(obj: Obj, operator: Operator, url: str, bundle: str) -> Obj:
    if obj["kind"] in NAMESPACED:
        obj = {**obj, "metadata": {**obj["metadata"], "namespace": operator.namespace}}
    if obj["kind"] in ("RoleBinding", "ClusterRoleBinding"):
        subjects = [{**s, "namespace": operator.namespace} if s["kind"] == "ServiceAccount" else s for s in obj["subjects"]]
        return {**obj, "subjects": subjects}
    if obj["kind"].endswith("WebhookConfiguration"):
        hooks = [
            {**hook, "clientConfig": {"url": url + hook["clientConfig"]["service"]["path"], "caBundle": bundle}} for hook in obj["webhooks"]
        ]
        return {**obj, "webhooks": hooks}
    if obj["kind"] == "CustomResourceDefinition":  # each has one version that is served
        return {**obj, "spec": {**obj["spec"], "conversion": {"strategy": "None"}}}
    return obj


def install(api: Api, objects: Sequence[Obj]) -> None:
    """Applies objects, definitions first, and waits until their kinds are served."""
    crds = [obj for obj in objects if obj["kind"] == "CustomResourceDefinition"]
    for obj in (*crds, *(obj for obj in objects if obj["kind"] != "CustomResourceDefinition")):
        api.patch(f"{path_of(obj)}/{obj['metadata']['name']}?fieldManager=e2e-operators&force=true", obj, APPLY_PATCH)
    for crd in crds:
        name, spec = crd["metadata"]["name"], crd["spec"]
        wait_for(f"{name} to be established", partial(is_established, api, name))
        version = next(version["name"] for version in spec["versions"] if version["storage"])
        wait_for(f"{name} to be served", partial(api.find, f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"))

"""Webhook processes with certificates of their own beside the real control plane: with the chart's rights, found by a Service or by a URL.

Each has configurations of its own, for jobs of one namespace, so that nothing else in the cluster notices.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import ssl
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from certs.rotation import KINDS
from core.names import QUEUE_NAME_LABEL
from e2e import manifests
from e2e.accounts import read_rules
from e2e.api import APPLY_PATCH, JSON_PATCH, ApiError, wait_for
from e2e.cluster import Cluster
from e2e.crds import CRDS, load_crds, register_conversion
from e2e.process import Guard, Process, StartFailed, find_free_ports, trust_anybody
from e2e.warm import Copy
from webhook.registration import build_configurations, build_conversion

ROOT = Path(__file__).parents[2]
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT = SERVICE = "webhook"
SECRET = "certs"
GRACE_S = 10.0
CONVERTED = [crd["metadata"]["name"] for crd in load_crds() if crd["spec"]["conversion"]["strategy"] == "Webhook"]
Obj = dict[str, Any]


class Replicas:
    """Two webhooks. The mutating configuration sends to the first and the validating one to the second, so that a job asks both.

    With `converts` the CRDs' conversion asks the first. `by_url` has the API server call 127.0.0.1, else a Service, which is an external
    name: no proxy leads a Service's own address to a process of this machine.
    """

    def __init__(self, cluster: Cluster, namespace: str, *options: str, converts: bool = False, by_url: bool = False) -> None:
        self.cluster, self.api, self.namespace = cluster, cluster.api, namespace
        self.options, self._converts, self._by_url = options, converts, by_url
        self._guard = Guard()
        self.ports = find_free_ports(2)
        self.processes: list[Process] = []
        self.host = "127.0.0.1" if by_url else f"{SERVICE}.{namespace}.svc"

    # --- life ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Replicas:
        self._guard.__enter__()
        core = f"/api/v1/namespaces/{self.namespace}"
        self.api.create(f"{core}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port, "name": f"p{port}"} for port in self.ports]}
        self.api.create(f"{core}/services", {"metadata": {"name": SERVICE}, "spec": spec})
        for obj in self.registered():
            self.api.create(manifests.get_path(obj), obj)
        if self._converts:
            converting = build_conversion("", self._where(0))
            converting["webhook"]["clientConfig"] = strip_bundle(converting["webhook"]["clientConfig"])
            register_conversion(self.api, converting)
        self.grant()
        self._kubeconfig = self.cluster.kubeconfig_for_service_account(self.namespace, ACCOUNT)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._converts:
            register_conversion(self.api, None)
        for obj in self.registered():
            self.api.delete(f"{manifests.get_path(obj)}/{obj['metadata']['name']}")
        self.stop()
        for plural in ("clusterrolebindings", "clusterroles"):
            self.api.delete(f"{RBAC}/{plural}/{self.name}")
        self._guard.__exit__(kind, error, trace)

    def start(self, *, wait: bool = True) -> Replicas:
        """Both at once; with `wait`, until both are ready."""
        self.processes += [self._run(number) for number in range(2)]
        if wait:
            for number in range(2):
                self.wait_ready(number)
        return self

    def restart(self, number: int) -> None:
        """Another in the place of one that has ended."""
        self.processes[number] = self._run(number)
        self.wait_ready(number)

    def wait_ready(self, number: int) -> None:
        wait_for(f"webhook {number} to be ready", partial(self._is_ready, number))

    def _run(self, number: int) -> Process:
        served = ["--host=127.0.0.1", f"--port={self.ports[number]}", "--metrics-port=0"]
        arguments = [*served, f"--kubeconfig={self._kubeconfig}", *self._own(), *self.options]
        log = self.cluster.log_dir / f"own-certificates-{self.namespace}-{number}.log"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        copy = Copy("webhook", arguments, log, environment)
        return Process(f"webhook {number}", [sys.executable, "-m", "webhook", *arguments], log, self._guard, environment, copy)

    def stop(self) -> None:
        while self.processes:
            self.processes.pop().stop(GRACE_S)

    # --- what there is ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Of whatever is in no namespace."""
        return f"certs-{self.namespace}"

    @property
    def configurations(self) -> list[str]:
        """As the process is told them."""
        return [f"mutating/{self.name}", f"validating/{self.name}", *(f"crd/{name}" for name in CONVERTED if self._converts)]

    def registered(self) -> Iterable[Obj]:
        """Both configurations, for labelled jobs of the namespace, without any bundle: what an administrator's manifest says."""
        for number, letter in enumerate("mv"):
            whole = build_configurations("", self._where(number))[number]
            (hook,) = (hook for hook in whole["webhooks"] if hook["name"] == f"{letter}job.kb.io")
            only = {
                **hook,
                "name": f"{letter}job.{self.namespace}.example",
                "clientConfig": strip_bundle(hook["clientConfig"]),
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            }
            yield {**whole, "metadata": {"name": self.name}, "webhooks": [only]}

    def grant(self, *, but: str = "", only_get: str = "") -> None:
        """The chart's rights; `but` leaves those on one kind of object out, by the word of its file, and `only_get` those to write one."""
        rules: list[Obj] = list(read_rules("webhook"))
        for kind in KINDS:
            names = [one.partition("/")[2] for one in self.configurations if one.startswith(f"{kind}/")]
            if names and kind != but:
                narrowed = {"resourceNames": names, **({"verbs": ["get"]} if kind == only_get else {})}
                rules += [{**rule, **narrowed} for rule in read_rules(f"webhook-certificates-{kind}")]
        self._role("ClusterRole", f"{RBAC}/clusterroles", self.name, rules)
        secret = [
            rule if "create" in rule["verbs"] else {**rule, "resourceNames": [SECRET]} for rule in read_rules("webhook-certificates-secret")
        ]
        self._role("Role", f"{RBAC}/namespaces/{self.namespace}/roles", ACCOUNT, [] if but == "secret" else secret)

    def _role(self, kind: str, path: str, name: str, rules: list[Obj]) -> None:
        group = "rbac.authorization.k8s.io"
        account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": self.namespace}
        role: Obj = {"kind": kind, "rules": rules}
        binding: Obj = {"kind": f"{kind}Binding", "roleRef": {"apiGroup": group, "kind": kind, "name": name}, "subjects": [account]}
        for plural, obj in ((path, role), (path.removesuffix("s") + "bindings", binding)):
            whole = {"apiVersion": f"{group}/v1", "metadata": {"name": name}, **obj}
            self.api.patch(f"{plural}/{name}?fieldManager=e2e&force=true", whole, APPLY_PATCH)

    def _own(self) -> list[str]:
        where = [f"--cert-secret={SECRET}", f"--cert-namespace={self.namespace}", f"--cert-dns-name={self.host}"]
        return ["--cert-mode=own", *where, *(f"--cert-configuration={one}" for one in self.configurations)]

    def _where(self, number: int) -> Obj:
        if self._by_url:
            return {"url": f"https://{self.host}:{self.ports[number]}"}
        return {"service": {"namespace": self.namespace, "name": SERVICE, "port": self.ports[number]}}

    # --- what they say and do -----------------------------------------------------------------------------------------

    def readiness(self, number: int) -> str:
        """What `/readyz` says; empty when nobody answers."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.ports[number], timeout=120, context=trust_anybody())
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/readyz")
                return connection.getresponse().read().decode()
            except OSError:
                return ""

    def are_ready(self) -> bool:
        return all(self._is_ready(number) for number in range(2))

    def _is_ready(self, number: int) -> bool:
        if not self.processes[number].is_running:
            raise StartFailed(f"webhook {number} has ended; {self.processes[number].describe_log()}")
        return self.readiness(number) == "ok"

    def served(self, number: int) -> bytes:
        """The certificate that a client is shown, PEM."""
        return ssl.get_server_certificate(("127.0.0.1", self.ports[number])).encode()

    def lines(self, message: str, *numbers: int) -> list[Obj]:
        """Lines with this message in the logs of both, or of these."""
        logs = [self.processes[number].log.read_text() for number in numbers or (0, 1)]
        told = (json.loads(line) for log in logs for line in log.splitlines() if f'"{message}"' in line)
        return [line for line in told if line["message"] == message]

    def step_times(self, reason: str) -> list[str]:
        """When one of them has taken a step of the rotation for this reason, in order."""
        return sorted(line["time"] for line in self.lines("certificates rotated a step") if line["reason"] == reason)

    def handshakes(self, number: int) -> Counter[str]:
        """How many there were, by what `compute_digest` makes of the certificate. Only with --log-level DEBUG."""
        return Counter(line["certificate"] for line in self.lines("handshake", number))

    # --- the Secret and the bundles -----------------------------------------------------------------------------------

    @property
    def secret_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets/{SECRET}"

    def secret(self) -> dict[str, bytes]:
        found = self.api.find(self.secret_path) or {}
        return {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}

    def rotate(self) -> None:
        """Asks for a new CA, as an administrator does."""
        words = ("annotate", "--namespace", self.namespace, "secret", SECRET, "topogate.dev/rotate-ca=now")
        self.cluster.kubectl(*words)

    def bundles(self) -> dict[str, bytes]:
        """The one of each configuration, and of each CRD."""
        return {one: self._bundle(one) for one in self.configurations}

    def _bundle(self, one: str) -> bytes:
        kind, _, name = one.partition("/")
        if kind == "crd":
            config = self.api.get(f"{CRDS}/{name}")["spec"]["conversion"]["webhook"]["clientConfig"]
        else:
            (hook,) = self.api.get(f"{REGISTRATIONS}/{KINDS[kind].plural}/{name}")["webhooks"]
            config = hook["clientConfig"]
        return base64.b64decode(config.get("caBundle", ""))

    def edit_bundle(self, one: str, bundle: bytes | None) -> None:
        """By hand; None takes the field away."""
        kind, _, name = one.partition("/")
        base = f"{CRDS}/{name}" if kind == "crd" else f"{REGISTRATIONS}/{KINDS[kind].plural}/{name}"
        path = "/spec/conversion/webhook/clientConfig/caBundle" if kind == "crd" else "/webhooks/0/clientConfig/caBundle"
        edit: Obj = {"op": "remove", "path": path}
        if bundle is not None:
            edit = {"op": "replace", "path": path, "value": base64.b64encode(bundle).decode()}
        self.api.patch(base, [edit], JSON_PATCH)

    def is_at_rest(self) -> bool:
        """One CA, in every configuration, and its leaf in the Secret."""
        secret = self.secret()
        marks = {"next.crt", "retiring.crt"} & set(secret)
        return "trusted-since" in secret and not marks and set(self.bundles().values()) == {secret["signer.crt"]}

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def job(self) -> Obj:
        """One that both webhooks are asked about."""
        made = manifests.build_job("any", self.namespace, pods=1)
        metadata = {key: value for key, value in made["metadata"].items() if key != "name"}
        assert QUEUE_NAME_LABEL in metadata["labels"]
        return {**made, "metadata": {**metadata, "generateName": "any-"}}

    def why_no_job(self) -> str:
        """What the API server says against a job; empty where it would take it, as mutated by us."""
        job = self.job()
        try:
            taken = self.api.create(f"{manifests.get_path(job)}?dryRun=All", job)
        except ApiError as error:
            return str(error)
        return "" if taken["spec"]["suspend"] else "it was not suspended"


def compute_digest(certificate: bytes) -> str:
    """As the log has it."""
    return hashlib.sha256(certificate).hexdigest()[:16]


def strip_bundle(config: Obj) -> Obj:
    """A clientConfig as an administrator writes it."""
    return {key: value for key, value in config.items() if key != "caBundle"}

"""A release of the chart on a real control plane, and the processes of its Deployments beside it."""

from __future__ import annotations

import base64
import itertools
import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from certs import pki
from core.names import GROUP
from e2e.api import wait_for
from e2e.cluster import Cluster
from e2e.crds import is_established, load_crds
from e2e.pods import Image, PodProcess
from e2e.process import Guard, StartFailed, find_free_ports
from e2e.topogate import READY_MARK
from tests.chart.helm import CHART, find_one, render, run_helm

Obj = dict[str, Any]
_numbers = itertools.count(1)


class Release:
    """Helm's words for one release, and what kubelets would do for it. A context manager: its processes end with it, the release stays.

    `image`: what its pods run in, if not the machine's own root.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, name: str = "topogate", namespace: str = "topogate-system", image: Image | None = None
    ) -> None:
        self.cluster, self.api, self._image = cluster, cluster.api, image
        self.name, self.namespace = name, namespace
        self._folder = folder
        self._guard = Guard()
        self.pods: dict[str, PodProcess] = {}
        if self.api.find(f"/api/v1/namespaces/{namespace}") is None:
            cluster.create_namespace(namespace)
        self._port, *self._plain = find_free_ports(5)
        self.service: str = find_one(render(folder, release=name, namespace=namespace), "Service", "-webhook")["metadata"]["name"]

    def __enter__(self) -> Release:
        self._guard.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(grace_s=0)
        self._guard.__exit__(kind, error, trace)

    # --- Helm -------------------------------------------------------------------------------------------------------

    def helm(self, *words: str | Path) -> str:
        """What it says."""
        return run_helm(*words, "--namespace", self.namespace, "--kubeconfig", self.cluster.kubeconfig)

    def apply(self, verb: str, chart: Path, values: Obj, *flags: str, has_crds: bool = True) -> str:
        """`install` or `upgrade`; what Helm says. Returns when the API server serves the CRDs, unless nobody has installed any."""
        path = self._folder / f"values-{next(_numbers)}.json"
        path.write_text(json.dumps(values))
        said = self.helm(verb, self.name, chart, "--values", path, *flags)
        own = [crd for crd in load_crds() if chart == CHART or crd["spec"]["group"] == GROUP]  # a predecessor has no others
        for crd in own if has_crds else ():
            wait_for(f"{crd['metadata']['name']} to be served", partial(is_established, self.api, crd["metadata"]["name"]))
        return said

    def values(self, **more: Any) -> Obj:
        """Ports that are free here, and a certificate of ours for the Service that this release has."""
        at = datetime.now(UTC)
        ca = pki.issue_ca("test of the chart", at)
        serving = pki.issue_serving(ca, [f"{self.service}.{self.namespace}.svc"], at)
        data = {"tls.crt": serving.certificate, "tls.key": serving.key}
        secrets = f"/api/v1/namespaces/{self.namespace}/secrets"
        self.api.delete(f"{secrets}/provided")
        self.api.create(
            secrets,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "provided"},
                "type": "kubernetes.io/tls",
                "data": {name: base64.b64encode(content).decode() for name, content in data.items()},
            },
        )
        certs = {"mode": "provided", "existingSecret": "provided", "caBundle": ca.certificate.decode()}
        scraped, probed, of_reconciler, health = self._plain
        ports = {
            "webhook": {"metricsPort": scraped, "healthPort": probed},
            "reconciler": {"metricsPort": of_reconciler, "healthPort": health},
        }
        both = {component: told | more.pop(component, {}) for component, told in ports.items()}
        return {"certs": certs, "webhookService": {"ports": [{"port": self._port, "targetPort": self._port}]}, **both, **more}

    # --- what a node would do ---------------------------------------------------------------------------------------

    def run(self, *components: str) -> None:
        """Starts a pod of each Deployment, one after the other, in place of one that runs, and waits until it is ready."""
        for component in components or ("webhook", "reconciler"):
            if component in self.pods:
                self.pods.pop(component).stop()
            pod = self.start(component)
            if component == "webhook":
                self._route()
                pod.process.wait_healthy(pod.url("readinessProbe"))
            else:
                wait_for("the reconciler to lead", partial(_is_leader, pod))
                if "readinessProbe" in pod.probes:
                    pod.process.wait_healthy(pod.url("readinessProbe"))

    def start(self, component: str) -> PodProcess:
        """Its pod, ready or not."""
        deployment = self.api.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self._name_of(component)}")
        pod = PodProcess(self.api, self.cluster.server, self.cluster.ca_file, deployment, self._folder, self._guard, self._image)
        self.pods[component] = pod
        return pod

    def stop(self, grace_s: float | None = None) -> None:
        """Ends all pods."""
        for component in list(self.pods):
            self.pods.pop(component).stop(grace_s)

    def _route(self) -> None:
        """There is no proxy that would lead the Service's address to a pod: the API server is told its name instead, and asks for the
        same certificate."""
        path = f"/api/v1/namespaces/{self.namespace}/services/{self.service}"
        self.api.patch(path, {"spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": None, "clusterIPs": None}})

    def _name_of(self, component: str) -> str:
        return self.service.removesuffix("webhook") + component


def _is_leader(pod: PodProcess) -> bool:
    if not pod.process.is_running:
        raise StartFailed(f"{pod.name} has ended; {pod.process.describe_log()}")
    return READY_MARK in pod.log

"""Installs operators, and waits until each of them works."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from e2e.api import Api, wait_for
from e2e.crds import CRDS
from e2e.kind.cluster import KindCluster
from e2e.kind.operators import Chart, Manifests, Operator
from e2e.kind.tools import HELM, ensure_tool, run

AVAILABLE_TIMEOUT_S = 600.0


def install(cluster: KindCluster, operators: Iterable[Operator], folder: Path) -> None:
    """The workers are closed meanwhile, so that operators stay off them."""
    cluster.cordon(True)
    for operator in operators:
        print(f"installing {operator.name} {operator.version} ...", flush=True)
        if isinstance(operator.source, Chart):
            _install_chart(cluster, operator.name, operator.source, folder)
        else:
            home = write_kustomization(operator.source, folder / operator.name)
            # Server-side: their CRDs are larger than the annotation of a client-side apply may be.
            cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(home))
        wait_until_available(cluster.api, operator)
        for image in operator.images:
            print(f"loading {image} ...", flush=True)
            cluster.load_image(image)
    cluster.cordon(False)


def write_kustomization(source: Manifests, home: Path) -> Path:
    """A kustomization of what is at the address, with its patches; its folder."""
    home.mkdir(parents=True)
    made = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [source.address],
        "patches": [dict(patch) for patch in source.patches],
    }
    (home / "kustomization.yaml").write_text(yaml.safe_dump(made))
    return home


def _install_chart(cluster: KindCluster, name: str, chart: Chart, folder: Path) -> None:
    values = folder / f"{name}-values.json"
    values.write_text(json.dumps(chart.values))
    run([ensure_tool(HELM), *build_chart_arguments(name, chart, values), "--kubeconfig", cluster.kubeconfig])


def build_chart_arguments(name: str, chart: Chart, values: Path) -> list[str]:
    """What Helm is told."""
    repository = ["--repo", chart.repository] if chart.repository else []
    place = ["--namespace", chart.namespace, "--create-namespace"]
    waiting = ["--wait", "--timeout", f"{AVAILABLE_TIMEOUT_S:.0f}s"]
    return ["upgrade", "--install", name, chart.name, *repository, "--version", chart.version, *place, *waiting, "--values", str(values)]


def wait_until_available(api: Api, operator: Operator) -> None:
    """Its kinds are served and its controllers are available; webhooks answer from then on."""
    for crd in operator.crds:
        wait_for(f"{crd} to be served", partial(has_condition, api, f"{CRDS}/{crd}", "Established"), AVAILABLE_TIMEOUT_S)
    for namespace, name in operator.deployments:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        wait_for(f"{namespace}/{name} to be available", partial(has_condition, api, path, "Available"), AVAILABLE_TIMEOUT_S)


def has_condition(api: Api, path: str, kind: str) -> bool:
    found: Mapping[str, Any] = api.find(path) or {}
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)

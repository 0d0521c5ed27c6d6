"""The visibility API of a running topogate, registered with the API server as the chart does it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from certs import pki
from e2e.api import Api, wait_for
from e2e.process import find_free_ports
from e2e.topogate import SYSTEM_NAMESPACE, Topogate
from reconciler.visibility.api_documents import GROUP

NAME, SERVICE = f"v1beta2.{GROUP}", "topogate-visibility"
API_SERVICES, SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/services"


@contextmanager
def registered(running: Topogate, folder: Path) -> Iterator[None]:
    """The reconciler with the visibility API, which the API server reaches by a name: there is no network of Services."""
    api, (port,) = running.cluster.api, find_free_ports(1)
    ca = pki.issue_ca("visibility", datetime.now(UTC))
    pair = pki.issue_serving(ca, [f"{SERVICE}.{SYSTEM_NAMESPACE}.svc"], datetime.now(UTC))
    files = _write_pair(folder, pair)
    running.kill_reconciler()
    running.start_reconciler(options=["--visibility-port", str(port), *files])
    spec: dict[str, Any] = {"type": "ExternalName", "externalName": "localhost"}
    api.create(SERVICES, {"metadata": {"name": SERVICE}, "spec": spec})
    spec = {
        "group": GROUP,
        "version": "v1beta2",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "caBundle": base64.b64encode(ca.certificate).decode(),
        "service": {"namespace": SYSTEM_NAMESPACE, "name": SERVICE, "port": port},
    }
    api.create(API_SERVICES, {"metadata": {"name": NAME}, "spec": spec})
    try:
        wait_for("the visibility API to be available", lambda: _is_available(api))
        yield
    finally:
        # First, as an administrator does: namespaces are not deleted while a group is not served.
        api.delete(f"{API_SERVICES}/{NAME}")
        api.delete(f"{SERVICES}/{SERVICE}")
        wait_for("the group to be gone", lambda: api.find(f"/apis/{GROUP}") is None)


def _is_available(api: Api) -> bool:
    conditions = (api.find(f"{API_SERVICES}/{NAME}") or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


def _write_pair(folder: Path, pair: pki.KeyPair) -> list[str]:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return ["--visibility-cert-file", str(folder / "tls.crt"), "--visibility-key-file", str(folder / "tls.key")]

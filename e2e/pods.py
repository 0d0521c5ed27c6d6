"""A Deployment's pod as a process beside the control plane, since nodes of kwok run nothing.

It gets the arguments, the environment, the files, the user and the service account's token of the pod, and sees them where the pod
would: what is tried is what the Deployment says, not what a test thinks that it says.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.api import Api
from e2e.process import Guard, Process

ROOT = Path(__file__).parent.parent
ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
NO_USER = 65534
Obj = dict[str, Any]
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Image:
    """An image that was unpacked: its root file system, and the environment that it says."""

    root: Path
    environment: Mapping[str, str]


class PodProcess:
    """The first pod of a Deployment that is in the cluster. `folder` keeps its files and its log.

    Without an image it runs in the machine's own root, with this Python and this checkout.
    """

    def __init__(
        self, api: Api, server: str, ca_file: Path, deployment: Obj, folder: Path, guard: Guard | None, image: Image | None = None
    ) -> None:
        self._api, self._ca_file, self._image = api, ca_file, image
        self._host, _, self._port = server.removeprefix("https://").rpartition(":")
        self.namespace: str = deployment["metadata"]["namespace"]
        self.name = f"{deployment['metadata']['name']}-{next(_numbers)}"
        self._pod: Obj = deployment["spec"]["template"]["spec"]
        (self._container,) = self._pod["containers"]
        self._folder = folder / self.name
        self._folder.mkdir(parents=True)
        (self._folder / "root").mkdir()
        (self._folder / "pod.json").write_text(json.dumps(self._spec()))
        command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m", "e2e.pod_root", str(self._folder / "pod.json")]
        self.process = Process(
            self.name, command, self._folder / "log", guard, {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **_QUIET}
        )

    @property
    def log(self) -> str:
        return self.process.log.read_text(errors="replace")

    def stop(self, grace_s: float | None = None) -> None:
        """As a kubelet does: politely, within the grace period of the pod unless another is given."""
        self.process.stop(float(self._pod["terminationGracePeriodSeconds"]) if grace_s is None else grace_s)

    @property
    def probes(self) -> set[str]:
        """Which the pod has, by their fields."""
        return {name for name in self._container if name.endswith("Probe")}

    def url(self, probe: str) -> str:
        """Where the kubelet would ask a probe: `readinessProbe` or `livenessProbe`."""
        asked = self._container[probe]["httpGet"]
        (port,) = (one["containerPort"] for one in self._container["ports"] if asked["port"] in (one["name"], one["containerPort"]))
        return f"{asked.get('scheme', 'HTTP').lower()}://127.0.0.1:{port}{asked['path']}"

    def _spec(self) -> Obj:
        return {
            "root": str(self._folder / "root"),
            "image": self._image and str(self._image.root),
            "command": [*self._container["command"], *self._container.get("args", ())],
            "environment": self._environment(),
            "user": self._pod["securityContext"].get("runAsUser", NO_USER),
            "volumes": [*self._volumes(), *self._account()],
        }

    def _environment(self) -> dict[str, str]:
        """The image's, then what Kubernetes adds, then the pod's own."""
        here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), **_QUIET}
        image = dict(self._image.environment) if self._image else here
        said = {"KUBERNETES_SERVICE_HOST": self._host, "KUBERNETES_SERVICE_PORT": self._port}
        return image | said | {one["name"]: self._value(one) for one in self._container.get("env", ())}

    def _value(self, variable: Obj) -> str:
        if "value" in variable:
            return str(variable["value"])
        known = {"metadata.name": self.name, "metadata.namespace": self.namespace, "status.podIP": self._host, "spec.nodeName": "kwok"}
        return known[variable["valueFrom"]["fieldRef"]["fieldPath"]]

    def _volumes(self) -> list[Obj]:
        volumes = {volume["name"]: volume for volume in self._pod.get("volumes", ())}
        return [
            {"from": str(self._fill(volumes[mount["name"]])), "at": mount["mountPath"], "read_only": mount.get("readOnly", False)}
            for mount in self._container.get("volumeMounts", ())
        ]

    def _fill(self, volume: Obj) -> Path:
        """The folder of a volume: a Secret's, a ConfigMap's, or an empty one."""
        files: dict[str, bytes] = {}
        core = f"/api/v1/namespaces/{self.namespace}"
        if "secret" in volume:
            data = self._api.get(f"{core}/secrets/{volume['secret']['secretName']}")["data"]
            files = {name: base64.b64decode(value) for name, value in data.items()}
        elif "configMap" in volume:
            data = self._api.get(f"{core}/configmaps/{volume['configMap']['name']}")["data"]
            files = {name: value.encode() for name, value in data.items()}
        elif "emptyDir" not in volume:
            raise ValueError(f"volume {volume}: only Secrets, ConfigMaps and empty ones are known here")
        return self._write(volume["name"], files)

    def _account(self) -> list[Obj]:
        if not self._pod.get("automountServiceAccountToken", True):
            return []
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self._pod['serviceAccountName']}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3607}}
        token = str(self._api.create(path, body)["status"]["token"])
        files = {"token": token.encode(), "ca.crt": self._ca_file.read_bytes(), "namespace": self.namespace.encode()}
        return [{"from": str(self._write("service-account", files)), "at": ACCOUNT_MOUNT, "read_only": True}]

    def _write(self, name: str, files: dict[str, bytes]) -> Path:
        folder = self._folder / "volumes" / name
        folder.mkdir(parents=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        return folder


# The machine's own files are read-only in there.
_QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}

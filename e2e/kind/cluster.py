"""A cluster that kind makes, with the face of `e2e.cluster.Cluster`: scenes and `Topogate` do not know which they are in.

The API server runs in a container, and topogate on this machine. It is reached by the gateway of the containers' network,
which on Linux is an address of this machine.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e.api import Api, wait_for
from e2e.cluster import Cluster
from e2e.kind.nodes import NODE_IMAGE, OPERATORS_LABEL, POOL_LABEL, build_config, build_places
from e2e.kind.tools import KIND, ToolFailed, ensure_kubectl, ensure_tool, run
from e2e.nodes import NodePool, is_schedulable
from e2e.pki import write_kubeconfig

NETWORK = "kind"
ACCOUNT_NAMESPACE, ACCOUNT = "kube-system", "topogate-e2e"
TOKEN_DURATION = "12h"
ROLE_LABEL = next(iter(OPERATORS_LABEL))
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"


class KindCluster(Cluster):
    """Its nodes are there from the start: adding a pool gives as many workers the pool's labels and resources."""

    def __init__(self, *, keep: bool = False) -> None:
        super().__init__()
        self.name = f"topogate-{secrets.token_hex(3)}"
        self._keep = keep
        self._token = ""
        self._server = ""

    # --- life -----------------------------------------------------------------------------------------------------------

    def start(self) -> KindCluster:
        self._kind = ensure_tool(KIND)
        self._kubectl = ensure_kubectl()
        self._root = Path(tempfile.mkdtemp(prefix="topogate-kind-"))
        self.log_dir.mkdir()
        path = self._root / "kind.yaml"
        path.write_text(yaml.safe_dump(build_config()))
        try:
            create: list[str | Path] = [
                "create",
                "cluster",
                "--name",
                self.name,
                "--config",
                path,
                "--kubeconfig",
                self._root / "kind.kubeconfig",
            ]
            run([self._kind, *create, "--image", NODE_IMAGE, "--wait", "5m"])
            self._become_admin()
            self.wait_for_namespace("default")
            self._all_schedulable()
        except BaseException as error:
            self.stop(keep_logs=isinstance(error, Exception))
            raise
        return self

    def stop(self, *, keep_logs: bool = False) -> None:
        """Deletes the containers, unless they are to be kept."""
        if hasattr(self, "api"):
            self.api.close()
        if self._keep:
            print(f"kept: export KUBECONFIG={self._root / 'kind.kubeconfig'}", file=sys.stderr)
            print(f"to delete it: {self._kind} delete cluster --name {self.name}; rm -r {self._root}", file=sys.stderr)
            return
        if keep_logs:
            with contextlib.suppress(ToolFailed):  # there may be no container that has any
                run([self._kind, "export", "logs", self.log_dir, "--name", self.name])
            print(f"the logs of the nodes and of topogate are in {self.log_dir}", file=sys.stderr)
        run([self._kind, "delete", "cluster", "--name", self.name])
        if not keep_logs:
            shutil.rmtree(self._root, ignore_errors=True)

    def _become_admin(self) -> None:
        """kind's kubeconfig has a client certificate; what reaches the API server from here has a token."""
        kubeconfig = yaml.safe_load((self._root / "kind.kubeconfig").read_text())
        cluster = kubeconfig["clusters"][0]["cluster"]
        self._server = str(cluster["server"])
        self.ca_file.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        kubectl: list[str | Path] = [self._kubectl, "--kubeconfig", self._root / "kind.kubeconfig", "--namespace", ACCOUNT_NAMESPACE]
        account = f"{ACCOUNT_NAMESPACE}:{ACCOUNT}"
        run([*kubectl, "create", "serviceaccount", ACCOUNT])
        run([*kubectl, "create", "clusterrolebinding", ACCOUNT, "--clusterrole=cluster-admin", f"--serviceaccount={account}"])
        self._token = run([*kubectl, "create", "token", ACCOUNT, f"--duration={TOKEN_DURATION}"]).strip()
        self.api = Api(self.server, self.ca_file, self.token)
        write_kubeconfig(self.kubeconfig, self.server, self.ca_file, self.token)

    # --- what clients need ----------------------------------------------------------------------------------------------

    @property
    def server(self) -> str:
        return self._server

    @property
    def ca_file(self) -> Path:
        return self._root / "ca.crt"

    @property
    def token(self) -> str:
        return self._token

    @property
    def kubeconfig(self) -> Path:
        return self._root / "admin.kubeconfig"

    @property
    def log_dir(self) -> Path:
        return self._root / "logs"

    def kubectl(self, *args: str, input: str | None = None, kubeconfig: Path | None = None, timeout_s: float = 900.0) -> str:
        """As an administrator; what it applies may have to be fetched."""
        if input is not None:
            raise ValueError("what is applied here is in files")
        return run([self._kubectl, "--kubeconfig", kubeconfig or self.kubeconfig, *args], timeout_s)

    def address_of_host(self) -> str:
        """This machine, as the nodes see it."""
        return find_gateway(run(["docker", "network", "inspect", NETWORK]))

    def load_image(self, image: str) -> None:
        """Pulls it once and gives it to every node, which each would pull it else while a scene waits."""
        run(["docker", "pull", "--quiet", image], timeout_s=3600)
        run([self._kind, "load", "docker-image", image, "--name", self.name], timeout_s=3600)

    # --- nodes ----------------------------------------------------------------------------------------------------------

    def workers(self) -> list[dict[str, Any]]:
        """Nodes of scenes, in the order of the configuration."""
        found = self.api.list("/api/v1/nodes")
        mine = [node for node in found if not {ROLE_LABEL, CONTROL_PLANE_LABEL} & set(node["metadata"]["labels"])]
        # kind counts them: ...-worker, ...-worker2, ...-worker10.
        return sorted(mine, key=lambda node: (len(node["metadata"]["name"]), node["metadata"]["name"]))

    def add_nodes(self, nodes: NodePool | Sequence[dict[str, Any]], timeout_s: float = 60.0) -> list[str]:
        """Makes workers nodes of a pool; their names. GPUs are extended resources that nobody checks."""
        if not isinstance(nodes, NodePool):
            raise TypeError("nodes of a kind cluster are known by their pool alone")
        labels, workers = build_places(nodes), self.workers()
        if len(labels) > len(workers):
            raise ValueError(f"a scene wants {len(labels)} nodes, and there are {len(workers)} workers")
        extended = {name: amount for name, amount in nodes.allocatable.items() if "/" in name}
        names = [str(worker["metadata"]["name"]) for worker in workers]
        for name, own in zip(names, labels, strict=False):
            self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": own}})
            self.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": extended, "allocatable": extended}})
        for name in names[len(labels) :]:
            self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {POOL_LABEL: None}}})
        self._all_schedulable(timeout_s)
        return names[: len(labels)]

    def delete_nodes(self, names: Iterable[str] | None = None) -> None:
        """Workers outlive the scenes."""

    def cordon(self, closed: bool) -> None:
        """Closes the workers to new pods, or opens them."""
        for worker in self.workers():
            self.api.patch(f"/api/v1/nodes/{worker['metadata']['name']}", {"spec": {"unschedulable": closed}})

    def _all_schedulable(self, timeout_s: float = 300.0) -> None:
        def look() -> bool:
            return all(is_schedulable(node) for node in self.api.list("/api/v1/nodes"))

        wait_for("all nodes to be ready", look, timeout_s)


def find_gateway(inspected: str) -> str:
    """The IPv4 gateway in what `docker network inspect` says."""
    for network in json.loads(inspected):
        for block in (network.get("IPAM") or {}).get("Config") or ():
            found = str(block.get("Gateway") or "")
            if found and ":" not in found:
                return found
    raise ValueError("the containers' network has no IPv4 gateway")

"""The files that a cluster's processes trust each other by, written into its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.pki import issue_ca, issue_serving

SERVER_NAMES = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc", "10.96.0.1"]


@dataclass(frozen=True)
class Files:
    """Paths only; everything lies in one folder that only the owner may read."""

    ca: Path
    server_cert: Path
    server_key: Path
    service_account_key: Path
    service_account_public_key: Path


def write_pki(folder: Path) -> Files:
    """A new CA, the API server's certificate, and the key that signs service account tokens."""
    folder.mkdir(mode=0o700, parents=True)
    at = datetime.now(UTC)
    ca = issue_ca("topogate-e2e", at)
    server = issue_serving(ca, SERVER_NAMES, at)
    key = ec.generate_private_key(ec.SECP256R1())
    files = Files(
        folder / "ca.crt", folder / "server.crt", folder / "server.key", folder / "service-account.key", folder / "service-account.pub"
    )
    files.ca.write_bytes(ca.certificate)
    files.server_cert.write_bytes(server.certificate)
    files.server_key.write_bytes(server.key)
    files.service_account_key.write_bytes(
        # The controller manager reads this key by its traditional header only.
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    )
    files.service_account_public_key.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return files


def write_kubeconfig(path: Path, server: str, ca_file: Path, token: str) -> Path:
    """A kubeconfig for one token; JSON, which every reader of YAML takes."""
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "e2e",
                "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority": str(ca_file)}}],
                "users": [{"name": "e2e", "user": {"token": token}}],
                "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
            },
            indent=1,
        )
    )
    path.chmod(0o600)
    return path


def read_kubeconfig(path: Path) -> tuple[str, Path, str]:
    """Server, CA file and token of a kubeconfig that `write_kubeconfig` has written."""
    read = json.loads(path.read_text())
    cluster, user = read["clusters"][0]["cluster"], read["users"][0]["user"]
    return cluster["server"], Path(cluster["certificate-authority"]), user["token"]


def write_tokens(path: Path, tokens: Mapping[str, str], groups: Mapping[str, Sequence[str]]) -> None:
    """The API server's static token file: token, user, uid, groups."""
    path.write_text("".join(f'{token},{user},{user},"{",".join(groups[user])}"\n' for user, token in tokens.items()))
    path.chmod(0o600)

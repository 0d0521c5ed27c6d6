"""The files that a cluster's processes trust each other by, written into its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.pki import KeyPair, issue_ca, issue_serving

SERVER_NAMES = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc", "10.96.0.1"]
FRONT_PROXY_NAME = "front-proxy-client"


@dataclass(frozen=True)
class Files:
    """Paths only; everything lies in one folder that only the owner may read."""

    ca: Path
    server_cert: Path
    server_key: Path
    service_account_key: Path
    service_account_public_key: Path
    front_proxy_ca: Path
    front_proxy_cert: Path
    front_proxy_key: Path


def write_pki(folder: Path) -> Files:
    """A new CA, the API server's certificate, and the key that signs service account tokens."""
    folder.mkdir(mode=0o700, parents=True)
    at = datetime.now(UTC)
    ca = issue_ca("topogate-e2e", at)
    server = issue_serving(ca, SERVER_NAMES, at)
    key = ec.generate_private_key(ec.SECP256R1())
    files = Files(
        folder / "ca.crt",
        folder / "server.crt",
        folder / "server.key",
        folder / "service-account.key",
        folder / "service-account.pub",
        folder / "front-proxy-ca.crt",
        folder / "front-proxy.crt",
        folder / "front-proxy.key",
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
    front_proxy_ca = issue_ca("topogate-e2e-front-proxy", at)
    front_proxy = issue_client(front_proxy_ca, FRONT_PROXY_NAME, at)
    files.front_proxy_ca.write_bytes(front_proxy_ca.certificate)
    files.front_proxy_cert.write_bytes(front_proxy.certificate)
    files.front_proxy_key.write_bytes(front_proxy.key)
    return files


def issue_client(ca: KeyPair, name: str, at: datetime, lifetime: timedelta = timedelta(days=365)) -> KeyPair:
    """A client certificate with a common name, as kubeadm issues that of the front proxy: it has no other name."""
    key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.load_pem_x509_certificate(ca.certificate)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - timedelta(hours=1))
        .not_valid_after(at + lifetime)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    signer = serialization.load_pem_private_key(ca.key, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    pem = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    return KeyPair(pem, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))


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

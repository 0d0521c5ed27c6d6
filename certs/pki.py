"""Issue and judge certificates: pure, so that every rule about time can be tested at any time.

Nothing here reads a clock or a file; `at` is always given. Elliptic curve P-256 because it is small, fast to make
and known to every client. Serial numbers are random: constant ones made browsers and proxies confuse two CAs.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks of nodes differ; a certificate that starts exactly now is refused by those that are late.
BACKDATE = timedelta(hours=1)
# So far two clocks may be apart, when certificates begin as early as that and each is as far off as they allow for.
CLOCKS_APART = 2 * BACKDATE
# A CA outlives several leaves, so that a rotation of leaves needs no change of a caBundle.
CA_LIFETIME = timedelta(days=3650)
SERVING_LIFETIME = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    @property
    def not_before(self) -> datetime:
        """Returns the time from which the certificate is valid, in UTC; of a chain that of the first. Raises ValueError where it is not
        readable as PEM."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        """Returns the time until which the certificate is valid, in UTC; of a chain that of the first. Raises ValueError where it is not
        readable as PEM."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc


def issue_ca(common_name: str, at: datetime, lifetime: timedelta = CA_LIFETIME) -> KeyPair:
    """Returns a self-signed CA that may sign leaves and nothing else (path length 0), valid from an hour before `at` until `lifetime` after
    it, with a new key. Raises ValueError where `common_name` has not 1 to 64 bytes, or the CA would end before it begins."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    usage = _build_key_usage(signs_certificates=True)
    builder = (
        _build_certificate(name, name, key.public_key(), at, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return KeyPair(_encode_certificate(builder.sign(key, hashes.SHA256())), _encode_key(key))


def issue_serving(ca: KeyPair, names: Sequence[str], at: datetime, lifetime: timedelta = SERVING_LIFETIME) -> KeyPair:
    """Returns a server certificate with a new key for DNS names and IP addresses, signed by `ca`. It is valid from an hour before `at`
    until `lifetime` after it, even if its CA ends before. The first name, cut to 64 characters, is its common name.

    Raises ValueError without any name, for a first name that is empty or one that is not ASCII, and for an unreadable CA. Raises TypeError
    where the CA's key is encrypted or no elliptic curve key.
    """
    if not names:
        raise ValueError("a serving certificate needs at least one name")
    ca_certificate = x509.load_pem_x509_certificate(ca.certificate)
    ca_key = serialization.load_pem_private_key(ca.key, password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA key is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = (
        _build_certificate(subject, ca_certificate.subject, key.public_key(), at, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_build_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_build_general_name(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    return KeyPair(_encode_certificate(builder.sign(ca_key, hashes.SHA256())), _encode_key(key))


def validate(chain: bytes, ca_bundle: bytes, name: str, at: datetime, key: bytes | None = None) -> list[str]:
    """Returns all that is wrong with serving `chain` as `name` at that time to clients that trust `ca_bundle`, as texts; empty means good.
    Of the chain only the first certificate, the leaf, is looked at: it must have this very name (DNS name or IP address, no wildcard), and
    a CA of the bundle must have signed it directly. A chain or bundle that is missing or no PEM is the only problem then. To check a later
    time ("good for 30 more days?"), give a later `at`. With `key`, also whether it belongs to the leaf: a mismatched pair breaks every
    later handshake."""
    try:
        leaf, *_ = x509.load_pem_x509_certificates(chain)
    except ValueError:
        return ["the certificate is not readable as PEM"]
    if not ca_bundle.strip():
        return ["there is no CA bundle"]
    try:
        authorities = x509.load_pem_x509_certificates(ca_bundle)
    except ValueError:
        return ["the CA bundle is not readable as PEM"]
    problems = _list_time_problems(leaf, "the certificate", at)
    if _build_general_name(name) not in _list_alternative_names(leaf):
        problems.append(f"the certificate is not for {name}")
    signers = [authority for authority in authorities if _is_signed_by(leaf, authority)]
    if not signers:
        problems.append("no CA of the bundle signed the certificate")
    elif all(_list_time_problems(signer, "its CA", at) for signer in signers):
        problems += _list_time_problems(signers[0], "its CA", at)
    if key is not None:
        problems += _list_key_problems(leaf, key)
    return problems


def find_ca_problem(pair: KeyPair, at: datetime) -> str:
    """Returns the first reason why nothing can be signed with this CA at that time, as text. Empty when it can: it is one self-signed CA
    certificate that is valid then, with its own key on an elliptic curve. Path length and key usage are not looked at."""
    found = parse_certificates(pair.certificate)
    if len(found) != 1:
        return "its certificate is not readable as PEM" if not found else "it has more than one certificate"
    if problems := _list_time_problems(found[0], "it", at) + _list_key_problems(found[0], pair.key):
        return problems[0]
    if not isinstance(found[0].public_key(), ec.EllipticCurvePublicKey):
        return "its key is not an elliptic curve key"
    return "" if _is_signed_by(found[0], found[0]) else "it is no self-signed CA"


def parse_certificates(pem: bytes) -> list[x509.Certificate]:
    """Returns all certificates of a PEM bundle, in their order; none when it is not readable as a whole."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def to_pem(certificate: x509.Certificate) -> bytes:
    """Returns a certificate as PEM, in the very form in which `issue_ca` returns it, so that bundles can be compared as text."""
    return _encode_certificate(certificate)


def _list_time_problems(certificate: x509.Certificate, what: str, at: datetime) -> list[str]:
    if at < certificate.not_valid_before_utc:
        return [f"{what} is not valid before {certificate.not_valid_before_utc.isoformat()}"]
    if at > certificate.not_valid_after_utc:
        return [f"{what} expired at {certificate.not_valid_after_utc.isoformat()}"]
    return []


def _list_key_problems(leaf: x509.Certificate, key: bytes) -> list[str]:
    try:
        public = serialization.load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return ["the private key is not readable as PEM"]
    try:
        belongs = public == leaf.public_key()
    except (ValueError, UnsupportedAlgorithm):
        belongs = False
    return [] if belongs else ["the private key does not belong to the certificate"]


def _is_signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
        constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound, x509.DuplicateExtension):
        return False
    return constraints.ca


def _list_alternative_names(leaf: x509.Certificate) -> list[x509.GeneralName]:
    try:
        return list(leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):  # a certificate with unusable extensions is for no name
        return []


def _build_general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _build_certificate(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, at: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    at = at.astimezone(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - BACKDATE)
        .not_valid_after(at + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _build_key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _encode_certificate(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

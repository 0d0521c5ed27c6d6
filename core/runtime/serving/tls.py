"""The serving certificate and the CA of clients, reloaded without a restart.

Loading a mismatched pair into the context that serves leaves it broken for all later handshakes (house-style
pitfall 8). So each pair is loaded into a context of its own, and handshakes are handed the newest good one.
"""

import hashlib
import logging
import os
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Never

from cryptography import x509

from core.runtime.clock import Clock

logger = logging.getLogger(__name__)
# Mounted Secrets change by a symlink that gives no usable event, so the content is compared.
POLL_S = 2.0


class PairNotServed(Exception):
    """A pair cannot be served now, for the reason that the message has; it is tried again."""


class UnusableCertificate(PairNotServed):
    """The files cannot be served; the message names them and the reason."""


@dataclass(slots=True)
class HeldCa:
    """The CA of clients as PEM, which another part keeps up to date; while it is empty every client with a certificate is refused."""

    pem: bytes = b""


class _ServerContext(ssl.SSLContext):
    """`client_ca` is the PEM by which it verifies clients; empty where it verifies none, or those of an empty CA."""

    client_ca: bytes = b""


class HeldCertificate:
    """A pair that is given as bytes, and the `context` to listen with. Until one is taken every handshake fails."""

    def __init__(self, client_ca: Path | HeldCa | None = None) -> None:
        self._client_ca = client_ca
        self._current: _ServerContext | None = None
        self._pair: tuple[bytes, bytes] | None = None
        self._ca = _read_ca(client_ca)
        self._complaint = ""
        self._digest = ""
        self.not_after: datetime | None = None
        """When what is served runs out."""
        self.context = _make_server_context(self._client_ca)
        self.context.sni_callback = self._select_certificate

    def use_pair(self, certificate: bytes, key: bytes) -> None:
        """Uses a PEM certificate chain and its key, with the CA file of clients as it is now, for new handshakes. Raises
        UnusableCertificate where they are no pair, the key is encrypted or the CA cannot be used; then all stays as it was."""
        # OpenSSL's loader knows files only. This one has no name and no disk behind it, so that the key is not stored;
        # the file system may be read-only.
        with open(os.memfd_create("serving", os.MFD_CLOEXEC), "wb") as file:
            file.write(certificate.rstrip() + b"\n" + key)
            file.flush()
            context = _make_server_context(self._client_ca)
            try:
                context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
            except OSError as error:
                raise UnusableCertificate(f"the serving certificate cannot be served: {_describe_error(error)}") from error
        self._current, self.not_after, self._pair = context, _find_end(certificate), (certificate, key)
        self._digest = hashlib.sha256(certificate).hexdigest()[:16]

    def reload(self) -> bool:
        """Verifies clients by the content of the CA file if that has changed and can be used, in new handshakes, and returns True. Returns
        False where it is unchanged, no pair was given yet, or the file cannot be used, which is logged once per reason."""
        try:
            ca = _read_ca(self._client_ca)
            if ca == self._ca or self._pair is None:
                self._complaint = ""
                return False
            self.use_pair(*self._pair)
        except UnusableCertificate as error:
            if str(error) != self._complaint:
                logger.warning("CA of clients not taken over", extra={"error": str(error)})
            self._complaint = str(error)
            return False
        self._ca, self._complaint = ca, ""
        logger.info("CA of clients taken over", extra={"file": str(self._client_ca)})
        return True

    async def watch(self, clock: Clock) -> Never:
        """Calls `reload` every `POLL_S` seconds. Never returns."""
        while True:
            await clock.sleep(POLL_S)
            self.reload()

    def _select_certificate(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        # By these lines it can be seen which certificate clients are still shown, and that they come back after a change.
        logger.debug("handshake", extra={"certificate": self._digest})
        connection.context = self._current
        return None


class ServingCertificate:
    """A certificate and key file, and the `context` to listen with. Raises UnusableCertificate where the first pair is bad."""

    def __init__(self, cert_file: Path, key_file: Path, client_ca: Path | HeldCa | None = None) -> None:
        self._client_ca = client_ca
        self._cert_file = cert_file
        self._key_file = key_file
        self._complaint = ""
        try:
            content = self._read()
            self._current = self._load()
        except OSError as error:
            raise UnusableCertificate(self._describe(error)) from error
        self._digest = _compute_digest(content)
        self.not_after = _find_end(content[0])
        """When what is served runs out."""
        # Its own certificate is none: the callback is asked in every handshake, whether the client names a server or not.
        self.context = _make_server_context(self._client_ca)
        self.context.sni_callback = self._select_certificate

    def reload(self) -> bool:
        """Serves the content of the certificate, key and client CA files, in new handshakes, if it has changed and can be used, and returns
        True. Returns False where it is unchanged or still being written, and where it cannot be read or used: that is logged once per
        reason, not raised."""
        try:
            content = self._read()
            digest = _compute_digest(content)
            if digest == self._digest:
                self._complaint = ""
                return False
            loaded = self._load()
            if self._read() != content:
                return False  # still being written; the next look is soon
        except (OSError, UnusableCertificate) as error:  # ssl.SSLError is an OSError
            # Half of a new pair may be there already; the present one serves until the other half is. It is reported
            # once, not at every check.
            complaint = self._describe(error)
            if complaint != self._complaint:
                logger.warning("certificate not taken over", extra={"error": complaint})
            self._complaint = complaint
            return False
        self._current, self._digest, self._complaint = loaded, digest, ""
        self.not_after = _find_end(content[0])
        logger.info("certificate taken over", extra={"file": str(self._cert_file)})
        return True

    async def watch(self, clock: Clock) -> Never:
        """Calls `reload` every `POLL_S` seconds. Never returns."""
        while True:
            await clock.sleep(POLL_S)
            self.reload()

    def is_verified_now(self, connection: ssl.SSLObject) -> bool:
        """Whether the certificate that a client shows was verified by the CA that is in use now. A connection may outlive the CA that was
        in use when it began. A resumed session brings the certificate of an earlier connection and does not count."""
        context = connection.context
        is_current = isinstance(context, _ServerContext) and context.client_ca == self._current.client_ca
        return is_current and not connection.session_reused and connection.getpeercert(binary_form=True) is not None

    def _select_certificate(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _read(self) -> tuple[bytes, bytes, bytes]:
        return self._cert_file.read_bytes(), self._key_file.read_bytes(), _read_ca(self._client_ca)

    def _load(self) -> _ServerContext:
        context = _make_server_context(self._client_ca)
        # An encrypted key is refused: without a password given here OpenSSL would ask the terminal for one, and wait.
        context.load_cert_chain(self._cert_file, self._key_file, password="")
        return context

    def _describe(self, error: OSError | UnusableCertificate) -> str:
        if isinstance(error, UnusableCertificate):
            return str(error)
        return f"certificate {self._cert_file} and key {self._key_file} cannot be served: {_describe_error(error)}"


async def warn_of_end(certificate: HeldCertificate | ServingCertificate, clock: Clock) -> Never:
    """Logs an error when the served certificate has ended, once for each that does: otherwise only probes and API servers would know. Looks
    every `POLL_S` seconds. Never returns."""
    logged: datetime | None = None
    while True:
        end = certificate.not_after
        if end is not None and end <= clock.now() and end != logged:
            logger.error("the certificate has ended: API servers refuse it", extra={"ended": end.isoformat()})
            logged = end
        await clock.sleep(POLL_S)


def _read_ca(client_ca: Path | HeldCa | None) -> bytes:
    """The content of the file, or the PEM. Raises UnusableCertificate, which names the file."""
    if client_ca is None or isinstance(client_ca, HeldCa):
        return client_ca.pem if client_ca is not None else b""
    try:
        return client_ca.read_bytes()
    except OSError as error:
        raise UnusableCertificate(f"the CA of clients {client_ca} cannot be used: {_describe_error(error)}") from error


def _make_server_context(client_ca: Path | HeldCa | None) -> _ServerContext:
    """`client_ca` verifies the certificates of clients that show one: probes show none, and whether one is needed is decided by path."""
    context = _ServerContext(ssl.PROTOCOL_TLS_SERVER)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as for the API server an intermediate CA will do
        try:
            _load_ca(context, client_ca)
        except (OSError, ValueError) as error:
            name = client_ca if isinstance(client_ca, Path) else "that is given"
            reason = _describe_error(error) if isinstance(error, OSError) else "it is not ASCII"
            raise UnusableCertificate(f"the CA of clients {name} cannot be used: {reason}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # an API server does not resume sessions, and sends nothing but reviews after the handshake
    return context


def _load_ca(context: _ServerContext, client_ca: Path | HeldCa) -> None:
    if isinstance(client_ca, Path):
        context.load_verify_locations(client_ca)
    elif client_ca.pem:
        context.load_verify_locations(cadata=client_ca.pem.decode("ascii"))
        context.client_ca = client_ca.pem


def _describe_error(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError):
        return str(error)
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    return f"no complete PEM of a certificate chain and an unencrypted key ({error.reason or error})"


def _find_end(chain: bytes) -> datetime | None:
    """Of the first certificate, which is the one that is served; None where that cannot be read, though it can be served."""
    try:
        return x509.load_pem_x509_certificate(chain).not_valid_after_utc
    except ValueError:
        return None


def _compute_digest(content: tuple[bytes, ...]) -> bytes:
    return hashlib.sha256(b"\0".join(content)).digest()

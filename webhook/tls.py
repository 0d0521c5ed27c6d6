"""The serving certificate, reloaded without a restart.

`load_cert_chain` on the live context serves the new certificate to new handshakes, but a mismatched
pair leaves that context broken for all later ones; so a pair is loaded into a scratch context first
and reaches the live one only if it is good (house-style pitfall 8).
"""

import hashlib
import logging
import ssl
from pathlib import Path
from typing import Never

from core.runtime.clock import Clock

logger = logging.getLogger(__name__)
# Mounted Secrets change by a symlink that gives no usable event, so the content is compared.
POLL_S = 2.0


class ServingCertificate:
    """A certificate and key file, and the live context that serves them. Raises OSError or ssl.SSLError where the first pair is bad."""

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        self._cert_file = cert_file
        self._key_file = key_file
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._digest = b""
        self._refused = b""
        self._load(self._read())

    def reload(self) -> bool:
        """Serves the files' content if it has changed and is a good pair; says whether it did."""
        try:
            content = self._read()
            digest = _digest(content)
            if digest in (self._digest, self._refused):
                return False
            self._load(content)
        except (OSError, ssl.SSLError) as error:
            # Half of a new pair may be there already; the good one goes on serving until the other half is.
            self._refused = _digest(content) if isinstance(error, ssl.SSLError) else b""
            logger.warning("certificate not taken over", extra={"error": str(error), "file": str(self._cert_file)})
            return False
        logger.info("certificate taken over", extra={"file": str(self._cert_file)})
        return True

    async def watch(self, clock: Clock) -> Never:
        """Looks at the files for ever."""
        while True:
            await clock.sleep(POLL_S)
            self.reload()

    def _read(self) -> tuple[bytes, bytes]:
        return self._cert_file.read_bytes(), self._key_file.read_bytes()

    def _load(self, content: tuple[bytes, bytes]) -> None:
        scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        scratch.load_cert_chain(self._cert_file, self._key_file)
        if self._read() != content:
            raise ssl.SSLError("the files changed while they were read")
        self.context.load_cert_chain(self._cert_file, self._key_file)
        self._digest = _digest(content)


def _digest(content: tuple[bytes, bytes]) -> bytes:
    return hashlib.sha256(b"\0".join(content)).digest()

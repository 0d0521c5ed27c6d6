"""What the Secret holds, to and from its data.

====================================  ===============================================================================
`tls.crt`, `tls.key`                  the serving certificate and its key
`ca.crt`                              the bundle as published: for people and other tools; never read back
`signer.crt`, `signer.key`            the CA that signed it
`next.crt`, `next.key`                the CA that is being made known, during a rotation
`retiring.crt`                        CAs that are still trusted but sign no more; their keys are gone
`trusted-since`                       since when the newest CA has been in every configuration, ISO 8601
====================================  ===============================================================================

Unknown keys are not used and not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from certs import pki
from certs.pki import CLOCKS_APART, KeyPair


@dataclass(frozen=True, slots=True)
class Unusable:
    """There is nothing to go on from; the reason is one sentence, without any content of the Secret."""

    reason: str


@dataclass(frozen=True, slots=True)
class Early:
    """The CA begins in a future that no two good clocks are apart: ours is behind, and nothing is to be made or written by it."""

    reason: str


ABSENT = Unusable("there is no Secret yet")


@dataclass(frozen=True, slots=True)
class SecretData:
    """A usable CA with its key, and what else there is. `leaf` is None when unreadable; `leaf_problem` then has the reason."""

    signer: KeyPair
    leaf: KeyPair | None
    next: KeyPair | None = None
    retiring: tuple[bytes, ...] = ()
    trusted_since: datetime | None = None
    asked: bool = False
    """An administrator wants a new CA now."""
    leaf_problem: str = ""

    @property
    def bundle(self) -> bytes:
        """Returns the CAs that clients are to trust, as PEM: the signer of the leaf, the next one, if any, then those that retire."""
        following = [] if self.next is None else [self.next.certificate]
        return b"".join([self.signer.certificate, *following, *self.retiring])


def from_data(data: Mapping[str, bytes], at: datetime, *, asked: bool = False) -> SecretData | Unusable | Early:
    """Returns what the data of the Secret (by key, not in base64) mean at the time `at`: Unusable without a good signer (CA and key), Early
    where our clock is behind the signer's by more than CLOCKS_APART. A leaf that is no PEM is None in the result; nothing else of it is
    looked at. A bad next CA counts as missing, and so does a timestamp without a time zone. Retiring CAs that have ended are dropped, and
    all where they are no PEM. `asked`: an administrator wants a new CA."""
    if not data:
        return Unusable("the Secret is empty")
    signer = KeyPair(data.get("signer.crt", b""), data.get("signer.key", b""))
    if (begins := _find_beginning(signer)) > at + CLOCKS_APART:
        there = f"the CA of the Secret begins at {begins.isoformat()}"
        return Early(f"by our clock it is {at.isoformat()}, and {there}; set the clock, or delete the Secret")
    if problem := pki.find_ca_problem(signer, max(at, begins)):
        return Unusable(f"the CA of the Secret cannot be used: {problem}")
    following: KeyPair | None = KeyPair(data.get("next.crt", b""), data.get("next.key", b""))
    assert following is not None
    if pki.find_ca_problem(following, min(max(at, _find_beginning(following)), at + CLOCKS_APART)):
        following = None
    leaf: KeyPair | None = KeyPair(data.get("tls.crt", b""), data.get("tls.key", b""))
    assert leaf is not None
    problem = "" if pki.parse_certificates(leaf.certificate) else "the certificate is not readable as PEM"
    # Expired ones are dropped without waiting: no client accepts what they have signed.
    retiring = tuple(pki.to_pem(one) for one in pki.parse_certificates(data.get("retiring.crt", b"")) if at <= one.not_valid_after_utc)
    return SecretData(signer, None if problem else leaf, following, retiring, _time(data.get("trusted-since", b"")), asked, problem)


def to_data(held: SecretData) -> dict[str, bytes]:
    """Returns the Secret's data, by key, not in base64; `asked` is not in it. Raises AssertionError where `leaf` is None."""
    assert held.leaf is not None
    data = {
        "tls.crt": held.leaf.certificate,
        "tls.key": held.leaf.key,
        "ca.crt": held.bundle,
        "signer.crt": held.signer.certificate,
        "signer.key": held.signer.key,
    }
    if held.next is not None:
        data |= {"next.crt": held.next.certificate, "next.key": held.next.key}
    if held.retiring:
        data["retiring.crt"] = b"".join(held.retiring)
    if held.trusted_since is not None:
        data["trusted-since"] = held.trusted_since.astimezone(UTC).isoformat().encode()
    return data


def _find_beginning(ca: KeyPair) -> datetime:
    """Long ago where there is none."""
    found = pki.parse_certificates(ca.certificate)
    return found[0].not_valid_before_utc if found else datetime.min.replace(tzinfo=UTC)


def _time(text: bytes) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    # Times at the ends of the calendar cannot be added to, or not be written in UTC.
    return found if found.tzinfo is not None and 1970 <= found.year < 9000 else None

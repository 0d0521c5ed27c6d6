"""Requests that the API server hands on: its client certificate proves that it is the API server, and headers name its user.

The API server publishes by which CA and names its certificate is verified, and which headers it sends, in the ConfigMap
`kube-system/extension-apiserver-authentication` (Kubernetes, "Configure the aggregation layer"). Headers of any other client count for
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID

NAMESPACE, CONFIG_MAP = "kube-system", "extension-apiserver-authentication"
MASTERS = "system:masters"
_CA, _PREFIX = "requestheader-client-ca-file", "requestheader-"


class BadFrontProxyRules(Exception):
    """The ConfigMap cannot be used; the message names the field."""


class Unauthenticated(Exception):
    """A request is of no known user; the message has the reason."""


@dataclass(frozen=True, slots=True)
class ProxiedUser:
    """A user as the API server knows it; the values of `extra` are in their order, by key."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class FrontProxyRules:
    """How a front proxy is known and which headers it sends, in lower case. Without `names` a certificate of any name is accepted, if `ca`
    (PEM) has signed it."""

    ca: bytes = b""
    names: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    ends: Mapping[bytes, datetime] = field(default_factory=dict)  # by subject of each CA: when the last of that subject ends

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> FrontProxyRules:
        """Returns the rules in the data of the ConfigMap. Raises BadFrontProxyRules where the CA is missing or unreadable, where no header
        names the user, or where a list is none."""
        ca = str(data.get(_CA) or "").encode()
        try:
            authorities = x509.load_pem_x509_certificates(ca)
        except ValueError:
            raise BadFrontProxyRules(f"{_CA}: a CA as PEM is expected") from None
        ends: dict[bytes, datetime] = {}
        for one in authorities:
            subject = one.subject.public_bytes()
            ends[subject] = max(one.not_valid_after_utc, ends.get(subject, one.not_valid_after_utc))
        names = _read_list(data, "allowed-names")
        users, uids, groups, prefixes = (
            tuple(name.lower() for name in _read_list(data, key))
            for key in ("username-headers", "uid-headers", "group-headers", "extra-headers-prefix")
        )
        if not users:
            raise BadFrontProxyRules(f"{_PREFIX}username-headers: the name of at least one header is expected")
        return cls(ca, frozenset(names), users, uids, groups, prefixes, ends)

    def find_user(self, certificate: bytes | None, headers: Iterable[tuple[str, str]], at: datetime) -> ProxiedUser:
        """Returns the user that the headers of a request name. `certificate` is the client's (DER), which TLS has verified by `ca`; None:
        the client has shown none. Raises Unauthenticated where it is none of a front proxy, has ended or its CA has, or no user is
        named."""
        if certificate is None:
            raise Unauthenticated("a client certificate of the API server's front proxy is needed")
        self._check_certificate(certificate, at)
        values: dict[str, list[str]] = {}
        for name, value in headers:
            values.setdefault(name.lower(), []).append(value)
        user = next((value for name in self.user_headers for value in values.get(name, ()) if value), "")
        if not user:
            raise Unauthenticated(f"no user is named by the header {' or '.join(self.user_headers)}")
        uid = next((value for name in self.uid_headers for value in values.get(name, ()) if value), "")
        groups = _add_authenticated(user, [value for name in self.group_headers for value in values.get(name, ())])
        extra: dict[str, list[str]] = {}
        for name, of_name in values.items():
            for prefix in self.extra_prefixes:
                if name.startswith(prefix):
                    extra.setdefault(unquote(name[len(prefix) :]), []).extend(of_name)
        return ProxiedUser(user, uid, groups, tuple((name, tuple(extra[name])) for name in sorted(extra)))

    def _check_certificate(self, certificate: bytes, at: datetime) -> None:
        """TLS has verified it when the connection began, which may be long ago."""
        try:
            found = x509.load_der_x509_certificate(certificate)
            names = [str(each.value) for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
            issuer = found.issuer.public_bytes()
        except ValueError:
            raise Unauthenticated("the client certificate cannot be read") from None
        end = min(found.not_valid_after_utc, self.ends.get(issuer, max(self.ends.values(), default=at)))
        if at > end:
            raise Unauthenticated(f"the client certificate or its CA ended at {end.isoformat()}")
        if self.names and (len(names) != 1 or names[0] not in self.names):
            raise Unauthenticated("the name in the client certificate is none of requestheader-allowed-names")


def _add_authenticated(user: str, groups: list[str]) -> tuple[str, ...]:
    """As other aggregated servers do it: the API server's own users, which read discovery and OpenAPI, come without this group."""
    is_known = user == "system:anonymous" or "system:authenticated" in groups or "system:unauthenticated" in groups
    return tuple(groups if is_known else [*groups, "system:authenticated"])


def _read_list(data: Mapping[str, Any], key: str) -> list[str]:
    name = f"{_PREFIX}{key}"
    try:
        found = json.loads(data.get(name) or "[]")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise BadFrontProxyRules(f"{name}: a JSON list of strings is expected")
    return found

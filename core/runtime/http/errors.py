"""What can go wrong between us and an API server, one class per answer that callers branch on.

::

    KubeError                   any answer of 400 and above, or none at all
      BadRequest                400
      Unauthorized              401
      Forbidden                 403
      NotFound                  404
      Conflict                  409   another writer was first, or owns the field
        AlreadyExists           409   reason AlreadyExists
      Gone                      410   the resource version or continue token is too old: list again
      Invalid                   422
      TooManyRequests           429   .retry_after
      ServerError               5xx
      Unreachable               no (whole) answer: refused, reset, timed out, cut off; status 0
      NotLeading                never sent: the lease is not ours; status 0

Ours, not aiohttp's: callers must not know the transport, and an aiohttp error does not have the Status that the server sent along.
Texts are truncated: an error ends up in logs, conditions and events, and a server may quote a whole object back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

MAX_TEXT = 1024


def truncate(text: str, limit: int = MAX_TEXT) -> str:
    """Returns the text with at most `limit` characters; an ellipsis shows that it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


_CREDENTIALS = re.compile(r"(?<=://)[^/@\s\"']+@")


def remove_credentials(text: str) -> str:
    """Returns the text without user and password in its URLs: errors of an unreachable proxy contain them."""
    return _CREDENTIALS.sub("", text)


class KubeError(Exception):
    """An operation on the API server failed.

    `reason` is the machine-readable CamelCase reason of the server's Status (empty when it sent none), `message` its
    sentence, `body` the whole Status when the server sent one.
    """

    def __init__(self, status: int, reason: str = "", message: str = "", body: Mapping[str, Any] | None = None) -> None:
        self.status = status
        self.reason = reason
        self.message = truncate(remove_credentials(message))
        self.body: Mapping[str, Any] = body or {}
        super().__init__(f"{status} {reason}: {self.message}" if status else self.message)

    @property
    def details(self) -> Mapping[str, Any]:
        """Returns `details` of the Status, empty where it has none: which object, which causes, which field managers are in the way."""
        details = self.body.get("details")
        return details if isinstance(details, dict) else {}


class BadRequest(KubeError):
    """400: the request itself makes no sense to the server."""


class Unauthorized(KubeError):
    """401: the credentials are not (any longer) accepted."""


class Forbidden(KubeError):
    """403: the rights are missing, or an admission plugin refused."""


class NotFound(KubeError):
    """404: no such object, or no such resource type."""


class Conflict(KubeError):
    """409: a precondition did not hold, or another field manager owns a field."""


class AlreadyExists(Conflict):
    """409 on create: the name is taken."""


class Gone(KubeError):
    """410: what was asked for is no longer in the server's history."""


class Invalid(KubeError):
    """422: the object breaks the schema or a rule. Also one that is too large to be stored, which etcd reports in a 500
    of the API server."""


class TooManyRequests(KubeError):
    """429: the server sheds load, or a disruption budget forbids an eviction now. `retry_after` is in seconds, None
    when not given."""

    def __init__(
        self, status: int, reason: str = "", message: str = "", body: Mapping[str, Any] | None = None, *, retry_after: float | None = None
    ) -> None:
        super().__init__(status, reason, message, body)
        self.retry_after = retry_after


class ServerError(KubeError):
    """5xx, or an answer that is not what the API promises."""


class NotLeading(KubeError):
    """The write was not sent: this process does not hold the lease at this moment."""

    def __init__(self) -> None:
        super().__init__(0, "NotLeading", "the lease is not held at this moment, so nothing is written")


class Unreachable(KubeError):
    """No whole answer came. Whether a write took effect is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


_BY_STATUS: dict[int, type[KubeError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    422: Invalid,
}
_TOO_LARGE = "request is too large"


def build_error(status: int, body: bytes | Mapping[str, Any], headers: Mapping[str, str] | None = None) -> KubeError:
    """Returns the error for an answer with a status of 300 or above; it is not raised. `body` is what the server sent, raw, or a Status
    object already parsed (an ERROR event of a watch). `headers` may have Retry-After, in seconds, which counts before that of the Status.
    413 and a 500 for too large a request are Invalid; an unknown status is ServerError from 500 on, else KubeError."""
    parsed = body if isinstance(body, Mapping) else _parse_status(body)
    if parsed is None:
        assert not isinstance(body, Mapping)
        reason, message = "", truncate(body.decode("utf-8", errors="replace").strip())
    else:
        reason, message = str(parsed.get("reason") or ""), str(parsed.get("message") or "")
    if status == 429:
        return TooManyRequests(status, reason, message, parsed, retry_after=_retry_after(parsed, headers or {}))
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(status, reason, message, parsed)
    if status == 500 and _TOO_LARGE in message:
        return Invalid(status, reason, message, parsed)
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else KubeError)
    return kind(status, reason, message, parsed)


def _parse_status(body: bytes) -> Mapping[str, Any] | None:
    """The Status in a body; None for anything else (a proxy's HTML page, plain text of the auth layer)."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) and parsed.get("kind") == "Status" else None


def _retry_after(status: Mapping[str, Any] | None, headers: Mapping[str, str]) -> float | None:
    """Returns the seconds to wait; None if none are given. The header takes precedence over the Status: proxies in
    between set only the header. An HTTP date (which no API server sends) counts as not given."""
    value: Any = headers.get("Retry-After")
    if value is None and status is not None:
        details = status.get("details")
        value = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < float("inf") else None

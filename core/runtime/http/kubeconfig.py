"""Which kubeconfig is used, and what is wrong with one that cannot be used, in one line.

The library that reads them raises any error (its own errors, YAML's, `TypeError` for an empty file). It ignores a file
that does not exist, and then reports missing keys of a file that does not exist.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import yaml

from core.runtime.http.errors import truncate

_IMPERSONATION = ("as-uid", "as-groups", "as-user-extra")
_CERTIFICATE = ("client-certificate", "client-certificate-data", "client-key", "client-key-data")
_HONOURED = {*_CERTIFICATE, "token", "tokenFile", "username", "password", "exec", "auth-provider", "as", *_IMPERSONATION, "extensions"}
_AUTH_PROVIDERS = ("gcp", "oidc")
_SAFE_IN_HEADER = "!#$&'*+^`|"  # besides letters, digits and "_.-~": what client-go leaves as it is in the name of a header


class UnusableKubeconfig(Exception):
    """There is no way to the API server: names the file, and what is wrong with it."""


def find_kubeconfig(given: str | None) -> str | None:
    """Returns the kubeconfig that the caller names, else that of $KUBECONFIG, as it is named: one path, or several as in $KUBECONFIG. Else
    returns ~/.kube/config; None where that is not there, as inside a pod. Raises UnusableKubeconfig where none of the named files exists;
    of several some may be missing, as for kubectl."""
    named = given or os.environ.get("KUBECONFIG")
    if not named:
        path = os.path.expanduser("~/.kube/config")
        return path if os.path.exists(path) else None
    if not _find_files(named):
        raise UnusableKubeconfig(f"kubeconfig {named}: there is no such file{'' if given else ' ($KUBECONFIG names it)'}")
    return named


def build_unusable_error(path: str | None, error: Exception) -> UnusableKubeconfig:
    """Returns what to raise for an error that came of reading the kubeconfig `path`, or of the service account of a pod where `path` is
    None. Entries of users, which have credentials, are removed from its text. Python errors of a file of another shape (TypeError,
    KeyError, AttributeError, UnicodeError) become one sentence about that.
    """
    why = _strip_entries(" ".join(str(error).split()))
    if path is None:
        return UnusableKubeconfig(
            f"there is no kubeconfig (neither --kubeconfig nor $KUBECONFIG names one, and ~/.kube/config is not there), "
            f"and this is no pod with a service account: {why}"
        )
    if isinstance(error, TypeError | KeyError | AttributeError | UnicodeError):  # the library's errors for a file of another shape
        why = "it is not a kubeconfig: clusters, contexts, users and current-context are expected, each as kubectl writes it"
    return UnusableKubeconfig(truncate(f"kubeconfig {path}: {why}"))


def strip_record(record: logging.LogRecord) -> bool:
    """Removes credentials, in place, from the message of a log record of the library, which logs what it raises, and from its arguments.
    Returns True: a filter that keeps every record."""
    record.msg, record.args = _strip_entries(record.getMessage()), ()
    return True


def find_namespace(given: str | None, context: str | None = None) -> str | None:
    """Returns the namespace of a context (None: the current one) of the kubeconfig in use. None where it names none, or no file can be
    read: an error in a file is reported on connecting. Of several files the first with the context counts, as for kubectl."""
    try:
        parts = list(_list_parts(find_kubeconfig(given)))
    except (UnusableKubeconfig, OSError, ValueError):
        return None
    found = _find_entry(parts, "context", context or _find_current_context(parts))
    return str(found["namespace"]) if found and found.get("namespace") else None


def find_context(named: str) -> str | None:
    """Returns the current context of kubeconfig files (paths as in $KUBECONFIG): the first one that is named, as for kubectl. The library
    would take the last one. None where no file names one. Raises ValueError where a file is broken YAML, and OSError where it cannot be
    read.
    """
    return _find_current_context(list(_list_parts(named)))


def read_impersonation(named: str, context: str | None) -> tuple[tuple[str, str], ...]:
    """Returns the headers, as names and values, by which the requests of a context's user act as another one, as client-go writes them.
    Empty where it is the user itself, or the context has no user. `named` are paths as in $KUBECONFIG. Raises ValueError for a missing
    context or user, broken YAML, several ways to authenticate, and fields that cannot be honoured: to pass over one is to act as another
    user. Raises OSError where a file cannot be read."""
    parts = list(_list_parts(named))
    if context is None:
        raise ValueError("it is not a kubeconfig, or it has no current-context")
    found = _find_entry(parts, "context", context)
    if found is None:
        raise ValueError(f"context {context} is not in contexts")
    name = found.get("user")
    if not name:
        return ()
    user = _find_entry(parts, "user", name)
    if user is None:
        raise ValueError(f"context {context} names user {name}, which is not in users")
    where = f"user {name}"
    unknown = sorted(str(key) for key, value in user.items() if key not in _HONOURED and _is_set(value))
    if unknown:
        raise ValueError(f"{where}: {', '.join(unknown)}: not supported; accepted are {', '.join(sorted(_HONOURED))}")
    _check_method(where, user)
    return _build_headers(where, user)


def _check_method(where: str, user: dict[str, Any]) -> None:
    """Refuses what the library would pass over, or decide in another way than kubectl: more than one way to authenticate."""
    provider = user.get("auth-provider")
    if _is_set(provider) and not (isinstance(provider, dict) and provider.get("name") in _AUTH_PROVIDERS):
        found = _describe(provider.get("name")) if isinstance(provider, dict) else _describe_type(provider)
        raise ValueError(f"{where}: auth-provider.name: {found} is not supported; accepted are {', '.join(_AUTH_PROVIDERS)}; or use exec")
    for one, other in (("username", "password"), ("password", "username")):
        if _is_set(user.get(one)) and other not in user:
            raise ValueError(f"{where}: {one} is set without {other}; set both, or none")
    methods = [key for key in ("token", "tokenFile", "username", "exec", "auth-provider") if _is_set(user.get(key))]
    if len(methods) > 1:
        raise ValueError(f"{where}: {' and '.join(methods)} are set; only one way to authenticate is accepted: remove the others")


def _build_headers(where: str, user: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    fields = {key: user[key] for key in ("as", *_IMPERSONATION) if _is_set(user.get(key))}
    groups, extra = fields.get("as-groups", []), fields.get("as-user-extra", {})
    if not isinstance(groups, list):
        raise ValueError(f"{where}: as-groups: {_describe(groups)} is not accepted; a list of names is expected")
    if not isinstance(extra, dict) or not all(isinstance(values, list) for values in extra.values()):
        raise ValueError(
            f"{where}: as-user-extra: {_describe_type(extra)} is not accepted; an object of names and lists of values is expected"
        )
    headers = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))
    found = [(field, header, fields[field]) for field, header in headers if field in fields]
    found += [("as-groups", "Impersonate-Group", group) for group in groups]
    for key, values in extra.items():
        header = f"Impersonate-Extra-{quote(str(key), safe=_SAFE_IN_HEADER)}"
        found += [("as-user-extra", header, value) for value in values]
    for field, _, value in found:
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError(f"{where}: {field}: {_describe(value)} is not accepted; a string of printable characters is expected")
    if "as" not in fields and (named := [key for key in fields if user[key]]):
        raise ValueError(f"{where}: {' and '.join(named)} without as; set as to the name of the user to impersonate")
    return tuple((header, value) for _, header, value in found)


def _is_set(value: object) -> bool:
    """Whether a field has a value: `no`, 0 and empty lists are values, which are not passed over where a string is expected."""
    return value is not None and value != ""


def _find_current_context(parts: list[dict[str, Any]]) -> str | None:
    return next((str(part["current-context"]) for part in parts if part.get("current-context")), None)


def _find_entry(parts: list[dict[str, Any]], kind: str, name: str | None) -> dict[str, Any] | None:
    """The context or user of a name, of the first file that has it; None where there is none, or it has another form."""
    listed = (part[f"{kind}s"] for part in parts if isinstance(part.get(f"{kind}s"), list))
    entries = (entry for each in listed for entry in each if isinstance(entry, dict) and entry.get("name") == name)
    found = next(entries, {}).get(kind)
    return found if isinstance(found, dict) else None


def _list_parts(named: str | None) -> Iterator[dict[str, Any]]:
    for file in _find_files(named or ""):
        value = _read(file)
        if isinstance(value, dict):
            yield value


def _find_files(named: str) -> list[str]:
    """Those of the named files that exist, with `~` as the library reads it: fields of a file that only it finds would be passed over."""
    files = (os.path.expanduser(part) for part in named.split(os.pathsep) if part)
    return [file for file in files if os.path.exists(file)]


def _read(file: str) -> Any:
    """Reads a file. Raises ValueError with the place where the YAML is broken, and none of its text: PyYAML's message
    may quote a token or a password."""
    try:
        with open(file) as opened:
            return yaml.safe_load(opened)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ValueError(f"it is not a kubeconfig: {file} is broken YAML{where}") from None


def _strip_entries(text: str) -> str:
    """The text of an error of the library, which names a field of a user by the whole entry, credentials and all."""
    return re.sub(r"/\{.*\}", "", text)


def _describe(value: object) -> str:
    """A name as it is; of anything else only the type, since credentials may have slipped into it."""
    return repr(value) if isinstance(value, str) else _describe_type(value)


def _describe_type(value: object) -> str:
    return f"value of type {type(value).__name__}"

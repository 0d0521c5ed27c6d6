"""Which kubeconfig is meant, and what is wrong with one that cannot be used, in one line.

The library that reads them raises whatever comes of it (its own errors, YAML's, `TypeError` for an empty file) and passes over
a file that is not there, which ends as a complaint about keys of a file that nobody wrote.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from core.runtime.errors import truncated


class UnusableKubeconfig(Exception):
    """There is no way to the API server: names the file, and what is wrong with it."""


def find_kubeconfig(told: str | None) -> str | None:
    """The file that is told, else what kubectl would read; None when there is none, which is how a pod looks from inside.

    Raises UnusableKubeconfig where none of the files that are named is there; of several some may be missing, as for kubectl.
    """
    named = told or os.environ.get("KUBECONFIG")
    if not named:
        path = os.path.expanduser("~/.kube/config")
        return path if os.path.exists(path) else None
    files = [part for part in named.split(os.pathsep) if part]
    if not any(os.path.exists(file) for file in files):
        raise UnusableKubeconfig(f"kubeconfig {named}: there is no such file{'' if told else ' ($KUBECONFIG names it)'}")
    return named


def unusable(path: str | None, error: Exception) -> UnusableKubeconfig:
    """What to raise for an error that came of reading a kubeconfig, or of the service account of a pod where there is none."""
    why = " ".join(str(error).split())
    if path is None:
        return UnusableKubeconfig(
            f"there is no kubeconfig (neither --kubeconfig nor $KUBECONFIG names one, and ~/.kube/config is not there), "
            f"and this is no pod with a service account: {why}"
        )
    if isinstance(error, TypeError | KeyError | AttributeError | UnicodeError):  # the library's way to say that it has another shape
        why = "it is not a kubeconfig: clusters, contexts, users and current-context are expected, each as kubectl writes it"
    return UnusableKubeconfig(truncated(f"kubeconfig {path}: {why}"))


def find_namespace(told: str | None, context: str | None = None) -> str | None:
    """The namespace of a context of the kubeconfig that is meant, None where it names none.

    Of several files the first counts that has something to say, as for kubectl; what is wrong with one is told on connecting.
    """
    try:
        parts = list(_parts(find_kubeconfig(told)))
    except (UnusableKubeconfig, OSError, ValueError, yaml.YAMLError):
        return None
    name = context or next((part["current-context"] for part in parts if part.get("current-context")), None)
    listed = (part["contexts"] for part in parts if isinstance(part.get("contexts"), list))
    contexts = (entry for entries in listed for entry in entries if isinstance(entry, dict))
    found = next((entry.get("context") for entry in contexts if entry.get("name") == name), None)
    return (str(found["namespace"]) if found.get("namespace") else None) if isinstance(found, dict) else None


def _parts(named: str | None) -> Iterator[dict[str, Any]]:
    for file in (named or "").split(os.pathsep):
        value = yaml.safe_load(Path(file).read_bytes()) if file and os.path.exists(file) else None
        if isinstance(value, dict):
            yield value

"""What an API resource is called and where it lives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any
from urllib.parse import quote

Obj = dict[str, Any]
"""A Kubernetes object as JSON has it. Shared between readers: never changed in place once read."""

PAGE_LIMIT = 100
"""Objects of a list that are read at once. An object has 1.5 MB at most, and all of a page are held in memory as a text, too."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource type at one version; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Returns `group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def build_path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Returns the URL path of the collection (all namespaces when none is given), of an object, or of its subresource, with escaped
        parts. Raises ValueError where a namespaced object is named without its namespace.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        elif name and self.namespaced:
            raise ValueError(f"{self.kind} {name}: a namespace is needed to name one")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(map(_quote, parts))

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


@lru_cache(1024)
def _quote(part: str) -> str:
    return quote(part, safe=":")


class PatchKind(Enum):
    """How a patch body is read; the value is its content type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Page:
    """A list or one page of it. `continue_token` is empty when nothing follows; `resource_version` is where a watch may begin."""

    items: list[Obj]
    resource_version: str
    continue_token: str = ""

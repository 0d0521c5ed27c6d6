"""The rights of a process as RBAC rules: verbs by group and resource, listed one by one and written together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from core.resource import Resource

Right = tuple[str, str, str]
"""Group, resource (with its subresource after a slash), verb."""


def list_rights(resource: Resource, *verbs: str, subresource: str = "") -> set[Right]:
    """Returns the rights to use some verbs on one resource or its subresource: API group, plural (or `plural/subresource`) and verb of
    each."""
    named = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return {(resource.group, named, verb) for verb in verbs}


def list_rules(granted: Iterable[Right], names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Returns RBAC rules that grant just these rights: one for each API group and set of verbs, sorted by both, with sorted resources and
    verbs. `names`: only on objects with these names."""
    only = {"resourceNames": list(names)} if names else {}
    verbs: dict[tuple[str, str], set[str]] = {}
    for group, resource, verb in granted:
        verbs.setdefault((group, resource), set()).add(verb)
    resources: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), of_resource in verbs.items():
        resources.setdefault((group, tuple(sorted(of_resource))), []).append(resource)
    return [
        {"apiGroups": [group], "resources": sorted(named), **only, "verbs": list(allowed)}
        for (group, allowed), named in sorted(resources.items())
    ]

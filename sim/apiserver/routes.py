"""What a path of the API means, and the answer to a whole HTTP request."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from pydantic_core import from_json

from sim.apiserver.kinds import Kind
from sim.apiserver.server import Refused, Request, Server

Json = dict[str, Any]
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_METHODS = {"get": "read", "list": "list_objects", **{verb: verb for verb in _VERBS.values()}}


def find_request(
    server: Server, method: str, path: str, params: Mapping[str, str], body: bytes | None, content_type: str, user: str = "admin"
) -> Request:
    """A request as its path says. Raises Refused with 404 where nothing is served."""
    parts = [unquote(part) if "%" in part else part for part in path.strip("/").split("/")]
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    kind = server.kinds.get((group, version, plural))
    if kind is None or (subresource and not (subresource == "status" and kind.has_status)):
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    verb = _VERBS.get(method) or ("watch" if params.get("watch") == "true" else "get" if name else "list")
    return Request(verb, kind, namespace, name, subresource, params, _parse(body) if body else None, content_type, user)


def _parse(body: bytes) -> Any:
    try:
        return from_json(body, cache_strings="keys")
    except ValueError:  # half of a surrogate pair, or very deep
        return json.loads(body)


def find_served(server: Server, path: str) -> Json | None:
    """The resources of an API group and version, where a path names one that has any; None for any other path."""
    root, _, group_version = path.strip("/").partition("/")
    found = [kind.plural for kind in server.kinds.values() if root == "apis" and kind.api_version == group_version]
    return {"groupVersion": group_version, "resources": [{"name": plural} for plural in sorted(found)]} if found else None


def handle_request(server: Server, request: Request) -> Json:
    """The answer to anything but a watch. Raises Refused."""
    answer: Json = getattr(server, _METHODS[request.verb])(request)
    return answer


def find_kind(server: Server, obj: Mapping[str, Any]) -> Kind:
    """The kind of an object by its apiVersion and kind. Raises KeyError."""
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    found = (kind for kind in server.kinds.values() if (kind.group, kind.version, kind.kind) == (group, version, obj["kind"]))
    kind = next(found, None)
    if kind is None:
        raise KeyError(f"{obj['apiVersion']} {obj['kind']}")
    return kind

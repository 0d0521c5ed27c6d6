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
_EVICTION = "pods", "eviction"
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
    if kind is None or (subresource and not (subresource == "status" and kind.has_status) and (plural, subresource) != _EVICTION):
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    verb = _VERBS.get(method) or ("watch" if params.get("watch") == "true" else "get" if name else "list")
    return Request(verb, kind, namespace, name, subresource, params, _parse(body) if body else None, content_type, user)


def _parse(body: bytes) -> Any:
    try:
        return from_json(body, cache_strings="all")
    except ValueError:  # half of a surrogate pair, or very deep
        return json.loads(body)


def find_served(server: Server, path: str) -> Json | None:
    """The resources of an API group and version, where a path names one that has any; None for any other path."""
    root, _, group_version = path.strip("/").partition("/")
    found = [kind.plural for kind in server.kinds.values() if root == "apis" and kind.api_version == group_version]
    return {"groupVersion": group_version, "resources": [{"name": plural} for plural in sorted(found)]} if found else None


def handle_request(server: Server, request: Request) -> Json:
    """The answer to anything but a watch. Raises Refused."""
    if request.params.get("dryRun") == "All":
        return _try_out(server, request)
    if (request.kind.plural, request.subresource) == _EVICTION:
        return _evict(server, request)
    if request.verb == "delete" and not request.name:
        return _delete_all(server, request)
    answer: Json = getattr(server, _METHODS[request.verb])(request)
    return answer


def _try_out(server: Server, request: Request) -> Json:
    """What would be answered; the object has the version that is stored, if any."""
    answer = handle_request(server.copy(), request._replace(params={**request.params, "dryRun": ""}))
    if "uid" not in answer["metadata"]:
        return answer
    metadata = {name: value for name, value in answer["metadata"].items() if name != "resourceVersion"}
    stored = server.objects[request.kind.resource].get((request.namespace, request.name))
    if stored is not None:
        metadata["resourceVersion"] = stored.obj["metadata"]["resourceVersion"]
    return {**answer, "metadata": metadata}


def _evict(server: Server, request: Request) -> Json:
    """Deletes a pod, on which it writes why in nobody's name: no PodDisruptionBudget is known here."""
    at = request._replace(verb="patch", subresource="status")
    stored, reason = server._find(at), {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    status = stored.obj.get("status") or {}
    kept = [each for each in status.get("conditions") or () if each["type"] != "DisruptionTarget"]
    condition = {"type": "DisruptionTarget", "status": "True", **reason, "lastProbeTime": None, "lastTransitionTime": server.now()}
    server._change(at, stored, {**stored.obj, "status": {**status, "conditions": [*kept, condition]}}, None, stored.managers)
    server.delete(request._replace(verb="delete", subresource="", body=request.body.get("deleteOptions") or {}))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _delete_all(server: Server, request: Request) -> Json:
    """Deletes the objects of a collection, one after the other."""
    found = server.list_objects(request._replace(verb="list", params={**request.params, "limit": ""}))
    for obj in found["items"]:
        metadata = obj["metadata"]
        server.delete(request._replace(namespace=metadata.get("namespace") or "", name=metadata["name"]))
    return found


def find_kind(server: Server, obj: Mapping[str, Any]) -> Kind:
    """The kind of an object by its apiVersion and kind. Raises KeyError."""
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    found = (kind for kind in server.kinds.values() if (kind.group, kind.version, kind.kind) == (group, version, obj["kind"]))
    kind = next(found, None)
    if kind is None:
        raise KeyError(f"{obj['apiVersion']} {obj['kind']}")
    return kind

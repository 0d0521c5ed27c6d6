"""What clients read of the visibility API beside its objects: discovery, OpenAPI, and the Status of a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROUP, VERSION = "visibility.kueue.x-k8s.io", "v1beta2"
GROUP_VERSION = f"{GROUP}/{VERSION}"
KIND, SUBRESOURCE = "PendingWorkloadsSummary", "pendingworkloads"
CLUSTER_QUEUES, LOCAL_QUEUES = "clusterqueues", "localqueues"
SINGULAR = {CLUSTER_QUEUES: "clusterqueue", LOCAL_QUEUES: "localqueue"}
ROOT = f"/apis/{GROUP_VERSION}"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
DEFAULT_LIMIT, MOST_LISTED = 1_000, 100_000
_PREFIX = "io.x-k8s.kueue.visibility.v1beta2"
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
Json = dict[str, Any]


def build_status(code: int, message: str, details: Mapping[str, Any] | None = None) -> Json:
    """Returns the Status of a refusal, as API servers answer it."""
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return {**status, "reason": _REASONS[code], **({"details": dict(details)} if details else {}), "code": code}


def build_not_found(plural: str, name: str) -> Json:
    """Returns the Status for a queue that does not exist; it names the kind as Kueue does, in the singular."""
    kind = SINGULAR[plural]
    return build_status(404, f'{kind}.{GROUP} "{name}" not found', {"name": name, "group": GROUP, "kind": kind})


def build_documents() -> dict[str, Json]:
    """Returns the documents of discovery and OpenAPI, by path."""
    return {
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_build_group()]},
        f"/apis/{GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **_build_group()},
        ROOT: {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": _list_resources()},
        "/openapi/v2": _build_openapi_v2(),
        "/openapi/v3": {"paths": {ROOT[1:]: {"serverRelativeURL": f"/openapi/v3{ROOT}"}}},
        f"/openapi/v3{ROOT}": _build_openapi_v3(),
    }


def build_aggregated_discovery() -> Json:
    """Returns the answer to `/apis` in the form `AGGREGATED`, which names all resources at once (KEP-3352)."""
    kind = {"group": GROUP, "version": VERSION, "kind": KIND}
    resources = [
        {
            "resource": plural,
            "responseKind": kind,
            "scope": "Namespaced" if plural == LOCAL_QUEUES else "Cluster",
            "singularResource": singular,
            "verbs": [],
            "subresources": [{"subresource": SUBRESOURCE, "responseKind": kind, "verbs": ["get"]}],
        }
        for plural, singular in SINGULAR.items()
    ]
    versions = [{"version": VERSION, "resources": resources, "freshness": "Current"}]
    items = [{"metadata": {"name": GROUP}, "versions": versions}]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _build_group() -> Json:
    version = {"groupVersion": GROUP_VERSION, "version": VERSION}
    return {"name": GROUP, "versions": [version], "preferredVersion": version}


def _list_resources() -> list[Json]:
    resources: list[Json] = []
    for plural, singular in SINGULAR.items():
        parts = {"namespaced": plural == LOCAL_QUEUES, "kind": KIND}
        resources += [
            {"name": plural, "singularName": singular, **parts, "verbs": []},
            {"name": f"{plural}/{SUBRESOURCE}", "singularName": "", **parts, "verbs": ["get"]},
        ]
    return resources


# --- OpenAPI --------------------------------------------------------------------------------------------


def _build_schemas(reference: str) -> dict[str, Json]:
    text, number = {"type": "string"}, {"type": "integer", "format": "int32"}
    owner: Json = {"type": "object", "properties": dict.fromkeys(("apiVersion", "kind", "name", "uid"), text)}
    metadata = {
        "name": text,
        "namespace": text,
        "creationTimestamp": {"type": "string", "format": "date-time"},
        "ownerReferences": {"type": "array", "items": owner},
    }
    workload: Json = {
        "metadata": {"type": "object", "properties": metadata},
        "priority": {**number, "description": "Priority of the workload."},
        "localQueueName": {**text, "description": "Name of the LocalQueue in which the workload waits."},
        "positionInClusterQueue": {**number, "description": "Number of workloads before it in its ClusterQueue."},
        "positionInLocalQueue": {**number, "description": "Number of workloads before it in its LocalQueue."},
    }
    summary: Json = {
        "apiVersion": text,
        "kind": text,
        "metadata": {"type": "object"},
        "items": {"type": "array", "items": {"$ref": f"{reference}{_PREFIX}.PendingWorkload"}},
    }
    return {
        f"{_PREFIX}.PendingWorkload": {
            "description": "A workload that waits for admission.",
            "type": "object",
            "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
            "properties": workload,
        },
        f"{_PREFIX}.{KIND}": {
            "description": "Workloads that wait for admission, in the order in which they are considered.",
            "type": "object",
            "required": ["items"],
            "properties": summary,
            "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": KIND}],
        },
    }


def _list_parameters(plural: str, describe: Any) -> list[Json]:
    named = [("name", "name of the queue"), *([("namespace", "namespace of the queue")] if plural == LOCAL_QUEUES else [])]
    return [
        *({"name": name, "in": "path", "required": True, "description": text, **describe("string")} for name, text in named),
        {"name": "limit", "in": "query", "description": f"at most so many; {DEFAULT_LIMIT} by default", **describe("integer")},
        {"name": "offset", "in": "query", "description": "how many of the first are left out", **describe("integer")},
    ]


def _build_paths(response: Json, describe: Any, produces: Json) -> Json:
    paths: Json = {}
    for plural, name in ((CLUSTER_QUEUES, "ClusterQueue"), (LOCAL_QUEUES, "LocalQueue")):
        middle = "namespaces/{namespace}/" if plural == LOCAL_QUEUES else ""
        get: Json = {
            "description": f"read the pending workloads of a {name}",
            "operationId": f"readVisibilityV1beta2{name}PendingWorkloads",
            "tags": ["visibilityKueue_v1beta2"],
            "parameters": _list_parameters(plural, describe),
            "responses": {"200": response, "401": {"description": "Unauthorized"}},
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": {"group": GROUP, "version": VERSION, "kind": KIND},
            **produces,
        }
        paths[f"{ROOT}/{middle}{plural}/{{name}}/{SUBRESOURCE}"] = {"get": get}
    return paths


_INFO = {"title": "Kueue visibility-server", "version": VERSION}


def _build_openapi_v2() -> Json:
    reference = "#/definitions/"
    response = {"description": "OK", "schema": {"$ref": f"{reference}{_PREFIX}.{KIND}"}}
    paths = _build_paths(response, lambda kind: {"type": kind, "uniqueItems": True}, {"produces": ["application/json"]})
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": _build_schemas(reference)}


def _build_openapi_v3() -> Json:
    reference = "#/components/schemas/"
    content = {"application/json": {"schema": {"$ref": f"{reference}{_PREFIX}.{KIND}"}}}
    paths = _build_paths({"description": "OK", "content": content}, lambda kind: {"schema": {"type": kind}}, {})
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": _build_schemas(reference)}}

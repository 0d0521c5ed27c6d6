"""Asking the webhook without a cluster: reviews as the API server makes them, and what their answers would do to an object."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from core.api.admission_review import AdmissionRequest, parse_review
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.model.gates import NO_GATES, ChosenGates
from core.names import GROUP, VERSION
from core.runtime.clock import Clock
from core.runtime.report.metrics import Sink
from webhook.lookup import LookupFailed
from webhook.registration import build_hook_path
from webhook.review import Reviews
from webhook.server import AdmissionServer

Json = dict[str, Any]
MUTATE_JOB, VALIDATE_JOB = "/mutate-batch-v1-job", "/validate-batch-v1-job"
NAMESPACE = "team-a"


# Of kinds that are queued; all others are our own.
_API = {kind.kind: (kind.group, kind.version, kind.plural) for kind in (*KINDS, *list_pod_kinds())}


def get_api(kind: str) -> tuple[str, str, str]:
    """Group, version and plural."""
    return _API.get(kind, (GROUP, VERSION, f"{kind.lower()}s"))


def hook(action: str, kind: str) -> str:
    group, version, _ = get_api(kind)
    return build_hook_path(action, group, version, kind)


def build_review(obj: Any, old: Any = None, **changes: Any) -> Json:
    """An AdmissionReview of creating `obj`, or of changing `old` to it; `changes` replace fields of the request."""
    kind = str(obj.get("kind", "Job")) if isinstance(obj, dict) else "Job"
    group, version, plural = get_api(kind)
    request = {
        "uid": "4f0c",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": plural},
        "name": "",
        "namespace": NAMESPACE,
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "someone"},
        "object": obj,
        "oldObject": old,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, **changes}}


def build_body(obj: Any, old: Any = None, **changes: Any) -> bytes:
    return json.dumps(build_review(obj, old, **changes)).encode()


class Webhook:
    """The reviews with a namespace that has its default queue, has none, or an API server that does not say (None)."""

    def __init__(self, *, default_queue: bool | None = False, groups: bool = True, gates: ChosenGates = NO_GATES) -> None:
        self.lookups: list[str] = []
        self._default_queue = default_queue
        self.reviews = Reviews(self._has_default_queue, groups=groups, gates=gates)

    async def _has_default_queue(self, namespace: str) -> bool:
        self.lookups.append(namespace)
        if self._default_queue is None:
            raise LookupFailed("503: etcd is slow")
        return self._default_queue

    def ask(self, path: str, obj: Any, old: Any = None, **changes: Any) -> Json:
        """The response part of the answer."""
        request = parse_review(build_body(obj, old, **changes))
        answer = run(self.reviews.answer(path, request))
        assert answer["response"]["uid"] == request.uid
        json.dumps(answer)
        response: Json = answer["response"]
        return response

    def mutate(self, obj: Json, **changes: Any) -> Json:
        """The object as it would be stored."""
        response = self.ask(hook("mutate", obj["kind"]), obj, **changes)
        assert response["allowed"]
        return apply(obj, patch_of(response))

    def validate(self, obj: Any, old: Any = None) -> Json:
        return self.ask(hook("validate", obj["kind"]), obj, old)


def run(coroutine: Coroutine[Any, Any, Json]) -> Json:
    """What a coroutine that waits for nothing returns."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        returned: Json = end.value
        return returned
    coroutine.close()
    raise AssertionError("it waits for something")


@asynccontextmanager
async def serving(
    reviews: Reviews, sink: Sink | None = None, clock: Clock | None = None
) -> AsyncIterator[tuple[TestClient[Any, Any], AdmissionServer]]:
    """The server on a port of its own, and a client of it."""
    server = AdmissionServer(reviews, sink=sink, clock=clock)
    async with TestClient(TestServer(server.app)) as client:
        yield client, server


def get_causes(response: Json) -> dict[str, str]:
    """Field to message of a refusal."""
    assert not response["allowed"]
    return {cause["field"]: cause["message"] for cause in response["status"]["details"]["causes"]}


def patch_of(response: Json) -> list[Json]:
    if "patch" not in response:
        return []
    assert response["patchType"] == "JSONPatch"
    operations: list[Json] = json.loads(base64.b64decode(response["patch"]))
    assert operations, "an empty patch is no patch"
    return operations


def apply(obj: Json, operations: list[Json]) -> Json:
    """RFC 6902 as far as maps go, strictly: what it names must be there, and `add` must not find anything."""
    result = copy.deepcopy(obj)
    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        parent = result
        for part in way:
            parent = parent[part]
        assert (operation["op"] == "add") == (last not in parent), operation
        if operation["op"] == "remove":
            del parent[last]
        else:
            parent[last] = operation["value"]
    return result


__all__ = ["AdmissionRequest", "Webhook", "apply", "build_body", "build_review", "get_causes", "hook", "patch_of", "run", "serving"]

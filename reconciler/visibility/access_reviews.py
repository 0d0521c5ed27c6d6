"""May a user read this? The API server is asked by a SubjectAccessReview; answers are kept for some seconds."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Protocol

from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.http.errors import KubeError
from core.runtime.http.parsing import encode
from reconciler.visibility.api_documents import GROUP, SUBRESOURCE, VERSION
from reconciler.visibility.front_proxy import MASTERS, ProxiedUser

SUBJECT_ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
KEPT_S = 10.0
"""As API servers keep the answers of an authorizer that they ask: a right that was taken away holds so long."""
MOST_KEPT = 2_048
AT_ONCE = 16
REVIEW_S = 5.0  # for one answer


class ReviewFailed(Exception):
    """The API server has not answered whether a request is allowed; the message has the reason."""


class ReviewClient(Protocol):
    """The verb needed of core.runtime.http.client."""

    async def create(self, resource: Resource, body: Obj) -> Obj:
        """Creates an object and returns it as stored, as `Client.create` does. Raises KubeError."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a request reads: the pending workloads of a queue, or where `path` is set that document."""

    plural: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def build_attributes(self) -> Obj:
        """Returns the attributes of a SubjectAccessReview."""
        if self.path:
            return {"nonResourceAttributes": {"path": self.path, "verb": "get"}}
        attributes = {"group": GROUP, "version": VERSION, "resource": self.plural, "subresource": SUBRESOURCE, "verb": "get"}
        return {"resourceAttributes": {**attributes, "namespace": self.namespace, "name": self.name}}


class AccessReviews:
    """Answers of the API server, `MOST_KEPT` at most, each for `KEPT_S` seconds; equal questions at one time are asked once."""

    def __init__(self, client: ReviewClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._kept: OrderedDict[bytes, tuple[float, bool]] = OrderedDict()  # until when, and whether it is allowed; the oldest first
        self._asked: dict[bytes, asyncio.Task[bool]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def is_allowed(self, user: ProxiedUser, access: Access) -> bool:
        """Whether a user may read something. Members of `system:masters` may, without a review, as with other API servers. Raises
        ReviewFailed where the API server does not answer within `REVIEW_S` seconds."""
        if MASTERS in user.groups:
            return True
        body = _build_review(user, access)
        key = hashlib.sha256(encode(body)).digest()
        kept = self._kept.get(key)
        if kept is not None and kept[0] > self._clock.monotonic():
            return kept[1]
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(self._ask(body))
            task.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(task)

    async def _ask(self, body: Obj) -> bool:
        try:
            async with asyncio.timeout(REVIEW_S), self._turns:
                answer = await self._client.create(SUBJECT_ACCESS_REVIEWS, body)
        except (KubeError, TimeoutError) as error:
            raise ReviewFailed(str(error) or f"no answer in {REVIEW_S:g} s") from error
        status: Any = answer.get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True

    def _end(self, key: bytes, done: asyncio.Task[bool]) -> None:
        del self._asked[key]
        if done.cancelled() or done.exception() is not None:
            return
        self._kept[key] = self._clock.monotonic() + KEPT_S, done.result()
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)


def _build_review(user: ProxiedUser, access: Access) -> Obj:
    spec: Obj = {"user": user.name, "groups": list(user.groups), "uid": user.uid}
    spec["extra"] = {name: list(values) for name, values in user.extra}
    return {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": SUBJECT_ACCESS_REVIEWS.kind, "spec": spec | access.build_attributes()}

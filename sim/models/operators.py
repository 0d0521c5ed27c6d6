"""Operators of job kinds: what `e2e.standins` says of each controller, asked of the API server in memory.

So there is one description of a controller, and what the real API server makes of its requests is seen in live tests.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from e2e.api import JSON, Api, ApiError
from e2e.standins.appwrapper import AppWrapperStandIn
from e2e.standins.base import StandIn
from e2e.standins.jobset import JobSetStandIn
from e2e.standins.leaderworkerset import LeaderWorkerSetStandIn
from e2e.standins.mpijob import MPIJobStandIn
from e2e.standins.pods import PodStandIn
from e2e.standins.ray import RayClusterStandIn, RayJobStandIn, RayServiceStandIn
from e2e.standins.sparkapplication import SparkApplicationStandIn
from e2e.standins.training import JAXJobStandIn, PaddleJobStandIn, PyTorchJobStandIn, TFJobStandIn, XGBoostJobStandIn
from e2e.standins.trainjob import TrainJobStandIn
from sim.apiserver.routes import find_request, handle_request
from sim.apiserver.server import Change, Refused, Server
from sim.models.base import Json, Key, Model, get_key, list_owners

OPERATORS: tuple[type[StandIn], ...] = (
    JobSetStandIn,
    LeaderWorkerSetStandIn,
    MPIJobStandIn,
    PyTorchJobStandIn,
    TFJobStandIn,
    XGBoostJobStandIn,
    PaddleJobStandIn,
    JAXJobStandIn,
    TrainJobStandIn,
    RayClusterStandIn,
    RayJobStandIn,
    RayServiceStandIn,
    SparkApplicationStandIn,
    AppWrapperStandIn,
)


class ApiInMemory(Api):
    """The client of a stand-in, which asks the API server in memory."""

    def __init__(self, server: Server, user: str) -> None:
        self._memory, self._user = server, user

    def request(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Json:
        """The answer. Raises ApiError."""
        path, _, query = path.partition("?")
        payload = None if body is None else json.dumps(body).encode()
        try:
            return handle_request(
                self._memory, find_request(self._memory, method, path, dict(parse_qsl(query)), payload, content_type, self._user)
            )
        except Refused as refused:
            raise ApiError(refused.code, str(refused.status["message"]), refused.status) from refused


class Operator(Model):
    """Looks at an object of its kind when that changes or what it controls, directly or not."""

    _latest: ClassVar[tuple[Change | None, list[tuple[tuple[str, str], Key]]]] = (None, [])
    """The latest change, where its object is stored, and where its owners are."""

    def __init__(self, described: type[StandIn], server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        self.resources = tuple(server.objects)
        super().__init__(server, loop, now)
        self._standin = described(ApiInMemory(server, f"system:serviceaccount:operators:{described.plural}"))
        if isinstance(self._standin, PodStandIn):
            self._standin.grace_s = None
        self._resource = described.group, described.plural

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if Operator._latest[0] is not change:  # asked by each operator in turn
            Operator._latest = change, [(change.resource, get_key(change.last)), *list_owners(self.server, change.last)]
        for found in Operator._latest[1]:
            if found[0] == self._resource:
                yield found
                return

    def look(self, resource: tuple[str, str], key: Key) -> None:
        obj = self.find(resource, key)
        if obj is None:
            return
        try:
            self._standin.reconcile(obj)
        except ApiError as error:
            raise Refused(error.status, "", str(error)) from error

    def list_missing(self, obj: Json) -> list[str]:
        """Names of pods that an object of its kind should have now and has not."""
        made = self._standin
        if not isinstance(made, PodStandIn) or made.is_suspended(obj) or made.is_over(obj):
            return []
        pods = made.find_pods(obj)
        return [each.name for each in made.wanted(obj, pods) if each.name not in pods]

    @property
    def resource(self) -> tuple[str, str]:
        """What its objects are stored under."""
        return self._resource

"""Operators of job kinds: what `e2e.standins` says of each controller, asked of the API server in memory.

So there is one description of a controller, and what the real API server makes of its requests is seen in live tests.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
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

    judges_rights = False

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
    """Looks at an object of its kind when that changes or what it controls, directly or not (`watch_for`)."""

    def __init__(self, described: type[StandIn], server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        super().__init__(server, loop, now)
        self._standin = described(ApiInMemory(server, f"system:serviceaccount:operators:{described.plural}"))
        if isinstance(self._standin, PodStandIn):
            self._standin.grace_s = None
        self._resource = described.group, described.plural

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


def watch_for(server: Server, operators: Sequence[Operator]) -> None:
    """From now on operators look at what changes, in their order: what has changed and its owners are found once for all of them."""
    of_resource = {operator.resource: operator for operator in operators}

    def observe(change: Change) -> None:
        found = dict[tuple[str, str], Key]()
        for resource, key in ((change.resource, get_key(change.last)), *list_owners(server, change.last)):
            if resource in of_resource:
                found.setdefault(resource, key)
        if found:
            for resource, operator in of_resource.items():
                if resource in found:
                    operator.add(resource, found[resource])

    for resource in server.objects:
        server.on_change_of[resource].append(observe)

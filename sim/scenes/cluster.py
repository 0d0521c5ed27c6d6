"""A World with what tests use of `e2e.cluster.Cluster`, whose time is that of all waits while it is in use."""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from e2e.api import JSON
from e2e.audit.follow import Follower, Tell
from e2e.clock import CLOCK
from e2e.cluster import ADMIN, Cluster
from e2e.standins.autoscaler import AutoscalerStandIn
from sim.apiserver.routes import find_request
from sim.apiserver.server import Change
from sim.models import define_kinds
from sim.models.operators import ApiInMemory, Operator
from sim.scenes.models import Definitions, EndedNamespaces, NodeStarter
from sim.scenes.proxy import SimulatedProxy
from sim.world import World

Json = dict[str, Any]
WRITE_S = 0.005
"""How long a write of a test takes: others may act meanwhile."""


class SimulatedTime:
    """That of a World. What is repeated is called between two events of it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.loop.time()

    def sleep(self, seconds: float) -> None:
        self._world.run_for(seconds)

    def now(self) -> datetime:
        return self._world.clock.now()

    def repeat(self, turn: Callable[[], bool], every_s: float, name: str) -> Callable[[], None]:
        loop, ended = self._world.loop, list[bool]()

        def run() -> None:
            if not ended and turn():
                loop.call_later(every_s, run)

        loop.call_later(every_s, run)
        return lambda: ended.append(True)


class SceneApi(ApiInMemory):
    """A user, whose writes take a moment, and who has objects of its own: what a test changes there changes nothing else."""

    def __init__(self, world: World, user: str = ADMIN) -> None:
        super().__init__(world.server, user)
        self._world = world

    def for_user(self, user: str) -> "SceneApi":
        """The same server, as somebody else."""
        return SceneApi(self._world, user)

    def close(self) -> None:
        """Nothing is open."""

    def request(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Json:
        answer = super().request(method, path, body, content_type)
        is_list = "items" in answer and method == "GET"
        copied: Json = from_json(self._world.server.write_list(answer) if is_list else self._world.server.to_bytes(answer))
        if method != "GET" and not self._world.loop.is_running():
            self._world.run_for(WRITE_S)
        return copied


class SimulatedFollower(Follower):
    """Hears of a change when it is made."""

    def __init__(self, world: World, path: str, tell: Tell) -> None:
        self._server, self._tell = world.server, tell
        self._request = find_request(world.server, "GET", path, {}, None, "")
        self._heard = world.server.on_change_of[self._request.kind.resource]

    def start(self) -> "SimulatedFollower":
        for obj in self._server.list_objects(self._request)["items"]:
            self._tell("ADDED", obj)
        self._heard.append(self._hear)
        return self

    def stop(self) -> None:
        self._heard.remove(self._hear)

    def _hear(self, change: Change) -> None:
        for _, event in self._server.to_events(self._request, change):
            self._tell(event["type"], event["object"])


class SimulatedCluster(Cluster):
    """Begins without nodes, without topogate (`SimulatedTopogate`), and without the kinds of operators; stand-ins act where a test calls
    them in."""

    def __init__(self, seed: int = 1) -> None:
        self._seed, self._nodes = seed, set[str]()
        self._stack = ExitStack()

    def start(self) -> "SimulatedCluster":
        self.world = world = World(self._seed, AutoscalerStandIn.definitions())
        self._stack.callback(world.close)
        self._stack.enter_context(CLOCK.use(SimulatedTime(world)))
        self.api, self.proxy = SceneApi(world), SimulatedProxy()
        for operator in (model for model in world.models if isinstance(model, Operator)):
            operator.is_stopped = True
        parts = world.server, world.loop, world.clock.now
        definitions = Definitions(*parts)
        world.models += [definitions, EndedNamespaces(*parts), NodeStarter(*parts)]
        for definition in (*define_kinds(), *AutoscalerStandIn.definitions()):
            definitions.remove(definition)
        return self

    def stop(self, *, keep_logs: bool = False) -> None:
        """Ends it, and gives the time of the machine back."""
        self._stack.close()

    @property
    def ended(self) -> list[str]:
        """No part ends by itself."""
        return []

    @property
    def log_dir(self) -> Path:
        """Nothing is logged."""
        return Path("nowhere")

    def wait_for_namespace(self, name: str) -> None:
        """Pods need no service account here."""

    def follow(self, path: str, tell: Tell) -> Follower:
        return SimulatedFollower(self.world, path, tell).start()

    def _in_parallel(self, method: str, requests: Any) -> None:
        for path, body in requests:
            if method == "DELETE":
                self.api.delete(path)
            else:
                self.api.request(method, path, body)

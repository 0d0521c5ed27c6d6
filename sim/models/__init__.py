"""Small models of what else writes in a cluster: controllers, kube-scheduler, kubelets, and the garbage collectors.

Each looks at what has changed a moment later, and writes through the API server as its real one does. What they do is what topogate can see
of the real ones, no more.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sim.apiserver.server import Server
from sim.models.apps import DeploymentController, ReplicaSetController, StatefulSetController
from sim.models.base import Model
from sim.models.checks import CheckController
from sim.models.devices import ClaimController
from sim.models.evictions import TaintEviction
from sim.models.jobs import JobController
from sim.models.kubelets import Kubelets
from sim.models.nodes import NodeLifecycle
from sim.models.operators import OPERATORS, Operator, watch_for
from sim.models.owners import GarbageCollector
from sim.models.pod_garbage import PodGarbageCollector
from sim.models.scheduler import Scheduler
from sim.models.tools import Tool

MODELS: tuple[type[Model], ...] = (
    GarbageCollector,
    JobController,
    ReplicaSetController,
    DeploymentController,
    StatefulSetController,
    Scheduler,
    Kubelets,
    NodeLifecycle,
    TaintEviction,
    PodGarbageCollector,
    Tool,
    CheckController,
    ClaimController,
)


def start_models(server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> list[Model]:
    """All of them, of operators, too; each looks at what changes from now on."""
    models = [model(server, loop, now) for model in MODELS]
    operators = [Operator(described, server, loop, now) for described in OPERATORS]
    watch_for(server, operators)
    return [*models, *operators]


def define_kinds() -> list[dict[str, Any]]:
    """The definitions of the kinds of all operators."""
    return [definition for described in OPERATORS for definition in described.definitions()]

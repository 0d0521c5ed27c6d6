"""Which kinds of job, and others that may be missing, the cluster has: an informer runs for each while its definition is served.

A kind that is not installed costs nothing, and one that appears is picked up without a restart.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping

from core.runtime.informer import Informer
from core.runtime.resource import Obj, Resource
from core.runtime.store import Change
from core.runtime.tasks import eternal

logger = logging.getLogger(__name__)
LOOK_S, FAILING_S = 1.0, 10.0


class Installed:
    """Starts and ends the informers of job kinds, as tasks of `group`."""

    def __init__(self, definitions: Informer, jobs: Mapping[str, Informer], group: asyncio.TaskGroup) -> None:
        self._definitions = definitions
        self._jobs = jobs
        self._group = group
        self._running: dict[str, asyncio.Task[object]] = {}
        self._awaited: dict[str, asyncio.Task[None]] = {}  # first lists that `start` waits for

    async def start(self) -> None:
        """Returns when all kinds that the cluster has, and does not lose meanwhile, have been listed once.

        A custom kind that cannot be listed for a while is left out: its conversion webhook may be gone, or a right may be missing, and
        other jobs need neither. It is used once it has been listed.
        """
        for key, informer in self._jobs.items():
            if is_built_in(informer.resource):
                self._run(key)
        self._definitions.add_handler(self._on_definition)
        async with asyncio.TaskGroup() as lists:
            for key in self._running:
                informer = self._jobs[key]
                self._awaited[key] = lists.create_task(_wait_for_list(informer), name=f"first list of {informer.resource}")
        self._awaited.clear()

    def _on_definition(self, change: Change) -> None:
        for key, informer in self._jobs.items():
            if not is_built_in(informer.resource) and _name(informer.resource) == change.obj["metadata"]["name"]:
                if change.new is not None and serves(change.new, informer.resource):
                    self._run(key)
                else:
                    self._end(key)

    def _run(self, key: str) -> None:
        if key not in self._running:
            informer = self._jobs[key]
            self._running[key] = eternal(self._group, f"informer {informer.resource}", informer.run())
            logger.info("kind is watched", extra={"resource": str(informer.resource)})

    def _end(self, key: str) -> None:
        task = self._running.pop(key, None)
        awaited = self._awaited.pop(key, None)
        if awaited is not None:
            awaited.cancel()
        if task is not None:
            task.cancel()
            self._jobs[key].forget_all()
            logger.info("kind is gone", extra={"resource": str(self._jobs[key].resource)})


async def _wait_for_list(informer: Informer) -> None:
    """Returns when a kind has been listed once, or, of a custom kind, when its list has failed for `FAILING_S`."""
    failing_s = 0.0
    while not informer.synced and failing_s < FAILING_S:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await informer.wait_synced()
        is_failing = informer.watcher.trouble is not None and not is_built_in(informer.resource)
        failing_s = failing_s + LOOK_S if is_failing else 0.0
    if not informer.synced:
        why = str(informer.watcher.trouble)
        logger.warning("kind cannot be listed; its jobs wait until it can", extra={"resource": str(informer.resource), "error": why})


def is_built_in(resource: Resource) -> bool:
    """Whether a resource is the API server's own: groups of custom resources have a dot in their names."""
    return "." not in resource.group


def is_served(resource: Resource, definitions: Iterable[Obj]) -> bool:
    """Whether a cluster with these CustomResourceDefinitions has a resource."""
    if is_built_in(resource):
        return True
    return any(definition["metadata"]["name"] == _name(resource) and serves(definition, resource) for definition in definitions)


def serves(definition: Obj, resource: Resource) -> bool:
    """Whether a CustomResourceDefinition serves a resource in the version that topogate speaks."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    established = any(condition.get("type") == "Established" and condition.get("status") == "True" for condition in conditions)
    versions = definition["spec"]["versions"]
    served = any(version["name"] == resource.version and version.get("served") for version in versions)
    return established and served and not definition["metadata"].get("deletionTimestamp")


def _name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"

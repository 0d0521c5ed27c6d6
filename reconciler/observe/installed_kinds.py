"""Which kinds of job, and others that may be missing, the cluster has: an informer runs for each while its definition is served.

A kind that is not installed costs nothing, and one that appears is picked up without a restart.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from core.plan.steps import pacing
from core.resource import Obj, Resource
from core.runtime.http.errors import Forbidden, ServerError
from core.runtime.tasks import start_eternal
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change

logger = logging.getLogger(__name__)


class InstalledKinds:
    """Starts and ends the informers of job kinds, as tasks of `group`."""

    def __init__(
        self,
        definitions: Informer,
        jobs: Mapping[str, Informer],
        group: asyncio.TaskGroup,
        is_used: Callable[[Informer], bool] = lambda informer: False,
    ) -> None:
        self._is_used = is_used
        self._definitions = definitions
        self._jobs = jobs
        self._group = group
        self._running: dict[str, asyncio.Task[object]] = {}
        self._awaited: dict[str, asyncio.Task[None]] = {}  # first lists that `start` waits for

    async def start(self) -> None:
        """Starts the informers of installed kinds, and returns when all kinds that the cluster has, and does not lose meanwhile, have been
        listed once. From then on, too, each kind is watched while its definition is served; when that ends, all its objects are dropped.

        A custom kind that cannot be listed for a while is left out, if nothing that has been listed is of one of its objects (`is_used`):
        its conversion webhook may be gone, or a right may be missing, and other jobs need neither. It is used once it has been listed. What
        is of an object that is not seen would be taken for something that nothing owns."""
        for key, informer in self._jobs.items():
            if is_built_in(informer.resource):
                self._run(key)
        self._definitions.add_handler(self._on_definition)
        async with asyncio.TaskGroup() as lists:
            for key in self._running:
                informer = self._jobs[key]
                self._awaited[key] = lists.create_task(self._wait_for_list(informer), name=f"first list of {informer.resource}")
        self._awaited.clear()

    async def _wait_for_list(self, informer: Informer) -> None:
        """Returns when a kind has been listed once, or when its list has been refused for a while and it is not used."""
        failing_s, resource = 0.0, informer.resource
        while not informer.synced:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pacing.INSTALLED_LOOK_S):
                    await informer.wait_synced()
            trouble = informer.watcher.trouble
            is_refused = isinstance(trouble, Forbidden | ServerError) and not is_built_in(resource)
            failing_s = failing_s + pacing.INSTALLED_LOOK_S if is_refused else 0.0
            if informer.synced or failing_s < pacing.INSTALLED_FAILING_S:
                continue
            failing_s, is_used = 0.0, self._is_used(informer)
            what = "topogate does not start before it can, since objects of it are in use" if is_used else "its jobs wait until it can"
            logger.warning("kind cannot be listed", extra={"resource": str(resource), "error": str(trouble), "what": what})
            if not is_used:
                return

    def _on_definition(self, change: Change) -> None:
        for key, informer in self._jobs.items():
            if not is_built_in(informer.resource) and _name(informer.resource) == change.obj["metadata"]["name"]:
                if change.new is not None and is_serving(change.new, informer.resource):
                    self._run(key)
                else:
                    self._end(key)

    def _run(self, key: str) -> None:
        if key not in self._running:
            informer = self._jobs[key]
            self._running[key] = start_eternal(self._group, f"informer {informer.resource}", informer.run())
            logger.info("kind is watched", extra={"resource": str(informer.resource)})

    def _end(self, key: str) -> None:
        task = self._running.pop(key, None)
        awaited = self._awaited.pop(key, None)
        if awaited is not None:
            awaited.cancel()
        if task is not None:
            task.cancel()
            self._jobs[key].drop_all()
            logger.info("kind is gone", extra={"resource": str(self._jobs[key].resource)})


def is_built_in(resource: Resource) -> bool:
    """Whether a resource counts as the API server's own: its group has no dot in its name, as core, `apps` and `batch`. Own groups with a
    dot, such as `storage.k8s.io`, do not count."""
    return "." not in resource.group


def is_served(resource: Resource, definitions: Iterable[Obj]) -> bool:
    """Whether a cluster with these CustomResourceDefinitions has a resource in the version that topogate uses (see `is_serving`); always
    True where `is_built_in`."""
    if is_built_in(resource):
        return True
    return any(definition["metadata"]["name"] == _name(resource) and is_serving(definition, resource) for definition in definitions)


def is_serving(definition: Obj, resource: Resource) -> bool:
    """Whether a CustomResourceDefinition serves a resource in the version that topogate uses: it is established and not being deleted. That
    it is of this resource is not looked at."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    established = any(condition.get("type") == "Established" and condition.get("status") == "True" for condition in conditions)
    versions = definition["spec"]["versions"]
    served = any(version["name"] == resource.version and version.get("served") for version in versions)
    return established and served and not definition["metadata"].get("deletionTimestamp")


def _name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"

"""What a review must look up: who a job is part of, and what it refers to. Each is one bounded GET, made only for objects that name one."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from core.jobs.contract import Json, Referring
from core.jobs.pod_kinds import Reviewed
from core.names import QUEUE_NAME_LABEL
from core.runtime.resource import Resource

# An object by resource, name and namespace, None where there is none; raises LookupFailed where it cannot be told in time.
Find = Callable[[Resource, str, str], Awaitable[Json | None]]
Asked = ParamSpec("Asked")
Found = TypeVar("Found")
_MOST_STEPS = 4  # TrainJob, JobSet, Job; and one to spare


class LookupFailed(Exception):
    """The API server did not answer in time."""


async def find_nothing(resource: Resource, name: str, namespace: str) -> Json | None:
    """For who looks up nothing."""
    return None


class Lookup:
    """Lookups for jobs of some kinds."""

    def __init__(self, kinds: Sequence[Reviewed], find: Find) -> None:
        self._find = find
        self._resources = {(kind.group, kind.kind): Resource(kind.group, kind.version, kind.plural, kind.kind) for kind in kinds}

    async def is_part_of_queued(self, job: Json, namespace: str) -> bool:
        """Whether an object above a job, made by the controller of that, is queued: then it is not queued and suspended itself."""
        here: Json | None = job
        for _ in range(_MOST_STEPS):
            owner = _controller(here)
            resource = self._resources.get((str(owner.get("apiVersion") or "").rpartition("/")[0], str(owner.get("kind") or "")))
            if resource is None or not isinstance(owner.get("name"), str) or not owner["name"]:
                return False
            here = await self._find(resource, owner["name"], namespace)
            if here is None or here["metadata"]["uid"] != owner.get("uid"):
                return False
            if QUEUE_NAME_LABEL in (here["metadata"].get("labels") or {}):
                return True
        return False

    async def expanded(self, kind: object, job: dict[str, Any], namespace: str) -> dict[str, Any]:
        """A job with what it refers to; as it is where that is not there, or cannot be read now: it is judged again afterwards."""
        reference = kind.reference(job) if isinstance(kind, Referring) else None
        if reference is None or not isinstance(kind, Referring):
            return job
        related = reference.related
        resource = Resource(related.group, related.version, related.plural, related.kind, namespaced=related.namespaced)
        try:
            found = await self._find(resource, reference.name, namespace)
        except LookupFailed:
            return job
        return job if found is None else kind.expanded(job, found)


def _controller(obj: Json | None) -> Mapping[str, Any]:
    """The owner reference of what controls an object; anything may stand in a new one."""
    metadata = (obj or {}).get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    found = (owner for owner in (owners if isinstance(owners, list) else ()) if isinstance(owner, dict) and owner.get("controller") is True)
    return next(found, {})


def at_home(look_up: Callable[Asked, Coroutine[Any, Any, Found]]) -> Callable[Asked, Awaitable[Found]]:
    """The same look-up for whoever judges a large review on a loop of its own: the client's session belongs to this one."""
    home = asyncio.get_running_loop()

    async def look(*args: Asked.args, **kwargs: Asked.kwargs) -> Found:
        if asyncio.get_running_loop() is home:
            return await look_up(*args, **kwargs)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(look_up(*args, **kwargs), home))

    return look

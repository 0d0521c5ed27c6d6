"""Plain lists of what a user may read. It imports nothing that a list does not need: `topogate queue` reads while it imports the rest."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from cli.failures import Failure, describe_missing_right, report_in_a_line
from core.names import PAUSE_CONFIG_MAP
from core.plan.steps import api_resources as r
from core.resource import Obj, Resource
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden, NotFound

_AT_ONCE = 8  # reads of single objects under way
_CLUSTER_WIDE = (
    r.NAMESPACES,
    r.RUNTIME_CLASSES,
    r.PRIORITY_CLASSES,
    r.TOPOLOGIES,
    r.RESOURCE_FLAVORS,
    r.COHORTS,
    r.ADMISSION_CHECKS,
)


@dataclass(frozen=True, slots=True)
class ListedQueues:
    """The queues, their workloads and what defines them, as objects. `namespace` and `unreadable` as in `ClusterReading`."""

    objects: Mapping[Resource, list[Obj]]
    namespace: str | None
    unreadable: tuple[Resource, ...]


async def list_queues(client: Client, system_namespace: str, namespace: str) -> ListedQueues:
    """Returns the queues, their workloads and what defines them, listed once. Where Workloads or LocalQueues of all namespaces may not be
    listed those of `namespace` are, and of ClusterQueues those that its LocalQueues name. What may not be read at all is left out, and
    named in the result. `system_namespace` is topogate's own. Raises Failure where not even Workloads and LocalQueues of the namespace may
    be listed, or a list fails."""
    objects, unreadable, only = dict[Resource, list[Obj]](), list[Resource](), None
    for resource in (r.LOCAL_QUEUES, r.WORKLOADS):
        with report_in_a_line(f"list {resource}", resource):
            found = await list_if_permitted(client, resource) if only is None else None
            if found is None:
                only = namespace
                found = await list_if_permitted(client, resource, namespace)
            if found is None:
                raise Failure(describe_missing_right(resource, namespace))
        objects[resource] = found
    for resource in (*_CLUSTER_WIDE, r.LIMIT_RANGES):
        with report_in_a_line(f"list {resource}", resource):
            found = await list_if_permitted(client, resource)
            if found is None and resource.namespaced and only is not None:
                found = await list_if_permitted(client, resource, only)
        if found is None:
            unreadable.append(resource)
        objects[resource] = found or []
    with report_in_a_line(f"list {r.CLUSTER_QUEUES}", r.CLUSTER_QUEUES):
        queues = await list_if_permitted(client, r.CLUSTER_QUEUES)
    if queues is None:
        unreadable.append(r.CLUSTER_QUEUES)
        names = {(queue.get("spec") or {}).get("clusterQueue") or "" for queue in objects[r.LOCAL_QUEUES]} - {""}
        queues = await get_permitted_queues(client, names)
    objects[r.CLUSTER_QUEUES] = queues
    with report_in_a_line(f"list {r.CONFIG_MAPS}", r.CONFIG_MAPS):
        # Not every user may read the ConfigMap of pauses; the conditions of queues and Workloads report a pause, too.
        named = f"metadata.name={PAUSE_CONFIG_MAP}"
        objects[r.CONFIG_MAPS] = await list_if_permitted(client, r.CONFIG_MAPS, system_namespace, named) or []
    return ListedQueues(objects, only, tuple(unreadable))


async def list_if_permitted(
    client: Client, resource: Resource, namespace: str | None = None, field_selector: str | None = None
) -> list[Obj] | None:
    """Returns the objects of a resource, of one namespace or all (None); None where they may not be listed. Raises any other KubeError."""
    try:
        return (await client.list(resource, namespace, field_selector=field_selector)).items
    except Forbidden:
        return None


async def get_permitted_queues(client: Client, names: Iterable[str]) -> list[Obj]:
    """Returns the ClusterQueues of these names that are there and that may be read one by one, sorted. `_AT_ONCE` are read at a time.
    Raises Failure for another error."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def get(name: str) -> Obj | None:
        async with turns:
            with suppress(Forbidden, NotFound):
                return await client.get(r.CLUSTER_QUEUES, name)
            return None

    with report_in_a_line(f"get {r.CLUSTER_QUEUES}", r.CLUSTER_QUEUES):
        try:
            async with asyncio.TaskGroup() as group:
                reads = [group.create_task(get(name)) for name in sorted(names)]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
    return [queue for read in reads if (queue := read.result()) is not None]

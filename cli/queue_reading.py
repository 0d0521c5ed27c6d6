"""What `topogate queue` reads: the queues and their workloads, as far as the user may read them, and nothing of nodes and pods."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import typer

from cli.failures import Failure, report_in_a_line
from core.jobs.contract import JobKind
from core.names import PAUSE_CONFIG_MAP
from core.plan.steps import api_resources as r
from core.resource import Obj, Resource
from core.runtime.clock import Clock, SystemClock
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden, NotFound
from reconciler.measure.outlook import Outlook
from reconciler.settings import Settings

WATCH_S = 2.0  # between two reads
_SHARE = 9  # a read that takes longer is followed by a pause that is so many times as long
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
class QueueReading:
    """A cluster as far as its queues can be read. `namespace`: the only one with Workloads that could be read; None: all could.
    `unreadable`: resources that could not be listed, or of which only those that are named could be read."""

    outlook: Outlook
    namespace: str | None = None
    unreadable: tuple[Resource, ...] = ()

    @property
    def has_whole_quota(self) -> bool:
        """Whether all is known that uses quota: all Workloads, ClusterQueues and Cohorts."""
        return self.namespace is None and not {r.CLUSTER_QUEUES, r.COHORTS}.intersection(self.unreadable)


async def read_queues(client: Client, settings: Settings, kinds: Sequence[JobKind], namespace: str) -> QueueReading:
    """Returns the queues, their workloads and what defines them, listed once. Where Workloads or LocalQueues of all namespaces may not be
    listed those of `namespace` are, and of ClusterQueues those that its LocalQueues name. What may not be read at all is left out, and
    named in the result. Raises Failure where not even Workloads and LocalQueues of the namespace may be listed, or a list fails."""
    objects, unreadable, only = dict[Resource, list[Obj]](), list[Resource](), None
    for resource in (r.LOCAL_QUEUES, r.WORKLOADS):
        with report_in_a_line(f"list {resource}", resource):
            found = await _list(client, resource) if only is None else None
            if found is None:
                only = namespace
                found = (await client.list(resource, namespace)).items
        objects[resource] = found
    for resource in (*_CLUSTER_WIDE, r.LIMIT_RANGES):
        with report_in_a_line(f"list {resource}", resource):
            found = await _list(client, resource)
            if found is None and resource.namespaced and only is not None:
                found = await _list(client, resource, only)
        if found is None:
            unreadable.append(resource)
        objects[resource] = found or []
    queues = await _read_cluster_queues(client, objects[r.LOCAL_QUEUES])
    objects[r.CLUSTER_QUEUES], is_whole = queues
    unreadable += [] if is_whole else [r.CLUSTER_QUEUES]
    with report_in_a_line(f"list {r.CONFIG_MAPS}", r.CONFIG_MAPS):
        # Not every user may read the ConfigMap of pauses; the conditions of queues and Workloads report a pause, too.
        named = f"metadata.name={PAUSE_CONFIG_MAP}"
        objects[r.CONFIG_MAPS] = await _list(client, r.CONFIG_MAPS, settings.namespace, named) or []
    outlook = Outlook(client, SystemClock(), settings, kinds)
    outlook.observed.fill(objects)
    return QueueReading(outlook, only, tuple(unreadable))


async def _list(client: Client, resource: Resource, namespace: str | None = None, field_selector: str | None = None) -> list[Obj] | None:
    """None where it may not be listed."""
    try:
        return (await client.list(resource, namespace, field_selector=field_selector)).items
    except Forbidden:
        return None


async def _read_cluster_queues(client: Client, local_queues: Sequence[Obj]) -> tuple[list[Obj], bool]:
    """All ClusterQueues, or those that LocalQueues name and that may be read one by one; and whether these are all."""
    with report_in_a_line(f"list {r.CLUSTER_QUEUES}", r.CLUSTER_QUEUES):
        found = await _list(client, r.CLUSTER_QUEUES)
        if found is not None:
            return found, True
        found = []
        for name in sorted({(queue.get("spec") or {}).get("clusterQueue") or "" for queue in local_queues} - {""}):
            try:
                found.append(await client.get(r.CLUSTER_QUEUES, name))
            except (Forbidden, NotFound):
                continue
        return found, False


async def watch(read: Callable[[], Awaitable[QueueReading]], show: Callable[[QueueReading], None], clock: Clock) -> None:
    """Reads and shows again and again, until it is cancelled. Between two reads it waits for `WATCH_S` seconds, and nine times as long as a
    read took where that is more: so it uses a tenth of the time of the API server at most. Raises Failure of the first read; a later one is
    printed on stderr, and the next read may succeed."""
    is_first = True
    while True:
        began = clock.monotonic()
        try:
            show(await read())
        except Failure as error:
            if is_first:
                raise
            for line in error.lines:
                typer.echo(f"topogate: {line}", err=True)
        is_first = False
        await clock.sleep(max(WATCH_S, _SHARE * (clock.monotonic() - began)))

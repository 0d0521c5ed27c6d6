"""What `topogate queue` reads: the queues and their workloads, as far as the user may read them, and nothing of nodes and pods."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from cli.failures import Failure, report_in_a_line
from cli.permitted_reading import ClusterReading, get_permitted_queues, list_if_permitted
from cli.reporting.table import print_remark
from core.jobs.contract import JobKind
from core.names import PAUSE_CONFIG_MAP
from core.plan.steps import api_resources as r
from core.resource import Obj, Resource
from core.runtime.clock import Clock, SystemClock
from core.runtime.http.client import Client
from reconciler.measure.outlook import Outlook
from reconciler.settings import Settings

Found = TypeVar("Found")
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


async def read_queues(client: Client, settings: Settings, kinds: Sequence[JobKind], namespace: str) -> ClusterReading:
    """Returns the queues, their workloads and what defines them, listed once. Where Workloads or LocalQueues of all namespaces may not be
    listed those of `namespace` are, and of ClusterQueues those that its LocalQueues name. What may not be read at all is left out, and
    named in the result. Raises Failure where not even Workloads and LocalQueues of the namespace may be listed, or a list fails."""
    objects, unreadable, only = dict[Resource, list[Obj]](), list[Resource](), None
    for resource in (r.LOCAL_QUEUES, r.WORKLOADS):
        with report_in_a_line(f"list {resource}", resource):
            found = await list_if_permitted(client, resource) if only is None else None
            if found is None:
                only = namespace
                found = (await client.list(resource, namespace)).items
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
        objects[r.CONFIG_MAPS] = await list_if_permitted(client, r.CONFIG_MAPS, settings.namespace, named) or []
    outlook = Outlook(client, SystemClock(), settings, kinds)
    outlook.observed.fill(objects)
    return ClusterReading(outlook, only, tuple(unreadable))


async def watch(read: Callable[[], Awaitable[Found]], show: Callable[[Found], None], clock: Clock) -> None:
    """Reads and shows again and again, until it is cancelled. Between two reads it waits for `WATCH_S` seconds, and nine times as long as a
    read took where that is more: so it uses a tenth of the time of the API server at most. Raises Failure of the first read; a later one is
    printed on stderr, once while it stays the same, and the next read may succeed."""
    is_first, failed = True, tuple[str, ...]()
    while True:
        began = clock.monotonic()
        try:
            show(await read())
            failed = ()
        except Failure as error:
            if is_first:
                raise
            for line in error.lines if error.lines != failed else ():
                print_remark(line)
            failed = error.lines
        is_first = False
        await clock.sleep(max(WATCH_S, _SHARE * (clock.monotonic() - began)))

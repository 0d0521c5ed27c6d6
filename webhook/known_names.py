"""The queues and topologies that the webhook knows, so that a misspelt queue or level draws a warning when it is applied.

Four watches keep them: no review asks the API server. What is kept may be old by the delay of a watch, so that it refuses nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from heapq import nsmallest
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from core.jobs.annotation_catalog import OWN
from core.jobs.annotations import build_topology_request
from core.jobs.contract import Json
from core.names import (
    AUTO_LEVEL,
    PREFERRED_TOPOLOGY,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED_TOPOLOGY,
    WORKLOAD_PREFERRED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from core.plan.steps import api_resources as r
from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.http.client import Client
from core.runtime.watch.watcher import Applied, Deleted, Event, Init, InitApply, InitDone, Watcher, WatchPolicy
from webhook.answers import get_metadata_map
from webhook.gated_rules import list_templates

WATCHED = (r.LOCAL_QUEUES, r.CLUSTER_QUEUES, r.RESOURCE_FLAVORS, r.TOPOLOGIES)
logger = logging.getLogger(__name__)
MOST_OBJECTS = 20_000
"""Of one resource. Where a cluster has more, nothing of that resource is known, and so no warning is given."""
AGAIN_S = 600.0
"""After that a resource is listed again that had too many objects, or for which the watch has failed, and not by the API server."""
SILENT_S = 60.0
"""Nothing is known by a watch that has been silent for so long, broken or not: no warning is better than a false one. Twice the time of a
stream, as a stream that breaks just before its end is no reason to fall silent."""
_POLICY = WatchPolicy(timeout_s=30)  # its end is a sign of life, also of a stream without any bookmark
MOST_WARNINGS = 4
_MOST_COMPARED, _MOST_LOOKED_AT = 16, 2_000  # names; comparing two takes up to 0.3 ms, and nothing else is served meanwhile
_LONGEST_COMPARED = 63
_MODES = {"required": REQUIRED_TOPOLOGY, "preferred": PREFERRED_TOPOLOGY, "podSetSliceRequiredTopology": SLICE_REQUIRED_TOPOLOGY}
_QUEUE_FIELD = f"metadata.labels[{QUEUE_NAME_LABEL}]"

Value = TypeVar("Value")
_ByNamespace = dict[str, dict[str, Value | None]]


class NamedLevel(NamedTuple):
    """A level as a job names it, and the field in which it does."""

    field: str
    level: str


def list_named_levels(kind: object, job: Json) -> list[NamedLevel]:
    """Returns each level that a job and its pod templates name, without `auto`, in the order of the templates. The job must have the shape
    of its kind."""
    own = get_metadata_map(job, "annotations")
    found = [NamedLevel(f"{OWN}[{name}]", own[name]) for name in (WORKLOAD_REQUIRED_TOPOLOGY, WORKLOAD_PREFERRED_TOPOLOGY) if name in own]
    for path, annotations in list_templates(kind, job):
        request = build_topology_request(annotations, default_slice_size=1) or {}
        found += [NamedLevel(f"{path}[{name}]", request[mode]) for mode, name in _MODES.items() if mode in request]
        layers = request.get("podsetSliceRequiredTopologyConstraints", ())
        found += [NamedLevel(f"{path}[{SLICE_CONSTRAINTS}]", layer["topology"]) for layer in layers]
    return [named for named in found if isinstance(named.level, str) and named.level != AUTO_LEVEL]


class _TooMany(Exception):
    """There are more than `MOST_OBJECTS`."""


class _Known(Generic[Value]):
    """The objects of one resource, by namespace (empty: none) and name, each as one small value: None for one that cannot be read. All
    is None while it is not known."""

    def __init__(self, client: Client, resource: Resource, read: Callable[[Obj], Value], clock: Clock) -> None:
        self.resource = resource
        self._client, self._read, self._clock = client, read, clock
        self._watcher: Watcher | None = None
        self._found: _ByNamespace[Value] | None = None
        self._listed: _ByNamespace[Value] | None = None
        self._count = 0

    async def run(self) -> None:
        """Watches until it is cancelled; nothing that goes wrong here ends the process that answers reviews."""
        while True:
            self._watcher = Watcher(self._client, self.resource, clock=self._clock, policy=_POLICY)
            try:
                await self._watcher.run(self.apply_event)
            except _TooMany:
                logger.warning("too many objects to warn of misspelt names", extra={"resource": str(self.resource), "most": MOST_OBJECTS})
            except Exception:
                logger.exception("no warnings of misspelt names for a while", extra={"resource": str(self.resource)})
            self._found = self._listed = None
            await self._clock.sleep(AGAIN_S)

    @property
    def is_known(self) -> bool:
        """Whether there was a whole list, and the API server has answered since, the last time at most `SILENT_S` seconds ago."""
        if self._found is None or self._watcher is None:
            return False
        return (self._watcher.compute_event_age() or 0.0) <= SILENT_S

    def get_all(self, namespace: str = "") -> Mapping[str, Value | None]:
        """Returns the objects of a namespace; empty where they are not known."""
        return (self._found or {}).get(namespace, {}) if self.is_known else {}

    async def apply_event(self, event: Event) -> None:
        """Folds in what the watch delivers."""
        match event:
            case Init():
                self._listed, self._count = {}, 0
            case InitDone():
                self._found, self._listed = self._listed, None
            case InitApply(obj):
                self._put(self._listed, obj)
            case Applied(obj):
                self._put(self._found, obj)
            case Deleted(obj):
                self._remove(obj)

    def _put(self, found: "_ByNamespace[Value] | None", obj: Obj) -> None:
        if found is None:
            return
        metadata = obj["metadata"]
        there = found.setdefault(metadata.get("namespace") or "", {})
        self._count += metadata["name"] not in there
        try:
            there[metadata["name"]] = self._read(obj)
        except (AttributeError, KeyError, TypeError):  # an object that is older than its schema
            there[metadata["name"]] = None
        if self._count > MOST_OBJECTS:
            raise _TooMany

    def _remove(self, obj: Obj) -> None:
        if self._found is None:
            return
        metadata = obj["metadata"]
        namespace = metadata.get("namespace") or ""
        there = self._found.get(namespace, {})
        if metadata["name"] in there:
            del there[metadata["name"]]
            self._count -= 1
        if not there:
            self._found.pop(namespace, None)


class ListNameWarnings(Protocol):
    """How a review asks for warnings, as `KnownNames.list_warnings` answers."""

    def __call__(self, namespace: str, queue: str, levels: Sequence[NamedLevel], *, is_new: bool) -> Awaitable[list[str]]: ...


async def list_no_warnings(namespace: str, queue: str, levels: Sequence[NamedLevel], *, is_new: bool) -> list[str]:
    """Returns no warning, for reviews without names."""
    return []


class KnownNames:
    """What is known of LocalQueues, ClusterQueues, ResourceFlavors and Topologies, while `run` runs."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._queues = _Known(client, r.LOCAL_QUEUES, _read_cluster_queue, clock)
        self._cluster_queues = _Known(client, r.CLUSTER_QUEUES, _read_flavors, clock)
        self._flavors = _Known(client, r.RESOURCE_FLAVORS, _read_topology, clock)
        self._topologies = _Known(client, r.TOPOLOGIES, _read_levels, clock)

    async def run(self) -> None:
        """Watches until it is cancelled. What cannot be read, or may not, is not known."""
        async with asyncio.TaskGroup() as group:
            for known in (self._queues, self._cluster_queues, self._flavors, self._topologies):
                group.create_task(known.run(), name=f"names of {known.resource}")

    async def list_warnings(self, namespace: str, queue: str, levels: Sequence[NamedLevel], *, is_new: bool) -> list[str]:
        """Returns the warnings of a job, `MOST_WARNINGS` at most: that there is no LocalQueue `queue`, or no ClusterQueue that it names,
        where the queue `is_new`, or else which of `levels` no topology of the queue has. Empty where the names are not known. It waits for
        nothing; a large review, in a thread of its own, asks in the loop that watches."""
        if is_new and not self._has_queue(namespace, queue):
            return [warn_of_queue(namespace, queue, self._queues.get_all(namespace))]
        if is_new and (cluster_queue := self._find_missing_cluster_queue(namespace, queue)):
            return [warn_of_cluster_queue(queue, cluster_queue)]
        known = self._find_levels(namespace, queue) if levels else None
        return list(islice(warn_of_levels(queue, levels, known), MOST_WARNINGS)) if known is not None else []

    def _has_queue(self, namespace: str, queue: str) -> bool:
        return not self._queues.is_known or queue in self._queues.get_all(namespace)

    def _find_missing_cluster_queue(self, namespace: str, queue: str) -> str | None:
        """The ClusterQueue that a LocalQueue names and that is not there."""
        name = self._queues.get_all(namespace).get(queue)
        return name if name and self._cluster_queues.is_known and name not in self._cluster_queues.get_all() else None

    def _find_levels(self, namespace: str, queue: str) -> list[str] | None:
        """The levels of all topologies that the flavors of a LocalQueue have; None where one of these objects is not known."""
        flavors = self._cluster_queues.get_all().get(self._queues.get_all(namespace).get(queue) or "")
        topologies = [self._flavors.get_all().get(flavor) for flavor in flavors or ()]
        found = [self._topologies.get_all().get(topology) for topology in topologies if topology]
        if not flavors or None in topologies or None in found:
            return None
        return list(dict.fromkeys(level for levels in found for level in levels or ()))


def warn_of_queue(namespace: str, queue: str, known: Iterable[str]) -> str:
    """Returns the warning that a namespace has no LocalQueue of a name, with the nearest of those that it has."""
    near = _find_nearest(queue, known)
    more = f"; did you mean {near}?" if near is not None else ""
    return f"{_QUEUE_FIELD}: namespace {namespace} has no LocalQueue {queue}, and this object waits until it has{more}"


def warn_of_cluster_queue(queue: str, cluster_queue: str) -> str:
    """Returns the warning that a LocalQueue names a ClusterQueue that is not there."""
    return (
        f"{_QUEUE_FIELD}: LocalQueue {queue} names ClusterQueue {cluster_queue}, which does not exist, and this object waits until it does"
    )


def warn_of_levels(queue: str, named: Sequence[NamedLevel], known: Sequence[str]) -> Iterator[str]:
    """Yields a warning for each level, once, that is not among `known`, the levels that a LocalQueue has; one alone where that has none."""
    warned = set[str]()
    for field, level in named:
        if level in known or level in warned:
            continue
        warned.add(level)
        near = _find_nearest(level, known)
        if not known:
            yield f"{field}: no flavor of LocalQueue {queue} has a topology, and this object waits until one has"
            return
        yield f"{field}: LocalQueue {queue} has no level {level}; {f'did you mean {near}?' if near is not None else _show_some(known)}"


def _show_some(known: Sequence[str]) -> str:
    more = f" and {len(known) - 3} more" if len(known) > 3 else ""
    return f"its levels are {', '.join(known[:3])}{more}"


def _find_nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that resembles another one most; None where none does, or it is too long to be compared."""
    if len(name) > _LONGEST_COMPARED:
        return None
    short = (each for each in islice(known, _MOST_LOOKED_AT) if len(each) <= _LONGEST_COMPARED)
    compared = nsmallest(_MOST_COMPARED, short, key=lambda each: abs(len(each) - len(name)))
    return next(iter(get_close_matches(name, compared, n=1)), None)


def _read_cluster_queue(queue: Obj) -> str:
    return str(_get_spec(queue).get("clusterQueue") or "")


def _read_flavors(queue: Obj) -> tuple[str, ...]:
    groups = _get_spec(queue).get("resourceGroups") or ()
    return tuple(dict.fromkeys(str(flavor["name"]) for group in groups for flavor in group.get("flavors") or ()))


def _read_topology(flavor: Obj) -> str:
    return str(_get_spec(flavor).get("topologyName") or "")


def _read_levels(topology: Obj) -> tuple[str, ...]:
    return tuple(str(level["nodeLabel"]) for level in _get_spec(topology).get("levels") or ())


def _get_spec(obj: Obj) -> dict[str, Any]:
    return obj.get("spec") or {}

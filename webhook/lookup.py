"""What a review looks up: the owners of a job, and the object that it refers to. Each is one bounded GET, made only for
objects that name one."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from core.jobs.contract import JobKind, Json, Referring, Reviewed
from core.jobs.kinds.sparkapplication import SparkApplication
from core.jobs.pod_rules import explain_size
from core.jobs.schema_check import find_misshapen
from core.jobs.templated import parse_integer
from core.names import DOMAIN_INDEX_ANNOTATION, PODSET_LABEL, QUEUE_NAME_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from core.plan.steps import api_resources as r
from core.resource import Resource

# Finds an object by resource, name and namespace, None where there is none; raises LookupFailed where there is no
# answer in time.
Find = Callable[[Resource, str, str], Awaitable[Json | None]]
Asked = ParamSpec("Asked")
Found = TypeVar("Found")
_MOST_STEPS = 6  # of a worker of a LeaderWorkerSet in an AppWrapper: StatefulSet, leader, StatefulSet, LeaderWorkerSet, AppWrapper
_POD = ("", "Pod")
_DRIVEN = (SparkApplication.group, SparkApplication.kind)  # the one kind with pods that make pods


class LookupFailed(Exception):
    """The API server did not answer in time."""


async def find_nothing(resource: Resource, name: str, namespace: str) -> Json | None:
    """Returns None, for a review without look-ups."""
    return None


class Lookup:
    """Lookups for objects that those of `queued` may have made, each by way of others that are `between`."""

    def __init__(self, queued: Iterable[Reviewed], find: Find, between: Iterable[Reviewed] = ()) -> None:
        self._find = find
        self._queued = {(kind.group, kind.kind): r.get_resource(kind) for kind in queued}
        self._between = {(kind.group, kind.kind): r.get_resource(kind) for kind in between}

    async def is_part_of_queued(self, obj: Json, namespace: str) -> bool:
        """Returns whether a queued object controls an object, directly or by way of others: one of a kind in `queued` with the label of a
        queue. Those between must be of known kinds too, and `_MOST_STEPS` are looked up at most. The object itself is not queued then. An
        owner that is not there with the uid of the reference ends the search. Raises LookupFailed where the API server gives no answer in
        time, or any error but that an object is not there."""
        return bool(await self._list_above(obj, namespace))

    async def _list_above(self, obj: Json, namespace: str) -> list[Json]:
        """Returns the objects above an object, up to a queued one; empty where none is queued."""
        above: list[Json] = []
        for _ in range(_MOST_STEPS):
            owner = find_controller(above[-1] if above else obj)
            found = await self._find_owner(owner, namespace)
            if found is None:
                return []
            above.append(found)
            if _build_key(owner) in self._queued and QUEUE_NAME_LABEL in (found["metadata"].get("labels") or {}):
                return above
        return []

    async def _find_owner(self, owner: Mapping[str, Any], namespace: str) -> Json | None:
        """The very object that a reference means."""
        resource = self._queued.get(_build_key(owner)) or self._between.get(_build_key(owner))
        if resource is None or not isinstance(owner.get("name"), str) or not owner["name"]:
            return None
        found = await self._find(resource, owner["name"], namespace)
        return None if found is None or found["metadata"]["uid"] != owner.get("uid") else found

    async def expand(self, kind: object, job: dict[str, Any], namespace: str) -> dict[str, Any]:
        """Returns a job with what it refers to filled in, which is looked up. Returns it unchanged where it refers to nothing, or what it
        refers to is not there, is too large, or cannot be read now: it is judged again afterwards."""
        reference = kind.find_reference(job) if isinstance(kind, Referring) else None
        if reference is None or not isinstance(kind, Referring):
            return job
        related = reference.related
        resource = Resource(related.group, related.version, related.plural, related.kind, namespaced=related.namespaced)
        try:
            found = await self._find(resource, reference.name, namespace)
        except LookupFailed:
            return job
        # The reconciler reports one that is too large, and nothing is made from it.
        return job if found is None or explain_size(reference, found) else kind.expand(job, found)


class LookupOfPods(Lookup):
    """The same for pods, which any user may create.

    A pod is only accepted as a part if it names its workload and pod set, as a start sets them, and if the creator of
    its controller is known to the API server. No look-up is made for any other pod.
    """

    def __init__(self, queued: Sequence[JobKind], find: Find, between: Iterable[Reviewed]) -> None:
        super().__init__(queued, find, between)
        self._kinds = {(kind.group, kind.kind): kind for kind in queued}
        self._between |= {(r.REPLICA_SETS.group, r.REPLICA_SETS.kind): r.REPLICA_SETS}

    async def is_part(self, pod: Json, namespace: str, made_by: Sequence[str]) -> bool:
        """Returns whether a pod names its Workload and pod set and has a queued object above it. That must have no fewer pods than those
        between ask for. One made by a pod counts only if that is a driver of Spark with its uid in `made_by`, the uids with the token that
        created this pod. If that driver was placed, this pod must have the topology gate. Raises LookupFailed where the API server gives no
        answer, or any error but that an object is not there."""
        metadata: Mapping[str, Any] = pod.get("metadata") or {}
        pod_set = (metadata.get("labels") or {}).get(PODSET_LABEL)
        if pod_set is None or WORKLOAD_ANNOTATION not in (metadata.get("annotations") or {}):
            return False
        owner = find_controller(pod)
        if _build_key(owner) == _POD and owner.get("uid") not in made_by:
            return False  # no policy guards what a pod makes, as a driver of Spark its executors; so it must be that pod itself
        above = await self._list_above(pod, namespace)
        if not above or (_build_key(owner) == _POD and _build_key(find_controller(above[0])) != _DRIVEN):
            return False
        # What a pod makes that was given a place waits for one, too, or the pods that were admitted would not be all.
        placed = _build_key(owner) == _POD and DOMAIN_INDEX_ANNOTATION in (above[0]["metadata"].get("annotations") or {})
        return (not placed or _is_waiting(pod)) and self._has_room(above, pod_set)

    def _has_room(self, above: Sequence[Json], pod_set: str) -> bool:
        """Whether the admitted object has at least as many pods as the objects between are scaled to: any user may scale them."""
        root = above[-1]
        kind = self._kinds[root["apiVersion"].rpartition("/")[0], root["kind"]]
        if find_misshapen(kind.spec_shape, root):
            return False
        admitted = {made.name: made.count for made in kind.list_pod_sets(root)}.get(pod_set, 0)
        return all(parse_integer((each.get("spec") or {}).get("replicas"), 1) <= admitted for each in above[:-1])


def _is_waiting(pod: Json) -> bool:
    return any(gate.get("name") == TOPOLOGY_GATE for gate in (pod.get("spec") or {}).get("schedulingGates") or ())


def _build_key(owner: Mapping[str, Any]) -> tuple[str, str]:
    """Group and kind of an owner reference."""
    return str(owner.get("apiVersion") or "").rpartition("/")[0], str(owner.get("kind") or "")


def find_controller(obj: Json | None) -> Mapping[str, Any]:
    """Returns the first owner reference with `controller: true` of an object; empty where it has none, or is None. A new object may contain
    any values."""
    metadata = (obj or {}).get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    found = (owner for owner in (owners if isinstance(owners, list) else ()) if isinstance(owner, dict) and owner.get("controller") is True)
    return next(found, {})


def run_on_own_loop(look_up: Callable[Asked, Coroutine[Any, Any, Found]]) -> Callable[Asked, Awaitable[Found]]:
    """Returns the same look-up for a large review that runs on a loop of its own: it is made on the loop in which this is called, to which
    the client's session belongs. Raises RuntimeError where none runs."""
    home = asyncio.get_running_loop()

    async def search(*args: Asked.args, **kwargs: Asked.kwargs) -> Found:
        if asyncio.get_running_loop() is home:
            return await look_up(*args, **kwargs)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(look_up(*args, **kwargs), home))

    return search

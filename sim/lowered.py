"""Quotas that administrators have lowered: what has quota by then runs on, and nothing else may run beyond the new quota."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf

from core.names import QUOTA_RESERVED, SLICE_REPLACES
from core.runtime.watch.store import read_version
from e2e.audit.recount import Objects, find_broken
from e2e.audit.recount_places import get_family, get_named_family
from e2e.audit.recount_quota import Obj
from e2e.standins.pods import has_condition
from sim.apiserver.server import Change, Server
from sim.models.base import POD
from sim.replica import Replica

CLUSTER_QUEUES, WORKLOADS = (("kueue.x-k8s.io", plural) for plural in ("clusterqueues", "workloads"))
LATE_S = 60.0  # after the leader has observed the quota: what it decided before has been written
_OF_QUOTA = ("may use", "to share")  # what the audit says of quotas (e2e.audit.recount_quota)
Key = tuple[str, str]  # namespace, and name of the first Workload of a job


class LoweredQuotas:
    """Which workloads may run beyond quotas since some were lowered."""

    def __init__(self, server: Server, replicas: Iterable[Replica], now: Callable[[], float]) -> None:
        self._server, self._replicas, self._now = server, replicas, now
        self._versions: dict[str, int] = {}  # by name of a ClusterQueue: its version when its quota was lowered last
        self._may_exceed: set[Key] = set()
        self._unseen_at = -inf  # when the leader was last known to decide by an earlier quota
        server.on_change_of[WORKLOADS].append(self._note)

    def note_lowered(self, queue: str) -> None:
        """To be called when the quota of a ClusterQueue has been lowered just now."""
        self._versions[queue] = read_version(self._server.objects[CLUSTER_QUEUES]["", queue].obj)
        running = {_get_key(each.obj, get_named_family(each.obj)) for each in self._server.objects[POD].values()}
        held = (each.obj for each in self._server.objects[WORKLOADS].values() if has_condition(each.obj, QUOTA_RESERVED))
        self._may_exceed |= running | {_get_key(each, get_family(each)) for each in held}

    def remove_allowed(self, broken: Iterable[str], objects: Objects) -> list[str]:
        """What the audit has found, without quotas that are exceeded by workloads alone that may do so."""
        found = list(broken)
        self._is_late()
        if self._versions and any(map(_is_of_quota, found)):
            pods = [pod for pod in objects.pods if _get_key(pod, get_named_family(pod)) in self._may_exceed]
            allowed = set(filter(_is_of_quota, find_broken(replace(objects, pods=pods))))
            found = [told for told in found if told not in allowed]
        return found

    def _note(self, change: Change) -> None:
        """A workload that gets quota later is within the quota of then, but for one of an elastic job with fewer pods than before."""
        if not self._versions or change.new is None or not has_condition(change.new, QUOTA_RESERVED):
            return
        if change.old is None or not has_condition(change.old, QUOTA_RESERVED):
            key = _get_key(change.new, get_family(change.new))
            if self._is_late():
                self._may_exceed.add(key)
            elif SLICE_REPLACES not in (change.new["metadata"].get("annotations") or {}):
                self._may_exceed.discard(key)

    def _is_late(self) -> bool:
        """Whether what is written now may have been decided by an earlier quota."""
        stores = [each.reconciler.observed.cluster_queues.store for each in self._replicas if each.leads and each.reconciler is not None]
        observed = [(store.get(name), version) for store in stores for name, version in self._versions.items()]
        if any(queue is None or read_version(queue) < version for queue, version in observed):
            self._unseen_at = self._now()
        return self._now() < self._unseen_at + LATE_S


def _is_of_quota(told: str) -> bool:
    return any(words in told for words in _OF_QUOTA)


def _get_key(obj: Obj, family: str) -> Key:
    return str(obj["metadata"].get("namespace")), family

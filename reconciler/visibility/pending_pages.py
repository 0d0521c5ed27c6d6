"""Pages of pending workloads as JSON, a piece at a time: each piece is a short step of the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Never

from core.model.pods_ready_rules import PodsReadyRules
from core.queueing.cycle.queue_resolution import make_stop_check
from core.queueing.ordering.pending_order import PendingOrder, PendingWorkload, list_pending, list_pending_of_local_queue
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.http.parsing import encode
from core.runtime.watch.store import Store
from core.runtime.watch.watcher import Watcher
from core.state.cluster import ClusterState
from reconciler.visibility.access_reviews import Access
from reconciler.visibility.api_documents import CLUSTER_QUEUES, GROUP_VERSION, KIND

SYNC_S = 0.25
"""So long after a change at most an answer shows it, but for many changes at once."""
AT_ONCE = 100  # workloads of one piece, in some 2 ms
_BEGINS = b'{"kind":"%b","apiVersion":"%b","metadata":{},"items":[' % (KIND.encode(), GROUP_VERSION.encode())


class PendingPages:
    """Reads the order of pending workloads from a state, and their owners from the store of Workloads. `watchers` are those that the order
    depends on."""

    def __init__(
        self, state: ClusterState, workloads: Store, rules: PodsReadyRules | None = None, watchers: Sequence[Watcher] = ()
    ) -> None:
        self._state, self._workloads, self._watchers = state, workloads, watchers
        self._order = PendingOrder(state, rules, make_stop_check)
        self.is_complete = False  # whether all workloads of the start are in the order

    async def run(self, clock: Clock) -> Never:
        """Folds changes into the order every `SYNC_S` seconds, more of them with pauses. Never returns."""
        while True:
            self._order.sync()
            while self._order.is_behind:
                await clock.sleep(0)
                self._order.sync()
            self.is_complete = True
            await clock.sleep(SYNC_S)

    def compute_silence(self) -> float:
        """Returns for how many seconds the watch of Workloads, or another by which the order is made, has received nothing: it may be
        older by so much. A watch in good order receives a bookmark every minute."""
        return max((watcher.compute_event_age() or 0.0 for watcher in self._watchers), default=0.0)

    def has_queue(self, access: Access) -> bool:
        """Whether the queue exists that is to be read."""
        if access.plural == CLUSTER_QUEUES:
            return access.name in self._state.cluster_queues
        return f"{access.namespace}/{access.name}" in self._state.local_queues

    def encode_page(self, access: Access, offset: int, limit: int) -> Iterator[bytes]:
        """Yields the PendingWorkloadsSummary of a queue as JSON, in pieces of `AT_ONCE` workloads. It is of the moment of the call, however
        late a piece is read. A workload that is deleted meanwhile is left out."""
        lists = self._order.lists
        if access.plural == CLUSTER_QUEUES:
            found = list_pending(lists, access.name, offset=offset, limit=limit)
        else:
            found = list_pending_of_local_queue(lists, f"{access.namespace}/{access.name}", offset=offset, limit=limit)
        return self._encode(found)

    def _encode(self, found: Iterator[PendingWorkload]) -> Iterator[bytes]:
        separator = _BEGINS
        while piece := list(islice(found, AT_ONCE)):
            if items := list(self._build_items(piece)):
                yield separator + encode(items)[1:-1]
                separator = b","
        yield b"]}" if separator == b"," else separator + b"]}"

    def _build_items(self, piece: Iterable[PendingWorkload]) -> Iterator[Obj]:
        for pending in piece:
            workload = pending.workload
            stored = self._workloads.get(workload.key)
            if stored is None or stored["metadata"]["uid"] != workload.uid:
                continue
            metadata = stored["metadata"]
            owners = [
                {name: owner.get(name) for name in ("apiVersion", "kind", "name", "uid")} for owner in metadata.get("ownerReferences") or ()
            ]
            shown = {name: metadata.get(name) for name in ("name", "namespace", "creationTimestamp")}
            yield {
                "metadata": shown | ({"ownerReferences": owners} if owners else {}),
                "priority": workload.priority,
                "localQueueName": workload.queue.rpartition("/")[2],
                "positionInClusterQueue": pending.in_cluster_queue,
                "positionInLocalQueue": pending.in_local_queue,
            }

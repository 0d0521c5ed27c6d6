"""Whether the order that is shown to users is the order in which workloads get quota once others make room."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from core.queueing.ordering.waiting_order import WaitingWorkload


class Room(NamedTuple):
    """What came of the end of some jobs: uids of workloads that have got quota since the first ones ended, and of those that wait still."""

    admitted: frozenset[str]
    waiting: frozenset[str]


def find_out_of_order(shown: Sequence[WaitingWorkload], strict: Collection[str], rooms: Sequence[Room]) -> Iterator[str]:
    """Sentences about workloads that got quota while one waits that was shown before them in their ClusterQueue: in a queue of `strict`
    (names of StrictFIFO queues) any, in others one that asks for the same. Those that got it in the same room are equal."""
    admitted = set[str]()
    for room in rooms:
        for index, ahead in enumerate(shown):
            if ahead.workload.uid not in room.waiting or ahead.workload.uid in admitted:
                continue
            for behind in shown[index + 1 :]:
                uid = behind.workload.uid
                if uid not in room.admitted or uid in admitted or behind.cluster_queue != ahead.cluster_queue:
                    continue
                if ahead.cluster_queue in strict or _asks_for_the_same(ahead, behind):
                    yield f"{behind.workload.key} got quota before {ahead.workload.key}, which was shown before it"
        admitted |= room.admitted


def _asks_for_the_same(one: WaitingWorkload, other: WaitingWorkload) -> bool:
    return one.workload.pod_sets == other.workload.pod_sets and one.workload.queue == other.workload.queue

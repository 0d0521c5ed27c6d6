"""Processor time of the decisions alone, under the load of the peer's performance rig (F.3), in virtual time.

    python -m tests.bench.decisions [--share 1.0] [--profile]

No API server: what a cycle decides is written and seen a moment later. Figures: processor time of cycles and of folding what
is observed, cycles, workloads judged, evictions, and the virtual time at which the last workload ended.
"""

from __future__ import annotations

import argparse
import cProfile
import heapq
import itertools
import pstats
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from core.names import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED
from core.placement.algorithms.profile import STANDARD
from core.plan.steps.conditions import Condition, set_conditions
from core.plan.steps.managed_status import read_managed_status
from core.plan.workloads.admission_status import build_preempted_status
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, NodeFacts, TopologyFacts, WorkloadFacts, is_condition_true
from core.state.queue_facts import ClusterQueueFacts, LocalQueueFacts
from e2e.perf_load import RUNNING_MS, Load, build_workload
from tests.queueing.statuses import build_verdict_status

BATCH_WINDOW_S, BUDGET_S = 0.02, 0.25
WRITE_S, SEEN_S = 0.02, 0.005  # until a write is answered, and until what it changed is seen
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Play:
    """The load against a state and a cycle; `now` is virtual and only moves on by what happens and by what deciding takes."""

    def __init__(self, load: Load) -> None:
        self.state = ClusterState()
        self.cycle = Cycle(self.state, STANDARD)
        self.now = 0.0
        self.objects: dict[str, dict[str, Any]] = {}
        self.deciding_s = self.folding_s = 0.0
        self.cycles = self.evictions = self.finished = self.created = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._version = itertools.count(1)
        self._writing: set[str] = set()
        self._wakes = False
        for node in load.node_objects():
            node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            self.state.observe_node(node["metadata"]["name"], NodeFacts.read(node))
        readers: dict[str, tuple[Callable[[Any], Any], Callable[[str, Any], None]]] = {
            "Topology": (TopologyFacts.read, self.state.observe_topology),
            "ResourceFlavor": (FlavorFacts.read, self.state.observe_flavor),
            "ClusterQueue": (ClusterQueueFacts.read, self.state.observe_cluster_queue),
            "LocalQueue": (LocalQueueFacts.read, self.state.observe_local_queue),
        }
        for obj in load.configuration():
            read, observe = readers[obj["kind"]]
            metadata = obj["metadata"]
            observe("/".join(filter(None, (metadata.get("namespace"), metadata["name"]))), read(obj))
        self.state.observe_namespace("perf", {})
        for each, queue, kinds in load.streams():
            for number, kind in enumerate(kinds):
                self._at(number * each.every_s, partial(self._create, build_workload(each, queue, kind, number)))

    def run(self) -> None:
        """Until the last workload has ended."""
        while self._events:
            self.now, _, happen = heapq.heappop(self._events)
            happen()

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), happen))

    def _stamp(self) -> str:
        return (_BEGIN + timedelta(seconds=int(self.now))).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _create(self, obj: dict[str, Any]) -> None:
        self.created += 1
        obj["metadata"] |= {"uid": obj["metadata"]["name"], "creationTimestamp": self._stamp(), "generation": 1}
        self._save(obj, {})

    def _save(self, obj: dict[str, Any], status: dict[str, Any]) -> int:
        version = next(self._version)
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        obj = self.objects[key] = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}, "status": status}
        self._at(self.now + SEEN_S, lambda: self._see(key, obj))
        return version

    def _see(self, key: str, obj: dict[str, Any]) -> None:
        began = time.process_time()
        self.state.observe_workload(key, WorkloadFacts.read(obj))
        self.folding_s += time.process_time() - began
        if is_condition_true(obj, EVICTED) and is_condition_true(obj, QUOTA_RESERVED):
            self._at(self.now + WRITE_S, lambda: self._release(key))
        self._wake()

    def _wake(self) -> None:
        if not self._wakes:
            self._wakes = True
            self._at(self.now + BATCH_WINDOW_S, self._cycle)

    def _cycle(self) -> None:
        self._wakes = False
        self.cycles += 1
        began = time.process_time()
        late = began + BUDGET_S
        verdicts = list(self.cycle.run(lambda: time.process_time() < late, is_busy=self._writing.__contains__))
        took = time.process_time() - began
        self.deciding_s += took
        if took > BUDGET_S:
            self._wake()
        for verdict in verdicts:
            self._writing.add(verdict.workload.uid)
            self._at(self.now + WRITE_S, partial(self._write, verdict))

    def _write(self, verdict: Verdict) -> None:
        key, outcome = verdict.workload.key, verdict.outcome
        self._writing.discard(verdict.workload.uid)
        obj = self.objects[key]
        if isinstance(outcome, Admissible):
            version = self._save(obj, build_verdict_status(obj, verdict, self._stamp()) or {})
            self.state.confirm(key, version)
            self._at(self.now + SEEN_S + int(obj["metadata"]["labels"][RUNNING_MS]) / 1000, lambda: self._finish(key, version))
        elif outcome.preempting is not None:
            for victim in outcome.preempting.victims:
                other = self.objects[victim.workload.key]
                if not is_condition_true(other, EVICTED) and not is_condition_true(other, FINISHED):
                    self._save(other, build_preempted_status(other, victim.reason, "preempted", self._stamp()))
        self._wake()

    def _finish(self, key: str, admitted_by: int) -> None:
        obj = self.objects[key]
        if (
            is_condition_true(obj, ADMITTED)
            and not is_condition_true(obj, EVICTED)
            and int(obj["metadata"]["resourceVersion"]) == admitted_by
        ):
            self.finished += 1
            self._save(obj, self._with(obj, Condition(FINISHED, True, "ByTest", "")))

    def _release(self, key: str) -> None:
        obj = self.objects[key]
        if not is_condition_true(obj, QUOTA_RESERVED):
            return
        self.evictions += 1
        released = Condition(QUOTA_RESERVED, False, "Pending", ""), Condition(ADMITTED, False, "NoReservation", "")
        status = self._with(obj, *released)
        status.pop("admission")
        self._save(obj, status)

    def _with(self, obj: dict[str, Any], *conditions: Condition) -> dict[str, Any]:
        status = read_managed_status(obj)
        return status | {"conditions": set_conditions(status["conditions"], list(conditions), now=self._stamp(), generation=1)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.decisions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the 15,000 workloads (default: all)")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    play, profiler = Play(Load(share=options.share, unique_hostnames=True)), cProfile.Profile()
    if options.profile:
        profiler.enable()
    play.run()
    profiler.disable()
    assert play.finished == play.created, f"{play.finished} of {play.created} ended"
    row = {
        "workloads": play.finished,
        "virtual_s": round(play.now, 1),
        "cycles": play.cycles,
        "deciding_s": round(play.deciding_s, 2),
        "folding_s": round(play.folding_s, 2),
        "evictions": play.evictions,
    }
    print("  ".join(f"{name} {value}" for name, value in row.items()))
    if options.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(35)
    return 0


if __name__ == "__main__":
    sys.exit(main())

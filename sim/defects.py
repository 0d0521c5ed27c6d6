"""Puts defects of the past back, one by one, and plays seeds until one fails: `python -m sim.defects [NAME ...] [--seeds N]`.

So it is known what the simulation can find. Each defect replaces one method of the product. The ids are those of the list of found defects;
a defect without an id of that list is of the changelog, or one of the same kind.
"""

import argparse
import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from core.jobs import ray
from core.jobs.templated import integer
from core.placement.ranks import Distribution
from core.plan import ungate
from core.queueing.cycle import Cycle
from core.runtime.controller import Done, Result
from core.runtime.lease import LeaderElection
from core.state.cluster import ClusterState
from core.state.facts import PodFacts
from core.state.workloads import Workloads
from reconciler.apply import Writer
from reconciler.jobs import Jobs
from reconciler.node_health import NodeHealth
from reconciler.observed import Observed
from reconciler.orphans import Orphans
from reconciler.scheduler import Scheduler
from reconciler.steps import WorkloadSteps
from reconciler.verdicts import Verdicts
from sim.run import play, prepare, use_fixed_hashes
from sim.scenario import Size

SMALL = Size(8, 8, 5)


class Defect(NamedTuple):
    """What is replaced, and by what: a method of `owner`, or a function of a module."""

    name: str
    text: str
    owner: Any
    attribute: str
    put_back: Any


async def _return_at_once(*_: Any) -> None:
    """Waits for nothing."""


async def _do_nothing(*_: Any) -> Result:
    return Done()


async def _wait_for_ever(*_: Any) -> None:
    await asyncio.get_running_loop().create_future()


def _count_as_if_alone(self: Workloads, key: str, _uid: str | None) -> bool:
    return self._assumed.get(key) is not None


_apply_admission = Writer.apply_admission


async def _apply_by_force(self: Writer, workload: Any, status: Any, **_: Any) -> Any:
    return await _apply_admission(self, workload, status, strict=False)


async def _take_back_at_once(self: Verdicts, judged: Any) -> None:
    self._take_back(judged.verdict, "the answer was lost")


def _find_seen_running(self: Observed, uid: str) -> list[PodFacts]:
    return [pod for pod in self.find_live_pods(uid) if not pod.gated]


def _count_replicas_alone(group: Any) -> int:
    return integer(group.get("replicas"), 1)


_distribute = ungate._distribute


def _distribute_backwards(pod_set: Any, given: Any, live: Any, start: int, ended: Counter[Any], surplus: int) -> Distribution:
    found = _distribute(pod_set, given, live, start, ended, surplus)
    names, last = sorted(found.domains), len(found.domains) - 1
    turned = {name: found.domains[names[last - number]] for number, name in enumerate(names)}
    return replace(found, domains=turned)


_update_alone = Workloads._update_alone


def _give_back_at_eviction(self: Workloads, key: str) -> None:
    facts = self.facts.get(key)
    if facts is not None and facts.evicted and facts.admission is not None:
        self.facts[key] = replace(facts, admission=None)
    _update_alone(self, key)


DEFECTS = [
    Defect("D2", "a new leader decides on caches that may be old", Observed, "wait_for_watches", _return_at_once),
    Defect("D3", "writes are not fenced", LeaderElection, "count_seconds_left", lambda self: 60.0),
    Defect("D4", "a verdict on a deleted workload drops the booking of its namesake", Workloads, "is_assumed_for", _count_as_if_alone),
    Defect("D5", "what is freed wakes nobody (of its kind)", ClusterState, "_on_free", lambda self: None),
    Defect("D6", "statuses are applied with force from the cache", Writer, "apply_admission", _apply_by_force),
    Defect("C8", "Ray's minReplicas are not counted", ray, "_count_replicas", _count_replicas_alone),
    Defect(
        "changelog: unseen ungated pods",
        "pods run when they are seen ungated",
        Observed,
        "find_running_pods",
        _find_seen_running,
    ),
    Defect("changelog: unseen pods", "pods that were not observed yet do not run", WorkloadSteps, "may_have_unseen_pods", lambda *_: False),
    Defect("changelog: reason of a former head", "a former head keeps its reason", Cycle, "_drop_refusals", lambda *_: None),
    Defect("changelog: old reasons", "reasons are not judged anew", Scheduler, "_refresh_reasons", _wait_for_ever),
    Defect("lost answer", "a write whose answer is lost counts as failed", Verdicts, "_find_out", _take_back_at_once),
    Defect("quota at eviction", "quota is given back before pods have ended", Workloads, "_update_alone", _give_back_at_eviction),
    Defect("finalizer", "the finalizer of a Workload stays", WorkloadSteps, "drop_finalizer", _return_at_once),
    Defect("ranks", "ranks are handed out backwards", ungate, "_distribute", _distribute_backwards),
    Defect("lost nodes", "pods on lost nodes are not replaced", NodeHealth, "look", _do_nothing),
    Defect("orphans", "Workloads whose job is gone stay", Orphans, "_reconcile", _do_nothing),
    Defect("pods left", "a stopped job is taken to have no pods", Jobs, "_has_pods", lambda *_: False),
]


def find_first_failure(defect: Defect, seeds: Sequence[int], sizes: Sequence[Size], until: float) -> tuple[str, str]:
    """The first seed that fails with a defect put back, small ones first, and how; empty if none does.
    `until` is the time of CPU of this process after which no seed is begun."""
    before = defect.owner.__dict__[defect.attribute]
    setattr(defect.owner, defect.attribute, defect.put_back)
    try:
        for size in sizes:
            for seed in seeds:
                if time.process_time() > until:
                    return "", f"none until seed {seed}, jobs {size.jobs}"
                problem = play(seed, size, limit_s=120.0).problem
                if problem:
                    return f"{seed} ({size.jobs} jobs)", problem
    finally:
        setattr(defect.owner, defect.attribute, before)
    return "", f"none of {len(seeds)} seeds"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.defects", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="defects to put back; all if none is named")
    parser.add_argument("--seeds", type=int, default=100, help="the last seed; the first one is 1")
    parser.add_argument("--seconds", type=float, default=600.0, help="for how long seeds are played for one defect")
    options = parser.parse_args(arguments)
    use_fixed_hashes("sim.defects", arguments or sys.argv[1:])
    logging.disable(logging.CRITICAL)
    prepare()
    missed = 0
    for defect in DEFECTS:
        if options.names and defect.name not in options.names:
            continue
        until = time.process_time() + options.seconds
        found = find_first_failure(defect, range(1, options.seeds + 1), (SMALL, Size()), until)
        missed += not found[0]
        print(f"| {defect.name} | {defect.text} | {found[0] or '-'} | {found[1][:200]} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a run of `tests.bench.cluster` came to: waits by the size of jobs, GPUs in use over time, what each process took."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from e2e.audit.history import Fact, JobFact, PodFact, WorkloadFact
from tests.bench.parts.cluster_load import GPU, NODES_A_RACK, Load, Planned

CLASSES = {
    "all": lambda pods: True,
    "1 pod": lambda pods: pods == 1,
    "2 to 8 pods": lambda pods: 1 < pods < NODES_A_RACK,
    "a whole rack": lambda pods: pods == NODES_A_RACK,
    "several racks": lambda pods: pods > NODES_A_RACK,
}
TENTHS = 10
STAGES = ("applied", "queued", "admitted", "started", "made", "ungated", "bound")
Steps = list[tuple[float, int]]  # when, and by how much from then on


@dataclass
class Times:
    """When what happened to one job, in seconds of one clock."""

    applied: float
    queued: float = 0.0  # its Workload is there
    admitted: float = 0.0
    started: float = 0.0
    made: float = 0.0  # the last of its pods, as the next
    ungated: float = 0.0
    bound: float = 0.0
    complete: float = 0.0


def summarise(load: Load, planned: list[Planned], applied: Mapping[str, float], facts: Iterable[Fact]) -> dict[str, Any]:
    """All that can be told from the plan and the history."""
    facts = list(facts)
    times = _times(planned, applied, facts)
    waits = {name: _waits([(j, times[j.name]) for j in planned if holds(j.pods)]) for name, holds in CLASSES.items()}
    began, ended = min(applied.values()), max(applied.values())
    in_use = _in_use(facts)
    asked = [step for job in planned for step in ((times[job.name].applied, job.in_all), (times[job.name].complete, -job.in_all))]
    full = _first_reached(asked, load.asked * load.gpus, began, ended)
    return {
        "jobs": len(planned),
        "pods": sum(job.pods for job in planned),
        "gpus": load.gpus,
        "evictions": len({fact.name for fact in facts if isinstance(fact, WorkloadFact) and fact.evicted}),
        "steady_s": [round(full - began), round(ended - began)],
        "asked": round(_mean(asked, full, ended) / load.gpus, 3),
        "in_use": round(_mean(in_use, full, ended) / load.gpus, 3),
        "free_racks": round(_mean(_free_racks(facts, load.pool.blocks * load.pool.racks), full, ended), 2),
        "in_use_by_tenth": [
            round(_mean(in_use, began + i * (ended - began) / TENTHS, began + (i + 1) * (ended - began) / TENTHS) / load.gpus, 2)
            for i in range(TENTHS)
        ],
        "stages": _stages(times.values()),
        "waits": {name: row for name, row in waits.items() if row},
    }


def _times(planned: list[Planned], applied: Mapping[str, float], facts: list[Fact]) -> dict[str, Times]:
    times = {name: Times(at) for name, at in applied.items()}
    pods = {job.name: job.pods for job in planned}
    job_of: dict[str, str] = {}
    reached: dict[tuple[str, str], set[str]] = defaultdict(set)  # job and stage -> pods
    for fact in facts:
        if isinstance(fact, WorkloadFact):
            job_of[fact.name] = fact.job
            _note(times[fact.job], "queued", fact.at)
            if fact.admission is not None:
                _note(times[fact.job], "admitted", fact.at)
        elif isinstance(fact, PodFact) and fact.workload in job_of:
            job = job_of[fact.workload]
            for stage in ("made", *(["ungated"] if not fact.gated else []), *(["bound"] if fact.node else [])):
                reached[job, stage].add(fact.uid)
                if len(reached[job, stage]) == pods[job]:
                    _note(times[job], stage, fact.at)
        elif isinstance(fact, JobFact):
            if not fact.suspended:
                _note(times[fact.name], "started", fact.at)
            if fact.complete:
                _note(times[fact.name], "complete", fact.at)
    return times


def _note(times: Times, stage: str, at: float) -> None:
    """The first time counts."""
    if not getattr(times, stage):
        setattr(times, stage, at)


def _stages(times: Iterable[Times]) -> dict[str, list[float]]:
    """Seconds from each stage to the next."""
    all_times = list(times)
    return {
        stage: _p50_p99([getattr(each, stage) - getattr(each, before) for each in all_times])
        for before, stage in itertools.pairwise(STAGES)
    }


def _waits(jobs: list[tuple[Planned, Times]]) -> dict[str, Any]:
    if not jobs:
        return {}
    return {
        "jobs": len(jobs),
        "to_admission_s": _p50_p99([t.admitted - t.applied for _, t in jobs]),
        "from_there_to_bound_s": _p50_p99([t.bound - t.admitted for _, t in jobs]),
        "to_bound_s": _p50_p99([t.bound - t.applied for _, t in jobs]),
        "longest_s": round(max(t.bound - t.applied for _, t in jobs), 1),
    }


def _p50_p99(values: list[float]) -> list[float]:
    ordered = sorted(values)
    return [round(statistics.median(ordered), 1), round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 1)]


def _in_use(facts: Iterable[Fact]) -> Steps:
    """GPUs of pods that are on a node and have not ended."""
    held: dict[str, int] = {}
    steps: Steps = []
    for fact in facts:
        if isinstance(fact, PodFact):
            now = fact.requests.get(GPU, 0) if fact.node and not fact.ended and not fact.gone else 0
            if now != held.get(fact.uid, 0):
                steps.append((fact.at, now - held.get(fact.uid, 0)))
                held[fact.uid] = now
    return steps


def _free_racks(facts: Iterable[Fact], racks: int) -> Steps:
    """Racks without any pod that has not ended, from all of them on."""
    held: dict[str, str] = {}  # pod -> rack
    pods: Counter[str] = Counter()
    steps: Steps = [(float("-inf"), racks)]
    for fact in facts:
        if not isinstance(fact, PodFact):
            continue
        before, now = held.get(fact.uid, ""), fact.node.rpartition("-")[0] if fact.node and not fact.ended and not fact.gone else ""
        if before == now:
            continue
        for rack, by in ((before, -1), (now, 1)):
            pods[rack] += by
            if rack and pods[rack] == (1 if by > 0 else 0):
                steps.append((fact.at, -by))
        held[fact.uid] = now
    return steps


def _mean(steps: Steps, since: float, until: float) -> float:
    """Of what the steps add up to, over a time."""
    until = max(until, since + 1e-9)
    return sum(by * (until - min(until, max(since, at))) for at, by in steps) / (until - since)


def _first_reached(steps: Steps, amount: float, began: float, ended: float) -> float:
    """When the steps first add up to that much; the middle, if they come to it later or never."""
    level = 0
    for at, by in sorted(steps):
        level += by
        if level >= amount:
            return min(at, (began + ended) / 2)
    return (began + ended) / 2


# --- as a table -------------------------------------------------------------------------------------------


def describe(row: Mapping[str, Any]) -> str:
    """For people."""
    lines = [
        f"{'seconds, p50 / p99':<20}{'jobs':>6}{'apply to admitted':>20}{'admitted to bound':>20}{'apply to bound':>20}{'longest':>10}"
    ]
    for name, waits in row["waits"].items():
        columns = "".join(f"{waits[key][0]:>11} / {waits[key][1]:>6}" for key in ("to_admission_s", "from_there_to_bound_s", "to_bound_s"))
        lines.append(f"{name:<20}{waits['jobs']:>6}{columns}{waits['longest_s']:>10}")
    since, until = row["steady_s"]
    lines += [
        "",
        "step by step, p50 / p99: " + ", ".join(f"{stage} {p50} / {p99}" for stage, (p50, p99) in row["stages"].items()),
        f"GPUs from {since} s (ramp-up) to {until} s (the last job comes): {row['in_use']:.1%} in use, {row['asked']:.1%} with what waits; "
        f"racks without a pod in the mean: {row['free_racks']}",
        "in use by tenths of the time in which jobs come: " + " ".join(f"{share:.0%}" for share in row["in_use_by_tenth"]),
        f"all over after {row['lasted_s']} s; {row['evictions']} evictions; promises broken at any moment: {len(row['broken'])}",
        *(f"  {sentence}" for sentence in row["broken"][:10]),
        "",
        f"{'process':<28}{'CPU s':>10}{'cores':>8}{'peak MB':>10}",
    ]
    for name, used in row["processes"].items():
        lines.append(f"{name:<28}{used['cpu_s']:>10}{used['cpu_s'] / row['lasted_s']:>8.2f}{used['peak_mb']:>10}")
    return "\n".join(lines)

"""Runs of `tests.bench.kueue`: which are still to be done, how they are kept in a file, and the tables that are made of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FLOOR, KUEUE, TOPOGATE = "floor", "kueue", "topogate"
SUBJECTS = (FLOOR, KUEUE, TOPOGATE)
BEGIN, END = "<!-- made by `make bench NAME=kueue` -->", "<!-- end -->"
CLASSES = ("large", "medium", "small")
Settings = dict[str, Any]


class UnequalRuns(Exception):
    """Runs that are to be compared did not finish the same number of workloads."""


@dataclass(frozen=True)
class Run:
    """One run of a subject. Times in seconds, memory in MB.

    `manager` is all processes of Kueue or topogate together; the floor has none. `calls` are requests per workload by resource and verb,
    those of the load among them. `gauge_s` is the processor time of a fixed loop before and after the run, `load` the machine's load
    average of a minute then.
    """

    subject: str
    round: int
    date: str
    workloads: int
    wall_s: float
    evictions: int
    to_admission_s: Mapping[str, float]
    manager_cpu_s: float
    manager_peak_mb: int
    apiserver_cpu_s: float
    etcd_cpu_s: float
    load_cpu_s: float
    calls: Mapping[str, float]
    gauge_s: Sequence[float]
    load: Sequence[float]

    @property
    def mean_gauge_s(self) -> float:
        return statistics.mean(self.gauge_s)


def list_missing_runs(rounds: int, kept: Iterable[Run]) -> list[tuple[int, str]]:
    """Rounds, counted from 1, and subjects that are still to be run, in order: all subjects in turn, then the next round."""
    done = {(run.round, run.subject) for run in kept}
    wanted = ((number, subject) for number in range(1, rounds + 1) for subject in SUBJECTS)
    return [each for each in wanted if each not in done]


def read_runs(path: Path, settings: Settings) -> list[Run]:
    """The runs that a file keeps of these settings; none where it is missing, cut off, or of other settings."""
    try:
        kept = json.loads(path.read_text())
        return [Run(**row) for row in kept["runs"]] if kept["settings"] == settings else []
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []


def write_runs(path: Path, settings: Settings, runs: Iterable[Run]) -> None:
    """Replaces the file as a whole, so that a run that is cut off leaves the one before."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"settings": settings, "runs": [asdict(run) for run in runs]}, indent=1) + "\n")
    new.replace(path)


def render_report(settings: Settings, runs: Sequence[Run]) -> str:
    """Both tables in Markdown: medians of the runs with ratios, and each run. Raises UnequalRuns."""
    counts = {run.workloads for run in runs}
    if len(counts) != 1:
        raise UnequalRuns(f"the runs finished different numbers of workloads: {sorted(counts)}")
    dates = sorted({run.date[:10] for run in runs})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    rounds = max(run.round for run in runs)
    shown = ", ".join(f"{name} {value}" for name, value in settings.items())
    head = f"Case (a), measured {span}: {counts.pop()} workloads, {rounds} {'round' if rounds == 1 else 'rounds'}; {shown}."
    return "\n\n".join([head, _render_medians(runs), "Each run, in the order of the rounds:", _render_runs(runs)])


def _render_medians(runs: Sequence[Run]) -> str:
    by_subject = {subject: [run for run in runs if run.subject == subject] for subject in SUBJECTS}
    lines = ["| median | floor | Kueue | topogate | topogate / Kueue | topogate / floor |", "|---" * 6 + "|"]
    for name, digits, find in _list_rows(runs):
        medians = {subject: _find_median(find, of) for subject, of in by_subject.items()}
        cells = [_render_number(medians[subject], digits) for subject in SUBJECTS]
        ratios = [_render_ratio(medians[TOPOGATE], medians[other]) for other in (KUEUE, FLOOR)]
        lines.append(f"| {' | '.join([name, *cells, *ratios])} |")
    return "\n".join(lines)


def _list_rows(runs: Sequence[Run]) -> list[tuple[str, int, Callable[[Run], float | None]]]:
    """Name, digits after the point, and the amount in a run; None where a subject has no such amount."""
    rows: list[tuple[str, int, Callable[[Run], float | None]]] = [
        ("wall time, s", 1, lambda run: run.wall_s),
        ("CPU of the manager, s", 1, lambda run: _get_managed(run, run.manager_cpu_s)),
        ("CPU of the manager, in gauges", 1, lambda run: _get_managed(run, run.manager_cpu_s / run.mean_gauge_s)),
        ("peak memory of the manager, MB", 0, lambda run: _get_managed(run, run.manager_peak_mb)),
        ("CPU of the API server, s", 1, lambda run: run.apiserver_cpu_s),
        ("CPU of etcd, s", 1, lambda run: run.etcd_cpu_s),
        ("CPU of the load generator, s", 1, lambda run: run.load_cpu_s),
        ("evictions", 0, lambda run: run.evictions),
    ]
    rows += [(f"average time to admission, {name}, s", 1, _find_in("to_admission_s", name)) for name in CLASSES]
    calls = sorted({name for run in runs for name in run.calls})
    return rows + [(f"`{name}` per workload", 2, _find_in("calls", name)) for name in calls]


def _get_managed(run: Run, amount: float) -> float | None:
    return None if run.subject == FLOOR else amount


def _find_in(field: str, name: str) -> Callable[[Run], float | None]:
    def find(run: Run) -> float | None:
        amounts: Mapping[str, float] = getattr(run, field)
        return amounts.get(name)

    return find


def _find_median(find: Callable[[Run], float | None], runs: Iterable[Run]) -> float | None:
    amounts = [amount for amount in map(find, runs) if amount is not None]
    return statistics.median(amounts) if amounts else None


def _render_number(amount: float | None, digits: int) -> str:
    return "" if amount is None else f"{amount:,.{digits}f}"


def _render_ratio(amount: float | None, other: float | None) -> str:
    return "" if amount is None or not other else f"{amount / other:.2f}"


def _render_runs(runs: Iterable[Run]) -> str:
    lines = [
        "| round | what | began (UTC) | wall time, s | manager CPU, s | its peak, MB | load before, after | gauge before, after, s |",
        "|---" * 8 + "|",
    ]
    for run in sorted(runs, key=lambda run: (run.round, SUBJECTS.index(run.subject))):
        managed = ["", ""] if run.subject == FLOOR else [f"{run.manager_cpu_s:.1f}", str(run.manager_peak_mb)]
        load, gauge = (", ".join(f"{each:.{digits}f}" for each in pair) for pair, digits in ((run.load, 1), (run.gauge_s, 3)))
        lines.append(f"| {' | '.join([str(run.round), run.subject, run.date, f'{run.wall_s:.1f}', *managed, load, gauge])} |")
    return "\n".join(lines)


def replace_report(page: str, report: str) -> str:
    """The page with this report in place of the one before. Raises ValueError where the page has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{report}\n\n{END}{after}"

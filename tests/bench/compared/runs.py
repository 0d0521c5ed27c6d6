"""Runs of `tests.bench.kueue`: which are still to be done, how they are kept in a file, and the tables that are made of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FLOOR, KUEUE, TOPOGATE = "floor", "kueue", "topogate"
BOTH, ALL = (KUEUE, TOPOGATE), (FLOOR, KUEUE, TOPOGATE)
NAMES = {FLOOR: "floor", KUEUE: "Kueue", TOPOGATE: "topogate"}
BEGIN, END = "<!-- made by `make bench NAME=kueue` -->", "<!-- end -->"
MANAGER_CPU = "CPU of the manager, s"
_IN_GAUGES = "CPU of the manager, in gauges"
Settings = dict[str, Any]


class UnequalRuns(Exception):
    """Runs of one case that are to be compared did not do the same amount of work."""


@dataclass(frozen=True)
class Run:
    """One run of a subject in a case.

    `done` is how much work it did, which all runs of the case must share, in units of `calls`. `figures` are amounts by name, with their
    units; `calls` are requests per unit of work by resource and verb, those of the load among them. `gauge_s` is the processor time of a
    fixed loop before and after the run, `load` the machine's load average of a minute then.
    """

    case: str
    subject: str
    round: int
    date: str
    done: int
    figures: Mapping[str, float]
    calls: Mapping[str, float]
    gauge_s: Sequence[float]
    load: Sequence[float]

    def list_figures(self) -> dict[str, float]:
        """Returns the figures by name; after the processor time of the manager the same in gauges."""
        shown = dict[str, float]()
        for name, amount in self.figures.items():
            shown[name] = amount
            if name == MANAGER_CPU:
                shown[_IN_GAUGES] = amount / statistics.mean(self.gauge_s)
        return shown


@dataclass(frozen=True)
class Title:
    """How a case is headed: what it does, in which units requests are counted, and who is compared."""

    text: str
    unit: str
    subjects: Sequence[str] = BOTH


def list_missing_runs(cases: Mapping[str, Title], rounds: int, kept: Iterable[Run]) -> list[tuple[str, int, str]]:
    """Cases, rounds, counted from 1, and subjects that are still to be run, in order: case by case, all subjects in turn, then the next
    round."""
    done = {(run.case, run.round, run.subject) for run in kept}
    wanted = ((case, number, who) for case, title in cases.items() for number in range(1, rounds + 1) for who in title.subjects)
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


def render_report(settings: Settings, cases: Mapping[str, Title], runs: Sequence[Run]) -> str:
    """The tables of all cases that have runs, in Markdown: medians with ratios, and each run. Raises UnequalRuns."""
    shown = ", ".join(f"{name} {value}" for name, value in settings.items())
    parts = [f"With {shown}."]
    for case, title in cases.items():
        if of_case := [run for run in runs if run.case == case]:
            parts += _render_case(case, title, of_case)
    return "\n\n".join(parts)


def _render_case(case: str, title: Title, runs: Sequence[Run]) -> list[str]:
    counts = {run.done for run in runs}
    if len(counts) != 1:
        raise UnequalRuns(f"case ({case}): the runs did different amounts of work, in {title.unit}s: {sorted(counts)}")
    dates = sorted({run.date[:10] for run in runs})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    rounds = max(run.round for run in runs)
    head = f"Measured {span}, {rounds} {'round' if rounds == 1 else 'rounds'}; {counts.pop():,} {title.unit}s."
    return [f"### ({case}) {title.text}", head, _render_medians(title, runs), "Each run:", _render_runs(title, runs)]


def _render_medians(title: Title, runs: Sequence[Run]) -> str:
    by_subject = {subject: [run for run in runs if run.subject == subject] for subject in title.subjects}
    others = [subject for subject in (KUEUE, FLOOR) if subject in title.subjects]
    head = ["median", *(NAMES[subject] for subject in title.subjects), *(f"topogate / {NAMES[subject]}" for subject in others)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    rows = [(name, name, False) for name in dict.fromkeys(name for run in runs for name in run.list_figures())]
    rows += [(f"`{name}` per {title.unit}", name, True) for name in sorted({name for run in runs for name in run.calls})]
    for shown, name, is_call in rows:
        medians = {subject: _find_median(name, is_call, of) for subject, of in by_subject.items()}
        digits = 0 if all(amount is None or float(amount).is_integer() for amount in medians.values()) and not is_call else 2
        cells = [_render_number(medians[subject], digits) for subject in title.subjects]
        lines.append(f"| {' | '.join([shown, *cells, *(_render_ratio(medians[TOPOGATE], medians[other]) for other in others)])} |")
    return "\n".join(lines)


def _find_median(name: str, is_call: bool, runs: Iterable[Run]) -> float | None:
    amounts = [amount for run in runs if (amount := (run.calls if is_call else run.list_figures()).get(name)) is not None]
    return statistics.median(amounts) if amounts else None


def _render_number(amount: float | None, digits: int) -> str:
    return "" if amount is None else f"{amount:,.{digits}f}"


def _render_ratio(amount: float | None, other: float | None) -> str:
    return "" if amount is None or not other else f"{amount / other:.2f}"


def _render_runs(title: Title, runs: Sequence[Run]) -> str:
    first = next(iter(runs[0].figures))
    lines = [f"| round | what | began (UTC) | {first} | load before, after | gauge before, after, s |", "|---" * 6 + "|"]
    for run in sorted(runs, key=lambda run: (run.round, title.subjects.index(run.subject))):
        load, gauge = (", ".join(f"{each:.{digits}f}" for each in pair) for pair, digits in ((run.load, 1), (run.gauge_s, 3)))
        amount = _render_number(run.figures.get(first), 2)
        lines.append(f"| {' | '.join([str(run.round), run.subject, run.date, amount, load, gauge])} |")
    return "\n".join(lines)


def replace_report(page: str, report: str) -> str:
    """The page with this report in place of the one before. Raises ValueError where the page has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{report}\n\n{END}{after}"

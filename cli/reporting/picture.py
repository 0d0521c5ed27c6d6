"""A tree with the jobs on its nodes: for a terminal (rich) and as an SVG file. The demo draws its last scene with it, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rich.console import Console
from rich.text import Text

FREE = "·"
FOREIGN = "#"
OUT = "x"  # free on a node that takes no pods: cordoned, not Ready, or with a taint that its flavor does not tolerate
_UNUSED = {FOREIGN: "others", OUT: "on nodes that take no pods"}
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f")
_CELL, _GAP, _LABEL, _HEAD = 11, 3, 104, 26
_LETTER = 6.5  # pixels of one, at most


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a picture: a domain, and its nodes by name."""

    name: str
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Seats:
    """Rows under headings, and per node, in the order of its seats, the job of each seat; FOREIGN or OUT for other
    uses, and None where it is free."""

    tree: Mapping[str, Sequence[Row]]  # heading -> its rows
    owners: Mapping[str, Sequence[str | None]]  # node -> one entry per seat
    unit: str = "GPU"  # what a seat is

    @property
    def jobs(self) -> tuple[str, ...]:
        """Returns the names of all jobs that have a seat, sorted."""
        return tuple(sorted({job for held in self.owners.values() for job in held if job is not None and job not in _UNUSED}))


class Legend:
    """Letters and colours of jobs."""

    def __init__(self, jobs: Sequence[str]) -> None:
        self._places = {job: place for place, job in enumerate(jobs)}

    def get_colour(self, job: str) -> str:
        """Returns the colour of a job as `#rrggbb`, which several jobs share where there are more of them than `COLOURS`. Of other uses,
        and of a job that is not in the legend, it is grey; a browner one for OUT."""
        return COLOURS[self._places[job] % len(COLOURS)] if job in self._places else "#bcaaa4" if job == OUT else "#888888"

    def get_letter(self, job: str) -> str:
        """Returns the letter of a job, which several jobs share where there are more than 26. For other uses it returns their sign, and any
        other text as it is."""
        return "abcdefghijklmnopqrstuvwxyz"[self._places[job] % 26] if job in self._places else job


def make_natural_key(name: str) -> list[Any]:
    """Returns a key for sorting by which rack-2 comes before rack-10."""
    parts, current = [], ""
    for char in name:
        if current and current[-1].isdigit() != char.isdigit():
            parts.append(current)
            current = ""
        current += char
    return [(part.isdigit(), int(part) if part.isdigit() and part.isascii() else part) for part in [*parts, current]]


def render_seats(seats: Seats, console: Console) -> None:
    """Prints one line per row, one cell per seat, and a legend."""
    legend = Legend(seats.jobs)
    width = max((len(row.name) for rows in seats.tree.values() for row in rows), default=0)
    for heading, rows in seats.tree.items():
        if heading:
            console.print(Text(heading, style="bold"))
        for row in rows:
            line = Text(f"  {row.name:<{width}} ")
            for node in row.nodes:
                for job in seats.owners[node]:
                    line.append(
                        FREE if job is None else legend.get_letter(job), style="dim" if job is None else f"bold {legend.get_colour(job)}"
                    )
                line.append(" ")
            # A terminal shows what it has room for; a file gets it whole.
            console.print(line, overflow="crop", no_wrap=True, soft_wrap=not console.is_terminal)
    _render_legend(seats, legend, console)


def _render_legend(seats: Seats, legend: Legend, console: Console) -> None:
    """Prints what the signs mean, as many in a line as there is room for: no line breaks between a sign and its meaning."""
    names = [Text(f"{legend.get_letter(job)} {job}", f"bold {legend.get_colour(job)}") for job in seats.jobs]
    used = [sign for sign in _UNUSED if any(sign in held for held in seats.owners.values())]
    names += [Text(f"{sign} {_UNUSED[sign]}", legend.get_colour(sign)) for sign in used]
    lines = [Text(" ")]
    for name in (*names, Text(f"{FREE} free {seats.unit}", "dim")):
        gap = " " if len(lines[-1]) == 1 else "   "
        if gap == "   " and len(lines[-1]) + len(gap) + len(name) > console.width:
            lines.append(Text(" "))
            gap = " "
        lines[-1].append(gap).append_text(name)
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def to_svg(seats: Seats, title: str) -> str:
    """Returns the seats as an SVG file: a line per row, a group of cells per node, a tooltip on each."""
    legend, rows = Legend(seats.jobs), [row for rows in seats.tree.values() for row in rows]
    cells = max((sum(len(seats.owners[node]) for node in row.nodes) for row in rows), default=1)
    gaps = max((len(row.nodes) for row in rows), default=1)
    label = max([_LABEL, *(int(36 + _LETTER * len(row.name)) for row in rows)])
    width, y, body = label + cells * _CELL + gaps * _GAP + 24, 44, []
    for heading, rows_below in seats.tree.items():
        if heading:
            body.append(f'<text x="12" y="{y + 12}" class="b">{escape(heading)}</text>')
            y += _HEAD
        for row in rows_below:
            body.append(f'<text x="24" y="{y + 9}">{escape(row.name)}</text>')
            body += _list_cells(seats, legend, row, label, y)
            y += 16
        y += 10
    x = 24
    for job in seats.jobs:
        body.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{legend.get_colour(job)}"/>')
        body.append(f'<text x="{x + 14}" y="{y + 9}">{escape(job)}</text>')
        x += 26 + int(_LETTER * len(job)) + 4
    style = "text{font:11px sans-serif;fill:#263238}.b{font-weight:bold;font-size:13px}.t{font-size:15px;font-weight:bold}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, x)}" height="{y + 28}" role="img" aria-label="{escape(title)}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="white"/><text x="12" y="24" class="t">{escape(title)}</text>'
        + "".join(body)
        + "</svg>\n"
    )


def _list_cells(seats: Seats, legend: Legend, row: Row, x: int, y: int) -> list[str]:
    cells = []
    for node in row.nodes:
        for job in seats.owners[node]:
            fill = "#eceff1" if job is None else legend.get_colour(job)
            owner = "free" if job is None else _UNUSED.get(job, job)
            tip = escape(f"{node}: {owner}")
            cells.append(f'<rect x="{x}" y="{y}" width="{_CELL - 1}" height="10" fill="{fill}"><title>{tip}</title></rect>')
            x += _CELL
        x += _GAP
    return cells

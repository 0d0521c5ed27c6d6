"""The tree with who sits where: for a terminal (rich) and as an SVG file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from rich.console import Console
from rich.text import Text

from core.model.resources import pod_requests
from core.names import WORKLOAD_ANNOTATION
from e2e.truth import Snapshot, is_terminal

GPU = "nvidia.com/gpu"
FREE = "·"
FOREIGN = "#"
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f")
_CELL, _GAP, _LABEL, _HEAD = 11, 3, 104, 26


@dataclass(frozen=True)
class Seats:
    """Per node, in the order of its GPUs, whose job each one is; None where it is free."""

    tree: Mapping[str, Mapping[str, list[str]]]  # block -> rack -> nodes
    owners: Mapping[str, list[str | None]]  # node -> one entry per GPU
    jobs: tuple[str, ...]

    def colour(self, job: str) -> str:
        return COLOURS[self.jobs.index(job) % len(COLOURS)] if job in self.jobs else "#888888"

    def letter(self, job: str) -> str:
        return "abcdefghijklmnopqrstuvwxyz"[self.jobs.index(job) % 26] if job in self.jobs else FOREIGN


def seats(snapshot: Snapshot, block_label: str, rack_label: str) -> Seats:
    """Who holds which GPUs, by the pods that are bound."""
    tree: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    owners: dict[str, list[str | None]] = {}
    for name, node in sorted(snapshot.nodes.items(), key=lambda item: _natural(item[0])):
        labels = node["metadata"]["labels"]
        tree[labels.get(block_label, "?")][labels.get(rack_label, "?")].append(name)
        owners[name] = []
    job_of = {
        f"{w['metadata']['namespace']}/{w['metadata']['name']}": owner["name"]
        for w in snapshot.workloads
        for owner in w["metadata"].get("ownerReferences") or ()
    }
    for pod in snapshot.pods:
        node_name = pod["spec"].get("nodeName")
        if node_name in owners and not is_terminal(pod):
            workload = (pod["metadata"].get("annotations") or {}).get(WORKLOAD_ANNOTATION, "")
            job = job_of.get(f"{pod['metadata']['namespace']}/{workload}", FOREIGN)
            owners[node_name] += [job] * pod_requests(pod["spec"]).get(GPU, 0)
    for name, held in owners.items():
        size = int(snapshot.nodes[name]["status"]["allocatable"].get(GPU, 0))
        held += [None] * (size - len(held))
    jobs = tuple(sorted({job for held in owners.values() for job in held if job not in (None, FOREIGN)}))
    return Seats({b: {r: tree[b][r] for r in sorted(tree[b], key=_natural)} for b in sorted(tree, key=_natural)}, owners, jobs)


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in _split(name)]


def _split(name: str) -> list[str]:
    parts, current = [], ""
    for char in name:
        if current and current[-1].isdigit() != char.isdigit():
            parts.append(current)
            current = ""
        current += char
    return [*parts, current]


def draw(seats_: Seats, console: Console) -> None:
    """One line per rack, one cell per GPU."""
    for block, racks in seats_.tree.items():
        console.print(Text(f"block {block}", style="bold"))
        for rack, nodes in racks.items():
            line = Text(f"  {rack:<8} ")
            for node in nodes:
                for job in seats_.owners[node]:
                    line.append(FREE if job is None else seats_.letter(job), style="dim" if job is None else f"bold {seats_.colour(job)}")
                line.append(" ")
            console.print(line, overflow="crop", no_wrap=True)
    legend = Text("  ")
    for job in seats_.jobs:
        legend.append(f"{seats_.letter(job)} {job}   ", style=f"bold {seats_.colour(job)}")
    console.print(legend.append(f"{FREE} free GPU", style="dim"))


def to_svg(seats_: Seats, title: str) -> str:
    """The same as a file: a row per rack, a group of cells per node, a tooltip on each."""
    widest = max(
        (sum(len(seats_.owners[n]) for n in nodes) + len(nodes) for racks in seats_.tree.values() for nodes in racks.values()), default=1
    )
    width, y, body = _LABEL + widest * _CELL + 24, 44, []
    for block, racks in seats_.tree.items():
        body.append(f'<text x="12" y="{y + 12}" class="b">block {escape(block)}</text>')
        y += _HEAD
        for rack, nodes in racks.items():
            body.append(f'<text x="24" y="{y + 9}">{escape(rack)}</text>')
            x = _LABEL
            for node in nodes:
                for job in seats_.owners[node]:
                    fill = "#eceff1" if job is None else seats_.colour(job)
                    tip = f"{node}: {job or 'free'}"
                    body.append(f'<rect x="{x}" y="{y}" width="{_CELL - 1}" height="10" fill="{fill}"><title>{escape(tip)}</title></rect>')
                    x += _CELL
                x += _GAP
            y += 16
        y += 10
    x = 24
    for job in seats_.jobs:
        body.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{seats_.colour(job)}"/>')
        body.append(f'<text x="{x + 14}" y="{y + 9}">{escape(job)}</text>')
        x += 26 + 7 * len(job)
    style = "text{font:11px sans-serif;fill:#263238}.b{font-weight:bold;font-size:13px}.t{font-size:15px;font-weight:bold}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, x)}" height="{y + 28}" role="img" aria-label="{escape(title)}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="white"/><text x="12" y="24" class="t">{escape(title)}</text>'
        + "".join(body)
        + "</svg>\n"
    )

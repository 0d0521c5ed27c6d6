"""Reports on a terminal: sentences stay whole, whatever the width, so that they can be searched for and compared."""

import json
import os
import re
from collections.abc import Iterable
from typing import Any

import typer
import yaml
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from cli.inputs import WIDE
from cli.reporting.report import Report
from cli.reporting.table import replace_controls
from core.model.quantity import show_count
from core.names import MIN_PARALLELISM
from core.placement.refusals import TOPOLOGY_DOMAIN

Line = str | Text
_SHOWN_DOMAINS = 12
_WIDE = 1000
_RESOURCE = re.compile(r'resource "([^"]+)"')
GOOD, WAITING, BAD, QUIET, HEAD = "green", "yellow", "red", "dim", "bold"


def make_console() -> Console:
    """Returns a console on stdout, on which control characters of what is printed are replaced, each by one character: what is in objects
    must not steer a terminal. What goes into a pipe or a file has lines of up to 1,000 columns, unless COLUMNS is set: it is not cut to the
    width of a terminal that is not there."""
    console = _PlainConsole()
    return console if console.is_terminal or "COLUMNS" in os.environ else _PlainConsole(width=_WIDE)


class _PlainConsole(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.isprintable() or text == "\n":
                yield segment
            else:
                yield Segment("\n".join(map(replace_controls, text.split("\n"))), segment.style)


def write(console: Console, line: Line = "", style: str = "", indent: int = 0) -> None:
    """Prints one line, as long as it is: the terminal breaks it where it must. `indent` counts levels of two spaces; `style` is for a plain
    string alone."""
    text = line if isinstance(line, Text) else Text(line, style)
    if "\n" in text.plain:
        text.plain = text.plain.replace("\n", " ")  # as long as before: the styles stay where they are
    console.print(Text("  " * indent).append_text(text), soft_wrap=True, highlight=False)


def write_plain(console: Console, text: str) -> None:
    """Prints lines that have no control characters and no style as they are: rich would put pictures in place of words between colons, and
    takes 25 ms for a thousand lines."""
    console.file.write(f"{text}\n")
    console.file.flush()


def write_data(console: Console, report: Any, form: str) -> None:
    """Prints a report as JSON, or as YAML for any other `form`. Where characters of it do not print, all beyond ASCII are escaped: the
    console replaces none, and what is read back is the same."""

    def format_all(has_all: bool) -> str:
        if form == "json":
            return json.dumps(report, indent=2, ensure_ascii=not has_all)
        dumped: str = yaml.safe_dump(report, sort_keys=False, allow_unicode=has_all, width=2**16)
        return dumped.rstrip("\n")

    text = format_all(has_all=True)
    if not text.replace("\n", "").isprintable():
        text = format_all(has_all=False)
    write_plain(console, text)


def format_labelled(name: str, value: str, style: str = "") -> Text:
    """Returns a name in bold before its value, as one line."""
    return Text(f"{name}: ", HEAD).append(value, style)


def render_found(console: Console, found: Report, indent: int = 1) -> None:
    """Prints where pods go, and why there; `found` has the keys of `report_found`."""
    render_places(console, found["podSets"], indent)
    render_fewer(console, found, indent)
    for sentence in found.get("why", ()):
        write(console, format_labelled("why there", sentence), indent=indent)


def render_fewer(console: Console, report: Report, indent: int = 1) -> None:
    """Prints why a workload has fewer pods than it asked for; nothing where the report has no `fewerSince`."""
    if "fewerSince" in report:
        write(console, format_labelled("why fewer pods", report["fewerSince"], WAITING), indent=indent)


def render_places(console: Console, pod_sets: Iterable[Report], indent: int = 1) -> None:
    """Prints pod sets, as `report_admission` returns them: their pods, flavors, first 12 domains with the number of the others, and the
    nodes that are kept free."""
    for pod_set in pod_sets:
        flavors = ", ".join(dict.fromkeys(pod_set["flavors"].values())) or "none"
        pods = show_count(pod_set["count"], "pod")
        if "asked" in pod_set:
            minimum = f"({MIN_PARALLELISM} accepts {pod_set['minimum']} or more)"
            pods = f"{pod_set['count']} of the {pod_set['asked']} pods that it asked for {minimum}"
        write(console, Text(f"pod set {pod_set['name']}", HEAD).append(f": {pods}, flavor {flavors}", ""), indent=indent)
        if pod_set.get("awaitsTopology"):
            write(console, "its domains are found once the admission checks are passed", QUIET, indent + 1)
        for domain in pod_set["domains"][:_SHOWN_DOMAINS]:
            write(
                console,
                Text("/".join(domain["values"]), GOOD).append(f"  {show_count(domain['count'], 'pod')}", "default"),
                indent=indent + 1,
            )
        more = len(pod_set["domains"]) - _SHOWN_DOMAINS
        if more > 0:
            write(console, f"and {show_count(more, 'more domain')}; -o json names all", QUIET, indent + 1)
        if pod_set.get("spares"):
            write(console, format_labelled("kept free for it", ", ".join(pod_set["spares"])), indent=indent + 1)


def describe_excluded(excluded: Report, total: int) -> str:
    """Returns a text on how many of all `total` nodes an attempt left out, and why: they have too few of a free resource, or `reason` as it
    is. `excluded` has `count` and `reason`."""
    nodes = f"{excluded['count']} of {show_count(total, 'node')}"
    if excluded["reason"] == TOPOLOGY_DOMAIN:
        return f"{nodes} are out of the domain in which all pods must be"
    resource = _RESOURCE.fullmatch(excluded["reason"])
    return f"{nodes} have too few free {resource[1]}" if resource is not None else f"{nodes} cannot be used: {excluded['reason']}"


def render_refusal(console: Console, refusal: Report, indent: int = 1) -> None:
    """Prints for each flavor tried what the best domain of each level lacks, which nodes are out and what would help; then the workloads to
    be preempted.
    """
    for attempt in refusal["attempts"]:
        pods = f" with {show_count(attempt['pods'], 'pod')}" if "pods" in attempt else ""
        flavor = f", flavor {attempt['flavor']}" if attempt["flavor"] else ""
        title = f"pod set {attempt['podSet']}{pods}{flavor}: {attempt['reason']}"
        write(console, title, HEAD, indent)
        if "levels" not in attempt:
            write(console, attempt["message"], indent=indent + 1)
            continue
        for level in attempt["levels"]:
            style = GOOD if level["fit"] >= level["wanted"] else WAITING if level["fit"] else BAD
            write(console, Text(level["message"], style).append(f" ({show_count(level['domains'], 'domain')})", QUIET), indent=indent + 1)
        for excluded in attempt["excluded"]:
            text = describe_excluded(excluded, attempt["totalNodes"])
            write(console, Text(text, BAD).append(f", e.g. {excluded['example']}", QUIET), indent=indent + 1)
        for note in attempt["notes"]:
            write(console, note, indent=indent + 1)
        for change in attempt["wouldHelp"]:
            write(console, format_labelled("would fit", change["message"], GOOD), indent=indent + 1)
        if "never" in attempt:
            write(console, format_labelled("will never fit", attempt["never"], BAD), indent=indent + 1)
    for victim in refusal.get("preempting", {}).get("victims", ()):
        write(console, format_labelled("to be preempted", f"{victim['workload']} ({victim['why']})", WAITING), indent=indent)


def begin_next(console: Console, form: str | None, *, is_first: bool) -> None:
    """Prints what separates one answer of `--watch` from the one before: nothing before the first."""
    if is_first:
        return
    if form in (None, WIDE):
        console.clear()
        write(console)
    elif form == "yaml":
        typer.echo("---")

"""`topogate queue` on a terminal of any width."""

import re
from collections.abc import Sequence
from datetime import datetime

from rich.console import Console
from rich.text import Text

from cli.reporting.draw import BAD, HEAD, QUIET, WAITING, format_labelled, write, write_plain
from cli.reporting.report import Report
from cli.reporting.table import cut, format_table, remove_controls
from core.model.quantity import show_count
from reconciler.execute.tracing import parse_time

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_ADVICE = ("It would fit", "Can never fit", "No node has", "One pod is larger", "No eligible node")  # how sentences of a refusal begin
_PREFIX = re.compile(r"couldn't assign flavors to pod set [^:]{1,63}: ")  # as Kueue begins it; the reason comes after
_UNKNOWN = "?"


def _move_advice_forward(reason: str) -> str:
    """Returns a reason with its sentences of advice first: a line is cut at its end."""
    name, colon, message = reason.partition(": ")
    parts = message.split(". ")
    advice = [part.rstrip(".") for part in parts if part.startswith(_ADVICE)]
    if not colon or not advice:
        return reason
    return f"{name}: {'. '.join([*advice, *(part.rstrip('.') for part in parts if not part.startswith(_ADVICE))])}"


def _describe_state(row: Report) -> str:
    return f"{row['state']}, waits for check {', '.join(row['waitsForChecks'])}" if "waitsForChecks" in row else str(row["state"])


def format_age(since: str, now: datetime) -> str:
    """Returns how long ago a time of the API was, in its largest whole unit (`45s`, `3m`, `2h`, `5d`): `0s` for one to come, and a question
    mark for none."""
    try:
        moment = parse_time(since)
    except ValueError:
        moment = None
    if moment is None:
        return _UNKNOWN
    seconds = max(0, int((now - moment).total_seconds()))
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds // size}{unit}"


def render_queues(console: Console, reports: Sequence[Report], now: datetime, *, notes: Sequence[str] = (), is_wide: bool = False) -> None:
    """Prints reports of `report_queues`, with an empty line between them, and then the `notes`, which are whole. Other lines are not longer
    than the terminal is wide, unless `is_wide`: then there are more columns, and nothing is cut."""
    for number, report in enumerate(reports):
        if number:
            write(console)
        _Drawing(console, report, now, is_wide=is_wide).render()
    for note in notes:
        write(console, format_labelled("not shown", note, WAITING))


class _Drawing:
    """One queue."""

    def __init__(self, console: Console, report: Report, now: datetime, *, is_wide: bool) -> None:
        self._console, self._report, self._now, self._is_wide = console, report, now, is_wide

    def render(self) -> None:
        report = self._report
        name = f"ClusterQueue {report['clusterQueue']}" if report["clusterQueue"] else "LocalQueues that do not exist"
        details = [report.get("strategy", ""), f"cohort {report['cohort']}" if "cohort" in report else ""]
        shown = ", ".join(filter(None, details))
        self._write_line(f"{name} ({shown})" if shown else name, HEAD)
        if "inactive" in report:
            self._write_labelled("inactive", report["inactive"]["message"], BAD)
        self._render_waiting(report["waiting"])
        if "notConsidered" in report:
            self._render_inactive(report["notConsidered"])
        self._render_holding(report["holding"])
        if "quota" in report:
            self._render_quota(report["quota"])
        for note in report.get("notRead", ()):
            write(self._console, format_labelled("not shown", note, WAITING), indent=1)

    def _render_waiting(self, waiting: Report) -> None:
        rows = [self._list_waiting_cells(row) for row in waiting["workloads"]]
        others = waiting["others"]
        self._write_labelled("waiting", _count(len(rows), others["count"]))
        is_local = any(row["position"] is None for row in waiting["workloads"])
        position = ["IN LOCALQUEUE"] if is_local else ["POS"]
        more = ["IN LOCALQUEUE", "IN COHORT"] if self._is_wide and not is_local else []
        names = ["NAMESPACE", "LOCALQUEUE", "JOB", "WORKLOAD"] if self._is_wide else ["NAMESPACE", "JOB"]
        pods = ["PODS"] if self._is_wide else []
        self._render_table([*position, *more, *names, "PRIORITY", "AGE", *pods, "ASKS FOR", "REASON"], rows)
        if others["count"] and others["asks"]:
            self._write_line(f"the others ask for {_join(others['asks'])}", QUIET, 2)

    def _list_waiting_cells(self, row: Report) -> list[str]:
        is_local = row["position"] is None
        positions = [row["localPosition"]] if is_local else [row["position"]]
        if self._is_wide and not is_local:
            cohort = row["cohortPosition"]
            positions += [row["localPosition"], cohort if cohort is not None else _UNKNOWN]
        reason = ": ".join(filter(None, (row["reason"], _PREFIX.sub("", row["message"], count=1))))
        if not self._is_wide:
            reason = _move_advice_forward(reason)
        if "notPreempted" in row:
            reason = f"{reason.replace(':', ', may not preempt:', 1)}; {', '.join(row['notPreempted'])}"
        age = format_age(row["queuedSince"], self._now)
        rest = [row["priority"], age, *([row["pods"]] if self._is_wide else []), _join(row["asks"]), reason]
        return [str(cell) for cell in (*positions, *self._list_names(row), *rest)]

    def _render_inactive(self, inactive: Report) -> None:
        rows = [
            [*self._list_names(row), row["state"], _move_advice_forward(": ".join(filter(None, (row["reason"], row["message"]))))]
            for row in inactive["workloads"]
        ]
        self._write_labelled("not considered", _count(len(rows), inactive["others"]["count"]))
        names = ["NAMESPACE", "LOCALQUEUE", "JOB", "WORKLOAD"] if self._is_wide else ["NAMESPACE", "JOB"]
        self._render_table([*names, "STATE", "REASON"], rows)

    def _list_names(self, row: Report) -> list[str]:
        job = f"{row['job']['kind'].lower()}/{row['job']['name']}" if "job" in row else f"workload/{row['name']}"
        return [row["namespace"], row["localQueue"], job, row["name"]] if self._is_wide else [row["namespace"], job]

    def _render_holding(self, holding: Report) -> None:
        others = holding["others"]
        self._write_labelled("holding quota", _count(len(holding["workloads"]), others["count"]))
        names = ["NAMESPACE", "LOCALQUEUE", "JOB", "WORKLOAD"] if self._is_wide else ["NAMESPACE", "JOB"]
        rows = [
            [*self._list_names(row), str(row["priority"]), age, str(row["pods"]), _describe_state(row), _join_held(row["holds"])]
            for row, age in ((row, format_age(row["since"], self._now)) for row in holding["workloads"])
        ]
        self._render_table([*names, "PRIORITY", "SINCE", "PODS", "STATE", "HOLDS"], rows)
        if others["count"] and others["holds"]:
            self._write_line(f"the others hold {_join_held(others['holds'])}", QUIET, 2)

    def _render_quota(self, quota: Sequence[Report]) -> None:
        if not quota:
            self._write_labelled("quota", "none")
            return
        self._write_labelled("quota", "")
        known = ["LENT", "FREE"] if all("lent" in use for use in quota) else []
        rows = []
        for use in quota:
            free = [use["lent"], use["available"]] if known else []
            rows.append([use["flavor"], use["resource"], use["nominal"], use["own"], use["borrowed"], *free, _describe_holders(use)])
        self._render_table(["FLAVOR", "RESOURCE", "NOMINAL", "OWN IN USE", "BORROWED", *known, "HELD BY"], rows)

    def _render_table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if not rows:
            return
        indent = "    "
        lines = format_table(headers, rows, self._console.width - len(indent), is_cut=not self._is_wide)
        write_plain(self._console, "\n".join(indent + line for line in lines))

    def _write_labelled(self, name: str, value: str, style: str = "") -> None:
        value = remove_controls(value)
        text = value if self._is_wide else cut(value, max(1, self._console.width - len(name) - 4))
        write(self._console, format_labelled(name, text, style) if text else Text(f"{name}:", HEAD), indent=1)

    def _write_line(self, text: str, style: str, indent: int = 0) -> None:
        text = remove_controls(text)
        write(self._console, text if self._is_wide else cut(text, max(1, self._console.width - 2 * indent)), style, indent)


def _count(named: int, others: int | None) -> str:
    if others is None:
        return f"{show_count(named, 'workload')} of yours; others are not known"
    return show_count(named + others, "workload") + (f", {others} of them not shown by name" if others else "")


def _join(amounts: Report) -> str:
    return ", ".join(f"{amount} {resource}" for resource, amount in amounts.items())


def _join_held(amounts: Sequence[Report]) -> str:
    by_flavor: dict[str, list[str]] = {}
    for entry in amounts:
        by_flavor.setdefault(entry["flavor"], []).append(f"{entry['amount']} {entry['resource']}")
    return "; ".join(f"{', '.join(shown)} of {flavor}" for flavor, shown in by_flavor.items())


def _describe_holders(use: Report) -> str:
    held = [f"{one['localQueue']} {one['amount']}" for one in use["heldBy"]]
    held += [f"others {use['othersHold']}"] if use["othersHold"] != "0" else []
    lent = [f"{one['clusterQueue']} {one['amount']}" for one in use.get("borrowers", ())]
    return ", ".join(held) + (f"{'; ' if held else ''}borrowed in its cohort: {', '.join(lent)}" if lent else "")

"""`.venv/bin/python -m e2e.jaeger`: the demo's jobs traced into a real Jaeger, which must tell the story of each without a gap.

The demo's own promises about traces are kept by what Jaeger answers. `out/trace.svg` is the trace of the job that was refused first, and
`out/traces.json` all traces as Jaeger has them. With `--stay` everything runs on until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

from rich.console import Console

from core import trace_names as t
from e2e import demo
from e2e.api import wait_for
from e2e.audit import stories
from e2e.audit.otlp import SpanRecord
from e2e.audit.truth import Obj
from e2e.audit.waterfall import to_svg
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.jaeger.server import JAEGER, Jaeger
from e2e.process import StartFailed
from e2e.progress import CommandFailed
from e2e.topogate import Topogate

OUT = demo.OUT
REFUSED_FIRST = "waits"  # of the demo's jobs


def find_problems(workloads: list[Obj], jaeger: Jaeger) -> list[str]:
    """Whatever the traces of the demo's workloads lack: all of them have been admitted by its end."""
    found = []
    for workload in workloads:
        spans = jaeger.list_spans(stories.trace_of(workload))
        found += [f"{workload['metadata']['name']}: {problem}" for problem in stories.find_problems(spans)]
    return found


def was_refused_then_admitted(spans: list[SpanRecord]) -> list[str]:
    """What the trace of such a job must have in this order."""
    answers = [span.attributes.get(t.REFUSED) for span in spans if span.name == t.SOLVE]
    return [] if True in answers and answers[-1] is False else [f"decisions were {answers}, not a refusal and then a place"]


def run_demo(console: Console, picture: Path, *, stay: bool) -> int:
    """The exit code."""
    ensure_binaries()
    ensure_binaries(modules=(JAEGER,))
    OUT.mkdir(exist_ok=True)
    os.environ["OTEL_METRICS_EXPORTER"] = "none"  # Jaeger takes traces only
    with ExitStack() as stack:
        jaeger = stack.enter_context(Jaeger(OUT))
        console.print(f"Jaeger takes spans at {jaeger.grpc} (gRPC) and {jaeger.http} (HTTP); starting a control plane ...")
        cluster = stack.enter_context(Cluster())
        topogate = stack.enter_context(Topogate(cluster, otlp_endpoint=jaeger.grpc, flags=["--otlp-protocol", "grpc"]))
        scenes = demo.Demo(cluster, topogate, jaeger, console)
        code = demo.run_scenes(scenes)
        if code:
            return code
        return _check(console, scenes, jaeger, picture, stay=stay)


def _check(console: Console, scenes: demo.Demo, jaeger: Jaeger, picture: Path, *, stay: bool) -> int:
    workloads = scenes.read().workloads
    with suppress(TimeoutError):  # then it is told what is missing
        wait_for("the last spans", lambda: not find_problems(workloads, jaeger) or None, timeout_s=30)
    refused = jaeger.list_spans(stories.trace_of(scenes.read().workload_of(REFUSED_FIRST)))
    broken = find_problems(workloads, jaeger) + was_refused_then_admitted(refused)
    for problem in broken:
        console.print(f"[bold red]broken:[/] {problem}", soft_wrap=True)
    traces = jaeger.traces()
    (OUT / "traces.json").write_text(json.dumps({"data": traces}))
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(to_svg(refused, f"A job that had to wait: trace {refused[0].trace_id}"))
    console.print(f"{len(workloads)} stories, {len(traces)} traces, {sum(len(trace['spans']) for trace in traces)} spans in Jaeger")
    console.print(f"one job, refused and then admitted: {picture}")
    console.print(f"all of them, to be loaded into a Jaeger with a web page: {OUT / 'traces.json'}")
    if not broken:
        console.print("[bold green]every story is told without a gap[/]")
    if stay:
        console.print(f"Jaeger answers at {jaeger.query}/api/traces/{refused[0].trace_id}; Ctrl-C ends it")
        signal.pause()
    return 1 if broken else 0


def main(arguments: list[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m e2e.jaeger", description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=OUT / "trace.svg", help="where the picture goes (default: %(default)s)")
    parser.add_argument("--stay", action="store_true", help="let everything run until Ctrl-C")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # stopped by whatever, it cleans up as on Ctrl-C
    console = Console(highlight=False)
    console.width = max(console.width, demo.MIN_WIDTH)
    try:
        return run_demo(console, options.picture, stay=options.stay)
    except (CommandFailed, StartFailed, TimeoutError) as error:
        console.print(f"[bold red]failed:[/] {error}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("\neverything that was started has been stopped")
        return 0 if options.stay else 130


if __name__ == "__main__":
    sys.exit(main())

"""Kueue and topogate in turn, each on a control plane of its own, under the same load on the same nodes.

    python -m tests.bench.kueue [--cases a,b640] [--share 0.2] [--rounds 2] [--minutes 60] [--write]

Cases are listed by `--help` and described in docs/compared.md. In case (a) the floor runs beside both: the same writes and the events of
the contract with one watcher, and no manager that decides. Each run is kept in `out/bench-kueue.json`: started again with the same options
and the same code, the command goes on where it stopped. `--write` puts the tables into docs/compared.md once all runs are there.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from e2e.binaries import ETCD_VERSION, KUBERNETES_VERSIONS, ensure_binaries, find_kubernetes_minor
from e2e.operators.build import ensure_operator
from e2e.operators.kueue import KUEUE as KUEUE_MANAGER
from e2e.perf_load import Load
from tests.bench.compared.failures import measure_failures
from tests.bench.compared.jobs import measure_jobs
from tests.bench.compared.leaders import measure_leaders
from tests.bench.compared.managers import Measured
from tests.bench.compared.pods import measure_pods
from tests.bench.compared.reviews import measure_reviews
from tests.bench.compared.rig import measure_rig
from tests.bench.compared.runs import ALL, Run, Settings, Title, list_missing_runs, read_runs, render_report, replace_report, write_runs
from tests.bench.compared.victims import measure_victims
from tests.bench.parts.cluster_load import Load as JobLoad
from tools.image.build import SETTINGS

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "out" / "bench-kueue.json", ROOT / "docs" / "compared.md"
GAUGES, GAUGE_STEPS = 5, 1_000_000
CODE = ("core", "reconciler", "webhook", "certs", "e2e/perf_load.py", "tests/bench/compared")
TITLES = {
    "a": Title("The load of Kueue's performance rig", "workload", ALL),
    "b640": Title("Jobs that run and end on 640 nodes", "job"),
    "b2560": Title("Jobs that run and end on 2,560 nodes", "job"),
    "c": Title("Reviews of Jobs, through the API server", "job"),
    "d2000": Title("2,000 pods of one job are ungated", "pod"),
    "d10000": Title("10,000 pods of one job are ungated", "pod"),
    "e700": Title("A rack is preempted, among 700 candidates", "candidate"),
    "e4900": Title("A rack is preempted, among 4,900 candidates", "candidate"),
    "f": Title("Five of a hundred of 1,000 nodes fail", "pod"),
    "g": Title("Start, and change of the leader, beside 10,000 pods of others", "node"),
}
# How processes allocate memory: as in the image. What the Makefile sets takes more memory and less time.
IN_THE_IMAGE = {name: SETTINGS.environment[name] for name in ("PYTHONMALLOC", "GLIBC_TUNABLES")}
Measure = Callable[[str], Measured]


def list_measures(share: float, *, unique_hostnames: bool) -> dict[str, Measure]:
    """How each case is measured, by its name in `TITLES`."""
    rig, seconds = Load(share=share, unique_hostnames=unique_hostnames), 20.0
    small, large = JobLoad(640, round(500 * share), pods_per_s=10), JobLoad(2560, round(2000 * share), pods_per_s=10)
    return {
        "a": lambda subject: measure_rig(subject, rig),
        "b640": lambda subject: measure_jobs(subject, small),
        "b2560": lambda subject: measure_jobs(subject, large),
        "c": lambda subject: measure_reviews(subject, seconds),
        "d2000": lambda subject: measure_pods(subject, 2_000),
        "d10000": lambda subject: measure_pods(subject, 10_000),
        "e700": lambda subject: measure_victims(subject, 700),
        "e4900": lambda subject: measure_victims(subject, 4_900),
        "f": lambda subject: measure_failures(subject, 1_000),
        "g": lambda subject: measure_leaders(subject, 1_000, 10_000),
    }


def measure_gauge() -> float:
    """Processor time of a fixed loop in seconds, the median of some: how fast this machine is just now."""
    return statistics.median(_run_loop() for _ in range(GAUGES))


def _run_loop() -> float:
    began, total = time.process_time(), 0
    for i in range(GAUGE_STEPS):
        total += i * i % 7
    return time.process_time() - began


def measure_run(case: str, subject: str, number: int, measure: Measure) -> Run:
    """One run, with the speed and the load of the machine before and after."""
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    gauges, loads = [measure_gauge()], [os.getloadavg()[0]]
    measured = measure(subject)
    gauges.append(measure_gauge())
    loads.append(os.getloadavg()[0])
    return Run(
        case=case,
        subject=subject,
        round=number,
        date=date,
        done=measured.done,
        figures=measured.figures,
        calls=measured.calls,
        gauge_s=[round(each, 4) for each in gauges],
        load=[round(each, 2) for each in loads],
    )


def build_settings(share: float, unique_hostnames: bool) -> Settings:
    """All that runs must have in common to be compared."""
    hostnames = "unique" if unique_hostnames else "as in Kueue's rig"
    minor = find_kubernetes_minor()
    return {
        "share": share,
        "hostnames": hostnames,
        "Kueue": KUEUE_MANAGER.version,
        "topogate": compute_code_hash(),
        "Kubernetes": KUBERNETES_VERSIONS[minor],
        "etcd": ETCD_VERSION,
        "processors": os.cpu_count(),
    }


def compute_code_hash() -> str:
    """A name of the code that is measured: runs of other code are not compared with it."""
    digest = hashlib.sha256()
    for path in sorted(_list_code()):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _list_code() -> Iterator[Path]:
    for name in CODE:
        path = ROOT / name
        yield from path.rglob("*.py") if path.is_dir() else [path]


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    os.environ.update(IN_THE_IMAGE)
    cases = {name: TITLES[name] for name in options.cases}
    ends = time.monotonic() + 60 * options.minutes
    ensure_binaries()
    ensure_operator(KUEUE_MANAGER)
    settings = build_settings(options.share, options.unique_hostnames)
    runs = [] if options.again else read_runs(RESULTS, settings)
    measures = list_measures(options.share, unique_hostnames=options.unique_hostnames)
    for case, number, subject in list_missing_runs(cases, options.rounds, runs):
        if time.monotonic() >= ends:
            print(f"{options.minutes:g} minutes are over; the same command, without --again, goes on")
            return 0
        run = measure_run(case, subject, number, measures[case])
        runs.append(run)
        write_runs(RESULTS, settings, runs)
        shown = ", ".join(f"{name} {amount:g}" for name, amount in [*run.list_figures().items()][:3])
        print(f"({case}) round {number}, {subject}: {shown}", flush=True)
    report = render_report(settings, TITLES, [run for run in runs if run.round <= options.rounds])
    print(report)
    if options.write:
        PAGE.write_text(replace_report(PAGE.read_text(), report))
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.kueue",
        description=__doc__.splitlines()[0],
        epilog="cases: " + "; ".join(f"{name}: {title.text}" for name, title in TITLES.items()),
    )
    parser.add_argument("--cases", type=_read_cases, default=[*TITLES], help="their names, with commas between them (default: all)")
    parser.add_argument("--share", type=float, default=0.2, help="of the workloads of (a) and the jobs of (b) (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=60, help="start no run after so many; started again it goes on (default: %(default)s)"
    )
    parser.add_argument("--unique-hostnames", action="store_true", help="Kueue's generator gives ten nodes one hostname")
    parser.add_argument("--again", action="store_true", help="drop the runs that are kept")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/compared.md")
    options = parser.parse_args(arguments)
    if not 0.02 <= options.share <= 1 or options.rounds < 1:
        parser.error("--share is from 0.02 to 1, --rounds at least 1")
    return options


def _read_cases(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in TITLES]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: accepted are {', '.join(TITLES)}")
    return names


if __name__ == "__main__":
    sys.exit(main())

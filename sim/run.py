"""Plays random lives of a cluster: `python -m sim.run --seed N [--count M]`. Exit code 1 if one fails, with its seed.

Of the first that fails the fewest steps that fail alike are looked for, printed, and written to `out/`, to be played with `--steps`.
"""

import argparse
import gc
import hashlib
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from core.runtime.garbage import exclude_live_objects
from sim.apiserver.server import LEASES
from sim.arguments import at_least, read_steps
from sim.scenario import SMALL, Scenario, Size, Step, choose_size, plan
from sim.shrink import get_failure_kind, shrink
from sim.world import World

LIMIT_S = 600.0  # of CPU, for a seed
LIVES_PER_COLLECTION = 100  # ten leave 20 MB; to collect what each ten leave took 5 % of the time
OUT = Path(__file__).parent.parent / "out"
SIZE_HELP = {
    "jobs": "how many are submitted (50, and those of the opening of a seed with gates)",
    "others": "steps of users, nodes and administrators (4 to 20, as the seed says)",
    "faults": "kinds of faults (5 to 8, as the seed says)",
}


class Played(NamedTuple):
    """What came of a scenario. `problem` is empty if it holds; `digest` stands for all writes."""

    problem: str
    writes: int
    renewals: int
    deaths: int
    lost: int
    seconds: float
    digest: str
    stale_reasons: list[str]
    excused: list[str]


class TooLong(KeyboardInterrupt):
    """A scenario does not end: an event loop handles all other exceptions itself."""


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raises TooLong where it was after so many seconds of CPU."""

    def end(*_: object) -> None:
        raise TooLong(f"no end after {seconds:.0f} s of CPU")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 10.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class InVirtualTime(logging.Formatter):
    """Lines of a log that begin with the seconds of virtual time in the world that is played."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = next((world.loop.time() for world in World.unclosed), 0.0)
        return f"{seconds:10.3f} {super().format(record)}"


@contextmanager
def print_log() -> Iterator[None]:
    """Prints topogate's log, and what happens to it, of worlds that are made meanwhile."""
    root, handler = logging.getLogger(), logging.StreamHandler(sys.stdout)
    handler.setFormatter(InVirtualTime("%(levelname)s %(name)s: %(message)s"))
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


def run_scenario(
    seed: int, size: Size | None = None, steps: Sequence[Step] | None = None, *, tells: bool = False, limit_s: float = LIMIT_S
) -> Played:
    """Plays a scenario to its end, or until something is broken, or it takes too long."""
    scenario = Scenario(seed, size, steps)
    world, digest = scenario.world, hashlib.sha256()
    world.server.on_change.append(lambda change: digest.update(world.server.write_out(change)))
    try:
        with limit_time(limit_s):
            scenario.play()
        problem = ""
    except (Exception, TooLong) as error:
        problem = f"{type(error).__name__}: {error}"
        if tells or isinstance(error, TooLong):
            traceback.print_exc()
    finally:
        with suppress(TooLong), limit_time(limit_s):
            world.close()
        collect_garbage(seed)
    deaths, lost = (sum(counts) for counts in zip(*((each.deaths, each.lost) for each in world.replicas), strict=True))
    renewals, told = world.server.written[LEASES], digest.hexdigest()[:16]
    return Played(problem, world.server.writes, renewals, deaths, lost, world.loop.time(), told, scenario.stale_reasons, scenario.excused)


def use_fixed_hashes(module: str, arguments: Sequence[str]) -> None:
    """Starts the program anew if hashes are random: the order of sets is part of what a seed stands for."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-m", module, *arguments], {**os.environ, "PYTHONHASHSEED": "0"})


def prepare() -> None:
    """Leaves cycles to `collect_garbage`: a life leaves some 30,000 objects in them, and the collector would look again and again at what
    lives."""
    exclude_live_objects()
    gc.disable()


def collect_garbage(seed: int) -> None:
    """Collects what scenarios have made, now and then."""
    if seed % LIVES_PER_COLLECTION == 0:
        gc.collect()


def build_parser() -> argparse.ArgumentParser:
    told = ", ".join(f"{value} {name}" for name, value in SMALL._asdict().items())
    parser = argparse.ArgumentParser(
        prog="python -m sim.run",
        description="Plays random lives of a cluster. Exit code 1 if one fails, with its seed.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--seed", type=at_least(0), default=1, help="the first one that is played")
    parser.add_argument("--count", type=at_least(1), default=1, help="how many seeds are played")
    for name, what in SIZE_HELP.items():
        parser.add_argument(f"--{name}", type=at_least(0), help=what, default=argparse.SUPPRESS)
    parser.add_argument("--small", action="store_true", help=f"as most tests play it: {told}")
    parser.add_argument("--steps", type=read_steps, help="a file with the steps to play, as a failure writes it")
    parser.add_argument("--shrink-s", type=float, default=60.0, help="seconds in which fewer steps are looked for that fail alike")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder for the steps of a failure")
    parser.add_argument("--log", action="store_true", help="print what happens in each, and topogate's log, with seconds of virtual time")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    use_fixed_hashes("sim.run", arguments or sys.argv[1:])
    logging.getLogger().setLevel(logging.CRITICAL)
    asked = (SMALL._asdict() if options.small else {}) | {name: getattr(options, name) for name in Size._fields if hasattr(options, name)}
    steps = options.steps
    prepare()
    began, failed, writes, renewals, excused = time.process_time(), 0, 0, 0, 0
    for seed in range(options.seed, options.seed + options.count):
        size = choose_size(seed)._replace(**asked)
        with print_log() if options.log else nullcontext():
            played = run_scenario(seed, size, steps, tells=options.log)
        if played.problem and not failed and not steps:
            shortest = find_shortest(seed, size, played.problem, options.shrink_s)
            path = write_steps(options.out, seed, shortest)
            shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            command = f".venv/bin/python -m sim.run --seed {seed} --steps {shown}"
            print(f"{len(shortest)} steps fail alike: {command}", *shortest, sep="\n  ")
        failed, writes, renewals = failed + bool(played.problem), writes + played.writes, renewals + played.renewals
        excused += bool(played.excused)
        if options.log:
            print(*played.stale_reasons, f"excused: {', '.join(played.excused) or 'nothing'}", sep="\n")
        print(
            f"seed {seed}: {played.problem or 'ok'} ({played.writes} writes, {played.deaths} crashes, {played.lost} leaderships lost, "
            f"{len(played.stale_reasons)} reasons out of date, {played.seconds:.0f} s, {played.digest})",
            flush=True,
        )
    spent = time.process_time() - began
    print(
        f"{options.count - failed} of {options.count} hold, {excused} of which something was excused, {spent:.0f} s of CPU, "
        f"{60 * writes / spent:.0f} writes a minute of CPU, "
        f"{60 * (writes + renewals) / spent:.0f} with those of leases"
    )
    return 1 if failed else 0


def find_shortest(seed: int, size: Size, problem: str, seconds: float) -> list[Step]:
    """The fewest steps of a seed found in some seconds that fail as all of them do."""
    until, kind = time.monotonic() + seconds, get_failure_kind(problem)

    def fails(steps: Sequence[Step]) -> bool:
        return get_failure_kind(run_scenario(seed, size, steps).problem) == kind

    return shrink(plan(seed, size), fails, lambda: time.monotonic() < until)


def write_steps(folder: Path, seed: int, steps: Sequence[Step]) -> Path:
    """The file that has been written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / f"steps-of-seed-{seed}.json"
    path.write_text(json.dumps(steps, indent=1) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main())

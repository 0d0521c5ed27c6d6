"""Plays many seeds in several processes: `python -m sim.many --seeds N`. It ends when its time is over, and goes on when started again.

What has been played is in `out/simulated.json`: the next seed, and each failure with its seed. Exit code 1 if a seed has failed.
"""

import argparse
import json
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sim.run import OUT, play, prepare, use_fixed_hashes
from sim.scenario import Size

STATE = OUT / "simulated.json"
AT_ONCE = 10  # seeds of one piece of work
PIECES_PER_PROCESS = 20  # after which it is replaced: what it has gathered goes


class Done(NamedTuple):
    """What came of some seeds that follow each other."""

    first: int
    next: int
    writes: int
    failures: dict[int, str]


def play_some(first: int, count: int, size: Size) -> Done:
    """Plays seeds in this process."""
    logging.disable(logging.CRITICAL)
    prepare()
    played = {seed: play(seed, size) for seed in range(first, first + count)}
    return Done(
        first, first + count, sum(each.writes for each in played.values()), {seed: p.problem for seed, p in played.items() if p.problem}
    )


class State:
    """What has been played until now, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = json.loads(path.read_text()) if path.exists() else {}
        self.next: int = found.get("next", 1)
        self.failures: dict[int, str] = {int(seed): problem for seed, problem in found.get("failures", {}).items()}

    def add(self, done: Done) -> None:
        """Adds seeds that follow what has been played, and writes all down."""
        self.next = done.next
        self.failures |= done.failures
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps({"next": self.next, "failures": self.failures}, indent=1) + "\n")


def play_many(state: State, last: int, size: Size, processes: int, until: float) -> Iterator[Done]:
    """Plays seeds up to the last one, or until a time of the monotonic clock; yields what came of them, in their order."""
    pieces = iter(range(state.next, last + 1, AT_ONCE))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, max_tasks_per_child=PIECES_PER_PROCESS) as pool:
        begun = [pool.submit(play_some, first, min(AT_ONCE, last + 1 - first), size) for first in islice(pieces, 2 * processes)]
        while begun:
            yield begun.pop(0).result()
            first = next(pieces, None) if time.monotonic() < until else None
            if first is not None:
                begun.append(pool.submit(play_some, first, min(AT_ONCE, last + 1 - first), size))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.many", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10_000, help="the last seed; the first one is 1")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--anew", action="store_true", help="forget what has been played")
    options = parser.parse_args(arguments)
    use_fixed_hashes("sim.many", arguments or sys.argv[1:])
    if options.anew:
        STATE.unlink(missing_ok=True)
    state, began, writes = State(STATE), time.monotonic(), 0
    for done in play_many(state, options.seeds, Size(), options.processes, began + 60 * options.minutes):
        state.add(done)
        writes += done.writes
        for seed, problem in done.failures.items():
            print(f"seed {seed}: {problem}")
        spent = time.monotonic() - began
        told = f"{state.next - 1} of {options.seeds} seeds, {len(state.failures)} failed"
        print(f"{told}, {spent / 60:.1f} min, {60 * writes / spent:.0f} writes a minute", flush=True)
    return 1 if state.failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Plays many seeds in several processes: `python -m sim.many --seeds N`. It ends when its time is over, and goes on when started again.

What has been played is in `out/simulated.json`: a digest of the source, the next seed, each failure with its seed, and seeds of which
something was excused. On a machine without that file `sim/played.json` is read. Where the source has changed since, seeds that failed are
played again first, and then all others from the first one. Each source that played any is kept with how many these were. Exit code 1 if a
seed has failed with the present source, or if none was played although some are left; 130 if it was interrupted.
"""

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from sim.arguments import at_least
from sim.run import OUT, prepare, run_scenario, use_fixed_hashes

STATE = OUT / "simulated.json"
RECORD = Path(__file__).parent / "played.json"  # in the repository: a new machine goes on from there
AT_ONCE = 5  # seeds of one piece of work
ROOT = Path(__file__).parent.parent
SOURCES = ("core", "reconciler", "webhook", "sim", "e2e", "charts/topogate/files", "examples")  # all that a life depends on
PIECES_PER_PROCESS = 40  # after which it is replaced: what it has gathered goes


class Done(NamedTuple):
    """What came of some seeds that follow each other."""

    first: int
    next: int
    writes: int
    failures: dict[int, str]
    renewals: int = 0  # of leases, which are no part of `writes`
    excused: tuple[int, ...] = ()  # seeds of which something was not judged


def end_with_parent() -> None:
    """Begins a process that plays seeds: it ends with the one that has started it, however that ends, and leaves ^C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def run_some(first: int, count: int, until: float) -> Done:
    """Plays seeds in this process, and begins none after a time of the monotonic clock, which all processes of a machine share."""
    logging.getLogger().setLevel(logging.CRITICAL)
    prepare()
    played = {seed: run_scenario(seed) for seed in range(first, first + count) if time.monotonic() < until}
    return Done(
        first,
        first + len(played),
        sum(each.writes for each in played.values()),
        {seed: p.problem for seed, p in played.items() if p.problem},
        sum(each.renewals for each in played.values()),
        tuple(seed for seed, each in played.items() if each.excused),
    )


def compute_digest(root: Path = ROOT, folders: Iterable[str] = SOURCES) -> str:
    """A digest of the source of the product and of the simulation: the names and the contents of all Python and YAML files."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                content = path.read_bytes()
                digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


class State:
    """What has been played until now, kept in a file. `sources`: how many seeds were played with each, by its digest.

    `again`: seeds that failed with an earlier source, and have not been played with this one.
    """

    def __init__(self, path: Path, source: str, record: Path | None = None) -> None:
        """`record` is read where there is no file yet. Raises ValueError where a file is not one that this class has written."""
        self._path, self._source = path, source
        known = next((file for file in (path, record) if file is not None and file.exists()), None)
        found = _read(known) if known is not None else {}
        is_same = found.get("source", source) == source
        self.next: int = found.get("next", 1) if is_same else 1
        self.failures: dict[int, str] = {int(seed): problem for seed, problem in found.get("failures", {}).items()}
        self.excused: set[int] = set(found.get("excused", ())) if is_same else set()
        self.sources: dict[str, int] = found.get("sources", {})
        self.again = sorted(found.get("again", []) if is_same else self.failures)

    def add(self, done: Done) -> None:
        """Adds seeds that were played, and writes all down. The next seed is the first that was not played: behind a gap, which the limit
        of time leaves, seeds are played again."""
        played = range(done.first, done.next)
        self.next = max(self.next, done.next) if done.first <= self.next else self.next
        self.again = [seed for seed in self.again if seed not in played]
        self.failures = {seed: problem for seed, problem in self.failures.items() if seed not in played} | done.failures
        self.excused = self.excused.difference(played).union(done.excused)
        self.sources[self._source] = self.sources.get(self._source, 0) + len(played)
        kept = {"source": self._source, "next": self.next, "failures": self.failures, "again": self.again}
        kept |= {"excused": sorted(self.excused), "sources": self.sources}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_suffix(".new")
        written.write_text(json.dumps(kept, indent=1) + "\n")
        written.replace(self._path)

    def describe(self) -> Iterator[str]:
        """What is known before any seed is played, a line each."""
        if self.again:
            yield f"seeds that failed with another source are played again: {', '.join(map(str, self.again))}"
        if self.next > 1:
            yield f"seeds 1 to {self.next - 1} have been played with this source, {len(self.excused)} of which something was excused"
        for seed, problem in self.failures.items():
            if seed not in self.again:
                yield describe_failure(seed, problem)


def _read(path: Path) -> dict[str, Any]:
    try:
        match found := json.loads(path.read_text()):
            case {"source": str(), "next": int(), "failures": dict(), "again": list(), "sources": dict()}:
                return dict(found)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} can't be read: {error}") from error
    raise ValueError(f"{path} does not have what has been played")


def describe_failure(seed: int, problem: str) -> str:
    """What was found, and the command that plays it again."""
    return f"seed {seed} failed: {problem}\n  .venv/bin/python -m sim.run --seed {seed}  # plays it again and looks for fewer steps"


def run_many(state: State, last: int, processes: int, until: float) -> Iterator[Done]:
    """Plays seeds up to the last one, or until a time of the monotonic clock; yields what came of them: first those that have failed."""
    following = ((first, min(AT_ONCE, last + 1 - first)) for first in range(state.next, last + 1, AT_ONCE))
    pieces = chain([(seed, 1) for seed in state.again], following)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, end_with_parent, max_tasks_per_child=PIECES_PER_PROCESS) as pool:
        begun = [pool.submit(run_some, *piece, until) for piece in islice(pieces, 2 * processes)]
        while begun:
            done = begun.pop(0).result()
            if done.next > done.first:
                yield done
            piece = next(pieces, None) if time.monotonic() < until else None
            if piece is not None:
                begun.append(pool.submit(run_some, *piece, until))


def end_at_signal(state: State) -> None:
    """From now on ^C and SIGTERM end the process at once, and with it those that play: what they play is played again."""

    def end(*_: object) -> None:
        os.write(1, f"interrupted; started again it goes on with seed {state.next}\n".encode())
        os._exit(130)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sim.many", description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--seeds", type=at_least(1), default=10_000, help="the last seed; the first one is 1")
    parser.add_argument("--processes", type=at_least(1), default=2, help="how many play at once")
    parser.add_argument("--minutes", type=float, default=90.0, help="no seed is begun after these")
    parser.add_argument("--state", type=Path, default=STATE, help="the file with what has been played")
    parser.add_argument("--anew", action="store_true", help="forget what has been played")
    parser.add_argument("--record", action="store_true", help="write what has been played to sim/played.json, too, to be committed")
    options = parser.parse_args(arguments)
    if options.anew:
        options.state.unlink(missing_ok=True)
    record = RECORD if options.state == STATE and not options.anew else None
    try:
        state = State(options.state, compute_digest(), record)
    except ValueError as error:
        parser.error(f"--state: {error}; --anew begins without it")
    use_fixed_hashes("sim.many", arguments or sys.argv[1:])
    for line in state.describe():
        print(line, flush=True)
    end_at_signal(state)
    until, has_played = time.monotonic() + 60 * options.minutes, False
    for told in play_and_tell(state, options.seeds, options.processes, until):
        print(told, flush=True)
        has_played = True
    is_left = bool(state.again) or state.next <= options.seeds
    if is_left and time.monotonic() >= until:
        print(f"the limit of {options.minutes:g} minutes was reached; started again it goes on with seed {state.next}", flush=True)
    if options.record and has_played:
        RECORD.write_text(options.state.read_text())
    if not is_left:
        print(f"seeds 1 to {options.seeds} have been played with this source; --anew (`make simulate-faults ANEW=1`) plays them again")
    return 1 if state.failures or (is_left and not has_played) else 0


def play_and_tell(state: State, last: int, processes: int, until: float) -> Iterator[str]:
    """Plays seeds up to the last one, and adds them to what has been played; yields what is to be printed whenever some have ended."""
    began, writes, renewals = time.monotonic(), 0, 0
    for done in run_many(state, last, processes, until):
        state.add(done)
        writes, renewals = writes + done.writes, renewals + done.renewals
        failures = [describe_failure(seed, problem) for seed, problem in done.failures.items()]
        spent = time.monotonic() - began
        told = f"{state.next - 1} of {last} seeds, {len(state.failures)} failed, {len(state.again)} to be played again"
        rates = f"{60 * writes / spent:.0f} writes a minute of time, {60 * (writes + renewals) / spent:.0f} with those of leases"
        yield "\n".join([*failures, f"{told}, {len(state.excused)} of which something was excused, {spent / 60:.1f} min, {rates}"])


if __name__ == "__main__":
    sys.exit(main())

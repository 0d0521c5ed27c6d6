"""Puts defects of the past back, one by one, and plays seeds until one fails: `python -m sim.defects [NAME ...] [--seeds N]`.

So it is known what the simulation can find. What is put back is in `sim.past_defects`. A defect with a replaced method that no seed has
called is reported as such: then the scenarios, or the product, have changed.
"""

import argparse
import functools
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sim.gates.chosen import choose_gates
from sim.past_defects import DEFECTS, Defect, Part
from sim.run import prepare, run_scenario, use_fixed_hashes
from sim.scenario import SMALL, Size

LIMIT_S = 60.0  # of CPU, for a small seed: one takes a second


def _count_calls(part: Part, calls: Counter[str]) -> Any:
    """What is put back, with its calls counted."""

    @functools.wraps(part.put_back)
    def counted(*arguments: Any, **more: Any) -> Any:
        calls[part.attribute] += 1
        return part.put_back(*arguments, **more)

    return staticmethod(counted) if isinstance(part.owner.__dict__[part.attribute], staticmethod) else counted


@contextmanager
def put_back(defect: Defect) -> Iterator[Counter[str]]:
    """Plays with a defect; yields how often each replaced method has been called. Raises KeyError where a method is not there any more."""
    calls, before = Counter[str](), [part.owner.__dict__[part.attribute] for part in defect.parts]
    for part in defect.parts:
        calls[part.attribute] = 0
        setattr(part.owner, part.attribute, _count_calls(part, calls))
    try:
        yield calls
    finally:
        for part, method in zip(defect.parts, before, strict=True):
            setattr(part.owner, part.attribute, method)


def find_first_failure(defect: Defect, seeds: Sequence[int], size: Size, seconds: float) -> tuple[int, str]:
    """The first seed that fails with a defect put back and holds without it, and how; 0, and what was played, if none does. After some
    seconds of CPU no other seed is begun."""
    until, called, attributes = time.process_time() + seconds, Counter[str](), [part.attribute for part in defect.parts]
    played = 0
    for seed in seeds:
        if time.process_time() > until:
            break
        if not all(map(choose_gates(seed).is_on, defect.gates)):
            continue
        with put_back(defect) as calls:
            problem = run_scenario(seed, size, limit_s=LIMIT_S).problem
        called += calls
        played += 1
        if problem and not run_scenario(seed, size, limit_s=LIMIT_S).problem:
            return seed, problem
    uncalled = "".join(f"; {name} was never called" for name in attributes if not called[name])
    return 0, f"none of {played} seeds{uncalled}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.defects", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="defects to put back; all if none is named")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=500, help="the last seed")
    parser.add_argument("--seconds", type=float, default=600.0, help="of CPU, for which seeds are played for one defect")
    for name, value in SMALL._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args(arguments)
    use_fixed_hashes("sim.defects", arguments or sys.argv[1:])
    logging.getLogger().setLevel(logging.CRITICAL)
    prepare()
    chosen = [defect for defect in DEFECTS if not options.names or defect.name in options.names]
    unknown = set(options.names) - {defect.name for defect in chosen}
    if unknown:
        parser.error(f"no such defect: {', '.join(sorted(unknown))}")
    size, found = Size(options.jobs, options.others, options.faults), Counter[bool]()
    for defect in chosen:
        began = time.process_time()
        seed, told = find_first_failure(defect, range(options.first, options.seeds + 1), size, options.seconds)
        found[defect.is_listed] += bool(seed)
        spent = time.process_time() - began
        print(f"| {defect.name} | {defect.text} | {seed or '-'} | {told[:240]} | {spent:.0f} s |", flush=True)
    listed = sum(defect.is_listed for defect in chosen)
    print(f"found: {found[True]} of {listed} of the list, {found[False]} of {len(chosen) - listed} others")
    return 1 if sum(found.values()) < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())

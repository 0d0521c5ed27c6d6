"""Plays random lives of a cluster: `python -m sim.run --seed N [--count M]`. Exit code 1 if one fails, with its seed."""

import argparse
import logging
import os
import sys
import time
import traceback

from sim.scenario import Scenario


def play(seed: int, *, tells: bool) -> str:
    """What went wrong; empty if nothing did."""
    scenario = Scenario(seed)
    try:
        scenario.play()
        problem = ""
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}" if not tells else traceback.format_exc()
    finally:
        scenario.world.close()
    if problem or tells:
        print(*scenario.log, sep="\n")
    world = scenario.world
    print(f"seed {seed}: {problem or 'ok'} ({world.server.writes} writes, {world.crashes} crashes, {world.loop.time():.0f} s)", flush=True)
    return problem


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.run", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--log", action="store_true", help="what happens in each, and topogate's log")
    options = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of what a seed stands for
        os.execve(sys.executable, [sys.executable, "-m", "sim.run", *(arguments or sys.argv[1:])], {**os.environ, "PYTHONHASHSEED": "0"})
    logging.basicConfig(level=logging.INFO if options.log else logging.CRITICAL)
    began, failed = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.count):
        failed += bool(play(seed, tells=options.log))
    print(f"{options.count - failed} of {options.count} hold, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

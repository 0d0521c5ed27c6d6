"""Time of one placement beside the peer's figure, by case and number of nodes.

    python -m tests.bench.placement [--cases abcdef] [--nodes 640,2560] [--json]

A figure is the median of 5 runs (3 above 10,240 nodes), a run the mean over at least 3 calls and 0.3 s, as
BENCH.md measured the peer. The ratio is what to read: absolute times vary with the machine.
`new ms` is the same for requests never seen before, each of one milli-cpu more than the one before it, so that nothing
that was counted for an earlier one serves.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from core.model.podset import PodSetRequest
from core.placement.algorithms.profile import Profile
from core.placement.engine import place
from core.placement.topology.free_capacity import FreeCapacity
from tests.bench.parts.shapes import CASES, PEER_MS, Case, build_view

RUNS, RUNS_OF_LARGE, LARGE, LEAST_CALLS, LEAST_S = 5, 3, 10_240, 3, 0.3
LEAST_RATIO = {2560: 10, 10_240: 30, 102_400: 100}


def time_ms(call: Callable[[], object], runs: int = RUNS) -> float:
    """Median over runs of the mean time of a call."""
    call()
    figures = []
    for _ in range(runs):
        gc.collect()
        calls, began = 0, time.perf_counter()
        while calls < LEAST_CALLS or time.perf_counter() - began < LEAST_S:
            call()
            calls += 1
        figures.append((time.perf_counter() - began) / calls * 1000)
    return statistics.median(figures)


def _vary(case: Case) -> Iterator[list[PodSetRequest]]:
    for more in count(1):
        yield [replace(request, requests={**request.requests, "cpu": request.requests["cpu"] + more}) for request in case.requests]


def _place_next(view: FreeCapacity, varied: Iterator[list[PodSetRequest]], profile: Profile) -> None:
    place(view, next(varied), profile)


def measure(cases: str, sizes: list[int]) -> list[dict[str, Any]]:
    """One row per case and size."""
    rows = []
    for nodes in sizes:
        view = build_view(nodes)
        for letter in cases:
            case, peer = CASES[letter], PEER_MS[letter].get(nodes)
            call = partial(place, view, case.requests, case.profile)
            decision = call()
            domains = sum(len(placement.assignment.domains) for placement in decision.placements)
            ms = time_ms(call, RUNS if nodes <= LARGE else RUNS_OF_LARGE)
            ratio = round(peer / ms, 1) if peer else None
            new_ms = time_ms(partial(_place_next, view, _vary(case), case.profile), RUNS_OF_LARGE)
            rows.append(
                {
                    "case": letter,
                    "nodes": nodes,
                    "domains": domains,
                    "ms": round(ms, 3),
                    "peer_ms": peer,
                    "ratio": ratio,
                    "new_ms": round(new_ms, 3),
                }
            )
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.placement", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="".join(CASES), help="letters of BENCH.md (default: %(default)s)")
    parser.add_argument("--nodes", default="640,2560,10240,40960,102400", help="comma-separated (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.cases) - CASES.keys())
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    rows = measure(options.cases, [int(size) for size in options.nodes.split(",")])
    if options.json:
        print(json.dumps(rows))
        return 0
    print(f"{'case':<5}{'nodes':>8}{'domains':>9}{'ms':>10}{'peer ms':>10}{'ratio':>8}{'new ms':>10}")
    for row in rows:
        peer, ratio = (f"{row['peer_ms']:.2f}", f"{row['ratio']:.1f}x") if row["peer_ms"] else ("-", "-")
        least = LEAST_RATIO.get(row["nodes"], 0)
        missed = f"  (below the {least}x it should be)" if row["ratio"] and row["ratio"] < least else ""
        print(f"{row['case']:<5}{row['nodes']:>8}{row['domains']:>9}{row['ms']:>10.3f}{peer:>10}{ratio:>8}{row['new_ms']:>10.3f}{missed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

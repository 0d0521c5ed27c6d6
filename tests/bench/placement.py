"""Time of one placement beside the peer's figure, by case and number of nodes.

    python -m tests.bench.placement [--cases abcdef] [--nodes 640,2560] [--json]

A figure is the median of 5 runs (3 above 10,240 nodes), a run the mean over at least 3 calls and 0.3 s, as
BENCH.md measured the peer. The ratio is what to read: absolute times vary with the machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from core.placement.engine import place
from tests.bench.shapes import CASES, PEER_MS, build_view

RUNS, RUNS_OF_LARGE, LARGE, LEAST_CALLS, LEAST_S = 5, 3, 10_240, 3, 0.3


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
            rows.append({"case": letter, "nodes": nodes, "domains": domains, "ms": round(ms, 3), "peer_ms": peer, "ratio": ratio})
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
    print(f"{'case':<5}{'nodes':>8}{'domains':>9}{'ms':>10}{'peer ms':>10}{'ratio':>8}")
    for row in rows:
        print(
            f"{row['case']:<5}{row['nodes']:>8}{row['domains']:>9}{row['ms']:>10.3f}{row['peer_ms'] or 0:>10.2f}{row['ratio'] or 0:>7.1f}x"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`make bench`: every benchmark, one after the other, each in a process of its own, so that none pays for another's memory."""

from __future__ import annotations

import subprocess
import sys

BENCHES = {
    "placement": "one decision, topogate beside the peer (vectors/BENCH.md, ready, median)",
    "stream": "a life of different requests with events between them; the peer pays about 19 ms a decision",
    "events": "what an event costs, and a node in memory",
    "churn": "workloads placed and released on a cluster nearly full",
    "profiles": "what `compact` is worth beside `kep` (docs/development/compact.md has 20 seeds)",
    "encoding": "bytes of an assignment beside the peer's, and time",
}


def main() -> int:
    failed = 0
    for name, what in BENCHES.items():
        print(f"{name}: {what}", flush=True)
        failed = subprocess.run([sys.executable, "-m", f"tests.bench.{name}"], check=False).returncode or failed
        print(flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

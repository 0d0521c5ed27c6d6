"""`make bench`: every benchmark, one after the other."""

from __future__ import annotations

import sys

from tests.bench import placement

if __name__ == "__main__":
    print("placement: one decision, topogate beside the peer (vectors/BENCH.md, ready, median)")
    sys.exit(placement.main([]))

"""`make bench`: every benchmark, one after the other."""

from __future__ import annotations

import sys

from tests.bench import encoding, placement

if __name__ == "__main__":
    print("placement: one decision, topogate beside the peer (vectors/BENCH.md, ready, median)")
    failed = placement.main([])
    print("encoding: bytes of an assignment beside the peer's, and time")
    sys.exit(failed or encoding.main([]))

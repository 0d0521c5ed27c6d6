"""Bytes of an encoded assignment beside the peer's, and time to encode and decode, by naming scheme and number of nodes.

    python -m tests.bench.encoding [--nodes 1000,10000,100000] [--schemes uuid,plain-sequential] [--most] [--json]

One pod per node, hostname level only, hosts sorted: as BENCH.md, section Encoding, measured the peer. Names follow its
patterns; where the peer's are random (`peer-perf-*`), ours are of the same shape from a generator seeded with 7, and the
hosts of the other schemes are the peer's to the letter. Times are the median of 5 runs. With --most also how many nodes
an assignment of 1.5e6 bytes holds, in thousands.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.encoding import compute_encoded_size, decode, encode
from core.names import HOSTNAME_LABEL

RUNS, SEED = 5, 7
BUDGET_BYTES = 1_500_000
FRAME = "a" * 20  # the fixed part on either side of the peer-perf names

# Bytes at 1k, 10k and 100k nodes: one slice, hostname-prefix runs; then how many nodes the latter fits into the budget.
PEER: dict[str, tuple[dict[int, tuple[int, int]], int]] = {
    "aks-vmss-100-pools": ({1000: (25_067, 17_838), 10_000: (249_168, 63_838), 100_000: (2_490_169, 613_838)}, 247_000),
    "eks-private-dns": ({1000: (7_762, 6_228), 10_000: (83_327, 61_961), 100_000: (1_100_872, 618_205)}, 242_000),
    "gke-10-pools": ({1000: (18_175, 6_438), 10_000: (180_176, 61_438), 100_000: (1_800_177, 701_438)}, 214_000),
    "gke-1000-pools": ({1000: (15_190, 15_190), 10_000: (200_174, 179_048), 100_000: (2_000_175, 639_048)}, 256_000),
    "peer-perf-1": ({1000: (32_209, 32_209), 10_000: (320_210, 272_048), 100_000: (3_200_211, 1_083_048)}, 146_000),
    "peer-perf-2": ({1000: (32_209, 10_878), 10_000: (320_210, 91_888), 100_000: (3_200_211, 901_898)}, 166_000),
    "peer-perf-3": ({1000: (30_769, 25_808), 10_000: (313_334, 101_472), 100_000: (3_200_881, 1_118_918)}, 133_000),
    "peer-perf-4": ({1000: (7_792, 7_792), 10_000: (83_357, 83_357), 100_000: (1_100_902, 1_100_902)}, 135_000),
    "peer-perf-5": ({1000: (11_209, 11_209), 10_000: (110_210, 110_210), 100_000: (1_100_211, 1_100_211)}, 136_000),
    "plain-sequential": ({1000: (6_050, 6_050), 10_000: (69_051, 69_051), 100_000: (789_052, 789_052)}, 178_000),
    "uuid": ({1000: (39_143, 39_143), 10_000: (390_144, 390_144), 100_000: (3_900_145, 3_900_145)}, 38_000),
}


def _hex(source: random.Random, digits: int) -> str:
    return f"{source.getrandbits(4 * digits):0{digits}x}"


def _pooled(nodes: int, pools: int) -> list[str]:
    source = random.Random(SEED)
    names = [_hex(source, 22) for _ in range(pools)]
    return [f"{FRAME}-{names[i % pools]}-{_hex(source, 6)}-{FRAME}" for i in range(nodes)]


def _regional(nodes: int, regions: int) -> list[str]:
    source = random.Random(SEED)
    names = [_hex(source, 14) for _ in range(regions)]
    return [f"{FRAME}-{names[i % regions]}-100.{100 + (i >> 16)}.{i >> 8 & 255}.{i & 255}-{FRAME}" for i in range(nodes)]


def _numbered(nodes: int) -> list[str]:
    source = random.Random(SEED)
    return [f"{FRAME}-{_hex(source, 8)}-{FRAME}" for _ in range(nodes)]


def _aks(nodes: int) -> list[str]:
    return [f"aks-nodepool{i % 100}-{10_000_000 + 7919 * (i % 100):08}-vmss{i // 100:06x}" for i in range(nodes)]


def _eks(nodes: int) -> list[str]:
    zone = ".".join(["us-west-2", "compute", "internal"])
    return [f"ip-10-{i >> 16}-{i >> 8 & 255}-{i & 255}.{zone}" for i in range(nodes)]


def _gke(nodes: int, pools: int) -> list[str]:
    return [f"gke-cluster-pool-{i % pools:04}-{i % pools:08x}-{i // pools:04x}" for i in range(nodes)]


def _uuids(nodes: int) -> list[str]:
    digests = (hashlib.sha256(str(i).encode()).hexdigest() for i in range(nodes))
    return ["-".join((d[:8], d[8:12], d[12:16], d[16:20], d[20:32])) for d in digests]


SCHEMES: dict[str, Callable[[int], list[str]]] = {
    "aks-vmss-100-pools": _aks,
    "eks-private-dns": _eks,
    "gke-10-pools": lambda nodes: _gke(nodes, 10),
    "gke-1000-pools": lambda nodes: _gke(nodes, 1000),
    "peer-perf-1": lambda nodes: _pooled(nodes, 1000),
    "peer-perf-2": lambda nodes: _pooled(nodes, 10),
    "peer-perf-3": lambda nodes: _regional(nodes, 100),
    "peer-perf-4": lambda nodes: _regional(nodes, 1),
    "peer-perf-5": _numbered,
    "plain-sequential": lambda nodes: [f"node-{i}" for i in range(nodes)],
    "uuid": _uuids,
}


def build_assignment(scheme: str, nodes: int) -> TopologyAssignment:
    """One pod on each of so many nodes."""
    return TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((host,), 1) for host in sorted(SCHEMES[scheme](nodes))))


def compute_most_nodes(scheme: str) -> int:
    """The most thousands of nodes whose assignment fits into the budget."""
    low, high = 1, 400
    while low < high:
        middle = (low + high + 1) // 2
        if compute_encoded_size(encode(build_assignment(scheme, middle * 1000))) <= BUDGET_BYTES:
            low = middle
        else:
            high = middle - 1
    return low * 1000


def measure(scheme: str, nodes: int) -> dict[str, Any]:
    """One row."""
    assignment = build_assignment(scheme, nodes)
    wire, encode_s, decode_s = encode(assignment), [], []
    for _ in range(RUNS):
        began = time.perf_counter()
        wire = encode(assignment)
        encoded = time.perf_counter()
        again = decode(wire)
        decode_s.append(time.perf_counter() - encoded)
        encode_s.append(encoded - began)
        if again != assignment:
            raise AssertionError(f"{scheme}: what was encoded is not read again")
        del again
    single, runs = PEER[scheme][0].get(nodes, (None, None))
    return {
        "scheme": scheme,
        "nodes": nodes,
        "slices": len(wire["slices"]),
        "bytes": compute_encoded_size(wire),
        "peer_single_bytes": single,
        "peer_runs_bytes": runs,
        "encode_ms": round(statistics.median(encode_s) * 1000, 2),
        "decode_ms": round(statistics.median(decode_s) * 1000, 2),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.encoding", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="1000,10000,100000", help="comma-separated (default: %(default)s)")
    parser.add_argument("--schemes", default=",".join(SCHEMES), help="comma-separated (default: all)")
    parser.add_argument("--most", action="store_true", help="also how many nodes fit into 1.5e6 bytes (some minutes)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    schemes = options.schemes.split(",")
    unknown = sorted(set(schemes) - SCHEMES.keys())
    if unknown:
        parser.error(f"no scheme {', '.join(unknown)}; there are {', '.join(SCHEMES)}")
    rows = [measure(scheme, int(nodes)) for scheme in schemes for nodes in options.nodes.split(",")]
    most: list[dict[str, Any]] = []
    if options.most:
        most = [{"scheme": scheme, "most_nodes": compute_most_nodes(scheme), "peer_most_nodes": PEER[scheme][1]} for scheme in schemes]
    if options.json:
        print(json.dumps(rows + most))
        return 0
    print(f"{'scheme':<20}{'nodes':>8}{'slices':>8}{'bytes':>11}{'peer single':>13}{'peer runs':>11}{'encode ms':>11}{'decode ms':>11}")
    for row in rows:
        print(
            f"{row['scheme']:<20}{row['nodes']:>8}{row['slices']:>8}{row['bytes']:>11}{row['peer_single_bytes'] or 0:>13}"
            f"{row['peer_runs_bytes'] or 0:>11}{row['encode_ms']:>11.2f}{row['decode_ms']:>11.2f}"
        )
    for found in most:
        print(f"{found['scheme']}: {found['most_nodes']} nodes in {BUDGET_BYTES} bytes (the peer {found['peer_most_nodes']})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

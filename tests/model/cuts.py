"""Assignments drawn from a seed and how each is cut into slices, as lines of text: bytes, slices, and a checksum of the JSON.

They are in `tests/vectors/cuts.txt`, so that a change that makes an assignment longer, or just different, shows which.
`python -m tests.model.cuts` writes them anew, but refuses what does not decode to what was encoded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

from core.model.wire import encoding
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.encoding import compute_encoded_size, decode, encode
from core.model.wire.savings import MAX_LENGTH
from core.names import HOSTNAME_LABEL
from tests.bench.encoding import SCHEMES, build_assignment

WRITTEN = Path(__file__).parents[1] / "vectors" / "cuts.txt"
DRAWN = 500
_OF_SCHEMES = (30, 700)  # nodes


def name_all() -> list[str]:
    """The naming schemes of real clusters in two sizes, then what is drawn."""
    return [*(f"{scheme} {nodes}" for scheme in sorted(SCHEMES) for nodes in _OF_SCHEMES), *map(str, range(DRAWN))]


def encode_searching(assignment: TopologyAssignment) -> dict[str, Any]:
    """As so few domains are encoded, were they many: with a search for the best cuts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "_FEW", 0)
        return encode(assignment)


def tell(name: str) -> str:
    """An assignment as one line."""
    scheme, _, nodes = name.partition(" ")
    assignment = build_assignment(scheme, int(nodes)) if nodes else draw(int(name))
    wire = encode_searching(assignment)
    assert decode(wire) == assignment
    text = json.dumps(wire, separators=(",", ":"), sort_keys=True)
    return f"{name}: {compute_encoded_size(wire)} bytes, {len(wire['slices'])} slices, {crc32(text.encode()):08x}"


def draw(seed: int) -> TopologyAssignment:
    """Up to five pools of nodes whose names differ in their own way, in one or two levels, counts mostly alike."""
    random = Random(seed)
    two_levels = random.random() < 0.5
    rows = []
    for pool in range(random.randint(1, 5)):
        rack, count = f"rack-{random.choice('abc')}{pool}", random.choice([1, 1, 8, 128])
        prefix = random.choice(
            ["n", "gpu-", f"node-{random.getrandbits(64):x}-", "very-long-name-of-a-pool-" + "x" * random.randint(0, 40)]
        )
        suffix = random.choice(["", "", ".local", ".eu-west-1.compute", "-" + "s" * random.randint(1, 60)])
        digits = random.choice([1, 3, 6])
        for _ in range(random.choice([1, 3, 12, 60])):
            number = f"{random.randrange(10**digits):0{digits}}" if random.random() < 0.5 else f"{random.getrandbits(24):x}"
            rows.append((rack, f"{prefix}{number}{suffix}"[:MAX_LENGTH], count if random.random() < 0.9 else random.randint(1, 9)))
    named = {(rack, host) if two_levels else (host,): count for rack, host, count in rows}
    domains = [DomainCount(values, count) for values, count in named.items()]
    levels = ("rack", HOSTNAME_LABEL) if two_levels else (HOSTNAME_LABEL,)
    return TopologyAssignment(levels, tuple(sorted(domains, key=lambda domain: domain.values) if random.random() < 0.8 else domains))


if __name__ == "__main__":
    WRITTEN.write_text("".join(tell(name) + "\n" for name in name_all()))
    sys.exit(0)

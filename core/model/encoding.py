"""The wire form of a topology assignment in v1beta2: slices of parallel lists (KEP-2724, Since v1beta2).

In each slice a value or count that all its domains have stands once (`universal`), the others are
roots without their common prefix and suffix. How many slices there are and where they begin,
`core.model.grouping` decides: what makes the shortest JSON. Slices follow each other in the order of
ranks, so that whoever reads them one after the other has the same assignment.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.model.assignment import DomainCount, TopologyAssignment
from core.model.decoding import InvalidAssignment, decode
from core.model.grouping import MAX_ROOTS, MAX_SLICES, can_cut_pay, choose_cuts

__all__ = ["MAX_ROOTS", "MAX_SLICES", "InvalidAssignment", "decode", "encode", "encoded_size"]

MAX_VALUE = 63  # characters of a label's value, and so of roots, prefixes and suffixes
_AFFIX = len('"prefix":"",')
_SURELY_CUT = 256  # domains from which on looking for cuts is cheaper than asking whether one can pay


def encode(assignment: TopologyAssignment) -> dict[str, Any]:
    """Assignment as v1beta2 JSON. Raises InvalidAssignment for values and counts that no API server would store.

    An assignment to nothing has no `slices`.
    """
    levels = list(assignment.levels)
    if not assignment.domains:
        return {"levels": levels}
    columns, counts = _get_columns(assignment)
    begins = [0, *_find_cuts(columns, counts)]
    ends = [*begins[1:], len(counts)]
    slices = [
        _encode_slice([values[begin:end] for values in columns], counts[begin:end]) for begin, end in zip(begins, ends, strict=True)
    ]
    return {"levels": levels, "slices": slices}


def encoded_size(wire: Mapping[str, Any]) -> int:
    """Bytes of compact JSON."""
    return len(json.dumps(wire, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"))


def _get_columns(assignment: TopologyAssignment) -> tuple[list[tuple[str, ...]], list[int]]:
    counts = [domain.count for domain in assignment.domains]
    if min(counts) < 1:
        raise InvalidAssignment(f"domains[{counts.index(min(counts))}] has {min(counts)} pods; a domain has at least one")
    try:
        columns = list(zip(*[domain.values for domain in assignment.domains], strict=True))
    except ValueError:
        columns = []
    if len(columns) != len(assignment.levels) or not columns:
        raise InvalidAssignment(f"domains have not one value for each of the levels {', '.join(assignment.levels)}")
    for level, values in zip(assignment.levels, columns, strict=True):
        longest = max(values, key=len)
        if len(longest) > MAX_VALUE:
            raise InvalidAssignment(f"{level} is {longest!r}, {len(longest)} characters; a label's value has at most {MAX_VALUE}")
    return columns, counts


def _find_cuts(columns: Sequence[Sequence[str]], counts: Sequence[int]) -> list[int]:
    if len(counts) <= _SURELY_CUT and not can_cut_pay(columns, encoded_size(_encode_slice(columns, counts))):
        return []
    return choose_cuts(columns, counts)


def _encode_slice(columns: Sequence[Sequence[str]], counts: Sequence[int]) -> dict[str, Any]:
    same = counts.count(counts[0]) == len(counts)
    return {
        "domainCount": len(counts),
        "valuesPerLevel": [_encode_values(values) for values in columns],
        "podCounts": {"universal": counts[0]} if same else {"individual": list(counts)},
    }


def _encode_values(values: Sequence[str]) -> dict[str, Any]:
    least, greatest = min(values), max(values)
    if least == greatest:
        return {"universal": least}
    prefix = _common_length(least, greatest)
    backwards = [value[::-1] for value in values]
    suffix = _common_length(min(backwards), max(backwards))
    prefix, suffix = _choose_affixes(len(values) - 1, prefix, suffix, min(map(len, values)))
    end = -suffix or None
    individual: dict[str, Any] = {"roots": [value[prefix:end] for value in values] if prefix or suffix else list(values)}
    if prefix:
        individual["prefix"] = least[:prefix]
    if suffix:
        individual["suffix"] = least[end:]
    return {"individual": individual}


def _choose_affixes(further: int, prefix: int, suffix: int, shortest: int) -> tuple[int, int]:
    # Lengths of prefix and suffix: each further root saves them, each field costs its name.
    both = (prefix, min(suffix, shortest - prefix))
    options = (both, (prefix, 0), (0, suffix), (0, 0))
    return max(options, key=lambda option: further * sum(option) - _AFFIX * sum(map(bool, option)))


def _common_length(left: str, right: str) -> int:
    # How many characters two strings have in common from the start: halving, so that each step is one comparison in C.
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left.startswith(right[:middle]):
            low = middle
        else:
            high = middle - 1
    return low

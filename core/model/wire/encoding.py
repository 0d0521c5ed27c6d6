"""The wire form of a topology assignment in v1beta2: slices of parallel lists (KEP-2724, Since v1beta2).

In each slice a value or count that all its domains have stands once (`universal`), the others are
roots without their common prefix and suffix. How many slices there are and where they begin,
`core.model.wire.grouping` decides: what makes the shortest JSON. Slices follow each other in the order of
ranks, so that a reader that concatenates them gets the same assignment.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from core.model.wire.assignment import TopologyAssignment
from core.model.wire.decoding import InvalidAssignment, decode
from core.model.wire.grouping import MAX_ROOTS, MAX_SLICES, SlicePart, choose_parts
from core.model.wire.savings import MAX_LENGTH, Common, can_cut_pay, choose_affixes, compute_saved, list_shared

__all__ = ["MAX_ROOTS", "MAX_SLICES", "InvalidAssignment", "compute_encoded_size", "decode", "encode", "encode_whole"]

_FEW = 32  # domains up to which asking whether any cut can pay is cheaper string by string than with arrays


def encode(assignment: TopologyAssignment) -> dict[str, Any]:
    """Returns an assignment as v1beta2 JSON, cut into the slices that make it short.

    An assignment to nothing has an empty list of slices: the API requires the field. Raises InvalidAssignment where a domain has no pods or
    not one value for each level. So it does where a value is longer than 63 characters, even without what its slice has in common.
    """
    levels = list(assignment.levels)
    if not assignment.domains:
        return {"levels": levels, "slices": []}
    columns, counts = _get_columns(assignment)
    return {"levels": levels, "slices": _encode_parts(columns, counts)}


def encode_whole(assignment: TopologyAssignment) -> dict[str, Any]:
    """Returns an assignment as v1beta2 JSON in one slice, for callers with many assignments to write and no time to find the best cuts.
    How many domains there are is not checked. Raises InvalidAssignment as `encode` does, and for values that would have to be cut, too."""
    levels = list(assignment.levels)
    if not assignment.domains:
        return {"levels": levels, "slices": []}
    columns, counts = _get_columns(assignment)
    return {"levels": levels, "slices": [_encode_slice(columns, counts, SlicePart(0, len(counts), tuple(map(_get_common, columns))))]}


def compute_encoded_size(wire: Mapping[str, Any]) -> int:
    """Returns the bytes (UTF-8) of `wire` as compact JSON."""
    return len(json.dumps(wire, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"))


def _get_columns(assignment: TopologyAssignment) -> tuple[list[list[str]], list[int]]:
    counts = [domain.count for domain in assignment.domains]
    least = min(counts)
    if least < 1:
        raise InvalidAssignment(f"domains[{counts.index(least)}] has {least} pods; a domain has at least one")
    values = [domain.values for domain in assignment.domains]
    if not assignment.levels or {*map(len, values)} != {len(assignment.levels)}:
        raise InvalidAssignment(f"domains have not one value for each of the levels {', '.join(assignment.levels)}")
    # One by one, not by zip: an iterator for each domain would bring the garbage collector in.
    return [[*map(itemgetter(level), values)] for level in range(len(assignment.levels))], counts


def _encode_parts(columns: Sequence[Sequence[str]], counts: Sequence[int]) -> list[dict[str, Any]]:
    if len(counts) <= _FEW:
        whole = SlicePart(0, len(counts), tuple(map(_get_common, columns)))
        if not _can_cut_pay(columns, whole.common, counts):
            return [_encode_slice(columns, counts, whole)]
    return [_encode_slice(columns, counts, part) for part in choose_parts(columns, counts)]


def _can_cut_pay(columns: Sequence[Sequence[str]], commons: Sequence[Common], counts: Sequence[int]) -> bool:
    # Values longer than a label's may have to be cut.
    if len(counts) <= 2 or max(map(len, chain(*columns))) > MAX_LENGTH:
        return len(counts) > 2
    return can_cut_pay(list_shared(columns, commons, counts), compute_saved(columns, commons, counts), len(columns))


def _encode_slice(columns: Sequence[Sequence[str]], counts: Sequence[int], part: SlicePart) -> dict[str, Any]:
    counts = counts[part.begin : part.end]
    same = counts.count(counts[0]) == len(counts)
    return {
        "domainCount": len(counts),
        "valuesPerLevel": [
            _encode_values(values[part.begin : part.end], common) for values, common in zip(columns, part.common, strict=True)
        ],
        "podCounts": {"universal": counts[0]} if same else {"individual": counts},
    }


def _encode_values(values: Sequence[str], common: Common) -> dict[str, Any]:
    if common.same and len(values[0]) <= MAX_LENGTH:
        return {"universal": values[0]}
    prefix, suffix = choose_affixes(len(values) - 1, common)
    end = -suffix or None
    roots = [value[prefix:end] for value in values]
    if max(map(len, roots)) > MAX_LENGTH:
        raise InvalidAssignment(
            f"{max(roots, key=len)!r} of {values[0]!r} and others is longer than the {MAX_LENGTH} characters of a label's value"
        )
    individual: dict[str, Any] = {"roots": roots}
    if prefix:
        individual["prefix"] = values[0][:prefix]
    if suffix:
        individual["suffix"] = values[0][end:]
    return {"individual": individual}


def _get_common(values: Sequence[str]) -> Common:
    least, greatest = min(values), max(values)
    backwards = [value[::-1] for value in values]
    prefix = _compute_common_length(least, greatest)
    suffix = _compute_common_length(min(backwards), max(backwards))
    return Common(min(prefix, MAX_LENGTH), min(suffix, MAX_LENGTH), min(map(len, values)), least == greatest)


def _compute_common_length(left: str, right: str) -> int:
    # How many characters two strings have in common from the start: halving, so that each step is one comparison in C.
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left.startswith(right[:middle]):
            low = middle
        else:
            high = middle - 1
    return low

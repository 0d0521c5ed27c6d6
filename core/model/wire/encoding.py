"""The wire form of a topology assignment in v1beta2: slices of parallel lists (KEP-2724, Since v1beta2).

In each slice a value or count that all its domains have stands once (`universal`), the others are
roots without their common prefix and suffix. Up to `_FEW` domains are one slice where Kueue's form of several is not
shorter; else `core.model.wire.grouping` decides where slices begin: what makes the shortest JSON (docs/decisions/0009).
Slices follow each other in the order of ranks, so that a reader that concatenates them gets the same assignment.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

from core.model.wire.assignment import TopologyAssignment
from core.model.wire.decoding import InvalidAssignment, decode
from core.model.wire.grouping import MAX_ROOTS, MAX_SLICES, SlicePart, choose_parts
from core.model.wire.savings import MAX_LENGTH, QUOTES, Common, choose_affixes, compute_least_frame, compute_saved

__all__ = ["MAX_ROOTS", "MAX_SLICES", "InvalidAssignment", "compute_encoded_size", "decode", "encode", "encode_whole"]

_FEW = 1024  # domains up to which looking for the best cuts costs more than it saves: 70 µs or 340 for a hundred


def encode(assignment: TopologyAssignment) -> dict[str, Any]:
    """Returns an assignment as v1beta2 JSON, cut into slices that make it short: never longer than one slice, nor than runs of hostnames.

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
    # Values longer than a label's may have to be cut.
    if len(counts) <= _FEW and max(map(len, chain(*columns))) <= MAX_LENGTH:
        whole = tuple(map(_get_common, columns))
        if not _can_runs_pay(columns, counts, whole):
            return [_encode_slice(columns, counts, SlicePart(0, len(counts), whole))]
    return [_encode_slice(columns, counts, part) for part in choose_parts(columns, counts)]


def _can_runs_pay(columns: Sequence[Sequence[str]], counts: Sequence[int], whole: Sequence[Common]) -> bool:
    """Whether runs of hostnames that are alike up to the last dash, as Kueue cuts them, save more bytes than one slice."""
    suffix = whole[-1].suffix
    stems = [name[: name.rfind("-", 0, len(name) - suffix) + 1] for name in columns[-1]]
    cuts = [at for at, (left, right) in enumerate(pairwise(stems), 1) if left != right]
    if not cuts:
        return False
    saved, further = compute_saved(columns, whole, counts), len(counts) - len(cuts) - 1
    most = sum(max(map(len, values)) + QUOTES for values in columns) + len(str(max(counts))) + 1  # that any but the first of a run saves
    if further * most - (len(cuts) + 1) * compute_least_frame(len(columns)) <= saved:
        return False
    for begin, end in pairwise((0, *cuts, len(counts))):
        part = [values[begin:end] for values in columns]
        saved -= compute_saved(part, [*map(_get_common, part)], counts[begin:end])
    return saved < 0


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
    first, last, same = values[0], values[-1], values.count(values[0]) == len(values)
    # Often two of them show that all share nothing.
    prefix, suffix = _compute_common_length(first, last), _compute_common_length(first[::-1], last[::-1])
    if prefix and not same:
        prefix = _compute_common_length(min(values), max(values))
    if suffix and not same:
        backwards = [value[::-1] for value in values]
        suffix = _compute_common_length(min(backwards), max(backwards))
    return Common(min(prefix, MAX_LENGTH), min(suffix, MAX_LENGTH), min(map(len, values)), same)


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

"""The wire form of a topology assignment in v1beta2: slices of parallel lists (KEP-2724, Since v1beta2).

One slice per assignment: values that all domains share stand once (`universal`), the others as
roots without their common prefix and suffix, counts once where they are all equal. More than the
API's 100,000 roots are cut into further slices.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from core.model.assignment import DomainCount, TopologyAssignment

MAX_ROOTS = 100_000
_MAX_AFFIX = 63


class InvalidAssignment(ValueError):
    """The wire form contradicts itself; the message names the field."""


def encode(assignment: TopologyAssignment) -> dict[str, Any]:
    """Assignment as v1beta2 JSON."""
    domains = assignment.domains
    chunks = [domains[start : start + MAX_ROOTS] for start in range(0, len(domains), MAX_ROOTS)]
    return {"levels": list(assignment.levels), "slices": [_encode_slice(chunk) for chunk in chunks]}


def _encode_slice(domains: Sequence[DomainCount]) -> dict[str, Any]:
    counts = [domain.count for domain in domains]
    same = all(count == counts[0] for count in counts)
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [_encode_values(values) for values in zip(*(domain.values for domain in domains), strict=True)],
        "podCounts": {"universal": counts[0]} if same else {"individual": counts},
    }


def _encode_values(values: Sequence[str]) -> dict[str, Any]:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    prefix = _common_prefix(values)
    rest = [value[len(prefix) :] for value in values]
    suffix = _common_prefix([value[::-1] for value in rest])[::-1]
    individual: dict[str, Any] = {"roots": [value[: len(value) - len(suffix)] for value in rest]}
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}


def _common_prefix(values: Sequence[str]) -> str:
    # What all strings share, the least and the greatest share.
    same = takewhile(lambda pair: pair[0] == pair[1], zip(min(values), max(values), strict=False))
    return "".join(left for left, _ in same)[:_MAX_AFFIX]


def decode(wire: Mapping[str, Any]) -> TopologyAssignment:
    """v1beta2 JSON, of whatever writer, as an assignment. Raises InvalidAssignment."""
    levels = tuple(wire.get("levels") or ())
    domains: list[DomainCount] = []
    if wire.get("slices") and not levels:
        raise InvalidAssignment("levels is empty")
    for index, part in enumerate(wire.get("slices") or ()):
        count = int(part.get("domainCount") or 0)
        where = f"slices[{index}]"
        columns = [
            _decode_values(values, count, f"{where}.valuesPerLevel[{i}]") for i, values in enumerate(part.get("valuesPerLevel") or ())
        ]
        if len(columns) != len(levels):
            raise InvalidAssignment(f"{where}.valuesPerLevel has {len(columns)} entries for {len(levels)} levels")
        pod_counts = part.get("podCounts") or {}
        if pod_counts.get("universal") is not None:
            counts = [int(pod_counts["universal"])] * count
        else:
            counts = [int(n) for n in pod_counts.get("individual") or ()]
        if len(counts) != count:
            raise InvalidAssignment(f"{where}.podCounts has {len(counts)} entries for domainCount {count}")
        domains += [DomainCount(values, n) for values, n in zip(zip(*columns, strict=True), counts, strict=True)]
    return TopologyAssignment(levels, tuple(domains))


def _decode_values(wire: Mapping[str, Any], count: int, where: str) -> list[str]:
    if wire.get("universal") is not None:
        return [wire["universal"]] * count
    individual = wire.get("individual") or {}
    prefix, suffix = individual.get("prefix") or "", individual.get("suffix") or ""
    values = [f"{prefix}{root}{suffix}" for root in individual.get("roots") or ()]
    if len(values) != count:
        raise InvalidAssignment(f"{where} has {len(values)} roots for domainCount {count}")
    return values

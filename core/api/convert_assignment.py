"""A topology assignment between v1beta1, a list of domains, and v1beta2, slices of columns.

The domains are the meaning, and both versions have them. How v1beta2 cuts them into slices, v1beta1 cannot say: where that is not what
we would write of the domains alone, it is noted as a shape - for each slice how many domains it has, for each of its levels "u"
(universal) or the lengths of prefix and suffix (null where there is none), and "u" or "i" for its counts. Values and counts are always
those of the domains, so a shape can change how an assignment is written, and never what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from pydantic import ValidationError

from core.api.kinds import assignment_fields as v1beta2
from core.api.kinds.assignment_fields import MAX_DOMAINS_PER_SLICE, MAX_SLICES
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.decoding import MAX_DOMAINS, MAX_REPEATED, count_repeated
from core.model.wire.encoding import InvalidAssignment, decode, encode, encode_whole

Json = dict[str, Any]
_MAX_VALUE = 63
# Up to so many domains the best cuts save little of an object, and looking for them would be most of the time that a list of
# thousands of objects is converted in.
_FEW = 1000
_CHARS_OF_DOMAIN, _CHARS_OF_VALUE = 28, 4


MAX_CHARS = 40 * 1024 * 1024
"""Of one assignment in v1beta1: 200,000 domains of three levels with names of 60 characters."""


def count_chars(wire: Json) -> int:
    """Returns about how many characters the JSON of an assignment has in v1beta1; 0 where a slice has no valid `domainCount` or list of
    levels, or there is no slice.

    In v1beta2 a value that holds for all domains, a prefix and a suffix are there once, in v1beta1 for each domain.
    """
    total = 0
    slices = wire.get("slices")
    for one in slices if isinstance(slices, list) else ():
        size: Any = one.get("domainCount") if isinstance(one, dict) else None
        columns: Any = one.get("valuesPerLevel") if isinstance(one, dict) else None
        if not _is_length(size, 1, 2**31) or not isinstance(columns, list):
            return 0
        total += size * (_CHARS_OF_DOMAIN + sum(map(_count_repeated, columns)))
        total += sum(len(root) for column in columns for root in _read_roots(column))
    return total


def _count_repeated(column: Any) -> int:
    """Characters of a value that are the same for all domains of a slice."""
    individual = column.get("individual") if isinstance(column, dict) else None
    parts = (individual.get("prefix"), individual.get("suffix")) if isinstance(individual, dict) else ()
    universal = column.get("universal") if isinstance(column, dict) else None
    return _CHARS_OF_VALUE + sum(len(text) for text in (*parts, universal) if isinstance(text, str))


def _read_roots(column: Any) -> list[str]:
    individual = column.get("individual") if isinstance(column, dict) else None
    roots = individual.get("roots") if isinstance(individual, dict) else None
    return roots if _are_strings(roots) else []


def to_domains(wire: Json) -> tuple[Json, Any]:
    """Returns the v1beta1 form of an assignment, and what is to be noted: the shape of its slices, None where `to_slices` makes the same
    ones without.

    What cannot be read, has domains without pods or more than `MAX_CHARS` characters is shown with its levels and no domains, and noted
    whole (`wire` itself): one broken object must not keep others from being listed.
    """
    try:
        assignment = _decode(wire)
    except InvalidAssignment:
        return _show_nothing(wire), wire
    domains = [{"values": list(domain.values), "count": domain.count} for domain in assignment.domains]
    shown = {"levels": list(assignment.levels), "domains": domains}
    return shown, None if _is_as_unnoted(assignment, wire) else [_compute_shape(one) for one in wire.get("slices") or ()]


def to_slices(shown: Json, noted: Any) -> Json:
    """Returns the v1beta2 form of an assignment (`shown`: v1beta1). Its slices are the `noted` ones where they fit its domains, else those
    that topogate chooses. Where it was too large to be shown and is unchanged, that is `noted` itself. Raises InvalidAssignment where
    `shown` is no assignment of v1beta1, or v1beta2 has no way to express it."""
    if isinstance(noted, dict) and shown == _show_nothing(noted) and _is_too_large(noted):
        return noted
    assignment = _read(shown)
    if isinstance(noted, list):
        built = _build(assignment, noted)
        if built is not None:
            return built
    return _encode(assignment)


def _show_nothing(wire: Json) -> Json:
    levels = wire.get("levels")
    return {"levels": levels if _are_strings(levels) else [], "domains": []}


def _decode(wire: Json) -> TopologyAssignment:
    if count_chars(wire) > MAX_CHARS:
        raise InvalidAssignment(f"it has more than {MAX_CHARS} characters in v1beta1")
    assignment = decode(wire)
    if any(domain.count < 1 for domain in assignment.domains):
        raise InvalidAssignment("a domain has no pods")
    return assignment


def _encode(assignment: TopologyAssignment) -> Json:
    """What an assignment is written as of which nothing is noted."""
    if len(assignment.domains) <= _FEW:
        try:
            return encode_whole(assignment)
        except InvalidAssignment:
            pass  # it has to be cut, or cannot be said at all
    return encode(assignment)


def _is_as_unnoted(assignment: TopologyAssignment, wire: Json) -> bool:
    try:
        return _encode(assignment) == wire
    except InvalidAssignment:
        return False


def _is_too_large(wire: Json) -> bool:
    """Whether the API server stores it, and it has more domains than are read."""
    try:
        typed = v1beta2.TopologyAssignmentFields.from_wire(wire)
    except ValidationError:
        return False
    is_long = sum(one.domain_count for one in typed.slices) > MAX_DOMAINS or count_chars(wire) > MAX_CHARS
    return is_long or sum(map(count_repeated, wire["slices"])) > MAX_REPEATED


def _read(shown: Json) -> TopologyAssignment:
    levels, domains = shown.get("levels"), shown.get("domains")
    if not _are_strings(levels):
        raise InvalidAssignment("levels is no list of labels")
    if not isinstance(domains, list):
        raise InvalidAssignment("domains is no list")
    read = []
    for index, domain in enumerate(domains):
        values, count = (domain.get("values"), domain.get("count")) if isinstance(domain, dict) else (None, None)
        if not _are_strings(values) or len(values) != len(levels):
            raise InvalidAssignment(f"domains[{index}].values has not one value for each of the {len(levels)} levels")
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count < 2**31:
            raise InvalidAssignment(f"domains[{index}].count is no number of pods")
        read.append(DomainCount(tuple(values), count))
    return TopologyAssignment(tuple(levels), tuple(read))


def _are_strings(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and {*map(type, value)} <= {str}


# --- shapes -----------------------------------------------------------------------------------------------


def _compute_shape(wire: Json) -> list[Any]:
    columns = [_compute_column_shape(column) for column in wire.get("valuesPerLevel") or ()]
    return [wire["domainCount"], columns, "i" if wire["podCounts"].get("universal") is None else "u"]


def _compute_column_shape(column: Json) -> Any:
    if column.get("universal") is not None:
        return "u"
    affixes = (column["individual"].get(end) for end in ("prefix", "suffix"))
    return [None if affix is None else len(affix) for affix in affixes]


def _build(assignment: TopologyAssignment, shape: Sequence[Any]) -> Json | None:
    """The assignment in slices of that shape; None where it cannot have it."""
    if not _is_shape(shape, len(assignment.levels)) or sum(size for size, _, _ in shape) != len(assignment.domains):
        return None
    slices, start = [], 0
    for size, columns, counts in shape:
        domains = assignment.domains[start : start + size]
        start += size
        levels = [_build_column([domain.values[level] for domain in domains], column) for level, column in enumerate(columns)]
        pods = [domain.count for domain in domains]
        if None in levels or (counts == "u" and len({*pods}) > 1):
            return None
        pod_counts = {"universal": pods[0]} if counts == "u" else {"individual": pods}
        slices.append({"domainCount": size, "valuesPerLevel": levels, "podCounts": pod_counts})
    return {"levels": list(assignment.levels), "slices": slices}


def _build_column(values: Sequence[str], column: Any) -> Json | None:
    if column == "u":
        return {"universal": values[0]} if len({*values}) == 1 and len(values[0]) <= _MAX_VALUE else None
    prefix, suffix = (length or 0 for length in column)
    start, end = values[0][:prefix], values[0][len(values[0]) - suffix :]
    shortest, longest = min(map(len, values)), max(map(len, values))
    if shortest < prefix + suffix or longest - prefix - suffix > _MAX_VALUE:
        return None
    if not all(value.startswith(start) and value.endswith(end) for value in values):
        return None
    built: Json = {"roots": [value[prefix : len(value) - suffix] for value in values]}
    built |= {} if column[0] is None else {"prefix": start}
    built |= {} if column[1] is None else {"suffix": end}
    return {"individual": built}


def _is_shape(shape: Any, levels: int) -> bool:
    """Whether it is one at all: a note may hold anything."""
    return (
        isinstance(shape, list)
        and len(shape) <= MAX_SLICES
        and all(
            isinstance(one, list)
            and len(one) == 3
            and _is_length(one[0], 1, MAX_DOMAINS_PER_SLICE if one[1:] != [["u"] * levels, "u"] else 2**31)
            and isinstance(one[1], list)
            and len(one[1]) == levels
            and all(column == "u" or _is_affixes(column) for column in one[1])
            and one[2] in ("u", "i")
            for one in shape
        )
    )


def _is_affixes(column: Any) -> bool:
    return isinstance(column, list) and len(column) == 2 and all(end is None or _is_length(end, 0, _MAX_VALUE) for end in column)


def _is_length(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

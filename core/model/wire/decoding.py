"""Reads the wire form of a topology assignment, by any writer, with all checks.

A Workload's status may be written by others: every type and length is checked before anything is built from it, and a
few bytes cannot expand to more domains than any real cluster has.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from core.model.wire.assignment import DomainCount, TopologyAssignment

MAX_DOMAINS = 1_000_000  # a universal value repeats for free; etcd's 1.5 MiB hold half as many roots
MAX_REPEATED = 200  # domains of the same values as another of their slice, in all slices: a writer has no use for one
_MAX_INT32 = 2**31 - 1


class InvalidAssignment(ValueError):
    """The wire form contradicts itself or the API; the message names the field."""


def decode(wire: Mapping[str, Any]) -> TopologyAssignment:
    """Returns the assignment that v1beta2 JSON describes, slices joined in their order. Domains without pods are accepted.

    Raises InvalidAssignment where it contradicts itself or the API, has more than `MAX_DOMAINS` domains or repeats more than
    `MAX_REPEATED`, and nothing else whatever it is given.
    """
    fields = _get_object(wire, "topologyAssignment")
    levels = _get_strings(fields, "levels", "levels")
    slices = _get_list(fields, "slices", "slices")
    if slices and not levels:
        raise InvalidAssignment("levels is empty")
    values: list[Sequence[tuple[str, ...]]] = []
    counts: list[Sequence[int]] = []
    total = repeated = 0
    for index, part in enumerate(slices):
        where = f"slices[{index}]"
        entry = _get_object(part, where)
        size = _check_int(entry.get("domainCount"), f"{where}.domainCount", least=1)
        total += size
        if total > MAX_DOMAINS:
            raise InvalidAssignment(f"{where}.domainCount makes more than {MAX_DOMAINS} domains")
        repeated += count_repeated(entry)
        if repeated > MAX_REPEATED:
            raise InvalidAssignment(f"{where}.domainCount repeats domains; at most {MAX_REPEATED} of an assignment are read twice")
        columns = _decode_columns(entry, size, len(levels), where)
        values.append(list(zip(*columns, strict=True)))
        counts.append(_decode_counts(entry.get("podCounts"), size, f"{where}.podCounts"))
    return TopologyAssignment(tuple(levels), _build_domains(list(chain.from_iterable(values)), list(chain.from_iterable(counts))))


def count_repeated(entry: Mapping[str, Any]) -> int:
    """Returns how many domains of a slice are equal to its first, since no level has values for each: a few bytes can
    stand for any number.

    `domainCount` has been checked.
    """
    columns = entry.get("valuesPerLevel")
    has_own = isinstance(columns, list) and any(isinstance(column, Mapping) and column.get("individual") is not None for column in columns)
    return 0 if has_own else int(entry["domainCount"]) - 1


def _build_domains(values: Sequence[tuple[str, ...]], counts: Sequence[int]) -> tuple[DomainCount, ...]:
    # The constructor of a frozen dataclass is Python code, and the slower half of reading 100,000 domains;
    # this is what it does, with every loop in C.
    domains = tuple(map(object.__new__, repeat(DomainCount, len(values))))
    for field, content in (("values", values), ("count", counts)):
        deque(map(getattr(DomainCount, field).__set__, domains, content), maxlen=0)
    return domains


def _decode_columns(entry: Mapping[str, Any], size: int, levels: int, where: str) -> list[list[str]]:
    columns = _get_list(entry, "valuesPerLevel", f"{where}.valuesPerLevel")
    if len(columns) != levels:
        raise InvalidAssignment(f"{where}.valuesPerLevel has {len(columns)} entries for {levels} levels")
    return [_decode_values(column, size, f"{where}.valuesPerLevel[{index}]") for index, column in enumerate(columns)]


def _decode_values(wire: Any, size: int, where: str) -> list[str]:
    universal, individual = _get_either(wire, where)
    if universal is not None:
        return [_check_string(universal, f"{where}.universal")] * size
    where = f"{where}.individual"
    fields = _get_object(individual, where)
    prefix = _get_affix(fields, "prefix", where)
    suffix = _get_affix(fields, "suffix", where)
    roots = _get_strings(fields, "roots", f"{where}.roots")
    if len(roots) != size:
        raise InvalidAssignment(f"{where}.roots has {len(roots)} entries for domainCount {size}")
    return [f"{prefix}{root}{suffix}" for root in roots] if prefix or suffix else roots


def _decode_counts(wire: Any, size: int, where: str) -> list[int]:
    universal, individual = _get_either(wire, where)
    if universal is not None:
        return [_check_int(universal, f"{where}.universal")] * size
    counts = _check_list(individual, f"{where}.individual")
    if len(counts) != size:
        raise InvalidAssignment(f"{where}.individual has {len(counts)} entries for domainCount {size}")
    # Types first: what is not a number cannot be compared.
    if {*map(type, counts)} != {int} or min(counts) < 0 or max(counts) > _MAX_INT32:
        for index, count in enumerate(counts):
            _check_int(count, f"{where}.individual[{index}]")
    return counts


def _get_either(wire: Any, where: str) -> tuple[Any, Any]:
    fields = _get_object(wire, where)
    universal, individual = fields.get("universal"), fields.get("individual")
    if (universal is None) == (individual is None):
        raise InvalidAssignment(f"{where} must have exactly one of universal and individual")
    return universal, individual


def _get_object(wire: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(wire, Mapping):
        raise InvalidAssignment(f"{where} is no object")
    return wire


def _get_list(fields: Mapping[str, Any], name: str, where: str) -> list[Any]:
    # What the API marks as required may still be absent where it is empty: Go writes it so.
    wire = fields.get(name)
    return [] if wire is None else _check_list(wire, where)


def _get_strings(fields: Mapping[str, Any], name: str, where: str) -> list[str]:
    strings = _get_list(fields, name, where)
    if not {*map(type, strings)} <= {str}:
        for index, value in enumerate(strings):
            _check_string(value, f"{where}[{index}]")
    return strings


def _get_affix(fields: Mapping[str, Any], name: str, where: str) -> str:
    wire = fields.get(name)
    return "" if wire is None else _check_string(wire, f"{where}.{name}")


def _check_list(wire: Any, where: str) -> list[Any]:
    if not isinstance(wire, list | tuple):
        raise InvalidAssignment(f"{where} is no list")
    return list(wire)


def _check_string(wire: Any, where: str) -> str:
    if not isinstance(wire, str):
        raise InvalidAssignment(f"{where} is no string")
    return wire


def _check_int(wire: Any, where: str, least: int = 0) -> int:
    if not isinstance(wire, int) or isinstance(wire, bool) or not least <= wire <= _MAX_INT32:
        raise InvalidAssignment(f"{where} is no number from {least} to {_MAX_INT32}")
    return wire

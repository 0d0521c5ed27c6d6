"""Quantities and requests of pods as exact fractions, for the audit in `e2e.audit.recount`.

`core.model` has the same for the product: in whole units, rounded up and cut at a largest amount. The audit must not share its errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

Amount = Fraction | int
Amounts = dict[str, Amount]
_SUFFIXES = {suffix: Fraction(10) ** power for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)}
_SUFFIXES |= {f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
_QUANTITY = re.compile(r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)(?P<suffix>[a-zA-Z]*)")


@lru_cache(4096)
def read_quantity(text: str) -> Amount:
    """A quantity of the Kubernetes API (`500m`, `1.5Gi`, `1e3`) in whole units, exactly; an int if it is whole. Raises ValueError."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or (found["suffix"] and found["suffix"] not in _SUFFIXES):
        raise ValueError(f"{text!r} is no quantity")
    amount = Fraction(found["number"]) * _SUFFIXES.get(found["suffix"], 1)
    return amount.numerator if amount.denominator == 1 else amount


def read_amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """A ResourceList of the Kubernetes API. Raises ValueError."""
    return {name: read_quantity(str(text)) for name, text in (quantities or {}).items()}


def show_amount(amount: Amount) -> str:
    """An amount as a decimal number: exact if it has no more than nine decimals, as any quantity of the API server."""
    return f"{amount.numerator}" if amount.denominator == 1 else f"{float(amount):.9f}".rstrip("0")


def count_requests(spec: Mapping[str, Any]) -> Amounts:
    """What a pod requests of its node, per resource (Kubernetes: effective requests, KEP-753 sidecars, KEP-2837 pod-level resources)."""
    running = _sum(_read_container(container) for container in spec.get("containers") or ())
    sidecars: Amounts = {}
    moments: list[Amounts] = []  # what runs at once while each init container does
    for container in spec.get("initContainers") or ():
        moments.append(_sum([sidecars, _read_container(container)]))
        if container.get("restartPolicy") == "Always":
            sidecars = moments[-1]
    moments.append(_sum([running, sidecars]))
    most = {name: max(moment.get(name, 0) for moment in moments) for name in set[str]().union(*moments)}
    whole = spec.get("resources") or {}
    most = {**read_amounts(whole.get("limits")), **most, **read_amounts(whole.get("requests"))}
    return {name: amount for name, amount in _sum([most, read_amounts(spec.get("overhead"))]).items() if amount}


def _read_container(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    return read_amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(parts: Iterable[Mapping[str, Amount]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total

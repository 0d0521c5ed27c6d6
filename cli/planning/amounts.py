"""Wrong amounts of resources in objects from files, each with its field."""

from collections.abc import Iterator
from typing import Any

from core.api.files.mistakes import Mistake, build_path
from core.model.pod_resources import PODS
from core.model.quantity import InvalidQuantity, parse_exact_quantity


def find_wrong_amounts(path: str, amounts: object) -> Iterator[Mistake]:
    """Yields the mistakes in a ResourceList at a path, which may hold anything; none for None. Amounts must be 0 or more, and whole for
    pods and extended resources."""
    if amounts is None:
        return
    if not isinstance(amounts, dict):
        yield Mistake(path, "an object of names of resources and quantities is expected")
        return
    for name, written in amounts.items():
        try:
            amount = parse_exact_quantity(str(written))
        except InvalidQuantity:
            yield Mistake(build_path(path, str(name)), str(InvalidQuantity(written)))
            continue
        if amount < 0:
            yield Mistake(build_path(path, str(name)), f"{written!r} is negative; 0 or more is expected")
        elif amount.denominator != 1 and (name == PODS or "/" in str(name)):
            yield Mistake(build_path(path, str(name)), f"{written!r} is a fraction; a whole number is expected")


def find_wrong_amounts_of_pod(path: str, spec: Any) -> Iterator[Mistake]:
    """Yields the mistakes in a pod's spec at a path, in any JSON: in its requests and limits, those of its containers and init containers,
    and its overhead. What is no map or list where one belongs is passed over."""
    if not isinstance(spec, dict):
        return
    asking = [(path, spec)]
    for part in ("containers", "initContainers"):
        containers = spec.get(part)
        asking += [(build_path(path, part, i), each) for i, each in enumerate(containers if isinstance(containers, list) else ())]
    for where, each in asking:
        resources = each.get("resources") if isinstance(each, dict) else None
        if not isinstance(resources, dict):
            continue
        for part in ("requests", "limits"):
            yield from find_wrong_amounts(build_path(where, "resources", part), resources.get(part))
    yield from find_wrong_amounts(build_path(path, "overhead"), spec.get("overhead"))

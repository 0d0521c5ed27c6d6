"""What a pod asks for and what a node offers, as canonical integers per resource name."""

from collections.abc import Iterable, Mapping
from typing import Any

from core.model.quantity import InvalidQuantity, parse_canonical, saturate

Resources = Mapping[str, int]
PODS = "pods"


def parse_resources(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Returns a ResourceList of the API as canonical amounts by resource, each from 0 to `LARGEST`; empty for None.

    Raises InvalidQuantity where an amount is negative or no quantity.
    """
    if not quantities:
        return {}
    amounts = {name: parse_canonical(name, text) for name, text in quantities.items()}
    for name, amount in amounts.items():
        if amount < 0:
            raise InvalidQuantity(quantities[name])
    return amounts


def add(into: dict[str, int], amounts: Resources, times: int = 1) -> None:
    """Adds `amounts` x `times` in place, exactly: what is added can be subtracted again. Amounts that become 0 stay in `into`."""
    for name, amount in amounts.items():
        into[name] = into.get(name, 0) + amount * times


def _raise_to(into: dict[str, int], amounts: Resources) -> None:
    for name, amount in amounts.items():
        into[name] = max(into.get(name, 0), amount)


def _compute_container_requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    # The API server defaults requests from limits on pods, not on pod templates.
    return parse_resources({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def compute_pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Returns what one pod of this spec takes from its node, as canonical amounts by resource, without the one of `pods`.

    Containers are summed. An init container runs beside the sidecars started before it, so the largest such moment counts. Pod-level
    requests override; pod-level limits stand for requests that no container has; overhead is added (Kubernetes: pod effective requests,
    KEP-753 sidecars, KEP-2837 pod-level resources). Each amount is from 1 to `LARGEST`, at which sums are cut. Raises InvalidQuantity where
    an amount is negative or no quantity.
    """
    running: dict[str, int] = {}
    for container in spec.get("containers") or ():
        add(running, _compute_container_requests(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = _compute_container_requests(container)
        if container.get("restartPolicy") == "Always":
            add(sidecars, own)
            _raise_to(peak, sidecars)
        else:
            moment = dict(sidecars)
            add(moment, own)
            _raise_to(peak, moment)
    add(running, sidecars)
    _raise_to(running, peak)
    whole = spec.get("resources") or {}
    running = parse_resources(whole.get("limits")) | running | parse_resources(whole.get("requests"))
    add(running, parse_resources(spec.get("overhead")))
    return {name: saturate(amount) for name, amount in running.items() if amount}


def list_zero_requests(spec: Mapping[str, Any], requests: Resources) -> tuple[str, ...]:
    """Returns the names, sorted, of resources that containers of this spec request with zero, and its pod with nothing at all. A limit
    stands for a request that a container lacks.

    `requests` are those of its pod (`compute_pod_requests`).
    """
    named = set[str]()
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        named.update(resources.get("limits") or (), resources.get("requests") or ())
    return tuple(sorted(named - requests.keys()))


def list_resource_names(*lists: Iterable[str]) -> list[str]:
    """Returns all names that occur in the lists, each once, sorted; `pods` is always among them."""
    return sorted({PODS}.union(*lists))

"""Nominal quota of a ClusterQueue: what is left of it per flavor and resource."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.model.quantity import format_quantity
from core.model.resources import PODS
from core.state.facts import ClusterQueueFacts, PodSetFacts
from core.state.workloads import FlavorResource


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """A flavor that has too little quota left of a resource, canonical amounts."""

    flavor: str
    resource: str
    wanted: int
    used: int
    nominal: int

    @property
    def never_fits(self) -> bool:
        """Whether the queue could not give this much even if it were empty."""
        return self.wanted > self.nominal

    def __str__(self) -> str:
        def show(amount: int) -> str:
            return format_quantity(self.resource, amount)

        if self.never_fits:
            return (
                f'flavor "{self.flavor}": {show(self.wanted)} {self.resource} are asked for, '
                f"more than its whole nominal quota of {show(self.nominal)}"
            )
        missing = self.wanted - (self.nominal - self.used)
        return (
            f'flavor "{self.flavor}": {show(missing)} {self.resource} of quota are missing, '
            f"{show(self.used)} of {show(self.nominal)} are in use"
        )


def pod_set_usage(pod_set: PodSetFacts, queue: ClusterQueueFacts) -> dict[str, int]:
    """Canonical amounts that all pods of a pod set take from quota; `pods` only where the queue covers them."""
    usage = {resource: amount * pod_set.count for resource, amount in pod_set.requests.items()}
    if any(PODS in group.resources for group in queue.groups):
        usage[PODS] = usage.get(PODS, 0) + pod_set.count
    return usage


def find_shortage(
    flavor: str, resources: tuple[str, ...], nominal: Mapping[str, int], usage: Mapping[str, int], used: Mapping[FlavorResource, int]
) -> QuotaShortage | None:
    """The first of some resources of which a flavor has too little left."""
    for resource in resources:
        wanted, held, limit = usage.get(resource, 0), used.get((flavor, resource), 0), nominal.get(resource, 0)
        if wanted and wanted > limit - held:
            return QuotaShortage(flavor, resource, wanted, held, limit)
    return None

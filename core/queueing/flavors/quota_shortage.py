"""The quota that a workload uses, and messages about missing quota."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from core.model.configuration import ResourceRules
from core.model.pod_resources import PODS, add
from core.model.quantity import LARGEST, format_quantity
from core.model.quota_tree import FlavorResource, QuotaTree
from core.model.spare_nodes import compute_spare_usage
from core.model.transformation import compute_quota_requests
from core.placement.algorithms.decision import PodSetPlacement
from core.state.facts import PodSetFacts
from core.state.queue_facts import ClusterQueueFacts


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """A flavor with too little quota left of a resource, in canonical amounts.

    `available` is what is left for the queue, `potential` what would be left if nothing were in use. `nominal` is its
    own quota, `used` what is used of that and beyond. Other pod sets of the workload count as in use, but not in
    `potential`. `limit` is the borrowing limit that allows no more, though others have quota left: that of the queue,
    or of the cohort that is named.
    """

    flavor: str
    resource: str
    wanted: int
    used: int
    nominal: int
    available: int
    potential: int
    cohort: str | None = None
    limit: tuple[str | None, int] | None = None

    @property
    def never_fits(self) -> bool:
        """Whether the queue could not provide this much even if no workload used any quota."""
        return self.wanted > self.potential

    def __str__(self) -> str:
        def show(amount: int) -> str:
            if amount < LARGEST:
                return format_quantity(self.resource, amount)
            return f"more than {format_quantity(self.resource, LARGEST // 1000 * 1000)}"  # amounts are cut there when they are read

        if self.never_fits:
            most = f"more than its whole nominal quota of {show(self.nominal)}"
            if self.cohort is not None:
                why = self._limit(show) if self.limit is not None else f'all that cohort "{self.cohort}" lends'
                most = f"more than the {show(max(0, self.potential))} it could ever have, with {why}"
            return f'flavor "{self.flavor}": requests {show(self.wanted)} {self.resource}, {most}'
        text = (
            f'flavor "{self.flavor}": needs {show(self.wanted - self.available)} more {self.resource}; '
            f"{show(self.used)} of {show(self.nominal)} in use"
        )
        lent = show(max(0, self.available - max(0, self.nominal - self.used)))
        if self.limit is not None:
            return f"{text}, and {self._limit(show)} leaves {lent} to be borrowed, whatever others lend"
        if self.cohort is None:
            return text
        own = max(0, self.nominal - self.used) - max(0, self.available)
        if own > 0:
            return f'{text}, and others of cohort "{self.cohort}" have borrowed {show(own)} of its own'
        return (
            f'{text}, and cohort "{self.cohort}" has {lent if self.available > max(0, self.nominal - self.used) else "nothing"} to lend now'
        )

    def _limit(self, show: Callable[[int], str]) -> str:
        """Formats the borrowing limit that applies, and names the cohort that has it; no name is given for the queue's
        own limit."""
        assert self.limit is not None
        limiting, limit = self.limit
        return f"its borrowingLimit of {show(limit)}" if limiting is None else f'the borrowingLimit of {show(limit)} of cohort "{limiting}"'


def compute_pod_set_usage(pod_set: PodSetFacts, queue: ClusterQueueFacts, rules: ResourceRules) -> dict[str, int]:
    """Returns the canonical amounts, by resource, that all pods of a pod set take from quota, as `rules` transform them. `pods` is there
    only where the queue covers it; resources that are requested with zero are there with 0."""
    usage = {resource: amount * pod_set.count for resource, amount in compute_quota_requests(pod_set.counted_requests, rules).items()}
    usage |= {resource: 0 for resource in pod_set.none_of if resource not in usage}
    if any(PODS in group.resources for group in queue.groups):
        usage[PODS] = usage.get(PODS, 0) + pod_set.count
    return usage


def compute_usage(pod_sets: Iterable[PodSetFacts], queue: ClusterQueueFacts, rules: ResourceRules) -> dict[str, int]:
    """Returns the canonical amounts, by resource, that pod sets take from quota together, without their spare nodes; see
    `compute_pod_set_usage`."""
    total: dict[str, int] = {}
    for pod_set in pod_sets:
        add(total, compute_pod_set_usage(pod_set, queue, rules))
    return total


def compute_spares_usage(
    unit: Iterable[PodSetFacts], placements: Iterable[tuple[str, PodSetPlacement]], queue: ClusterQueueFacts, rules: ResourceRules
) -> dict[str, int]:
    """Returns the canonical amounts, by resource, that the spare nodes which pod sets ask for take from quota, rounded up. Each counts as
    many pods as the fullest node of the pod set's placement; without placement it counts none.

    Resources are those of `compute_pod_set_usage`: the queue need not cover them, but for `pods`. Empty where no pod set asks for spares.
    """
    asking = [pod_set for pod_set in unit if pod_set.spares]
    most = {placement.pod_set: max((count for _, count in placement.nodes), default=0) for _, placement in (placements if asking else ())}
    total: dict[str, int] = {}
    for pod_set in asking:
        add(
            total,
            compute_spare_usage(compute_pod_set_usage(pod_set, queue, rules), pod_set.count, most.get(pod_set.name, 0), pod_set.spares),
        )
    return total


def find_shortage(
    tree: QuotaTree, queue: str, flavor: str, resources: tuple[str, ...], usage: Mapping[str, int], taken: Mapping[FlavorResource, int]
) -> QuotaShortage | None:
    """Returns the shortage of the first of `resources` of which a flavor has less quota left than `usage`, beside what other pod sets have
    `taken` (canonical amounts). None if there is enough of all; a resource with no usage is not looked at. Raises KeyError for an unknown
    queue."""
    for resource in resources:
        wanted, name = usage.get(resource, 0), (flavor, resource)
        available = tree.compute_available(queue, name) - taken.get(name, 0)
        if wanted and wanted > available:
            used, nominal = tree.get_usage(queue).get(name, 0) + taken.get(name, 0), tree.get_nominal(queue, name)
            potential = tree.compute_potential(queue, name)
            limit = tree.find_limit(queue, name, empty=wanted > potential)
            return QuotaShortage(flavor, resource, wanted, used, nominal, available, potential, tree.find_cohort(queue), limit)
    return None


def has_to_borrow(
    tree: QuotaTree, queue: str, flavor: str, resources: tuple[str, ...], usage: Mapping[str, int], taken: Mapping[FlavorResource, int]
) -> bool:
    """Whether a queue would have to borrow any of `resources` of a flavor for `usage`, beside what its other pod sets have `taken`
    (canonical amounts): all its usage would be above its nominal quota. A resource without usage does not count. Raises KeyError for an
    unknown queue."""

    used = tree.get_usage(queue)
    for resource in resources:
        name, wanted = (flavor, resource), usage.get(resource, 0)
        if wanted > 0 and used.get(name, 0) + taken.get(name, 0) + wanted > tree.get_nominal(queue, name):
            return True
    return False

"""How one workload stands: what it holds of quota and nodes, and whether it waits."""

from dataclasses import dataclass, replace

from core.model.admission import Admission
from core.model.quota_tree import FlavorResource
from core.model.spare_nodes import with_spare_usage
from core.state.facts import WorkloadFacts


@dataclass(frozen=True, slots=True)
class Standing:
    """`held`: the admission by which it holds quota and domains: assumed, or observed and not finished. Its usage is what it still needs,
    its counts are what it was given. `is_leaving`: it is evicted, and what it holds is what it was given before."""

    facts: WorkloadFacts | None
    held: Admission | None
    is_assumed: bool
    is_leaving: bool
    is_replaced: bool  # another workload of the same job holds, among its own, what this one held

    @property
    def priority(self) -> int:
        """Returns its priority; 0 where it has not been observed."""
        return self.facts.priority if self.facts is not None else 0

    @property
    def is_kept(self) -> bool:
        """Returns whether the workload holds quota by an observed admission, with no decision on its way, and is active and not evicted."""
        facts = self.facts
        return self.held is not None and not self.is_assumed and facts is not None and facts.active and not facts.evicted

    @property
    def awaiting(self) -> WorkloadFacts | None:
        """Returns its facts, if `is_kept` and a pod set has places that are still to be found (`delayed`, second pass); else None."""
        return self.facts if self.is_kept and self.held is not None and self.held.awaits_topology else None

    @property
    def unhealthy(self) -> WorkloadFacts | None:
        """Returns its facts, if `is_kept` and it has nodes in `status.unhealthyNodes`; else None."""
        return self.facts if self.is_kept and self.facts is not None and self.facts.unhealthy_nodes else None

    @property
    def starting(self) -> str | None:
        """Returns its ClusterQueue, if it holds quota, is not evicted and its pods are not reported as ready; else None."""
        if self.held is None or self.facts is None or self.is_leaving or self.facts.pods_ready:
            return None
        return self.held.cluster_queue

    @property
    def pending(self) -> WorkloadFacts | None:
        """Returns its facts, if it waits for a decision: active, without quota, not finished, being deleted, on hold or replaced. Else
        None."""
        facts = self.facts
        if facts is None or self.held is not None or self.is_replaced or not facts.active:
            return None
        return None if facts.finished or facts.deleting or facts.on_hold else facts

    @property
    def lends(self) -> bool:
        """Returns whether nodes are kept free for one of its pod sets that lends them to others; also while it is evicted or needs them."""
        if self.held is None or self.facts is None:
            return False
        pairs = zip(self.facts.pod_sets, self.held.pod_sets, strict=False)
        return any(given.spares and pod_set.lends for pod_set, given in pairs)


def judge_standing(facts: WorkloadFacts | None, assumed: Admission | None, *, is_replaced: bool, counts_spares: bool) -> Standing:
    """Returns what a workload holds and whether it waits, by its facts and the decision that is not observed yet. `counts_spares`: nodes
    that are kept free for it use quota, too. `is_replaced`: another workload holds what is its own, so that it holds nothing. An assumed
    decision stands over an observed admission; one that has finished holds only an assumed one."""
    held = assumed
    if held is None and facts is not None and not facts.finished:
        held = facts.admission
    if held is not None and facts is not None:
        held = _count_needed(held, facts, counts_spares=counts_spares)
    # An eviction that left nothing to hold is over: what was decided since is what comes.
    is_leaving = facts is not None and facts.evicted and (assumed is None or facts.admission is not None)
    return Standing(facts, None if is_replaced else held, assumed is not None, is_leaving, is_replaced)


def _count_needed(admission: Admission, facts: WorkloadFacts, *, counts_spares: bool) -> Admission:
    counted = subtract_reclaimed(admission, facts)
    asked = {pod_set.name: pod_set.spares for pod_set in facts.pod_sets if pod_set.spares} if counts_spares else {}
    return with_spare_usage(admission, counted, asked) if asked else counted


def subtract_reclaimed(admission: Admission, facts: WorkloadFacts) -> Admission:
    """Returns an admission without the quota of pods that have finished and are not replaced (KEP-78); the same object where it has no
    excess.

    The pods of a pod set are alike: each uses the amount of all divided by their number, and what is left is rounded up. Counts and
    assignments stay.
    """
    needed = {pod_set.name: pod_set.count for pod_set in facts.pod_sets if pod_set.reclaimed}
    if all(given.count <= needed.get(given.name, given.count) for given in admission.pod_sets):
        return admission
    pod_sets = []
    for given in admission.pod_sets:
        left = min(given.count, needed.get(given.name, given.count))
        usage = {name: -(-amount * left // given.count) if given.count else amount for name, amount in given.usage.items()}
        pod_sets.append(replace(given, usage=usage))
    return replace(admission, pod_sets=tuple(pod_sets))


def add_usage(total: dict[FlavorResource, int], admission: Admission, times: int = 1) -> None:
    """Adds to `total`, in place, the usage of an admission x `times`, by flavor and resource in canonical units. Negative times subtract;
    entries that become 0 stay."""
    for pod_set in admission.pod_sets:
        for resource, flavor in pod_set.flavors.items():
            total[flavor, resource] = total.get((flavor, resource), 0) + pod_set.usage.get(resource, 0) * times


def compute_admission_usage(admission: Admission) -> dict[FlavorResource, int]:
    """Returns the usage of an admission, summed over its pod sets, by flavor and resource in canonical units."""
    total: dict[FlavorResource, int] = {}
    add_usage(total, admission)
    return total

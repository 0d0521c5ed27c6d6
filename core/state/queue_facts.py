"""What topogate needs to know of ClusterQueues, Cohorts and LocalQueues, read once from their JSON: small, frozen, comparable."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

from core.model.quantity import parse_canonical, parse_quantity
from core.model.quota_tree import FlavorResource, Quota, QuotaOwner
from core.state.facts import build_object_key, read_profile_name

Json = Mapping[str, Any]
NEVER, LOWER_PRIORITY, LOWER_OR_NEWER, ANY = "Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"  # which workloads to preempt
TRY_NEXT, STOP = "TryNextFlavor", "MayStopSearch"  # what to do with a flavor that would serve, at a price
GOES_ON, HOLD_AND_DRAIN = "None", "HoldAndDrain"  # stopPolicy; Hold is the third
_OLD_NAMES = {"Borrow": STOP, "Preempt": STOP}  # as v1beta1 wrote them


class NamespaceFacts(NamedTuple):
    """A Namespace: its labels, and whether it is being deleted."""

    labels: Mapping[str, str]
    is_ending: bool

    @classmethod
    def read(cls, namespace: Json) -> "NamespaceFacts":
        """Returns the facts of a Namespace (JSON)."""
        metadata = namespace["metadata"]
        return cls(dict(metadata.get("labels") or {}), bool(metadata.get("deletionTimestamp")))


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that get their quota from the same flavors, flavors in the order they are tried."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preemption:
    """Which workloads may be preempted (ClusterQueue, spec.preemption)."""

    within_queue: str = NEVER
    reclaim: str = NEVER  # of quota that others of the cohort have borrowed
    while_borrowing: str = NEVER  # by a workload that borrows itself
    highest_priority: int | None = None  # highest priority of a workload that a borrowing workload may preempt

    @property
    def is_possible(self) -> bool:
        """Returns whether any workload may be preempted: `withinClusterQueue` or `reclaimWithinCohort` is not Never."""
        return self.within_queue != NEVER or self.reclaim != NEVER


@dataclass(frozen=True, slots=True)
class Fungibility:
    """When to go on to the next flavor (ClusterQueue, spec.flavorFungibility)."""

    when_can_borrow: str = STOP
    when_can_preempt: str = TRY_NEXT
    prefers_preemption: bool = False  # to borrowing, where every flavor has its price


class _Stoppable:
    """What may be stopped by a stopPolicy."""

    __slots__ = ()
    stop_policy: str

    @property
    def stopped(self) -> bool:
        """Returns whether it admits no more workloads: its stopPolicy is not None."""
        return self.stop_policy != GOES_ON

    @property
    def drains(self) -> bool:
        """Returns whether what it admitted is to be evicted, too: its stopPolicy is HoldAndDrain."""
        return self.stop_policy == HOLD_AND_DRAIN


@dataclass(frozen=True, slots=True)
class ClusterQueueFacts(_Stoppable):
    """A ClusterQueue: its quota and in which order it serves."""

    name: str
    strict: bool  # StrictFIFO: a workload that cannot be admitted blocks those behind it
    groups: tuple[ResourceGroup, ...]
    namespace_selector: Json | None
    stop_policy: str
    deleting: bool
    profile: str | None = None  # the placement profile that it names
    quota: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    cohort: str | None = None
    weight: Fraction = Fraction(1)  # in fair sharing
    preemption: Preemption = Preemption()
    fungibility: Fungibility = Fungibility()
    checks: tuple[tuple[str, frozenset[str]], ...] = ()  # admission checks, and the flavors that each is for (none: all)

    @classmethod
    def read(cls, queue: Json) -> "ClusterQueueFacts":
        """Returns the facts of a ClusterQueue (JSON). Raises InvalidQuantity where its quota or its weight cannot be read."""
        spec = queue.get("spec") or {}
        return cls(
            queue["metadata"]["name"],
            spec.get("queueingStrategy") == "StrictFIFO",
            tuple(
                ResourceGroup(tuple(group["coveredResources"]), tuple(flavor["name"] for flavor in group["flavors"]))
                for group in spec.get("resourceGroups") or ()
            ),
            spec.get("namespaceSelector"),
            spec.get("stopPolicy") or GOES_ON,
            bool(queue["metadata"].get("deletionTimestamp")),
            read_profile_name(queue),
            dict(_list_quotas(spec)),
            spec.get("cohortName") or None,
            _read_weight(spec),
            _read_preemption(spec.get("preemption") or {}),
            _read_fungibility(spec.get("flavorFungibility") or {}),
            tuple(
                (check["name"], frozenset(check.get("onFlavors") or ()))
                for check in (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
            ),
        )

    def list_checks(self, flavors: Collection[str]) -> list[str]:
        """Returns the names of the admission checks that a workload with these flavors must pass, in the order of the queue. A check is for
        all flavors, or for some of these."""
        return [name for name, on in self.checks if not on or not on.isdisjoint(flavors)]

    @property
    def flavors(self) -> tuple[str, ...]:
        """Returns the names of all flavors, each once, in the order they are tried."""
        return tuple(dict.fromkeys(flavor for group in self.groups for flavor in group.flavors))

    def copy_up_to(self, flavor: str) -> "ClusterQueueFacts":
        """Returns a copy of the queue without the flavors that come behind `flavor` in its resource groups. Groups without it, and its
        quota, stay as they are."""
        groups = tuple(
            replace(group, flavors=group.flavors[: group.flavors.index(flavor) + 1]) if flavor in group.flavors else group
            for group in self.groups
        )
        return replace(self, groups=groups)

    @property
    def owner(self) -> QuotaOwner:
        """Returns its place in the tree of quota: name, quotas, cohort and weight."""
        return QuotaOwner(self.name, self.quota, self.cohort, self.weight)


@dataclass(frozen=True, slots=True)
class CohortFacts:
    """A Cohort: its parent and quota of its own."""

    owner: QuotaOwner

    @classmethod
    def read(cls, cohort: Json) -> "CohortFacts":
        """Returns the facts of a Cohort (JSON). Raises InvalidQuantity where its quota or its weight cannot be read."""
        spec = cohort.get("spec") or {}
        return cls(QuotaOwner(cohort["metadata"]["name"], dict(_list_quotas(spec)), spec.get("parentName") or None, _read_weight(spec)))


@dataclass(frozen=True, slots=True)
class LocalQueueFacts(_Stoppable):
    """A LocalQueue: a namespace's way into a ClusterQueue."""

    key: str
    cluster_queue: str
    stop_policy: str

    @classmethod
    def read(cls, queue: Json) -> "LocalQueueFacts":
        """Returns the facts of a LocalQueue (JSON); `cluster_queue` is empty where it names none."""
        spec = queue.get("spec") or {}
        return cls(build_object_key(queue), spec.get("clusterQueue") or "", spec.get("stopPolicy") or GOES_ON)


def _list_quotas(spec: Json) -> Iterator[tuple[FlavorResource, Quota]]:
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for entry in flavor["resources"]:
                limits = (entry.get(name) for name in ("borrowingLimit", "lendingLimit"))
                borrowing, lending = (None if limit is None else parse_canonical(entry["name"], limit) for limit in limits)
                yield (flavor["name"], entry["name"]), Quota(parse_canonical(entry["name"], entry["nominalQuota"]), borrowing, lending)


def _read_weight(spec: Json) -> Fraction:
    weight = (spec.get("fairSharing") or {}).get("weight")
    return Fraction(1) if weight is None else Fraction(parse_quantity(weight, milli=True), 1000)


def _read_preemption(wire: Json) -> Preemption:
    borrowing = wire.get("borrowWithinCohort") or {}
    return Preemption(
        wire.get("withinClusterQueue") or NEVER,
        wire.get("reclaimWithinCohort") or NEVER,
        borrowing.get("policy") or NEVER,
        borrowing.get("maxPriorityThreshold"),
    )


def _read_fungibility(wire: Json) -> Fungibility:
    """A preference counts only where the next flavor is tried in both cases (KEP-582, FlavorFungibility)."""
    borrow, preempt = wire.get("whenCanBorrow") or STOP, wire.get("whenCanPreempt") or TRY_NEXT
    borrow, preempt = _OLD_NAMES.get(borrow, borrow), _OLD_NAMES.get(preempt, preempt)
    return Fungibility(borrow, preempt, borrow == preempt == TRY_NEXT and wire.get("preference") == "PreemptionOverBorrowing")

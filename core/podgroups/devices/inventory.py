"""All devices of the cluster, those that are taken, and those that pods will take which are placed and not bound yet.

Kept up to date by events; a decision reads it and changes nothing.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from core.podgroups.devices.claims import Claim, ClaimSpec, DeviceId, Matcher, NotServed, PodClaim, PodId, PoolId, ResourceSlice
from core.podgroups.devices.node_limits import MOST_KINDS

Value = TypeVar("Value")
Need = Mapping[Matcher, int]  # devices that one claim asks for
MOST_PROMISED = 64
"""Unlike devices (matchers) that all placed pods together may be promised: slices remember what a decision asks for, so that it evaluates
nothing."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The slices of a pool's newest generation; `problem` is the reason why kube-scheduler does not allocate from it."""

    id: PoolId
    slices: tuple[ResourceSlice, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PlacedClaims:
    """A pod that is placed: the claims that it names are allocated on its node, or will be."""

    namespace: str
    node: str
    claims: tuple[PodClaim, ...]


class Inventory:
    """Slices, claims, templates and classes, as they were last seen."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._templates: dict[str, ClaimSpec] = {}
        self._classes: dict[str, tuple[str, ...]] = {}
        self._claims: dict[str, Claim] = {}
        self._by_pod: dict[PodId, dict[str, Claim]] = {}  # claims by the pods that they count for
        self._taken: Counter[DeviceId] = Counter()
        self._by_pool: dict[PoolId, dict[str, ResourceSlice]] = {}
        self._pools: dict[PoolId, Pool] = {}
        self._stale: set[PoolId] = set()  # pools that have other slices than when `_pools` was computed
        self.kept: dict[str, PlacedClaims] = {}  # by uid of pods

    # --- what is seen -----------------------------------------------------------------------------------

    def observe_slice(self, key: str, found: ResourceSlice | None) -> None:
        """Keeps a ResourceSlice as it is now (None: it is gone), by the key of its object."""
        before = self._slices.get(key)
        _put(self._slices, key, found)
        if before is not None:
            self._stale.add(before.pool)
            del self._by_pool[before.pool][key]
            if not self._by_pool[before.pool]:
                del self._by_pool[before.pool]
        if found is not None:
            self._stale.add(found.pool)
            self._by_pool.setdefault(found.pool, {})[key] = found

    def observe_template(self, key: str, found: ClaimSpec | None) -> None:
        """Keeps a ResourceClaimTemplate (namespace/name) as it is now (None: it is gone)."""
        _put(self._templates, key, found)

    def observe_class(self, key: str, found: tuple[str, ...] | None) -> None:
        """Keeps the expressions of a DeviceClass as they are now (None: it is gone)."""
        _put(self._classes, key, found)

    def observe_claim(self, key: str, found: Claim | None) -> None:
        """Keeps a ResourceClaim (`key`: namespace/name) as it is now (None: it is gone), and counts its devices as taken; those that it had
        before and has not now are free again, unless another claim has them."""
        before = self._claims.get(key)
        if before is not None:
            self._taken.subtract(before.devices)
            for device in before.devices:
                if self._taken[device] <= 0:
                    del self._taken[device]
        if found is not None:
            self._taken.update(found.devices)
        _put(self._claims, key, found)
        for pod in before.counted_for if before is not None else ():
            self._by_pod[pod].pop(key)
            if not self._by_pod[pod]:
                del self._by_pod[pod]
        if found is not None:
            for pod in found.counted_for:
                self._by_pod.setdefault(pod, {})[key] = found

    def record_claims(self, pod: str, kept: PlacedClaims | None) -> None:
        """Keeps what a pod, by uid, claims where it is placed, instead of what was kept before. Nothing is kept of one without claims, or
        for None: it is not placed, or is gone."""
        _put(self.kept, pod, kept if kept is not None and kept.claims else None)

    # --- what is there ----------------------------------------------------------------------------------

    @property
    def pools(self) -> Mapping[PoolId, Pool]:
        """Returns all pools by id, in the order of driver and name, each with the slices of its newest generation alone. The map is kept
        until a slice is observed, and must not be changed."""
        if self._stale:
            pools = dict(self._pools)
            for pool in self._stale:
                slices = self._by_pool.get(pool)
                if slices is None:
                    pools.pop(pool, None)
                else:
                    pools[pool] = _find_newest(pool, [slices[key] for key in sorted(slices)])
            is_sorted = pools.keys() <= self._pools.keys()
            self._pools = pools if is_sorted else {pool: pools[pool] for pool in sorted(pools)}
            self._stale.clear()
        return self._pools

    def is_free(self, device: DeviceId) -> bool:
        """Whether no observed claim has the device; those that pods are placed for and that are not allocated yet do not count
        (`list_promised`)."""
        return device not in self._taken

    def find_claim(self, namespace: str, name: str) -> Claim | None:
        """Returns the ResourceClaim of this name, as it was last observed; None where it is not there."""
        return self._claims.get(f"{namespace}/{name}")

    def find_template(self, namespace: str, name: str) -> ClaimSpec | None:
        """Returns what claims made from a ResourceClaimTemplate ask for, as it was last observed; None where it is not there."""
        return self._templates.get(f"{namespace}/{name}")

    def find_class(self, name: str) -> tuple[str, ...] | None:
        """Returns the expressions of a DeviceClass, as they were last observed; None where it is not there."""
        return self._classes.get(name)

    def list_claims_of(self, pod: PodId) -> list[Claim]:
        """Returns the claims that a pod controls or holds (`Claim.owner`, `Claim.holder`)."""
        return list(self._by_pod.get(pod, {}).values())

    def list_pods_with_devices(self, pools: Set[PoolId]) -> list[str]:
        """Returns the pods (namespace/name) for which a claim counts that has a device of some pools."""
        return [pod.key for pod, claims in self._by_pod.items() if any(d.of_pool in pools for one in claims.values() for d in one.devices)]

    def compute_template_need(self, namespace: str, template: str) -> Need:
        """Returns the number of devices by matcher that a claim made from a template asks for.

        Raises NotServed where the template or a class is not there, or it asks for something that is not served or for more than
        `MOST_KINDS` unlike devices.
        """
        spec = self.find_template(namespace, template)
        if spec is None:
            raise NotServed(f"there is no ResourceClaimTemplate {template}")
        return self._compute_need(spec, f"ResourceClaimTemplate {template}: spec.spec")

    def check_kinds(self, namespace: str, templates: Sequence[str]) -> None:
        """Raises NotServed where a template of a group cannot be served, or all of them together ask for more than `MOST_KINDS` unlike
        devices."""
        kinds = {matcher for template in templates for matcher in self.compute_template_need(namespace, template)}
        if len(kinds) > MOST_KINDS:
            named = f"ResourceClaimTemplates {', '.join(templates)} together ask"
            raise NotServed(f"{named} for {len(kinds)} unlike devices; at most {MOST_KINDS} are served")

    def compute_claim_need(self, claim: Claim) -> Need:
        """Returns the number of devices by matcher that a claim asks for.

        Raises NotServed where a class is not there, or the claim asks for something that is not served or for more than `MOST_KINDS` unlike
        devices.
        """
        return self._compute_need(claim.spec, f"ResourceClaim {claim.key.partition('/')[2]}: spec")

    def is_equivalent(self, claim: Claim, namespace: str, template: str) -> bool:
        """Returns whether a claim asks for exactly what a template does: the same requests in the same order, or the same problem. False
        where there is no such template."""
        return claim.spec == self.find_template(namespace, template)

    def list_unevaluated(self, namespace: str, templates: Iterable[str]) -> Iterator[tuple[ResourceSlice, list[Matcher]]]:
        """Yields each slice of all pools, with the matchers that a decision will need for its devices and that have no answer yet, perhaps
        none.

        These are the selectors of `templates`, and of the devices that other pods are promised. Left out are templates that cannot be
        served, and all of them where they ask for more than `MOST_KINDS` unlike devices together.
        """
        matchers = {matcher for _, need in self.list_promised() for matcher in need}
        asked = set[Matcher]()
        for template in templates:
            with contextlib.suppress(NotServed):  # the decision reports it
                asked |= self.compute_template_need(namespace, template).keys()
        if len(asked) <= MOST_KINDS:  # else the decision refuses them all
            matchers |= asked
        for pool in tuple(self.pools.values()):
            yield from ((one, one.find_missing(matchers)) for one in pool.slices)

    def _compute_need(self, spec: ClaimSpec, where: str) -> Need:
        if spec.problem:
            raise NotServed(f"{where}.{spec.problem} is not served")
        need: Counter[Matcher] = Counter()
        for request in spec.requests:
            if request.admin:
                raise NotServed(f"{where}.{request.admin} is not served")
            of_class = self.find_class(request.device_class)
            if of_class is None:
                raise NotServed(f"{where}: there is no DeviceClass {request.device_class}")
            need[Matcher((*of_class, *request.expressions), request.tolerations, request.capacity)] += request.count
        if len(need) > MOST_KINDS:
            raise NotServed(f"{where} asks for {len(need)} unlike devices; at most {MOST_KINDS} are served")
        return need

    def list_promised(self) -> Iterator[tuple[str, Need]]:
        """Yields node and need of each claim of placed pods that is not allocated yet, in the order of the pods' uids. A claim for several
        pods comes once, with the node of the first.

        Left out, for kube-scheduler alone to decide on, are claims that cannot be served. So are those with which all claims so far would
        ask for more than `MOST_PROMISED` unlike devices (matchers) together.
        """
        seen: set[str] = set()
        promised: set[Matcher] = set()
        for pod in sorted(self.kept):
            kept = self.kept[pod]
            for one in kept.claims:
                claim = self.find_claim(kept.namespace, one.name) if one.name else None
                if claim is not None and (claim.is_allocated or claim.key in seen):
                    continue
                try:
                    need = self.compute_claim_need(claim) if claim is not None else self.compute_template_need(kept.namespace, one.template)
                except NotServed:
                    continue
                if len(promised | need.keys()) > MOST_PROMISED:
                    continue
                promised |= need.keys()
                yield kept.node, need
                if claim is not None:
                    seen.add(claim.key)


def _put(store: dict[str, Value], key: str, found: Value | None) -> None:
    if found is None:
        store.pop(key, None)
    else:
        store[key] = found


def _find_newest(pool: PoolId, slices: Sequence[ResourceSlice]) -> Pool:
    generation = max(one.generation for one in slices)
    newest = tuple(one for one in slices if one.generation == generation)
    names = Counter(device.name for one in newest for device in one.devices)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        return Pool(pool, newest, f"has device {twice[0]} twice")
    wanted = newest[0].of_slices
    return Pool(pool, newest, "" if len(newest) == wanted else f"is not complete: {len(newest)} of {wanted} ResourceSlices are there")

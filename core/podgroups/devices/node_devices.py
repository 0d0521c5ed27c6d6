"""The devices that each node has, by DeviceClass: what queued pods may claim there.

A node offers the devices of its own slices, and those of slices that it shares with other nodes. How many of the latter others take is
kept by quota, not here. Devices that are tainted, or that kube-scheduler would not allocate, are not offered. A device with fields that
are not understood may serve any number of pods: a node that reaches one is not bounded by its class, and the others are.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from core.model.claimed_devices import UNBOUNDED_DEVICES, name_devices
from core.placement.topology.node_eligibility import InvalidSelector, is_node_match
from core.podgroups.devices.claims import Claim, Json, Matcher, NotServed, PoolId, ResourceSlice
from core.podgroups.devices.inventory import Inventory

_Shared = tuple[Json | None, Counter[str]]  # a node selector, None for all nodes, and devices by class
ALL_NODES = ""
"""As the name of a node: any."""


class NodeDevices:
    """Devices of the `classes` that quota counts, counted by pool."""

    def __init__(self, inventory: Inventory, classes: Collection[str]) -> None:
        self._inventory, self._classes = inventory, tuple(classes)
        self._matchers: dict[str, Matcher] = {}  # by class
        self._own: dict[str, dict[PoolId, Counter[str]]] = {}  # by node
        self._shared: dict[PoolId, list[_Shared]] = {}
        self._nodes: dict[PoolId, set[str]] = {}  # that have devices of their own in a pool
        # By class, each with the pools that it is so for.
        self._problems: dict[str, dict[PoolId, str]] = {}  # why its devices cannot be counted
        self._unjudged: dict[str, set[PoolId]] = {}  # some of its devices have fields that are not understood
        self._offering: dict[str, set[PoolId]] = {}
        self._taken_by: dict[PoolId, Mapping[str, tuple[str, ...]]] = {}  # by device: the classes that take it; also of tainted devices

    def list_missing(self, pools: Iterable[PoolId]) -> Iterator[tuple[ResourceSlice, list[Matcher]]]:
        """Yields each slice of some pools with the selectors of classes that have no answer yet for its devices, perhaps none. Pools that
        are not there are passed over."""
        for pool in pools:
            found = self._inventory.pools.get(pool)
            for one in found.slices if found is not None else ():
                yield one, one.find_missing(self._matchers.values())

    def read_classes(self) -> None:
        """Reads the selectors of all classes, by which devices are counted from then on. A class that is not there has no devices."""
        found = ((name, self._inventory.find_class(name)) for name in self._classes)
        self._matchers = {name: Matcher(expressions) for name, expressions in found if expressions is not None}

    def count_pool(self, pool_id: PoolId) -> set[str]:
        """Counts the devices of a pool anew, which may be gone. Returns the names of nodes that may offer other numbers now, with
        ALL_NODES among them if these are not known. Evaluates what has no answer yet (`list_missing`). Devices for which a class cannot be
        evaluated are not offered."""
        before, shared_before = self._nodes.pop(pool_id, set()), self._shared.pop(pool_id, None)
        was = {node: self._own[node].pop(pool_id) for node in before}
        for node in before:
            if not self._own[node]:
                del self._own[node]
        for device_class in self._classes:
            self._problems.setdefault(device_class, {}).pop(pool_id, None)
            self._unjudged.setdefault(device_class, set()).discard(pool_id)
            self._offering.setdefault(device_class, set()).discard(pool_id)
        pool = self._inventory.pools.get(pool_id)
        own: dict[str, Counter[str]] = {}
        shared: list[_Shared] = []
        taken_by: dict[str, tuple[str, ...]] = {}
        for one in pool.slices if pool is not None else ():
            counts = self._count_slice(one, taken_by)
            if counts and pool is not None and not pool.problem:
                _add_slice(one, counts, own, shared)
        self._store(pool_id, own, shared, taken_by)
        changed = {node for node in was.keys() | own.keys() if was.get(node) != own.get(node)}
        return changed | ({ALL_NODES} if (shared_before or []) != shared else set())

    def _store(self, pool: PoolId, own: Mapping[str, Counter[str]], shared: list[_Shared], taken_by: Mapping[str, tuple[str, ...]]) -> None:
        for node, counts in own.items():
            self._own.setdefault(node, {})[pool] = counts
        self._taken_by.pop(pool, None)
        if own:
            self._nodes[pool] = set(own)
        if shared:
            self._shared[pool] = shared
        if taken_by:
            self._taken_by[pool] = taken_by

    def _count_slice(self, one: ResourceSlice, taken_by: dict[str, tuple[str, ...]]) -> Counter[str]:
        """Devices by class that pods may get, and in `taken_by` the classes of each device."""
        counts: Counter[str] = Counter()
        for device_class, matcher in self._matchers.items():
            try:
                answers = one.judge(matcher)
            except NotServed as error:
                self._problems[device_class][one.pool] = str(error)
                continue
            for device, answer in zip(one.devices, answers, strict=True):
                is_unknown = bool(device.unknown) and answer == device.unknown and not device.taints
                if is_unknown:
                    self._unjudged[device_class].add(one.pool)
                if answer == "" or is_unknown:
                    self._offering[device_class].add(one.pool)
                    counts[name_devices(device_class)] += UNBOUNDED_DEVICES if is_unknown else 1
                if answer is not None:
                    known = taken_by.get(device.name, ())
                    taken_by[device.name] = (*known, name_devices(device_class)) if answer == "" else known
        return counts

    def explain_none(self, device_class: str) -> str:
        """Returns why no node offers devices of a class, where it cannot be evaluated; empty where one does, or there is no such reason."""
        problems = self._problems.get(device_class)
        return problems[min(problems)] if problems and not self._offering[device_class] else ""

    def is_judged(self, device_class: str) -> bool:
        """Returns whether all devices of a class have only fields that are understood, so that all nodes are compared by them."""
        return not self._unjudged.get(device_class)

    def list_limits(self) -> list[tuple[str, bool]]:
        """Returns `explain_none` and `is_judged` of each class, in their order."""
        return [(self.explain_none(name), self.is_judged(name)) for name in self._classes]

    def count_offered(self, node: str, labels: Mapping[str, str]) -> Mapping[str, int]:
        """Returns the number of devices in reach of a node with these labels, by the name of their class (`name_devices`), whether they are
        in use or not. A device that several classes take counts in each. It is at least `UNBOUNDED_DEVICES` where not all devices are
        understood."""
        found: Counter[str] = Counter()
        for counts in self._own.get(node, {}).values():
            found.update(counts)
        for entries in self._shared.values():
            for selector, counts in entries:
                if _is_in_reach(node, labels, selector):
                    found.update(counts)
        return found

    def count_held(self, claims: Iterable[Claim]) -> Mapping[str, int]:
        """Returns the number of devices that are allocated to some claims, by the name of each class that takes them. Devices that no
        counted pool has are counted by the requests of their claim."""
        found: Counter[str] = Counter()
        for claim in claims:
            known = [self._taken_by.get(device.of_pool, {}).get(device.name) for device in claim.devices]
            if any(one is None for one in known):
                asked = ((request.device_class, request.count) for request in claim.spec.requests if not request.admin)
                found.update({name_devices(name): min(count, len(known)) for name, count in asked if name in self._classes})
            else:
                found.update(name for names in known if names is not None for name in names)
        return found

    def list_pools(self) -> list[PoolId]:
        """Returns the pools that are there, and those that were counted and are gone, in the order of their ids."""
        return sorted(self._inventory.pools.keys() | self._taken_by.keys() | self._shared.keys() | self._nodes.keys())


def _add_slice(one: ResourceSlice, counts: Counter[str], own: dict[str, Counter[str]], shared: list[_Shared]) -> None:
    """Adds the devices of a slice to those of its node, or of the nodes that reach it."""
    if one.node:
        own.setdefault(one.node, Counter()).update(counts)
    elif (alike := next((found for selector, found in shared if selector == one.selector), None)) is not None:
        alike.update(counts)
    else:
        shared.append((one.selector, counts))


def _is_in_reach(node: str, labels: Mapping[str, str], selector: Json | None) -> bool:
    if selector is None:
        return True
    try:
        required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
        return is_node_match(node, labels, {}, required)
    except InvalidSelector:
        return False

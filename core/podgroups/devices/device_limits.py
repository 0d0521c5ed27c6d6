"""What a placement's pools have for a group: devices in reach of its nodes, less what others have or will have."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from core.placement.changes import Amount
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.node_eligibility import match_term
from core.placement.topology.tree import Flags, Indices, TopologyTree
from core.podgroups.devices.claims import Claim, DeviceId, Json, Matcher, NotServed, PodClaim, ResourceSlice
from core.podgroups.devices.inventory import Inventory, Need, Pool
from core.podgroups.devices.node_limits import MOST_KINDS, Rations, SharedCell
from core.podgroups.framework import Limits
from core.podgroups.group import PodGroupInfo

_Reach = tuple[str, str]  # a node, a selector as text, or neither: all nodes
_Cell = tuple[_Reach, int]  # and kinds, one bit each


@dataclass(frozen=True, slots=True)
class DesiredDevices:
    """Devices that a group wants from one pool: for each of its pods that has a claim made from `template`, or once by `claim`, for all."""

    template: str
    need: Need
    claim: Claim | None = None

    @property
    def is_allocated(self) -> bool:
        """Returns whether there is one claim for all pods which has its devices already, so that nothing is to be looked for. False for
        claims made from the template for each pod."""
        return self.claim is not None and self.claim.is_allocated

    def count_per_pod(self, claims: Sequence[PodClaim]) -> int:
        """Returns how many of the `claims` of a pod are made from the template; 0 where one claim is for all pods."""
        return 0 if self.claim is not None else sum(one.template == self.template for one in claims)

    def count_claims(self, group: PodGroupInfo) -> int:
        """Returns how many claims made from the template are to be allocated for all pods of a group that have no place; 1 where one claim
        is for all pods."""
        if self.claim is not None:
            return 1
        return sum(pods.count * self.count_per_pod(claims) for pods, claims in zip(group.pod_sets, group.claims, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A pool, and nodes in reach of its devices. `is_for_all`: each of these nodes reaches every device that is chosen."""

    name: str
    pool: Pool
    reach: Flags
    is_for_all: bool = False


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Rations over the nodes of a placement, and behind them others on which pods are placed that will have devices of the same pools.

    `asked`: by template what all pods need together. `for_all`: what is wanted once and is not there.
    """

    rations: Rations
    nodes: int
    asked: tuple[tuple[str, tuple[int, ...]], ...] = ()
    for_all: tuple[Amount, ...] = ()

    def limit_pods(self, pod_set: int, per_node: Indices) -> Indices:
        """Returns a copy of `per_node`, lowered so far that all these pods together have devices within reach; see `Limits.limit_pods`. All
        are 0 where devices that are wanted once, for all pods, are not there."""
        if self.for_all:
            return np.zeros_like(per_node)
        return self.rations.limit_pods(pod_set, self._pad(per_node))[: self.nodes]

    def compute_remaining(self, pod_set: int, counts: Indices) -> Limits:
        """Returns new limits without the devices that these pods take; see `Limits.compute_remaining`. What is wanted once, for all pods,
        stays as it is."""
        return DeviceLimits(self.rations.compute_remaining(pod_set, self._pad(counts)), self.nodes, self.asked, self.for_all)

    def list_lacking(self, group: PodGroupInfo) -> tuple[Amount, ...]:
        """Returns the numbers of devices that the placement lacks, each for a claim template; see `Limits.list_lacking`. Those for all pods
        come last; the `group` is not looked at."""
        short = [(template, self.rations.count_missing(needs, self.nodes)) for template, needs in self.asked]
        return (*(_build_amount(template, lacks) for template, lacks in short if lacks), *self.for_all)

    def _pad(self, per_node: Indices) -> Indices:
        others = self.rations.own.shape[1] - self.nodes
        return np.concatenate([per_node, np.zeros(others, dtype=np.int64)]) if others else per_node


def _build_amount(template: str, count: int) -> Amount:
    return Amount(f"{'device' if count == 1 else 'devices'} of claim template {template}", count)


class Cells:
    """Free devices of pools by the nodes that reach them; remembered for one decision."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self._of_pool: dict[tuple[object, tuple[Matcher, ...]], Counter[_Cell]] = {}
        self._reach: dict[_Reach, Flags] = {}
        self._masks: tuple[DesiredDevices, dict[_Reach, Flags]] | None = None

    @cached_property
    def promised(self) -> tuple[tuple[str, Need], ...]:
        """Returns node and need of each claim of placed pods that is not allocated yet, as `Inventory.list_promised` has them. They are
        read once and kept."""
        return tuple(self.inventory.list_promised())

    def count_pool_cells(self, pool: Pool, matchers: Sequence[Matcher]) -> Counter[_Cell]:
        """Returns the number of free devices of a pool by reach (a node, a selector as text, or neither: all nodes) and by the matchers
        that take them, one bit each, the first the lowest. Devices that none of them takes do not count. The counter is kept, and must not
        be changed.

        Raises NotServed where an expression cannot be evaluated.
        """
        key = pool.id, tuple(matchers)
        if key not in self._of_pool:
            found: Counter[_Cell] = Counter()
            for one in pool.slices:
                reach = _build_reach_key(one)
                answers = [one.judge(matcher) for matcher in matchers]
                for at, device in enumerate(one.devices):
                    kinds = sum(1 << number for number, of_matcher in enumerate(answers) if of_matcher[at] == "")
                    if kinds and self.inventory.is_free(DeviceId(*pool.id, device.name)):
                        found[reach, kinds] += 1
            self._of_pool[key] = found
        return self._of_pool[key]

    def find_nodes(self, tree: TopologyTree, selector: Json | None) -> Flags:
        """Returns a new array with a flag per node of the tree: whether a node selector (JSON) takes it by any of its terms; all where
        there is none.

        Raises InvalidSelector where an expression cannot be evaluated.
        """
        if selector is None:
            return np.ones(len(tree), dtype=bool)
        flags = np.zeros(len(tree), dtype=bool)
        for term in selector.get("nodeSelectorTerms") or ():
            flags |= match_term(tree, term)
        return flags

    def find_reach(self, tree: TopologyTree, one: ResourceSlice) -> Flags:
        """Returns a flag per node of the tree: whether it is in reach of a slice's devices. The array is kept, and must not be changed.

        Raises InvalidSelector where an expression of the slice's selector cannot be evaluated.
        """
        key = _build_reach_key(one)
        if key not in self._reach:
            if one.node:
                self._reach[key] = np.zeros(len(tree), dtype=bool)
                if one.node in tree.index:
                    self._reach[key][tree.index[one.node]] = True
            else:
                self._reach[key] = self.find_nodes(tree, one.selector)
        return self._reach[key]

    def list_sources(self, tree: TopologyTree, pool: Pool, wanted: DesiredDevices) -> Iterator[Source]:
        """Yields one source: all nodes that reach wanted devices of the pool, which must have some. For a claim for all pods there is one
        for each node, and each selector, that slices with such devices have. Of a selector those nodes are left out that reach wanted
        devices, too, which not all of its nodes reach. Each of them with devices of its own in another pool is a source as well. Raises
        NotServed or InvalidSelector where an expression cannot be evaluated."""
        having = {_build_reach_key(one): one for one in pool.slices if _has_any(one, wanted)}
        masks = {key: self.find_reach(tree, having[key]) for key in sorted(having)}
        if wanted.claim is None:
            yield Source(f"pool {pool.id}", pool, np.logical_or.reduce(list(masks.values())))
            return
        for number, (key, mask) in enumerate(masks.items(), start=1):
            part = "" if len(masks) == 1 else f" of node {key[0]}" if key[0] else f" part {number}"
            yield Source(f"pool {pool.id}{part}", pool, mask if key[0] else mask & ~self._narrow(tree, wanted, mask), is_for_all=True)
        # A node with devices of its own in another pool is no part of what is shared, but all pods may be on it alone.
        shared = [mask for key, mask in masks.items() if not key[0]]
        for key, mask in self._find_having(tree, wanted).items():
            if key[0] and key not in masks and any((mask & other).any() for other in shared):
                yield Source(f"pool {pool.id} of node {key[0]}", pool, mask, is_for_all=True)

    def _narrow(self, tree: TopologyTree, wanted: DesiredDevices, mask: Flags) -> Flags:
        """Nodes that reach other such devices, too, which not all of some nodes do: kube-scheduler may take those."""
        found: Flags = np.zeros_like(mask)
        for other in self._find_having(tree, wanted).values():
            if not (other >= mask).all():
                found |= other
        return found

    def _find_having(self, tree: TopologyTree, wanted: DesiredDevices) -> dict[_Reach, Flags]:
        """Nodes in reach of devices that are wanted, of all pools, by reach."""
        if self._masks is None or self._masks[0] is not wanted:
            having = (one for pool in self.inventory.pools.values() for one in pool.slices if _has_any(one, wanted))
            self._masks = wanted, {_build_reach_key(one): self.find_reach(tree, one) for one in having}
        return self._masks[1]


def _has_any(one: ResourceSlice, wanted: DesiredDevices) -> bool:
    return any("" in one.judge(matcher) for matcher in wanted.need)


def _build_reach_key(one: ResourceSlice) -> _Reach:
    return one.node, "" if one.selector is None else repr(one.selector)


def build_limits(
    view: FreeCapacity, group: PodGroupInfo, nodes: Indices, wanted: Sequence[DesiredDevices], sources: Sequence[Source], cells: Cells
) -> DeviceLimits:
    """Returns what a placement (`nodes`: places in the tree) has of the devices that are wanted, each from the source at its position, less
    what placed pods will have.

    Raises NotServed where they are of more than `MOST_KINDS` kinds, or an expression cannot be evaluated; InvalidSelector where a slice's
    selector cannot.
    """
    tree = view.tree
    kinds = list(dict.fromkeys((source.pool.id, matcher) for one, source in zip(wanted, sources, strict=True) for matcher in one.need))
    if len(kinds) > MOST_KINDS:
        raise NotServed(f"claims of its templates ask for {len(kinds)} unlike devices; at most {MOST_KINDS} are served")
    pools = {source.pool.id: source.pool for source in sources}
    supply = _Supply(tree, nodes, kinds, cells)
    for pool in pools.values():
        supply.reserve_pool(pool)
    for pool in pools.values():
        supply.add(pool)
    needs = [[0] * len(kinds) for _ in group.pod_sets]
    asked_of_all: list[tuple[str, tuple[int, ...]]] = []
    for_all: list[Amount] = []
    for one, source in zip(wanted, sources, strict=True):
        asked = [one.need.get(matcher, 0) if pool == source.pool.id else 0 for pool, matcher in kinds]
        for number, claims in enumerate(group.claims):
            needs[number] = [has + count * one.count_per_pod(claims) for has, count in zip(needs[number], asked, strict=True)]
        of_all = tuple(count * one.count_claims(group) for count in asked)
        if not source.is_for_all:
            asked_of_all.append((one.template, of_all))
        elif lacks := supply.build_rations_for_all(nodes).count_missing(of_all, len(nodes)):
            for_all.append(_build_amount(one.template, lacks))
    rations = replace(supply.build_rations(needs), budget=view.budget)
    return DeviceLimits(rations, len(nodes), tuple(asked_of_all), tuple(for_all))


@dataclass(slots=True)
class _Supply:
    """Cells of some pools, over the nodes of a placement and the other nodes with pods that are promised devices."""

    tree: TopologyTree
    nodes: Indices
    kinds: Sequence[tuple[object, Matcher]]
    cells: Cells
    columns: dict[int, int] = field(default_factory=dict)  # by place of a node in the tree
    promised: Counter[tuple[int, int]] = field(default_factory=Counter)  # by kind and column
    own: Counter[tuple[int, int]] = field(default_factory=Counter)  # by kinds and column
    shared: Counter[tuple[int, str]] = field(default_factory=Counter)
    masks: dict[str, Flags] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = {node: column for column, node in enumerate(self.nodes.tolist())}

    def reserve_pool(self, pool: Pool) -> None:
        """Counts what pods will have that are placed: of the kind that they ask for, or of all that they may take some devices of."""
        for node, need in self.cells.promised:
            at = self.tree.index.get(node, -1)
            if at < 0 or not any(self.cells.find_reach(self.tree, one)[at] for one in pool.slices):
                continue
            for matcher, count in need.items():
                for kind in self._list_kinds_like(pool, matcher):
                    self.promised[kind, self.columns.setdefault(at, len(self.columns))] += count

    def _list_kinds_like(self, pool: Pool, asked: Matcher) -> list[int]:
        mine = {matcher: kind for kind, (of_pool, matcher) in enumerate(self.kinds) if of_pool == pool.id}
        if asked in mine:
            return [mine[asked]]
        try:
            return [
                kind
                for matcher, kind in mine.items()
                if any(kinds == 3 for _, kinds in self.cells.count_pool_cells(pool, (matcher, asked)))
            ]
        except NotServed:
            return []  # kube-scheduler allocates no device of this pool by an expression that fails: it is of another group

    def add(self, pool: Pool) -> None:
        """Counts its free devices."""
        mine = [(kind, matcher) for kind, (of_pool, matcher) in enumerate(self.kinds) if of_pool == pool.id]
        slices = {_build_reach_key(one): one for one in pool.slices}
        for (reach, bits), count in self.cells.count_pool_cells(pool, [matcher for _, matcher in mine]).items():
            kinds = sum(1 << kind for number, (kind, _) in enumerate(mine) if bits >> number & 1)
            mask = self.cells.find_reach(self.tree, slices[reach])
            if reach[0]:
                column = self.columns.get(self.tree.index.get(reach[0], -1))
                if column is not None:
                    self.own[kinds, column] += count
            else:
                self.shared[kinds, reach[1]] += count
                self.masks[reach[1]] = mask

    def build_rations(self, needs: Sequence[Sequence[int]]) -> Rations:
        """For pod sets with these needs."""
        at = np.array(list(self.columns), dtype=np.int64)
        shared = [SharedCell(kinds, count, self.masks[text][at]) for (kinds, text), count in sorted(self.shared.items())]
        own = self._build_matrix(self.own, 1 << len(self.kinds))
        return Rations(tuple(map(tuple, needs)), own, tuple(shared), self._build_matrix(self.promised, len(self.kinds)))

    def build_rations_for_all(self, nodes: Indices) -> Rations:
        """Only what each of the placement's nodes reaches."""
        whole = self.build_rations(())
        shared = tuple(cell for cell in whole.shared if cell.reach[: len(nodes)].all())
        return Rations((), whole.own, shared, whole.taken)  # of several nodes none has devices of its own (`_narrow`)

    def _build_matrix(self, counts: Mapping[tuple[int, int], int], rows: int) -> Matrix:
        matrix = np.zeros((rows, len(self.columns)), dtype=np.int64)
        for (row, column), count in counts.items():
            matrix[row, column] = count
        return matrix

"""Quota of ClusterQueues and cohorts as a tree: what is nominal, lent, borrowed and left (Kueue API, ClusterQueue and
Cohort).

Of the quota in its subtree a node keeps what is above its lending limit to itself (it lends all if it has no limit).
The rest is available to its parent, for any queue below the parent. What a node uses beyond what it keeps counts as
used of the parent's, and so on up. A node may use more than the quota of its subtree by its borrowing limit, if its
parent has so much left.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import NamedTuple

FlavorResource = tuple[str, str]  # flavor, resource
Amounts = Mapping[FlavorResource, int]  # canonical
_NONE: Mapping[FlavorResource, "Quota"] = {}


@dataclass(frozen=True, slots=True)
class Quota:
    """Canonical amounts of one resource in one flavor; without a limit all may be borrowed and lent."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaOwner:
    """A ClusterQueue or cohort as far as quota goes; `parent` is a cohort."""

    name: str
    quota: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    parent: str | None = None
    weight: Fraction = Fraction(1)


class Share(NamedTuple):
    """A dominant share (KEP-1714), dimensionless; greater means further beyond the own quota.

    A node that borrows at weight zero has an infinite share: beyond all others. Of two of these the one with the larger
    ratio is further beyond.
    """

    is_infinite: bool
    value: Fraction

    @property
    def is_zero(self) -> bool:
        """Whether the share is 0: the node borrows nothing, or only what its cohort has none of to lend."""
        return not self.is_infinite and not self.value

    @property
    def weighted(self) -> int:
        """The share in thousandths, rounded up, as in `status.fairSharing.weightedShare`; its largest value stands for
        the infinite."""
        return 2**63 - 1 if self.is_infinite else ceil(1000 * self.value)


_NO_QUOTA = Quota(0)
NO_SHARE = Share(False, Fraction(0))


class _Node:
    __slots__ = ("changes", "children", "lendable", "own", "owner", "parent", "root", "subtree", "usage")

    def __init__(self, owner: QuotaOwner) -> None:
        self.owner = owner
        self.parent: _Node | None = None
        self.children: list[_Node] = []
        self.root = self
        self.changes = 0  # counted at the root
        self.usage: dict[FlavorResource, int] = {}
        self.subtree: dict[FlavorResource, int] = {}  # nominal of all below, as far as it is lent
        self.own: dict[FlavorResource, int] = {}  # of `subtree`, what it does not lend
        self.lendable: dict[str, int] = {}  # by resource, what its children could have if nothing were in use; as asked for so far

    def settle(self) -> None:
        """Sums up the subtree; the children's must be settled."""
        self.subtree = {name: quota.nominal for name, quota in self.owner.quota.items()}
        for child in self.children:
            for name, amount in child.subtree.items():
                self.subtree[name] = self.subtree.get(name, 0) + amount - child.own.get(name, 0)
        for name, quota in self.owner.quota.items() if self.parent is not None else ():
            if quota.lending_limit is not None:
                self.own[name] = max(0, self.subtree[name] - quota.lending_limit)

    def copy_below(self, parent: "_Node | None") -> "_Node":
        """The same owner with usage of its own, as a child of a copied parent."""
        copy = _Node(self.owner)
        copy.usage, copy.subtree, copy.own, copy.lendable = dict(self.usage), self.subtree, self.own, self.lendable
        if parent is not None:
            copy.parent, copy.root = parent, parent.root
            parent.children.append(copy)
        return copy

    def add(self, name: FlavorResource, amount: int) -> None:
        node: _Node | None = self
        while node is not None and amount:
            own, before = node.own.get(name, 0), node.usage.get(name, 0)
            after = before + amount
            if after:
                node.usage[name] = after
            else:
                node.usage.pop(name, None)
            amount = max(0, after - own) - max(0, before - own)
            node = node.parent

    def compute_left(self, name: FlavorResource, *, empty: bool = False) -> int:
        """How much more the node may use, borrowed included; `empty`: if nothing were in use."""
        return self._walk_left(name, empty=empty)[-1][1]

    def find_lendable(self, resource: str) -> int:
        """What the children could have of a resource if nothing were in use: computed once for this node and all above it."""
        if resource not in self.lendable:
            # Flavors that only others below the root have can be borrowed, too.
            walks = [self._walk_left(name, empty=True) for name in self.root.subtree if name[1] == resource]
            for steps in zip(*walks, strict=True):
                steps[0][0].lendable[resource] = sum(left for _, left, _ in steps)
        return self.lendable.get(resource, 0)

    def find_limiting(self, name: FlavorResource, *, empty: bool = False) -> "_Node | None":
        """Returns itself or the nearest cohort above it with the borrowing limit that prevents more usage. None where no
        borrowing limit is the reason: there is no more quota."""
        return next((node for node, _, is_limited in reversed(self._walk_left(name, empty=empty)) if is_limited), None)

    def _walk_left(self, name: FlavorResource, *, empty: bool) -> list[tuple["_Node", int, bool]]:
        """Per node from the root down to this one how much more it may use, and whether its borrowing limit is why that is no more.

        Chains of cohorts may be longer than Python's stack.
        """
        path: list[_Node] = [self]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        walked = list[tuple[_Node, int, bool]]()
        for node in reversed(path):
            subtree, used = node.subtree.get(name, 0), 0 if empty else node.usage.get(name, 0)
            if not walked:
                walked.append((node, subtree - used, False))
                continue
            own, beyond, limit = node.own.get(name, 0), walked[-1][1], node.owner.quota.get(name, _NO_QUOTA).borrowing_limit
            may_borrow = beyond if limit is None else subtree - own - max(0, used - own) + limit
            walked.append((node, max(0, own - used) + min(beyond, may_borrow), may_borrow < beyond))
        return walked


class QuotaTree:
    """The usage of quota, and how much each queue may still use. Queues in a cohort that is part of a cycle are on
    their own.

    Cohorts need no object of their own: one that is only named has no quota and no parent.
    """

    def __init__(self, queues: Iterable[QuotaOwner] = (), cohorts: Iterable[QuotaOwner] = ()) -> None:
        self.all_changes = 0  # see `note_change`
        self._cohorts = {owner.name: _Node(owner) for owner in cohorts}
        self._queues = {owner.name: _Node(owner) for owner in queues}
        for node in (*self._queues.values(), *self._cohorts.copy().values()):
            if node.owner.parent is not None:
                node.parent = self._cohorts.setdefault(node.owner.parent, _Node(QuotaOwner(node.owner.parent)))
                node.parent.children.append(node)
        nodes = [*self._queues.values(), *self._cohorts.values()]
        in_trees = {id(node) for root in nodes if root.parent is None for node in _list_below(root)}
        self.circular = frozenset(name for name, node in self._cohorts.items() if id(node) not in in_trees)
        for node in nodes:
            if id(node) not in in_trees:
                node.parent, node.children = None, []
        for root in [node for node in nodes if node.parent is None]:
            for node in reversed(list(_list_below(root))):
                node.root = root
                node.settle()

    def find_cycle(self, cohort: str | None) -> list[str]:
        """Returns the names of the cohorts from this one up until one occurs again, that one twice; empty for None, and if it is neither in
        nor below a cycle."""
        if cohort not in self.circular:
            return []
        path = list[str]()
        while cohort is not None and cohort not in path:
            path.append(cohort)
            cohort = self._cohorts[cohort].owner.parent
        return [*path, cohort] if cohort is not None else path

    def copy_around(self, queue: str) -> "QuotaTree":
        """Returns a copy of the queues and cohorts that share a root cohort with a queue, with usage of their own from now on. It is good
        for questions on them, has no count of changes, and is empty if the queue is unknown."""
        copy, node = QuotaTree(), self._queues.get(queue)
        copies: dict[int, _Node] = {}
        for each in _list_below(node.root) if node is not None else ():
            parent = copies.get(id(each.parent))
            copies[id(each)] = each.copy_below(parent)
            is_queue = self._queues.get(each.owner.name) is each
            (copy._queues if is_queue else copy._cohorts)[each.owner.name] = copies[id(each)]
        return copy

    # --- usage --------------------------------------------------------------------------------------

    def add(self, queue: str, amounts: Amounts, times: int = 1) -> None:
        """Adds `amounts` x `times` to the usage of a queue (gives back if negative), and to that of its cohorts what is beyond its own.

        What was added may be taken away in any order. An unknown queue is ignored.
        """
        node = self._queues.get(queue)
        for name, amount in amounts.items() if node is not None else ():
            assert node is not None
            node.add(name, amount * times)

    def get_usage(self, queue: str) -> Amounts:
        """Returns the canonical amounts that a queue uses, without zeros; empty for an unknown queue. They are not copied: later changes
        show in them."""
        node = self._queues.get(queue)
        return node.usage if node is not None else {}

    def compute_cohort_usage(self, cohort: str) -> Amounts:
        """Returns the canonical amounts that are used of what a cohort's members lend and of its own quota, without zeros; not copied.
        Raises KeyError for an unknown cohort."""
        return self._cohorts[cohort].usage

    def note_change(self, queue: str) -> None:
        """Counts a change in a queue that could help one that it shares a root cohort with. In an unknown queue it counts in `all_changes`
        alone."""
        node = self._queues.get(queue)
        self.all_changes += 1
        if node is not None:
            node.root.changes += 1

    def count_changes(self, queue: str) -> int:
        """Returns how many changes were noted, since the tree was made, of all queues that share a root cohort with a queue. Raises
        KeyError for an unknown one."""
        return self._queues[queue].root.changes

    # --- questions ------------------------------------------------------------------------------------

    def compute_available(self, queue: str, name: FlavorResource) -> int:
        """Returns the canonical amount that a queue may use more now, borrowed included; negative where more is in use than there is.
        Raises KeyError for an unknown queue."""
        return self._queues[queue].compute_left(name)

    def compute_potential(self, queue: str, name: FlavorResource) -> int:
        """Returns the canonical amount that a queue could use, borrowed included, if nothing were in use. Raises KeyError for an unknown
        queue."""
        return self._queues[queue].compute_left(name, empty=True)

    def find_limit(self, queue: str, name: FlavorResource, *, empty: bool = False) -> tuple[str | None, int] | None:
        """Returns the borrowing limit that prevents a queue from using more: the name of the cohort that has it (None: the queue itself),
        and the canonical amount.

        None where no limit is the reason. `empty`: as if no quota were in use. Raises KeyError for an unknown queue.
        """
        node = self._queues[queue].find_limiting(name, empty=empty)
        if node is None:
            return None
        limit = node.owner.quota[name].borrowing_limit or 0
        return None if node is self._queues[queue] else node.owner.name, limit

    def get_nominal(self, queue: str, name: FlavorResource) -> int:
        """Returns the canonical amount of nominal quota that a queue has by itself, what it lends included. Raises KeyError for an unknown
        queue."""
        return self._queues[queue].subtree.get(name, 0)

    def compute_borrowed(self, queue: str, name: FlavorResource) -> int:
        """Returns the canonical amount of its usage that a queue borrows, at least 0. Raises KeyError for an unknown queue."""
        return max(0, self.get_usage(queue).get(name, 0) - self.get_nominal(queue, name))

    def is_using_others(self, queue: str, other: str, name: FlavorResource) -> bool:
        """Whether `other`, and each cohort above it that `queue` is not in, uses more than the quota of its subtree. False if they share no
        cohort, as where `queue` is unknown. Raises KeyError where `other` is."""
        shared, node = set(self.list_ancestors(queue)), self._queues[other]
        while node.parent is not None:
            if node.usage.get(name, 0) <= node.subtree.get(name, 0):
                return False
            if node.parent.owner.name in shared:
                return True
            node = node.parent
        return False

    def find_cohort(self, queue: str) -> str | None:
        """Returns the name of the cohort that a queue borrows from, the one right above it; None if it has none, is unknown, or its cohort
        is in or below a cycle."""
        node = self._queues.get(queue)
        return node.parent.owner.name if node is not None and node.parent is not None else None

    def list_ancestors(self, queue: str) -> list[str]:
        """Returns the names of the cohorts above a queue, nearest first; empty if there are none or the queue is unknown."""
        names, node = [], self._queues[queue].parent if queue in self._queues else None
        while node is not None:
            names.append(node.owner.name)
            node = node.parent
        return names

    def list_relatives(self, queue: str) -> list[str]:
        """Returns the names of the other queues that share a root cohort with a queue, sorted; empty where it is unknown or in no
        cohort."""
        node = self._queues.get(queue)
        if node is None or node.parent is None:
            return []
        names = {below.owner.name for below in _list_below(node.root) if self._queues.get(below.owner.name) is below}
        return sorted(names - {queue})

    def find_meeting_level(self, queue: str, other: str) -> int:
        """Returns how many cohorts are above both queues, less 1. At this index of either's `compute_shares` are the children of their
        lowest common cohort; -1 where they share none, or one is unknown."""
        above = set(self.list_ancestors(queue))
        return sum(1 for cohort in self.list_ancestors(other) if cohort in above) - 1

    def compute_shares(self, queue: str, more: Amounts | None = None) -> list[Share]:
        """Returns the dominant share of a queue, and of each cohort above it but the root, nearest to the root first: the queue's is the
        last.

        A share is the largest ratio, over resources, of what is borrowed in all flavors to what the parent could lend, divided by the
        weight. `more` (canonical amounts of the queue) counts as if it were in use, too (KEP-1714, fair sharing). Empty for a queue that is
        gone or in no cohort.
        """
        shares = list[Share]()
        added = dict(more or {})
        current: _Node | None = self._queues.get(queue)
        while current is not None and current.parent is not None:
            shares.append(_share(current, added))
            added = {
                name: max(0, current.usage.get(name, 0) + amount - current.own.get(name, 0))
                - max(0, current.usage.get(name, 0) - current.own.get(name, 0))
                for name, amount in added.items()
            }
            current = current.parent
        return shares[::-1]

    def compute_cohort_share(self, cohort: str) -> Share:
        """Returns the dominant share of a cohort by its present usage; `NO_SHARE` for one that borrows nothing, a root or an unknown
        one."""
        node = self._cohorts.get(cohort)
        return _share(node, {}) if node is not None and node.parent is not None else NO_SHARE


def _share(node: _Node, more: Amounts) -> Share:
    parent = node.parent
    assert parent is not None
    borrowed: dict[str, int] = {}
    for name in node.usage.keys() | more.keys():
        amount = node.usage.get(name, 0) + more.get(name, 0) - node.subtree.get(name, 0)
        if amount > 0:
            borrowed[name[1]] = borrowed.get(name[1], 0) + amount
    if not borrowed:
        return NO_SHARE
    lendable = {resource: parent.find_lendable(resource) for resource in borrowed}
    ratios = (Fraction(amount, lendable[resource]) for resource, amount in borrowed.items() if lendable[resource] > 0)
    ratio, weight = max(ratios, default=Fraction(0)), node.owner.weight
    return Share(False, ratio / weight) if weight else Share(True, ratio)


def _list_below(root: _Node) -> Iterator[_Node]:
    """A node and all below it, parents first."""
    queue = [root]
    for node in queue:
        yield node
        queue += node.children

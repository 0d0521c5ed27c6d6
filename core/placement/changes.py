"""Changes to a request or to nodes that would make a refused pod set fit, as values and as text.

core/placement/explain/suggested_changes.py finds them and the smallest of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import overload

import numpy as np

from core.model.quantity import format_quantity, show_count
from core.placement.topology.node_eligibility import Taint
from core.placement.topology.tree import Flags, Indices

_SHOWN = 3  # nodes that a sentence names


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of one resource, canonical: what a domain lacks, or what is to be freed on a node."""

    resource: str
    amount: int

    def __str__(self) -> str:
        return f"{format_quantity(self.resource, self.amount)} {self.resource}"


@dataclass(frozen=True, slots=True)
class NodeFix:
    """All changes to one node that are needed: it becomes ready, is uncordoned, loses taints that the pods do not
    tolerate, and has amounts freed on it.

    Taints that Kubernetes itself removes with the cordon or once the node is ready are not named.
    """

    node: str
    ready: bool = False
    uncordon: bool = False
    taints: tuple[Taint, ...] = ()
    free: tuple[Amount, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """Conditions that would have to hold, as text, in the order of the fields: one for each taint, one for all amounts. `{}` stands
        for the names of the nodes. Empty where nothing has to change."""
        steps = ["{} were ready"] if self.ready else []
        steps += ["{} were uncordoned"] if self.uncordon else []
        steps += [f"taint {show_taint(taint)} were tolerated or removed from {{}}" for taint in self.taints]
        steps += [f"{' and '.join(map(str, self.free))} were freed on {{}}"] if self.free else []
        return tuple(steps)


def show_taint(taint: Taint) -> str:
    """Returns a taint as kubectl writes it: `key=value:effect`, or `key:effect` without a value."""
    key, value, effect = taint
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


class NodeFixes(Sequence[NodeFix]):
    """The changes to some nodes, as arrays: there may be thousands of nodes, of which a sentence names three."""

    __slots__ = ("_classes", "_cordoned", "_freed", "_names", "_ready", "_resources", "_taints")

    def __init__(
        self,
        names: Sequence[str],
        ready: Flags,
        cordoned: Flags,
        classes: Indices,
        taints: Mapping[int, tuple[Taint, ...]],
        freed: Mapping[str, Indices],
    ) -> None:
        """Stores, per node, its name, whether it is ready and cordoned now, the class of its taints, and what to free
        of each resource. `taints` are those of a class that exclude the pods."""
        self._names, self._ready, self._cordoned, self._classes, self._taints = names, ready, cordoned, classes, taints
        self._resources = tuple(freed)
        self._freed = np.array(list(freed.values()), dtype=np.int64).reshape(len(freed), len(names))

    @property
    def are_alike(self) -> bool:
        """Whether the same is to be done on every node; there must be a node."""
        same = (array == array[0] for array in (self._ready, self._cordoned, self._classes))
        return all(flags.all() for flags in same) and bool((self._freed == self._freed[:, :1]).all())

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[NodeFix]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> NodeFix: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[NodeFix, ...]: ...
    def __getitem__(self, index: int | slice) -> NodeFix | tuple[NodeFix, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        ready, cordoned = bool(self._ready[index]), bool(self._cordoned[index])
        freed = zip(self._resources, self._freed[:, index].tolist(), strict=True)
        return NodeFix(
            self._names[index],
            not ready,
            cordoned,
            tuple(
                taint for taint in self._taints.get(int(self._classes[index]), ()) if not is_removed_by_kubernetes(taint, ready, cordoned)
            ),
            tuple(Amount(resource, amount) for resource, amount in freed if amount > 0),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __str__(self) -> str:
        """What would have to be so on which nodes; of many the first few are named."""
        shown, more = self[:_SHOWN], len(self) - _SHOWN
        alike = more > 0 and self.are_alike
        todo = sorted(((step, fix.node) for fix in shown for step in fix.steps), key=lambda entry: entry[0])
        parts = []
        for step, entries in groupby(todo, key=lambda entry: entry[0]):
            names = [node for _, node in entries] + ([f"{more} more"] if alike else [])
            each = "each of " if "freed" in step and len(names) > 1 else ""
            parts.append(step.format(each + " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))))
        text = " and ".join(parts)
        return text if more <= 0 or alike else f"{text}, and so on for {show_count(more, 'more node')}"


def is_removed_by_kubernetes(taint: Taint, ready: bool, cordoned: bool) -> bool:
    """Whether Kubernetes itself removes a taint once the node is ready and uncordoned; `ready` and `cordoned` are its state now. Only
    the taints of not-ready, unreachable and unschedulable nodes can be, and only while the node is in that state."""
    key = taint[0]
    of_ready = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return (key == "node.kubernetes.io/unschedulable" and cordoned) or (key in of_ready and not ready)


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """One way to make a pod set fit. What is set is needed together, and none of it can be left out.

    `size` is what ways are compared by: how many levels, pods or nodes it takes.
    """

    size: int
    level: str | None = None  # required at this higher level
    preferred: bool = False  # its level preferred instead of required
    pods: int | None = None  # so many pods instead of what was asked
    slices: str | None = None  # each slice in one domain of this higher level
    nodes: Sequence[NodeFix] = ()

    def __str__(self) -> str:
        parts = [f"in one {self.level}"] if self.level is not None else []
        parts += ["with its level preferred instead of required"] if self.preferred else []
        parts += [f"with each slice in one {self.slices}"] if self.slices is not None else []
        parts += [f"with {show_count(self.pods, 'pod')}"] if self.pods is not None else []
        parts += [f"if {self.nodes}"] if self.nodes else []
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class NoSuchNode:
    """No node has the labels asked for: `asked` names what none has, or all of it where each has some node."""

    asked: tuple[str, ...]

    def __str__(self) -> str:
        return f"No node has {' and '.join(self.asked)}" if len(self.asked) == 1 else f"No node has all of {', '.join(self.asked)}"


@dataclass(frozen=True, slots=True)
class PodTooLarge:
    """One pod is more than any node it may use could ever hold, or hold beside others of it that stay; `node` comes nearest."""

    node: str
    lacks: tuple[Amount, ...]
    is_beside: bool = False

    def __str__(self) -> str:
        beside = "No eligible node could hold one more pod beside those of it that stay"
        text = beside if self.is_beside else "One pod is larger than any eligible node"
        return f"{text}: {self.node} comes nearest and lacks {', '.join(map(str, self.lacks))}"


@dataclass(frozen=True, slots=True)
class TooMany:
    """All nodes together could never hold so many; `most` units would fit if all else were gone."""

    most: int
    wanted: int
    unit: str

    def __str__(self) -> str:
        return f"Can never fit: all its nodes together, usable and empty, hold {self.most} of {show_count(self.wanted, self.unit)}"


Never = NoSuchNode | PodTooLarge | TooMany

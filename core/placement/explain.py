"""Why a pod set got its place, or none: values first, sentences from them.

The values serve condition messages, events, spans, pages and tests alike (DESIGN decision 10).
"""

from dataclasses import dataclass
from enum import Enum

from core.model.quantity import format_quantity

MAX_MESSAGE = 1024  # unbounded condition messages hurt every reader of the object


class Refusal(Enum):
    """Kinds of refusal; all but NOT_FIT say that the request itself cannot be served by this topology."""

    NOT_FIT = "not_fit"
    UNKNOWN_LEVEL = "unknown_level"
    NO_DOMAINS = "no_domains"
    NO_LEVEL = "no_level"
    BAD_SLICE_SIZE = "bad_slice_size"
    UNEVEN_SLICES = "uneven_slices"
    SLICE_LEVEL_ABOVE_PODSET_LEVEL = "slice_level_above_podset_level"
    SLICE_LAYERS_ORDER = "slice_layers_order"
    SLICE_LAYERS_DIVISIBILITY = "slice_layers_divisibility"
    INVALID_SELECTOR = "invalid_selector"
    STALE_ASSIGNMENT = "stale_assignment"  # what a workload holds does not match the nodes that are there


@dataclass(frozen=True, slots=True)
class Shortage:
    """What the best domain lacks of one resource to hold the whole pod set, canonical amount."""

    resource: str
    amount: int

    def __str__(self) -> str:
        return f"{format_quantity(self.resource, self.amount)} {self.resource}"


@dataclass(frozen=True, slots=True)
class LevelFact:
    """The domain of one level that holds most of the pod set: `fit` of `wanted` units."""

    level: str
    domains: int
    best: tuple[str, ...]
    fit: int
    wanted: int
    unit: str
    short: tuple[Shortage, ...] = ()

    def __str__(self) -> str:
        held = f"all {self.wanted}" if self.fit >= self.wanted else f"{self.fit} of {self.wanted}"
        text = f"best {self.level} {'/'.join(self.best)}: {held} {self.unit}(s)"
        if self.short:
            text += f", short of {', '.join(map(str, self.short))}"
        return text


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Nodes that take no pod of the pod set for one reason, with one of them as an example."""

    reason: str
    count: int
    example: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.count}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The facts behind one decision on one pod set."""

    pod_set: str
    levels: tuple[LevelFact, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    total_nodes: int = 0
    largest_fit: int = 0  # the largest pod count that would fit as asked
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotFit:
    """A refusal: what kind, in which numbers, and the facts behind it; `group` names all pod sets refused together."""

    kind: Refusal
    pod_set: str
    detail: str = ""
    fit: int = 0
    wanted: int = 0
    unit: str = "pod"
    explanation: Explanation | None = None
    group: tuple[str, ...] = ()


def refusal_sentence(topology: str, refusal: NotFit) -> str:
    """What the user reads in the condition: the wire contract's sentence first, then what would help."""
    if refusal.kind is not Refusal.NOT_FIT:
        return refusal.detail
    if refusal.fit:
        text = f'topology "{topology}" allows to fit only {refusal.fit} out of {refusal.wanted} {refusal.unit}(s)'
    else:
        text = f'topology "{topology}" doesn\'t allow to fit any of {refusal.wanted} {refusal.unit}(s)'
    explanation = refusal.explanation
    if explanation is None:
        return text
    if explanation.exclusions:
        excluded = ", ".join(map(str, explanation.exclusions))
        text += f". Total nodes: {explanation.total_nodes}; excluded: {excluded}"
    facts = "; ".join(map(str, explanation.levels))
    if facts:
        text += f". {facts[0].upper()}{facts[1:]}"
    for note in explanation.notes:
        text += f". {note}"
    return truncate(text + ".")


def truncate(text: str, limit: int = MAX_MESSAGE) -> str:
    """Text cut to what a condition should carry, visibly."""
    return text if len(text) <= limit else text[: limit - 1] + "…"

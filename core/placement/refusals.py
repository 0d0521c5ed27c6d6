"""Why a pod set got its place, or none: values first, sentences from them.

The values serve condition messages, events, spans, pages and tests alike (decision 10 of docs/decisions/0004).
"""

from dataclasses import dataclass, replace
from enum import Enum

from core.model.quantity import show_count
from core.placement.changes import Amount, Never, SuggestedChange

MAX_MESSAGE = 1024  # unbounded condition messages hurt every reader of the object
_MOST_REASONS = 8  # of exclusion that a sentence names
TOPOLOGY_DOMAIN = "topologyDomain"  # nodes out of the domain in which all must be
_SINGLE = ("NotReady", "unschedulable", "taint")  # reasons that are about single nodes, so that one is worth naming


class RefusalKind(Enum):
    """Kinds of refusal; all but NOT_FIT, NO_SPARES and SPREADING mean that this topology cannot serve the request at all."""

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
    MIXED_GROUP = "mixed_group"
    SPARES_WITHOUT_HOSTNAME = "spares_without_hostname"
    SPREADING_BELOW_PODSET_LEVEL = "spreading_below_podset_level"
    SPREADING = "spreading"  # rules of topology spreading close each domain of the level asked for
    NO_SPARES = "no_spares"  # the pods fit, but not with the nodes that are to be kept free beside them
    STALE_ASSIGNMENT = "stale_assignment"  # what a workload holds does not match the nodes that are there


@dataclass(frozen=True, slots=True)
class LevelFact:
    """The domain of one level that holds most of the pod set: `fit` of `wanted` units; without a level all domains together.

    `short` is what its nodes together lack for the rest, nothing where only whole pods do not fit, or none does at all.
    """

    level: str
    domains: int
    best: tuple[str, ...]
    fit: int
    wanted: int
    unit: str
    short: tuple[Amount, ...] = ()

    def __str__(self) -> str:
        if not self.fit:
            return f"no {self.level or 'domain'} holds any {self.unit}"
        held = ("all " if self.wanted > 1 else "") if self.fit >= self.wanted else f"{self.fit} of "
        where = f"best {self.level} {'/'.join(self.best)}" if self.level else "all domains together"
        text = f"{where}: {held}{show_count(self.wanted, self.unit)}"
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
        example = f" ({'' if self.count == 1 else 'e.g. '}{self.example})" if self.reason.startswith(_SINGLE) else ""
        return f"{self.reason}: {self.count}{example}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The facts behind one refusal of one pod set.

    `changes` would make it fit, each by itself, the smallest first; `never` is the reason why there are none.
    """

    pod_set: str
    levels: tuple[LevelFact, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    total_nodes: int = 0
    largest_fit: int = 0  # the largest pod count that would fit as asked
    notes: tuple[str, ...] = ()
    changes: tuple[SuggestedChange, ...] = ()
    never: Never | None = None


@dataclass(frozen=True, slots=True)
class NotFit:
    """A refusal: its kind, its numbers, and the facts behind it; `group` names all pod sets refused together."""

    kind: RefusalKind
    pod_set: str
    detail: str = ""
    fit: int = 0
    wanted: int = 0
    unit: str = "pod"
    explanation: Explanation | None = None
    group: tuple[str, ...] = ()


def with_note(refusal: NotFit, note: str) -> NotFit:
    """Returns a copy of the refusal with one more note in its explanation. It is the same object where it has no explanation, or that note
    already."""
    explanation = refusal.explanation
    if explanation is None or note in explanation.notes:
        return refusal
    return replace(refusal, explanation=replace(explanation, notes=(*explanation.notes, note)))


def format_refusal(topology: str, refusal: NotFit) -> str:
    """Returns what the user reads in the condition, at most `MAX_MESSAGE` characters; `topology` is its name.

    First comes the wire contract's sentence (for all kinds but NOT_FIT: the refusal's `detail`), then excluded nodes, notes, what would
    help or why nothing does, then facts of levels. Without an explanation it is the sentence alone.
    """
    if refusal.kind is not RefusalKind.NOT_FIT:
        text = refusal.detail
    elif refusal.fit:
        text = f'topology "{topology}" allows to fit only {refusal.fit} out of {refusal.wanted} {refusal.unit}(s)'
    else:
        text = f'topology "{topology}" doesn\'t allow to fit any of {refusal.wanted} {refusal.unit}(s)'
    explanation = refusal.explanation
    if explanation is None:
        return truncate(text)
    if explanation.exclusions and refusal.kind is RefusalKind.NOT_FIT:
        text += f". Total nodes: {explanation.total_nodes}; excluded: {show_exclusions(explanation.exclusions)}"
    parts = list(explanation.notes)
    if explanation.changes:
        parts.append("It would fit " + ", or ".join(map(str, explanation.changes)))
    elif explanation.never is not None:
        parts.append(str(explanation.never))
    facts = "; ".join(map(str, _choose_facts(explanation.levels)))
    if facts:
        parts.append(f"{facts[0].upper()}{facts[1:]}")
    return truncate(". ".join((text, *parts)) + ".")


def show_exclusions(exclusions: tuple[Exclusion, ...]) -> str:
    """Returns reasons with their counts of nodes, separated by commas in the order given; of more than eight only those that exclude most
    (of equal ones the first), and the sum of the others. Empty for none."""
    most = sorted(exclusions, key=lambda exclusion: -exclusion.count)[:_MOST_REASONS]
    rest = sum(exclusion.count for exclusion in exclusions) - sum(exclusion.count for exclusion in most)
    shown = ", ".join(str(exclusion) for exclusion in exclusions if exclusion in most)
    return f"{shown}, other reasons: {rest}" if rest else shown


def _choose_facts(facts: tuple[LevelFact, ...]) -> tuple[LevelFact, ...]:
    """The level asked for, and of those above it the ones that hold more than all before."""
    best, chosen = -1, []
    for fact in facts:
        if fact.fit > best:
            best = fact.fit
            chosen.append(fact)
    return tuple(chosen)


def truncate(text: str, limit: int = MAX_MESSAGE) -> str:
    """Returns the text, cut to `limit` characters; an ellipsis ends one that was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"

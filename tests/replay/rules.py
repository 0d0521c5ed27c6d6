"""Deliberate differences (decision 2 of docs/decisions/0004) of the families whose cases are objects or annotations: one table.

Each is a sentence, a look at the input alone that says whether it touches a case, and what of a difference it explains.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.jobs.annotations import FALSE_VALUES, MAX_LEVEL_NAME, build_topology_request
from core.model.gates import GATES, GROUPED_SLICES, PARTIAL_SLICES, REJECT_FALSE_UNCONSTRAINED, Effect
from core.names import (
    POD_INDEX_OFFSET,
    PODSET_GROUP_NAME,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    TOPOLOGY_ANNOTATIONS,
    UNCONSTRAINED_TOPOLOGY,
)

Pair = tuple[str, str]  # type and field of an error
ELASTIC_JOB = "kueue.x-k8s.io/elastic-job"
_TRAILING_COMMA = re.compile(r",\s*[\]}]")
_NUMERIC_STRING = re.compile(r'"size":\s*"\d+"')


@dataclass(frozen=True)
class Template:
    """What a case says of one pod template: its annotations, how many pods, what its kind assumes of slices without a size."""

    annotations: Mapping[str, str]
    count: int | None = None
    default_slice_size: int | None = None


@dataclass(frozen=True)
class Case:
    """What rules may look at."""

    templates: Sequence[Template]
    gates: Mapping[str, bool]
    annotations: Mapping[str, str]  # of the object itself


@dataclass(frozen=True)
class Rule:
    """`more` and `fewer` are the errors that only we, only the peer have because of it, as patterns of `type field`."""

    sentence: str
    touches: Callable[[Case], bool]
    more: str = "(?!)"
    fewer: str = "(?!)"
    requests: bool = False  # whether topology requests differ, too
    counts: bool = False  # whether counts of pods do

    def explains(self, more: Iterable[Pair], fewer: Iterable[Pair]) -> set[Pair]:
        found = {pair for pair in more if re.search(self.more, " ".join(pair))}
        return found | {pair for pair in fewer if re.search(self.fewer, " ".join(pair))}


def _any(touches: Callable[[Template], bool]) -> Callable[[Case], bool]:
    return lambda case: any(touches(template) for template in case.templates)


def _find_uneven(case: Case) -> bool:
    """Slices that a gate, if it is on, does not allow either: of several layers, or larger than the pod set."""
    return any(_divides_unevenly(template, is_lifted=case.gates.get(PARTIAL_SLICES, False)) for template in case.templates)


def _divides_unevenly(template: Template, *, is_lifted: bool) -> bool:
    """Whatever else is wrong with the level of its slices."""
    named = {SLICE_REQUIRED_TOPOLOGY: "level"} if SLICE_REQUIRED_TOPOLOGY in template.annotations else {}
    request = build_topology_request({**template.annotations, **named}, default_slice_size=template.default_slice_size) or {}
    layers = request.get("podsetSliceRequiredTopologyConstraints") or [{"size": request.get("podSetSliceSize") or 0}]
    size, count = layers[0]["size"], template.count
    is_lifted = is_lifted and len(layers) == 1 and count is not None and size <= count
    return count is not None and size > 0 and count % size != 0 and not is_lifted


def _other_group(case: Case) -> bool:
    """A group that is not a leader and its workers."""
    groups: dict[str, list[int]] = {}
    for template in case.templates:
        if template.annotations.get(PODSET_GROUP_NAME):
            groups.setdefault(template.annotations[PODSET_GROUP_NAME], []).append(template.count or 0)
    return any(len(counts) != 2 or 1 not in counts for counts in groups.values())


def _asks_for_different(case: Case) -> bool:
    """Members of one group that ask for different levels."""
    groups: dict[str, set[tuple[str | None, str | None]]] = {}
    for template in case.templates:
        found = template.annotations
        if found.get(PODSET_GROUP_NAME):
            groups.setdefault(found[PODSET_GROUP_NAME], set()).add((found.get(REQUIRED_TOPOLOGY), found.get(PREFERRED_TOPOLOGY)))
    return any(len(asked) > 1 for asked in groups.values())


def _unreadable(template: Template) -> bool:
    """A value that the peer cannot turn into a request at all."""
    found = template.annotations
    size, flag, layers = found.get(SLICE_SIZE), found.get(UNCONSTRAINED_TOPOLOGY), found.get(SLICE_CONSTRAINTS)
    if size is not None and not re.fullmatch(r"[+-]?[0-9]{1,9}", size):
        return True
    if flag is not None and flag.lower() not in ("1", "t", "true", "0", "f", "false"):
        return True
    if layers is None:
        return False
    try:
        entries = json.loads(layers)
    except ValueError:
        return True
    return (
        not isinstance(entries, list)
        or not 1 <= len(entries) <= 3
        or not all(isinstance(entry, dict) and _is_readable(entry) for entry in entries)
    )


def _is_readable(layer: Mapping[str, Any]) -> bool:
    topology, size = layer.get("topology", ""), layer.get("size", 0)
    return isinstance(topology, str) and isinstance(size, int) and not isinstance(size, bool) and abs(size) < 2**31


def _layers(pattern: re.Pattern[str]) -> Callable[[Case], bool]:
    return _any(lambda template: pattern.search(template.annotations.get(SLICE_CONSTRAINTS, "")) is not None)


_IN_LAYERS = re.escape(f"[{SLICE_CONSTRAINTS}]")
_IN_SIZE = re.escape(f"[{SLICE_SIZE}]")

RULES = (
    Rule(
        "a: what topogate always does no gate switches off (core.model.gates)",
        lambda case: any(not on and name in GATES and GATES[name].effect is Effect.ALWAYS for name, on in case.gates.items()),
        more="",
        fewer=f"FieldValueForbidden .*{_IN_LAYERS}",
        requests=True,
    ),
    Rule("b: the size of a layer may be a numeric string", _layers(_NUMERIC_STRING), more=_IN_LAYERS, fewer=_IN_LAYERS, requests=True),
    Rule(
        "c: slices of a JobSet without a size are its Jobs",
        _any(lambda t: t.default_slice_size is not None and SLICE_REQUIRED_TOPOLOGY in t.annotations and SLICE_SIZE not in t.annotations),
        fewer=f"FieldValueRequired .*{_IN_SIZE}",
        requests=True,
    ),
    Rule(
        "d: a slice size must evenly divide the count, where the peer loses the remainder",
        _find_uneven,
        more=f"FieldValueInvalid .*({_IN_SIZE}|{_IN_LAYERS})$",
    ),
    Rule(
        "g: a group has any number of pod sets of any size",
        _other_group,
        fewer=f"FieldValueInvalid .*{re.escape(f'[{PODSET_GROUP_NAME}]')}",
    ),
    Rule(
        "h: a level that no Workload can hold is refused at creation, where the peer's job waits unexplained",
        _any(
            lambda t: any(len(t.annotations.get(name, "")) > MAX_LEVEL_NAME for name in TOPOLOGY_ANNOTATIONS if name != SLICE_CONSTRAINTS)
        ),
        more="FieldValueInvalid",
    ),
    Rule(
        "h: an offset of indexes is a whole number, and not given beside a group, as in Kueue 0.20; the vectors are of an older release",
        _any(lambda template: POD_INDEX_OFFSET in template.annotations),
        more=f"FieldValue(Invalid|Forbidden) .*{re.escape(f'[{POD_INDEX_OFFSET}]')}",
    ),
    Rule(
        "a comma before a closing bracket is let pass, since the KEP's own example has one",
        _layers(_TRAILING_COMMA),
        more=_IN_LAYERS,
        fewer=_IN_LAYERS,
        requests=True,
    ),
    Rule(
        "the elastic-job annotation of the peer means nothing to us yet, so it forbids and adds nothing",
        lambda case: ELASTIC_JOB in case.annotations,
        fewer="",
        counts=True,
    ),
    Rule(
        "an empty group name is no group",
        _any(lambda template: template.annotations.get(PODSET_GROUP_NAME) == ""),
        fewer=f"FieldValueInvalid .*{re.escape(f'[{PODSET_GROUP_NAME}]')}",
        requests=True,
    ),
    Rule(
        "h: all that the object alone shows is refused with its field, where the peer refuses as a whole what it cannot read",
        _any(_unreadable),
        more="FieldValue",
        fewer="^Error",
    ),
    Rule(
        "h: the pod sets of a group ask for the same in every kind; in those of the training operator the peer does not look",
        _asks_for_different,
        more=r"FieldValueInvalid .*metadata\.annotations$",
    ),
)


OF_GATES = (
    Rule(
        "with the gate TASGroupedPodSetSlicing pod sets of a group have slices, which the vectors' release refuses",
        lambda case: (
            case.gates.get(GROUPED_SLICES, False) and any(_is_sliced(t) and PODSET_GROUP_NAME in t.annotations for t in case.templates)
        ),
        fewer=f"FieldValueForbidden .*{re.escape(f'[{PODSET_GROUP_NAME}]')}",
        requests=True,
    ),
    Rule(
        'with the gate TASRejectFalseUnconstrainedTopology `"false"` is refused, which the vectors\' release accepts',
        lambda case: (
            case.gates.get(REJECT_FALSE_UNCONSTRAINED, False)
            and any(t.annotations.get(UNCONSTRAINED_TOPOLOGY) in FALSE_VALUES for t in case.templates)
        ),
        more=f"FieldValueInvalid .*{re.escape(f'[{UNCONSTRAINED_TOPOLOGY}]')}",
    ),
)
"""What gates of Kueue 0.20 change, which no case of the vectors has."""


def _is_sliced(template: Template) -> bool:
    return any(name in template.annotations for name in (SLICE_REQUIRED_TOPOLOGY, SLICE_SIZE, SLICE_CONSTRAINTS))


def touching(case: Case) -> list[Rule]:
    """Rules that a case is touched by."""
    return [rule for rule in (*RULES, *OF_GATES) if rule.touches(case)]


def unexplained(case: Case, ours: Iterable[Pair], theirs: Iterable[Pair]) -> list[str]:
    """Differences between two sets of errors that no rule explains."""
    mine, other = set(ours), set(theirs)
    more, fewer = mine - other, other - mine
    for rule in touching(case):
        explained = rule.explains(more, fewer)
        more, fewer = more - explained, fewer - explained
    return [f"only we say {' '.join(pair)}" for pair in sorted(more)] + [f"only the peer says {' '.join(pair)}" for pair in sorted(fewer)]


def name_of(rules: Sequence[Rule]) -> str | None:
    return "; ".join(rule.sentence for rule in rules) or None


def annotations_of(obj: Any) -> dict[str, str]:
    return dict(((obj or {}).get("metadata") or {}).get("annotations") or {})

"""The annotation TOPOLOGY_SPREADING: rules by which Workloads are spread over the domains of a topology (KEP-13746 of Kueue).

A value is JSON such as `{"rules": [{"topologyKey": "cloud/zone", "maxShareAllowingPlacement": "0.34"}]}`. As in Kueue the case of keys does
not matter, and unknown keys are not read. A share is exact in thousandths.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from core.model.label_names import is_label_name, is_label_value
from core.model.quantity import InvalidQuantity, parse_exact_quantity
from core.names import JOB_UID_LABEL

MOST_TEXT = 256 * 1024
"""Characters of the annotation: the API server accepts no more in all annotations of an object."""
MOST_RULES, MOST_SELECTORS = 2, 1
MOST_VALUES = 1_000  # of a selector; Kueue has no limit, but each is looked up in each decision
WHOLE = 1000
"""The thousandths of a whole: the unit of a share."""
REQUIRED, PREFERRED = "Required", "Preferred"
_OPERATOR = "In"
_SELECTORS, _RULES = "workloadLabelSelectors", "rules"
_KEY, _SHARE, _MODE = "topologyKey", "maxShareAllowingPlacement", "enforcementMode"
_JUDGED = 8  # selectors, of too many
_SHOWN = 63  # characters of a value
_NO_JSON = "must be a valid JSON object"


@dataclass(frozen=True, slots=True)
class SpreadingRule:
    """A domain of the level `key` with more than `share` thousandths of the Workloads of its parent takes no other one; if the rule is not
    `required` it only comes last."""

    key: str
    share: int
    required: bool = True

    def is_over(self, count: int, whole: int) -> bool:
        """Returns whether a domain with `count` Workloads, of `whole` in its parent, has more than its share; exact."""
        return count * WHOLE > self.share * whole


@dataclass(frozen=True, slots=True)
class Spreading:
    """Up to two rules, and the Workloads that are counted: those with a label `label` that has one of `values`. Without a label they are
    those of the same job; without values there are none."""

    rules: tuple[SpreadingRule, ...]
    label: str = ""
    values: tuple[str, ...] = ()

    def resolve(self, job_uid: str | None) -> "Spreading":
        """Returns a copy with a label: where it names none, JOB_UID_LABEL with the uid of a Workload's job (None: it has none)."""
        if self.label:
            return self
        return replace(self, label=JOB_UID_LABEL, values=(job_uid,) if job_uid else ())


@dataclass(frozen=True, eq=False)
class CountedRule:
    """A rule with the Workloads that are in each domain of its level, and in the parent of each: int64 per domain. `level` is an index in
    the tree of the topology; a domain of the top level has all as its parent."""

    rule: SpreadingRule
    level: int
    counts: npt.NDArray[np.int64]
    wholes: npt.NDArray[np.int64]

    @cached_property
    def over(self) -> npt.NDArray[np.bool_]:
        """A flag per domain of the level: whether it has more than its share."""
        over: npt.NDArray[np.bool_] = self.counts * WHOLE > self.rule.share * self.wholes
        return over


@dataclass(frozen=True, slots=True)
class SpreadingMistake:
    """What is wrong in a value: `type` is the name of a `core.jobs.contract.ErrorType`, `field` the part of the annotation that is meant,
    empty for all of it."""

    type: str
    field: str
    value: Any
    accepted: str


class _Number(str):
    """A number of a JSON text as it is written."""

    __slots__ = ()


class _NotReadable(ValueError):
    """A text that is no JSON object with fields of the right types; the message says where."""


def parse_spreading(text: object) -> tuple[Spreading | None, tuple[SpreadingMistake, ...]]:
    """Returns what a value of the annotation asks for, or None and all its mistakes. Time and number of mistakes are bounded, whatever the
    text."""
    try:
        document = _load(text)
        selectors, rules = _read_entries(document, _SELECTORS), _read_entries(document, _RULES)
        mistakes = [*_check_selectors(selectors), *_check_rules(rules)]
        if mistakes:
            return None, tuple(mistakes)
        label, values = (_read_text(selectors[0], "key", ""), _read_values(selectors[0], "")) if selectors else ("", [])
        found = tuple(_build_rule(i, rule) for i, rule in enumerate(rules))
        return Spreading(found, label, tuple(sorted(set(values)))), ()
    except _NotReadable as error:
        return None, (SpreadingMistake("INVALID", "", None, f"{_NO_JSON}: {error}"),)


def _load(text: object) -> Mapping[str, Any]:
    if not isinstance(text, str):
        raise _NotReadable("it is no text")
    if len(text) > MOST_TEXT:
        raise _NotReadable(f"it has more than {MOST_TEXT} characters")
    try:
        document = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise _NotReadable(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise _NotReadable("it is too deep") from None
    if not isinstance(document, dict):
        raise _NotReadable(f"an object is expected, not {_show(document)}")
    return _lower(document)


def _refuse_constant(name: str) -> Any:
    raise _NotReadable(f"{name} is no number")


def _lower(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in entry.items()}


def _show(value: Any) -> str:
    """A value, cut: how a list or an object goes on does not matter."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = str(value) if isinstance(value, _Number) else json.dumps(value if not isinstance(value, str) else value[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _read_entries(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    entries = document.get(name.lower())
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise _NotReadable(f"{name}: a list is expected, not {_show(entries)}")
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict | None):
            raise _NotReadable(f"{name}[{i}]: an object is expected, not {_show(entry)}")
    return [_lower(entry or {}) for entry in entries]


def _read_text(entry: Mapping[str, Any], name: str, at: str) -> str:
    value = entry.get(name.lower())
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, _Number):
        raise _NotReadable(f"{at}.{name}: text is expected, not {_show(value)}")
    return value


def _read_values(entry: Mapping[str, Any], at: str) -> list[str]:
    values = entry.get("values")
    if not isinstance(values, list | None):
        raise _NotReadable(f"{at}.values: a list of text is expected, not {_show(values)}")
    for value in values or ():
        if not isinstance(value, str) or isinstance(value, _Number):
            raise _NotReadable(f"{at}.values: a list of text is expected; {_show(value)} is none")
    return values or []


def _check_selectors(selectors: Sequence[Mapping[str, Any]]) -> Iterator[SpreadingMistake]:
    if len(selectors) > MOST_SELECTORS:
        yield SpreadingMistake("TOO_MANY", f".{_SELECTORS}", len(selectors), f"at most {MOST_SELECTORS} selector is expected")
    for i, selector in enumerate(selectors[:_JUDGED]):
        at = f"{_SELECTORS}[{i}]"
        label, operator, values = _read_text(selector, "key", at), _read_text(selector, "operator", at), _read_values(selector, at)
        if not is_label_name(label):
            yield SpreadingMistake("INVALID", f".{at}.key", label[:_SHOWN], "the name of a label is expected")
        if operator != _OPERATOR:
            yield SpreadingMistake("NOT_SUPPORTED", f".{at}.operator", operator[:_SHOWN], f'only "{_OPERATOR}" is supported')
        if not values:
            yield SpreadingMistake("REQUIRED", f".{at}.values", None, "at least one value is expected")
        if len(values) > MOST_VALUES:
            yield SpreadingMistake("TOO_MANY", f".{at}.values", len(values), f"at most {MOST_VALUES} values are expected")
        wrong = next((value for value in values if not is_label_value(value)), None)
        if wrong is not None:
            yield SpreadingMistake("INVALID", f".{_SELECTORS}", wrong[:_SHOWN], "the value of a label is expected")


def _check_rules(rules: Sequence[Mapping[str, Any]]) -> Iterator[SpreadingMistake]:
    if not 1 <= len(rules) <= MOST_RULES:
        accepted = f"topology spreading rules must contain between 1 and {MOST_RULES} entries"
        yield SpreadingMistake("INVALID", "", None, f"{accepted}; here are {len(rules)}")
        return
    seen: set[str] = set()
    for i, rule in enumerate(rules):
        at = f"{_RULES}[{i}]"
        key, mode = _read_text(rule, _KEY, at), _read_text(rule, _MODE, at)
        if not is_label_name(key):
            yield SpreadingMistake(
                "INVALID", f".{at}.{_KEY}", key[:_SHOWN], "a node label name such as topology.kubernetes.io/zone is expected"
            )
        elif key in seen:
            yield SpreadingMistake("DUPLICATE", f".{at}.{_KEY}", key, "each rule names another level")
        seen.add(key)
        if not 0 < _read_share(i, rule) < WHOLE:
            value = rule.get(_SHARE.lower())
            yield SpreadingMistake(
                "INVALID", f".{at}.{_SHARE}", value if value is None else value[:_SHOWN], "must be greater than 0 and less than 1"
            )
        if mode not in ("", REQUIRED, PREFERRED):
            yield SpreadingMistake("NOT_SUPPORTED", f".{at}.{_MODE}", mode[:_SHOWN], f'"{REQUIRED}" or "{PREFERRED}" is expected')


def _read_share(number: int, rule: Mapping[str, Any]) -> int:
    """The share in thousandths, rounded up as Kubernetes does, but below a whole if it is; one that is missing is 0."""
    value = rule.get(_SHARE.lower())
    if value is None:
        return 0
    problem = _NotReadable(f"{_RULES}[{number}].{_SHARE}: a share such as 0.34 or 340m is expected, not {_show(value)}")
    if not isinstance(value, str) or value != value.strip():
        raise problem
    try:
        share = parse_exact_quantity(value)
    except InvalidQuantity:
        raise problem from None
    thousandths = -(-share.numerator * WHOLE // share.denominator)
    return min(thousandths, WHOLE - 1) if share < 1 else thousandths


def _build_rule(number: int, rule: Mapping[str, Any]) -> SpreadingRule:
    return SpreadingRule(_read_text(rule, _KEY, ""), _read_share(number, rule), _read_text(rule, _MODE, "") != PREFERRED)


def format_share(share: int) -> str:
    """Returns a share of so many thousandths, less than all, as a decimal number: 0.34 of 340."""
    return f"0.{share:03}".rstrip("0")

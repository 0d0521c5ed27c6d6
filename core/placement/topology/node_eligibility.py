"""Which nodes may take a pod at all: selector, required node affinity, taints.

Labels are read as small integers per node (TopologyTree.codes), so a requirement is judged once per
distinct value and never in a loop over nodes. Semantics are those of kube-scheduler's NodeAffinity
and TaintToleration filters.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from core.placement.topology.tree import Flags, Indices, TopologyTree

Taint = tuple[str, str, str]  # key, value, effect
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
MOST_EXPRESSIONS = 2_000  # of the node affinity of one pod
_REPELLING = ("NoSchedule", "NoExecute")


class InvalidSelector(ValueError):
    """A node affinity that Kubernetes would not accept; the message names the operator."""


def read_taints(node_spec: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Returns the taints of a node spec that keep pods away (NoSchedule, NoExecute), sorted."""
    return tuple(
        sorted((t["key"], t.get("value") or "", t["effect"]) for t in node_spec.get("taints") or () if t.get("effect") in _REPELLING)
    )


class Tolerations:
    """Tolerations of a pod, for many questions: each is a few look-ups, however many there are."""

    def __init__(self, tolerations: Sequence[Mapping[str, Any]]) -> None:
        self._covers: set[tuple[str | None, str | None, str | None]] = set()  # key, value, effect; None stands for any
        for toleration in tolerations:
            operator, value = toleration.get("operator") or "Equal", toleration.get("value") or ""
            if operator in ("Exists", "Equal"):
                of_value = None if operator == "Exists" else value
                self._covers.add((toleration.get("key") or None, of_value, toleration.get("effect") or None))

    def find_untolerated(self, taints: Sequence[Taint]) -> Taint | None:
        """Returns the first taint, in the order given, that no toleration covers; None if all are covered. Tolerations with another
        operator than Exists and Equal cover none."""
        return next((taint for taint in taints if not self._cover(*taint)), None)

    def _cover(self, key: str, value: str, effect: str) -> bool:
        return any((k, v, e) in self._covers for k in (key, None) for v in (value, None) for e in (effect, None))


def find_untolerated(taints: Sequence[Taint], tolerations: Sequence[Mapping[str, Any]]) -> Taint | None:
    """Returns the first taint, in the order given, that no toleration covers; None if all are covered (see `Tolerations`)."""
    return Tolerations(tolerations).find_untolerated(taints) if taints else None


def match_selector(tree: TopologyTree, selector: Mapping[str, str]) -> Flags:
    """Returns a flag per node of the tree: whether it has every label of a nodeSelector with that value; all if it is empty."""
    mask = np.ones(len(tree), dtype=bool)
    for label, wanted in selector.items():
        mask &= _match_expression(tree, {"key": label, "operator": "In", "values": [wanted]})
    return mask


def match_affinity(tree: TopologyTree, affinity: Mapping[str, Any] | None) -> Flags:
    """Returns a flag per node of the tree: whether it meets the required node affinity, all if there is none.

    A node meets it by any of its terms, a term by every expression. Raises InvalidSelector where an expression cannot be evaluated or there
    are too many.
    """
    required = ((affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return np.ones(len(tree), dtype=bool)
    terms = required.get("nodeSelectorTerms") or ()
    check_size(terms)
    mask = np.zeros(len(tree), dtype=bool)
    for term in terms:
        mask |= match_term(tree, term)
    return mask


def check_size(terms: Sequence[Mapping[str, Any]]) -> None:
    """Raises InvalidSelector where node selector terms have more than `MOST_EXPRESSIONS` expressions; each may name many values."""
    count = max(len(terms), sum(len(term.get(field) or ()) for term in terms for field in ("matchExpressions", "matchFields")))
    if count > MOST_EXPRESSIONS:
        most = f"at most {MOST_EXPRESSIONS} are accepted; one expression may name many values"
        raise InvalidSelector(f"node affinity has {count} expressions, {most}")


def match_term(tree: TopologyTree, term: Mapping[str, Any]) -> Flags:
    """Returns a flag per node of the tree: whether it meets every expression of one node selector term; an empty term matches none.

    Raises InvalidSelector where an expression cannot be evaluated.
    """
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    matches = np.full(len(tree), bool(expressions or fields))
    for expression in expressions:
        matches &= _match_expression(tree, expression)
    for expression in fields:
        if expression["key"] != "metadata.name":
            raise InvalidSelector(f"matchFields key {expression['key']!r}: only metadata.name is supported")
        accepts = _build_predicate(expression)
        if expression["operator"] == "In":
            named = np.zeros(len(tree), dtype=bool)
            named[[place for name in expression.get("values") or () if (place := tree.index.get(name)) is not None]] = True
            matches &= named
        else:
            matches &= np.fromiter((accepts(name) for name in tree.names), dtype=bool, count=len(tree))
    return matches


def is_node_match(name: str, labels: Mapping[str, str], selector: Mapping[str, str], affinity: Mapping[str, Any] | None) -> bool:
    """Whether one node meets a nodeSelector and the required node affinity. Raises InvalidSelector where an expression on which that
    depends cannot be evaluated; how many there are is not checked."""
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    required = ((affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return not required or any(_is_term_match(name, labels, term) for term in required.get("nodeSelectorTerms") or ())


def _is_term_match(name: str, labels: Mapping[str, str], term: Mapping[str, Any]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if any(expression["key"] != "metadata.name" for expression in fields):
        raise InvalidSelector("matchFields: only metadata.name is supported")
    return (
        bool(expressions or fields)
        and all(_build_predicate(expression)(labels.get(expression["key"])) for expression in expressions)
        and all(_build_predicate(expression)(name) for expression in fields)
    )


def _match_expression(tree: TopologyTree, expression: Mapping[str, Any]) -> Flags:
    """Nodes that meet one expression on a label: looked up by its values, or by those that nodes have."""
    label, operator = expression["key"], expression["operator"]
    codes, meaning = tree.encode_label(label)
    if operator in ("In", "NotIn"):
        named = np.zeros(len(meaning) + 1, dtype=bool)  # the last entry answers for code -1, the absent label
        code_of = tree.find_code(label)
        named[[code for value in expression.get("values") or () if (code := code_of.get(value)) is not None]] = True
        return named[codes] if operator == "In" else ~named[codes]
    if operator in ("Gt", "Lt"):
        numbers, are_numbers = _parse_numbers(tree, label)
        bound = _bound(expression)
        compared = numbers > bound if operator == "Gt" else numbers < bound
        found: Flags = (compared & are_numbers)[codes]
        return found
    accepts = _build_predicate(expression)
    return np.array([*([accepts("")] * len(meaning)), accepts(None)], dtype=bool)[codes]


def _parse_numbers(tree: TopologyTree, label: str) -> tuple[Indices, Flags]:
    """What the values of a label mean as numbers, and which of them are any; the last entry is for the absent label."""
    read = [_parse_integer(value) for value in tree.encode_label(label)[1]]
    return np.array([*(number or 0 for number in read), 0], dtype=np.int64), np.array([*(n is not None for n in read), False], dtype=bool)


def _build_predicate(expression: Mapping[str, Any]) -> Callable[[str | None], bool]:
    operator, values = expression["operator"], frozenset(expression.get("values") or ())
    if operator == "In":
        return lambda value: value is not None and value in values
    if operator == "NotIn":
        return lambda value: value is None or value not in values
    if operator == "Exists":
        return lambda value: value is not None
    if operator == "DoesNotExist":
        return lambda value: value is None
    if operator in ("Gt", "Lt"):
        bound = _bound(expression)

        def is_compared(value: str | None) -> bool:
            number = _parse_integer(value)
            return number is not None and (number > bound if operator == "Gt" else number < bound)

        return is_compared
    raise InvalidSelector(f"operator {operator!r} is none of In, NotIn, Exists, DoesNotExist, Gt, Lt")


def _bound(expression: Mapping[str, Any]) -> int:
    """The number of an expression with Gt or Lt. Raises InvalidSelector."""
    values = list(expression.get("values") or ())
    bound = _parse_integer(values[0]) if len(values) == 1 else None
    if bound is None:
        raise InvalidSelector(f"operator {expression['operator']} needs one integer, not {values}")
    return bound


def _parse_integer(text: str | None) -> int | None:
    """A number as Kubernetes reads it: digits of 64 bits, none of Python's underscores."""
    number = int(text) if text is not None and _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def is_satisfiable(labels: Mapping[str, str], selector: Mapping[str, str], affinity: Mapping[str, Any] | None) -> bool:
    """Whether labels known in advance (a flavor's) leave a selector and required affinity satisfiable: other keys do not count, nor do
    `matchFields`. One term is enough, and it is satisfiable where no expression on a known label fails.

    Raises InvalidSelector where an expression on one of the labels cannot be evaluated.
    """
    if any(key in labels and labels[key] != value for key, value in selector.items()):
        return False
    required = ((affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (required or {}).get("nodeSelectorTerms") or ()
    return not terms or any(
        all(_build_predicate(e)(labels[e["key"]]) for e in term.get("matchExpressions") or () if e["key"] in labels) for term in terms
    )

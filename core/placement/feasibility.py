"""Which nodes may take a pod at all: selector, required node affinity, taints.

Labels are read as small integers per node (TopologyTree.codes), so a requirement is judged once per
distinct value and never in a loop over nodes. Semantics are those of kube-scheduler's NodeAffinity
and TaintToleration filters.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from core.placement.tree import Flags, TopologyTree

Taint = tuple[str, str, str]  # key, value, effect
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_REPELLING = ("NoSchedule", "NoExecute")


class InvalidSelector(ValueError):
    """A node affinity that Kubernetes would not accept; the message names the operator."""


def taints_of(node_spec: Mapping[str, Any]) -> tuple[Taint, ...]:
    """The taints of a node that keep pods away, sorted."""
    return tuple(
        sorted((t["key"], t.get("value") or "", t["effect"]) for t in node_spec.get("taints") or () if t.get("effect") in _REPELLING)
    )


def find_untolerated(taints: Sequence[Taint], tolerations: Sequence[Mapping[str, Any]]) -> Taint | None:
    """The first taint that no toleration covers."""
    return next((taint for taint in taints if not any(_tolerates(toleration, taint) for toleration in tolerations)), None)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    key, value, effect = taint
    if toleration.get("effect") and toleration["effect"] != effect:
        return False
    if toleration.get("key") and toleration["key"] != key:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.get("value") or "") == value


def selector_mask(tree: TopologyTree, selector: Mapping[str, str]) -> Flags:
    """Nodes that carry every label of a nodeSelector."""
    mask = np.ones(len(tree), dtype=bool)
    for label, wanted in selector.items():
        mask &= _where(tree, label, _predicate({"operator": "In", "values": [wanted]}))
    return mask


def affinity_mask(tree: TopologyTree, affinity: Mapping[str, Any] | None) -> Flags:
    """Nodes that satisfy the required node affinity: any of its terms, every expression of a term.

    Raises InvalidSelector.
    """
    required = ((affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return np.ones(len(tree), dtype=bool)
    mask = np.zeros(len(tree), dtype=bool)
    for term in required.get("nodeSelectorTerms") or ():
        mask |= term_mask(tree, term)
    return mask


def term_mask(tree: TopologyTree, term: Mapping[str, Any]) -> Flags:
    """Nodes that meet every expression of one node selector term; an empty term matches none. Raises InvalidSelector."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    matches = np.full(len(tree), bool(expressions or fields))
    for expression in expressions:
        matches &= _where(tree, expression["key"], _predicate(expression))
    for expression in fields:
        if expression["key"] != "metadata.name":
            raise InvalidSelector(f"matchFields key {expression['key']!r}: only metadata.name is supported")
        accepts = _predicate(expression)
        matches &= np.fromiter((accepts(name) for name in tree.names), dtype=bool, count=len(tree))
    return matches


def node_matches(name: str, labels: Mapping[str, str], selector: Mapping[str, str], affinity: Mapping[str, Any] | None) -> bool:
    """Whether one node meets a nodeSelector and the required node affinity. Raises InvalidSelector."""
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    required = ((affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return not required or any(_term_matches(name, labels, term) for term in required.get("nodeSelectorTerms") or ())


def _term_matches(name: str, labels: Mapping[str, str], term: Mapping[str, Any]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if any(expression["key"] != "metadata.name" for expression in fields):
        raise InvalidSelector("matchFields: only metadata.name is supported")
    return (
        bool(expressions or fields)
        and all(_predicate(expression)(labels.get(expression["key"])) for expression in expressions)
        and all(_predicate(expression)(name) for expression in fields)
    )


def _where(tree: TopologyTree, label: str, accepts: Callable[[str | None], bool]) -> Flags:
    codes, meaning = tree.codes(label)
    # The last entry answers for code -1, the absent label.
    verdicts = np.array([*(accepts(value) for value in meaning), accepts(None)], dtype=bool)
    return verdicts[codes]


def _predicate(expression: Mapping[str, Any]) -> Callable[[str | None], bool]:
    operator, values = expression["operator"], tuple(expression.get("values") or ())
    if operator == "In":
        return lambda value: value is not None and value in values
    if operator == "NotIn":
        return lambda value: value is None or value not in values
    if operator == "Exists":
        return lambda value: value is not None
    if operator == "DoesNotExist":
        return lambda value: value is None
    if operator in ("Gt", "Lt"):
        bound = _integer(values[0]) if len(values) == 1 else None
        if bound is None:
            raise InvalidSelector(f"operator {operator} needs one integer, not {list(values)}")

        def compares(value: str | None) -> bool:
            number = _integer(value)
            return number is not None and (number > bound if operator == "Gt" else number < bound)

        return compares
    raise InvalidSelector(f"operator {operator!r} is none of In, NotIn, Exists, DoesNotExist, Gt, Lt")


def _integer(text: str | None) -> int | None:
    """A number as Kubernetes reads it: digits of 64 bits, none of Python's underscores."""
    number = int(text) if text is not None and _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def labels_satisfy(labels: Mapping[str, str], selector: Mapping[str, str], affinity: Mapping[str, Any] | None) -> bool:
    """Whether labels known in advance (a flavor's) leave a selector and required affinity satisfiable: other keys do not count."""
    if any(key in labels and labels[key] != value for key, value in selector.items()):
        return False
    required = ((affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (required or {}).get("nodeSelectorTerms") or ()
    return not terms or any(
        all(_predicate(e)(labels[e["key"]]) for e in term.get("matchExpressions") or () if e["key"] in labels) for term in terms
    )

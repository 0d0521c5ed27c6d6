"""Kubernetes label selectors."""

from collections.abc import Mapping
from typing import Any


def is_label_match(selector: Mapping[str, Any] | None, labels: Mapping[str, str] | None) -> bool:
    """Returns whether a LabelSelector takes an object with these labels. No selector (None) takes none, an empty one all; None as labels is
    never taken. NotIn takes objects without the label, too. An operator that is not known counts as DoesNotExist."""
    if selector is None or labels is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_is_met(expression, labels) for expression in selector.get("matchExpressions") or ())


def _is_met(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    operator = expression["operator"]
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    return bool((value is not None) == (operator == "Exists"))

"""Why no change whatever would make a refused pod set fit: no such node, none large enough, too few of them in all."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from core.model.podset import PodSetRequest
from core.placement.changes import Amount, Never, NoSuchNode, PodTooLarge, TooMany
from core.placement.explain.suggested_changes import WHOLE, Refused
from core.placement.topology.free_capacity import FreeCapacity, with_pod
from core.placement.topology.node_eligibility import match_selector, match_term
from core.placement.topology.tree import Indices

_SHOWN = 8  # values that a sentence names


def find_never(refused: Refused) -> Never | None:
    """Returns why no change would help, if there is one simple reason, the first of: no node with the labels, too many for all nodes, a pod
    larger than any node. Else None. A failed node counts as usable: it may become ready again. Raises InvalidSelector where the node
    affinity cannot be evaluated."""
    if refused.view.closed is not None:
        refused = replace(refused, view=refused.view.close_nodes(None))
    view, request = refused.view, refused.request
    labelled = view.match_labels(request.node_selector, request.affinity)
    if not labelled.any():
        return NoSuchNode(_list_asked_labels(view, request))
    if refused.could.any():
        most = int(refused.count_units(refused.could_fit, WHOLE).sum())
        return TooMany(most, refused.wanted, refused.shape.unit) if most < refused.wanted else None
    candidates = refused.allowed.nonzero()[0]
    if not len(candidates):
        return None
    lacks: dict[str, Indices] = {}
    for resource, amount in sorted(with_pod(request.requests).items()):
        has = refused.emptied[view.axis[resource], candidates] if resource in view.axis else np.zeros(len(candidates), dtype=np.int64)
        lacks[resource] = np.maximum(amount - has, 0)
    share = np.max([short / with_pod(request.requests)[resource] for resource, short in lacks.items()], axis=0)
    nearest = int(share.argmin())
    amounts = (Amount(resource, int(short[nearest])) for resource, short in lacks.items() if short[nearest])
    return PodTooLarge(view.tree.names[candidates[nearest]], tuple(amounts), refused.own is not None)


def _list_asked_labels(view: FreeCapacity, request: PodSetRequest) -> tuple[str, ...]:
    """Of the labels and expressions asked for those that no node has, else all of them."""
    tree = view.tree
    asked = {f"{key}={value}": match_selector(tree, {key: value}).any() for key, value in sorted(request.node_selector.items())}
    required = ((request.affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    missing = [text for text, found in asked.items() if not found]
    if not missing and terms and not view.match_labels({}, request.affinity).any():
        return (" or ".join(_show_term(view, term) for term in terms[:3]),)
    texts = missing or [*asked, *(" or ".join(_show_term(view, term) for term in terms[:3]) for _ in terms[:1])]
    return tuple(texts[:4])


def _show_term(view: FreeCapacity, term: Mapping[str, Any]) -> str:
    """A node selector term as text: the first expression that no node meets, else all of them."""
    texts = []
    for field in ("matchExpressions", "matchFields"):
        for expression in term.get(field) or ():
            named = expression.get("values") or ()
            values = ", ".join(named[:_SHOWN]) + (f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else "")
            text = f"{expression['key']} {expression['operator']}" + (f" ({values})" if values else "")
            if not match_term(view.tree, {field: [expression]}).any():
                return text
            texts.append(text)
    return " and ".join(texts) or "an empty node selector term"

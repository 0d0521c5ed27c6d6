"""Hard topology spread constraints (`whenUnsatisfiable: DoNotSchedule`) of pods that are placed.

A placement with at most maxSkew of the selected pods in each domain of the key meets a constraint, whatever the other domains hold and
whichever `minDomains` and node inclusion policies it has. Such a placement is searched for first. Where there is none, pods are placed
as without the constraint and the choice names it: kube-scheduler counts only the domains that a pod's node selector leaves, and the
node selector that topogate adds leaves one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from core.model.pod_traits import HARD_SPREAD, Spread
from core.model.podset import PodSetRequest
from core.placement.topology.free_capacity import FreeCapacity
from core.placement.topology.pod_affinity import Company
from core.placement.topology.tree import Indices

_SORT_PASSES = 6  # what it costs to count pods by domains that are none of a level
_CONDITIONS = ("matchExpressions", "matchFields")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def with_spread_kept(requests: Sequence[PodSetRequest]) -> list[PodSetRequest] | None:
    """Returns copies of the requests that have a hard topology spread constraint (`traits.spread`) with `keeps_spread` set: at most maxSkew
    of their pods in each domain. The others are there as they are.

    None where no request has a constraint.
    """
    if not any(request.traits.spread for request in requests):
        return None
    return [replace(r, traits=replace(r.traits, keeps_spread=True)) if r.traits.spread else r for r in requests]


def require_labels(affinity: Mapping[str, Any] | None, keys: Sequence[str]) -> Mapping[str, Any] | None:
    """Returns an affinity for nodes that have these labels with any value, too, as a copy; the same object if there are no keys.

    kube-scheduler binds no pod with a hard constraint to a node without its key.
    """
    exist = [{"key": key, "operator": "Exists"} for key in keys]
    return require_terms(affinity, [{"matchExpressions": exist}]) if exist else affinity


def require_terms(affinity: Mapping[str, Any] | None, terms: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns a copy of an affinity, for nodes that meet one of these node selector terms, too: each own term is joined with each of
    them. An empty term matches no node and is left out; with none left no node meets it."""
    of_nodes = (affinity or {}).get("nodeAffinity") or {}
    joined = [_join(own, term) for own in _list_terms(affinity) for term in terms if any(_list_conditions(term))]
    return {**(affinity or {}), "nodeAffinity": {**of_nodes, _REQUIRED: {"nodeSelectorTerms": joined}}}


def count_expressions(affinity: Mapping[str, Any] | None, terms: Sequence[Mapping[str, Any]]) -> int:
    """Returns the number of expressions in what `require_terms` returns for these arguments, without making it. An empty one of the
    `terms`, which that leaves out, counts all own expressions once more."""
    own = _list_terms(affinity)
    of_own, of_terms = (sum(len(field) for term in of for field in _list_conditions(term)) for of in (own, terms))
    return of_own * len(terms) + len(own) * of_terms


def _list_terms(affinity: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    """Terms of the required node affinity that can match a node; an empty one where nothing is required."""
    required = ((affinity or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    return [term for term in required.get("nodeSelectorTerms") or () if any(_list_conditions(term))] if required else [{}]


def _list_conditions(term: Mapping[str, Any]) -> tuple[Sequence[Any], ...]:
    return tuple(term.get(field) or () for field in _CONDITIONS)


def _join(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = zip(_CONDITIONS, _list_conditions(one), _list_conditions(other), strict=True)
    return {field: [*own, *more] for field, own, more in fields if own or more}


def limit_spread(view: FreeCapacity, spread: Spread, shared: Indices, per_node: Indices) -> None:
    """Cuts down, in place, the pods of each node so that each domain holds maxSkew, and none where other selected pods are.

    `per_node` has pods, `shared` the domain per node of the level that all pods must share: the cut is made within each.
    """
    view.budget.charge(_SORT_PASSES * view.pass_steps)
    codes, values = view.tree.encode_label(spread.term.key)
    per_node[(codes < 0) | view.around.find_matching_domains(spread.term)] = 0
    if len(values) == len(codes):  # each node is a domain by itself
        np.minimum(per_node, spread.max_skew, out=per_node)
        return
    able = np.flatnonzero(per_node)
    if not len(able):
        return
    pairs = codes[able] * len(codes) + shared[able]  # a number for each pair of the two
    order = pairs.argsort(kind="stable")
    nodes, domains = able[order], pairs[order]
    held = np.minimum(per_node[nodes], spread.max_skew)
    before = held.cumsum() - held
    first = np.flatnonzero(np.diff(domains, prepend=-1))
    before -= before[first][np.cumsum(np.diff(domains, prepend=-1) != 0) - 1]
    per_node[nodes] = np.clip(spread.max_skew - before, 0, held)


def describe_unmet(view: FreeCapacity, request: PodSetRequest, placed: Sequence[Company]) -> tuple[str, ...]:
    """Returns the fields of a pod set's template that its choice has to name as not judged: those that only kube-scheduler evaluates.

    Its hard constraints are among them only where what was `placed` (all pod sets of the decision) does not meet them, with the reason, and
    then first.
    """
    if not request.traits.spread:
        return request.traits.unjudged
    unmet = [text for spread in request.traits.spread if (text := _describe(view, spread, placed))]
    others = tuple(field for field in request.traits.unjudged if field != HARD_SPREAD)
    return (f"{HARD_SPREAD} ({'; '.join(unmet)})", *others) if unmet else others


def _describe(view: FreeCapacity, spread: Spread, placed: Sequence[Company]) -> str:
    codes, values = view.tree.encode_label(spread.term.key)
    counts = np.zeros(len(values) + 1, dtype=np.int64)
    for traits, nodes in placed:
        if view.around.is_match(spread.term, traits):
            for name, count in nodes:
                counts[codes[view.tree.index[name]]] += count
    others = view.around.find_matching_domains(spread.term)
    if any(others[view.tree.index[name]] for _, nodes in placed for name, _ in nodes):
        return f"other pods that it selects are in a {spread.term.key} of these"
    most = int(counts.max())
    return f"{most} pods in one {spread.term.key}, maxSkew is {spread.max_skew}" if most > spread.max_skew else ""

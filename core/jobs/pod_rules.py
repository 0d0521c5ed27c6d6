"""What one pod of a queued object may ask of its nodes: judged where a pod template, or a pod, is created or changed.

The limits have no honest use beyond them, and each entry of a pod is compared with nodes or other pods at every decision about it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Json

MAX_POD_TERMS = 16  # of affinity and anti-affinity between pods, required or preferred, and spread constraints
MAX_SELECTOR_ENTRIES = 512  # expressions and their values: of nodes, and of all those terms
MAX_TOLERATIONS = 64
MAX_RESOURCE_NAMES = 64
POD_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


def check_pod_spec(path: str, spec: Json, *, names_node: bool = True) -> Iterator[FieldError]:
    """All mistakes in the spec of a pod at a path of a queued object, which may hold anything; `names_node`: its node is judged, too."""
    node = spec.get("nodeName")
    if node and names_node:
        yield FieldError(ErrorType.FORBIDDEN, f"{path}.nodeName", node, "topogate chooses the nodes of a queued job")
    claims = _list(spec.get("resourceClaims"))
    if claims:
        accepted = (
            "no quota counts the devices of ResourceClaims yet: request an extended resource such as nvidia.com/gpu, or take the queue off"
        )
        yield FieldError(ErrorType.FORBIDDEN, f"{path}.resourceClaims", [_get(claim, "name") for claim in claims], accepted)
    terms = [*_list_pod_terms(spec), *_list(spec.get("topologySpreadConstraints"))]
    counts = (
        (f"{path}.affinity", len(terms), MAX_POD_TERMS, "terms of affinity between pods and spread constraints"),
        (
            f"{path}.affinity.nodeAffinity",
            _count_node_entries(spec),
            MAX_SELECTOR_ENTRIES,
            "expressions and values, nodeSelector included,",
        ),
        (
            f"{path}.affinity",
            sum(map(_count_entries, terms)),
            MAX_SELECTOR_ENTRIES,
            "expressions, values and namespaces of terms between pods",
        ),
        (f"{path}.tolerations", len(_list(spec.get("tolerations"))), MAX_TOLERATIONS, "tolerations"),
        (f"{path}.containers", len(_list_resource_names(spec)), MAX_RESOURCE_NAMES, "different resource names"),
    )
    for field, count, most, what in counts:
        if count > most:
            yield FieldError(ErrorType.TOO_MANY, field, count, f"at most {most} {what} are expected")


def _list_pod_terms(spec: Json) -> Iterator[Any]:
    """Terms of affinity between pods; a preferred one stands in `podAffinityTerm` beside its weight."""
    for name in ("podAffinity", "podAntiAffinity"):
        rules = _get(spec.get("affinity"), name)
        for kind in POD_TERMS:
            yield from (_get(term, "podAffinityTerm") or term for term in _list(_get(rules, kind)))


def _count_entries(term: Any) -> int:
    """Expressions, values and namespaces by which a term selects pods."""
    selectors = (_get(term, "labelSelector"), _get(term, "namespaceSelector"))
    keys = sum(len(_list(_get(term, name))) for name in ("namespaces", "matchLabelKeys", "mismatchLabelKeys"))
    return keys + sum(_count_expressions(_get(s, "matchExpressions")) + len(_map(_get(s, "matchLabels"))) for s in selectors)


def _count_node_entries(spec: Json) -> int:
    affinity = _get(spec.get("affinity"), "nodeAffinity")
    terms = [*_list(_get(_get(affinity, POD_TERMS[0]), "nodeSelectorTerms"))]
    terms += [_get(term, "preference") for term in _list(_get(affinity, POD_TERMS[1]))]
    return len(_map(spec.get("nodeSelector"))) + sum(
        _count_expressions(_get(term, part)) for term in terms for part in ("matchExpressions", "matchFields")
    )


def _count_expressions(expressions: Any) -> int:
    return sum(1 + len(_list(_get(expression, "values"))) for expression in _list(expressions))


def _list_resource_names(spec: Json) -> set[str]:
    containers = [*_list(spec.get("containers")), *_list(spec.get("initContainers"))]
    resources = [spec.get("resources"), *(_get(container, "resources") for container in containers)]
    amounts = [spec.get("overhead"), *(_get(each, part) for each in resources for part in ("requests", "limits"))]
    return {name for each in amounts for name in _map(each)}


def _get(obj: Any, name: str) -> Any:
    return obj.get(name) if isinstance(obj, Mapping) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

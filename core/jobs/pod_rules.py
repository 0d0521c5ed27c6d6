"""What one pod of a queued object may ask of its nodes: judged where a pod template, or a pod, is created or changed.

The limits have no honest use beyond them, and each entry of a pod is compared with nodes or other pods at every decision about it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Json

_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)
MAX_POD_TERMS = 16  # of affinity and anti-affinity between pods, required or preferred, and spread constraints
MAX_SELECTOR_ENTRIES = 512  # expressions and their values: of nodes, and of all those terms
MAX_TOLERATIONS = 64
MAX_RESOURCE_NAMES = 64
MAX_HOST_PORTS = 64
MAX_GRACE_S = 3600  # how long pods may take to end: until then what they use is not free
MAX_TEMPLATE_VALUES = 20_000  # of all pod templates of an object: each is copied and compared when the object changes
MAX_TEMPLATE_BYTES = 500_000  # of them as JSON: etcd takes 1.5 MB, status and managed fields of the Workload included
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
        (f"{path}.containers", _count_host_ports(spec), MAX_HOST_PORTS, "host ports"),
    )
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace > MAX_GRACE_S:
        accepted = f"at most {MAX_GRACE_S} seconds are accepted: a pod that ends holds its quota until it is gone"
        yield FieldError(ErrorType.INVALID, f"{path}.terminationGracePeriodSeconds", grace, accepted)
    for field, count, most, what in counts:
        if count > most:
            yield FieldError(ErrorType.TOO_MANY, field, count, f"at most {most} {what} are expected")


def check_size(path: str, templates: Iterable[Any]) -> Iterator[FieldError]:
    """Whether pod templates have more values in all than an object may have (maps, lists and scalars, each counted), or more bytes as
    they are stored in a Workload."""
    left, count, more = MAX_TEMPLATE_BYTES, 0, list(templates)
    while more and left >= 0 and count <= MAX_TEMPLATE_VALUES:
        value = more.pop()
        count += 1
        if isinstance(value, Mapping):
            more += value.values()
            left -= sum(_count_bytes(key) for key in value)
        elif isinstance(value, list):
            more += value
        else:
            left -= _count_bytes(value)
    for is_over, most, what in (
        (count > MAX_TEMPLATE_VALUES, MAX_TEMPLATE_VALUES, "values, such as arguments and variables,"),
        (left < 0, MAX_TEMPLATE_BYTES, "bytes"),
    ):
        if is_over:
            yield FieldError(ErrorType.TOO_MANY, path, f"more than {most}", f"at most {most} {what} are expected in all pod templates")


def explain_size(name: object, found: Json) -> str:
    """Why an object that jobs refer to is not read, as it has more than the pod templates of a job may have; empty if it is read."""
    error = next(check_size("spec", [found.get("spec")]), None)
    return f"{name} is too large: {error.accepted}" if error is not None else ""


def _count_bytes(scalar: Any) -> int:
    """Of a scalar in JSON as the API server writes it: what HTML gives a meaning takes six bytes."""
    text = _ENCODER.encode(scalar)
    return len(text.encode(errors="surrogatepass")) + 2 + 5 * sum(map(text.count, "<>&"))


def _count_host_ports(spec: Json) -> int:
    containers = [*_list(spec.get("containers")), *_list(spec.get("initContainers"))]
    ports = [port for container in containers for port in _list(_get(container, "ports"))]
    return len(ports) if spec.get("hostNetwork") is True else sum(bool(_get(port, "hostPort")) for port in ports)


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

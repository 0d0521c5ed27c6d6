"""What one pod of a queued object may ask of its nodes: judged where a pod template, or a pod, is created or changed.

The limits have no honest use beyond them, and each entry of a pod is compared with nodes or other pods at every decision about it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Json
from core.model.gates import DEVICES

_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)
MAX_POD_TERMS = 16  # of affinity and anti-affinity between pods, required or preferred, and spread constraints
MAX_SELECTOR_ENTRIES = 512  # expressions and their values: of nodes, and of all those terms
MAX_TOLERATIONS = 64
CHOOSES_NODES = "topogate chooses the nodes of a queued job"
MAX_RESOURCE_NAMES = 64
MAX_HOST_PORTS = 64
MAX_CLAIMS = 64  # of one pod: each is read at every change of the templates that they name
# A pod has more than its template: the API server adds tolerations of not-ready and unreachable nodes, what its RuntimeClass asks for and a
# volume; flavors and other webhooks add theirs.
ADDED_TOLERATIONS, ADDED_NODE_ENTRIES, ADDED_RESOURCE_NAMES, ADDED_VALUES, ADDED_BYTES = 16, 32, 8, 1_000, 20_000
MAX_GRACE_S = 3600  # how long pods may take to end: until then what they use is not free
MAX_TEMPLATE_VALUES = 20_000  # of all pod templates of an object: each is copied and compared when the object changes
MAX_TEMPLATE_BYTES = 500_000  # of them as JSON: etcd takes 1.5 MB, status and managed fields of the Workload included
POD_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


def check_pod_spec(path: str, spec: Json, *, is_pod: bool = False) -> Iterator[FieldError]:
    """Yields the errors in the spec of a pod at a path of a queued object, which may hold anything. They are a node name, resource claims,
    a grace period over `MAX_GRACE_S`, and more terms, expressions, tolerations, resource names, host ports or claims than accepted. The
    gate DEVICES lifts the one of claims that are made from a template.

    `is_pod`: it is no template, so that it may have what others add to pods. Its node is then not looked at, as `core.jobs.kinds.pod`
    judges it.
    """
    node = spec.get("nodeName")
    if node and not is_pod:
        yield FieldError(ErrorType.FORBIDDEN, f"{path}.nodeName", node, CHOOSES_NODES)
    yield from _check_claims(f"{path}.resourceClaims", _list(spec.get("resourceClaims")))
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace > MAX_GRACE_S:
        accepted = f"at most {MAX_GRACE_S} seconds are accepted: a pod that ends holds its quota until it is gone"
        yield FieldError(ErrorType.INVALID, f"{path}.terminationGracePeriodSeconds", grace, accepted)
    for field, count, most, added, what in _count_all(path, spec):
        if count > most + (added if is_pod else 0):
            besides = _explain_added(added) if is_pod and added else ""
            yield FieldError(ErrorType.TOO_MANY, field, count, f"at most {most} {what} are expected{besides}")


def _check_claims(path: str, claims: list[Any]) -> Iterator[FieldError]:
    if claims:
        accepted = (
            "no quota counts the devices of ResourceClaims: request an extended resource such as nvidia.com/gpu, take the queue off, or "
            "ask an administrator for resources.deviceClassMappings"
        )
        names = [_get(claim, "name") for claim in claims[:MAX_CLAIMS]]
        yield FieldError(ErrorType.FORBIDDEN, path, names, accepted, DEVICES)
    if len(claims) > MAX_CLAIMS:
        yield FieldError(ErrorType.TOO_MANY, path, len(claims), f"at most {MAX_CLAIMS} claims of one pod are expected")
        return
    for i, claim in enumerate(claims):
        if named := _get(claim, "resourceClaimName"):
            accepted = "quota counts devices by pod, and pods share this claim: name a ResourceClaimTemplate in resourceClaimTemplateName"
            yield FieldError(ErrorType.FORBIDDEN, f"{path}[{i}].resourceClaimName", named, accepted)


def _count_all(path: str, spec: Json) -> tuple[tuple[str, int, int, int, str], ...]:
    """What a spec has of everything that is limited: field, number, how many a template may have, how many more a pod, and of what."""
    constraints = _list(spec.get("topologySpreadConstraints"))
    terms = [*_list_pod_terms(spec), *constraints]
    of_terms, entries = f"{path}.affinity", list(map(_count_entries, terms))
    spread = f"{path}.topologySpreadConstraints"
    constrained = sum(entries[len(entries) - len(constraints) :])
    return (
        (
            spread if 2 * len(constraints) > len(terms) else of_terms,
            len(terms),
            MAX_POD_TERMS,
            0,
            "terms of affinity between pods and spread constraints",
        ),
        (
            f"{path}.affinity.nodeAffinity",
            _count_node_entries(spec),
            MAX_SELECTOR_ENTRIES,
            ADDED_NODE_ENTRIES,
            "expressions and values, nodeSelector included,",
        ),
        (
            spread if 2 * constrained > sum(entries) else of_terms,
            sum(entries),
            MAX_SELECTOR_ENTRIES,
            0,
            "expressions, values and namespaces of terms between pods",
        ),
        (f"{path}.tolerations", len(_list(spec.get("tolerations"))), MAX_TOLERATIONS, ADDED_TOLERATIONS, "tolerations"),
        (
            f"{path}.{_find_largest(spec, lambda container: len(_list_names(container)))}.resources",
            len(_list_resource_names(spec)),
            MAX_RESOURCE_NAMES,
            ADDED_RESOURCE_NAMES,
            "different resource names, of all containers,",
        ),
        (
            f"{path}.{_find_largest(spec, lambda container: len(_list_host_ports(spec, container)))}.ports",
            sum(len(_list_host_ports(spec, container)) for _, container in _list_containers(spec)),
            MAX_HOST_PORTS,
            0,
            "host ports, of all containers,",
        ),
    )


def check_size(path: str, templates: Iterable[Any], *, of_pods: bool = False) -> Iterator[FieldError]:
    """Yields an error at `path` where pod templates have more than `MAX_TEMPLATE_VALUES` values in all, and one for more than
    `MAX_TEMPLATE_BYTES` as stored. Counting ends with the first of them.

    Maps, lists and scalars count as a value each. `of_pods`: the templates are read from pods and may have ADDED_VALUES and ADDED_BYTES
    more.
    """
    more = list(templates)
    left, most_values, count = MAX_TEMPLATE_BYTES, MAX_TEMPLATE_VALUES, 0
    if of_pods:
        left, most_values = left + ADDED_BYTES, most_values + ADDED_VALUES
    while more and left >= 0 and count <= most_values:
        value = more.pop()
        count += 1
        if isinstance(value, Mapping):
            more += value.values()
            left -= sum(_count_bytes(key) for key in value)
        elif isinstance(value, list):
            more += value
        else:
            left -= _count_bytes(value)
    for is_over, most, added, what in (
        (count > most_values, MAX_TEMPLATE_VALUES, ADDED_VALUES, "values, such as arguments and variables,"),
        (left < 0, MAX_TEMPLATE_BYTES, ADDED_BYTES, "bytes"),
    ):
        if is_over:
            found = f"more than {most + (added if of_pods else 0)}"
            accepted = f"at most {most} {what} are expected in all pod templates{_explain_added(added) if of_pods else ''}"
            yield FieldError(ErrorType.TOO_MANY, path, found, accepted)


def _explain_added(added: int) -> str:
    return f", and {added} that the API server, flavors and webhooks add"


def explain_size(name: object, found: Json) -> str:
    """Returns why an object that jobs refer to is not read: its spec is larger than the pod templates of a job may be (`check_size`). Empty
    if it is read. `name` is for the text."""
    error = next(check_size("spec", [found.get("spec")]), None)
    return f"{name} is too large: {error.accepted}" if error is not None else ""


def _count_bytes(scalar: Any) -> int:
    """Of a scalar in JSON as the API server writes it: what HTML gives a meaning takes six bytes."""
    text = _ENCODER.encode(scalar)
    return len(text.encode(errors="surrogatepass")) + 2 + 5 * sum(map(text.count, "<>&"))


def _list_containers(spec: Json) -> list[tuple[str, Any]]:
    """Each container with its path in the spec."""
    return [(f"{part}[{i}]", each) for part in ("containers", "initContainers") for i, each in enumerate(_list(spec.get(part)))]


def _find_largest(spec: Json, count: Callable[[Any], int]) -> str:
    """The path of the container that has most of what is counted: there a user begins to look."""
    return max(_list_containers(spec), key=lambda found: count(found[1]), default=("containers", None))[0]


def _list_host_ports(spec: Json, container: Any) -> list[Any]:
    return [port for port in _list(_get(container, "ports")) if spec.get("hostNetwork") is True or _get(port, "hostPort")]


def _list_pod_terms(spec: Json) -> Iterator[Any]:
    """Yields terms of affinity between pods; a preferred one is in `podAffinityTerm` beside its weight."""
    for name in ("podAffinity", "podAntiAffinity"):
        rules = _get(spec.get("affinity"), name)
        for kind in POD_TERMS:
            yield from (_get(term, "podAffinityTerm") or term for term in _list(_get(rules, kind)))


def _count_entries(term: Any) -> int:
    """Expressions, values and namespaces by which a term selects pods."""
    selectors = (_get(term, "labelSelector"), _get(term, "namespaceSelector"))
    keys = sum(len(_list(_get(term, name))) for name in ("namespaces", "matchLabelKeys", "mismatchLabelKeys"))
    return keys + sum(_count_expressions(_get(s, "matchExpressions")) + len(_get_map(_get(s, "matchLabels"))) for s in selectors)


def _count_node_entries(spec: Json) -> int:
    affinity = _get(spec.get("affinity"), "nodeAffinity")
    terms = [*_list(_get(_get(affinity, POD_TERMS[0]), "nodeSelectorTerms"))]
    terms += [_get(term, "preference") for term in _list(_get(affinity, POD_TERMS[1]))]
    return len(_get_map(spec.get("nodeSelector"))) + sum(
        _count_expressions(_get(term, part)) for term in terms for part in ("matchExpressions", "matchFields")
    )


def _count_expressions(expressions: Any) -> int:
    return sum(1 + len(_list(_get(expression, "values"))) for expression in _list(expressions))


def _list_resource_names(spec: Json) -> set[str]:
    return set(_get_map(spec.get("overhead"))).union(_list_names(spec), *(_list_names(each) for _, each in _list_containers(spec)))


def _list_names(asking: Any) -> set[str]:
    """Of resources that a container, or a spec for its whole pod, requests or limits."""
    resources = _get(asking, "resources")
    return {name for part in ("requests", "limits") for name in _get_map(_get(resources, part))}


def _get(obj: Any, name: str) -> Any:
    return obj.get(name) if isinstance(obj, Mapping) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _get_map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

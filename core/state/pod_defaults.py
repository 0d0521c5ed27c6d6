"""What the API server adds to a pod when it is created: of its RuntimeClass, and of the LimitRanges of its namespace.

A pod template has none of it yet. Quota, placement and ungating use the pods as they will be, as Kueue does (`AdjustResources`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.model.pod_resources import compute_pod_requests, parse_resources
from core.model.quantity import format_quantity, parse_canonical

Json = Mapping[str, Any]
_POD_LEVEL = ("cpu", "memory")  # resources that a pod has requests of by itself where its containers name them
_RATIO = "maxLimitRequestRatio"


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """What pods of a RuntimeClass get (`overhead`, `scheduling`), on plain JSON."""

    name: str
    overhead: Json
    node_selector: Mapping[str, str]
    tolerations: tuple[Json, ...]

    @classmethod
    def read(cls, obj: Json) -> "RuntimeClass":
        """Returns the facts of a RuntimeClass (JSON). Raises InvalidQuantity where its overhead cannot be read."""
        scheduling = obj.get("scheduling") or {}
        overhead = dict((obj.get("overhead") or {}).get("podFixed") or {})
        parse_resources(overhead)  # what is no quantity is refused here, once
        selector = {str(key): str(value) for key, value in (scheduling.get("nodeSelector") or {}).items()}
        return cls(obj["metadata"]["name"], overhead, selector, tuple(map(dict, scheduling.get("tolerations") or ())))


@dataclass(frozen=True, slots=True)
class LimitRange:
    """Defaults and limits of a namespace (`spec.limits`) for containers and pods, quantities as written."""

    key: str
    default: Mapping[str, str]  # limits of containers
    default_request: Mapping[str, str]
    bounds: tuple[tuple[str, str, str, str], ...]  # type (Container or Pod), min, max or maxLimitRequestRatio, resource, quantity

    @classmethod
    def read(cls, obj: Json) -> "LimitRange":
        """Returns the facts of a LimitRange (JSON), of limits of type Container and Pod only; of several defaults of a resource the last
        counts. Raises InvalidQuantity where one of their quantities cannot be read."""
        default: dict[str, str] = {}
        request: dict[str, str] = {}
        bounds: list[tuple[str, str, str, str]] = []
        for item in (obj.get("spec") or {}).get("limits") or ():
            kind = item.get("type")
            if kind not in ("Container", "Pod"):
                continue
            for bound in ("min", "max", _RATIO):
                bounds += [(kind, bound, name, str(text)) for name, text in (item.get(bound) or {}).items()]
            if kind == "Container":
                default |= item.get("default") or {}
                request |= item.get("defaultRequest") or {}
        for name, text in (
            *default.items(),
            *request.items(),
            *(("cpu" if bound == _RATIO else name, text) for _, bound, name, text in bounds),
        ):
            parse_canonical(name, text)
        metadata = obj["metadata"]
        return cls(f"{metadata.get('namespace')}/{metadata['name']}", default, request, tuple(bounds))


_SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")  # made by the API server


def _has_pods(workload: Json) -> bool:
    """Whether a Workload was made of pods that exist: they have their priority, whatever becomes of its class."""
    return any(owner.get("kind") == "Pod" for owner in workload["metadata"].get("ownerReferences") or ())


class PodDefaults:
    """RuntimeClasses, LimitRanges and names of PriorityClasses, as last observed."""

    def __init__(self) -> None:
        self._priority_classes = set(_SYSTEM_CLASSES)
        self.runtime_classes: dict[str, RuntimeClass] = {}
        self._limits: dict[str, dict[str, LimitRange]] = {}  # namespace -> key

    def observe_runtime_class(self, name: str, found: RuntimeClass | None) -> None:
        """Records that a RuntimeClass came, changed or went (None)."""
        if found is None:
            self.runtime_classes.pop(name, None)
        else:
            self.runtime_classes[name] = found

    def observe_priority_class(self, name: str, *, exists: bool) -> bool:
        """Records that a PriorityClass is there, or went. Returns whether that is new; never for the two that the API server makes."""
        if (name in self._priority_classes) == exists or name in _SYSTEM_CLASSES:
            return False
        (self._priority_classes.add if exists else self._priority_classes.discard)(name)
        return True

    def observe_limit_range(self, key: str, found: LimitRange | None) -> None:
        """Records that a LimitRange came, changed or went (None)."""
        limits = self._limits.setdefault(key.partition("/")[0], {})
        if found is None:
            limits.pop(key, None)
        else:
            limits[key] = found

    def _list_limits(self, namespace: str) -> Sequence[LimitRange]:
        limits = self._limits.get(namespace)
        return [limits[key] for key in sorted(limits)] if limits else ()

    def adjust_workload(self, workload: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Returns a Workload (JSON) with pod templates as its pods will be: a copy, or the same object if nothing may change. The second
        value is why the API server would refuse such pods, empty if it would not. A missing PriorityClass is one reason, unless its pods
        exist already. Raises InvalidQuantity where amounts of a template cannot be read."""
        namespace = workload["metadata"].get("namespace") or ""
        pod_sets = (workload.get("spec") or {}).get("podSets") or ()
        named = any(_read_runtime_class(pod_set) for pod_set in pod_sets)
        lacking = [] if _has_pods(workload) else [each for each in pod_sets if not self._has_priority_class(each)]
        if not named and not self._limits.get(namespace) and not lacking:
            return workload, ""
        adjusted, problems = [], list[str]()
        for pod_set in pod_sets:
            template = pod_set.get("template") or {}
            spec = self.adjust(template.get("spec") or {}, namespace)
            adjusted.append({**pod_set, "template": {**template, "spec": spec}})
            if any(each is pod_set for each in lacking):
                name = template["spec"]["priorityClassName"]
                problems.append(f'pod set {pod_set.get("name")}: PriorityClass "{name}" does not exist')
            problems += (
                f"pod set {pod_set.get('name')}: {problem}" for problem in self.find_problems(template.get("spec") or {}, namespace)
            )
        return {**workload, "spec": {**workload["spec"], "podSets": adjusted}}, "; ".join(dict.fromkeys(problems))

    def _has_priority_class(self, pod_set: Json) -> bool:
        """Whether the PriorityClass of a pod set exists, if it names one."""
        name = ((pod_set.get("template") or {}).get("spec") or {}).get("priorityClassName")
        return not name or name in self._priority_classes

    def adjust(self, spec: Json, namespace: str) -> Json:
        """Returns a copy of a pod's spec with what its RuntimeClass, if that is known, and the LimitRanges of its namespace, by name, add.
        What it has itself stands; only labels of the RuntimeClass's node selector replace its own. Raises InvalidQuantity where requests
        have to be read and cannot be."""
        adjusted = _with_pod_level_requests(spec)
        runtime_class = self.runtime_classes.get(spec.get("runtimeClassName") or "")
        if runtime_class is not None:
            if runtime_class.overhead and not spec.get("overhead"):
                adjusted["overhead"] = runtime_class.overhead
            if runtime_class.node_selector:
                adjusted["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **runtime_class.node_selector}
            if runtime_class.tolerations:
                tolerations = list(spec.get("tolerations") or ())
                adjusted["tolerations"] = tolerations + [one for one in runtime_class.tolerations if one not in tolerations]
        for limits in self._list_limits(namespace):
            for part in ("containers", "initContainers"):
                if adjusted.get(part):
                    adjusted[part] = [_with_defaults(container, limits) for container in adjusted[part]]
        return adjusted

    def find_problems(self, spec: Json, namespace: str) -> Iterator[str]:
        """Yields sentences on why the API server refuses a pod of a spec, as it was before `adjust`; none where it takes it. Raises
        InvalidQuantity where its amounts cannot be read."""
        name = spec.get("runtimeClassName")
        if name:
            runtime_class = self.runtime_classes.get(name)
            if runtime_class is None:
                yield f'RuntimeClass "{name}" does not exist'
            else:
                for key, value in runtime_class.node_selector.items():
                    own = (spec.get("nodeSelector") or {}).get(key, value)
                    if own != value:
                        yield f'nodeSelector {key}={own} conflicts with {key}={value} of RuntimeClass "{name}"'
        adjusted = self.adjust(spec, namespace)
        yield from _find_requests_above_limits(adjusted)
        yield from _find_containers_above_pod(adjusted)
        for limits in self._list_limits(namespace):
            for kind, bound, resource, text in limits.bounds:
                if bound == _RATIO:
                    yield from _find_ratios(adjusted, kind, resource, text, limits.key)
                    continue
                amounts = list(_list_amounts(adjusted, kind, bound, resource))
                if kind == "Pod" and not amounts:
                    which = "request" if bound == "min" else "limit"
                    yield f"the pod has no {which} of {resource}, which LimitRange {limits.key} asks for ({bound} {text} per Pod)"
                for where, has in amounts:
                    limit = parse_canonical(resource, text)
                    if (has < limit) if bound == "min" else (has > limit):
                        comparison = "less than the minimum" if bound == "min" else "more than the maximum"
                        shown = format_quantity(resource, has)
                        yield f"{where} has {shown} {resource}, {comparison} of {text} per {kind} of LimitRange {limits.key}"


def _read_runtime_class(pod_set: Json) -> str:
    return ((pod_set.get("template") or {}).get("spec") or {}).get("runtimeClassName") or ""


def _with_pod_level_requests(spec: Json) -> dict[str, Any]:
    """A pod's spec as the API server defaults it before LimitRanges apply (KEP-2837): a pod with limits of its own has requests of its own,
    those of its containers or, of what no container names, its limits. What LimitRanges add to containers later does not change them."""
    whole = spec.get("resources") or {}
    if not whole.get("limits"):
        return dict(spec)
    parts = [(each.get("resources") or {}) for part in ("containers", "initContainers") for each in spec.get(part) or ()]
    named = {name for resources in parts for which in ("requests", "limits") for name in resources.get(which) or {}}
    found = compute_pod_requests({**spec, "overhead": {}, "resources": {}})
    of_containers = {name: format_quantity(name, found.get(name, 0)) for name in sorted(named) if name in _POD_LEVEL}
    return {**spec, "resources": {**whole, "requests": {**whole["limits"], **of_containers, **(whole.get("requests") or {})}}}


def _with_defaults(container: Json, limits: LimitRange) -> Json:
    """A container as the LimitRanger plugin leaves it; a request that is missing is first taken from the limit, by the API's defaulting."""
    resources = container.get("resources") or {}
    own_limits, own_requests = resources.get("limits") or {}, resources.get("requests") or {}
    requests = {**limits.default_request, **own_limits, **own_requests}
    return {**container, "resources": {**resources, "limits": {**limits.default, **own_limits}, "requests": requests}}


def _list_amounts(spec: Json, kind: str, bound: str, resource: str) -> Iterator[tuple[str, int]]:
    """What a minimum (of requests) or a maximum (of limits) is compared with: per container, or for the whole pod."""
    which = "requests" if bound == "min" else "limits"
    if kind == "Container":
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            found = parse_resources((container.get("resources") or {}).get(which))
            if resource in found:
                yield f"container {container.get('name')}", found[resource]
        return

    def count(container: Json) -> Json:
        return {**container, "resources": {"requests": (container.get("resources") or {}).get(which) or {}}}

    parts = {part: [count(container) for container in spec.get(part) or ()] for part in ("containers", "initContainers")}
    whole = {"requests": (spec.get("resources") or {}).get(which) or {}}
    found = compute_pod_requests({**spec, **parts, "overhead": {}, "resources": whole})
    if resource in found:
        yield "the pod", found[resource]


def _find_ratios(spec: Json, kind: str, resource: str, text: str, key: str) -> Iterator[str]:
    """Why a `maxLimitRequestRatio` refuses a pod, as the LimitRanger plugin judges: a missing request or limit, or a larger ratio."""
    requests, limits = (dict(_list_amounts(spec, kind, bound, resource)) for bound in ("min", "max"))
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    accepted = f"maxLimitRequestRatio of {text} per {kind} of LimitRange {key}"
    for where in ["the pod"] if kind == "Pod" else [f"container {container.get('name')}" for container in containers]:
        request, limit = requests.get(where, 0), limits.get(where, 0)
        if not request or not limit:
            yield f"{where} has no {'limit' if request else 'request'} of {resource}, which the {accepted} needs"
        elif limit * 1000 > request * parse_canonical("cpu", text):  # thousandths
            has, of = format_quantity(resource, limit), format_quantity(resource, request)
            yield f"{where} has a limit of {has} {resource} for a request of {of}, more than the {accepted}"


def _find_requests_above_limits(spec: Json) -> Iterator[str]:
    """A default limit of a LimitRange may be less than what a container requests itself."""
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        limits = parse_resources(resources.get("limits"))
        for resource, amount in parse_resources(resources.get("requests")).items():
            if amount > limits.get(resource, amount):
                has, limit = format_quantity(resource, amount), format_quantity(resource, limits[resource])
                yield f"container {container.get('name')} requests {has} {resource}, more than its limit of {limit}"


def _find_containers_above_pod(spec: Json) -> Iterator[str]:
    """Default requests and limits of a LimitRange may add up to more than the pod has of its own (KEP-2837)."""
    whole = spec.get("resources") or {}
    requests = parse_resources(whole.get("requests"))
    of_containers = compute_pod_requests({**spec, "overhead": {}, "resources": {}})
    for resource, amount in requests.items():
        if of_containers.get(resource, 0) > amount:
            has, accepted = format_quantity(resource, of_containers[resource]), format_quantity(resource, amount)
            yield f"the containers request {has} {resource}, more than the request of the pod of {accepted}"
    for resource, amount in parse_resources(whole.get("limits")).items():
        for where, has_limit in _list_amounts(spec, "Container", "max", resource):
            if has_limit > amount:
                has, accepted = format_quantity(resource, has_limit), format_quantity(resource, amount)
                yield f"{where} has a limit of {has} {resource}, more than the limit of the pod of {accepted}"

"""The parts of policies: rules about kinds, and questions about their objects in CEL."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.jobs.contract import JobKind
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.pod_parents import PodParent
from core.jobs.schema_check import Fields, ListOf, MapOf, Shape
from core.names import FIELD_MANAGER, GROUP, MANAGED_NAMESPACE_LABEL

PREFIX = "topogate"
# A writer that may write the status of Workloads: topogate, or an administrator.
IS_TOPOGATE = (
    f"authorizer.group('{GROUP}').resource('workloads').subresource('status').namespace(request.namespace).check('patch').allowed()"
)
# A change that the reconciler makes. An administrator's own changes are judged: they name another field manager.
IS_STEP_OF_TOPOGATE = f"request.operation == 'UPDATE' && request.options.?fieldManager.orValue('') == '{FIELD_MANAGER}' && {IS_TOPOGATE}"
NOT_SYSTEM = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]}
MANAGED = {"key": MANAGED_NAMESPACE_LABEL, "operator": "In", "values": ["true"]}
IN_MANAGED = {"matchExpressions": [*NOT_SYSTEM["matchExpressions"], MANAGED]}
Rule = Mapping[str, Any]
Kind = JobKind | PodParent


def build_policy(
    name: str, rules: Sequence[Rule], validations: Sequence[Mapping[str, str]], conditions: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """A policy that refuses what breaks one of its rules, of objects that meet all conditions."""
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "namespaceSelector": NOT_SYSTEM, "resourceRules": list(rules)},
        "validations": list(validations),
    }
    if conditions:
        spec["matchConditions"] = list(conditions)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"{PREFIX}-{name}"},
        "spec": spec,
    }


def list_rules(kinds: Sequence[Kind], operations: Sequence[str]) -> list[Rule]:
    """What is judged: objects of these kinds."""
    by_group: dict[str, list[Kind]] = {}
    for kind in kinds:
        by_group.setdefault(kind.group, []).append(kind)
    return [
        {
            "apiGroups": [group],
            "apiVersions": sorted({kind.version for kind in members}),
            "resources": sorted(kind.plural for kind in members),
            "operations": list(operations),
            "scope": "Namespaced",
        }
        for group, members in sorted(by_group.items())
    ]


def build_pod_rule(operation: str) -> Rule:
    """The same of pods."""
    return {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": [operation], "scope": "Namespaced"}


def list_parents(kinds: Sequence[JobKind]) -> list[PodParent]:
    """Kinds that are queued through their pods."""
    return [kind for kind in list_pod_kinds(kinds) if isinstance(kind, PodParent)]


# Kind and group of the owner reference `o`, such as `Job.batch`; in the core group `Pod.`. `batch` alone is a version of the core group.
OWNER_KIND = "o.kind + '.' + (o.apiVersion.contains('/') ? o.apiVersion.split('/')[0] : '')"


def build_controlling(obj: str) -> str:
    """The owner references of an object that have `controller: true`."""
    owners = f"{obj}.metadata.ownerReferences"
    return f"({obj} != null && has({owners}) ? {owners}.filter(o, has(o.controller) && o.controller) : [])"


def build_any(shape: Shape, here: str, part: str, question: Callable[[str], str], depth: int = 0) -> str:
    """Whether a question about the labels or annotations of a part of an object is true of any of them; '' where it has none."""
    match shape:
        case Fields(fields):
            found = []
            for name, inner in fields.items():
                there = f"{here}.{name}"
                inside = question(there) if name == part else build_any(inner, there, part, question, depth)
                if inside:
                    found.append(f"has({there}) && {inside}")
            return f"({' || '.join(found)})" if len(found) > 1 else "".join(found)
        case ListOf(inner) | MapOf(inner):
            each = f"e{depth}"
            inside = build_any(inner, each if isinstance(shape, ListOf) else f"{here}[{each}]", part, question, depth + 1)
            return f"{here}.exists({each}, {inside})" if inside else ""
        case _:
            return ""


def has_field(way: str, last: str) -> str:
    """Whether a field is there, and all on the way to it."""
    parts = way.split(".")
    return " && ".join(f"has({'.'.join(parts[: i + 1])})" for i in range(1, len(parts))) + f" && has({way}.{last})"


def has_gate(obj: str, gate: str) -> str:
    """Whether a pod, or a template, waits behind a gate."""
    return f"(has({obj}.spec.schedulingGates) && {obj}.spec.schedulingGates.exists(g, g.name == '{gate}'))"


def is_set(obj: str, part: str, name: str) -> str:
    """Whether an object has a label or an annotation, whatever its value: '' is a value."""
    field = f"{obj}.metadata.{part}"
    return f"(has({field}) && '{name}' in {field})"


def build_value(obj: str, part: str, name: str) -> str:
    """A list of the value of a label or an annotation, empty where it is not set."""
    return f"({is_set(obj, part, name)} ? [{obj}.metadata.{part}['{name}']] : [])"

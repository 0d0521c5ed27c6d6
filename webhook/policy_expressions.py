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
    name: str,
    rules: Sequence[Rule],
    validations: Sequence[Mapping[str, str]],
    conditions: Sequence[Mapping[str, str]],
    variables: Sequence[Mapping[str, str]] = (),
    namespaces: Mapping[str, Any] = NOT_SYSTEM,
) -> dict[str, Any]:
    """Returns the ValidatingAdmissionPolicy `PREFIX`-`name`. It refuses what breaks one of its validations, of objects in `namespaces` that
    match any of `rules` and meet all conditions; `variables` are for both. It refuses what it cannot evaluate, and needs a binding."""
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "namespaceSelector": namespaces, "resourceRules": list(rules)},
        "validations": list(validations),
    }
    spec |= {"matchConditions": list(conditions)} if conditions else {}
    spec |= {"variables": list(variables)} if variables else {}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"{PREFIX}-{name}"},
        "spec": spec,
    }


def build_denial(expression: str, message: str) -> dict[str, str]:
    """Returns the validation of a policy that refuses, as Forbidden and with a message, what a CEL expression is not true of."""
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def list_rules(kinds: Sequence[Kind], operations: Sequence[str]) -> list[Rule]:
    """Returns the rules that match these operations on objects of these kinds: one for each API group, sorted."""
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
    """Returns an entry (JSON) of `resourceRules` of a policy, for `build_policy`: it matches one operation, such as `CREATE`, on pods.
    Their subresources do not match."""
    return {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": [operation], "scope": "Namespaced"}


def list_parents(kinds: Sequence[JobKind]) -> list[PodParent]:
    """Returns the kinds that are queued through their pods, among those that the webhook serves in addition to `kinds`."""
    return [kind for kind in list_pod_kinds(kinds) if isinstance(kind, PodParent)]


# Kind and group of the owner reference `o`, such as `Job.batch`; in the core group `Pod.`. `batch` alone is a version of the core group.
OWNER_KIND = "o.kind + '.' + (o.apiVersion.contains('/') ? o.apiVersion.split('/')[0] : '')"


def build_controlling(obj: str) -> str:
    """Returns CEL for the list of an object's owner references with `controller: true`; empty where `obj`, CEL for the object, is null."""
    owners = f"{obj}.metadata.ownerReferences"
    return f"({obj} != null && has({owners}) ? {owners}.filter(o, has(o.controller) && o.controller) : [])"


def build_any(shape: Shape, here: str, part: str, question: Callable[[str], str], depth: int = 0) -> str:
    """Returns CEL that is true where a question is true of the labels or annotations (`part`) of any part of the object `here`. `question`
    builds it for the place of one; `depth` counts the lists around. Returns '' where the shape has none.
    """
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
    """Returns CEL for whether the field `last` of `way` is there, and all on the way to it. `way` is a dotted path; its first part is a
    variable that exists."""
    parts = way.split(".")
    return " && ".join(f"has({'.'.join(parts[: i + 1])})" for i in range(1, len(parts))) + f" && has({way}.{last})"


def has_gate(obj: str, gate: str) -> str:
    """Returns CEL for whether a pod, or a template, has a scheduling gate with the name `gate`, as it is. `obj` is CEL for what has the
    `spec`."""
    return f"(has({obj}.spec.schedulingGates) && {obj}.spec.schedulingGates.exists(g, g.name == '{gate}'))"


def is_set(obj: str, part: str, name: str) -> str:
    """Returns CEL for whether an object has a label or an annotation (`part`: `labels` or `annotations`), whatever its value: '' is a
    value. `obj` is CEL for the object, which must not be null; `name` is the key as it is, and goes into single quotes."""
    field = f"{obj}.metadata.{part}"
    return f"(has({field}) && '{name}' in {field})"


def build_value(obj: str, part: str, name: str) -> str:
    """Returns CEL for a list of one element, the value of a label or an annotation; the list is empty where it is not set. The parameters
    are those of `is_set`."""
    return f"({is_set(obj, part, name)} ? [{obj}.metadata.{part}['{name}']] : [])"

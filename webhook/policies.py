"""What the API server judges by itself, without asking us: ValidatingAdmissionPolicies about who may do what, and one that
warns of objects which nobody will queue although somebody seems to have meant it.

A namespace user may write jobs and pods, but not what topogate alone decides: taking a gate off a pod, starting a queued
job, saying of a pod whose it is. The API server's own authorizer tells users from controllers: who may write the status of
Workloads is topogate (or an administrator), and who may write the status of a JobSet is the controller that
makes Jobs for it. So no user names are configured, the policies hold while the webhook is down, and topogate's own
writes cost no call.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.jobs.contract import JobKind
from core.jobs.known_names import GROUPED, PODSET, WORKLOAD
from core.jobs.pod_kinds import pod_kinds
from core.jobs.pod_parents import Deployment, LeaderWorkerSet, PodParent
from core.jobs.podgroup import Grouping
from core.jobs.shape import Fields, ListOf, MapOf, Shape
from core.names import (
    ADMISSION_GATE,
    GROUP,
    LWS_GROUP_INDEX_LABEL,
    LWS_NAME_LABEL,
    LWS_WORKER_INDEX_LABEL,
    MANAGED_NAMESPACE_LABEL,
    PODGROUP_GATE,
    PODGROUP_TOPOLOGY,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
    SLICE_NAME,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)

PREFIX = "topogate"
_GATES = (TOPOLOGY_GATE, ADMISSION_GATE, PODGROUP_GATE)
_IS_TOPOGATE = (
    f"authorizer.group('{GROUP}').resource('workloads').subresource('status').namespace(object.metadata.namespace).check('patch').allowed()"
)
_IS_LWS = (  # its controller may label pods after they are made
    f"authorizer.group('{LeaderWorkerSet.group}').resource('{LeaderWorkerSet.plural}').subresource('status')"
    ".namespace(object.metadata.namespace).check('update').allowed()"
)
_NOT_SYSTEM = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]}
_MANAGED = {"key": MANAGED_NAMESPACE_LABEL, "operator": "In", "values": ["true"]}
_IN_MANAGED = {"matchExpressions": [*_NOT_SYSTEM["matchExpressions"], _MANAGED]}
_MADE_BY = "only the controller of {kind} may make objects that a {kind} controls"
Rule = Mapping[str, Any]


class _ReplicaSet(Deployment):
    """What stands between a Deployment and its pods; never queued."""

    kind, plural = "ReplicaSet", "replicasets"


_REPLICA_SET = _ReplicaSet()
_Kind = JobKind | PodParent


def policies(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """The policies about all kinds, those of other packages included, each followed by its binding."""
    made = [_pods(kinds), _owners(kinds), _owned_by_pods(kinds), _queues(kinds)]
    made += [_parts(kinds, *part) for part in _possible_parts(kinds)]
    made += [_gated(kind, kind.always_gated) if kind.always_gated else _unsuspending(kind) for kind in kinds]
    warning = _unqueued(kinds)
    return [*(obj for policy in made for obj in (policy, _binding(policy))), warning, _binding(warning, "Warn")]


def _pods(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """Gates of pods, and what says whose pods they are.

    One policy with one question before it: the API server makes a copy of both objects for each policy's questions, again for its
    rules and twice for its messages, and of the pods of large jobs each is written once at least, by us.
    """
    validations = [
        {
            "expression": f"!{_has_gate('oldObject', gate)} || {_has_gate('object', gate)}",
            "message": f"the scheduling gate {gate} is taken off by topogate once the pod has its place",
            "reason": "Forbidden",
        }
        for gate in _GATES
    ]
    for part, name in (("annotations", WORKLOAD_ANNOTATION), ("annotations", SLICE_NAME), ("labels", PODSET_LABEL)):
        validations.append(
            {
                "expression": f"{_value('oldObject', part, name)} == {_value('object', part, name)}",
                "message": f"{name} says whose pod this is and cannot be changed",
                "reason": "Forbidden",
            }
        )
    validations += [
        {
            "expression": f"{_value('oldObject', 'labels', name)} == {_value('object', 'labels', name)} || {_IS_LWS}",
            "message": f"{name} says which workload this pod is of and cannot be changed",
            "reason": "Forbidden",
        }
        for name in (LWS_NAME_LABEL, LWS_GROUP_INDEX_LABEL, LWS_WORKER_INDEX_LABEL)
    ]
    old, new = (f"(has({obj}.metadata.ownerReferences) ? {obj}.metadata.ownerReferences : [])" for obj in ("oldObject", "object"))
    policy = _policy(
        "pods",
        [_rule_of_pods("UPDATE")],
        [*validations, *_by_their_controller(kinds, _MADE_BY)],
        [
            {"name": "written-by-another", "expression": f"!{_IS_TOPOGATE}"},
            {
                "name": "is-gated-or-ours-or-given-away",
                "expression": f"({' || '.join(_has_gate('oldObject', gate) for gate in _GATES)})"
                f" || {_value('oldObject', 'annotations', WORKLOAD_ANNOTATION)} != ''"
                f" || {_value('object', 'annotations', WORKLOAD_ANNOTATION)} != ''"
                f" || {old} != {new}",
            },
        ],
    )
    policy["spec"]["variables"] = _new_owners()
    return policy


def _rule_of_pods(operation: str) -> Rule:
    return {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": [operation], "scope": "Namespaced"}


def _controllers(kinds: Sequence[JobKind]) -> list[tuple[str, str, str]]:
    """Kind, group and plural of whatever makes objects that are not queued themselves."""
    known = [(kind.kind, kind.group, kind.plural) for kind in kinds]
    known += [(kind.kind, kind.group, kind.plural) for kind in _parents(kinds)]
    return [*known, ("DaemonSet", "apps", "daemonsets"), ("ReplicaSet", "apps", "replicasets")]


def _parents(kinds: Sequence[JobKind]) -> list[PodParent]:
    return [kind for kind in pod_kinds(kinds) if isinstance(kind, PodParent)]


def _by_their_controller(kinds: Sequence[JobKind], message: str) -> list[dict[str, str]]:
    """Who writes is the controller of each of `variables.owners`: it may write the status of objects of that kind."""
    validations = []
    for kind, group, plural in _controllers(kinds):
        is_owner = f"o.kind == '{kind}' && o.apiVersion.startsWith('{group}/')"
        allowed = (
            f"authorizer.group('{group}').resource('{plural}').subresource('status')"
            ".namespace(object.metadata.namespace).check('update').allowed()"
        )
        expression = f"!variables.owners.exists(o, {is_owner}) || {allowed}"
        validations.append({"expression": expression, "message": message.format(kind=kind), "reason": "Forbidden"})
    return validations


def _controlling(obj: str) -> str:
    """The owner references of an object that say who controls it."""
    owners = f"{obj}.metadata.ownerReferences"
    return f"({obj} != null && has({owners}) ? {owners}.filter(o, has(o.controller) && o.controller) : [])"


def _owners(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """What belongs to a queued object, or to a DaemonSet, is not queued itself, so only that object's controller may say so."""
    rules = [_rule_of_pods("CREATE"), *_rules_of((*kinds, *_parents(kinds), _REPLICA_SET), ["CREATE", "UPDATE"])]
    policy = _policy("owners", rules, _by_their_controller(kinds, _MADE_BY), [])
    policy["spec"]["variables"] = _new_owners()
    return policy


def _new_owners() -> list[dict[str, str]]:
    """Who controls the object now and did not before."""
    identity = "o.kind + ' ' + o.apiVersion + ' ' + o.uid"
    return [
        {"name": "before", "expression": f"{_controlling('oldObject')}.map(o, {identity})"},
        {"name": "owners", "expression": f"{_controlling('object')}.filter(o, !(({identity}) in variables.before))"},
    ]


def _owned_by_pods(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """Pods of what a part of a queued object controls are not queued themselves. No right tells who acts for a pod, so in a
    managed namespace only the one controller that needs it may have a pod control what makes pods."""
    policy = _policy(
        "owned-by-pods",
        _rules_of((*_parents(kinds), _REPLICA_SET), ["CREATE", "UPDATE"]),
        [
            {
                "expression": f"!variables.owners.exists(o, o.kind == 'Pod' && o.apiVersion == 'v1') || {_IS_LWS} || {_IS_TOPOGATE}",
                "message": "this namespace is managed by topogate: a Pod may be an owner of this object, but not its controller",
                "reason": "Forbidden",
            }
        ],
        [],
    )
    policy["spec"]["variables"] = _new_owners()
    policy["spec"]["matchConstraints"]["namespaceSelector"] = _IN_MANAGED
    return policy


def _possible_parts(kinds: Sequence[JobKind]) -> list[tuple[_Kind, str]]:
    """Kinds that others make objects of, and how one shows that it runs by an admission."""
    possible: tuple[_Kind, ...] = (*kinds, *_parents(kinds), _REPLICA_SET)
    return [(kind, condition) for kind in possible if (condition := _names_workload(kind.spec_shape, "oldObject.spec"))]


def _parts(kinds: Sequence[JobKind], kind: _Kind, names_workload: str) -> dict[str, Any]:
    """What another object's controller made and what runs by that object's admission is changed by that controller alone."""
    told = "this object was admitted as a part of a {kind}: only the controller of {kind} may change its spec or its owner"
    policy = _policy(
        f"parts-{kind.plural}",
        _rules_of([kind], ["UPDATE"]),
        _by_their_controller(kinds, told),
        [
            {
                "name": "is-changed",
                "expression": f"object.spec != oldObject.spec || {_controlling('object')} != {_controlling('oldObject')}",
            },
            {"name": "runs-by-an-admission", "expression": f"has(oldObject.spec) && {names_workload}"},
            {"name": "written-by-another", "expression": f"!{_IS_TOPOGATE}"},
        ],
    )
    policy["spec"]["variables"] = [{"name": "owners", "expression": _controlling("oldObject")}]
    return policy


def _names_workload(shape: Shape, here: str) -> str:
    """Whether annotations anywhere in a part of an object name a workload, as those of started pod templates do; '' where
    that part has none. As deep as topogate reads it."""
    return _in_any(shape, here, "annotations", lambda there: f"'{WORKLOAD_ANNOTATION}' in {there}")


def _in_any(shape: Shape, here: str, part: str, question: Callable[[str], str], depth: int = 0) -> str:
    """Whether a question about the labels or annotations of a part of an object is true of any of them; '' where it has none."""
    match shape:
        case Fields(fields):
            found = []
            for name, inner in fields.items():
                there = f"{here}.{name}"
                inside = question(there) if name == part else _in_any(inner, there, part, question, depth)
                if inside:
                    found.append(f"has({there}) && {inside}")
            return f"({' || '.join(found)})" if len(found) > 1 else "".join(found)
        case ListOf(inner) | MapOf(inner):
            each = f"e{depth}"
            inside = _in_any(inner, each if isinstance(shape, ListOf) else f"{here}[{each}]", part, question, depth + 1)
            return f"{here}.exists({each}, {inside})" if inside else ""
        case _:
            return ""


# --- what nobody queued ---------------------------------------------------------------------------------


def _unqueued(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """An object without a queue which says how its pods are to be placed, or names a queue where nobody reads it, runs wherever
    there is room. The webhook is not asked about it, so that a webhook that is down stops nobody who does not use it.

    Only of new objects, and not of those that a controller makes: nobody reads what that is told.
    """
    labels = "object.metadata.labels"
    misspelt = f"k, k.matches('{_misspelt(QUEUE_NAME_LABEL)}')"
    so = f"without the label {QUEUE_NAME_LABEL} this object is neither queued nor placed"
    validations = [
        {
            "expression": f"!has({labels}) || !{labels}.exists({misspelt})",
            "message": f"a label is not known: {QUEUE_NAME_LABEL} is",
            "messageExpression": f"'metadata.labels[' + {labels}.filter({misspelt})[0] + ']: this label is not known and does nothing; "
            f"{QUEUE_NAME_LABEL} is'",
        },
        {
            "expression": f"{_value('object', 'annotations', QUEUE_NAME_LABEL)} == ''",
            "message": f"metadata.annotations[{QUEUE_NAME_LABEL}]: this is a label and does nothing as an annotation: "
            "set it in metadata.labels",
        },
        {
            "expression": f"!has(object.metadata.annotations) || !{_asks('object.metadata.annotations')}",
            "message": f"it has annotations that say how to place its pods, but {so}",
        },
    ]
    grouped = [f"{kind.kind}.{kind.group}" for kind in (*kinds, *_parents(kinds)) if isinstance(kind, Grouping)]
    validations.append(
        {
            "expression": f"{_value('object', 'annotations', PODGROUP_TOPOLOGY)} == ''"
            f" || (request.kind.kind + '.' + request.kind.group) in {grouped}",
            "message": f"metadata.annotations[{PODGROUP_TOPOLOGY}]: this annotation does nothing here; "
            f"{', '.join(GROUPED[:-1])} and {GROUPED[-1]} read it",
        }
    )
    parents = _parents(kinds)
    with_templates: tuple[_Kind, ...] = (*kinds, *parents)
    for kind in with_templates:
        groups = _in_any(kind.spec_shape, "dyn(object).spec", "annotations", lambda there: f"'{PODGROUP_TOPOLOGY}' in {there}")
        if groups and isinstance(kind, Grouping):
            place = f"set it in metadata.annotations of the {kind.kind} itself"
            message = f"the annotation {PODGROUP_TOPOLOGY} does nothing on a pod template: {place}"
            validations.append({"expression": _unless(kind, groups), "message": message})
        # Templates are read as what they are in one kind only, which the type checker of the API server cannot know.
        asks = _in_any(kind.spec_shape, "dyn(object).spec", "annotations", _asks)
        queued = _in_any(kind.spec_shape, "dyn(object).spec", "labels", lambda there: f"'{QUEUE_NAME_LABEL}' in {there}")
        told = f"annotations of its pod template say how to place its pods, but {so}"
        if kind in parents:  # whose pods are queued themselves where the template names the queue
            asks = f"{asks} && !({queued})"
        elif queued:
            message = f"the label {QUEUE_NAME_LABEL} does nothing on a pod template: set it in metadata.labels of the {kind.kind} itself"
            validations.append({"expression": _unless(kind, queued), "message": message})
        if asks:
            validations.append({"expression": _unless(kind, asks), "message": told})
    rules = [_rule_of_pods("CREATE"), *_rules_of((*kinds, *parents), ["CREATE"])]
    is_made_by_a_user = {"name": "is-made-by-a-user", "expression": f"size({_controlling('object')}) == 0"}
    policy = _policy("unqueued", rules, validations, [is_made_by_a_user])
    policy["spec"]["failurePolicy"] = "Ignore"  # what cannot be said is no reason to refuse anything
    unmanaged = {**_MANAGED, "operator": "NotIn"}
    policy["spec"]["matchConstraints"] |= {
        "namespaceSelector": {"matchExpressions": [*_NOT_SYSTEM["matchExpressions"], unmanaged]},
        "objectSelector": {"matchExpressions": [{"key": QUEUE_NAME_LABEL, "operator": "DoesNotExist"}]},
    }
    return policy


def _asks(annotations: str) -> str:
    """Whether annotations say how close pods are to be."""
    return f"{annotations}.exists(k, k.startsWith('{PODSET}') || k.startsWith('{WORKLOAD}'))"


def _unless(kind: _Kind, question: str) -> str:
    is_kind = f"request.kind.kind == '{kind.kind}' && request.kind.group == '{kind.group}'"
    return f"!({is_kind} && has(dyn(object).spec) && {question})"


def _misspelt(name: str) -> str:
    """A regular expression of what one finger makes of a name: a letter too many, too few, another one, two in the wrong order."""
    prefix, _, rest = name.partition("/")
    slips = [f"{rest[:i]}.{{0,2}}{rest[i + 1 :]}" for i in range(len(rest))]
    slips += [f"{rest[:i]}{rest[i + 1]}{rest[i]}{rest[i + 2 :]}" for i in range(len(rest) - 1)]
    return f"^({prefix.replace('.', '[.]')}|topogate[.]dev)/(?i:{'|'.join(slips)})$"


def _queues(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """In a managed namespace whatever can be queued is."""
    policy = _policy(
        "queues",
        _rules_of(kinds, ["UPDATE"]),
        [
            {
                "expression": f"{_value('object', 'labels', QUEUE_NAME_LABEL)} != '' || {_IS_TOPOGATE}",
                "message": f"this namespace is managed by topogate: the label {QUEUE_NAME_LABEL} cannot be taken off",
                "reason": "Forbidden",
            }
        ],
        [{"name": "was-queued", "expression": f"{_value('oldObject', 'labels', QUEUE_NAME_LABEL)} != ''"}],
    )
    policy["spec"]["matchConstraints"]["namespaceSelector"] = _IN_MANAGED
    return policy


def _gated(kind: JobKind, template: Sequence[str | int]) -> dict[str, Any]:
    """The gate on the template of a queued job keeps its pods from running before it is admitted."""
    way = ".".join(map(str, template))
    old, new = (f"{obj}.{way}" for obj in ("oldObject", "object"))
    return _policy(
        f"gated-{kind.plural}",
        _rules_of([kind], ["UPDATE"]),
        [
            {
                "expression": f"{_has_gate(new, TOPOLOGY_GATE)} || {_IS_TOPOGATE}",
                "message": f"the scheduling gate {TOPOLOGY_GATE} of a queued {kind.kind} is taken off by topogate",
                "reason": "Forbidden",
            }
        ],
        [
            {"name": "is-queued", "expression": f"{_value('object', 'labels', QUEUE_NAME_LABEL)} != ''"},
            {"name": "was-gated", "expression": _has_gate(old, TOPOLOGY_GATE)},
        ],
    )


def _rules_of(kinds: Sequence[_Kind], operations: Sequence[str]) -> list[Rule]:
    by_group: dict[str, list[_Kind]] = {}
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


def _unsuspending(kind: JobKind) -> dict[str, Any]:
    """A queued object whose pods are not gated from the start must not be started by hand."""
    *way, last = map(str, kind.suspend_path)
    suspended = "oldObject" + "".join(f".{key}" for key in way)
    here = "object" + "".join(f".{key}" for key in way)
    message = (
        f"a queued {kind.kind} is started by topogate once it is admitted; to queue a suspended one again, "
        f"take the label {QUEUE_NAME_LABEL} off and put it on again"
    )
    return _policy(
        f"unsuspend-{kind.plural}",
        _rules_of([kind], ["UPDATE"]),
        [{"expression": _IS_TOPOGATE, "message": message, "reason": "Forbidden"}],
        [
            {"name": "is-queued", "expression": f"{_value('object', 'labels', QUEUE_NAME_LABEL)} != ''"},
            {"name": "was-suspended", "expression": f"{_has(suspended, last)} && {suspended}.{last}"},
            {"name": "is-unsuspended", "expression": f"!({_has(here, last)} && {here}.{last})"},
        ],
    )


def _has(way: str, last: str) -> str:
    parts = way.split(".")
    return " && ".join(f"has({'.'.join(parts[: i + 1])})" for i in range(1, len(parts))) + f" && has({way}.{last})"


def _has_gate(obj: str, gate: str) -> str:
    return f"(has({obj}.spec.schedulingGates) && {obj}.spec.schedulingGates.exists(g, g.name == '{gate}'))"


def _value(obj: str, part: str, name: str) -> str:
    """A label or an annotation, '' where it is not set."""
    field = f"{obj}.metadata.{part}"
    return f"(has({field}) && '{name}' in {field} ? {field}['{name}'] : '')"


def _policy(
    name: str, rules: Sequence[Rule], validations: Sequence[Mapping[str, str]], conditions: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "namespaceSelector": _NOT_SYSTEM, "resourceRules": list(rules)},
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


def _binding(policy: Mapping[str, Any], action: str = "Deny") -> dict[str, Any]:
    name = policy["metadata"]["name"]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": [action]},
    }

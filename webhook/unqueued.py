"""The policies that warn of objects that are not queued although their annotations or labels suggest it."""

from collections.abc import Sequence
from typing import Any

from core.jobs.annotation_catalog import GROUPED, PODSET, WORKLOAD
from core.jobs.contract import JobKind
from core.jobs.podgroup_annotation import Grouping
from core.names import PODGROUP_TOPOLOGY, QUEUE_NAME_LABEL
from webhook.policy_expressions import (
    MANAGED,
    NOT_SYSTEM,
    Kind,
    build_any,
    build_controlling,
    build_pod_rule,
    build_policy,
    is_set,
    list_parents,
    list_rules,
)


def build_unqueued_policy(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """Returns the policy for objects without a queue that describe the placement of their pods, or name a queue where it has no effect;
    without a binding, which makes it a warning. Such an object runs wherever there is room.

    The webhook gets no request for them, so that a webhook that is down blocks only objects that use it. The policy applies to new objects
    outside of managed namespaces only, and not to those that a controller creates: no user reads warnings for these."""
    so = f"without the label {QUEUE_NAME_LABEL} this object is neither queued nor placed"
    validations = [
        _build_misspelt_warning("label", QUEUE_NAME_LABEL),
        _build_misspelt_warning("annotation", PODGROUP_TOPOLOGY),
        {
            "expression": f"!{is_set('object', 'annotations', QUEUE_NAME_LABEL)}",
            "message": f"metadata.annotations[{QUEUE_NAME_LABEL}]: this is a label and does nothing as an annotation: "
            "set it in metadata.labels",
        },
        {
            "expression": f"!has(object.metadata.annotations) || !{_build_question('object.metadata.annotations')}",
            "message": f"it has annotations that say how to place its pods, but {so}",
        },
    ]
    grouped = [f"{kind.kind}.{kind.group}" for kind in (*kinds, *list_parents(kinds)) if isinstance(kind, Grouping)]
    validations.append(
        {
            "expression": f"!{is_set('object', 'annotations', PODGROUP_TOPOLOGY)}"
            f" || (request.kind.kind + '.' + request.kind.group) in {grouped}",
            "message": f"metadata.annotations[{PODGROUP_TOPOLOGY}]: this annotation does nothing here; "
            f"{', '.join(GROUPED[:-1])} and {GROUPED[-1]} read it",
        }
    )
    parents = list_parents(kinds)
    with_templates: tuple[Kind, ...] = (*kinds, *parents)
    for kind in with_templates:
        groups = build_any(kind.spec_shape, "dyn(object).spec", "annotations", lambda there: f"'{PODGROUP_TOPOLOGY}' in {there}")
        if groups and isinstance(kind, Grouping):
            place = f"set it in metadata.annotations of the {kind.kind} itself"
            message = f"the annotation {PODGROUP_TOPOLOGY} does nothing on a pod template: {place}"
            validations.append({"expression": _build_unless(kind, groups), "message": message})
        # Templates are read as what they are in one kind only, which the type checker of the API server cannot know.
        asks = build_any(kind.spec_shape, "dyn(object).spec", "annotations", _build_question)
        queued = build_any(kind.spec_shape, "dyn(object).spec", "labels", lambda there: f"'{QUEUE_NAME_LABEL}' in {there}")
        warning = f"annotations of its pod template say how to place its pods, but {so}"
        if kind in parents:  # kinds with pods that are queued themselves where the template names the queue
            asks = f"{asks} && !({queued})"
        elif queued:
            message = f"the label {QUEUE_NAME_LABEL} does nothing on a pod template: set it in metadata.labels of the {kind.kind} itself"
            validations.append({"expression": _build_unless(kind, queued), "message": message})
        if asks:
            validations.append({"expression": _build_unless(kind, asks), "message": warning})
    rules = [build_pod_rule("CREATE"), *list_rules((*kinds, *parents), ["CREATE"])]
    is_made_by_a_user = {"name": "is-made-by-a-user", "expression": f"size({build_controlling('object')}) == 0"}
    policy = build_policy("unqueued", rules, validations, [is_made_by_a_user])
    policy["spec"]["failurePolicy"] = "Ignore"  # what cannot be evaluated is no reason to refuse anything
    unmanaged = {**MANAGED, "operator": "NotIn"}
    policy["spec"]["matchConstraints"] |= {
        "namespaceSelector": {"matchExpressions": [*NOT_SYSTEM["matchExpressions"], unmanaged]},
        "objectSelector": {"matchExpressions": [{"key": QUEUE_NAME_LABEL, "operator": "DoesNotExist"}]},
    }
    return policy


def build_cron_job_policy() -> dict[str, Any]:
    """Returns the policy for CronJobs with the label of a queue where it has no effect, on itself or on the pod template, and not where its
    Jobs get it from; without a binding, which makes it a warning. It applies to new and changed CronJobs, also in managed namespaces."""
    template = "object.spec.jobTemplate"
    rule = {
        "apiGroups": ["batch"],
        "apiVersions": ["v1"],
        "resources": ["cronjobs"],
        "operations": ["CREATE", "UPDATE"],
        "scope": "Namespaced",
    }
    place = f"set the label {QUEUE_NAME_LABEL} in spec.jobTemplate.metadata.labels, from where each Job gets its labels"
    validations = [
        {
            "expression": f"{_has_label(template)} || !{_has_label(there)}",
            "message": f"{path}[{QUEUE_NAME_LABEL}]: this label does nothing here, and the Jobs are neither queued nor placed: {place}",
        }
        for there, path in (("object", "metadata.labels"), (f"{template}.spec.template", "spec.jobTemplate.spec.template.metadata.labels"))
    ]
    policy = build_policy("cronjobs", [rule], validations, [])
    policy["spec"]["failurePolicy"] = "Ignore"
    return policy


def _has_label(obj: str) -> str:
    return f"('{QUEUE_NAME_LABEL}' in {obj}.?metadata.?labels.orValue({{}}))"


def _build_question(annotations: str) -> str:
    """Whether annotations define how close pods are to be."""
    return f"{annotations}.exists(k, k.startsWith('{PODSET}') || k.startsWith('{WORKLOAD}'))"


def _build_unless(kind: Kind, question: str) -> str:
    is_kind = f"request.kind.kind == '{kind.kind}' && request.kind.group == '{kind.group}'"
    return f"!({is_kind} && has(dyn(object).spec) && {question})"


def _build_misspelt_warning(what: str, name: str) -> dict[str, str]:
    """Of a label or an annotation of the object itself that is nearly this one."""
    there = f"object.metadata.{what}s"
    misspelt = f"k, k != '{name}' && k.matches('{_build_misspelt_pattern(name)}')"
    return {
        "expression": f"!has({there}) || !{there}.exists({misspelt})",
        "message": f"{'an' if what[0] == 'a' else 'a'} {what} is not known; did you mean {name}?",
        "messageExpression": f"'metadata.{what}s[' + {there}.filter({misspelt})[0] + ']: this {what} is not known and does nothing; "
        f"did you mean {name}?'",
    }


def _build_misspelt_pattern(name: str) -> str:
    """A regular expression of what one finger makes of a name: a letter too many, too few, another one, two in the wrong order."""
    prefix, _, rest = name.partition("/")
    prefixes = "|".join(sorted({prefix.replace(".", "[.]"), "topogate[.]dev"}))
    slips = [f"{rest[:i]}.{{0,2}}{rest[i + 1 :]}" for i in range(len(rest))]
    slips += [f"{rest[:i]}{rest[i + 1]}{rest[i]}{rest[i + 2 :]}" for i in range(len(rest) - 1)]
    return f"^({prefixes})/(?i:{'|'.join(slips)})$"

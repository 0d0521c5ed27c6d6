"""The limits of `core.jobs.pod_rules` as a policy about pods behind a gate of topogate's, for all that make or change them."""

from typing import Any

from core.jobs.pod_rules import (
    ADDED_NODE_ENTRIES,
    ADDED_TOLERATIONS,
    MAX_GRACE_S,
    MAX_HOST_PORTS,
    MAX_POD_TERMS,
    MAX_SELECTOR_ENTRIES,
    MAX_TOLERATIONS,
    POD_TERMS,
)
from core.names import ADMISSION_GATE, PODGROUP_GATE, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from webhook.policy_expressions import build_pod_rule, build_policy, has_gate, is_set

GATES = (TOPOLOGY_GATE, ADMISSION_GATE, PODGROUP_GATE)
# A pod of a started job is created from a template that was checked, to which the flavor has added its own tolerations
# and labels.
_IS_STARTED = is_set("object", "annotations", WORKLOAD_ANNOTATION)
_QUEUED_ITSELF = f"({has_gate('object', TOPOLOGY_GATE)} || {has_gate('object', ADMISSION_GATE)}) && !{_IS_STARTED}"
_CHANGED = ("affinity", "tolerations", "nodeSelector", "topologySpreadConstraints")


def build_limits(written_by_another: str) -> dict[str, Any]:
    """Returns the policy that limits fields of new pods, and of pods with changed placement fields, behind a gate of topogate's; without a
    binding. Pods of started jobs are exempt. `written_by_another` is a CEL expression: whether another than topogate writes, as its own
    changes come from flavors and assignments."""
    rules = (
        (
            "spec.affinity and spec.topologySpreadConstraints",
            f"{_POD_TERMS} + {_count_entries('object.spec', 'topologySpreadConstraints')}",
            MAX_POD_TERMS,
            0,
            "terms of affinity between pods and spread constraints",
        ),
        (
            "spec.nodeSelector and spec.affinity.nodeAffinity",
            _NODE_ENTRIES,
            MAX_SELECTOR_ENTRIES,
            ADDED_NODE_ENTRIES,
            "expressions and values in nodeSelector and node affinity",
        ),
        ("spec.affinity", _POD_ENTRIES, MAX_SELECTOR_ENTRIES, 0, "expressions, values and namespaces in terms of affinity between pods"),
        ("spec.tolerations", _count_entries("object.spec", "tolerations"), MAX_TOLERATIONS, ADDED_TOLERATIONS, "tolerations"),
        ("spec.containers and spec.initContainers", _HOST_PORTS, MAX_HOST_PORTS, 0, "host ports"),
        ("spec.terminationGracePeriodSeconds", "object.spec.?terminationGracePeriodSeconds.orValue(0)", MAX_GRACE_S, 0, "seconds to end"),
    )
    validations = [
        {
            "expression": f"{count} <= {most + added}",
            "message": f"{field}: {accepted}",
            "messageExpression": f"'{field}: ' + string({count}) + ': {accepted}'",
            "reason": "Invalid",
        }
        for field, count, most, added, what in rules
        for accepted in (_explain(most, added, what),)
    ]
    changed = " || ".join(f"object.spec.?{name} != oldObject.spec.?{name}" for name in _CHANGED)
    return build_policy(
        "limits",
        [build_pod_rule("CREATE"), build_pod_rule("UPDATE")],
        validations,
        [
            {"name": "waits-for-topogate", "expression": f"{has_gate('object', PODGROUP_GATE)} || ({_QUEUED_ITSELF})"},
            {"name": "is-new-or-changed", "expression": f"oldObject == null || {changed}"},
            {"name": "written-by-another", "expression": written_by_another},
        ],
    )


def _explain(most: int, added: int, what: str) -> str:
    besides = f", and {added} that the API server, flavors and webhooks add" if added else ""
    return f"a pod that topogate places has at most {most} {what}{besides}"


def build_grace() -> dict[str, Any]:
    """Returns the policy, without a binding, that refuses deletions of pods of workloads with a grace period above `MAX_GRACE_S` seconds.
    One that is no longer than that of the pod's spec is allowed."""
    of_workload = f"a pod of an admitted workload has at most {MAX_GRACE_S} seconds to end: it holds its quota until it is gone"
    return build_policy(
        "grace",
        [build_pod_rule("DELETE")],
        [
            {
                "expression": f"request.options.?gracePeriodSeconds.orValue(0) <= {MAX_GRACE_S}"
                " || request.options.gracePeriodSeconds <= oldObject.spec.?terminationGracePeriodSeconds.orValue(0)",
                "message": f"gracePeriodSeconds: {of_workload}",
                "messageExpression": f"'gracePeriodSeconds: ' + string(request.options.gracePeriodSeconds) + ': {of_workload}'",
                "reason": "Invalid",
            }
        ],
        [{"name": "is-of-a-workload", "expression": is_set("oldObject", "annotations", WORKLOAD_ANNOTATION)}],
    )


def build_evictions() -> dict[str, Any]:
    """Returns the policy, without a binding, that refuses evictions of pods with a grace period above `MAX_GRACE_S` seconds or with the
    policy Orphan. An eviction deletes a pod, and no rule of deletions is asked of it."""
    return build_policy(
        "evictions",
        [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"], "operations": ["CREATE"], "scope": "Namespaced"}],
        [
            {
                "expression": f"object.?deleteOptions.?gracePeriodSeconds.orValue(0) <= {MAX_GRACE_S}",
                "message": f"deleteOptions.gracePeriodSeconds: an evicted pod has at most {MAX_GRACE_S} seconds to end",
                "messageExpression": "'deleteOptions.gracePeriodSeconds: ' + string(object.deleteOptions.gracePeriodSeconds)"
                f" + ': an evicted pod has at most {MAX_GRACE_S} seconds to end'",
                "reason": "Invalid",
            },
            {
                "expression": "object.?deleteOptions.?propagationPolicy.orValue('') != 'Orphan'"
                " && !object.?deleteOptions.?orphanDependents.orValue(false)",
                "message": "a pod is evicted with the pods that it controls",
                "reason": "Invalid",
            },
        ],
        [],
    )


def _count_entries(obj: str, field: str) -> str:
    return f"size({obj}.?{field}.orValue([]))"


def _list_expressions(obj: str, field: str) -> str:
    """How many expressions a list of a selector has, each with its values."""
    return f"{obj}.?{field}.orValue([]).map(e, 1 + {_count_entries('e', 'values')}).sum()"


def _list_terms(rules: str, kind: str, inner: str = "") -> str:
    """Terms of one kind, those that are preferred without their weight."""
    found = f"object.spec.?affinity.?{rules}.?{kind}{inner}.orValue([])"
    return found if kind == POD_TERMS[0] else f"{found}.map(w, {'w.preference' if rules == 'nodeAffinity' else 'w.podAffinityTerm'})"


_OF_PODS = [_list_terms(rules, kind) for rules in ("podAffinity", "podAntiAffinity") for kind in POD_TERMS]
_POD_TERMS = " + ".join(f"size({terms})" for terms in _OF_PODS)
_SELECTORS = " + ".join(
    f"{_list_expressions(f't.?{selector}', 'matchExpressions')} + size(t.?{selector}.?matchLabels.orValue({{}}))"
    for selector in ("labelSelector", "namespaceSelector")
)
_KEYS = " + ".join(_count_entries("t", name) for name in ("namespaces", "matchLabelKeys", "mismatchLabelKeys"))
_POD_ENTRIES = " + ".join(f"{terms}.map(t, {_SELECTORS} + {_KEYS}).sum()" for terms in _OF_PODS)
_OF_NODES = [_list_terms("nodeAffinity", POD_TERMS[0], ".?nodeSelectorTerms"), _list_terms("nodeAffinity", POD_TERMS[1])]
_NODE_ENTRIES = "size(object.spec.?nodeSelector.orValue({})) + " + " + ".join(
    f"{terms}.map(t, {_list_expressions('t', 'matchExpressions')} + {_list_expressions('t', 'matchFields')}).sum()" for terms in _OF_NODES
)
_HOST_PORTS = " + ".join(
    f"object.spec.?{part}.orValue([]).map(c, c.?ports.orValue([]).filter(p, p.?hostPort.orValue(0) > 0).size()).sum()"
    for part in ("containers", "initContainers")
)

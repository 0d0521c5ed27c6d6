"""The policies that the API server judges by: named once, bound once, about every kind; what they do is shown in tests/e2e."""

from __future__ import annotations

from typing import Any

from core.jobs.kinds import KINDS
from core.jobs.pod_kinds import pod_kinds
from core.jobs.shape import Fields, ListOf, MapOf, Shape
from core.names import LWS_GROUP_INDEX_LABEL, LWS_NAME_LABEL, LWS_WORKER_INDEX_LABEL, MANAGED_NAMESPACE_LABEL, WORKLOAD_ANNOTATION
from webhook.policies import policies


def test_every_policy_is_bound_and_denies():
    made = policies(KINDS)
    names = [obj["metadata"]["name"] for obj in made if obj["kind"] == "ValidatingAdmissionPolicy"]
    assert len(set(names)) == len(names)
    bindings = {obj["spec"]["policyName"]: obj["spec"] for obj in made if obj["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert set(bindings) == set(names)
    assert all(spec["validationActions"] == ["Deny"] for spec in bindings.values())


def test_no_kind_can_be_started_by_hand_and_each_has_its_owners_guarded():
    by_name = {obj["metadata"]["name"]: obj for obj in policies(KINDS) if obj["kind"] == "ValidatingAdmissionPolicy"}
    for kind in KINDS:
        guard = f"topogate-{'gated' if kind.always_gated else 'unsuspend'}-{kind.plural}"
        assert guard in by_name
    owners = " ".join(validation["expression"] for validation in by_name["topogate-owners"]["spec"]["validations"])
    # Whatever the webhook takes for the owner of what is not queued itself.
    assert all(f"o.kind == '{kind.kind}'" in owners for kind in (*KINDS, *pod_kinds()) if kind.kind != "Pod")
    assert all(f"o.kind == '{kind}'" in owners for kind in ("DaemonSet", "ReplicaSet"))


def test_the_system_namespace_is_left_alone_and_nothing_is_let_through_unjudged():
    for policy in policies(KINDS):
        if policy["kind"] == "ValidatingAdmissionPolicy":
            assert policy["spec"]["failurePolicy"] == "Fail"
            selector = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
            assert {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]} in selector


def by_name(name: str) -> dict[str, Any]:
    (policy,) = (obj for obj in policies(KINDS) if obj["kind"] == "ValidatingAdmissionPolicy" and obj["metadata"]["name"] == name)
    return policy


def test_parts_of_every_kind_are_guarded_wherever_they_hold_a_template():
    parents = [kind for kind in pod_kinds() if kind.kind != "Pod"]
    for kind in (*KINDS, *parents):
        policy = by_name(f"topogate-parts-{kind.plural}")
        (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
        assert (rule["apiGroups"], rule["resources"], rule["operations"]) == ([kind.group], [kind.plural], ["UPDATE"])
        condition = next(c for c in policy["spec"]["matchConditions"] if c["name"] == "runs-by-an-admission")["expression"]
        assert condition.count(f"'{WORKLOAD_ANNOTATION}' in ") == templates_of(kind.spec_shape)
    assert by_name("topogate-parts-replicasets")


def templates_of(shape: Shape) -> int:
    """How many places for annotations a shape has."""
    match shape:
        case Fields(fields):
            return sum(1 if name == "annotations" else templates_of(inner) for name, inner in fields.items())
        case ListOf(inner) | MapOf(inner):
            return templates_of(inner)
        case _:
            return 0


def test_what_says_of_which_replica_a_pod_is_cannot_be_changed():
    expressions = [v["expression"] for v in by_name("topogate-pods")["spec"]["validations"]]
    for label in (LWS_NAME_LABEL, LWS_GROUP_INDEX_LABEL, LWS_WORKER_INDEX_LABEL):
        assert any(f"'{label}' in oldObject.metadata.labels" in expression for expression in expressions)


def test_whoever_can_be_between_a_pod_and_what_is_queued_for_it_has_its_owners_guarded():
    owners = by_name("topogate-owners")["spec"]["matchConstraints"]["resourceRules"]
    pods = by_name("topogate-owned-by-pods")["spec"]["matchConstraints"]
    between = {kind.plural for kind in pod_kinds() if kind.kind != "Pod"} | {"replicasets"}
    for rules in (owners, pods["resourceRules"]):
        guarded = {plural for rule in rules if {"CREATE", "UPDATE"} <= set(rule["operations"]) for plural in rule["resources"]}
        assert between <= guarded
    managed = {"key": MANAGED_NAMESPACE_LABEL, "operator": "In", "values": ["true"]}
    assert managed in pods["namespaceSelector"]["matchExpressions"], "elsewhere pods may control what they like"

"""The policies that the API server judges by: named once, bound once, about every kind; what they do is shown in tests/e2e."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.jobs.annotation_catalog import find_meant
from core.jobs.contract import PodSetStart
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.jobs.schema_check import Fields, ListOf, MapOf, Shape
from core.names import (
    ADMISSION_GATE,
    LWS_GROUP_INDEX_LABEL,
    LWS_NAME_LABEL,
    LWS_WORKER_INDEX_LABEL,
    MANAGED_NAMESPACE_LABEL,
    PODGROUP_GATE,
    QUEUE_NAME_LABEL,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from core.plan.steps import writes
from core.plan.steps.coordinates import Coordinates
from core.plan.steps.ungate import Ungate
from webhook.policies import list_policies
from webhook.policy_expressions import OWNER_KIND
from webhook.registration import build_configurations
from webhook.unqueued import _build_misspelt_pattern

MUTATING, _ = build_configurations("Q0E=", {"url": "https://127.0.0.1:9443/"})


WARNING = ("topogate-unqueued", "topogate-cronjobs")


def test_every_policy_is_bound_and_denies_but_for_those_that_warn():
    made = list_policies(KINDS)
    names = [obj["metadata"]["name"] for obj in made if obj["kind"] == "ValidatingAdmissionPolicy"]
    assert len(set(names)) == len(names)
    bindings = {obj["spec"]["policyName"]: obj["spec"] for obj in made if obj["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert set(bindings) == set(names)
    assert [bindings.pop(name)["validationActions"] for name in WARNING] == [["Warn"], ["Warn"]]
    assert all(spec["validationActions"] == ["Deny"] for spec in bindings.values())


def test_no_kind_can_be_started_by_hand_and_each_has_its_owners_guarded():
    by_name = {obj["metadata"]["name"]: obj for obj in list_policies(KINDS) if obj["kind"] == "ValidatingAdmissionPolicy"}
    for kind in KINDS:
        guard = f"topogate-{'gated' if kind.always_gated else 'unsuspend'}-{kind.plural}"
        assert guard in by_name
    owners = " ".join(validation["expression"] for validation in by_name["topogate-owners"]["spec"]["validations"])
    # Whatever the webhook takes for the owner of what is not queued itself.
    assert all(f"'{kind.kind}.{kind.group}' in variables.owners" in owners for kind in (*KINDS, *list_pod_kinds()) if kind.kind != "Pod")
    assert all(f"'{kind}.apps' in variables.owners" in owners for kind in ("DaemonSet", "ReplicaSet"))


def test_policy_of_reconciler_keeps_no_field_that_a_plan_patches():
    """The policy refused the affinity that pins the pods of a group, and no fast test saw it."""
    kept = {rule["expression"].split(" ")[0] for rule in get_policy("topogate-reconciler")["spec"]["validations"]}
    assert {"object.spec.?containers", "object.metadata.?ownerReferences"} <= kept
    gates = [{"name": gate} for gate in (ADMISSION_GATE, TOPOLOGY_GATE, PODGROUP_GATE)]
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1"}, "spec": {"schedulingGates": gates}}
    seen = cast("Any", SimpleNamespace(key="n/p", uid="u"))
    plans = [
        writes.ungate(Ungate(seen, "main", {"rack": "r"}, True, Coordinates({"a": "b"}, {"c": "d"}))),
        writes.start_pod(pod, PodSetStart("main", False, {"rack": "r"}, [{"key": "k"}], {"a": "b"}, {"c": "d"})),
        writes.release_pod(pod),
        writes.ungate_to_node(pod, "node", "traceparent"),
    ]
    bodies = [plan.body for plan in plans]
    # All patches of pods but those of the subresource `status`, which the policy does not match.
    written = re.findall(r"return _patch_pod\((.*)\)", inspect.getsource(writes))
    assert len(bodies) == sum('"status"' not in arguments for arguments in written)
    patched = {f"object.{part}.?{name}" for body in bodies for part in ("metadata", "spec") for name in body.get(part, {})}
    assert {"object.spec.?affinity", "object.spec.?nodeSelector", "object.spec.?tolerations"} <= patched
    assert not patched & kept


def test_owner_kind_in_policies_and_webhook_is_one_expression():
    """Former defect: where the two differ, a pod is neither queued nor refused."""
    conditions = [c for c in MUTATING["webhooks"] if c["rules"][0]["resources"] == ["pods"] for c in c["matchConditions"]]
    assert any(OWNER_KIND in condition["expression"] for condition in conditions)
    for name in ("owners", "owners-of-pods", "owned-by-pods", "pods", "parts-jobs"):
        owners = next(v for v in get_policy(f"topogate-{name}")["spec"]["variables"] if v["name"] == "owners")
        assert OWNER_KIND in owners["expression"]


def test_policies_about_a_queue_test_for_presence_of_label():
    """An empty value is a value."""
    made = [obj for obj in list_policies(KINDS) if obj["kind"] == "ValidatingAdmissionPolicy"]
    expressions = [v["expression"] for obj in made for part in ("validations", "matchConditions") for v in obj["spec"].get(part, ())]
    about = [e for e in expressions if f"labels['{QUEUE_NAME_LABEL}']" in e]
    assert about == [], "none reads its value"
    assert sum(f"'{QUEUE_NAME_LABEL}' in " in e for e in expressions) > len(KINDS)


def test_policy_of_reconciler_names_its_account_in_every_namespace():
    (policy,) = (
        p
        for p in list_policies(KINDS, "system:serviceaccount:a:b")
        if p["metadata"]["name"] == "topogate-reconciler" and "validations" in p["spec"]
    )
    assert [c["expression"] for c in policy["spec"]["matchConditions"]] == ["request.userInfo.username == 'system:serviceaccount:a:b'"]
    assert "namespaceSelector" not in policy["spec"]["matchConstraints"]


def test_the_system_namespace_is_left_alone_and_nothing_is_let_through_unjudged():
    for policy in list_policies(KINDS):
        if policy["kind"] == "ValidatingAdmissionPolicy" and policy["metadata"]["name"] != "topogate-reconciler":
            warns = policy["metadata"]["name"] in WARNING
            assert policy["spec"]["failurePolicy"] == ("Ignore" if warns else "Fail")
            selector = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
            assert {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]} in selector


def get_policy(name: str) -> dict[str, Any]:
    (policy,) = (obj for obj in list_policies(KINDS) if obj["kind"] == "ValidatingAdmissionPolicy" and obj["metadata"]["name"] == name)
    return policy


def test_parts_of_every_kind_are_guarded_wherever_they_hold_a_template():
    parents = [kind for kind in list_pod_kinds() if kind.kind != "Pod"]
    for kind in (*KINDS, *parents):
        policy = get_policy(f"topogate-parts-{kind.plural}")
        (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
        assert (rule["apiGroups"], rule["resources"], rule["operations"]) == ([kind.group], [kind.plural], ["UPDATE", "DELETE"])
        condition = next(c for c in policy["spec"]["matchConditions"] if c["name"] == "runs-by-an-admission")["expression"]
        assert condition.count(f"'{WORKLOAD_ANNOTATION}' in ") == count_templates(kind.spec_shape)
    assert get_policy("topogate-parts-replicasets")


def count_templates(shape: Shape) -> int:
    """How many places for annotations a shape has."""
    match shape:
        case Fields(fields):
            return sum(1 if name == "annotations" else count_templates(inner) for name, inner in fields.items())
        case ListOf(inner) | MapOf(inner):
            return count_templates(inner)
        case _:
            return 0


def test_pod_policy_guards_the_replica_labels_of_leader_worker_sets():
    expressions = [v["expression"] for v in get_policy("topogate-pods")["spec"]["validations"]]
    for label in (LWS_NAME_LABEL, LWS_GROUP_INDEX_LABEL, LWS_WORKER_INDEX_LABEL):
        assert any(f"'{label}' in oldObject.metadata.labels" in expression for expression in expressions)


def test_owner_policies_guard_each_kind_between_a_pod_and_its_queued_object():
    owners = get_policy("topogate-owners")["spec"]["matchConstraints"]["resourceRules"]
    pods = get_policy("topogate-owned-by-pods")["spec"]["matchConstraints"]
    between = {kind.plural for kind in list_pod_kinds() if kind.kind != "Pod"} | {"replicasets"}
    for rules in (owners, pods["resourceRules"]):
        guarded = {plural for rule in rules if {"CREATE", "UPDATE"} <= set(rule["operations"]) for plural in rule["resources"]}
        assert between <= guarded
    managed = {"key": MANAGED_NAMESPACE_LABEL, "operator": "In", "values": ["true"]}
    assert managed in pods["namespaceSelector"]["matchExpressions"], "elsewhere pods may control what they like"


def test_whatever_the_webhook_would_be_asked_about_is_warned_of_where_it_is_not():
    unqueued = get_policy("topogate-unqueued")["spec"]
    asked = {kind.plural for kind in (*KINDS, *list_pod_kinds())}
    assert {plural for rule in unqueued["matchConstraints"]["resourceRules"] for plural in rule["resources"]} == asked
    assert {operation for rule in unqueued["matchConstraints"]["resourceRules"] for operation in rule["operations"]} == {"CREATE"}
    (managed,) = (e for e in unqueued["matchConstraints"]["namespaceSelector"]["matchExpressions"] if e["key"] == MANAGED_NAMESPACE_LABEL)
    assert managed["operator"] == "NotIn", "there the webhook is asked"


@pytest.mark.parametrize(
    ("name", "is_slip"),
    [
        ("kueue.x-k8s.io/queue-nam", True),
        ("kueue.x-k8s.io/queue-names", True),
        ("kueue.x-k8s.io/quue-name", True),
        ("kueue.x-k8s.io/queue_name", True),
        ("kueue.x-k8s.io/queuename", True),
        ("kueue.x-k8s.io/queueName", True),
        ("kueue.x-k8s.io/uqeue-name", True),
        ("topogate.dev/queue-name", True),
        ("kueue.x-k8s.io/cluster-queue-name", False),
        ("kueue.x-k8s.io/local-queue-name", False),
        ("kueue.x-k8s.io/priority-class", False),
        ("kueuexx-k8s.io/queue-nam", False),
        ("example.com/queue-nam", False),
    ],
)
def test_misspelt_queue_label_is_distinguished_from_other_names(name: str, is_slip: bool):
    assert bool(re.search(_build_misspelt_pattern(QUEUE_NAME_LABEL), name)) == is_slip
    assert not is_slip or find_meant(name) == QUEUE_NAME_LABEL, "the webhook says the same"

"""The policies that the API server judges by: named once, bound once, about every kind; what they do is shown in tests/e2e."""

from __future__ import annotations

from core.jobs.kinds import KINDS
from core.jobs.pod_kinds import pod_kinds
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

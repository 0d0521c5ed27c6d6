"""What the API server is told to ask: each job once per phase, kube-system never, and nothing that is being deleted."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from core.jobs.annotation_catalog import GROUPED
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.jobs.objects import OBJECTS
from core.jobs.templated import TemplatedKind
from core.names import MANAGED_NAMESPACE_LABEL, PODGROUP_TOPOLOGY, QUEUE_NAME_LABEL
from tests.webhook.asking import Webhook
from webhook.registration import build_configurations

URL = {"url": "https://127.0.0.1:9443/"}
MUTATING, VALIDATING = build_configurations("Q0E=", URL)


def is_match(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """A label selector as the API server reads it."""
    verdicts = {
        "In": lambda key, values: labels.get(key) in values,
        "NotIn": lambda key, values: labels.get(key) not in values,
        "Exists": lambda key, _: key in labels,
        "DoesNotExist": lambda key, _: key not in labels,
    }
    return all(verdicts[e["operator"]](e["key"], e.get("values")) for e in selector.get("matchExpressions") or ())


def asked(configuration: dict[str, Any], namespace: dict[str, str], labels: dict[str, str]) -> list[str]:
    """Names of the entries that a new Job with these labels, and no annotations, in such a namespace goes through."""
    return [
        hook["name"]
        for hook in configuration["webhooks"]
        if "jobs" in hook["rules"][0]["resources"]
        and is_match(hook["namespaceSelector"], namespace)
        and not is_for_group(hook)
        and is_match(hook["objectSelector"], labels)
    ]


def is_for_group(hook: dict[str, Any]) -> bool:
    """Whether an entry is for objects that ask for a PodGroup by an annotation."""
    return any(PODGROUP_TOPOLOGY in condition["expression"] for condition in hook.get("matchConditions", ()))


@pytest.mark.parametrize("configuration", [MUTATING, VALIDATING], ids=["mutating", "validating"])
def test_the_two_entries_of_a_kind_are_disjoint(configuration: dict[str, Any]):
    namespaces: tuple[dict[str, str], ...] = ({}, {MANAGED_NAMESPACE_LABEL: "true"}, {MANAGED_NAMESPACE_LABEL: "false"})
    for namespace, labels in itertools.product(namespaces, ({}, {"app": "x"}, {QUEUE_NAME_LABEL: "main"}, {QUEUE_NAME_LABEL: ""})):
        ours = QUEUE_NAME_LABEL in labels or namespace.get(MANAGED_NAMESPACE_LABEL) == "true"
        assert len(asked(configuration, {"kubernetes.io/metadata.name": "a", **namespace}, labels)) == int(ours)
        assert not asked(configuration, {"kubernetes.io/metadata.name": "kube-system", **namespace}, labels)


def test_a_job_that_is_given_its_queue_by_the_second_entry_does_not_come_to_the_first_one_again():
    """Mutating webhooks are called in their order, each with what those before made of the object."""
    names = [hook["name"] for hook in MUTATING["webhooks"][:2]]
    assert names == ["mjob.kb.io", "mjob.managed.topogate.dev"]
    assert all("reinvocationPolicy" not in hook for hook in MUTATING["webhooks"]), "Never is the default"


def test_every_path_that_is_registered_is_served_and_the_other_way_round():
    registered = {hook["clientConfig"]["url"] for hook in (*MUTATING["webhooks"], *VALIDATING["webhooks"])}
    assert registered == {f"https://127.0.0.1:9443{path}" for path in Webhook().reviews.handlers}


def test_every_kind_is_asked_about_but_no_status():
    hooks = [hook for c in (MUTATING, VALIDATING) for hook in c["webhooks"]]
    resources = {resource for hook in hooks for rule in hook["rules"] for resource in rule["resources"]}
    queued = {kind.plural for kind in (*KINDS, *list_pod_kinds())}
    scaled = {resource for resource in resources if resource.endswith("/scale")}
    assert scaled == {f"{plural}/scale" for plural in (*queued, "replicasets") if plural != "pods"}
    assert resources - scaled == queued | {rules.plural for rules in OBJECTS}


def test_match_conditions_exclude_pods_of_queued_owners():
    for hook in (*MUTATING["webhooks"], *VALIDATING["webhooks"]):
        expressions = " ".join(condition["expression"] for condition in hook.get("matchConditions", ()))
        if hook["rules"][0]["resources"] != ["pods"]:
            assert "ownerReferences" not in expressions
        else:
            assert "'Job.batch'" in expressions
            assert "'DaemonSet.apps'" in expressions


def test_names_are_unique_and_every_entry_fails_closed_in_bounded_time():
    for configuration in (MUTATING, VALIDATING):
        names = [hook["name"] for hook in configuration["webhooks"]]
        assert len(set(names)) == len(names)
        for hook in configuration["webhooks"]:
            administrators = any(hook["name"][1:] == f"{rules.kind.lower()}.kb.io" for rules in OBJECTS if rules.kind != "Workload")
            of_others = hook["name"] == "vscale.topogate.dev"
            assert hook["failurePolicy"] == ("Ignore" if administrators or of_others else "Fail")
            assert hook["timeoutSeconds"] <= 10
            assert hook["clientConfig"]["caBundle"] == "Q0E="


def list_conditions(hook: dict[str, Any]) -> set[str]:
    return {condition["name"] for condition in hook.get("matchConditions", ())}


def test_entries_of_queued_kinds_are_not_asked_of_steps_of_topogate():
    """A start adds to a template at a limit: the webhook refused it."""
    queued = {kind.plural for kind in (*KINDS, *list_pod_kinds())}
    hooks = [hook for hook in VALIDATING["webhooks"] if set(hook["rules"][0]["resources"]) <= queued and not is_for_group(hook)]
    assert len(hooks) == 2 * len(queued)
    for hook in hooks:
        (expression,) = (c["expression"] for c in hook["matchConditions"] if c["name"] == "is-no-step-of-topogate")
        assert "request.operation == 'UPDATE'" in expression, "new objects are judged in any case"
        assert "resource('workloads').subresource('status')" in expression, "a user may name the field manager, too"
        assert "orValue('') == 'topogate'" in expression, "changes of administrators are judged"
    for hook in MUTATING["webhooks"]:
        assert ("is-no-step-of-topogate" in list_conditions(hook)) == ("has-another-spec" in list_conditions(hook))


def test_mutating_entries_of_queued_kinds_see_each_change_of_a_spec_that_a_start_adds_to():
    seen = [hook for hook in MUTATING["webhooks"] if "has-another-spec" in list_conditions(hook)]
    kinds = {kind.plural for kind in KINDS if isinstance(kind, TemplatedKind)}
    assert {resource for hook in seen for resource in hook["rules"][0]["resources"]} == kinds
    assert [hook["name"] for hook in seen if "is-new-or-may-undo-its-start" in list_conditions(hook)] == ["mjob.kb.io"]
    assert len(seen) == len(kinds)
    assert all(hook["objectSelector"]["matchExpressions"][0]["operator"] == "Exists" for hook in seen)


def test_mutating_webhooks_review_updates_only_of_serving_kinds_and_skip_terminating_objects():
    renewed = {
        resource
        for hook in MUTATING["webhooks"]
        if "UPDATE" in hook["rules"][0]["operations"] and not is_for_group(hook) and "has-another-spec" not in list_conditions(hook)
        for resource in hook["rules"][0]["resources"]
    }
    assert renewed == {"statefulsets", "deployments", "leaderworkersets"}
    objects = [hook for hook in VALIDATING["webhooks"] if not hook["name"].startswith("vscale.")]  # the rest is of a subresource
    assert all(hook["rules"][0]["operations"] == ["CREATE", "UPDATE"] for hook in objects)
    for hook in (*MUTATING["webhooks"], *objects):
        if "UPDATE" in hook["rules"][0]["operations"]:
            assert hook["matchConditions"][0]["expression"] == "!has(object.metadata.deletionTimestamp)"


@pytest.mark.parametrize("configuration", [MUTATING, VALIDATING], ids=["mutating", "validating"])
def test_pod_group_webhooks_run_after_queue_defaulting_and_in_each_namespace(configuration: dict[str, Any]):
    names = [hook["name"][1:] for hook in configuration["webhooks"]]
    for kind in GROUPED:
        (hook,) = (hook for hook in configuration["webhooks"] if hook["name"][1:] == f"{kind.lower()}.podgroups.topogate.dev")
        assert is_for_group(hook)
        assert "objectSelector" not in hook, "with a queue, too: that is refused"
        assert names.index(f"{kind.lower()}.managed.topogate.dev") < names.index(hook["name"][1:])
        assert not is_match(hook["namespaceSelector"], {"kubernetes.io/metadata.name": "kube-system"})
    assert sum(map(is_for_group, configuration["webhooks"])) == len(GROUPED)


def test_behind_a_service_each_entry_has_its_path():
    service = {"service": {"name": "webhook", "namespace": "topogate-system", "port": 443}}
    first = build_configurations("Q0E=", service)[0]["webhooks"][0]
    expected = {"name": "webhook", "namespace": "topogate-system", "port": 443, "path": "/mutate-batch-v1-job"}
    assert first["clientConfig"] == {"caBundle": "Q0E=", "service": expected}

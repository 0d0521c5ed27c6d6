"""Scaling a part of what was admitted: looked up, and refused; whatever is not a part is scaled as ever."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from core.api.admission_review import parse_review
from core.names import QUEUE_NAME_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from core.resource import Resource
from tests.webhook.asking import Webhook, build_body, get_causes, run
from webhook.lookup import LookupFailed
from webhook.registration import build_configurations
from webhook.review import Reviews
from webhook.scale import SCALE_PATH

OWNER = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "wrapper", "uid": "u", "controller": True}
STARTED = {"pytorchReplicaSpecs": {"Worker": {"template": {"metadata": {"annotations": {WORKLOAD_ANNOTATION: "w"}}}}}}
PLAIN = {"pytorchReplicaSpecs": {"Worker": {"template": {"metadata": {"annotations": {"a": "b"}}}}}}


def scale(
    found: Any, before: int = 2, after: int = 3, resource: str = "pytorchjobs", group: str = "kubeflow.org"
) -> tuple[dict[str, Any], list[Resource]]:
    """The answer of a webhook that finds this object, and what it looked up."""
    looked_up: list[Resource] = []

    async def find(wanted: Resource, name: str, namespace: str) -> Any:
        looked_up.append(wanted)
        if isinstance(found, Exception):
            raise found
        return found

    old, new = ({"kind": "Scale", "metadata": {"name": "train"}, "spec": {"replicas": count}} for count in (before, after))
    of = {"group": group, "version": "v1", "resource": resource}
    request = parse_review(build_body(new, old, resource=of, subResource="scale", name="train"))
    reviews = Reviews(Webhook()._has_default_queue, find=find)
    response: dict[str, Any] = run(reviews.answer(SCALE_PATH, request))["response"]
    return response, looked_up


def test_part_of_admitted_object_keeps_its_replicas() -> None:
    """The policies do not see the object that is scaled."""
    response, looked_up = scale({"metadata": {"ownerReferences": [OWNER]}, "spec": STARTED})
    message = get_causes(response)["spec.replicas"]
    assert message.startswith("3: ")
    assert all(part in message for part in ("PyTorchJob", "AppWrapper wrapper"))
    assert [each.plural for each in looked_up] == ["pytorchjobs"]


@pytest.mark.parametrize(("before", "after", "is_gated", "allowed"), [(2, 3, False, False), (2, 1, False, True), (2, 3, True, True)])
def test_running_root_without_gates_gets_no_more_pods(before: int, after: int, is_gated: bool, allowed: bool) -> None:
    """Its new pods would run before it is stopped for them."""
    spec: Any = deepcopy(STARTED)
    if is_gated:
        spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"] = {"schedulingGates": [{"name": TOPOLOGY_GATE}]}
    found = {"metadata": {"labels": {QUEUE_NAME_LABEL: "main"}}, "spec": spec}
    assert scale(found, before, after)[0]["allowed"] is allowed


@pytest.mark.parametrize(
    "found",
    [
        None,
        {"metadata": {}, "spec": STARTED},
        {"metadata": {"ownerReferences": [OWNER | {"controller": False}]}, "spec": STARTED},
        {"metadata": {"ownerReferences": [OWNER]}, "spec": PLAIN},
        {"metadata": {"ownerReferences": [OWNER]}},
    ],
    ids=["gone", "root", "owned only", "not admitted", "no spec"],
)
def test_object_that_is_no_part_is_scaled(found: Any) -> None:
    assert scale(found)[0]["allowed"]


@pytest.mark.parametrize(
    ("labels", "after", "allowed"),
    [({QUEUE_NAME_LABEL: "main"}, 10_001, False), ({QUEUE_NAME_LABEL: "main"}, 10_000, True), ({}, 10_001, True)],
)
def test_number_of_replicas_that_are_workloads_is_limited_as_at_creation(labels: dict[str, str], after: int, allowed: bool) -> None:
    """A new user scaled an object to 100,000: at its creation, and by an update, more than 10,000 were refused."""
    found = {"metadata": {"labels": labels}, "spec": {}}
    response, _ = scale(found, 2, after, "leaderworkersets", "leaderworkerset.x-k8s.io")
    assert response["allowed"] is allowed
    if not allowed:
        ((field, message),) = get_causes(response).items()
        assert field == "spec.replicas"
        assert message.startswith("10001: at most 10000 ")


def test_nothing_is_looked_up_where_number_or_kind_says_enough() -> None:
    part = {"metadata": {"ownerReferences": [OWNER]}, "spec": STARTED}
    assert scale(part, 3, 3) == ({"uid": "4f0c", "allowed": True}, [])
    response, looked_up = scale(part, resource="others")
    assert (response["allowed"], looked_up) == (True, [])


def test_object_that_cannot_be_looked_up_is_scaled_later() -> None:
    response, _ = scale(LookupFailed("503: etcd is slow"))
    assert (response["allowed"], response["status"]["code"]) == (False, 503)


def test_entries_of_scale_hold_in_all_namespaces_for_all_but_topogate() -> None:
    """The subresource has no labels to select by: outside of managed namespaces nothing depends on the webhook."""
    hooks = build_configurations("Q0E=", {"url": "https://127.0.0.1"})[1]["webhooks"]
    managed, others = (hook for hook in hooks if hook["clientConfig"]["url"].endswith(SCALE_PATH))
    keys = [expression["key"] for expression in managed["namespaceSelector"]["matchExpressions"]]
    assert keys == ["kubernetes.io/metadata.name", "topogate.dev/managed"]
    for hook, operator, failure_policy in ((managed, "In", "Fail"), (others, "NotIn", "Ignore")):
        assert hook["namespaceSelector"]["matchExpressions"][-1]["operator"] == operator
        assert hook["failurePolicy"] == failure_policy
        (condition,) = hook["matchConditions"]
        assert ".namespace(request.namespace)" in condition["expression"], "a Scale is not the object"
    assert managed["rules"] == others["rules"]

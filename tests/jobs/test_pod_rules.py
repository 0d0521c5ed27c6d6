"""Limits of what one pod may ask for, and claims that no quota counts: counted over the whole spec, of every kind, in any JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from core.jobs.contract import ErrorType
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.jobs.pod_rules import (
    ADDED_BYTES,
    ADDED_NODE_ENTRIES,
    ADDED_RESOURCE_NAMES,
    ADDED_TOLERATIONS,
    ADDED_VALUES,
    MAX_CLAIMS,
    MAX_GRACE_S,
    MAX_HOST_PORTS,
    MAX_POD_TERMS,
    MAX_RESOURCE_NAMES,
    MAX_SELECTOR_ENTRIES,
    MAX_TEMPLATE_BYTES,
    MAX_TEMPLATE_VALUES,
    MAX_TOLERATIONS,
    POD_TERMS,
    check_pod_spec,
    check_size,
)
from core.model.gates import DEVICES
from core.names import MEMBER_OF_LABEL, QUEUE_NAME_LABEL
from tests.jobs.test_changes import build_job_object
from tests.webhook.asking import Webhook, get_causes
from tests.webhook.reviews.test_misshapen import JSON

REQUIRED, PREFERRED = POD_TERMS
Obj = dict[str, Any]


def build_term(values: int = 0, **more: Any) -> Obj:
    expressions = [{"key": "a", "operator": "NotIn", "values": [str(i) for i in range(values)]}] if values else []
    return {"labelSelector": {"matchExpressions": expressions}, "topologyKey": "kubernetes.io/hostname", **more}


def too_many(spec: Obj) -> dict[str, Any]:
    """Field and count of each limit that a spec exceeds."""
    return {error.field: error.value for error in check_pod_spec("spec", spec) if error.type is ErrorType.TOO_MANY}


@pytest.mark.parametrize("over", [0, 1])
def test_values_of_all_templates_count_together(over: int) -> None:
    """A job of 330,000 arguments made each of its events a step of 67 ms, and its start one of 200 ms."""
    template = {"spec": {"containers": [{"args": ["a"] * 1000}]}}  # of 5 + 1,000 values
    rest = ["a"] * (MAX_TEMPLATE_VALUES - 1005 - 1 + over)
    assert len(list(check_size("spec", [template, rest]))) == over


@pytest.mark.parametrize(("text", "count"), [("x" * 1000, 480), ("<" * 1000, 80), ("\x01" * 1000, 80), ("\u00e9" * 1000, 240)])
def test_bytes_of_all_templates_count_together(text: str, count: int) -> None:
    """A job of 1.57 MB got a Workload whose status did not fit into etcd, and was written again and again."""
    assert list(check_size("spec", [{"args": [text] * count}])) == []
    assert len(list(check_size("spec", [{"args": [text] * (count + 40)}]))) == 1


@pytest.mark.parametrize("count", [MAX_POD_TERMS, MAX_POD_TERMS + 1])
def test_pod_terms_of_all_sorts_and_spread_constraints_count_together(count: int) -> None:
    """Former defect: one job with 3,000 terms stopped every leader."""
    rest = count - 4
    spec: Obj = {
        "affinity": {
            "podAffinity": {REQUIRED: [build_term()], PREFERRED: [{"weight": 1, "podAffinityTerm": build_term()}]},
            "podAntiAffinity": {REQUIRED: [build_term()] * rest, PREFERRED: [{"weight": 1, "podAffinityTerm": build_term()}]},
        },
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    }
    assert too_many(spec) == ({} if count == MAX_POD_TERMS else {"spec.affinity": count})


@pytest.mark.parametrize("over", [0, 1])
def test_entries_of_pod_terms_count_together(over: int) -> None:
    namespaces = MAX_SELECTOR_ENTRIES - 12 + over
    preferred = {"weight": 1, "podAffinityTerm": build_term(10, namespaces=[str(i) for i in range(namespaces)])}
    matched = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
    spec = {"affinity": {"podAntiAffinity": {PREFERRED: [preferred]}}, "topologySpreadConstraints": [matched]}
    assert too_many(spec) == ({"spec.affinity": MAX_SELECTOR_ENTRIES + 1} if over else {})


@pytest.mark.parametrize("over", [0, 1])
def test_node_affinity_entries_and_node_selector_count_together(over: int) -> None:
    """Former defect: three terms of 20,000 hostnames cost 11.9 s at every attempt."""
    hosts = {"key": "kubernetes.io/hostname", "operator": "In", "values": [str(i) for i in range(MAX_SELECTOR_ENTRIES - 6 + over)]}
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    affinity = {
        REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [hosts]}, {"matchFields": [field]}]},
        PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}],
    }
    spec = {"affinity": {"nodeAffinity": affinity}, "nodeSelector": {"a": "b", "c": "d"}}
    assert too_many(spec) == ({"spec.affinity.nodeAffinity": MAX_SELECTOR_ENTRIES + 1} if over else {})


@pytest.mark.parametrize("over", [0, 1])
def test_tolerations_and_resource_names_are_limited(over: int) -> None:
    names = {f"example.com/r{i}": "1" for i in range(MAX_RESOURCE_NAMES - 2 + over)}
    containers = [{"resources": {"requests": names}}, {"resources": {"limits": {**names, "cpu": "1"}}}]
    spec = {
        "tolerations": [{"operator": "Exists"}] * (MAX_TOLERATIONS + over),
        "containers": containers,
        "initContainers": [{"resources": {"requests": {"cpu": "1"}}}],
        "overhead": {"memory": "1"},
    }
    wanted = {"spec.tolerations": MAX_TOLERATIONS + 1, "spec.containers[1].resources": MAX_RESOURCE_NAMES + 1}
    assert too_many(spec) == (wanted if over else {})


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("is_on_host", [False, True])
def test_host_ports_are_limited(over: int, is_on_host: bool) -> None:
    """Thousands of ports in two templates were compared pair by pair, for half a second in each decision."""
    ports = [{"containerPort": 1 + i, **({} if is_on_host else {"hostPort": 1 + i})} for i in range(MAX_HOST_PORTS - 1 + over)]
    spec = {"containers": [{"ports": ports}], "initContainers": [{"ports": [{"containerPort": 9, "hostPort": 9}]}]}
    if is_on_host:
        spec["hostNetwork"] = True  # type: ignore[assignment]
    else:
        spec["containers"][0]["ports"] += [{"containerPort": 1}] * 100
    assert too_many(spec) == ({"spec.containers[0].ports": MAX_HOST_PORTS + 1} if over else {})


def test_limit_exceeded_by_spread_constraints_names_their_field() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {"matchLabels": {str(i): "b" for i in range(40)}}}
    assert too_many({"topologySpreadConstraints": [constraint] * 17}) == {"spec.topologySpreadConstraints": 17 * 40}
    errors = [error.value for error in check_pod_spec("spec", {"topologySpreadConstraints": [constraint] * 17})]
    assert errors == [17, 17 * 40]


@pytest.mark.parametrize("over", [False, True])
def test_pod_with_more_entries_than_a_template_is_accepted(over: bool) -> None:
    """The API server adds two tolerations before the rules count: pods of a StatefulSet with 64 were refused for ever."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {QUEUE_NAME_LABEL: "main"}}}
    terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}] * (MAX_SELECTOR_ENTRIES + ADDED_NODE_ENTRIES + over)}]
    pod["spec"] = {
        "containers": [
            {
                "name": "c",
                "resources": {"requests": {f"example.com/r{i}": "1" for i in range(MAX_RESOURCE_NAMES + ADDED_RESOURCE_NAMES + over)}},
            }
        ],
        "tolerations": [{"operator": "Exists"}] * (MAX_TOLERATIONS + ADDED_TOLERATIONS + over),
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
    }
    assert Webhook().validate(pod)["allowed"] is not over
    if over:
        found = get_causes(Webhook().validate(pod))
        assert set(found) == {"spec.tolerations", "spec.affinity.nodeAffinity", "spec.containers[0].resources"}
        assert all(part in found["spec.tolerations"] for part in ("64 tolerations", f"and {ADDED_TOLERATIONS} that"))


@pytest.mark.parametrize("over", [0, 1])
def test_size_of_pod_may_exceed_that_of_its_template(over: int) -> None:
    text = ["x" * (MAX_TEMPLATE_BYTES + ADDED_BYTES - 4 + over)]
    assert len(list(check_size("spec", text, of_pods=True))) == over
    values = [["a"] * (MAX_TEMPLATE_VALUES + ADDED_VALUES - 1 + over)]
    assert len(list(check_size("spec", values, of_pods=True))) == over


@given(spec=JSON)
def test_any_json_in_spec_is_judged_without_error(spec: Any) -> None:
    """Custom resources may hold anything."""
    for each in (
        spec,
        {"affinity": spec, "tolerations": spec, "containers": [spec], "topologySpreadConstraints": [spec], "resourceClaims": spec},
    ):
        if isinstance(each, dict):
            list(check_pod_spec("spec", each))


def with_spec(obj: Any, more: Obj) -> Any:
    """An object all of whose pod specs have `more`; Spark keeps its own in a template beside its fields."""
    if isinstance(obj, list):
        return [with_spec(entry, more) for entry in obj]
    if not isinstance(obj, dict):
        return obj
    made = {key: with_spec(entry, more) for key, entry in obj.items()}
    return {**made, **more} if "containers" in made else made


@pytest.mark.parametrize("kind", [kind.kind for kind in (*KINDS, *list_pod_kinds()) if kind.kind not in ("TrainJob", "Pod")])
def test_claims_and_limits_are_judged_of_templates_of_every_kind(kind: str) -> None:
    """Former defect: a queued job with ResourceClaims was admitted with 0 GPUs. Each is refused where users find it."""
    obj = build_job_object(kind)
    if kind == "SparkApplication":
        for part in ("driver", "executor"):
            obj["spec"][part]["template"] = {"spec": {"containers": [{"name": "c"}]}}
    asking = with_spec(obj, {"resourceClaims": [{"name": "gpu"}], "tolerations": [{"operator": "Exists"}] * 65})
    found = get_causes(Webhook().validate(asking))
    assert "spec" in get_causes(Webhook().validate(with_spec(obj, {"hostAliases": [{}] * MAX_TEMPLATE_VALUES})))
    for field in ("resourceClaims", "tolerations"):
        assert any(path.endswith(f".spec.{field}") for path in found)


def test_claims_of_pod_are_refused_in_a_queue_only() -> None:
    """Pods of a PodGroup have no queue."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {QUEUE_NAME_LABEL: "main"}}}
    pod["spec"] = {"containers": [{"name": "c"}], "resourceClaims": [{"name": "gpu"}]}
    assert list(get_causes(Webhook().validate(pod))) == ["spec.resourceClaims"]
    del pod["metadata"]["labels"]  # type: ignore[attr-defined]
    assert Webhook().validate(pod)["allowed"]
    assert [error.value for error in Pod().validate_create(pod).errors] == [["gpu"]]


@pytest.mark.parametrize(
    ("claims", "fields"),
    [
        ([{"name": "a", "resourceClaimTemplateName": "t"}], []),
        ([{"name": "a", "resourceClaimTemplateName": "t"}, {"name": "b", "resourceClaimName": "c"}], ["[1].resourceClaimName"]),
        ([{"name": f"c{number}", "resourceClaimTemplateName": "t"} for number in range(MAX_CLAIMS)], []),
        ([{"name": f"c{number}", "resourceClaimTemplateName": "t"} for number in range(1_000)], [""]),
    ],
    ids=["template", "shared", "most", "1,000"],
)
def test_claims_made_from_templates_are_accepted_where_quota_counts_devices(claims: list[dict[str, str]], fields: list[str]) -> None:
    job = with_spec(build_job_object("Job"), {"resourceClaims": claims})
    webhook = Webhook(**{DEVICES: True})
    path = "spec.template.spec.resourceClaims"
    judged = webhook.validate(job)
    assert (list(get_causes(judged)) if not judged["allowed"] else []) == [f"{path}{field}" for field in fields]
    assert path in get_causes(Webhook().validate(job))


def test_member_of_pod_group_is_refused_in_a_queue_only() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {QUEUE_NAME_LABEL: "main", MEMBER_OF_LABEL: "g"}}}
    pod["spec"] = {"containers": [{"name": "c"}]}
    assert list(get_causes(Webhook().validate(pod))) == [f"metadata.labels[{MEMBER_OF_LABEL}]"]
    del pod["metadata"]["labels"][QUEUE_NAME_LABEL]  # type: ignore[index]
    assert Webhook().validate(pod)["allowed"]


@pytest.mark.parametrize(("seconds", "found"), [(MAX_GRACE_S, set()), (MAX_GRACE_S + 1, {"spec.terminationGracePeriodSeconds"})])
def test_time_of_pod_to_end_is_bounded(seconds: int, found: set[str]) -> None:
    """Pods with a million seconds ran on what had been given to others."""
    assert {error.field for error in check_pod_spec("spec", {"terminationGracePeriodSeconds": seconds})} == found

"""What a pod template says about other pods, read as kube-scheduler reads it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.pod_traits import (
    HostPort,
    PodTerm,
    PodTraits,
    Requirement,
    has_conflict,
    is_selected,
    list_host_ports,
    read_pod_traits,
    read_selector,
    read_template_traits,
    read_terms,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
X = (Requirement("app", "In", frozenset("x")),)


def list_unjudged(spec: dict[str, Any], labels: dict[str, str] | None = None) -> tuple[str, ...]:
    return read_template_traits({"metadata": {"labels": labels or {}}, "spec": spec}, "ns").unjudged


# --- host ports ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "conflicts"),
    [
        (HostPort(80), HostPort(80), True),
        (HostPort(80), HostPort(81), False),
        (HostPort(80), HostPort(80, "UDP"), False),
        (HostPort(80), HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2"), False),
    ],
)
def test_a_port_is_taken_by_number_protocol_and_address_and_no_address_is_all_of_them(one: HostPort, other: HostPort, conflicts: bool):
    assert one.is_conflicting(other) == other.is_conflicting(one) == conflicts


def test_a_port_is_named_without_an_address_where_it_has_none():
    assert [str(HostPort(80)), str(HostPort(53, "UDP", "10.0.0.1"))] == ["80/TCP", "53/UDP on 10.0.0.1"]


def test_ports_are_those_of_containers_and_sidecars_sorted_and_each_once():
    spec = {
        "containers": [
            {
                "ports": [
                    {"containerPort": 90, "hostPort": 90},
                    {"containerPort": 80, "hostPort": 80, "protocol": "UDP", "hostIP": "10.0.0.1"},
                ]
            },
            {"ports": [{"containerPort": 1, "hostPort": 90}, {"containerPort": 7}]},
        ],
        "initContainers": [
            {"restartPolicy": "Always", "ports": [{"containerPort": 70, "hostPort": 70}]},
            {"ports": [{"containerPort": 60, "hostPort": 60}]},  # is over before the pod runs
        ],
    }
    assert list_host_ports(spec) == (HostPort(70), HostPort(80, "UDP", "10.0.0.1"), HostPort(90))


def test_on_the_host_network_every_port_is_one_of_the_node():
    containers = [{"ports": [{"containerPort": 80}]}]
    assert list_host_ports({"containers": containers}) == ()
    assert list_host_ports({"containers": containers, "hostNetwork": True}) == (HostPort(80),)


# --- selectors and terms -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        pytest.param(None, [], id="none takes nothing"),
        pytest.param({}, [{}, {"app": "x"}, {"app": "y"}], id="an empty one takes all"),
        pytest.param({"matchLabels": {"app": "x"}}, [{"app": "x"}], id="labels"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "In", "values": ["y", "z"]}]}, [{"app": "y"}], id="In"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["y"]}]}, [{}, {"app": "x"}], id="NotIn"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, [{"app": "x"}, {"app": "y"}], id="Exists"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, [{}], id="DoesNotExist"),
        pytest.param(
            {"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
            [],
            id="all must hold",
        ),
    ],
)
def test_a_selector_takes(selector: dict[str, Any] | None, taken: list[dict[str, str]]):
    labels: list[dict[str, str]] = [{}, {"app": "x"}, {"app": "y"}]
    assert [each for each in labels if is_selected(read_selector(selector), each)] == taken


def build_affinity(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: list(terms)}}}


def test_a_term_without_namespaces_speaks_of_its_own():
    spec = build_affinity("podAffinity", {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}})
    assert read_terms(spec, "podAffinity", "ns", {}) == (PodTerm("zone", frozenset(["ns"]), None, X),)
    assert read_terms(spec, "podAntiAffinity", "ns", {}) == ()


def test_a_term_speaks_of_the_namespaces_it_names_and_those_it_selects():
    where = {"ns": {"team": "a"}, "other": {"team": "b"}, "third": {"team": "b"}}

    def spoken_of(**fields: Any) -> list[str]:
        (term,) = read_terms(build_affinity("podAffinity", {"topologyKey": "zone", "labelSelector": {}} | fields), "podAffinity", "ns", {})
        return [namespace for namespace in [*where, "unknown"] if term.is_match(namespace, {}, where.get)]

    assert spoken_of() == ["ns"]
    assert spoken_of(namespaces=["other"]) == ["other"]
    assert spoken_of(namespaceSelector={}) == ["ns", "other", "third", "unknown"]
    assert spoken_of(namespaceSelector={"matchLabels": {"team": "b"}}) == ["other", "third"]
    assert spoken_of(namespaceSelector={"matchLabels": {"team": "b"}}, namespaces=["ns"]) == ["ns", "other", "third"]


def test_label_keys_become_conditions_with_the_pods_own_values_unless_there_is_no_selector():
    term = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["app", "absent"], "mismatchLabelKeys": ["team"]}
    own = {"app": "x", "team": "a"}
    (read,) = read_terms(build_affinity("podAffinity", term), "podAffinity", "ns", own)
    assert read.selector == (*X, Requirement("team", "NotIn", frozenset("a")))
    (merged_already,) = read_terms(build_affinity("podAffinity", term), "podAffinity", "ns", None)
    assert merged_already.selector == ()
    (without,) = read_terms(build_affinity("podAffinity", {**term, "labelSelector": None}), "podAffinity", "ns", own)
    assert without.selector is None


# --- pods and templates --------------------------------------------------------------------------------


def test_a_template_is_read_with_the_labels_that_its_pods_will_have_got():
    template = {"metadata": {"labels": {"app": "x", "team": "a"}}, "spec": {}}
    traits = read_template_traits(template, "ns", {"team": "b"})
    assert traits == PodTraits("ns", {"app": "x", "team": "b"})
    assert not traits.is_particular


def test_an_empty_template_has_no_traits():
    assert read_template_traits({}, "ns") == PodTraits("ns", {})


def test_only_a_pod_that_keeps_others_away_is_remembered():
    metadata = {"namespace": "ns", "labels": {"app": "x"}}
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    assert read_pod_traits({"metadata": metadata, "spec": {}}) is None
    assert read_pod_traits({"metadata": metadata, "spec": build_affinity("podAffinity", term)}) is None
    apart = read_pod_traits({"metadata": metadata, "spec": build_affinity("podAntiAffinity", term)})
    assert apart == PodTraits("ns", {"app": "x"}, anti_affinity=(PodTerm("zone", frozenset(["ns"]), None, X),))
    ports = read_pod_traits({"metadata": {}, "spec": {"containers": [{"ports": [{"hostPort": 80}]}]}})
    assert ports == PodTraits("", {}, (HostPort(80),))
    assert ports is not None
    assert ports.is_particular


# --- what is not judged --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        pytest.param({}, (), id="nothing"),
        pytest.param({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, ("topologySpreadConstraints",), id="spread"),
        pytest.param({"topologySpreadConstraints": [{}]}, ("topologySpreadConstraints",), id="spread is hard by default"),
        pytest.param({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, (), id="a soft spread is no condition"),
        pytest.param({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}, ("volumes.persistentVolumeClaim",), id="claim"),
        pytest.param({"volumes": [{"ephemeral": {}}]}, ("volumes.ephemeral",), id="ephemeral volume"),
        pytest.param({"volumes": [{"emptyDir": {}}]}, (), id="a volume that is anywhere"),
        pytest.param({"resourceClaims": [{"name": "gpu"}]}, ("resourceClaims",), id="devices"),
        pytest.param({"schedulerName": "other"}, ("schedulerName other",), id="another scheduler"),
        pytest.param({"schedulerName": "default-scheduler"}, (), id="the default scheduler by name"),
        pytest.param({"nodeName": "n"}, ("nodeName",), id="a node by name"),
        pytest.param(
            {"volumes": [{"ephemeral": {}}, {"persistentVolumeClaim": {}}], "nodeName": "n"},
            ("volumes.persistentVolumeClaim", "volumes.ephemeral", "nodeName"),
            id="several",
        ),
    ],
)
def test_pod_fields_that_only_kube_scheduler_evaluates_are_named(spec: dict[str, Any], named: tuple[str, ...]):
    assert list_unjudged(spec) == named


def test_affinity_by_a_label_that_only_the_pod_will_have_is_not_judged():
    key = "batch.kubernetes.io/job-completion-index"
    selector = {"matchExpressions": [{"key": key, "operator": "In", "values": ["0"]}, {"key": "app", "operator": "Exists"}]}
    spec = build_affinity("podAntiAffinity", {"topologyKey": "zone", "labelSelector": selector})
    (field,) = list_unjudged(spec)
    assert f"label {key}" in field
    assert list_unjudged(spec, {key: "0"}) == ()


ports = st.lists(
    st.builds(HostPort, st.integers(1, 3), st.sampled_from(["TCP", "UDP"]), st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2"]))
)


@given(ports, ports)
def test_two_lists_of_ports_have_a_conflict_where_any_two_conflict(ours: list[HostPort], others: list[HostPort]):
    assert has_conflict(ours, others) == any(one.is_conflicting(other) for one in ours for other in others)

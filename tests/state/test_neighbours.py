"""Which nodes have pods that terms of pod affinity match: by a table of arrays, equal to what each term says of each pod."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.pod_traits import PodTerm, PodTraits, Requirement, read_selector
from core.names import HOSTNAME_LABEL
from core.state.cluster_affinity import ClusterNeighbours
from core.state.facts import MOST_TERM_KEYS, PodFacts, WorkloadFacts
from tests.builders import build_pod_json, build_pod_set_json, build_workload_json

KEYS, VALUES, NAMESPACES, NODES = ("a", "b", "c"), ("x", "y"), ("ns", "other", "third"), ("n0", "n1", "n2")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=3)
REQUIREMENTS = st.builds(
    Requirement, st.sampled_from(KEYS), st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")), st.frozensets(st.sampled_from(VALUES))
)
SELECTORS = st.none() | st.lists(REQUIREMENTS, max_size=2).map(tuple)
TERMS = st.builds(PodTerm, st.just(HOSTNAME_LABEL), st.frozensets(st.sampled_from(NAMESPACES), max_size=2), SELECTORS, SELECTORS)
STEPS = st.one_of(
    st.tuples(st.just("pod"), st.integers(0, 4), LABELS, st.sampled_from(NODES), st.sampled_from(NAMESPACES)),
    st.tuples(st.just("gone"), st.integers(0, 4)),
    st.tuples(st.just("reserve"), st.integers(0, 2), LABELS, st.sampled_from(NAMESPACES), st.lists(st.sampled_from(NODES), max_size=2)),
    st.tuples(st.just("drop"), st.integers(0, 2)),
    st.tuples(st.just("namespace"), st.sampled_from(NAMESPACES), LABELS),
    st.tuples(st.just("ask"), st.lists(TERMS, min_size=1, max_size=3)),
)


def read_facts(name: str, namespace: str, labels: dict[str, str], node: str, **spec: Any) -> PodFacts:
    pod = build_pod_json(name, node=node, phase="Running", labels=labels)
    pod["metadata"]["namespace"] = namespace
    pod["spec"] |= spec
    return PodFacts.read(pod)


@given(st.lists(STEPS, max_size=30))
def test_nodes_of_matching_pods_are_those_that_each_term_finds_pod_by_pod(steps: list[tuple[Any, ...]]):
    pods: dict[str, PodFacts] = {}
    reserved: dict[int, tuple[PodTraits, list[str]]] = {}
    namespaces: dict[str, dict[str, str]] = {}
    found = ClusterNeighbours(pods, lambda name: {}, namespaces.get)
    for kind, *what in steps:
        if kind in ("pod", "gone"):
            old = next((pods.pop(key) for key in list(pods) if key.endswith(f"/p{what[0]}")), None)
            if old is not None and (kind == "gone" or old.key.partition("/")[0] != what[3]):
                found.observe_pod(old.key, old, None)
                old = None
            if kind == "pod":
                number, labels, node, namespace = what
                new = read_facts(f"p{number}", namespace, labels, node)
                pods[new.key] = new
                found.observe_pod(new.key, old, new)
        elif kind == "reserve":
            number, labels, namespace, nodes = what
            reserved[number] = PodTraits(namespace, labels), nodes
            found.reserve(number, reserved[number][0], partial(list, nodes))
        elif kind == "drop":
            reserved.pop(what[0], None)
            found.reserve(what[0], PodTraits(), None)
        elif kind == "namespace":
            namespaces[what[0]] = what[1]
            found.observe_namespace()
        else:
            every = [(pod.key.partition("/")[0], pod.labels, [pod.node]) for pod in pods.values()]
            every += [(traits.namespace, traits.labels, nodes) for traits, nodes in reserved.values()]
            expected = {
                node
                for namespace, labels, nodes in every
                if all(term.is_match(namespace, labels, namespaces.get) for term in what[0])
                for node in nodes
            }
            assert found.find_matching(what[0]) == expected


def build_term(number: int) -> dict[str, Any]:
    return {
        "topologyKey": HOSTNAME_LABEL,
        "namespaceSelector": {},
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"v{number}"]}]},
    }


def test_terms_are_judged_without_a_look_at_each_pod(monkeypatch: pytest.MonkeyPatch):
    """Former defect: every term was judged against every pod, again in every decision."""
    pods = {f"ns/p{i}": read_facts(f"p{i}", "ns", {"app": f"a{i}"}, f"n{i % 50}") for i in range(2000)}
    neighbours = ClusterNeighbours(pods, lambda name: {}, lambda name: {})
    calls = 0
    holds = Requirement.is_met

    def counted(requirement: Requirement, labels: Any) -> bool:
        nonlocal calls
        calls += 1
        return holds(requirement, labels)

    monkeypatch.setattr(Requirement, "is_met", counted)
    for number in range(16):
        asked = PodTerm(HOSTNAME_LABEL, frozenset(), read_selector({}), read_selector(build_term(number)["labelSelector"]))
        assert len(neighbours.find_matching((asked,))) == 50
    assert calls < 100


def test_of_one_pod_only_some_terms_of_anti_affinity_count():
    """Four pods of another team with 5,000 terms each made every decision take seconds."""
    pods: dict[str, PodFacts] = {}
    neighbours = ClusterNeighbours(pods, lambda name: {}, lambda name: {})
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [build_term(number) for number in range(100)]}}
    facts = read_facts("p", "ns", {}, "n0", affinity=affinity)
    neighbours.observe_pod(facts.key, None, facts)
    assert len(list(neighbours.find_repelling(PodTraits("ns", {"app": "w"})))) == 16
    neighbours.observe_pod(facts.key, facts, None)
    assert list(neighbours.find_repelling(PodTraits("ns", {"app": "w"}))) == []
    assert neighbours.count_by_node() == {}


def test_terms_of_other_pods_are_judged_once_for_equal_pods(monkeypatch: pytest.MonkeyPatch):
    pods: dict[str, PodFacts] = {}
    neighbours = ClusterNeighbours(pods, lambda name: {}, lambda name: {})
    for i in range(50):
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [build_term(16 * i + j) for j in range(16)]}}
        facts = read_facts(f"p{i}", "ns", {}, "n0", affinity=affinity)
        neighbours.observe_pod(facts.key, None, facts)
    calls = 0
    matches = PodTerm.is_match

    def counted(*arguments: Any) -> bool:
        nonlocal calls
        calls += 1
        return matches(*arguments)

    monkeypatch.setattr(PodTerm, "is_match", counted)
    for _ in range(20):
        assert neighbours.is_repelled(PodTraits("ns", {"app": "w"}))
        assert len(list(neighbours.find_repelling(PodTraits("ns", {"app": "w"})))) == 800
    assert calls == 800


def test_a_workload_with_affinity_of_too_many_label_keys_is_refused():
    """Each label key costs a look at every pod of the cluster."""

    def terms_of(count: int) -> dict[str, Any]:
        keys = [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(count)]
        term = {"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchExpressions": keys}}
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def workload(*counts: int) -> dict[str, Any]:
        pod_sets = [build_pod_set_json(f"p{i}", count=1) for i in range(len(counts))]
        for pod_set, count in zip(pod_sets, counts, strict=True):
            pod_set["template"]["spec"]["affinity"] = terms_of(count)
        return build_workload_json("w", pod_sets)

    assert WorkloadFacts.read(workload(MOST_TERM_KEYS, MOST_TERM_KEYS)).pod_sets
    with pytest.raises(ValueError, match="33 label keys; at most 32"):
        WorkloadFacts.read(workload(1, MOST_TERM_KEYS + 1))

"""Groups of both APIs, read as one, and levels by other names."""

from __future__ import annotations

from typing import Any

import pytest

from core.api.kinds.podgroup_kinds import NodeTopology, PodGroup
from core.podgroups.group import TopologyConstraint
from core.podgroups.podgroup_facts import KUBERNETES, OURS, PodGroupFacts, UnknownAlias, read_aliases, read_pod_group, resolve

NAMED = {"name": "train", "namespace": "ns", "uid": "u1"}


def ours(**spec: Any) -> dict[str, Any]:
    obj = {"apiVersion": OURS, "kind": "PodGroup", "metadata": NAMED, "spec": spec}
    PodGroup.model_validate(obj)
    return obj


def test_all_that_the_kep_has_is_read():
    found = read_pod_group(
        ours(
            schedulingPolicy={"gang": {"minCount": 4}},
            schedulingConstraints={
                "topologyConstraints": [{"level": "example.com/block"}, {"level": "example.com/rack", "mode": "Preferred"}],
                "draConstraints": [{"resourceClaimTemplateName": "fabric"}],
            },
            replicas=3,
        )
    )
    levels = (TopologyConstraint("example.com/block"), TopologyConstraint("example.com/rack", preferred=True))
    assert found == PodGroupFacts("ns", "train", "u1", levels, 4, None, 3, ("fabric",))
    assert found.is_constrained


def test_basic_policy_with_desired_count_is_read():
    found = read_pod_group(ours(schedulingPolicy={"basic": {"desiredCount": 8}}))
    assert (found.min_count, found.desired_count, found.is_constrained) == (None, 8, False)


def test_kubernetes_own_group_is_the_same_group():
    spec = {"schedulingPolicy": {"gang": {"minCount": 4}}, "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}
    found = read_pod_group({"apiVersion": KUBERNETES, "kind": "PodGroup", "metadata": NAMED, "spec": spec})
    wanted = {"topologyConstraints": [{"level": "example.com/rack"}]}
    assert found == read_pod_group(ours(schedulingPolicy={"gang": {"minCount": 4}}, schedulingConstraints=wanted))


def test_another_version_is_refused_by_name():
    with pytest.raises(ValueError, match=r"scheduling\.k8s\.io/v1 cannot be read; topogate\.dev/v1alpha1 and"):
        read_pod_group({"apiVersion": "scheduling.k8s.io/v1", "metadata": NAMED, "spec": {}})


def build_topology(name: str, **labels: str) -> dict[str, Any]:
    levels = [{"name": alias, "nodeLabel": label.replace("__", "/")} for alias, label in labels.items()]
    obj = {"apiVersion": OURS, "kind": "NodeTopology", "metadata": {"name": name}, "spec": {"levels": levels}}
    NodeTopology.model_validate(obj)
    return obj


def test_an_alias_stands_for_its_label_and_a_label_for_itself():
    aliases = read_aliases([build_topology("b", rack="other.example__rack"), build_topology("a", rack="example.com__rack")])
    assert resolve((TopologyConstraint("rack", preferred=True), TopologyConstraint("example.com/row")), aliases) == (
        TopologyConstraint("example.com/rack", preferred=True),
        TopologyConstraint("example.com/row"),
    )


def test_unknown_level_alias_without_any_node_topology_is_reported():
    with pytest.raises(UnknownAlias, match="rak: no NodeTopology has such a level; none has any; a node label"):
        resolve((TopologyConstraint("rak"),), {})


def test_an_unknown_alias_is_refused_with_those_that_there_are():
    with pytest.raises(UnknownAlias, match=r"such a level; did you mean rack\? known are rack; a node label"):
        resolve((TopologyConstraint("rak"),), read_aliases([build_topology("a", rack="example.com__rack")]))

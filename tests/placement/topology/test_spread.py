"""Hard topology spread constraints of placed pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.pod_traits import PodTerm, read_template_traits
from core.model.podset import Mode, PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED
from core.placement.engine import place
from core.placement.explain.choice import explain_choice
from core.placement.topology.free_capacity import FreeCapacity
from core.placement.topology.pod_affinity import NoNeighbours
from core.placement.topology.topology_spread import require_labels
from tests.builders import BLOCK, RACK, Node, build_view, request

LABELS = {"app": "train"}


def spread(key: str, max_skew: int = 1, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "maxSkew": max_skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": LABELS}, **more}


def spreading(asked: PodSetRequest, *constraints: dict[str, Any]) -> PodSetRequest:
    template = {"metadata": {"labels": LABELS}, "spec": {"topologySpreadConstraints": list(constraints)}}
    return replace(asked, traits=read_template_traits(template, "team"))


def build_cluster(rooms: list[list[int]]) -> FreeCapacity:
    """Racks of one block, and how many pods each of their nodes holds."""
    nodes = []
    for r, rack in enumerate(rooms):
        for n, room in enumerate(rack):
            labels = {BLOCK: "b", RACK: f"r{r}", HOSTNAME_LABEL: f"r{r}n{n}"}
            nodes.append(Node(f"r{r}n{n}", labels, {"cpu": room * 1000, "pods": 100}))
    return build_view((BLOCK, RACK, HOSTNAME_LABEL), nodes)


def placed(view: FreeCapacity, asked: PodSetRequest) -> tuple[Counter[str], tuple[str, ...]]:
    """Pods per node, and what the choice names as not judged."""
    decision = place(view, [asked], MIXED)
    assert decision.refusal is None
    (choice,) = explain_choice(view, [asked], decision)
    return Counter(dict(decision.placements[0].nodes)), choice.unjudged


def test_spread_by_hostname_is_met_where_there_is_room():
    view, asked = build_cluster([[4, 4, 4, 4]]), request(4, Mode.REQUIRED, RACK)
    assert len(placed(view, asked)[0]) == 1
    counts, unjudged = placed(view, spreading(asked, spread(HOSTNAME_LABEL)))
    assert sorted(counts.values()) == [1, 1, 1, 1]
    assert unjudged == ()
    counts, unjudged = placed(view, spreading(request(8, Mode.REQUIRED, RACK), spread(HOSTNAME_LABEL, 2)))
    assert sorted(counts.values()) == [2, 2, 2, 2]
    assert unjudged == ()


def test_spread_by_a_level_is_met_where_there_is_room():
    view = build_cluster([[4, 4], [4, 4], [4, 4]])
    counts, unjudged = placed(view, spreading(request(6, Mode.REQUIRED, BLOCK), spread(RACK, 2)))
    racks = Counter[str]()
    for name, count in counts.items():
        racks[name[:2]] += count
    assert sorted(racks.values()) == [2, 2, 2]
    assert unjudged == ()


def test_spread_that_cannot_be_met_is_named_and_the_pods_are_placed():
    view, asked = build_cluster([[4, 4]]), request(4, Mode.REQUIRED, RACK)
    counts, unjudged = placed(view, spreading(asked, spread(HOSTNAME_LABEL)))
    assert counts == placed(view, asked)[0]
    (field,) = unjudged
    assert all(part in field for part in ("topologySpreadConstraints", "4 pods", HOSTNAME_LABEL, "maxSkew is 1"))


@pytest.mark.parametrize("selector", [None, {"matchLabels": {"app": "other"}}], ids=["none", "other pods"])
def test_spread_that_does_not_select_its_own_pods_is_named(selector: dict[str, Any] | None):
    asked = spreading(request(4, Mode.REQUIRED, RACK), spread(HOSTNAME_LABEL, labelSelector=selector))
    assert placed(build_cluster([[4, 4]]), asked)[1] == ("topologySpreadConstraints",)


def test_labels_of_hard_spread_are_required_of_nodes():
    asked = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": ["x"]}, {}]}}}
    exists = [{"key": RACK, "operator": "Exists"}]
    assert require_labels(None, ()) is None
    for affinity, terms in ((None, [{"matchExpressions": exists}]), (asked, [{"matchFields": ["x"], "matchExpressions": exists}])):
        found = require_labels(affinity, [RACK])
        assert found is not None
        assert found["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == terms


class OthersOnFirstNode(NoNeighbours):
    """A pod that the constraint selects runs on r0n0."""

    def find_matching(self, terms: Sequence[PodTerm], *, awaits: bool = False) -> Collection[str]:
        return frozenset(["r0n0"])


def test_spread_counts_pods_that_run_already():
    view = build_cluster([[4, 4, 4]])
    view.neighbours = OthersOnFirstNode()
    counts, unjudged = placed(view, spreading(request(2, Mode.REQUIRED, RACK), spread(HOSTNAME_LABEL)))
    assert counts == {"r0n1": 1, "r0n2": 1}
    assert unjudged == ()
    counts, unjudged = placed(view, spreading(request(3, Mode.REQUIRED, RACK), spread(HOSTNAME_LABEL)))
    assert sum(counts.values()) == 3
    assert len(unjudged) == 1


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(1, 10),
    st.sampled_from([(Mode.REQUIRED, RACK), (Mode.PREFERRED, RACK), (Mode.UNCONSTRAINED, None), (Mode.REQUIRED, BLOCK)]),
    st.sampled_from([HOSTNAME_LABEL, RACK, BLOCK]),
    st.integers(1, 3),
)
def test_placement_meets_hard_spread_or_names_it(rooms: list[list[int]], count: int, mode: tuple[Mode, str | None], key: str, skew: int):
    view, asked = build_cluster(rooms), request(count, *mode)
    own = spreading(asked, spread(key, skew))
    decision = place(view, [own], MIXED)
    assert (decision.refusal is None) == (place(view, [asked], MIXED).refusal is None)
    if decision.refusal is not None:
        return
    counts, unjudged = placed(view, own)
    domains = Counter[str]()
    for name, pods in counts.items():
        domains[view.tree.labels[view.tree.index[name]][key]] += pods
    assert sum(counts.values()) == count
    assert (max(domains.values()) <= skew) == (unjudged == ())

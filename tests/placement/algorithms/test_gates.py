"""Both sides of each feature gate that changes where pods go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import ContradictingProfile, Profile, read_profile, read_profiles
from core.placement.engine import place
from tests.builders import RACK, Node, build_view, request
from tests.placement.algorithms.test_properties import check
from tests.strategies import Cluster, clusters, scenes

PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
        ]
    }
}


def list_counts(rooms: Sequence[int], asked: PodSetRequest, profile: Profile, ssd: int | None = None) -> list[int]:
    """Pods on the nodes of one rack that have room for so many; one of them may have an SSD."""
    nodes = [
        Node(f"n{i}", {RACK: "r", HOSTNAME_LABEL: f"n{i}", **({"disk": "ssd"} if i == ssd else {})}, {"cpu": room * 1000, "pods": 100})
        for i, room in enumerate(rooms)
    ]
    decision = place(build_view((RACK, HOSTNAME_LABEL), nodes), [asked], profile)
    assert decision.refusal is None
    placed = dict(decision.placements[0].nodes)
    return [placed.get(node.name, 0) for node in nodes]


def build_profile(*on: str, off: Sequence[str] = ()) -> Profile:
    return read_profile(dict.fromkeys(on, True) | dict.fromkeys(off, False))


EACH = {"required": (Mode.REQUIRED, RACK), "preferred": (Mode.PREFERRED, RACK), "unconstrained": (Mode.UNCONSTRAINED, None)}


@pytest.mark.parametrize(
    ("gate", "mode", "expected"),
    [
        (None, "required", [3, 3, 0, 1]),
        (None, "preferred", [3, 3, 0, 1]),
        (None, "unconstrained", [3, 1, 2, 1]),
        ("TASProfileMixed", "unconstrained", [3, 1, 2, 1]),
        ("TASProfileBestFit", "required", [3, 3, 0, 1]),
        ("TASProfileBestFit", "unconstrained", [3, 3, 0, 1]),
        ("TASProfileLeastFreeCapacity", "required", [3, 1, 2, 1]),
        ("TASProfileLeastFreeCapacity", "preferred", [3, 1, 2, 1]),
        ("TASProfileLeastFreeCapacity", "unconstrained", [3, 1, 2, 1]),
        ("TASProfileMostFreeCapacity", "required", [3, 3, 1, 0]),
        ("TASProfileMostFreeCapacity", "preferred", [3, 3, 1, 0]),
        ("TASProfileMostFreeCapacity", "unconstrained", [3, 3, 1, 0]),
        ("TASBalancedPlacement", "required", [3, 3, 0, 1]),
        ("TASBalancedPlacement", "unconstrained", [3, 1, 2, 1]),
    ],
)
def test_each_profile_gate_on_the_keps_rack_of_four(gate: str | None, mode: str, expected: list[int]):
    """KEP-2724, MostFreeCapacity algorithm: nodes for 3, 3, 2 and 1 pods, and a pod set of 7."""
    assert list_counts([3, 3, 2, 1], request(7, *EACH[mode]), build_profile(*([gate] if gate else []))) == expected


def test_without_the_mixed_profile_unconstrained_pods_are_placed_by_best_fit():
    assert list_counts([3, 3, 2, 1], request(7, Mode.UNCONSTRAINED), build_profile(off=["TASProfileMixed"])) == [3, 3, 0, 1]


def test_one_domain_that_holds_all_is_the_tightest_or_with_most_free_capacity_the_largest():
    asked = request(2, Mode.UNCONSTRAINED)
    assert list_counts([3, 4, 2], asked, build_profile()) == [0, 0, 2]
    assert list_counts([3, 4, 2], asked, build_profile("TASProfileBestFit")) == [0, 0, 2]
    assert list_counts([3, 4, 2], asked, build_profile("TASProfileMostFreeCapacity")) == [0, 2, 0]


def test_balanced_placement_evens_out_a_preferred_level_only_with_its_gate():
    assert list_counts([10, 10], request(12, Mode.PREFERRED, RACK), build_profile()) == [10, 2]
    assert list_counts([10, 10], request(12, Mode.PREFERRED, RACK), build_profile("TASBalancedPlacement")) == [6, 6]
    assert list_counts([10, 10], request(12, Mode.PREFERRED, RACK), build_profile(off=["TASBalancedPlacement"])) == [10, 2]


@pytest.mark.parametrize("profile", ["TASProfileMixed", "TASProfileBestFit", "TASProfileLeastFreeCapacity", "TASProfileMostFreeCapacity"])
@pytest.mark.parametrize("mode", EACH)
def test_preferred_affinity_counts_only_with_its_gate(profile: str, mode: str):
    asked = request(2, *EACH[mode], affinity=PREFERRED)
    with_gate = list_counts([4, 9, 4, 6], asked, build_profile(profile, "TASRespectNodeAffinityPreferred"), ssd=3)
    without = list_counts([4, 9, 4, 6], asked, build_profile(profile), ssd=3)
    assert with_gate == [0, 0, 0, 2]
    assert without == ([0, 2, 0, 0] if profile == "TASProfileMostFreeCapacity" else [2, 0, 0, 0])


def test_compact_gives_way_to_preferred_affinity_only_with_the_gate_and_where_a_pod_set_has_some():
    def place_five(gates: dict[str, bool], affinity: dict[str, Any] | None) -> list[int]:
        return list_counts(
            [6, 5, 3, 1, 1], request(5, Mode.UNCONSTRAINED, affinity=affinity), read_profiles(gates, "compact").default, ssd=0
        )

    respecting = {"TASRespectNodeAffinityPreferred": True}
    assert place_five({}, PREFERRED) == place_five(respecting, None) == [0, 5, 0, 0, 0]
    assert place_five(respecting, PREFERRED) == [5, 0, 0, 0, 0]


def test_the_gate_that_contradicts_compact_is_the_one_that_is_not_as_it_is_by_default():
    with pytest.raises(ContradictingProfile, match=r"^TASBalancedPlacement=true and the placement profile compact each say"):
        read_profiles({"TASProfileBestFit": False, "TASBalancedPlacement": True}, "compact")
    with pytest.raises(ContradictingProfile, match=r"^TASProfileMixed=false"):
        read_profiles({"TASBalancedPlacement": False, "TASProfileMixed": False}, "compact")


NAMED = {"best-fit": "TASProfileBestFit", "least-free": "TASProfileLeastFreeCapacity", "balanced": "TASBalancedPlacement"}


@pytest.mark.parametrize("name", NAMED)
@given(scene=scenes(), process=st.sampled_from([{}, *({gate: True} for gate in NAMED.values())]), respects=st.booleans())
def test_profile_of_one_algorithm_places_as_its_gate_does_process_wide(
    name: str, scene: tuple[Cluster, PodSetRequest], process: dict[str, bool], respects: bool
):
    (cluster, asked), affinity = scene, {"TASRespectNodeAffinityPreferred": respects}
    by_name = read_profiles(process | affinity).find_nearest(name)
    assert place(cluster.view(), [asked], by_name) == place(cluster.view(), [asked], read_profile({NAMED[name]: True} | affinity))


@pytest.mark.parametrize("name", NAMED)
def test_profile_of_one_algorithm_as_default_contradicts_a_gate(name: str):
    with pytest.raises(ContradictingProfile, match=rf"^TASBalancedPlacement=true and the placement profile {name} each say"):
        read_profiles({"TASBalancedPlacement": True}, name)


@pytest.mark.parametrize("gate", ["TASProfileBestFit", "TASProfileLeastFreeCapacity", "TASProfileMostFreeCapacity"])
@given(scene=scenes(), respects=st.booleans())
def test_promises_hold_under_every_profile_gate(gate: str, scene: tuple[Cluster, PodSetRequest], respects: bool):
    cluster, asked = scene
    profile = read_profile({gate: True, "TASRespectNodeAffinityPreferred": respects})
    decision = place(cluster.view(), [asked], profile)
    if decision.refusal is None:
        check(cluster, [asked], decision)


@given(clusters(), st.integers(1, 12), st.sampled_from(["TASProfileBestFit", "TASProfileLeastFreeCapacity", "TASProfileMostFreeCapacity"]))
def test_whether_it_fits_does_not_depend_on_the_profile(cluster: Cluster, count: int, gate: str):
    asked = request(count, Mode.UNCONSTRAINED)
    fits = [place(cluster.view(), [asked], read_profile(gates)).refusal is None for gates in ({}, {gate: True})]
    assert fits[0] == fits[1]

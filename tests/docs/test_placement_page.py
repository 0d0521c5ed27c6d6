"""The tables of docs/placement.md are what gates select and the engine decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from core.model.podset import Mode
from core.names import PLACEMENT_PROFILES
from core.placement.algorithms.profile import MIXED, STANDARD, Profile, read_profile
from core.placement.engine import place
from tests.builders import RACK, request
from tests.placement.algorithms.test_balanced import build_cluster

PAGE = (Path(__file__).parents[2] / "docs" / "placement.md").read_text()
ROWS = {cells[0]: cells[1:] for line in PAGE.splitlines() if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) > 2}


@pytest.mark.parametrize(
    ("row", "gates"),
    [
        ("none, or `TASProfileMixed` (default)", {}),
        ("`TASProfileBestFit`, or `TASProfileMixed=false`", {"TASProfileMixed": False}),
        ("`TASProfileBestFit`, or `TASProfileMixed=false`", {"TASProfileBestFit": True}),
        ("`TASProfileLeastFreeCapacity`", {"TASProfileLeastFreeCapacity": True}),
        ("`TASProfileMostFreeCapacity`", {"TASProfileMostFreeCapacity": True}),
        ("`TASBalancedPlacement`", {"TASBalancedPlacement": True}),
    ],
)
def test_page_names_the_algorithm_that_each_gate_selects(row: str, gates: dict[str, bool]):
    profile = read_profile(gates)
    modes = (Mode.PREFERRED, Mode.REQUIRED, Mode.UNCONSTRAINED)
    assert ROWS[row] == ["BalancedPlacement" if profile.is_balanced(mode) else profile.get_algorithm(mode).name for mode in modes]


@pytest.mark.parametrize("name", ["best-fit", "least-free", "balanced"])
def test_page_names_the_algorithm_of_each_profile(name: str):
    profile = STANDARD.named[name]
    modes = (Mode.PREFERRED, Mode.REQUIRED, Mode.UNCONSTRAINED)
    assert ROWS[f"`{name}`"] == ["BalancedPlacement" if profile.is_balanced(mode) else profile.get_algorithm(mode).name for mode in modes]
    assert {row.strip("`") for row in ROWS if row.strip("`") in PLACEMENT_PROFILES} == set(PLACEMENT_PROFILES)


@pytest.mark.parametrize(("row", "profile"), [("BestFit", MIXED), ("BalancedPlacement", replace(MIXED, balanced=True))])
def test_example_of_the_page_is_placed_as_it_shows(row: str, profile: Profile):
    decision = place(build_cluster([[[10], [10]]]).view(), [request(12, Mode.PREFERRED, RACK)], profile)
    assert decision.refusal is None
    (placement,) = decision.placements
    racks = Counter[int]()
    for domain in placement.assignment.domains:
        racks[int(domain.values[-1].removeprefix("n"))] += domain.count  # one node a rack
    example = PAGE[PAGE.index("## An example") : PAGE.index("## Balanced placement")]
    (line,) = [line for line in example.splitlines() if line.startswith(f"| {row} |")]
    assert sorted(racks.values(), reverse=True) == [int(cell) for cell in line.strip("|").split("|")[1:]]

"""What the soak makes of its samples: growth is told from noise."""

from __future__ import annotations

import random

import pytest

from tests.bench.soak import Held, Sample, describe, grown, left_behind_mb, problems, warmed_up


def samples(slope_mb: float = 0.0, files_each: float = 0.0, tasks_each: float = 0.0) -> list[Sample]:
    """Ten minutes, 4 workloads a second, with memory that rises at the beginning and is noisy throughout."""
    chance = random.Random(1)
    made = []
    for second in range(5, 605, 5):
        admitted = 4 * second
        mb = 100 + min(second, 300) / 5 + slope_mb * admitted / 1000 + chance.uniform(-0.5, 0.5)
        reconciler = Held(mb, 40 + round(files_each * admitted), 60 + round(tasks_each * admitted) + chance.randrange(10))
        made.append(Sample(float(second), admitted, {"webhook": Held(80.0, 20, 12), "reconciler": reconciler}))
    return made


def test_the_warm_up_is_left_out():
    after = warmed_up(samples(), 10)
    assert after[0].at_s == 300.0
    assert warmed_up(samples(), 30)[0].at_s == 360.0
    assert left_behind_mb(samples(), "reconciler") > 5
    assert left_behind_mb(after, "reconciler") == pytest.approx(0.0, abs=0.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, []),
        ({"slope_mb": 1.0}, []),
        ({"slope_mb": 4.0}, ["the reconciler keeps 4."]),
        ({"files_each": 0.1}, ["the reconciler has "]),
        ({"tasks_each": 0.1}, ["the reconciler has "]),
    ],
    ids=["steady", "within the bound", "memory", "files", "tasks"],
)
def test_soak_samples_with_growth_are_reported(given: dict[str, float], said: list[str]):
    found = problems(warmed_up(samples(**given), 10), 2.0)
    assert len(found) == len(said)
    assert all(text.startswith(start) for text, start in zip(found, said, strict=True)), found


def test_a_count_that_wavers_has_not_grown():
    assert abs(grown(samples(), "reconciler", "tasks")) < 10


def test_the_table_has_a_line_a_minute():
    given = samples(slope_mb=4.0)
    told = describe(given, 10).splitlines()
    assert len(told) == 1 + 10 + 2
    left = left_behind_mb(warmed_up(given, 10), "reconciler")
    assert told[-2:] == [
        f"{part} MB for each 1,000 workloads, after the warm-up" for part in ("webhook: +0.00", f"reconciler: {left:+.2f}")
    ]

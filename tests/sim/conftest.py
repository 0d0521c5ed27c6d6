"""What the simulation changes in the process ends with each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.world import World


@pytest.fixture(autouse=True)
def _worlds_are_closed() -> Iterator[None]:
    """Also those of a test that has failed: `World.limit_workloads` holds for all that follow."""
    yield
    for world in list(World.unclosed):
        world.close()

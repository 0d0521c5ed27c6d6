"""Which places of nodes that a pod set has left its gated pods still need."""

from __future__ import annotations

import pytest

from core.plan.pods.node_health import Place
from reconciler.nodes.read_nodes import _find_awaited

HERE, LEFT, LEFT_TOO = ("n1", ""), ("n2", "n2"), ("n3", "n3")


@pytest.mark.parametrize(
    ("places", "done", "gated", "awaited"),
    [
        ([LEFT, HERE], [LEFT, HERE], 1, set()),  # the one that was left is given up, the other is free
        ([HERE, LEFT], [HERE, LEFT], 1, {LEFT}),  # the other way round
        ([HERE, LEFT], [HERE], 1, {LEFT}),
        ([HERE, LEFT], [], 2, {HERE, LEFT}),
        ([HERE, LEFT], [], 1, set()),
        ([LEFT, LEFT_TOO, HERE], [HERE], 2, {LEFT, LEFT_TOO}),
        ([HERE, LEFT], [HERE, LEFT], 0, set()),
    ],
)
def test_awaited_places_with_pods_that_are_done_are_those_that_are_not_given_up(
    places: list[Place], done: list[Place], gated: int, awaited: set[Place]
):
    assigned = {place: {"main": 1} for place in places}
    assert _find_awaited(assigned, {}, {(place, "main"): 1 for place in done}, {"main": gated} if gated else {}) == awaited

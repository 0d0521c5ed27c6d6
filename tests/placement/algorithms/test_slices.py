"""What a request asks of the levels: found in the topology, or refused with what is wrong and what would be right."""

from __future__ import annotations

import pytest

from core.model.podset import Mode, PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.engine import place
from core.placement.refusals import RefusalKind
from core.placement.topology.tree import NodeLabels, TopologyTree
from tests.builders import BLOCK, RACK, THREE_LEVELS, build_grid, build_view, request

HOST = HOSTNAME_LABEL
KNOWN = f"{BLOCK}, {RACK}, {HOST}"


@pytest.mark.parametrize(
    ("asked", "kind", "detail"),
    [
        pytest.param(
            PodSetRequest("main", 4, {"cpu": 1000}, None),
            RefusalKind.NO_LEVEL,
            "the topology request names none of required, preferred and unconstrained",
            id="no level at all",
        ),
        pytest.param(
            request(4, Mode.REQUIRED, "cloud/row"),
            RefusalKind.UNKNOWN_LEVEL,
            f"no topology level 'cloud/row'; the topology has {KNOWN}",
            id="a level that is not there",
        ),
        pytest.param(
            request(4, Mode.REQUIRED, BLOCK, slices=[("cloud/row", 2)]),
            RefusalKind.UNKNOWN_LEVEL,
            f"no slice level 'cloud/row'; the topology has {KNOWN}",
            id="a slice level that is not there",
        ),
        pytest.param(
            request(4, Mode.REQUIRED, BLOCK, slices=[(RACK, 0)]),
            RefusalKind.BAD_SLICE_SIZE,
            f"slice size 0 at {RACK}; at least 1 is needed",
            id="slices of nothing",
        ),
        pytest.param(
            request(4, Mode.PREFERRED, RACK, slices=[(BLOCK, 2)]),
            RefusalKind.SLICE_LEVEL_ABOVE_PODSET_LEVEL,
            f"slice level {BLOCK} is above {RACK}; it must be that level or a lower one",
            id="slices above their pod set",
        ),
        pytest.param(
            request(8, Mode.REQUIRED, BLOCK, slices=[(RACK, 4), (BLOCK, 2)]),
            RefusalKind.SLICE_LAYERS_ORDER,
            f"slice layers must go from coarse to fine; {BLOCK} does not",
            id="layers upside down",
        ),
        pytest.param(
            request(8, Mode.REQUIRED, BLOCK, slices=[(RACK, 4), (RACK, 2)]),
            RefusalKind.SLICE_LAYERS_ORDER,
            f"slice layers must go from coarse to fine; {RACK} does not",
            id="two layers at one level",
        ),
        pytest.param(
            request(5, Mode.REQUIRED, BLOCK, slices=[(RACK, 2)]),
            RefusalKind.UNEVEN_SLICES,
            "slice size 2 does not evenly divide the 5 pods; with feature gate TASPartialSlices the last slice may have fewer pods",
            id="slices that leave a pod over",
        ),
        pytest.param(
            request(8, Mode.REQUIRED, BLOCK, slices=[(RACK, 4), (HOST, 3)]),
            RefusalKind.SLICE_LAYERS_DIVISIBILITY,
            f"slice size 3 at {HOST} does not divide the 4 above it",
            id="layers that do not divide each other",
        ),
    ],
)
def test_request_that_the_topology_cannot_serve_is_refused_with_the_cause(asked: PodSetRequest, kind: RefusalKind, detail: str):
    refusal = place(build_view(THREE_LEVELS, build_grid(1, 1, 4)), [asked], MIXED).refusal
    assert refusal is not None
    assert (refusal.kind, refusal.pod_set, refusal.detail) == (kind, "main", f"pod set main: {detail}")


def build_tree(levels: tuple[str, ...]) -> TopologyTree:
    return TopologyTree(levels, [NodeLabels(node.name, node.labels) for node in build_grid(1, 1, 2)])


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        pytest.param(request(8, Mode.REQUIRED, RACK), Shape(1, 2, 1, (1, 1, 1), "pod"), id="required"),
        pytest.param(request(8, Mode.UNCONSTRAINED), Shape(2, 2, 1, (1, 1, 1), "pod"), id="anywhere: from the nodes"),
        pytest.param(request(8), Shape(2, 2, 1, (1, 1, 1), "pod"), id="implied: from the nodes"),
        pytest.param(
            request(8, Mode.UNCONSTRAINED, slices=[(RACK, 4)]), Shape(0, 1, 4, (1, 4, 1), "slice"), id="slices anywhere: from the top"
        ),
        pytest.param(request(8, Mode.REQUIRED, RACK, slices=[(RACK, 4)]), Shape(1, 1, 4, (1, 4, 1), "slice"), id="slices at their level"),
        pytest.param(request(8, Mode.PREFERRED, BLOCK, slices=[(RACK, 4), (HOST, 2)]), Shape(0, 1, 4, (1, 4, 2), "slice"), id="two layers"),
        pytest.param(request(8, Mode.REQUIRED, BLOCK, slices=[(RACK, 1)]), Shape(0, 1, 1, (1, 1, 1), "pod"), id="slices of one are pods"),
        pytest.param(request(8, Mode.REQUIRED, "auto"), Shape(1, 2, 1, (1, 1, 1), "pod", True), id="auto: above single nodes"),
        pytest.param(request(8, Mode.PREFERRED, "auto"), Shape(2, 2, 1, (1, 1, 1), "pod", True), id="auto preferred: from the nodes"),
        pytest.param(
            request(8, Mode.REQUIRED, "auto", slices=[(BLOCK, 4)]),
            Shape(0, 0, 4, (4, 1, 1), "slice", True),
            id="auto: not below the slices",
        ),
        pytest.param(
            request(8, Mode.REQUIRED, "auto", slices=[(HOST, 4)]), Shape(1, 2, 4, (1, 1, 4), "slice", True), id="auto: slices on nodes"
        ),
    ],
)
def test_request_shape_gives_start_level_and_unit_of_the_search(asked: PodSetRequest, shape: Shape):
    assert find_shape(build_tree(THREE_LEVELS), asked) == shape


def test_auto_is_the_rack_itself_where_no_level_is_lower():
    assert find_shape(build_tree((BLOCK, RACK)), request(4, Mode.REQUIRED, "auto")) == Shape(1, 1, 1, (1, 1), "pod", True)


def test_auto_is_the_only_level_there_is():
    assert find_shape(build_tree((HOST,)), request(4, Mode.REQUIRED, "auto")) == Shape(0, 0, 1, (1,), "pod", True)


def test_a_level_may_be_called_auto():
    nodes = [NodeLabels(f"n{i}", {"auto": "a", HOST: f"n{i}"}) for i in range(2)]
    assert find_shape(TopologyTree(("auto", HOST), nodes), request(2, Mode.REQUIRED, "auto")) == Shape(0, 1, 1, (1, 1), "pod", False)


def test_unit_below_a_level_is_the_slice_size_of_the_next_layer():
    shape = find_shape(build_tree(THREE_LEVELS), request(8, Mode.REQUIRED, BLOCK, slices=[(BLOCK, 8), (HOST, 2)]))
    assert isinstance(shape, Shape)
    assert [shape.count_unit_below(level) for level in range(3)] == [8, 2, 2]
    plain = find_shape(build_tree(THREE_LEVELS), request(8, Mode.REQUIRED, BLOCK))
    assert isinstance(plain, Shape)
    assert [plain.count_unit_below(level) for level in range(3)] == [1, 1, 1]

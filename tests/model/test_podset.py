"""`topologyRequest` of a pod set as the algorithms read it."""

from __future__ import annotations

import pytest

from core.model.podset import IMPLIED, Mode, SliceLayer, TopologyRequest, parse_topology_request


@pytest.mark.parametrize(
    ("wire", "parsed"),
    [
        (None, IMPLIED),
        ({"required": "rack"}, TopologyRequest(Mode.REQUIRED, "rack")),
        ({"preferred": "block"}, TopologyRequest(Mode.PREFERRED, "block")),
        ({"unconstrained": True}, TopologyRequest(Mode.UNCONSTRAINED)),
        ({"unconstrained": False}, None),
        ({}, None),
        ({"podSetGroupName": "g"}, None),
        # Index labels alone are what a pod set without annotations has on the wire.
        ({"podIndexLabel": "i"}, TopologyRequest(Mode.IMPLIED, pod_index_label="i")),
        (
            {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4},
            TopologyRequest(Mode.UNCONSTRAINED, slices=(SliceLayer("rack", 4),)),
        ),
        ({"podSetSliceRequiredTopology": "rack"}, TopologyRequest(Mode.UNCONSTRAINED, slices=(SliceLayer("rack", 0),))),
        (
            {"required": "block", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4},
            TopologyRequest(Mode.REQUIRED, "block", (SliceLayer("rack", 4),)),
        ),
        (
            {
                "preferred": "block",
                "podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 8}, {"topology": "host", "size": "2"}],
                "podSetSliceRequiredTopology": "ignored",
            },
            TopologyRequest(Mode.PREFERRED, "block", (SliceLayer("rack", 8), SliceLayer("host", 2))),
        ),
        (
            {"required": "rack", "podSetGroupName": "g", "podIndexLabel": "i", "subGroupIndexLabel": "j", "subGroupCount": 2},
            TopologyRequest(Mode.REQUIRED, "rack", (), "g", "i", "j", 2),
        ),
    ],
)
def test_requests_are_read(wire, parsed):
    assert parse_topology_request(wire) == parsed


def test_required_goes_before_preferred():
    assert parse_topology_request({"required": "a", "preferred": "b", "unconstrained": True}) == TopologyRequest(Mode.REQUIRED, "a")
